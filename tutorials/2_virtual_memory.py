# %% [markdown]
# # 2. Virtual memory as the blueprint
#
# Chapter 1 showed slabs that hold more air than tokens. Programs in a computer's memory had the
# same problem sixty years ago, and its solution is in every computer since.
#
# ## What you will be able to do
#
# - turn a virtual address into a physical one,
# - say what page, frame, page table and page fault are called here, and where the picture ends,
# - build the pool that hands out blocks, so that nothing is ever handed out twice.
#
# About 45 minutes.

# %%
import mmap
import os

import torch
from minipaged_visualizer import MemoryPlayer

from minipaged import LLM, SamplingParams
from minipaged.exercises import check, ex_2_1, ex_2_2, hint, reveal
from minipaged.memory.block_pool import BlockPool as EnginesBlockPool
from minipaged.memory.events import BlockAllocated, Preempted, Released

MODEL = os.environ.get("MINIPAGED_MODEL", "storyteller")
if MODEL == "storyteller":
    torch.set_num_threads(1)  # for a model so small, more threads only wait for each other

# %% [markdown]
# ## Pages and frames
#
# At first a program got one piece of memory, as long as it might ever need. Then memory was cut
# into *frames* of equal size, and each program's addresses into *pages* of that size (the Atlas
# computer; Kilburn et al., "One-level storage system", 1962). A page may lie in any frame. The
# program sees one row of addresses; a *page table* says which frame each page is in.
#
# Your own computer works like that. Its pages have this many bytes:

# %%
page_size = mmap.PAGESIZE
print(page_size)

# %% [markdown]
# A program asks for 10,000 bytes and gets whole pages. How many bytes at the end of the last page
# does it not need?

# %%
guess = None  # your number

# %%
pages = -(-10_000 // page_size)  # rounded up
reveal(
    guess,
    pages * page_size - 10_000,
    f"It gets {pages} x {page_size:,} bytes. However much a program asks for, what it does not "
    "need is less than one page; and no piece that is free is too short for anybody.",
)

# %% [markdown]
# All of chapter 1's waste but this is gone: nothing is reserved for later, as a page gets its
# frame when it is first touched (a *page fault*), and there is no external waste, as any frame
# will do.
#
# ## Exercise 2.1
#
# The price is a look into the table for every address. Build it.
#
# Stuck? `hint(ex_2_1, 1)` in a new cell gives the first of three hints.


# %%
def translate(page_table, address, page_size):
    """Give the physical address behind a virtual one, or None for a page fault.

    page_table  page_table[0] is the frame of page 0, ...; None: this page is in no frame
    address     a virtual address; it lies in a page of the table
    page_size   bytes in a page, and in a frame

    Frames are numbered from 0, and frame f begins at physical address f * page_size.

    translate([5, 2], address=6, page_size=4) -> 10
    translate([5, None], address=6, page_size=4) -> None
    """
    raise NotImplementedError("Exercise 2.1: turn a virtual address into a physical one")


check(ex_2_1, translate)

# %% [markdown]
# ## The same words here
#
# "One can think of blocks as pages, tokens as bytes, and requests as processes" is how the paper
# puts it (Kwon et al., SOSP 2023, [arXiv:2309.06180](https://arxiv.org/abs/2309.06180), sec. 1).
#
# | operating system | here |
# |---|---|
# | process | sequence: one text |
# | byte | token: its keys and values |
# | page | logical block |
# | frame | physical block |
# | page table | block table |
# | physical address | slot |
# | page fault: a page gets a frame | a block is taken when a token needs it |
# | free frames | the pool |
# | `fork()` and copy-on-write | samples share their prompt's blocks until they write (chapter 6) |
# | swap space | swap pool |
#
# Watch it: two stories are told at once, with 4 tokens a block. The player is empty until the model
# runs, after the next question; then it follows. In its block table *logical* is the page and
# *physical* the frame. The left arrow steps back.

# %%
llm = LLM(MODEL, block_size=4, num_blocks=16, enable_prefix_caching=False, trace=True)
MemoryPlayer(llm)

# %% [markdown]
# When both are nearly done, do the blocks of the first story, A, lie side by side?

# %%
guess = None  # True or False

# %%
params = SamplingParams(max_tokens=20, temperature=0.8, seed=7, ignore_eos=True)
for prompt in ("The moon is", "A small boat"):
    llm.add_request(prompt, params)
while llm.has_unfinished_requests():
    memory = llm.memory()  # as it was before the last step
    llm.step()

first, second = memory.tables
table = list(memory.tables[first])
print(f"A: {table}, B: {list(memory.tables[second])}")
neighbours = list(range(table[0], table[0] + len(table)))
assert table != neighbours, "the stories take blocks in turn"
reveal(
    guess,
    table == neighbours,
    "Both grow at once, and whoever needs a block gets the one that has been free the longest. The "
    "model sees no difference: it reads through the table.",
)

# %% [markdown]
# Look up at the player, which is at the end now, where both have given their blocks back. One step
# back they have them. Click a block: it tells its slots, its owner and its history.
#
# ## Counting page faults
#
# A block that is taken for a prompt was needed at once. The others were taken because the last
# one was full: a page fault, so to say.

# %%
arrived = llm.trace.steps[0].events[0]
print(f"A: a prompt of {arrived.num_prompt_tokens} tokens, then 20 new ones; 4 tokens a block")

# %% [markdown]
# How many blocks did A take while it was writing?

# %%
guess = None  # your number

# %%
events = [event for step in llm.trace.steps for event in step.events]
faults = [
    event
    for event in events
    if isinstance(event, BlockAllocated) and event.seq == first and event.why == "append"
]
written = arrived.num_prompt_tokens + 20 - 1
assert len(table) == -(-written // 4)
reveal(
    guess,
    len(faults),
    f"{written} tokens were written, as nothing comes after the last one, and they fill "
    f"{len(table)} blocks; the prompt took {len(table) - len(faults)} of them.",
)

# %% [markdown]
# ## Where the picture ends
#
# When memory is short, an operating system takes one page away from somebody, one that nobody has
# touched for long, and writes it to the disk. Here are two stories in a memory of 10 blocks, and
# together they need more.

# %%
short = LLM(MODEL, block_size=4, num_blocks=10, enable_prefix_caching=False, trace=True)
params = SamplingParams(max_tokens=24, temperature=0.8, seed=7, ignore_eos=True)
short.generate(["The moon is", "A small boat"], params, use_tqdm=False)

events = [event for step in short.trace.steps for event in step.events]
assert any(isinstance(event, Preempted) for event in events), "memory was short"
lost = next(e for e in events if isinstance(e, Released) and e.why == "preempted")
before = events[: events.index(lost)]
had = [e.block for e in before if isinstance(e, BlockAllocated) and e.seq == lost.seq]
when = next(s.step for s in short.trace.steps if lost in s.events)
print(f"step {when}: one more block is needed, and none is free; B, the younger, has {len(had)}")

# %% [markdown]
# How many of its blocks does B lose?

# %%
guess = None  # your number

# %%
assert sorted(lost.blocks) == sorted(had), "every block that it had"
reveal(
    guess,
    len(lost.blocks),
    "All that it has. Attention reads the whole text for every new token, so a text with one block "
    "missing can't go on: all or nothing (the paper's sec. 4.5). Who came last gives way first. "
    "This is preemption: B waits, and goes on when there is room.",
)

# %% [markdown]
# Go to that step, then on: B takes blocks again, and its text goes on where it was.

# %%
MemoryPlayer(short)

# %% [markdown]
# Three more differences:
#
# - Nothing goes to a disk. The keys and values are thrown away and computed again later from the
#   text, which is cheap to keep, or they move to the CPU's memory, to a *swap pool* (sec. 4.5). No
#   operating system could compute a page again.
# - A page gets its frame when somebody touches it. Here each step takes its blocks *before* the
#   model runs, so that nothing on the GPU ever stops for a fault.
# - Two processes share a page because somebody mapped it twice. Two requests can share a block
#   because their texts begin alike: it is found by its content.
#
# ## The pool
#
# What is left to build is the part that hands out frames. This is what the engine's own does with
# three blocks. Which one comes at the end?
#
# ```
# take 0, take 1, take 2,   give back 1,   give back 0,   take ?
# ```

# %%
guess = None  # your number

# %%
pool = EnginesBlockPool(3)
assert [pool.allocate(for_seq=0) for _ in range(3)] == [0, 1, 2]
pool.release([1])
pool.release([0])
reveal(
    guess,
    pool.allocate(for_seq=0),
    "The block that has been free the longest. Any order would be right. This one leaves the keys "
    "and values in a block for as long as it can, as a later text that begins alike may read them "
    "there (the prefix cache, chapter 8).",
)

# %% [markdown]
# ## Exercise 2.2
#
# Build one. It is short, and everything rests on it: a block that is handed out to two sequences
# is the worst bug that such an engine can have. Nothing crashes, and one user's text continues
# another's. If that happens in your pool, the player below shows where.
#
# Stuck? `hint(ex_2_2, 1)`.


# %%
class BlockPool:
    """Blocks 0, 1, ..., num_blocks - 1: who wants one gets one that nobody else has.

    pool = BlockPool(2)
    pool.allocate() -> 0        pool.allocate() -> 1        pool.num_free() -> 0
    pool.free(0)                pool.num_free() -> 1
    pool.free(0)                raises an error: block 0 is free already
    pool.allocate() -> 0        pool.allocate()    raises an error: no block is free
    """

    def __init__(self, num_blocks):
        """Begin with all blocks free."""
        raise NotImplementedError("Exercise 2.2: build a pool of blocks")

    def allocate(self):
        """Take the block that has been free the longest, and give its number.

        In a new pool that is block 0, then block 1, ...; a block that is given back goes behind all
        others. If no block is free, raise an error (any exception), and change nothing.
        """
        raise NotImplementedError("Exercise 2.2: allocate")

    def free(self, block):
        """Give a block back.

        If it is free already, or no block of this pool, raise an error and change nothing.
        """
        raise NotImplementedError("Exercise 2.2: free")

    def num_free(self):
        """Give how many blocks are free."""
        raise NotImplementedError("Exercise 2.2: num_free")


check(ex_2_2, BlockPool)

# %% [markdown]
# ## Summary
#
# - Memory is cut into equal pieces, and a table says which piece holds what: then no request has to
#   lie in one piece, or to say beforehand how long it will be.
# - Blocks are pages, tokens are bytes, sequences are processes.
# - What is wasted is less than one block a sequence.
# - A sequence is in memory with all of its blocks or with none, as attention reads them all.
# - The pool must never hand out a block twice: it refuses to take back what is free.
#
# ## In the source
#
# - `minipaged/memory/block_pool.py`: `BlockPool`, with reference counts and a prefix cache.
# - `minipaged/memory/free_list.py`: `FreeList`, why it is no deque, and what was measured.
# - `minipaged/engine/scheduler.py`: `Scheduler.preempt`, all or nothing.
# - `docs/GLOSSARY.md`: these words beside those of vLLM, SGLang and operating systems.
#
# Next: [block tables](3_block_tables.ipynb). In which step is a new block taken, exactly?
