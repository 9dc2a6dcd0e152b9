"""What is kept of a first load never changes what later loads and other readers of the model do."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import families
from support.gguf_files import Q, byte_level, trained, write
from support.tiny import random_model

from headstart.base.errors import NotEnoughMemory
from headstart.base.files import cache_directory
from headstart.base.lazy import Deferred
from headstart.loading import checkpoint as checkpoints
from headstart.loading import info, kept
from headstart.loading.checkpoint import Checkpoint
from headstart.model import loading, native, runner
from headstart.model.kept import config as configs
from headstart.model.kept import store, weights
from headstart.model.kept.config import KeptConfig
from headstart.model.kept.tokenizer import KeptTokenizer
from headstart.model.longrope import turns_by_length

CPU = torch.device("cpu")

pytestmark = [
    pytest.mark.skipif(not native.available(), reason="no row kernels here, and nothing else is kept"),
    pytest.mark.usefixtures("made"),
]


def gguf(path: Path, **more: Any) -> Path:
    return write(path, random_model("llama", **more), kind=Q.Q4_0, tokenizer=byte_level(trained("gpt-2")))


def folder(path: Path, name: str = "llama") -> Path:
    families.random_model(families.config_of(name), torch.float32).save_pretrained(path)
    return path


def checkpoint(source: Path, **options: Any) -> Checkpoint:
    return Checkpoint(source, "target", device=CPU, **options)


@pytest.mark.parametrize("of", [gguf, folder])
def test_a_model_that_is_kept_is_read_for_training_as_before(of: Any, tmp_path: Path) -> None:
    source = of(tmp_path / ("m.gguf" if of is gguf else "m"))
    first = checkpoint(source)
    first.runner(None)
    second = checkpoint(source)
    assert isinstance(second.config, KeptConfig)
    right, found = (loading.read_model(str(source), each.config, torch.float32) for each in (first, second))
    assert type(found) is type(right)
    assert all(torch.equal(*each) for each in zip(found.parameters(), right.parameters(), strict=True))


def test_a_dtype_that_was_asked_for_is_not_the_models_own_at_the_next_load(tmp_path: Path) -> None:
    source = gguf(tmp_path / "m.gguf")
    own = checkpoint(source, probe="always").dtype
    assert own == torch.bfloat16
    for quantize in (None, "none"):
        first = checkpoint(source, dtype="float32")
        first.runner(quantize)
        assert first.dtype == torch.float32
        assert first.config.dtype == own
    second = checkpoint(source)
    assert isinstance(second.config, KeptConfig)
    assert second.dtype == own


def test_a_length_finds_what_was_kept_at_another(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = gguf(tmp_path / "m.gguf")

    def probed(length: Any) -> bool:
        made.clear()
        checkpoint(source, max_length=length).runner(None)
        return bool(made)

    assert [probed(length) for length in (64, 100, "auto", None)] == [True, False, False, False]
    monkeypatch.setattr(weights, "_COMPARED", 0)
    source = gguf(tmp_path / "other.gguf", seed=1)
    assert [probed(length) for length in (64, 48, 96, 80)] == [True, False, True, False]


@pytest.mark.parametrize("name", [*(name for name in families.FAMILIES if "hunyuan_v1_dense" in name), "phi3"])
def test_a_rotation_that_depends_on_the_text_is_as_it_was(name: str, tmp_path: Path, made: list[str]) -> None:
    source = folder(tmp_path / "m", name)
    first, second = (checkpoint(source, max_length=64).runner(None) for _ in range(2))
    assert made == [str(source)]
    assert first.passed is not None
    assert first.passed == second.passed


def test_the_length_counts_where_the_rotation_depends_on_it() -> None:
    kind = {"rope_type": "longrope"}
    for stated in (kind, {"full_attention": kind, "sliding_attention": {"rope_type": "default"}}):
        assert turns_by_length(SimpleNamespace(rope_parameters=stated))
    for stated in (None, {}, {"rope_type": "yarn", "factor": 2.0}):
        assert not turns_by_length(SimpleNamespace(rope_parameters=stated))


def test_a_tokenizer_that_is_gone_is_kept_again_and_what_is_read_stays(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = gguf(tmp_path / "m.gguf")
    checkpoint(source).runner(None)
    for path in cache_directory(store.KIND).glob("tokenizer-*"):
        path.unlink()
    for _ in range(2):
        checkpoint(source).runner(None)
    assert made == [str(source)] * 2
    stale = cache_directory(store.KIND) / "stale.json"
    stale.touch()
    os.utime(stale, (100, 100))
    for path in set(cache_directory(store.KIND).glob("*.json")) - {stale}:
        os.utime(path, (1, 1))
    monkeypatch.setattr(store, "MOST", 5)
    other = folder(tmp_path / "m")
    for each in (source, other):  # the three files of the one are read, two of the other are added
        checkpoint(each).runner(None)
    made.clear()
    for each in (source, other):
        checkpoint(each).runner(None)
    assert made == []
    assert not stale.exists()


@pytest.mark.parametrize("of", [gguf, folder])
@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "special_tokens_map.json", "config.json", "additional_chat_templates/of.jinja"]
)
def test_each_file_that_a_tokenizer_is_read_from_counts(of: Any, name: str, tmp_path: Path) -> None:
    source = of(tmp_path / ("m.gguf" if of is gguf else "m"))
    before = store.facts_of(str(source))
    added = (tmp_path if of is gguf else source) / name
    added.parent.mkdir(exist_ok=True)
    added.write_text("{} ")
    assert store.facts_of(str(source)) != before


def test_a_model_is_described_by_its_own_config(tmp_path: Path) -> None:
    source = folder(tmp_path / "m")
    before = info.describe(source)
    checkpoint(source).runner(None)
    after = info.describe(source)
    for name in ("architecture", "parameters", "formats", "kinds"):
        assert getattr(after, name) == getattr(before, name)


@pytest.mark.parametrize("name", ["recipe", "real", "to_dict"])
def test_a_config_with_names_of_ours_is_not_kept(name: str) -> None:
    config = families.config_of("llama")
    config.dtype = torch.float32
    assert configs.to_keep(config) is not None
    vars(config)[name] = 1
    assert configs.to_keep(config) is None


@pytest.mark.parametrize("where", ["listed", "holds", "to_keep", "facts_of"])
def test_a_load_works_whatever_keeping_raises(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    owner = {"listed": runner, "holds": kept, "to_keep": kept.tokenizer, "facts_of": store}[where]
    monkeypatch.setattr(owner, where, fails)
    source = gguf(tmp_path / "m.gguf")
    assert checkpoint(source).runner(None).decoder == "fused"
    assert not cache_directory(store.KIND).exists()


def test_a_lack_of_memory_is_no_fault_of_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = gguf(tmp_path / "m.gguf")
    checkpoint(source).runner(None)

    def fails(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as changed:
        changed.setattr(checkpoints, "kept_model", fails)
        with pytest.raises(NotEnoughMemory):
            checkpoint(source).runner(None)
    second = checkpoint(source)
    second.runner(None)
    assert isinstance(second.config, KeptConfig)


def test_nothing_is_listed_where_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(runner, "listed", lambda *given: called.append(given))
    checkpoint(gguf(tmp_path / "m.gguf"), probe="always").runner(None)
    assert called == []


def test_a_kept_tokenizer_has_attributes_and_takes_them(tmp_path: Path) -> None:
    source = gguf(tmp_path / "m.gguf")
    first = checkpoint(source)
    first.runner(None)
    ours, theirs = checkpoint(source).tokenizer, first.tokenizer
    assert isinstance(ours, KeptTokenizer)
    found = ours("def add")
    assert (found.input_ids, found.attention_mask) == (found["input_ids"], found["attention_mask"])
    assert not hasattr(found, "pixel_values")
    ours("def add")
    assert "real" not in vars(ours)
    for each in (ours, theirs):
        each.eos_token = "def"
        each.model_input_names = ["input_ids"]
    assert ours.eos_token_id == theirs.eos_token_id
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert dict(ours("def add")) == dict(theirs("def add"))
    assert ours.decode(found.input_ids) == theirs.decode(found.input_ids)


def test_first_actions_are_done_before_another_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    library, seen = Deferred("colorsys"), list[str]()

    def act(_: Any) -> None:
        seen.append("begun")
        time.sleep(0.05)
        seen.append("done")

    library.first(act)
    threads = [threading.Thread(target=lambda: seen.append(library.hls_to_rgb.__name__)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == ["begun", "done", *["hls_to_rgb"] * 4]
    library.first(lambda found: seen.append(found.__name__))
    assert seen[-1] == "colorsys"
    assert not hasattr(library, "no_such_name")
