"""Predicted output: the request comes with a text that its answer should largely repeat, and that text is the draft.

An editor that asks for a file with one name changed knows nearly all of the answer. A pointer walks through the
predicted tokens: while the text follows them, the tokens behind the pointer are the draft. Where the text leaves them,
the place at which it comes back is found by its last tokens. Guesses are point masses, so the text is the target's own
whatever was predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Drafter, Row, Weights
from headstart.types import Draft

WEIGHTS: Weights = "none"

SURE = 3
"""Tokens of the text that must occur in the prediction, for the text to have come back to it there."""
NEAR = 24
"""So many tokens behind the place where the text has left the prediction, one token is enough."""
LONGEST = 32
"""Tokens by which places are compared."""
PLACES = 64
"""Places that are compared, nearest first: a prediction may repeat itself without end."""


class PredictionDrafter(Drafter):
    """Chains copied from `Drafting.prediction`; nothing for requests without one."""

    name = "prediction"
    limit = 63
    draws = False
    copies = True

    def __init__(self, *, budget: int | None = None) -> None:
        self.default_budget = 16 if budget is None else budget
        check_number("budget", self.default_budget, low=0, integer=True)
        self._pointers: dict[int, _Pointer] = {}

    def applies(self, row: Row) -> bool:
        return bool(row.drafting.prediction)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [self._one(row) for row in rows]

    def release(self, request: int) -> None:
        self._pointers.pop(request, None)

    def beyond(self, row: Row, tokens: Sequence[int], most: int) -> Draft:
        if not row.drafting.prediction:
            return Draft()
        return replace(Draft.chain(self._pointer(row).beyond(row.tokens, tokens, most)), source=self.name)

    def _one(self, row: Row) -> Draft:
        return Draft.chain(self._pointer(row).next(row.budget.nodes))

    def _pointer(self, row: Row) -> _Pointer:
        pointer = self._pointers.get(row.request)
        if pointer is None:
            pointer = self._pointers[row.request] = _Pointer(row.drafting.prediction, row.prompt_tokens)
        pointer.follow(row.tokens)
        return pointer


def build(context: BuildContext) -> PredictionDrafter:
    return PredictionDrafter(budget=context.budget)


class _Pointer:
    """The place of a text in its prediction.

    Args:
        prediction: the predicted tokens.
        read: tokens of the text that come before the first predicted one: the prompt.
    """

    def __init__(self, prediction: Sequence[int], read: int) -> None:
        self._prediction = prediction
        self._read = read
        self._at: int | None = 0  # the predicted token that should come next; None where the text is elsewhere
        self._left = 0  # up to here the text has followed
        self._refused: set[int] = set()  # places of tokens that did not come
        self._places: dict[tuple[int, ...], list[int]] | None = None

    def next(self, count: int) -> Sequence[int]:
        """The predicted tokens that should come next, at most `count`, and none that was refused before."""
        at = self._at
        if at is None:
            return ()
        return self._prediction[
            at : min((place for place in self._refused if at <= place < at + count), default=at + count)
        ]

    def beyond(self, tokens: Sequence[int], more: Sequence[int], count: int) -> Sequence[int]:
        """The predicted tokens that should come after `more`, which follows the text so far and may not come."""
        at = self._at
        if at is not None and tuple(self._prediction[at : at + len(more)]) == tuple(more):
            at += len(more)
        else:
            at = self._found((*tokens[-LONGEST:], *more))
        return () if at is None else self._prediction[at : at + count]

    def follow(self, tokens: Sequence[int]) -> None:
        """Take in what the text has gained since the last time. tokens: all of it."""
        new = tokens[self._read :]
        self._read += len(new)
        if not new:
            return
        if self._at is not None:
            expected = self._prediction[self._at : self._at + len(new)]
            pairs = enumerate(zip(new, expected, strict=False))
            right = next((i for i, (token, guess) in pairs if token != guess), len(expected))
            if right:
                self._left = self._at + right
            if right == len(new):
                self._at = self._left
                return
            self._refused.add(self._at + right)
        self._at = self._found(tokens)

    def _found(self, tokens: Sequence[int]) -> int | None:
        """Where the text has come back to the prediction: the place behind the longest of its suffixes that stands
        there, rather after the place where it left than before it; or behind its last token, if that is near. Not where
        a token was refused: in text that repeats itself the same wrong guess would come again and again."""
        if self._places is None:
            self._places = _index(self._prediction)
        places = [place for place in self._places.get(tuple(tokens[-SURE:]), ()) if place not in self._refused]
        for some in ([place for place in places if place >= self._left][:PLACES], places[-PLACES:]):
            if some:  # of equals the first wins
                return max(some, key=lambda place: self._matched(place, tokens))
        near = (place for place in range(self._left, self._left + NEAR) if place + 1 not in self._refused)
        return next((place + 1 for place in near if self._prediction[place : place + 1] == tokens[-1:]), None)

    def _matched(self, place: int, tokens: Sequence[int]) -> int:
        """How many of the text's last tokens are before a place of the prediction."""
        most = min(place, len(tokens), LONGEST)
        same = SURE
        while same < most and self._prediction[place - 1 - same] == tokens[-1 - same]:
            same += 1
        return same


def _index(tokens: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    """By each run of `SURE` tokens, the places behind it, in order."""
    found: dict[tuple[int, ...], list[int]] = {}
    for end in range(SURE, len(tokens) + 1):
        found.setdefault(tuple(tokens[end - SURE : end]), []).append(end)
    return found
