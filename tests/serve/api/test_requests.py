"""What requests may ask: every sampling field, content parts, templates, echo, token ids, speculation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from support.http_server import MODEL, Running

import headstart as hs
from headstart.serve.api.reading.work import seed_of

Post = Callable[..., httpx2.Response]
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def chat(server: Running) -> Post:
    """chat(**fields): the answer to a conversation; "Hello" unless the fields have messages."""

    def post(**fields: Any) -> httpx2.Response:
        return httpx2.post(f"{server.v1}/chat/completions", json={"messages": HELLO, **fields}, timeout=60)

    return post


@pytest.fixture
def complete(server: Running) -> Post:
    """complete(**fields): the answer to a prompt; "ab" unless the fields have one."""

    def post(**fields: Any) -> httpx2.Response:
        return httpx2.post(f"{server.v1}/completions", json={"prompt": "ab", **fields}, timeout=60)

    return post


def text(response: httpx2.Response) -> str:
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def refusal(response: httpx2.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


FIELDS: list[dict[str, Any]] = [
    {"temperature": 0.7, "top_p": 0.9, "top_k": 12},
    {"min_p": 0.05},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"repetition_penalty": 1.3},
    {"min_tokens": 20, "logit_bias": {"256": 50}},
    {"ignore_eos": True, "logit_bias": {"256": 50}},
    {"stop_token_ids": list(range(0, 256, 5))},
]


@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: "+".join(fields))
def test_every_field_reaches_the_sampling(server: Running, complete: Post, fields: dict[str, Any]) -> None:
    assert server.engine is not None
    named: dict[str, Any] = {"temperature": 1.0, **fields}
    if "logit_bias" in named:
        named["logit_bias"] = {int(token): bias for token, bias in named["logit_bias"].items()}
    alone = server.engine.plain().generate("ab", hs.Sampling(max_tokens=32, seed=11, **named))
    answer = complete(**fields, max_tokens=32, seed=11, return_token_ids=True).json()
    assert answer["choices"][0]["token_ids"] == list(alone.tokens)
    assert answer["choices"][0]["finish_reason"] == alone.finish_reason


def test_llama_cpps_name_of_the_penalty(complete: Post) -> None:
    both = [complete(**{name: 1.4}, max_tokens=24, seed=1) for name in ("repetition_penalty", "repeat_penalty")]
    assert text(both[0]) == text(both[1])
    assert refusal(complete(repetition_penalty=1.1, repeat_penalty=1.2))["param"] == "repeat_penalty"


def test_stop_strings(complete: Post) -> None:
    whole = text(complete(temperature=0, max_tokens=40))
    stop = whole[5:7]
    for given in (stop, [stop, "never there"]):
        cut = complete(temperature=0, max_tokens=40, stop=given)
        assert text(cut) == whole[: whole.find(stop)]
        assert cut.json()["choices"][0]["finish_reason"] == "stop"


def test_defaults_are_reported(complete: Post, chat: Post) -> None:
    used = complete(max_tokens=3).json()["headstart"]["sampling"]
    assert (used["temperature"], used["top_p"], used["top_k"]) == (1.0, 1.0, 0)
    assert complete().json()["headstart"]["sampling"]["max_tokens"] == 16
    rest = chat(stop_token_ids=list(range(257))).json()["headstart"]["sampling"]["max_tokens"]
    assert rest == 512 - len(b"u:Hello\na:"), "a chat may fill the context"
    assert chat(max_tokens=9, max_completion_tokens=4).json()["usage"]["completion_tokens"] <= 4


def test_a_seed_that_was_drawn_repeats_the_text(complete: Post) -> None:
    first = complete(max_tokens=24)
    again = complete(max_tokens=24, seed=first.json()["headstart"]["sampling"]["seed"])
    assert text(again) == text(first)
    assert text(complete(max_tokens=24, seed=-1)) == text(complete(max_tokens=24, seed=2**63 - 1))


def test_choices_have_seeds_of_their_own(complete: Post) -> None:
    three = complete(n=3, seed=4, max_tokens=12).json()
    assert three["headstart"]["seeds"] == [seed_of(4, choice) for choice in range(3)]
    alone = complete(seed=seed_of(4, 2), max_tokens=12)
    assert text(alone) == three["choices"][2]["text"], "a choice can be repeated alone"
    assert all(choice["metrics"]["headstart"] for choice in three["choices"])
    same = complete(n=2, temperature=0, max_tokens=12).json()["choices"]
    assert same[0]["text"] == same[1]["text"]


def test_prompts_as_token_ids(complete: Post) -> None:
    ids = list(b"ab")  # the tokens of a text are not the bytes themselves
    found = complete(prompt=ids, return_token_ids=True, max_tokens=2).json()
    assert found["choices"][0]["prompt_token_ids"] == ids
    both = complete(prompt=[ids, [1, 2, 3]], max_tokens=2).json()
    assert both["usage"]["prompt_tokens"] == 5
    assert refusal(complete(prompt=[1, 99999]))["code"] == "invalid_prompt"
    assert refusal(complete(prompt=[-1]))["code"] == "invalid_prompt"


def test_echo(complete: Post) -> None:
    plain = text(complete(prompt="cd", temperature=0, max_tokens=6))
    assert text(complete(prompt="cd", temperature=0, max_tokens=6, echo=True)) == "cd" + plain
    assert refusal(complete(echo=True, logprobs=1))["param"] == "echo"


def test_content_parts_and_roles(chat: Post) -> None:
    plain = chat(messages=[{"role": "user", "content": "a\nb"}], temperature=0, max_tokens=6)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    listed = chat(messages=[{"role": "user", "content": parts}], temperature=0, max_tokens=6)
    assert text(listed) == text(plain)
    said = {"role": "assistant", "content": "x", "reasoning_content": "y", "tool_calls": [], "refusal": None}
    assert chat(messages=[*HELLO, said, *HELLO], max_tokens=1).status_code == 200
    system, developer = (
        chat(messages=[{"role": role, "content": "be brief"}, *HELLO], temperature=0, max_tokens=6)
        for role in ("system", "developer")
    )
    assert text(system) == text(developer)
    image = [{"type": "image_url", "image_url": {"url": "data:"}}]
    assert "reads text" in refusal(chat(messages=[{"role": "user", "content": image}]))["message"]


def test_a_message_may_be_continued(chat: Post, complete: Post) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "We"}]
    asked: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
    continued = chat(messages=begun, continue_final_message=True, add_generation_prompt=False, **asked)
    assert text(continued) == text(complete(prompt="u:Hello\na:We", **asked))
    assert text(chat(add_generation_prompt=False, **asked)) == text(complete(prompt="u:Hello\n", **asked))
    for fields in (
        {"add_generation_prompt": True, "messages": begun}, {"messages": HELLO},
        {"messages": begun, "response_format": {"type": "json_object"}}, {"messages": begun, "guided_regex": "a+"},
    ):  # fmt: skip
        assert refusal(chat(continue_final_message=True, **fields))["param"] == "continue_final_message"


def test_variables_of_the_template(chat: Post, complete: Post) -> None:
    asked: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
    thinking = chat(chat_template_kwargs={"thinking": True}, **asked)
    assert text(thinking) == text(complete(prompt="u:Hello\na:think ", **asked))
    assert refusal(chat(chat_template="{{ 1 }}"))["code"] == "unsupported_field"
    assert refusal(chat(chat_template_kwargs={"chat_template": "{{ 1 }}"}))["param"] == "chat_template_kwargs"


def test_harmless_fields_are_named(chat: Post) -> None:
    fields: dict[str, Any] = {
        "user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto",
        "parallel_tool_calls": False, "safety_identifier": "x", "prompt_cache_key": "k", "verbosity": "low",
        "modalities": ["text"], "tool_choice": "none", "tools": None, "response_format": {"type": "text"},
        "stream_options": None, "logit_bias": None,
    }  # fmt: skip
    answer = chat(max_tokens=1, **fields)
    assert answer.status_code == 200, answer.text
    warned = {words.partition(" ")[0] for words in answer.json()["warnings"]}
    quiet = {
        "parallel_tool_calls",
        "reasoning_effort",
        "modalities",
        "tool_choice",
        "tools",
        "response_format",
        "stream_options",
        "logit_bias",
    }
    assert warned == set(fields) - quiet
    assert "warnings" not in chat(max_tokens=1).json()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"speculation": {"max_drafts": 3}}, "speculation.max_drafts"),
        ({"stream_options": {"usage": True}}, "stream_options.usage"),
        ({"messages": [{"role": "user", "content": "a", "nme": "b"}]}, "messages.nme"),
    ],
)
def test_what_would_change_the_answer_is_refused(chat: Post, fields: dict[str, Any], param: str) -> None:
    assert refusal(chat(**fields))["param"] == param


def test_best_of_and_suffix(complete: Post) -> None:
    assert refusal(complete(best_of=3))["param"] == "best_of"
    assert complete(n=2, best_of=2, max_tokens=1).status_code == 200
    assert refusal(complete(suffix="end"))["param"] == "suffix"
    assert complete(suffix="", max_tokens=1).status_code == 200


def test_tokenize_and_back(server: Running, chat: Post) -> None:
    def post(path: str, body: dict[str, Any]) -> httpx2.Response:
        return httpx2.post(f"{server.url}{path}", json=body, timeout=60)

    found = post("/tokenize", {"model": MODEL, "prompt": "héllo", "return_token_strs": True}).json()
    assert found["count"] == len(found["tokens"]) == len("héllo".encode())
    assert found["max_model_len"] == 512
    assert post("/tokenize", {"content": "héllo"}).json()["tokens"] == found["tokens"]
    assert post("/detokenize", {"tokens": found["tokens"]}).json()["prompt"] == "héllo"
    counted = post("/tokenize", {"messages": HELLO}).json()["count"]
    assert counted == chat(max_tokens=1).json()["usage"]["prompt_tokens"]
    assert refusal(post("/tokenize", {}))["code"] == "invalid_value"
    assert refusal(post("/detokenize", {"tokens": [99999]}))["param"] == "tokens"
    assert post("/tokenize", {"prompt": ""}).json()["tokens"] == []
