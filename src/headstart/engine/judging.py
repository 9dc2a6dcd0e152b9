"""From the target's logits to what each row may emit. A `Judge` computes distributions and applies the rule; it changes
nothing.

`HostJudge` draws and decides on the host, in NumPy, request by request. One that does so on a device is another class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from headstart.base.errors import HeadstartError, NonFiniteLogits
from headstart.rule import race
from headstart.rule.distribution import token_logprobs
from headstart.rule.distributions import Distributions, distributions, no_distribution, sampling_rows
from headstart.rule.drafted import drafted_distributions
from headstart.rule.row import Row
from headstart.rule.verify import verify, walk
from headstart.types import Draft, Rule, TokenLogprob, Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one row. Empty while a prompt is still being read."""

    path: tuple[int, ...] = ()
    """The accepted nodes of its draft, from the root."""
    tokens: tuple[int, ...] = ()
    """The tokens of the path, and the bonus token."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    distributions: Distributions | None = None
    """The target's distributions at x0 and at every node."""
    error: HeadstartError | None = None
    """Why nothing came of it: the row's logits were not finite."""


class Judge(Protocol):
    """Decides rows."""

    def outcomes(self, rows: Sequence[Row], drafts: Sequence[Draft], logits: Tensor) -> Sequence[Outcome]:
        """What the rule decides for each row; pure. logits [R, V]: of the judged rows, at x0 and at each node."""
        ...


class HostJudge(Judge):
    """The rule of `verify`, on the host."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        race.compiled()  # now, so that no request waits for a compiler

    def outcomes(self, rows: Sequence[Row], drafts: Sequence[Draft], logits: Tensor) -> list[Outcome]:
        judged = [
            sampling_rows(row.sampling_state, draft) for row, draft in zip(rows, drafts, strict=True) if row.judged
        ]
        found = iter(distributions(judged, logits))
        return [
            self._outcome(row, draft, next(found)) if row.judged else Outcome()
            for row, draft in zip(rows, drafts, strict=True)
        ]

    def _outcome(self, row: Row, draft: Draft, distributions: Distributions) -> Outcome:
        try:
            verdict = self._verdict(row, draft, distributions)
        except NonFiniteLogits as error:
            return Outcome(error=NonFiniteLogits(f"{error.message} after {len(row.tokens)} tokens", hint=error.hint))
        tokens = (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
        logprobs = _logprobs(row, distributions, verdict, tokens)
        return Outcome(verdict.path, tokens, logprobs, distributions)

    def _verdict(self, row: Row, draft: Draft, distributions: Distributions) -> Verdict:
        """Rows that the rule does not come to are not looked at: without a draft they would not be there."""
        if distributions.tokens is not None and draft.q is None:
            return walk(
                draft, distributions.tokens, _greedy
            )  # drawing from a one-hot distribution is reading its token
        q = None if draft.q is None or self._rule == "coupled" else drafted_distributions(draft)
        return verify(draft, distributions, q, row.noise, len(row.tokens), self._rule)


def _greedy(token: int, _: int) -> int:
    if token < 0:
        raise no_distribution()
    return token


def _logprobs(
    row: Row, distributions: Distributions, verdict: Verdict, tokens: Sequence[int]
) -> tuple[TokenLogprob, ...] | None:
    """Of the emitted tokens, where the request asked for them."""
    sampling = row.sampling
    if sampling.logprobs is None:
        return None
    at = [0, *(node + 1 for node in verdict.path)]
    p = torch.from_numpy(np.stack([distributions[i] for i in at])).to(distributions.logits.device)
    return tuple(
        token_logprobs(distributions.logits[at], p, tokens, top=sampling.logprobs, mode=sampling.logprobs_mode)
    )
