"""Drafters on a real chat model and real chat prompts: speed over plain decoding by kind of prompt, and the worst one.

    python benchmarks/real_text.py --target DIR
    python benchmarks/real_text.py --target DIR --drafter head=HEAD --drafter ngram,head=ngram,HEAD --drafter k4=HEAD@4

Prompts are those of a Spec-Bench-shaped file (the 26 of `prompts/chat.jsonl`, of 13 kinds, by default), through the
target's chat template, and answers end where the model ends them. A contender is LABEL=NAME[,NAME...][@K]: drafters as
in `headstart.load`, a list by commas, and with @K the same K nodes in every step in place of adaptive pacing.

All contenders share the target's weights and take turns, prompt by prompt (at a batch size above 1, group by group), in
a rotating order. Ratios to plain decoding are of sums over a round, at the same temperature. At temperature 0 every
text must be the plain one, and the table says how many are. Sampled requests have no seed, as in use: with `--seed`
point masses give the plain text at any temperature, but pacing may not learn from requests whose text is promised. Past
outputs are not kept for suffix matching, because the prompts come again in every round.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from drafter_samples import Sample, counts
from provenance import Provenance
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headstart as hs
from headstart.engine.prompts import templated
from headstart.pacing import FixedPacing
from headstart.prompt_sets import read_prompt_set

PLAIN = "plain"
USUAL = ("n-gram=ngram", "suffix=suffix", "early exit=early-exit")
PROMPTS = Path(__file__).parent / "prompts" / "chat.jsonl"


@dataclass(frozen=True, slots=True)
class Contender:
    """nodes: the same in every step; None for adaptive pacing."""

    label: str
    drafters: tuple[str, ...]
    nodes: int | None = None

    @classmethod
    def parse(cls, text: str) -> Contender:
        """From LABEL=NAME[,NAME...][@K]."""
        label, equals, names = text.partition("=")
        if not equals or not label or not names:
            raise argparse.ArgumentTypeError(f"{text!r} is not LABEL=NAME[,NAME...][@K]")
        names, _, nodes = names.partition("@")
        return cls(label, tuple(names.split(",")), int(nodes) if nodes else None)

    def engine(self, target: hs.Target, batch: int) -> hs.Engine:
        pacing = "adaptive" if self.nodes is None else FixedPacing(self.nodes)
        return target.engine(list(self.drafters), max_batch_size=batch, pacing=pacing, suffix_store=None)


@dataclass(frozen=True, slots=True)
class Item:
    prompt: tuple[int, ...]
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Group:
    """What one call made. seconds: of the whole call."""

    samples: tuple[Sample, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(len(sample.text) for sample in self.samples)


Rounds = list[list[Group]]
"""[round][group]"""


def read(path: Path, tokenizer: Any, room: int, per_kind: int | None) -> list[Item]:
    """The prompts that fit, through the chat template, at most so many of each kind."""
    found: list[Item] = []
    for given in read_prompt_set(path):
        item = templated(tokenizer, given)
        ids = item.prompt if isinstance(item.prompt, list) else list(tokenizer(item.prompt)["input_ids"])
        taken = sum(each.kind == item.category for each in found)
        if len(ids) < room and (per_kind is None or taken < per_kind):
            found.append(Item(tuple(ids), item.category, item.name))
    return found


def run(
    engines: Mapping[str, hs.Engine], groups: Sequence[Sequence[Item]], sampling: hs.Sampling, args: argparse.Namespace
) -> dict[str, Rounds]:
    """What every contender made; one short completion of each before that is not counted."""
    names = list(engines)
    found: dict[str, Rounds] = {name: [[] for _ in range(args.rounds)] for name in names}
    for name in names:
        engines[name].generate(list(groups[0][0].prompt), hs.Sampling(max_tokens=16))
    for turn in track(range(args.rounds * len(groups)), console=Console(stderr=True), transient=True):
        round_, number = divmod(turn, len(groups))
        prompts = [list(item.prompt) for item in groups[number]]
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            start = time.perf_counter()
            outs = engines[name].generate(prompts, sampling)
            seconds = time.perf_counter() - start
            found[name][round_].append(Group(tuple(map(Sample.of, outs)), seconds))
    return found


def speed(groups: Sequence[Group]) -> float:
    """Tokens per second."""
    return sum(group.tokens for group in groups) / sum(group.seconds for group in groups)


def ratios(mine: Rounds, plain: Rounds, places: Sequence[int]) -> list[float]:
    """Speed over plain decoding's on these groups, round by round."""
    return [speed([m[i] for i in places]) / speed([p[i] for i in places]) for m, p in zip(mine, plain, strict=True)]


def facts(mine: Rounds, plain: Rounds, groups: Sequence[Sequence[Item]]) -> dict[str, Any]:
    """All figures of one contender at one temperature and batch size."""
    everything = range(len(groups))
    samples = [sample for row in mine for group in row for sample in group.samples]
    texts = [sample.text for row in plain for group in row for sample in group.samples]
    found = {
        "tokens_per_second": [speed(row) for row in mine],
        "over_plain": ratios(mine, plain, everything),
        **counts(samples, texts),
    }
    if all(len(group) == 1 for group in groups):
        kinds = dict.fromkeys(group[0].kind for group in groups)
        found["kinds"] = {
            kind: median(ratios(mine, plain, [i for i in everything if groups[i][0].kind == kind])) for kind in kinds
        }
        found["prompts"] = {group[0].name: median(ratios(mine, plain, [i])) for i, group in enumerate(groups)}
    return found


def table(title: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    made = Table(title=title)
    made.add_column("")
    for heading in ("tokens/s", "over plain (range)", "tokens/forward", "nodes/forward", "acceptance by depth"):
        made.add_column(heading, justify="right")
    for heading in ("drafting", "worst kind", "worst prompt", "same texts"):
        made.add_column(heading, justify="right")
    for name, of in found.items():
        over = of["over_plain"]
        worst = {
            which: min(of[which].items(), key=lambda pair: pair[1]) if which in of else ("", None)
            for which in ("kinds", "prompts")
        }
        made.add_row(
            name,
            f"{median(of['tokens_per_second']):.1f}",
            f"{median(over):.2f} ({min(over):.2f} to {max(over):.2f})",
            f"{of['tokens_per_forward']:.2f}",
            f"{of['drafted_per_forward']:.1f}",
            " ".join(f"{share:.2f}" for share in of["acceptance_by_depth"][:5]),
            f"{of['drafting_share']:.0%}",
            *(f"{value:.2f} {which}" if value is not None else "" for which, value in worst.values()),
            f"{of['same_texts']} of {of['texts']}",
        )
    return made


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", required=True, help="directory or hub id of a chat model")
    parser.add_argument(
        "--drafter",
        type=Contender.parse,
        action="append",
        metavar="LABEL=NAME[,NAME...][@K]",
        help=f"a contender; may be given again ({', '.join(USUAL)})",
    )
    parser.add_argument("--prompts", type=Path, default=PROMPTS, help="Spec-Bench-shaped JSONL (%(default)s)")
    parser.add_argument("--per-kind", type=int, help="prompts of each kind (all)")
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer (%(default)s)")
    parser.add_argument("--max-length", type=int, default=2048, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="requests at a time (%(default)s)")
    parser.add_argument("--seed", type=int, help="of sampled requests (none)")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--quantize", choices=["int8", "int4"])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 200)
    provenance = Provenance.now("headstart", "torch", "transformers")
    target = hs.Target(args.target, dtype=args.dtype, quantize=args.quantize, max_length=args.max_length)
    contenders = args.drafter or [Contender.parse(text) for text in USUAL]
    items = read(args.prompts, target.tokenizer, args.max_length - args.max_tokens, args.per_kind)
    label = Path(args.target).resolve().name
    args.results.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Any] = {}
    for batch in args.batch:
        groups = [items[i : i + batch] for i in range(0, len(items), batch)]
        engines = {PLAIN: target.engine(None, max_batch_size=batch)}
        engines |= {each.label: each.engine(target, batch) for each in contenders}
        described = engines[PLAIN].describe()
        kind = args.quantize or described["dtype"]
        path = args.results / f"real-text-{label}-{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        for temperature in args.temperature:
            sampling = hs.Sampling(max_tokens=args.max_tokens, temperature=temperature, seed=args.seed)
            samples = run(engines, groups, sampling, args)
            found = {name: facts(rounds, samples[PLAIN], groups) for name, rounds in samples.items()}
            tables[f"batch {batch}, T={temperature:g}"] = found
            console.print(table(f"{label}, {kind}, batch {batch}, T={temperature:g}", found))
            record = {
                "prompts": {"file": args.prompts.name, "count": len(items), "kinds": len({i.kind for i in items})},
                "max_tokens": args.max_tokens,
                "engine": {**described, "target": label},
                "tables": tables,
                "provenance": asdict(provenance),
            }
            path.write_text(json.dumps(record, indent=1) + "\n")  # what is measured is kept
            console.print(f"written: {path.name}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
