"""The endpoint subject: every way in which servers tokens tokens, and a typed error for everything that goes wrong."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.byte_models import save_model
from support.serving import MODEL, Replies, serving

import headstart as hs
from headstart.base.errors import EndpointFailed, IncompatibleTokenizer, InvalidOption, InvalidPrompt
from headstart.fleet.audit.client import completions_url
from headstart.fleet.audit.endpoint import EndpointSubject
from headstart.fleet.audit.spelling import Spelling, merged
from headstart.measure.audit.engines import EngineReference
from headstart.measure.audit.subject import Ask

Make = Callable[..., EndpointSubject]
GREEDY = hs.Sampling(max_tokens=12)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> hs.Engine:
    """Random bytes: half characters, and an end of text now and then."""
    return hs.load(save_model(tmp_path_factory.mktemp("bytes")), "ngram", dtype="float32", pacing="fixed")


@pytest.fixture(scope="module")
def writer() -> hs.Engine:
    return hs.load("bundled", "ngram", dtype="float32", max_length=256, pacing="fixed")


@pytest.fixture
def subject() -> Iterator[Callable[..., EndpointSubject]]:
    """subject(url, engine, ...): a server seen with that engine's tokenizer; closed afterwards."""
    made: list[EndpointSubject] = []

    def make(url: str, engine: hs.Engine, **options: Any) -> EndpointSubject:
        options = {"model": MODEL, "timeout": 20.0} | options
        vocab_size, ends = engine.target.vocab_size, engine.eos_token_ids
        made.append(EndpointSubject(url, tokenizer=engine.tokenizer, vocab_size=vocab_size, ends=ends, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("replies", "source"),
    [
        (Replies(), "ids"),
        (Replies(tokens="numbered"), "ids in the log-probabilities"),
        (Replies(tokens="content"), "ids in the log-probabilities"),
        (Replies(tokens="strings"), "token strings"),
        (Replies(tokens="strings", extras_accepted=False), "token strings"),
        (Replies(ids_accepted=False), "ids"),
        (Replies(tokens="strings", ids_accepted=False, least_top_k=0), "token strings"),
        (Replies(tokens="strings", ids_accepted=False, most_logprobs=1), "token strings"),
    ],
    ids=["vLLM", "token_id:", "llama.cpp", "strings", "OpenAI only", "text prompts", "llama-cpp-python", "OpenVINO"],
)
def test_tokens_come_in_many_ways(writer: hs.Engine, replies: Replies, source: str, subject: Make) -> None:
    prompt = writer.tokenizer("class Stack:\n    def push")["input_ids"]
    expected = writer.generate(prompt, GREEDY)
    with serving(writer, replies) as url:
        server = subject(url, writer)
        (found,) = server.sample([Ask(tuple(prompt), hs.Sampling(max_tokens=12, logprobs=1))])
        assert (found.tokens, found.text, found.finish_reason) == (expected.tokens, expected.text, "length")
        assert server.describe()["tokens_from"] == source
        assert bool(server.notes) is not replies.extras_accepted
        assert found.logprobs is not None
        assert [entry.token for entry in found.logprobs] == list(expected.tokens)


def test_text_alone_is_said_to_be_text_alone(writer: hs.Engine, subject: Make) -> None:
    prompt = writer.tokenizer("class Stack:")["input_ids"]
    with serving(writer, Replies(tokens="text")) as url:
        server = subject(url, writer)
        (found,) = server.sample([Ask(tuple(prompt), GREEDY)])
    assert not server.gives_tokens
    assert found.tokens == ()
    assert found.text == writer.generate(prompt, GREEDY).text
    assert any("only text" in note for note in server.notes)
    assert any("no log-probabilities" in note for note in server.notes)


def test_ids_without_logprobs_go_on_and_say_so(writer: hs.Engine, subject: Make) -> None:
    prompt = writer.tokenizer("class Stack:")["input_ids"]
    with serving(writer, Replies(logprobs=False)) as url:
        server = subject(url, writer)
        (found,) = server.sample([Ask(tuple(prompt), hs.Sampling(max_tokens=12, logprobs=1))])
    assert found.tokens == writer.generate(prompt, GREEDY).tokens
    assert found.logprobs is None
    assert any("no log-probabilities" in note for note in server.notes)


def test_what_is_asked_is_what_was_meant(writer: hs.Engine, subject: Make) -> None:
    replies = Replies()
    prompt = writer.tokenizer("class Stack:")["input_ids"]
    sampling = hs.Sampling(
        max_tokens=7, temperature=0.7, top_p=0.9, top_k=40, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.2,
        frequency_penalty=0.3, stop=["\n\n"], stop_token_ids=[5], ignore_eos=True, min_tokens=2, logit_bias={3: 1.5},
    )  # fmt: skip
    with serving(writer, replies) as url:
        subject(url, writer).sample([Ask(tuple(prompt), sampling)] * 3)
    sent = replies.requests[-3:]
    for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
                 "frequency_penalty", "stop_token_ids", "ignore_eos", "min_tokens"):  # fmt: skip
        value = getattr(sampling, name)
        assert [body[name] for body in sent] == [list(value) if isinstance(value, tuple) else value] * 3
    assert sent[0]["logit_bias"] == {"3": 1.5}
    assert sent[0]["stop"] == ["\n\n"]
    assert sent[0]["prompt"] == prompt
    assert len({body["seed"] for body in sent}) == 3, "every completion has a seed of its own"


def test_strings_that_could_be_several_tokens_are_merged_exactly(engine: hs.Engine, subject: Make) -> None:
    """Bytes above 127 all read as a replacement character: a text is cut there, and the distribution adds them up."""
    prompt = engine.tokenizer("ab")["input_ids"]
    warm = hs.Sampling(max_tokens=6, temperature=1.0)
    with serving(engine, Replies(tokens="strings")) as url:
        server = subject(url, engine)
        found = server.sample([Ask(tuple(prompt), warm)] * 60)
        reference = server.tokens.merge(EngineReference.of(engine))
    assert any("were cut" in note for note in server.notes)
    exact = EngineReference.of(engine)
    counts = np.zeros(engine.target.vocab_size)
    for completion in found:
        distributions = reference.distributions(prompt, completion.tokens, warm)
        assert distributions.sum(-1) == pytest.approx(1, abs=1e-5)
        for row, token in zip(distributions, completion.tokens, strict=False):
            assert row[token] > 0
        counts[completion.tokens[0]] += 1
    distribution = reference.distributions(prompt, (), warm)[0]
    assert distribution.max() > 0.3 > exact.distributions(prompt, (), warm)[0].max(), (
        "the merged class is likely, its members are not"
    )
    assert abs(counts[distribution.argmax()] / 60 - distribution.max()) < 0.3


def test_spellings(writer: hs.Engine) -> None:
    tokenizer = writer.tokenizer
    spelling = Spelling(tokenizer, writer.target.vocab_size, writer.eos_token_ids)
    ids = tokenizer(" return self.items")["input_ids"]
    for strings in (tokenizer.convert_ids_to_tokens(ids), [tokenizer.decode([i]) for i in ids]):
        fresh = Spelling(tokenizer, writer.target.vocab_size, writer.eos_token_ids)
        assert fresh.tokens(strings) == (tuple(ids), True)
    with pytest.raises(IncompatibleTokenizer, match="no token of the reference"):
        spelling.tokens(["no such token at all, surely"])
    distributions = np.array([[0.1, 0.2, 0.3, 0.4]])
    assert merged(distributions, np.array([0, 1, 0, 1])).tolist() == [[pytest.approx(0.4), pytest.approx(0.6), 0, 0]]


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replies", "message", "hint"),
    [
        (Replies(raw=b"<html>hello</html>"), "not JSON", "v1"),
        (Replies(raw=b"[1, 2]"), "no object", "v1"),
        (Replies(raw=b'{"choices": []}'), "shape of a completion", "chat"),
        (Replies(raw=b'{"choices": [{"message": {"content": "hi"}}]}'), "shape of a completion", "chat"),
        (Replies(status=500), "500: out of memory", "log"),
        (Replies(status=401), "401", "--api-key-env"),
        (Replies(delay=0.6), "did not answer within 0.2 s", "--timeout"),
        (Replies(drop_connections=99), "broke the connection", "log"),
    ],
    ids=["html", "list", "no-choices", "chat", "500", "401", "slow", "dropped"],
)
def test_a_typed_error(writer: hs.Engine, replies: Replies, message: str, hint: str, subject: Make) -> None:
    timeout = 0.2 if replies.delay else 20.0
    with serving(writer, replies) as url, pytest.raises(EndpointFailed, match=message) as error:
        subject(url, writer, timeout=timeout, retries=1).sample([Ask((5, 6), GREEDY)])
    assert hint in error.value.hint


def test_nobody_there(writer: hs.Engine, subject: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(EndpointFailed, match="no connection") as error:
            subject(url, writer).sample([Ask((5, 6), GREEDY)])
    assert "running" in error.value.hint


def test_a_later_prompt_of_other_tokens_is_refused(writer: hs.Engine, subject: Make) -> None:
    """Tokenizers can agree on one prompt and not on the next."""
    short, long = (writer.tokenizer(text)["input_ids"] for text in ("import os", "class Stack:\n    def push"))
    replies = Replies(ids_accepted=False, count_prompt=lambda count: count + (count == len(long)))
    with serving(writer, replies) as url:
        server = subject(url, writer)
        server.sample([Ask(tuple(short), hs.Sampling(max_tokens=2))])
        with pytest.raises(IncompatibleTokenizer, match=f"{len(long)} tokens here has {len(long) + 1} there"):
            server.sample([Ask(tuple(long), hs.Sampling(max_tokens=2))])


def test_a_broken_connection_is_tried_again(writer: hs.Engine, subject: Make) -> None:
    with serving(writer, Replies(drop_connections=2)) as url:
        assert len(subject(url, writer).sample([Ask((5, 6), GREEDY)])) == 1


def test_a_model_the_server_does_not_have(writer: hs.Engine, subject: Make) -> None:
    with serving(writer) as url:
        with pytest.raises(EndpointFailed, match="no-such") as error:
            subject(url, writer, model="no-such").sample([Ask((5, 6), GREEDY)])
        assert MODEL in error.value.hint
        assert subject(url, writer, model=None).model == MODEL


def test_a_server_that_knows_no_max_tokens(writer: hs.Engine, subject: Make) -> None:
    def endless(engine: hs.Engine, ids: list[int], out: hs.Output, sampling: hs.Sampling) -> tuple[Any, str]:
        return (*out.tokens, *[5] * 100), "length"

    with serving(writer, Replies(after=endless)) as url, pytest.raises(EndpointFailed, match="max_tokens"):
        subject(url, writer).sample([Ask((5, 6), GREEDY)])


def test_another_tokenizer_is_refused(engine: hs.Engine, writer: hs.Engine, tmp_path: Path, subject: Make) -> None:
    with serving(engine) as url, pytest.raises(IncompatibleTokenizer, match="another tokenizer"):
        subject(url, writer).sample([Ask(tuple(engine.tokenizer("ab")["input_ids"]), GREEDY)])
    counted = Replies(ids_accepted=False, count_prompt=lambda count: count + 1)
    with serving(writer, counted) as url, pytest.raises(IncompatibleTokenizer, match="tokens here and"):
        subject(url, writer).sample([Ask(tuple(writer.tokenizer("class A:")["input_ids"]), GREEDY)])


def test_a_prompt_that_is_no_text(engine: hs.Engine, subject: Make) -> None:
    half = engine.tokenizer("é")["input_ids"][:1]
    with serving(engine, Replies(ids_accepted=False)) as url, pytest.raises(InvalidPrompt, match="same tokens"):
        subject(url, engine).sample([Ask(tuple(half), GREEDY)])


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h:8000", "http://h:8000/v1/completions"),
        ("http://h:8000/v1/", "http://h:8000/v1/completions"),
        ("http://h/v3", "http://h/v3/completions"),
        ("https://h/api/v1/completions", "https://h/api/v1/completions"),
    ],
)
def test_urls(given: str, url: str) -> None:
    assert completions_url(given) == url


@pytest.mark.parametrize("given", ["localhost:8000", "ftp://h/v1", "", "http://"])
def test_not_urls(given: str) -> None:
    with pytest.raises(InvalidOption, match="not the URL"):
        completions_url(given)


def test_the_threads_do_not_mix_answers_up(writer: hs.Engine, subject: Make) -> None:
    prompts = [writer.tokenizer(text)["input_ids"] for text in ("class A:", "import os", "def f(x):")]
    asks = [Ask(tuple(prompts[i % 3]), GREEDY) for i in range(12)]
    with serving(writer) as url:
        found = subject(url, writer, concurrency=6).sample(asks)
    expected = [writer.generate(list(ask.prompt), GREEDY).tokens for ask in asks]
    assert [completion.tokens for completion in found] == expected
