"""The paths that agents use beside chat: OpenAI's Responses and Anthropic's Messages."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from headstart.base.errors import InvalidFile
from headstart.serve.api.answering.single import MessagesWriter, ResponsesWriter
from headstart.serve.api.errors import ERRORS, Refused, invalid_value, json_reply, takes
from headstart.serve.api.reading.agents import ResponsesWork, count, messages_work, responses_work
from headstart.serve.api.reading.work import Model
from headstart.serve.api.routes import caller_of, written
from headstart.serve.api.schemas.messages import CountRequest, MessagesRequest
from headstart.serve.api.schemas.responses import Item, ResponsesRequest
from headstart.serve.api.service import Service, state_of
from headstart.serve.responses_store import Kept

log = logging.getLogger("headstart.serve")


def agents(service: Service) -> APIRouter:
    """`/v1/messages`, its `count_tokens`, and `/v1/responses` with what is kept of it."""
    router = APIRouter()

    @router.post("/v1/messages", **takes(MessagesRequest, "Continue a conversation, as Anthropic's API does"))
    async def messages(request: Request) -> Response:
        caller = caller_of(service, request)
        work = await service.read(
            request, MessagesRequest, lambda asked, ignored, model: messages_work(asked, ignored, model, caller)
        )
        ready = service.ready
        return await written(
            service, request, MessagesWriter(work, ready.spelling, ready.names[0], ready.model.context)
        )  # fmt: skip

    @router.post("/v1/messages/count_tokens", **takes(CountRequest, "Count the tokens of a conversation"))
    async def count_tokens(request: Request) -> Response:
        return json_reply({"input_tokens": await service.read(request, CountRequest, count)})

    @router.post("/v1/responses", **takes(ResponsesRequest, "Continue a conversation, as OpenAI's Responses do"))
    async def responses(request: Request) -> Response:
        caller, owner = caller_of(service, request), _owner(request)

        def before(number: str) -> list[dict[str, Any]] | None:
            kept = service.ready.responses.find_now(owner, number)
            return None if kept is None else kept.items

        def work(asked: ResponsesRequest, ignored: Sequence[str], model: Model) -> ResponsesWork:
            return responses_work(asked, ignored, model, caller, before)

        read = await service.read(request, ResponsesRequest, work)
        ready = service.ready
        writer = ResponsesWriter(read.work, ready.spelling, ready.names[0], read.shown, read.names)

        async def keep() -> None:
            items = [*_with_ids(read.items), *writer.response["output"]]
            try:
                await ready.responses.keep(owner, writer.response, items)
            except InvalidFile as error:  # a full disk must not cost the client an answer that is complete
                log.error("a response was not stored: %s", error)
                writer.response["store"] = False
                words = "the response could not be stored: previous_response_id cannot name it"
                writer.response["warnings"] = [*writer.response.get("warnings", ()), words]

        return await written(service, request, writer, before_end=keep if read.kept else None)

    @router.post("/v1/responses/compact", summary="Refused: conversations are not compacted", responses=ERRORS)
    async def compact() -> Response:
        hint = "send a shorter conversation: agents can summarise it with a request of their own"
        raise Refused("conversations are not compacted here", hint=hint, status=404, code="unsupported_path")

    @router.get("/v1/responses/{number}", summary="A response that was kept", responses=ERRORS)
    async def response(request: Request, number: str) -> Response:
        return json_reply((await _kept(service, request, number)).response)

    @router.get("/v1/responses/{number}/input_items", summary="What such a response was asked", responses=ERRORS)
    async def input_items(request: Request, number: str) -> Response:
        kept = await _kept(service, request, number)
        return json_reply(_page(kept.items[: len(kept.items) - len(kept.response["output"])], request.query_params))

    @router.delete("/v1/responses/{number}", summary="Forget a response that was kept", responses=ERRORS)
    async def forget(request: Request, number: str) -> Response:
        if not await service.ready.responses.forget(_owner(request), number):
            raise _unknown(number)
        return json_reply({"id": number, "object": "response", "deleted": True})

    @router.post("/v1/responses/{number}/cancel", summary="Refused: answers end with their request", responses=ERRORS)
    async def cancel(request: Request, number: str) -> Response:
        await _kept(service, request, number)
        hint = "a running answer is cancelled by closing its connection"
        raise Refused("this response has ended", hint=hint, status=409, code="response_ended")

    @router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)  # where no page is
    async def alive(request: Request) -> Response:
        if request.method != "HEAD":
            raise HTTPException(404)
        return Response()

    return router


def _owner(request: Request) -> str:
    return str(state_of(request.scope).get("owner", ""))


async def _kept(service: Service, request: Request, number: str) -> Kept:
    found = await service.ready.responses.find(_owner(request), number)
    if found is None:
        raise _unknown(number)
    return found


def _unknown(number: str) -> Refused:
    hint = "it is another's, was forgotten, or was made with store: false"
    return Refused(f"there is no response {number[:80]}", hint=hint, status=404, code="response_not_found")


def _page(items: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A part of a list, as `order`, `after` and `limit` say; the defaults are OpenAI's."""
    order, limit, after = query.get("order", "desc"), query.get("limit", "20"), query.get("after")
    if order not in ("asc", "desc"):
        raise invalid_value("order", f"order={order[:20]!r} is no order", "give asc or desc")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= 100):
        raise invalid_value("limit", f"limit={limit[:20]!r} is out of range", "give 1 to 100")
    listed = list(items) if order == "asc" else list(items)[::-1]
    begin = 0
    if after is not None:
        begin = next((place for place, item in enumerate(listed, start=1) if item["id"] == after), -1)
        if begin < 0:
            raise invalid_value("after", f"there is no item {after[:80]!r}", "give the last_id of a page")
    data = listed[begin : begin + int(limit)]
    ends = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    more = begin + len(data) < len(listed)
    return {"object": "list", "data": data, "first_id": ends[0], "last_id": ends[1], "has_more": more}


def _with_ids(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The items of a request, each with an id."""
    return [{"id": f"msg_{secrets.token_hex(24)}", "type": "message", **item} for item in items]
