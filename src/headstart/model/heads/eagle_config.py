"""What an EAGLE head's config says, in every form of it; see `eagle_checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.heads.config_fields import HeadSizes, as_inputs, check_exact, layer_config, sizes_of, trained_depth
from headstart.model.recipes.recipe import Layer

EAGLE1, EAGLE3 = 1, 3
MASK_TOKENS = ("mask_token_id", "pard_token", "ptd_token_id")
"""Fields that name the token of masked rows; the first is that of the speculators library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig(HeadSizes):
    """The shape of a head.

    version: EAGLE1 (and 2) or EAGLE3. norm_before_residual: the stream goes on normed. norm_before_fc, fc_norm: the
    target's states are normed before they are fused, together or by layer. norm_output: its own states are fed back
    behind the final norm. layers: of its decoder, of which the first takes [embedding | state] and the others the
    stream alone. mask_token_id: the token of masked rows, where it guesses all tokens in one forward (P-EAGLE); None
    where it drafts step by step. depth: tokens that it was trained to draft, if the config names them. selector_rank,
    selector_top: see `Selector`; 0 without one. state_first: an EAGLE-1 head's matrix takes [state | embedding].
    recipe: what its layer is, where it is none of Llama's; both are MTP heads'.
    """

    version: int
    window: int | None = None
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    mask_token_id: int | None = None
    depth: int | None = None
    selector_rank: int = 0
    selector_top: int = 0
    state_first: bool = False
    recipe: Layer | None = None

    @property
    def parallel(self) -> bool:
        """Whether it guesses all tokens of a draft in one forward."""
        return self.mask_token_id is not None

    @property
    def states_normed(self) -> bool:
        """Whether the states that it leaves are those behind the final norm: to draft on from, or for a selector."""
        return self.norm_output or self.parallel

    @property
    def fused_inputs(self) -> int:
        """Inputs of the fusing layer: [embedding | state], or the target's states."""
        return 2 * self.width if self.version == EAGLE1 else self.features


def default_layer_ids(layers: int) -> tuple[int, int, int]:
    """An early, a middle and a late layer of a target with so many; in a shallow one, three around the middle."""
    middle = layers // 2
    return (2, middle, layers - 3) if layers >= 7 else (middle - 1, middle, middle + 1)


def check_kind(path: Path, raw: Mapping[str, Any]) -> None:
    """Refuse other drafters of the `speculators` library, and settings under which text would not be the target's."""
    kind = raw.get("speculators_model_type")
    if kind not in (None, "eagle3", "peagle"):
        raise UnsupportedModel(
            f"{path} is a speculators checkpoint of type {kind!r}, and only 'eagle3' and 'peagle' can be run",
            hint="use an EAGLE-3 or P-EAGLE head, or a draft model",
        )
    check_exact(path, raw)
    if (raw.get("eagle_config") or {}).get("use_aux_hidden_state") is False:
        raise UnsupportedModel(
            f"{path} is an EAGLE-3 head without states of inner layers (use_aux_hidden_state is false)",
            hint="use a head that reads them",
        )


def head_config(name: str, raw: Mapping[str, Any], tensors: Mapping[str, Tensor], target: Any) -> HeadConfig:
    """From any form of config, and what the tensors tell of it; target: the target's config, of its text."""
    layer, third = layer_config(raw), _is_third(raw, tensors)
    sizes = sizes_of(name, layer, raw if third else {**raw, "draft_vocab_size": None}, target)
    mask = _mask_token(name, raw, tensors, sizes["vocab_size"]) if third else None
    rank, top = _selector(name, raw, parallel=mask is not None)
    names = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    flags: dict[str, Any] = {name: third and bool(raw.get(name)) for name in names}
    depth = int(target.num_hidden_layers)
    return HeadConfig(
        **sizes,
        version=EAGLE3 if third else EAGLE1,
        layer_ids=_layer_ids(name, raw, depth) if third else (depth,),
        window=_window(name, layer, sizes["layers"]),
        **flags,
        mask_token_id=mask,
        depth=trained_depth(raw),
        selector_rank=rank,
        selector_top=top,
    )


def _is_third(raw: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    return (
        raw.get("speculators_model_type") in ("eagle3", "peagle")
        or "hidden_norm.weight" in tensors
        or any("eagle3" in str(name).lower() for name in raw.get("architectures") or ())
    )


def _layer_ids(name: str, raw: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """As inputs; see the head of this file."""
    ours = raw.get("headstart") or {}
    nested = raw.get("eagle_config") or {}
    declared: dict[str, tuple[Any, str | None]] = {
        "headstart": (ours.get("layer_ids"), ours.get("layer_ids_are")),
        "eagle_aux_hidden_state_layer_ids": (raw.get("eagle_aux_hidden_state_layer_ids"), "inputs"),
        "eagle_config": (nested.get("eagle_aux_hidden_state_layer_ids"), "outputs"),
    }
    read = {place: as_inputs(name, ids, kind, layers) for place, (ids, kind) in declared.items() if ids}
    if len(set(read.values())) > 1:
        places = "; ".join(f"{place} says {list(declared[place][0])} ({declared[place][1]})" for place in read)
        raise UnsupportedModel(
            f"{name}/config.json contradicts itself on the layers that the head reads: {places}",
            hint="the head has one set of layers; name it the same way in each place (outputs are one less than "
            "inputs), or remove the places that are wrong",
        )
    return next(iter(read.values()), default_layer_ids(layers))


def _window(name: str, layer: Mapping[str, Any], layers: int) -> int | None:
    kinds = list(layer.get("layer_types") or ("full_attention",))[:layers]
    if len(set(kinds)) > 1:
        raise UnsupportedModel(
            f"{name} has layers of several kinds of attention: {kinds}", hint="heads whose layers are alike can be run"
        )
    sliding = kinds[0] == "sliding_attention"
    return int(layer["sliding_window"]) if sliding and layer.get("sliding_window") else None


def _mask_token(name: str, raw: Mapping[str, Any], tensors: Mapping[str, Tensor], vocab_size: int) -> int | None:
    """The token of masked rows, by the names that its writers have for it; None for a head without masks."""
    found = {field: raw[field] for field in MASK_TOKENS if raw.get(field) is not None}
    if not found and "mask_hidden" not in tensors and raw.get("speculators_model_type") != "peagle":
        return None
    if not found:
        raise UnsupportedModel(
            f"{name}/config.json names no mask token, and the head guesses in parallel",
            hint=f"add the id that it was trained with, as {MASK_TOKENS[0]!r}",
        )
    token = next(iter(found.values()))
    if len(set(found.values())) > 1 or type(token) is not int or not 0 <= token < vocab_size:
        raise UnsupportedModel(
            f"{name}/config.json: {found} is no mask token of a vocabulary of {vocab_size}",
            hint="it is one token id, the same in each field",
        )
    return token


def _selector(name: str, raw: Mapping[str, Any], *, parallel: bool) -> tuple[int, int]:
    """Rank and candidates of a selector; 0 where there is none."""
    rank, top = raw.get("selector_rank") or 0, raw.get("selector_top_k") or 0
    if not rank and not top:
        return 0, 0
    if not (type(rank) is int and rank > 0 and type(top) is int and top > 0):
        raise UnsupportedModel(
            f"{name}/config.json: selector_rank={rank!r} and selector_top_k={top!r} are no selector",
            hint="both are whole numbers from 1 on; without a selector, leave both out",
        )
    if not parallel:
        raise UnsupportedModel(
            f"{name} has a selector, and drafts step by step", hint="a selector goes with a head that has a mask token"
        )
    return rank, top
