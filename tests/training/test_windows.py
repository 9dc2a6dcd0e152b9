"""Windows lose nothing but the last few tokens, and batches depend on the step alone."""

from __future__ import annotations

import pytest
import torch

from headstart.errors import TrainingFailed
from headstart.training import windows


def test_pack_keeps_every_token_but_the_last_few() -> None:
    documents = [list(range(10)), list(range(100, 107)), list(range(200, 203))]
    packed = windows.pack(documents, 4, what="training")
    assert packed.shape == (5, 4)
    assert set(packed.flatten().tolist()) == {t for d in documents for t in d}
    assert packed[0].tolist() == [0, 1, 2, 3]


def test_split_holds_documents_out_whole() -> None:
    documents = [[i] * 5 for i in range(20)]
    train, held = windows.split(documents, 0.1, seed=3)
    assert len(held) == 2
    assert sorted(train + held) == documents
    assert windows.split(documents, 0.1, seed=3) == (train, held)


def test_a_single_document_is_cut() -> None:
    assert windows.split([list(range(10))], 0.2, seed=0) == ([list(range(8))], [[8, 9]])


def test_too_little_text_is_refused() -> None:
    with pytest.raises(TrainingFailed, match="validation"):
        windows.pack([[1, 2, 3]], 8, what="validation")


def test_each_epoch_sees_every_window_once_in_another_order() -> None:
    packed = torch.arange(12, dtype=torch.int32)[:, None]
    seen = torch.cat([packed[windows.picks(12, step, 4, seed=1)] for step in range(6)]).flatten().tolist()
    assert sorted(seen[:12]) == sorted(seen[12:]) == list(range(12))
    assert seen[:12] != seen[12:]
    assert packed[windows.picks(12, 5, 4, seed=1)].flatten().tolist() == seen[20:]
    assert packed[windows.picks(12, 0, 4, seed=2)].flatten().tolist() != seen[:4]
