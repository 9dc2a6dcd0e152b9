"""The official client works unchanged: whole answers, streams, sync and async, and what it makes of errors."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import openai
import pytest
from support.http_server import MODEL, Running

import headstart as hs

HELLO: Any = [{"role": "user", "content": "Hello"}]


def test_a_chat_is_that_of_the_engine(client: openai.OpenAI, server: Running) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=24, seed=7)
    assert server.engine is not None
    alone = server.engine.plain().generate("u:Hello\na:", hs.Sampling(max_tokens=24, temperature=1.0, seed=7))
    (choice,) = answer.choices
    assert choice.message.content == alone.text
    assert choice.message.role == "assistant"
    assert choice.finish_reason == alone.finish_reason
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == MODEL
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(b"u:Hello\na:")
    assert answer.usage.completion_tokens == len(alone.tokens)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.completion_tokens_details is None, "only requests with a prediction count its tokens"


def test_a_streamed_chat_says_the_same(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 40, "seed": 3}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert ends[-1] == whole.choices[0].finish_reason
    assert set(ends[:-1]) == {None}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_clients_own_stream_helper_takes_it(client: openai.OpenAI) -> None:
    body = {"stop_token_ids": list(range(0, 257, 4))}
    with client.chat.completions.stream(model=MODEL, messages=HELLO, seed=1, extra_body=body) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].finish_reason == "stop"


def test_completions_of_several_prompts(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["ab", "cde"], n=2, max_tokens=6, seed=5, temperature=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    alone = [client.completions.create(model=MODEL, prompt=each, max_tokens=6, seed=5) for each in ("ab", "cde")]
    assert [answer.choices[0].text, answer.choices[2].text] == [each.choices[0].text for each in alone]
    assert answer.choices[0].text != answer.choices[1].text
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 5, "each prompt once, however many choices it has"


def test_async_clients_at_once(server: Running) -> None:
    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0, timeout=60) as client:

            async def streamed(seed: int) -> str:
                stream = await client.completions.create(
                    model=MODEL, prompt=f"text {seed}", max_tokens=20, seed=seed, stream=True
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            async def whole(seed: int) -> str:
                found = await client.completions.create(model=MODEL, prompt=f"text {seed}", max_tokens=20, seed=seed)
                return found.choices[0].text

            return await asyncio.gather(*(each(seed) for seed in range(8) for each in (streamed, whole)))

    found = asyncio.run(ask())
    assert found[::2] == found[1::2], "a stream is its whole answer, in whatever batch"
    assert len(set(found)) == 8


def test_logprobs_of_a_chat_add_up(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL, "messages": HELLO, "max_tokens": 16, "temperature": 0, "logprobs": True, "top_logprobs": 5,
    }  # fmt: skip
    whole = client.chat.completions.create(**asked)
    assert whole.choices[0].logprobs is not None
    entries = whole.choices[0].logprobs.content or []
    assert whole.usage is not None
    assert len(entries) == whole.usage.completion_tokens
    for entry in entries:
        assert entry.logprob == max(each.logprob for each in entry.top_logprobs), "greedy takes the likeliest"
        assert len(entry.top_logprobs) == 5
        assert sum(math.exp(each.logprob) for each in entry.top_logprobs) <= 1 + 1e-5
    ended = whole.choices[0].finish_reason == "stop"
    raw = b"".join(bytes(entry.bytes or []) for entry in (entries[:-1] if ended else entries))
    assert raw.decode("utf-8", "replace") == whole.choices[0].message.content, "bytes tell what text cannot"
    streamed = [
        entry
        for chunk in client.chat.completions.create(**asked, stream=True)
        if chunk.choices and chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content or []
    ]
    assert [entry.bytes for entry in streamed] == [entry.bytes for entry in entries]
    assert [entry.logprob for entry in streamed] == pytest.approx([entry.logprob for entry in entries], abs=1e-4)


def test_logprobs_of_a_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="ab", max_tokens=8, temperature=0, logprobs=3)
    found = answer.choices[0].logprobs
    assert found is not None
    assert len(found.tokens or []) == len(found.token_logprobs or []) == len(found.top_logprobs or []) == 8
    assert (found.text_offset or [])[0] == 0
    numbered = client.completions.create(
        model=MODEL, prompt="ab", max_tokens=8, temperature=0, logprobs=3,
        extra_body={"return_tokens_as_token_ids": True, "return_token_ids": True},
    )  # fmt: skip
    assert numbered.choices[0].logprobs is not None
    names = numbered.choices[0].logprobs.tokens
    extra: Any = numbered.choices[0].model_extra
    assert names == [f"token_id:{token}" for token in extra["token_ids"]]
    assert len(extra["prompt_token_ids"]) == 2


def test_errors_are_the_clients_own_classes(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="did you mean max_tokens") as unknown:
        client.chat.completions.create(model=MODEL, messages=HELLO, extra_body={"max_token": 3})
    assert unknown.value.param == "max_token"
    assert unknown.value.code == "unknown_field"
    assert unknown.value.request_id
    with pytest.raises(openai.NotFoundError, match=MODEL) as model:
        client.chat.completions.create(model="gpt-9", messages=HELLO)
    assert model.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="x" * 600)
    assert long.value.code == "context_length_exceeded"


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list()
    assert model.id == MODEL
    assert client.models.retrieve(MODEL).owned_by == "headstart"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")
