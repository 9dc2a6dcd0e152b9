"""A checkpoint is complete or it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headstart.train import checkpoint


def test_what_is_saved_comes_back_and_the_old_one_goes(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    checkpoint.save(tmp_path, 5, {"a": {"x": torch.ones(2)}}, {"seconds": 1.5})
    checkpoint.save(tmp_path, 12, {"a": {"x": torch.zeros(2)}}, {"seconds": 2.5})
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert (found.step, found.state()) == (12, {"seconds": 2.5})
    assert torch.equal(found.tensors("a")["x"], torch.zeros(2))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_kill_while_writing_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 5, {"a": {"x": torch.ones(2)}}, {})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "_flush", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 9, {"a": {"x": torch.zeros(2)}}, {})
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 5
    monkeypatch.undo()
    assert checkpoint.save(tmp_path, 9, {"a": {"x": torch.zeros(2)}}, {}).step == 9
    assert {p.name for p in tmp_path.iterdir()} == {"step-00000009"}
