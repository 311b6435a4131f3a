"""Wrong solutions of chapter 2, and words that the check must say."""

from collections import deque

# --- 2.1 ------------------------------------------------------------------------------------------


def no_offset(page_table, address, page_size):
    frame = page_table[address // page_size]
    return None if frame is None else frame * page_size


def frame_zero_is_no_frame(page_table, address, page_size):
    page, offset = divmod(address, page_size)
    frame = page_table[page]
    return frame * page_size + offset if frame else None


def frame_plus_offset(page_table, address, page_size):
    page, offset = divmod(address, page_size)
    frame = page_table[page]
    return None if frame is None else frame + offset


def pages_count_from_one(page_table, address, page_size):
    page = -(-address // page_size)  # off by one: right on no boundary but 0
    frame = page_table[min(page, len(page_table) - 1)]
    return None if frame is None else frame * page_size + address % page_size


def the_virtual_address(page_table, address, page_size):
    return None if page_table[address // page_size] is None else address


def no_page_faults(page_table, address, page_size):
    page, offset = divmod(address, page_size)
    return page_table[page] * page_size + offset


def minus_one_for_a_fault(page_table, address, page_size):
    page, offset = divmod(address, page_size)
    frame = page_table[page]
    return -1 if frame is None else frame * page_size + offset


def brings_the_page_in(page_table, address, page_size):
    page, offset = divmod(address, page_size)
    frame = page_table[page]
    if frame is None:
        page_table[page] = 0
        return None
    return frame * page_size + offset


# --- 2.2 ------------------------------------------------------------------------------------------


class Good:
    def __init__(self, num_blocks):
        self.blocks = deque(range(num_blocks))
        self.used = set()

    def allocate(self):
        block = self.blocks.popleft()
        self.used.add(block)
        return block

    def free(self, block):
        self.used.remove(block)
        self.blocks.append(block)

    def num_free(self):
        return len(self.blocks)


class FreesTwice(Good):
    def free(self, block):
        self.used.discard(block)
        self.blocks.append(block)


class LastInFirstOut(Good):
    def allocate(self):
        self.used.add(block := self.blocks.pop())
        return block


class LowestFirst(Good):
    def allocate(self):
        self.used.add(block := min(self.blocks))
        self.blocks.remove(block)
        return block


class NoneIfEmpty(Good):
    def allocate(self):
        return super().allocate() if self.blocks else None


class NeverEmpty(Good):
    def allocate(self):
        return super().allocate() if self.blocks else 0


class LooksAndLeaves(Good):
    def allocate(self):
        block = self.blocks[0]
        self.used.add(block)
        return block


class Counts(Good):
    """Refuses only what would make more blocks free than there are."""

    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.num_blocks = num_blocks

    def free(self, block):
        if len(self.blocks) == self.num_blocks or block not in range(self.num_blocks):
            raise ValueError("all are free")
        self.blocks.append(block)


class Flags:
    """-1 is the last flag of a list."""

    def __init__(self, num_blocks):
        self.used = [False] * num_blocks
        self.blocks = deque(range(num_blocks))

    def allocate(self):
        block = self.blocks.popleft()
        self.used[block] = True
        return block

    def free(self, block):
        if not self.used[block]:
            raise ValueError("free already")
        self.used[block] = False
        self.blocks.append(block)

    def num_free(self):
        return len(self.blocks)


class ChangesThenRaises(Good):
    def free(self, block):
        self.blocks.append(block)
        self.used.remove(block)


class OneFewer(Good):
    def __init__(self, num_blocks):
        super().__init__(num_blocks - 1)


class NoBlockZero(Good):
    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.blocks = deque(range(1, num_blocks + 1))


class ForgetsOnlyTheCount(Good):
    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.count = num_blocks

    def allocate(self):
        self.count -= 1
        return super().allocate()

    def free(self, block):
        super().free(block)
        self.count += 1

    def num_free(self):
        return self.count


class CountIsCalledNumFree(Good):
    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.num_free = num_blocks


class ListIsCalledFree(Good):
    def __init__(self, num_blocks):
        super().__init__(num_blocks)
        self.free = list(range(num_blocks))


class GivesNothing(Good):
    def allocate(self):
        super().allocate()


WRONG = {
    "2.1": {
        "the offset is forgotten": (no_offset, "lies another byte of this process"),
        "frame 0 is taken for none": (frame_zero_is_no_frame, "but the page is there"),
        "the frame is not multiplied": (frame_plus_offset, "is in frame"),
        "off by one at the boundary": (pages_count_from_one, "page 0 is in frame"),
        "the virtual address is given back": (the_virtual_address, "is in frame"),
        "no page fault": (no_page_faults, "page fault"),
        "-1 for a fault": (minus_one_for_a_fault, "None says so, -1 doesn't"),
        "the table is changed": (brings_the_page_in, "changed the page table"),
    },
    "2.2": {
        "a free block can be freed": (FreesTwice, "handed out twice"),
        "last in, first out": (LastInFirstOut, "has been free for longer"),
        "the lowest block first": (LowestFirst, "has been free for longer"),
        "None if the pool is empty": (NoneIfEmpty, "allocate must raise an error"),
        "block 0 if the pool is empty": (NeverEmpty, "block 0 is handed out twice: A still has it"),
        "a block stays in the free list": (LooksAndLeaves, "is in use now"),
        "double free seen by the count alone": (Counts, "handed out twice"),
        "-1 is the last block": (Flags, "block -1 is not in this pool"),
        "changed before it is checked": (ChangesThenRaises, "must leave the pool as it was"),
        "one block too few": (OneFewer, "every block is free"),
        "blocks from 1": (NoBlockZero, "is no block of this pool"),
        "the count goes down on an error": (ForgetsOnlyTheCount, "must leave the pool as it was"),
        "the count takes a method's name": (CountIsCalledNumFree, "self.num_free hides the method"),
        "the list takes a method's name": (ListIsCalledFree, "self.free hides the method"),
        "allocate gives nothing": (GivesNothing, "without a return"),
    },
}
