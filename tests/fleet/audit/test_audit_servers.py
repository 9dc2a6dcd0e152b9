"""Whole audits of servers: correct ones are cleared however they tokens their tokens, planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.audit_plans import PLAN, TEXTS
from support.serving import MODEL, Replies, ignores_temperature, serving

import headstart as hs
from headstart.drafters.ngram import NgramDrafter
from headstart.fleet.audit.endpoint import EndpointSubject
from headstart.fleet.audit.run import audit_against, audit_endpoint
from headstart.loading.assembly import assemble
from headstart.measure.audit.certificate import Certificate
from headstart.measure.audit.engines import EngineReference, Logits, transformers_logits
from headstart.measure.audit.plan import AuditPlan
from headstart.model import loading
from headstart.model.runner import ModelRunner


@pytest.fixture(scope="module")
def server_engine() -> hs.Engine:
    return hs.load("bundled", "ngram", dtype="float32", max_length=128, pacing="fixed", num_speculative_tokens=3)


@pytest.fixture(scope="module")
def reference() -> hs.Engine:
    return hs.load("bundled", "none", dtype="float32", max_length=128)


def audit(
    server: hs.Engine, reference: hs.Engine, replies: Replies, *, other: Logits | None = None, **options: Any
) -> Certificate:
    prompts = [reference.tokenizer(text)["input_ids"] for text in TEXTS]
    facts: dict[str, Any] = {"vocab_size": reference.target.vocab_size, "ends": reference.eos_token_ids}
    plan = replace(PLAN, **options)
    with (
        serving(server, replies) as url,
        EndpointSubject(url, tokenizer=reference.tokenizer, model=MODEL, **facts) as subject,
    ):
        return audit_endpoint(subject, reference, prompts, plan, other=other)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["strings", "text"])  # ids: the audit of our own server
def test_a_correct_server_is_cleared(tokens: str, server_engine: hs.Engine, reference: hs.Engine) -> None:
    made = audit(server_engine, reference, Replies(tokens=tokens))
    assert made.verdict == "lossless", made.reasons
    sampled = "comparison" if tokens == "text" else "sampling"
    assert set(made.parts) == {sampled, "greedy", "behaviour"}
    assert made.exit_code == 0
    # Seeds follow the server's port; of a few hundred texts, strings leave a token open in one or none.
    few = tokens == "strings" and len(made.notes) == 1 and made.notes[0].startswith("1 completion cut")
    assert bool(made.notes) == (tokens == "text") or few, made.notes
    record = made.record()
    assert record["parts"]["greedy"]["bugs"] == 0
    checks = {check["name"]: check["status"] for check in record["parts"]["behaviour"]["checks"]}
    assert checks["stop strings"] == checks["max_tokens"] == "passed"
    assert "failed" not in checks.values()
    assert checks["logprobs"] == ("not tested" if tokens == "text" else "passed")


def test_no_logprobs_is_said_and_does_no_harm(server_engine: hs.Engine, reference: hs.Engine) -> None:
    made = audit(server_engine, reference, Replies(logprobs=False), sampled=False)
    assert made.verdict == "lossless", made.reasons
    assert any("no log-probabilities" in note for note in made.notes)
    checks = {check["name"]: check for check in made.record()["parts"]["behaviour"]["checks"]}
    assert checks["logprobs"]["status"] == "not tested"


def test_a_field_that_is_refused_is_not_tested_and_the_rest_is(server_engine: hs.Engine, reference: hs.Engine) -> None:
    made = audit(server_engine, reference, Replies(refused=frozenset({"logit_bias", "stop"})), sampled=False)
    checks = {check["name"]: check for check in made.record()["parts"]["behaviour"]["checks"]}
    for name in ("end of text", "min_tokens", "stop strings"):
        assert checks[name]["status"] == "not tested"
        assert "is not supported with speculative decoding" in checks[name]["detail"]
    assert checks["max_tokens"]["status"] == checks["stop tokens"]["status"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["ids", "text"])
def test_a_server_that_ignores_the_temperature(tokens: str, server_engine: hs.Engine, reference: hs.Engine) -> None:
    cold = hs.Sampling(temperature=0.4)
    replies = Replies(tokens=tokens, sampling=ignores_temperature)
    made = audit(server_engine, reference, replies, sampling=cold, greedy=False, behaviour=False, max_samples=900)
    assert made.verdict == "not lossless"
    assert made.exit_code == 1


def swaps_a_token(reference: hs.Engine) -> Callable[..., tuple[tuple[int, ...], str]]:
    """A greedy text in which the token at position 4 is the runner-up; it goes on greedily from there."""
    distributions = EngineReference.of(reference)

    def after(engine: hs.Engine, ids: list[int], out: hs.Output, sampling: hs.Sampling) -> tuple[tuple[int, ...], str]:
        if not sampling.greedy or len(out.tokens) < 8:
            return out.tokens, out.finish_reason
        before = out.tokens[:4]
        row = distributions.distributions(ids, before, hs.Sampling(temperature=1.0))[-1]
        second = int(np.argsort(row)[-2])
        rest = replace(sampling, max_tokens=sampling.max_tokens - 5)
        went_on = engine.generate([*ids, *before, second], rest)
        return (*before, second, *went_on.tokens), went_on.finish_reason

    return after


@pytest.mark.parametrize("tokens", ["ids", "strings", "text"])
def test_a_greedy_token_that_is_not_the_likeliest(tokens: str, server_engine: hs.Engine, reference: hs.Engine) -> None:
    replies = Replies(tokens=tokens, after=swaps_a_token(reference))
    made = audit(server_engine, reference, replies, sampled=False, behaviour=False)
    assert made.verdict == "not lossless", made.reasons
    where = made.record()["parts"]["greedy"]["where"]
    assert {(d["position"], d["verdict"]) for d in where} == {(4, "bug")}
    assert {d["prompt"] for d in where} == {0, 1}


def test_past_the_end_of_a_text(server_engine: hs.Engine, reference: hs.Engine) -> None:
    """The rest of the block is emitted behind the end: transformers#47912."""

    def after(engine: hs.Engine, ids: list[int], out: hs.Output, sampling: hs.Sampling) -> tuple[tuple[int, ...], str]:
        if out.tokens and out.tokens[-1] in engine.eos_token_ids:
            return (*out.tokens, 17, 18), "length"
        return out.tokens, out.finish_reason

    made = audit(server_engine, reference, Replies(after=after), sampled=False)
    assert made.verdict == "not lossless"
    checks = {check["name"]: check for check in made.record()["parts"]["behaviour"]["checks"]}
    assert checks["end of text"]["status"] == "failed"
    assert "2 tokens after the end" in checks["end of text"]["detail"]


@pytest.mark.slow
def test_other_kernels_in_bf16_are_not_accused() -> None:
    """transformers' modules serve the weights, our row kernels are the reference: their logits differ by rounding."""
    reference = hs.load("bundled", "none", dtype="bfloat16", device="cpu", max_length=128)
    source = loading.resolve("bundled", "target")
    config = loading.load_config(source, trust_remote_code=False)
    weights = loading.load_weights(source, config, torch.bfloat16, torch.device("cpu"), trust_remote_code=False)
    runner = ModelRunner(weights, max_length=128, decoder="modules")
    ends, k = reference.eos_token_ids, PLAN.k
    theirs = assemble(runner, reference.tokenizer, NgramDrafter(), num_speculative_tokens=k, eos_token_ids=ends)
    other = transformers_logits("bundled", torch.bfloat16, reference.target.device)
    made = audit(theirs, reference, Replies(), other=other)
    assert made.verdict == "lossless", made.reasons
    rounding = made.record()["parts"]["greedy"]["rounding"]
    assert 0 < rounding["variation"] < 0.03
    assert 0 < rounding["margin"] < 1
    assert made.record()["parts"]["sampling"]["settings"]["tolerance"] == rounding["variation"]


# -- two servers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Callable[..., Certificate]:
    """pair(engine, replies, engine, replies, plan): one server against the other."""

    def make(a: hs.Engine, a_ways: Replies, b: hs.Engine, b_ways: Replies, plan: AuditPlan) -> Certificate:
        prompts = [[ord(char) for char in text] for text in TEXTS]
        with (
            serving(a, a_ways) as first,
            serving(b, b_ways) as second,
            EndpointSubject(first, seed=1) as one,
            EndpointSubject(second, seed=2) as other,
        ):
            return audit_against(one, other, prompts, plan)

    return make


@pytest.mark.slow
def test_two_servers_of_one_model(pair: Any, server_engine: hs.Engine, reference: hs.Engine) -> None:
    replies = Replies(tokens="text")
    plan = replace(PLAN, max_samples=400, effect=0.5, behaviour=False)
    made = pair(server_engine, replies, reference, replies, plan)
    assert made.verdict == "lossless", made.reasons


@pytest.mark.slow
def test_two_servers_of_which_one_ignores_the_temperature(
    pair: Any, server_engine: hs.Engine, reference: hs.Engine
) -> None:
    plan = replace(PLAN, effect=0.5)
    warmer = pair(
        server_engine, Replies(tokens="ids", sampling=ignores_temperature), reference, Replies(tokens="ids"),
        replace(plan, sampling=hs.Sampling(temperature=0.3), greedy=False, behaviour=False, max_samples=1200),
    )  # fmt: skip
    assert warmer.verdict == "not lossless", warmer.reasons
