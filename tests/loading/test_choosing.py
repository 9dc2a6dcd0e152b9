"""Which drafters a name stands for, what "auto" takes, and how mistakes are told."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.eagle_heads import write

import headstart as hs
from headstart.base.errors import InvalidOption, ModelNotFound
from headstart.loading.choice import DrafterSpec, choose


def kinds(*wanted: Any) -> list[str]:
    return [each.kind for each in choose(*wanted).drafters]


def test_names() -> None:
    assert kinds("bundled", ["ngram", "suffix", "early-exit", "lookahead", "bundled"]) == [
        "ngram", "suffix", "early-exit", "lookahead", "draft",
    ]  # fmt: skip
    assert choose("bundled", "none").drafters == choose("bundled", None).drafters == ()


def test_bundled_heads_belong_to_the_bundled_target(tiny: Callable[..., str]) -> None:
    assert kinds("bundled", "medusa") == ["medusa"]
    assert kinds("bundled", "eagle3") == ["eagle"]
    with pytest.raises(InvalidOption, match="there is none for") as caught:
        choose(tiny("llama"), "medusa")
    assert "train medusa" in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "meant"), [("ngrm", "ngram"), ("n-gram", "ngram"), ("earlyexit", "early-exit"), ("eagle-3", "eagle3")]
)
def test_a_misspelt_name_is_not_taken_for_a_model_of_the_hub(asked: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match="is no drafter, and no file or directory") as caught:
        choose("bundled", ["suffix", asked])
    assert f"did you mean '{meant}'?" in caught.value.hint


def test_a_folder_may_have_almost_the_name_of_a_drafter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Callable[..., str]
) -> None:
    (tmp_path / "ngrams").symlink_to(tiny("llama"))
    monkeypatch.chdir(tmp_path)
    assert kinds("bundled", "ngrams") == ["draft"]


def test_auto_may_end_a_list(tiny: Callable[..., str], load: Callable[..., hs.Engine]) -> None:
    choice = choose(tiny("llama"), ["prediction", "ngram", "auto"])
    assert [each.name for each in choice.drafters] == ["prediction", "ngram", "suffix"]
    assert choice.reason == choose(tiny("llama"), "auto").reason
    assert load(tiny("llama"), ["prediction", "auto"]).drafter_name == "prediction + suffix + ngram"


def test_auto_for_a_target_without_a_recommendation(tiny: Callable[..., str]) -> None:
    choice = choose(tiny("llama"), "auto")
    assert [each.name for each in choice.drafters] == ["suffix", "ngram"]
    assert "no drafter is recommended" in choice.reason


def target_with_note(tiny: Callable[..., str], folder: Path, note: str) -> str:
    for file in Path(tiny("llama")).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "headstart.json").write_text(note)
    return str(folder)


def test_auto_takes_what_is_recommended_and_says_so(
    tiny: Callable[..., str], load: Callable[..., hs.Engine], tmp_path: Path
) -> None:
    note = json.dumps({"drafter": ["ngram", tiny("llama", noise=0.02)]})
    target = target_with_note(tiny, tmp_path, note)
    engine = load(target, "auto")
    assert engine.drafter_name.startswith("ngram + ")
    assert "recommended in" in engine.describe()["chosen"]
    assert engine.generate([5, 6, 5, 6], hs.Sampling(max_tokens=8)).stats.speculation.on


def test_a_recommended_path_is_meant_from_where_the_note_stands(tiny: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    target = target_with_note(tiny, tmp_path / "target", '{"drafter": "../draft"}')
    (tmp_path / "draft").mkdir()
    for file in Path(tiny("llama", noise=0.02)).iterdir():
        (tmp_path / "draft" / file.name).write_bytes(file.read_bytes())
    (wanted,) = choose(target, "auto").drafters
    assert wanted.kind == "draft"
    assert Path(wanted.name).resolve() == tmp_path / "draft"


@pytest.mark.parametrize("note", ["{", "[]", "{}", '{"drafter": 3}', '{"drafter": []}', '{"drafter": ["a", 1]}'])
def test_a_note_that_names_nothing(note: str, tiny: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"headstart\.json"):
        choose(target_with_note(tiny, tmp_path, note), "auto")


def test_a_head_is_known_by_its_files(tiny: Callable[..., str], tmp_path: Path) -> None:
    write(tmp_path, "speculators")
    assert choose(tiny("llama"), str(tmp_path)).drafters == (DrafterSpec(str(tmp_path), "eagle", tmp_path),)
    with pytest.raises(ModelNotFound):
        choose(tiny("llama"), str(tmp_path / "config.json"))


def test_what_was_chosen_is_logged_nowhere_but_told(
    tiny: Callable[..., str], load: Callable[..., hs.Engine], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        engine = load(tiny("llama"), "auto")
    assert engine.describe()["chosen"] == choose(tiny("llama"), "auto").reason
    assert not caplog.records
