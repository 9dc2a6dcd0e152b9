"""An EAGLE head on the row kernels of a CPU: one call for fusing layer, decoder layer and head.

A head has one layer, so a forward of a few rows takes a fraction of a millisecond, of which calls must not be the most.
What does not change from forward to forward is laid out once. `heads.TensorHead` is the twin.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headstart.model import native
from headstart.model.cache import LayerShape, Slots
from headstart.model.decoders.fused import pack
from headstart.model.decoders.tiled import Numbers, TiledCache
from headstart.model.heads.eagle import Head, HeadWeights, Spoken, TensorHead, linear_of, rotation
from headstart.model.heads.eagle_checkpoint import EAGLE3, HeadConfig
from headstart.model.packed import Packed


def make_head(weights: HeadWeights, length: int, *, quantize: str | None = None) -> Head:
    """The fastest forward that takes this head: row kernels, or tensor operations. quantize: None, or "int8" or "auto"
    for 8-bit matrices where the row kernels have products of them."""
    if not _fits(weights):
        return TensorHead(weights, length)
    int8 = quantize is not None and native.kernels().supported(native.INT8)
    return FusedHead(weights, length, quantize="int8" if int8 else None)


def _fits(weights: HeadWeights) -> bool:
    config, dtype = weights.checkpoint.config, weights.head.dtype
    widths = (config.width, config.intermediate, config.dim, config.fused_inputs)
    return (
        weights.head.device.type == "cpu"
        and dtype in (torch.float32, torch.bfloat16)
        and all(width % native.LANES == 0 for width in widths)
        and native.available()
    )


class FusedHead(Head):
    """The head as one call.

    Raises:
        native.Unavailable: the kernels cannot be built here.
    """

    def __init__(self, weights: HeadWeights, length: int, *, quantize: str | None = None) -> None:
        super().__init__(weights, length)
        self._kernels = native.kernels()
        self._kept: list[Tensor] = []  # what the structures point to
        kind = _kind(self.dtype, quantize, self._kernels)
        config = self.config
        self._layer = native.Layer(
            before=self._gain(weights, "input_layernorm"),
            after=self._gain(weights, "post_attention_layernorm"),
            q_gain=self._gain(weights, "self_attn.q_norm"),
            k_gain=self._gain(weights, "self_attn.k_norm"),
            qkv=pack(weights.linear(*(f"self_attn.{name}_proj" for name in "qkv")), kind, self._kept),
            out=pack(weights.linear("self_attn.o_proj"), kind, self._kept),
            gate_up=pack(weights.linear("mlp.gate_proj", "mlp.up_proj"), kind, self._kept),
            down=pack(weights.linear("mlp.down_proj"), kind, self._kept),
            view=0,
            scaling=config.dim**-0.5,
        )
        cos, sin = rotation(config.rope, length)
        self._model = native.Model(
            layers=ctypes.pointer(self._layer),
            layer_count=1,
            width=config.width,
            heads=config.heads,
            kv_heads=config.kv_heads,
            dim=config.dim,
            final_gain=self._gain(weights, "norm"),
            cosine=self._keep(cos),
            sine=self._keep(sin),
            head=pack(linear_of(weights.head), kind, self._kept),
            embedding=self._keep(weights.embedding),
            bf16=self.dtype == torch.bfloat16,
            eps=config.eps,
        )
        self._ends = native.Head(
            # never rounded to int8: what it joins is of different sizes, and the small would be lost beside the large
            fuse=pack(weights.linear("fc"), _kind(self.dtype, None, self._kernels), self._kept),
            state_gain=self._gain(weights, "hidden_norm"),
            residual_normed=config.norm_before_residual,
            output_normed=config.norm_output,
        )
        self._third = config.version == EAGLE3

    def new_cache(self, slots: int) -> Slots:
        return TiledCache(_shapes(self.config), slots=slots, capacity=self.length, dtype=self.dtype)

    def run(self, packed: Packed, given: Tensor, *, own: bool) -> Spoken:
        cache = packed.cache
        assert isinstance(cache, TiledCache), "a fused head runs on a tiled cache"
        fusing = self._third and not own
        rows = self._features(given) if fusing else given
        rows = rows.float().contiguous()
        numbers = Numbers(packed, (self.config.window,))
        view = native.View(*numbers.views[0])
        judged = len(packed.judged_rows)
        logits, states = torch.empty(judged, self._model.head.outputs), torch.empty(judged, self._model.width)
        keys, values = cache.pointers
        batch = native.Batch(
            count=len(packed.token_ids),
            ids=numbers.ids,
            positions=numbers.positions,
            slots=numbers.slots,
            places=numbers.places,
            segments=numbers.segments,
            segment_count=len(packed.segments),
            views=ctypes.pointer(view),
            keys=ctypes.addressof(keys),
            values=ctypes.addressof(values),
            capacity=cache.room,
            judged=numbers.judged,
            judged_count=judged,
            logits=logits.data_ptr(),
            taps=None,
            threads=torch.get_num_threads(),
            drafting=ctypes.pointer(self._ends),
            states=None if fusing else rows.data_ptr(),
            features=rows.data_ptr() if fusing else None,
            left=states.data_ptr(),
        )
        self._kernels.forward(self._model, batch)
        return Spoken(logits, states)

    def _gain(self, weights: HeadWeights, name: str) -> int | None:
        gain = weights.gain(name)
        return None if gain is None else self._keep(gain.float())

    def _keep(self, tensor: Tensor) -> int:
        self._kept.append(tensor.detach().contiguous())
        return self._kept[-1].data_ptr()


def _shapes(config: HeadConfig) -> dict[int, LayerShape]:
    return {0: LayerShape(config.kv_heads, config.dim, config.dim)}


def _kind(dtype: torch.dtype, quantize: str | None, kernels: native.Kernels) -> int:
    if quantize == "int8":
        return native.INT8
    if dtype == torch.float32:
        return native.FLOAT32
    return native.BF16_PAIRS if kernels.supported(native.BF16_PAIRS) else native.BF16_WIDE
