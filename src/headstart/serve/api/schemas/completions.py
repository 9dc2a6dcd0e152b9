"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from headstart.serve.api.schemas.common import MOST_LOGPROBS, Common
from headstart.serve.api.schemas.parts import PredictionField

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
