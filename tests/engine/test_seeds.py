"""Rule "auto": a request with a seed has one text, that of plain decoding with this seed; one without is judged by rule
"exact". Both have the target's distribution, also in the same batch."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.greedy import prompts
from support.sampled_distribution import PROMPT, SAMPLES, TOKENS, joint, model, p_value

import headstart as hs
from headstart.engine import intake
from headstart.engine.intake import rule_of
from headstart.model.prefixes import SHORTEST
from headstart.types import Rule

Load = Callable[..., hs.Engine]

SEEDED: tuple[dict[str, Any], ...] = (
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.3, "min_p": 0.05, "repetition_penalty": 1.2, "frequency_penalty": 0.3},
)


@pytest.fixture
def drawn_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds of requests that have none follow each other, so that what passes goes on passing."""
    found = itertools.count(10**6)
    monkeypatch.setattr(intake.secrets, "randbits", lambda _: next(found))


@pytest.mark.parametrize(
    ("rule", "seed", "temperature", "judged_by"),
    [
        ("auto", 3, 1.0, "coupled"),
        ("auto", 0, 1.0, "coupled"),
        ("auto", None, 1.0, "exact"),
        ("auto", 3, 0.0, "exact"),
        ("exact", 3, 1.0, "exact"),
        ("coupled", None, 1.0, "coupled"),
    ],
)
def test_what_a_request_is_judged_by(rule: Any, seed: int | None, temperature: float, judged_by: Rule) -> None:
    assert rule_of(hs.Sampling(temperature=temperature, seed=seed), rule) == judged_by


def test_it_is_the_default(tiny: Callable[..., str]) -> None:
    assert hs.load(tiny("llama"), "none", max_length=64).describe()["rule"] == "auto"


# -- one text ---------------------------------------------------------------------------------------------------------

DRAFTERS = ("ngram", "early-exit", "lookahead", "near", "trees", "other", "list", "stack", "copy")


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_seed_has_the_text_of_plain_decoding(kind: str, tiny: Callable[..., str], load: Load) -> None:
    """Whatever drafts, and however much: alone, in a batch, in pieces, beside requests without a seed, which end and
    begin, and under a pacing that learns from all of them."""
    near = tiny("llama", noise=0.02)
    drafter: Any = {
        "near": near, "trees": near, "other": tiny("gpt2"), "list": ["ngram", near], "stack": f"{near}(ngram)",
        "copy": "self-int4",
    }.get(kind, kind)  # fmt: skip
    texts = [list(prompt) for prompt in prompts()[:3]]
    asked = [hs.Sampling(max_tokens=24, seed=n, **each) for n, each in enumerate(SEEDED)]
    expected = [out.tokens for out in load("llama").generate(texts, asked)]
    more = {"draft_tree": "sampled"} if kind == "trees" else {}
    drafted = accepted = 0
    for options in ({"num_speculative_tokens": 1}, {"num_speculative_tokens": 9}, {"pacing": "adaptive"}):
        engine = load("llama", drafter, max_batch_size=4, prefill_chunk=7, **options, **more)
        alone = [engine.generate(*each) for each in zip(texts, asked, strict=True)]
        others = [hs.Sampling(max_tokens=n, temperature=1.0) for n in (5, 30, 11)]
        mixed = [each for pair in zip(asked, others, strict=True) for each in pair]
        beside = engine.generate([text for text in texts for _ in range(2)], mixed)[::2]
        assert [out.tokens for out in alone] == [out.tokens for out in beside] == expected
        assert all(out.stats.speculation.error is None for out in (*alone, *beside))
        drafted += sum(out.stats.drafted for out in (*alone, *beside))
        accepted += sum(out.stats.accepted for out in (*alone, *beside))
    assert 0 < accepted < drafted or (kind == "ngram" and drafted > 0), "random texts seldom repeat themselves"


def test_it_is_that_of_rule_coupled_and_not_of_exact(tiny: Callable[..., str], load: Load) -> None:
    near, sampling = tiny("llama", noise=0.02), hs.Sampling(max_tokens=24, temperature=1.0, seed=3)
    texts = {rule: load("llama", near, rule=rule).generate([5, 6], sampling).tokens for rule in ("auto", "coupled")}
    assert texts["auto"] == texts["coupled"] != load("llama", near, rule="exact").generate([5, 6], sampling).tokens


def test_a_seeded_text_begins_with_what_others_have_read(tiny: Callable[..., str], load: Load) -> None:
    engine = load("llama", tiny("llama", noise=0.02), prefix_cache=True)
    prompt, sampling = [3 + n % 20 for n in range(2 * SHORTEST)], hs.Sampling(max_tokens=8, temperature=1.0, seed=1)
    cold, warm = (engine.generate(prompt, sampling) for _ in range(2))
    assert warm.tokens == cold.tokens
    assert warm.stats.cached_tokens > cold.stats.cached_tokens == 0
    assert engine.target.width_invariant


# -- beside others -----------------------------------------------------------------------------------------------------


def in_turns(engine: hs.Engine, samples: int, **options: Any) -> tuple[list[hs.Output], list[hs.Output]]:
    """What so many requests with a seed write, and so many without, in turns in the same batches."""
    asked = [
        hs.Sampling(max_tokens=TOKENS + 2, seed=n // 2 if n % 2 == 0 else None, **options) for n in range(2 * samples)
    ]
    outs = engine.generate([PROMPT] * len(asked), asked)
    return outs[::2], outs[1::2]


KINDS: dict[str, tuple[Callable[[str], str], dict[str, Any]]] = {
    "chain": (str, {}),
    "sampled tree": (str, {"draft_tree": "sampled", "num_speculative_tokens": 6}),
    "stack": (lambda near: f"{near}(ngram)", {}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("drawn_seeds")
def test_both_have_the_targets_distribution(kind: str, root: Path, load: Load) -> None:
    of, options = KINDS[kind]
    path = model(root, 0, 2)
    engine = load(
        path, of(model(root, 0, 2, 0.1)),
        **{"max_batch_size": 50, "max_length": 32, "num_speculative_tokens": 3, **options},
    )  # fmt: skip
    steps: dict[int, set[str]] = defaultdict(set)
    engine.record(lambda observation, request: steps[request.number].add(request.rule))
    seeded, free = in_turns(engine, SAMPLES, temperature=1.0, top_p=0.9)
    assert {frozenset(rules) for rules in steps.values()} == {frozenset({"exact"}), frozenset({"coupled"})}
    for outs in (seeded, free):
        assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(path, 1.0, 0.9)) > 1e-3
        assert p_value(Counter(out.tokens[:TOKENS] for out in outs), joint(path, 1.3, 0.9)) < 1e-5, "it would show"
        assert 0 < sum(out.stats.accepted for out in outs) < sum(out.stats.drafted for out in outs)


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_of_a_batch_is_judged_by_its_own_rule(kind: str, root: Path, load: Load) -> None:
    """Bit for bit: a seeded text is that of plain decoding, and one without a seed is what rule "exact" makes of the
    seed that it was given, with the same drafts."""
    of, options = KINDS[kind]
    path, drafter = model(root, 0, 2), of(model(root, 0, 2, 0.1))
    options = {"max_batch_size": 8, "max_length": 32, "num_speculative_tokens": 3, **options}
    auto, exact = (load(path, drafter, rule=rule, **options) for rule in ("auto", "exact"))
    rules: dict[float, set[Rule]] = defaultdict(set)
    auto.record(lambda observation, request: rules[observation.step.began].add(request.rule))
    with auto.trace() as recording:
        seeded, free = in_turns(auto, 20, temperature=1.0)
    plain = load(path, max_length=32, max_batch_size=8)
    again = [hs.Sampling(max_tokens=TOKENS + 2, temperature=1.0, seed=out.seed) for out in (*seeded, *free)]
    one = [out.tokens for out in plain.generate([PROMPT] * 20, again[:20])]
    assert [out.tokens for out in seeded] == one
    assert [out.tokens for out in free] == [out.tokens for out in exact.generate([PROMPT] * 20, again[20:])]
    assert [out.tokens for out in free] != [out.tokens for out in plain.generate([PROMPT] * 20, again[20:])]
    assert {"exact", "coupled"} in rules.values(), "in one step"
    procedures = {rule: {step.procedure for step in steps} for rule, steps in _judged(recording.requests).items()}
    assert procedures == {"coupled": {"walk", "plain"}, "exact": {"traverse", "plain"}}
    assert not recording.read().warnings, "the trace repeats each decision"


def _judged(requests: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for request in requests:
        found[request.line.rule] += request.steps
    return found


def test_a_seed_that_was_drawn_does_not_repeat_a_text_whose_drafts_were_drawn(
    tiny: Callable[..., str], load: Load
) -> None:
    """As `Output.seed` says; where nothing is drawn, and under rule "coupled", it does."""
    near = tiny("llama", noise=0.02)

    def repeated(engine: hs.Engine) -> list[bool]:
        found = []
        for _ in range(8):
            first = engine.generate([5, 6], hs.Sampling(max_tokens=16, temperature=1.0))
            again = engine.generate([5, 6], hs.Sampling(max_tokens=16, temperature=1.0, seed=first.seed))
            found.append(first.tokens == again.tokens)
        return found

    assert not all(repeated(load("llama", near)))
    assert all(repeated(load("llama", near, rule="coupled")))
    assert all(repeated(load("llama", "ngram")))
