"""Depths laid end to end: in training every row sees just what it will see in use."""

from __future__ import annotations

import pytest
import torch
from support.parallel_drafts import all_rows
from support.tiny import VOCAB, random_model

from headstart.train.windows import Layout, shares

MASK = 96


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_a_row_computes_what_a_draft_of_that_text_does(name: str) -> None:
    model = random_model(name)
    ids = torch.randint(3, VOCAB, (2, 12), generator=generator())
    layout = Layout.of(12, shares(4, 0.7, 0.2), generator(1))
    with torch.no_grad():
        mask = layout.mask(torch.float32)
        read = layout.tokens(ids, MASK)
        got = model(read, position_ids=layout.positions[None], attention_mask=mask, use_cache=False).logits
    for window in range(2):
        for row, (anchor, depth) in enumerate(zip(layout.anchors.tolist(), layout.depths.tolist(), strict=True)):
            text = ids[window, : anchor + 1].tolist()
            want = all_rows(model, text, MASK, depth + 1)[depth]
            torch.testing.assert_close(got[window, row], want, atol=1e-4, rtol=1e-3)


def test_depths_are_nested_and_drop_as_they_should() -> None:
    kept = shares(8, 0.7, 0.2)
    assert kept[:3] == pytest.approx([1, 0.7, 0.49])
    assert kept[5:] == pytest.approx([0.2, 0.2, 0.2])
    assert sum(kept) == pytest.approx(3.37, abs=0.01)
    layout = Layout.of(100, kept, generator())
    rows = [set(layout.anchors[layout.depths == depth].tolist()) for depth in range(8)]
    assert rows[0] == set(range(100))
    assert all(rows[depth + 1] <= rows[depth] for depth in range(7))
    assert len(rows[1]) in (69, 70)  # the last token's guess has no label
    assert int(layout.positions.max()) == 99
    other = Layout.of(100, kept, generator(1))
    assert set(other.anchors[other.depths == 3].tolist()) != rows[3]


def test_to_measure_no_row_is_dropped() -> None:
    layout = Layout.of(10, [1.0] * 3)
    assert [int((layout.depths == depth).sum()) for depth in range(3)] == [10, 9, 8]
    assert layout.anchors[layout.depths == 2].tolist() == list(range(8))
