"""The pages that a server shows beside its interface: each one file, that asks for nothing but this server's paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headstart.base.web.build import page


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the server."""

    name: str
    """What it is called in a sentence."""
    write: Callable[[], str]
    """Its whole text."""


def playground_page() -> str:
    """One's own prompts, with every token marked by where it came from."""
    return page(
        "playground/main",
        "headstart playground",
        styles=("viewer", "playground"),
        connects=True,
        description="Run prompts on this server and see where each token came from.",
    )


def viewer_page() -> str:
    """The trace viewer without a trace: it asks for a file, which stays in the browser."""
    return page(
        "viewer/main",
        "A trace, round by round",
        data={"playground": "/"},
        styles=("viewer",),
        description="Open a trace of headstart and replay it round by round.",
    )


PAGES: Mapping[str, Page] = {
    "/": Page("the playground", playground_page),
    "/trace": Page("the trace viewer", viewer_page),
}
"""By path. The command adds the lessons, which belong to another wing."""
