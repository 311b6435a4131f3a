"""Faults of sharing, preemption, swapping and admission: what must hold when memory runs out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minipaged.engine.scheduler import Scheduler
from minipaged.engine.scheduler_output import SchedulerOutput as Output
from minipaged.engine.sequence import Request
from minipaged.lab.zoo.bug import Bug, replaces
from minipaged.memory.block_table import BlockTable as Table
from minipaged.memory.block_table import blocks_for
from minipaged.memory.kv_cache_manager import BlockMove
from minipaged.memory.kv_cache_manager import KVCacheManager as Manager

_ADMIT, _PREEMPT = Scheduler._admit, Scheduler.preempt
_SWAP_IN, _SWAP_OUT = Manager.swap_in, Manager.swap_out


@replaces(
    Manager,
    "_shared_block",
    name="no-copy-on-write",
    source="https://github.com/vllm-project/vllm/issues/417",
    shows="Two sequences go on in one block, and no copy is made.",
    caught_by="replay",
)
def no_copy_on_write(m: Manager, table: Table) -> int | None:
    """A sequence writes to a block that others hold.

    After a fork the samples share the last, half-filled block; who writes first needs a copy. vLLM,
    it was reported in its first weeks, forked on a wrong condition, and the results were not
    correct.
    """
    # right: the block of the next position, if its ref_count > 1
    return None


@replaces(
    Manager,
    "can_swap_out",
    name="no-swap-space",
    source="https://github.com/vllm-project/vllm/issues/787",
    shows="A preemption by swap is announced, and the run ends there.",
    caught_by="no-error",
)
def no_swap_space(m: Manager, seqs: Iterable[int]) -> bool:
    """Nobody asks whether the swap pool has room.

    'Aborted due to the lack of CPU swap space': one group too many, and vLLM's engine stopped with
    all its requests. It could have thrown the KV away and computed it again.
    """
    # right: len(m._written_blocks(seqs)) <= m.swap_pool.num_free
    return True


@replaces(
    Manager,
    "swap_out",
    name="swap-unshared",
    source="https://github.com/vllm-project/vllm/issues/5578",
    shows="Samples move out one by one; a block that they share gets a swap block for each of "
    "them.",
    caught_by="no-error",
)
def swap_unshared(m: Manager, seqs: Sequence[int]) -> list[BlockMove]:
    """Swapping stores a shared block once for each sequence.

    Several samples of a prompt share most of their blocks. Stored one by one they fill the swap
    space that was checked for the group. With n >= 2 vLLM's chunked prefill used up its swap space
    in a like way.
    """
    # right: all of them at once
    return [move for seq in seqs for move in _SWAP_OUT(m, [seq])]


@replaces(
    Manager,
    "swap_in",
    name="moves-forgotten",
    source="https://github.com/InternLM/lmdeploy/issues/3864",
    shows="Nothing: the tables are right. The text goes wrong after its return.",
    caught_by="contents",
)
def moves_forgotten(m: Manager, seqs: Sequence[int]) -> list[BlockMove]:
    """Blocks come back from the swap pool without their content.

    The manager gives the tables new blocks; somebody must copy the bytes. In lmdeploy's PyTorch
    engine a user found swap_in_map and swap_out_map, which should list these moves, always empty.
    """
    _SWAP_IN(m, seqs)
    return []  # right: the moves that swap_in gives


@replaces(
    Scheduler,
    "preempt",
    name="lost-token",
    source="https://github.com/vllm-project/vllm/issues/16832",
    shows="After its return a sequence computes another token at a place that it had written.",
    caught_by="contents",
)
def lost_token(scheduler: Scheduler, request: Request, why: str) -> None:
    """The token sampled just before a preemption is lost.

    A token is sampled in one step and its KV is written in the next. Who is preempted in between
    has a token without KV, which must be computed with the rest. vLLM users found outputs
    incomplete after a preemption by recompute.
    """
    _PREEMPT(scheduler, request, why)
    for sequence in request.live:
        recompute = not scheduler.manager.has(sequence.seq_id)
        if recompute and sequence.num_tokens > request.num_prompt_tokens:
            sequence.token_ids.pop()  # right: what was sampled is kept


@replaces(
    Scheduler,
    "_admit",
    name="stale-hit-count",
    source="https://github.com/vllm-project/vllm/pull/18957",
    shows="A sequence that returns after a preemption computes too much or too little.",
    caught_by="contents",
)
def stale_hit_count(s: Scheduler, request: Request, step: Output) -> bool:
    """A request starts with the number of cached tokens that it had earlier.

    vLLM remembered how many tokens a waiting request would find in the prefix cache. When it was
    scheduled later the cache had changed, but not the number: blocks were taken as computed that
    were not. nano-vllm did the same after a preemption.
    """
    admitted = _ADMIT(s, request, step)
    if admitted:  # right: what allocate says now
        request.live[0].num_computed_tokens = request.num_cached_tokens or 0
    return admitted


@replaces(
    Scheduler,
    "_blocks_at_most",
    name="oversized-accepted",
    source="https://github.com/vllm-project/vllm/issues/39734",
    shows="One sequence has all blocks of the pool, is preempted, and can't come back.",
    caught_by="progress",
)
def oversized_accepted(s: Scheduler, request: Request) -> int:
    """A request that can never fit is accepted.

    vLLM accepts a request that is shorter than the model's longest text but larger than the whole
    pool. It waits, or is preempted, for ever, and everybody behind it too: no error, no token.
    """
    # right: with max_tokens, and for all samples (see `blocks_at_most`)
    return blocks_for(request.num_prompt_tokens, s.manager.block_size)


BUGS: tuple[Bug, ...] = (
    no_copy_on_write,
    no_swap_space,
    swap_unshared,
    moves_forgotten,
    lost_token,
    stale_hit_count,
    oversized_accepted,
)
