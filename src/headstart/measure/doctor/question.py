"""What is asked of the doctor, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headstart.base.prompt_sets import PromptItem
from headstart.measure.doctor.ahead import Outlook
from headstart.measure.doctor.measuring import Inspected, Sample
from headstart.measure.doctor.memory import Memory
from headstart.measure.doctor.setup import Setup
from headstart.measure.doctor.verdict import Ranked, Recommendation
from headstart.measure.provenance import Provenance
from headstart.theory import StepCosts
from headstart.theory.statistics import quantile
from headstart.types import Sampling

Progress = Callable[[str, float], None]
"""Called with what is being done, and with the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    setup: Setup
    items: tuple[PromptItem, ...]
    sampling: Sampling
    given: tuple[str, ...] = ()
    """Drafters to look at."""
    scan: Path | None = None
    """A directory with more of them."""
    seconds: float = 60.0
    """The time of the examination; the best candidates are measured in about as much again."""
    measure: bool = True
    """Whether the best candidates by prediction are measured end to end."""
    check: bool = False
    """Whether all of them are, in so much more time."""
    keep: bool = True
    """Whether the answer is kept for `load`; one that was not measured never is."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The answer. tokens: new ones per prompt that were generated. advice: the file that `load` reads, or None."""

    question: Question
    provenance: Provenance
    described: dict[str, object]
    memory: Memory
    costs: StepCosts
    """Of the target: forwards as measured alone, and the rest of a step as its rounds showed it."""
    read: int | None
    """Bytes of weights that a forward reads; None where that depends on the text (mixtures of experts)."""
    tokens: int
    inspected: tuple[Inspected, ...]
    ranked: tuple[Ranked, ...]
    verdict: Recommendation
    seconds: float
    passed_over: dict[str, str] = field(default_factory=dict)
    ahead: Outlook | None = None
    """What drafting ahead would bring for the fastest drafter that could; None where there is none, or no time."""
    advice: Path | None = None
    forms: str = ""
    """How the prompts were sent, in words."""

    @property
    def unsteady(self) -> float | None:
        """How many times as long the slow plain steps took as the quick ones (90th and 10th percentile)."""
        samples = [one.result for one in self.inspected if isinstance(one.result, Sample)]
        seconds = [one.seconds for sample in samples for text in sample.plain.values() for one in text.rounds]
        return quantile(seconds, 0.9) / quantile(seconds, 0.1) if seconds else None
