"""The drafters of vLLM, as headstart runs them: chains of a fixed length, each token the drafter's likeliest.

EAGLE heads and draft models, with a mask token or without, are headstart's own with their trees switched off. Medusa
heads become a chain of each head's first guess. For n-grams headstart's drafter takes the latest match and repeats it
past its end, vLLM the earliest and only what stands there: so the lookup is written down here by vLLM's rule, and
parity of n-grams is about the engine around it, not about which rule is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.drafters import Drafter, Row
from headstart.drafters.draft_model import DraftModel, ParallelDraft, mask_token
from headstart.drafters.eagle import EagleDrafter
from headstart.drafters.medusa import MedusaDrafter
from headstart.fleet.parity.plan import Plan
from headstart.loading.load import Target
from headstart.model.heads.medusa import MedusaHeads, read_heads
from headstart.model.loading import fetch
from headstart.pacing import FixedPacing
from headstart.pacing import Plan as PacingPlan
from headstart.types import Budget, Draft


class EarliestLookup(Drafter):
    """vLLM's n-gram lookup: of the longest suffix of the text, between `shortest` and `longest` tokens, that occurs
    earlier in it, the first occurrence; the draft is what follows there, up to `depth` tokens or the text's end.

    Source of the rule: vLLM 0.32, `v1/spec_decode/ngram_proposer.py`.
    """

    draws = False
    copies = True

    def __init__(self, depth: int, shortest: int, longest: int) -> None:
        self.name = "ngram"
        self.default_budget = depth
        self._lengths = range(longest, shortest - 1, -1)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [Draft.chain(self.after(row.tokens)[: row.budget.nodes]) for row in rows]

    def after(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """All that follows the match; () where there is none."""
        for length in self._lengths:
            suffix = tokens[-length:]
            for start in range(len(tokens) - length):
                if tokens[start : start + length] == suffix:
                    return tokens[start + length :]
        return ()


class FixedDepth(FixedPacing):
    """As many tokens in every step, but none in a prompt's own: vLLM begins to draft when the first token is known,
    headstart would verify a draft together with the prompt already."""

    def plan(self, rows: Sequence[Row]) -> PacingPlan:
        prompt = Budget(0, "the prompt is read")
        found = zip(rows, super().plan(rows).budgets, strict=True)
        return PacingPlan([budget if len(row.tokens) > row.prompt_tokens else prompt for row, budget in found])


def drafter_of(plan: Plan, target: Target) -> Drafter:
    """The plan's drafter for this target, in the target's dtype and never on 8-bit integers.

    Raises:
        InvalidOption: more tokens than the drafter can draft.
        ModelNotFound, PickleCheckpoint, UnsupportedModel: see the drafters.
    """
    if plan.drafter is None:
        return EarliestLookup(plan.depth, *plan.lookup)
    runner, name = target.runner, plan.kind
    if plan.kind == "draft_model":
        return _draft_model(plan, target)
    folder = Path(fetch(str(plan.drafter)))
    if plan.kind == "eagle3":
        eagle = EagleDrafter.load(
            folder, runner, target_folder=target.checkpoint.source, slots=1, budget=plan.depth, tree="none",
            quantize=None, name=name,
        )  # fmt: skip
        _check_depth(plan, eagle.limit, "headstart drafts chains of up to")
        return eagle
    weights = read_heads(folder)
    _check_depth(plan, len(weights), "the number of Medusa heads is")
    heads = MedusaHeads(weights, dtype=runner.dtype, device=runner.device, quantize=None)
    first_guesses = [[0.5]] * len(weights)  # one rank for each head: the only tree of that is a chain
    return MedusaDrafter(heads, layers=runner.layers, accuracies=first_guesses, budget=plan.depth, name=name)


def _draft_model(plan: Plan, target: Target) -> Drafter:
    """One that has a mask token drafts in parallel only where the engine is asked to."""
    assert plan.drafter is not None, "a plan of a draft model names it"
    checkpoint, vocab_size = target.draft(plan.drafter), target.runner.vocab_size
    if not plan.parallel:
        draft = checkpoint.runner(None)
        return DraftModel(draft, name=plan.kind, vocab_size=vocab_size, slots=1, budget=plan.depth, tree="none")
    mask = mask_token(checkpoint.config)
    if mask is None:
        raise UnsupportedModel(
            f"{plan.drafter} names no mask token, so it cannot guess all tokens in one forward",
            hint="leave parallel_drafting out, or give a draft model whose config has pard_token",
        )
    made = ParallelDraft(
        checkpoint.runner(None), name=plan.kind, mask=mask, vocab_size=vocab_size, slots=1, budget=plan.depth
    )
    _check_depth(plan, made.limit, "headstart drafts in parallel up to")
    return made


def _check_depth(plan: Plan, limit: int, why: str) -> None:
    if plan.depth > limit:
        raise InvalidOption(f"depth={plan.depth} is too much: {why} {limit}", hint=f"use {limit} or less")
