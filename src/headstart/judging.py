"""From the target's logits to what each request may emit: law, rule and log-probabilities. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from headstart.errors import HeadstartError, NonFiniteLogits
from headstart.law import LawRow, law, token_logprobs
from headstart.scheduler import Plan, PlanRow
from headstart.types import Draft, Rule, TokenLogprob
from headstart.verify import verify


@dataclass(frozen=True, slots=True)
class Judgement:
    """One row's outcome. path: accepted nodes; tokens: the path's tokens and the bonus; nothing while a prompt is
    still being read; error: the row's logits were not finite."""

    path: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    error: HeadstartError | None = None


def laws(plan: Plan, drafts: Sequence[Draft], logits: Tensor) -> Tensor:
    """The target's law at every judged row: x0 of each request, then its draft's nodes. [R, V] to [R, V]."""
    rows: list[LawRow] = []
    for row, draft in zip(plan.rows, drafts, strict=True):
        if row.judged:
            above: list[tuple[int, ...]] = [()]  # the draft tokens above each row
            for token, parent in zip(draft.tokens, draft.parents, strict=True):
                above.append((*above[parent + 1], token))
            rows += [LawRow(row.request.law, tokens) for tokens in above]
    return law(logits[: len(rows)], rows)


def judge(plan: Plan, drafts: Sequence[Draft], logits: Tensor, p: Tensor, rule: Rule) -> list[Judgement]:
    """Apply the rule to every row of the plan. logits, p: [R, V] as in `laws`."""
    judgements = []
    begin = 0
    for row, draft in zip(plan.rows, drafts, strict=True):
        if not row.judged:
            judgements.append(Judgement())
            continue
        end = begin + len(draft) + 1
        judgements.append(_judge(row, draft, logits[begin:end], p[begin:end], rule))
        begin = end
    return judgements


def _judge(row: PlanRow, draft: Draft, logits: Tensor, p: Tensor, rule: Rule) -> Judgement:
    request = row.request
    if bool(p[:, 0].isnan().any()):  # softmax spreads a NaN over its whole row
        error = NonFiniteLogits(
            f"the target gave NaN or infinite logits after {len(request.tokens)} tokens",
            hint="check the checkpoint, or use a dtype with more range (float32)",
        )
        return Judgement(error=error)
    q = None if draft.q is None else draft.q.cpu().numpy()
    verdict = verify(draft, p.cpu().numpy(), q, request.noise, len(request.tokens), rule)
    tokens = (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
    if request.sampling.logprobs is None:
        return Judgement(verdict.path, tokens)
    judges = [0, *(node + 1 for node in verdict.path)]
    logprobs = token_logprobs(
        logits[judges], p[judges], tokens, top=request.sampling.logprobs, mode=request.sampling.logprobs_mode
    )
    return Judgement(verdict.path, tokens, tuple(logprobs))
