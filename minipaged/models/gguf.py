"""Read the header of a GGUF file: its metadata and where each tensor lies. Standard library only.

Contract: the file is untrusted. Every length that it states is held against the bytes that are
really there before anything is read or reserved, so a truncated or lying file ends in a
`ModelError` at once. Tensors stay packed: `weights.py` dequantizes them.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from minipaged.errors import ModelError
from minipaged.models.reason import reason

SUPPORTED_VERSIONS = (2, 3)
_MAX_ITEMS = 1 << 22  # entries in all lists together: eight times the largest vocabulary known
_MAX_ENTRIES = 1 << 16  # tensors, or entries of the metadata
_MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_FORMATS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))


@dataclass(frozen=True)
class GGUFTensor:
    """One packed tensor: its shape in torch's order and its first byte, counted from the file's."""

    name: str
    shape: tuple[int, ...]
    kind: int  # ggml's number for the way of packing
    offset: int


@dataclass(frozen=True)
class GGUFHeader:
    """What a GGUF file says about itself."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]
    size: int  # bytes of the whole file

    def read(self, name: str, size: int) -> bytes:
        """Read the first `size` bytes of a tensor."""
        offset = self.tensors[name].offset
        if offset + size > self.size:
            raise ModelError(f"{self.path}: cut off: tensor {name!r} ends behind the file's end")
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)


def read_header(path: Path) -> GGUFHeader:
    """Read the metadata and the list of tensors, not the tensors.

    Raises:
        ModelError: The file can't be opened, is not GGUF, or contradicts itself.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(path, data).header()
    except (OSError, ValueError) as error:  # mmap refuses an empty file with ValueError
        raise ModelError(f"{path}: can't be read as GGUF: {reason(error)}") from None


class _Reader:
    """A position in the file, and reads that never go beyond its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = 0
        self._items_left = _MAX_ITEMS

    def header(self) -> GGUFHeader:
        tensor_count, pair_count = self._preamble()
        metadata = dict(self._pair() for _ in range(pair_count))
        infos = [self._tensor_info() for _ in range(tensor_count)]
        start = self._aligned(metadata.get("general.alignment", 32))
        tensors = {t.name: GGUFTensor(t.name, t.shape, t.kind, start + t.offset) for t in infos}
        for tensor in tensors.values():
            if tensor.offset > len(self._data):
                self._fail(f"tensor {tensor.name!r} starts at byte {tensor.offset}")
        return GGUFHeader(self._path, metadata, tensors, len(self._data))

    def _preamble(self) -> tuple[int, int]:
        if self._take(4) != b"GGUF":
            self._fail("it does not begin with the letters GGUF")
        version = self._number("I")
        if version not in SUPPORTED_VERSIONS:
            self._fail(f"version {version} is not one of {SUPPORTED_VERSIONS} (little-endian)")
        tensors, pairs = self._number("Q"), self._number("Q")
        if max(tensors, pairs) > _MAX_ENTRIES:
            self._fail(
                f"{tensors} tensors and {pairs} metadata entries are more than any model has"
            )
        self._require(tensors * 24 + pairs * 13, f"{tensors} tensors and {pairs} metadata entries")
        return tensors, pairs

    def _pair(self) -> tuple[str, Any]:
        key = self._string()
        return key, self._value(self._number("I"))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._number(self._format(kind))

    def _array(self) -> list[Any]:
        kind, count = self._number("I"), self._number("Q")
        if kind == _ARRAY:
            self._fail("a list of lists in the metadata is not supported")
        self._items_left -= count
        if self._items_left < 0:
            self._fail(f"a list of {count} entries is more than any model needs")
        if kind == _STRING:
            self._require(8 * count, f"a list of {count} strings")
            return [self._string() for _ in range(count)]
        layout = f"<{count}{self._format(kind)}"
        return list(struct.unpack(layout, self._take(struct.calcsize(layout))))

    def _tensor_info(self) -> GGUFTensor:
        name = self._string()
        rank = self._number("I")
        if not 1 <= rank <= _MAX_DIMENSIONS:
            self._fail(f"tensor {name!r} has {rank} dimensions")
        dimensions = struct.unpack(f"<{rank}Q", self._take(8 * rank))
        kind, offset = self._number("I"), self._number("Q")
        return GGUFTensor(name, dimensions[::-1], kind, offset)  # ggml names the fastest first

    def _aligned(self, alignment: object) -> int:
        if not isinstance(alignment, int) or alignment < 1:
            self._fail(f"general.alignment is {alignment!r}")
        return -(-self._at // alignment) * alignment

    def _format(self, kind: int) -> str:
        if kind not in _FORMATS:
            self._fail(f"unknown type {kind} in the metadata")
        return _FORMATS[kind]

    def _string(self) -> str:
        start = self._at
        try:
            return self._take(self._number("Q")).decode("utf-8")
        except UnicodeDecodeError:
            self._fail(f"the text at byte {start} is not UTF-8")

    def _number(self, code: str) -> Any:
        size = struct.calcsize(code)
        return struct.unpack("<" + code, self._take(size))[0]

    def _take(self, size: int) -> bytes:
        self._require(size, f"the next {size} bytes")
        self._at += size
        return self._data[self._at - size : self._at]

    def _require(self, size: int, what: str) -> None:
        left = len(self._data) - self._at
        if size > left:
            self._fail(f"{what} do not fit into the {left} bytes after byte {self._at}")

    def _fail(self, why: str) -> NoReturn:
        raise ModelError(f"{self._path}: damaged or not GGUF: {why}")
