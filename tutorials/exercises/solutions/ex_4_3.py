"""Exercise 4.3: a decode step of several sequences."""


def decode_batch(block_tables, num_computed_tokens, block_size):
    """Describe a step in which every sequence feeds the one token that it sampled last."""
    positions = list(num_computed_tokens)
    seq_lens = [position + 1 for position in positions]
    slot_mapping = [
        table[position // block_size] * block_size + position % block_size
        for table, position in zip(block_tables, positions, strict=True)
    ]
    return positions, seq_lens, slot_mapping
