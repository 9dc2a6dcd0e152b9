"""Decisions in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.base.words import counted

MEASURING = "K=0: measuring plain decoding, because steps take other times than this machine's profile says"


def drafting(most: int, sources: Sequence[tuple[str, int, float]]) -> str:
    """most: nodes. sources: the name and nodes of each that may be asked, and the chance of a guess of it that follows
    nothing but true text."""
    if len(sources) == 1:
        return f"K={most}: guesses are accepted at {sources[0][2]:.2f}"
    parts = [f"{name} {nodes or 'off'} (accepted at {chance:.2f})" for name, nodes, chance in sources]
    return f"K={most}: {', '.join(parts)}"


def probing(nodes: int, name: str, chance: float) -> str:
    return f"K={nodes}: probing {name}, last believed to be accepted at {chance:.2f}"


def at_rest(chance: float | None, nodes: int, rows: int, costs: tuple[float, float, float], every: int) -> str:
    """chance: of the sources that could pay at all, if there are any. nodes: of the smallest draft. rows: of the
    forward with it. costs: of that forward, of the draft and of deciding, in baseline steps."""
    checking, draft, deciding = costs
    parts = [f"drafting {draft:.2f}"] * (round(draft, 2) > 0) + [f"deciding {deciding:.2f}"] * (round(deciding, 2) > 0)
    price = ", ".join([f"checking {counted(rows, 'row')} costs {checking:.2f} baseline steps here", *parts])
    if chance is None:
        return f"K=0: {price}: too much even if every guess were right"
    return (
        f"K=0: {price}: at an acceptance of {chance:.2f} a draft of {nodes} costs more than it gives; "
        f"probing every {counted(every, 'step')}"
    )


def not_guessing(reason: str) -> str:
    """The same of a decision that stands, as a sentence of its own."""
    return f"not guessing now: {reason.removeprefix('K=0: ')}"
