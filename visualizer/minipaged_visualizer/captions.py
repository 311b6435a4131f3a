"""What happened, in plain words, with the reason. Every view takes its words from here.

A caption is made from events alone, so that it is the same wherever it is shown. Tokens in a
caption are quoted as they are: a view makes them harmless in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from minipaged.memory import events as ev


class Caption(NamedTuple):
    """One line of plain words.

    `sign` is a single character, the same that marks the block in a picture of the pool. What is
    `routine` happens in nearly every step: a small view may leave it out.
    """

    sign: str
    text: str
    routine: bool = False


SIGNS = {
    "request": "*",
    "fork": "├",
    "hit": "=",
    "alloc": "+",
    "share": "=",
    "copy": "»",
    "prefill": "~",
    "write": "~",
    "publish": "#",
    "evict": "!",
    "preempt": "‖",
    "swap_out": "↓",
    "swap_in": "↑",
    "sample": "›",
    "finish": "■",
    "release": "-",
    "reserve": "+",
    "attend": "◉",
    "kernel": "k",
}
ROUTINE = {"prefill", "write", "sample", "publish", "attend", "kernel"}
_MAX_NAMED = 4


def letters(seq: int) -> str:
    """Give the name of a sequence for people: A, B, ..., Z, AA, ...

    >>> letters(0), letters(25), letters(26), letters(702)
    ('A', 'Z', 'AA', 'AAA')
    """
    if not 0 <= seq < 26 + 26**2 + 26**3:
        return f"#{seq}"
    name, rest = "", seq + 1
    while rest:
        rest, letter = divmod(rest - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def telling_name(name: str) -> str:
    """Give a request's name where somebody gave it one: a number says no more than its letter.

    >>> telling_name("moon"), telling_name("12")
    ('moon', '')
    """
    return "" if name.isdigit() else name


def caption(event: ev.Event) -> Caption:
    """Tell one event.

    >>> caption(ev.BlockAllocated(seq=0, index=2, block=7, why="append")).text
    'A takes block 7: its last block is full'
    """
    return _tell([event])


def captions(events: Iterable[ev.Event]) -> list[Caption]:
    """Tell what happened in a step; events of one kind in a row become one line.

    >>> row = [ev.BlockShared(1, 0, 4), ev.BlockShared(1, 1, 5)]
    >>> [line.text for line in captions(row)]
    ['B shares blocks 4 and 5 with its parent: nothing is copied']
    """
    return [_tell(group) for group in groups(events)]


def groups(events: Iterable[ev.Event]) -> list[list[ev.Event]]:
    """Part events into the runs that `captions` tells in one line each."""
    return [list(group) for _, group in groupby(events, key=_likeness)]


def listed(items: Sequence[object], limit: int = 12) -> str:
    """Join things as people do; of many, only the first few are named.

    >>> listed(["A", "B", "C"]), listed([1, 2, 3, 4], limit=2)
    ('A, B and C', '1, 2 and 2 more')
    """
    shown = [str(item) for item in items]
    if len(shown) > limit + 1:
        shown[limit:] = [f"{len(shown) - limit} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


# --- the words ------------------------------------------------------------------------------------


def _tell(group: Sequence[ev.Event]) -> Caption:
    """Tell events that are alike in everything but their blocks."""
    first = group[0]
    blocks = [event.block for event in group if hasattr(event, "block")]
    text = _WORDS[type(first)](first, _blocks(blocks))
    return Caption(SIGNS[first.kind], text, first.kind in ROUTINE)


def _request(event: ev.Requested, _: str) -> str:
    name = telling_name(event.name)
    who = f"{letters(event.seq)} arrives{f' ({name:.40})' if name else ''}"
    return f"{who}: a prompt of {_tokens(event.num_prompt_tokens)}"


def _fork(event: ev.Forked, _: str) -> str:
    parent, child = letters(event.parent), letters(event.child)
    return f"{parent} forks: {child} starts with the same tokens"


def _hit(event: ev.PrefixHit, _: str) -> str:
    who = letters(event.seq)
    return f"{who} shares {_blocks(event.blocks)}: the same prefix, so nothing is computed again"


def _alloc(event: ev.BlockAllocated, blocks: str) -> str:
    why = {"prompt": "room for its prompt", "append": "its last block is full"}
    return f"{letters(event.seq)} takes {blocks}: {why.get(event.why, _in_words(event.why))}"


def _share(event: ev.BlockShared, blocks: str) -> str:
    return f"{letters(event.seq)} shares {blocks} with its parent: nothing is copied"


def _copy(event: ev.BlockCopied, _: str) -> str:
    who, why = letters(event.seq), event.why.removeprefix("copy-on-write: ")
    return (
        f"{who} copies block {event.source} to block {event.target}: "
        f"{_in_words(why)} and {who} wants to write"
    )


def _prefill(event: ev.Prefilled, _: str) -> str:
    last = event.start + len(event.tokens) - 1
    return (
        f"{letters(event.seq)} reads {_tokens(len(event.tokens))}: "
        f"keys and values for positions {event.start} to {last} are written"
    )


def _write(event: ev.Written, _: str) -> str:
    return f"{_each(event.seqs, event.texts)}: keys and values written"


def _publish(event: ev.BlockPublished, blocks: str) -> str:
    are, it = ("are", "them") if blocks.startswith("blocks") else ("is", "it")
    return f"{blocks} {are} full: who has the same prefix can share {it} now"


def _evict(event: ev.BlockEvicted, blocks: str) -> str:
    are, their = ("are", "their") if blocks.startswith("blocks") else ("is", "its")
    who = letters(event.for_seq)
    return f"{blocks} {are} evicted to make room for {who}: {their} prefix is forgotten"


def _preempt(event: ev.Preempted, _: str) -> str:
    later = {"swap": "its blocks move out", "recompute": "it will compute its blocks again"}
    return (
        f"{letters(event.seq)} is preempted: {_in_words(event.why)}; "
        f"{later.get(event.how, event.how)}"
    )


def _swap_out(event: ev.SwappedOut, _: str) -> str:
    sources, targets = zip(*event.moves, strict=True) if event.moves else ((), ())
    return f"{letters(event.seq)} moves out: {_blocks(sources)} to swap {_blocks(targets)}"


def _swap_in(event: ev.SwappedIn, _: str) -> str:
    sources, targets = zip(*event.moves, strict=True) if event.moves else ((), ())
    return f"{letters(event.seq)} comes back: swap {_blocks(sources)} to {_blocks(targets)}"


def _sample(event: ev.Sampled, _: str) -> str:
    return f"next token: {_each(event.seqs, event.texts)}"


def _finish(event: ev.Finished, _: str) -> str:
    why = {
        "stop": "it came to its end",
        "length": "it has all the tokens it may have",
        "abort": "it was aborted",
        "beam": "the search goes on without it",
        "search": "the search is over",
    }
    return f"{letters(event.seq)} is finished: {why.get(event.why, _in_words(event.why))}"


def _release(event: ev.Released, _: str) -> str:
    why = {"finished": "it is finished", "preempted": "it is preempted", "aborted": "it is aborted"}
    return (
        f"{letters(event.seq)} gives back {_blocks(event.blocks)}: "
        f"{why.get(event.why, _in_words(event.why))}"
    )


def _kernel(event: ev.KernelAccess, _: str) -> str:
    verb = {"load": "reads", "store": "writes"}.get(event.access, event.access)
    program = ", ".join(map(str, event.program))
    where = f"{_blocks(event.blocks)} of {event.tensor}" if event.blocks else event.tensor
    return f"{event.name} ({program}) {verb} {where}, {event.num_bytes} bytes, line {event.line}"


def _attend(event: ev.Attended, _: str) -> str:
    shares = sorted(enumerate(event.permille), key=lambda share: (-share[1], share[0]))
    named = [f"{_percent(share)} at its block {index}" for index, share in shares[:3] if share]
    who = "all heads" if event.head == ev.MEAN_OF_HEADS else f"head {event.head}"
    return f"{letters(event.seq)} looks back in layer {event.layer}, {who}: {listed(named)}"


def _percent(permille: int) -> str:
    return f"{round(permille / 10)} %" if permille >= 10 else "below 1 %"


def _reserve(event: ev.SlabReserved, _: str) -> str:
    blocks = _blocks(range(event.first_block, event.first_block + event.num_blocks))
    tokens = _tokens(event.num_tokens)
    return f"{letters(event.seq)} reserves {blocks}, in one piece: room for {tokens}, used or not"


# --- small words ----------------------------------------------------------------------------------


def _likeness(event: ev.Event) -> tuple[object, ...]:
    """Give what events must have in common to be told together."""
    if isinstance(event, ev.BlockAllocated):
        return event.kind, event.seq, event.why
    if isinstance(event, ev.BlockShared):
        return event.kind, event.seq
    if isinstance(event, ev.BlockEvicted):
        return event.kind, event.for_seq
    if isinstance(event, ev.BlockPublished):
        return (event.kind,)
    return event.kind, id(event)


def _blocks(blocks: Sequence[int]) -> str:
    """Name blocks; three or more in a row are told by their ends.

    >>> _blocks([7]), _blocks([9, 3, 2, 1, 0])
    ('block 7', 'blocks 9 and 3 to 0')
    """
    runs: list[list[int]] = []
    for block in blocks:
        if runs and _continues(runs[-1], block):
            runs[-1].append(block)
        else:
            runs.append([block])
    names = [
        name
        for run in runs
        for name in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))
    ]
    return f"block{'' if len(blocks) == 1 else 's'} {listed(names)}"


def _continues(run: Sequence[int], block: int) -> bool:
    """Tell whether `block` is the next one of a run upwards or downwards."""
    step = block - run[-1]
    return step == run[1] - run[0] if len(run) > 1 else abs(step) == 1


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"


def _each(seqs: Sequence[int], texts: Sequence[str]) -> str:
    pairs = [f"{letters(seq)} “{text}”" for seq, text in zip(seqs, texts, strict=True)]
    return listed(pairs, _MAX_NAMED)


def _in_words(why: str) -> str:
    """Give a reason as the engine wrote it, with letters for numbers of sequences.

    >>> _in_words("seq 0, 1 needs 1 blocks, 0 free")
    'A and B need 1 block, 0 free'
    """
    why = re.sub(r"\b1 blocks\b", "1 block", why)
    why = re.sub(r"\bseq (\d+(?:, \d+)*)", _letters_for, why)
    return re.sub(r"( and \w+) needs\b", r"\1 need", why)


def _letters_for(match: re.Match[str]) -> str:
    return listed([letters(int(number[:9])) for number in match[1].split(", ")])


_WORDS: dict[type[ev.Event], Callable[[Any, str], str]] = {
    ev.Requested: _request,
    ev.Forked: _fork,
    ev.PrefixHit: _hit,
    ev.BlockAllocated: _alloc,
    ev.BlockShared: _share,
    ev.BlockCopied: _copy,
    ev.Prefilled: _prefill,
    ev.Written: _write,
    ev.BlockPublished: _publish,
    ev.BlockEvicted: _evict,
    ev.Preempted: _preempt,
    ev.SwappedOut: _swap_out,
    ev.SwappedIn: _swap_in,
    ev.Sampled: _sample,
    ev.Finished: _finish,
    ev.Released: _release,
    ev.SlabReserved: _reserve,
    ev.Attended: _attend,
    ev.KernelAccess: _kernel,
}
