"""`POST /tokenize` and `POST /detokenize`, as vLLM and llama.cpp have them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from headstart.serve.api.schemas.chat import MessageField
from headstart.serve.api.schemas.strict import Strict


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
    return_token_strs: bool | None = None


class DetokenizeRequest(Strict):
    """Token ids to write as text."""

    model: str | None = None
    tokens: list[int]
