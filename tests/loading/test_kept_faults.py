"""What is kept of a first load never changes what later loads and other readers of the model do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import families
from support.gguf_files import Q, byte_level, trained, write
from support.tiny import random_model

from headstart.base.files import cache_directory
from headstart.loading import checkpoint as checkpoints
from headstart.loading.checkpoint import Checkpoint
from headstart.model import loading, native
from headstart.model.kept.config import KeptConfig

CPU = torch.device("cpu")

pytestmark = pytest.mark.skipif(not native.available(), reason="no row kernels here, and nothing else is kept")


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The sources of which modules were made; tiny models are kept too, in a cache of their own."""
    kernels, cache, found = cache_directory("kernels"), tmp_path / "cache", list[str]()
    (cache / "headstart").mkdir(parents=True)
    (cache / "headstart" / "kernels").symlink_to(kernels, target_is_directory=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(checkpoints, "WORTH_KEEPING", 0)
    load_weights = loading.load_weights

    def counted(source: str, *given: Any, **options: Any) -> Any:
        found.append(source)
        return load_weights(source, *given, **options)

    monkeypatch.setattr(loading, "load_weights", counted)
    return found


def gguf(path: Path, **more: Any) -> Path:
    return write(path, random_model("llama", **more), kind=Q.Q4_0, tokenizer=byte_level(trained("gpt-2")))


def folder(path: Path, dtype: torch.dtype = torch.float32) -> Path:
    families.random_model(families.config_of("llama"), dtype).save_pretrained(path)
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
