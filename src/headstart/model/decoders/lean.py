"""A lean forward for Llama-shaped decoders: the same weights, a third of the operations.

Small models are bound by the number of calls, not by arithmetic. Here q, k and v (and gate and up) are one matrix
each, rotation is three operations on q and k together, residuals are added inside the matrix kernel, and only
judged rows reach the final norm and the head. transformers' modules are the plain twin: the probe at load compares
the two on the model's own weights, and where they differ the modules run instead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import InvalidOption
from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders.attention import Scores, attend_packed
from headstart.model.decoders.grouped import fewest_bits
from headstart.model.decoders.linears import PackedLinear, PlainLinear, float_layer, joined, linear_of
from headstart.model.decoders.llama import is_llama_shaped, release, rms, rotate, rotation, signed, window_of
from headstart.model.packed import Forward, Packed


class LeanDecoder:
    """Takes the weights out of a transformers model (whose linear layers are gone afterwards) and runs them."""

    name = "lean"
    quantize: str | None = None
    width_invariant = False
    can_exit = True

    def __init__(self, model: Any, shapes: Mapping[int, LayerShape], length: int) -> None:
        base = model.model
        linear = float_layer(model.dtype, model.device)
        self._shapes, self._dtype, self._device = shapes, model.dtype, model.device
        self._embedding = base.embed_tokens.weight.detach()
        self._layers = [_Layer(layer, index, model.config, linear) for index, layer in enumerate(base.layers)]
        self._norm, self._eps = base.norm.weight.detach(), float(base.norm.variance_epsilon)
        self._head = linear(model.lm_head)
        tables = rotation(base.rotary_emb, length, model.device)
        self._cos, self._sin = signed(*tables, model.dtype, model.device)

    @classmethod
    def build(cls, model: Any, shapes: Mapping[int, LayerShape], *, length: int, quantize: str | None) -> Self | None:
        if not is_llama_shaped(model) or quantize == "int8" or fewest_bits(model) is not None:
            return None
        return cls(model, shapes, length)

    def new_cache(self, slots: int, capacity: int) -> Slots:
        return KVCache(self._shapes, slots=slots, capacity=capacity, dtype=self._dtype, device=self._device)

    def run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        positions = packed.positions[0]
        x = F.embedding(packed.ids[0], self._embedding)
        cos, sin = self._cos[positions], self._sin[positions]
        hidden: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers[:layers]):
            if index in taps:
                hidden[index] = x
            x = layer.run(x, cos, sin, packed)
        last = len(self._layers) if layers is None else layers
        if last in taps:
            hidden[last] = rms(x, self._norm, self._eps)
        judged = rms(x[packed.judged], self._norm, self._eps)
        return Forward(self._head(judged), hidden)

    def first_layers(self, count: int, gain: Tensor, output: Tensor, quantize: str | None) -> LeanDecoder:
        if quantize == "int8":
            raise InvalidOption(
                "an output matrix in int8 needs the row kernels, which do not run this model here",
                hint="leave draft_quantize out; it then runs in the target's dtype",
            )
        made = copy.copy(self)
        made._layers = self._layers[:count]
        made._norm = gain.to(self._device, self._dtype)
        made._head = float_layer(self._dtype, self._device)(linear_of(output.to(self._device, self._dtype)))
        return made

    def weights(self) -> Iterable[Tensor]:
        yield from (self._embedding, self._norm, self._cos, self._sin, *self._head.weights())
        for layer in self._layers:
            yield from layer.weights()


class _Layer:
    """One decoder layer."""

    def __init__(self, layer: Any, index: int, config: Any, linear: type[PackedLinear] | type[PlainLinear]) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index = index
        self._dim = int(attention.head_dim)
        self._heads = attention.q_proj.out_features // self._dim
        self._kv_heads = attention.k_proj.out_features // self._dim
        self._scores = Scores(float(attention.scaling), window_of(config, index))
        self._qkv = linear(joined([attention.q_proj, attention.k_proj, attention.v_proj]))
        self._out = linear(attention.o_proj)
        self._gate_up = linear(joined([mlp.gate_proj, mlp.up_proj]))
        self._down = linear(mlp.down_proj)
        self._before = layer.input_layernorm.weight.detach()
        self._after = layer.post_attention_layernorm.weight.detach()
        self._eps = float(layer.input_layernorm.variance_epsilon)
        # Qwen3 normalises each head's query and key; one gain for each of the joined heads
        self._head_gain: Tensor | None = None
        if hasattr(attention, "q_norm"):
            gains = [attention.q_norm.weight] * self._heads + [attention.k_norm.weight] * self._kv_heads
            self._head_gain = torch.stack(gains).detach()
        release(layer)

    def run(self, x: Tensor, cos: Tensor, sin: Tensor, packed: Packed) -> Tensor:
        """x [M, d]; cos, sin [M, 1, dim]; returns [M, d]."""
        rotated = self._heads + self._kv_heads
        qkv = self._qkv(rms(x, self._before, self._eps)).view(len(x), -1, self._dim)
        qk, value = qkv[:, :rotated], qkv[:, rotated:]
        if self._head_gain is not None:
            qk = rms(qk, self._head_gain, self._eps)
        by_head = rotate(qk, cos, sin).transpose(0, 1)[None]
        query, key = by_head[:, : self._heads], by_head[:, self._heads :]
        out = attend_packed(packed, self._index, query, key, value.transpose(0, 1)[None], self._scores)
        x = self._out.add(out.reshape(len(x), -1), x)
        gate, up = self._gate_up(rms(x, self._after, self._eps)).chunk(2, -1)
        return self._down.add(F.silu(gate) * up, x)

    def weights(self) -> Iterable[Tensor]:
        for linear in (self._qkv, self._out, self._gate_up, self._down):
            yield from linear.weights()
        yield from (self._before, self._after)
        if self._head_gain is not None:
            yield self._head_gain
