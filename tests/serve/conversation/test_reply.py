"""A reply is read the same however its text is cut, in every format; what breaks a format is content, not an error."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.serve.conversation.formats import BY_NAME, FORMATS, Format, Think
from headstart.serve.conversation.parts import Called, Content, Message, Part, Reasoning, joined
from headstart.serve.conversation.reply import Reply
from headstart.serve.conversation.turns import Call, Tool

THINK = Think("<think>", "</think>")
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"}, "line": {"type": "integer"}, "tags": {"type": "array"},
        "more": {"type": ["object", "null"]},
    },
}  # fmt: skip
TOOLS = (Tool("read_file", parameters=SCHEMA), Tool("write-file", parameters=SCHEMA))
ARGUMENTS = {"path": 'a\'b <x> "y"\n\nz\\n é\U0001f600', "line": -41, "tags": ["p", {"k": None}, 1.5], "more": None}


def read(text: str, cuts: Sequence[int], form: Format | None, *, thinking: bool = False) -> tuple[list[Part], Reply]:
    """The parts of a text that comes in pieces which end at the cuts."""
    reply = Reply(form, THINK, thinking=thinking, tools=TOOLS)
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    parts = [part for a, b in zip([0, *ends], ends, strict=False) for part in reply.feed(text[a:b])]
    return joined(parts + reply.finish()), reply


def calls_of(form: Format) -> list[Call]:
    calls = [Call("read_file", json.dumps(ARGUMENTS), "call00001"), Call("write-file", "{}", "call00002")]
    if form.body == "python":
        calls[1] = Call("read_file", "{}", "call00002")  # a name in Python has no dash
    return calls if form.parallel else calls[:1]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_calls_are_read_as_they_were_written(form: Format) -> None:
    calls = calls_of(form)
    marked = not form.at_start and form.body != "channels"
    text = ("Well.\n" if marked else "") + form.written(calls)
    parts, reply = read(text, range(len(text)), form)
    assert parts == read(text, (), form)[0]
    found = Message.of(parts)
    assert found.content == ("Well." if marked else ""), "white space before a call is the format's"
    assert [call.name for call in found.calls] == [call.name for call in calls]
    assert [json.loads(call.arguments) for call in found.calls] == [json.loads(call.arguments) for call in calls]
    assert all(call.complete for call in found.calls)
    assert (reply.calls, reply.whole_calls, reply.warnings) == (len(calls), len(calls), [])


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_cut_reply_is_a_beginning(form: Format) -> None:
    """However early the reply ends, nothing is raised, and the arguments are a beginning of the whole ones."""
    text = form.written(calls_of(form)[:1])
    whole = Message.of(read(text, (), form)[0]).calls[0]
    for end in range(len(text)):
        found = Message.of(read(text[:end], (), form)[0])
        for call in found.calls:
            assert call.name == whole.name
            assert call.complete or whole.arguments.startswith(call.arguments)


FRAGMENTS = sorted(
    {mark for form in FORMATS for mark in form.marks}
    | {"<think>", "</think>", '{"name": "read_file", "arguments": {', '"}', "}", "read_file", "path", "\n", " ", '"',
       "'", "\\", "é", "(", ")", "=", ",", ":", "x", "1", "]", "[", "<"}
)  # fmt: skip


@settings(max_examples=60)
@given(data=st.data(), form=st.sampled_from([None, *FORMATS]), thinking=st.booleans())
def test_no_cut_changes_what_is_read(data: st.DataObject, form: Format | None, thinking: bool) -> None:
    """Any text at all, made of what formats are made of: whole calls, halves of marks, marks of other formats."""
    pieces = list(FRAGMENTS)
    if form is not None:
        pieces += 6 * [form.trigger or "{", *form.marks, form.written(calls_of(form)), form.written(calls_of(form)[:1])]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=14)))
    cuts = data.draw(st.lists(st.integers(0, max(1, len(text))), max_size=12))
    once, first = read(text, (), form, thinking=thinking)
    cut, second = read(text, cuts, form, thinking=thinking)
    assert once == cut == read(text, range(len(text)), form, thinking=thinking)[0]
    assert first.reasoning_characters == second.reasoning_characters
    message = Message.of(once)
    assert len(message.calls) == first.calls
    assert sum(call.complete for call in message.calls) == first.whole_calls
    if form is None and not thinking and "<think>" not in text:
        assert message.content == text


def test_reasoning_is_what_is_between_its_marks() -> None:
    for text, thinking in (
        ("<think>\nFirst.\n\nThen.\n</think>\n\nYes.", False),
        ("First.\n\nThen.</think>Yes.", True),
    ):
        parts, reply = read(text, range(len(text)), BY_NAME["hermes"], thinking=thinking)
        assert parts == [Reasoning("First.\n\nThen."), Content("Yes.")]
        assert reply.reasoning_characters == text.index("</think>") + len("</think>")
    assert read("No <think> here.", (), None)[0] == [Content("No <think> here.")], "only at the beginning"
    assert read("cut off", (), None, thinking=True)[0] == [Reasoning("cut off")]


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('<tool_call>{"arguments": {"line": 1}, "name": "read_file"}</tool_call>', "read_file", '{"line": 1}'),
        ('<tool_call>{"name":"read_file","arguments":"{\\"line\\": 1}"}</tool_call>', "read_file", '{"line": 1}'),
        ('<tool_call>\n{"name": "read_file"}\n</tool_call>', "read_file", "{}"),
        ('<tool_call>\n{"name": "read_file", "arguments": {"line":  01}}', "read_file", '{"line":  01}'),
        ('<tool_call>\n{"name": "other", "id": 3, "arguments": null}\n</tool_call>', "other", "{}"),
    ],
    ids=["arguments first", "arguments in a string", "none", "verbatim", "another tool"],
)
def test_what_models_make_of_hermes(text: str, name: str, arguments: str) -> None:
    found = Message.of(read(text, range(len(text)), BY_NAME["hermes"])[0])
    assert found == Message("", "", (Called(name, arguments, True),))


def test_qwens_calls_may_lack_their_mark_and_their_line_breaks() -> None:
    text = "Now.\n<function=read_file><parameter=path>a</parameter><parameter=line>7</parameter></function></tool_call>"
    found = Message.of(read(text, range(len(text)), BY_NAME["qwen-xml"])[0])
    assert found == Message("", "Now.", (Called("read_file", '{"path": "a", "line": 7}', True),))


def test_values_of_xml_follow_the_schema() -> None:
    tool = Tool("f", parameters={"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                                                "b": {"type": "boolean"}, "c": {"type": "string"}}})  # fmt: skip
    reply = Reply(BY_NAME["glm"], tools=[tool])
    pairs = {"a": "12", "b": "True", "c": "12", "d": "12", "e": "text"}
    text = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in pairs.items())
    (call,) = Message.of([*reply.feed(f"<tool_call>f{text}</tool_call>"), *reply.finish()]).calls
    assert json.loads(call.arguments) == {"a": "12", "b": True, "c": "12", "d": 12, "e": "text"}


def test_what_is_no_call_is_content() -> None:
    for form, text in (
        ("hermes", "see <tool_call> and </tool_call> there"),
        ("hermes", '<tool_call>\n{"nam'),
        ("llama-json", '{"answer": {"name": "read_file"}}'),
        ("llama-json", '{"name": "Ada", "parameters": {}}'),
        ("pythonic", "[a link](https://example.org)"),
        ("lfm2", "<|tool_call_start|>nothing<|tool_call_end|>"),
    ):
        assert read(text, range(len(text)), BY_NAME[form])[0] == [Content(text)], form
    reply = Reply(BY_NAME["hermes"], tools=())
    written = BY_NAME["hermes"].written(calls_of(BY_NAME["hermes"]))
    assert joined([*reply.feed(written), *reply.finish()]) == [Content(written)], "without tools nothing is a call"


def test_a_call_behind_a_broken_one_is_read() -> None:
    whole = BY_NAME["hermes"].written([Call("read_file")])
    parts, reply = read("<tool_call>" + whole, (), BY_NAME["hermes"])
    assert Message.of(parts) == Message("", "<tool_call>", (Called("read_file", "{}", True),))
    assert reply.warnings


def test_messages_of_channels() -> None:
    text = (
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>First.<|end|>"
        "<|start|>assistant to=functions.read_file<|channel|>commentary json<|message|>{\"line\": 1}<|call|>"
    )  # fmt: skip
    parts, reply = read(text, range(len(text)), BY_NAME["harmony"])
    assert Message.of(parts) == Message("Think.", "First.", (Called("read_file", '{"line": 1}', True),))
    assert reply.reasoning_characters == len("Think.<|end|>")
    assert read("<|channel|>final<|message|>Yes.", (), BY_NAME["harmony"])[0] == [Content("Yes.")]
