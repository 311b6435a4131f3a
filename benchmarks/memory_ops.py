"""What memory management costs, at any size of the pool: `python benchmarks/memory_ops.py`.

Half of each pool is in use and its free list is scrambled, as after a long run. "append" is what
the manager does for one more token of a sequence: its share of `append_slots` and `commit` in a
step of 32 sequences, with 16 tokens a block and new blocks, hashes and publishing included.
The other operations are those of the block pool, for one block.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

from minipaged.memory.block_pool import BlockPool
from minipaged.memory.events import Observer, ignore
from minipaged.memory.kv_cache_manager import KVCacheManager

SIZES = (1_000, 10_000, 100_000, 1_000_000)
BLOCK_SIZE = 16
NUM_SEQS = 32
TOKENS_PER_SEQ = 14 * BLOCK_SIZE  # 32 sequences fit the free half of the smallest pool
NUM_OPERATIONS = 400
NUM_ROUNDS = 9

# Where it is fine enough, the process's own time: neighbours on the machine do not count.
clock = time.process_time
if time.get_clock_info("process_time").resolution > 1e-6:
    clock = time.perf_counter


def scramble(pool: BlockPool) -> list[int]:
    """Bring the free list of a new pool into random order; give the blocks in that order."""
    blocks = [pool.allocate(for_seq=0) for _ in range(pool.num_blocks)]
    random.Random(0).shuffle(blocks)
    pool.release(blocks)
    return blocks


def half_full_manager(num_blocks: int, notify: Observer = ignore) -> KVCacheManager:
    """Give a manager whose sequences hold half of the blocks, scattered over the pool."""
    manager = KVCacheManager(num_blocks, BLOCK_SIZE, notify=notify)
    scramble(manager.pool)
    blocks_each = min(500, num_blocks // 2)
    for seq in range(num_blocks // 2 // blocks_each):
        manager.allocate(-1 - seq, [0])
        manager.append_slots(-1 - seq, blocks_each * BLOCK_SIZE)
    return manager


def append_round(manager: KVCacheManager, first_seq: int) -> float:
    """Give the seconds that one token costs while 32 new sequences grow side by side."""
    seqs = range(first_seq, first_seq + NUM_SEQS)
    for seq in seqs:
        manager.allocate(seq, [seq])
        manager.commit([(seq, [seq])])
    steps = [[(seq, (token,)) for seq in seqs] for token in range(TOKENS_PER_SEQ - 1)]
    start = clock()
    for step in steps:
        for seq in seqs:
            manager.append_slots(seq)
        manager.commit(step)
    return (clock() - start) / len(steps) / NUM_SEQS


def append_cost(num_blocks: int, notify: Observer = ignore) -> float:
    """Give the median seconds of appending a token, always to blocks that were never used."""
    seconds: list[float] = []
    manager = half_full_manager(num_blocks, notify)
    for index in range(NUM_ROUNDS):
        if manager.pool.num_free < NUM_SEQS * TOKENS_PER_SEQ // BLOCK_SIZE:
            manager = half_full_manager(num_blocks, notify)
        seconds.append(append_round(manager, index * NUM_SEQS))
    return median(seconds)


def time_each(operation: Callable[[int], object], arguments: list[int]) -> float:
    """Give the seconds that one call takes, on average."""
    start = clock()
    for argument in arguments:
        operation(argument)
    return (clock() - start) / len(arguments)


def full_cache(num_blocks: int) -> BlockPool:
    """Give a pool of which one half is in use and the other free, but cached."""
    pool = BlockPool(num_blocks)
    blocks = [pool.allocate(for_seq=0) for _ in range(num_blocks)]
    for block in blocks:
        pool.publish(block, f"{block:032x}")
    random.Random(1).shuffle(blocks)
    pool.release(blocks[: num_blocks // 2])
    return pool


def pool_round(pool: BlockPool, cache: BlockPool, number: int) -> Iterator[tuple[str, float]]:
    """Yield each operation of the pool and the seconds that it takes."""
    blocks: list[int] = []
    numbers = list(range(NUM_OPERATIONS))
    yield "allocate", time_each(lambda _: blocks.append(pool.allocate(0)), numbers)
    yield "share", time_each(pool.share, blocks)
    yield "publish", time_each(lambda b: pool.publish(b, f"{number * 10**7 + b:032x}"), blocks)
    yield "unshare", time_each(lambda b: pool.release((b,)), blocks)
    yield "release", time_each(lambda b: pool.release((b,)), blocks)
    yield "hit", time_each(pool.share, blocks)
    pool.release(blocks)
    evicted: list[int] = []
    yield "evict", time_each(lambda _: evicted.append(cache.allocate(0)), numbers)
    for block in evicted:
        cache.publish(block, f"{number * 10**7 + block:032x}")
    cache.release(evicted)


def pool_costs(num_blocks: int) -> dict[str, float]:
    """Give the median seconds of each operation of the pool."""
    pool, cache = BlockPool(num_blocks), full_cache(num_blocks)
    scramble(pool)
    for _ in range(num_blocks // 2):
        pool.allocate(for_seq=0)
    seconds: dict[str, list[float]] = {}
    for number in range(1, NUM_ROUNDS + 1):
        for name, cost in pool_round(pool, cache, number):
            seconds.setdefault(name, []).append(cost)
    return {name: median(costs) for name, costs in seconds.items()}


def costs(num_blocks: int) -> dict[str, float]:
    """Give the seconds of every operation, "append" first."""
    events: list[object] = []
    return {
        "append": append_cost(num_blocks),
        "append, traced": append_cost(num_blocks, events.append),
        **pool_costs(num_blocks),
    }


def table(by_size: dict[int, dict[str, float]]) -> str:
    """Give the costs as lines of text: operations down, pool sizes across, in microseconds."""
    sizes = list(by_size)
    lines = ["microseconds".ljust(16) + "".join(f"{size:>12,}" for size in sizes) + "  last/first"]
    for name in by_size[sizes[0]]:
        row = [by_size[size][name] * 1e6 for size in sizes]
        cells = "".join(f"{cost:>12.2f}" for cost in row)
        lines.append(f"{name:<16}{cells}{row[-1] / row[0]:>11.2f}x")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    sys.stdout.write(table({size: costs(size) for size in SIZES}) + "\n")


if __name__ == "__main__":
    main()
