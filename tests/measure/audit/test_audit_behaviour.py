"""The behaviour audit: a correct engine keeps every promise, and each planted leak fails the promise it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.byte_models import save_model

import headstart as hs
from headstart.measure.audit.behaviour import audit_behaviour
from headstart.measure.audit.engines import EngineReference, EngineSubject, Rounding
from headstart.measure.audit.findings import BehaviourResult
from headstart.measure.audit.subject import Ask, Completion

EXACT = Rounding(0.0, 0.0, 0.0, 0.0, 10, "exact")
K = 4


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> hs.Engine:
    folder = tmp_path_factory.mktemp("models")
    target, draft = save_model(folder / "target"), save_model(folder / "draft", noise=0.02)
    return hs.load(target, draft, dtype="float32", pacing="fixed", num_speculative_tokens=K)


@pytest.fixture(scope="module")
def prompts(engine: hs.Engine) -> list[list[int]]:
    return [engine.tokenizer(text)["input_ids"] for text in ("def add(a, b):", "xyz")]


@dataclass
class Broken:
    """An engine whose completions something happens to."""

    subject: EngineSubject
    happens: Callable[[Ask, Completion], Completion]
    name: str = "broken"

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        drawn = self.subject.sample(asks)
        return [self.happens(ask, completion) for ask, completion in zip(asks, drawn, strict=True)]

    def describe(self) -> dict[str, Any]:
        return {}


def statuses(result: BehaviourResult) -> dict[str, str]:
    return {check.name: check.status for check in result.checks}


def audited(engine: hs.Engine, prompts: Any, subject: Any, **options: Any) -> BehaviourResult:
    return audit_behaviour(subject, EngineReference.of(engine), prompts, EXACT, k=K, **options)


def test_a_correct_engine_keeps_every_promise(engine: hs.Engine, prompts: Any) -> None:
    result = audited(engine, prompts, EngineSubject(engine), seeded=lambda p, s: engine.generate(list(p), s))
    assert set(statuses(result).values()) == {"passed"}, result.reasons
    assert result.verdict == "lossless"
    cases = {check.name: check.cases for check in result.checks}
    assert cases["max_tokens"] == 2 * (K + 3)
    assert cases["stop strings"] >= 20
    assert cases["stop tokens"] >= 10


def leaks_after_stop(ask: Ask, completion: Completion) -> Completion:
    """The rest of the block comes out behind the stop string."""
    if not ask.sampling.stop:
        return completion
    return replace(completion, text=completion.text + ask.sampling.stop[0] + "..")


def forgets_stop(engine: hs.Engine) -> Callable[[Ask, Completion], Completion]:
    """A stop string that spans two tokens is not seen at odd offsets."""

    def happens(ask: Ask, completion: Completion) -> Completion:
        if not ask.sampling.stop or len(completion.text) % 2 == 0:
            return completion
        whole = engine.plain().generate(list(ask.prompt), replace(ask.sampling, stop=()))
        return Completion(whole.tokens, whole.finish_reason, whole.text)

    return happens


def overshoots(ask: Ask, completion: Completion) -> Completion:
    """max_tokens is only looked at after a block of three."""
    if ask.sampling.max_tokens > K + 3 or completion.finish_reason != "length":
        return completion
    extra = -len(completion.tokens) % 3
    return replace(completion, tokens=(*completion.tokens, *[5] * extra))


def runs_past_the_end(ask: Ask, completion: Completion) -> Completion:
    if completion.finish_reason != "stop" or ask.sampling.stop or ask.sampling.stop_token_ids:
        return completion
    return replace(completion, tokens=(*completion.tokens, 65, 66))


def wrong_reason(ask: Ask, completion: Completion) -> Completion:
    return replace(completion, finish_reason="length") if completion.tokens[-1] == 256 else completion


def shifted_logprobs(ask: Ask, completion: Completion) -> Completion:
    """Log-probabilities of the row before: llama.cpp#27972."""
    if not completion.logprobs:
        return completion
    rows = (completion.logprobs[0], *completion.logprobs[:-1])
    found = tuple(replace(entry, logprob=row.logprob) for entry, row in zip(completion.logprobs, rows, strict=True))
    return replace(completion, logprobs=found)


def leaks_after_stop_token(ask: Ask, completion: Completion) -> Completion:
    if not ask.sampling.stop_token_ids:
        return completion
    return replace(completion, tokens=(*completion.tokens, 65))


@pytest.mark.parametrize(
    ("happens", "promise", "words"),
    [
        (leaks_after_stop, "stop strings", "expected"),
        (overshoots, "max_tokens", "max_tokens="),
        (runs_past_the_end, "end of text", "2 tokens after the end"),
        (wrong_reason, "end of text", "finish_reason 'length'"),
        (shifted_logprobs, "logprobs", "expected"),
        (leaks_after_stop_token, "stop tokens", "stop token at position"),
    ],
)
def test_a_planted_leak(engine: hs.Engine, prompts: Any, happens: Any, promise: str, words: str) -> None:
    result = audited(engine, prompts[:1], Broken(EngineSubject(engine), happens))
    failed = {name for name, status in statuses(result).items() if status == "failed"}
    assert promise in failed, statuses(result)
    assert failed <= {promise, "min_tokens"}
    assert result.verdict == "not lossless"
    assert any(words in reason for reason in result.reasons), result.reasons


def test_stops_that_are_missed_at_some_offsets_only(engine: hs.Engine, prompts: Any) -> None:
    result = audited(engine, prompts[:1], Broken(EngineSubject(engine), forgets_stop(engine)))
    check = next(check for check in result.checks if check.name == "stop strings")
    assert check.status == "failed"
    assert 0 < int(check.detail.split()[0]) < check.cases


def test_min_tokens_that_is_not_kept(engine: hs.Engine, prompts: Any) -> None:
    @dataclass
    class Forgetful(Broken):
        def sample(self, asks: Sequence[Ask]) -> list[Completion]:
            return super().sample([Ask(ask.prompt, replace(ask.sampling, min_tokens=0)) for ask in asks])

    subject = Forgetful(EngineSubject(engine), lambda ask, completion: completion)
    assert statuses(audited(engine, prompts[:1], subject))["min_tokens"] == "failed"
    lenient = audited(engine, prompts[:1], subject, may_ignore=True)
    check = next(check for check in lenient.checks if check.name == "min_tokens")
    assert check.status == "not tested"
    assert "does not know" in check.detail


def test_a_text_that_changes_from_call_to_call_accuses_nobody(engine: hs.Engine, prompts: Any) -> None:
    calls = iter(range(10**6))

    def changes(ask: Ask, completion: Completion) -> Completion:
        number = next(calls)
        return replace(completion, tokens=(number % 50, *completion.tokens[1:]), text=f"{number} {completion.text}")

    found = statuses(audited(engine, prompts, Broken(EngineSubject(engine), changes)))
    assert {found["stop strings"], found["stop tokens"], found["max_tokens"]} == {"not tested"}


def test_what_cannot_be_tested_says_why(engine: hs.Engine, prompts: Any, tmp_path: Path) -> None:
    result = audit_behaviour(EngineSubject(engine), None, prompts, None, k=K, gives_tokens=False)
    details = {check.name: check.detail for check in result.checks if check.status == "not tested"}
    assert details["logprobs"] == "there are no reference weights"
    assert details["stop tokens"] == "the server tells no tokens"
    assert details["seeds"] == "the subject takes no seeds"
    assert statuses(result)["stop strings"] == statuses(result)["max_tokens"] == "passed"
