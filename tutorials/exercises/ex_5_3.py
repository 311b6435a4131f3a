"""Exercise 5.3: joining the parts of a context."""

import torch


def merge_parts(parts, log_sums):
    """Join attention over the parts of a context into attention over all of it.

    parts     [num_parts, head_dim], what softmax over each part's own tokens gave
    log_sums  [num_parts], log(sum of exp(score)) over each part's tokens; -inf for an empty part

    Give [head_dim]. At least one part has tokens; scores may be large.

    merge_parts([[1.0], [4.0]], [log(2), log(1)]) -> [2.0]: two thirds of 1 and one third of 4.
    """
    raise NotImplementedError("Exercise 5.3: weigh each part by its share of the whole sum")
