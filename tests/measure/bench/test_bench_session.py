"""A bench on real engines of tiny models: structure, order, interrupts, batches, sweeps; what is learnt stays apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.byte_models import save_model

import headstart as hs
from headstart.base.errors import ContextExceeded, InvalidOption, InvalidPrompt
from headstart.base.prompt_sets import Chat, PromptItem
from headstart.measure.bench.machine import measure_costs, memory_of
from headstart.measure.bench.result import FAST, PLAIN, BenchResult
from headstart.measure.bench.session import BenchSettings, Session, first_difference
from headstart.measure.bench.summary import summarise
from headstart.measure.bench.sweep import sweep_points
from headstart.measure.bench.verdict import conclude
from headstart.measure.pages.bench_page import bench_page
from headstart.types import Sampling

ITEMS = [
    PromptItem([5, 6, 7, 8], "one", "a"),
    PromptItem([9, 10, 11], "one", "b"),
    PromptItem([12, 13, 14, 15, 16], "two", "c"),
    PromptItem([17, 18], "one", "d"),
]
GREEDY = Sampling(max_tokens=12, ignore_eos=True)


@pytest.fixture
def engine(load: Callable[..., hs.Engine], tiny: Callable[..., str]) -> hs.Engine:
    return load("llama", tiny("llama", noise=0.02), num_speculative_tokens=3, max_batch_size=2)


def session(engine: hs.Engine, **settings: Any) -> Session:
    settings = {"sampling": GREEDY, "repetitions": 2, **settings}
    return Session(engine, ITEMS, BenchSettings(**settings), {"target": "tiny"})


def test_every_prompt_runs_on_both_lanes_as_often_as_asked(engine: hs.Engine) -> None:
    calls: list[str] = []
    bench = session(engine)
    bench.on_trial = calls.append
    result = bench.run()
    assert [(each.arm, each.unit, each.repetition) for each in result.trials] == [
        (arm, unit, repetition)
        for repetition in range(2)
        for unit in range(4)
        for arm in ((PLAIN, FAST) if (unit + repetition) % 2 == 0 else (FAST, PLAIN))
    ], "in turn, and who goes first alternates"
    assert len(calls) == bench.trials == 2 + 16
    assert result.complete
    assert [prompt.category for prompt in result.prompts] == ["one", "one", "one", "two"], "limits count by category"
    assert [prompt.tokens for prompt in result.prompts] == [4, 3, 2, 5]
    assert all(prompt.text is None for prompt in result.prompts)
    assert result.settings["target"] == "tiny"
    assert result.settings["sampling"]["max_tokens"] == 12


def test_runs_hold_what_happened(engine: hs.Engine) -> None:
    result = session(engine).run()
    for each in result.trials:
        (run,) = each.runs
        assert run.tokens == 12
        assert sum(run.parts.values()) <= each.seconds
        assert list(run.arrivals) == sorted(run.arrivals)
        assert 0 < run.first <= run.seconds <= each.seconds + 1e-6
        assert len(run.counts) == run.forwards
        assert run.differs_at is None, "float32: the same text"
        assert run.chains
        if each.arm == PLAIN:
            assert (run.forwards, run.drafted, run.on) == (12, 0, False)
        else:
            (source,) = run.sources.values()
            assert source.nodes == run.drafted > run.accepted > 0
            assert sum(run.kept) == run.accepted
            assert run.forwards + run.accepted == 12
            assert run.on
    figures = summarise(result)
    assert [each.category for each in figures] == ["overall", "one", "two"]
    assert figures[0].tokens_per_forward.value > 1.2
    assert figures[0].differing == 0
    assert result.costs is not None
    assert list(result.costs.drafts) == [engine.drafter_name]
    assert result.memory["drafter_weights"]
    assert "the same as plain" in " ".join(conclude(result, figures).reasons)


def test_an_interrupt_keeps_what_was_finished(engine: hs.Engine) -> None:
    bench = session(engine)
    calls = 0

    def interrupt(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2 + 5:
            raise KeyboardInterrupt

    bench.on_trial = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert len(bench.result.trials) == 5
    assert not bench.result.complete
    assert summarise(bench.result)[0].trials == 2, "the fifth trial has no partner"


def test_an_interrupt_in_the_middle_of_a_run_leaves_the_engine_clean(engine: hs.Engine) -> None:
    bench = session(engine)

    def interrupt(step: hs.Step) -> None:
        if bench.result.trials and step.index == 2:
            raise KeyboardInterrupt

    engine.subscribe(interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert bench.result.trials, "the engine's own checks follow in the fixture"


def test_batches_hold_prompts_of_one_category_at_a_time(engine: hs.Engine) -> None:
    result = session(engine, batch_size=2, repetitions=1).run()
    assert result.units == ((0, 1), (2,), (3,))
    assert [len(each.runs) for each in result.trials if each.arm == FAST] == [2, 1, 1]
    first = result.trials[0]
    assert [run.prompt for run in first.runs] == [0, 1]
    assert sum(sum(run.parts.values()) for run in first.runs) <= first.seconds, "shared steps count once"
    assert first.tokens == 24


def test_the_limit_is_by_category(engine: hs.Engine) -> None:
    result = session(engine, limit=1, repetitions=1).run()
    assert [prompt.name for prompt in result.prompts] == ["a", "c"]


def test_a_sweep_runs_fixed_lengths_and_gives_the_engine_its_pacing_back(engine: hs.Engine) -> None:
    before = engine.pacing
    bench = session(engine, ks=(1, 4), repetitions=1)
    calls: list[str] = []
    bench.on_trial = calls.append
    result = bench.run()
    assert engine.pacing is before
    assert len(calls) == bench.trials
    assert {each.unit for each in result.sweep} == {0, 1, 3}, "two units of a category at most"
    arms = [each for each in result.sweep if each.unit == 0]
    assert [each.arm for each in arms] == [PLAIN, "K=1", "K=4"]
    for each, k in zip(arms, (0, 1, 4), strict=True):
        assert each.runs[0].drafted <= k * each.runs[0].forwards
        depths = [source.depth / source.drafts for source in each.runs[0].sources.values()]
        assert depths == ([pytest.approx(k, abs=0.9)] if k else []), "shorter only where the text ends"
    points = sweep_points(result)
    assert [point.k for point in points] == [1, 4]
    assert points[1].tokens_per_forward > points[0].tokens_per_forward > 1
    assert all(point.predicted > 0 for point in points)


def test_what_a_drafter_remembers_does_not_pass_from_one_repetition_to_the_next(
    load: Callable[..., hs.Engine],
) -> None:
    """The suffix drafter keeps outputs: shown the same greedy text again it would guess nearly all of it."""
    result = session(load("llama", "suffix"), repetitions=3, warm_up=2).run()
    by_unit: dict[int, set[tuple[int, int]]] = {}
    for each in result.trials:
        if each.arm == FAST:
            by_unit.setdefault(each.unit, set()).add((each.runs[0].drafted, each.runs[0].accepted))
    assert all(len(counts) == 1 for counts in by_unit.values())


def test_sampled_texts_are_not_compared_unless_a_seed_promises_them(
    engine: hs.Engine, load: Callable[..., hs.Engine]
) -> None:
    sampled = Sampling(max_tokens=8, temperature=1.0, seed=3, ignore_eos=True)
    result = session(engine, sampling=replace(sampled, seed=None), repetitions=1).run()
    assert not result.compared
    assert not session(load("llama", "ngram", rule="exact"), sampling=sampled, repetitions=1).run().compared
    assert summarise(result)[0].differing is None


@pytest.mark.parametrize("rule", ["auto", "coupled"])
def test_a_seed_that_is_coupled_is_compared(
    rule: str, load: Callable[..., hs.Engine], tiny: Callable[..., str]
) -> None:
    engine = load("llama", tiny("llama", noise=0.02), rule=rule)
    sampled = Sampling(max_tokens=8, temperature=1.0, seed=3, ignore_eos=True)
    result = session(engine, sampling=sampled, repetitions=1).run()
    assert result.compared
    assert summarise(result)[0].differing == 0


def test_texts_are_kept_only_if_asked(engine: hs.Engine) -> None:
    result = session(engine, keep_texts=True, repetitions=1, limit=1).run()
    assert result.prompts[0].text == [5, 6, 7, 8]
    assert result.trials[0].runs[0].text is not None


def test_a_drafter_that_fails_is_said(engine: hs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = session(engine, repetitions=1)
    drafter = engine.drafter
    assert drafter is not None

    def fail(_: Any) -> Any:
        raise ValueError("no guess today")

    monkeypatch.setattr(drafter, "propose", fail)
    result = bench.run()
    figures = summarise(result)
    assert list(figures[0].off.values()) == [4]
    assert "no guess today" in " ".join(figures[0].off)
    assert conclude(result, figures).kind == "info"


def test_plain_against_plain_is_the_noise(load: Callable[..., hs.Engine]) -> None:
    result = session(load("llama", "none"), repetitions=1).run()
    figures = summarise(result)
    assert figures[0].off == {"no drafter was asked for": 4}
    assert figures[0].tokens_per_forward.value == 1
    assert figures[0].positions == ()


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (PromptItem([5] * 128, "one", "question 81"), ContextExceeded),
        (PromptItem([999], "one", "question 81"), InvalidPrompt),
    ],
)
def test_a_bad_prompt_is_named_before_anything_runs(engine: hs.Engine, item: PromptItem, error: type) -> None:
    with pytest.raises(error, match="prompt question 81: "):
        Session(engine, [*ITEMS, item], BenchSettings(GREEDY))
    assert not engine.scheduler.requests()


def test_no_prompts(engine: hs.Engine) -> None:
    with pytest.raises(InvalidOption, match="no prompt"):
        Session(engine, [], BenchSettings(GREEDY))


@pytest.mark.parametrize(
    "bad", [{"repetitions": 0}, {"warm_up": -1}, {"limit": 0}, {"batch_size": 0}, {"ks": (0,)}, {"ks": (2, 2)}]
)
def test_bad_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        BenchSettings(**bad)


def test_where_texts_part() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2


def test_costs_and_memory_are_those_of_the_engine(engine: hs.Engine, tiny: Callable[..., str]) -> None:
    costs = measure_costs(engine, seconds=0.05)
    assert costs.rows[0][0] == 1
    assert costs.v(1) == 1
    assert costs.c(engine.drafter_name, 3) > 0
    found = memory_of(engine)
    weights = sum(file.stat().st_size for file in Path(tiny("llama")).glob("*.safetensors"))  # float32 there too
    assert found["target_weights"] is not None
    assert 0.95 * weights <= found["target_weights"] < 2 * weights, "positions and masks may lie beside them"
    assert found["target_cache"] == engine.target.cache_bytes(2)
    assert found["drafter_caches"] == engine.target.cache_bytes(2), "the draft is of the same shape"
    assert found["drafter_weights"] is not None
    assert 0.2 < found["drafter_weights"] / found["target_weights"] < 1.1, "in 8 bits where that is faster"
    assert found["peak_process"] is not None
    assert found["peak_process"] > found["target_weights"]


def test_weights_that_are_shared_count_once(load: Callable[..., hs.Engine]) -> None:
    assert memory_of(load("llama", "early-exit"))["drafter_weights"] == 0


def _talk(name: str, *turns: str) -> PromptItem:
    return PromptItem(turns[0], "talk", name, Chat(({"role": "user", "content": turns[0]},), turns[1:]))


@pytest.mark.parametrize("chat", [True, False])
def test_conversations_go_through_the_template_with_the_models_own_answers(chat: bool, tmp_path: Path) -> None:
    engine = hs.load(save_model(tmp_path / "m", chat=chat), drafter="ngram", dtype="float32")
    items = [_talk("81", "Hi", "More", "Again"), PromptItem("def f", "code", "text")]
    sampling = Sampling(max_tokens=4, ignore_eos=True)
    bench = Session(engine, items, BenchSettings(sampling=sampling, repetitions=1, warm_up=0, keep_texts=True))
    result = bench.run()
    found = {prompt.name: prompt for prompt in result.prompts}
    assert (found["text"].text, found["text"].form) == ("def f", "raw")
    if not chat:
        assert list(found) == ["81", "text"], "without a template only the first turn has a meaning"
        assert (found["81"].text, found["81"].form) == ("Hi", "turns raw")
        assert result.forms == "1 raw, 1 turns raw, because the model has no chat template"
        return
    assert list(found) == ["81", "81, turn 2", "81, turn 3", "text"]
    assert result.forms == "3 through the chat template, 1 raw"
    answer = engine.plain().generate("u:Hi\na:", sampling).text
    expected = f"u:Hi\na:{answer}\nu:More\na:"
    assert found["81, turn 2"].text == list(engine.encode(expected))
    read = tmp_path / "result.json"
    result.write(read)
    assert BenchResult.read(read).forms == result.forms
    page = bench_page(result, summarise(result)).html()
    assert result.forms in page


def test_a_conversation_that_fills_the_context_ends_early(tmp_path: Path) -> None:
    engine = hs.load(save_model(tmp_path / "m", chat=True, context=64), drafter="ngram", dtype="float32")
    items = [_talk("a", "Hi", "x" * 30, "More", "More"), _talk("b", "Hi", "x" * 80)]
    bench = Session(engine, items, BenchSettings(sampling=Sampling(max_tokens=8, ignore_eos=True)))
    assert [prompt.name for prompt in bench.result.prompts] == ["a", "a, turn 2", "b"]
