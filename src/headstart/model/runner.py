"""One model that can be stepped: weights, cache slots and a forward pass over a packed ragged batch of trees."""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.model import int4
from headstart.model.cache import LayerShape, Slots, cache_bytes
from headstart.model.decoders import Decoder
from headstart.model.decoders.attention import any_length
from headstart.model.decoders.fused import FusedDecoder
from headstart.model.decoders.lean import LeanDecoder
from headstart.model.decoders.modules import ModulesDecoder
from headstart.model.kept.store import Changed, Passed, digest_of
from headstart.model.kept.weights import listed
from headstart.model.loading import context_limit
from headstart.model.longrope import fix_rotation
from headstart.model.memory import WORTH_RELEASING, bytes_of, release_files
from headstart.model.packed import Forward, Packed, Segment
from headstart.model.probe import CAPACITY, Probe, run, tokens_of
from headstart.model.reading import first_line
from headstart.model.wrappers import media_tokens

if TYPE_CHECKING:
    from headstart.model.mapped import PackedFile
    from headstart.model.native.structs import Product

log = logging.getLogger(__name__)

DECODERS: tuple[type[Decoder], ...] = (FusedDecoder, LeanDecoder, ModulesDecoder)
"""All forwards, the fastest first: the first that takes a model runs it."""


def decoders_on(device: torch.device) -> tuple[type[Decoder], ...]:
    """Those that may run a model there, in their order."""
    if device.type != "cuda":
        return DECODERS
    from headstart.model.recorded.graphs import RecordedDecoder  # of no use elsewhere

    return (RecordedDecoder, *DECODERS)


class ModelRunner:
    """A causal LM from transformers, run on our own cache. It holds no state of any request: caches are passed in."""

    def __init__(
        self,
        model: Any,
        *,
        max_length: int | None = None,
        quantize: str | None = None,
        decoder: Literal["auto", "fused", "lean", "modules"] = "auto",
        blocks: tuple[str, ...] = (),
        passed: Passed | None = None,
        listing: bool = False,
        packed: PackedFile | None = None,
        cache_dtype: torch.dtype | None = None,
    ) -> None:
        """`decoder` names the forward: row kernels, lean tensor operations, transformers' own modules, or the first
        of these that takes the model. `quantize`: None, "int8", "int4" or "int8-grouped" (which only the row kernels
        run), or "auto" for int8 where they run it. `blocks`: what the model's matrices are in a GGUF file or a
        quantised checkpoint. `passed`: how this model passed the probe before, if it is one that was kept; the probe is
        then not run, and what was kept is compared. `listing`: find out what `passed` says. `packed`: where weights
        lie in a file, or may. `cache_dtype`: of keys and values, the model's or torch.int8."""
        self.model = model
        self.blocks = blocks
        self.config = model.config
        text = model.config.get_text_config()
        self.layers = int(text.num_hidden_layers)
        self.vocab_size = int(text.vocab_size)
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.cache_dtype = self.dtype if cache_dtype is None else cache_dtype
        """Of keys and values. Where they are rounded, the distribution is that of the model on rounded ones."""
        self.media_tokens = media_tokens(model.config)
        """Tokens that no prompt may hold, and what each stands for: an image, say, which this model does not see."""
        limit = context_limit(model.config)
        self.max_length = limit if max_length is None else min(limit, max_length)
        self.passed = passed
        """How it passed the probe, where that can be kept for the next start."""
        self._packed = packed
        self._rounded = quantize if quantize in int4.KINDS else None
        if passed is None:
            self._decoder = self._proven(decoder, quantize, listing)
        else:
            if self._rounded is not None:
                int4.round_matrices(model, self._rounded, when_read=True)
            self._decoder = self._build("fused", quantize, {})
            self._compare(passed)
        self.shapes = self._decoder.shapes
        if self.memory() >= WORTH_RELEASING:
            release_files()

    def _proven(self, wanted: str, quantize: str | None, listing: bool) -> Decoder:
        """A decoder that gives the model's own logits."""
        model = self.model
        fix_rotation(model, self.max_length)
        seen = self._listed() if listing else None
        if self._rounded is not None:
            int4.round_matrices(
                model, self._rounded
            )  # before the probe: the model whose distribution is kept is the rounded one
        probe = Probe(model)
        shapes = probe.shapes()
        decoder = self._build(wanted, quantize, shapes)
        logits = probe.check(decoder)
        if seen is not None and isinstance(decoder, FusedDecoder):
            self.passed = replace(seen, logits=digest_of(logits))
        return decoder

    def _listed(self) -> Passed | None:
        """What the model holds, where that can be said."""
        try:
            return listed(self.model, self.max_length, context_limit(self.config))
        except Exception as error:  # whatever it is, the model itself is well
            log.info("nothing is kept of this %s (%s)", self.config.model_type, first_line(error))
            return None

    def _compare(self, passed: Passed) -> None:
        """Run the probe's tokens, whose logits must be those with which the model passed, bit for bit.

        Raises:
            Changed: they are not.
        """
        cache = self._decoder.new_cache(1, CAPACITY)
        found = run(self._decoder, cache, tokens_of(self.vocab_size), self.dtype, self.device)[-1]
        if digest_of(found) != passed.logits:
            raise Changed("its logits are not those with which it passed the probe")

    def _build(self, wanted: str, quantize: str | None, shapes: Mapping[int, LayerShape]) -> Decoder:
        length = max(self.max_length, CAPACITY)
        for kind in decoders_on(self.device):
            if wanted in ("auto", kind.name):
                decoder = kind.build(self.model, shapes, length=length, quantize=quantize, packed=self._packed)
                if decoder is not None:
                    return decoder
        if wanted != "auto":
            raise UnsupportedModel(
                f"the {wanted} decoder does not take this {self.config.model_type}", hint="leave the choice to 'auto'"
            )
        raise UnsupportedModel(
            f"nothing here runs this {self.config.model_type} with weights in {quantize}",
            hint="leave quantize out: it then runs in its own dtype",
        )

    @property
    def decoder(self) -> str:
        """Which forward runs: "fused", "lean" or "modules"."""
        return self._decoder.name

    @property
    def quantize(self) -> str | None:
        """ "int8" or "int4" where the weights are whole numbers of so many bits, or None."""
        return self._decoder.quantize

    @property
    def weights_in_words(self) -> str:
        """What the weights are, for people."""
        if self.blocks and "; rows" in self.blocks[0]:
            return self.blocks[0]
        if self.blocks:
            return f"GGUF blocks {', '.join(self.blocks)}; rows rounded to int8 by 32"
        if self._rounded is not None:
            return f"rounded to {self.quantize} by {int4.GROUP}; rows rounded to int8 by {int4.GROUP}"
        if self.quantize is not None:
            return f"rounded to {self.quantize} by the output; rows rounded to int8 by the row"
        return str(self.dtype).removeprefix("torch.")

    @property
    def width_invariant(self) -> bool:
        """Whether a row's logits have the same bits in a forward of any width, by construction."""
        return self._decoder.width_invariant

    @property
    def can_exit(self) -> bool:
        """Whether forwards can end after some of the layers."""
        return self._decoder.can_exit

    @property
    def experts_touched(self) -> int | None:
        """How many experts the rows of the last forward chose: see `Decoder.experts_touched`."""
        return self._decoder.experts_touched

    def new_cache(self, slots: int) -> Slots:
        """An empty cache of this model's shape."""
        return self._decoder.new_cache(slots, self.max_length, self.cache_dtype)

    def cache_bytes(self, slots: int) -> int:
        """Bytes of such a cache."""
        states = self._decoder.states
        return cache_bytes(self.shapes, states, slots=slots, capacity=self.max_length, dtype=self.cache_dtype)

    def weights(self) -> Iterable[Tensor]:
        """All tensors it holds; some may share their memory."""
        return itertools.chain(self.model.parameters(), self.model.buffers(), self._decoder.weights())

    def memory(self) -> int:
        """Bytes of its weights, as they lie in memory."""
        return bytes_of(self.weights())

    def first_layers(self, count: int, gain: Tensor, output: Tensor, *, quantize: str | None = None) -> ModelRunner:
        """The same model left after so many layers, through another final norm and output matrix (where `can_exit`). It
        runs on caches of this one. gain: [d]. output: [V', d]; its logits have as many entries. quantize: of the output
        matrix alone, None, "int8" or "auto"."""
        made = copy.copy(self)
        made._decoder = self._decoder.first_layers(count, gain, output, quantize)
        made.layers, made.vocab_size = count, len(output)
        return made

    def laid_out(self) -> list[tuple[str, Product]]:
        """What the row kernels read, by the names by which a file holds it; nothing on other forwards."""
        return self._decoder.laid_out() if isinstance(self._decoder, FusedDecoder) else []

    def decoder_weights(self) -> Iterable[Tensor]:
        """The tensors that its forward alone holds."""
        return self._decoder.weights()

    @torch.inference_mode()
    def forward(
        self, segments: Sequence[Segment], cache: Slots, taps: Sequence[int] = (), layers: int | None = None
    ) -> Forward:
        """Run the segments' rows, and keep the hidden states of the layers in `taps`.

        Writes scratch beyond each slot's length; commits nothing (see `Slots.keep`). layers: run only so many of
        the first ones, then final norm and head (where `can_exit`).
        """
        with any_length(self.device):
            return self._decoder.run(Packed(segments, cache, self.dtype, self.device), taps, layers)
