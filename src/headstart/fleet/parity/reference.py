"""headstart's side: the same drafter over the text that the server wrote, and what the server must have counted for it.

The engine drafts and verifies as always, but it continues with the server's token wherever the server has one. Both
sides then stand before the same text in every step, also where rounding let the server take the other of two tokens
that are nearly tied, and what is left to differ is the drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headstart.base.errors import ContextExceeded
from headstart.engine.judging import HostJudge
from headstart.fleet.parity.counts import Counts, counts_of
from headstart.fleet.parity.drafters import FixedDepth, drafter_of
from headstart.fleet.parity.plan import Plan
from headstart.loading.assembly import assemble
from headstart.loading.load import Target
from headstart.rule.distributions import Distributions
from headstart.rule.row import Row
from headstart.types import Draft, Sampling, Step, Verdict


@dataclass(frozen=True, slots=True)
class Predicted:
    """What headstart's engine makes of a text."""

    counts: Counts
    gap: float
    """How far the text's tokens lie below the target's likeliest ones, at most, in logits: 0 where headstart's own
    greedy text is the same, small where rounding decided between two tokens."""
    ties: int
    """Tokens that lie below at all."""


class Reference:
    """The engine of a plan. One text at a time.

    Raises: what loading the target and its drafter raises.
    """

    def __init__(self, plan: Plan) -> None:
        target = Target(plan.target, device=plan.device, dtype=plan.dtype)
        self.plan = plan
        self.name = target.name
        self._judge = _Follow()
        self._engine = assemble(
            target.runner,
            target.tokenizer,
            drafter_of(plan, target),
            pacing=FixedDepth(plan.depth),
            judge=self._judge,
            max_batch_size=1,
            eos_token_ids=target.eos_token_ids,
            target_name=target.name,
        )
        self._steps: list[Step] = []
        self._engine.subscribe(self._steps.append)

    @property
    def context(self) -> int:
        """Tokens of a prompt and its text together that the target takes."""
        return self._engine.target.max_length

    def encode(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        return self._engine.encode(prompt if isinstance(prompt, str) else list(prompt))

    def check_room(self, prompt: int, text: int) -> None:
        """Refuse lengths that leave no room for one more draft behind the text, which the server makes.

        Raises:
            ContextExceeded: they leave none.
        """
        if prompt + text + self.plan.depth + 1 > self.context:
            raise ContextExceeded(
                f"a prompt of {prompt} tokens and a text of {text} leave no room for a draft of {self.plan.depth}: "
                f"the context is {self.context}",
                hint="use shorter prompts, or fewer new tokens",
            )

    def predict(self, prompt: Sequence[int], text: Sequence[int]) -> Predicted:
        """What the server must have counted when it wrote this text after this prompt. They must fit (`check_room`)."""
        self._judge.text, self._judge.gaps = tuple(text), []
        self._steps.clear()
        behind = len(text) + self.plan.depth + 1  # so that the last draft within the text is not cut, as vLLM's is not
        self._engine.generate(list(prompt), Sampling(max_tokens=behind, ignore_eos=True))
        below = [gap for gap in self._judge.gaps if gap > 0]
        counts = counts_of(self._steps, len(text), self.plan.depth)
        return Predicted(counts, max(below, default=0.0), len(below))


class _Follow(HostJudge):
    """Accepts and continues with the tokens of `text`, and behind its end with the target's likeliest ones."""

    def __init__(self) -> None:
        super().__init__()
        self.text: tuple[int, ...] = ()
        self.gaps: list[float] = []

    def _verdict(self, row: Row, draft: Draft, distributions: Distributions) -> Verdict:
        ahead = self.text[len(row.tokens) - row.prompt_tokens :]
        for depth, likeliest in enumerate(
            distributions.argmax
        ):  # drafts are chains: distribution 0 is after x0, distribution i after i tokens
            token = likeliest
            if depth < len(ahead):
                token = ahead[depth]
                self.gaps.append(float(distributions.logits[depth, likeliest] - distributions.logits[depth, token]))
            if depth == len(draft) or draft.tokens[depth] != token:
                return Verdict(tuple(range(depth)), token)
        raise AssertionError("there is one distribution more than there are drafted tokens")
