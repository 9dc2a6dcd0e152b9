"""Draw the README's picture: one prompt, plain and with the drafter, measured here and now.

    python tools/picture.py docs/demo.svg

Both runs are stopped in the picture at the moment the faster one ends.
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich.console import Console

import headstart as hs
from headstart.commands.replay import Run, frame, legend, measure

PROMPT = (
    "class Point:\n"
    "    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n    def __eq__(self, other):"
)


def fastest(name: str, engine: hs.Engine, prompt: str, sampling: hs.Sampling, rounds: int) -> Run:
    """The quickest of a few runs: a shared machine interrupts now and then."""
    return min((measure(name, engine, prompt, sampling) for _ in range(rounds)), key=lambda run: run.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--repetition-penalty", type=float, default=1.07)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    engine = hs.load(dtype="float32")
    sampling = hs.Sampling(max_tokens=options.max_tokens, repetition_penalty=options.repetition_penalty)
    runs = [
        fastest(name, each, options.prompt, sampling, options.rounds)
        for name, each in (("plain", engine.plain()), ("headstart", engine))
    ]
    console = Console(record=True, width=112, height=40, force_terminal=True, file=io.StringIO())
    facts = engine.describe()
    caption = f"{facts['target']} and {facts['drafter']}, {facts['dtype']}, {facts['threads']} CPU threads, greedy"
    console.print(frame(runs, min(run.seconds for run in runs), caption, console))
    console.print(legend())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(title="headstart demo")
    # the fonts it would fetch from elsewhere: any monospace font of the reader's does
    options.output.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
