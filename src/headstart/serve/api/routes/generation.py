"""`POST /v1/chat/completions` and `POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from headstart.serve.api.answering.forms import ChatWriter, CompletionWriter
from headstart.serve.api.answering.writer import Writer
from headstart.serve.api.reading.work import Caller, Model, Work, chat_work, completion_work
from headstart.serve.api.replies import json_reply, takes
from headstart.serve.api.running import attended, outputs
from headstart.serve.api.schemas.chat import ChatRequest
from headstart.serve.api.schemas.common import Common
from headstart.serve.api.schemas.completions import CompletionRequest
from headstart.serve.api.service import Service, state_of
from headstart.serve.api.stream import EventStream

R = TypeVar("R", bound=Common)


def generation(service: Service) -> APIRouter:
    """The paths that write text."""
    router = APIRouter()

    @router.post("/v1/chat/completions", **takes(ChatRequest, "Continue a conversation"))
    async def chat_completions(request: Request) -> Response:
        work = await _work(service, request, ChatRequest, chat_work)
        return await _answer(service, request, ChatWriter(work, service.head("chatcmpl"), service.spelling))

    @router.post("/v1/completions", **takes(CompletionRequest, "Continue a text"))
    async def completions(request: Request) -> Response:
        work = await _work(service, request, CompletionRequest, completion_work)
        return await _answer(service, request, CompletionWriter(work, service.head("cmpl"), service.spelling))

    return router


async def _work(
    service: Service,
    request: Request,
    schema: type[R],
    reading: Callable[[R, Sequence[str], Model, Caller], Work],
) -> Work:
    """The request as jobs. Raises the errors that the client gets."""
    service.check_served()
    body = await request.body()
    caller = Caller(state_of(request.scope).get("salt", ""), service.deadline())
    return await service.read(body, schema, lambda asked, ignored, model: reading(asked, ignored, model, caller))


async def _answer(service: Service, request: Request, writer: Writer) -> Response:
    answers = service.bridge.submit(writer.work.jobs)
    if writer.form.stream:
        options = service.options
        return EventStream(writer, answers, ping_seconds=options.ping_seconds, stall_seconds=options.stall_seconds)
    async with attended(request.receive, answers) as gone:
        found = await outputs(answers, gone, writer.take)
    return json_reply(writer.whole(found))
