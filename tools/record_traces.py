"""Record the four traces and the race that the lessons show, from the bundled models.

python tools/record_traces.py            all of them
python tools/record_traces.py traces     the traces alone
python tools/record_traces.py race       the race alone: on a quiet machine

Everything but the times is the same at every run. They are written to src/headstart/learn/traces.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headstart as hs
from headstart.engine.trace.reader import parse_trace
from headstart.engine.trace.recording import as_line
from headstart.measure.provenance import Provenance

FOLDER = Path(__file__).parents[1] / "src" / "headstart" / "learn" / "traces"
MOST = 45_000
"""Bytes of a trace: all of them go into one page."""
TOP = 5
COMMAND = "python tools/record_traces.py"

_MEAN = 'def mean(values):\n    """Return the mean of a list of numbers."""\n'
_RECTANGLE = (
    "class Rectangle:\n    def __init__(self, width, height):\n"
    "        self._width = width\n        self._height = height\n\n"
    "    @property\n    def width(self):\n        return self._width\n\n    @property\n    def height(self):\n"
)
_STACK = (
    'class Stack:\n    """A last-in, first-out container."""\n\n    def __init__(self, items=()):\n'
    "        self._items = list(items)\n\n    def push(self, item):\n        self._items.append(item)\n\n    def"
)
_POINT = (
    "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n"
    "\n    def __eq__(self, other):"
)


@dataclass(frozen=True)
class Recording:
    """One trace: what is asked, and who drafts."""

    name: str
    title: str
    prompt: str
    sampling: hs.Sampling
    drafter: Any
    options: dict[str, Any] = field(default_factory=dict)


RECORDINGS = (
    Recording(
        "draft-model",
        "A function, drafted by a small model at temperature 0.8",
        _MEAN,
        hs.Sampling(max_tokens=44, temperature=0.8, top_p=0.95, seed=2),
        "bundled",
        {"num_speculative_tokens": 5},
    ),
    Recording(
        "n-gram",
        "Code that repeats itself, copied from the text, greedy",
        _RECTANGLE,
        hs.Sampling(max_tokens=44, seed=0),
        "ngram",
        {"num_speculative_tokens": 6},
    ),
    Recording(
        "eagle3-tree",
        "A drawn tree of an EAGLE-3 head at temperature 0.8",
        "def read_lines(path):\n    ",
        hs.Sampling(max_tokens=25, temperature=0.8, seed=1),
        "eagle3",
        {"num_speculative_tokens": 10, "draft_tree": "sampled"},
    ),
    Recording(
        "list",
        "A class, copied where the text repeats itself and drafted by a small model elsewhere",
        _STACK,
        hs.Sampling(max_tokens=44, temperature=0.6, seed=2),
        ["ngram", "bundled"],
        {"num_speculative_tokens": 5},
    ),
)
RACE = Recording(
    "race",
    "The same text twice",
    _POINT,
    hs.Sampling(max_tokens=66, repetition_penalty=1.07, seed=0),
    "bundled",
    {"num_speculative_tokens": 5},
)
PAIRS = 21
"""Races that are run, of which the one in the middle, by its ratio, is shown."""


def engine_of(target: hs.Target, recording: Recording, **options: Any) -> hs.Engine:
    """Drafts of one length, so that nothing depends on a clock."""
    return target.engine(drafter=recording.drafter, rule="exact", pacing="fixed", **recording.options, **options)


def recorded(target: hs.Target, recording: Recording, note: str = "") -> list[dict[str, Any]]:
    """The lines of a trace."""
    engine = engine_of(target, recording, max_batch_size=1)
    with engine.trace(top=TOP, command=COMMAND, note=note) as found:
        engine.generate(recording.prompt, recording.sampling)
    return found.lines


def write_traces(target: hs.Target, about: Provenance) -> None:
    note = f"commit {about.commit}; {about.cpu}"
    for recording in RECORDINGS:
        engine_of(target, recording).generate(
            recording.prompt, recording.sampling
        )  # so that nothing is slow the first time
        text = "".join(map(as_line, recorded(target, recording, note)))
        if len(text.encode()) > MOST:
            raise SystemExit(f"{recording.name}: {len(text.encode())} bytes are more than {MOST}")
        (FOLDER / f"{recording.name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{recording.name}: {len(text.encode())} bytes")
    index = [{"name": each.name, "title": each.title} for each in RECORDINGS]
    (FOLDER / "index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


# -- the race ---------------------------------------------------------------------------------------------------------


def arrivals(engine: hs.Engine) -> tuple[hs.Output, list[float]]:
    """The race's text on this engine, and when each step's tokens were there: seconds from the beginning."""
    found: list[float] = []
    start = time.perf_counter()
    unsubscribe = engine.subscribe(lambda step: found.append(time.perf_counter() - start) if step.tokens else None)
    try:
        output = engine.generate(RACE.prompt, RACE.sampling)
    finally:
        unsubscribe()
    return output, found


def lane(engine: hs.Engine, arrived: list[float]) -> dict[str, Any]:
    """One side of the race: its tokens, when each came, and where it came from (from a trace of the same text)."""
    with engine.trace(top=1) as recording:
        engine.generate(RACE.prompt, RACE.sampling)
    (request,) = parse_trace(map(as_line, recording.lines)).requests
    steps = [step for step in request.steps if step.emitted]
    tokens = [
        {
            "text": request.text(token),
            "at": round(at, 6),
            "origin": "accepted" if place < step.accepted else step.end.kind if step.end is not None else "plain",
            "step": i,
        }
        for i, (step, at) in enumerate(zip(steps, arrived, strict=True))
        for place, token in enumerate(step.emitted)
    ]
    return {
        "seconds": round(arrived[-1], 6),
        "forwards": len(steps),
        "drafted": sum(len(step.tokens) for step in steps),
        "tokens": tokens,
    }


def ratio(pair: Any) -> float:
    """How many times as fast the second side of a race was."""
    (_, alone), (_, drafted) = pair
    return float(alone[-1] / drafted[-1])


def race(target: hs.Target, about: Provenance) -> dict[str, Any]:
    """Both sides in turns, of which the pair in the middle is shown. The prompt lies in the cache: reading it is no
    part."""
    speculative = engine_of(target, RACE, max_batch_size=1, prefix_cache=True)
    plain = target.engine(drafter="none", max_batch_size=1, prefix_cache=True)
    for engine in (plain, speculative):
        for _ in range(2):
            arrivals(engine)
    pairs = [(arrivals(plain), arrivals(speculative)) for _ in range(PAIRS)]
    texts = {output.tokens for pair in pairs for output, _ in pair}
    pairs.sort(key=ratio)
    (alone, at_alone), (_, at_drafted) = pairs[PAIRS // 2]
    ratios = [ratio(pair) for pair in pairs]
    facts = speculative.describe()
    return {
        "prompt": RACE.prompt,
        "target": facts["target"],
        "drafter": facts["drafter"],
        "machine": f"{about.cpu}, {facts['threads']} threads, {facts['dtype']}",
        "command": f"{COMMAND} race",
        "created": about.date,
        "commit": about.commit,
        "versions": dict(about.versions),
        "load": about.load,
        "method": f"of {PAIRS} pairs, run in turns, the one in the middle; the prompt lay in the cache",
        "speedups": {
            "median": round(ratios[PAIRS // 2], 3), "least": round(ratios[0], 3), "most": round(ratios[-1], 3),
        },
        "same_text": len(texts) == 1,
        "text": alone.text,
        "plain": lane(plain, at_alone),
        "headstart": lane(speculative, at_drafted),
    }  # fmt: skip


def main(wanted: list[str]) -> None:
    unknown = set(wanted) - {"traces", "race"}
    if unknown:
        raise SystemExit(__doc__)
    about = Provenance.now()
    target = hs.Target("bundled", dtype="float32")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not wanted or "traces" in wanted:
        write_traces(target, about)
    if not wanted or "race" in wanted:
        found = race(target, about)
        (FOLDER / "race.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(f"race: {found['plain']['seconds']:.4f} s alone, {found['headstart']['seconds']:.4f} s with a draft")


if __name__ == "__main__":
    main(sys.argv[1:])
