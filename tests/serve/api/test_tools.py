"""Tools and reasoning through the official client: whole answers and streams, history, choices, usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from support.byte_models import save_model
from support.chat_forms import chat_tokenizer, template
from support.http_server import MODEL, serving
from support.scripted_bridge import scripted
from support.tiny import byte_tokenizer

import headstart as hs
from headstart.types import Structure

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": SCHEMA, "strict": False}}
    for name in ("read", "write")
]
GO: Any = [{"role": "user", "content": "Go."}]
CALLS = (
    '<tool_call>\n{"name": "read", "arguments": {"path":  "a"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "write", "arguments": {"path": "b"}}\n</tool_call>'
)
THOUGHT = "<think>\nFirst.\n</think>\n\nNow.\n"


def asking(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)


def test_a_round_trip() -> None:
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    with scripted(tokenizer, THOUGHT + CALLS, "Done.") as (url, bridge), asking(url) as client:
        first = client.chat.completions.create(model=MODEL, messages=GO, tools=TOOLS)
        (choice,) = first.choices
        message: Any = choice.message
        assert choice.finish_reason == "tool_calls"
        assert (message.content, message.reasoning_content, message.reasoning) == ("Now.", "First.", "First.")
        assert [call.function.name for call in message.tool_calls] == ["read", "write"]
        assert message.tool_calls[0].function.arguments == '{"path":  "a"}', "as the model wrote it"
        assert len({call.id for call in message.tool_calls}) == 2
        assert first.usage is not None
        assert first.usage.completion_tokens_details is not None
        thought = tokenizer(THOUGHT[: THOUGHT.index("</think>")] + "</think>")["input_ids"]
        assert first.usage.completion_tokens_details.reasoning_tokens == len(thought)
        assert first.usage.prompt_tokens_details is not None
        assert first.usage.prompt_tokens_details.cached_tokens == 4
        said = message.to_dict()
        results = [{"role": "tool", "tool_call_id": call.id, "content": "<|im_end|>"} for call in message.tool_calls]
        second = client.chat.completions.create(model=MODEL, messages=[*GO, said, *results], tools=TOOLS)
        assert second.choices[0].message.content == "Done."
        assert second.choices[0].finish_reason == "stop"
        assert bridge.prompt(1).startswith(bridge.prompt(0)), "the next prompt begins with this one"
        assert '"arguments": {"path": "b"}' in bridge.prompt(1)
        assert bridge.jobs[1].prompt.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 5, "none of a result"


def test_what_a_call_may_copy_comes_with_the_job_in_its_spelling() -> None:
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    shown = [*GO, {"role": "tool", "tool_call_id": "a", "content": 'say("a")\n' * 20}]
    with scripted(tokenizer, "Done.") as (url, bridge), asking(url) as client:
        client.chat.completions.create(model=MODEL, messages=shown, tools=TOOLS)
        client.chat.completions.create(model=MODEL, messages=shown)
        client.chat.completions.create(
            model=MODEL, messages=shown, tools=TOOLS, extra_body={"speculation": {"enabled": False}}
        )
        (text,) = bridge.jobs[0].drafting.texts
        assert tokenizer.decode(list(text)) == 'say(\\"a\\")\\n' * 20
        assert [job.drafting.texts for job in bridge.jobs[1:]] == [(), ()]


def test_tools_that_take_a_text_are_called_with_it() -> None:
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    text = '+ "line"\n'
    reply = f'<tool_call>\n{{"name": "patch", "arguments": {json.dumps({"input": text})}}}\n</tool_call>'
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": r"([+-] [^\n]*\n)+"}}
    tools: Any = [{"type": "custom", "custom": {"name": "patch", "format": form}}, TOOLS[0]]
    with scripted(tokenizer, reply, reply, "Done.") as (url, bridge), asking(url) as client:
        whole: Any = client.chat.completions.create(model=MODEL, messages=GO, tools=tools).choices[0].message
        (call,) = whole.tool_calls
        assert (call.type, call.custom.name, call.custom.input) == ("custom", "patch", text)
        chunks = client.chat.completions.create(model=MODEL, messages=GO, tools=tools, stream=True)
        deltas: Any = [each for chunk in chunks for each in chunk.choices[0].delta.tool_calls or ()]
        assert (deltas[0].type, deltas[0].custom["name"]) == ("custom", "patch")
        assert "".join(delta.custom["input"] for delta in deltas) == text
        result = {"role": "tool", "tool_call_id": call.id, "content": "ok"}
        client.chat.completions.create(model=MODEL, messages=[*GO, whole.to_dict(), result], tools=tools)
        assert json.dumps({"input": text}) in bridge.prompt(2)
        assert "custom_" in bridge.jobs[0].sampling.structure.text, "held to its grammar"


@pytest.mark.parametrize("burst", [1, 4, 1000])
def test_streams_say_the_same(burst: int) -> None:
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    with scripted(tokenizer, THOUGHT + CALLS, burst=burst) as (url, _), asking(url) as client:
        with client.chat.completions.stream(model=MODEL, messages=GO, tools=TOOLS) as stream:
            events = list(stream)
            final = stream.get_final_completion()
        chunks = [event.chunk for event in events if event.type == "chunk"]
    calls = final.choices[0].message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("read", '{"path":  "a"}'), ("write", '{"path": "b"}'),
    ]  # fmt: skip
    assert final.choices[0].message.content == "Now."
    assert final.choices[0].finish_reason == "tool_calls"
    deltas: list[Any] = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "First."
    opened = set()
    for delta in deltas:
        for call in delta.tool_calls or []:
            if call.index not in opened:
                assert call.id
                assert call.type == "function"
                assert call.function.name
                opened.add(call.index)
            else:
                assert call.id is None
    assert opened == {0, 1}


def test_which_tools_may_be_called() -> None:
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    trigger = tokenizer.convert_tokens_to_ids("<tool_call>")
    reply = '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    with scripted(tokenizer, reply) as (url, bridge), asking(url) as client:

        def asked(**fields: Any) -> Any:
            return client.chat.completions.create(model=MODEL, messages=GO, tools=TOOLS, **fields).choices[0]

        named = {"type": "function", "function": {"name": "read"}}
        assert asked(tool_choice=named).finish_reason == "stop", "OpenAI's word for a call that the client chose"
        assert asked(tool_choice="required").finish_reason == "tool_calls"
        none = asked(tool_choice="none")
        assert none.message.tool_calls is None
        assert none.message.content.startswith("<tool_call>")
        allowed = {"mode": "required", "tools": [named]}
        asked(tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
        asked(parallel_tool_calls=False)
        structures = [job.sampling.structure for job in bridge.jobs]
        grammars = [each.text if isinstance(each, Structure) else "" for each in structures]
        assert [("read" in text, "write" in text) for text in grammars] == [
            (True, False), (True, True), (False, False), (True, False), (True, True),
        ]  # fmt: skip
        assert bridge.jobs[2].sampling.logit_bias[trigger] < -1000
        assert bridge.jobs[4].sampling.stop == ("</tool_call>",)
        assert isinstance(structures[4], Structure)
        assert structures[4].trigger == (trigger,)
        assert len({bridge.prompt(n) for n in range(5)}) == 1, "the prompt has all tools, whatever the choice"
        for fields in ({"tool_choice": "any"}, {"tool_choice": {"type": "function", "function": {"name": "x"}}}):
            with pytest.raises(openai.BadRequestError) as refused:
                asked(**fields)
            assert refused.value.param == "tool_choice"
        with pytest.raises(openai.BadRequestError, match="two tools"):
            client.chat.completions.create(model=MODEL, messages=GO, tools=[*TOOLS, *TOOLS])


def test_a_call_that_is_cut_and_one_that_breaks_its_form() -> None:
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    begun = '<tool_call>\n{"name": "read", "arguments": {"pa'
    with scripted(tokenizer, begun, finish="length") as (url, _), asking(url) as client:
        (cut,) = client.chat.completions.create(model=MODEL, messages=GO, tools=TOOLS).choices
    assert cut.finish_reason == "length"
    assert cut.message.tool_calls is not None
    assert cut.message.tool_calls[0].function.arguments == '{"pa'  # type: ignore[union-attr]
    with scripted(tokenizer, "<tool_call> is a mark.") as (url, _), asking(url) as client:
        broken = client.chat.completions.create(model=MODEL, messages=GO, tools=TOOLS)
    assert broken.choices[0].message.content == "<tool_call> is a mark."
    assert broken.choices[0].finish_reason == "stop"
    extra: Any = broken.model_extra
    assert any("form" in warning for warning in extra["warnings"])


def test_special_tokens_of_the_form_stay_in_the_text() -> None:
    """Gemma's marks are special tokens, which texts leave out otherwise."""
    tokenizer = chat_tokenizer(template("gemma4"), "gemma4")
    reply = 'So.<|tool_call>call:read{path:<|"|>a "b"<|"|>}<tool_call|><|im_start|>'
    with scripted(tokenizer, reply) as (url, _), asking(url) as client:
        found: Any = client.chat.completions.create(model=MODEL, messages=GO, tools=TOOLS).choices[0].message
        assert json.loads(found.tool_calls[0].function.arguments) == {"path": 'a "b"'}
        assert found.content == "So."
        plain = client.chat.completions.create(model=MODEL, messages=GO).choices[0].message
        assert plain.content == 'So.call:read{path:a "b"}', "without tools they are left out as ever"


def test_reasoning_that_is_switched_off_limited_and_not_sent() -> None:
    tokenizer = chat_tokenizer(template("hermes", think="{% if enable_thinking %}<think>\n{% endif %}"), "hermes")
    close = tokenizer.convert_tokens_to_ids("</think>")
    with scripted(tokenizer, "Hm.\n</think>\n\nYes.") as (url, bridge), asking(url) as client:

        def asked(**fields: Any) -> Any:
            return client.chat.completions.create(model=MODEL, messages=GO, extra_body=fields).choices[0].message

        on = {"chat_template_kwargs": {"enable_thinking": True}}
        assert (asked(**on).reasoning_content, asked(**on).content) == ("Hm.", "Yes.")
        hidden = asked(**on, include_reasoning=False)
        assert hidden.content == "Yes."
        assert "reasoning_content" not in hidden.model_extra
        asked(reasoning_effort="none")
        assert not bridge.prompt().rstrip().endswith("<think>")
        asked(thinking_budget=9, reasoning_effort="high")
        assert bridge.jobs[-1].sampling.structure == Structure("text", after=(close,), thinking=9)


def test_the_form_of_the_text() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wrapped = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    cases: list[tuple[dict[str, Any], Structure | None]] = [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Structure("json")),
        ({"response_format": wrapped}, Structure.schema(schema)),
        ({"structured_outputs": {"json": schema, "disable_any_whitespace": True}},
         Structure.schema(schema, lenient=True, whitespace="compact")),
        ({"structured_outputs": {"regex": "a+"}}, Structure("regex", "a+")),
        ({"guided_choice": ["a", "b"]}, Structure.choice(["a", "b"])),
        ({"guided_grammar": 'start: "a"'}, Structure("lark", 'start: "a"')),
        ({"grammar": 'root ::= "a"'}, Structure("gbnf", 'root ::= "a"')),
        ({"json_schema": schema}, Structure.schema(schema, lenient=True)),
    ]  # fmt: skip
    with scripted(tokenizer, "a") as (url, bridge), asking(url) as client:
        for fields, structure in cases:
            client.chat.completions.create(model=MODEL, messages=GO, extra_body=fields)
            assert bridge.jobs[-1].sampling.structure == structure, fields
            client.completions.create(model=MODEL, prompt="a", extra_body=fields)
            assert bridge.jobs[-1].sampling.structure == structure, fields
        with pytest.raises(openai.BadRequestError, match="both say"):
            client.chat.completions.create(
                model=MODEL, messages=GO, extra_body={"guided_regex": "a", "grammar": 'root ::= "a"'}
            )
        with pytest.raises(openai.BadRequestError, match="cannot call tools"):
            client.chat.completions.create(model=MODEL, messages=GO, tools=TOOLS)


def test_a_random_model_calls_tools_and_drafts_change_nothing(tmp_path: Path) -> None:
    """Nothing but the grammar holds a model of random weights to a call."""
    pytest.importorskip("llguidance")
    tokenizer = chat_tokenizer(template("hermes"), "hermes")
    for name, noise in (("target", 0.0), ("draft", 0.01)):
        save_model(tmp_path / name, context=2048, noise=noise, tokenizer=tokenizer)
    tools = json.loads(json.dumps(TOOLS))
    for tool in tools:
        choice = {"properties": {"path": {"enum": ["alpha", "beta"]}}, "additionalProperties": False}
        tool["function"]["parameters"] |= choice
    engine = hs.load(
        tmp_path / "target", ["prediction", tmp_path / "draft"], dtype="float32", max_length=2048, rule="coupled",
    )  # fmt: skip
    with serving(engine) as running, asking(running.v1) as client:
        think, mark = (str(tokenizer.convert_tokens_to_ids(each)) for each in ("<think>", "<tool_call>"))
        bias = {think: -1000}  # it would think to the limit
        asked: dict[str, Any] = {
            "model": MODEL, "messages": GO, "tools": tools, "max_tokens": 200, "logit_bias": bias,
        }  # fmt: skip
        said = []
        for enabled in (True, False):
            body = {"speculation": {"enabled": enabled}}
            for seed in range(3):
                choice = client.chat.completions.create(
                    **asked, seed=seed, tool_choice="required", parallel_tool_calls=False, extra_body=body
                ).choices[0]
                assert choice.finish_reason == "tool_calls"
                (call,) = choice.message.tool_calls or []
                assert json.loads(call.function.arguments)["path"] in ("alpha", "beta")  # type: ignore[union-attr]
                said.append((call.function.name, call.function.arguments))  # type: ignore[union-attr]
        assert said[:3] == said[3:]
        auto = client.chat.completions.create(**asked | {"logit_bias": bias | {mark: 1000}}, seed=1)
        calls = auto.choices[0].message.tool_calls or []
        assert len(calls) > 1, "the mark comes again and again"
        for call in calls[:-1]:
            path = json.loads(call.function.arguments)["path"]  # type: ignore[union-attr]
            assert path in ("alpha", "beta"), "behind its mark a call is constrained also where it need not come"
        assert running.settled()
