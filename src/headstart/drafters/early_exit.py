"""Early exit: the target's own first layers, and its head, draft for all of its layers.

This takes no second model and no second cache: the first layers' keys and values of the committed text are the
target's own, and those of the guesses are scratch that the verifying forward writes again, with the same numbers. How
often the first layers agree with all of them depends on the model; one trained to be left early does far better than
one that was not. Which layer to leave after is found out by measurement (`choose_layer`).

Sources: Draft & Verify (arXiv:2309.08168), LayerSkip (arXiv:2404.16710).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Weights
from headstart.drafters.growing.first_layers import LONGEST, FirstLayersAhead, FirstLayersDrafter, check_exit, placed
from headstart.drafters.growing.grow import Residual
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.recipes import recipe_of
from headstart.model.recipes.experts import Experts
from headstart.model.recipes.recipe import Mlp
from headstart.model.runner import ModelRunner
from headstart.types import TreeKind

WEIGHTS: Weights = "none"

NEW_TOKENS = 32
"""Tokens of the target's own text on which the layers are compared."""
LAYERS = 6
"""How many layers are compared, evenly spread."""


class EarlyExitDrafter(FirstLayersDrafter):
    """Chains drawn from the target's first layers, or trees.

    Args:
        layer: how many layers draft; None lets `choose_layer` find it out.
        text: a prompt in token ids, which `choose_layer` continues.
        budget: nodes where the user chooses no number; None is a chain of 4, or a tree of 16.
        tree, width, depth, residual: see `DraftModel`.
    """

    name = "early-exit"

    def __init__(
        self,
        *,
        layer: int | None = None,
        text: Sequence[int] = (1,),
        budget: int | None = None,
        tree: TreeKind = "none",
        width: int = 8,
        depth: int | None = None,
        residual: Residual | None = None,
    ) -> None:
        if layer is not None:
            check_number("layer", layer, low=1, integer=True)
        super().__init__(budget=budget, tree=tree, width=width, depth=depth, residual=residual)
        self.layer = layer
        self._text = text
        self._target: ModelRunner | None = None

    def attach(self, target: ModelRunner, cache: Slots) -> None:
        check_exit(target, self.layer)
        self._target, self._cache = target, cache
        if self.layer is None:
            self.layer = choose_layer(target, cache, self._text)

    def logits(self, segments: Sequence[Segment], cache: Slots) -> Tensor:
        assert self._target is not None, "a drafter is attached before it drafts"
        return self._target.forward(segments, cache, layers=self.layer).logits


def build(context: BuildContext) -> EarlyExitDrafter | FirstLayersAhead:
    made = EarlyExitDrafter(
        text=context.sample, budget=context.budget, tree=context.tree or "none", residual=context.residual
    )
    return placed(made, context)


def choose_layer(target: ModelRunner, cache: Slots, prompt: Sequence[int]) -> int:
    """The layer after which drafts should pay most, by agreement on a text of the target's own.

    For each candidate: a, the share of positions at which its likeliest token is the target's, and c, its share of
    a forward's weights; the best K with i.i.d. acceptance then promises (1 - a^(K+1)) / ((1 - a) (1 + c K)). No clock
    has a part in it, because a seed's text may depend on the drafts, and so on the layer.
    """
    slot = cache.acquire()
    try:
        text = _own_text(target, cache, slot, prompt)
        cache.rewind(slot, 0)
        whole = Segment(slot, tuple(text), judged=min(len(text), NEW_TOKENS))
        wanted = target.forward([whole], cache).logits.argmax(-1)
        best = (0.0, 1)
        for layer in range(1, target.layers, max(1, round((target.layers - 1) / LAYERS))):
            guessed = target.forward([whole], cache, layers=layer).logits.argmax(-1)
            agreement = min(0.99, float((guessed == wanted).double().mean()))
            best = max(best, (_promise(agreement, _share(target, layer)), layer))
        return best[1]
    finally:
        cache.release(slot)


def _share(target: ModelRunner, layers: int) -> float:
    """Of a forward's weights, what so many layers and the head read (attention counted as four square matrices)."""
    recipe = recipe_of(target.config)  # decoders that can be left early have one
    fed = [_outputs(layer.feed_forward) for layer in recipe.layers if layer.feed_forward is not None]
    head = target.vocab_size / (4 * recipe.width + sum(fed) / len(fed))
    return float((layers + head) / (target.layers + head))


def _outputs(fed: Mlp | Experts) -> int:
    """Vectors of the stream's width that the matrices of an MLP hold; of experts those that one row chooses."""
    if isinstance(fed, Mlp):
        return (3 if fed.gated else 2) * fed.width
    return (3 if fed.gated else 2) * fed.router.chosen * fed.width + (0 if fed.shared is None else _outputs(fed.shared))


def _own_text(target: ModelRunner, cache: Slots, slot: int, prompt: Sequence[int]) -> list[int]:
    """The prompt and the target's greedy continuation."""
    text = list(prompt[: max(1, target.max_length // 2)])
    while len(text) < min(len(prompt) + NEW_TOKENS, target.max_length):
        feed = tuple(text[cache.lengths[slot] :])
        logits = target.forward([Segment(slot, feed)], cache).logits
        cache.keep(slot, len(feed))
        text.append(int(logits[0].argmax()))
    return text


def _promise(a: float, c: float) -> float:
    return max((1 - a ** (k + 1)) / ((1 - a) * (1 + c * k)) for k in range(1, LONGEST + 1))
