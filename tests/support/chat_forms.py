"""Short chat templates of our own, in the forms of models, and byte tokenizers that know their marks."""
# ruff: noqa: RUF001 - DeepSeek's marks have wide bars

from __future__ import annotations

import re
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AddedToken, PreTrainedTokenizerFast

from headstart.serve.conversation.formats import BY_NAME
from support.tiny import byte_tokenizer

SPOKEN = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""Marks that tokenizers know as one token that is not special, as Qwen's do."""
_SPECIAL = re.compile(r"<\|[^<>]*?>|<[a-z_]+\|>|<｜[^<>]*｜>|\[[A-Z_]+\]")

_TURNS = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or '' }}
{%- if message.tool_calls and message.content %}
{% endif %}
{%- if message.tool_calls %}CALLS{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
THINK{% endif %}"""
_EACH = "{%- for call in message.tool_calls %}CALL{% if not loop.last %}BETWEEN{% endif %}{% endfor %}"
_NAMED = "{{ call.function.name }}"
_JSON = "{{ call.function.arguments | tojson }}"
_XML = "{% for key, value in call.function.arguments.items() %}KEY{% endfor %}"
_TEXT = "{{ value if value is string else value | tojson }}"
_GEMMA = (
    '{% for key, value in call.function.arguments.items() %}{{ key }}:{% if value is string %}<|"|>{{ value }}<|"|>'
    "{% else %}{{ value }}{% endif %}{% if not loop.last %},{% endif %}{% endfor %}"
)
_CALLS: dict[str, tuple[str, str, str, str]] = {
    "hermes": ("", f'<tool_call>\n{{"name": "{_NAMED}", "arguments": {_JSON}}}\n</tool_call>', "\n", ""),
    "qwen-xml": (
        "", f"<tool_call>\n<function={_NAMED}>\n"
        + _XML.replace("KEY", f"<parameter={{{{ key }}}}>\n{_TEXT}\n</parameter>\n")
        + "</function>\n</tool_call>", "\n", "",
    ),
    "llama-json": ("", f'{{"name": "{_NAMED}", "parameters": {_JSON}}}', "", ""),
    "mistral-args": ("", f"[TOOL_CALLS]{_NAMED}[ARGS]{_JSON}", "", ""),
    "mistral-list": (
        "[TOOL_CALLS][", f'{{"name": "{_NAMED}", "arguments": {_JSON}, "id": "{{{{ call.id }}}}"}}', ", ", "]",
    ),
    "gemma4": ("", f"<|tool_call>call:{_NAMED}" + "{{ '{' }}" + _GEMMA + "}<tool_call|>", "", ""),
    "glm": (
        "", f"<tool_call>{_NAMED}\n"
        + _XML.replace("KEY", f"<arg_key>{{{{ key }}}}</arg_key>\n<arg_value>{_TEXT}</arg_value>\n") + "</tool_call>",
        "\n", "",
    ),
    "deepseek-v3.1": (
        "<｜tool▁calls▁begin｜>", f"<｜tool▁call▁begin｜>{_NAMED}<｜tool▁sep｜>{_JSON}<｜tool▁call▁end｜>", "",
        "<｜tool▁calls▁end｜>",
    ),
    "kimi": (
        "<|tool_calls_section_begin|>",
        f"<|tool_call_begin|>functions.{_NAMED}:{{{{ loop.index0 }}}}<|tool_call_argument_begin|>{_JSON}"
        "<|tool_call_end|>", "", "<|tool_calls_section_end|>",
    ),
}  # fmt: skip
TEMPLATES = tuple(_CALLS)


def template(name: str, *, think: str = "") -> str:
    """A chat template that writes calls in a format of `TEMPLATES`. think: what it begins an answer with."""
    begin, call, between, end = _CALLS[name]
    calls = begin + _EACH.replace("CALL", call).replace("BETWEEN", between) + end
    return _TURNS.replace("CALLS", calls).replace("THINK", think)


def unwritten(tools: str) -> str:
    """A chat template that leaves calls out. tools: how it shows tools."""
    return re.sub(r"\{%- if message.tool_calls.*?endif %\}", "", _TURNS, flags=re.DOTALL).replace(
        "{{ tool | tojson }}", tools
    ).replace("THINK", "")  # fmt: skip


def chat_tokenizer(template: str | None, *formats: str, special: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """A byte tokenizer with this template and the marks of these formats. special: further special tokens."""
    tokenizer = byte_tokenizer()
    texts = [text for name in formats for text in BY_NAME[name].marks]
    marks = dict.fromkeys(mark for text in texts for mark in _SPECIAL.findall(text))
    names: Any = ["<|im_start|>", "<|im_end|>", *marks, *special]
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [AddedToken(each, special=True) for each in dict.fromkeys(names)]}
    )
    tokenizer.add_tokens([AddedToken(each, special=False) for each in SPOKEN])
    tokenizer.chat_template = template
    return tokenizer


def text_tokenizer(*texts: str) -> PreTrainedTokenizerFast:
    """A tokenizer that knows no mark: its tokens are pieces of these texts, of whatever length, and all bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, min_frequency=1, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
