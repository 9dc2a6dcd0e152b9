"""A tiny random target with a byte tokenizer, and a tiny text, shared by the tests of training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.training_models import byte_tokenizer, tiny_llama

from headstart.train import DraftTraining, Shape


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny target."""
    folder = tmp_path_factory.mktemp("target")
    tiny_llama().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a few short text files."""
    folder = tmp_path_factory.mktemp("texts")
    for i in range(12):
        lines = "".join(f"def f{j}(x):\n    return x + {i * j}\n\n" for j in range(6))
        (folder / f"{i}.py").write_text(lines)
    return folder


@pytest.fixture
def options(target: Path, texts: Path, tmp_path: Path) -> DraftTraining:
    """A run of a few seconds in float32."""
    return DraftTraining(
        target=target,
        output=tmp_path / "draft",
        data=(texts,),
        shape=Shape(hidden=32, layers=1, intermediate=64, heads=2, kv_heads=1),
        steps=40,
        batch_size=4,
        sequence_length=32,
        validation=0.2,
        validation_windows=8,
        dtype="float32",
        device="cpu",
    )
