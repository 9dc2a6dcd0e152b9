"""What if alpha, K, c, the batch or the temperature were ...: questions to the formulas, answered together.

NumPy only; no model is run and no torch is needed.
"""

from __future__ import annotations

from headstart.insight.what_if.answers import Answer, Maps, answer, maps
from headstart.insight.what_if.machines import Batches, BatchRow, Deployment, batches
from headstart.insight.what_if.question import WhatIf, what_if
from headstart.insight.what_if.record import record
from headstart.insight.what_if.temperature import TemperatureRow, Temperatures, temperatures

__all__ = [
    "Answer",
    "BatchRow",
    "Batches",
    "Deployment",
    "Maps",
    "TemperatureRow",
    "Temperatures",
    "WhatIf",
    "answer",
    "batches",
    "maps",
    "record",
    "temperatures",
    "what_if",
]
