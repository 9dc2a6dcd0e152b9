"""Wrong ways to speculate that other engines have had, each a context in which headstart's own engine has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from headstart.engine import judging
from headstart.engine.request import Request
from headstart.rule.distribution import SamplingRow
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import verify
from headstart.types import Draft, Rule, Verdict

Plant = Callable[[pytest.MonkeyPatch], None]
Rejected = Callable[[Any, Any, int], Any]
"""From the distributions p, the distributions q and the rejected child: the weights that the token in its place is
drawn from."""


def _residual(p: Any, q: Any, child: int) -> Any:
    rest = np.maximum(p[child] - q[child], 0)  # in a chain, row i judges node i
    return rest if rest.sum() > 0 else p[child]


def token_by_token(rejected: Rejected = _residual, q_of: Callable[[Draft, int], int] = lambda _, child: child) -> Any:
    """Leviathan's rule on a chain, with parts to get wrong. q_of: whose token is looked up in q of a child."""

    def rule_(draft: Draft, p: Any, q: Any, noise: Noise, position: int, rule: Rule) -> Verdict:
        for child, token in enumerate(draft.tokens):
            chance = p[child][token] / max(float(q[child][draft.tokens[q_of(draft, child)]]), 1e-30)
            if noise.uniform(position + child, Purpose.ACCEPT, lane=position, index=child) >= chance:
                distribution = rejected(p, q, child)
                return Verdict(tuple(range(child)), noise.draw(distribution, position + child, Purpose.TOKEN))
        return Verdict(tuple(range(len(draft))), noise.draw(p[len(draft)], position + len(draft), Purpose.TOKEN))

    return rule_


def _rule(rule: Any) -> Plant:
    return lambda patch: patch.setattr(judging, "verify", rule)


right_token_by_token = _rule(token_by_token())
"""No bug at all: the same code with nothing wrong."""
resampling_from_p = _rule(token_by_token(lambda p, q, child: p[child]))
q_of_another_token = _rule(token_by_token(q_of=lambda draft, child: (child + 1) % len(draft)))
row_after_the_rejected = _rule(token_by_token(lambda p, q, child: p[child + 1]))


@_rule
def greedy_acceptance(draft: Draft, p: Any, q: Any, noise: Noise, position: int, rule: Rule) -> Verdict:
    """A draft token stays if it is the target's likeliest."""
    kept = 0
    while kept < len(draft) and draft.tokens[kept] == int(p[kept].argmax()):
        kept += 1
    return Verdict(tuple(range(kept)), noise.draw(p[kept], position + kept, Purpose.TOKEN))


def bonus_without_temperature(temperature: float) -> Plant:
    """After a full acceptance the bonus token is drawn from the distribution at temperature 1."""

    @_rule
    def rule_(draft: Draft, p: Any, q: Any, noise: Noise, position: int, rule: Rule) -> Verdict:
        verdict = verify(draft, p, q, noise, position, rule)
        if not len(draft) or len(verdict.path) < len(draft):
            return verdict
        warm = p[len(draft)].astype(np.float64) ** temperature
        return Verdict(verdict.path, noise.draw(warm, position + len(draft), Purpose.TOKEN))

    return rule_


def past_an_end(patch: pytest.MonkeyPatch) -> None:
    """A token that ends the text is overlooked inside an accepted block."""
    extend = Request.extend

    def overlooking(self: Request, tokens: Sequence[int]) -> tuple[int, ...]:
        held, self.stop_ids = self.stop_ids, frozenset()
        first = extend(self, tokens[:-1]) if len(tokens) > 1 else ()
        self.stop_ids = held
        return (*first, *(extend(self, tokens[-1:]) if self.finish_reason is None else ()))

    patch.setattr(Request, "extend", overlooking)


def stale_penalties(patch: pytest.MonkeyPatch) -> None:
    """Penalties do not see the draft tokens of the window."""
    patch.setattr(judging, "sampling_rows", lambda state, draft: (SamplingRow(state),) * (len(draft) + 1))
