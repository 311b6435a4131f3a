"""The bug zoo: faults that real engines had, each switched on by name, each caught.

from minipaged.lab import zoo

with zoo.bug("double-free"):
    manager = KVCacheManager(num_blocks=16, block_size=4)  # has the fault

caught = zoo.hunt("double-free")  # a random load, until an invariant breaks
print(caught.step, caught.operation, caught.invariant, caught.message)
caught.trace.save("fault.jsonl")  # minipaged watch --replay fault.jsonl
"""

from __future__ import annotations

from minipaged.lab.zoo.bug import Bug
from minipaged.lab.zoo.catalog import BUGS, bug, find
from minipaged.lab.zoo.hunt import OPERATIONS, Caught, NotCaughtError, hunt, run
from minipaged.lab.zoo.invariants import INVARIANTS

__all__ = [
    "BUGS",
    "INVARIANTS",
    "OPERATIONS",
    "Bug",
    "Caught",
    "NotCaughtError",
    "bug",
    "find",
    "hunt",
    "run",
]
