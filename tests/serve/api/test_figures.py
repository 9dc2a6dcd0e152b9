"""The figures of answers: vLLM's, llama.cpp's and ours, whether speculation ran, and predicted outputs in the usage."""

from __future__ import annotations

import json
import math
import string
from typing import Any

import httpx2
import pytest
from support.http_server import Running
from support.tiny import byte_tokenizer

LETTERS = {str(byte_tokenizer().convert_tokens_to_ids(letter)): 30 for letter in string.ascii_letters}
"""A bias towards letters, so that a text can be predicted as a text."""


def complete(server: Running, **fields: Any) -> dict[str, Any]:
    body = {"prompt": "ab", "max_tokens": 40, "temperature": 0, "ignore_eos": True, **fields}
    response = httpx2.post(f"{server.v1}/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = json.loads(response.text, parse_constant=_no_constant)
    return found


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


def test_the_figures_fit_each_other(server: Running) -> None:
    answer = complete(server, speculation={"metrics": "detailed"})
    spec, ours, timings = answer["metrics"]["speculative_decoding"], answer["metrics"]["headstart"], answer["timings"]
    steps, accepted = spec["num_spec_steps"], spec["num_accepted_draft_tokens"]
    assert steps > 0
    assert accepted > 0
    assert sum(spec["acceptance_histogram"]) == steps
    assert sum(j * count for j, count in enumerate(spec["acceptance_histogram"])) == accepted
    assert sum(spec["per_step_accepted"]) == accepted
    assert sum(spec["per_step_drafted"]) == spec["num_draft_tokens"]
    assert spec["mean_acceptance_length"] == pytest.approx(1 + accepted / steps, abs=1e-3)
    assert spec["draft_acceptance_rate"] == pytest.approx(accepted / spec["num_draft_tokens"], abs=1e-3)
    assert spec["num_spec_tokens"] == max(spec["per_step_drafted"])
    assert timings["predicted_n"] == answer["usage"]["completion_tokens"] == 40
    assert timings["prompt_n"] + timings["cache_n"] == 2
    assert timings["draft_n_accepted"] == accepted
    assert accepted <= timings["draft_n"] <= spec["num_draft_tokens"]
    assert ours["tokens_per_forward"] == pytest.approx(40 / ours["target_forwards"], abs=1e-3)
    assert sum(ours["sources"].values()) == accepted
    assert ours["speculating"] is True
    assert ours["off_reason"] is None
    assert ours["ahead"] is None, "nothing is drafted ahead here"
    assert all(0 <= chance <= 1 for chance in ours["conditional_acceptance"])


def test_every_interface_says_what_speculation_saved(server: Running) -> None:
    for _ in range(3):  # plain steps are timed meanwhile
        complete(server)
    talk = {"messages": [{"role": "user", "content": "ab"}], "temperature": 0, "max_tokens": 40}
    asked = {
        "completions": {"prompt": "ab", "max_tokens": 40, "temperature": 0, "ignore_eos": True},
        "chat/completions": talk, "messages": talk,
        "responses": {"input": "ab", "temperature": 0, "max_output_tokens": 40},
    }  # fmt: skip
    for path, body in asked.items():
        whole = httpx2.post(f"{server.v1}/{path}", json=body, timeout=60).json()
        streamed = httpx2.post(f"{server.v1}/{path}", json=body | {"stream": True}, timeout=60).text
        events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
        for found in (whole, next(each for each in map(_answer, reversed(events)) if "timings" in each)):
            timings = found["timings"]
            assert timings["saved_ms_low"] <= timings["saved_ms"] <= timings["saved_ms_high"], path
            assert 0 < timings["saved_n"] <= timings["predicted_n"]


def _answer(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = event.get("response", event)
    return found


def test_nothing_is_infinite_when_nothing_happens(server: Running) -> None:
    answer = complete(server, max_tokens=1)
    numbers = [value for value in answer["timings"].values() if isinstance(value, float)]
    assert all(math.isfinite(value) for value in numbers)
    assert answer["metrics"]["mean_itl_ms"] == 0


def test_metrics_may_be_left_out(server: Running) -> None:
    answer = complete(server, speculation={"metrics": "none"})
    assert not {"metrics", "timings"} & answer.keys()
    assert answer["headstart"]["sampling"]["temperature"] == 0


def test_sources_are_named_without_paths(server: Running) -> None:
    answer = complete(server)["metrics"]["headstart"]
    assert answer["drafter"] == "prediction + draft"
    assert set(answer["sources"]) == {"draft"}
    assert httpx2.get(f"{server.v1}/models").json()["data"][0]["headstart"]["drafter"] == "prediction + draft"
    named = complete(server, speculation={"sources": ["draft"]})
    assert named["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
    for streamed in (True, False):
        body = {"prompt": "ab", "stream": streamed, "speculation": {"sources": ["medusa"]}}
        refused = httpx2.post(f"{server.v1}/completions", json=body, timeout=60)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "speculation.sources"
        assert "prediction, draft" in refused.json()["error"]["message"]


@pytest.fixture(params=["completions", "chat/completions"])
def predicting(request: pytest.FixtureRequest, server: Running) -> Any:
    """predicting(prediction, **fields): an answer of either interface."""

    def ask(prediction: Any, **fields: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "logit_bias": LETTERS, **fields}
        if prediction is not None:
            asked["prediction"] = {"type": "content", "content": prediction}
        prompt = (
            {"prompt": "ab"} if request.param == "completions" else {"messages": [{"role": "user", "content": "a"}]}
        )
        response = httpx2.post(f"{server.v1}/{request.param}", json=prompt | asked, timeout=60)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    return ask


def test_a_prediction_changes_no_text_and_is_counted(predicting: Any) -> None:
    def text(answer: dict[str, Any]) -> str:
        choice = answer["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])

    def details(answer: dict[str, Any]) -> tuple[int, int]:
        found = answer["usage"]["completion_tokens_details"]
        assert set(found) == {"accepted_prediction_tokens", "rejected_prediction_tokens"}
        assert answer["usage"]["completion_tokens"] == 40
        return found["accepted_prediction_tokens"], found["rejected_prediction_tokens"]

    without = predicting(None, return_token_ids=True)
    assert "completion_tokens_details" not in without["usage"]
    assert text(without).isalpha()
    wrong = predicting("wholly wrong, in every respect, without exception")
    assert text(wrong) == text(without)
    assert details(wrong)[0] < 20
    right = predicting([{"type": "text", "text": text(without)}])
    assert text(right) == text(without)
    accepted, _ = details(right)
    assert accepted > 5
    assert right["metrics"]["headstart"]["sources"]["prediction"] == accepted
    ours = right["metrics"]["headstart"]
    assert ours["tokens_per_forward"] > 1


def test_a_second_turn_reads_only_what_is_new(server: Running) -> None:
    def ask(*messages: dict[str, str]) -> dict[str, Any]:
        body = {
            "messages": messages, "max_tokens": 20, "temperature": 0, "ignore_eos": True, "cache_salt": "turns",
            "logprobs": True, "top_logprobs": 3, "return_token_ids": True,
        }  # fmt: skip
        response = httpx2.post(f"{server.v1}/chat/completions", json=body, timeout=60)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    first = {"role": "user", "content": "A rather long question, so that it is worth keeping: " + "why? " * 20}
    cold = ask(first)
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    warm = ask(first, {"role": "assistant", "content": "Because."}, {"role": "user", "content": "And?"})
    cached = warm["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= cold["usage"]["prompt_tokens"] - 2
    assert warm["timings"]["cache_n"] == cached
    assert warm["timings"]["prompt_n"] == warm["usage"]["prompt_tokens"] - cached
    again = ask(first)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 16
    assert again["choices"] == cold["choices"], "a kept beginning changes no token and no log-probability, to the bit"
