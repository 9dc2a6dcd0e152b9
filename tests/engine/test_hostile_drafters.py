"""A drafter that does wrong costs speed at most: no text changes, nothing untyped comes out of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.hostile_drafters import REFUSED, TAKEN, Hostile
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, joint, model, p_value

import headstart as hs
from headstart.drafters import Drafter
from headstart.pacing import FixedPacing
from headstart.pacing.measuring import measure

Make = Callable[..., hs.Engine]
SAMPLINGS = [hs.Sampling(max_tokens=9), *(hs.Sampling(max_tokens=9, temperature=1.0, seed=seed) for seed in range(3))]


@pytest.fixture(scope="module")
def make(root: Path) -> Make:
    target = hs.Target(model(root, 0, 2), max_length=32)
    return lambda drafter, **options: target.engine(drafter, pacing=FixedPacing(3), **options)


@pytest.fixture(scope="module")
def without(make: Make) -> list[tuple[int, ...]]:
    return [out.tokens for out in make(None).generate([PROMPT] * len(SAMPLINGS), SAMPLINGS)]


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize("how", REFUSED)
def test_a_draft_that_breaks_the_protocol_is_refused(how: str, rule: str, make: Make, without: list[Any]) -> None:
    engine = make(Hostile(REFUSED[how]), rule=rule)
    outs = engine.generate([PROMPT] * len(SAMPLINGS), SAMPLINGS)
    assert [out.tokens for out in outs] == without
    for out in outs:
        speculation = out.stats.speculation
        assert not speculation.on
        assert isinstance(speculation.error, hs.errors.DrafterFailed)
        assert "\n" not in speculation.reason
        assert out.stats.drafted == 0


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize("how", TAKEN)
def test_an_odd_draft_that_keeps_the_protocol_is_taken(how: str, rule: str, make: Make, without: list[Any]) -> None:
    outs = make(Hostile(TAKEN[how]), rule=rule).generate([PROMPT] * len(SAMPLINGS), SAMPLINGS)
    assert all(out.stats.speculation.on for out in outs)
    assert sum(out.stats.drafted for out in outs) > 0 or "nothing" in how
    same = [out.tokens == text for out, text in zip(outs, without, strict=True)]
    assert same[0], "greedy"
    assert all(same) or ("q" in how and rule == "exact")


@pytest.mark.parametrize("how", ["q in bfloat16", "q sums to 1.004"])
def test_a_rounded_q_keeps_the_distribution(how: str, make: Make, root: Path) -> None:
    engine = make(Hostile(TAKEN[how]), rule="exact", max_batch_size=50)
    samplings = [hs.Sampling(max_tokens=TOKENS + 2, temperature=1.0, seed=seed) for seed in range(SAMPLES)]
    outs = engine.generate([PROMPT] * SAMPLES, samplings)
    assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(model(root, 0, 2), 1.0, 1.0)) > 1e-3


def test_a_refused_draft_ends_speculation_for_its_own_request(make: Make) -> None:
    mixed = Hostile(lambda row, width: (REFUSED["q is 0"] if row.sampling.temperature else TAKEN["slow"])(row, width))
    greedy, sampled = make(mixed, rule="exact").generate([PROMPT] * 2, SAMPLINGS[:2])
    assert greedy.stats.speculation.on
    assert greedy.stats.drafted > 0
    assert not sampled.stats.speculation.on
    assert "q is no distribution" in sampled.stats.speculation.reason


def test_what_is_done_to_a_vocabulary_later_is_seen(make: Make) -> None:
    """It is looked through again where it is not what it was."""
    vocabulary = torch.arange(4)

    def draft(row: Any, width: int) -> Any:
        made = hs.Draft((1,), (-1,), torch.full((1, 4), 0.25), vocabulary=vocabulary.clone())
        vocabulary[1] = 99
        made.vocabulary.copy_(vocabulary)
        return made

    out = make(Hostile(draft)).generate(PROMPT, SAMPLINGS[0])
    assert "each once" in out.stats.speculation.reason


def property_that_raises(name: str, error: BaseException) -> Drafter:
    def ask(self: Any) -> Any:
        raise error

    return type("Odd", (Hostile,), {name: property(ask)})(TAKEN["nothing"])


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("error", [ZeroDivisionError("no"), SystemExit(1), AttributeError("no")], ids=repr)
@pytest.mark.parametrize("name", ["name", "default_budget", "taps", "draws", "parts", "limit", "sizes", "attach"])
def test_a_drafter_that_cannot_be_asked_is_refused_when_it_is_loaded(
    name: str, error: BaseException, alone: bool, make: Make
) -> None:
    drafter = property_that_raises(name, error)
    with pytest.raises((hs.errors.DrafterFailed, hs.errors.InvalidOption), match=r"cannot be used|is no drafter"):
        make(drafter if alone else ["ngram", drafter])


@pytest.mark.parametrize("taps", [(99,), (-1,), ("first",), 5])
def test_taps_that_the_target_has_not_are_refused_when_it_is_loaded(taps: Any, make: Make) -> None:
    drafter = type("Odd", (Hostile,), {"taps": taps})(TAKEN["nothing"])
    with pytest.raises((hs.errors.DrafterFailed, hs.errors.InvalidOption), match=r"cannot be used|taps the layers"):
        make(drafter)


@pytest.mark.parametrize("method", ["applies", "propose", "observe", "release"])
def test_exit_is_contained_and_an_interrupt_is_not(method: str, make: Make, without: list[Any]) -> None:
    def drafter(error: type[BaseException]) -> Drafter:
        def act(*_: Any) -> Any:
            raise error

        return type("Odd", (Hostile,), {method: act})(TAKEN["slow"])

    out = make(drafter(SystemExit)).generate(PROMPT, SAMPLINGS[0])
    assert out.tokens == without[0]
    assert method == "release" or "SystemExit" in out.stats.speculation.reason
    with pytest.raises(KeyboardInterrupt):
        make(drafter(KeyboardInterrupt)).generate(PROMPT, SAMPLINGS[0])


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(2)], ids=repr)
@pytest.mark.parametrize("method", ["applies", "propose", "observe", "release"])
def test_a_drafter_that_raises_while_it_is_measured_is_found_out_in_its_first_step(
    method: str, error: BaseException, root: Path, without: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adaptive pacing asks it before any request does, and survives it."""
    monkeypatch.setattr("headstart.loading.pacing.measure", partial(measure, seconds=0.01))

    def act(*_: Any) -> Any:
        raise error

    drafter = type("Odd", (Hostile,), {method: act, "taps": (1,)})(TAKEN["nothing"])
    engine = hs.Target(model(root, 0, 2), max_length=32).engine(drafter)
    out = engine.generate(PROMPT, SAMPLINGS[0])
    assert out.tokens == without[0]
    assert engine._loop.pacing.failure is None
