"""The pages that a server shows beside its interface; the command adds those of other rooms."""

from __future__ import annotations

from headstart.web.build import page


def playground_page() -> str:
    """The playground: one's own prompts, with every token marked by where it came from."""
    return page(
        "playground/main",
        "headstart playground",
        styles=("viewer", "playground"),
        connects=True,
        description="Run prompts on this server and see where each token came from.",
    )
