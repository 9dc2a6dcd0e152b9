"""Whether a recipe can be computed: kernels take its numbers as they are, and would read what is not there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from headstart.base.errors import UnsupportedModel
from headstart.model.recipes.experts import MOST_GROUP_BEST, MOST_GROUPS, Experts
from headstart.model.recipes.mixers import DeltaRule, Recurrent, ShortConv
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe


def check_recipe(recipe: Recipe, model_type: str) -> None:
    """Refuse sizes of 0, windows of no token, norms without a spread, and factors that are no numbers.

    Raises:
        UnsupportedModel: there is one; the message names it.
    """
    for what in _wrong(recipe):
        raise UnsupportedModel(
            f"the config of this {model_type} describes no decoder: {what}",
            hint="compare config.json with the original's",
        )


def _wrong(recipe: Recipe) -> Iterator[str]:
    yield from _sizes(width=recipe.width, vocabulary=recipe.vocabulary, layers=len(recipe.layers))
    yield from _factors(
        embedding_factor=recipe.embedding_factor, logit_factor=recipe.logit_factor, logit_softcap=recipe.logit_softcap
    )
    yield from _norms(recipe.final_norm, recipe.embedding_norm)
    for index, layer in enumerate(recipe.layers):
        of = None if layer.attends is None else layer.attends.keys_of
        if of is not None and not (0 <= of < index and of in recipe.stored):
            yield f"layer {index} has the keys of layer {of}"
    for _, layer in recipe.kinds:
        yield from _layer(layer)


def _layer(layer: Layer) -> Iterator[str]:
    for mixer in layer.mixers:
        yield from _attention(mixer) if isinstance(mixer, Attention) else _recurrent(mixer)
    if layer.beside is not None and (layer.attends is None or layer.attention_out is not None):
        yield "a recurrence stands beside no attention, or there is a norm of what they add"
    if (mlp := layer.dense) is not None:
        yield from _sizes(mlp_width=mlp.width)
        yield from _factors(gate_factor=mlp.gate_factor, mlp_factor=mlp.factor)
    if layer.experts is not None:
        yield from _experts(layer.experts)
    elif mlp is None and layer.mixer is None:
        yield "a layer has neither a mixer nor an MLP"
    yield from _factors(residual_factor=layer.residual_factor)
    yield from _norms(layer.attention_in, layer.attention_out, layer.mlp_in, layer.mlp_out)
    if layer.input is not None:
        yield from _sizes(input_width=layer.input.width)
        yield from _norms(layer.input.norm)


def _attention(found: Attention) -> Iterator[str]:
    sizes = {"heads": found.heads, "kv_heads": found.kv_heads, "head_dim": found.dim}
    if found.window is not None:
        sizes["window"] = found.window
    wrong = list(_sizes(**sizes))
    yield from wrong
    if not wrong and found.heads % found.kv_heads:
        yield f"{found.heads} heads cannot share {found.kv_heads} heads of keys"
    if found.rope is not None and (not 0 < found.rope.rotary <= found.dim or found.rope.rotary % 2):
        yield f"{found.rope.rotary} numbers of a head of {found.dim} turn"
    yield from _factors(
        scaling=found.scaling, softcap=found.softcap, query_beta=found.query_beta, attention_factor=found.factor
    )
    yield from _sizes(query_origin=found.query_origin)
    yield from _norms(found.q_norm, found.k_norm, found.v_norm)


def _experts(found: Experts) -> Iterator[str]:
    router, shared = found.router, found.shared
    groups = {"groups": router.groups, "groups_kept": router.groups_kept, "group_best": router.group_best}
    wrong = list(_sizes(experts=found.count, chosen=router.chosen, expert_width=found.width, **groups))
    yield from wrong
    yield from _factors(
        least_sum=router.least_sum,
        router_factor=router.factor,
        limit=found.limit,
        alpha=found.alpha,
        experts_factor=found.factor,
    )
    yield from _norms(router.norm, found.input_norm, found.output_norm, found.shared_norm)
    if shared is not None and (shared.gated, shared.activation) != (found.gated, found.activation):
        yield "the shared expert is of another kind than the others"
    if wrong:
        return
    if found.count % router.groups or router.groups > MOST_GROUPS:
        yield f"{found.count} experts cannot be in {router.groups} groups"
        return
    each = found.count // router.groups
    if router.groups_kept > router.groups:
        yield f"{router.groups_kept} of {router.groups} groups of experts are kept"
    elif router.groups > 1 and router.group_best > min(each, MOST_GROUP_BEST):
        yield f"groups of {each} experts are chosen by the {router.group_best} best of each"
    elif router.chosen > each * router.groups_kept:
        yield f"{router.chosen} of {each * router.groups_kept} experts are chosen"


def _recurrent(found: Recurrent) -> Iterator[str]:
    sizes = {field.name: getattr(found, field.name) for field in fields(found) if field.type == "int"}
    wrong = list(_sizes(**sizes))
    yield from wrong
    if not wrong and found.taps < 2:
        yield "a convolution sums one input alone"
    if isinstance(found, ShortConv):
        return
    yield from _norms(found.norm)
    if isinstance(found, DeltaRule):
        yield from _factors(beta_factor=found.beta_factor)
    else:
        parts = zip(("z", "x", "B", "C", "dt"), found.factors, strict=True)
        yield from _factors(recurrence_factor=found.factor, **{f"factor_of_{part}": factor for part, factor in parts})
    shared = found.key_heads if isinstance(found, DeltaRule) else found.groups
    if not wrong and found.heads % shared:
        yield f"{found.heads} heads of a recurrence cannot share {shared}"


def _sizes(**sizes: object) -> Iterator[str]:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            yield f"{name} is {size!r:.40}"


def _factors(**factors: object) -> Iterator[str]:
    for name, factor in factors.items():
        if factor is None:
            continue
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not math.isfinite(factor):
            yield f"{name} is {factor!r:.40}"


def _norms(*norms: Norm | None) -> Iterator[str]:
    for norm in norms:
        if norm is not None and not (isinstance(norm.eps, (int, float)) and 0 <= norm.eps < math.inf):
            yield f"a norm's epsilon is {norm.eps!r:.40}"
