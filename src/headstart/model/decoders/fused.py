"""A fused forward for Llama-shaped decoders on a CPU: one call of the row kernels for all layers.

The residual stream and all sums are float32; matrix products take float32, bf16 or int8 rows. Every row is computed
by itself in a fixed order: a row's logits have the same bits in any forward, whatever stands beside it. Greedy text
with speculation is then the plain text bit for bit. `LeanDecoder` and transformers' modules are the twins.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headstart.model import native
from headstart.model.decoders.lean import release, window_of
from headstart.model.decoders.linears import joined
from headstart.model.decoders.tiled import Numbers, TiledCache
from headstart.model.packed import Forward, Packed


def fits(model: Any) -> bool:
    """Whether the kernels take this Llama-shaped model: on a CPU, float32 or bf16, widths in sixteens."""
    layer = model.model.layers[0]
    widths = (model.config.hidden_size, layer.mlp.down_proj.in_features, layer.self_attn.head_dim)
    return (
        model.device.type == "cpu"
        and model.dtype in (torch.float32, torch.bfloat16)
        and all(width % native.LANES == 0 for width in widths)
    )


def can_fuse(quantize: str | None) -> bool:
    """Whether the kernels can be had here, and have products for these weights."""
    return native.available() and (quantize is None or bool(native.kernels().supported(native.INT8)))


class FusedDecoder:
    """Takes the weights out of a transformers model (whose linear layers are gone afterwards) and runs them.

    Raises:
        native.Unavailable: the kernels cannot be built here; the model is untouched then.
    """

    def __init__(self, model: Any, max_length: int, quantize: str | None) -> None:
        self._kernels = native.kernels()
        base, config = model.model, model.config
        kind = _kind(model.dtype, quantize, self._kernels)
        self._dtype: torch.dtype = model.dtype
        self._kept: list[Tensor] = []  # what the structures point to
        first = base.layers[0].self_attn
        self._windows = sorted({window_of(config, i) for i in range(len(base.layers))}, key=lambda w: w or 0)
        self._layers = (native.Layer * len(base.layers))()
        for index, layer in enumerate(base.layers):
            self._layers[index] = self._layer(layer, self._windows.index(window_of(config, index)), kind)
            release(layer)
        cos, sin = _rotation(base.rotary_emb, max_length)
        dim = int(first.head_dim)
        self._model = native.Model(
            layers=self._layers,
            layer_count=len(base.layers),
            width=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            dim=dim,
            final_gain=self._keep(base.norm.weight.float()),
            cosine=self._keep(cos),
            sine=self._keep(sin),
            head=self._product(model.lm_head, kind),
            embedding=self._keep(base.embed_tokens.weight),
            bf16=self._dtype == torch.bfloat16,
            eps=float(base.norm.variance_epsilon),
        )
        model.lm_head = nn.Identity()

    def run(self, packed: Packed, taps: Sequence[int], layers: int | None = None) -> Forward:
        """One forward over a packed batch; see `ModelRunner.forward`."""
        cache, model = packed.cache, self._model
        if layers is not None:
            model = native.Model.from_buffer_copy(model)
            model.layer_count = layers
        assert isinstance(cache, TiledCache), "a fused decoder runs on a tiled cache"
        rows = len(packed.token_ids)
        numbers = Numbers(packed, self._windows)
        views = (native.View * len(numbers.views))(*(native.View(*view) for view in numbers.views))
        logits = torch.empty(len(packed.judged_rows), model.head.outputs)
        hidden = {layer: torch.empty(rows, model.width) for layer in taps}
        pointers = (ctypes.c_void_p * (model.layer_count + 1))() if hidden else None
        for layer, states in hidden.items():
            pointers[layer] = states.data_ptr()  # type: ignore[index]
        keys, values = cache.pointers
        batch = native.Batch(
            count=rows,
            ids=numbers.ids,
            positions=numbers.positions,
            slots=numbers.slots,
            places=numbers.places,
            segments=numbers.segments,
            segment_count=len(packed.segments),
            views=views,
            keys=ctypes.addressof(keys),
            values=ctypes.addressof(values),
            capacity=cache.room,
            judged=numbers.judged,
            judged_count=len(logits),
            logits=logits.data_ptr(),
            taps=ctypes.addressof(pointers) if pointers is not None else None,
            threads=torch.get_num_threads(),
        )
        self._kernels.forward(model, batch)
        return Forward(logits, {layer: states.to(self._dtype) for layer, states in hidden.items()})

    def _layer(self, layer: Any, view: int, kind: int) -> native.Layer:
        attention, mlp = layer.self_attn, layer.mlp
        gains = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]  # Qwen3 norms queries and keys
        return native.Layer(
            before=self._keep(layer.input_layernorm.weight.float()),
            after=self._keep(layer.post_attention_layernorm.weight.float()),
            q_gain=None if gains[0] is None else self._keep(gains[0].weight.float()),
            k_gain=None if gains[1] is None else self._keep(gains[1].weight.float()),
            qkv=self._product(joined([attention.q_proj, attention.k_proj, attention.v_proj]), kind),
            out=self._product(attention.o_proj, kind),
            gate_up=self._product(joined([mlp.gate_proj, mlp.up_proj]), kind),
            down=self._product(mlp.down_proj, kind),
            view=view,
            scaling=float(attention.scaling),
        )

    def _product(self, linear: nn.Linear, kind: int) -> native.Product:
        return pack(linear, kind, self._kept)

    def _keep(self, tensor: Tensor) -> int:
        self._kept.append(tensor.detach().contiguous())
        return self._kept[-1].data_ptr()


def pack(linear: nn.Linear, kind: int, kept: list[Tensor]) -> native.Product:
    """The layer's weights in the kernels' own order; the tensors behind it are appended to `kept`."""
    kernels, weight = native.kernels(), linear.weight.detach().contiguous()
    outputs, inputs = weight.shape
    packed = torch.empty(kernels.packed_bytes(kind, inputs, outputs) + 64, dtype=torch.uint8)
    packed = packed[-packed.data_ptr() % 64 :]  # a tile's rows begin with a cache line
    scale, shift = torch.empty(outputs), torch.empty(outputs, dtype=torch.int32)
    kernels.pack(
        kind,
        weight.data_ptr(),
        weight.dtype == torch.bfloat16,
        inputs,
        outputs,
        packed.data_ptr(),
        scale.data_ptr(),
        shift.data_ptr(),
        torch.get_num_threads(),
    )
    kept += (packed, scale, shift)
    bias = None
    if linear.bias is not None:
        kept.append(linear.bias.detach().float().contiguous())
        bias = kept[-1].data_ptr()
    return native.Product(packed.data_ptr(), scale.data_ptr(), shift.data_ptr(), bias, inputs, outputs, kind)


def _kind(dtype: torch.dtype, quantize: str | None, kernels: native.Kernels) -> int:
    if quantize == "int8":
        return native.INT8
    if dtype == torch.float32:
        return native.FLOAT32
    return native.BF16_PAIRS if kernels.supported(native.BF16_PAIRS) else native.BF16_WIDE


def _rotation(rotary: Any, length: int) -> tuple[Tensor, Tensor]:
    """Tables [length, dim / 2] in float32 of the model's own rotary module (both halves of a head turn alike)."""
    cos, sin = rotary(torch.empty(1, dtype=torch.float32), torch.arange(length)[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()
