"""A small audit of the bundled pair, the same of an engine, of somebody's server and of our own."""

from __future__ import annotations

import headstart as hs
from headstart.measure.audit.plan import AuditPlan

TEXTS = ("class Stack:\n    def push", "import os\n\ndef read(")
PLAN = AuditPlan(
    sampling=hs.Sampling(temperature=0.8),
    effect=0.3,
    power=0.8,
    max_samples=300,
    batch=60,
    sample_tokens=6,
    greedy_tokens=24,
    k=3,
)
