"""What one request says about its drafts: none, few, of some drafters only. Its text is the same in any case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.byte_models import save_model
from support.greedy import NEW, prompts, reference
from support.timeless import CHEAP, timeless
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

import headstart as hs
from headstart.base.errors import InvalidOption, InvalidPrompt
from headstart.drafters import Drafter, Row
from headstart.drafters.cascade import Cascade
from headstart.engine.engine import Engine
from headstart.engine.prompts import encode_after
from headstart.loading.assembly import assemble
from headstart.types import Draft, Drafting

SAMPLING = hs.Sampling(max_tokens=NEW)


class Fixed(Drafter):
    """Drafts one token over and over; it may be made to apply only where a prediction is given."""

    def __init__(self, name: str, token: int, *, choosy: bool = False, copies: bool = False) -> None:
        self.name, self.token, self.choosy, self.copies = name, token, choosy, copies
        self.default_budget = 4
        self.draws = False
        self.asked: list[int] = []

    def applies(self, row: Row) -> bool:
        return not self.choosy or bool(row.drafting.prediction)

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        self.asked += [row.request for row in rows]
        return [Draft.chain([self.token] * row.budget.nodes) for row in rows]


@pytest.fixture(params=["fixed", "adaptive"])
def engine_of(request: pytest.FixtureRequest, load: Callable[..., Any]) -> Callable[..., Engine]:
    """An engine on the tiny Llama with these drafters, under both pacings."""
    target = load("llama").target

    def make(*members: Drafter) -> Engine:
        drafter = members[0] if len(members) == 1 else Cascade(members)
        pacing = timeless(drafter, 1e-7, None, CHEAP) if request.param == "adaptive" else None
        return assemble(target, drafter=drafter, pacing=pacing)

    return make


def steps_of(engine: Engine) -> list[hs.Step]:
    steps: list[hs.Step] = []
    engine.subscribe(steps.append)
    return steps


@pytest.mark.parametrize("wish", [Drafting(enabled=False), Drafting(max_draft_tokens=0), Drafting(sources=())])
def test_no_drafts_where_none_are_asked_for(wish: Drafting, load: Callable[..., Any], tiny: Callable[..., str]) -> None:
    engine = load("llama", "ngram")
    drafted, plain = engine.generate([list(prompts()[1])] * 2, SAMPLING, [Drafting(), wish])
    assert drafted.tokens == plain.tokens == reference(tiny("llama"))[1]
    assert drafted.stats.drafted > 0
    assert plain.stats.drafted == 0
    assert plain.stats.target_forwards == plain.stats.tokens
    assert (plain.stats.speculation.on, plain.stats.speculation.reason) == (False, "the request asked for no drafts")
    assert drafted.stats.speculation.on


@pytest.mark.parametrize("most", [1, 3])
def test_no_draft_is_longer_than_asked_for(most: int, engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(Fixed("a", 7))
    steps = steps_of(engine)
    engine.generate([3, 4], SAMPLING, Drafting(max_draft_tokens=most))
    assert max(len(step.draft) for step in steps) == most


@pytest.mark.parametrize("only", ["a", "b"])
def test_only_the_named_sources_are_asked(only: str, engine_of: Callable[..., Engine]) -> None:
    first, second = Fixed("a", 7, copies=True), Fixed("b", 8)
    engine = engine_of(first, second)
    steps = steps_of(engine)
    for _ in engine.stream([3, 4], SAMPLING, Drafting(sources=(only,))):
        pass
    assert {step.draft.source for step in steps if len(step.draft)} == {only}
    assert not (second if only == "a" else first).asked, "not even to see what it would have drafted"


def test_a_drafter_is_asked_where_it_applies_and_pacing_counts_on_it_only_there(
    engine_of: Callable[..., Engine],
) -> None:
    choosy, second = Fixed("choosy", 7, choosy=True, copies=True), Fixed("b", 8)
    engine = engine_of(choosy, second)
    steps = steps_of(engine)
    engine.generate([[3, 4], [5, 6]], SAMPLING, [Drafting(), Drafting(prediction=(7, 7))])
    assert set(choosy.asked) == {1}
    assert {step.draft.source for step in steps if step.request == 0 and len(step.draft)} == {"b"}
    for step in steps:
        if step.request == 0 and step.budget.max_nodes:
            assert step.budget.max_nodes["choosy"] == 0


def test_alone_it_drafts_nothing_where_it_does_not_apply(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(choosy := Fixed("choosy", 7, choosy=True))
    out = engine.generate([3, 4], SAMPLING)
    assert (out.stats.drafted, choosy.asked) == (0, [])
    assert out.stats.speculation.error is None


def test_a_drafter_whose_answer_whether_it_applies_fails_is_dropped(load: Callable[..., Any]) -> None:
    class Broken(Fixed):
        def applies(self, row: Row) -> bool:
            raise RuntimeError("no idea")

    engine = assemble(load("llama").target, drafter=Broken("broken", 7))
    out = engine.generate([3, 4], SAMPLING)
    assert len(out.tokens) == NEW
    assert "no idea" in out.stats.speculation.reason


def test_unknown_sources_and_tokens_are_refused_before_anything_runs(load: Callable[..., Any]) -> None:
    engine = load("llama", "ngram")
    with pytest.raises(InvalidOption, match="'eagle'") as caught:
        engine.submit([1], SAMPLING, Drafting(sources=("ngram", "eagle")))
    assert "'ngram'" in caught.value.hint
    with pytest.raises(InvalidOption, match="no drafter"):
        load("llama").submit([1], SAMPLING, Drafting(sources=("ngram",)))
    with pytest.raises(InvalidOption, match="prediction names token 97"):
        engine.submit([1], SAMPLING, Drafting(prediction=(5, 97)))
    with pytest.raises(InvalidOption, match="2 Draftings for 1"):
        engine.generate([[1]], SAMPLING, [Drafting(), Drafting()])
    assert not engine.scheduler.requests()


def test_a_conversation_is_a_prompt(load: Callable[..., Any], tmp_path: Path) -> None:
    engine = load(str(save_model(tmp_path, chat=True)), "ngram")
    talk = [{"role": "user", "content": "Hi"}]
    sampling = hs.Sampling(max_tokens=6)
    asked = engine.chat(talk, sampling)
    assert asked.prompt_tokens == engine.encode("u:Hi\na:") == engine.encode(talk)
    assert "".join(chunk.text for chunk in engine.stream(talk, sampling)) == asked.text
    one, many = engine.generate(talk, sampling), engine.generate([talk, "u:Hi\na:"], sampling)
    assert one.tokens == asked.tokens == many[0].tokens == many[1].tokens
    with pytest.raises(InvalidPrompt, match="the assistant's own"):
        engine.stream([*talk, {"role": "assistant", "content": "Yes"}])


def test_the_time_in_the_queue_is_counted(load: Callable[..., Any]) -> None:
    engine = load("llama", max_batch_size=1)
    first, second = engine.generate([[3, 4], [5, 6]], SAMPLING)
    assert 0 <= first.stats.queue_seconds < second.stats.queue_seconds < second.stats.seconds_to_first_token
    assert first.stats.cached_tokens == 0
    waiting, running = engine.submit([3]), engine.submit([4])
    engine.cancel(waiting)
    engine.cancel(running)
    stats = waiting.finish().stats
    assert stats.queue_seconds == stats.total_seconds, "it never had a slot"


def spaced_tokenizer() -> PreTrainedTokenizerFast:
    """Words with the space before them, which it also puts before the first; "ab" and "cd" merge to one token."""
    words = ["<s>", "▁", "a", "b", "c", "d", "ab", "cd", "abcd", "▁a", "▁ab", "▁abcd", "\n"]
    merges = [("a", "b"), ("c", "d"), ("ab", "cd"), ("▁", "a"), ("▁", "ab"), ("▁", "abcd")]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made)


def test_a_prediction_is_written_as_it_would_be_behind_the_prompt() -> None:
    tokenizer = spaced_tokenizer()

    def after(before: str, text: str) -> list[str]:
        ids = tokenizer(before)["input_ids"]
        return tokenizer.convert_ids_to_tokens(encode_after(tokenizer, ids, text))

    assert tokenizer.tokenize("ab") == ["▁ab"], "alone it gets a space, and a special token"
    assert after("a\n", "ab") == ["ab"]
    assert after("a\n", " ab") == ["▁ab"]
    assert after("ab", "cd") == ["cd"], "it cannot merge with a token that is there already"
    assert after("a" * 100, "\nab") == ["\n", "ab"]
    assert after("a", "") == []
    with pytest.raises(InvalidPrompt, match="no tokenizer"):
        encode_after(None, [1], "a")


def test_a_byte_tokenizers_prediction(load: Callable[..., Any], tmp_path: Path) -> None:
    engine = load(str(save_model(tmp_path, chat=True)), "prediction")
    wanted = engine.encode("return x")
    assert engine.encode_after("def f(", "return x") == wanted
    assert engine.encode_after([{"role": "user", "content": "Hi"}], "return x") == wanted
