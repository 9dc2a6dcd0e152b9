"""What the engine takes of a drafter: a draft that keeps to the protocol, with a q that is a distribution.

Under rule "exact" the rule divides by q, and takes q away from what the target has left. The target's distribution is
kept where every token was drawn from its row of q. Nobody can see that, but these make it impossible and can be seen: a
weight below 0, a row that does not sum to 1, and a token to which its own row gives no probability.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import DrafterFailed
from headstart.rule.processors import Place
from headstart.rule.softmax import softmax
from headstart.types import CaughtUp, Draft, Preparation

_ROUNDED = 1e-5
"""Sums of probabilities in float32 are no further from 1. Such a row is taken as it is: the target's own probabilities
are rounded as much."""
_NEAR = 5e-3
"""Sums of probabilities in bfloat16 are no further from 1: each is rounded by at most 2**-9 of itself, and once more if
it was divided by its sum. Such a row is divided by its sum. One further off is not just rounded: its drafter means
something else by q."""
_SMALLEST = float(np.finfo(np.float32).tiny)
"""No token that was drawn has a smaller probability, and p / q cannot overflow."""


class DraftCheck:
    """Takes drafts over in plain numbers on the host, whatever tensors and integers they were made of."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._vocabularies: dict[str, _Columns] = {}

    def take(self, draft: Any, nodes: int, name: str) -> Draft:
        """The draft as the engine uses it.

        nodes: the most that it may have. name: of the drafter, for a draft that does not say its source.

        Raises:
            DrafterFailed: it does not keep to the protocol.
        """
        if not isinstance(draft, Draft):
            raise _refused(f"it is a {type(draft).__name__}, not a Draft")
        if len(draft.tokens) > nodes:
            raise _refused(f"{len(draft.tokens)} nodes for a budget of {nodes}")
        try:
            tokens, parents = tuple(map(index, draft.tokens)), tuple(map(index, draft.parents))
            expected = None if draft.expected is None else float(draft.expected)
        except (TypeError, ValueError) as error:
            raise _refused(str(error)) from error
        if tokens and not 0 <= min(tokens) <= max(tokens) < self._vocab_size:
            raise _refused(f"a draft token is outside the vocabulary of {self._vocab_size}")
        source = draft.source or (name if tokens else "")
        prepared = draft.prepared
        if not isinstance(source, str) or not (prepared is None or isinstance(prepared, Preparation)):
            raise _refused("`source` is not a name, or `prepared` not a Preparation")
        caught_up = _caught_up(draft.caught_up)
        passed_over = tuple([self.take(each, sys.maxsize, name) for each in draft.passed_over])
        q = vocabulary = None
        if draft.q is not None and tokens:
            known = None if draft.vocabulary is None else self._columns(draft.vocabulary, source)
            q = self._q(draft.q, tokens, known)
            vocabulary = None if known is None else known.ids
        try:
            return Draft(tokens, parents, q, source, expected, passed_over, prepared, vocabulary, caught_up=caught_up)
        except ValueError as error:
            raise _refused(str(error)) from error

    def _columns(self, vocabulary: Any, source: str) -> _Columns:
        """Of a reduced vocabulary. Each source's last one is looked through once."""
        ids = _on_the_host(vocabulary, "vocabulary")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise _refused(f"a vocabulary must be [W] token ids; it is {ids.dtype} {list(ids.shape)}")
        known = self._vocabularies.get(source)
        if known is None or not known.are(ids):
            known = self._vocabularies[source] = _Columns(ids, self._vocab_size)
        return known

    def _q(self, given: Any, tokens: Sequence[int], known: _Columns | None) -> Tensor:
        """q [N, W] in float32 or float64, each row a distribution that can have given its token."""
        q = _on_the_host(given, "q")
        width = self._vocab_size if known is None else len(known)
        if q.shape != (len(tokens), width):
            raise _refused(f"q has the shape {q.shape}, not {(len(tokens), width)}")
        drawn = tokens if known is None else known.of(tokens)
        if min(drawn) < 0:
            raise _refused("a draft token is not in the draft's own vocabulary")
        least, sums = softmax().sums(q)
        if not least >= 0:  # a NaN is not
            raise _refused(f"q is no distribution: it has the weight {least:.3g}")
        low, *_, high = sorted([*sums, 1.0])
        if low < 1 - _NEAR or high > 1 + _NEAR:
            raise _refused(f"q is no distribution: its rows sum to {low:.6g} to {high:.6g}")
        if min(map(q.item, range(len(tokens)), drawn)) < _SMALLEST:
            raise _refused("q gives a draft token the probability 0, so the token was not drawn from it")
        near = low > 1 - _ROUNDED and high < 1 + _ROUNDED
        return torch.from_numpy(q if near else q / np.array(sums, q.dtype)[:, None])


def _caught_up(given: Any) -> tuple[CaughtUp, ...]:
    """What was read, in whole numbers."""
    if not given and isinstance(given, tuple):
        return ()  # of nearly all drafts
    if not isinstance(given, Sequence) or not all(isinstance(each, CaughtUp) for each in given):
        raise _refused("`caught_up` is not of `CaughtUp`")
    try:
        found = tuple([CaughtUp(each.source, index(each.read), index(each.unread)) for each in given])
    except TypeError as error:
        raise _refused(f"`caught_up` counts no tokens: {error}") from error
    if not all(isinstance(each.source, str) and each.read >= 0 and each.unread >= 0 for each in found):
        raise _refused("`caught_up` names no source, or counts fewer tokens than none")
    return found


def allowed_part(draft: Draft, place: Place) -> Draft:
    """A draft of point masses without the nodes that a grammar forbids, and what is below them: no row of the target is
    spent on what cannot be accepted. place: that after x0.

    Never to be applied to a draft that was drawn. There a node that cannot be accepted must be *rejected*, so that the
    rule draws from what is left of the target's distribution; without the node it would draw from all of it, and the
    choice between drafts, which depends on what was drawn, would change the distribution.
    """
    assert draft.q is None, "drawn nodes stay"
    places = {-1: (place, -1)}  # by node that stays, where it leads and its new number
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        above, _ = places.get(parent, (None, 0))
        if above is not None and above.allows(token):
            places[node] = above.after((token,)), len(places) - 1
    if len(places) > len(draft):
        return draft
    kept = [node for node in places if node >= 0]
    return replace(
        draft,
        tokens=tuple(draft.tokens[node] for node in kept),
        parents=tuple(places[draft.parents[node]][1] for node in kept),
        source=draft.source if kept else "",
        expected=None if draft.expected is None else min(draft.expected, len(kept)),
    )


class _Columns:
    """The columns of a q over a part of the vocabulary; a copy, so that nothing changes under the rule's hands."""

    def __init__(self, ids: NDArray[Any], vocab_size: int) -> None:
        if not ids.size or not 0 <= ids.min() <= ids.max() < vocab_size or np.unique(ids).size < ids.size:
            raise _refused(f"a vocabulary must name tokens below {vocab_size}, each once")
        self._tokens = ids.astype(np.int64)
        self._places = np.full(vocab_size, -1)
        self._places[self._tokens] = np.arange(ids.size)
        self.ids = torch.from_numpy(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def are(self, ids: NDArray[Any]) -> bool:
        # NumPy's comparison takes several times as long, at every draft
        return ids.astype(np.int64, copy=False).tobytes() == self._tokens.tobytes()

    def of(self, tokens: Sequence[int]) -> list[int]:
        """The column of each token, -1 for one that it has not."""
        return [self._places.item(token) for token in tokens]


def _on_the_host(given: Any, name: str) -> NDArray[Any]:
    """The numbers of a tensor; those that NumPy has no type for, or that are no probabilities, as float32."""
    if not isinstance(given, Tensor) or given.layout is not torch.strided or given.is_complex():
        raise _refused(f"{name} is no dense tensor of real numbers")
    try:
        host = given.detach().cpu()
        if name == "q" and host.dtype not in (torch.float32, torch.float64):
            host = host.float()
        return host.numpy()
    except (RuntimeError, TypeError) as error:  # NotImplementedError, of the meta device, is a RuntimeError
        raise _refused(f"{name} cannot be read: {error}") from error


def _refused(why: str) -> DrafterFailed:
    return DrafterFailed(
        f"a draft was refused: {why}",
        hint="the text is the target's own; docs/guides/write-a-drafter.md says what a draft must be",
    )
