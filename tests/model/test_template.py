"""A chat template says the same through jinja2 alone as through transformers, or is left to transformers."""

from __future__ import annotations

from typing import Any

import pytest
from support.chat_forms import TEMPLATES, template
from transformers.utils.chat_template_utils import render_jinja_template

from headstart.model.kept.template import rendered

_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "é": "<&>'"}}}
_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"a": "x <b>", "n": [1, None]}}}
_SYSTEM, _USER = {"role": "system", "content": "Say little."}, {"role": "user", "content": "Hello <you> & 漢字\n"}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [_USER],
    "system": [_SYSTEM, _USER, {"role": "assistant", "content": " Hi "}, _USER],
    "reasoning": [_USER, {"role": "assistant", "content": "Hi", "reasoning": "why"}, _USER],
    "thinking": [_USER, {"role": "assistant", "content": "Hi", "reasoning_content": "a", "thinking": "b"}, _USER],
    "tools": [
        _USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": '{"x": 1}', "name": "f", "tool_call_id": "abcdefghi"},
    ],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
}  # fmt: skip
GIVEN: list[dict[str, Any]] = [
    {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True},
    {"bos_token": "<s>", "eos_token": "</s>", "enable_thinking": False, "continue_final_message": False},
]
PIECES = {
    "blocks are trimmed": "  {% for m in messages %}\n  {{ m.role }}\n  {% endfor %}\n  {{- 1 }}",
    "loop controls": "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i > 4 %}{% break %}{% endif %}{{ i }}"
    "{% endfor %}",
    "json": "{{ messages | tojson(indent=2) }}{{ tools | tojson(ensure_ascii=true, sort_keys=true) }}"
    "{{ {'b': 1, 'a': '<é>'} | tojson(separators=(',', ':')) }}",
    "json's errors": "{{ nothing | tojson }}",
    "refuses": "{{ raise_exception('roles must alternate') }}",
    "the day": "{{ strftime_now('%Y-%m-%d') }}",
    "dictionaries": "{{ dict(a=1, **{'b': 2}) }}{{ dict.fromkeys(['x'], 3) }}{{ dict([(1, 2)]) }}",
    "no class in it": "{{ dict.__class__.__mro__ }}",
    "variables": "{% set n = namespace(a=1, self=2) %}{% set n.a = n.a + 1 %}{{ n.a }}{{ n.self }}{{ n.b is defined }}",
    "hidden variables": "{% set n = namespace(_a=1) %}{{ n._a }}",
    "hidden variables again": "{% set n = namespace() %}{% set n._a = 1 %}{{ n._a }}",
    "nothing is changed": "{{ messages.append(1) }}",
    "nor left": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "formats": "{{ '{0.__class__}'.format(1) }}{{ '%s' | format(2) }}",
    "undefined": "[{{ absent }}][{{ documents is none }}][{{ absent.deeper }}]",
    "macros": "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].content) | trim | upper }}",
    "syntax": "{% if %}",
    "numbers": "{{ 7 // 2 }}{{ 1e3 }}{{ true }}{{ none }}{{ messages | length }}{{ messages[-1]['role'] == 'user' }}",
    "what was said": "{{ messages[1:] | map(attribute='role') | join(',') }}{{ messages | selectattr('thinking', "
    "'defined') | list | length }}",
}


def outcome(text: str, messages: Any, tools: Any, given: dict[str, Any], *, ours: bool) -> Any:
    try:
        if ours:
            return rendered(text, messages, tools, given)
        return render_jinja_template([messages], tools=tools, chat_template=text, **given)[0][0]
    except Exception as error:
        return type(error).__name__, "" if type(error).__name__ == "SecurityError" else str(error)


def same(text: str) -> None:
    for messages in CONVERSATIONS.values():
        for tools in (None, [_TOOL]):
            for given in GIVEN:
                found, right = (outcome(text, messages, tools, given, ours=ours) for ours in (True, False))
                assert found is not None
                assert found == right


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_says_the_same(name: str) -> None:
    same(template(name, think="<think>\n"))


@pytest.mark.parametrize("name", PIECES)
def test_what_a_template_may_do_is_the_same(name: str) -> None:
    same(PIECES[name])


class _Text(str):
    """A text with methods of its own, which transformers takes away."""


@pytest.mark.parametrize(
    ("text", "messages", "tools", "given"),
    [
        ("{% generation %}x{% endgeneration %}", [_USER], None, {}),
        ("{%- generation -%}x{%- endgeneration -%}", [_USER], None, {}),
        ("x", [_USER], [len], {}),
        ("x", [{"role": "user", "content": _Text("x")}], None, {}),
        ("x", [{"role": "user", "content": object()}], None, {}),
        ("x", [_USER], None, {"image": object()}),
        ("x", [_USER], None, {"documents": [{"title": "a", "text": "b"}]}),
        ("x", [_USER], None, {"continue_final_message": True}),
    ],
)
def test_what_else_transformers_does_is_left_to_it(text: str, messages: Any, tools: Any, given: dict[str, Any]) -> None:
    assert rendered(text, messages, tools, given) is None


def test_sandboxes_that_let_templates_out_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jinja2.__version__", "3.1.5")
    assert rendered("x", [_USER], None, {}) is None
