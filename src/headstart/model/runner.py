"""One model that can be stepped: weights, cache slots and a forward pass over a packed ragged batch of trees."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from headstart.errors import UnsupportedModel
from headstart.model import native
from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders import linears
from headstart.model.decoders.attention import IMPLEMENTATION
from headstart.model.decoders.fused import FusedDecoder, can_fuse, fits
from headstart.model.decoders.lean import LeanDecoder, is_llama_shaped
from headstart.model.decoders.tiled import TiledCache
from headstart.model.loading import context_limit
from headstart.model.packed import Forward, Packed, Segment
from headstart.types import Draft

_PROBE_TOKENS = 7
log = logging.getLogger(__name__)


class ModelRunner:
    """A causal LM from transformers, run on our own cache. It holds no state of any request: caches are passed in."""

    def __init__(
        self,
        model: Any,
        *,
        max_length: int | None = None,
        quantize: str | None = None,
        decoder: Literal["auto", "fused", "lean", "modules"] = "auto",
    ) -> None:
        """`decoder` names the forward: row kernels, lean tensor operations, transformers' own modules, or the first
        of these that takes the model. `quantize`: None, "int8", or "auto" for int8 where the row kernels run it."""
        self.model = model
        self.config = model.config
        text = model.config.get_text_config()
        self.layers = int(text.num_hidden_layers)
        self.vocab_size = int(text.vocab_size)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        limit = context_limit(model.config)
        self.max_length = limit if max_length is None else min(limit, max_length)
        if quantize == "auto":
            fused = decoder in ("auto", "fused") and is_llama_shaped(model) and fits(model) and can_fuse("int8")
            quantize = "int8" if fused else None
        self.quantize = quantize
        self._decoder: FusedDecoder | LeanDecoder | None = None
        tokens, plain = self._plain_probe()
        recorder = _ShapeRecorder()
        self._probe(tokens, plain, recorder)
        self.shapes = recorder.shapes
        self._decoder = self._take(decoder)
        if self._decoder is not None or quantize is not None:
            self._probe(tokens, plain, self._cache(1, 4 * _PROBE_TOKENS))

    def _take(self, wanted: str) -> FusedDecoder | LeanDecoder | None:
        """Move the weights into the decoder that runs them; None leaves them in transformers' modules, prepared."""
        llama = is_llama_shaped(self.model)
        if wanted in ("auto", "fused") and llama and fits(self.model):
            if can_fuse(self.quantize):
                return FusedDecoder(self.model, self.max_length, self.quantize)
            log.info("no row kernels, so more and smaller operations run instead: %s", native.reason())
        if wanted in ("auto", "lean") and llama and self.quantize is None:
            return LeanDecoder(self.model, self.max_length)
        if wanted in ("fused", "lean"):
            raise UnsupportedModel(
                f"the {wanted} decoder does not take this {self.config.model_type}", hint="leave the choice to 'auto'"
            )
        linears.prepare(self.model, self.quantize)
        return None

    @property
    def decoder(self) -> str:
        """Which forward runs: "fused", "lean" or "modules"."""
        return {FusedDecoder: "fused", LeanDecoder: "lean"}.get(type(self._decoder), "modules")

    @property
    def width_invariant(self) -> bool:
        """Whether a row's logits have the same bits in a forward of any width, by construction."""
        return self.decoder == "fused"

    def new_cache(self, slots: int) -> Slots:
        """An empty cache of this model's shape."""
        return self._cache(slots, self.max_length)

    def _cache(self, slots: int, capacity: int) -> Slots:
        if isinstance(self._decoder, FusedDecoder):
            return TiledCache(self.shapes, slots=slots, capacity=capacity, dtype=self.dtype)
        return KVCache(self.shapes, slots=slots, capacity=capacity, dtype=self.dtype, device=self.device)

    def cache_bytes(self, slots: int) -> int:
        """Bytes of such a cache."""
        per_token = sum(shape.numbers_per_token for shape in self.shapes.values())
        return slots * self.max_length * per_token * torch.finfo(self.dtype).bits // 8

    @torch.inference_mode()
    def forward(
        self, segments: Sequence[Segment], cache: Slots, taps: Sequence[int] = (), layers: int | None = None
    ) -> Forward:
        """Run the segments' rows, and keep the hidden states of the layers in `taps`.

        Writes scratch beyond each slot's length; commits nothing (see `KVCache.keep`). layers: run only so many of
        the first ones, then final norm and head (where `can_exit`).
        """
        return self._run(Packed(segments, cache, self.dtype, self.device), taps, layers)

    @property
    def can_exit(self) -> bool:
        """Whether forwards can end after some of the layers."""
        return self._decoder is not None

    def _run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        if self._decoder is not None:
            return self._decoder.run(packed, taps, layers)
        assert layers is None, "transformers' modules run whole"
        out = self.model(
            input_ids=packed.ids,
            position_ids=packed.positions,
            use_cache=False,
            logits_to_keep=packed.judged,
            output_hidden_states=bool(taps),
            packed=packed,
        )
        return Forward(out.logits[0], {layer: out.hidden_states[layer][0] for layer in taps})

    @torch.inference_mode()
    def _plain_probe(self) -> tuple[list[int], Tensor]:
        """A few tokens, and the logits after them by the model's own attention."""
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(self.vocab_size, (_PROBE_TOKENS,), generator=generator).tolist()
        self.model.set_attn_implementation("eager")
        plain = self.model(torch.tensor([tokens], device=self.device), use_cache=False).logits[0, -1].float()
        self.model.set_attn_implementation(IMPLEMENTATION)
        return tokens, plain

    @torch.inference_mode()
    def _probe(self, tokens: list[int], plain: Tensor, cache: Slots) -> None:
        """Run the same tokens as a prefix and a tree through our cache and attention.

        Refuses any model for which the two differ: positions that cannot be driven, attention biases, layers that
        share or lack keys and values.
        """
        name = self.config.model_type
        try:
            # [x0 | a sibling that must stay unseen, then the true chain]: position, mask and path all matter
            half = _PROBE_TOKENS // 2
            self._run(Packed([Segment(0, tuple(tokens[:half]))], cache, self.dtype, self.device))
            cache.lengths[0] = half
            rest = tokens[half + 1 :]
            draft = Draft((tokens[0], *rest), (-1, -1, *range(1, len(rest))))
            ours = self._run(Packed([Segment(0, (tokens[half],), draft)], cache, self.dtype, self.device))
        except (TypeError, AttributeError, RuntimeError) as error:
            raise UnsupportedModel(
                f"{name} cannot be driven through transformers' attention interface: {error}",
                hint="choose a model whose layers pass keyword arguments to their attention (Llama, Qwen, ...)",
            ) from error
        self._compare(plain, ours.logits[-1].float(), cache)

    def _compare(self, plain: Tensor, ours: Tensor, cache: Slots) -> None:
        quantized = self.quantize is not None and not isinstance(cache, _ShapeRecorder)
        tolerance = 0.1 if quantized else {torch.float32: 1e-3, torch.float64: 1e-3}.get(self.dtype, 0.1)
        spread = float((plain.max() - plain.min()).clamp(min=1e-6))
        error = float((plain - ours).abs().max()) / spread
        # NaN weights are reported where they act, as NonFiniteLogits of the request
        reached = len(cache.shapes) if isinstance(cache, _ShapeRecorder) else self.layers
        if reached == self.layers and not error > tolerance:
            return
        raise UnsupportedModel(
            f"{self.config.model_type} does not give its own logits through this engine's cache "
            f"({reached} of {self.layers} layers reached, relative error {error:.2g})",
            hint="its positions, masks or cache differ from plain softmax attention; please report the model",
        )


class _ShapeRecorder(KVCache):
    """A one-slot cache that grows its layers as they are first written, to learn their shapes."""

    def __init__(self) -> None:
        super().__init__({}, slots=1, capacity=4 * _PROBE_TOKENS, dtype=torch.float32, device=torch.device("cpu"))
        self.shapes: dict[int, LayerShape] = {}

    def write(self, layer: int, slot: int, start: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer not in self.shapes:
            self.shapes[layer] = LayerShape(key.shape[0], key.shape[2], value.shape[2])
            self.keys[layer] = key.new_empty(1, key.shape[0], self.capacity, key.shape[2])
            self.values[layer] = value.new_empty(1, value.shape[0], self.capacity, value.shape[2])
        return super().write(layer, slot, start, key, value)
