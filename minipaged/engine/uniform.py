"""Random numbers without a state: a function of a seed and a counter. Plain Python, no torch."""

from __future__ import annotations


def uniform(seed: int, position: int) -> float:
    """Give a number in [0, 1) that looks random and depends on `seed` and `position` alone.

    A function has no state: nothing that a preemption could lose or a neighbour could advance.

    >>> uniform(seed=7, position=0), uniform(seed=7, position=1), uniform(seed=7, position=0)
    (0.5243459416779314, 0.30213903321684277, 0.5243459416779314)
    """
    return (hash64(seed, position) >> 11) * 2.0**-53  # a float holds 53 bits


def hash64(seed: int, counter: int) -> int:
    """Give output number `counter` of the splitmix64 generator: 64 bits that look random.

    The generator adds a constant to its state for each output and gives the state scrambled, so any
    output can be had directly. Its start is scrambled as well: seeds 0, 1, 2, ... are far apart.

    Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (OOPSLA 2014).
    """
    return _scramble(_scramble(seed) + (counter + 1) * 0x9E3779B97F4A7C15)


def _scramble(state: int) -> int:
    """Map 64 bits to 64 bits, one to one; each bit of the input flips about half of the output."""
    mask = 2**64 - 1
    state &= mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)
