"""Forwards of a target or draft model. One file each; `runner.DECODERS` lists them from the fastest to the plainest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model.cache import LayerShape, Slots
from headstart.model.packed import Forward, Packed
from headstart.model.planes import StateShape

if TYPE_CHECKING:
    from headstart.model.mapped import PackedFile


class Decoder(Protocol):
    """One way to compute a causal LM over a packed ragged batch of trees.

    A decoder holds weights, and nothing of any request: caches are passed in with the batch. What it must hold to:

    - `run` computes the logits of the judged rows, each from the tokens that `Packed` says it sees, as transformers'
      modules would but for rounding. `ModelRunner` compares the two on a few tokens at load.
    - It writes the keys and values of its rows behind the slots' lengths and changes no length: only `Slots.keep` does.
    - It runs only on caches of its own `new_cache`, and refuses what does not fit one instead of writing beyond it.
    - Where it says `width_invariant`, a row has the same bits in any company: alone, in a draft, in a batch.
    """

    name: str
    """What the option `decoder` calls it."""
    quantize: str | None
    """"int8" or "int4" where the weights are whole numbers of so many bits (the fewest of any), or None."""
    width_invariant: bool
    """Whether a row's logits have the same bits in a forward of any width, by construction."""
    can_exit: bool
    """Whether `run` can end after some of the layers."""
    shapes: Mapping[int, LayerShape]
    """What each layer that has keys and values of its own stores."""
    states: Mapping[int, StateShape]
    """What each recurrent layer keeps of a text."""
    experts_touched: int | None
    """How many experts the rows of the last forward chose, each counted once in its layer, without those that all rows
    take; None for models without experts, and where it does not say."""

    @classmethod
    def build(
        cls,
        model: Any,
        shapes: Mapping[int, LayerShape],
        *,
        length: int,
        quantize: str | None,
        packed: PackedFile | None = None,
    ) -> Self | None:
        """Take a transformers model's weights, whose own linear layers may be gone afterwards; None, with the model
        untouched, if this decoder does not compute it.

        shapes: what each attention layer stores. length: positions that may be asked for. quantize: None, "int8", or
        "auto", which takes 8-bit integers where this decoder runs them without loss of width invariance. packed: where
        weights may lie in a file, which decoders other than the row kernels' have no use for.
        """

    def new_cache(self, slots: int, capacity: int, dtype: torch.dtype | None = None) -> Slots:
        """An empty cache of the model's shape, for `capacity` tokens a slot. dtype: torch.int8 for keys and values that
        are rounded to it.

        Raises:
            UnsupportedModel: this decoder does not round them.
        """

    def run(self, packed: Packed, taps: Sequence[int] = (), layers: int | None = None) -> Forward:
        """One forward. taps: the layers whose inputs are kept. layers: run only so many of the first ones, then final
        norm and head (where `can_exit`)."""

    def first_layers(self, count: int, gain: Tensor, output: Tensor, quantize: str | None) -> Decoder:
        """The first layers with another final norm [d] and output matrix [V', d] (where `can_exit`), on the same
        caches. Its `weights` are those that it adds. quantize: of the matrix alone, None, "int8" or "auto"."""

    def weights(self) -> Iterable[Tensor]:
        """All tensors it holds; some may share their memory."""


def refuse_rounded(dtype: torch.dtype | None, decoder: str) -> None:
    """Refuse a cache of whole numbers, for decoders that have no attention over it."""
    if dtype == torch.int8:
        raise UnsupportedModel(
            f"the {decoder} decoder does not run on keys and values in int8", hint="leave kv_cache_dtype out"
        )
