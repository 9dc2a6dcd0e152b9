"""headstart against the engines that people use on a CPU, on the same checkpoints, interleaved, in one run.

    python benchmarks/peers.py --target DIR --drafter DIR --prompts FILE --environments DIR
    python benchmarks/peers.py --target DIR --eagle EXPORT/drafter --prompts FILE --environments DIR

Greedy, exactly --max-tokens new tokens on all sides (no end-of-text), prefill included, token ids in and out, the
same number of threads; batch 1, and 8 prompts at once (throughput). Each engine is a process in an environment of
its own (benchmarks/peer_workers). First every setting runs by itself on a few prompts, and each engine's best K is
chosen for each mode and batch size; the choices then take turns, call by call, in rotating order, and all processes
but the one being timed are stopped. What is not installed, or does not run, is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from configurations import DEPTHS, ENGINES, WITH_DRAFT, WITH_HEAD, Configuration, Places, all_configurations
from peer_report import Entry, absences, as_json, entries_of, found_ratios, markdown, report
from peer_rounds import Course, Rounds, Selected, Start, Trial, Work, select, trial
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging
from workers import Starter, available_bytes

from headstart.base.errors import HeadstartError
from headstart.base.prompt_sets import PromptItem
from headstart.commands.prompts import read_prompts
from headstart.engine.prompts import templated

SPARE = 2 << 30
"""Bytes of memory that the rounds leave free."""


def token_ids(given: Sequence[PromptItem], tokenizer: Any, room: int) -> tuple[list[list[int]], int]:
    """The prompts of at most `room` tokens, as token ids, and how many were too long for that."""
    sent = (templated(tokenizer, item).prompt for item in given)
    ids = [p if isinstance(p, list) else list(tokenizer(p)["input_ids"]) for p in sent]
    fit = [prompt for prompt in ids if len(prompt) <= room]
    return fit, len(ids) - len(fit)


def works(prompts: list[list[int]], batches: Sequence[int], count: int, new_tokens: int) -> list[Work]:
    """`count` prompts one by one, and as many full batches as these make, at least one, which may take more prompts."""
    found = []
    for batch in batches:
        calls = [[prompts[(i * batch + j) % len(prompts)] for j in range(batch)] for i in range(max(1, count // batch))]
        found.append(Work(batch, tuple(calls), new_tokens))
    return found


def measure(
    start: Start,
    configurations: Sequence[Configuration],
    tried: Sequence[Work],
    measured: Sequence[Work],
    rounds: int,
    room: int | None,
    console: Console,
) -> tuple[list[Trial], Selected, Rounds]:
    """Both phases. room: bytes for workers that are up at once, or None for what is free once selection has ended."""
    trials: list[Trial] = []
    for configuration in track(configurations, "selection", console=console):
        trials.append(trial(start, configuration, tried))
        console.print(line_of(trials[-1]), highlight=False, markup=False, soft_wrap=True)
    selected = select(trials)
    course = Course(start, selected, measured, available_bytes() - SPARE if room is None else room)
    result = course.run(rounds, lambda turns: track(turns, "rounds", console=console))
    return trials, selected, result


def measure_chosen(
    start: Start,
    chosen: Sequence[tuple[Configuration, Sequence[int]]],
    works: Sequence[Work],
    rounds: int,
    console: Console,
    together: bool = False,
) -> tuple[list[Trial], Selected, Rounds]:
    """The rounds alone, with settings chosen before, also several of one role; a worker is started anew for each round,
    or all of them stay up `together` and take turns prompt by prompt."""
    trials = [Trial(configuration, dict.fromkeys(batches, 0.0), memory=1) for configuration, batches in chosen]
    selected: Selected = {(each.configuration, batch): each for each in trials for batch in each.speeds}
    course = Course(start, selected, works, len(trials) if together else 0)
    result = course.run(rounds, lambda turns: track(turns, "rounds", console=console))
    seen = [Trial(each.configuration, each.speeds, facts=course.facts.get(each.configuration, {})) for each in trials]
    return seen, selected, result


def read_settings(path: Path) -> list[tuple[Configuration, list[int]]]:
    """A list of {"engine", "precision", "mode", "batches", and settings such as "k"}."""
    chosen = []
    for each in json.loads(path.read_text()):
        fields = (each.pop("engine"), each.pop("precision"), each.pop("mode"))
        batches = each.pop("batches")
        chosen.append((Configuration(*fields, batched=max(batches) > 1, settings=tuple(each.items())), batches))
    return chosen


def line_of(each: Trial) -> str:
    speeds = ", ".join(f"{value:.1f} at batch {batch}" for batch, value in each.speeds.items())
    missing = "" if each.absent is None else f"absent: {each.absent}"
    return f"  {each.configuration}: " + "; ".join(filter(None, (speeds, missing)))


def notes(entries: Sequence[Entry], trials: Sequence[Trial], failures: dict[str, str], counts: str) -> list[str]:
    """What the tables must carry."""
    tried = sum(t.absent is None for t in trials)
    found = [counts]
    if any(speed > 0 for t in trials for speed in t.speeds.values()):
        found.append(f"settings chosen from {tried} that ran in the selection; all its figures are in the JSON")
    engines = {t.configuration.engine: t.facts.get("versions", {}) for t in trials if t.facts}
    for versions in engines.values():
        found.append(", ".join(f"{name} {number}" for name, number in versions.items()))
    found += [f"absent: {name}: {reason}" for name, reason in absences(trials, failures).items()]
    return found if entries else [*found, "nothing ran to its end"]


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", type=Path, required=True, help="directory of the target")
    parser.add_argument("--drafter", type=Path, help="directory of a draft LM")
    parser.add_argument("--eagle", type=Path, help="directory of an EAGLE-3 head in floats, for headstart and OpenVINO")
    parser.add_argument("--prompts", type=Path, required=True, help="Spec-Bench or plain JSONL, or a text file")
    parser.add_argument("--environments", type=Path, required=True, help="holds vllm/, openvino/ and llamacpp/")
    parser.add_argument("--converted", type=Path, help="converted checkpoints (ENVIRONMENTS/converted)")
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=list(ENGINES), help="these engines (all)")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8], help="prompts at once (1 8)")
    parser.add_argument("--limit", type=int, default=8, help="use this many prompts, the first that fit (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=96, help="new tokens for each prompt (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--selection", type=int, default=3, help="prompts to choose the settings on (%(default)s)")
    parser.add_argument("--selection-tokens", type=int, default=48, help="new tokens of each of those (%(default)s)")
    parser.add_argument("--settings", type=Path, help="JSON with settings chosen before: no selection then")
    parser.add_argument("--together", action="store_true", help="with --settings: all engines stay in memory, in turn")
    parser.add_argument("-k", nargs="+", type=int, default=list(DEPTHS), help="the Ks to choose from (3 5 8)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every engine (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown, too")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    args = parser.parse_args(argv)
    for name in ("limit", "max_tokens", "rounds", "selection", "threads", "batch", "k"):
        value = getattr(args, name)
        if min(value if isinstance(value, list) else [value]) < 1:
            parser.error(f"{'-' if name == 'k' else '--'}{name.replace('_', '-')} must be at least 1")
    if args.drafter is None and args.eagle is None:
        parser.error("name a draft LM (--drafter), an EAGLE-3 head (--eagle), or both")
    for name in ("target", "drafter", "eagle"):
        folder = getattr(args, name)
        if folder is not None and not (folder / "config.json").is_file():
            parser.error(f"--{name} is not a directory with a config.json")
    args.batch, args.k = sorted(set(args.batch)), sorted(set(args.k))
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 150)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that workers, which may be stopped, are ended
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    try:
        given = read_prompts(None, args.prompts)
    except HeadstartError as error:
        raise SystemExit(str(error)) from error
    provenance = Provenance.now("headstart", "torch", "transformers")
    models = [AutoConfig.from_pretrained(path) for path in (args.target, args.drafter) if path is not None]
    limit = min(m.max_position_embeddings for m in models)
    spare = args.max_tokens + max(args.k) + 8
    prompts, dropped = token_ids(given, AutoTokenizer.from_pretrained(args.target), limit - spare)
    if not prompts:
        raise SystemExit(f"no prompt leaves room for {args.max_tokens} new tokens in a context of {limit}")
    used = max(args.limit, max(args.batch))
    others = prompts[used:] or prompts  # settings are chosen on other prompts, if there are any
    measured = works(prompts, args.batch, min(args.limit, len(prompts)), args.max_tokens)
    tried = works(others, args.batch, args.selection, args.selection_tokens)
    longest = max(len(p) for work in (*measured, *tried) for call in work.calls for p in call)

    converted = args.converted or args.environments / "converted"
    # Absolute, but not resolved: a virtual environment's python is a link
    target, drafter, environments, converted, eagle = (
        None if path is None else path.absolute()
        for path in (args.target, args.drafter, args.environments, converted, args.eagle)
    )
    places = Places(target, drafter, environments, converted, eagle=eagle)
    starter = Starter(places, args.threads, longest + spare, max(args.batch))
    without = (WITH_DRAFT if drafter is None else ()) + (WITH_HEAD if eagle is None else ())
    configurations = all_configurations(args.only, args.k, without)
    if args.settings is None:
        trials, selected, result = measure(starter.start, configurations, tried, measured, args.rounds, None, console)
    else:
        chosen = read_settings(args.settings)
        trials, selected, result = measure_chosen(starter.start, chosen, measured, args.rounds, console, args.together)

    rounds = result.finished  # fewer than asked for, if it was interrupted
    entries = entries_of(selected, result, rounds, measured)
    inflated = any(getattr(m, "inflated_from", None) for m in models)
    label = args.target.resolve().name
    drafters = " and ".join(path.resolve().name for path in (args.drafter, args.eagle) if path is not None)
    title = f"{label} with {drafters}{' (inflated models)' if inflated else ''}, greedy"
    report(console, entries, args.batch, title)
    how = (
        f"settings from {args.settings.name}"
        if args.settings
        else (
            f"settings chosen on {min(args.selection, len(others))} "
            f"{'others' if prompts[used:] else 'of the same prompts'}"
        )
    )
    counts = (
        f"{min(args.limit, len(prompts))} prompts of {args.prompts.name} ({dropped} too long), {args.max_tokens} new "
        f"tokens each, {rounds} rounds; {how}"
    )
    for note in (*notes(entries, trials, result.failures, counts), *provenance.lines()):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if args.markdown:
        print(markdown(entries, args.batch))
    facts = {
        "target": {"name": label, "inflated": inflated},
        "draft": None if args.drafter is None else args.drafter.resolve().name,
        "head": None if args.eagle is None else args.eagle.resolve().name,
        "prompts": {
            "file": args.prompts.name,
            "used": args.limit,
            "too_long": dropped,
            "selection": args.selection,
            "selection_tokens": args.selection_tokens,
        },
        "new_tokens": args.max_tokens,
        "threads": args.threads,
        "k": args.k,
        "ratios": found_ratios(entries, args.batch),
        "absent": absences(trials, result.failures),
        **as_json(entries, trials, selected),
        "provenance": asdict(provenance),
    }
    path = results_file(args.results, f"peers-{label}")
    path.write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
