"""Rounding weights to codes in groups: the kernels against the same in plain torch operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.model import native
from headstart.model.int4 import GROUP, eight_bits, four_bits

pytestmark = pytest.mark.skipif(
    not (native.available() and native.kernels().supported(native.GROUPED4)), reason="no grouped products here"
)


def sixteen(numbers: Tensor) -> Tensor:
    short = numbers.half().float()
    return torch.where((short - numbers).abs() <= numbers.abs() * 2.0**-10, short, numbers)


def four_bits_of(groups: Tensor, spread: float) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and minimums of groups [..., GROUP] whose codes span so much of each."""
    low, high = groups.amin(-1), groups.amax(-1)
    middle, half = (low + high) / 2, (high - low) / 2
    scale, minimum = sixteen(half * (spread * 2 / 15)), sixteen(half * spread - middle)
    safe = torch.where(scale > 0, scale, 1)
    return ((groups + minimum[..., None]) / safe[..., None]).round().clamp(0, 15), scale, minimum


def eight_bits_of(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale = sixteen(groups.abs().amax(-1) / 127)
    safe = torch.where(scale > 0, scale, 1)
    return (groups / safe[..., None]).round().clamp(-127, 127) + 128, scale, scale * 128


def weights(rows: int, inputs: int, spread: float, seed: int = 0) -> Tensor:
    made = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)) * spread
    made[0], made[1, :GROUP] = 0.0, 0.25  # groups without a range
    return made


@pytest.mark.parametrize("spread", [0.02, 1e-7, 1e5])
def test_four_bits_take_the_nearest_of_the_ranges(spread: float) -> None:
    weight = weights(96, 4 * GROUP, spread)
    made, groups = four_bits(weight), weight.reshape(96, 4, GROUP)
    codes = torch.from_numpy(made.codes).reshape(groups.shape).float()
    scales, minimums = torch.from_numpy(made.scales), torch.from_numpy(made.minimums)

    def error(codes: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
        return (codes * scale[..., None] - minimum[..., None] - groups).double().square().sum(-1)

    ranges = [four_bits_of(groups, spread) for spread in (1.0, 0.94, 0.88, 0.82)]
    found = torch.zeros(96, 4, dtype=torch.bool)
    for their_codes, scale, minimum in ranges:
        same = (scales == scale) & (minimums == minimum)
        assert torch.equal(codes[same], their_codes[same])
        found |= same
    assert bool(found.all())
    least = torch.stack([error(*each) for each in ranges]).amin(0)
    assert bool((error(codes, scales, minimums) <= least * (1 + 1e-4) + 1e-30).all())  # but for ties


@pytest.mark.parametrize("spread", [0.02, 1e-7, 1e5])
def test_eight_bits_are_those_of_torch(spread: float) -> None:
    weight = weights(64, 3 * GROUP, spread)
    made, (codes, scales, minimums) = eight_bits(weight), eight_bits_of(weight.reshape(64, 3, GROUP))
    assert torch.equal(torch.from_numpy(made.codes).reshape(codes.shape).float(), codes)
    assert torch.equal(torch.from_numpy(made.scales), scales)
    assert torch.equal(torch.from_numpy(made.minimums), minimums)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("wrong", [[torch.nan], [torch.inf], [-torch.inf], [torch.inf, torch.nan]])
def test_a_group_with_a_number_that_is_none_shows_it(bits: int, wrong: list[float]) -> None:
    weight = weights(4, 2 * GROUP, 0.02)
    weight[2, GROUP + 3 : GROUP + 3 + len(wrong)] = torch.tensor(wrong)
    made = (four_bits if bits == 4 else eight_bits)(weight)
    assert not torch.isfinite(torch.from_numpy(made.scales))[2, 1]
    assert int((~torch.isfinite(torch.from_numpy(made.scales))).sum()) == 1


@pytest.mark.parametrize("bits", [4, 8])
def test_inputs_beyond_whole_groups_change_nothing(bits: int) -> None:
    rounded, weight = four_bits if bits == 4 else eight_bits, weights(7, 2 * GROUP, 0.02)
    whole, cut = rounded(weight), rounded(weight[:, : GROUP + 16].to(torch.bfloat16))
    assert cut.codes.shape == (7, GROUP + 16)
    assert cut.scales.shape == whole.scales.shape
    same = rounded(weight.to(torch.bfloat16))
    assert (cut.codes[:, :GROUP] == same.codes[:, :GROUP]).all()
