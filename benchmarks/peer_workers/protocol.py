"""How a worker talks: JSON lines, requests on standard input, answers on what was standard output.

    -> argv[1]: the options, one JSON object
    <- {"ready": {"versions": {...}, ...}}  or  {"error": "..."}
    -> {"prompts": [[ids], ...], "new_tokens": N}
    <- {"tokens": [[ids], ...], "seconds": s, "forwards": n or null}  or  {"error": "..."}
    -> {"rows": N, "context": cached tokens, "kept": rows}      where the worker can time a forward by itself
    <- {"seconds": s}  or  {"error": "..."}

What libraries print goes to standard error. Only the standard library is imported here: it runs everywhere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Options = dict[str, Any]
Complete = Callable[[list[list[int]], int], tuple[list[list[int]], int | None]]
"""(prompts, new tokens) -> (the new tokens of each prompt, target forwards or None). This call is what is timed."""

Forward = Callable[[int, int, int], float]
"""(rows, cached tokens, kept) -> seconds of one forward of so many rows with logits for each. The first `kept` of its
rows are cached after that; the others are forgotten."""


def resident_bytes() -> int:
    """Of this process, mapped files included."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def versions(*packages: str) -> dict[str, str]:
    return {package: version(package) for package in packages}


def serve(build: Callable[[Options], tuple[Complete, dict[str, Any], *tuple[Forward, ...]]]) -> None:
    """Build the engine and answer requests until standard input ends; a failure is an answer, too."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        complete, facts, *forward = build(json.loads(sys.argv[1]))
    except Exception as error:
        answer({"error": describe(error)})
        raise
    answer({"ready": facts})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "rows" in request:
                answer({"seconds": forward[0](request["rows"], request["context"], request["kept"])})
                continue
            start = time.perf_counter()
            tokens, forwards = complete(request["prompts"], request["new_tokens"])
            seconds = time.perf_counter() - start
        except Exception as error:
            answer({"error": describe(error)})
        else:
            answer({"tokens": tokens, "seconds": seconds, "forwards": forwards})


def describe(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
