"""A fingerprint is that of weights and tokens, wherever they lie, and changes with one bit in a sample of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from headstart.model.fingerprint import fingerprint


def test_models_are_told_apart_and_copies_are_not(tiny: Callable[..., str], tmp_path: Path) -> None:
    model = tiny("llama")
    copy = shutil.copytree(model, tmp_path / "copy")
    assert fingerprint(str(copy)) == fingerprint(model)
    assert fingerprint(tiny("llama", noise=0.01)) != fingerprint(model)
    assert len(fingerprint(model)) == 16
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert fingerprint(str(copy)) != fingerprint(model)


def test_other_tokens_are_another_model(tiny: Callable[..., str], tmp_path: Path) -> None:
    copy = shutil.copytree(tiny("llama"), tmp_path / "copy")
    before = fingerprint(str(copy))
    (copy / "tokenizer.json").write_text("{}")
    assert fingerprint(str(copy)) != before


def test_nothing_to_sample_is_told_by_its_name(tmp_path: Path) -> None:
    names = {fingerprint(str(tmp_path / name)) for name in ("a", "b")}
    assert len(names) == 2
