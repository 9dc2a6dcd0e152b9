"""Grammars in the engine: what is certain is drafted, what fails keeps its text, what cannot be is refused at once."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.byte_models import save_model
from support.tiny import byte_tokenizer

import headstart as hs
from headstart.base.errors import GrammarFailed, InvalidGrammar, InvalidOption
from headstart.drafters import Drafter, Row
from headstart.drafters.ngram import NgramDrafter
from headstart.engine.trace.reader import read_trace
from headstart.rule.grammar import Grammar
from headstart.types import Draft, Sampling, Structure

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["anna", "annabel", "bob"]}, "list": {"type": "array", "items": {"enum": [1, 20]}}},
    "required": ["name", "list"],
    "additionalProperties": False,
}
PROMPT = "hello"


@pytest.fixture(scope="module")
def target(root: Path) -> hs.Target:
    return hs.Target(save_model(root / "structured", context=512), dtype="float32", max_length=256)


def wanted(**more: Any) -> Sampling:
    return Sampling(max_tokens=120, structure=Structure.schema(SCHEMA, whitespace="spaced"), **more)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_certain_is_drafted_and_counted_apart(temperature: float, target: hs.Target, tmp_path: Path) -> None:
    sampling = wanted(temperature=temperature, seed=4)
    plain = target.engine("none").generate(PROMPT, sampling)
    engine = target.engine(["prediction", "ngram"], num_speculative_tokens=4)
    with engine.trace(tmp_path / "trace.jsonl") as recording:
        out = engine.generate(PROMPT, sampling)
    assert recording.failure is None
    assert out.tokens == plain.tokens
    assert plain.finish_reason == "stop"
    assert plain.stats.forced == 0
    assert {"name", "list"} == set(json.loads(out.text))
    stats = out.stats
    # the end is certain too: it comes with the last token, or is in a draft, whose forward then has no bonus token
    assert stats.target_forwards + stats.forced + stats.accepted - stats.tokens in (-1, 1)
    assert stats.forced > stats.tokens / 2
    (traced,) = read_trace(tmp_path / "trace.jsonl").requests
    assert [token for step in traced.steps for token in step.emitted] == list(out.tokens)
    known = engine.generate(PROMPT, sampling, hs.Drafting(prediction=plain.tokens))
    assert known.tokens == plain.tokens
    assert known.stats.target_forwards < out.stats.target_forwards, "guesses go on between what is certain"
    assert engine.generate(PROMPT, sampling, hs.Drafting(enabled=False)).stats.forced == 0


@pytest.fixture(scope="module")
def ends_in_two_ways(target: hs.Target, root: Path) -> hs.Target:
    """The same model with a second token that ends a text, which is not the tokenizer's own."""
    path = save_model(root / "two-ends", context=512)
    for name in ("config.json", "generation_config.json"):
        config = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps({**config, "eos_token_id": [257, 256]}))
    made = hs.Target(path, dtype="float32", max_length=256)
    assert made.eos_token_ids == {256, 257}
    return made


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", ["none", "ngram"])
@pytest.mark.parametrize("ends", [1, 2])
def test_no_forward_is_run_for_an_end_that_is_certain(
    ends: int, drafter: str, temperature: float, target: hs.Target, ends_in_two_ways: hs.Target
) -> None:
    """Log-probabilities want that forward, so they show what comes with it. With two tokens that end a text the
    tokenizer's own comes."""
    target = ends_in_two_ways if ends == 2 else target
    engine = target.engine(drafter, pacing="fixed", num_speculative_tokens=1)
    ran = []
    engine.subscribe(lambda step: ran.append(step.rows))
    plain = hs.Drafting(enabled=False)
    for sampling in (wanted(temperature=temperature, seed=4), Sampling(structure=Structure("regex", "(foo|bar){3}!"))):
        whole = engine.generate(PROMPT, replace(sampling, logprobs=0), plain)
        assert len(ran) == len(whole.tokens)
        assert whole.tokens[-1] == 256
        ran.clear()
        out = engine.generate(PROMPT, sampling, plain)
        assert (out.tokens, out.text, out.finish_reason) == (whole.tokens, whole.text, "stop")
        assert len(ran) == len(out.tokens) - 1 == out.stats.target_forwards
        ran.clear()
        drafted = engine.generate(PROMPT, sampling)
        assert (drafted.tokens, drafted.finish_reason) == (whole.tokens, "stop")
        ran.clear()
        cut = engine.generate(PROMPT, replace(sampling, max_tokens=len(whole.tokens) - 1))
        assert (cut.tokens, cut.finish_reason) == (whole.tokens[:-1], "length"), "there was no room for the end"
        ran.clear()


def test_a_batch_of_different_structures_is_each_alone(target: hs.Target) -> None:
    samplings = [
        wanted(), Sampling(max_tokens=30), Sampling(max_tokens=30, structure=Structure("regex", "(foo|bar){3}!")),
        Sampling(max_tokens=30, structure=Structure.choice(['say "yes"', "no\n"])), wanted(temperature=1.0, seed=1),
    ]  # fmt: skip
    engine = target.engine("ngram", max_batch_size=3)
    together = engine.generate([PROMPT] * len(samplings), samplings)
    assert [out.tokens for out in together] == [engine.generate(PROMPT, each).tokens for each in samplings]
    assert together[3].text in ('say "yes"', "no\n")


class Guessing(Drafter):
    """Guesses the whole text of another request."""

    name = "guessing"
    default_budget = 60
    draws = False

    def __init__(self, text: tuple[int, ...]) -> None:
        self.text = text

    def propose(self, rows: Any) -> list[Draft]:
        return [Draft.chain(self.text[len(row.tokens) - row.prompt_tokens :][: row.budget.nodes]) for row in rows]


@pytest.mark.parametrize("rule", ["exact", "coupled"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_a_grammar_cannot_go_on_the_text_up_to_there_is_kept(
    temperature: float, rule: Any, target: hs.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = wanted(temperature=temperature, seed=4)
    whole = target.engine("none", rule=rule).generate(PROMPT, sampling).tokens
    place = len(whole) // 2
    failure = GrammarFailed("a limit", hint="none")
    found = Grammar._found

    def failing(self: Grammar) -> Any:
        length = 0
        path = self._path
        while path is not None:
            path, length = path[0], length + 1
        if length < place:
            return found(self)
        self._failure = failure
        return None

    monkeypatch.setattr(Grammar, "_found", failing)
    for drafter in ("none", Guessing(whole), "ngram"):
        out = target.engine(drafter, rule=rule, pacing="fixed").generate(PROMPT, sampling)
        assert (out.finish_reason, out.error) == ("error", failure)
        assert out.tokens == whole[:place]


class Careless(Drafter):
    """Draws from a distribution that knows no grammar."""

    name = "careless"
    default_budget = 3

    def propose(self, rows: Any) -> list[Draft]:
        return [self._one(row) for row in rows]

    def _one(self, row: Row) -> Draft:
        import torch

        q = torch.full((row.budget.nodes, 258), 1 / 258)
        return Draft.chain([row.draw(q[i].numpy(), i) for i in range(row.budget.nodes)], q)


class Reading(Drafter):
    """Draws one of two letters behind what is certain to come."""

    name = "reading"
    default_budget = 1

    def __init__(self, *, reads_unsettled: bool) -> None:
        self.reads_unsettled = reads_unsettled
        self.shown: list[tuple[int, ...]] = []

    def propose(self, rows: Any) -> list[Draft]:
        import torch

        q = torch.zeros(1, 258)
        q[0, LETTERS] = 0.5
        self.shown += [row.tokens[row.prompt_tokens :] for row in rows]
        return [Draft.chain([row.draw(q[0].numpy(), 0)], q) for row in rows]


LETTERS = [byte_tokenizer().convert_tokens_to_ids(letter) for letter in "ab"]


def test_a_drafter_that_reads_what_is_certain_guesses_behind_it(target: hs.Target) -> None:
    sampling = Sampling(max_tokens=120, seed=3, structure=Structure("regex", "([ab]-[+]-){20}"))
    drafters = [Reading(reads_unsettled=reads) for reads in (False, True)]
    outs = [target.engine(drafter, pacing="fixed").generate(PROMPT, sampling) for drafter in drafters]
    for out, drafter in zip(outs, drafters, strict=True):
        assert re.fullmatch("([ab]-[+]-){20}", out.text)
        assert out.stats.speculation.error is None
        assert all(out.tokens[: len(shown)] == shown for shown in drafter.shown), "what was certain has come"
    without, behind = outs
    assert 0 < behind.stats.accepted < behind.stats.drafted
    assert behind.stats.target_forwards < without.stats.target_forwards


def test_in_a_list_too_a_drafter_guesses_behind_what_is_certain(target: hs.Target) -> None:
    """The n-gram before it has nothing to say about letters that come as they like."""
    sampling = Sampling(max_tokens=120, seed=3, structure=Structure("regex", "([ab]-[+]-){20}"))
    outs = {}
    for reads in (False, True):
        reading = Reading(reads_unsettled=reads)
        drafters = [NgramDrafter(longest=9, shortest=8), reading]
        outs[reads] = out = target.engine(drafters, pacing="fixed").generate(PROMPT, sampling)
        assert re.fullmatch("([ab]-[+]-){20}", out.text)
        assert out.stats.speculation.error is None
        assert all(out.tokens[: len(shown)] == shown for shown in reading.shown), "what was certain has come"
        assert reading.shown
    assert outs[True].stats.target_forwards < outs[False].stats.target_forwards


def test_drawn_drafts_that_know_no_grammar_are_refused_and_hurt_nothing(target: hs.Target) -> None:
    out = target.engine(Careless(), rule="exact", pacing="fixed").generate(PROMPT, wanted(temperature=1.0, seed=2))
    assert out.stats.speculation.error is None
    assert set(json.loads(out.text)) == {"name", "list"}


def test_what_cannot_be_is_refused_before_anything_is_generated(
    target: hs.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = target.engine("none")
    with pytest.raises(InvalidGrammar):
        engine.generate([PROMPT, PROMPT], [Sampling(), Sampling(structure=Structure("regex", "(("))])
    with pytest.raises(InvalidGrammar):
        engine.prepare(Structure.schema({"$ref": "#"}))
    assert not engine.waiting
    monkeypatch.setitem(sys.modules, "llguidance", None)
    monkeypatch.setitem(sys.modules, "llguidance.hf", None)
    with pytest.raises(InvalidOption, match=r"\[agents\]"):
        target.engine("none").prepare(Structure("json"))
