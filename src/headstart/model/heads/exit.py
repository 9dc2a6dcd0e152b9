"""A trained exit: what makes a guess of the state after some of a target's layers.

The target's own way out is its final norm and output matrix, made for the state after all layers. A trained exit has a
gain of its own for the norm, and a linear map before the output matrix; it may know a part of the vocabulary alone. Map
and matrix are one product in use.

The folder: config.json with `exit_layers`, `hidden_size`, `vocab_size`, and where the exit knows but some of the tokens
`draft_vocab_size`; tensors `norm.weight` [d], `linear.weight` [d, d], and then `d2t` [draft V] (target id = draft id +
d2t, as in EAGLE-3 checkpoints).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.heads.stored_tensors import read_tensors, write_head
from headstart.model.reading import object_in

_OTHER = "train an exit for this target: headstart train exit"


@dataclass(frozen=True, eq=False)
class Exit:
    """What a checkpoint holds."""

    layers: int
    """After how many of the target's layers it is."""
    gain: Tensor
    """Of the norm [d]."""
    linear: Tensor
    """The map [d, d] before the output matrix."""
    token_ids: Tensor | None = None
    """The tokens it knows, rising; None for all."""

    def output(self, matrix: Tensor) -> Tensor:
        """Map and output matrix [V, d] as one [draft V, d]."""
        rows = matrix if self.token_ids is None else matrix[self.token_ids.to(matrix.device)]
        return (rows.float() @ self.linear.to(matrix.device).float()).to(matrix.dtype)


def is_exit(folder: str | Path) -> bool:
    """Whether a directory's config is that of a trained exit."""
    return "exit_layers" in object_in(Path(folder) / "config.json")


def write(folder: Path, exit_: Exit, *, vocab_size: int, target: str) -> None:
    """Write the two files."""
    tensors = {"norm.weight": exit_.gain, "linear.weight": exit_.linear}
    config: dict[str, Any] = {
        "architectures": ["TrainedExit"],
        "model_type": "exit",
        "exit_layers": exit_.layers,
        "hidden_size": len(exit_.gain),
        "vocab_size": vocab_size,
        "base_model_name_or_path": target,
        "dtype": "bfloat16",
    }
    if exit_.token_ids is not None:
        config["draft_vocab_size"] = len(exit_.token_ids)
        tensors["d2t"] = exit_.token_ids.cpu() - torch.arange(len(exit_.token_ids))
    write_head(folder, tensors, config)


def read(folder: str | Path, *, layers: int, width: int, vocab_size: int) -> Exit:
    """The exit in a folder, for a target of this shape.

    Raises:
        ModelNotFound, PickleCheckpoint: there are no safetensors.
        UnsupportedModel: it is incomplete, or another target's.
    """
    folder = Path(folder)
    config = object_in(folder / "config.json")
    after = config.get("exit_layers")
    if not isinstance(after, int) or not 0 < after < layers:
        raise UnsupportedModel(f"{folder}: an exit after {after!r} layers of a target that has {layers}", hint=_OTHER)
    wanted = (config.get("hidden_size"), config.get("vocab_size"))
    if wanted != (width, vocab_size):
        raise UnsupportedModel(
            f"{folder}: an exit for hidden_size={wanted[0]!r} and vocab_size={wanted[1]!r}, but the target's are "
            f"{width} and {vocab_size}",
            hint=_OTHER,
        )
    tensors = read_tensors(folder, lambda name: name, "an exit has only ever been written as safetensors")
    known = config.get("draft_vocab_size")
    shapes: dict[str, tuple[int, ...]] = {"norm.weight": (width,), "linear.weight": (width, width)}
    if known is not None:
        shapes["d2t"] = (known,)
    for name, shape in shapes.items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            there = tuple(tensors[name].shape) if name in tensors else "missing"
            raise UnsupportedModel(f"{folder}: tensor {name} is {there}, not of the shape {shape}", hint=_OTHER)
    ids = None if known is None else tensors["d2t"] + torch.arange(known)
    if ids is not None and not (int(ids.min()) >= 0 and int(ids.max()) < vocab_size and bool((ids.diff() > 0).all())):
        raise UnsupportedModel(f"{folder}: d2t does not name tokens of the target's in order", hint=_OTHER)
    return Exit(after, tensors["norm.weight"], tensors["linear.weight"], ids)
