"""Early exit: the target's own first layers, and its head, guess what all of its layers will say.

No second model, no second cache: the first layers' keys and values of the committed text are the target's own, and
those of the guesses are scratch that the verifying forward writes again, with the same numbers. How well the first
layers speak for all depends on the model; one trained to be left early does far better than one that was not. Which
layer to
leave after is found out by measurement (`choose_layer`).

Sources: Draft & Verify (arXiv:2309.08168), LayerSkip (arXiv:2404.16710).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from headstart.drafters import DraftContext, Drafter
from headstart.drafters.drawing import Guess, draw
from headstart.errors import UnsupportedModel
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.options import check_number
from headstart.types import Draft

NEW_TOKENS = 32
"""Tokens of the target's own text on which the layers are compared."""
LAYERS = 6
"""How many of them are, evenly spread."""


class EarlyExitDrafter(Drafter):
    """Chains drawn from the target's first layers.

    layer: how many layers draft; None lets `choose_layer` find it out on `text`, a prompt in token ids.
    """

    name = "early-exit"
    limit = 8

    def __init__(self, *, layer: int | None = None, text: Sequence[int] = (1,), budget: int = 4) -> None:
        if layer is not None:
            check_number("layer", layer, low=1, integer=True)
        check_number("budget", budget, low=0, integer=True)
        self.default_budget = budget
        self.layer = layer
        self._text = text
        self._target: ModelRunner | None = None
        self._cache: Slots | None = None

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        if not target.can_exit:
            raise UnsupportedModel(
                f"{target.config.model_type} runs through transformers' own modules, which cannot be left early",
                hint="early exit works for Llama, Mistral, Qwen2 and Qwen3; use another drafter, such as 'suffix'",
            )
        if self.layer is not None and self.layer >= target.layers:
            raise UnsupportedModel(
                f"the target has {target.layers} layers, which cannot be left after {self.layer}",
                hint=f"choose a layer from 1 to {target.layers - 1}",
            )
        if target.layers < 2:
            raise UnsupportedModel("a target of one layer cannot be left early", hint="use another drafter")
        self._target, self._cache = target, cache
        if self.layer is None:
            self.layer = choose_layer(target, cache, self._text)

    def propose(self, contexts: Sequence[DraftContext]) -> list[Draft]:
        assert self._cache is not None, "a drafter is attached before it is asked"
        guesses = [_Guess(context, self._cache) for context in contexts]
        try:
            draw(guesses, self._next)
        finally:
            for guess in guesses:
                self._cache.rewind(guess.context.slot, guess.begin)
        return [guess.draft() for guess in guesses]

    def _next(self, live: Sequence[_Guess]) -> Tensor:
        assert self._target is not None, "as above"
        assert self._cache is not None, "as above"
        segments = [Segment(guess.context.slot, (guess.last,)) for guess in live]
        logits = self._target.forward(segments, self._cache, layers=self.layer).logits
        for guess in live:
            self._cache.keep(guess.context.slot, 1)
        return logits


class _Guess(Guess):
    """A guess on the target's own cache slot, which held `begin` tokens before."""

    def __init__(self, context: DraftContext, cache: Slots) -> None:
        self.begin = cache.lengths[context.slot]
        # While a prompt is still unread there is nothing to stand on
        ready = self.begin == len(context.tokens) - 1
        super().__init__(context, min(context.budget, cache.capacity - len(context.tokens)) if ready else 0)

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.context.tokens[-1]


def choose_layer(target: ModelRunner, cache: Slots, prompt: Sequence[int]) -> int:
    """The layer after which drafts should pay most, by agreement on a text of the target's own.

    For each candidate: a, the share of positions at which its likeliest token is the target's, and c, its share of
    a forward's weights; the best K with i.i.d. acceptance then promises (1 - a^(K+1)) / ((1 - a) (1 + c K)). No clock
    has
    a part in it: a seed's text may depend on the drafts, and so on the layer.
    """
    slot = cache.acquire()
    try:
        text = _own_text(target, cache, slot, prompt)
        cache.rewind(slot, 0)
        whole = Segment(slot, tuple(text), judged=min(len(text), NEW_TOKENS))
        said = target.forward([whole], cache).logits.argmax(-1)
        best = (0.0, 1)
        for layer in range(1, target.layers, max(1, round((target.layers - 1) / LAYERS))):
            guessed = target.forward([whole], cache, layers=layer).logits.argmax(-1)
            agreement = min(0.99, float((guessed == said).double().mean()))
            best = max(best, (_promise(agreement, _share(target, layer)), layer))
        return best[1]
    finally:
        cache.release(slot)


def _share(target: ModelRunner, layers: int) -> float:
    """Of a forward's weights, what so many layers and the head read (attention counted as four square matrices)."""
    config = target.config
    width = config.hidden_size
    head = target.vocab_size / (4 * width + 3 * config.intermediate_size)
    return float((layers + head) / (target.layers + head))


def _own_text(target: ModelRunner, cache: Slots, slot: int, prompt: Sequence[int]) -> list[int]:
    """The prompt and what the target goes on to say, greedily."""
    text = list(prompt[: max(1, target.max_length // 2)])
    while len(text) < min(len(prompt) + NEW_TOKENS, target.max_length):
        feed = tuple(text[cache.lengths[slot] :])
        logits = target.forward([Segment(slot, feed)], cache).logits
        cache.keep(slot, len(feed))
        text.append(int(logits[0].argmax()))
    return text


def _promise(a: float, c: float) -> float:
    return max((1 - a ** (k + 1)) / ((1 - a) * (1 + c * k)) for k in range(1, EarlyExitDrafter.limit + 1))
