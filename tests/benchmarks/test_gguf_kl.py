"""The figures of `benchmarks/gguf_kl.py`: divergences of distributions that can be written down, and which texts are
judged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from gguf_kl import divergences, facts, read_texts


def test_divergences_are_those_of_the_distributions() -> None:
    right = torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]).log()
    found = torch.tensor([[0.25, 0.5, 0.25], [0.9, 0.05, 0.05]]).log()
    kl, same = divergences(right + 3, found - 1)
    torch.testing.assert_close(kl.float(), torch.tensor([0.25 * math.log(2), 0.0]))
    assert same.tolist() == [False, True]
    of = facts(kl, same)
    assert of["mean"] == pytest.approx(0.125 * math.log(2))
    assert of["same_likeliest"] == 0.5


def test_answers_are_judged_and_nothing_else(tmp_path: Path) -> None:
    lines = [{"prompt": [1, 2, 3], "output": list(range(n))} for n in (5, 20, 30, 600)]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    texts = read_texts(path, 100, 64, 0)
    assert sorted(text.judged for text in texts) == [20, 30]
    assert all(len(text.given) == text.judged + 2 for text in texts)
