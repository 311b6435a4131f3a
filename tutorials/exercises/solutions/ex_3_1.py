"""Exercise 3.1: from positions to slots."""


def slot_mapping(block_ids, start, stop, block_size):
    """Give the physical slot of every position in [start, stop)."""
    slots = []
    for position in range(start, stop):
        logical_block, offset = divmod(position, block_size)
        slots.append(block_ids[logical_block] * block_size + offset)
    return slots
