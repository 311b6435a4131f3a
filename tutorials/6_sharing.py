# %% [markdown]
# # 6. Sharing
#
# Ask for three answers to one prompt. The prompt's keys and values are the same for all three, so
# why keep them three times?
#
# ## What you will be able to do
#
# - tell from reference counts who holds a block, and when it becomes free,
# - predict how many blocks a fork copies, and when: never at the fork, seldom after it,
# - build fork, append with copy-on-write, and free,
# - estimate what sharing saves, and say why samples save little and beams save much.
#
# About 60 minutes.

# %%
import os

import torch
from IPython.display import HTML
from minipaged_visualizer import charts
from minipaged_visualizer.memory_player import MemoryPlayer
from minipaged_visualizer.svg_still import still

from minipaged import LLM, SamplingParams
from minipaged.exercises import check, ex_6_1, ex_6_2, ex_6_3, hint, reveal
from minipaged.memory.events import BlockCopied, Released
from minipaged.memory.kv_cache_manager import KVCacheManager
from minipaged.memory.replay import Replay

MODEL = os.environ.get("MINIPAGED_MODEL", "storyteller")
if MODEL == "storyteller":
    torch.set_num_threads(1)  # for a model so small, more threads only wait for each other
TEXT = "Once upon a time there was a shy fox named Ruby. She lived beside the old mill."


def sample(num_prompt_tokens, n=3, max_tokens=7):
    """Draw n samples for the first tokens of TEXT; give the trace of all that happened."""
    llm = LLM(MODEL, block_size=4, num_blocks=16, enable_prefix_caching=False, trace=True)
    prompt = llm.engine.tokenizer.encode(TEXT)[:num_prompt_tokens]
    assert len(prompt) == num_prompt_tokens
    params = SamplingParams(n=n, max_tokens=max_tokens, temperature=1, seed=1, ignore_eos=True)
    llm.generate([prompt], params, use_tqdm=False)
    return llm.trace


# %% [markdown]
# ## One prompt, three samples
#
# The prompt has 10 tokens, a block has room for 4, and we ask for `n=3` samples: A, B and C.
# Step 0 computes the prompt. **How many blocks are in use after step 0?**

# %%
guess = None  # your number

# %%
trace = sample(num_prompt_tokens=10)


def memory(trace, num_steps=None):
    """Replay the first steps of a trace; without a number, up to where its samples are freed."""
    state = Replay(trace.header.num_blocks, trace.header.block_size)
    for event in [event for step in trace.steps[:num_steps] for event in step.events]:
        if num_steps is None and isinstance(event, Released):
            break
        state.apply(event)
    return state


state = memory(trace, num_steps=1)
print("block tables    ", {"ABC"[seq]: table for seq, table in state.tables.items()})
print("reference counts", state.ref_counts[:6])
reveal(
    guess,
    state.num_used,
    "10 tokens fill 3 blocks, the last one half. B and C were forked from A: each got a table of "
    "its own, with the same block numbers in it. Tables are copied, blocks are not.",
)

# %% [markdown]
# The *reference count* of a block is the number of table entries that name it. At 0 the block is
# free. A fork copies the table and adds 1 to each block in it; that is all it does.
#
# ## Three writers, one block
#
# In step 1 each of the three writes a token of its own to position 10. That position lies in the
# third block, which all three share: who writes there writes into the others' text. So a writer
# first gets a copy of the block, and leaves the shared one. This is *copy-on-write*.
#
# Take this run, with a prompt of 10 tokens, and one with a prompt of 8. Both have `n=3` and 4
# tokens a block. **How many blocks are copied in each, from its first step to its last?**

# %%
guess = None  # a pair: (copies with 8 tokens, copies with 10 tokens)

# %%
runs = {8: sample(num_prompt_tokens=8), 10: trace}
copies = {
    length: [e for step in run.steps for e in step.events if isinstance(e, BlockCopied)]
    for length, run in runs.items()
}
for length, events in copies.items():
    print(f"{length:2} tokens:", [event.why for event in events] or "no copy")

reveal(
    guess,
    (len(copies[8]), len(copies[10])),
    "8 is a multiple of 4: the next token opens a new block, and the shared ones are full; nobody "
    "writes to them again. With 10, A copies and leaves, then B copies and leaves. C finds a "
    "reference count of 1: it is alone in the block and needs no copy.",
)

# %% [markdown]
# ## The moment of the copy
#
# The first copy of the run with 10 tokens, alone: the third block of A is its own now.

# %%
(moment,) = [
    (step.step, number + 1)
    for step in trace.steps
    for number, event in enumerate(step.events)
    if event is copies[10][0]
]
HTML(still(trace, *moment))

# %% [markdown]
# Now with what came before and after. Click into the player and press `n`, one event on: a copy,
# another copy, then the write. Who holds block 2 after each of them?

# %%
assert any(isinstance(event, BlockCopied) for event in trace.steps[1].events)
MemoryPlayer(trace)

# %% [markdown]
# After the first copy block 2 is B's and C's, after the second it is C's alone, and C writes to it.
#
# And the run with 8 tokens: in step 1 each sample takes a new block, and none is copied.

# %%
assert not any(isinstance(e, BlockCopied) for step in runs[8].steps for e in step.events)
MemoryPlayer(runs[8])

# %% [markdown]
# Two rules are in these runs:
#
# - **A fork on a block boundary copies nothing**, not even later.
# - **The last writer needs no copy.** Of n sequences that share a block and all write to it, n - 1
#   copy it.
#
# ## Exercise 6.1
#
# Build the fork. Sequences have letters here, so that you can compare with the player.
#
# `check` plays your function in scripts of forks, appends and ends beside the engine's own memory
# manager. Only the forks are yours here; the engine does the rest to your tables. If yours and its
# own part, you see the shortest such script, and the player shows where.
#
# Stuck? `hint(ex_6_1, 1)` in a new cell gives the first of three hints.


# %%
def fork(tables, ref_counts, parent, child):
    """Let `child` start with the blocks of `parent`; no block is copied.

    tables      the block table of each sequence: {"A": [0, 1]}; gets one for the child, in place
    ref_counts  ref_counts[block] is the number of table entries that name a block; changed in place
    parent      a sequence that has a table
    child       a sequence that has none yet

    With tables {"A": [0, 1]} and ref_counts [1, 1, 0, 0], fork(tables, ref_counts, "A", "B")
    leaves tables {"A": [0, 1], "B": [0, 1]} and ref_counts [2, 2, 0, 0].
    """
    raise NotImplementedError("Exercise 6.1: fork a sequence")


# %%
check(ex_6_1, fork)

# %% [markdown]
# ## Exercise 6.2
#
# Now the write. Before a token is written its position must have a slot, and the slot must be in a
# block that nobody else holds. Three cases, and two of them do not copy.
#
# The function only does the bookkeeping. It *returns* which blocks are to be copied; the engine
# passes that list to whoever holds the tensors, and they copy before they write.


# %%
def append_with_copy_on_write(table, num_tokens, ref_counts, free_list, block_size):
    """Make position `num_tokens`, the next one, writable by this sequence alone.

    table       the sequence's block table; changed in place
    num_tokens  tokens that it has so far, so the next one is written at this position
    ref_counts  ref_counts[block] is the number of table entries that name a block; changed in place
    free_list   the free blocks; a new one is taken from the front, at index 0
    block_size  tokens in a block

    There are three cases. On a block boundary the table gets a new block. In a block that others
    hold as well the sequence gets a copy of its own and leaves the shared one. In a block that it
    holds alone there is nothing to do.

    Returns the copies to run before the write, as a list of pairs (source, target); often none: [].

    With table [0, 1], num_tokens 6, ref_counts [2, 2, 0, 0], free_list [2, 3] and block_size 4 it
    returns [(1, 2)] and leaves table [0, 2], ref_counts [2, 1, 1, 0] and free_list [3].
    """
    raise NotImplementedError("Exercise 6.2: append with copy-on-write")


# %%
check(ex_6_2, append_with_copy_on_write)

# %% [markdown]
# ## Reference counts over time
#
# Back to the run with 10 tokens, up to where its samples end. Each row is one event that changed a
# count; `.` is a free block.

# %%
state = Replay(trace.header.num_blocks, trace.header.block_size)
counts = state.ref_counts[:8]
print("step  event    block  0  1  2  3  4  5  6  7")
for step in trace.steps:
    for event in step.events:
        if isinstance(event, Released):
            break
        state.apply(event)
        if counts != state.ref_counts[:8]:
            counts = state.ref_counts[:8]
            print(f"{step.step:4}  {event.kind:14}", *(f"{count or '.':>2}" for count in counts))

# %% [markdown]
# ## Who frees?
#
# All three samples end in the same step, A first. Each of them holds 4 blocks by then.
# **How many blocks become free when A ends, when B ends, when C ends?**

# %%
guess = None  # three numbers: (A, B, C)

# %%
state = memory(trace, num_steps=len(trace.steps) - 1)
became_free = []
for event in trace.steps[-1].events:
    before = state.num_used
    state.apply(event)
    if isinstance(event, Released):
        became_free.append(before - state.num_used)
        print(f"{'ABC'[event.seq]} gives back {event.blocks}: {became_free[-1]} become free")

reveal(
    guess,
    tuple(became_free),
    "Each gives back 4 references. A's and B's to the two blocks of the shared prompt were not the "
    "last ones, so these blocks stay. C, the last to leave, frees them. Nobody owns a shared "
    "block: not the parent either, which was the first to go.",
)

# %% [markdown]
# The order in which blocks are given back is the table's from its tail to its head. The free list
# gives away what was freed first. So the head of a text, which others are likeliest to need, stays
# longest. Chapter 8 will make use of that.
#
# ## Exercise 6.3


# %%
def free(tables, ref_counts, free_list, seq):
    """End a sequence: give its references back, and the blocks that nobody else holds.

    tables      the block table of each sequence; loses the one of `seq`
    ref_counts  ref_counts[block] is the number of table entries that name a block; changed in place
    free_list   the free blocks; a block that becomes free is put at the end
    seq         a sequence that has a table

    A table is given back from its tail to its head: others are likelier to share the head, so it
    should be the last to be taken again.

    With tables {"A": [0, 1, 2], "B": [0, 3]}, ref_counts [2, 1, 1, 1] and an empty free_list,
    free(tables, ref_counts, free_list, "A") leaves tables {"B": [0, 3]}, ref_counts [1, 0, 0, 1]
    and free_list [2, 1].
    """
    raise NotImplementedError("Exercise 6.3: free what nobody else holds")


# %%
check(ex_6_3, free)

# %% [markdown]
# ## What sharing saves
#
# Without sharing each sample would have blocks of its own for the whole text. What is saved is
# counted as the paper does it: blocks saved / blocks without sharing.
#
# At the end of the run with 10 tokens each sample has 16 tokens in its blocks: 4 blocks of 4.
# **How many percent are saved by then?**

# %%
guess = None  # a whole number of percent


# %%
def percent_saved(tables):
    """Give blocks saved / blocks without sharing."""
    entries = [block for table in tables for block in table]
    return 100 * (len(entries) - len(set(entries))) / len(entries)


saved = percent_saved(memory(trace).tables.values())
reveal(
    guess,
    round(saved),
    "The three tables have 12 entries and name 8 blocks: 4 of 12 are saved. "
    "The two full blocks of the prompt are there once, not three times.",
)

# %% [markdown]
# Over the whole run: what was used, and what copies would have taken on top. The third block of the
# prompt was shared for one step only.

# %%
charts.show(charts.sharing_saved(trace))

# %% [markdown]
# The longer the answers, the smaller the part that is shared. The paper's Alpaca requests have
# 19.31 prompt tokens and 58.45 output tokens on average (fig. 11), its blocks 16 tokens by default.
# What do `n` samples of such a request save at their end? And with prompt and output the other way
# round? No model is needed to tell: memory does not care which tokens they are.


# %%
def memory_at_the_end(num_prompt_tokens, num_output_tokens, n, block_size=16):
    """Let the engine's manager make room for n samples; the last token is never written."""
    manager = KVCacheManager(1000, block_size)
    prompt = list(range(num_prompt_tokens))
    manager.allocate(0, prompt)
    manager.commit([(0, prompt)])
    for child in range(1, n):
        manager.fork(0, child)
    for seq in range(n):
        manager.append_slots(seq, num_output_tokens - 1)
    return manager.snapshot()


for lengths in ((19, 58), (58, 19)):
    row = [percent_saved(memory_at_the_end(*lengths, n).tables.values()) for n in (2, 4, 6)]
    shown = ", ".join(f"{percent:.1f} %" for percent in row)
    print(f"{lengths[0]} prompt and {lengths[1]} output tokens, n = 2, 4, 6: {shown}")

# %% [markdown]
# At its end each sample has 5 blocks. 19 prompt tokens fill one of them, 58 fill three: these are
# shared, and the one that was not full is copied. Two samples save 1 of 10 blocks or 3 of 10.
# However many samples there are, they save less than 1 or 3 of 5: what each wrote is its own.
#
# What the paper reports, as an average over requests of many lengths:
#
# | | n = 2 | n = 4 | n = 6 | source |
# |---|---|---|---|---|
# | samples, Alpaca | 6.09 % | 8.53 % | 9.79 % | Kwon et al., SOSP 2023, fig. 15a |
# | beams, Alpaca | 37.56 % | 53.13 % | 55.16 % | fig. 15b |
#
# The samples on Alpaca save less than our one request of average size: a prompt of fewer than 16
# tokens has no full block, so its samples share nothing once each has its copy. ShareGPT's prompts
# are longer (161.31 tokens on average, fig. 11): samples save 16.2 to 30.5 % there (section 6.3).
# `minipaged paper fig15` rebuilds the figure from simulated requests.
#
# A *beam search* looks for the likeliest text and keeps the `n` best beginnings while it runs, the
# beams. Beams save so much more because they share what was *generated*, too: the search forks
# again and again, and drops the branches that fall behind. That is chapter 7.
#
# ## Other engines
#
# - The paper describes both rules in section 4.4. vLLM's first engine (v0) worked like this: see
#   `fork` and `append_slots` in its [block
#   manager](https://github.com/vllm-project/vllm/blob/00a456f1656e0fa60f0b212ed9b824fe9e688a8b/vllm/core/block_manager_v1.py).
# - vLLM's present engine (v1) has no copy-on-write for samples any more: `n` samples become `n`
#   requests ([pull request 10980](https://github.com/vllm-project/vllm/pull/10980),
#   `vllm/v1/engine/parallel_sampling.py`). They share full blocks of the prompt through the prefix
#   cache, and each computes the rest of the prompt again: at least the last token, which its first
#   sample is drawn from (`get_computed_blocks` in `vllm/v1/core/kv_cache_manager.py`). So of a
#   prompt of 8 tokens in blocks of 4 they share one block, not two.
#
# ## Summary
#
# - A fork copies a table and adds 1 to each reference count. It copies no block.
# - Who writes to a block that others hold gets a copy first; the copy runs before the write.
# - On a block boundary nobody writes to a shared block, so nothing is ever copied.
# - Of n sequences that write to a shared block, n - 1 copy it; the last one is alone with it.
# - A block is free when its last reference goes, whoever that belonged to.
#
# ## In the source
#
# - `minipaged/memory/kv_cache_manager.py`: `fork`, `append_slots` with `_copy_on_write`, and
#   `free`, exercises 6.1 to 6.3 as the engine has them. `blocks_to_append` knows the rule of the
#   last writer when it asks whether memory will do.
# - `minipaged/memory/block_pool.py`: `share` and `release`, and what they refuse.
# - `minipaged/engine/kv_cache.py`: `copy_blocks`, the copy itself, all of a step's pairs at once.
# - `minipaged/memory/checked_kv.py`: a cache in which a wrong copy shows, for tests.
#
# Next: chapter 7, beam search, where sequences fork all the time. It is still to come.
