"""Our own audit of our own server: lossless with speculation and without, and not where a fault is planted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.audit_plans import PLAN, TEXTS
from support.http_server import serving

import headstart as hs
from headstart.fleet.audit.endpoint import EndpointSubject
from headstart.fleet.audit.run import audit_endpoint
from headstart.measure.audit.certificate import Certificate

OPTIONS: dict[str, Any] = {"dtype": "float32", "max_length": 128, "pacing": "fixed", "num_speculative_tokens": 3}


@pytest.fixture(scope="module")
def reference() -> hs.Engine:
    return hs.load("bundled", "none", dtype="float32", max_length=128)


def audit(engine: hs.Engine, reference: hs.Engine) -> tuple[Certificate, EndpointSubject]:
    prompts = [reference.tokenizer(text)["input_ids"] for text in TEXTS]
    facts: dict[str, Any] = {"vocab_size": reference.target.vocab_size, "ends": reference.eos_token_ids}
    with serving(engine) as running, EndpointSubject(running.url, tokenizer=reference.tokenizer, **facts) as subject:
        return audit_endpoint(subject, reference, prompts, PLAN), subject


@pytest.mark.parametrize("drafter", [pytest.param("none", marks=pytest.mark.slow), "auto"])
def test_it_is_lossless(drafter: str, reference: hs.Engine) -> None:
    made, subject = audit(hs.load("bundled", drafter, **OPTIONS), reference)
    assert made.verdict == "lossless", made.reasons
    assert set(made.parts) == {"sampling", "greedy", "behaviour"}
    assert subject.tokens.source == "ids", "the server tells its tokens"
    assert "prompts as token ids, with the fields of vLLM" in subject.describe()["asked"]
    assert not made.notes, "nothing has to be explained away"
    checks = {check["name"]: check["status"] for check in made.record()["parts"]["behaviour"]["checks"]}
    assert set(checks.values()) == {"passed"}, checks


@pytest.mark.slow
def test_a_fault_is_found(reference: hs.Engine) -> None:
    engine = hs.load("bundled", "none", **OPTIONS)
    submit = engine.submit

    def colder(prompt: Any, sampling: hs.Sampling, *rest: Any) -> Any:
        return submit(prompt, replace(sampling, temperature=0.5 * sampling.temperature), *rest)

    engine.submit = colder  # type: ignore[method-assign]
    made, _ = audit(engine, reference)
    assert made.verdict == "not lossless"
