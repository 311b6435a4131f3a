"""Exercise 5.1: online softmax, one more block."""

import torch


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
