"""Draw the README's picture from the race that the lessons show: python tools/picture.py

The same text, by the model alone and with a draft, as it was recorded (tools/record_traces.py race). The picture plays
the race in six seconds, three times, and stands still at its end; for who wants no motion it only shows its end.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from headstart.learn.pages.lessons import race

OUT = Path(__file__).parents[1] / "docs" / "demo.svg"
WIDTH, HEIGHT, EDGE, GAP = 900, 540, 24, 28
RACE, REST, TIMES = 6.0, 4.0, 3
"""Seconds of the race, seconds that its result stands, and how often both are shown."""
LETTER, LINE = 7.8, 19.0
TOP, PAPER = 180, 258
STYLE = """
svg { --back: #f5f6f8; --paper: #fff; --line: #d6dae0; --ink: #1c2026; --soft: #565d68; --good: #0b6b47; --p: #1769aa; }
@media (prefers-color-scheme: dark) {
  svg { --back: #1e2228; --paper: #15181d; --line: #363c45; --ink: #e7eaee; --soft: #a8b0bb; }
  svg { --good: #5fd0a0; --p: #6db5ec; }
}
text { font-family: Inter, system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink); font-size: 15px; }
.name { font-weight: 700; } .soft { fill: var(--soft); font-size: 13px; } .end { text-anchor: end; }
.code { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
.prompt { fill: var(--soft); } .good { fill: var(--good); font-weight: 700; }
.result { font-size: 26px; font-weight: 700; fill: var(--good); text-anchor: middle; }
.back { fill: var(--back); stroke: var(--line); } .paper { fill: var(--paper); stroke: var(--line); }
.track { fill: var(--line); } .pass { fill: var(--p); }
@media (prefers-reduced-motion: reduce) { * { animation: none !important; } }
"""


class _Moments:
    """Classes of what appears at a time: one animation for each."""

    def __init__(self, end: float) -> None:
        self._end = end
        self._names: dict[float, str] = {}

    def at(self, time: float) -> str:
        return self._names.setdefault(time, f"m{len(self._names)}")

    def styles(self) -> str:
        whole = RACE + REST
        shared = (
            f"animation-duration: {whole:g}s; animation-iteration-count: {TIMES}; animation-timing-function: step-end"
        )
        rules = [f"[class*=at-] {{ {shared} }}"]
        for time, name in self._names.items():
            share = 100 * RACE / whole * time / self._end
            rules.append(f".at-{name} {{ animation-name: {name} }}")
            rules.append(f"@keyframes {name} {{ 0% {{ opacity: 0 }} {share:.2f}% {{ opacity: 1 }} }}")
        return "\n".join(rules)


def picture(recorded: dict[str, Any]) -> str:
    """The SVG of a race; see `headstart.learn.pages.lessons.race`."""
    plain, fast = recorded["plain"], recorded["headstart"]
    end = max(plain["seconds"], fast["seconds"])
    moments = _Moments(end)
    wide = (WIDTH - 2 * EDGE - GAP) / 2
    parts = [f'<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12"/>']
    for i, (name, run) in enumerate((("The model alone", plain), ("With headstart", fast))):
        parts += _track(name, run, EDGE + 20 + 62 * i, end, moments)
        left = EDGE + i * (wide + GAP)
        title = f'{name}: <tspan class="good">green</tspan> was guessed by a small model' if i else name
        parts.append(f'<text class="soft" x="{left}" y="{TOP - 12}">{title}</text>')
        parts.append(f'<rect class="paper" x="{left}" y="{TOP}" width="{wide}" height="{PAPER}" rx="8"/>')
        parts += _text(recorded["prompt"], run["tokens"], left + 14, TOP + 22, moments)
    words = f"{plain['seconds'] / fast['seconds']:.1f} times as fast" + (
        ", and the same letters." * recorded["same_text"]
    )
    parts.append(f'<text class="result at-{moments.at(end)}" x="{WIDTH / 2}" y="{TOP + PAPER + 44}">{words}</text>')
    made = (
        f"Recorded on {recorded['created'][:10]}, {recorded['machine']}: {recorded['target']} and {recorded['drafter']}"
    )
    parts.append(f'<text class="soft" x="{EDGE}" y="{HEIGHT - 18}">{escape(made)}</text>')
    parts.append(f'<text class="soft end" x="{WIDTH - EDGE}" y="{HEIGHT - 18}">{RACE / end:.0f} times slower</text>')
    label = f"The same model writes the same text twice, alone and with headstart: {words}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">\n'
        f"<style>{STYLE}{moments.styles()}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _track(name: str, run: dict[str, Any], top: float, end: float, moments: _Moments) -> list[str]:
    """One block for each pass of the large model, as long as it took; all tracks share a scale."""
    counts = f"{1000 * run['seconds']:.0f} ms · {len(run['tokens'])} tokens · {run['forwards']} passes of the model"
    parts = [
        f'<text class="name" x="{EDGE}" y="{top}">{name}</text>',
        f'<text class="soft end at-{moments.at(run["seconds"])}" x="{WIDTH - EDGE}" y="{top}">{counts}</text>',
    ]
    scale = (WIDTH - 2 * EDGE) / end
    before = 0.0
    for at in sorted({token["step"]: token["at"] for token in run["tokens"]}.values()):
        left, long = EDGE + scale * before, max(1, scale * (at - before) - 1.5)
        box = f'x="{left:.1f}" y="{top + 10}" width="{long:.1f}" height="18" rx="2"'
        parts += [f'<rect class="track" {box}/>', f'<rect class="pass at-{moments.at(at)}" {box}/>']
        before = at
    return parts


def _text(prompt: str, tokens: list[dict[str, Any]], left: float, top: float, moments: _Moments) -> list[str]:
    """The prompt's last line and the tokens, each where it stands in a typewriter's text."""
    line, column, parts = 0, 0, []
    first = prompt.split("\n")[-1]
    tints = {"accepted": " good"}
    shown = [(t["text"], f"code{tints.get(t['origin'], '')} at-{moments.at(t['at'])}") for t in tokens]
    for piece, look in [(first, "code prompt"), *shown]:
        for i, row in enumerate(piece.split("\n")):
            if i:
                line, column = line + 1, 0
            word = row.lstrip(" ")
            column += len(row) - len(word)
            if word:
                at, long = left + LETTER * column, LETTER * len(word)
                place = f'x="{at:.1f}" y="{top + LINE * line:.0f}" textLength="{long:.1f}"'
                parts.append(f'<text class="{look}" {place}>{escape(word)}</text>')
            column += len(word)
    return parts


if __name__ == "__main__":
    OUT.write_text(picture(race()), encoding="utf-8")
    print(f"{OUT}: {OUT.stat().st_size / 1000:.0f} kB")
