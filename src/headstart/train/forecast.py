"""A head's first weights by regression: before any step it forecasts what the target will read out one token later.

Row t of a head reads three of the target's states at t and the embedding of the token at t + 1, and should give the
target's distribution after that token. So the target's last state at t + 1, without the final norm's gain, is regressed
on these over a few thousand rows (ridge), and the head begins as that linear map: `fc` and the residual stream are its
part for the states. Its part for the embedding goes through the first layer's attention, as the nearest map of the
rank that keys and values have. For that a row must look at itself: queries and keys of one head in each group are the
same projection of the row's embedding, whose product with itself is much larger than with another token's (and an
earlier row of the same token has the same value). The MLP begins with nothing.

The start that copies the target's last layer accepts little at first: it reads the state at t alone, and so repeats the
distribution of the token that it has been given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.train.eagle_head import EagleHead
from headstart.train.hidden import TargetStates

ROWS = 24_000
"""Rows of text for the regression; fewer where there is less text."""
FEW_ROWS = 2_000
"""Rows that show how long a channel is."""
RIDGE = 0.1
"""Weight of the penalty, relative to the mean square of a column, for every row."""
SHARPNESS = 20.0
"""Logit of a row's attention to itself; that to another token's row is a small part of it."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The map, whose image is the target's last state over its gain.

    states: [3d, d]. embedding: [d, d], for embeddings of root mean square 1. common: [d], the direction of their mean.
    level: root mean square of what `states` makes.
    """

    states: Tensor
    embedding: Tensor
    common: Tensor
    level: float


@torch.no_grad()
def lengths(states: TargetStates, windows: Tensor) -> Tensor:
    """The root mean square of each channel that `fc` reads [3d], over a few windows [n, T]."""
    some = windows[: -(-FEW_ROWS // windows.shape[1])].long()
    squares = torch.stack([states.of(window[None]).aux[0].float().square().mean(0) for window in some])
    return squares.mean(0).sqrt().clamp_min(1e-3)


@torch.no_grad()
def forecast(
    states: TargetStates, windows: Tensor, embedded: Callable[[Tensor], Tensor], gain: Tensor, eps: float
) -> Forecast:
    """Regress on the first windows [n, T]. embedded: of token ids. gain: of the final norm [d]."""
    count = min(len(windows), -(-ROWS // windows.shape[1]))
    gain = torch.where(gain.abs() > eps, gain, torch.ones_like(gain)).float()
    gram = products = squares = common = torch.zeros(())
    width = rows = 0
    for window in windows[:count].long():
        ids = window[None].to(gain.device)
        read = states.of(ids)
        token = F.rms_norm(embedded(ids[:, 1:])[0].float(), (len(gain),), eps=eps)
        x = torch.cat([read.aux[0, :-1].float(), token], dim=-1)
        gram, products = gram + x.mT @ x, products + x.mT @ (read.last[0, 1:].float() / gain)
        squares, common = squares + x.square().sum(0), common + token.sum(0)
        width, rows = read.aux.shape[-1], rows + len(x)
    # Columns of outlying channels are thousands of times as long as others: each is penalised by its own length
    scale = (squares / rows).sqrt().clamp_min(eps)
    penalised = gram / scale / scale[:, None] + RIDGE * rows * torch.eye(len(scale), device=gain.device)
    found = torch.linalg.solve(penalised.double(), (products / scale[:, None]).double()).float() / scale[:, None]
    made = (found[:width] * (gram[:width, :width] @ found[:width])).sum() / rows / len(gain)
    return Forecast(
        found[:width], found[width:], common / common.norm().clamp_min(eps), float(made.clamp_min(eps).sqrt())
    )


@torch.no_grad()
def begin(head: EagleHead, found: Forecast, *, seed: int) -> None:
    """Let the head begin as the forecast; its final norm and its output matrix stay as they are."""
    shape, layer = head.shape, head.midlayer
    attention, size, group = layer.self_attn, shape.head_dim, shape.heads // shape.kv_heads
    head.fc.weight.copy_(found.states.mT)
    layer.input_layernorm.weight.fill_(1.0)
    layer.hidden_norm.weight.fill_(found.level if shape.norm_before_residual else 1.0)
    layer.mlp.down_proj.weight.zero_()
    attention.o_proj.weight.zero_()
    chance = torch.Generator().manual_seed(seed)
    left, strength, right = torch.linalg.svd(found.embedding)
    for number in range(shape.kv_heads):
        keys = slice(number * size, (number + 1) * size)
        queries = slice(number * group * size, (number * group + 1) * size)
        chosen = slice(number * size, min((number + 1) * size, len(strength)))
        share = strength[chosen].sqrt()
        for weight, rows in (
            (attention.q_proj.weight, queries),
            (attention.k_proj.weight, keys),
            (attention.v_proj.weight, keys),
        ):
            weight[rows] = 0
        same = _projection(size, found.common, chance)
        attention.q_proj.weight[queries, : shape.hidden] = same
        attention.k_proj.weight[keys, : shape.hidden] = same
        attention.v_proj.weight[keys.start : keys.start + len(share), : shape.hidden] = (left[:, chosen] * share).mT
        attention.o_proj.weight[:, queries.start : queries.start + len(share)] = right[chosen].mT * share


def _projection(size: int, common: Tensor, chance: torch.Generator) -> Tensor:
    """[size, d]: orthogonal directions that leave out what all embeddings have in common, so long that a row's logit
    of itself, which is divided by the square root of `size`, is about `SHARPNESS`."""
    width = len(common)
    rows = min(size, width - 1)
    drawn = torch.randn(rows, width, generator=chance).to(common.device)
    basis = torch.linalg.qr((drawn - (drawn @ common)[:, None] * common).mT)[0].mT
    found: Tensor = basis.new_zeros(size, width)
    found[:rows] = basis * (SHARPNESS * size**0.5 / rows) ** 0.5
    return found
