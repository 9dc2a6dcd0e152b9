"""What a server allows itself and its clients: how much waits, for how long, and how often chunks are handed on."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.base.options import check_fields, option, strict


@strict
@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds within which one engine serves many clients."""

    max_waiting_requests: int = option(
        256, "Requests that may wait for a free slot; more are refused for the time being.", panel="Limits", low=1
    )
    max_waiting_prompt_tokens: int = option(
        262_144, "Prompt tokens that may wait; one prompt may always wait alone.", panel="Limits", low=1
    )
    max_request_seconds: float | None = option(
        None, "End a request this long after it came, with the text it has by then.", panel="Limits", above=0
    )
    max_unread_tokens: int = option(
        1024, "Generated tokens that a streaming client may leave unread.", panel="Limits", low=1
    )
    max_unread_seconds: float = option(
        30.0, "Cancel a request whose client has left too many tokens unread for so long.", panel="Limits", low=0
    )
    flush_seconds: float = option(
        0.004, "Streams are handed new tokens at most this often; the first and the last at once.",
        panel="Limits", low=0, high=1,
    )  # fmt: skip
    stop_grace_seconds: float = option(
        30.0, "When stopped, let running requests finish for so long.", panel="Limits", low=0
    )
    switch_seconds: float = option(
        0.0005, "How long one Python thread may keep others waiting; Python's own is 0.005.", panel="Limits",
        above=0, high=1,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_fields(self)
