"""Exercise 1.1: what a slab wastes."""


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
