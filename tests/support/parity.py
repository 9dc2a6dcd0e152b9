"""Subjects for parity that need no vLLM: a second headstart engine that counts as vLLM does, and recorded answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import headstart
from headstart.fleet.parity.counts import Counts, counts_of
from headstart.fleet.parity.drafters import FixedDepth, drafter_of
from headstart.fleet.parity.plan import Plan
from headstart.fleet.parity.subject import Answered
from headstart.loading.assembly import assemble
from headstart.loading.load import Target
from headstart.types import Sampling, Step

PAIR = Path(headstart.__file__).parent / "pair"
RECORDED = Path(__file__).parents[1] / "fleet" / "parity" / "recorded"


class StandIn:
    """An engine in the place of a server: it runs what its own plan says, whatever parity compares it with."""

    name = "a second engine"

    def __init__(self, plan: Plan) -> None:
        target = Target(plan.target, device="cpu", dtype=plan.dtype)
        self._depth = plan.depth
        self._engine = assemble(
            target.runner, target.tokenizer, drafter_of(plan, target), pacing=FixedDepth(plan.depth),
            max_batch_size=1,
        )  # fmt: skip
        self._steps: list[Step] = []
        self._engine.subscribe(self._steps.append)

    def complete(self, prompt: Sequence[int], max_tokens: int) -> Answered:
        self._steps.clear()
        sampling = Sampling(max_tokens=max_tokens + self._depth + 1, ignore_eos=True)
        text = self._engine.generate(list(prompt), sampling).tokens
        return Answered(tuple(text[:max_tokens]), counts_of(self._steps, max_tokens, self._depth))


class Recorded:
    """What vLLM 0.32 (CPU, float32) answered and counted for the bundled pair, prompt by prompt."""

    def __init__(self, name: str) -> None:
        self.name = f"a recording of {name}"
        self._answers = json.loads((RECORDED / f"{name}.json").read_text())

    @property
    def prompts(self) -> list[list[int]]:
        return [answer["prompt"] for answer in self._answers]

    def complete(self, prompt: Sequence[int], max_tokens: int) -> Answered:
        found = next(answer for answer in self._answers if answer["prompt"] == list(prompt))
        assert len(found["tokens"]) == max_tokens
        counted = Counts(max_tokens, found["drafts"], found["drafted"], tuple(found["accepted_per_position"]))
        return Answered(tuple(found["tokens"]), counted)
