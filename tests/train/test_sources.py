"""Readers of text: files, directories, JSONL, and what they refuse."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from headstart.base.errors import InvalidOption, TrainingFailed
from headstart.base.traffic import Exchange, write
from headstart.train.sources import Document, read


def test_directory_is_read_in_order_and_hashed(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.py").write_text("three")
    (tmp_path / "a.md").write_text("one")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    corpus = read([tmp_path])
    assert [d.text for d in corpus.documents] == ["one", "two", "three"]
    assert corpus.files[0].sha256 == hashlib.sha256(b"one").hexdigest()


def test_jsonl_takes_text_prompt_and_turns(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    records = [{"text": "plain"}, {"prompt": "ask"}, {"question_id": 1, "category": "x", "turns": ["a", "b"]}]
    file.write_text("\n".join(map(json.dumps, records)) + "\n\n")
    assert read([file]).documents == (Document("plain"), Document(turns=("ask",)), Document(turns=("a", "b")))


def test_traffic_is_read_in_token_ids(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"
    write(file, [Exchange((1, 2), (3,)), Exchange((4,), (5, 6))], "target")
    assert read([file]).documents == (Document(tokens=(1, 2, 3), asked=2), Document(tokens=(4, 5, 6), asked=1))
    assert read([file]).files[0].documents == 2


@pytest.mark.parametrize("line", ["{", '"text"', '{"answer": "x"}', '{"turns": []}', '{"turns": [1]}'])
def test_bad_jsonl_names_the_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"text": "good"}\n' + line + "\n")
    with pytest.raises(InvalidOption, match="line 2"):
        read([file])


def test_named_file_is_read_whatever_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "LICENCE").write_text("words")
    assert read([tmp_path / "LICENCE"]).documents == (Document("words"),)


def test_missing_path_and_other_encodings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="does not exist"):
        read([tmp_path / "nothing"])
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(InvalidOption, match="UTF-8"):
        read([tmp_path])


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(TrainingFailed, match="no text"):
        read([tmp_path])
