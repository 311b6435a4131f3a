"""What can happen to memory, one frozen record for each kind.

Every change of the block pool, of a block table or of a request ends in exactly one event that is
handed to an observer. Events hold integers, strings and tuples of these: no tensors, no floats, no
clock, so the same run gives the same events. A trace is a list of them, and `replay` turns them
back into the state of memory. As JSON an event is an array: its kind, then its fields in the order
below.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. `kind` is the name in a trace, `why` the reason in words."""

    kind: ClassVar[str]

    @property
    def reason(self) -> str:
        """Give why this happened, for captions and for people who ask."""
        return getattr(self, "why", "") or self.kind


Observer: TypeAlias = Callable[[Event], object]


def ignore(event: Event) -> None:
    """Observe nothing: the default, when nobody is watching."""


@dataclass(frozen=True, slots=True)
class Requested(Event):
    """A request arrived and waits. `seq` is its first sequence."""

    kind: ClassVar[str] = "request"
    seq: int
    name: str
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Forked(Event):
    """`child` starts as a copy of `parent`: same tokens, same blocks. `share` events follow."""

    kind: ClassVar[str] = "fork"
    parent: int
    child: int


@dataclass(frozen=True, slots=True)
class PrefixHit(Event):
    """Full blocks with the same prefix were found: entries `first`, `first + 1`, ... share them."""

    kind: ClassVar[str] = "hit"
    seq: int
    first: int
    blocks: tuple[int, ...]

    @property
    def reason(self) -> str:
        """Give why: these tokens were computed before."""
        return "prefix hit"


@dataclass(frozen=True, slots=True)
class BlockAllocated(Event):
    """Table entry `index` of `seq` is now `block`, taken from the free list."""

    kind: ClassVar[str] = "alloc"
    seq: int
    index: int
    block: int
    why: str


@dataclass(frozen=True, slots=True)
class BlockShared(Event):
    """Table entry `index` of `seq` is `block`, which its parent holds as well."""

    kind: ClassVar[str] = "share"
    seq: int
    index: int
    block: int

    @property
    def reason(self) -> str:
        """Give why: only a fork shares block by block."""
        return "fork"


@dataclass(frozen=True, slots=True)
class BlockCopied(Event):
    """Copy-on-write: entry `index` of `seq` moves from shared `source` to its own copy `target`."""

    kind: ClassVar[str] = "copy"
    seq: int
    index: int
    source: int
    target: int
    why: str


@dataclass(frozen=True, slots=True)
class Prefilled(Event):
    """The KV of a run of tokens exists now, at positions `start`, `start + 1`, ... of `seq`."""

    kind: ClassVar[str] = "prefill"
    seq: int
    start: int
    tokens: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written(Event):
    """The KV of one more token exists for each of `seqs`: what a decode step leaves behind."""

    kind: ClassVar[str] = "write"
    seqs: tuple[int, ...]
    tokens: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockPublished(Event):
    """A full, computed block can be found by its hash from now on."""

    kind: ClassVar[str] = "publish"
    block: int
    hash: str
    parent_hash: str


@dataclass(frozen=True, slots=True)
class BlockEvicted(Event):
    """A free block that still held a findable prefix loses it, as `for_seq` needs the room."""

    kind: ClassVar[str] = "evict"
    block: int
    hash: str
    for_seq: int

    @property
    def reason(self) -> str:
        """Give why: somebody else needs the room."""
        return f"evicted to serve seq {self.for_seq}"


@dataclass(frozen=True, slots=True)
class Preempted(Event):
    """A running sequence gives its blocks up. `how` is "recompute" or "swap"."""

    kind: ClassVar[str] = "preempt"
    seq: int
    how: str
    why: str


@dataclass(frozen=True, slots=True)
class SwappedOut(Event):
    """The blocks of `seq`, in table order, moved to the swap pool: pairs (block, swap block)."""

    kind: ClassVar[str] = "swap_out"
    seq: int
    moves: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SwappedIn(Event):
    """The blocks of `seq`, in table order, came back: pairs (swap block, block)."""

    kind: ClassVar[str] = "swap_in"
    seq: int
    moves: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Sampled(Event):
    """One new token for each of `seqs`, with its log-probability in 1/1000 nat. No KV yet."""

    kind: ClassVar[str] = "sample"
    seqs: tuple[int, ...]
    tokens: tuple[int, ...]
    texts: tuple[str, ...]
    millinats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished(Event):
    """A sequence ended: "stop", "length" or "abort".

    For beams: "beam" where the search goes on without this one, "search" where it is over.
    """

    kind: ClassVar[str] = "finish"
    seq: int
    why: str


@dataclass(frozen=True, slots=True)
class Released(Event):
    """The last entries of a table were given back, tail first. `blocks` is in that order."""

    kind: ClassVar[str] = "release"
    seq: int
    blocks: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SlabReserved(Event):
    """Contiguous allocators: `seq` gets a slab of `num_blocks` neighbours, `first_block` onwards.

    It asked for room for `num_tokens` tokens; what the slab has beyond that is of no use to anyone.
    """

    kind: ClassVar[str] = "reserve"
    seq: int
    first_block: int
    num_blocks: int
    num_tokens: int

    @property
    def reason(self) -> str:
        """Give why: the whole text must lie in one piece."""
        return "one piece for the whole text"


MEAN_OF_HEADS = -1


@dataclass(frozen=True, slots=True)
class Attended(Event):
    """Deep traces: where the newest token of `seq` looked, in 1/1000 for each of its blocks.

    `layer` counts from 0, as does `head`; `MEAN_OF_HEADS` stands for the mean of all. The shares
    are in table order and add up to 1000. Memory's bookkeeping does not change.
    """

    kind: ClassVar[str] = "attend"
    seq: int
    layer: int
    head: int
    permille: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelAccess(Event):
    """One load or store of one program of a kernel, recorded: which memory a line of code touches.

    `access` is "load" or "store", `tensor` the argument that it goes through, `code` the source at
    `line`. `blocks`, `slots` and `heads` are empty for tensors that do not lie in blocks; `blocks`
    come in the order of the access, the other two sorted. Memory's bookkeeping does not change.
    """

    kind: ClassVar[str] = "kernel"
    name: str
    program: tuple[int, ...]
    blocks: tuple[int, ...]
    line: int
    code: str
    access: str
    tensor: str
    slots: tuple[int, ...]
    heads: tuple[int, ...]
    num_bytes: int


_ALL: tuple[type[Event], ...] = (
    Requested,
    Forked,
    PrefixHit,
    BlockAllocated,
    BlockShared,
    BlockCopied,
    Prefilled,
    Written,
    BlockPublished,
    BlockEvicted,
    Preempted,
    SwappedOut,
    SwappedIn,
    Sampled,
    Finished,
    Released,
    SlabReserved,
    Attended,
    KernelAccess,
)
EVENT_TYPES: dict[str, type[Event]] = {cls.kind: cls for cls in _ALL}
_FIELDS = {kind: dataclasses.fields(cls) for kind, cls in EVENT_TYPES.items()}


def to_json(event: Event) -> list[Any]:
    """Give the event as an array: its kind, then its fields in order.

    >>> to_json(BlockAllocated(seq=0, index=2, block=7, why="append"))
    ['alloc', 0, 2, 7, 'append']
    """
    return [event.kind, *(getattr(event, field.name) for field in _FIELDS[event.kind])]


def from_json(row: object) -> Event | None:
    """Build the event that an array stands for; None for one that readers ignore (`x-...`).

    Raises:
        ValueError: The name is unknown, or a field is missing, too many or of the wrong type.
    """
    if not isinstance(row, list) or not row or not isinstance(row[0], str):
        raise ValueError("an event must be an array that begins with its name")
    kind, *values = row
    if kind.startswith("x-"):
        return None
    if kind not in EVENT_TYPES:
        raise ValueError(f"unknown event {short(kind)}")
    fields = _FIELDS[kind]
    if len(values) != len(fields):
        raise ValueError(f"event {kind!r} needs {len(fields)} fields, has {len(values)}")
    event = EVENT_TYPES[kind](
        *(_checked(kind, f.name, str(f.type), v) for f, v in zip(fields, values, strict=True))
    )
    _check_equal_lengths(event)
    return event


_MAX_INT = 2**63
_REPR = reprlib.Repr()
_REPR.maxlevel = 2


def short(value: object) -> str:
    """Show an untrusted value in a message: on one line, never long, however deep it nests.

    >>> short([[[1]], "a" * 100])
    "[[[...]], 'aaaaaaaaaaaa...aaaaaaaaaaaaa']"
    """
    return f"{_REPR.repr(value):.60}"


def _checked(kind: str, name: str, wanted: str, value: object) -> object:
    """Give `value` as the field wants it (arrays become tuples), or say what is wrong with it."""
    if wanted == "str" and isinstance(value, str):
        return value
    if wanted == "int" and _is_int(value):
        return value
    if wanted.startswith("tuple") and isinstance(value, list):
        inner = wanted.removeprefix("tuple[").removesuffix(", ...]")
        if inner == "tuple[int, int]":
            if all(isinstance(pair, list) and len(pair) == 2 for pair in value):
                return tuple(_checked(kind, name, "tuple[int, ...]", pair) for pair in value)
        elif all(_is_int(v) if inner == "int" else isinstance(v, str) for v in value):
            return tuple(value)
    raise ValueError(f"event {kind!r}: field {name!r} must be {_WORDS[wanted]}, not {short(value)}")


def _is_int(value: object) -> bool:
    return type(value) is int and -_MAX_INT <= value < _MAX_INT


_WORDS = {
    "int": "an integer",
    "str": "a string",
    "tuple[int, ...]": "an array of integers",
    "tuple[str, ...]": "an array of strings",
    "tuple[tuple[int, int], ...]": "an array of pairs of integers",
}


def _check_equal_lengths(event: Event) -> None:
    """Refuse parallel arrays (sequences, tokens, texts) that differ in length."""
    if isinstance(event, Prefilled | Written | Sampled):
        lengths = {len(v) for v in to_json(event)[1:] if isinstance(v, tuple)}
        if len(lengths) != 1:
            raise ValueError(f"event {event.kind!r}: its arrays have different lengths")
