"""The pure translations, without a server: defaults, seeds, prompts, pieces, counts, errors, names."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import set_clock
from support.tiny import byte_tokenizer

from headstart.base.errors import (
    ContextExceeded,
    EngineFailed,
    HeadstartError,
    InvalidOption,
    ModelNotFound,
    NonFiniteLogits,
    NotEnoughMemory,
    Overloaded,
    ServerStopping,
)
from headstart.model.tokens.spelling import Spelling
from headstart.serve.api import stream as stream_module
from headstart.serve.api.answering.figures import Counts
from headstart.serve.api.answering.forms import LEAST, chat_logprobs, completion_logprobs
from headstart.serve.api.answering.pieces import Gathering, Piece, piece_of, token_by_token
from headstart.serve.api.errors import Refused, failure_of
from headstart.serve.api.reading.work import Caller, Model, completion_work, seed_of
from headstart.serve.api.schemas.parts import Defaults
from headstart.serve.api.schemas.requests import ChatRequest, CompletionRequest
from headstart.serve.api.schemas.strict import read
from headstart.serve.api.stream import LONGEST, Pace
from headstart.serve.bridge import TracedChunk
from headstart.serve.names import public_name, public_words, sources_of
from headstart.types import Chunk, Draft, Seconds, Speculation, Step, TokenLogprob


def completion(**fields: Any) -> CompletionRequest:
    return read(CompletionRequest, json.dumps({"prompt": "a", **fields}).encode())[0]


def step(*, draft: tuple[int, ...] = (), path: tuple[int, ...] = (), tokens: tuple[int, ...] = (), source: str) -> Step:
    return Step(
        request=0,
        index=0,
        position=5,
        draft=Draft(draft, tuple(range(-1, len(draft) - 1)), source=source),
        path=path,
        tokens=tokens,
        logprobs=tuple(TokenLogprob(token, -1.0, {}) for token in tokens),
        rows=1,
        batch=1,
        seconds=Seconds(),
        finish_reason=None,
        speculation=Speculation(True, source),
    )


def test_a_request_says_for_whom_it_is_and_whether_it_may_be_stored() -> None:
    fields: dict[str, Any] = {"safety_identifier": "ann", "store": False}
    for recorded in (False, True):
        model = Model(None, lambda _: (5,), 64, 9, Defaults(), sources={}, recorded=recorded)
        work = completion_work(completion(**fields), ["metadata"], model, Caller())
        assert [(job.user, job.store) for job in work.jobs] == [("ann", False)]
        warned = ["metadata"] if recorded else ["metadata", "safety_identifier", "store"]
        assert [words.split()[0] for words in work.warnings] == warned
        both = completion_work(completion(user="bob", **fields), (), model, Caller())
        assert both.jobs[0].user == "bob"
        plain = completion_work(completion(), (), model, Caller())
        assert (plain.jobs[0].user, plain.jobs[0].store, plain.warnings) == ("", None, ())


def test_of_a_prediction_only_what_the_context_holds_is_tokenized_and_once() -> None:
    seen: list[int] = []

    class Noting:
        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            seen.append(len(text))
            return {"input_ids": [1] * len(text)}

        def decode(self, ids: list[int], **_: Any) -> str:
            return "a" * len(ids)

    model = Model(Noting(), lambda _: (5,), 64, 9, Defaults(), sources={})
    asked = completion(prompt=["a"] * 200, prediction="word " * 1_000_000)
    work = completion_work(asked, (), model, Caller())
    assert len(work.jobs) == 200
    assert sum(seen) < 5000
    assert {len(job.drafting.prediction) for job in work.jobs} == {64 * 8}


def test_defaults_of_a_generation_config() -> None:
    config = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": False, "eos_token_id": 2, "min_p": None}
    defaults = Defaults.of(config)
    assert defaults == Defaults(temperature=0.6, top_k=20, top_p=0.95)
    used = completion().sampling(defaults, room=100, salt="s")
    assert (used.temperature, used.top_k, used.top_p, used.cache_salt, used.max_tokens) == (0.6, 20, 0.95, "s", 16)
    asked = completion(temperature=0, top_k=-1, top_p=1).sampling(defaults, room=100, salt="")
    assert (asked.temperature, asked.top_k, asked.top_p) == (0, 0, 1)


def test_a_chat_may_fill_the_context() -> None:
    messages = [{"role": "user", "content": "a"}]
    for fields, most in (({}, 90), ({"max_tokens": 7}, 7), ({"max_tokens": 7, "max_completion_tokens": 3}, 3)):
        request, _ = read(ChatRequest, json.dumps({"messages": messages, **fields}).encode())
        assert request.sampling(Defaults(), room=90, salt="").max_tokens == most


@given(st.integers(0, 2**63 - 1), st.integers(0, 127))
def test_seeds_of_choices(seed: int, choice: int) -> None:
    found = seed_of(seed, choice)
    assert 0 <= found < 2**63
    assert (found == seed) == (choice == 0)
    assert found == seed_of(seed, choice)


def test_what_is_asked_of_drafts() -> None:
    known = {"draft": "/models/draft", "ngram": "ngram"}
    request = completion(speculation={"sources": ["draft"], "max_draft_tokens": 3}, **{"speculative.n_max": 9})
    drafting = request.drafting((1, 2), known)
    assert drafting.sources == ("/models/draft",)
    assert drafting.max_draft_tokens == 3, "our own name wins"
    assert drafting.prediction == (1, 2)
    assert completion(**{"speculative.n_max": 9}).drafting((), known).max_draft_tokens == 9
    assert not completion(speculation={"enabled": False}).drafting((), known).enabled
    with pytest.raises(Refused, match="nothing here drafts"):
        completion(speculation={"sources": ["/models/draft"]}).drafting((), known)
    assert completion(prediction="x").shown.predicted
    assert completion(prediction="x").predicted_text == "x"
    parts = [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]
    assert completion(prediction={"type": "content", "content": parts}).predicted_text == "x\ny"


def test_names_without_paths() -> None:
    joined = "ngram + /home/me/models/draft + HuggingFaceTB/SmolLM2 + bundled draft"
    assert public_name(joined) == "ngram + draft + HuggingFaceTB/SmolLM2 + bundled draft"
    assert sources_of(joined)["draft"] == "/home/me/models/draft"
    assert public_words("K=2: /home/me/models/draft 2", joined) == "K=2: draft 2"
    assert public_name("../a/b") == "b"


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 4)), max_size=12), st.integers(1, 9), st.booleans())
def test_pieces_say_the_same_however_they_are_cut(flushes: list[tuple[str, int]], interval: int, smooth: bool) -> None:
    chunks = [
        TracedChunk(text, tokens, step(tokens=tokens, source="x"), ({"type": "request", "request": number},))
        for number, (text, tokens) in enumerate((text, tuple(range(count))) for text, count in flushes)
    ]
    gathering, sent = Gathering(interval), []
    for chunk in chunks:
        piece = piece_of([chunk])
        sent += gathering.add(token_by_token(piece) if smooth else [piece])
    sent += gathering.rest()
    whole = piece_of(chunks)
    joined = sum(sent, Piece())
    assert joined == whole
    assert len(whole.lines) == len(chunks)
    assert all(len(piece.tokens) >= interval for piece in sent[:-1])


def test_counts_of_a_prediction() -> None:
    counts = Counts()
    for draft, path, tokens, source in (
        ((1, 2, 3), (0, 1, 2), (1, 2, 3, 9), "prediction"),
        ((1, 2, 3), (0,), (1, 9), "prediction"),
        ((1, 2, 3), (), (9,), "prediction"),
        ((1, 2, 3), (0,), (1, 9), "ngram"),
        ((), (), (9,), "none"),
        ((), (), (), "none"),
    ):
        counts.add([Chunk("", tokens, step(draft=draft, path=path, tokens=tokens, source=source))])
    assert counts.predicted_accepted == 4
    assert counts.predicted_rejected == 2, "each place once; what stands behind it was not judged"
    assert counts.accepted == [3, 1, 0, 1]
    assert counts.histogram == [1, 2, 0, 1]
    assert counts.tokens == 10
    assert Counts().histogram == []


def test_logprobs_that_json_can_hold() -> None:
    spelling = Spelling(byte_tokenizer())
    entries = [TokenLogprob(256, -math.inf, {256: -math.inf, 65: -0.5}), TokenLogprob(0, -1.0, {})]
    chat = chat_logprobs(entries, spelling, numbered=False)
    assert chat["content"][0]["logprob"] == LEAST
    assert [each["logprob"] for each in chat["content"][0]["top_logprobs"]] == [-0.5, LEAST], "the likeliest first"
    assert chat["content"][0]["token"] == "<eos>", "special tokens have their names"
    whole = completion_logprobs(entries, spelling, numbered=True, offset=3)
    assert whole["tokens"] == ["token_id:256", "token_id:0"]
    json.dumps([chat, whole], allow_nan=False)


ERRORS: list[tuple[BaseException, int, bool]] = [
    (InvalidOption("temperature=-1 is out of range", hint="h"), 400, False),
    (ContextExceeded("too long", hint="h"), 400, False),
    (Overloaded("many wait", hint="h", retry_after=500.0), 429, True),
    (ServerStopping("it ends", hint="h"), 503, True),
    (EngineFailed("it failed", hint="h"), 503, True),
    (NonFiniteLogits("NaN", hint="h"), 500, False),
    (ModelNotFound("/secret/path", hint="h"), 500, False),
    (NotEnoughMemory("/secret/path", hint="h"), 500, False),
    (HeadstartError("/secret/path", hint="h"), 500, False),
    (ValueError("/secret/path"), 500, False),
    (Refused("no", hint="", status=418), 418, False),
]


@pytest.mark.parametrize(("error", "status", "again"), ERRORS, ids=lambda each: type(each).__name__)
def test_errors_as_http(error: BaseException, status: int, again: bool) -> None:
    failure = failure_of(error)
    assert failure.status == status
    assert failure.headers["x-should-retry"] == ("true" if again else "false")
    assert ("retry-after" in failure.headers) == again
    if again:
        assert 1 <= int(failure.headers["retry-after"]) <= 120
    assert "secret" not in json.dumps(failure.body)
    assert set(failure.body["error"]) == {"message", "type", "param", "code"}


def test_the_field_of_an_error_is_named() -> None:
    assert failure_of(InvalidOption("temperature=-1 is out of range", hint="h")).param == "temperature"
    assert failure_of(InvalidOption("that cannot be", hint="h")).param is None


def test_a_smooth_stream_never_falls_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    set_clock(monkeypatch, lambda: now, stream_module)
    pace = Pace()
    assert pace.burst(4) == 0.0, "nothing is known yet"
    for _ in range(20):
        now += 0.1
        wait = pace.burst(4)
        assert 4 * wait < 0.1, "what is shown is shown before more comes"
    assert wait > 0.01
    now += 60
    assert pace.burst(4) <= LONGEST
    assert pace.burst(1) == 0.0
