"""A fused forward for Llama-shaped decoders on a CPU: matrix products from PyTorch, everything else in row kernels.

Per layer four products (q/k/v joined, output, gate/up joined, down) and five kernel calls. The residual stream is
float32; products take float32, bf16 (packed weights) or int8 rows, each with a scale of its own. Every kernel
treats a row by itself in a fixed order, and integer sums have no order: with int8 weights a row's logits have the
same bits in any forward, whatever stands beside it. `LeanDecoder` and transformers' modules are the twins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from headstart.model import native
from headstart.model.lean import release, window_of
from headstart.model.linears import Int8Linear, PackedLinear, PlainLinear, joined
from headstart.model.packed import Forward, Packed
from headstart.model.tiled import Places, TiledCache, Views

_WORTH_A_THREAD = 32768
"""Numbers a row kernel must handle before it is shared out (found by timing)."""

Product = Int8Linear | PackedLinear | PlainLinear


def fits(model: Any) -> bool:
    """Whether the kernels take this Llama-shaped model: on a CPU, float32 or bf16, widths in sixteens."""
    layer = model.model.layers[0]
    widths = (model.config.hidden_size, layer.mlp.down_proj.in_features, layer.self_attn.head_dim)
    return (
        model.device.type == "cpu"
        and model.dtype in (torch.float32, torch.bfloat16)
        and all(width % native.LANES == 0 for width in widths)
    )


class FusedDecoder:
    """Takes the weights out of a transformers model (whose linear layers are gone afterwards) and runs them.

    Raises:
        native.Unavailable: the kernels cannot be built here; the model is untouched then.
    """

    def __init__(self, model: Any, max_length: int, product: type[Product]) -> None:
        self.kernels = native.kernels()
        base = model.model
        self._dtype: torch.dtype = model.dtype
        self._embedding = base.embed_tokens.weight.detach()
        self.cos, self.sin = _rotation(base.rotary_emb, max_length)
        self._layers = [_Layer(layer, index, model.config, product) for index, layer in enumerate(base.layers)]
        self._final = _Norm(base.norm)
        self._head = _Linear(product(model.lm_head))
        model.lm_head = nn.Identity()

    def run(self, packed: Packed, taps: Sequence[int]) -> Forward:
        """One forward over a packed batch; see `ModelRunner.forward`."""
        rows = _Rows(self, packed, F.embedding(packed.ids[0], self._embedding).float())
        hidden: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(rows.norm(layer.before, layer.qkv.rows))
            if index in taps:
                hidden[index] = rows.x.to(self._dtype, copy=True)
            rows.rotate(layer, qkv)
            rows.add(layer.out, layer.out(rows.attend(layer)))
            gate_up = layer.gate_up(rows.norm(layer.after, layer.gate_up.rows))
            rows.add(layer.down, layer.down(rows.gate(layer, gate_up)))
        last = len(self._layers)
        if last in taps:
            hidden[last] = rows.norm(self._final, torch.float32).to(self._dtype)
        return Forward(rows.judge(self._final, self._head, packed.judged), hidden)


class _Rows:
    """One forward's rows on their way through the layers: x [M, d] is the residual stream.

    A product's result y is not added to x at once: the norm that comes next does it in the same pass.
    """

    def __init__(self, model: FusedDecoder, packed: Packed, x: Tensor) -> None:
        assert isinstance(packed.cache, TiledCache), "a fused decoder runs on a tiled cache"
        self.x = x
        self._model, self._packed, self._cache = model, packed, packed.cache
        self._kernels = model.kernels
        self._count = len(x)
        self._most = torch.get_num_threads()
        self._scale = torch.empty(self._count)
        self._pending: tuple[_Linear, Tensor] | None = None
        self._places = Places.of(packed)
        self._views: dict[int | None, Views] = {}
        self._longest = max(packed.starts) + self._count

    def add(self, linear: _Linear, y: Tensor) -> None:
        """Leave y = linear(...) to be added to x by the next norm."""
        self._pending = linear, y

    def norm(self, norm: _Norm, rows: torch.dtype) -> Tensor:
        """Add what is pending to x, then norm all rows into the next product's input."""
        return self._norm(norm, torch.empty(self.x.shape, dtype=rows), self._scale, None)

    def judge(self, norm: _Norm, head: _Linear, judged: Tensor) -> Tensor:
        """Logits [R, V] of the judged rows."""
        scale = torch.empty(len(judged))
        out = torch.empty(len(judged), self.x.shape[1], dtype=head.rows)
        logits = head(self._norm(norm, out, scale, judged))
        if head.rows is torch.uint8:
            logits *= scale[:, None]
            if head.late_bias is not None:
                logits += head.late_bias
        return logits

    def _norm(self, norm: _Norm, out: Tensor, scale: Tensor, rows: Tensor | None) -> Tensor:
        y = (None, 0, None, None) if self._pending is None else self._y(*self._pending)
        self._kernels.norm(
            self.x.data_ptr(),
            *y,
            norm.pointer,
            norm.eps,
            None if rows is None else rows.data_ptr(),
            len(out),
            self.x.shape[1],
            out.data_ptr(),
            native.KINDS[out.dtype],
            scale.data_ptr(),
            self._threads(out.numel()),
        )
        self._pending = None
        return out

    def rotate(self, layer: _Layer, qkv: Tensor) -> None:
        """Rotate q and k, and store k and v in their slots."""
        self._query = torch.empty(self._count, layer.heads * layer.dim)
        cache = self._cache
        positions, slots, places, _ = self._places.pointers
        self._kernels.rotate(
            *self._y(layer.qkv, qkv),
            layer.q_gain.pointer,
            layer.k_gain.pointer,
            layer.q_gain.eps,
            self._model.cos.data_ptr(),
            self._model.sin.data_ptr(),
            positions,
            slots,
            places,
            self._count,
            layer.shape(cache.room),
            self._query.data_ptr(),
            cache.keys[layer.index].data_ptr(),
            cache.values[layer.index].data_ptr(),
            cache.kind,
            self._threads(qkv.numel()),
        )

    def attend(self, layer: _Layer) -> Tensor:
        """Attention of the rotated queries over the slots, as the output product's input."""
        if layer.window not in self._views:
            self._views[layer.window] = Views.of(self._packed, layer.window)
        cache = self._cache
        _, slots, _, segments = self._places.pointers
        mixed = torch.empty(self._count, layer.heads * layer.dim)
        out = torch.empty(mixed.shape, dtype=layer.out.rows)
        self._kernels.attend(
            self._query.data_ptr(),
            cache.keys[layer.index].data_ptr(),
            cache.values[layer.index].data_ptr(),
            cache.kind,
            slots,
            *self._views[layer.window].pointers,
            segments,
            len(self._places.segments) - 1,
            layer.shape(cache.room),
            layer.scaling,
            self._count,
            mixed.data_ptr(),
            out.data_ptr(),
            native.KINDS[out.dtype],
            self._scale.data_ptr(),
            self._threads(mixed.numel() * self._longest // 16),
        )
        return out

    def gate(self, layer: _Layer, gate_up: Tensor) -> Tensor:
        """silu(gate) * up, as the down product's input."""
        width = gate_up.shape[1] // 2
        out = torch.empty(self._count, width, dtype=layer.down.rows)
        self._kernels.gated(
            *self._y(layer.gate_up, gate_up),
            self._count,
            width,
            out.data_ptr(),
            native.KINDS[out.dtype],
            self._scale.data_ptr(),
            self._threads(2 * out.numel()),
        )
        return out

    def _threads(self, numbers: int) -> int:
        """How many threads a kernel is worth: little work is done before a second one has woken up."""
        return self._most if numbers >= _WORTH_A_THREAD else 1

    def _y(self, linear: _Linear, y: Tensor) -> tuple[int, int, int | None, int | None]:
        """A product's result as the kernels take it: int8 products still lack their rows' scales and the bias."""
        scale = self._scale.data_ptr() if linear.rows is torch.uint8 else None
        return y.data_ptr(), native.KINDS[y.dtype], scale, linear.bias_pointer


class _Linear:
    """A product and what its consumer must know of it."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self.rows: torch.dtype = product.rows
        self.late_bias = product.late_bias
        self.bias_pointer = None if self.late_bias is None else self.late_bias.data_ptr()

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x)


class _Norm:
    """Gain [d] in float32, and eps; no gain (and a null pointer) where there is no norm."""

    def __init__(self, norm: Any = None) -> None:
        self._gain = None if norm is None else norm.weight.detach().float().contiguous()
        self.pointer = None if self._gain is None else self._gain.data_ptr()
        self.eps = 0.0 if norm is None else float(norm.variance_epsilon)


class _Layer:
    """One decoder layer's weights."""

    def __init__(self, layer: Any, index: int, config: Any, product: type[Product]) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.index = index
        self.dim = int(attention.head_dim)
        self.heads = attention.q_proj.out_features // self.dim
        self.kv_heads = attention.k_proj.out_features // self.dim
        self.scaling = float(attention.scaling)
        self.window = window_of(config, index)
        self.qkv = _Linear(product(joined([attention.q_proj, attention.k_proj, attention.v_proj])))
        self.out = _Linear(product(attention.o_proj))
        self.gate_up = _Linear(product(joined([mlp.gate_proj, mlp.up_proj])))
        self.down = _Linear(product(mlp.down_proj))
        self.before, self.after = _Norm(layer.input_layernorm), _Norm(layer.post_attention_layernorm)
        self.q_gain = _Norm(getattr(attention, "q_norm", None))  # Qwen3 norms each head's query and key
        self.k_gain = _Norm(getattr(attention, "k_norm", None))
        self._shapes: dict[int, NDArray[np.int64]] = {}
        self._shape_pointers: dict[int, int] = {}
        release(layer)

    def shape(self, room: int) -> int:
        """Address of the kernels' Shape; `room` is the capacity of a slot."""
        if room not in self._shape_pointers:
            shape = np.array((self.heads, self.kv_heads, self.dim, room), dtype=np.int64)
            self._shapes[room], self._shape_pointers[room] = shape, shape.ctypes.data
        return self._shape_pointers[room]


def _rotation(rotary: Any, length: int) -> tuple[Tensor, Tensor]:
    """Tables [length, dim / 2] in float32 of the model's own rotary module (both halves of a head turn alike)."""
    cos, sin = rotary(torch.empty(1, dtype=torch.float32), torch.arange(length)[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()
