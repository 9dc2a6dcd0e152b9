"""Rounding a model's matrices to codes in groups, for `quantize="int4"` and `quantize="int8-grouped"`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.errors import InvalidOption
from headstart.model import native
from headstart.model.decoders.grouped import GroupedLinear
from headstart.model.decoders.llama import is_llama_shaped
from headstart.model.grouped import GroupedWeights
from headstart.model.threads import threads

GROUP = 32
"""Inputs that share a scale and a minimum. Other sizes were not compared."""

BITS_OF_A_WEIGHT = 5.0
"""Memory of a weight: a 4-bit code, and 16 bits each of a scale and a minimum for 32 of them."""

BITS_OF_THE_HEAD = 8.5
"""Of a weight of the output head: an 8-bit code, and a 16-bit scale for 32 of them."""

_SPREADS = (1.0, 0.94, 0.88, 0.82)  # of a group's range that the codes may span: the best by squared error is taken
_AT_ONCE = 1 << 15  # weights that are rounded at a time: so few that torch does not share them out to threads itself


_Rounding = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""From groups of weights [outputs, groups, GROUP] to their codes, scales and minimums."""


def can_run(device: torch.device) -> bool:
    """Whether this build and processor have products of 4-bit codes."""
    return device.type == "cpu" and native.available() and bool(native.kernels().supported(native.GROUPED4))


KINDS = ("int4", "int8-grouped")
"""What `round_matrices` can round to."""


def round_matrices(model: Any, kind: str = "int4") -> None:
    """Replace every linear layer of a Llama-shaped model in place: 4-bit codes, and 8-bit codes for the output head; or
    8-bit codes for all.

    Raises:
        InvalidOption: no forward here runs such a model on these codes.
    """
    if not is_llama_shaped(model) or not can_run(model.device):
        raise InvalidOption(
            f"quantize={kind!r} needs the row kernels, which do not run this {model.config.model_type} here",
            hint="use quantize='int8', or leave it out",
        )
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                weight = child.weight.detach()
                eight = kind != "int4" or child is model.lm_head
                rounded = eight_bits(weight) if eight else four_bits(weight)
                setattr(module, name, GroupedLinear(rounded, None if child.bias is None else child.bias.detach()))


def four_bits(weight: Tensor) -> GroupedWeights:
    """A matrix [outputs, inputs] as 4-bit codes, each group with a float16 scale and minimum."""
    return _in_rows(weight, 4, _asymmetric)


def eight_bits(weight: Tensor) -> GroupedWeights:
    """A matrix [outputs, inputs] as 8-bit codes around 128, each group with a float16 scale."""
    return _in_rows(weight, 8, _symmetric)


def _in_rows(weight: Tensor, bits: int, rounded: _Rounding) -> GroupedWeights:
    outputs, inputs = weight.shape
    groups = -(-inputs // GROUP)
    codes = torch.empty(outputs, groups * GROUP, dtype=torch.uint8)
    scales, minimums = torch.empty(outputs, groups), torch.empty(outputs, groups)
    step = max(1, (_AT_ONCE - 1) // (groups * GROUP))

    def round_from(begin: int) -> None:
        rows = slice(begin, begin + step)
        wide = F.pad(weight[rows].float(), (0, groups * GROUP - inputs)).reshape(-1, groups, GROUP)
        whole, scales[rows], minimums[rows] = rounded(wide)
        codes[rows] = whole.nan_to_num().to(torch.uint8).flatten(1)

    # Threads that wait for each other after every small operation would cost more than the work
    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(round_from, range(0, outputs, step)))
    return GroupedWeights(codes[:, :inputs].numpy(), bits, GROUP, scales.numpy(), minimums.numpy())


def _asymmetric(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes 0 to 15 of [outputs, groups, GROUP] that span each group, or a little less if that is nearer; their scales
    and minimums."""
    low, high = groups.amin(-1), groups.amax(-1)
    middle, half = (low + high) / 2, (high - low) / 2
    least = torch.full_like(low, torch.nan)
    codes, scales, minimums = torch.zeros_like(groups), torch.zeros_like(low), torch.zeros_like(low)
    for spread in _SPREADS:
        scale, minimum = _sixteen(half * (spread * 2 / 15)), _sixteen(half * spread - middle)
        safe = torch.where(scale > 0, scale, 1)
        found = ((groups + minimum[..., None]) / safe[..., None]).round_().clamp_(0, 15)
        error = (found * scale[..., None] - minimum[..., None]).sub_(groups).square_().sum(-1)
        nearer = ~(error >= least)  # so the first is taken, and NaN stays in a group
        least = torch.where(nearer, error, least)
        codes = torch.where(nearer[..., None], found, codes)
        scales, minimums = torch.where(nearer, scale, scales), torch.where(nearer, minimum, minimums)
    return codes, scales, minimums


def _symmetric(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes 1 to 255 of [outputs, groups, GROUP] with 128 for zero; their scales and minimums."""
    scale = _sixteen(groups.abs().amax(-1) / 127)
    safe = torch.where(scale > 0, scale, 1)
    return (groups / safe[..., None]).round_().clamp_(-127, 127).add_(128), scale, scale * 128


def _sixteen(numbers: Tensor) -> Tensor:
    """Rounded to float16, but for numbers that it holds with less than ten bits."""
    short = numbers.half().float()
    return torch.where((short - numbers).abs() <= numbers.abs() * 2.0**-10, short, numbers)
