"""A manifest is read as it was written, and anything else is refused with the place that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headstart.base.errors import InvalidFile
from headstart.fleet.export.manifest import (
    CostsRecord,
    DepthAt,
    DrafterRecord,
    Expected,
    Figure,
    Manifest,
    PositionRecord,
    PromptsRecord,
    TargetRecord,
    read_manifest,
)

MANIFEST = Manifest(
    engine="vllm",
    created="2026-01-01T00:00:00+00:00",
    command="headstart export a b -o c",
    versions={"headstart": "0.1.0"},
    target=TargetRecord("/models/target", "/home/me/target", None, {"config.json": "ab"}, "float32", 6144, 8),
    drafter=DrafterRecord("eagle3", "drafter", "my-head", {"model.safetensors": "cd"}, (2, 5, 7)),
    depth=4,
    expected=Expected(
        PromptsRecord(12, "ef", "sample prompts"),
        96,
        0.0,
        False,
        Figure(3.4, 3.1, 3.7),
        (PositionRecord(1, 314, 260, 0.828, 0.78, 0.87),),
    ),
    depth_by_batch=(DepthAt(1, 5, 1.9), DepthAt(32, 0, 1.0)),
    off_from=32,
    costs=CostsRecord("file: costs.json", 0.1, {"1": 1.0, "8": 1.4}),
    tested={"vllm": "0.32.0"},
    warnings=("a warning",),
)


def written(folder: Path, record: Any) -> Path:
    (folder / "manifest.json").write_text(record if isinstance(record, str) else json.dumps(record))
    return folder


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_manifest(written(tmp_path, MANIFEST.text())) == MANIFEST


def test_the_field_names_of_the_format() -> None:
    record = MANIFEST.record()
    assert next(iter(record)) == "headstart_export"
    assert record["drafter"]["from"] == "my-head"
    assert record["expected"]["by_position"][0] == {
        "position": 1, "tested": 314, "accepted": 260, "value": 0.828, "low": 0.78, "high": 0.87,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"headstart_export": 2}, "version 2"),
        ({"headstart_export": None}, "no manifest"),
        ({"depth": 0}, "depth"),
        ({"depth": "4"}, "depth"),
        ({"engine": "tgi"}, "engine"),
        ({"surprise": 1}, "surprise"),
        ({"drafter": {**MANIFEST.record()["drafter"], "kind": "hydra"}}, "drafter.kind"),
        ({"target": {}}, "target.name"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidFile, match=words):
        read_manifest(written(tmp_path, MANIFEST.record() | change))


@pytest.mark.parametrize("text", ["", "[]", "{", "{}"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidFile):
        read_manifest(written(tmp_path, text))


def test_a_folder_without_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="no export"):
        read_manifest(tmp_path)
