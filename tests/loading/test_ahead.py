"""Drafting ahead by name, by flag and as an object: the same text, and a clear no where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.drafters import Drafter, capabilities
from headstart.drafters.ahead import AheadDrafter

PROMPTS = [[5, 9, 12], [7, 3, 3, 8, 41]]
FIXED: dict[str, Any] = {"pacing": "fixed", "dtype": "float32", "num_speculative_tokens": 3, "rule": "exact"}


def texts(engine: hs.Engine) -> list[tuple[int, ...]]:
    sampling = [hs.Sampling(max_tokens=16, temperature=t, seed=1, ignore_eos=True) for t in (0, 1)]
    outputs = engine.generate(PROMPTS, sampling)
    assert all(output.stats.speculation.error is None for output in outputs)
    assert all(output.stats.drafted for output in outputs)
    return [output.tokens for output in outputs]


@pytest.mark.parametrize("drafter", ["model", "early-exit"])
def test_every_way_to_ask_for_it_gives_the_text_of_drafting_in_turn(drafter: str, tiny: Callable[..., str]) -> None:
    path = tiny("llama")
    name = tiny("llama", noise=0.05) if drafter == "model" else drafter
    target = hs.Target(path, dtype="float32")
    options = {key: value for key, value in FIXED.items() if key != "dtype"}
    expected = texts(target.engine(name, **options))
    for asked, more in (
        (f"ahead:{name}", {}),
        (hs.Ahead(name, branches=3), {}),
        (name, {"ahead": True, "draft_threads": 1}),
        (["ngram", name], {"ahead": True}),
    ):
        engine = target.engine(asked, **options, **more)
        (part,) = [each for each in capabilities.parts(engine.drafter) if isinstance(each, AheadDrafter)]
        assert part.name.startswith("ahead:")
        if engine.drafter is part:
            assert texts(engine) == expected
        else:
            assert (
                texts(engine)[0] == expected[0]
            )  # another drafter's copies change a sampled text, not its distribution


def test_options_of_an_object_are_kept(tiny: Callable[..., str]) -> None:
    engine = hs.load(tiny("llama"), hs.Ahead("early-exit", branches=3, threads=1, partial=False), **FIXED)
    made = engine.drafter
    assert isinstance(made, AheadDrafter)
    assert (made.how.branches, made.how.threads, made.how.partial, made.inner.name) == (3, 1, False, "early-exit")


def test_a_drafter_of_ones_own_can_be_put_into_it(tiny: Callable[..., str]) -> None:
    path = tiny("llama")
    inner = hs.load(path, tiny("llama", noise=0.05), **FIXED).drafter
    engine = hs.load(path, hs.Ahead(inner), **FIXED)
    assert engine.drafter_name == f"ahead:{inner.name}"
    texts(engine)


def test_a_draft_model_runs_on_the_device_that_is_named(tiny: Callable[..., str]) -> None:
    engine = hs.load(tiny("llama"), tiny("llama", noise=0.05), draft_device="cpu", **FIXED)
    assert {tensor.device.type for tensor in engine.drafter.weights()} == {"cpu"}
    texts(engine)


class _Copies(Drafter):
    name = "copies"
    default_budget = 1

    def propose(self, rows: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("drafter", "options", "message"),
    [
        ("ahead:ngram", {}, "ngram cannot draft ahead"),
        ("ahead:ahead:early-exit", {}, "drafts ahead already"),
        ("ngram", {"ahead": True}, "ngram cannot draft ahead"),
        ("none", {"ahead": True}, "plain decoding cannot draft ahead"),
        ("early-exit", {"draft_threads": 1}, "early-exit cannot draft ahead"),
        ("early-exit", {"ahead": True, "draft_threads": 0}, "draft_threads=0"),
        (["early-exit", "ahead:early-exit"], {}, "names one twice"),
        ("early-exit", {"draft_device": "abacus"}, "abacus"),
    ],
)
def test_what_cannot_be_is_refused(
    drafter: Any, options: dict[str, Any], message: str, tiny: Callable[..., str]
) -> None:
    with pytest.raises(InvalidOption, match=message):
        hs.load(tiny("llama"), drafter, **FIXED, **options)


@pytest.mark.parametrize("options", [{"branches": 0}, {"threads": 0}, {"branches": 1.5}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        hs.Ahead("early-exit", **options)


def test_only_what_can_foresee_is_taken() -> None:
    with pytest.raises(InvalidOption, match="copies cannot draft ahead"):
        hs.Ahead(_Copies())
