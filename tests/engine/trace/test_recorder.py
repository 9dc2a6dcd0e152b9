"""What a trace says is what happened: distributions by transformers, uniform draws by the noise, verdicts by the
engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from support.matrix_cells import ENTRIES, PROMPTS, RULES, Entry, Workshop
from support.matrix_distributions import VOCAB
from support.matrix_distributions import distributions as distributions

import headstart as hs
from headstart.engine.trace.format import StepLine, schema
from headstart.engine.trace.reader import Trace, TracedRequest
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import traverse, walk
from headstart.types import Draft, Output, Rule, Sampling

TEMPERATURES = (0.0, 0.9)
PLACES = 2e-4
"""Probabilities have five digits, and float32 logits of two programs differ a little."""


@pytest.fixture(scope="module")
def shop(root: Path) -> Workshop:
    return Workshop(root / "traced")


def recorded(shop: Workshop, entry: Entry, rule: Rule) -> tuple[Trace, list[dict[str, Any]], list[Output]]:
    """A ragged batch of greedy and sampled requests, traced with whole distributions."""
    engine = shop.engine(entry, rule, 4)
    asked = [(prompt, temperature) for prompt in PROMPTS for temperature in TEMPERATURES]
    samplings = [
        Sampling(max_tokens=8, temperature=t, seed=n, ignore_eos=True, repetition_penalty=1.1)
        for n, (_, t) in enumerate(asked)
    ]
    with engine.trace(top=VOCAB) as recording:
        outputs = engine.generate(
            [prompt for prompt, _ in asked], samplings, [entry.drafting(prompt) for prompt, _ in asked]
        )
    return recording.read(), recording.lines, outputs


def dense(entries: Any) -> np.ndarray:
    """The distribution that these entries, which are all that are not zero, describe."""
    distribution = np.zeros(VOCAB)
    for token, probability in entries:
        distribution[token] = probability
    return distribution


def before(request: TracedRequest, step: StepLine) -> tuple[int, ...]:
    """The output's tokens before a step."""
    return request.emitted[: step.position - len(request.line.prompt_tokens)]


def judged(trace: Trace) -> Iterator[tuple[TracedRequest, StepLine]]:
    for request in trace.requests:
        yield from ((request, step) for step in request.steps if step.judged)


def draft_of(step: StepLine) -> Draft:
    return Draft(tuple(step.tokens), tuple(step.parents))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_drafter_under_every_rule(shop: Workshop, entry: Entry, rule: Rule) -> None:
    trace, lines, outputs = recorded(shop, entry, rule)
    assert trace.warnings == (), "every request ended, and every verdict could be repeated"
    validator = jsonschema_rs.validator_for(schema())
    for line in lines:
        validator.validate(json.loads(json.dumps(line)))
    assert len(trace.requests) == len(outputs)
    for request, output in zip(trace.requests, outputs, strict=True):
        assert request.emitted == output.tokens == tuple(request.end.tokens if request.end else ())
        assert request.line.prompt_tokens == list(output.prompt_tokens)
        assert int(request.line.seed) == output.seed
        assert request.end is not None
        assert request.end.text == output.text
        assert request.end.stats["target_forwards"] == output.stats.target_forwards
        assert sum(len(step.tokens) for step in request.steps) == output.stats.drafted
        assert sum(step.accepted for step in request.steps) == output.stats.accepted
    _distributions_are_transformers(shop, trace)
    _rule_can_be_run_by_a_reader(trace)
    drafted = [step for _, step in judged(trace) if step.tokens]
    assert bool(drafted) == (entry.make is not None), "a drafter that drafts nothing shows nothing"
    assert 4 in {step.batch for _, step in judged(trace)}, "several in a forward"


def _distributions_are_transformers(shop: Workshop, trace: Trace) -> None:
    """p after x0 and after every node, by a forward of transformers over the text and the nodes above."""
    for request, step in judged(trace):
        draft = draft_of(step)
        sampling = Sampling(temperature=request.line.sampling["temperature"], repetition_penalty=1.1)
        heads = [
            (*before(request, step), *(step.tokens[i] for i in draft.path(node))) for node in range(-1, len(draft))
        ]
        found = distributions(shop.path, tuple(request.line.prompt_tokens), sampling, [(*head, 0) for head in heads])
        assert len(step.distributions) == len(heads)
        for head, distribution in zip(heads, step.distributions, strict=True):
            expected = found.p[(*head, 0)][-1]
            raw = np.exp(found.raw[(*head, 0)][-1])
            if request.greedy:
                assert [distribution.p[0][0]] == [int(token) for token in expected.argsort()[-1:]]
                assert distribution.p == [(distribution.p[0][0], 1.0)]
                assert (distribution.rest, distribution.entropy) == (0, 0)
                assert dense(distribution.model) == pytest.approx(raw / raw.sum(), abs=PLACES)
                continue
            assert distribution.model is None
            assert dense(distribution.p) == pytest.approx(expected, abs=PLACES)
            assert distribution.rest == pytest.approx(0, abs=1e-6)
            assert distribution.entropy == pytest.approx(-(expected * np.log(expected)).sum(), abs=PLACES * 10)


def _rule_can_be_run_by_a_reader(trace: Trace) -> None:
    """From what stands in the trace, and the seed, the verdict follows: uniform draws, weights, states, the last
    token."""
    for request, step in judged(trace):
        draft, noise = draft_of(step), Noise(int(request.line.seed))
        p = [dense(distribution.p) for distribution in step.distributions]
        is_drawn = any(node.q is not None for node in step.nodes)
        coupled = request.line.rule == "coupled"
        kind = "plain" if not step.tokens else "traverse" if is_drawn and not coupled else "walk"
        assert step.procedure == kind
        for node, line in enumerate(step.nodes):
            assert line.p == pytest.approx(p[step.parents[node] + 1][step.tokens[node]], abs=1e-9)
            if not is_drawn:
                assert (line.q, line.uniform, line.weight, line.residual) == (None, None, None, None)
                continue
            assert line.q_top is not None
            q = dense(line.q_top)
            assert line.q == q[step.tokens[node]] > 0
            assert q.sum() == pytest.approx(1, abs=1e-4)
            left = np.maximum(p[step.parents[node] + 1] - q, 0)
            assert dense(line.residual) == pytest.approx(left / left.sum() if left.sum() > 1e-4 else left, abs=2e-3)
            position = step.position + draft.depths[node] - 1
            assert line.uniform == noise.uniform(position, Purpose.ACCEPT, lane=step.position, index=node)
        assert step.end is not None
        if kind == "traverse":
            _traversal(step, draft, p)
        else:
            _walk(step, draft, p, noise)
        _states(step, draft)


def _traversal(step: StepLine, draft: Draft, p: list[np.ndarray]) -> None:
    q = [dense(node.q_top) for node in step.nodes]
    asked: dict[int, float] = {}
    last: list[np.ndarray] = []

    def uniform(weight: Any, node: int) -> bool:
        asked[node] = weight
        written = step.nodes[node]
        assert written.weight is not None, "the rule looks at no other uniform draws"
        assert written.uniform is not None
        return written.uniform < written.weight

    verdict = traverse(draft, p, q, uniform, lambda distribution, _: last.append(distribution) or step.end.token)  # type: ignore
    assert list(verdict.path) == step.path
    for node, weight in asked.items():
        assert step.nodes[node].weight == pytest.approx(weight, abs=1e-2), "up to the digits of p and q"
    for node, line in enumerate(step.nodes):
        if line.weight is not None and node not in asked:
            assert line.weight == pytest.approx(0, abs=1e-3)
    assert dense(step.end.distribution) == pytest.approx(last[0], abs=1e-2)
    assert not step.drawn


def _walk(step: StepLine, draft: Draft, p: list[np.ndarray], noise: Noise) -> None:
    verdict = walk(draft, p, lambda distribution, depth: noise.draw(distribution, step.position + depth, Purpose.TOKEN))
    assert list(verdict.path) == step.path
    assert step.end is not None
    assert verdict.bonus == step.end.token
    stood = [-1, *step.path]
    tokens = [*(step.tokens[node] for node in step.path), step.end.token]
    assert step.drawn == (list(zip(stood, tokens, strict=True)) if step.tokens else [])
    assert dense(step.end.distribution) == pytest.approx(p[stood[-1] + 1])
    for node, line in enumerate(step.nodes):
        assert line.weight is None
        assert line.drawn == dict(step.drawn).get(step.parents[node])


def _states(step: StepLine, draft: Draft) -> None:
    for node, line in enumerate(step.nodes):
        parent = step.parents[node]
        if node in step.path:
            assert line.state == "accepted"
        elif parent >= 0 and step.nodes[parent].state != "accepted":
            assert line.state == "beyond"
        elif step.procedure == "walk":
            assert line.state == "refused"
    if step.end is not None and step.tokens:
        last = step.path[-1] if step.path else -1
        assert step.end.kind == ("correction" if draft.children[last + 1] else "bonus")


def test_q_is_the_draft_models_own_distribution(shop: Workshop) -> None:
    """Of a drawn chain, by a forward of transformers over the draft model."""
    entry = next(each for each in ENTRIES if each.name == "draft LM, chain")
    trace, _, _ = recorded(shop, entry, "exact")
    seen = 0
    for request, step in judged(trace):
        if request.greedy or not step.tokens:
            continue
        sampling = Sampling(temperature=request.line.sampling["temperature"], repetition_penalty=1.1)
        prompt = tuple(request.line.prompt_tokens)
        for node, line in enumerate(step.nodes):
            text = (*before(request, step), *step.tokens[:node], 0)
            expected = distributions(shop.checkpoint(near=True), prompt, sampling, [text]).p[text][-1]
            assert dense(line.q_top) == pytest.approx(expected, abs=PLACES)
            seen += 1
    assert seen > 40


def test_kinds_of_drafters_are_named(shop: Workshop) -> None:
    """In the header, so that a reader knows who copies and who draws."""
    for entry in ENTRIES:
        header = recorded_header(shop, entry)
        expected = {"list, best of": ["ngram", "draft"], "Medusa": ["medusa"], "none": []}.get(entry.name)
        if expected is not None:
            assert [each["kind"] for each in header["drafters"]] == expected
        assert "other" not in [each["kind"] for each in header["drafters"]]


def recorded_header(shop: Workshop, entry: Entry) -> dict[str, Any]:
    with shop.engine(entry, "exact", 1).trace() as recording:
        pass
    return recording.lines[0]


@pytest.mark.parametrize("rule", RULES)
def test_a_trace_changes_no_text(shop: Workshop, rule: Rule) -> None:
    entry = next(each for each in ENTRIES if each.name == "draft LM, tree sampled")
    sampling = Sampling(max_tokens=12, temperature=1.0, seed=5, ignore_eos=True)
    plain = shop.engine(entry, rule, 1).generate(PROMPTS[3], sampling)
    engine = shop.engine(entry, rule, 1)
    with engine.trace():
        traced = engine.generate(PROMPTS[3], sampling)
    assert traced.tokens == plain.tokens


def test_texts_of_all_tokens_are_told_once(shop: Workshop) -> None:
    entry = next(each for each in ENTRIES if each.name == "draft LM, chain")
    engine = shop.engine(entry, "exact", 1)
    with engine.trace() as recording:
        engine.generate([PROMPTS[0], PROMPTS[1]], hs.Sampling(max_tokens=6, temperature=1.0, seed=1))
    for request in recording.requests:
        named = [
            token
            for line in recording.lines
            if line.get("request") == request.number
            for token in line.get("texts", {})
        ]
        assert len(named) == len(set(named)), "no text twice"
        tokens = {*request.line.prompt_tokens, *request.emitted}
        tokens |= {
            token for step in request.steps for distribution in step.distributions for token, _ in distribution.p
        }
        assert {token: request.text(token) for token in tokens} == {token: "abcdefgh"[token] for token in tokens}
