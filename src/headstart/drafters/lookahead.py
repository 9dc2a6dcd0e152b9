"""Lookahead: the target guesses for itself, by solving several future tokens at once and keeping the n-grams it meets.

A window of W columns and N - 1 levels is a Jacobi iteration at work: each step the target's own likeliest tokens after
the lowest level become a new level, and each column, read downwards, an n-gram that the target once found plausible.
The n-grams that begin with the pending token are this step's guesses. Window and guesses are one draft tree: level 0 is
a chain, element i of any other level hangs below element i of the level before it, so ancestors are just what it must
see, and depth is its position. The rule judges all of it as point masses; even the window's own tokens are accepted
where they are right.

Source: lookahead decoding (arXiv:2402.02057). No weights; it pays where rows are nearly free.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from headstart.base.options import check_number
from headstart.drafters import BuildContext, Drafter, Observation, Row, Weights
from headstart.types import Draft

WEIGHTS: Weights = "none"


class LookaheadDrafter(Drafter):
    """Trees of guesses and window.

    Args:
        window: W, columns of the window.
        ngram: N, tokens of an n-gram, of which N - 1 are guessed.
        guesses: G, n-grams that are tried in a step, and kept for each first token.
        budget: nodes where the user chooses no number; None takes what W, N and G need.
    """

    name = "lookahead"
    draws = False

    def __init__(self, *, window: int = 5, ngram: int = 4, guesses: int = 5, budget: int | None = None) -> None:
        check_number("window", window, low=1, integer=True)
        check_number("ngram", ngram, low=2, integer=True)
        check_number("guesses", guesses, low=1, integer=True)
        self._window, self._levels, self._guesses = window, ngram - 1, guesses
        self._full = self._levels * (window + guesses)
        if budget is not None:
            check_number("budget", budget, low=0, integer=True)
        self.default_budget = self._full if budget is None else budget
        self._memories: dict[int, _Memory] = {}

    @property
    def limit(self) -> int:
        return self._full

    @property
    def sizes(self) -> Sequence[tuple[int, int]]:
        """One: a smaller window would not feed the guesses."""
        return ((self._full, self._levels),)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [self._one(row) for row in rows]

    def observe(self, observation: Observation) -> None:
        memory = self._memories.get(observation.step.request)
        if memory is None or observation.distributions is None:
            return
        if memory.sent and observation.step.draft.tokens == memory.sent:
            memory.learn(observation.distributions.argmax, self._levels)

    def release(self, request: int) -> None:
        self._memories.pop(request, None)

    def _one(self, row: Row) -> Draft:
        memory = self._memories.get(row.request)
        if memory is None:
            memory = self._memories[row.request] = _Memory(row.tokens, self._window, self._guesses)
        memory.follow(row.tokens, self._levels)
        return memory.draft(row.tokens[-1], row.budget.nodes)


def build(context: BuildContext) -> LookaheadDrafter:
    return LookaheadDrafter(budget=context.budget)


class _Memory:
    """One request: its window, its n-grams, and the tree it was last given."""

    def __init__(self, tokens: Sequence[int], window: int, guesses: int) -> None:
        random = Random(len(tokens))  # any tokens will do to begin with, the same ones every time
        self.levels = [[random.choice(tokens) for _ in range(window)]]
        self.sent: tuple[int, ...] = ()
        self._pool: dict[int, dict[tuple[int, ...], None]] = {}
        self._guesses = guesses
        self._lowest: list[int] = []  # nodes of the window's last level
        self._read = 0

    def follow(self, tokens: Sequence[int], length: int) -> None:
        """Keep the n-grams of the text itself, too."""
        for begin in range(self._read, len(tokens) - length):
            self._keep(tokens[begin], tuple(tokens[begin + 1 : begin + 1 + length]))
        self._read = max(self._read, len(tokens) - length)

    def draft(self, first: int, budget: int) -> Draft:
        """Guesses after `first`, then the window, as far as the budget goes: half of it for each."""
        tokens: list[int] = []
        parents: list[int] = []
        below: dict[tuple[int, int], int] = {}
        for guess in reversed(self._pool.get(first, {})):  # the latest first
            room = max(budget - len(self.levels), budget // 2) - len(tokens)
            if room <= 0:
                break
            parent = -1
            for token in guess[:room]:
                node = below.get((parent, token))
                if node is None:
                    node = below[parent, token] = len(tokens)
                    tokens.append(token)
                    parents.append(parent)
                parent = node
        columns = min(len(self.levels[0]), (budget - len(tokens)) // len(self.levels))
        above: list[int] = []
        for level in self.levels:
            nodes: list[int] = []
            for i, token in enumerate(level[:columns]):
                parents.append(above[i] if above else nodes[i - 1] if i else -1)
                nodes.append(len(tokens))
                tokens.append(token)
            above = nodes
        self._lowest = above
        self.sent = tuple(tokens)
        return Draft(self.sent, tuple(parents))

    def learn(self, argmax: Sequence[int], length: int) -> None:
        """The target's likeliest tokens after x0 and every node: those below the window are its new level."""
        new = [argmax[node + 1] for node in self._lowest]
        self.sent = ()
        if not new:
            return
        if len(self.levels) == length:
            for i, token in enumerate(new):
                column = [level[i] for level in self.levels]
                self._keep(column[0], (*column[1:], token))
            del self.levels[0]
        # Columns that had no room go on as they were
        self.levels.append([*new, *self.levels[-1][len(new) :]])

    def _keep(self, first: int, rest: tuple[int, ...]) -> None:
        kept = self._pool.setdefault(first, {})
        kept.pop(rest, None)
        kept[rest] = None
        if len(kept) > self._guesses:
            del kept[next(iter(kept))]
