"""`/slots`: who runs where, and what llama.cpp's server lets clients do with a slot: save, restore and erase it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Hashable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.serve.api.errors import ERRORS, Refused, invalid_value, json_reply, takes
from headstart.serve.api.reading.work import Model
from headstart.serve.api.routes import caller_of
from headstart.serve.api.schemas.requests import SlotRequest
from headstart.serve.api.service import Service
from headstart.serve.bridge import Bridge, SlotNames

ACTIONS = ("save", "restore", "erase")
STEP_SECONDS = 0.02
"""For how long a file is read between two steps."""


def slots(service: Service) -> APIRouter:
    """`GET /slots` and `POST /slots/{number}?action=`."""
    router = APIRouter()

    @router.get("/slots", summary="Who runs where", responses=ERRORS)
    async def states() -> Response:
        bridge, counted = service.ready.bridge, service.ready.metrics
        found = {"slots": [asdict(slot) for slot in bridge.slots()], "queued": bridge.queued}
        return json_reply(found if counted is None else found | {"totals": counted.totals()})

    @router.post("/slots/{number}", **takes(SlotRequest, "Save, restore or erase what a slot holds"))
    async def change(number: str, request: Request, action: str = "") -> Response:
        ready = service.ready
        if ready.saved is None:
            raise Refused(
                "slots are not kept in files here", hint="start the server with --slot-save-path DIR",
                status=501, kind="not_supported_error", code="not_supported",
            )  # fmt: skip
        if action not in ACTIONS:
            raise invalid_value("action", f"there is no action {action[:40]!r}", f"it is one of {', '.join(ACTIONS)}")
        if not (number.isascii() and number.isdigit() and len(number) < 9):
            raise invalid_value("slot", f"{number[:40]!r} is no number of a slot", "see GET /slots")
        caller = caller_of(service, request)

        def asked(body: SlotRequest, _: Sequence[str], __: Model) -> tuple[str, str]:
            if body.filename is None and action != "erase":
                raise Refused(f"{action} needs a filename", hint="any name", code="missing_field", param="filename")
            return body.filename or "", caller.salted(body.cache_salt)

        name, salt = await service.read(request, SlotRequest, asked)
        began = time.perf_counter()
        try:
            found = await _done(ready.bridge, ready.saved, action, int(number), name, salt)
        except InvalidFile as error:
            raise Refused(error.message, hint=error.hint, code="invalid_slot_file", param="filename") from error
        if action != "erase":
            found |= {"filename": name, "timings": {f"{action}_ms": round(1000 * (time.perf_counter() - began), 3)}}
        return json_reply({"id_slot": int(number), **found})

    return router


async def _done(bridge: Bridge, saved: SlotNames, action: str, slot: int, name: str, salt: Hashable) -> dict[str, Any]:
    """Do it, and say how much it was."""
    if action == "erase":
        return {"n_erased": await bridge.between_steps(partial(saved.erase, slot, salt))}
    if action == "save":
        made = await asyncio.to_thread(saved.save, slot, name, salt)
        return {"n_saved": len(made.tokens), "n_written": made.size}
    file = await asyncio.to_thread(saved.find, name, salt)
    pieces = await bridge.between_steps(partial(saved.restore, slot, file, salt))
    try:
        while (restored := await bridge.between_steps(partial(_some, pieces))) is None:
            pass  # others have had a step meanwhile
    finally:
        # where it was broken off, the slot is free again; also where the client is gone
        await asyncio.shield(bridge.between_steps(pieces.close))
    return {"n_restored": restored, "n_read": file.size}


def _some(pieces: Generator[None, None, int]) -> int | None:
    """Read as much of a file as a step may; how many tokens there are, once it has all been read."""
    until = time.perf_counter() + STEP_SECONDS
    try:
        while True:
            next(pieces)
            if time.perf_counter() >= until:
                return None
    except StopIteration as end:
        if end.value is None:
            raise InvalidOption("the slot was emptied, since a step failed", hint="restore it again") from None
        return int(end.value)
