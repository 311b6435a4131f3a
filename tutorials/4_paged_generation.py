# %% [markdown]
# # 4. Paged generation, token by token
#
# A real model, its KV cache as the tensor that it is, and the engine stepped by hand.
#
# ## What you will be able to do
#
# - say what the model is called with in a step, and which slots it writes,
# - write keys and values to their slots, and read them back through the table,
# - show that paged generation gives what contiguous generation gives, and wherever blocks lie.
#
# About 45 minutes.

# %%
import os
import random

import torch
from minipaged_visualizer.memory_player import MemoryPlayer

from minipaged import LLM, SamplingParams
from minipaged.engine import kv_cache
from minipaged.engine.attention import build_metadata
from minipaged.engine.batch import build_batch
from minipaged.exercises import check, ex_4_1, ex_4_2, ex_4_3, hint, reveal
from minipaged.notebook import live

MODEL = os.environ.get("MINIPAGED_MODEL", "storyteller")
if MODEL == "storyteller":
    torch.set_num_threads(1)  # for a model so small, more threads only wait for each other

# %% [markdown]
# ## One step by hand
#
# 16 blocks of 4 tokens, and a prompt of 10 tokens. A pool that has been in use hands its blocks out
# in no particular order. Ours is new, so we shuffle it.


# %%
def shuffle_free_blocks(llm, seed):
    """Take all blocks of an idle engine and give them back in another order."""
    pool = llm.engine.manager.pool
    blocks = [pool.allocate(for_seq=0) for _ in range(pool.num_blocks)]
    random.Random(seed).shuffle(blocks)
    pool.release(blocks)


llm = LLM(MODEL, block_size=4, num_blocks=16, trace=True)
shuffle_free_blocks(llm, seed=2)
engine, tokenizer = llm.engine, llm.engine.tokenizer

prompt = tokenizer.encode("Once upon a time there was a fox who had a red hat.")[:10]
assert len(prompt) == 10
params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
llm.add_request(prompt, params)

MemoryPlayer(llm)

# %% [markdown]
# Nothing has run yet, so the player is empty. It follows from here on: come back to it.
#
# A step has three parts: decide who computes what, call the model, choose a token. `schedule` is
# the first. `build_batch` turns its decision into what the model is called with.

# %%
batch = build_batch(engine.schedule(), engine.manager)
print("block table   ", engine.manager.block_table(0))
print("positions     ", batch.positions.tolist())
print("slot_mapping  ", batch.metadata.slot_mapping.tolist())
print("seq_lens      ", batch.metadata.seq_lens.tolist())

# %% [markdown]
# All ten tokens of the prompt run at once. Each has a position, which the model needs, and a slot,
# which only the cache needs. Look at how `slot_mapping` follows the block table.
#
# `llm.step()` does what was decided: keys and values of ten tokens are written, and one token is
# sampled. The next step feeds that token. **Which slot does it write?** It is position 10, and the
# table is printed above.

# %%
guess = None  # your number

# %%
(output,) = llm.step()
batch = build_batch(engine.schedule(), engine.manager)
(slot,) = batch.metadata.slot_mapping.tolist()
table = engine.manager.block_table(0)
reveal(
    guess,
    slot,
    f"Position 10 lies in logical block 10 // 4 = 2, at offset 10 % 4 = 2. The table says block "
    f"{table[2]}: slot {table[2]} * 4 + 2.",
)

# %% [markdown]
# ## Into the tensor
#
# The cache is one tensor. The manager knows who owns which block; the tensor knows only numbers.

# %%
cache = engine.runner.kv_cache
num_layers, _, num_blocks, block_size, num_kv_heads, head_dim = cache.shape
print("layers, K and V, blocks, block_size, KV heads, head_dim:", list(cache.shape))

# %% [markdown]
# The prompt is computed, one token is sampled, and the next step has not run. **In how many slots
# of layer 0 is anything but zeros?**

# %%
guess = None  # your number

# %%
is_written = cache[0, 0].abs().sum(dim=(-2, -1)) > 0  # [num_blocks, block_size]
for block, slots in enumerate(is_written.tolist()):
    print(f"block {block:2}  {''.join('#' if slot else '.' for slot in slots)}")
reveal(
    guess,
    int(is_written.sum()),
    "The ten tokens of the prompt. The sampled token has no key yet: the next step computes it.",
)

# %% [markdown]
# ## Exercise 4.1
#
# In every layer, the first thing that attention does is to put the new keys and values into their
# slots. One number deserves care: `-1` stands for a token that must not be written. vLLM fills a
# batch up with such tokens, nobody's, to a size for which it has recorded the GPU's work
# (`PAD_SLOT_ID` in
# [`vllm/attention/backends/utils.py`](https://github.com/vllm-project/vllm/blob/008452abec8042fe4ec30153878bafee6d948588/vllm/attention/backends/utils.py)).


# %%
def kv_write(key, value, layer_cache, slot_mapping):
    """Write each token's key and value into its slot of the cache, in place.

    key, value    tensors [num_tokens, num_kv_heads, head_dim]
    layer_cache   tensor [2, num_blocks, block_size, num_kv_heads, head_dim]: keys, then values
    slot_mapping  tensor [num_tokens] of integers; -1: this token is not written

    With blocks of 4 tokens, slot_mapping [9, -1] writes token 0 into block 2 at offset 1:
    layer_cache[0, 2, 1] is key[0], layer_cache[1, 2, 1] is value[0], and nothing else changes.
    """
    raise NotImplementedError("Exercise 4.1: put each token's key and value into its slot")


# %%
check(ex_4_1, kv_write)

# %% [markdown]
# ## Exercise 4.2
#
# The way back: attention needs the keys and values of a whole context, in order. Here they are
# gathered into one piece, as the engine does on a CPU. A GPU kernel (chapter 5) follows the table
# block by block instead, and never builds that piece.


# %%
def gather_kv(layer_cache, block_table, num_tokens):
    """Give a sequence's keys and values as if they lay in one piece.

    layer_cache  tensor [2, num_blocks, block_size, num_kv_heads, head_dim]: keys, then values
    block_table  list of the sequence's physical blocks; the last one may be reserved and empty
    num_tokens   tokens of the sequence that are in the cache

    Gives two tensors (keys, values), each [num_tokens, num_kv_heads, head_dim].

    With blocks of 4 tokens and block_table [7, 2], row 5 of the keys is layer_cache[0, 2, 1].
    """
    raise NotImplementedError("Exercise 4.2: follow the table and put the rows in order")


# %%
check(ex_4_2, gather_kv)

# %% [markdown]
# ## Paged equals contiguous
#
# Six more steps. Then the same text once more, without paging: one forward pass over the whole
# text, with a cache of a single block that is as large as the text. Its table is `[0]`, its slots
# are 0, 1, 2, ...: a contiguous cache.

# %%
for _ in range(6):
    (output,) = llm.step()

num_tokens = engine.manager.num_tokens(0)
table = engine.manager.block_table(0)
text = [*output.prompt_token_ids, *output.outputs[0].token_ids][:num_tokens]
print("".join(map(tokenizer.token_text, text)))
print("block table", table, "for", num_tokens, "tokens")

# %%
model = engine.runner.model
contiguous = kv_cache.allocate(model.config, 1, num_tokens, model.dtype, model.device)
metadata = build_metadata([num_tokens], [num_tokens], [[0]], range(num_tokens), model.device)
token_ids = torch.tensor(text, device=model.device)
positions = torch.arange(num_tokens, device=model.device)
hidden = model.forward(token_ids, positions, contiguous, metadata)
print("keys and values of", len(hidden), "tokens, in one piece")

# %% [markdown]
# Now gather each layer's keys through the block table, and compare.

# %%
for layer in range(num_layers):
    paged = cache[layer, 0, table].flatten(0, 1)[:num_tokens]  # [num_tokens, heads, head_dim]
    difference = (paged - contiguous[layer, 0, 0]).abs().max().item()
    largest = paged.abs().max().item()
    print(f"layer {layer:2}  largest key {largest:6.2f}  largest difference {difference:.1e}")
    assert difference < 1e-3 * largest

# %% [markdown]
# The differences are rounding: about one part in a million. The forward pass computed all tokens at
# once, the engine the prompt at once and then one by one, so sums were added up in another order.
# Layer 0 hardly differs: its keys are computed before anything has been attended to.
#
# To see what *paging* changes, we must do the same steps on both sides. This function runs a
# request and keeps the logits of each step. A step that ran may run again: until a token is chosen,
# it changes nothing but keys and values.


# %%
def generate(block_size, seed=None):
    """Give the tokens and the logits of each step, on a pool that may be shuffled."""
    llm = LLM(MODEL, block_size=block_size, num_blocks=-(-64 // block_size))
    if seed is not None:
        shuffle_free_blocks(llm, seed)
    llm.add_request(prompt, params)
    logits = []
    while llm.has_unfinished_requests():
        logits.append(llm.engine.runner.run(llm.engine.schedule(), llm.engine.manager))
        (output,) = llm.step()
    return output.outputs[0].token_ids, torch.cat(logits)


# %% [markdown]
# First, blocks in order 0, 1, 2, ... Then the same with all blocks elsewhere. **By how much do the
# logits differ at most?** They are numbers like 3.14 or -7.5, one for each token of the vocabulary.

# %%
guess = None  # your number

# %%
tokens, logits = generate(block_size=4)
tokens_elsewhere, logits_elsewhere = generate(block_size=4, seed=1)
assert tokens == tokens_elsewhere
reveal(
    guess,
    (logits - logits_elsewhere).abs().max().item(),
    "Nothing changes, not even the last bit. Where a key lies is no input of the computation: the "
    "same numbers are read, in the same order.",
)

# %% [markdown]
# And with other block sizes? With 64 tokens a block the whole text lies in one block: this is the
# contiguous cache again.

# %%
contiguous_tokens, contiguous_logits = generate(block_size=64)
for size in (1, 4, 16):
    tokens, logits = generate(size, seed=2)
    difference = (logits - contiguous_logits).abs().max().item()
    print(f"block size {size:2}: same tokens: {tokens == contiguous_tokens}, {difference:.0e}")
    assert tokens == contiguous_tokens
    assert difference < 1e-3 * contiguous_logits.abs().max()

# %% [markdown]
# The same tokens. The logits may differ by rounding, since sums over a context are cut at other
# places.
#
# ## Exercise 4.3
#
# So far one sequence was alone. A step usually serves many, and their tokens stand in one row
# without padding. Two sequences *decode*: each feeds the one token that it sampled last. This is
# what the model would be called with:

# %%
llm = LLM(MODEL, block_size=4, num_blocks=16, trace=True)
llm.add_request(prompt, params)
llm.add_request(prompt[:3], params)
llm.step()  # both prompts

batch = build_batch(llm.engine.schedule(), llm.engine.manager)
print("positions     ", batch.positions.tolist())
print("seq_lens      ", batch.metadata.seq_lens.tolist())
print("slot_mapping  ", batch.metadata.slot_mapping.tolist())
print("block_tables  ", batch.metadata.block_tables.tolist(), "(padded with 0, never read)")

# %% [markdown]
# Write the function that computes the first three for a step in which all sequences decode.


# %%
def decode_batch(block_tables, num_computed_tokens, block_size):
    """Describe a step in which every sequence feeds the one token that it sampled last.

    block_tables         a list of blocks for each sequence; there is room for the new token, and
                         perhaps a block that is reserved and empty
    num_computed_tokens  for each sequence, the tokens whose keys and values are in the cache
    block_size           tokens in a block

    Gives three lists, with a number for each sequence:
    positions     where its new token stands in its own text
    seq_lens      how many tokens the new one attends to, itself included
    slot_mapping  the slot that its key and value are written to

    decode_batch([[7, 2], [5]], [4, 1], block_size=4) -> [4, 1], [5, 2], [8, 21]
    """
    raise NotImplementedError("Exercise 4.3: positions, lengths and slots of a step")


# %%
check(ex_4_3, decode_batch)

# %% [markdown]
# ## Live
#
# An engine with buttons. Three steps have run. Press *step* once or twice; change the prompt, press
# *add request*, and *step* again: the newcomer joins in this step, between two tokens of the
# others. Nobody waits for a batch to end. *run* goes on until all are done or you press *pause*.
#
# `n` is 2: two samples of one prompt. That they share the prompt's blocks is chapter 6.

# %%
session = live(MODEL, block_size=4, num_blocks=32)
session.add()
for _ in range(3):
    session.step()
session

# %% [markdown]
# ## Summary
#
# - A step: decide (`schedule`), turn it into tensors (`build_batch`), call the model, sample.
# - Of all that, only `slot_mapping` and `block_tables` know where memory is.
# - Each layer writes the new keys and values into their slots, then reads the context through the
#   table.
# - Where blocks lie changes no bit of the result. Block sizes change the rounding, no more.
# - Sequences of any length share a step: one row of tokens, and a table for each sequence.
#
# ## In the source
#
# - `minipaged/engine/llm_engine.py`: `LLMEngine.step`, the three parts.
# - `minipaged/engine/batch.py`: `build_batch`; `minipaged/engine/attention.py`: `build_metadata`.
# - `minipaged/engine/kv_cache.py`: `allocate`, the tensor.
# - `kernels/minipaged_kernels/reference.py`: `kv_write` is exercise 4.1;
#   `minipaged/engine/gather_attention.py` gathers as exercise 4.2 does.
# - `tests/engine/test_equality.py`: paged equals contiguous, for many random runs.
#
# Next: chapter 5, the kernel that attends without gathering.
