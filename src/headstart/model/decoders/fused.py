"""A fused forward for Llama-shaped decoders on a CPU: one call of the row kernels for all layers.

The residual stream and all sums are float32; matrix products take float32, bf16 or int8 rows, and weights of these
kinds or codes of 4 to 8 bits in groups. Every row is computed by itself in a fixed order: a row's logits have the same
bits in any forward, whatever stands beside it. Greedy text with speculation is then the plain text bit for bit.
`LeanDecoder` and transformers' modules are the twins.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from headstart.base.errors import InvalidBatch
from headstart.model import native
from headstart.model.cache import LayerShape, Slots
from headstart.model.decoders.grouped import GroupedEmbedding, GroupedLinear, fewest_bits, joined_grouped
from headstart.model.decoders.linears import joined, linear_of
from headstart.model.decoders.llama import is_llama_shaped, release, rotation, window_of
from headstart.model.decoders.tiled import TiledBatch, TiledCache
from headstart.model.native import structs
from headstart.model.native.weights import NativeWeights, kind_of, takes_codes
from headstart.model.packed import Forward, Packed


class FusedDecoder:
    """Takes the weights out of a transformers model (whose linear layers are gone afterwards) and runs them."""

    name = "fused"
    width_invariant = True
    can_exit = True

    def __init__(self, model: Any, shapes: Mapping[int, LayerShape], length: int, kind: int) -> None:
        """kind: of the products, see `kind_of`."""
        base, config = model.model, model.config
        self._whole: FusedDecoder | None = None
        bits = 8 if kind == native.INT8 else fewest_bits(model)
        self.quantize = None if bits is None else f"int{bits}"
        self._shapes, self._dtype = shapes, model.dtype
        self._weights = weights = NativeWeights(kind)
        self._windows = sorted({window_of(config, i) for i in range(len(base.layers))}, key=lambda w: w or 0)
        self._layers = (structs.Layer * len(base.layers))()
        for index, layer in enumerate(base.layers):
            self._layers[index] = _layer(layer, self._windows.index(window_of(config, index)), weights)
            release(layer)
        cos, sin = rotation(base.rotary_emb, length)
        self._length = length
        head, embedding = weights.product(model.lm_head), base.embed_tokens
        table = structs.Product()
        if isinstance(embedding, GroupedEmbedding):
            tied = isinstance(model.lm_head, GroupedLinear) and model.lm_head.held is embedding.held
            table = head if tied else weights.product(GroupedLinear(embedding.held))
        self._model = structs.Model(
            layers=self._layers,
            layer_count=len(base.layers),
            width=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            dim=int(base.layers[0].self_attn.head_dim),
            final_gain=weights.gain(base.norm.weight),
            cosine=weights.pointer(cos),
            sine=weights.pointer(sin),
            head=head,
            table=table,
            embedding=None if table.weights else weights.pointer(embedding.weight),
            bf16=model.dtype == torch.bfloat16,
            eps=float(base.norm.variance_epsilon),
        )
        self._vocabulary = embedding.num_embeddings
        model.lm_head = nn.Identity()

    @classmethod
    def build(cls, model: Any, shapes: Mapping[int, LayerShape], *, length: int, quantize: str | None) -> Self | None:
        if not is_llama_shaped(model):
            return None
        layer = model.model.layers[0]
        widths = (model.config.hidden_size, layer.mlp.down_proj.in_features, layer.self_attn.head_dim)
        coded = fewest_bits(model) is not None  # its matrices are rounded already
        kind = kind_of(model.dtype, model.device, widths, None if coded else quantize)
        if coded and not takes_codes(model):
            return None
        return None if kind is None else cls(model, shapes, length, kind)

    def new_cache(self, slots: int, capacity: int) -> Slots:
        return TiledCache(self._shapes, slots=slots, capacity=capacity, dtype=self._dtype)

    def run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        model = self._model
        if layers is not None:
            model = structs.Model.from_buffer_copy(model)
            model.layer_count = layers
        if not 0 < model.layer_count <= len(self._layers) or (
            taps and not 0 <= min(taps) <= max(taps) <= model.layer_count
        ):
            raise InvalidBatch(
                f"{model.layer_count} layers with taps {taps} of {len(self._layers)}", hint="ask for layers it has"
            )
        batch = TiledBatch(
            packed,
            self._windows,
            shapes=self._shapes,
            dtype=self._dtype,
            vocabulary=self._vocabulary,
            positions=self._length,
            outputs=model.head.outputs,
        )
        if not taps:
            native.kernels().forward(model, batch.struct)
            return Forward(batch.logits)
        states = torch.empty(len(taps), batch.rows, model.width)  # one tensor for all: a step has little time for more
        pointers = (ctypes.c_void_p * (model.layer_count + 1))()
        for number, layer in enumerate(taps):
            pointers[layer] = states.data_ptr() + 4 * number * batch.rows * model.width
        batch.struct.taps = ctypes.addressof(pointers)
        native.kernels().forward(model, batch.struct)
        return Forward(batch.logits, dict(zip(taps, states.to(self._dtype).unbind(), strict=True)))

    def first_layers(self, count: int, gain: Tensor, output: Tensor, quantize: str | None) -> FusedDecoder:
        made = copy.copy(self)  # it shares the layers, and keeps alive what they point to
        made._whole = self
        rounded = quantize in ("int8", "auto") and native.kernels().supported(native.INT8)
        made._weights = weights = NativeWeights(native.INT8 if rounded else self._weights.kind)
        model = made._model = structs.Model.from_buffer_copy(self._model)
        model.layer_count, model.final_gain = count, weights.gain(gain)
        model.head = weights.product(linear_of(output))
        return made

    def weights(self) -> Iterable[Tensor]:
        return self._weights.tensors


def _side_by_side(linears: list[nn.Module]) -> nn.Module:
    grouped = [linear for linear in linears if isinstance(linear, GroupedLinear)]
    if len(grouped) == len(linears):
        return joined_grouped(grouped)
    return joined([linear for linear in linears if isinstance(linear, nn.Linear)])


def _layer(layer: Any, window: int, weights: NativeWeights) -> structs.Layer:
    attention, mlp = layer.self_attn, layer.mlp
    q_norm, k_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))  # Qwen3 norms queries and keys
    return structs.Layer(
        input_gain=weights.gain(layer.input_layernorm.weight),
        mlp_gain=weights.gain(layer.post_attention_layernorm.weight),
        q_gain=q_norm and weights.gain(q_norm.weight),
        k_gain=k_norm and weights.gain(k_norm.weight),
        qkv=weights.product(_side_by_side([attention.q_proj, attention.k_proj, attention.v_proj])),
        out=weights.product(attention.o_proj),
        gate_up=weights.product(_side_by_side([mlp.gate_proj, mlp.up_proj])),
        down=weights.product(mlp.down_proj),
        window=window,
        scaling=float(attention.scaling),
    )
