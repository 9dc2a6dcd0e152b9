"""A small causal LM as drafter: K cheap forwards guess a chain of K tokens, or a tree of K levels.

Chains are sampled from its own distribution q; trees are grown as in `growing.trees`. It runs on the same runner and
cache as the target. A model that was trained with a mask token, which its config names, guesses all K tokens in one
forward.
"""

from __future__ import annotations

from headstart.drafters import BuildContext, Weights
from headstart.drafters.growing.own_model import ForeseeingModel
from headstart.drafters.growing.parallel_model import ParallelModel, mask_token
from headstart.drafters.growing.policy import MOST, policy_of
from headstart.drafters.growing.residual import Residual
from headstart.model.runner import ModelRunner
from headstart.types import TreeKind

WEIGHTS: Weights = "model"

LONGEST = 12
"""Tokens of the longest chain."""
PARALLEL, LONGEST_PARALLEL = 8, 16
"""Tokens of a parallel draft where nobody chooses, and of the longest: published ones were trained on 8, and go on
guessing well up to about 16."""


class DraftModel(ForeseeingModel):
    """Chains drawn from a draft LM, or trees.

    Args:
        runner: the draft.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        budget: nodes where nobody chooses; None is a chain of 5, or a tree of 32.
        chunk: tokens that the draft reads in one forward.
        tree: "none" for chains, "top-k" for dynamic trees of the likeliest nodes (point masses, at any temperature),
            "sampled" for static trees whose shape is learnt, "mixed" for what suits a request.
        width, depth: of trees, see `TreePolicy`.
        residual: what drawn tokens leave to the target, if anything; for chains.
    """

    runner: ModelRunner

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
        tree: TreeKind = "none",
        width: int = 8,
        depth: int | None = None,
        residual: Residual | None = None,
    ) -> None:
        policy = policy_of(tree, chain=(5, LONGEST), trees=(32, MOST), width=width, depth=depth, residual=residual)
        super().__init__(runner, policy, vocab_size=vocab_size, slots=slots, budget=budget, chunk=chunk)
        self.name = name


class ParallelDraft(ParallelModel):
    """Chains or trees of a draft LM with a mask token: one forward guesses all tokens.

    Args:
        runner: the draft.
        mask: its mask token.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        budget: nodes where nobody chooses; None is a chain of 8, or a tree of 32.
        chunk: tokens that the draft reads in one forward.
        tree: as of `DraftModel`, but that the likeliest nodes of all are found, not only those of each level.
        depth: of trees, the most levels: masks of a forward, whose number hardly changes what it costs.
        residual: what drawn tokens leave to the target, if anything; for chains.
    """

    def __init__(
        self,
        runner: ModelRunner,
        *,
        name: str,
        mask: int,
        vocab_size: int,
        slots: int,
        budget: int | None = None,
        chunk: int = 512,
        tree: TreeKind = "none",
        depth: int = PARALLEL,
        residual: Residual | None = None,
    ) -> None:
        policy = policy_of(tree, chain=(PARALLEL, LONGEST_PARALLEL), trees=(32, MOST), depth=depth, residual=residual)
        super().__init__(runner, policy, mask=mask, vocab_size=vocab_size, slots=slots, budget=budget, chunk=chunk)
        self.name = name


def build(context: BuildContext) -> DraftModel | ParallelDraft:
    """The drafter. A model whose config names a mask token drafts in parallel."""
    assert context.draft is not None, "a draft model has been read"
    mask = mask_token(context.draft.config)
    if mask is not None:
        return ParallelDraft(
            context.draft,
            name=context.name,
            mask=mask,
            vocab_size=context.target.vocab_size,
            slots=context.slots,
            budget=context.budget,
            tree=context.tree or "none",
            residual=context.residual,
        )
    return DraftModel(
        context.draft,
        name=context.name,
        vocab_size=context.target.vocab_size,
        slots=context.slots,
        budget=context.budget,
        tree=context.tree or "none",
        residual=context.residual,
    )
