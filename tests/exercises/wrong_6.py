"""Wrong solutions of chapter 6, and a word that the counterexample must say."""

# --- 6.1 fork -------------------------------------------------------------------------------------


def alias(tables, ref_counts, parent, child):
    tables[child] = tables[parent]
    for block in tables[child]:
        ref_counts[block] += 1


def no_reference(tables, ref_counts, parent, child):
    tables[child] = list(tables[parent])


def only_the_last_is_counted(tables, ref_counts, parent, child):
    tables[child] = list(tables[parent])
    ref_counts[tables[child][-1]] += 1


def only_full_blocks_are_counted(tables, ref_counts, parent, child):
    tables[child] = list(tables[parent])
    for block in tables[child][:-1]:
        ref_counts[block] += 1


def two_at_most(tables, ref_counts, parent, child):
    tables[child] = list(tables[parent])
    for block in tables[child]:
        ref_counts[block] = 2


def one_reference_too_many(tables, ref_counts, parent, child):
    tables[child] = list(tables[parent])
    for block in [*tables[child], tables[child][0]]:
        ref_counts[block] += 1


def last_block_left_out(tables, ref_counts, parent, child):
    tables[child] = tables[parent][:-1]
    for block in tables[child]:
        ref_counts[block] += 1


def a_tuple(tables, ref_counts, parent, child):
    tables[child] = tuple(tables[parent])
    for block in tables[child]:
        ref_counts[block] += 1


def counts_rebound(tables, ref_counts, parent, child):
    tables[child] = list(tables[parent])
    ref_counts = [count + (block in tables[child]) for block, count in enumerate(ref_counts)]


# --- 6.2 append with copy-on-write ----------------------------------------------------------------


def _take(ref_counts, free_list):
    block = free_list.pop(0)
    ref_counts[block] = 1
    return block


def wrong_direction(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(_take(ref_counts, free_list))
        return []
    source = table[index]
    if ref_counts[source] == 1:
        return []
    table[index] = _take(ref_counts, free_list)
    ref_counts[source] -= 1
    return [(table[index], source)]


def reference_kept(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(_take(ref_counts, free_list))
        return []
    source = table[index]
    if ref_counts[source] == 1:
        return []
    table[index] = _take(ref_counts, free_list)
    return [(source, table[index])]


def copies_at_a_boundary(table, num_tokens, ref_counts, free_list, block_size):
    source = table[-1]  # of a boundary, the block before
    copies = []
    if ref_counts[source] > 1:
        table[-1] = _take(ref_counts, free_list)
        ref_counts[source] -= 1
        copies = [(source, table[-1])]
    if num_tokens % block_size == 0:
        table.append(_take(ref_counts, free_list))
    return copies


def copies_what_is_its_own(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(_take(ref_counts, free_list))
        return []
    source = table[index]
    table[index] = _take(ref_counts, free_list)
    ref_counts[source] -= 1
    if ref_counts[source] == 0:
        free_list.append(source)
    return [(source, table[index])]


def no_copy_on_write(table, num_tokens, ref_counts, free_list, block_size):
    if num_tokens % block_size == 0:
        table.append(_take(ref_counts, free_list))
    return []


def table_not_changed(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(_take(ref_counts, free_list))
        return []
    source = table[index]
    if ref_counts[source] == 1:
        return []
    target = _take(ref_counts, free_list)
    ref_counts[source] -= 1
    return [(source, target)]


def copies_the_head(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(_take(ref_counts, free_list))
        return []
    head, source = table[0], table[index]
    if ref_counts[source] == 1:
        return []
    table[index] = _take(ref_counts, free_list)
    ref_counts[source] -= 1
    return [(head, table[index])]


def an_empty_block(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(_take(ref_counts, free_list))
    elif ref_counts[table[index]] > 1:
        ref_counts[table[index]] -= 1
        table[index] = _take(ref_counts, free_list)
    return []


def a_step_too_early(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    copies = []
    if index < len(table) and ref_counts[table[index]] > 1:
        source = table[index]
        table[index] = _take(ref_counts, free_list)
        ref_counts[source] -= 1
        copies = [(source, table[index])]
    if (num_tokens + 1) // block_size == len(table):
        table.append(_take(ref_counts, free_list))
    return copies


def a_step_too_late(table, num_tokens, ref_counts, free_list, block_size):
    index = (num_tokens - 1) // block_size
    if index == len(table):
        table.append(_take(ref_counts, free_list))
        return []
    source = table[index]
    if ref_counts[source] == 1:
        return []
    table[index] = _take(ref_counts, free_list)
    ref_counts[source] -= 1
    return [(source, table[index])]


def not_taken_from_the_free_list(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(free_list[0])
        ref_counts[free_list[0]] = 1
        return []
    source = table[index]
    if ref_counts[source] == 1:
        return []
    table[index] = _take(ref_counts, free_list)
    ref_counts[source] -= 1
    return [(source, table[index])]


def not_counted(table, num_tokens, ref_counts, free_list, block_size):
    index = num_tokens // block_size
    if index == len(table):
        table.append(free_list.pop(0))
        return []
    source = table[index]
    if ref_counts[source] == 1:
        return []
    table[index] = _take(ref_counts, free_list)
    ref_counts[source] -= 1
    return [(source, table[index])]


def all_blocks_copied(table, num_tokens, ref_counts, free_list, block_size):
    if num_tokens % block_size == 0:
        table.append(_take(ref_counts, free_list))
        return []
    copies = []
    for index, source in enumerate(list(table)):
        if ref_counts[source] > 1:
            table[index] = _take(ref_counts, free_list)
            ref_counts[source] -= 1
            copies.append((source, table[index]))
    return copies


def nothing_returned(table, num_tokens, ref_counts, free_list, block_size):
    return None


# --- 6.3 free -------------------------------------------------------------------------------------


def freed_while_shared(tables, ref_counts, free_list, seq):
    for block in reversed(tables.pop(seq)):
        ref_counts[block] -= 1
        free_list.append(block)


def freed_at_one(tables, ref_counts, free_list, seq):
    for block in reversed(tables.pop(seq)):
        ref_counts[block] -= 1
        if ref_counts[block] <= 1:
            free_list.append(block)


def head_first(tables, ref_counts, free_list, seq):
    for block in tables.pop(seq):
        ref_counts[block] -= 1
        if ref_counts[block] == 0:
            free_list.append(block)


def table_kept(tables, ref_counts, free_list, seq):
    for block in reversed(tables[seq]):
        ref_counts[block] -= 1
        if ref_counts[block] == 0:
            free_list.append(block)


def never_freed(tables, ref_counts, free_list, seq):
    for block in reversed(tables.pop(seq)):
        ref_counts[block] -= 1


def shared_keep_their_count(tables, ref_counts, free_list, seq):
    for block in reversed(tables.pop(seq)):
        if ref_counts[block] == 1:
            ref_counts[block] = 0
            free_list.append(block)


def all_counts_to_zero(tables, ref_counts, free_list, seq):
    for block in reversed(tables.pop(seq)):
        ref_counts[block] = 0
        free_list.append(block)


def to_the_front(tables, ref_counts, free_list, seq):
    for block in reversed(tables.pop(seq)):
        ref_counts[block] -= 1
        if ref_counts[block] == 0:
            free_list.insert(0, block)


WRONG = {
    "6.1": {
        "the same list": (alias, "one and the same list"),
        "no reference is taken": (no_reference, "a reference was not taken"),
        "only the last block is counted": (only_the_last_is_counted, "a reference was not taken"),
        "only full blocks are counted": (only_full_blocks_are_counted, "a reference was not taken"),
        "the second fork counts for nothing": (two_at_most, "A, B and C"),
        "one reference too many": (one_reference_too_many, "never be free again"),
        "the last block is left out": (last_block_left_out, "must name A's blocks"),
        "a tuple": (a_tuple, "tables['B'] is a tuple"),
        "counts in a new list": (counts_rebound, "a reference was not taken"),
    },
    "6.2": {
        "the copy in the wrong direction": (wrong_direction, "wrong direction"),
        "the old reference is kept": (reference_kept, "not given back"),
        "a copy on the block boundary": (copies_at_a_boundary, "nothing is copied"),
        "a copy of its own block": (copies_what_is_its_own, "holds alone"),
        "no copy-on-write": (no_copy_on_write, "A would read B's token"),
        "the table still names the old one": (table_not_changed, "table still names block 0"),
        "another block is copied": (copies_the_head, "would read A's token"),
        "an empty block instead of a copy": (an_empty_block, "KV that was never written"),
        "a block one step too early": (a_step_too_early, "can be written as it is"),
        "a block one step too late": (a_step_too_late, "needs a new block"),
        "in use and free": (not_taken_from_the_free_list, "is in the free list while"),
        "a block that nobody counts": (not_counted, "given away under it"),
        "full blocks are copied, too": (all_blocks_copied, "other blocks stay shared"),
        "nothing is returned": (nothing_returned, "list of pairs"),
    },
    "6.3": {
        "freed while shared": (freed_while_shared, "is in the free list while B holds it"),
        "freed at one reference": (freed_at_one, "is in the free list while B holds it"),
        "head first": (head_first, "tail first"),
        "the table stays": (table_kept, "its table still names"),
        "never freed": (never_freed, "it is lost for ever"),
        "shared blocks keep their count": (shared_keep_their_count, "never be free again"),
        "all counts to zero": (all_counts_to_zero, "is in the free list while B holds it"),
        "to the front": (to_the_front, "behind the others"),
    },
}
