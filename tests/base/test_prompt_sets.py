"""Prompt sets: what is read, in which category, and how a bad line is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.base.errors import InvalidPrompt
from headstart.base.prompt_sets import Chat, PromptItem, by_category, paragraphs, read_prompt_set, words_of_forms
from headstart.measure.samples import sample_prompts


def test_spec_bench_lines_have_categories_and_names(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(
        '{"question_id": 81, "category": "writing", "turns": ["Write", "More"]}\n'
        '\n{"prompt": [1, 2, 3]}\n{"text": "plain", "category": "writing"}\n'
    )
    assert read_prompt_set(file) == [
        PromptItem("Write", "writing", "81", Chat(({"role": "user", "content": "Write"},), ("More",))),
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
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"prompt": ""}', "is empty"),
        ('{"answer": "x"}', "no prompt"),
        ('{"turns": [""]}', "is empty"),
        ('{"turns": ["Write", 5]}', "a turn is empty or no text"),
        ('{"messages": "Write"}', "no list"),
        ('{"messages": [{"role": "user"}]}', 'no "content"'),
    ],
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


def test_messages_are_a_conversation(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    file = tmp_path / "talks.jsonl"
    file.write_text(json.dumps({"messages": talk}) + '\n{"turns": [[1, 2], [3]]}\n')
    first, second = read_prompt_set(file)
    assert first.chat == Chat(tuple(talk))
    assert first.prompt == "Be brief.\n\nWhy?", "the text alone, for a model without a chat template"
    assert (second.prompt, second.chat) == ([1, 2], None), "token ids stay what they are"


def test_an_answer_leads_to_the_next_turn() -> None:
    chat = Chat(({"role": "user", "content": "A"},), ("B", "C")).answered("yes")
    assert [message["content"] for message in chat.messages] == ["A", "yes", "B"]
    assert [message["role"] for message in chat.messages] == ["user", "assistant", "user"]
    assert chat.later == ("C",)


def test_a_text_is_split_at_its_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("\n  first\n    indented\n\n \t\nsecond\r\n\nthird")
    assert [(item.name, item.prompt) for item in read_prompt_set(file, split=True)] == [
        ("prompts.txt, line 2", "  first\n    indented"),
        ("prompts.txt, line 6", "second"),
        ("prompts.txt, line 8", "third"),
    ]
    assert len(read_prompt_set(file)) == 1
    assert paragraphs("\n \n") == []
    file.write_text("one\n")
    assert read_prompt_set(file, split=True) == read_prompt_set(file)


def test_forms_in_words() -> None:
    assert words_of_forms(["raw", "template", "template"]) == "2 through the chat template, 1 raw"
    assert "no chat template" in words_of_forms(["turns raw"])
    assert words_of_forms(["", ""]) == "", "older files do not know"
