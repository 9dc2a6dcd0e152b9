"""One target, many engines; and drafters and pacings of one's own wherever a name is taken."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from support.greedy import NEW, prompts, reference

import headstart as hs
from headstart.base import levels
from headstart.base.cores import Cores
from headstart.base.errors import InvalidOption, ModelNotFound
from headstart.drafters import Drafter, Row
from headstart.model import loading, native
from headstart.model import threads as model_threads
from headstart.pacing import FixedPacing
from headstart.types import Draft


class Echo(Drafter):
    """Guesses that the last two tokens repeat, and keeps the rows that it was asked for."""

    name = "echo"
    default_budget = 3
    draws = False

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        self.rows += rows
        return [Draft.chain((row.tokens[-2:] * row.budget.nodes)[: row.budget.nodes]) for row in rows]


def test_weights_are_read_once_for_all_engines(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load_weights = loading.load_weights

    def counted(source: str, *args: object, **options: object) -> object:
        read.append(source)
        return load_weights(source, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "load_weights", counted)
    target = hs.Target(tiny("llama"), dtype="float32", max_length=128)
    assert read == [], "config and tokenizer are enough to look at a target"
    draft = tiny("llama", noise=0.02)
    for drafter in (None, "none", "ngram", "early-exit", draft, ["ngram", draft]):
        engine = target.engine(drafter, pacing="fixed", max_batch_size=2)
        outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
        assert tuple(out.tokens for out in outs) == reference(tiny("llama"))
        engine.cache.check()
    assert sorted(read) == sorted([tiny("llama"), draft])


@pytest.mark.parametrize("pacing", ["adaptive", "fixed", FixedPacing(2)])
@pytest.mark.parametrize("listed", [False, True])
def test_a_drafter_of_ones_own(pacing: object, listed: bool, tiny: Callable[..., str]) -> None:
    echo = Echo()
    drafter: object = ["ngram", echo] if listed else echo
    engine = hs.load(tiny("llama"), drafter, dtype="float32", max_length=128, pacing=pacing)  # type: ignore[arg-type]
    assert engine.drafter_name == ("ngram + echo" if listed else "echo")
    assert engine.pacing.name == ("adaptive" if pacing == "adaptive" else "fixed")
    outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in outs) == reference(tiny("llama"))
    assert all(out.stats.speculation.error is None for out in outs)
    assert echo.rows, "it was asked"


def test_a_row_is_a_value_that_crosses_a_process_boundary(tiny: Callable[..., str]) -> None:
    echo = Echo()
    sampling = hs.Sampling(max_tokens=6, temperature=0.8, repetition_penalty=1.2, logit_bias={3: 1.0}, seed=4)
    hs.load(tiny("llama"), echo, dtype="float32", max_length=128, pacing="fixed").generate([5, 6, 7], sampling)
    for row in echo.rows:
        sent = pickle.loads(pickle.dumps(row))
        assert (sent.tokens, sent.budget, sent.noise, sent.sampling) == (row.tokens, row.budget, row.noise, sampling)
    assert [len(row.tokens) for row in echo.rows] == sorted({len(row.tokens) for row in echo.rows}), (
        "a row keeps the tokens of its own step"
    )


@pytest.mark.parametrize("drafter", [3, Echo, object(), ["ngram", 3.5], [], ["ngram", "ngram"], [Echo(), Echo()]])
def test_what_is_no_drafter_is_refused(drafter: object, tiny: Callable[..., str]) -> None:
    with pytest.raises(hs.errors.InvalidOption):
        hs.load(tiny("llama"), drafter)  # type: ignore[arg-type]


def test_unknown_options_are_refused_before_anything_is_read(tiny: Callable[..., str]) -> None:
    with pytest.raises(hs.errors.InvalidOption, match="drafer") as caught:
        hs.load(tiny("llama"), drafer="ngram")
    assert "drafter" in caught.value.hint
    with pytest.raises(hs.errors.InvalidOption, match="max_lenght"):
        hs.Target(tiny("llama"), max_lenght=64)
    target = hs.Target(tiny("llama"), dtype="float32")
    with pytest.raises(hs.errors.InvalidOption, match="pacin"):
        target.engine("ngram", pacin="fixed")
    with pytest.raises(hs.errors.InvalidOption, match="does not exist"):
        target.engine("ngram", pacing="brisk")


def test_a_prompt_can_be_encoded_without_a_request(tiny: Callable[..., str]) -> None:
    engine = hs.load(tiny("llama"), "ngram", dtype="float32", max_length=32)
    events: list[hs.Step] = []
    engine.subscribe(events.append)
    assert engine.encode([3, 4, 5]) == (3, 4, 5)
    with pytest.raises(hs.errors.InvalidPrompt):
        engine.encode([])
    with pytest.raises(hs.errors.ContextExceeded):
        engine.encode([3] * 32)
    assert events == []
    assert not engine.scheduler.requests()


def test_threads_of_the_process(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for holds, in threads that begin later too; else it is what the cores are worth, and no more than
    the program has chosen itself."""
    at_first = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        hs.Target(tiny("llama"), threads=3)
        with ThreadPoolExecutor(1) as other:
            assert torch.get_num_threads() == other.submit(model_threads.threads).result() == 3
        monkeypatch.setattr(model_threads, "find_cores", lambda: Cores(2, "in this test"))
        hs.Target(tiny("llama"))
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        hs.Target(tiny("llama"))
        assert torch.get_num_threads() == 1
    finally:
        model_threads.use_in_process(at_first)


def test_threads_hold_in_threads_that_were_there_before(
    tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenMP keeps a number for each thread that has asked for it. And what one model asked for is nothing to the
    next."""
    at_first = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        monkeypatch.setattr(model_threads, "find_cores", lambda: Cores(2, "in this test"))
        with ThreadPoolExecutor(1) as other:
            assert other.submit(torch.get_num_threads).result() == 4
            hs.Target(tiny("llama"), threads=1)
            assert other.submit(model_threads.threads).result() == model_threads.threads() == 1
            hs.Target(tiny("llama"))
            assert other.submit(model_threads.threads).result() == model_threads.threads() == 2
    finally:
        model_threads.use_in_process(at_first)


@pytest.mark.parametrize(
    ("source", "quantize", "loaded"),
    [("nothing", None, False), ("a model", None, False), ("a model", "int4", True)],
    ids=["no model", "no drafter", "no drafter, after kernels are loaded"],
)
def test_a_level_is_taken_back_where_a_load_fails(
    source: str,
    quantize: str | None,
    loaded: bool,
    tmp_path: Path,
    tiny: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless kernels of that level run in the process already. It is the one that this process has, so nothing is
    compiled for it."""
    if not native.available():
        pytest.skip("no row kernels on this machine")
    level = native.kernels().library.level
    outcome = functools.cache(native._outcome.__wrapped__)
    monkeypatch.setattr(native, "_outcome", outcome)
    monkeypatch.setattr(levels, "_forced", None)
    named = tiny("llama") if source == "a model" else tmp_path / source
    with pytest.raises((ModelNotFound, InvalidOption)):
        hs.load(named, "no-such-drafter", dtype="float32", quantize=quantize, cpu_level=level)
    assert levels.forced_by_call() == (level if loaded else None)
    assert bool(outcome.cache_info().currsize) == loaded
