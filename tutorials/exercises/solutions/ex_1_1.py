"""Exercise 1.1: what a slab wastes."""


def slab_waste(asked, num_tokens, final_tokens):
    """Give the empty slots of a slab by kind: (reserved, internal, external)."""
    slab = 1
    while slab < asked:
        slab *= 2
    return final_tokens - num_tokens, asked - final_tokens, slab - asked
