"""Windows lose nothing but the last few tokens, and batches depend on the step alone."""

from __future__ import annotations

import pytest
import torch

from headstart.base.errors import TrainingFailed
from headstart.train import windows
from headstart.train.windows import Text


def test_pack_keeps_every_token_but_the_last_few() -> None:
    documents = [list(range(10)), list(range(100, 107)), list(range(200, 203))]
    packed = windows.pack(map(Text, documents), 4, what="training").ids
    assert packed.shape == (5, 4)
    assert set(packed.flatten().tolist()) == {t for d in documents for t in d}
    assert packed[0].tolist() == [0, 1, 2, 3]


def test_split_holds_documents_out_whole() -> None:
    documents = [Text([i] * 5) for i in range(20)]
    train, held = windows.split(documents, 0.1, seed=3)
    assert len(held) == 2
    assert sorted(train + held, key=lambda text: text.ids) == documents
    assert windows.split(documents, 0.1, seed=3) == (train, held)


def test_what_is_held_out_fills_a_window_where_half_of_the_documents_can() -> None:
    documents = [Text([i] * 5) for i in range(20)]
    train, held = windows.split(documents, 0.02, seed=3, least=17)
    assert (len(held), len(train)) == (4, 16)
    assert held[:1] == windows.split(documents, 0.02, seed=3)[1]
    assert len(windows.split(documents, 0.02, seed=3, least=1000)[1]) == 10
    assert windows.split(documents, 0.5, seed=3, least=17) == windows.split(documents, 0.5, seed=3)


def test_a_single_document_is_cut() -> None:
    assert windows.split([Text(range(10), 9)], 0.2, seed=0) == ([Text(range(8), 8)], [Text(range(8, 10), 1)])


def test_a_window_remembers_which_tokens_are_answers() -> None:
    documents = [Text([1, 2, 3, 4, 5, 6], asked=3), Text([7, 8, 9], asked=1), Text([10, 11, 12])]
    packed = windows.pack(documents, 4, what="training")
    answered = dict(zip(packed.ids.flatten().tolist(), packed.answers.flatten().tolist(), strict=True))
    assert {token for token, is_answer in answered.items() if not is_answer} == {1, 2, 3, 7}
    assert len(answered) == 12


def test_too_little_text_is_refused() -> None:
    with pytest.raises(TrainingFailed, match="validation"):
        windows.pack([Text([1, 2, 3])], 8, what="validation")


def test_each_epoch_sees_every_window_once_in_another_order() -> None:
    packed = torch.arange(12, dtype=torch.int32)[:, None]
    seen = torch.cat([packed[windows.picks(12, step, 4, seed=1)] for step in range(6)]).flatten().tolist()
    assert sorted(seen[:12]) == sorted(seen[12:]) == list(range(12))
    assert seen[:12] != seen[12:]
    assert packed[windows.picks(12, 5, 4, seed=1)].flatten().tolist() == seen[20:]
    assert packed[windows.picks(12, 0, 4, seed=2)].flatten().tolist() != seen[:4]
