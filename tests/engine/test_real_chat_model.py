"""A real chat model, where the environment variable HEADSTART_REAL_MODEL names one (tools/smollm2.py makes it)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headstart as hs
from headstart.base.prompt_sets import by_category, read_prompt_set
from headstart.engine.prompts import templated

MODEL = os.environ.get("HEADSTART_REAL_MODEL", "")
CHAT = Path(__file__).parents[2] / "benchmarks" / "prompts" / "chat.jsonl"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODEL, reason="HEADSTART_REAL_MODEL names no model; tools/smollm2.py makes one"),
]


@pytest.mark.parametrize("drafter", ["ngram", "suffix", "early-exit"])
def test_one_prompt_of_each_kind_has_the_text_of_plain_decoding(drafter: str) -> None:
    engine = hs.load(MODEL, drafter=drafter, dtype="float32", max_length=1024)
    items = [templated(engine.tokenizer, group[0]) for group in by_category(read_prompt_set(CHAT)).values()]
    assert {item.form for item in items} == {"template"}
    assert len(items) == 13
    sampling = hs.Sampling(max_tokens=48)
    plain = engine.plain()
    for item in items:
        fast, slow = engine.generate(item.prompt, sampling), plain.generate(item.prompt, sampling)
        assert fast.tokens == slow.tokens, item.category
        assert fast.text.strip()
