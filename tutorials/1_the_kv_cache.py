# %% [markdown]
# # 1. The KV cache, and how contiguous slabs waste it
#
# The weights of a 13B model fit on a GPU with 40 GB, and 12 GB are left. Why are seven users
# enough to fill them?
#
# ## What you will be able to do
#
# - say what a model keeps of every token, and work out how many bytes that is,
# - name the three kinds of waste in contiguous memory, and count each of them,
# - explain why a server takes nearly all of a GPU for a model that needs a tenth of it.
#
# About 40 minutes.

# %%
import os
import time

import torch
from minipaged_visualizer import MemoryPlayer, SideBySide, charts

from minipaged import LLM, SamplingParams
from minipaged.exercises import check, ex_1_1, hint, reveal
from minipaged.lab.hardware import GIB, GPUS
from minipaged.lab.models import MODELS
from minipaged.lab.paper.fig2 import NAMES, REPORTED
from minipaged.lab.planner import plan
from minipaged.lab.side_by_side import Scene, run_side_by_side, summarize
from minipaged.lab.waste import measure
from minipaged.memory.contiguous import ContiguousManager
from minipaged.memory.reservation import ReserveMax

MODEL = os.environ.get("MINIPAGED_MODEL", "storyteller")
if MODEL == "storyteller":
    torch.set_num_threads(1)  # for a model so small, more threads only wait for each other

# %% [markdown]
# ## What is kept of a token
#
# A model writes one token at a time. To choose the next one, each attention layer compares the
# newest token's *query* with the *keys* of all tokens before it, and mixes their *values*.
#
# The player shows it on a real model. It opens at the last token; the left arrow steps back. Each
# row is a piece of the text, four tokens long: a *block*. The column *attention* tells how much of
# its attention the newest token gives to each. What else there is to see comes with chapter 2.

# %%
llm = LLM(MODEL, block_size=4, num_blocks=16, enable_prefix_caching=False, trace="deep")
llm.add_request("The moon is", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
for _ in range(24):  # a token each; the text is not at its end then
    (answer,) = llm.step()

prompt_ids, new_ids = answer.prompt_token_ids, answer.outputs[0].token_ids
last_look = [event for event in llm.trace.steps[-1].events if event.kind == "attend"][-1]
looked_at = sum(share > 0 for share in last_look.permille)
assert looked_at > 1, "the newest token looks back beyond its own block"
MemoryPlayer(llm, at_end=True)

# %% [markdown]
# Nothing can be dropped: the newest token looks at old blocks as well as at new ones. But the key
# and the value of a token never change once they are computed, as a token only looks back. So
# they are kept, and that is the *KV cache*.
#
# ## What it saves
#
# Without a cache, each new token needs the whole text computed again: prompt first, then prompt and
# one token, prompt and two, ...

# %%
print(f"{len(prompt_ids)} prompt tokens, {len(new_ids)} new ones")

# %% [markdown]
# With the cache the model computes each token once, and the newest one not yet: nobody has asked
# what follows it. How many tokens does it compute *without*?

# %%
guess = None  # your number

# %%


def tokens_computed(llm):
    """Add up what the steps of a run fed to the model."""
    return sum(step.prefill_tokens + step.decode_tokens for step in llm.trace.steps)


forgetful = LLM(MODEL, block_size=4, num_blocks=16, enable_prefix_caching=False, trace=True)
one_token = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
text, started = list(prompt_ids), time.perf_counter()
for _ in new_ids:  # each turn starts from nothing
    (turn,) = forgetful.generate({"prompt_token_ids": text}, one_token, use_tqdm=False)
    text += turn.outputs[0].token_ids
seconds = time.perf_counter() - started

assert text == prompt_ids + new_ids, "the same text, token by token"
print(f"with the cache: {tokens_computed(llm)} tokens, without: {tokens_computed(forgetful)}")
reveal(
    guess,
    tokens_computed(forgetful),
    f"{len(prompt_ids)} + {len(prompt_ids) + 1} + ... + {len(text) - 1}: it grows with the square "
    f"of the length. The text is the same; this took {seconds:.1f} s.",
)

# %% [markdown]
# The cache buys time with memory. How much memory?
#
# ## What a token costs
#
# A key and a value, in every layer, for every head that has its own (in many models several query
# heads share one):
#
# `2 * layers * kv_heads * head_dim * bytes per number`

# %%
header = llm.trace.header
per_token = header.bytes_per_block // header.block_size
print(f"{llm.model_name}: {per_token:,} bytes a token, {per_token / 1024:.0f} KiB")

# %% [markdown]
# The paper that introduced paging for this (Kwon et al., SOSP 2023,
# [arXiv:2309.06180](https://arxiv.org/abs/2309.06180)) uses OPT-13B: 40 layers, 40 heads of 128
# numbers, 2 bytes each. How many KiB does one token take there?

# %%
guess = None  # KiB

# %%
opt = MODELS["opt-13b"]
assert (opt.num_layers, opt.num_kv_heads, opt.head_dim) == (40, 40, 128)
reveal(
    guess,
    opt.kv_bytes_per_token() // 1024,
    "2 * 40 * 40 * 128 * 2 bytes = 819,200: 800 KiB, as in the paper's section 3. "
    "A text of 2,048 tokens, OPT's longest, has 1.6 GB of keys and values.",
)

# %% [markdown]
# The weights stay as they are; what grows with every user is this. On an A100 with 40 GB the paper
# counts 26 GB of weights and 12 GB for the KV cache (its table 1); the little that is left is for
# the model's intermediate results. At 1.6 GB a text, 12 GB are soon full.

# %%
slots = 12 * GIB // opt.kv_bytes_per_token()
print(f"12 GiB are {slots:,} slots; a slot is the room of one token")

# %% [markdown]
# ## A piece for each
#
# Systems before paging stored a request's keys and values in one contiguous piece, a *slab*, as
# tensors usually are. How long will the text be? Nobody knows before its end, so the slab is as
# long as the longest text that is allowed (the paper's sec. 3.1).
#
# A server allows 4,096 tokens, and a text ends with 512. How many percent of its slab were never
# touched?

# %%
guess = None  # percent

# %%
manager = ContiguousManager(num_blocks=4096, block_size=1, policy=ReserveMax(4096))
manager.allocate(0, range(512))
slab = len(manager.block_table(0))
reveal(
    guess,
    100 * (slab - 512) / slab,
    f"The slab has {slab:,} slots, the text 512 tokens: seven eighths are held for nothing.",
)

# %% [markdown]
# ## Where the slots go
#
# Every slot of the memory is one of these:
#
# | | |
# |---|---|
# | token | holds a token's key and value |
# | **reserved** | empty now, a token will come later; meanwhile nobody else can have it |
# | **internal** | empty, and no token will ever come: the text ends before |
# | **external** | nobody can use it: rounded up by the allocator, or a free piece, too short |
#
# Here are ten requests in a small memory: 112 slots, and no text is longer than 32 tokens. Each
# request gets its slab from a *buddy allocator*: it deals in pieces of 1, 2, 4, 8, ... slots and
# rounds up. The player draws the 112 slots as 28 boxes of four, and request 0 is A, request 1 is B.
# Step through it: it says who waits, and for what.

# %%
runs = run_side_by_side(Scene(policy="max"))
in_slabs = summarize(runs.slabs)
assert in_slabs.first_wait is not None, "somebody waits for memory"
MemoryPlayer(runs.slabs)

# %% [markdown]
# How many requests ran at once, at most?

# %%
guess = None  # your number

# %%
reveal(
    guess,
    in_slabs.most_running,
    "112 // 32 slabs fit; the 16 slots that are left are external waste. In the paper's memory it "
    "is 15,728 // 2,048 = 7: there are the seven users (fig. 13 counts 7.00 of them).",
)

# %% [markdown]
# And how many percent of all slots held a token, on average until nobody waits any more? An
# estimate will do: in the player a box is coloured as far as it holds tokens.

# %%
guess = None  # percent, a whole number


# %%
def percentages(trace):
    """Give where the slots went, in percent of all, on average until nobody waits any more."""
    last_wait = max(number for number, step in enumerate(trace.steps) if step.note)
    waste = measure(trace.header, trace.steps).average(0, last_wait + 1)
    return {
        kind: round(100 * waste.share(kind))
        for kind in ("tokens", "reserved", "internal", "external")
    }


where = percentages(runs.slabs)
print(where)
assert sum(where.values()) in range(98, 103), "the four kinds are all there is, up to rounding"
reveal(
    guess,
    where["tokens"],
    f"{where['internal']} % are internal waste: slots that their requests hold to the end and "
    "never use. Whoever waits, waits for memory that is empty.",
)

# %% [markdown]
# ## Can one reserve less?
#
# Not the longest text (*Max*), but a guess at this one's length. *Pow2* reserves the prompt and
# at most twice what the answer will need, *Oracle* exactly what the text will need, which nobody
# can know. The paper compares vLLM with these three (sec. 6.1). It calls them *Orca (Max)* and so
# on, after a server of the time before paging.
#
# With Oracle one kind of waste is gone. Which one?

# %%
guess = None  # "reserved", "internal" or "external"

# %%
shares = {
    rule: percentages(run_side_by_side(Scene(policy=rule)).slabs)
    for rule in ("max", "pow2", "oracle")
}
for rule, kinds in shares.items():
    print(f"{rule:<8}{kinds}")
kinds = ("reserved", "internal", "external")
reveal(
    guess,
    min(kinds, key=shares["oracle"].get),
    "No slot is asked for that will not be used. But it is still asked for at the start, so it is "
    "reserved for a long time. And external waste has grown: 17 slots take a piece of 32, and "
    "between pieces of many lengths lie free ones, too short for whoever waits.",
)

# %% [markdown]
# The paper measured the same on a real system (fig. 2): with slabs, only 20.4 to 38.2 % of the KV
# memory holds tokens; with pages, 96.3 %. Below are the numbers that the figure prints; for vLLM
# it is that one alone. `minipaged paper fig2` simulates them again.

# %%
reported = {
    system: {name: (share or 0) / 100 for name, share in zip(NAMES, row, strict=True)}
    for system, row in REPORTED.items()
}
charts.show(charts.waste_by_system(reported, "Where KV memory goes: Kwon et al., fig. 2"))

# %% [markdown]
# ## The same requests in pages
#
# On the left the slabs from above. On the right the same ten requests in the same memory, cut
# into blocks of four tokens that are handed out one by one, wherever one is free. How many run at
# once at most on the right?

# %%
guess = None  # your number

# %%
in_pages = summarize(runs.paged)
assert in_pages.most_running > in_slabs.most_running
print(f"steps until all are done: {in_slabs.num_steps} in slabs, {in_pages.num_steps} in pages")
reveal(
    guess,
    in_pages.most_running,
    "All of them, at once. A request holds the blocks that its tokens fill and no others, so at "
    "most 3 slots of its last block are empty.",
)

# %%
SideBySide(runs.slabs, runs.paged)

# %% [markdown]
# How that works is what the next five chapters are about.
#
# ## A server that has just started
#
# Somebody starts vLLM with a model of 0.5 B parameters, 1 GB of weights, on a GPU with 24 GB.
# About how many GB does `nvidia-smi` show as taken?

# %%
guess = None  # GB

# %%
utilization = 0.9  # vLLM's gpu_memory_utilization in its first years
reveal(
    guess,
    utilization * 24,
    "90 % of the GPU: vLLM takes that share when it starts, whatever the model. What the weights "
    "and one trial run leave of it becomes blocks, all at once.",
)

# %% [markdown]
# It looks like a leak, and is asked again and again ([vLLM issue
# 4253](https://github.com/vllm-project/vllm/issues/4253): "Why 0.5B model requires 21G gpu ram
# ?"). An author of the paper answers: "vLLM pre-allocates and reserves the maximum possible
# amount of memory for KV cache blocks" ([issue
# 235](https://github.com/vllm-project/vllm/issues/235)).
#
# It is no waste: the pool belongs to nobody yet, and every block that is free can go to the next
# user. A smaller `gpu_memory_utilization` gives memory back to others and serves fewer users. Its
# default was 0.9 ([issue 1298](https://github.com/vllm-project/vllm/issues/1298)) and is 0.92
# [at present](https://docs.vllm.ai/en/stable/api/vllm/config/cache/). The engine here takes 0.9.
#
# What becomes of OPT-13B on 90 % of 40 GiB, by arithmetic: how many requests fit at once, and how
# much of the memory holds tokens (`minipaged plan --model opt-13b --gpu a100-40g` tells more).

# %%
sizes = plan(opt, GPUS["a100-40g"], mean_len=499)  # ShareGPT's mean: 161 + 338 tokens (fig. 11)
print(f"36 GiB, less {sizes.weight_bytes / GIB:.1f} GiB of weights: {sizes.num_slots:,} slots")
for row in sizes.allocators:
    print(f"{row.allocator:<12}{row.num_requests:>3} requests, {row.token_states:4.1f} % tokens")

# %% [markdown]
# ## Exercise 1.1
#
# Count the waste of one slab. If your function is wrong, the check shows the smallest slab for
# which it is, and the player below draws it.
#
# Stuck? `hint(ex_1_1, 1)` in a new cell gives the first of three hints.


# %%
def slab_waste(asked, num_tokens, final_tokens):
    """Give the empty slots of a slab by kind: (reserved, internal, external).

    asked         slots that the request asked for before it started
    num_tokens    tokens that are written so far
    final_tokens  tokens that it will have when it ends: 1 <= num_tokens <= final_tokens <= asked

    The buddy allocator gives a slab of 1, 2, 4, 8, ... slots, the smallest that is enough: a
    request that asks for 6 slots gets 8, one that asks for 8 gets 8.

    reserved      empty now; a token will come
    internal      asked for; no token will ever come
    external      beyond what was asked for; nobody can use it

    slab_waste(asked=6, num_tokens=2, final_tokens=5) -> (3, 1, 2)
    """
    raise NotImplementedError("Exercise 1.1: count the empty slots of a slab, by kind")


check(ex_1_1, slab_waste)

# %% [markdown]
# ## Summary
#
# - A token's key and value are kept in every layer, so that it is computed once: the KV cache.
# - OPT-13B keeps 800 KiB a token. What the weights leave of a GPU, the users' texts fill.
# - A slab must be as long as a text may become. What stays empty is reserved, internal or external.
# - In the paper's measurements 20.4 to 38.2 % of the memory held tokens; with pages 96.3 %.
# - A server takes nearly all of the GPU as a pool of blocks when it starts. That is no leak.
#
# ## In the source
#
# - `minipaged/engine/kv_cache.py`: `allocate` makes the one tensor; `bytes_per_block`.
# - `minipaged/memory/contiguous.py`: `ContiguousManager`; `minipaged/memory/buddy.py`: its slabs.
# - `minipaged/lab/waste_kinds.py`: one definition of each kind of waste.
#
# Next: [virtual memory](2_virtual_memory.ipynb). Operating systems had this problem, and solved it.
