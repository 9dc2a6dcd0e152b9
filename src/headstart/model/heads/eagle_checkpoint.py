"""Reading EAGLE heads: one layer that drafts from a target's hidden states, as published by several projects.

Three forms of checkpoint are known. EAGLE-1 and -2: a Llama config of one layer; tensors `fc.*`, `layers.0.*`, no
norm before attention. EAGLE-3 as its authors write it: `midlayer.*`, `norm`, `lm_head` over a draft vocabulary, `d2t`
(target id = draft id + d2t) and `t2d`. EAGLE-3 of the `speculators` library, which vLLM reads: the same tensors as
`layers.0.*`, the layer's config nested in `transformer_layer_config`.

Which layers of the target an EAGLE-3 head reads has two conventions, one apart. Here an id is the layer whose *input*
is read (transformers' hidden_states[id]; the number of layers means the output of the final norm). `speculators` and
vLLM name inputs too (`eagle_aux_hidden_state_layer_ids` at the top of the config); SGLang and other trainers nest the
same field in `eagle_config` and name *outputs* there. A field `headstart` says which it means, {"layer_ids": [...],
"layer_ids_are": "inputs"}. Engines look in different places, so all that are there must name the same layers. Without
any of them the ids are `default_layer_ids`.

Only safetensors is read. Sources: EAGLE (arXiv:2401.15077), EAGLE-2 (2406.16858), EAGLE-3 (2503.01840).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import LlamaConfig

from headstart.errors import ModelNotFound, UnsupportedModel
from headstart.model.decoders.llama import FIXED_ROPE
from headstart.model.loading import weight_files

EAGLE1, EAGLE3 = 1, 3

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
_IGNORED = ("rotary_emb.inv_freq",)
_OTHER_TARGET = "train a head for this target with `headstart train`, or use one that was made for it"


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """The shape of a head.

    version: EAGLE1 (and 2) or EAGLE3. width: d of its own stream; target_width: d of the target. layer_ids: whose
    inputs it reads. rope: a config from which transformers makes the rotation. norm_before_residual: the stream goes on
    normed. norm_before_fc, fc_norm: the target's states are normed before they are fused, together or by layer.
    norm_output: its own states are fed back behind the final norm.
    """

    name: str
    version: int
    width: int
    target_width: int
    intermediate: int
    heads: int
    kv_heads: int
    dim: int
    eps: float
    vocab_size: int
    draft_vocab_size: int
    max_length: int
    layer_ids: tuple[int, ...]
    rope: Any
    window: int | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    @property
    def features(self) -> int:
        """Numbers of the target's states of one token: of all layers read, side by side."""
        return len(self.layer_ids) * self.target_width

    @property
    def fused_inputs(self) -> int:
        """Inputs of the fusing layer: [embedding | state], or the target's states."""
        return 2 * self.width if self.version == EAGLE1 else self.features


@dataclass(frozen=True, slots=True, eq=False)
class HeadCheckpoint:
    """A head as read, and checked against its target.

    tensors: by name, the layer's own prefix taken off ("self_attn.q_proj.weight", "fc.weight", ...). token_ids: int64
    [draft V], the target's id of each draft token; None where the vocabularies are one.
    """

    config: HeadConfig
    tensors: Mapping[str, Tensor]
    token_ids: Tensor | None


def is_eagle(folder: str | Path) -> bool:
    """Whether a directory looks like such a head, from its config and its tensors' names alone."""
    path = Path(folder)
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError):
        return False
    if not isinstance(config, dict):
        return False
    if "speculators_model_type" in config or "draft_vocab_size" in config:
        return True
    if any("eagle" in str(name).lower() for name in config.get("architectures") or ()):
        return True
    try:
        names = {_canonical(name) for file in path.glob("*.safetensors") for name in _names(file)}
    except Exception:  # whatever the file is, it is no head
        return False
    return {"fc.weight", "self_attn.q_proj.weight"} <= names


def default_layer_ids(layers: int) -> tuple[int, int, int]:
    """An early, a middle and a late layer of a target with so many; in a shallow one, three around the middle."""
    middle = layers // 2
    return (2, middle, layers - 3) if layers >= 7 else (middle - 1, middle, middle + 1)


def read(folder: str | Path, target: Any) -> HeadCheckpoint:
    """The head in a directory, for the target with this config of transformers.

    Raises:
        ModelNotFound: no config, or no weights.
        PickleCheckpoint: weights as a pickle only.
        UnsupportedModel: another kind of drafter, damaged, or made for another target; the message names the field.
    """
    path = Path(folder)
    raw = _read_config(path)
    tensors = _read_tensors(path)
    _check_kind(path, raw)
    config = _config(str(path), raw, tensors, target.get_text_config())
    _check_target(config, target.get_text_config())
    token_ids = _token_ids(config, tensors)
    _check_tensors(config, tensors)
    return HeadCheckpoint(config, tensors, token_ids)


def read_target(folder: str | Path, name: str) -> Tensor:
    """One tensor of a model in a directory, by the end of its name."""
    for file in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            for full in stored.keys():  # noqa: SIM118 -- not a mapping
                if full == name or full.endswith(f".{name}"):
                    return stored.get_tensor(full)  # type: ignore[no-any-return]
    raise UnsupportedModel(
        f"{folder} has no tensor {name}, which the head needs of its target", hint="use a head that has one of its own"
    )


# -- the config -------------------------------------------------------------------------------------------------------


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "config.json").read_text())
    except OSError as error:
        raise ModelNotFound(f"{path} has no config.json", hint="give the directory of an EAGLE head") from error
    except ValueError as error:
        raise ModelNotFound(f"{path}/config.json is not valid JSON", hint="copy the checkpoint again") from error
    if not isinstance(config, dict):
        raise ModelNotFound(f"{path}/config.json is not an object", hint="copy the checkpoint again")
    return config


def _check_kind(path: Path, raw: Mapping[str, Any]) -> None:
    """Refuse other drafters of the `speculators` library, and settings under which text would not be the target's."""
    kind = raw.get("speculators_model_type")
    if kind not in (None, "eagle3"):
        raise UnsupportedModel(
            f"{path} is a speculators checkpoint of type {kind!r}, and only 'eagle3' can be run",
            hint="use an EAGLE-3 head, or a draft model",
        )
    settings = raw.get("speculators_config") or {}
    for method in settings.get("proposal_methods") or ():
        for field, exact in (("verifier_accept_k", 1), ("accept_tolerance", 0.0)):
            value = method.get(field)
            if value is not None and value > exact:
                raise UnsupportedModel(
                    f"{path} asks for lossy verification ({field}={value}), which would change the target's text",
                    hint=f"set {field} to {exact} in its config.json; the head itself can be used as it is",
                )
    if (raw.get("eagle_config") or {}).get("use_aux_hidden_state") is False:
        raise UnsupportedModel(
            f"{path} is an EAGLE-3 head without states of inner layers (use_aux_hidden_state is false)",
            hint="use a head that reads them",
        )


def _config(name: str, raw: Mapping[str, Any], tensors: Mapping[str, Tensor], target: Any) -> HeadConfig:
    layer = {**raw, **(raw.get("transformer_layer_config") or {})}
    version = EAGLE3 if _is_third(raw, tensors) else EAGLE1
    try:
        width, heads = int(layer["hidden_size"]), int(layer["num_attention_heads"])
        intermediate, vocab_size = int(layer["intermediate_size"]), int(layer["vocab_size"])
        layers = int(layer.get("num_hidden_layers") or 1)
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedModel(
            f"{name}/config.json lacks a usable {error}", hint="copy the checkpoint with its config again"
        ) from error
    if layers != 1:
        raise UnsupportedModel(f"{name} has {layers} layers, and heads of one can be run", hint="use such a head")
    if layer.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"{name} has hidden_act={layer['hidden_act']!r}", hint="heads with 'silu' can be run")
    third = version == EAGLE3
    return HeadConfig(
        name=name,
        version=version,
        width=width,
        target_width=int(raw.get("target_hidden_size") or width),
        intermediate=intermediate,
        heads=heads,
        kv_heads=int(layer.get("num_key_value_heads") or heads),
        dim=int(layer.get("head_dim") or width // heads),
        eps=float(layer.get("rms_norm_eps") or 1e-6),
        vocab_size=vocab_size,
        draft_vocab_size=int(raw.get("draft_vocab_size") or vocab_size) if third else vocab_size,
        max_length=int(layer.get("max_position_embeddings") or target.max_position_embeddings),
        layer_ids=_layer_ids(name, raw, int(target.num_hidden_layers)) if third else (int(target.num_hidden_layers),),
        rope=_rope(name, layer),
        window=_window(layer),
        norm_before_residual=third and bool(raw.get("norm_before_residual")),
        norm_before_fc=third and bool(raw.get("norm_before_fc")),
        fc_norm=third and bool(raw.get("fc_norm")),
        norm_output=third and bool(raw.get("norm_output")),
    )


def _is_third(raw: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    return (
        raw.get("speculators_model_type") == "eagle3"
        or "hidden_norm.weight" in tensors
        or any("eagle3" in str(name).lower() for name in raw.get("architectures") or ())
    )


def _layer_ids(name: str, raw: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """As inputs; see the head of this file."""
    ours = raw.get("headstart") or {}
    nested = raw.get("eagle_config") or {}
    said: dict[str, tuple[Any, str | None]] = {
        "headstart": (ours.get("layer_ids"), ours.get("layer_ids_are")),
        "eagle_aux_hidden_state_layer_ids": (raw.get("eagle_aux_hidden_state_layer_ids"), "inputs"),
        "eagle_config": (nested.get("eagle_aux_hidden_state_layer_ids"), "outputs"),
    }
    read = {place: _as_inputs(name, ids, kind, layers) for place, (ids, kind) in said.items() if ids}
    if len(set(read.values())) > 1:
        places = "; ".join(f"{place} says {list(said[place][0])} ({said[place][1]})" for place in read)
        raise UnsupportedModel(
            f"{name}/config.json contradicts itself on the layers that the head reads: {places}",
            hint="the head has one set of layers; name it the same way in each place (outputs are one less than "
            "inputs), or remove the places that are wrong",
        )
    return next(iter(read.values()), default_layer_ids(layers))


def _as_inputs(name: str, found: Any, kind: str | None, layers: int) -> tuple[int, ...]:
    if kind not in ("inputs", "outputs") or not isinstance(found, list) or not all(type(i) is int for i in found):
        raise UnsupportedModel(
            f"{name}/config.json names the layers {found} as {kind!r}",
            hint='layer ids are whole numbers, "inputs" or "outputs" of layers',
        )
    ids = tuple(i + 1 if kind == "outputs" else i for i in found)
    if any(not 0 <= i <= layers for i in ids):
        raise UnsupportedModel(
            f"the head reads layers {list(found)} ({kind}), and this target has {layers} layers", hint=_OTHER_TARGET
        )
    return ids


def _rope(name: str, layer: Mapping[str, Any]) -> Any:
    fields = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings", "head_dim")
    sizes = ("hidden_size", "num_attention_heads", "num_key_value_heads")
    try:
        rope = LlamaConfig(**{field: layer[field] for field in (*fields, *sizes) if layer.get(field) is not None})
        kind = rope.rope_parameters["rope_type"]
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedModel(f"{name}/config.json: {error}", hint="its rotation cannot be computed") from error
    if kind not in FIXED_ROPE:
        raise UnsupportedModel(
            f"{name} has positions of the kind {kind!r}", hint=f"heads with {', '.join(sorted(FIXED_ROPE))} can be run"
        )
    return rope


def _window(layer: Mapping[str, Any]) -> int | None:
    sliding = (layer.get("layer_types") or ("full_attention",))[0] == "sliding_attention"
    return int(layer["sliding_window"]) if sliding and layer.get("sliding_window") else None


def _check_target(config: HeadConfig, target: Any) -> None:
    """Refuse a head that was made for another target, naming what differs."""
    ours = {"hidden_size": int(target.hidden_size), "vocab_size": int(target.vocab_size)}
    theirs = {"hidden_size": config.target_width, "vocab_size": config.vocab_size}
    differing = [field for field in ours if ours[field] != theirs[field]]
    if differing:
        both = "; ".join(f"{field} is {theirs[field]} there and {ours[field]} here" for field in differing)
        raise UnsupportedModel(f"{config.name} was made for another target: {both}", hint=_OTHER_TARGET)


# -- the tensors ------------------------------------------------------------------------------------------------------


def _read_tensors(path: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in weight_files(path, convert="safetensors.torch.save_file writes safetensors"):
        try:
            with safe_open(file, framework="pt") as stored:
                tensors.update({_canonical(name): stored.get_tensor(name) for name in stored.keys()})  # noqa: SIM118
        except Exception as error:
            raise UnsupportedModel(f"{file} cannot be read: {error}", hint="copy the checkpoint again") from error
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(_IGNORED)}


def _names(file: Path) -> Iterable[str]:
    with safe_open(file, framework="pt") as stored:
        return list(stored.keys())


def _canonical(name: str) -> str:
    """The name without what tells one form of checkpoint from another."""
    for prefix in ("model.", "midlayer.", "layers.0."):
        name = name.removeprefix(prefix)
    return name


def _token_ids(config: HeadConfig, tensors: Mapping[str, Tensor]) -> Tensor | None:
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


def _check_tensors(config: HeadConfig, tensors: Mapping[str, Tensor]) -> None:
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


def _shapes(config: HeadConfig) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Shapes of the tensors that must be there, and of those that may."""
    d, inner, third = config.width, config.intermediate, config.version == EAGLE3
    queries, keys = config.heads * config.dim, config.kv_heads * config.dim
    into = 2 * d if third else d
    outputs = dict(zip(_ATTENTION, ((queries, into), (keys, into), (keys, into), (d, queries)), strict=True))
    needed: dict[str, tuple[int, ...]] = {
        "fc.weight": (d, config.fused_inputs),
        "post_attention_layernorm.weight": (d,),
    }
    needed |= {f"self_attn.{name}.weight": shape for name, shape in outputs.items()}
    needed |= {f"mlp.{name}.weight": (inner, d) for name in _MLP[:2]} | {"mlp.down_proj.weight": (d, inner)}
    optional: dict[str, tuple[int, ...]] = {"fc.bias": (d,), "embed_tokens.weight": (config.vocab_size, d)}
    optional |= {f"self_attn.{name}.bias": shape[:1] for name, shape in outputs.items()}
    optional |= {f"self_attn.{name}.weight": (config.dim,) for name in ("q_norm", "k_norm")}
    optional |= {f"mlp.{name}.bias": (inner,) for name in _MLP[:2]} | {"mlp.down_proj.bias": (d,)}
    head = {"lm_head.weight": (config.draft_vocab_size, d)}
    if third:
        needed |= {f"{name}.weight": (d,) for name in ("hidden_norm", "input_layernorm", "norm")}
        optional |= {"d2t": (config.draft_vocab_size,), "t2d": (config.vocab_size,)}
        if config.norm_before_fc:
            needed |= {"input_norm.weight": (config.fused_inputs,)}
        if config.fc_norm:
            needed |= {f"fc_norm.{i}.weight": (config.target_width,) for i in range(len(config.layer_ids))}
    # The target's own head and embedding stand in where they fit
    borrowable = config.draft_vocab_size == config.vocab_size and d == config.target_width
    (optional if borrowable else needed).update(head)
    if d != config.target_width:
        needed["embed_tokens.weight"] = optional.pop("embed_tokens.weight")
    return needed, optional


def _missing(config: HeadConfig, names: Sequence[str]) -> UnsupportedModel:
    return UnsupportedModel(
        f"{config.name} lacks {'tensors' if len(names) > 1 else 'the tensor'} {', '.join(names)}",
        hint="the checkpoint is incomplete, or not an EAGLE head; copy it again",
    )
