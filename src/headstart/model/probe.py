"""Does a model give its own logits through our cache and attention? Asked once, at load, on its own weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headstart.base.errors import UnsupportedModel
from headstart.model.cache import KVCache, LayerShape, Slots
from headstart.model.decoders import Decoder
from headstart.model.decoders.attention import attend_in
from headstart.model.decoders.linears import lies_by_inputs
from headstart.model.decoders.modules import ModulesDecoder
from headstart.model.packed import Packed, Segment
from headstart.model.reading import first_line
from headstart.model.recipes import Recipe, find_recipe
from headstart.types import Draft

TOKENS = 7
_LAST = 3
"""Rows of the tree that are its chain, but for its root."""
CAPACITY = 4 * TOKENS
"""Positions that a decoder must have for this."""

_USUAL, _MOST = 0.1, 0.5
"""The largest error, relative to the spread of the logits, of a right forward in bf16 or float16; and whatever a model
makes of rounding, since wrong positions or masks are off by no more than this at times."""
_SMALL = 0.02
"""An error of one draw below this is that of a model that magnifies no rounding: no later draw counts."""
_DRAWS = 8


class Probe:
    """A few tokens of a transformers model, and the logits after them by its own attention.

    They are run as a prefix with a draft, of which one token is kept, and then as a tree. Refused is any model for
    which the logits differ: positions that cannot be driven, attention biases, layers that share or lack keys and
    values, states that a rejected token has changed.
    """

    @torch.inference_mode()
    def __init__(self, model: Any) -> None:
        self._model = model
        text = model.config.get_text_config()
        self._tokens = tokens_of(int(text.vocab_size))
        self._layers = int(text.num_hidden_layers)
        model.set_attn_implementation("eager")
        try:
            with _without_kernels():
                found = model(torch.tensor([self._tokens], device=model.device), use_cache=False).logits
        except Exception as error:  # of the model's own modules, on whatever its config says
            raise UnsupportedModel(
                f"{model.config.model_type} does not run as its config describes it: {first_line(error)}",
                hint="compare config.json with the original's",
            ) from error
        self._plain = found[0, -_LAST:].float()
        recipe = find_recipe(model.config)
        self._mixes = recipe is not None and bool(recipe.experts)
        attend_in(model)
        self._most = 1e-3 if model.dtype in (torch.float32, torch.float64) else _USUAL

    def shapes(self) -> dict[int, LayerShape]:
        """What each attention layer stores: by the model's recipe, and without one learnt from a forward of
        transformers' modules.

        Raises:
            UnsupportedModel: the model has no recipe, and cannot be driven or gives other logits.
        """
        recipe = find_recipe(self._model.config)
        if recipe is not None and recipe.recurrent:
            return _stored(recipe)
        if self._rounds():
            self._most = min(max(self._most, 1.5 * self._rounding()), _MOST)
        if recipe is not None:
            return _stored(recipe)
        recorder = _ShapeRecorder()
        found = self._logits(ModulesDecoder(self._model, recorder.shapes), recorder)
        self._judge(self._off(found), None, reached=len(recorder.shapes))
        return recorder.shapes

    def check(self, decoder: Decoder) -> Tensor:
        """The decoder's logits [V] of the last token; raises `UnsupportedModel` unless they are the model's."""
        found = self._logits(decoder, decoder.new_cache(1, CAPACITY))
        self._judge(self._off(found), decoder.quantize, reached=self._layers)
        return found[-1]

    def _logits(self, decoder: Decoder, cache: Slots) -> Tensor:
        model = self._model
        try:
            return run(decoder, cache, self._tokens, model.dtype, model.device, rows=_LAST if self._mixes else 1)
        except (TypeError, AttributeError, RuntimeError) as error:
            raise UnsupportedModel(
                f"{model.config.model_type} cannot be driven through transformers' attention interface: {error}",
                hint="choose a model whose layers pass keyword arguments to their attention (Llama, Qwen, ...)",
            ) from error

    def _rounds(self) -> bool:
        """Whether a right forward may be off by more than the order of its sums."""
        return self._most >= _USUAL or next(self._coded(), None) is not None

    def _coded(self) -> Iterator[nn.Module]:
        """The linear layers whose weights are codes."""
        from headstart.model.decoders.grouped import GroupedLinear

        return (module for module in self._model.modules() if isinstance(module, GroupedLinear))

    @torch.inference_mode()
    def _rounding(self) -> float:
        """The largest error of the model's own forward when each number out of a product is off by up to a rounding,
        and each row that goes into a product with codes by up to a rounding to 8 bits.

        Gemma 4 does not scale its scores: with random weights they are far apart, and every layer magnifies what the
        one before it rounded. Then transformers' own logits are as far from those in float32 as ours are from both.
        """
        model = self._model
        generator = torch.Generator().manual_seed(0)

        def rounded(_module: Any, given: tuple[Tensor]) -> Tensor:
            (rows,) = given
            turn = torch.rand(rows.shape, generator=generator).to(rows.device) - 0.5
            return (rows + turn * rows.abs().amax(-1, keepdim=True) / 127).to(rows.dtype)

        def off(_module: Any, _given: Any, out: Tensor) -> Tensor:
            turn = torch.rand(out.shape, generator=generator).to(out.device) - 0.5
            return (out.float() * (1 + torch.finfo(out.dtype).eps * turn)).to(out.dtype)

        coded = list(self._coded())
        linears = [each for each in model.modules() if isinstance(each, nn.Linear) or lies_by_inputs(each)]
        hooks = [linear.register_forward_hook(off) for linear in (*linears, *coded)]
        hooks += [linear.register_forward_pre_hook(rounded) for linear in coded]
        model.set_attn_implementation("eager")
        try:
            # all draws at once: a mixture then reads its experts once for them
            given = torch.tensor([self._tokens], device=model.device).repeat(_DRAWS, 1)
            errors = [self._off(logits[-1:]) for logits in model(given, use_cache=False).logits]
        finally:
            attend_in(model)
            for hook in hooks:
                hook.remove()
        small = next((number for number, error in enumerate(errors) if error < _SMALL), _DRAWS)
        return max(0.0, *errors[: small + 1])

    def _off(self, logits: Tensor) -> float:
        """The largest error of the last logits [n, V], relative to their spread: that of the nearest of the n rows.

        There are several of a mixture of experts: a row whose scores are nearly alike takes another expert when they
        are rounded, and is then far off, as a wrong position or mask makes all rows.
        """
        plain = self._plain[-len(logits) :]
        spread = (plain.amax(-1) - plain.amin(-1)).clamp(min=1e-6)
        return float(((plain - logits.float()).abs().amax(-1) / spread).min())

    def _judge(self, error: float, quantize: str | None, *, reached: int) -> None:
        # whole numbers round by up to 0.15 on a real model; a wrong position or mask is off by far more
        most = self._most if quantize is None else max(self._most, 0.25)
        # NaN weights are reported where they act, as NonFiniteLogits of the request
        if reached == self._layers and not error > most:
            return
        raise UnsupportedModel(
            f"{self._model.config.model_type} does not give its own logits through this engine's cache "
            f"({reached} of {self._layers} layers reached, relative error {error:.2g})",
            hint="its positions, masks or cache differ from plain softmax attention; please report the model"
            if self._most <= _USUAL
            else f"it magnifies what {self._model.dtype} rounds: dtype='float32' may run it".replace("torch.", ""),
        )


def tokens_of(vocabulary: int) -> list[int]:
    """The tokens of the probe, for a model with so many."""
    generator = torch.Generator().manual_seed(0)
    found: list[int] = torch.randint(vocabulary, (TOKENS,), generator=generator).tolist()
    return found


@torch.inference_mode()
def run(
    decoder: Decoder, cache: Slots, tokens: Sequence[int], dtype: torch.dtype, device: torch.device, *, rows: int = 1
) -> Tensor:
    """The logits [rows, V] after the last tokens, in two forwards: a prefix with a draft of which one token is kept,
    and a tree."""
    half = TOKENS // 2
    # of a draft of three the second is kept: what the others left must not be seen
    first = Draft((tokens[0], tokens[half - 1], tokens[1]), (-1, -1, 1))
    decoder.run(Packed([Segment(0, tuple(tokens[: half - 1]), first)], cache, dtype, device))
    cache.keep(0, half - 1, (1,))
    # [x0 | a sibling that must stay unseen, then the true chain]: position, mask and path all matter
    rest = tokens[half + 1 :]
    draft = Draft((tokens[0], *rest), (-1, -1, *range(1, len(rest))))
    return decoder.run(Packed([Segment(0, (tokens[half],), draft, judged=rows)], cache, dtype, device)).logits


@contextmanager
def _without_kernels() -> Iterator[None]:
    """Keep off the terminal that transformers lacks fast kernels for recurrent layers: its modules run once."""
    logger = logging.getLogger("transformers.integrations.hub_kernels")

    def wanted(record: logging.LogRecord) -> bool:
        return "falling back to its reference" not in record.getMessage()

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


def _stored(recipe: Recipe) -> dict[int, LayerShape]:
    """What transformers' modules store: also the layers that attend to the keys of another (Gemma 4) do."""
    attentions = ((i, layer.attends) for i, layer in enumerate(recipe.layers))
    return {i: LayerShape(*each.kept_by_modules) for i, each in attentions if each is not None}


class _ShapeRecorder(KVCache):
    """A one-slot cache that grows its layers as they are first written, to learn their shapes."""

    def __init__(self) -> None:
        super().__init__({}, slots=1, capacity=CAPACITY, dtype=torch.float32, device=torch.device("cpu"))
        self.shapes: dict[int, LayerShape] = {}

    def write(self, layer: int, slot: int, start: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer not in self.shapes:
            self.shapes[layer] = LayerShape(key.shape[0], key.shape[2], value.shape[2])
            self.keys[layer] = key.new_empty(1, key.shape[0], self.capacity, key.shape[2])
            self.values[layer] = value.new_empty(1, value.shape[0], self.capacity, value.shape[2])
        return super().write(layer, slot, start, key, value)
