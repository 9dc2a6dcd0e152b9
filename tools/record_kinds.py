"""Records how many guesses pass in four kinds of text, for the lessons: the bundled pair on a prompt of each kind.

    python tools/record_kinds.py

The counts are over eight texts of each kind, the first of which is kept with the origin of its tokens. float32, a fixed
draft length and seeds: the same counts on every machine, but for near-ties.
"""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import headstart as hs

PATH = Path(__file__).parent.parent / "src/headstart/learn/kinds.json"
K = 4
SAMPLING = {"temperature": 0.8, "max_tokens": 64, "ignore_eos": True}
SEEDS = range(1, 9)
KINDS = {
    "Boilerplate": (
        "class Settings:\n    def __init__(self, name, width, height, depth):\n        self._name = name\n"
        "        self._width = width\n        self._height = height\n        self._depth = depth\n\n"
        "    @property\n    def name(self):\n        return self._name\n\n"
        "    @property\n    def width(self):\n        return self._width\n"
    ),
    "A function": (
        "def binary_search(values, wanted):\n"
        '    """Return the index of a value in a sorted list, or None."""\n    low = 0\n'
    ),
    "English prose": (
        '"""Notes on the design of this module.\n\nThe first thing that a reader should know about caches is that'
    ),
    "Random digits": 'EXPECTED_DIGEST = "3f79bb7b435b05321651daefd374cd',
}


def engine() -> hs.Engine:
    """The bundled target with its draft model, at a fixed draft length."""
    return hs.load(
        target="bundled", drafter="bundled", dtype="float32", rule="exact", num_speculative_tokens=K, pacing="fixed"
    )


def texts(engine: hs.Engine, prompt: str, seeds: range | list[int]) -> list[dict[str, Any]]:
    """For each seed: guesses judged and accepted, and [text, origin] of each token."""
    found = []
    for seed in seeds:
        with engine.trace() as recording:
            engine.generate(prompt, hs.Sampling(seed=seed, **SAMPLING))
        request = recording.read().requests[0]
        steps = [step for step in request.steps if step.end]
        tokens = [
            [request.text(token), "accepted" if at < len(step.path) else step.end.kind if step.end else ""]
            for step in steps
            for at, token in enumerate(step.emitted)
        ]
        judged = sum(min(len(step.path) + 1, len(step.tokens)) for step in steps)
        found.append({"judged": judged, "accepted": sum(len(step.path) for step in steps), "tokens": tokens})
    return found


def record() -> dict[str, Any]:
    """Everything, as it goes into the file."""
    running = engine()
    kinds = []
    for title, prompt in KINDS.items():
        each = texts(running, prompt, SEEDS)
        counts = {name: sum(one[name] for one in each) for name in ("judged", "accepted")}
        kinds.append({"title": title, "prompt": prompt, **counts, "tokens": each[0]["tokens"]})
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True)
    return {
        "command": "python tools/record_kinds.py",
        "commit": commit.stdout.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"headstart": hs.__version__, "torch": torch.__version__},
        "drafter": "bundled draft",
        "k": K,
        "sampling": SAMPLING,
        "seeds": [SEEDS.start, SEEDS.stop - 1],
        "kinds": kinds,
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(record(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
