"""Traces made by hand, small enough to be checked by eye: for the pages that read them."""

from __future__ import annotations

import json
from typing import Any

Line = dict[str, Any]
WORDS = ("the", " cat", " sat", " on", " a", " mat", "\n", " red", " big", ".")


def header() -> Line:
    """The first line."""
    return {
        "type": "trace",
        "headstart_trace": 3,
        "created": "2026-01-31T12:00:00Z",
        "command": "headstart generate --trace trace.jsonl 'the'",
        "versions": {"headstart": "0.1.0", "torch": "2.13.0"},
        "engine": {"target": "a target", "drafter": "a draft", "rule": "exact", "dtype": "float32", "device": "cpu"},
        "drafters": [{"name": "draft", "kind": "draft"}],
    }


def request(number: int = 0, *, temperature: float = 0.0, seed: str = "7", rule: str = "exact") -> Line:
    """A request whose prompt is "the"; every token of `WORDS` has its text."""
    return {
        "type": "request",
        "request": number,
        "prompt": "the",
        "prompt_tokens": [0],
        "sampling": {"temperature": temperature, "max_tokens": 16},
        "seed": seed,
        "rule": rule,
        "texts": {str(token): text for token, text in enumerate(WORDS)},
    }


def walked(
    i: int, position: int, tokens: list[int], parents: list[int], path: list[int], last: int, *, number: int = 0
) -> Line:
    """A step of a greedy request; `last` is the token after the accepted path."""
    children = [[node for node, parent in enumerate(parents) if parent == at] for at in range(-1, len(tokens))]
    end = path[-1] if path else -1
    wanted = {at: tokens[node] for at, node in zip([-1, *path], path, strict=False)} | {end: last}
    nodes: list[Line] = []
    for token, parent in zip(tokens, parents, strict=True):
        node: Line = {"p": float(wanted.get(parent) == token), "model": 0.25, "state": "beyond"}
        if parent in wanted:
            node |= {"drawn": wanted[parent], "state": "accepted" if wanted[parent] == token else "refused"}
        nodes.append(node)
    kind = "plain" if not tokens else "correction" if children[end + 1] else "bonus"
    return {
        "type": "step",
        "request": number,
        "i": i,
        "position": position,
        "source": "draft" if tokens else "",
        "tokens": tokens,
        "parents": parents,
        "path": path,
        "emitted": [*(tokens[node] for node in path), last],
        "procedure": "walk" if tokens else "plain",
        "rows": len(tokens) + 1,
        "batch": 1,
        "budget": {"nodes": len(tokens), "reason": f"K={len(tokens)}, fixed"},
        "seconds": {"plan": 0.0003, "draft": 0.001 * len(tokens), "verify": 0.004, "sample": 0.0002, "commit": 0.0001},
        "distributions": [
            {
                "p": [[wanted.get(at, 0), 1.0]],
                "rest": 0.0,
                "entropy": 0.0,
                "model": [[wanted.get(at, 0), 0.6], [9, 0.2]],
            }
            for at in range(-1, len(tokens))
        ],
        "nodes": nodes,
        "drawn": [[at, token] for at, token in wanted.items()] if tokens else [],
        "end": {"token": last, "kind": kind, "distribution": [[last, 1.0]]},
        "finish_reason": None,
    }


def chain(i: int, position: int, tokens: list[int], accepted: int, last: int) -> Line:
    """A step of a greedy request with a chain."""
    return walked(i, position, tokens, list(range(-1, len(tokens) - 1)), list(range(accepted)), last)


def end(tokens: list[int], number: int = 0) -> Line:
    """The last line of a request."""
    return {
        "type": "end",
        "request": number,
        "finish_reason": "length",
        "text": "".join(WORDS[token] for token in tokens),
        "tokens": tokens,
        "stats": {"tokens": len(tokens)},
    }


def greedy() -> list[Line]:
    """Four rounds: two of three guesses accepted; all three; none; and a step without a draft."""
    steps = [
        chain(0, 1, [1, 2, 7], 2, 3),
        chain(1, 4, [4, 8, 5], 3, 9),
        chain(2, 8, [6, 0, 1], 0, 0),
        chain(3, 9, [], 0, 1),
    ]
    tokens = [token for step in steps for token in step["emitted"]]
    steps[-1]["finish_reason"] = "length"
    return [header(), request(), *steps, end(tokens)]


AHEAD: Line = {
    "hit": True, "node": 1, "depth": 2, "rank": 0, "branches": 8, "forwards": 3, "begin": -0.0055, "end": -0.0015,
    "asked": 0.0001, "answered": 0.0004,
}  # fmt: skip
"""How a draft came about that was ready when it was asked for."""


def ahead() -> list[Line]:
    """The four rounds of `greedy`, 10 ms apart, drafted for ahead: nothing foreseen, ready, not ready, no draft."""
    lines = greedy()
    steps = [line for line in lines if line["type"] == "step"]
    never = {"node": None, "depth": 0, "rank": None, "branches": 0, "forwards": 0, "begin": None, "end": None}
    made = [
        AHEAD | {"hit": False, "answered": 0.0031} | never,
        AHEAD,
        AHEAD | {"hit": False, "node": 2, "depth": 3, "rank": 4, "begin": -0.0085, "end": 0.0002, "answered": 0.0034},
    ]
    for place, step in enumerate(steps):
        step["at"] = 0.01 * place
        if place < len(made):
            step["ahead"] = made[place]
            step["seconds"]["draft"] = round(made[place]["answered"] - made[place]["asked"], 7)
    return lines


def tree() -> list[Line]:
    """One round with a tree of two branches, whose second is accepted, and one without a draft."""
    step = walked(0, 1, [1, 4, 2, 8, 5], [-1, -1, 0, 1, 3], [1, 3], 9)
    plain = chain(1, 4, [], 0, 0)
    return [header(), request(), step, plain, end([*step["emitted"], *plain["emitted"]])]


def text(lines: list[Line]) -> str:
    """The file."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
