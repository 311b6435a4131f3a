# %% [markdown]
# # 3. Block tables
#
# A sequence sees its keys and values as one row of positions 0, 1, 2, ... In memory they lie in
# blocks, anywhere. The block table is what joins the two.
#
# ## What you will be able to do
#
# - turn a position into a slot, by hand and in code,
# - say in which step of a generation a new block is taken, and why not earlier,
# - build a block table that takes its blocks on demand.
#
# About 40 minutes.

# %%
import os

import torch
from minipaged_visualizer.memory_player import MemoryPlayer

from minipaged import LLM, SamplingParams
from minipaged.exercises import check, ex_3_1, ex_3_2, ex_3_3, hint, reveal
from minipaged.memory.block_table import slot_mapping as engines_slot_mapping
from minipaged.memory.events import BlockAllocated, Sampled, Written

MODEL = os.environ.get("MINIPAGED_MODEL", "storyteller")
if MODEL == "storyteller":
    torch.set_num_threads(1)  # for a model so small, more threads only wait for each other

# %% [markdown]
# ## From a position to a slot
#
# With 4 tokens a block, a sequence of 9 tokens needs three blocks. Its table says which:
#
# ```
# position         0 1 2 3 | 4 5 6 7 | 8
# logical block    0       | 1       | 2
# block table      7       | 2       | 5       physical blocks
# ```
#
# A *slot* is the place of one token in the whole cache: block 0 has slots 0 to 3, block 1 has slots
# 4 to 7, and so on.
#
# In which slot lies position 6?

# %%
guess = None  # your number

# %%
table, block_size = [7, 2, 5], 4
(slot,) = engines_slot_mapping(table, 6, 7, block_size)
reveal(
    guess,
    slot,
    "Position 6 is in logical block 6 // 4 = 1, at offset 6 % 4 = 2. "
    "The table says physical block 2, which begins at slot 2 * 4: slot 8 + 2.",
)

# %% [markdown]
# ## Exercise 3.1
#
# The same for a run of positions. In each step the engine does this for every token that it is
# about to write; the code that writes them gets the list and knows nothing of sequences.
#
# Stuck? `hint(ex_3_1, 1)` in a new cell gives the first of three hints.


# %%
def slot_mapping(block_ids, start, stop, block_size):
    """Give the physical slots of the positions start, start + 1, ..., stop - 1.

    block_ids    the block table: block_ids[0] is the physical block of logical block 0, ...
    start, stop  as in range(start, stop); all these positions lie in blocks of the table
    block_size   tokens in a block

    A slot is a token's place in the whole cache: physical block * block_size + offset.

    slot_mapping([7, 2], start=2, stop=6, block_size=4) -> [30, 31, 8, 9]
    """
    raise NotImplementedError("Exercise 3.1: turn positions into slots")


# %%
check(ex_3_1, slot_mapping)

# %% [markdown]
# ## When is a block taken?
#
# A real model now, with 4 tokens a block and a prompt of exactly 3 tokens. Each step of the engine
# computes all tokens that it has not computed yet, writes their keys and values, and samples one
# token.

# %%
llm = LLM(MODEL, block_size=4, num_blocks=16, enable_prefix_caching=False, trace=True)
prompt = llm.engine.tokenizer.encode("Once upon a time")[:3]
params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)

[llm.engine.tokenizer.token_text(token) for token in prompt]

# %% [markdown]
# Step 0 takes the first block and writes the prompt to it: positions 0, 1, 2. **In which step is
# the second block taken?** Steps count from 0.

# %%
guess = None  # your number

# %%
llm.generate([prompt], params, use_tqdm=False)
trace = llm.trace
taken_in = [
    step.step for step in trace.steps for event in step.events if isinstance(event, BlockAllocated)
]
reveal(
    guess,
    taken_in[1],
    "Step 0 samples the 4th token and step 1 writes it, to the last free slot. "
    "Step 1 samples the 5th; it is written in step 2, and then it needs a block.",
)

# %% [markdown]
# See it happen: click into the player, go to step 1 with `→`, then press `n`, one event on, three
# times. In step 2 the block is taken, the token written, the next one sampled, in this order. The
# token that a step samples has no place yet.

# %%
MemoryPlayer(trace)

# %%
for step in trace.steps:
    wrote = [text for event in step.events if isinstance(event, Written) for text in event.texts]
    sampled = [text for event in step.events if isinstance(event, Sampled) for text in event.texts]
    took = [event.block for event in step.events if isinstance(event, BlockAllocated)]
    print(f"step {step.step}: took blocks {took}, wrote {wrote or 'the prompt'}, sampled {sampled}")

# %% [markdown]
# Why it must be so: to sample a token, the model computes the keys and values of the tokens
# *before* it. The new token's own are computed when it is fed to the model, one step later. Until
# then there is nothing to write.
#
# A sequence of `n` computed tokens holds `n / block_size` blocks, rounded up. No block is taken a
# step early.
#
# The text has 3 + 6 = 9 tokens at its end. **How many blocks did it hold at most?**

# %%
guess = None  # your number

# %%
most_blocks = len(taken_in)
assert len(prompt) + params.max_tokens == 9
reveal(
    guess,
    most_blocks,
    "The 9th token is sampled, and the text ends: nobody feeds it to the model, so it is never "
    "written. 8 tokens fill two blocks.",
)

# %% [markdown]
# ## Exercise 3.2
#
# The question as a function. An engine may also reserve blocks ahead, for example for a whole
# prompt of which it computes one part a step. The sequence holds them already: `num_blocks` counts
# them, too.


# %%
def blocks_to_append(num_tokens, num_new_tokens, num_blocks, block_size):
    """Give how many blocks must be taken before the next tokens can be written.

    num_tokens      tokens whose keys and values are written already
    num_new_tokens  tokens that are written in this step
    num_blocks      blocks that the sequence holds; some may be reserved ahead and still empty
    block_size      tokens in a block

    Take a block when a token is about to be written to it, and not before. Give none back.

    blocks_to_append(num_tokens=3, num_new_tokens=3, num_blocks=1, block_size=4) -> 1
    """
    raise NotImplementedError("Exercise 3.2: count the blocks that are missing")


# %%
check(ex_3_2, blocks_to_append)

# %% [markdown]
# ## Two sequences, one pool
#
# Why are the blocks of a sequence not neighbours? Because others take blocks meanwhile. Sequence A
# has the 3 tokens from before, sequence B has 6, and all blocks are free: A gets block 0, B gets
# blocks 1 and 2. Both then grow by one token a step.
#
# **What is A's block table at the end?** A table is a list, such as `[0, 1]`.

# %%
guess = None  # your list

# %%
llm = LLM(MODEL, block_size=4, num_blocks=16, trace=True, enable_prefix_caching=False)
longer = llm.engine.tokenizer.encode("The dog and the cat ran up the hill.")[:6]
assert len(longer) == 6
llm.generate([prompt, longer], params, use_tqdm=False)

taken = [
    event for step in llm.trace.steps for event in step.events if isinstance(event, BlockAllocated)
]
tables = [[event.block for event in taken if event.seq == seq] for seq in (0, 1)]
reveal(
    guess,
    tables[0],
    "B's prompt lies behind A's first block, so A's second block is the next free one, block 3.",
)

# %% [markdown]
# Go to step 2, where A takes its second block, and on to step 3, where B takes its third. Choose B
# to see its table.

# %%
assert [block for table in tables for block in table] == [0, 3, 1, 2, 4]
MemoryPlayer(llm.trace)

# %% [markdown]
# Contiguous memory would have had to reserve A's room before it started, or to move A now. The
# table makes the jump from block 0 to block 3 invisible: A's positions go on counting.
#
# ## Exercise 3.3
#
# Build the table. It begins empty and takes blocks when they are needed, through a function
# `allocate` that somebody hands in. Exercises 3.1 and 3.2 are its two halves.
#
# The pool may be too small. Then `allocate` raises an error, and the table must be as it was: a
# sequence that waits for memory must not believe that it has some.


# %%
class BlockTable:
    """The blocks of one sequence. They are taken one by one, as the text grows.

    block_ids   the physical block of each logical block
    num_tokens  tokens that have a slot
    """

    def __init__(self, block_size):
        self.block_size = block_size
        self.block_ids = []
        self.num_tokens = 0

    def append(self, num_new_tokens, allocate):
        """Make room for the next tokens and give the slot of each.

        allocate(n) gives a list of n free blocks. If there are not so many it gives none and
        raises OutOfBlocksError: let the error pass, and leave the table as it was.

        With allocate(1) -> [7], then allocate(1) -> [2]:
        table = BlockTable(block_size=4)
        table.append(3, allocate) -> [28, 29, 30]
        table.append(2, allocate) -> [31, 8]
        """
        raise NotImplementedError("Exercise 3.3: take the missing blocks, then give the slots")


# %%
check(ex_3_3, BlockTable)

# %% [markdown]
# ## Summary
#
# - The block table turns a logical block into a physical one; the offset stays.
# - `slot = block_id * block_size + offset` is a token's place in the whole cache.
# - A token is sampled first and written one step later. Its block is taken for that write.
# - So at most `block_size - 1` slots of a sequence are empty, and its last token never needs one.
# - Blocks of a sequence lie wherever one was free. Only the table knows.
#
# ## In the source
#
# - `minipaged/memory/block_table.py`: `blocks_for`, `slot_mapping` and `BlockTable`, exercises 3.1
#   to 3.3 as the engine has them.
# - `minipaged/memory/kv_cache_manager.py`: `append_slots`. It compares what it needs with what is
#   free before it takes the first block.
# - `minipaged/engine/batch.py`: `build_batch` asks for the slot of every token of a step.
#
# Next: chapter 4 looks into the blocks themselves, while a model writes to them.
