"""What the config of a DFlash or DSpark head says, in every form of it; see `dflash_checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from headstart.base.errors import UnsupportedModel
from headstart.model.heads.config_fields import COPY, HeadSizes, as_inputs, check_exact, layer_config, sizes_of

MarkovKind = Literal["vanilla", "gated", "rnn"]
"""What corrects the guesses of DSpark; see `markov`."""

_FAMILY = ("dflash", "dspark")


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashConfig(HeadSizes):
    """The shape of a head that guesses a block of tokens in one forward.

    windows: of each layer, how many tokens before the block it sees, or None for all of them. causal: of each layer,
    whether rows of the block see only those before them. block: its rows, of which the first is x0 and the others are
    mask tokens. from_anchor: whether the row of x0 guesses too, and each row the token after its own place; else each
    mask guesses the token at its place. markov_rank, markov_kind: see `markov`; rank 0 without one. pairs: whether
    neighbouring numbers of queries and keys turn together, as they are stored; otherwise each does with the one half a
    head further on.
    """

    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    block: int
    mask_token_id: int
    from_anchor: bool
    markov_rank: int = 0
    markov_kind: MarkovKind = "vanilla"
    pairs: bool = False

    @property
    def guesses(self) -> int:
        """Tokens that a forward guesses."""
        return self.block if self.from_anchor else self.block - 1


def names_of(raw: Mapping[str, Any]) -> list[str]:
    """What a config calls the drafter, in small letters."""
    kinds = (raw.get("speculators_model_type"), *(raw.get("architectures") or ()))
    return [str(kind).lower() for kind in kinds if kind]


def in_family(raw: Mapping[str, Any]) -> bool:
    """Whether a config is that of a head of this family, by its fields and architectures."""
    return any(kind in name for name in names_of(raw) for kind in _FAMILY) or any(f"{k}_config" in raw for k in _FAMILY)


def check_kind(path: Path, raw: Mapping[str, Any]) -> None:
    """Refuse relatives that are built otherwise, and settings under which text would not be the target's."""
    names = names_of(raw)
    other = next((name for name in names if "dflash2" in name or "gemma" in name), None)
    if other is None and raw.get("conv_kernel_size"):
        other = "dflash2"
    if other is not None:
        raise UnsupportedModel(
            f"{path} is a head of the kind {other!r}, which has layers of its own that headstart does not run",
            hint="use a DFlash or DSpark head with Qwen3's layers, or an EAGLE-3 or P-EAGLE head of this target",
        )
    check_exact(path, raw)


def head_config(name: str, raw: Mapping[str, Any], target: Any) -> DFlashConfig:
    """From any form of config; target: the target's config of transformers, of its text.

    Raises:
        UnsupportedModel: a field is missing or has no meaning; the message names it.
    """
    nested: Mapping[str, Any] = next((raw[f"{kind}_config"] for kind in _FAMILY if raw.get(f"{kind}_config")), {})
    layer = layer_config(raw)
    fields = {**layer, **raw, **nested}
    sizes = sizes_of(name, layer, fields, target)
    windows = _windows(name, layer, sizes["layers"])
    from_anchor = _from_anchor(raw, fields)
    causal = bool(fields.get("causal"))
    windows_causal = not fields.get("sliding_window_non_causal", "speculators_model_type" not in raw)
    rank = int(fields.get("markov_rank") or 0)
    kind = str(fields.get("markov_head_type") or "vanilla").lower()
    if rank and kind not in get_args(MarkovKind):
        raise UnsupportedModel(
            f"{name}/config.json: markov_head_type={kind!r}", hint=f"it is one of {', '.join(get_args(MarkovKind))}"
        )
    if rank and kind == "rnn" and not from_anchor:
        raise UnsupportedModel(
            f"{name} has a recurrent Markov head, and does not guess from x0", hint="heads that guess from x0 have one"
        )
    return DFlashConfig(
        **sizes,
        layer_ids=_layer_ids(name, raw, fields, sizes["layers"], int(target.num_hidden_layers)),
        windows=windows,
        causal=tuple(causal or (window is not None and windows_causal) for window in windows),
        block=_whole(name, fields, "block_size", low=1 if from_anchor else 2),
        mask_token_id=_whole(name, fields, "mask_token_id", low=0, high=sizes["vocab_size"] - 1),
        from_anchor=from_anchor,
        markov_rank=rank,
        markov_kind=kind,  # type: ignore[arg-type]
        pairs=not raw.get("rope_is_neox_style", not any("lfm2" in each for each in names_of(raw))),
    )


def _from_anchor(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """As the config says; where it does not, as the writers of its form do: those of DSpark from x0 on, and those of
    DFlash behind it."""
    stated = fields.get("sample_from_anchor")
    return any("dspark" in name for name in names_of(raw)) if stated is None else bool(stated)


def _layer_ids(
    name: str, raw: Mapping[str, Any], fields: Mapping[str, Any], layers: int, target_layers: int
) -> tuple[int, ...]:
    if (inputs := raw.get("aux_hidden_state_layer_ids")) is not None:
        return as_inputs(name, inputs, "inputs", target_layers)
    if (outputs := fields.get("target_layer_ids")) is not None:
        return as_inputs(name, outputs, "outputs", target_layers)
    if "speculators_model_type" in raw:
        raise UnsupportedModel(f"{name}/config.json lacks aux_hidden_state_layer_ids", hint=COPY)
    if layers == 1:
        return as_inputs(name, [target_layers // 2], "outputs", target_layers)
    step = (target_layers - 4) / (layers - 1)  # evenly, from the second layer to the last but two
    return as_inputs(name, [round(1 + i * step) for i in range(layers)], "outputs", target_layers)


def _windows(name: str, layer: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    kinds = list(layer.get("layer_types") or ["full_attention"] * layers)[:layers]
    window = layer.get("sliding_window")
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if len(kinds) < layers or unknown or ("sliding_attention" in kinds and (type(window) is not int or window < 1)):
        raise UnsupportedModel(
            f"{name}/config.json: layer_types={kinds} and sliding_window={window!r} are not those of {layers} layers",
            hint=COPY,
        )
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _whole(name: str, fields: Mapping[str, Any], field: str, *, low: int, high: int | None = None) -> int:
    value = fields.get(field)
    if type(value) is not int or value < low or (high is not None and value > high):
        most = "" if high is None else f" to {high}"
        raise UnsupportedModel(f"{name}/config.json: {field}={value!r}, and it is {low}{most or ' or more'}", hint=COPY)
    return value
