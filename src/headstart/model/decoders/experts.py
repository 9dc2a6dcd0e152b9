"""Mixtures of experts: their weights as decoders want them, and their forward in tensor operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.decoders import parts
from headstart.model.decoders.grouped import GroupedExperts
from headstart.model.decoders.linears import linear_of
from headstart.model.decoders.operations import activated
from headstart.model.decoders.parts import check_shape, part
from headstart.model.grouped import GroupedWeights, Rows, StoredWeights
from headstart.model.recipes.experts import Experts, Router

if TYPE_CHECKING:
    from headstart.model.decoders.lean import TensorNorm
    from headstart.model.decoders.linears import PackedLinear, PlainLinear
    from headstart.model.recipes.recipe import Recipe

    Linear = PackedLinear | PlainLinear


def check_experts(owner: Any, experts: Experts) -> None:
    """Raise `UnsupportedModel` where parameters of a mixture have other shapes than its recipe says."""
    router, count, width = experts.router, experts.count, experts.width
    inputs = part(owner, router.weight).shape[-1]
    outputs = width * (2 if experts.gated else 1)
    each = outputs // len(experts.gate_up)
    shapes: dict[str | None, tuple[int, ...]] = {
        **{name: _turned(experts, count, each, inputs) for name in experts.gate_up},
        experts.down: _turned(experts, count, inputs, width),
        experts.gate_up_bias: (count, outputs),
        experts.down_bias: (count, inputs),
        router.weight: (count, inputs),
        router.bias: (count,),
        router.gain: (inputs,),
        router.expert_factors: (count,),
        experts.shared_gate: (1, inputs),
    }
    for name, wanted in shapes.items():
        if name is not None:
            held = part(owner, name)
            check_shape(name, _turned(experts, *held.shape) if isinstance(held, GroupedExperts) else held.shape, wanted)
    if router.choice_bias is not None:
        check_shape(router.choice_bias, (part(owner, router.choice_bias).numel(),), (count,))


def _turned(experts: Experts, count: int, outputs: int, inputs: int) -> tuple[int, int, int]:
    return (count, inputs, outputs) if experts.transposed else (count, outputs, inputs)


def gate_up_of(owner: Any, experts: Experts) -> Iterator[Any]:
    """For each expert in turn, one layer that computes gate and up, or `up` alone."""
    held = [part(owner, name) for name in experts.gate_up]
    bias = None if experts.gate_up_bias is None else part(owner, experts.gate_up_bias).detach()
    for number in range(experts.count):
        own = None if bias is None else _untwined(bias[number], experts)
        yield parts.side_by_side([_linear(each, number, experts, own) for each in held])


def down_of(owner: Any, experts: Experts) -> Iterator[Any]:
    """For each expert in turn, its second layer."""
    held = part(owner, experts.down)
    bias = None if experts.down_bias is None else part(owner, experts.down_bias).detach()
    plain = replace(experts, interleaved=False)
    for number in range(experts.count):
        yield _linear(held, number, plain, None if bias is None else bias[number])


def _linear(held: Any, number: int, experts: Experts, bias: Tensor | None) -> Any:
    if isinstance(held, GroupedExperts):
        return held.linear(number, bias)
    return linear_of(_matrix(held, number, experts), bias)


def _matrix(held: Any, number: int, experts: Experts) -> Tensor:
    """Of one expert [outputs, inputs], all of the gate first."""
    matrix: Tensor = held[number].detach()
    return _untwined(matrix.T if experts.transposed else matrix, experts)


def _untwined(outputs: Tensor, experts: Experts) -> Tensor:
    return torch.cat((outputs[::2], outputs[1::2])) if experts.interleaved else outputs


def choosing(model: Any, recipe: Recipe) -> set[int]:
    """The modules of routers, by `id`. They stay as they are: a choice must not hang on how a matrix is rounded, and
    transformers' classes read their weights."""
    owners = zip(part(model, recipe.stack), recipe.layers, strict=True)
    return {id(part(owner, name)) for owner, layer in owners if layer.experts for name in layer.experts.floats}


def round_experts(model: Any, recipe: Recipe, bits: int, to_codes: Callable[[Tensor], GroupedWeights]) -> None:
    """Replace the matrices of all experts by codes of so many bits, which are made by `to_codes` each time that they
    are read."""
    model.config._experts_implementation = "eager"  # the others of transformers take tensors alone
    for owner, layer in zip(part(model, recipe.stack), recipe.layers, strict=True):
        if (experts := layer.experts) is None:
            continue
        for name in (*experts.gate_up, experts.down):
            path, _, last = name.rpartition(".")
            holder, held = part(owner, path), part(owner, name)
            of = experts if name in experts.gate_up else replace(experts, interleaved=False)

            def read(rows: Rows, number: int, held: Any = held, of: Experts = of) -> GroupedWeights:
                return to_codes(_matrix(held, number, of)[rows])

            outputs, inputs = held.shape[-2:][:: -1 if of.transposed else 1]
            codes = [
                StoredWeights((outputs, inputs), bits, partial(read, number=number)) for number in range(experts.count)
            ]
            delattr(holder, last)
            made = GroupedExperts(codes, held.dtype, transposed=of.transposed, interleaved=of.interleaved)
            setattr(holder, last, made)


def router_of(owner: Any, experts: Experts) -> nn.Linear:
    """A logit for each expert, and behind them one for the weight of the shared one, if that has one."""
    router = experts.router
    weight = part(owner, router.weight).detach()
    bias = None if router.bias is None else part(owner, router.bias).detach()
    if experts.shared_gate is not None:
        weight = torch.cat((weight, part(owner, experts.shared_gate).detach().to(weight.dtype)))
        bias = None if bias is None else torch.cat((bias, bias.new_zeros(1)))
    return linear_of(weight, bias)


def router_gain(owner: Any, router: Router) -> Tensor | None:
    """What the normed stream is multiplied by for the router [d], in float32; None for 1."""
    if router.gain is None:
        return None
    gain: Tensor = part(owner, router.gain).detach().float()
    made: Tensor = gain * gain.numel() ** -0.5
    return made


def chosen_by(logits: Tensor, router: Router, choice_bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of logits [M, experts] the indices that are chosen [M, chosen], rising, and their weights in float32."""
    wide = logits.float()
    if router.score == "softmax":
        scores = torch.softmax(wide, -1)
    else:
        scores = torch.sigmoid(wide) if router.score == "sigmoid" else wide
    choice = scores if choice_bias is None else scores + choice_bias
    if router.groups > 1:
        grouped = choice.view(len(choice), router.groups, -1)
        best = grouped.topk(router.group_best, -1).values.sum(-1)
        kept = _largest(best, router.groups_kept)
        out = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, value=False)
        choice = grouped.masked_fill(out[..., None], float("-inf")).flatten(1)
    ids = _largest(choice, router.chosen).sort(-1).values
    weights = scores.gather(1, ids)
    if router.score == "chosen":
        weights = torch.softmax(weights, -1)
    elif router.normalised:
        weights = weights / (weights.sum(-1, keepdim=True) + router.least_sum)
    return ids, weights * router.factor


def _largest(numbers: Tensor, count: int) -> Tensor:
    """Where the largest ones of each row are, of equal ones the first."""
    return torch.sort(numbers, dim=-1, descending=True, stable=True).indices[:, :count]


class TensorExperts:
    """A mixture of experts of a recipe: from the stream, and its rows normed, to what is added."""

    def __init__(
        self, owner: Any, experts: Experts, linear: type[Linear], norms: tuple[TensorNorm, TensorNorm, TensorNorm]
    ) -> None:
        """norms: of what goes in, of what comes out, and of what the shared one adds."""
        self._experts, self._norms = experts, norms
        router = experts.router
        made = router_of(owner, experts)
        self._router = made.weight.detach(), None if made.bias is None else made.bias.detach()
        bias = None if router.choice_bias is None else part(owner, router.choice_bias).detach().float().reshape(-1)
        factors = None if router.expert_factors is None else part(owner, router.expert_factors).detach()
        self._choice_bias, self._factors, self._gain = bias, factors, router_gain(owner, router)
        self._gate_up = [linear(each) for each in gate_up_of(owner, experts)]
        self._down = [linear(each) for each in down_of(owner, experts)]
        if experts.shared is not None:
            self._gate_up.append(linear(parts.gate_up(owner, experts.shared)))
            self._down.append(linear(parts.plain(part(owner, experts.shared.down))))
        self.touched = 0
        """How many experts the last rows chose together."""

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        """x: the stream [M, d]; z: its rows normed; returns what is added to the stream [M, d]."""
        experts, (before, after, of_shared) = self._experts, self._norms
        own = before(x) if before else z
        logits = self._logits(x, own)
        ids, weights = chosen_by(logits[:, : experts.count], experts.router, self._choice_bias)
        if self._factors is not None:
            weights = weights * self._factors[ids]
        if not experts.router.wide:
            weights = weights.to(z.dtype)
        total = torch.zeros_like(z)
        touched: list[int] = torch.unique(ids).tolist()
        for number in touched:
            rows, places = torch.where(ids == number)
            made = self._fed(number, own[rows]) * weights[rows, places, None]
            total.index_add_(0, rows, made.to(z.dtype))
        self.touched = len(touched)
        total = after(total)
        if experts.shared is None:
            return total
        shared = of_shared(self._fed(experts.count, z))
        if experts.shared_gate is not None:
            shared = torch.sigmoid(logits[:, -1:]) * shared
        return total + shared

    def _logits(self, x: Tensor, own: Tensor) -> Tensor:
        router = self._experts.router
        if router.norm is not None:
            wide = x.float()
            wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + router.norm.eps)
            own = (wide if self._gain is None else wide * self._gain).to(x.dtype)
        weight, bias = self._router
        if not router.wide:
            return F.linear(own, weight, bias)
        return F.linear(own.float(), weight.float(), None if bias is None else bias.float())

    def _fed(self, number: int, rows: Tensor) -> Tensor:
        experts = self._experts
        y = self._gate_up[number](rows)
        if not experts.gated:
            y = activated(y, experts.activation)
        else:
            gate, up = y.chunk(2, -1)
            if experts.limit is None:
                y = activated(gate, experts.activation) * up
            else:
                gate, up = gate.clamp(max=experts.limit), up.clamp(-experts.limit, experts.limit) + 1
                y = gate * torch.sigmoid(gate * experts.alpha) * up
        fed: Tensor = self._down[number](y)
        return fed

    def weights(self) -> Iterable[Tensor]:
        """All tensors that it holds."""
        for linear in (*self._gate_up, *self._down):
            yield from linear.weights()
        yield from (each for each in (*self._router, self._choice_bias, self._factors, self._gain) if each is not None)
        for norm in self._norms:
            yield from norm.weights()
