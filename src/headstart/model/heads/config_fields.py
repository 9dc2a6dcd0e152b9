"""What the configs of heads of every kind have in common: how they are read, and what is refused in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.base.errors import UnsupportedModel
from headstart.base.lazy import transformers
from headstart.model.reading import read_object
from headstart.model.recipes.stated import FIXED_ROPE
from headstart.model.rotation import PlainRope

COPY = "copy the checkpoint with its config again"
_OTHER_TARGET = "train a head for this target with `headstart train`, or use one that was made for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSizes:
    """What the configs of all heads with decoder layers say.

    width: d of its own stream; target_width: d of the target. draft_vocab_size: tokens that it can propose. max_length:
    positions that it was made for. layer_ids: the target's layers whose inputs it reads. rope: `PlainRope`, or a
    config from which transformers makes the rotation.
    """

    name: str
    width: int
    target_width: int
    intermediate: int
    heads: int
    kv_heads: int
    dim: int
    eps: float
    layers: int = 1
    vocab_size: int
    draft_vocab_size: int
    max_length: int
    layer_ids: tuple[int, ...]
    rope: Any

    @property
    def features(self) -> int:
        """Numbers of the target's states of one token: of all layers read, side by side."""
        return len(self.layer_ids) * self.target_width


def read_config(path: Path) -> dict[str, Any]:
    return read_object(path / "config.json", hint="give the directory of an EAGLE head")


def layer_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the decoder's config: the speculators form nests them, others have them at the top."""
    return {**raw, **(raw.get("transformer_layer_config") or {})}


def sizes_of(name: str, layer: Mapping[str, Any], stated: Mapping[str, Any], target: Any) -> dict[str, Any]:
    """The fields of `HeadSizes`, but for `layer_ids`.

    layer: the decoder's config. stated: what is said of the head itself. target: the target's config, of its text.

    Raises:
        UnsupportedModel: one is missing or no number, or the MLP is no gate of SiLU.
    """
    try:
        width, heads = int(layer["hidden_size"]), int(layer["num_attention_heads"])
        intermediate, vocab_size = int(layer["intermediate_size"]), int(layer["vocab_size"])
        layers = int(layer.get("num_hidden_layers") or 1)
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedModel(f"{name}/config.json lacks a usable {error}", hint=COPY) from error
    if layers < 1:
        raise UnsupportedModel(f"{name} has {layers} layers", hint=COPY)
    if layer.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"{name} has hidden_act={layer['hidden_act']!r}", hint="heads with 'silu' can be run")
    return {
        "name": name,
        "width": width,
        "target_width": int(stated.get("target_hidden_size") or width),
        "intermediate": intermediate,
        "heads": heads,
        "kv_heads": int(layer.get("num_key_value_heads") or heads),
        "dim": int(layer.get("head_dim") or width // heads),
        "eps": float(layer.get("rms_norm_eps") or 1e-6),
        "layers": layers,
        "vocab_size": vocab_size,
        "draft_vocab_size": int(stated.get("draft_vocab_size") or vocab_size),
        "max_length": int(layer.get("max_position_embeddings") or target.max_position_embeddings),
        "rope": _rope(name, layer),
    }


def check_exact(path: Path, raw: Mapping[str, Any]) -> None:
    """Refuse settings of the `speculators` library under which text would not be the target's."""
    settings = raw.get("speculators_config") or {}
    for method in settings.get("proposal_methods") or ():
        for field, exact in (("verifier_accept_k", 1), ("accept_tolerance", 0.0)):
            value = method.get(field)
            if value is not None and value > exact:
                raise UnsupportedModel(
                    f"{path} asks for lossy verification ({field}={value}), which would change the target's text",
                    hint=f"set {field} to {exact} in its config.json; the head itself can be used as it is",
                )


def as_inputs(name: str, found: Any, kind: str | None, layers: int) -> tuple[int, ...]:
    """Layer ids as those whose inputs are read. kind: "inputs", or "outputs", of which -1 is the embedding's."""
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
    """A config from which the rotation is made."""
    if (plain := PlainRope.stated(layer)) is not None:
        return plain
    fields = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings", "head_dim")
    sizes = ("hidden_size", "num_attention_heads", "num_key_value_heads")
    try:
        rope = transformers.LlamaConfig(
            **{field: layer[field] for field in (*fields, *sizes) if layer.get(field) is not None}
        )
        kind = rope.rope_parameters["rope_type"]
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedModel(f"{name}/config.json: {error}", hint="its rotation cannot be computed") from error
    if kind not in FIXED_ROPE:
        raise UnsupportedModel(
            f"{name} has positions of the kind {kind!r}", hint=f"heads with {', '.join(sorted(FIXED_ROPE))} can be run"
        )
    return rope


def trained_depth(raw: Mapping[str, Any]) -> int | None:
    """Tokens that the head was trained to draft, as the speculators form and headstart's own record it."""
    methods = (raw.get("speculators_config") or {}).get("proposal_methods") or ()
    depths = [method.get("speculative_tokens") for method in methods] + [(raw.get("headstart") or {}).get("guesses")]
    return next((depth for depth in depths if type(depth) is int and depth > 0), None)


def check_target(config: HeadSizes, target: Any) -> None:
    """Refuse a head that was made for another target, naming what differs."""
    ours = {"hidden_size": int(target.hidden_size), "vocab_size": int(target.vocab_size)}
    theirs = {"hidden_size": config.target_width, "vocab_size": config.vocab_size}
    differing = [field for field in ours if ours[field] != theirs[field]]
    if differing:
        both = "; ".join(f"{field} is {theirs[field]} there and {ours[field]} here" for field in differing)
        raise UnsupportedModel(f"{config.name} was made for another target: {both}", hint=_OTHER_TARGET)
