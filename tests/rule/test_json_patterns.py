"""Classes of characters in the patterns of a schema: what they leave out does not come between the quotes of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import pytest
from support.tiny import byte_tokenizer

from headstart.model.tokens.matching import matching_tokenizer
from headstart.rule import compiled_grammar
from headstart.rule.compiled_grammar import Tokens
from headstart.rule.grammar import Grammar
from headstart.rule.grammars import Grammars
from headstart.rule.json_patterns import guarded, guarded_lark, guarded_pattern
from headstart.serve.conversation.call_rules import schema_item
from headstart.serve.conversation.custom import text_item
from headstart.types import Structure

TEXTS = (
    "",
    '"',
    "\\",
    '\\"',
    'a"',
    "a\\b",
    "\n",
    "\t",
    "\x01",
    "\x1b",  # Python counts U+001C to U+001F among spaces, and llguidance does not
    "a",
    "n",
    "u",
    "]",
    "[",
    "é",
    "漢",
    " ",
    "/",
    "^",
)
PATTERNS = (
    r'[^"]*', r"[^\"]*", r"[^\\]*", r'[^"\\]+', r"[^\x22]*", r"[^\n\"]*", r'[^"é]*', r"[^a]*", r"[\x00-\x1f]*",
    r"[^]\"]*", r"[\x00-!#-\[\]-é]*", r"\D*", r"\S*", r"(?:[^\"]|\n)*", r"[^\S\"]*", r"[a-z]*",
    r"[\]\[]*", r"\[[^\"]\]",
)  # fmt: skip


@cache
def grammars() -> tuple[Any, Grammars]:
    tokenizer = byte_tokenizer()
    size, ends = len(tokenizer), frozenset({tokenizer.eos_token_id})
    return tokenizer, Grammars(Tokens(partial(matching_tokenizer, tokenizer, size, ends), size, ends))


def follows(structure: Structure, text: str) -> bool:
    tokenizer, made = grammars()
    place = Grammar.begin(made.compiled(structure))
    for token in tokenizer(text, add_special_tokens=False)["input_ids"]:
        if not place.allows(token):
            return False
        place = place.after((token,))
    return place.allows(tokenizer.eos_token_id)


def of_schema(schema: Any, value: Any) -> bool:
    return follows(Structure.schema(schema), json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_between_quotes_what_it_means(pattern: str) -> None:
    schema = {"type": "string", "pattern": f"^{pattern}$"}
    in_python = re.compile(pattern.replace("[^]", r"[^\]"))
    for text in TEXTS:
        assert of_schema(schema, text) == (in_python.fullmatch(text) is not None), text


def test_the_fault_is_there_without_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """When this fails, llguidance has mended it, and the guard can go."""
    monkeypatch.setattr(compiled_grammar, "guarded_lark", lambda grammar: grammar)
    grammar = 'start: %json {"type": "string", "pattern": "^[^\\"]$"}  // apart from others in the cache'
    assert follows(Structure("lark", grammar), json.dumps('"'))


RAW: dict[str, Callable[[str], Structure]] = {
    "regex": lambda pattern: Structure("regex", pattern),
    "terminal": lambda pattern: Structure("lark", f"start: T\nT: /{pattern}/"),
    "within a rule": lambda pattern: Structure("lark", f"start: (/{pattern}/)?"),
    "in lists": lambda pattern: Structure("lark", f'start: "<" T (";" T)* ">"\nT: /{pattern}/ & /[^;>]*/'),
}


@pytest.mark.parametrize("form", RAW)
@pytest.mark.parametrize("pattern", [*PATTERNS, r"[^\/]*", r"[^\x10\"]*", r".*", r"\W*", r"[\"\\\\\/]*"])
def test_a_class_outside_of_json_means_what_it_means(pattern: str, form: str) -> None:
    """A grammar or a regular expression of the user's own: nothing is spelled as JSON there, and nothing is guarded."""
    in_python, structure = re.compile(pattern.replace("[^]", r"[^\]")), RAW[form](pattern)
    assert guarded_lark(structure.text) == structure.text
    for text in filter(None, TEXTS):  # an empty terminal is none
        fits = in_python.fullmatch(text) is not None
        assert follows(structure, f"<{text};{text}>" if form == "in lists" else text) == fits, text


@pytest.mark.parametrize("kind", ["lark", "regex"])
def test_classes_of_a_tools_own_grammar(kind: Literal["lark", "regex"]) -> None:
    """Its text is a JSON string: what JSON must spell with other characters than these is left out."""
    for pattern in (*PATTERNS, r"[^\/]*", r"[\"\\\\\/]*", r"\/\/[^\/\"]*"):
        given = Structure(kind, f"start: T\nT: /{pattern}/" if kind == "lark" else pattern)
        item, rules = text_item(given, "x", as_json=True)
        whole = Structure("lark", "\n".join([f"start: {item}", *rules]))
        in_python = re.compile(pattern.replace("[^]", r"[^\]"))
        for text in filter(None, (*TEXTS, "//a", '//"', "\\/")):
            fits = in_python.fullmatch(text) is not None and not set(text) & {"\x01", "\x1b"}
            assert follows(whole, json.dumps(text, ensure_ascii=False)) == fits, (pattern, text)


def test_in_a_grammar_of_the_users_own() -> None:
    schema = json.dumps({"type": "string", "pattern": '^[^"]$'})
    grammar = f'start: "%json {{" /%json "/ one\n// %json {schema}\none: %json  {schema} | %json {schema}'
    assert follows(Structure("lark", grammar), '%json {%json ""a"')
    assert not follows(Structure("lark", grammar), '%json {%json ""\\""')
    assert guarded_lark('start: %json {"a": ') == 'start: %json {"a": ', "whatever is wrong with it is said elsewhere"


@pytest.mark.parametrize("alone", [r"\x10", r"\u0010", r"\U00000010", r"\x{10}", r"\u{0010}", "\x10"])
def test_a_character_beside_a_class_does_not_undo_the_guard(alone: str) -> None:
    schema = {"type": "string", "pattern": f'^(?:[^"]|{alone}|b)$'}
    assert of_schema(schema, "a")
    assert not of_schema(schema, '"')


@pytest.mark.parametrize("pattern", [r"\p{C}", r"\P{P}", r"\pC", r"[[:cntrl:]]", r"[\p{C}a]"])
def test_named_classes_hold_too(pattern: str) -> None:
    schema = {"type": "string", "pattern": f"^{pattern}$"}
    assert not any(of_schema(schema, text) for text in ('"', "\\"))
    assert of_schema(schema, "\x01")


def test_in_names_of_properties_and_in_tools_too() -> None:
    schema = {"type": "object", "patternProperties": {'^[^"]$': {"type": "integer"}}, "additionalProperties": False}
    assert of_schema(schema, {"a": 1})
    assert not of_schema(schema, {'"': 1})
    tool = {"type": "object", "properties": {"pattern": {"type": "string", "pattern": '^[^"]$'}}}
    item = Structure("lark", f"start: %json {schema_item(tool, None, lenient=False)}")
    assert follows(item, json.dumps({"pattern": "a"}))
    assert not follows(item, json.dumps({"pattern": '"'}))


def test_what_needs_no_guard_and_what_is_data_stays_as_it_is() -> None:
    for pattern in (r"^[a-z0-9_.-]+$", r"\[a]", r"[\w\s\-/]{2,}", r"(a|b)?\\[x]", "[abc", "", r"[!-~]"):
        assert guarded_pattern(pattern) == pattern
    assert guarded_pattern(r'x[^"]y\[[^]a]z') == r'x[[^"]&&[^\x10]]y\[[[^]a]&&[^\x10]]z'
    schema = {"enum": [{"pattern": "[^a]"}], "properties": {"pattern": {"const": {"pattern": "[^a]"}}, "x": True}}
    assert guarded(schema) == schema
    assert guarded([{"items": {"pattern": "[^a]"}}, 3]) == [{"items": {"pattern": r"[[^a]&&[^\x10]]"}}, 3]
