"""The weights of a model, one tensor at a time, under Hugging Face's names.

Contract: nothing in a file is ever run. Safetensors and GGUF hold numbers and names alone; whatever
does not fit into the file, or is of an unknown kind, ends in a `ModelError` that names the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minipaged.errors import ModelError
from minipaged.models.gguf import GGUFHeader, GGUFTensor, read_header
from minipaged.models.gguf_model import ROPE_FACTORS, interleaved_heads, weight_name
from minipaged.models.model_files import reading
from minipaged.models.reason import reason


def load_weights(weight_files: Sequence[Path]) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight and its name: packed ones in fp32, others in the file's own dtype.

    Raises:
        ModelError: A file is missing, damaged, or holds something else than numbers.
    """
    for path in weight_files:
        yield from _gguf_weights(path) if path.suffix == ".gguf" else _safetensors_weights(path)


def _safetensors_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    with reading(path), path.open("rb"):  # safetensors has one message for all that can happen
        pass
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (safe_open is no mapping)
                if not name.endswith("rotary_emb.inv_freq"):  # old files keep what RoPE works out
                    yield name, _floating(path, name, file.get_tensor(name))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: damaged or not safetensors: {reason(error)}") from None


def _floating(path: Path, name: str, tensor: Tensor) -> Tensor:
    if tensor.is_floating_point():
        return tensor
    raise ModelError(f"{path}: {name!r} is {tensor.dtype}: packed weights are read from GGUF only")


class _Packed(NamedTuple):
    """Where a tensor's bytes are and how they are packed."""

    tensor: GGUFTensor
    kind: Any  # gguf.GGMLQuantizationType
    byte_shape: tuple[int, ...]
    weight: str


def _gguf_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    import numpy as np

    header = read_header(path)
    tensors = [t for t in header.tensors.values() if t.name != ROPE_FACTORS]
    packed = [_check(header, tensor) for tensor in tensors]  # all, before the first is handed out
    data = np.memmap(path, dtype=np.uint8, mode="r")
    for entry in packed:
        yield entry.weight, _unpack(header, entry, data)


def _check(header: GGUFHeader, tensor: GGUFTensor) -> _Packed:
    import gguf

    where = f"{header.path}: tensor {tensor.name!r}"
    weight = weight_name(tensor.name)
    if weight is None:
        raise ModelError(f"{where} is not part of a supported model")
    try:
        kind = gguf.GGMLQuantizationType(tensor.kind)
        byte_shape = tuple(gguf.quant_shape_to_byte_shape(tensor.shape, kind))
    except (KeyError, ValueError) as error:
        raise ModelError(f"{where}: {reason(error)}") from None
    end = tensor.offset + math.prod(byte_shape)
    if end > header.size or 0 in tensor.shape:
        shape = list(tensor.shape)
        raise ModelError(f"{where} {shape} ends at byte {end}, the file at {header.size}: cut off")
    return _Packed(tensor, kind, byte_shape, weight)


def _unpack(header: GGUFHeader, entry: _Packed, data: Any) -> Tensor:
    import gguf

    start = entry.tensor.offset
    packed = data[start : start + math.prod(entry.byte_shape)].reshape(entry.byte_shape)
    try:
        numbers = gguf.dequantize(packed, entry.kind)
    except NotImplementedError as error:
        raise ModelError(f"{header.path}: tensor {entry.tensor.name!r}: {reason(error)}") from None
    weight = torch.from_numpy(numbers.copy() if not numbers.flags.writeable else numbers)
    heads = interleaved_heads(header, entry.tensor.name)
    return weight if heads is None else _apart(header, entry.tensor, weight, heads)


def _apart(header: GGUFHeader, tensor: GGUFTensor, weight: Tensor, heads: int) -> Tensor:
    """Move the two rows of each pair from side by side to half a head apart."""
    rows, rest = weight.shape[0], weight.shape[1:]
    if rows % (2 * heads):
        raise ModelError(f"{header.path}: tensor {tensor.name!r}: {rows} rows, {heads} heads")
    pairs = weight.reshape(heads, rows // heads // 2, 2, *rest)
    return pairs.transpose(1, 2).reshape(weight.shape)
