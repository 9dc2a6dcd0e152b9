"""Draw drafting in turn and drafting ahead as two lanes in time: docs/ssd.svg.

    PYTHONPATH=src python tools/ssd_picture.py docs/ssd.svg

The bars are the spans of `headstart.learn.simulate.simulate_ssd`: four draft tokens, a drafter on hardware of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from headstart.learn.simulate import LaneCosts, SsdPlan, SsdRun, simulate_ssd
from headstart.learn.simulate.ssd import Span

PLAN = SsdPlan((0.8,), k=4, fan_out=(3,), hits=(0.5, 0.7, 0.8))
COSTS = LaneCosts({1: 10.0}, {1: 1.5, 15: 1.8}, hand_over=0.3)
SHOWN, ROUNDS = 62.0, 6
WIDTH, LEFT, LANE, GAP, PANEL = 760, 74, 34, 8, 142
STYLE = "font-family='system-ui, sans-serif' font-size='12'"
GREY = "#808080"
COLOURS = {"verify": "#2a78d6", "glue": "#8d5fc0", "levels": "#2f9e62", "draft now": "#d64a2a", "hand over": "#c49a1a"}
WORDS = {
    "verify": "target verifies", "draft now": "drafted while the target waits",
    "glue": "distribution after each prefix",
    "levels": "drafts for all likely outcomes", "hand over": "outcome handed over",
}  # fmt: skip


def x(time: float) -> float:
    return LEFT + (WIDTH - LEFT - 8) * time / SHOWN


def text(at: float, y: float, words: str, colour: str = GREY, *, anchor: str = "start", bold: bool = False) -> str:
    weight = " font-weight='600'" if bold else ""
    return f"<text x='{at:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{colour}' {STYLE}{weight}>{words}</text>"


def bar(span: Span, begin: float, top: float) -> list[str]:
    left, right = x(span.start - begin), x(min(span.end - begin, SHOWN))
    colour = COLOURS[span.kind]
    found = [
        f"<rect x='{left:.1f}' y='{top}' width='{max(right - left - 0.8, 0.8):.1f}' height='{LANE}' fill='{colour}'/>"
    ]
    if span.kind == "verify" and right - left > 60:
        found.append(text((left + right) / 2, top + 21, f"verify {span.round + 1}", "#ffffff", anchor="middle"))
    return found


def panel(run: SsdRun, top: float, title: str) -> list[str]:
    begin = run.spans[0].start
    shown = [span for span in run.spans if span.start - begin < SHOWN]
    found = [text(8, top - 10, title, bold=True)]
    for place, (lane, name) in enumerate((("target", "target"), ("draft", "drafter"))):
        y = top + place * (LANE + GAP)
        found.append(text(8, y + 21, name))
        found.append(f"<rect x='{LEFT}' y='{y}' width='{WIDTH - LEFT - 8}' height='{LANE}' fill='#80808018'/>")
        for span in shown:
            if span.lane == lane:
                found += bar(span, begin, y)
    return found


def outcomes(run: SsdRun, top: float) -> list[str]:
    """Below the lanes: which rounds were foreseen."""
    begin, found = run.spans[0].start, []
    late = {span.round for span in run.spans if span.kind == "draft now"}
    y = top + 2 * LANE + GAP
    for span in run.spans:
        if span.kind == "verify" and span.end - begin < SHOWN - 3:
            at = x(span.end - begin)
            words, colour = ("miss", COLOURS["draft now"]) if span.round in late else ("hit", COLOURS["levels"])
            found.append(
                f"<line x1='{at:.1f}' x2='{at:.1f}' y1='{top}' y2='{y + 4}' stroke='{colour}' stroke-dasharray='3 3'/>"
            )
            found.append(text(at, y + 17, words, colour, anchor="middle", bold=True))
    return found


def legend(top: float) -> list[str]:
    found: list[str] = []
    places: Sequence[tuple[str, float, int]] = (
        ("verify", 8, 0), ("glue", 128, 0), ("levels", 286, 0), ("hand over", 486, 0), ("draft now", 8, 1),
    )  # fmt: skip
    for kind, at, row in places:
        y = top + 18 * row
        found.append(f"<rect x='{at}' y='{y - 10}' width='11' height='11' fill='{COLOURS[kind]}'/>")
        found.append(text(at + 16, y, WORDS[kind]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=10)
    args = parser.parse_args()
    ahead, in_turn = (
        simulate_ssd(PLAN, COSTS, rounds=ROUNDS, seed=args.seed, keep=ROUNDS, ahead=flag) for flag in (True, False)
    )
    found = panel(in_turn, 30, "drafting in turn")
    found += panel(ahead, 30 + PANEL - 26, "drafting ahead")
    found += outcomes(ahead, 30 + PANEL - 26)
    height = 30 + 2 * PANEL - 12
    found += legend(height - 30)
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img'>"
    args.output.write_text("\n".join([head, *found, "</svg>", ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
