"""What if alpha, K, c, the batch or the temperature were ...: questions to the formulas, answered together.

NumPy only; no model is run and no torch is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.insight.what_if.options import Question
from headstart.lazy import lazily

if TYPE_CHECKING:
    from headstart.insight.what_if.answers import Answer, Maps, answer, maps
    from headstart.insight.what_if.as_json import record
    from headstart.insight.what_if.machines import Batches, BatchRow, Deployment, batches
    from headstart.insight.what_if.question import WhatIf, ask, what_if
    from headstart.insight.what_if.temperature import TemperatureRow, Temperatures, temperatures

__all__ = [
    "Answer",
    "BatchRow",
    "Batches",
    "Deployment",
    "Maps",
    "Question",
    "TemperatureRow",
    "Temperatures",
    "WhatIf",
    "answer",
    "ask",
    "batches",
    "maps",
    "record",
    "temperatures",
    "what_if",
]

__getattr__ = lazily(
    __name__,
    answers="Answer Maps answer maps",
    machines="Batches BatchRow Deployment batches",
    question="WhatIf ask what_if",
    as_json="record",
    temperature="TemperatureRow Temperatures temperatures",
)
