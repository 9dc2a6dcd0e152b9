"""The prompts of completion requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headstart.base.errors import InvalidPrompt
from headstart.serve.api.errors import Refused
from headstart.serve.api.schemas.requests import MOST_PROMPTS

Encode = Callable[[str | Sequence[int]], tuple[int, ...]]
"""`Bridge.encode`: token ids of a prompt, checked."""


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
