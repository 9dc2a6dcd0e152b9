"""A head that begins as a regression: its map is the one that was fitted, and its guesses are right before any step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from headstart.train import Eagle3Training, eagle_start
from headstart.train.eagle3 import Eagle3Student
from headstart.train.harness import Material, load_target
from headstart.train.head_layer import HeadShape
from headstart.train.unrolled_head import EagleHead
from headstart.train.windows import Windows

SHAPE = HeadShape(
    hidden=48, intermediate=24, heads=6, kv_heads=3, head_dim=16, draft_vocab=11, rope_theta=100.0, eps=1e-5
)


@pytest.mark.parametrize("normed", [False, True])
def test_a_head_that_begins_is_the_map(normed: bool) -> None:
    """Of full rank here, so that nothing is lost: every row looks at itself, and adds what its embedding says."""
    torch.manual_seed(0)
    head = EagleHead(replace(SHAPE, norm_before_residual=normed))
    common = F.normalize(torch.randn(48), dim=0)
    aux, embedded = torch.randn(1, 30, 144), torch.randn(1, 30, 48) + 2 * common
    made = eagle_start.Forecast(torch.randn(144, 48) / 12, torch.randn(48, 48) / 7, common, 1.0)
    states = aux @ made.states
    made = replace(made, level=float(states.square().mean().sqrt()))
    eagle_start.begin(head, made, seed=0)
    wanted = states + F.rms_norm(embedded, (48,)) @ made.embedding
    found = head.unroll(aux, embedded, 1)[0]
    if normed:  # each row's own length is lost
        assert F.cosine_similarity(found, wanted, dim=-1).mean() > 0.95
    else:
        assert (found - wanted).norm() < 0.05 * wanted.norm()


def test_the_start_guesses_better_than_the_targets_last_layer(target: Path, texts: Path, tmp_path: Path) -> None:
    options = Eagle3Training(
        target=target, output=tmp_path / "head", data=(texts,), steps=1, sequence_length=32, dtype="float32",
        device="cpu", draft_vocab_size=257,
    )  # fmt: skip
    frozen, tokenizer = load_target(options, torch.device("cpu"))
    read = "".join(path.read_text() for path in sorted(texts.rglob("*")) if path.is_file()) if texts.is_dir() else ""
    ids = tokenizer(read or texts.read_text())["input_ids"]
    windows = torch.tensor(ids[: len(ids) // 32 * 32]).view(-1, 32)
    learnt, heldout = Windows.plain(windows[:-8]), Windows.plain(windows[-8:])
    student = Eagle3Student(options, Material(frozen, tokenizer, learnt, heldout, torch.device("cpu"), torch.float32))
    begun = student.measure(heldout).reached
    copied: Any = eagle_start.build(student.head.shape, frozen, student.kept, init="target", seed=options.seed)
    student.head.load_state_dict(copied.state_dict())
    before = student.measure(heldout).reached
    assert begun["0"][0] > before["0"][0] + 0.1
    assert begun["1"][0] > before["1"][0]
