"""`POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headstart.base.errors import ContextExceeded
from headstart.engine.prompts import within
from headstart.serve.api.errors import Refused, invalid_value
from headstart.serve.api.reading.prompts import chat_prompt
from headstart.serve.api.reading.work import Model
from headstart.serve.api.replies import json_reply, takes
from headstart.serve.api.schemas.tokens import DetokenizeRequest, TokenizeRequest
from headstart.serve.api.service import Service

MOST_TOKENS = 65_536
"""Tokens that are counted or written as text at once, about, or as many as the context holds."""


def tokens(service: Service) -> APIRouter:
    """The paths of the tokenizer."""
    router = APIRouter()

    @router.post("/tokenize", **takes(TokenizeRequest, "Count a text or a conversation in tokens"))
    async def tokenize(request: Request) -> Response:
        service.check_served()

        def count(asked: TokenizeRequest, _: Sequence[str], model: Model) -> dict[str, Any]:
            ids = _ids(asked, model)
            found: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": ids}
            if asked.return_token_strs:
                found["token_strs"] = [service.spelling.text(token) for token in ids]
            return found

        return json_reply(await service.read(await request.body(), TokenizeRequest, count))

    @router.post("/detokenize", **takes(DetokenizeRequest, "Write tokens as text"))
    async def detokenize(request: Request) -> Response:
        service.check_served()
        return json_reply(await service.read(await request.body(), DetokenizeRequest, _text))

    return router


def _text(asked: DetokenizeRequest, _: Sequence[str], model: Model) -> dict[str, Any]:
    if len(asked.tokens) > (most := max(MOST_TOKENS, model.context)):
        raise _too_many(most)
    outside = next((token for token in asked.tokens if not 0 <= token < model.vocab_size), None)
    if outside is not None:
        hint = f"this model has the ids 0 to {model.vocab_size - 1}"
        raise invalid_value("tokens", f"token id {outside} is not in the vocabulary", hint)
    text = str(model.tokenizer.decode(asked.tokens, skip_special_tokens=False))
    return {"prompt": text, "content": text}


def _too_many(most: int) -> Refused:
    return Refused(
        "there are more tokens than are read at once",
        hint=f"send parts of at most {most} tokens",
        code="too_many_tokens",
    )


def _ids(asked: TokenizeRequest, model: Model) -> list[int]:
    tokenizer, most = model.tokenizer, max(MOST_TOKENS, model.context)
    given = [each for each in (asked.prompt, asked.content, asked.messages) if each is not None]
    if len(given) != 1:
        raise Refused(
            "give one of prompt, content and messages", hint="prompt and content are texts", code="invalid_value"
        )
    try:
        if asked.messages is not None:
            return chat_prompt(
                tokenizer,
                asked.messages,
                context=most,
                begin_answer=asked.add_generation_prompt,
                continue_last=asked.continue_final_message,
                variables=asked.chat_template_kwargs,
            )
        text = asked.prompt if asked.prompt is not None else asked.content
        if not text:
            return []
        special = asked.add_special_tokens is not False
        return list(within(lambda part: tokenizer(part, add_special_tokens=special)["input_ids"], text, most))
    except ContextExceeded:
        raise _too_many(most) from None
