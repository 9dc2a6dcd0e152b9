"""The batch that is kept: rows on it have the bits, taps and errors of a batch made for them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from support import families
from support.tiny import VOCAB
from transformers import AutoModelForCausalLM

from headstart.base.errors import InvalidBatch
from headstart.model import native
from headstart.model.cache import Slots
from headstart.model.decoders import batches
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

TEXT = tuple(range(5, 25))


@pytest.fixture(params=["llama", "mistral"])  # the second has a window of 7 tokens
def runner(request: pytest.FixtureRequest, tiny: Callable[..., str]) -> ModelRunner:
    if not native.available():
        pytest.skip(native.reason())
    model = AutoModelForCausalLM.from_pretrained(tiny(request.param), dtype=torch.float32)
    return ModelRunner(adopt(model), decoder="fused")


def row(runner: ModelRunner, cache: Slots, slot: int, token: int, **options: Any) -> Any:
    found = runner.forward([Segment(slot, (token,))], cache, **options)
    cache.keep(slot, 1)
    return found


def test_rows_one_by_one_are_those_of_one_forward(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two texts in turn, with other forwards in between, with taps and without."""
    made: list[int] = []
    usual = batches.TiledBatch.__init__

    def counted(self: Any, packed: Any, *arguments: Any, **options: Any) -> None:
        made.append(len(packed.token_ids))
        usual(self, packed, *arguments, **options)

    whole = runner.new_cache(2)
    texts = TEXT, TEXT[::-1]
    slots = [whole.acquire(), whole.acquire()]
    expected = [
        runner.forward([Segment(slot, text, judged=len(text))], whole, taps=(1,))
        for slot, text in zip(slots, texts, strict=True)
    ]
    monkeypatch.setattr(batches.TiledBatch, "__init__", counted)
    cache = runner.new_cache(2)
    slots = [cache.acquire(), cache.acquire()]
    logits = []
    for i in range(len(TEXT)):
        for slot, text, of in zip(slots, texts, expected, strict=True):
            found = row(runner, cache, slot, text[i], taps=(1,) if i % 3 else ())
            logits.append((found.logits, of.logits[i : i + 1]))
            if i % 3:
                assert torch.equal(found.hidden[1], of.hidden[1][i : i + 1])
        if i == 9:
            runner.forward([Segment(slots[0], (3,), Draft((4, 5), (-1, -1)), judged=3)], cache)
    assert all(torch.equal(*each) for each in logits)  # and none was written over by a later row
    assert made == [1]


def test_rows_of_every_kind_are_those_of_a_batch_of_their_own(runner: ModelRunner) -> None:
    """Prompts, trees, trees of which a part is held, and rows of two texts, one after the other."""
    tree = Draft((4, 5, 6, 7), (-1, -1, 0, 1))

    def forwards(*, afresh: bool) -> list[torch.Tensor]:
        cache = runner.new_cache(2)
        one, two = cache.acquire(), cache.acquire()
        found = []
        for segments in (
            [Segment(one, TEXT[:9])],
            [Segment(two, TEXT[3:6], judged=3), Segment(one, (8,), tree, judged=5)],
            [Segment(one, (9,), tree, judged=5)],
            [Segment(one, (), tree, judged=2, held=2)],
            [Segment(one, (), Draft.chain((4, 5, 6)), judged=1, held=2)],
            [Segment(two, (7,))],
            [Segment(two, (8,))],
            [Segment(two, (8,)), Segment(one, (), judged=0)],
            [Segment(two, (6,))],
            [Segment(one, TEXT[:12], judged=0), Segment(two, (9,))],
        ):
            if afresh:
                runner._decoder._batches._kept.clear()
            forward = runner.forward(segments, cache, taps=(1,))
            found += [forward.logits, forward.hidden[1]]
            for segment in segments:
                cache.keep(segment.slot, len(segment.causal)) if segment.causal else None
        return found

    kept, own = forwards(afresh=False), forwards(afresh=True)  # all at once: none is written over by a later one
    assert all(torch.equal(*each) for each in zip(kept, own, strict=True))


def test_two_threads_run_one_decoder(runner: ModelRunner) -> None:
    """Each has the logits of its own text, and no batch of the other's."""

    def read(text: tuple[int, ...]) -> list[torch.Tensor]:
        cache = runner.new_cache(1)
        slot = cache.acquire()
        return [row(runner, cache, slot, token).logits for token in text * 4]

    texts = TEXT, TEXT[::-1]
    expected = [read(text) for text in texts]
    with ThreadPoolExecutor(2) as pool:
        for found, own in zip(pool.map(read, texts), expected, strict=True):
            assert all(torch.equal(*each) for each in zip(found, own, strict=True))


def test_another_cache_gets_a_batch_of_its_own(runner: ModelRunner) -> None:
    first, second = (runner.new_cache(1) for _ in range(2))
    slots = first.acquire(), second.acquire()
    alone = [row(runner, first, slots[0], token).logits for token in TEXT]
    first.rewind(slots[0], 0)
    for token, expected in zip(TEXT, alone, strict=True):
        assert torch.equal(row(runner, first, slots[0], token).logits, expected)
        row(runner, second, slots[1], 3)


def test_a_row_outside_is_refused_on_a_kept_batch_too(runner: ModelRunner) -> None:
    cache = runner.new_cache(1)
    slot = cache.acquire()
    good = row(runner, cache, slot, 5).logits.clone()
    for segment in (
        Segment(slot, (VOCAB,)),
        Segment(slot, (-1,)),
        Segment(slot, (5,), judged=2),
        Segment(slot, (5,), Draft((3, -1), (-1, -1))),
    ):
        with pytest.raises(InvalidBatch):
            runner.forward([segment], cache)
    cache.rewind(slot, 0)
    assert torch.equal(row(runner, cache, slot, 5).logits, good)


def test_a_cache_of_another_float_is_refused(tiny: Callable[..., str]) -> None:
    """The kernels write numbers of the model's size into it."""
    if not native.available():
        pytest.skip(native.reason())
    model = AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32)
    runner = ModelRunner(adopt(model), decoder="fused")
    runner.cache_dtype = torch.bfloat16
    cache = runner.new_cache(1)
    with pytest.raises(InvalidBatch, match="caches of their own model"):
        runner.forward([Segment(cache.acquire(), (3,))], cache)


def test_the_states_of_a_cache_go_with_it() -> None:
    if not native.available():
        pytest.skip(native.reason())
    runner = ModelRunner(adopt(families.random_model(families.config_of("lfm2"))), decoder="fused")
    cache = runner.new_cache(1)
    row(runner, cache, cache.acquire(), 3)
    states = weakref.ref(cache.states)
    del cache
    gc.collect()
    assert states() is None


def test_the_first_layers_keep_a_batch_of_their_own(runner: ModelRunner) -> None:
    decoder = runner._decoder
    first = decoder.first_layers(
        1, torch.ones(runner.config.hidden_size), torch.randn(VOCAB, runner.config.hidden_size), None
    )
    assert first._batches is not decoder._batches
    assert first._batches._kept is not decoder._batches._kept
