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
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import GrammarFailed, HeadstartError, NonFiniteLogits
from headstart.rule import race
from headstart.rule.distribution import token_logprobs
from headstart.rule.distributions import Distributions, distributions, sampling_rows
from headstart.rule.drafted import drafted_distributions
from headstart.rule.row import Row
from headstart.rule.softmax import softmax
from headstart.rule.verify import verify, walk
from headstart.types import Draft, TokenLogprob, Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one row. Empty while a prompt is still being read."""

    path: tuple[int, ...] = ()
    """The accepted nodes of its draft, from the root."""
    tokens: tuple[int, ...] = ()
    """The tokens of the path, the bonus token, and the end of the text where nothing else can follow that."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    distributions: Distributions | None = None
    """The target's distributions at x0 and at every node."""
    error: HeadstartError | None = None
    """Why nothing more comes: logits are not finite, or a grammar cannot go on."""


class Judge(Protocol):
    """Decides rows."""

    def outcomes(self, rows: Sequence[Row], drafts: Sequence[Draft], logits: Tensor) -> Sequence[Outcome]:
        """What the rule decides for each row; pure. logits [R, V]: of the judged rows, at x0 and at each node."""
        ...


class HostJudge(Judge):
    """The rule of each row, by `verify`, on the host."""

    def __init__(self) -> None:
        race.compiled()  # now, so that no request waits for a compiler
        softmax()

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
        error: HeadstartError | None = None
        try:
            verdict = self._verdict(row, draft, distributions)
            path, tokens = verdict.path, (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
            tokens += _certain_end(row, tokens)
        except NonFiniteLogits as found:
            return Outcome(error=NonFiniteLogits(f"{found.message} after {len(row.tokens)} tokens", hint=found.hint))
        except GrammarFailed as found:  # it was reached, so the draft up to there is accepted
            error = found
            path = draft.path(next(i for i, each in enumerate(distributions.rows) if each.failure is found) - 1)
            tokens = tuple(draft.tokens[node] for node in path)
        return Outcome(path, tokens, _logprobs(row, distributions, path, tokens), distributions, error)

    def _verdict(self, row: Row, draft: Draft, distributions: Distributions) -> Verdict:
        """Rows that the rule does not come to are not looked at: without a draft they would not be there."""
        if distributions.tokens is not None and draft.q is None:
            # drawing from a one-hot distribution is reading its token
            return walk(draft, range(len(distributions)), lambda index, _: distributions.token(index))
        if draft.q is None or row.rule == "coupled":
            return verify(draft, distributions, None, row.noise, len(row.tokens), row.rule)
        kept = _with_distributions(draft, distributions) if row.sampling_state.masks else range(len(draft))
        if len(kept) == len(draft):
            return verify(draft, distributions, drafted_distributions(draft), row.noise, len(row.tokens), row.rule)
        part = _part(draft, kept)
        of_part = _Chosen(distributions, (0, *(node + 1 for node in kept)))
        verdict = verify(part, of_part, drafted_distributions(part), row.noise, len(row.tokens), row.rule)
        return Verdict(tuple(kept[node] for node in verdict.path), verdict.bonus)


def _certain_end(row: Row, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The token that ends the text, where a grammar lets nothing else come after these: its probability is 1, so no
    forward is run for it. Empty where something else may come, and where the request wants log-probabilities, which
    only a forward can tell."""
    state = row.sampling_state
    if not state.masks or row.sampling.logprobs is not None:
        return ()
    place = state.place.after(tokens)
    end = place.forced()
    return (end,) if end is not None and end in state.stop_ids and place.allows(end) else ()


def _with_distributions(draft: Draft, distributions: Distributions) -> Sequence[int]:
    """The nodes after whose parents the target has a distribution: where a grammar cannot go on, nothing is judged."""
    failing = {i - 1 for i, row in enumerate(distributions.rows) if draft.children[i] and row.failure is not None}
    kept: dict[int, None] = {}
    for node, parent in enumerate(draft.parents):
        if parent not in failing and (parent < 0 or parent in kept):
            kept[node] = None
    return tuple(kept)


def _part(draft: Draft, kept: Sequence[int]) -> Draft:
    """The draft with these of its nodes, whose parents are among them."""
    assert draft.q is not None, "only asked of drawn nodes"
    places = {-1: -1, **{node: place for place, node in enumerate(kept)}}
    parents = tuple(places[draft.parents[node]] for node in kept)
    return Draft(tuple(draft.tokens[node] for node in kept), parents, draft.q[list(kept)], vocabulary=draft.vocabulary)


class _Chosen(Sequence[NDArray[np.float32]]):
    """Some of a request's distributions, each computed when it is asked for."""

    def __init__(self, distributions: Distributions, chosen: Sequence[int]) -> None:
        self._distributions, self._chosen = distributions, chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> NDArray[np.float32]:  # type: ignore[override]  # there are no slices
        return self._distributions[self._chosen[index]]


def _logprobs(
    row: Row, distributions: Distributions, path: Sequence[int], tokens: Sequence[int]
) -> tuple[TokenLogprob, ...] | None:
    """Of the emitted tokens, where the request asked for them."""
    sampling = row.sampling
    if sampling.logprobs is None:
        return None
    at = [0, *(node + 1 for node in path)][: len(tokens)]
    if not at:
        return ()
    p = torch.from_numpy(np.stack([distributions[i] for i in at])).to(distributions.logits.device)
    return tuple(
        token_logprobs(distributions.logits[at], p, tokens, top=sampling.logprobs, mode=sampling.logprobs_mode)
    )
