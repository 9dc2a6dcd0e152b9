"""Real prompts by kind: which are asked, what a results file says of them, and the figures of a whole run."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headstart.base.errors import InvalidOption

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import real_text
finally:
    sys.path.pop(0)


class Words:
    """A tokenizer of words, without a chat template."""

    chat_template = None

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [len(word) for word in text.split()]}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Spec-Bench's form: six questions of two kinds, of which one is long."""
    lines: list[dict[str, Any]] = [
        {"question_id": 80 + i, "category": "qa" if i < 4 else "rag", "turns": ["who was it " * (i + 1), "and then?"]}
        for i in range(6)
    ]
    path = tmp_path / "question.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_prompts_are_chosen_by_kind_and_spread_over_the_file(questions: Path) -> None:
    everything = real_text.read(questions, Words(), 100)
    assert [item.name for item in everything] == ["80", "81", "82", "83", "84", "85"]
    assert [item.name for item in real_text.read(questions, Words(), 100, per_kind=2)] == ["80", "82", "84", "85"]
    assert [item.name for item in real_text.read(questions, Words(), 100, kinds=["rag"])] == ["84", "85"]
    assert [item.name for item in real_text.read(questions, Words(), 16)] == ["80", "81", "82", "83", "84"], "that fit"


@pytest.mark.parametrize(("kinds", "room", "hint"), [(["qa", "poem"], 100, "qa, rag"), (["rag"], 9, "--max-length")])
def test_a_kind_without_prompts_is_refused(questions: Path, kinds: list[str], room: int, hint: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        real_text.read(questions, Words(), room, kinds=kinds)
    assert refused.value.hint is not None
    assert hint in refused.value.hint


def test_results_say_which_prompts_were_asked(questions: Path) -> None:
    said = real_text.asked(questions, real_text.read(questions, Words(), 100, per_kind=1))
    assert said["sha256"] == hashlib.sha256(questions.read_bytes()).hexdigest()
    assert said["kinds"] == {"qa": {"names": ["80"], "tokens": [3]}, "rag": {"names": ["84"], "tokens": [15]}}


def test_a_run_on_a_file_of_ones_own(questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--target", "bundled", "--prompts", str(questions), "--kinds", "rag", "--per-kind", "1"]
    options = ["--drafter", "n-gram=ngram@2", "--temperature", "0", "--rounds", "1", "--max-tokens", "6"]
    real_text.main([*given, *options, "--dtype", "float32", "--max-length", "256", "--results", str(tmp_path)])
    (file,) = tmp_path.glob("real-text-*.json")
    found = json.loads(file.read_text())
    cell = found["tables"]["batch 1, T=0"]
    assert found["prompts"]["kinds"]["rag"]["names"] == ["84"]
    assert cell["plain"]["kinds"] == {"rag": 1.0}
    assert cell["plain"]["tokens_per_forward_by_kind"] == {"rag": 1.0}
    assert cell["n-gram"]["same_texts"] == cell["n-gram"]["texts"] == 1
    assert cell["n-gram"]["kinds"]["rag"] == cell["n-gram"]["prompts"]["84"] > 0
    assert re.search(r"│ rag +│", capsys.readouterr().out)
