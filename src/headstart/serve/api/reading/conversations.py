"""A chat request as a `Conversation`, and the prompt of one."""

from __future__ import annotations

from typing import Any

from headstart.serve.api.errors import Refused, invalid_value, unsupported
from headstart.serve.api.schemas.requests import ChatRequest, MessageField, TokenizeRequest
from headstart.serve.api.schemas.tools import choice_of, tools_of
from headstart.serve.conversation.detect import ChatForm
from headstart.serve.conversation.render import RESERVED, NoTemplate, Rendered, TemplateRefused, render
from headstart.serve.conversation.turns import (
    Assistant,
    Conversation,
    System,
    Thinking,
    ToolChoice,
    ToolResult,
    Turn,
    User,
)


def conversation_of(asked: ChatRequest | TokenizeRequest) -> Conversation:
    """What the model is asked.

    Raises:
        Refused: fields that contradict each other, or a tool or a call that is none.
    """
    messages = asked.messages or []
    variables = dict(asked.chat_template_kwargs or {})
    if reserved := sorted(RESERVED & variables.keys()):
        hint = "it holds variables of the tokenizer's own template, such as enable_thinking"
        raise invalid_value("chat_template_kwargs", f"chat_template_kwargs may not set {reserved[0]}", hint)
    begin, continued = asked.add_generation_prompt, bool(asked.continue_final_message)
    if continued and begin:
        words = "add_generation_prompt and continue_final_message exclude each other"
        raise invalid_value("continue_final_message", words, "an answer is either begun or continued")
    if continued and messages[-1].role != "assistant":
        words = "continue_final_message continues a message of the assistant, and the last one is not"
        raise invalid_value("continue_final_message", words, "end the messages with the beginning of the answer")
    tools = tools_of(asked.tools)
    choice, parallel, thinking = ToolChoice(), True, Thinking()
    if isinstance(asked, ChatRequest):
        choice, parallel = choice_of(asked.tool_choice, tools), asked.parallel_tool_calls is not False
        on = variables.get("enable_thinking")
        thinking = Thinking(on if isinstance(on, bool) else None, asked.reasoning_effort, asked.thinking_budget)
    return Conversation(
        tuple(_turn(message) for message in messages), tools, choice, parallel, thinking, variables,
        continued=continued, begun=not continued if begin is None else begin,
    )  # fmt: skip


def _turn(message: MessageField) -> Turn:
    match message.role:
        case "system" | "developer":
            return System(message.text, message.role)
        case "user":
            return User(message.text, message.name or "")
        case "tool":
            return ToolResult(message.text, message.tool_call_id or "", message.name or "")
    calls = tuple(call.value for call in message.tool_calls or ())
    return Assistant(message.text, message.reasoning_content or message.reasoning or "", calls, message.name or "")


def prompt_of(tokenizer: Any, conversation: Conversation, form: ChatForm, *, context: int) -> Rendered:
    """The prompt of a conversation, of whatever interface. context: see `render`.

    Raises:
        Refused: no template, one that refuses the conversation, or tools that it has no place for.
        ContextExceeded: it has far more tokens than the context holds.
    """
    if conversation.tools and form.format is None and form.why and getattr(tokenizer, "chat_template", None):
        hint = "leave the tools out, or serve a model whose template has them"
        raise unsupported("tools", f"this model cannot call tools: {form.why}", hint)
    try:
        return render(tokenizer, conversation, form, context=context)
    except NoTemplate as error:
        raise Refused(error.message, hint=error.hint, code="no_chat_template", param="messages") from error
    except TemplateRefused as error:
        raise Refused(error.message, hint=error.hint, code="template_refused", param="messages") from error
