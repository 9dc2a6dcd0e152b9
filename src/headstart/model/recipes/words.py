"""A recipe in words: what its layers are, for people."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.model.recipes.experts import Experts
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.mixers import ChannelRule, DeltaRule, Mamba2, Recurrent, ShortConv
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe

_ACTIVATIONS = {
    "silu": "SiLU", "gelu": "GELU", "gelu_tanh": "GELU (tanh)", "relu": "ReLU", "relu2": "squared ReLU",
    "xielu": "xIELU",
}  # fmt: skip

_RECURRENT: dict[type[Recurrent], str] = {
    ShortConv: "short convolution", DeltaRule: "gated delta rule", Mamba2: "Mamba-2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LayerKind:
    """The layers of a model that are alike, in words."""

    count: int
    span: str
    """What their rows see: "full attention", "window 4096", "gated delta rule"."""
    attention: str
    """Heads, and what else attention or a recurrence is."""
    positions: str
    norms: str
    mlp: str
    beside: str
    """What else there is; empty where there is nothing."""


def kinds_of(recipe: Recipe) -> tuple[LayerKind, ...]:
    """The different layers in words, in order of appearance; those that read alike are one."""
    found: dict[tuple[str, ...], int] = {}
    for count, layer in recipe.kinds:
        positions = _positions(layer, learned=recipe.places is not None)
        said = (_span(layer), _mixer(layer), positions, _norms(layer), _mlp(layer), _beside(layer))
        found[said] = found.get(said, 0) + count
    return tuple(LayerKind(count, *said) for said, count in found.items())


def rest_of(recipe: Recipe) -> str:
    """What is before the first layer and after the last, beside an embedding, a norm and the output head."""
    norm = recipe.final_norm
    said = [
        "embeddings normed" if recipe.embedding_norm else "",
        f"embeddings x {recipe.embedding_factor:.4g}" if recipe.embedding_factor != 1 else "",
        "learned positions added" if recipe.places else "",
        "an input of its own for each layer" if recipe.inputs else "",
        "no norm after the last layer" if norm is None else "",
        f"logits x {recipe.logit_factor:.4g}" if recipe.logit_factor != 1 else "",
        f"logits capped at {recipe.logit_softcap:g}" if recipe.logit_softcap else "",
    ]
    return _listed(said)


def _span(layer: Layer) -> str:
    attention, recurrence = layer.attends, layer.recurs
    said = [] if attention is None else ["full attention" if attention.window is None else f"window {attention.window}"]
    said += [] if recurrence is None else [_RECURRENT[type(recurrence)]]
    return " beside ".join(said) or "MLP alone"


def _mixer(layer: Layer) -> str:
    attention, recurrence = layer.attends, layer.recurs
    if recurrence is None:
        return "none" if attention is None else _attention(attention)
    made = _recurrence(recurrence)
    return f"none: {made}" if attention is None else f"{_attention(attention)}; beside it {made}"


def _recurrence(found: Recurrent) -> str:
    conv = f"a convolution over {found.taps} tokens of {found.channels} channels"
    if isinstance(found, ShortConv):
        return conv
    if isinstance(found, DeltaRule):
        keys = "" if found.key_heads == found.heads else f" on {found.key_heads} of keys"
        state = f"{found.key_dim} x {found.value_dim}"
        state += ", which decays by channel" if isinstance(found, ChannelRule) else ""
    else:
        keys = "" if found.groups == found.heads else f" in groups of {found.heads // found.groups}"
        state = f"{found.dim} x {found.state}"
    signs = "; states may change their sign" if isinstance(found, DeltaRule) and found.beta_factor > 1 else ""
    return f"{found.heads} heads{keys}, each with a state of {state}{signs}; {conv}"


def _attention(found: Attention) -> str:
    if isinstance(found, Latent):
        return _latent(found)
    keys = "" if found.kv_heads == found.heads else f" on {found.kv_heads} of keys"
    gate = "a gate for each head" if found.gate_by_head else "gated" if found.gated else ""
    said = [
        f"{found.heads} heads{keys}, {found.dim} wide",
        gate,
        _normed(found),
        f"scores capped at {found.softcap:g}" if found.softcap else "",
        "a sink for each head" if found.sinks else "",
        "the keys are the values" if found.value_is_key else "",
        "keys and values of an earlier layer" if found.keys_of is not None else "",
        "queries scaled by their position" if found.query_beta else "",
    ]
    return _listed(said)


def _latent(found: Latent) -> str:
    made = "" if found.q_rank is None else f" made of {found.q_rank} numbers"
    said = [
        f"{found.heads} heads on one latent of {found.rank} and a key of {found.turning} numbers",
        f"queries {found.nope + found.turning} wide{made}, values {found.value_dim}",
        "queries scaled by their position" if found.query_beta else "",
    ]
    return _listed(said)


def _normed(found: Attention) -> str:
    names = [
        name for name, norm in (("queries", found.q_norm), ("keys", found.k_norm), ("values", found.v_norm)) if norm
    ]
    if not names:
        return ""
    over = "by head" if found.norm_over == "head" else "over all heads"
    return f"{' and '.join(names) if len(names) < 3 else 'queries, keys and values'} normed {over}"


def _positions(layer: Layer, learned: bool) -> str:
    mixer = layer.attends
    if mixer is None:
        return "none" if layer.recurs is None else "the order of the text"
    rope = mixer.rope
    if rope is None:
        return "learned" if learned else "none (NoPE)"
    dim = mixer.nope + mixer.turning if isinstance(mixer, Latent) else mixer.dim
    part = "" if rope.rotary == dim else f" of {rope.rotary} of {dim} numbers"
    said = [
        f"rotary{part}",
        "neighbours turn together" if rope.pairs else "",
        f"angles of {rope.table}" if rope.table else "",
        "before the norm of queries and keys" if mixer.norm_after_rope else "",
    ]
    return _listed(said)


def _norms(layer: Layer) -> str:
    if layer.parallel:
        apart = None not in (layer.attention_in, layer.mlp_in) and layer.attention_in != layer.mlp_in
        how = "one for each of attention and MLP, which run" if apart else "one for attention and MLP, which run"
        return f"{_kind(layer.attention_in or layer.mlp_in)}, {how} in parallel"
    mixer = "the recurrence" if layer.attends is None else "attention"
    places = [
        (f"before {mixer}", layer.attention_in), (f"after {mixer}", layer.attention_out),
        ("before the MLP", layer.mlp_in), ("after the MLP", layer.mlp_out),
    ]  # fmt: skip
    there = [(place, norm) for place, norm in places if norm is not None]
    if not there:
        return "none"
    return f"{_kind(there[0][1])} {_and([place for place, _ in there])}"


def _kind(norm: Norm | None) -> str:
    if norm is None:
        return "no norm"
    kind = "RMS norm" if norm.kind == "rms" else "layer norm"
    return kind + (f" (gain + {norm.offset:g})" if norm.offset else "") + ("" if norm.name else " (no weights)")


def _mlp(layer: Layer) -> str:
    if layer.experts is not None:
        return _experts(layer.experts)
    found = layer.dense
    if found is None:
        return "none"
    name = _ACTIVATIONS.get(found.activation, found.activation)
    return f"{name}, {'gated' if found.gated else 'no gate'}, {found.width} wide"


def _experts(found: Experts) -> str:
    router, shared = found.router, found.shared
    name = "clamped SwiGLU" if found.limit else _ACTIVATIONS.get(found.activation, found.activation)
    kinds = {"softmax": "softmax", "sigmoid": "sigmoid", "chosen": "softmax of the chosen"}
    beside = "" if shared is None else f"one of {shared.width} for all{', gated' if found.shared_gate else ''}"
    gate = "gated" if found.gated else "no gate"
    said = [
        f"{router.chosen} of {found.count} experts, {name}, {gate}, {found.width} wide",
        beside,
        f"chosen by {kinds[router.score]}{' and a bias' if router.choice_bias else ''}",
        f"in {router.groups_kept} of {router.groups} groups" if router.groups > 1 else "",
    ]
    return _listed(said)


def _beside(layer: Layer) -> str:
    parts = (*layer.mixers, layer.feed_forward)
    factors = any(each.factor != 1 for each in parts if each is not None)
    said = [
        f"what a layer adds x {layer.residual_factor:.4g}" if layer.residual_factor != 1 else "",
        "a factor of what each part adds" if factors else "",
        f"an input of its own, {layer.input.width} wide" if layer.input else "",
        "a learned factor at its end" if layer.factor else "",
    ]
    return _listed(said)


def _listed(said: list[str]) -> str:
    return "; ".join(each for each in said if each)


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
