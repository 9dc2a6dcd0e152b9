"""A drafter, a pacing or a listener that fails costs speed at most: it is contained, reported, and the text goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from support.greedy import NEW, prompts, reference

import headstart as hs
from headstart.drafters import Drafter, Row
from headstart.engine.guards import Recorders
from headstart.pacing import FixedPacing, Plan
from headstart.rule.distributions import Distributions
from headstart.types import Draft, Step

Load = Callable[..., hs.Engine]


class Failing(FixedPacing):
    """Raises in one of its methods, from a given call on."""

    name = "failing"

    def __init__(self, method: str, after: int = 3) -> None:
        super().__init__(4)
        self._method, self._left = method, after

    def _count(self, method: str) -> None:
        if method == self._method:
            self._left -= 1
            if self._left < 0:
                raise ZeroDivisionError(method)

    def plan(self, rows: Sequence[Row]) -> Plan:
        self._count("plan")
        plan = super().plan(rows)
        return Plan(plan.budgets[1:]) if self._method == "too few" else plan

    def observe(self, plan: Plan, steps: Sequence[Step]) -> None:
        self._count("observe")

    def release(self, request: int) -> None:
        self._count("release")


@pytest.mark.parametrize("method", ["plan", "observe", "too few"])
def test_a_pacing_that_fails_ends_drafting_and_not_the_text(
    method: str, tiny: Callable[..., str], load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    engine = load("llama", "ngram", pacing=Failing(method))
    outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in outs) == reference(tiny("llama"))
    for out in outs:
        assert not out.stats.speculation.on
        assert isinstance(out.stats.speculation.error, hs.errors.PacingFailed)
        assert "the pacing raised" in out.stats.speculation.reason
    assert "failing" in caplog.text
    # requests that come later decode plainly, with the same reason
    later = engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW))
    assert later.tokens == reference(tiny("llama"))[1]
    assert isinstance(later.stats.speculation.error, hs.errors.PacingFailed)


def test_a_pacing_with_the_old_signature_is_refused_with_a_hint(load: Load) -> None:
    class Old(FixedPacing):
        def observe(self, step: Step) -> None:  # type: ignore[override]
            pass

    with pytest.raises(hs.errors.InvalidOption, match="observe does not take") as refused:
        load("llama", "ngram", pacing=Old(4))
    assert "observe(plan, steps)" in str(refused.value.hint)


def test_a_pacing_that_returns_budgets_without_a_plan_ends_drafting(load: Load) -> None:
    class Old(FixedPacing):
        def plan(self, rows: Sequence[Row]) -> Any:
            return super().plan(rows).budgets

    out = load("llama", "ngram", pacing=Old(4)).generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW))
    assert "not a Plan" in out.stats.speculation.reason


def test_a_pacing_that_fails_in_release_is_reported_to_whoever_comes_next(tiny: Callable[..., str], load: Load) -> None:
    engine = load("llama", "ngram", pacing=Failing("release", after=0))
    for _ in range(2):
        out = engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW))
        assert out.tokens == reference(tiny("llama"))[1]
    assert isinstance(out.stats.speculation.error, hs.errors.PacingFailed)


def test_a_listener_that_raises_keeps_nobody_from_anything(
    tiny: Callable[..., str], load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    """All rows of the step are committed, and the listeners behind it are called."""
    engine = load("llama", "ngram")
    seen: list[Step] = []

    def raising(step: Step) -> None:
        raise ZeroDivisionError("a listener's own")

    engine.subscribe(raising)
    engine.subscribe(seen.append)
    with caplog.at_level(logging.ERROR):
        outs = engine.generate([list(prompt) for prompt in prompts()], hs.Sampling(max_tokens=NEW))
    assert tuple(out.tokens for out in outs) == reference(tiny("llama"))
    assert sum(len(step.tokens) for step in seen) == sum(len(out.tokens) for out in outs)
    assert "a listener raised" in caplog.text


class Telltale(Drafter):
    """Notes what the cache and the requests hold when it is shown a step."""

    name = "telltale"
    default_budget = 1
    draws = False

    def __init__(self) -> None:
        self.engine: Any = None
        self.seen: list[tuple[int, ...]] = []

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [Draft.chain(row.tokens[-1:]) for row in rows]

    def observe(self, observation: Any) -> None:
        if self.engine is not None and observation.step.batch > 1:
            self.seen.append(tuple(request.generated for request in self.engine.scheduler.running))


def test_all_rows_are_committed_before_anyone_is_told_of_one(load: Load) -> None:
    drafter = Telltale()
    engine = drafter.engine = load("llama", drafter, pacing="fixed")
    requests = [engine.submit([5, 6, 7 + i], hs.Sampling(max_tokens=8, ignore_eos=True)) for i in range(3)]
    engine.step()
    assert len(drafter.seen) == 3
    assert all(min(each) >= 1 for each in drafter.seen), "a row was shown while another was not yet committed"
    for request in requests:
        engine.cancel(request)


def test_a_pacing_cannot_be_exchanged_while_requests_run(load: Load) -> None:
    engine = load("llama", "ngram")
    request = engine.submit([5, 6], hs.Sampling(max_tokens=8))
    with pytest.raises(hs.errors.InvalidOption, match="while requests run"), engine.paced(FixedPacing(1)):
        pass
    engine.cancel(request)
    with engine.paced(FixedPacing(1)):
        out = engine.generate([5, 6, 5, 6, 5], hs.Sampling(max_tokens=8, ignore_eos=True))
    assert len(out.stats.drafted_per_position) <= 1
    assert engine.pacing.name == "fixed"


def test_without_a_recorder_nothing_is_looked_at(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step made of a request is not even asked for its distributions: nobody pays for traces but those who
    record."""
    engine = load("llama", "ngram")
    asked: list[str] = []
    Recorders().publish(object(), object())  # type: ignore[arg-type]
    dense = Distributions.dense
    monkeypatch.setattr(
        Distributions, "dense", property(lambda distributions: asked.append("dense") or dense.fget(distributions))
    )  # type: ignore
    engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW))
    assert asked == [], "a greedy request needs no dense distribution"
    with engine.trace():
        engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW))
    assert "dense" in asked
    asked.clear()
    engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW))
    assert asked == [], "and afterwards none again"


class Partial(Drafter):
    """Draws uniformly from a vocabulary of its own."""

    name = "partial"
    default_budget = 2
    limit = 2

    def __init__(self, vocabulary: Sequence[int], width: int) -> None:
        self._vocabulary, self._width = torch.tensor(vocabulary), width

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [self._draft(row) for row in rows]

    def _draft(self, row: Row) -> Draft:
        q = torch.full((row.budget.nodes, self._width), 1 / self._width)
        columns = [row.draw(distribution.numpy(), depth) for depth, distribution in enumerate(q)]
        return Draft.chain(self._vocabulary[columns].tolist(), q, self._vocabulary)


@pytest.mark.parametrize(
    ("vocabulary", "width", "reason"),
    [
        ((5, 3, 5), 3, "each once"),
        ((5, 3, -1), 3, "tokens below"),
        ((5, 3, 10**6), 3, "tokens below"),
        ((5, 3, 4), 2, "q has the shape"),
        ((5, 3, 4), 3, None),
    ],
)
def test_a_vocabulary_that_names_no_tokens_or_one_twice_is_contained(
    vocabulary: Sequence[int], width: int, reason: str | None, tiny: Callable[..., str]
) -> None:
    engine = hs.Target(tiny("llama")).engine(Partial(vocabulary, width), rule="exact", pacing=FixedPacing(2))
    out = engine.generate(list(prompts()[1]), hs.Sampling(max_tokens=NEW, temperature=1.0, seed=1))
    assert len(out.tokens) == NEW or out.finish_reason == "stop"
    error = out.stats.speculation.error
    if reason is None:
        assert error is None
        assert out.stats.drafted > 0
    else:
        assert isinstance(error, hs.errors.DrafterFailed)
        assert reason in error.message
