"""Rounding a model's matrices to codes in groups, for `quantize="int4"` and `quantize="int8-grouped"`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.model import native
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.decoders.linears import lies_by_inputs
from headstart.model.decoders.parts import part, plain, recipe_for
from headstart.model.grouped import GroupedWeights, StoredWeights
from headstart.model.recipes import Recipe
from headstart.model.recipes.latent import Latent
from headstart.model.threads import threads

GROUP = 32
"""Inputs that share a scale and a minimum. Other sizes were not compared."""

BITS_OF_A_WEIGHT = 5.0
"""Memory of a weight: a 4-bit code, and 16 bits each of a scale and a minimum for 32 of them."""

BITS_OF_THE_HEAD = 8.5
"""Of a weight of the output head: an 8-bit code, and a 16-bit scale for 32 of them."""


def bits_of(rounded: str | None, dtype: torch.dtype) -> float:
    """Of a weight, as kernels have it. rounded: see `ModelRunner`; None for floats of the dtype."""
    bits = {"int4": BITS_OF_A_WEIGHT, "int8-grouped": BITS_OF_THE_HEAD}.get(rounded or "")
    if bits is not None:
        return bits
    return 8 if rounded in ("int8", "auto") and native.kernels().supported(native.INT8) else torch.finfo(dtype).bits


_AT_ONCE = 1 << 15  # weights that are rounded at a time: so few that torch does not share them out to threads itself


def can_run(device: torch.device) -> bool:
    """Whether this build and processor have products of 4-bit codes."""
    return device.type == "cpu" and native.available() and bool(native.kernels().supported(native.GROUPED4))


KINDS = ("int4", "int8-grouped")
"""What `round_matrices` can round to."""


def round_matrices(model: Any, kind: str = "int4", *, when_read: bool = False) -> None:
    """Replace every linear layer of a model in place: 4-bit codes, and 8-bit codes for the output head and for what
    makes keys and values of latents; or 8-bit codes for all. Matrices of experts are rounded when they are read, so
    that no model of codes lies beside its floats; routers stay floats.

    when_read: round the others then too, for a decoder that reads each once, or not at all.

    Raises:
        InvalidOption: no forward here runs such a model on these codes.
    """
    why, recipe = "", None
    try:
        recipe = recipe_for(model)
    except UnsupportedModel as refused:
        why = f": {refused.message}"
    if recipe is None or not can_run(model.device):
        raise InvalidOption(
            f"quantize={kind!r} needs the row kernels, which do not run this {model.config.model_type} here{why}",
            hint="use quantize='int8', or leave it out",
        )
    bits, floats = (4 if kind == "int4" else 8), set[int]()
    if recipe.experts:
        from headstart.model.decoders.experts import choosing, round_experts  # most models have none

        floats = choosing(model, recipe)
        round_experts(model, recipe, bits, four_bits if bits == 4 else eight_bits)
    finer = [model.lm_head, *_finer(model, recipe)]
    for module in list(model.modules()):
        for name, child in module.named_children():
            if (isinstance(child, nn.Linear) or lies_by_inputs(child)) and id(child) not in floats:
                linear = plain(child)
                weight, bias = linear.weight.detach(), linear.bias
                eight = kind != "int4" or child in finer
                later = _when_read(weight, eight_bits if eight else four_bits, 8 if eight else 4)
                rounded = later if when_read else later.read()
                setattr(module, name, GroupedLinear(rounded, None if bias is None else bias.detach()))


def _when_read(weight: Tensor, to_codes: Callable[[Tensor], GroupedWeights], bits: int) -> StoredWeights:
    outputs, inputs = weight.shape
    return StoredWeights((outputs, inputs), bits, lambda rows: to_codes(weight[rows]))


def _finer(model: Any, recipe: Recipe) -> list[nn.Module]:
    """The layers that decoders take apart, transpose, and round once more."""
    layers = zip(part(model, recipe.stack), recipe.layers, strict=True)
    return [part(owner, layer.attends.kv_b) for owner, layer in layers if isinstance(layer.attends, Latent)]


def four_bits(weight: Tensor) -> GroupedWeights:
    """A matrix [outputs, inputs] as 4-bit codes 0 to 15 that span each group, or a little less if that is nearer; each
    group has a float16 scale and minimum (float32 where float16 has too few bits)."""
    return _in_rows(weight, 4)


def eight_bits(weight: Tensor) -> GroupedWeights:
    """A matrix [outputs, inputs] as 8-bit codes around 128, each group with a float16 scale."""
    return _in_rows(weight, 8)


def _in_rows(weight: Tensor, bits: int) -> GroupedWeights:
    if not can_run(torch.device("cpu")):  # there the function is empty, and would leave memory as it was found
        raise native.Unavailable("the row kernels of this processor have no codes in groups")
    round_groups, (outputs, inputs) = native.kernels().round_groups, weight.shape
    groups = -(-inputs // GROUP)
    codes = torch.empty(outputs, groups * GROUP, dtype=torch.uint8)
    scales, minimums = torch.empty(outputs, groups), torch.empty(outputs, groups)
    step = max(1, (_AT_ONCE - 1) // (groups * GROUP))

    def round_from(begin: int) -> None:
        rows = slice(begin, begin + step)
        wide = F.pad(weight[rows].float(), (0, groups * GROUP - inputs)).contiguous()
        at = [part[rows].data_ptr() for part in (codes, scales, minimums)]
        round_groups(bits, wide.data_ptr(), len(wide) * groups, *at)

    # Threads that wait for each other after every small operation would cost more than the work
    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(round_from, range(0, outputs, step)))
    return GroupedWeights(codes[:, :inputs].numpy(), bits, GROUP, scales.numpy(), minimums.numpy())
