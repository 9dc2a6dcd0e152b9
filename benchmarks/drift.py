"""How often the drift detector is wrong, and how soon it is right: simulated streams, and what only looks like a fall.

    python benchmarks/drift.py --output benchmarks/results

Parts: `alarms` (windows to a false alarm), `delays` (windows and tested tokens to an alarm after a fall), `changes`
(other draft lengths, batches and mixes), `engine` (the first guess by draft length on the bundled pair).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import drift_changes
import drift_engine
import numpy as np
from drift_simulation import QUIET, Tag, Watch, World, delays, false_alarms
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table

from headstart.fleet.watch.drift import Settings

REQUESTS = (5, 20, 100)
FALLS = (0.05, 0.1, 0.2)
LEARNING = (24, 48, 96)
LENGTHS = (1, 2, 4, 8, 12)
STATED = 1000.0
"""Mean windows to a false alarm, where that is measured."""
PARTS = ("alarms", "delays", "changes", "engine")


def alarms(args: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for name, world in track(QUIET.items(), "false alarms", transient=True):
        for learning, naive in ((24, False), (48, False), (48, True)):
            watch = Watch(learning=learning, naive=naive, mean_windows=STATED)
            streams, windows = (args.streams, args.windows) if not naive else (20, 300)
            one = false_alarms(world, watch, streams=streams, windows=windows)
            found.append({"stream": name, "learning": learning, "naive": naive, **asdict(one), "mean": _json(one.mean)})
    return found


def after_a_fall(args: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for requests in track(REQUESTS, "delays", transient=True):
        for learning in LEARNING:
            for fall in FALLS:
                world = World((Tag(requests=requests),))
                watch = Watch(learning=learning, mean_windows=args.mean_windows)
                windows, tokens = delays(world, watch, fall, streams=args.streams // 2)
                found.append({"requests": requests, "learning": learning, "fall": fall, **_delays(windows, tokens)})
    return found


def _delays(windows: Any, tokens: Any) -> dict[str, Any]:
    """Medians, and windows that nine of ten need at most; null where that is not within 400 windows."""
    found: dict[str, Any] = {}
    for i, level in enumerate(("suspected", "proved")):
        middle, late = np.quantile(windows[:, i], [0.5, 0.9], method="higher")
        found[level] = {
            "windows": _json(middle), "windows of nine in ten": _json(late), "tokens": _json(np.median(tokens[:, i])),
            "within 400": float(np.isfinite(windows[:, i]).mean()),
        }  # fmt: skip
    return found


def changes(args: argparse.Namespace) -> list[dict[str, Any]]:
    settings = Settings(mean_windows_to_false_alarm=args.mean_windows, learning=24)
    streams = drift_changes.scenarios(settings.learning)
    return [
        asdict(drift_changes.examine(name, make, streams=args.few, windows=96, settings=settings))
        for name, make in track(streams.items(), "changes", transient=True)
    ]


def engine(args: argparse.Namespace) -> list[dict[str, Any]]:  # noqa: ARG001  all parts are called alike
    return list(drift_engine.by_length(LENGTHS))


def _json(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    flat = [_flat(row) for row in rows]
    table = Table(title=title, title_justify="left")
    for name in flat[0]:
        table.add_column(name)
    for row in flat:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= {f"{name} {key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return found


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="only these; default: all")
    parser.add_argument("--streams", type=int, default=80, help="for false alarms; half as many for delays")
    parser.add_argument("--few", type=int, default=5, help="streams of each change")
    parser.add_argument("--windows", type=int, default=1000, help="of each stream, for false alarms")
    parser.add_argument("--mean-windows", type=float, default=10_000.0, help="stated mean time, for delays and changes")
    parser.add_argument("--output", type=Path, help="a directory for the figures as JSON")
    args = parser.parse_args()

    provenance, console = Provenance.now(), Console(width=160)
    parts: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
        "alarms": alarms, "delays": after_a_fall, "changes": changes, "engine": engine,
    }  # fmt: skip
    found = {}
    for part in args.part or PARTS:
        found[part] = parts[part](args)
        console.print(_table(part, found[part]))
    console.print("\n".join(provenance.lines()), highlight=False)
    if args.output:
        path = results_file(args.output, "drift")
        path.write_text(json.dumps({"provenance": provenance.record(), **found}, indent=1) + "\n", encoding="utf-8")
        console.print(f"written: {path}")


if __name__ == "__main__":
    sys.exit(main())
