"""From messages and prompts to token ids, through the tokenizer's own chat template."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from headstart.base.errors import InvalidPrompt
from headstart.engine.prompts import within
from headstart.serve.api.errors import Refused, invalid_value
from headstart.serve.api.schemas.requests import MOST_PROMPTS, ChatRequest, MessageField, TokenizeRequest

Encode = Callable[[str | Sequence[int]], tuple[int, ...]]
"""`Bridge.encode`: token ids of a prompt, checked."""

_OURS = frozenset(
    {
        "chat_template", "conversation", "messages", "tokenize", "tools", "documents", "add_generation_prompt",
        "continue_final_message", "padding", "truncation", "max_length", "return_tensors", "return_dict",
        "return_assistant_tokens_mask", "tokenizer_kwargs",
    }
)  # fmt: skip
"""Names that chat_template_kwargs may not take: they are not variables of a template."""


def chat_prompt(
    tokenizer: Any,
    messages: Sequence[MessageField],
    asked: ChatRequest | TokenizeRequest,
    *,
    context: int,
) -> list[int]:
    """The token ids of a conversation.

    asked: says what the template is given.
    context: tokens that there may be, about; of a conversation with far more only the beginning is tokenized.

    Raises:
        Refused: no template, one that refuses the conversation, or options that contradict each other.
        ContextExceeded: it has far more tokens than the context holds.
    """
    if not getattr(tokenizer, "chat_template", None):
        hint = "send the text to /v1/completions, in the form that the model was trained on"
        raise Refused("this model has no chat template", hint=hint, code="no_chat_template", param="messages")
    variables = asked.chat_template_kwargs or {}
    if reserved := sorted(_OURS & variables.keys()):
        hint = "it holds variables of the tokenizer's own template, such as enable_thinking"
        raise invalid_value("chat_template_kwargs", f"chat_template_kwargs may not set {reserved[0]}", hint)
    begin, continued = asked.add_generation_prompt, bool(asked.continue_final_message)
    if continued and begin:
        words = "add_generation_prompt and continue_final_message exclude each other"
        raise invalid_value("continue_final_message", words, "an answer is either begun or continued")
    if continued and messages[-1].role != "assistant":
        words = "continue_final_message continues a message of the assistant, and the last one is not"
        raise invalid_value("continue_final_message", words, "end the messages with the beginning of the answer")
    begin = not continued if begin is None else begin
    try:
        text = tokenizer.apply_chat_template(
            [_message(each) for each in messages],
            add_generation_prompt=begin, continue_final_message=continued, tokenize=False, **variables,
        )  # fmt: skip
    except Exception as error:  # a template is a program: it raises what it likes
        words = f"the model's chat template refuses the conversation: {_first_line(error)}"
        hint = "many templates want user and assistant in turn, and some know no system message"
        raise Refused(words, hint=hint, code="template_refused", param="messages") from error
    # the template writes the special tokens itself
    return list(within(lambda part: tokenizer(part, add_special_tokens=False)["input_ids"], text, context))


def completion_prompts(prompt: object) -> list[str | list[int]]:
    """The prompts of a completion request: one or several, each a text or token ids."""
    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
        return [prompt]
    prompts = list(prompt) if isinstance(prompt, list) else []
    if not prompts:
        raise InvalidPrompt("the prompt is empty", hint="give at least one token to continue from")
    if len(prompts) > MOST_PROMPTS:
        raise Refused(f"{len(prompts)} prompts in one request", hint=f"send at most {MOST_PROMPTS}", param="prompt")
    return prompts


def prompt_text(tokenizer: Any, prompt: str | Sequence[int]) -> str:
    """A prompt as text, to be echoed."""
    if isinstance(prompt, str):
        return prompt
    return str(tokenizer.decode(list(prompt), skip_special_tokens=True))


def _message(message: MessageField) -> dict[str, Any]:
    """As templates take it. `developer` is the new name of `system`, which templates do not know yet."""
    plain: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": message.text,
    }
    if message.name:
        plain["name"] = message.name
    thoughts = message.reasoning_content or message.reasoning
    if thoughts:
        plain["reasoning_content"] = thoughts
    return plain


def _first_line(error: Exception) -> str:
    """What the template says, on one line; errors of the template's machinery are named by type only."""
    if type(error).__name__ == "TemplateError":  # jinja2's: raise_exception of the template itself
        return json.dumps(str(error).partition("\n")[0][:200], ensure_ascii=False)
    return type(error).__name__
