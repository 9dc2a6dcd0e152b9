"""What the four paths with a body take: a conversation, a prompt, a text to count, tokens to write as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from headstart.serve.api.errors import invalid_value
from headstart.serve.api.schemas.common import MOST_LOGPROBS, Common
from headstart.serve.api.schemas.parts import PredictionField, TextPart, text_of
from headstart.serve.api.schemas.strict import Strict
from headstart.serve.api.schemas.tools import CallField, ToolField


class MessageField(Strict):
    """One message of a conversation. What an answer of this server has may be sent back as it is."""

    place: ClassVar[str] = "messages."
    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {
        "refusal": (None,), "annotations": ([],), "audio": (None,), "function_call": (None,), "reasoning_details": (),
    }  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        "function_call": "send tool_calls, and messages of the role tool", "audio": "this model reads text",
    }  # fmt: skip

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[CallField] | None = Field(default=None, description="The calls of an assistant's message.")
    tool_call_id: str | None = Field(default=None, description="Of the call whose result this message is.")
    reasoning_content: str | None = None
    reasoning: str | None = Field(default=None, description="Another name of reasoning_content.")

    @property
    def text(self) -> str:
        """The content."""
        return text_of(self.content)


class ChatRequest(Common):
    """A conversation to continue."""

    messages: list[MessageField] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1, description="The new name of max_tokens; it wins.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)
    add_generation_prompt: bool | None = Field(
        default=None, description="Let the template begin the answer; true by default."
    )
    continue_final_message: bool | None = Field(default=None, description="Continue the last message, an assistant's.")
    chat_template_kwargs: dict[str, Any] | None = Field(default=None, description="Variables of the chat template.")
    tools: list[ToolField] | None = Field(default=None, description="What the model may call.")
    tool_choice: str | dict[str, Any] | None = Field(
        default=None, description='"auto" (by default), "none", "required", one function, or allowed_tools.'
    )
    parallel_tool_calls: bool | None = Field(default=None, description="Several calls in one answer; true by default.")
    reasoning_effort: str | None = Field(default=None, max_length=32, description="As the model's template knows it.")
    thinking_budget: int | None = Field(default=None, ge=0, description="The most tokens of reasoning.")
    include_reasoning: bool | None = Field(default=None, description="False: reasoning is written, and not sent.")

    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def alternatives(self) -> int | None:
        if self.top_logprobs and not self.logprobs:
            raise invalid_value("top_logprobs", "top_logprobs needs logprobs", "set logprobs to true")
        return (self.top_logprobs or 0) if self.logprobs else None


MOST_PROMPTS = 256
COMPLETION_TOKENS = 16
"""`max_tokens` of a completion that does not say; OpenAI's."""


class CompletionRequest(Common):
    """One prompt to continue, or several: each a text, or a list of token ids."""

    harmless: ClassVar[Mapping[str, Sequence[Any]]] = {**Common.harmless, "suffix": ("",)}
    refused: ClassVar[Mapping[str, str]] = {
        **Common.refused, "suffix": "a text is continued at its end only; put what comes after it into the prompt",
        "max_completion_tokens": "completions have max_tokens",
        "top_logprobs": "completions have logprobs, a number",
        "messages": "conversations go to /v1/chat/completions",
    }  # fmt: skip

    prompt: str | list[int] | list[str] | list[list[int]]
    echo: bool | None = Field(default=None, description="The text begins with the prompt.")
    best_of: int | None = Field(default=None, ge=1, description="Must be n, or left out.")
    logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)
    n_probs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS, description="llama.cpp's name of logprobs.")
    prediction: str | PredictionField | None = None  # type: ignore[assignment]

    def limit(self) -> int:
        return COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens

    def alternatives(self) -> int | None:
        return self.n_probs or None if self.logprobs is None else self.logprobs


class TokenizeRequest(Strict):
    """A text (`prompt` of vLLM, `content` of llama.cpp) or a conversation to count."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[MessageField] | None = Field(default=None, min_length=1)
    add_special_tokens: bool | None = Field(default=None, description="For texts; true by default.")
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[ToolField] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Strict):
    """Token ids to write as text."""

    model: str | None = None
    tokens: list[int]


class SlotRequest(Strict):
    """A slot to save, to restore or to erase, as llama.cpp's server has it."""

    model: str | None = None
    filename: str | None = Field(
        default=None, min_length=1, max_length=255, pattern=r"^[^/\\\x00-\x1f]+$",
        description="A name for what is saved, without folders; each key has names of its own.",
    )  # fmt: skip
    cache_salt: str | None = Field(default=None, max_length=256, description="That of the requests whose text it is.")
