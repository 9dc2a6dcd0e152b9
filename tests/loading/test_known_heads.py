"""A head that comes with headstart is found by its target's config, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import eagle_heads
from transformers import AutoConfig

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.loading import known_heads
from headstart.loading.choice import choose
from headstart.loading.known_heads import TARGET, head_for
from headstart.model.heads.eagle_checkpoint import read

FIELDS = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size", "rope_theta")


def fields_of(target: str) -> dict[str, Any]:
    config = json.loads((Path(target) / "config.json").read_text())
    config |= config.get("rope_parameters") or {}
    return {name: config[name] for name in FIELDS}


@pytest.fixture
def target(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A target for which a head lies in the package."""
    found = eagle_heads.target(root)
    heads = tmp_path / "heads"
    eagle_heads.write(heads / "one", "eagle3", draft_vocab=13)
    file = heads / "one" / "config.json"
    config = json.loads(file.read_text())
    config["headstart"] = {"layer_ids": [0, 2, 3], "layer_ids_are": "inputs", TARGET: fields_of(found)}
    file.write_text(json.dumps(config))
    monkeypatch.setattr(known_heads, "FOLDER", heads)
    return found


def test_auto_takes_it(target: str) -> None:
    choice = choose(target, "auto")
    assert [(each.name, each.kind) for each in choice.drafters] == [("ngram", "ngram"), ("eagle3", "eagle")]
    assert "comes with headstart" in choice.reason
    engine = hs.load(target, dtype="float32")
    text = engine.generate([3, 4, 5], hs.Sampling(max_tokens=12)).tokens
    assert text == engine.plain().generate([3, 4, 5], hs.Sampling(max_tokens=12)).tokens
    assert "eagle3" in engine.drafter_name


def test_it_has_a_name(target: str) -> None:
    (found,) = choose(target, "eagle3").drafters
    assert (found.name, found.kind) == ("eagle3", "eagle")
    with pytest.raises(InvalidOption, match="there is none for"):
        choose(target, "medusa")


@pytest.mark.parametrize("field", FIELDS)
def test_another_model_has_none(target: str, field: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = json.loads((Path(target) / "config.json").read_text())
    if field == "rope_theta":
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": 123.0}
        config.pop("rope_theta", None)
    else:
        config[field] = "mistral" if field == "model_type" else config[field] * 2
    (other / "config.json").write_text(json.dumps(config))
    assert head_for(target) is not None
    assert head_for(str(other)) is None
    assert "eagle3" not in [each.name for each in choose(str(other), "auto").drafters]


def test_an_end_token_may_stand_in_a_list() -> None:
    for ours, theirs in ((2, [2]), ([2], 2), (2, 2)):
        assert known_heads._fits({"eos_token_id": theirs}, {"eos_token_id": ours})
    assert not known_heads._fits({"eos_token_id": [2, 3]}, {"eos_token_id": 2})


@pytest.mark.parametrize("text", [None, "", "[]", "{"])
def test_a_config_that_cannot_be_read_has_none(target: str, text: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    if text is not None:
        (folder / "config.json").write_text(text)
    assert head_for(str(folder)) is None


def test_the_bundled_target_has_its_own() -> None:
    assert head_for("bundled") is None
    assert choose("bundled", "eagle3").drafters[0].kind == "eagle"


@pytest.mark.parametrize("folder", sorted(path.parent for path in known_heads.FOLDER.glob("*/config.json")), ids=str)
def test_those_of_the_package_fit_the_targets_that_they_name(folder: Path) -> None:
    fields = json.loads((folder / "config.json").read_text())["headstart"][TARGET]
    found = read(folder, AutoConfig.for_model(**fields))
    assert found.config.layer_ids[-1] < fields["num_hidden_layers"]
    assert found.token_ids is not None
    assert sum(file.stat().st_size for file in folder.iterdir()) < 12e6
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["kind"] == "headstart eagle3"


def test_a_note_beside_the_target_comes_first(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "noted"
    folder.mkdir()
    for file in Path(target).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "headstart.json").write_text('{"drafter": "suffix"}')
    assert [each.name for each in choose(str(folder), "auto").drafters] == ["suffix"]
