"""The forward of transformers' own modules: any architecture, with our attention in place of theirs.

The plain twin of the other decoders. Linear layers are replaced in place by the best ones for their weights here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from headstart.base.errors import InvalidBatch
from headstart.model.cache import NO_STATES, KVCache, LayerShape, Slots
from headstart.model.decoders import linears, refuse_rounded
from headstart.model.decoders.attention import attending
from headstart.model.packed import Forward, Packed
from headstart.model.planes import StateShape
from headstart.model.recipes import find_recipe
from headstart.model.recipes.recipe import windows_of

if TYPE_CHECKING:
    from headstart.model.mapped import PackedFile

WITHOUT_WINDOWS = ("qwen2_moe",)
"""Model types whose modules leave sliding windows to the mask, and do not tell attention of them."""


class ModulesDecoder:
    """A model of transformers, adopted (see `loading.adopt`), as a `Decoder`."""

    name = "modules"
    width_invariant = False
    can_exit = False
    experts_touched: int | None = None

    def __init__(self, model: Any, shapes: Mapping[int, LayerShape], quantize: str | None = None) -> None:
        self.quantize = quantize
        self._model = model
        self.shapes = shapes
        self.states: Mapping[int, StateShape] = NO_STATES

    @classmethod
    def build(
        cls,
        model: Any,
        shapes: Mapping[int, LayerShape],
        *,
        length: int,  # noqa: ARG003
        quantize: str | None,
        packed: PackedFile | None = None,  # noqa: ARG003
    ) -> Self | None:
        recipe = find_recipe(model.config)
        if recipe is not None and recipe.recurrent:
            return None  # the modules would begin each forward with an empty state
        if recipe is not None and model.config.model_type in WITHOUT_WINDOWS and windows_of(recipe.layers) != [None]:
            return None
        if quantize == "int8" and not linears.can_quantize(model.device):
            return None
        quantize = "int8" if quantize == "int8" else None
        kept = set[int]()
        if recipe is not None and recipe.experts:
            from headstart.model.decoders.experts import choosing  # most models have none

            kept = choosing(model, recipe)
        linears.prepare(model, quantize, kept)
        return cls(model, shapes, quantize)

    def new_cache(self, slots: int, capacity: int, dtype: torch.dtype | None = None) -> Slots:
        refuse_rounded(dtype, self.name)
        model = self._model
        return KVCache(self.shapes, slots=slots, capacity=capacity, dtype=model.dtype, device=model.device)

    def run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        if layers is not None:
            raise InvalidBatch("transformers' modules run all layers", hint="ask `can_exit` first")
        with attending(packed):
            out = self._model(
                input_ids=packed.ids,
                position_ids=packed.positions,
                use_cache=False,
                logits_to_keep=packed.judged,
                output_hidden_states=bool(taps),
            )
        return Forward(out.logits[0], {layer: out.hidden_states[layer][0] for layer in taps})

    def first_layers(self, *_: Any) -> ModulesDecoder:
        raise InvalidBatch("transformers' own modules cannot be left early", hint="ask only where `can_exit`")

    def weights(self) -> Iterable[Tensor]:
        return itertools.chain(self._model.parameters(), self._model.buffers(), linears.prepared(self._model))
