"""Prompt sets: what is read, in which category, and how a bad line is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.errors import InvalidPrompt
from headstart.insight.samples import sample_prompts
from headstart.prompt_sets import PromptItem, by_category, read_prompt_set


def test_spec_bench_lines_have_categories_and_names(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(
        '{"question_id": 81, "category": "writing", "turns": ["Write", "More"]}\n'
        '\n{"prompt": [1, 2, 3]}\n{"text": "plain", "category": "writing"}\n'
    )
    assert read_prompt_set(file) == [
        PromptItem("Write", "writing", "81"),
        PromptItem([1, 2, 3], "all", f"{file}, line 3"),
        PromptItem("plain", "writing", f"{file}, line 4"),
    ]


def test_a_directory_is_sorted_by_folder(tmp_path: Path) -> None:
    for name, text in {"code/a.py": "def a():\n", "code/b.py": "def b():", "notes.txt": "Note", ".x/c": "no"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = by_category(read_prompt_set(tmp_path))
    assert {kind: [item.prompt for item in items] for kind, items in found.items()} == {
        "code": ["def a():", "def b():"],
        "notes": ["Note"],
    }


@pytest.mark.parametrize(
    ("line", "says"),
    [("{", "not JSON"), ("[]", "not a JSON object"), ('{"prompt": ""}', "is empty"), ('{"answer": "x"}', "no prompt")],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(InvalidPrompt, match=f"line 2.*{says}"):
        read_prompt_set(file)


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidPrompt, match="holds no file"):
        read_prompt_set(tmp_path)
    with pytest.raises(InvalidPrompt, match="cannot read"):
        read_prompt_set(tmp_path / "missing.txt")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(InvalidPrompt, match="holds no prompt"):
        read_prompt_set(tmp_path / "empty.jsonl")


def test_the_samples_are_distinct() -> None:
    items = sample_prompts()
    assert len({item.prompt for item in items}) == len(items) == 12
    assert len(by_category(items)) == 3
