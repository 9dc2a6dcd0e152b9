"""headstart and llama.cpp on the very same GGUF files: whole answers, prompts alone, forwards by rows, memory.

    python benchmarks/gguf_peers.py FILE.gguf [FILE.gguf ...] --environments DIR [--server llama-server] [--short]

`DIR/llamacpp` is llama.cpp's environment (see peer_workers/README.md): its Python binding runs plain, with prompt
lookup and, with --draft, behind a draft LM. --server is a built `llama-server`, which then runs with its own
speculation; --openvino is a model that to_openvino.py has rounded to int4, of the same checkpoint but with roundings of
its own. All are processes of their own that take turns prompt by prompt, in a rotating order, greedy, without end
tokens; a bandwidth probe stands before each round. Ratios are to the binding's plain decoding in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from configurations import WORKERS, Absent
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table
from workers import Worker

import headstart as hs
from headstart.base.prompt_sets import read_prompt_set
from headstart.engine.prompts import templated
from headstart.model.native.memory import read_bandwidth

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
PROMPTS = Path(__file__).parent / "prompts" / "chat.jsonl"
OURS, THEIRS = "headstart plain", "llama.cpp plain"


@dataclass(frozen=True)
class Contender:
    """One engine with one setting; `script` is that of its worker."""

    label: str
    script: str
    python: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self, target: Path, args: argparse.Namespace) -> Worker:
        shared = {"target": str(target), "drafter": None, "batch": 1, "precision": "file", "dtype": "auto"}
        more = {"OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        options = {**shared, "threads": args.threads, "context": args.context, **self.options}
        return Worker([self.python, str(WORKERS / self.script)], options, {**os.environ, **more})


def contenders(args: argparse.Namespace) -> list[Contender]:
    """headstart's drafters that need no second model, and what llama.cpp has of that kind."""
    found = [Contender(OURS, "run_headstart.py", sys.executable, {"mode": "plain"})]
    drafters: list[tuple[str, Any]] = [("n-gram", "ngram")]
    if not args.short:
        drafters += [("n-gram and suffix", ["ngram", "suffix"]), ("early exit", "early-exit")]
    drafters += [(text, text.split(",") if "," in text else text) for text in args.drafter]
    for label, drafter in drafters:
        found.append(
            Contender(f"headstart {label}", "run_headstart.py", sys.executable, {"mode": "named", "drafter": drafter})
        )
    python = str(args.environments / "llamacpp" / "bin" / "python")
    found.append(Contender(THEIRS, "run_llamacpp.py", python, {"mode": "plain"}))
    depths = (5,) if args.short else (2, 3, 5, 8)
    for k in depths:
        found.append(Contender(f"llama.cpp lookup, K={k}", "run_llamacpp.py", python, {"mode": "ngram", "k": k}))
        if args.draft:
            options = {"mode": "draft", "k": k, "drafter": str(args.draft)}
            found.append(Contender(f"llama.cpp draft, K={k}", "run_llamacpp.py", python, options))
    for folder in args.openvino:
        python = str(args.environments / "openvino" / "bin" / "python")
        for label, options in (
            ("plain", {"mode": "plain"}),
            *((f"lookup, K={k}", {"mode": "ngram", "k": k}) for k in depths),
        ):
            given = {**options, "target": str(folder)}
            found.append(Contender(f"OpenVINO {folder.name} {label}", "run_openvino.py", python, given))
    return found + [
        Contender(
            f"llama-server {label}",
            "run_llamaserver.py",
            sys.executable,
            {"server": str(args.server), "arguments": line},
        )
        for label, line in (_servers(args) if args.server else ())
    ]


def _servers(args: argparse.Namespace) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = [("plain", []), ("n-gram mod", ["--spec-type", "ngram-mod"])]
    if args.short:
        return found
    found += [("plain, no repack", ["--no-repack"])]
    found += [(kind, ["--spec-type", kind]) for kind in ("ngram-simple", "ngram-map-k", "ngram-cache")]
    short = ["--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "4"]
    found.append(("ngram-simple, 3 and 4 tokens", ["--spec-type", "ngram-simple", *short]))
    for most in (3, 5, 8) if args.draft else ():
        line = ["--spec-type", "draft-simple", "-md", str(args.draft), "--spec-draft-n-max", str(most)]
        found.append((f"draft, K={most}", line))
    for head in args.head:
        kind, _, file = head.partition("=")
        for most in (3, 5, 8):
            line = ["--spec-type", f"draft-{kind}", "-md", file, "--spec-draft-n-max", str(most)]
            found.append((f"{kind}, K={most}", line))
    return found


class Race:
    """The contenders of one file, up and waiting. Who cannot take part is listed with the reason."""

    def __init__(self, target: Path, args: argparse.Namespace, asked: Sequence[Contender] | None = None) -> None:
        """asked: who takes part; `contenders` says it otherwise."""
        self.workers: dict[str, Worker] = {}
        self.absent: dict[str, str] = {}
        self.memory: dict[str, int] = {}
        for contender in contenders(args) if asked is None else asked:
            try:
                self.workers[contender.label] = contender.start(target, args)
            except (Absent, OSError) as reason:
                self.absent[contender.label] = str(Absent(str(reason)))

    def turns(self, number: int) -> list[str]:
        names = list(self.workers)
        first = number % max(1, len(names))
        return [*names[first:], *names[:first]]

    def complete(self, name: str, prompt: Sequence[int], new_tokens: int) -> tuple[tuple[int, ...], float] | None:
        """The tokens and seconds; None for a contender that fails, which takes part no longer."""
        try:
            sample = self.workers[name].complete([prompt], new_tokens)
        except Absent as reason:
            self.absent[name] = str(reason)
            self.workers.pop(name).stop()
            return None
        return sample.tokens[0], sample.seconds

    def stop(self) -> None:
        for name, worker in self.workers.items():
            self.memory[name] = worker.memory()
            worker.stop()


def answers(race: Race, prompts: Sequence[Sequence[int]], args: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of whole answers (prompt included) by round, and how many texts are those of the same
    engine without drafts."""
    speeds: dict[str, list[float]] = {}
    same: dict[str, int] = {}
    bandwidth = []
    for name in list(race.workers):
        race.complete(name, prompts[0], 16)  # is not counted
    for round_ in range(args.rounds):
        bandwidth.append(read_bandwidth())
        seconds: dict[str, float] = {}
        texts: dict[str, list[tuple[int, ...]]] = {}
        for turn, prompt in enumerate(
            track(prompts, f"round {round_ + 1}", console=Console(stderr=True), transient=True)
        ):
            for name in race.turns(turn + round_):
                if (made := race.complete(name, prompt, args.max_tokens)) is not None:
                    texts.setdefault(name, []).append(made[0])
                    seconds[name] = seconds.get(name, 0.0) + made[1]
        for name in race.workers:
            speeds.setdefault(name, []).append(len(prompts) * args.max_tokens / seconds[name])
            pairs = zip(texts[name], texts[plain_of(name, texts)], strict=True)
            same[name] = sum(mine == plain for mine, plain in pairs)
    return {"bandwidth": bandwidth, "tokens_per_second": speeds, "same_texts": same, "texts": len(prompts)}


def plain_of(name: str, names: Iterable[str]) -> str:
    """Of these contenders the one that is the same engine without drafts; the contender itself where there is none.
    llama.cpp's binding and its server are two engines: their texts differ without any draft."""
    plain = [each for each in names if each.endswith(" plain") and name.startswith(each.removesuffix("plain"))]
    return plain[0] if plain else name


def reading(
    race: Race, lengths: Sequence[int], rounds: int, vocabulary: int = 30000
) -> dict[str, dict[int, list[float]]]:
    """Seconds of a prompt of so many tokens with one new token, of the plain contenders. vocabulary: tokens below it
    make up the prompts."""
    found: dict[str, dict[int, list[float]]] = {}
    for turn in range(rounds):
        for length in lengths:
            prompt = [(7 + 7919 * number) % vocabulary for number in range(length)]
            for name in [n for n in race.turns(turn) if "plain" in n]:
                if (made := race.complete(name, prompt, 1)) is not None:
                    found.setdefault(name, {}).setdefault(length, []).append(made[1])
    return found


def forwards(race: Race, context: int, repetitions: int, widths: Sequence[int] = ROWS) -> dict[str, dict[int, float]]:
    """Median seconds of a forward by rows, of the engines that can time one; all row counts take turns."""
    found: dict[str, dict[int, list[float]]] = {name: {n: [] for n in widths} for name in (OURS, THEIRS)}
    for _ in range(repetitions + 1):
        for name in [name for name in found if name in race.workers]:
            for rows, seconds in found[name].items():
                seconds.append(race.workers[name].forward(rows, context))
    return {name: {n: median(s[1:]) for n, s in by.items()} for name, by in found.items() if all(by.values())}


def table(label: str, found: Mapping[str, Any]) -> Table:
    made = Table(title=label)
    made.add_column("")
    for heading in ("tokens/s", "over llama.cpp plain (range)", "same texts", "memory, MB"):
        made.add_column(heading, justify="right")
    speeds = found["answers"]["tokens_per_second"]
    base = speeds.get(THEIRS)
    for name, rounds in speeds.items():
        over = [mine / theirs for mine, theirs in zip(rounds, base, strict=True)] if base else []
        ratio = f"{median(over):.2f} ({min(over):.2f} to {max(over):.2f})" if over else ""
        texts = f"{found['answers']['same_texts'][name]} of {found['answers']['texts']}"
        made.add_row(name, f"{median(rounds):.1f}", ratio, texts, f"{found['memory'][name] / 1e6:.0f}")
    return made


def costs(found: Mapping[str, Any], label: str = "") -> Table:
    made = Table(title=f"{label}milliseconds")
    made.add_column("")
    rows, lengths = found["forwards"], found["reading"]
    widths = sorted({n for by in rows.values() for n in by})
    for n in widths:
        made.add_column(f"{n} row{'s' * (n > 1)}", justify="right")
    for n in (asked := sorted({n for by in lengths.values() for n in by})):
        made.add_column(f"prompt {n}", justify="right")
    for name in dict.fromkeys([*rows, *lengths]):
        cells = [rows.get(name, {}).get(n) for n in widths]
        cells += [median(lengths[name][n]) if n in lengths.get(name, {}) else None for n in asked]
        made.add_row(name, *("" if cell is None else f"{cell * 1e3:.1f}" for cell in cells))
    return made


def measured(target: Path, prompts: Sequence[Sequence[int]], args: argparse.Namespace) -> dict[str, Any]:
    race = Race(target, args)
    try:
        found: dict[str, Any] = {"file_bytes": target.stat().st_size, "answers": answers(race, prompts, args)}
        found["reading"] = reading(race, args.lengths, args.rounds)
        found["forwards"] = forwards(race, args.cached, 3 if args.short else 11)
        found["facts"] = {name: worker.facts for name, worker in race.workers.items()}
    finally:
        race.stop()
    return {**found, "memory": race.memory, "absent": race.absent}


def tokens_of(target: Path, args: argparse.Namespace) -> list[list[int]]:
    """The prompts through the file's own chat template, the first of each kind."""
    tokenizer = hs.Target(str(target), max_length=args.context).tokenizer
    found: dict[str, list[int]] = {}
    for given in read_prompt_set(args.prompts):
        item = templated(tokenizer, given)
        ids = item.prompt if isinstance(item.prompt, list) else list(tokenizer(item.prompt)["input_ids"])
        if len(ids) + args.max_tokens < args.context:
            found.setdefault(item.category, ids)
    return list(found.values())[: args.limit]


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.gguf")
    parser.add_argument("--environments", type=Path, required=True, help="directory that holds llamacpp/")
    parser.add_argument("--server", type=Path, help="a built llama-server")
    parser.add_argument(
        "--openvino",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a model by to_openvino.py; also again",
    )
    parser.add_argument("--draft", type=Path, help="a GGUF draft model of the same tokenizer, for llama.cpp")
    parser.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="KIND=FILE",
        help="a head of the files for llama-server, as in eagle3=head.gguf; also again",
    )
    parser.add_argument(
        "--drafter", action="append", default=[], metavar="NAME[,NAME...]", help="another of headstart's"
    )
    parser.add_argument("--prompts", type=Path, default=PROMPTS, help="Spec-Bench-shaped JSONL (%(default)s)")
    parser.add_argument("--limit", type=int, help="prompts, of as many kinds (all kinds)")
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer (%(default)s)")
    parser.add_argument("--context", type=int, default=2048, help="tokens of a prompt and its answer (%(default)s)")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[128, 512, 1024], help="of prompts that are only read"
    )
    parser.add_argument("--cached", type=int, default=200, help="tokens while forwards are timed (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every engine (%(default)s)")
    parser.add_argument(
        "--short", action="store_true", help="few contenders, prompts and tokens: whether all of it runs"
    )
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    args = parser.parse_args(argv)
    if args.short:
        args.limit, args.max_tokens, args.rounds, args.lengths = args.limit or 2, min(args.max_tokens, 24), 1, [128]
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    provenance = Provenance.now("headstart", "torch", "transformers")
    start, found = time.perf_counter(), {}
    path = results_file(args.results, f"gguf-peers-{args.files[0].stem}")
    for target in args.files:
        found[target.name] = measured(target, tokens_of(target, args), args)
        console.print(table(f"{target.name}, {target.stat().st_size / 1e6:.0f} MB", found[target.name]))
        console.print(costs(found[target.name]))
        for name, reason in found[target.name]["absent"].items():
            console.print(f"absent: {name}: {reason}", highlight=False, markup=False)
        record = {
            "files": found,
            "threads": args.threads,
            "max_tokens": args.max_tokens,
            "seconds": time.perf_counter() - start,
        }
        path.write_text(
            json.dumps({**record, "provenance": asdict(provenance)}, indent=1) + "\n"
        )  # what is measured is kept
    console.print(f"written: {path.name}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
