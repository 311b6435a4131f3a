# %% [markdown]
# # 5. The attention kernel
#
# The keys and values of a sequence lie in blocks anywhere in memory. Attention has to go through
# them, one block at a time, and come to the same result as softmax over everything at once.
#
# ## You will
#
# - compute softmax attention block by block, with three running values,
# - read `paged_decode`, write its loop, and say which block each program reads,
# - split one long context among many programs and join their results,
# - see why the cache's layout decides how many bits a GPU loads at once.
#
# About 70 minutes. Where Triton is installed (Linux), kernels run in its interpreter, on the CPU;
# elsewhere recordings show them and the exercise uses a few of Triton's words in plain torch.

# %%
import math
import os

import torch
from minipaged_visualizer import KernelMicroscope
from minipaged_visualizer.memory_player import MemoryPlayer
from minipaged_visualizer.microscope_page import recording_of

from minipaged import LLM, SamplingParams
from minipaged.exercises import check, ex_5_1, ex_5_2, ex_5_3, hint, reveal
from minipaged.exercises.tiles import USES_TRITON, jit, tl

MODEL = os.environ.get("MINIPAGED_MODEL", "storyteller")
if MODEL == "storyteller":
    torch.set_num_threads(1)  # for a model so small, more threads only wait for each other
print("Triton's interpreter" if USES_TRITON else "no Triton here: recordings, and plain torch")

# %% [markdown]
# ## A query, and where its keys are
#
# Two texts are written at the same time, so their blocks alternate. `Tap` stands before the
# attention backend and keeps what the last call was given: real queries, the last layer's cache.


# %%
class Tap:
    """An attention backend that keeps what the last layer of the last step was given."""

    def __init__(self, backend):
        self.backend = backend

    def plan(self, metadata, kv_cache, num_heads, window):
        """Plan as the backend does, and look over its shoulder."""
        attend = self.backend.plan(metadata, kv_cache, num_heads, window)

        def tapped(query, key, value, layer_cache):
            self.query, self.layer_cache, self.metadata = query, layer_cache, metadata
            self.output = attend(query, key, value, layer_cache)
            return self.output

        return tapped


block_size = 4
llm = LLM(MODEL, block_size=block_size, num_blocks=32, trace="deep", device="cpu")
model = llm.engine.runner.model
tap = model.attention = Tap(model.attention)
prompts = ["Once upon a time there was a", "The little dog"]
params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
outputs = llm.generate(prompts, params, use_tqdm=False)
MemoryPlayer(llm.trace)

# %% [markdown]
# Go a few steps on: the bars tell how much of its attention the newest token gave to each block. In
# the last step sequence A has one query a head, and its keys lie here:

# %%
seq_len = tap.metadata.seq_lens_list[0]
table = tap.metadata.block_tables[0, : -(-seq_len // block_size)].tolist()
query, layer_cache = tap.query[0], tap.layer_cache  # [num_heads, head_dim], [2, num_blocks, ...]
assert table[-1] - table[0] >= len(table), "the blocks are no neighbours"

print("block table of A:", table, "-", seq_len, "tokens")
print("queries, keys of a layer:", list(query.shape), list(layer_cache[0].shape))

# %% [markdown]
# The shapes are [heads, head_dim] and [blocks, slots, KV heads, head_dim]. There are more heads
# than KV heads: two heads, with a query each, read the same keys and values.
#
# ## Softmax wants the largest score first
#
# A token's *score* is the product of the query and its key, `query @ key / sqrt(head_dim)`. The
# weight of a token is `exp(score - largest) / total`, where `total` is the sum of all
# `exp(score - largest)`. The largest score is subtracted because `exp(89)` is more than fp32 can
# hold. But the largest is known only after the last block: until then either all scores are kept
# somewhere, or the keys are read twice.
#
# Online softmax needs one pass (Milakov and Gimelshein, 2018,
# [arXiv:1805.02867](https://arxiv.org/abs/1805.02867); for attention Dao et al., 2022,
# [arXiv:2205.14135](https://arxiv.org/abs/2205.14135)). It keeps three running values: `largest`,
# `total`, and the `weighted` sum of the values.
#
# The first block had the scores 1 and 0: `largest` is 1 and `total` is
# `exp(1 - 1) + exp(0 - 1)` = 1.37. Now comes a block with a single score, 3.
#
# **Is `total` afterwards more than 2.37, just as much, or less?** Or tell the number.

# %%
guess = None  # "more", "same", "less" or a number

# %%
before = torch.tensor([1.0, 0.0])
largest, total = before.max(), torch.exp(before - before.max()).sum()
rescale = torch.exp(largest - 3.0)
total = total * rescale + torch.exp(torch.tensor(3.0) - 3.0)
assert torch.allclose(total, torch.exp(torch.tensor([1.0, 0.0, 3.0]) - 3).sum())
reveal(
    guess,
    "less" if isinstance(guess, str) else round(total.item(), 2),
    "The old sum counted from 1, the new one counts from 3: the old one is multiplied by "
    "exp(1 - 3) = 0.14 and shrinks to 0.19. The new token adds exp(3 - 3) = 1. "
    "The sum became smaller: 1.19.",
)

# %% [markdown]
# ## Exercise 5.1
#
# One more block. The same factor rescales `total` and `weighted`: both were sums of
# `exp(score - old largest)`.
#
# Stuck? `hint(ex_5_1, 1)` in a new cell gives the first of three hints.


# %%
def attend_one_block(state, scores, values):
    """Give the running values after one more block has been seen.

    state   (largest, total, weighted): the largest score so far, the sum of exp(score - largest)
            over all tokens so far, and the sum of exp(score - largest) * value, [head_dim].
            Before the first block: (-inf, 0, zeros).
    scores  [num_tokens], the scores of this block's tokens
    values  [num_tokens, head_dim], their values

    A larger score than all before changes what the old sums are relative to. Return a new state.

    From (1, 1, [1, 0]), a block with scores [0, 2] and values [[0, 0], [2, 0]] leads to
    largest = 2
    total = 1 * exp(1 - 2) + exp(0 - 2) + exp(2 - 2) = 1.5032
    weighted = [1, 0] * exp(1 - 2) + exp(0 - 2) * [0, 0] + exp(2 - 2) * [2, 0] = [2.3679, 0]
    """
    raise NotImplementedError("Exercise 5.1: update largest, total and weighted")


# %%
check(ex_5_1, attend_one_block)

# %% [markdown]
# ## The same on a real query
#
# Block after block of A's table, in the order of the table. No score is kept, and no block is read
# twice.

# %%
num_heads, head_dim = query.shape
group = num_heads // layer_cache.shape[3]  # query heads that share a KV head


def scores_and_values(head, index):
    """Give the scores [tokens] and values [tokens, head_dim] of logical block `index`."""
    num_tokens = min(block_size, seq_len - index * block_size)
    keys, values = layer_cache[:, table[index], :num_tokens, head // group].float()
    return keys @ query[head].float() / math.sqrt(head_dim), values


def online(head, show=False):
    """Attend from one head, block by block."""
    largest, total, weighted = torch.tensor(-math.inf), torch.tensor(0.0), torch.zeros(head_dim)
    for index, block in enumerate(table):
        scores, values = scores_and_values(head, index)
        new_largest = torch.maximum(largest, scores.max())
        weights, rescale = torch.exp(scores - new_largest), torch.exp(largest - new_largest)
        total = total * rescale + weights.sum()
        weighted = weighted * rescale + weights @ values
        largest = new_largest
        if show:
            print(
                f"block {block:2}  largest {largest:6.2f}  rescale {rescale:.2f}  total {total:.2f}"
            )
    return weighted / total


def attend_to(head, indices):
    """Attend to some logical blocks; give the result, and log(sum of exp(score))."""
    pairs = [scores_and_values(head, index) for index in indices]
    scores, values = torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])
    return torch.softmax(scores, 0) @ values, torch.logsumexp(scores, 0)


def all_at_once(head):
    """Attend from one head with torch.softmax over all scores."""
    return attend_to(head, range(len(table)))[0]


for head in range(num_heads):
    assert torch.allclose(online(head), all_at_once(head), atol=1e-5)
    assert torch.allclose(online(head), tap.output[0, head].float(), atol=1e-4)
online(0, show=True)[:4]

# %% [markdown]
# A `rescale` below 1 marks a block with a larger score than all before it. All heads equal
# `torch.softmax`, and what the model itself computed in this step.
#
# ## Now as a kernel
#
# A kernel is one function that many *programs* run at the same time. `paged_decode` starts one
# program for each pair (sequence, KV head). It loads the queries that share this KV head, then
# loops through the sequence's block table, with your three running values.
#
# A recording is at hand: three sequences in blocks of 4 tokens, 2 KV heads. A and B begin alike and
# share block 5; chapter 6 tells how.

# %%
recording = recording_of("paged_decode")
for name, sequence in zip("ABC", recording.sequences, strict=True):
    print(f"{name}: {sequence.num_tokens:2} tokens, block table {list(sequence.blocks)}")
print("programs:", [program.program[:2] for program in recording.programs])

# %% [markdown]
# **Which blocks of the keys does program (2, 1) read, in which order?** That is sequence C, KV head
# 1.

# %%
guess = None  # a list of block numbers

# %%
(program,) = (p for p in recording.programs if p.program[:2] == (2, 1))
blocks_read = [b for step in program.steps if step.tensor == "key_cache" for b in step.blocks]
assert blocks_read == list(recording.sequences[2].blocks)
reveal(
    guess,
    blocks_read,
    "The loop counts logical blocks 0, 1, 2, ...; each time the table tells the physical one. "
    "Program (2, 0) reads the same blocks, but the other head's part of them.",
)

# %% [markdown]
# Click into it and step with `→`. `.` goes on to the next change of the softmax, Shift with `→` to
# the next program. Each line that loads lights up what it reads; after each block you see the
# softmax's state: m is `largest`, l is `total`, α is `rescale`. Watch program (0, 0) at its second
# block: a larger score comes, and α is below 1. In the last block of C, two slots hold no token:
# they are masked.

# %%
KernelMicroscope("paged_decode")

# %% [markdown]
# The line that is all there is to paging:
#
# `block = tl.load(block_tables + seq * stride_table + index).to(tl.int64)`
#
# In a contiguous cache, `block` would be the sequence's first block plus `index`. From there on,
# `here = block * stride_block + ...` and all the rest would be the same. With Triton here, the
# kernel now runs on the real cache from above, program after program, and must give what the model
# computed.


# %%
def run_the_kernel():
    """Run the kernel on sequence A, and give the microscope's view of it."""
    from minipaged_kernels.microscope import magnify
    from minipaged_kernels.paged_decode import paged_decode

    with magnify("Sequence A of the model, last layer") as microscope:
        where = torch.tensor([table]), torch.tensor([seq_len])
        result = paged_decode(query[None], layer_cache, *where)
    assert torch.allclose(result[0], tap.output[0], atol=1e-4)
    return KernelMicroscope(microscope)


run_the_kernel() if USES_TRITON else print("no Triton here: the recording is the same kernel")

# %% [markdown]
# ## Exercise 5.2
#
# The kernel's loop. Your function runs inside a small kernel: the queries are loaded, the result is
# stored for you. `key_cache` and `value_cache` are pointers: add element numbers to them, then
# `tl.load`. So `tl.load(key_cache + tl.arange(0, 4))` gives the first four numbers of the cache,
# and you need to know its layout, `[num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM]`. A small
# tensor that a program holds, such as these four numbers, is called a *tile*.
#
# Memory that belongs to no token is not zero: the check puts NaN there. It also watches which
# blocks you read.


# %%
@jit
def paged_decode_inner(
    q,
    key_cache,
    value_cache,
    block_table,
    seq_len,
    kv_head,
    scale,
    BLOCK_SIZE,
    NUM_KV_HEADS,
    HEAD_DIM,
):
    """Attend from the query heads of one KV head to all tokens of one sequence.

    q            [rows, HEAD_DIM], already loaded
    key_cache    pointer to the first element of [num_blocks, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM]
    value_cache  the same for values
    block_table  pointer to this sequence's table: entry i is the block of logical block i
    seq_len      tokens of the sequence; behind them, slots and table may hold anything, even NaN
    kv_head      the KV head whose keys and values are to be read
    scale        what scores are multiplied by

    With a block table of [5, 2], BLOCK_SIZE 4 and seq_len 6, the loop runs twice: it reads slots 0
    to 3 of block 5, then slots 0 and 1 of block 2. Return the result, [rows, HEAD_DIM].

    Tiles begin as tl.full([q.shape[0]], float("-inf"), tl.float32), or tl.zeros([...], tl.float32).
    Beside these you need arange, cdiv, load (with mask and other), dot, trans, where, maximum, exp,
    max and sum (with axis).
    """
    raise NotImplementedError("Exercise 5.2: go through the block table, block after block")


# %%
check(ex_5_2, paged_decode_inner)

# %% [markdown]
# The exercise's tiles are tiny, so that the interpreter is fast. Compiled for a GPU, `tl.dot` wants
# 16 rows, 16 columns and a depth of 16 at least. So `paged_decode` rounds its tiles up and masks
# what is too much: that is what `SLOTS`, `ROWS` and `DIMS` are for.
#
# ## One long sequence
#
# An H100 has 132 processors that run programs side by side
# ([NVIDIA](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/): 132 SMs in the
# SXM5 board). A model with 8 KV heads decodes for one user, with a context of 8192 tokens.
#
# **How many of the 132 processors have nothing to do in `paged_decode`?**

# %%
guess = None  # a number

# %%
num_seqs, num_kv_heads, processors = 1, 8, 132
idle = processors - num_seqs * num_kv_heads
reveal(
    guess,
    idle,
    "One program for each sequence and KV head: 8 programs, however long the context is. "
    "With 17 sequences there would be 136.",
)

# %% [markdown]
# Split-KV cuts each context into parts, one program each (flash-decoding, Dao et al., 2023,
# [crfm.stanford.edu](https://crfm.stanford.edu/2023/10/12/flashdecoding.html)). A program can't
# divide by the whole `total`: it knows its own part only. So it gives its part's attention, and
# `log_sum = largest + log(total)`, the logarithm of the sum of `exp(score)`. A second, small kernel
# joins the parts.
#
# Two parts of a context. Part 0 gives 10, and its sum of `exp(score)` is 3. Part 1 gives 2, and its
# sum is 1. **What is the attention over both?**

# %%
guess = None  # a number

# %%
sums, parts = torch.tensor([3.0, 1.0]), torch.tensor([10.0, 2.0])
joined = (torch.softmax(torch.log(sums), 0) @ parts).item()
reveal(
    guess,
    round(joined, 4),
    "Part 0 has 3 of 4 of the whole sum, part 1 has 1 of 4: 10 * 3/4 + 2 * 1/4. The plain mean, 6, "
    "would give every part the same say, even an empty one.",
)

# %% [markdown]
# ## Exercise 5.3
#
# What the second kernel does, in torch. Contexts are of different lengths, so some parts are empty.


# %%
def merge_parts(parts, log_sums):
    """Join attention over the parts of a context into attention over all of it.

    parts     [num_parts, head_dim], what softmax over each part's own tokens gave
    log_sums  [num_parts], log(sum of exp(score)) over each part's tokens; -inf for an empty part

    Give [head_dim]. At least one part has tokens; scores may be large.

    merge_parts([[1.0], [4.0]], [log(2), log(1)]) -> [2.0]: two thirds of 1 and one third of 4.
    """
    raise NotImplementedError("Exercise 5.3: weigh each part by its share of the whole sum")


# %%
check(ex_5_3, merge_parts)

# %% [markdown]
# On the real query, with A's blocks in two halves:

# %%
half = len(table) // 2
for head in range(num_heads):
    first, first_log_sum = attend_to(head, range(half))
    second, second_log_sum = attend_to(head, range(half, len(table)))
    shares = torch.softmax(torch.stack([first_log_sum, second_log_sum]), 0)
    assert torch.allclose(shares[0] * first + shares[1] * second, all_at_once(head), atol=1e-5)
    print(f"head {head}: the halves weigh {shares[0]:.2f} and {shares[1]:.2f}")

# %% [markdown]
# The recording of the two kernels: the first has a third number in its programs, the part. Sequence
# C is so short that its second part is empty: that program reads no key, and its log-sum is -inf.

# %%
KernelMicroscope("paged_decode_split_kv")

# %% [markdown]
# More parts are not always better: the second kernel costs a launch, and a part below one tile is
# not worth a program. `choose_num_splits` takes 32 parts for the sequence above (8 programs become
# 256, about two for each of 132 processors), and 1 part from 17 such sequences on.
#
# ## The layout decides how wide a load is
#
# Decoding reads every key and value once and does little with each, so the time goes into loads. A
# thread can load up to 16 bytes with one instruction, if they lie together and begin at a multiple
# of 16 ([CUDA programming
# guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/#device-memory-accesses): words of 1,
# 2, 4, 8 or 16 bytes, naturally aligned).
#
# A head's key has 64 numbers in bf16, and `head_dim` is the last dimension of the cache. **How many
# 16-byte loads is that?**

# %%
guess = None  # a number

# %%
element_bytes, dims = torch.bfloat16.itemsize, 64
reveal(
    guess,
    dims * element_bytes // 16,
    "64 * 2 bytes = 128 bytes in one piece, 8 loads of 16 bytes: 8 threads, one instruction each.",
)

# %% [markdown]
# Now three caches. `stride` tells how many elements apart neighbours are.


# %%
def describe(name, layer_cache):
    """Tell how the numbers of a head's key lie: [2, num_blocks, slots, heads, head_dim]."""
    keys = layer_cache[0]
    together = keys.stride(3) == 1
    aligned = all(stride % 16 == 0 for stride in keys.stride()[:3])
    words = "in one piece" if together else f"{keys.stride(3)} elements apart"
    print(f"{name:22} strides {keys.stride()!s:22} {words}, {'' if aligned else 'not '}aligned")
    return together and aligned


kind = torch.bfloat16
ours = torch.zeros(2, 32, 16, 8, 64, dtype=kind)
slots_last = torch.zeros(2, 32, 8, 64, 16, dtype=kind).permute(0, 1, 4, 2, 3)
odd = torch.zeros(2, 32, 16, 8, 65, dtype=kind)[..., :64]  # one number between heads

assert describe("head_dim last (ours)", ours)
assert not describe("slots last", slots_last)
assert not describe("one number too many", odd)

# %% [markdown]
# In the third cache every head is still one piece of 128 bytes. But head 1 begins at byte 130,
# which is no multiple of 16. The same code serves every head, so the compiler must give up wide
# loads for all of them. Of a stride it knows one thing only: a multiple of 16 elements, or not.
#
# **`paged_decode` was compiled twice for an H100. With aligned strides a load has 128 bits. How
# many if one stride of the cache is no multiple of 16?**

# %%
guess = None  # a number of bits

# %%
# The rows "paged_decode, block 16" and "paged_decode, unaligned stride" of docs/COMPILED.md, sm_90.
compiled = {
    "aligned": {"bits a load": 128, "tiles in flight": 2},
    "unaligned": {"bits a load": 16, "tiles in flight": 0},
}
reveal(
    guess,
    compiled["unaligned"]["bits a load"],
    "One bf16 number at a time, so 8 times the load instructions. And while one tile is used, the "
    "next is no longer on its way: the compiler gave up its asynchronous copies, too.",
)

# %% [markdown]
# These figures are what Triton 3.9.0's compiler made of the kernel (docs/COMPILED.md; a test builds
# it again). No GPU was asked: they bound how fast the kernel can be, they don't say how fast it is.
#
# So every wrapper refuses such a cache instead of being slow in silence:


# %%
def try_it(layer_cache):
    """Ask the kernel to attend to one token in a cache; tell what it says."""
    from minipaged_kernels.paged_decode import paged_decode

    where = torch.tensor([[0]]), torch.tensor([1])
    try:
        paged_decode(torch.zeros(1, 8, 64, dtype=layer_cache.dtype), layer_cache, *where)
    except ValueError as error:
        return f"ValueError: {error}"
    return "runs"


try_it(odd) if USES_TRITON else print("no Triton here: see check_cache in launch.py")

# %% [markdown]
# ## Summary
#
# - Three running values replace all scores: `largest`, `total`, `weighted`. A larger score rescales
#   the other two.
# - One program reads the blocks of one sequence, through its table, for one KV head; slots without
#   a token are masked, not multiplied by zero.
# - Few programs leave a GPU idle: split the context, join the parts by their log-sums.
# - `head_dim` last and aligned strides make a load 128 bits wide; one odd stride makes it 16.
# - The paper's kernel had 20 to 26 % more latency than a contiguous one (Kwon et al., 2023,
#   [arXiv:2309.06180](https://arxiv.org/abs/2309.06180), section 7.1); what paging saved in memory
#   paid for it.
#
# ## In the source
#
# - `attend_one` and `merge_parts` in `kernels/minipaged_kernels/reference.py`
# - `paged_decode_kernel` in `kernels/minipaged_kernels/paged_decode.py`: read it now, it is short
# - `split_kernel`, `reduce_kernel`, `choose_num_splits` in
#   `kernels/minipaged_kernels/paged_decode_split_kv.py`
# - `check_cache` in `kernels/minipaged_kernels/launch.py`; the way through all kernels is
#   `kernels/README.md`
#
# Next: chapter 6, sharing. Two sequences read the same blocks, until one of them wants to write.
