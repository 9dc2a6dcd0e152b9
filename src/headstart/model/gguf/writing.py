"""Writing a GGUF file: pairs of metadata, and tensors of floats or whole numbers. Source: docs/gguf.md of ggml."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from headstart.model.gguf.header import ALIGNMENT
from headstart.model.gguf.types import MAGIC

Value = bool | int | float | str | Sequence[bool] | Sequence[int]

_VERSION, _ALIGNED = 3, 32
_WHOLE, _SIGNED, _FLOAT, _FLAG, _TEXT, _ARRAY = 4, 5, 6, 7, 8, 9
_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30, torch.int64: 27}
"""Of tensors, by the numbers that files hold."""


def pair(value: Value) -> bytes:
    """A value behind its kind. Whole numbers are unsigned ones of 32 bits, those of lists signed, floats have 32."""
    if isinstance(value, bool):
        return struct.pack("<I?", _FLAG, value)
    if isinstance(value, int):
        return struct.pack("<II", _WHOLE, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT, value)
    if isinstance(value, str):
        return struct.pack("<I", _TEXT) + _text(value)
    flags = all(isinstance(each, bool) for each in value)
    kind, form = (_FLAG, "?") if flags else (_SIGNED, "i")
    return struct.pack(f"<IIQ{len(value)}{form}", _ARRAY, kind, len(value), *value)


def write_gguf(path: Path, pairs: Mapping[str, bytes], tensors: Mapping[str, Tensor]) -> None:
    """Write a file. pairs: by key, each as `pair` makes it, or as another file holds it (`header.stored_pairs`).
    tensors: in float32, float16, bfloat16 or int64."""
    kept = {key: value for key, value in pairs.items() if key != ALIGNMENT}  # tensors are placed by the usual one here
    head = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(kept))]
    head += [_text(key) + value for key, value in kept.items()]
    offset = 0
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        place = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _TYPES[tensor.dtype], offset)
        head.append(_text(name) + place)
        offset += _padded(tensor.nbytes)
    first = b"".join(head)
    with path.open("wb") as file:
        file.write(first.ljust(_padded(len(first)), b"\0"))
        for tensor in tensors.values():
            raw = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
            file.write(raw.ljust(_padded(len(raw)), b"\0"))


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
