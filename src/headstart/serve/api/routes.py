"""The paths: generation, the tokenizer, what runs here, and pages. What they take and give is translated elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from headstart.base.errors import ContextExceeded
from headstart.engine.prompts import within
from headstart.serve.api.answering.forms import ChatWriter, CompletionWriter
from headstart.serve.api.answering.writer import Answering
from headstart.serve.api.errors import ERRORS, Refused, failure_reply, json_reply, takes
from headstart.serve.api.reading.conversations import conversation_of, prompt_of
from headstart.serve.api.reading.work import Caller, Model, Work, chat_work, check_known, completion_work
from headstart.serve.api.schemas.common import Common
from headstart.serve.api.schemas.requests import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from headstart.serve.api.service import Service, state_of
from headstart.serve.api.stream import EventStream, attended, outputs
from headstart.serve.conversation.reply import ReplyForm
from headstart.serve.metrics import dashboard
from headstart.serve.names import public_name

R = TypeVar("R", bound=Common)

# -- what writes text -------------------------------------------------------------------------------------------------


def generation(service: Service) -> APIRouter:
    """`POST /v1/chat/completions` and `POST /v1/completions`."""
    router = APIRouter()

    @router.post("/v1/chat/completions", **takes(ChatRequest, "Continue a conversation"))
    async def chat_completions(request: Request) -> Response:
        work = await _work(service, request, ChatRequest, chat_work)
        return await written(service, request, ChatWriter(work, service.head("chatcmpl"), service.ready.spelling))

    @router.post("/v1/completions", **takes(CompletionRequest, "Continue a text"))
    async def completions(request: Request) -> Response:
        work = await _work(service, request, CompletionRequest, completion_work)
        return await written(service, request, CompletionWriter(work, service.head("cmpl"), service.ready.spelling))

    return router


async def _work(
    service: Service, request: Request, schema: type[R], reading: Callable[[R, Sequence[str], Model, Caller], Work]
) -> Work:
    """The request as jobs. Raises the errors that the client gets."""
    caller = caller_of(service, request)
    return await service.read(request, schema, lambda asked, ignored, model: reading(asked, ignored, model, caller))


def caller_of(service: Service, request: Request) -> Caller:
    """Who asks, and until when."""
    return Caller(state_of(request.scope).get("salt", ""), service.deadline())


async def written(
    service: Service, request: Request, writer: Answering, before_end: Callable[[], Awaitable[None]] | None = None
) -> Response:
    """The answer, whole or as a stream. before_end: see `EventStream`."""
    await service.prepare(writer.work.jobs)
    answers = service.ready.bridge.submit(writer.work.jobs)
    if writer.form.stream:
        options = service.options
        return EventStream(
            writer, answers, ping_seconds=options.ping_seconds, stall_seconds=options.stall_seconds,
            before_end=before_end,
        )  # fmt: skip
    async with attended(request.receive, answers) as gone:
        found = await outputs(answers, gone, writer.take)
    whole = writer.whole(found)
    if before_end is not None:
        await before_end()
    return json_reply(whole)


# -- the tokenizer ----------------------------------------------------------------------------------------------------

MOST_TOKENS = 65_536
"""Tokens that are counted or written as text at once, about, or as many as the context holds."""


def tokens(service: Service) -> APIRouter:
    """`POST /tokenize` and `POST /detokenize`."""
    router = APIRouter()

    @router.post("/tokenize", **takes(TokenizeRequest, "Count a text or a conversation in tokens"))
    async def tokenize(request: Request) -> Response:
        def count(asked: TokenizeRequest, _: Sequence[str], model: Model) -> dict[str, Any]:
            ids = _ids(asked, model)
            found: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": ids}
            if asked.return_token_strs:
                found["token_strs"] = [service.ready.spelling.text(token) for token in ids]
            return found

        return json_reply(await service.read(request, TokenizeRequest, count))

    @router.post("/detokenize", **takes(DetokenizeRequest, "Write tokens as text"))
    async def detokenize(request: Request) -> Response:
        return json_reply(await service.read(request, DetokenizeRequest, _text))

    return router


def _text(asked: DetokenizeRequest, _: Sequence[str], model: Model) -> dict[str, Any]:
    if len(asked.tokens) > (most := max(MOST_TOKENS, model.context)):
        raise _too_many(most)
    check_known("tokens", asked.tokens, model.vocab_size, "token id {} is not in the vocabulary")
    text = str(model.tokenizer.decode(asked.tokens, skip_special_tokens=False))
    return {"prompt": text, "content": text}


def _too_many(most: int) -> Refused:
    hint = f"send parts of at most {most} tokens"
    return Refused("there are more tokens than are read at once", hint=hint, code="too_many_tokens")


def _ids(asked: TokenizeRequest, model: Model) -> list[int]:
    tokenizer, most = model.tokenizer, max(MOST_TOKENS, model.context)
    given = [each for each in (asked.prompt, asked.content, asked.messages) if each is not None]
    if len(given) != 1:
        hint = "prompt and content are texts"
        raise Refused("give one of prompt, content and messages", hint=hint, code="invalid_value")
    try:
        if asked.messages is not None:
            return list(prompt_of(tokenizer, conversation_of(asked), model.chat, context=most).tokens)
        text = asked.prompt if asked.prompt is not None else asked.content
        if not text:
            return []
        special = asked.add_special_tokens is not False
        return list(within(lambda part: tokenizer(part, add_special_tokens=special)["input_ids"], text, most))
    except ContextExceeded:
        raise _too_many(most) from None


# -- what runs here, and how it is ------------------------------------------------------------------------------------


def status(service: Service) -> APIRouter:
    """`GET /health`, `/v1/models` and `/metrics`."""
    router = APIRouter(responses=ERRORS)

    @router.get("/health", summary="Whether requests are answered")
    async def health() -> Response:
        trouble = service.trouble
        if trouble is not None:
            return failure_reply(trouble, status=trouble.code, uptime=service.uptime)
        return json_reply({"status": "ok"})

    @router.get("/v1/models", summary="The model that is served, by each of its names")
    async def models() -> Response:
        found = _models(service)
        page = {"first_id": found[0]["id"], "last_id": found[-1]["id"], "has_more": False}  # as Anthropic's API has it
        return json_reply({"object": "list", "data": found, **page})

    @router.get("/v1/models/{name:path}", summary="The model that is served, by one of its names")
    async def model(name: str) -> Response:
        found = _models(service)
        service.check_model(name)
        return json_reply(next(each for each in found if each["id"] == name))

    @router.get("/metrics", summary="Counters for Prometheus")
    async def metrics() -> Response:
        counted = service.ready.metrics
        if counted is None:
            raise Refused("no metrics are kept", hint="see docs/guides/operate.md", status=404, code="not_found")
        data, kind = counted.exposition()
        return Response(data, media_type=kind)

    @router.get("/metrics/grafana.json", summary="A dashboard of these metrics, to be imported by Grafana")
    async def grafana() -> Response:
        return Response(dashboard(), media_type="application/json")

    return router


_SHOWN = (
    "rule", "pacing", "dtype", "quantize", "kv_cache_dtype", "decoder", "width_invariant", "vocab_size",
    "max_length", "max_batch_size",
    "prefix_cache", "spelling",
)  # fmt: skip
"""What `/v1/models` tells of `Engine.describe`, as it is."""


def _models(service: Service) -> list[dict[str, Any]]:
    ready = service.ready
    about, model = ready.bridge.describe(), ready.model
    ours = {each: about[each] for each in _SHOWN} | {
        "target": public_name(str(about["target"])),
        "drafter": public_name(str(about["drafter"])),
        "sources": [name for name in model.sources if name != "none"],
        "chat": bool(getattr(model.tokenizer, "chat_template", None)),
        "tools": None if model.chat.format is None else model.chat.format.name,
        "reasoning": ReplyForm(model.chat.format, model.chat.think).reasons,
        "defaults": asdict(model.defaults),
        "versions": {name: version(name) for name in ("headstart", "torch", "transformers")},
    }
    began = datetime.fromtimestamp(service.started, UTC).isoformat()
    shared = {"object": "model", "created": service.started, "owned_by": "headstart"}
    shared |= {"type": "model", "created_at": began, "lifecycle": "active"}
    return [
        {"id": name, "display_name": name, **shared, "max_model_len": about["max_length"], "headstart": ours}
        for name in ready.names
    ]


# -- pages for people -------------------------------------------------------------------------------------------------

Pages = Mapping[str, Callable[[], str]]
"""By path: what writes the page, a whole HTML document that asks for nothing but this server's own paths."""

_HEADERS = {
    "cache-control": "no-cache",  # requested again each time, and sent only if it has changed
    "vary": "accept-encoding",
    "content-security-policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",  # beside the page's own
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class _Built:
    plain: bytes
    zipped: bytes
    tag: str
    """Of HTTP: another text has another."""

    @classmethod
    def of(cls, write: Callable[[], str]) -> _Built:
        plain = write().encode("utf-8")
        return cls(plain, gzip.compress(plain, 6, mtime=0), f'W/"{hashlib.sha256(plain).hexdigest()[:24]}"')


def pages(found: Pages) -> APIRouter:
    """The paths of these pages, for GET and HEAD. They need no key, and say nothing of what is served."""
    router = APIRouter()
    built: dict[str, _Built] = {}

    def page(path: str, write: Callable[[], str]) -> None:
        @router.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
        async def answer(request: Request) -> Response:
            if path not in built:
                built[path] = await asyncio.to_thread(_Built.of, write)
            return _page(built[path], request)

    for path, write in found.items():
        page(path, write)
    return router


def _page(page: _Built, request: Request) -> Response:
    headers = {**_HEADERS, "etag": page.tag}
    if page.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = page.plain
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        body, headers["content-encoding"] = page.zipped, "gzip"
    return Response(body, media_type="text/html", headers=headers)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
