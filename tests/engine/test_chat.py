"""Conversations through a chat template: what is encoded, what is refused, and what is sent where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from support.byte_models import CHAT_TEMPLATE
from support.tiny import byte_tokenizer
from tokenizers.processors import TemplateProcessing

from headstart.base.errors import InvalidPrompt
from headstart.base.prompt_sets import Chat, PromptItem
from headstart.engine.prompts import encode_chat, has_chat_template, templated

ASKED = {"role": "user", "content": "Hi"}


@pytest.fixture
def tokenizer() -> Any:
    found = byte_tokenizer()
    found.chat_template = CHAT_TEMPLATE
    return found


def test_a_conversation_is_written_by_the_template(tokenizer: Any) -> None:
    talk = [ASKED, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go"}]
    assert tokenizer.decode(encode_chat(tokenizer, talk)) == "u:Hi\na:Yes?\nu:Go\na:"


def test_special_tokens_are_not_doubled(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", tokenizer.eos_token_id)]
    )
    assert tokenizer("x")["input_ids"][0] == tokenizer.eos_token_id, "text gets one from the tokenizer"
    tokenizer.chat_template = "<eos>" + CHAT_TEMPLATE
    assert encode_chat(tokenizer, [ASKED]).count(tokenizer.eos_token_id) == 1


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "no message"),
        ("Hi", "no list"),
        (ASKED, "no list"),
        (5, "no list"),
        (["Hi"], 'message 1 has no "role"'),
        ([{"role": "user"}], 'message 1 has no "content"'),
        ([ASKED, {"role": "", "content": "x"}], 'message 2 has no "role"'),
        ([{"role": "user", "content": ["Hi"]}], 'message 1 has no "content"'),
        ([ASKED, {"role": "assistant", "content": "Yes"}], "the assistant's own"),
        ([{"role": "system", "content": "Be kind"}, ASKED], "template refuses.*no system message"),
    ],
)
def test_what_cannot_be_answered_is_refused(tokenizer: Any, messages: Any, says: str) -> None:
    with pytest.raises(InvalidPrompt, match=says) as caught:
        encode_chat(tokenizer, messages)
    assert caught.value.hint


@pytest.mark.parametrize("without", [None, byte_tokenizer()])
def test_a_model_without_a_template(without: Any) -> None:
    assert not has_chat_template(without)
    with pytest.raises(InvalidPrompt, match="no chat template"):
        encode_chat(without, [ASKED])
    with pytest.raises(InvalidPrompt, match=r"question 7: .*no chat template"):
        templated(without, PromptItem("Hi", name="question 7"), chat=True)
    item = PromptItem("Hi", chat=Chat((ASKED,)))
    assert (templated(without, item).prompt, templated(without, item).form) == ("Hi", "turns raw")


def test_only_conversations_go_through_the_template(tokenizer: Any) -> None:
    forms = {
        "template": templated(tokenizer, PromptItem("Hi", chat=Chat((ASKED,)))),
        "raw": templated(tokenizer, PromptItem("Hi")),
    }
    assert {name: item.form for name, item in forms.items()} == {"template": "template", "raw": "raw"}
    assert tokenizer.decode(forms["template"].prompt) == "u:Hi\na:"
    assert forms["raw"].prompt == "Hi"
    assert templated(tokenizer, PromptItem("Hi"), chat=True).prompt == forms["template"].prompt
    assert templated(tokenizer, PromptItem([1, 2]), chat=True).prompt == [1, 2], "token ids stay what they are"
