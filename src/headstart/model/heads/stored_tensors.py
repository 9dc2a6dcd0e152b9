"""The tensors of a head of any kind as they lie on disk: safetensors alone, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.loading import weight_files

Shapes = dict[str, tuple[int, ...]]
"""By the name of a tensor."""

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
"""The matrices of a decoder layer."""

_IGNORED = ("rotary_emb.inv_freq",)
_UNROUNDED = ("fc.weight", "embed_tokens.weight", "hidden_projection.weight")
_SCALE = "_scale"


class Vocabularies(Protocol):
    """A head that knows the first vocabulary of the target's, or a part of it."""

    @property
    def name(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def draft_vocab_size(self) -> int: ...


def read_tensors(path: Path, known_as: Callable[[str], str]) -> dict[str, Tensor]:
    """All tensors of a directory. known_as: the name here of one on disk."""
    tensors: dict[str, Tensor] = {}
    for file in weight_files(path, convert="safetensors.torch.save_file writes safetensors"):
        try:
            with safe_open(file, framework="pt") as stored:
                tensors.update({known_as(name): stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118
        except Exception as error:
            raise UnsupportedModel(f"{file} cannot be read: {error}", hint="copy the checkpoint again") from error
    return _numbers(path, {name: tensor for name, tensor in tensors.items() if not name.endswith(_IGNORED)})


def rounded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors with matrices on int8 and a float32 scale for each of their outputs, in half the room.

    `fc` stays as it is: what it joins is of different sizes, and the small would be lost beside the large. The row
    kernels round the others so in any case.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or not name.endswith(".weight") or name.endswith(_UNROUNDED):
            found[name] = tensor
            continue
        numbers = tensor.float()
        scale = numbers.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
        found[name] = (numbers / scale).round().to(torch.int8)
        found[f"{name}{_SCALE}"] = scale
    return found


def _numbers(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Codes times their scales, in float32; what is stored in numbers stays as it is."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(_SCALE):
            continue
        if tensor.dtype != torch.int8:
            found[name] = tensor
            continue
        scale = tensors.get(f"{name}{_SCALE}")
        if scale is None or scale.shape != (len(tensor), 1) or not scale.is_floating_point():
            shape = "no scales" if scale is None else f"scales {list(scale.shape)} of {scale.dtype}"
            raise UnsupportedModel(
                f"{path}: {name} is on int8 and has {shape}",
                hint=f"{name}{_SCALE} should have a float for each of its {len(tensor)} outputs; copy it again",
            )
        found[name] = tensor.float() * scale.float()
    return found


def names_in(file: Path) -> Iterable[str]:
    with safe_open(file, framework="pt") as stored:
        return list(stored.keys())


def token_ids_of(config: Vocabularies, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The target's id of each draft token, from the offsets `d2t`; checked against `t2d`."""
    offsets, marked = tensors.get("d2t"), tensors.get("t2d")
    if offsets is None:
        if config.draft_vocab_size != config.vocab_size:
            raise missing_tensors(config.name, ["d2t"])
        return None
    if offsets.shape != (config.draft_vocab_size,):
        raise UnsupportedModel(
            f"{config.name}: d2t has {list(offsets.shape)} numbers for draft_vocab_size={config.draft_vocab_size}",
            hint="copy the checkpoint again",
        )
    ids = torch.arange(config.draft_vocab_size) + offsets.long()
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.vocab_size or len(set(ids.tolist())) != len(ids):
        what = "the same token twice" if low >= 0 and high < config.vocab_size else f"tokens from {low} to {high}"
        raise UnsupportedModel(
            f"{config.name}: d2t leads to {what}, in a vocabulary of {config.vocab_size}",
            hint="d2t holds offsets: the target's id is the draft's plus d2t; write it anew",
        )
    if marked is not None and not torch.equal(marked.bool().nonzero()[:, 0], ids.sort().values):
        raise UnsupportedModel(
            f"{config.name}: t2d does not mark the tokens that d2t leads to", hint="one of the two is of another head"
        )
    return ids


def check_shapes(name: str, needed: Shapes, optional: Shapes, tensors: Mapping[str, Tensor]) -> None:
    """Every tensor there and of its shape, and none that would be left unused. name: of the head."""
    missing = [key for key in needed if key not in tensors]
    if missing:
        raise missing_tensors(name, missing)
    known = {**needed, **optional}
    unknown = sorted(set(tensors) - set(known))
    if unknown:
        raise UnsupportedModel(
            f"{name} holds tensors that no known head has: {', '.join(unknown)}",
            hint="it is another kind of drafter, or of a newer form",
        )
    for key, tensor in tensors.items():
        if tuple(tensor.shape) != known[key]:
            raise UnsupportedModel(
                f"{name}: {key} has the shape {list(tensor.shape)} where its config means {list(known[key])}",
                hint="config and weights are of different heads; copy the checkpoint again",
            )


def missing_tensors(name: str, names: Sequence[str]) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name} lacks {'tensors' if len(names) > 1 else 'the tensor'} {', '.join(names)}",
        hint="the checkpoint is incomplete, or another kind of head; copy it again",
    )
