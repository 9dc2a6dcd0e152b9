"""A lean forward of a recipe in tensor operations: the weights of a transformers model, a third of its operations.

Small models are bound by the number of calls, not by arithmetic. Here q, k and v (and gate and up) are one matrix
each, rotation is three operations on q and k together, residuals are added inside the matrix kernel, and only
judged rows reach the final norm and the head. transformers' modules are the plain twin: the probe at load compares
the two on the model's own weights, and where they differ the modules run instead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import InvalidOption
from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders import parts, refuse_rounded
from headstart.model.decoders.attention import Scores, attend_packed
from headstart.model.decoders.grouped import fewest_bits
from headstart.model.decoders.latent import TensorLatent
from headstart.model.decoders.linears import PackedLinear, PlainLinear, float_layer, linear_of
from headstart.model.decoders.operations import activated, normed, rotate, signed
from headstart.model.decoders.parts import part
from headstart.model.packed import Forward, Packed
from headstart.model.planes import StateShape
from headstart.model.recipes.latent import Latent
from headstart.model.recipes.recipe import Attention, Layer, Norm, Recipe, Rope, TokenInputs

if TYPE_CHECKING:
    from headstart.model.decoders.experts import TensorExperts
    from headstart.model.decoders.mixers import IndexedWalk, TensorMixer
    from headstart.model.mapped import PackedFile
    from headstart.model.recipes.experts import Experts
    from headstart.model.recipes.mixers import Recurrent
    from headstart.model.walks import Walk


class LeanDecoder:
    """Takes the weights out of a transformers model (whose linear layers are gone afterwards) and runs them."""

    name = "lean"
    quantize: str | None = None
    width_invariant = False
    can_exit = True

    def __init__(self, model: Any, recipe: Recipe, length: int) -> None:
        linear = float_layer(model.dtype, model.device)
        self._recipe, self._dtype, self._device = recipe, model.dtype, model.device
        self.experts_touched = 0 if recipe.experts else None
        self.shapes: Mapping[int, LayerShape] = parts.shapes(recipe)
        self.states: Mapping[int, StateShape] = parts.states(recipe)
        self._embedding = part(model, recipe.embedding).weight.detach()
        self._places = None if recipe.places is None else part(model, recipe.places).weight[recipe.places_from :]
        self._factor = parts.embedding_factor(recipe, model.dtype)
        self._embedding_norm = TensorNorm(model, recipe.embedding_norm, model.dtype)
        owners = zip(part(model, recipe.stack), recipe.layers, strict=True)
        self._layers = [TensorLayer(owner, layer, i, linear, model.dtype) for i, (owner, layer) in enumerate(owners)]
        self._inputs = None if recipe.inputs is None else _Inputs(model, recipe.inputs, linear)
        self._norm = TensorNorm(model, recipe.final_norm, model.dtype)
        self._head = linear(parts.plain(part(model, recipe.head)))
        self._logit_factor, self._logit_softcap = recipe.logit_factor, recipe.logit_softcap
        self._turns: dict[Rope, tuple[Tensor, Tensor]] = {}
        for rope in {attention.rope for attention in recipe.attentions if attention.rope is not None}:
            tables = parts.angles(model, recipe, rope, length, model.device)
            self._turns[rope] = signed(*tables, model.dtype, model.device)

    @classmethod
    def build(
        cls,
        model: Any,
        shapes: Mapping[int, LayerShape],  # noqa: ARG003
        *,
        length: int,
        quantize: str | None,
        packed: PackedFile | None = None,  # noqa: ARG003
    ) -> Self | None:
        recipe = parts.find_recipe_for(model)
        if recipe is None or quantize == "int8" or fewest_bits(model) is not None:
            return None
        return cls(model, recipe, length)

    def new_cache(self, slots: int, capacity: int, dtype: torch.dtype | None = None) -> Slots:
        refuse_rounded(dtype, self.name)
        sizes = {"slots": slots, "capacity": capacity}
        return KVCache(self.shapes, **sizes, dtype=self._dtype, device=self._device, states=self.states)

    def run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        positions = packed.positions[0]
        x = F.embedding(packed.ids[0], self._embedding)
        if self._factor != 1.0:
            x = x * self._factor
        if self._places is not None:
            x = x + self._places[positions]
        x = self._embedding_norm(x)
        turns = {rope: (cos[positions], sin[positions]) for rope, (cos, sin) in self._turns.items()}
        inputs = None if self._inputs is None else self._inputs(packed.ids[0], x)
        states = packed.cache.states
        layers = len(self._layers[:layers])
        walks = [] if states is None else states.walks(packed, layers)
        indexed = _indexed(walks, self._device) if walks else []
        hidden: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers[:layers]):
            if index in taps:
                hidden[index] = x
            x = layer.run(x, turns, packed, own=None if inputs is None else inputs[:, index], walks=indexed)
        if states is not None:
            states.written(walks, layers)
        if self.experts_touched is not None:
            self.experts_touched = sum(layer.experts_touched for layer in self._layers[:layers])
        if layers in taps:
            hidden[layers] = self._norm(x)
        logits = self._head(self._norm(x[packed.judged]))
        if self._logit_factor != 1.0:
            logits = logits * self._logit_factor
        if self._logit_softcap is not None:
            logits = torch.tanh(logits / self._logit_softcap) * self._logit_softcap
        return Forward(logits, hidden)

    def first_layers(self, count: int, gain: Tensor, output: Tensor, quantize: str | None) -> LeanDecoder:
        if quantize == "int8":
            raise InvalidOption(
                "an output matrix in int8 needs the row kernels, which do not run this model here",
                hint="leave draft_quantize out; it then runs in the target's dtype",
            )
        made = copy.copy(self)
        made._layers = self._layers[:count]
        made._norm = self._norm.with_gain(gain.to(self._device, self._dtype))
        made._logit_factor, made._logit_softcap = 1.0, None
        made._head = float_layer(self._dtype, self._device)(linear_of(output.to(self._device, self._dtype)))
        return made

    def weights(self) -> Iterable[Tensor]:
        yield self._embedding
        yield from (*self._norm.weights(), *self._embedding_norm.weights(), *self._head.weights())
        if self._places is not None:
            yield self._places
        for turn in self._turns.values():
            yield from turn
        if self._inputs is not None:
            yield from self._inputs.weights()
        for layer in self._layers:
            yield from layer.weights()


def _indexed(walks: Sequence[Walk], device: torch.device) -> list[IndexedWalk]:
    from headstart.model.decoders.mixers import IndexedWalk  # here and below: most models have no recurrent layers

    return [IndexedWalk(walk, device) for walk in walks]


def _tensor_experts(
    owner: Any, experts: Experts, linear: type[PackedLinear] | type[PlainLinear], dtype: torch.dtype
) -> TensorExperts:
    from headstart.model.decoders.experts import TensorExperts

    input_norm, output_norm, shared_norm = (
        TensorNorm(owner, norm, dtype) for norm in (experts.input_norm, experts.output_norm, experts.shared_norm)
    )
    return TensorExperts(owner, experts, linear, (input_norm, output_norm, shared_norm))


def _tensor_mixer(owner: Any, mixer: Recurrent, linear: type[PackedLinear] | type[PlainLinear]) -> TensorMixer:
    from headstart.model.decoders.mixers import tensor_mixer

    return tensor_mixer(owner, mixer, linear)


class TensorNorm:
    """A norm of a recipe, or none."""

    def __init__(self, owner: Any, norm: Norm | None, dtype: torch.dtype, gain: Tensor | None = None) -> None:
        self._norm = norm
        self._gain, self._bias = None, None
        if norm is not None:
            wide = parts.gain_of(owner, norm) if gain is None else gain
            keeps = norm.wide_gain or norm.kind == "layer"
            self._gain = wide if keeps or wide is None else wide.to(dtype)
            self._bias = parts.bias_of(owner, norm)

    def __call__(self, x: Tensor) -> Tensor:
        norm = self._norm
        if norm is None:
            return x
        return normed(x, self._gain, self._bias, norm.eps, centred=norm.kind == "layer")

    def __bool__(self) -> bool:
        return self._norm is not None

    def with_gain(self, gain: Tensor) -> TensorNorm:
        """A norm without bias or centre, of the same eps, by another gain in the dtype of the model."""
        made = copy.copy(self)
        assert self._norm is not None, "a model that is left early ends in a norm"
        made._norm, made._gain, made._bias = Norm(None, self._norm.eps), gain, None
        return made

    def weights(self) -> Iterable[Tensor]:
        return [tensor for tensor in (self._gain, self._bias) if tensor is not None]


class _Inputs:
    """The layers' own inputs of each token."""

    def __init__(self, model: Any, inputs: TokenInputs, linear: type[PackedLinear] | type[PlainLinear]) -> None:
        self._inputs = inputs
        self._table = part(model, inputs.table).weight.detach()
        self._factor = parts.factor(inputs.factor, model.dtype, rounded=inputs.factor_rounded)
        self._projection = linear(part(model, inputs.projection))
        self._norm = TensorNorm(model, inputs.norm, model.dtype)
        parts.release_linears(model, [inputs.projection])

    def __call__(self, ids: Tensor, x: Tensor) -> Tensor:
        """Of tokens [M] that are embedded as x [M, d]; returns [M, layers, width]."""
        inputs = self._inputs
        projected = (self._projection(x) * inputs.projection_factor).view(len(x), -1, inputs.width)
        looked_up = (F.embedding(ids, self._table) * self._factor).view(projected.shape)
        return (self._norm(projected) + looked_up) * inputs.sum_factor

    def weights(self) -> Iterable[Tensor]:
        yield self._table
        yield from (*self._projection.weights(), *self._norm.weights())


class TensorLayer:
    """One layer of a recipe."""

    def __init__(
        self, owner: Any, layer: Layer, index: int, linear: type[PackedLinear] | type[PlainLinear], dtype: torch.dtype
    ) -> None:
        mlp = None if layer.experts else layer.dense
        self._layer, self._index = layer, index
        self._mixers = [
            TensorLatent(owner, mixer, index, linear)
            if isinstance(mixer, Latent)
            else TensorAttention(owner, mixer, index, linear, dtype)
            if isinstance(mixer, Attention)
            else _tensor_mixer(owner, mixer, linear)
            for mixer in layer.mixers
        ]
        self._outs = [linear(parts.plain(part(owner, mixer.out))) for mixer in layer.mixers]
        self._linears: dict[str, PackedLinear | PlainLinear] = {}
        if mlp is not None:
            self._linears["gate_up"] = linear(parts.gate_up(owner, mlp))
            self._linears["down"] = linear(parts.plain(part(owner, mlp.down)))
        names = ("attention_in", "attention_out", "mlp_in", "mlp_out")
        self._norms = {name: TensorNorm(owner, getattr(layer, name), dtype) for name in names}
        self._numbers = (
            None if mlp is None or mlp.numbers is None else parts.xielu_numbers(part(owner, mlp.numbers)).tolist()
        )
        if layer.input is not None:
            self._norms["input"] = TensorNorm(owner, layer.input.norm, dtype)
            self._linears["input_gate"] = linear(part(owner, layer.input.gate))
            self._linears["input_out"] = linear(part(owner, layer.input.out))
        self._factor = None if layer.factor is None else part(owner, layer.factor).detach().to(dtype)
        self._experts = None if layer.experts is None else _tensor_experts(owner, layer.experts, linear, dtype)
        parts.release(owner, layer)

    def run(
        self,
        x: Tensor,
        turns: Mapping[Rope, tuple[Tensor, Tensor]],
        packed: Packed,
        *,
        own: Tensor | None = None,
        z: Tensor | None = None,
        walks: Sequence[IndexedWalk] = (),
    ) -> Tensor:
        """x [M, d]: the stream; turns: by rotation, cos and sin of each row [M, 1, rotary]; returns [M, d].

        own: the layer's own input of each row [M, width], if it has one. z: what attention takes instead of the normed
        stream. walks: of a recurrent layer's states.
        """
        layer, norms, linears = self._layer, self._norms, self._linears
        early = norms["mlp_in"](x) if layer.parallel else None
        if self._mixers and z is None:
            z = norms["attention_in"](x)
        for mixer, out, of in zip(self._mixers, self._outs, layer.mixers, strict=True):
            assert z is not None
            if isinstance(mixer, TensorAttention | TensorLatent):
                attended = mixer(z, turns, packed)
            else:
                assert packed.cache.states is not None, "a recurrent layer runs on a cache with states"
                attended = mixer(z, packed.cache.states, self._index, walks)
            x = self._add(out, attended, x, norms["attention_out"], of.factor)
        if self._experts is not None:
            assert layer.experts is not None
            added = self._experts(x, norms["mlp_in"](x) if early is None else early)
            x = self._added(norms["mlp_out"](added), x, layer.experts.factor)
        elif (mlp := layer.dense) is not None:
            y = linears["gate_up"](norms["mlp_in"](x) if early is None else early)
            if mlp.gated:
                gate, up = y.chunk(2, -1)
                gate = gate if mlp.gate_factor == 1.0 else gate * mlp.gate_factor
                y = activated(gate, mlp.activation, self._numbers) * up
            else:
                y = activated(y, mlp.activation, self._numbers)
            x = self._add(linears["down"], y, x, norms["mlp_out"], mlp.factor)
        if own is not None:
            gated = activated(linears["input_gate"](x), "gelu_tanh") * own
            x = x + norms["input"](linears["input_out"](gated))
        return x if self._factor is None else x * self._factor

    def _add(self, linear: PackedLinear | PlainLinear, y: Tensor, x: Tensor, norm: TensorNorm, factor: float) -> Tensor:
        """x, and what a part of the layer adds to it. factor: its own, beside the layer's."""
        if not norm and factor * self._layer.residual_factor == 1.0:
            return linear.add(y, x)
        return self._added(norm(linear(y)), x, factor)

    def _added(self, added: Tensor, x: Tensor, factor: float) -> Tensor:
        factor *= self._layer.residual_factor
        return x + added if factor == 1.0 else x + added * factor

    @property
    def experts_touched(self) -> int:
        """How many of its experts the last rows chose together."""
        return 0 if self._experts is None else self._experts.touched

    def weights(self) -> Iterable[Tensor]:
        for mixer in self._mixers:
            yield from mixer.weights()
        for linear in (*self._outs, *self._linears.values()):
            yield from linear.weights()
        for norm in self._norms.values():
            yield from norm.weights()
        if self._experts is not None:
            yield from self._experts.weights()
        if self._factor is not None:
            yield self._factor


class TensorAttention:
    """Attention of a recipe: from normed rows to what goes into its output layer."""

    def __init__(
        self,
        owner: Any,
        attention: Attention,
        index: int,
        linear: type[PackedLinear] | type[PlainLinear],
        dtype: torch.dtype,
    ) -> None:
        self._attention, self._index = attention, index
        sinks = None if attention.sinks is None else part(owner, attention.sinks).detach()
        self._scores = Scores(attention.scaling, attention.window, attention.softcap, sinks)
        self._qkv = linear(parts.queries_keys_values(owner, attention))
        self._norms: dict[str, TensorNorm] = {}
        for name in ("q_norm", "k_norm", "v_norm"):
            norm = getattr(attention, name)
            gain = None if norm is None else parts.head_gain(owner, norm, attention)
            self._norms[name] = TensorNorm(owner, norm, dtype, gain)

    def __call__(self, z: Tensor, turns: Mapping[Rope, tuple[Tensor, Tensor]], packed: Packed) -> Tensor:
        """z [M, d]; returns [M, heads * dim]."""
        attention, rows = self._attention, len(z)
        heads, kv_heads, dim = attention.heads, attention.kv_heads, attention.dim
        stores = attention.keys_of is None
        y, gate = self._qkv(z), None
        if attention.gated:
            y, gate = y[:, : -heads * dim], y[:, -heads * dim :]
        q, k, v = torch.tensor_split(y, ((heads * dim, (heads + kv_heads) * dim)), -1)
        if attention.value_is_key:
            v = k
        if attention.norm_over == "all":
            q, k = self._norms["q_norm"](q), self._norms["k_norm"](k)
        q, k, v = (part.reshape(rows, -1, dim) for part in (q, k, v))
        by_head = attention.norm_over != "all"
        if by_head and not attention.norm_after_rope:
            q, k = self._norms["q_norm"](q), self._norms["k_norm"](k)
        if attention.rope is not None:
            turned = self._turn(torch.cat((q, k), 1), *turns[attention.rope])
            q, k = turned[:, :heads], turned[:, heads:]
        if by_head and attention.norm_after_rope:
            q, k = self._norms["q_norm"](q), self._norms["k_norm"](k)
        if attention.query_beta:
            factors = 1 + attention.query_beta * torch.log1p(torch.floor(packed.positions[0] / attention.query_origin))
            q = q * factors.to(q.dtype)[:, None, None]
        q, k, v = (part.transpose(0, 1)[None] for part in (q, k, self._norms["v_norm"](v)))
        layer = self._index if attention.keys_of is None else attention.keys_of
        found = attend_packed(packed, layer, q, (k, v) if stores else None, self._scores).reshape(rows, -1)
        return found if gate is None else found * torch.sigmoid(gate)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [M, heads, dim], of which the first numbers turn."""
        rotary = cos.shape[-1]
        if rotary == x.shape[-1]:
            return rotate(x, cos, sin)
        return torch.cat((rotate(x[..., :rotary], cos, sin), x[..., rotary:]), -1)

    def weights(self) -> Iterable[Tensor]:
        yield from self._qkv.weights()
        for norm in self._norms.values():
            yield from norm.weights()
        if self._scores.sinks is not None:
            yield self._scores.sinks
