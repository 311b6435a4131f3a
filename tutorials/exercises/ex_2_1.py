"""Exercise 2.1: from a virtual address to a physical one."""


def translate(page_table, address, page_size):
    """Give the physical address behind a virtual one, or None for a page fault.

    page_table  page_table[0] is the frame of page 0, ...; None: this page is in no frame
    address     a virtual address; it lies in a page of the table
    page_size   bytes in a page, and in a frame

    Frames are numbered from 0, and frame f begins at physical address f * page_size.

    translate([5, 2], address=6, page_size=4) -> 10
    translate([5, None], address=6, page_size=4) -> None
    """
    raise NotImplementedError("Exercise 2.1: turn a virtual address into a physical one")
