"""A whole audit of headstart's own engine."""

from __future__ import annotations

from support.audit_plans import PLAN, TEXTS

import headstart as hs
from headstart.measure.audit.run import audit_engine


def test_our_own_engine() -> None:
    engine = hs.load("bundled", "ngram", dtype="float32", max_length=128, pacing="fixed", num_speculative_tokens=3)
    prompts = [engine.tokenizer(text)["input_ids"] for text in TEXTS]
    parts: list[str] = []
    made = audit_engine(engine, prompts, PLAN, lambda part, done, most, words="": parts.append(part))
    assert made.verdict == "lossless", made.reasons
    assert {"rounding", "sampling", "greedy", "behaviour"} <= set(parts)
    record = made.record()
    assert record["parts"]["greedy"]["plain"]["equal"] == len(TEXTS)
    assert record["parts"]["sampling"]["e_value_by_completions"]
    assert record["subject"]["drafter"] == "ngram"
