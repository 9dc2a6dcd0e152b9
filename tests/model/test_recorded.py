"""Forwards in grids against forwards as they are, on a CPU: nothing is recorded there, but all else is the same. Their
twin on a GPU, where forwards are recorded and Triton's kernels attend, is `test_gpu`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.greedy import NEW, prompts, reference
from support.tiny import ARCHITECTURES

import headstart as hs
from headstart.model import runner
from headstart.model.decoders.lean import LeanDecoder
from headstart.model.decoders.modules import ModulesDecoder
from headstart.model.packed import Segment
from headstart.model.recorded.graphs import RecordedDecoder, Recorder, again
from headstart.model.recorded.grid import attend_plainly, seen_rows, shape_of
from headstart.types import Draft

PLAIN = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2", "gpt_neox")


@pytest.fixture(autouse=True)
def recorders(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    """Tensor operations run all models, and their forwards are done again where a GPU would replay them."""
    made: list[Recorder] = []

    def on(device: torch.device) -> Recorder:
        made.append(Recorder(device, again, attend_plainly))
        return made[-1]

    monkeypatch.setattr(runner, "DECODERS", (RecordedDecoder, LeanDecoder, ModulesDecoder))
    monkeypatch.setattr(Recorder, "on", staticmethod(on))
    yield made
    assert all(recorder.refused is None for recorder in made)


@pytest.mark.parametrize("name", [name for name in PLAIN if name in ARCHITECTURES])
def test_greedy_text_is_transformers(
    name: str, tiny: Callable[..., str], load: Callable[..., Any], recorders: list[Recorder]
) -> None:
    """Ragged batches of trees: of a draft LM, whose forwards are in grids as well."""
    engine = load(name, tiny(name, noise=0.02), draft_tree="top-k", max_batch_size=3, prefill_chunk=8)
    outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in outs) == reference(tiny(name))
    assert sum(out.stats.accepted for out in outs) > 0
    assert isinstance(engine.target._decoder, RecordedDecoder)
    assert len(recorders) == 2
    assert all(sum(map(len, recorder._of.values())) > 2 for recorder in recorders), "few shapes were met"


def test_a_model_left_early(tiny: Callable[..., str], load: Callable[..., Any]) -> None:
    engine = load("llama", "early-exit", max_batch_size=3)
    outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in outs) == reference(tiny("llama"))


def test_states_that_are_tapped(tiny: Callable[..., str], load: Callable[..., Any]) -> None:
    """Of a ragged batch: those of each request's own rows, in their order."""
    target = load("llama").target
    taps = (0, 2, target.layers)
    for segments in (
        [
            Segment(1, (5, 6), Draft((7, 8, 9), (-1, -1, 0)), judged=2),
            Segment(0, (4,)),
            Segment(2, (1, 2, 3), judged=0),
        ],
        [Segment(2, (5,), Draft((7, 8, 9), (-1, 0, 0)), judged=4)],
    ):
        for _ in range(2):
            cache = target.new_cache(3)
            found = target.forward(segments, cache, taps)
            plain = target._decoder._decoder.run(runner.Packed(segments, cache, target.dtype, target.device), taps)
            torch.testing.assert_close(found.logits, plain.logits)
            assert found.hidden.keys() == plain.hidden.keys()
            for layer, states in plain.hidden.items():
                torch.testing.assert_close(found.hidden[layer], states)


def test_who_sees_whom() -> None:
    draft = Draft((1, 2, 3), (-1, 0, -1))
    assert seen_rows(Segment(0, (8, 9), draft), 10) == ([0b1, 0b11, 0b111, 0b1111, 0b10011], [10, 11, 12, 13, 12])
    assert seen_rows(Segment(0, (), draft, held=2), 10) == ([0b1, 0b11, 0b100], [10, 11, 10])
    assert seen_rows(Segment(0, tuple(range(64))), 0)[0][-1] == -1


def test_what_no_grid_holds_runs_as_it_is() -> None:
    assert shape_of([Segment(0, (1,)), Segment(1, (1, 2, 3))]) == (2, 4)
    assert shape_of([Segment(0, tuple(range(65)))]) is None
    assert shape_of([Segment(slot, tuple(range(33))) for slot in range(5)]) is None


def test_a_forward_that_comes_out_otherwise_is_not_recorded(
    load: Callable[..., Any], recorders: list[Recorder], caplog: pytest.LogCaptureFixture
) -> None:
    target = load("llama").target
    (recorder,) = recorders
    recorder._attend = lambda *given: 1.5 * attend_plainly(*given)
    cache = target.new_cache(1)
    segments = [Segment(0, (5, 6, 7))]
    found = target.forward(segments, cache)
    plain = target._decoder._decoder.run(runner.Packed(segments, cache, target.dtype, target.device))
    assert torch.equal(found.logits, plain.logits)
    assert "is off by" in str(recorder.refused)
    assert "launched kernel by kernel" in caplog.text
    recorder.refused = None
