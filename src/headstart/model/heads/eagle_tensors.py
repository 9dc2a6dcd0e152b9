"""The tensors of an EAGLE head: read by the names of every form, and checked against its config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from headstart.errors import UnsupportedModel
from headstart.model.heads.eagle_config import EAGLE3, HeadConfig
from headstart.model.loading import weight_files

SELECTOR = "candidate_selector"
"""Under which name the tensors of a selector stand."""

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
_IGNORED = ("rotary_emb.inv_freq",)
_UNROUNDED = ("fc.weight", "embed_tokens.weight", "hidden_projection.weight")
_SCALE = "_scale"


def read_tensors(path: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in weight_files(path, convert="safetensors.torch.save_file writes safetensors"):
        try:
            with safe_open(file, framework="pt") as stored:
                tensors.update({canonical(name): stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118
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


def canonical(name: str) -> str:
    """The name without what tells one form of checkpoint from another."""
    for prefix in ("model.", "midlayer.", "layers.0."):
        name = name.removeprefix(prefix)
    return name


def token_ids_of(config: HeadConfig, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The target's id of each draft token, from the offsets `d2t`; checked against `t2d`."""
    offsets, marked = tensors.get("d2t"), tensors.get("t2d")
    if offsets is None:
        if config.draft_vocab_size != config.vocab_size:
            raise _missing(config, ["d2t"])
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


def check_tensors(config: HeadConfig, tensors: Mapping[str, Tensor]) -> None:
    """Every tensor there and of the shape that the config gives it, and none that would be left unused."""
    needed, optional = _shapes(config)
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise _missing(config, missing)
    known = {**needed, **optional}
    unknown = sorted(set(tensors) - set(known))
    if unknown:
        raise UnsupportedModel(
            f"{config.name} holds tensors that no known head has: {', '.join(unknown)}",
            hint="it is another kind of drafter, or of a newer form",
        )
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != known[name]:
            raise UnsupportedModel(
                f"{config.name}: {name} has the shape {list(tensor.shape)} where its config means {list(known[name])}",
                hint="config and weights are of different heads; copy the checkpoint again",
            )


Shapes = dict[str, tuple[int, ...]]


def _shapes(config: HeadConfig) -> tuple[Shapes, Shapes]:
    """Shapes of the tensors that must be there, and of those that may."""
    d, third = config.width, config.version == EAGLE3
    needed: Shapes = {"fc.weight": (d, config.fused_inputs)}
    optional: Shapes = {"fc.bias": (d,), "embed_tokens.weight": (config.vocab_size, d)}
    for layer in range(config.layers):
        for all_, of_layer in zip((needed, optional), _layer_shapes(config, layer), strict=True):
            all_ |= {layer_name(layer, name): shape for name, shape in of_layer.items()}
    head = {"lm_head.weight": (config.draft_vocab_size, d)}
    if third:
        needed |= {f"{name}.weight": (d,) for name in ("hidden_norm", "norm")}
        optional |= {"d2t": (config.draft_vocab_size,), "t2d": (config.vocab_size,)}
        if config.norm_before_fc:
            needed |= {"input_norm.weight": (config.fused_inputs,)}
        if config.fc_norm:
            needed |= {f"fc_norm.{i}.weight": (config.target_width,) for i in range(len(config.layer_ids))}
    if config.parallel:
        needed["mask_hidden"] = (1, 1, config.features)
    if rank := config.selector_rank:
        needed |= {
            f"{SELECTOR}.predecessor_codebook": (config.vocab_size, rank),
            f"{SELECTOR}.successor_codebook": (config.draft_vocab_size, rank),
            f"{SELECTOR}.hidden_projection.weight": (rank, d),
        }
    # The target's own head and embedding stand in where they fit
    borrowable = config.draft_vocab_size == config.vocab_size and d == config.target_width
    (optional if borrowable else needed).update(head)
    if d != config.target_width:
        needed["embed_tokens.weight"] = optional.pop("embed_tokens.weight")
    return needed, optional


def _layer_shapes(config: HeadConfig, layer: int) -> tuple[Shapes, Shapes]:
    """The same of one decoder layer. The first of EAGLE-3 takes [embedding | state], that of EAGLE-1 has no norm."""
    d, inner = config.width, config.intermediate
    queries, keys = config.heads * config.dim, config.kv_heads * config.dim
    first, third = layer == 0, config.version == EAGLE3
    into = 2 * d if first and third else d
    attention = dict(zip(_ATTENTION, ((queries, into), (keys, into), (keys, into), (d, queries)), strict=True))
    needed: Shapes = {"post_attention_layernorm.weight": (d,)}
    if third or not first:
        needed["input_layernorm.weight"] = (d,)
    needed |= {f"self_attn.{name}.weight": shape for name, shape in attention.items()}
    needed |= {f"mlp.{name}.weight": (inner, d) for name in _MLP[:2]} | {"mlp.down_proj.weight": (d, inner)}
    optional: Shapes = {f"self_attn.{name}.bias": shape[:1] for name, shape in attention.items()}
    optional |= {f"self_attn.{name}.weight": (config.dim,) for name in ("q_norm", "k_norm")}
    optional |= {f"mlp.{name}.bias": (inner,) for name in _MLP[:2]} | {"mlp.down_proj.bias": (d,)}
    return needed, optional


def layer_name(layer: int, name: str) -> str:
    """A layer's tensor as it is known here: those of the first have no prefix."""
    return f"layers.{layer}.{name}" if layer else name


def _missing(config: HeadConfig, names: Sequence[str]) -> UnsupportedModel:
    return UnsupportedModel(
        f"{config.name} lacks {'tensors' if len(names) > 1 else 'the tensor'} {', '.join(names)}",
        hint="the checkpoint is incomplete, or not an EAGLE head; copy it again",
    )
