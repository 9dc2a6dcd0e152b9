"""Draw the picture of the page about drift: tokens per forward, acceptance and evidence of one simulated stream.

    PYTHONPATH=src:benchmarks python tools/drift_picture.py docs/drift.svg

Drafts become shorter, then the load grows, then acceptance falls by 15%; the detector is the shipped one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from drift_simulation import World

from headstart.fleet.watch.drift import Cell, Detector, Level, Settings

SHORTER, LOAD, FALL, END = 90, 140, 190, 240
FALLEN = 0.15
WIDTH, LEFT, RIGHT, HEIGHT, GAP, TOP = 760, 52, 12, 92, 34, 26
STYLE = "font-family='system-ui, sans-serif' font-size='12' fill='#808080'"


def watched(seed: int) -> tuple[list[float], list[float], list[float], Detector, dict[Level, int]]:
    """By window: tokens per forward, acceptance of the first guess, and evidence that it fell; and what was raised."""
    world = World(
        depth=lambda t: 8 if t < SHORTER else 4,
        most=8,
        load=lambda t: (1.0 if t < LOAD else 3.0,),
        mood=lambda t: 1.0 if t < FALL else 1 - FALLEN,
    )
    detector, raised = Detector(settings=Settings()), dict[Level, int]()
    tokens, shares, evidence = [], [], []
    for t, (tested, accepted) in enumerate(islice(world.windows(np.random.default_rng(seed), 1), END)):
        cells = [Cell(i + 1, tested=int(n), accepted=int(a)) for i, (n, a) in enumerate(zip(tested[0], accepted[0]))]  # noqa: B905
        level = detector.observe(cells)
        if level and level not in raised:
            raised[level] = t
        tokens.append(1 + float(accepted.sum() / tested[0, 0]))
        shares.append(float(accepted[0, 0] / tested[0, 0]))
        evidence.append(max(0.1, detector.evidence[Level.SUSPECTED]))
    return tokens, shares, evidence, detector, raised


class Panel:
    """One of the charts, below each other; y from `low` to `high`."""

    def __init__(self, place: int, title: str, low: float, high: float, ticks: Sequence[tuple[float, str]]) -> None:
        self.top = TOP + place * (HEIGHT + GAP)
        self.title, self.low, self.high, self.ticks = title, low, high, ticks

    def x(self, window: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * window / END

    def y(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.top + HEIGHT * (1 - share)

    def frame(self) -> list[str]:
        """Title and ticks."""
        found = [f"<text x='{LEFT}' y='{self.top - 8}' {STYLE} font-weight='600'>{self.title}</text>"]
        for value, name in self.ticks:
            y = self.y(value)
            found.append(f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}' stroke='#80808040'/>")
            found.append(f"<text x='{LEFT - 6}' y='{y + 4:.1f}' text-anchor='end' {STYLE}>{name}</text>")
        return found

    def line(self, values: Sequence[float], colour: str) -> str:
        """One value for each window."""
        points = " ".join(f"{self.x(t):.1f},{self.y(value):.1f}" for t, value in enumerate(values))
        return f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.5'/>"

    def note(self, window: int, text: str, colour: str, row: int = 0, at: int | None = None) -> list[str]:
        """A line at a window, and words that end there, or at another window."""
        x, y = self.x(window), self.top + 12 + 15 * row
        end = self.x(window if at is None else at) - 4
        return [
            f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{self.top}' y2='{self.top + HEIGHT}' stroke='{colour}'"
            " stroke-dasharray='3 3'/>",
            f"<text x='{end:.1f}' y='{y}' text-anchor='end' {STYLE}>{text}</text>",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tokens, shares, evidence, detector, raised = watched(args.seed)
    alarm = math.log10(detector.settings.mean_windows_to_false_alarm)
    panels = [
        Panel(0, "tokens per forward", 2, 5, [(2, "2"), (3, "3"), (4, "4"), (5, "5")]),
        Panel(1, "first guess accepted", 0.6, 0.9, [(0.6, "60%"), (0.7, "70%"), (0.8, "80%"), (0.9, "90%")]),
        Panel(2, "evidence of a fall: windows one would wait for as much without one", -1, 2 * alarm,
              [(0, "1"), (alarm, "10 000"), (2 * alarm, "10\u2078")]),
    ]  # fmt: skip
    found = [part for panel in panels for part in panel.frame()]
    for panel, values in zip(panels, (tokens, shares, [math.log10(value) for value in evidence]), strict=True):
        found.append(panel.line(values, "#2a78d6"))
        found += panel.note(FALL, "", "#d64a2a")
    found += panels[0].note(SHORTER, "K from 8 to 4", "#808080", 5)
    found += panels[0].note(LOAD, "load three times", "#808080", 5)
    found += panels[0].note(FALL, "acceptance \u221215%", "#d64a2a")
    found += panels[2].note(detector.settings.learning, "learning", "#808080")
    for row, (level, window) in enumerate(raised.items()):
        found += panels[2].note(
            window, f"{level.text}, {window - FALL + 1} windows after the fall", "#d64a2a", row + 1, FALL
        )
    height = panels[-1].top + HEIGHT + 10
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img'>"
    args.output.write_text("\n".join([head, *found, "</svg>", ""]), encoding="utf-8")
    print(raised, detector.estimate and detector.estimate.drop)


if __name__ == "__main__":
    main()
