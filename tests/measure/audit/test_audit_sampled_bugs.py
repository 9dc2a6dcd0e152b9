"""The audit on real engines: the bugs known in the wild are caught, and a right engine is not accused.

The fast suite has every bug once, with the draft known, and one without; of right engines one of each kind of drafter,
of draft, and of rule, mostly under many settings. The others are slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import planted_bugs as bugs

import headstart as hs
from headstart.base.errors import ContextExceeded
from headstart.measure.audit.engines import EngineReference, EngineSubject
from headstart.measure.audit.findings import SampledResult
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.sampled import audit_sampling
from headstart.measure.audit.subject import Ask
from headstart.types import Sampling

Load = Callable[..., hs.Engine]
Tiny = Callable[..., str]

PROMPTS = ([5, 6, 7], [9], [20, 30, 40, 50])
WARM = Sampling(temperature=1.0)
COOL = Sampling(temperature=0.5)
PENALTIES = Sampling(temperature=0.8, presence_penalty=1.5, frequency_penalty=0.5)
MANY = (
    Sampling(temperature=0.7, top_p=0.9, repetition_penalty=1.3, presence_penalty=0.5),
    Sampling(temperature=1.3, top_k=20, min_p=0.02, frequency_penalty=0.5, logit_bias={4: 2.0}),
    Sampling(temperature=1.0, min_tokens=3, stop_token_ids=[11, 12, 13]),
)


def audit(engine: hs.Engine, *samplings: Sampling, knows_draft: bool = True, **options: Any) -> SampledResult:
    plan = AuditPlan(**{"effect": 0.1, "replicates": 20, "max_samples": 1500, "batch": 48, **options})
    each = [replace(plan, sampling=sampling) for sampling in samplings]
    return audit_sampling(
        EngineSubject(engine, seed=3),
        EngineReference.of(engine),
        [ask for prompt in PROMPTS for one in each for ask in one.asks([prompt])],
        plan,
        draft=EngineReference.of_draft(engine) if knows_draft else None,
    )


@pytest.fixture
def pair(load: Load, tiny: Tiny) -> Callable[..., hs.Engine]:
    """A target and a draft that is right about half the time."""
    return lambda **options: load(
        "llama",
        tiny("llama", noise=0.03),
        max_batch_size=16,
        **{"rule": "exact", "num_speculative_tokens": 4, **options},
    )


BUGS: dict[str, tuple[bugs.Plant, Sampling, dict[str, Any]]] = {
    "resampling from p": (bugs.resampling_from_p, WARM, {}),
    "q of another token": (bugs.q_of_another_token, WARM, {}),
    "row after the rejected": (bugs.row_after_the_rejected, WARM, {}),
    "greedy acceptance": (bugs.greedy_acceptance, WARM, {}),
    "bonus without temperature": (bugs.bonus_without_temperature(0.5), COOL, {"num_speculative_tokens": 1}),
    "past an end": (bugs.past_an_end, WARM, {}),
    "stale penalties": (bugs.stale_penalties, PENALTIES, {}),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, pair: Callable[..., hs.Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    plant, sampling, options = BUGS[name]
    engine = pair(**options)
    plant(monkeypatch)
    result = audit(engine, sampling, effect=0.03)
    assert result.verdict == "not lossless", result.record()
    assert result.reasons
    if name == "past an end":
        assert result.past_end > 0
    else:
        assert result.most_evidence >= 100


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("resampling from p", marks=pytest.mark.slow),
        pytest.param("q of another token", marks=pytest.mark.slow),
        "row after the rejected",
    ],
)
def test_it_is_caught_without_knowing_the_draft(
    name: str, pair: Callable[..., hs.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, sampling, options = BUGS[name]
    engine = pair(**options)
    plant(monkeypatch)
    result = audit(engine, sampling, effect=0.03, max_samples=3000, knows_draft=False)
    assert result.verdict == "not lossless", result.record()
    assert "guesses" not in result.strategies


RIGHT: dict[str, tuple[Any, dict[str, Any], tuple[Sampling, ...]]] = {
    "plain": ("none", {}, (WARM,)),
    "n-gram, many settings": ("ngram", {}, MANY),
    "draft LM": ("draft", {}, (WARM,)),
    "draft LM, cool": ("draft", {}, (COOL,)),
    "draft LM, many settings": ("draft", {}, MANY),
    "draft LM, penalties": ("draft", {}, (PENALTIES,)),
    "draft LM, sampled trees": ("draft", {"draft_tree": "sampled"}, MANY),
    "draft LM, top-k trees": ("draft", {"draft_tree": "top-k"}, MANY),
    "draft LM, coupled": ("draft", {"rule": "coupled"}, MANY),
    "draft LM, auto": ("draft", {"rule": "auto"}, MANY),
    "early exit": ("early-exit", {}, MANY),
    "list": (["ngram", "draft"], {}, MANY),
}


SLOW = (
    "plain", "draft LM", "draft LM, cool", "draft LM, penalties", "draft LM, many settings", "draft LM, top-k trees",
    "early exit",
)  # fmt: skip
"""What others show too: settings among many, a draft whose rule or shape is another, a drafter within a list."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in RIGHT])
def test_a_right_engine_is_cleared(name: str, load: Load, tiny: Tiny) -> None:
    drafter, options, samplings = RIGHT[name]
    draft = tiny("llama", noise=0.03)
    drafters = [draft if each == "draft" else each for each in (drafter if isinstance(drafter, list) else [drafter])]
    options = {"rule": "exact", "max_batch_size": 16, **options}
    engine = load("llama", drafters if len(drafters) > 1 else drafters[0], **options)
    result = audit(engine, *samplings)
    assert result.verdict == "lossless", result.record()
    assert result.impossible == 0
    assert result.past_end == 0


def test_the_rule_that_bugs_are_planted_in_is_right(
    pair: Callable[..., hs.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pair()
    bugs.right_token_by_token(monkeypatch)
    assert audit(engine, WARM).verdict == "lossless"


# -- subject and reference --------------------------------------------------------------------------------------------


def test_the_reference_reads_a_text_as_the_engine_writes_it(load: Load) -> None:
    """Distributions by teacher forcing against the log-probabilities that came with the text, all processors on."""
    engine = load("llama", "ngram")
    reference = EngineReference.of(engine)
    for sampling in MANY:
        out = engine.generate(
            [5, 6, 7], replace(sampling, max_tokens=10, seed=4, logprobs=0, logprobs_mode="processed")
        )
        distributions = reference.distributions([5, 6, 7], out.tokens, sampling)
        assert distributions.shape == (len(out.tokens) + 1, 97)
        assert np.allclose(distributions.sum(1), 1, atol=1e-5)
        assert out.logprobs is not None
        own = [np.log(distributions[i, token]) for i, token in enumerate(out.tokens)]
        assert np.allclose(own, [entry.logprob for entry in out.logprobs], atol=1e-4)


def test_a_prompt_is_read_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load("llama")
    reference = EngineReference.of(engine)
    fresh: NDArray[Any] = EngineReference.of(engine).distributions([9, 9], [4], WARM)
    rows: list[int] = []
    forward = engine.target.forward
    monkeypatch.setattr(
        engine.target, "forward", lambda segments, *rest: (rows.append(len(segments[0])), forward(segments, *rest))[1]
    )
    first = reference.distributions([5, 6, 7], [1, 2], WARM)
    again = reference.distributions([5, 6, 7], [1, 2], WARM)
    other = reference.distributions([9, 9], [4], WARM)
    assert rows == [2, 3, 3, 1, 2]
    assert np.array_equal(first, again)
    assert np.array_equal(other, fresh)


def test_completions_have_seeds_of_their_own(load: Load) -> None:
    engine = load("llama", rule="exact")
    subject = EngineSubject(engine, seed=1)
    sampling = Sampling(temperature=1.0, max_tokens=6, seed=5)
    ask = Ask((5, 6, 7), sampling)
    texts = subject.sample([ask] * 5) + subject.sample([ask] * 5)
    assert len({text.tokens for text in texts}) == 10
    again = EngineSubject(engine, seed=1).sample([ask] * 10)
    assert [text.tokens for text in again] == [text.tokens for text in texts]
    assert subject.describe()["drafter"] == "none"


def test_under_rule_auto_about_half_are_judged_by_each_rule(load: Load) -> None:
    """Of each prompt, not only of all together."""
    engine = load("llama", rule="auto")
    rules = []
    engine.record(lambda observation, request: rules.append(request.rule))
    asks = [Ask(prompt, replace(WARM, max_tokens=1)) for prompt in ((5, 6, 7), (9,))]
    for _ in range(40):
        EngineSubject(engine, seed=len(rules)).sample(asks)
    assert all(0.3 < rules[first::2].count("coupled") / 40 < 0.7 for first in (0, 1))


def test_an_audit_under_rule_auto_comes_again(load: Load, tiny: Tiny) -> None:
    """Completions by either rule are functions of the seed, whatever ran before."""
    engine = load("llama", tiny("llama", noise=0.03), rule="auto", max_batch_size=4)
    asks = [Ask(prompt, replace(WARM, max_tokens=8)) for prompt in PROMPTS] * 4
    first = EngineSubject(engine, seed=2).sample(asks)
    engine.generate([5, 6, 7], WARM)
    assert [each.tokens for each in EngineSubject(engine, seed=2).sample(asks)] == [each.tokens for each in first]
    rules: list[str] = []
    engine.record(lambda observation, request: rules.append(request.rule))
    engine.generate([9], replace(WARM, max_tokens=1))
    engine.generate([9], replace(WARM, max_tokens=1, seed=2))
    assert rules == ["exact", "coupled"], "the engine has its own rule again"


def test_a_text_beyond_the_context_is_refused(load: Load) -> None:
    engine = load("llama", max_length=16)
    with pytest.raises(ContextExceeded, match="do not fit"):
        EngineReference.of(engine).distributions([1] * 10, [2] * 7, WARM)


def test_only_a_draft_model_has_a_distribution_of_guesses(load: Load, tiny: Tiny) -> None:
    assert EngineReference.of_draft(load("llama", "ngram")) is None
    engine = load("llama", tiny("llama", noise=0.03))
    draft = EngineReference.of_draft(engine)
    assert draft is not None
    assert not np.allclose(
        draft.distributions([5, 6], [], WARM), EngineReference.of(engine).distributions([5, 6], [], WARM)
    )
