"""A whole audit of headstart's own engine."""

from __future__ import annotations

import headstart as hs
from headstart.insight.audit.plan import AuditPlan
from headstart.insight.audit.run import audit_engine

TEXTS = ("class Stack:\n    def push", "import os\n\ndef read(")


def test_our_own_engine() -> None:
    engine = hs.load("bundled", "ngram", dtype="float32", max_length=128, pacing="fixed", num_speculative_tokens=3)
    prompts = [engine.tokenizer(text)["input_ids"] for text in TEXTS]
    plan = AuditPlan(
        sampling=hs.Sampling(temperature=0.8),
        effect=0.3,
        power=0.8,
        max_samples=300,
        batch=60,
        sample_tokens=6,
        greedy_tokens=24,
        k=3,
    )
    parts: list[str] = []
    made = audit_engine(engine, prompts, plan, lambda part, done, most, words="": parts.append(part))
    assert made.verdict == "lossless", made.reasons
    assert {"rounding", "sampling", "greedy", "behaviour"} <= set(parts)
    record = made.record()
    assert record["parts"]["greedy"]["plain"]["equal"] == len(TEXTS)
    assert record["parts"]["sampling"]["e_value_by_completions"]
    assert record["subject"]["drafter"] == "ngram"
