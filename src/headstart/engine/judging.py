"""From the target's logits to what each request may emit: law, rule and log-probabilities. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headstart.engine.scheduler import Plan, PlanRow
from headstart.errors import HeadstartError, NonFiniteLogits
from headstart.rule.law import LawRow, greedy, law, token_logprobs
from headstart.rule.verify import verify, walk
from headstart.types import Draft, Rule, TokenLogprob, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """One row's outcome. path: accepted nodes; tokens: the path's tokens and the bonus; nothing while a prompt is
    still being read; error: the row's logits were not finite."""

    path: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    error: HeadstartError | None = None


@dataclass(frozen=True, slots=True)
class RowLaws:
    """The target's laws over one request's judged rows: x0, then its draft's nodes.

    A greedy request needs only the likeliest `tokens` (-1 where the logits are not finite), any other the
    laws p [n, V].
    """

    rows: tuple[LawRow, ...]
    tokens: tuple[int, ...] | None = None
    p: Tensor | None = None

    def dense(self, logits: Tensor) -> Tensor:
        """p [n, V], computed from the rows' logits where it was not needed before."""
        return law(logits, self.rows) if self.p is None else self.p


def laws(plan: Plan, drafts: Sequence[Draft], logits: Tensor) -> list[RowLaws]:
    """The target's laws for each judged row of the plan; logits [R, V]: theirs, request by request."""
    requests = [
        tuple(LawRow(row.request.law, tokens) for tokens in _above(draft))
        for row, draft in zip(plan.rows, drafts, strict=True)
        if row.judged
    ]
    begins = list(itertools.accumulate((len(rows) for rows in requests), initial=0))
    found: dict[int, RowLaws] = {}
    for is_greedy in (True, False):
        chosen = [k for k, rows in enumerate(requests) if rows[0].state.sampling.greedy is is_greedy]
        rows = [row for k in chosen for row in requests[k]]
        if not rows:
            continue
        mine = (
            logits if len(chosen) == len(requests) else torch.cat([logits[begins[k] : begins[k + 1]] for k in chosen])
        )
        values: Any = greedy(mine[: len(rows)], rows) if is_greedy else law(mine[: len(rows)], rows)
        begin = 0
        for k in chosen:
            end = begin + len(requests[k])
            part = values[begin:end]
            found[k] = RowLaws(requests[k], tokens=tuple(part)) if is_greedy else RowLaws(requests[k], p=part)
            begin = end
    return [found[k] for k in range(len(requests))]


def _above(draft: Draft) -> list[tuple[int, ...]]:
    """The draft tokens above each judged row: none above x0, a node's own last."""
    above: list[tuple[int, ...]] = [()]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        above.append((*above[parent + 1], token))
    return above


def judge(
    plan: Plan, drafts: Sequence[Draft], logits: Tensor, judged: Sequence[RowLaws], rule: Rule
) -> list[Judgement]:
    """Apply the rule to every row of the plan. logits [R, V] and the laws as in `laws`."""
    judgements = []
    begin, left = 0, iter(judged)
    for row, draft in zip(plan.rows, drafts, strict=True):
        if not row.judged:
            judgements.append(Judgement())
            continue
        end = begin + len(draft) + 1
        judgements.append(_judge(row, draft, logits[begin:end], next(left), rule))
        begin = end
    return judgements


def said(plan: Plan, judged: Sequence[RowLaws]) -> list[tuple[int, ...]]:
    """The likeliest token of each law of each row of the plan: after x0, and after every node of its draft."""
    left = iter(judged)
    return [_likeliest(next(left)) if row.judged else () for row in plan.rows]


def _likeliest(laws_: RowLaws) -> tuple[int, ...]:
    if laws_.tokens is not None:
        return laws_.tokens
    assert laws_.p is not None, "laws are tokens or p"
    return tuple(laws_.p.argmax(-1).tolist())


def _judge(row: PlanRow, draft: Draft, logits: Tensor, laws_: RowLaws, rule: Rule) -> Judgement:
    request = row.request
    if _broken(laws_):
        error = NonFiniteLogits(
            f"the target gave NaN or infinite logits after {len(request.tokens)} tokens",
            hint="check the checkpoint, or use a dtype with more range (float32)",
        )
        return Judgement(error=error)
    verdict = _verdict(row, draft, logits, laws_, rule)
    tokens = (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
    if request.sampling.logprobs is None:
        return Judgement(verdict.path, tokens)
    judges = [0, *(node + 1 for node in verdict.path)]
    logprobs = token_logprobs(
        logits[judges],
        laws_.dense(logits)[judges],
        tokens,
        top=request.sampling.logprobs,
        mode=request.sampling.logprobs_mode,
    )
    return Judgement(verdict.path, tokens, tuple(logprobs))


def _verdict(row: PlanRow, draft: Draft, logits: Tensor, laws_: RowLaws, rule: Rule) -> Verdict:
    if laws_.tokens is not None and draft.q is None:
        return walk(draft, laws_.tokens, lambda token, _: token)  # drawing from a one-hot law is reading its token
    q = None if draft.q is None else draft.q.cpu().numpy()
    request = row.request
    return verify(draft, laws_.dense(logits).cpu().numpy(), q, request.noise, len(request.tokens), rule)


def _broken(laws_: RowLaws) -> bool:
    if laws_.p is None:
        return laws_.tokens is not None and -1 in laws_.tokens
    return bool(laws_.p[:, 0].isnan().any())  # softmax spreads a NaN over its whole row
