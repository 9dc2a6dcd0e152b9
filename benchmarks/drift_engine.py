"""How often the first guess is right by draft length, on a real engine: the same prompts, so nothing has changed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import headstart as hs
from headstart.commands.demo import PROMPTS
from headstart.theory.rounds import PositionCounts
from headstart.types import Step

_CODE = Path(__file__).parent / "prompts" / "stock.py.txt"
_WORDS = (
    "The river rises in the hills north of the town and",
    "Dear Sir or Madam,\n\nI am writing to you because",
    "Once upon a time there was a miller who had three",
    "# Installation\n\nTo install the package, first",
    "1. Wash the rice. 2. Boil the water. 3.",
    "Q: What is the capital of France?\nA: Paris.\nQ: What is",
)


def prompts() -> list[str]:
    """Beginnings of code, of Python's kind and not, and of plain text."""
    code = [part for part in re.split(r"\n(?=class |def )", _CODE.read_text(encoding="utf-8")) if len(part) > 60]
    return [*PROMPTS, *(part[: len(part) // 2] for part in code), *_WORDS]


def by_length(lengths: tuple[int, ...], *, tokens: int = 96) -> list[dict[str, float]]:
    """For each fixed draft length: guesses at position 1, the share accepted of all, and the mean share of requests."""
    found = []
    for k in lengths:
        engine = hs.load("bundled", "bundled", dtype="float32", pacing="fixed", num_speculative_tokens=k)
        counts: dict[int, PositionCounts] = {}

        def listen(step: Step, counts: dict[int, PositionCounts] = counts) -> None:
            if len(step.draft):
                one = counts.setdefault(step.request, PositionCounts())
                one.add(max(step.draft.depths), len(step.path))

        engine.subscribe(listen)
        engine.generate(prompts(), hs.Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True))
        tested, accepted = (np.array([getattr(c, name)[0] for c in counts.values()]) for name in ("tested", "accepted"))
        shares = accepted / tested
        share = float(accepted.sum() / tested.sum())
        row = {"k": k, "requests": len(shares), "tested": int(tested.sum()), "of all": share}
        found.append({**row, "of requests": float(shares.mean())})
    return found
