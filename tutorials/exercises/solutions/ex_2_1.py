"""Exercise 2.1: from a virtual address to a physical one."""


def translate(page_table, address, page_size):
    """Give the physical address behind a virtual one, or None for a page fault."""
    page, offset = divmod(address, page_size)
    frame = page_table[page]
    if frame is None:
        return None
    return frame * page_size + offset
