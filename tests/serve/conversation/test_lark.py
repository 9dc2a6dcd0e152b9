"""What a grammar lets a model write, the reader reads: in every format, whatever the model would like to say."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import pytest
from support.chat_forms import chat_tokenizer, text_tokenizer

from headstart.base.errors import InvalidGrammar
from headstart.model.tokens.matching import matching_tokenizer
from headstart.rule.compiled_grammar import Tokens
from headstart.rule.grammar import Grammar
from headstart.rule.grammars import Grammars
from headstart.serve.conversation import lark
from headstart.serve.conversation.detect import ChatForm, Marks
from headstart.serve.conversation.formats import FORMATS, Format, Think
from headstart.serve.conversation.lark import Constraint, constraint_of
from headstart.serve.conversation.parts import Message
from headstart.serve.conversation.reply import Reply
from headstart.serve.conversation.turns import Call, Conversation, Thinking, Tool, ToolChoice, User
from headstart.types import Structure

llguidance = pytest.importorskip("llguidance")

THINK = Think("<think>", "</think>")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"}, "mode": {"enum": ["r", "w"]}, "line": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}}, "more": {"type": "object"},
    },
    "required": ["path", "line"],
    "additionalProperties": False,
}  # fmt: skip
TOOLS = (Tool("read_file", "Reads.", SCHEMA), Tool("nothing", "", {"type": "object", "properties": {}}), Tool("any"))
ARGUMENTS = {"path": 'a<x>\n"q"', "mode": "w", "line": 41, "tags": ["p", "q"], "more": {"k": [1, None]}}
REQUIRED = Conversation((User("a"),), TOOLS, ToolChoice("required"))


class Model:
    """A tokenizer with a format's marks, and what a grammar lets come."""

    def __init__(self, form: Format, *, marks: bool = True) -> None:
        calls = [Call("read_file", json.dumps(ARGUMENTS), "call00001"), Call("any")]
        self.tokenizer = chat_tokenizer(None, form.name) if marks else text_tokenizer(form.written(calls))
        think = None if form.body == "channels" else THINK
        self.form = ChatForm(form, "", think=think, marks=Marks.of(self.tokenizer))
        ends = {int(self.tokenizer.eos_token_id), *self.form.marks.ids.keys() & {"<|call|>"}}
        self._ends = {self.form.marks.ids.get(end, end) for end in ends}  # type: ignore[call-overload]
        endings = (form.value_close, form.quote, '"', "'", "</think>", "<|end|>", "}", ")")
        self._endings = [self.tokenizer(each, add_special_tokens=False)["input_ids"] for each in endings if each]
        self.tokens = matching_tokenizer(self.tokenizer, len(self.tokenizer), self._ends)

    def held(self, conversation: Conversation, **more: Any) -> Constraint:
        return constraint_of(conversation, self.form, self.tokenizer, **{"thinking": False, **more})

    def matcher(self, structure: Structure, prefix: str = "") -> Any:
        found = llguidance.LLMatcher(self.tokens, prefix + structure.text, log_level=0)
        assert not found.is_error(), found.get_error()
        return found

    def takes(self, structure: Structure, text: str, cut: int = 10**6) -> bool:
        """Whether the grammar takes a text, in tokens of pieces of so many characters."""
        matcher = self.matcher(structure, '%llguidance {"no_forcing": true}\n')
        pieces = [text[at : at + cut] for at in range(0, len(text), cut)] if cut < len(text) else [text]
        ids = [token for each in pieces for token in self.tokenizer(each, add_special_tokens=False)["input_ids"]]
        return matcher.try_consume_tokens(ids) == len(ids) and bool(matcher.is_accepting())

    def said(self, structure: Structure, seed: int) -> str | None:
        """A text that a random model writes; None where it does not end soon."""
        chance, matcher, ids = random.Random(seed), self.matcher(structure), []
        mask = np.zeros((1, (self.tokens.vocab_size + 31) // 32), dtype=np.int32)
        for _ in range(1500):
            matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            bits = np.unpackbits(mask[0].view(np.uint8), bitorder="little")[: len(self.tokenizer)]
            found = [int(token) for token in np.flatnonzero(bits) if token not in self._ends]
            if not found or (bits[list(self._ends)].any() and chance.random() < 0.5):
                return str(self.tokenizer.decode(ids, skip_special_tokens=False))
            if len(found) > 40:  # free text: what ends it here, or a letter
                ending = [each for each in self._endings if matcher.validate_tokens(each) == len(each)]
                letters = [token for token in found if chr(token % 128).isalnum() and token < 188] or found
                added = chance.choice(ending) if ending and chance.random() < 0.5 else [chance.choice(letters)]
            else:
                added = [chance.choice(found)]
            ids += added
            assert matcher.try_consume_tokens(added) == len(added), matcher.get_error()
        return None


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_what_may_be_written_can_be_read(form: Format) -> None:
    model = Model(form)
    held = model.held(REQUIRED)
    assert held.structure is not None
    assert not held.warnings
    calls = [Call("read_file", json.dumps(ARGUMENTS), "call00001"), Call("nothing"), Call("any", '{"a": 1}')]
    calls = [Call(each.name, each.arguments, f"call0000{n}") for n, each in enumerate(calls)]
    written = form.written(calls if form.parallel else calls[:1])
    assert model.takes(held.structure, written.removesuffix("<|call|>")), "what the format writes may come"
    whole = 0
    for seed in range(12):
        text = model.said(held.structure, seed)
        if text is None:
            continue
        reply = Reply(form, model.form.think, tools=TOOLS)
        found = Message.of([*reply.feed(text), *reply.finish()])
        assert not reply.warnings, text
        assert not found.content, text
        assert found.calls, text
        for call in found.calls:
            assert call.complete, text
            arguments = json.loads(call.arguments)
            if call.name == "read_file":
                assert {"path", "line"} <= arguments.keys() <= SCHEMA["properties"].keys()
                assert isinstance(arguments["line"], int)
            whole += 1
    assert whole > 3


HERMES = next(form for form in FORMATS if form.name == "hermes")


@pytest.fixture(scope="module")
def hermes() -> Model:
    return Model(HERMES)


def test_a_choice_of_tools(hermes: Model) -> None:
    any_, named = Call("any"), Call("read_file", '{"path": "a", "line": 1}')
    auto = hermes.held(Conversation((User("a"),), TOOLS))
    assert auto.structure is not None
    assert auto.structure.trigger == (hermes.form.marks.ids["<tool_call>"],), "text up to it is free"
    assert hermes.takes(auto.structure, HERMES.written([any_]).removeprefix("<tool_call>"))
    one = hermes.held(Conversation((User("a"),), TOOLS, ToolChoice("required", ("read_file",), one=True))).structure
    assert one is not None
    assert [hermes.takes(one, HERMES.written(calls)) for calls in ([named], [any_], [named, named])] == [1, 0, 0]
    none = hermes.held(Conversation((User("a"),), TOOLS, ToolChoice("none")))
    assert (none.structure, none.forbidden) == (None, hermes.form.marks.ids["<tool_call>"])
    single = hermes.held(Conversation((User("a"),), TOOLS, parallel=False))
    assert single.stop == ("</tool_call>",)
    required = hermes.held(Conversation((User("a"),), TOOLS, ToolChoice("required"), parallel=False)).structure
    assert required is not None
    assert [hermes.takes(required, HERMES.written(calls)) for calls in ([named], [named, any_])] == [1, 0]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_calls_that_need_not_come_are_held_to_their_tools_without_a_token_that_begins_them(form: Format) -> None:
    """The text is free; once the beginning of a call stands there, in whatever tokens, the call is the tool's."""
    model = Model(form, marks=form.body == "channels")
    auto = model.held(Conversation((User("a"),), TOOLS))
    assert auto.structure is not None
    assert (auto.structure.trigger, auto.stop, auto.warnings) == ((), (), ())
    call = form.written([Call("read_file", json.dumps(ARGUMENTS), "call00001")]).removesuffix("<|call|>")
    final, before = "<|channel|>final<|message|>", "" if form.at_start else "See [1] <a {b}>:\n"
    if form.body == "channels":
        before = f"<|channel|>analysis<|message|>{before}<|end|><|start|>assistant"
    said = final if form.body == "channels" else ""
    texts = ["", f"{said}Well.", f"{said}No [x] {{y}} <tool z>.", before + call]
    wrong = [before + call.replace("41", '"41"'), before + call.replace("path", "pat"), before + call[: len(call) // 2]]
    for cut in (10**6,) if form.body == "channels" else (1, 3, 10**6):
        assert [model.takes(auto.structure, text, cut) for text in texts] == [True] * len(texts), cut
        assert [model.takes(auto.structure, text, cut) for text in wrong] == [False] * len(wrong), cut
    if form.body != "channels":
        thought = model.held(Conversation((User("a"),), TOOLS), thinking=True).structure
        assert thought is not None
        texts = ["Hm.", f"Hm.</think>\n\n{texts[2]}", f"Hm.</think>\n\n{texts[3]}", f"Hm.</think>\n\n{wrong[0]}"]
        assert [model.takes(thought, text) for text in texts] == [True, True, True, False]
    reply = Reply(form, model.form.think, tools=TOOLS)
    (found,) = Message.of([*reply.feed(before + call), *reply.finish()]).calls
    assert found.complete
    single = model.held(Conversation((User("a"),), TOOLS, parallel=False)).structure
    assert single is not None
    more = "" if form.body == "channels" else call
    assert [model.takes(single, before + call + each) for each in ("", more + " ")] == [True, False]


def test_whether_calls_that_need_not_come_are_held_is_the_servers_choice(
    hermes: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Conversation((User("a"),), TOOLS)
    assert hermes.held(asked, constrain="never") == Constraint()
    strict = Conversation((User("a"),), (Tool("f", strict=True),))
    assert hermes.held(strict, constrain="never").structure is not None
    assert hermes.held(REQUIRED, constrain="never").structure is not None
    monkeypatch.setattr(lark, "find_spec", lambda _: None)
    assert "llguidance" in hermes.held(asked).warnings[0]
    assert hermes.held(asked, constrain="always").structure is not None


def test_an_answer_beside_tools_and_behind_reasoning(hermes: Model) -> None:
    answer = Structure.schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    both = hermes.held(Conversation((User("a"),), TOOLS), answer=answer).structure
    assert both is not None
    texts = ('{"a": 1}', HERMES.written([Call("any")]), '<think>hm</think>\n\n{"a": 1}', "Well.")
    assert [hermes.takes(both, text) for text in texts] == [1, 1, 1, 0]
    close = (hermes.form.marks.ids["</think>"],)
    open_ = hermes.held(Conversation((User("a"),)), thinking=True, answer=answer).structure
    assert open_ is not None
    assert open_.after == close
    assert [hermes.takes(open_, text) for text in ('\n\n{"a": 1}', '{"a": 1}', "Well.")] == [1, 1, 0]
    budget = Conversation((User("a"),), thinking=Thinking(budget=7))
    assert hermes.held(budget, thinking=True).structure == Structure("text", after=close, thinking=7)
    opened = hermes.held(budget)
    assert (opened.opens, opened.structure) == ("<think>\n", Structure("text", after=close, thinking=7))


def test_schemas_that_cannot_be_followed(hermes: Model) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
    held = hermes.held(Conversation((User("a"),), (Tool("f", "", schema),), ToolChoice("required")))
    assert held.structure is not None
    assert "f" in held.warnings[0]
    assert hermes.takes(held.structure, HERMES.written([Call("f", '{"b": 2}')])), "any object then"
    with pytest.raises(InvalidGrammar):
        hermes.held(Conversation((User("a"),), (Tool("f", "", schema, strict=True),), ToolChoice("required")))


PATCH = r"""start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: "*** Update File: " name LF change+ | "*** Delete File: " name LF
name: /(.+)/
change: ("+" | "-" | "@@ "i) /(.*)/ LF -> line
%import common.LF
"""
PATCHED = '*** Begin Patch\n*** Update File: a/b.py\n@@ def f():\n-\tx = "\\n"\n+\n*** End Patch\n'


@pytest.mark.parametrize("name", ["hermes", "qwen-xml", "mistral-args", "gemma4", "deepseek-dsml", "glm", "harmony"])
def test_a_text_that_a_tool_takes_follows_its_grammar(name: str) -> None:
    """However the form spells it: as a JSON string, where a line break is two characters, or as it is."""
    model = Model(next(form for form in FORMATS if form.name == name))
    form = model.form.format
    assert form is not None
    properties = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    for grammar, right, wrong in (
        (Structure("lark", PATCH), PATCHED, [PATCHED.replace("-\t", "*\t"), PATCHED.removesuffix("h\n"), ""]),
        (Structure("lark", "start: ANY\nANY: /[\\s\\S]+/"), 'a < b\n\n\\"', [""]),
        (Structure("regex", r'^(?:[a-z]+="[^"\n]*"\s?){2,3}$'), 'a="\u00e9\\"\nb="/"', ['a="b"', 'a="b\n"b=""']),
    ):
        tools = (Tool("patch", "", properties, grammar=grammar),)
        for choice in (ToolChoice("required"), ToolChoice()):
            held = model.held(Conversation((User("a"),), tools, choice), constrain="never")
            assert held.structure is not None
            assert not held.warnings
            begun = form.trigger if held.structure.trigger else ""
            texts = [form.written([Call("patch", json.dumps({"input": text}))]) for text in (right, *wrong)]
            texts = [text.removeprefix(begun).removesuffix("<|call|>") for text in texts]
            assert [model.takes(held.structure, text) for text in texts] == [True, *(False for _ in wrong)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b", "start"), ("start: <tool>", "cannot be read"), ("start[lazy]: /a/", "attributes"),
        ('start: "a"\n%ignore " "', "%ignore"), ("start: /(?=a)b/", "(?=a"), ("start: /[a&&b]/", "sets"),
        ("start: /a/m", "flag m"), ("start: LF\n%import common.NOTHING", "NOTHING"), ("start: other", "other"),
    ],
)  # fmt: skip
def test_grammars_of_tools_that_cannot_be_followed(hermes: Model, text: str, words: str) -> None:
    tools = (Tool("patch", grammar=Structure("lark", text)),)
    with pytest.raises(InvalidGrammar, match=re.escape(words)):
        hermes.held(Conversation((User("a"),), tools))


def test_the_masks_of_a_text_with_calls_depend_on_its_tokens_alone() -> None:
    """Whatever was asked of copies before: of guesses that were refused, and of other texts."""
    form = next(form for form in FORMATS if form.name == "llama-json")
    model = Model(form, marks=False)
    structure = model.held(Conversation((User("a"),), TOOLS)).structure
    assert structure is not None
    ends = frozenset(model._ends)
    compiled = Grammars(Tokens(lambda: model.tokens, len(model.tokenizer), ends)).compiled(structure)
    text = form.written([Call("read_file", json.dumps(ARGUMENTS))])
    guesses = [model.tokenizer(guess)["input_ids"] for guess in ("no", '{"name": "any", "parameters": {"', text)]
    for spelled in ([text], list(text)):
        ids = [token for piece in spelled for token in model.tokenizer(piece)["input_ids"]]
        place = Grammar.begin(compiled)
        for number, token in enumerate(ids):
            for guess in guesses[number % 3 :: 3]:
                assert place.after(guess).mask is None or place.allows(guess[0])
            fresh = compiled.fresh(now=True)
            assert fresh.try_consume_tokens(ids[:number]) == number
            expected, mask = Grammar(compiled, None, fresh).mask, place.mask
            assert mask is not None
            assert (mask == expected).all()
            place = place.after((token,))
