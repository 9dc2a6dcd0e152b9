"""One model that can be stepped: weights, cache slots and a forward pass over a packed ragged batch of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.errors import UnsupportedModel
from headstart.model.attention import IMPLEMENTATION
from headstart.model.cache import KVCache, LayerShape
from headstart.model.lean import LeanDecoder, is_llama_shaped
from headstart.model.linears import can_pack, pack_linears
from headstart.model.loading import context_limit
from headstart.model.packed import Forward, Packed, Segment
from headstart.types import Draft

_PROBE_TOKENS = 7


class ModelRunner:
    """A causal LM from transformers, run on our own cache. It holds no state of any request: caches are passed in."""

    def __init__(self, model: Any, *, max_length: int | None = None, lean: bool = True) -> None:
        self.model = model
        self.config = model.config
        text = model.config.get_text_config()
        self.layers = int(text.num_hidden_layers)
        self.vocab_size = int(text.vocab_size)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        limit = context_limit(model.config)
        self.max_length = limit if max_length is None else min(limit, max_length)
        self._lean: LeanDecoder | None = None
        tokens, plain = self._plain_probe()
        self.shapes = self._probe(tokens, plain)
        if lean and is_llama_shaped(model):
            self._lean = LeanDecoder(model, self.max_length)
            self._probe(tokens, plain)
        elif can_pack(self.dtype, self.device):
            pack_linears(model)

    @property
    def is_lean(self) -> bool:
        """Whether the lean forward runs, rather than transformers' modules."""
        return self._lean is not None

    def new_cache(self, slots: int) -> KVCache:
        """An empty cache of this model's shape."""
        return KVCache(self.shapes, slots=slots, capacity=self.max_length, dtype=self.dtype, device=self.device)

    def cache_bytes(self, slots: int) -> int:
        """Bytes of such a cache."""
        per_token = sum(shape.numbers_per_token for shape in self.shapes.values())
        return slots * self.max_length * per_token * torch.finfo(self.dtype).bits // 8

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment], cache: KVCache, taps: Sequence[int] = ()) -> Forward:
        """Run the segments' rows, and keep the hidden states of the layers in `taps`.

        Writes scratch beyond each slot's length; commits nothing (see `KVCache.keep`).
        """
        return self._run(Packed(segments, cache, self.dtype, self.device), taps)

    def _run(self, packed: Packed, taps: Sequence[int] = ()) -> Forward:
        if self._lean is not None:
            return self._lean.run(packed, taps)
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
    def _probe(self, tokens: list[int], plain: Tensor) -> dict[int, LayerShape]:
        """Run the same tokens as a prefix and a tree through our cache and attention.

        Learns the cache's shape, and refuses any model for which the two differ: positions that cannot be driven,
        attention biases, layers that share or lack keys and values.
        """
        name = self.config.model_type
        recorder = _ShapeRecorder()
        try:
            # [x0 | a sibling that must stay unseen, then the true chain]: position, mask and path all matter
            half = _PROBE_TOKENS // 2
            self._run(Packed([Segment(0, tuple(tokens[:half]))], recorder, self.dtype, self.device))
            recorder.lengths[0] = half
            rest = tokens[half + 1 :]
            draft = Draft((tokens[0], *rest), (-1, -1, *range(1, len(rest))))
            ours = self._run(Packed([Segment(0, (tokens[half],), draft)], recorder, self.dtype, self.device))
        except (TypeError, AttributeError, RuntimeError) as error:
            raise UnsupportedModel(
                f"{name} cannot be driven through transformers' attention interface: {error}",
                hint="choose a model whose layers pass keyword arguments to their attention (Llama, Qwen, ...)",
            ) from error
        self._compare(plain, ours.logits[-1].float(), recorder)
        return recorder.shapes

    def _compare(self, plain: Tensor, ours: Tensor, recorder: _ShapeRecorder) -> None:
        tolerance = {torch.float32: 1e-3, torch.float64: 1e-3}.get(self.dtype, 0.1)
        spread = float((plain.max() - plain.min()).clamp(min=1e-6))
        error = float((plain - ours).abs().max()) / spread
        # NaN weights are reported where they act, as NonFiniteLogits of the request
        if len(recorder.shapes) == self.layers and not error > tolerance:
            return
        raise UnsupportedModel(
            f"{self.config.model_type} does not give its own logits through this engine's cache "
            f"({len(recorder.shapes)} of {self.layers} layers reached, relative error {error:.2g})",
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
