"""First weights of an EAGLE-3 head: the target's own, noise, those of a head trained before, or a regression.

`forecast` lets a head say before any step what the target will read out one token later. Row t of a head reads three
of the target's states at t and the embedding of the token at t + 1, and should give the target's distribution after
that token. So the target's last state at t + 1, without the final norm's gain, is regressed on these over a few
thousand rows (ridge), and the head begins as that linear map: `fc` and the residual stream are its part for the states.
Its part for the embedding goes through the first layer's attention, as the nearest map of the rank that keys and values
have. For that a row must look at itself: queries and keys of one head in each group are the same projection of the
row's embedding, whose product with itself is much larger than with another token's (and an earlier row of the same
token has the same value). The MLP begins with nothing.

The start that copies the target's last layer accepts little at first: it reads the state at t alone, and so repeats the
distribution of the token that it has been given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.model.decoders.parts import gain_of
from headstart.model.heads.eagle_checkpoint import EAGLE3, EagleCheckpoint
from headstart.model.recipes import find_recipe
from headstart.train.head_layer import HeadShape
from headstart.train.hidden import States, TargetStates
from headstart.train.selector import FIRST_CODES
from headstart.train.unrolled_head import EagleHead, with_noise

BY_TOKEN = ("lm_head.weight", "candidate_selector.successor_codebook")
"""Tensors with a row for each token of the draft vocabulary."""


def build(shape: HeadShape, target: Any, kept: Tensor, *, init: str, seed: int) -> EagleHead:
    """A float32 head for this target; `kept` [draft vocabulary] are the target's ids of the tokens it may propose.

    With init "target" it begins as the target's last layer, which reads the highest of the three states and not yet
    the embedding, under the target's own final norm and output matrix, as far as shapes permit. Where there is text,
    `forecast` then puts a regression in place of that layer's attention and of `fc`.
    """
    head = with_noise(EagleHead, shape, seed)
    if shape.selector_rank:
        torch.nn.init.normal_(head.candidate_selector.predecessor_codebook, std=FIRST_CODES)
        torch.nn.init.zeros_(head.candidate_selector.successor_codebook)
    if init == "target":
        _inherit(head, target, kept)
    return head


@torch.no_grad()
def go_on(head: EagleHead, begun: EagleCheckpoint, kept: Tensor, layer_ids: tuple[int, ...]) -> None:
    """Take over the weights of a trained head, as far as both read the same layers and know the same tokens.

    Elsewhere the head keeps what it has: the target's output row of a token that is new to it; nothing of a layer.
    """
    own, given = head.state_dict(), begun.tensors
    for name, weight in own.items():
        source = given.get(name.removeprefix("midlayer."))
        if source is not None and name not in ("fc.weight", *BY_TOKEN):
            weight.copy_(source)
    width = head.shape.hidden
    known = {
        layer: given["fc.weight"][:, i * width : (i + 1) * width] for i, layer in enumerate(begun.config.layer_ids)
    }
    for i, layer in enumerate(layer_ids):
        block = own["fc.weight"][:, i * width : (i + 1) * width]
        block.copy_(known[layer]) if layer in known else block.zero_()
    rows = {token: row for row, token in enumerate(tokens_of(begun).tolist())}
    both = [(row, rows[token]) for row, token in enumerate(kept.tolist()) if token in rows]
    ours, theirs = torch.tensor(both, dtype=torch.long).view(-1, 2).unbind(1)
    for name in BY_TOKEN:
        if name in given and name in own:
            own[name][ours] = given[name][theirs].to(own[name])


def freeze(head: EagleHead, begun: EagleCheckpoint) -> None:
    """Leave everything that makes the first guess as it began: the masked rows and the selector alone learn.

    Raises:
        InvalidOption: the head has layers that `begun` lacks, which its first guess would pass through as well.
    """
    if head.shape.layers > begun.config.layers:
        raise InvalidOption(
            f"freeze_first keeps {begun.config.name}'s first guess, and layers={head.shape.layers} would change it",
            hint=f"leave layers out (that head has {begun.config.layers}), or freeze_first",
        )
    for part in (head.fc, head.norm, head.lm_head, *head.stack()):
        part.requires_grad_(False)


def tokens_of(begun: EagleCheckpoint) -> Tensor:
    """The target's ids of a head's tokens [draft vocabulary]."""
    return torch.arange(begun.config.vocab_size) if begun.token_ids is None else begun.token_ids


def shape_of(begun: EagleCheckpoint, shape: HeadShape) -> HeadShape:
    """`shape` with the sizes of a trained head.

    Raises:
        UnsupportedModel: it is of a kind that cannot be trained here; the message names it.
    """
    config = begun.config
    rope = dict(config.rope.rope_parameters or {})
    strange = {
        "is not an EAGLE-3 head": config.version != EAGLE3,
        "has norms before fc": config.fc_norm or config.norm_before_fc,
        "feeds back normed states": config.norm_output,
        "has a sliding window": config.window is not None,
        "has a width of its own": config.width != shape.hidden or config.target_width != shape.hidden,
        "scales its rotation": rope.get("rope_type", "default") != "default",
        "has a selector of another rank": config.selector_rank not in (0, shape.selector_rank or config.selector_rank),
        "has biases": any(name.endswith("bias") for name in begun.tensors),
        "reads another number of layers": len(config.layer_ids) != 3,
    }
    for what, found in strange.items():
        if found:
            raise UnsupportedModel(f"{config.name} {what}, and cannot be trained further", hint="leave begin_with out")
    if config.parallel and not shape.parallel:
        raise InvalidOption(
            f"{config.name} guesses several tokens in one forward", hint=f"add parallel={config.depth or 8}"
        )
    return replace(
        shape,
        intermediate=config.intermediate,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.dim,
        rope_theta=float(rope["rope_theta"]),
        eps=config.eps,
        norm_before_residual=config.norm_before_residual,
        layers=max(config.layers, shape.layers),
        selector_rank=config.selector_rank or shape.selector_rank,
        selector_top_k=shape.selector_top_k if shape.selector_rank else config.selector_top,
    )


def final_gain(target: Any) -> Tensor | None:
    """The gain of the target's final norm [d], which some families store as its difference from 1; None without."""
    recipe = find_recipe(target.config)
    if recipe is not None:
        return None if recipe.final_norm is None else gain_of(target, recipe.final_norm)
    return getattr(getattr(target.get_decoder(), "norm", None), "weight", None)


@torch.no_grad()
def _inherit(head: EagleHead, target: Any, kept: Tensor) -> None:
    hidden = head.shape.hidden
    output = target.get_output_embeddings()
    if output is not None:
        head.lm_head.weight.copy_(output.weight[kept.to(output.weight.device)])
    head.fc.weight.zero_()
    head.fc.weight[:, 2 * hidden :].copy_(torch.eye(hidden))
    gain = final_gain(target)
    if gain is not None and gain.shape == head.norm.weight.shape:
        head.norm.weight.copy_(gain)
    layers = getattr(target.get_decoder(), "layers", None)
    if not layers:
        return
    theirs = layers[-1].state_dict()
    for name, weight in head.midlayer.state_dict().items():
        source = theirs.get("input_layernorm.weight" if name == "hidden_norm.weight" else name)
        if source is None or name == "input_layernorm.weight":
            continue
        if source.shape == weight.shape:
            weight.copy_(source)
        elif source.shape[0] == weight.shape[0] and 2 * source.shape[1] == weight.shape[1]:
            weight[:, :hidden].zero_()
            weight[:, hidden:].copy_(source)


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
    states: TargetStates,
    windows: Tensor,
    embedded: Callable[[Tensor], Tensor],
    gain: Tensor,
    eps: float,
    features: Callable[[States], Tensor] = lambda read: read.aux,
) -> Forecast:
    """Regress on the first windows [n, T]. embedded: of token ids. gain: of the final norm [d]. features: what the head
    reads of the target [1, T, k]."""
    count = min(len(windows), -(-ROWS // windows.shape[1]))
    gain = torch.where(gain.abs() > eps, gain, torch.ones_like(gain)).float()
    gram = products = squares = common = torch.zeros(())
    width = rows = 0
    for window in windows[:count].long():
        ids = window[None].to(gain.device)
        read = states.of(ids)
        token = F.rms_norm(embedded(ids[:, 1:])[0].float(), (len(gain),), eps=eps)
        given = features(read)[0, :-1].float()
        x = torch.cat([given, token], dim=-1)
        gram, products = gram + x.mT @ x, products + x.mT @ (read.last[0, 1:].float() / gain)
        squares, common = squares + x.square().sum(0), common + token.sum(0)
        width, rows = given.shape[-1], rows + len(x)
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
