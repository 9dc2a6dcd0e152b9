"""Drafters on a real chat model and real chat prompts: speed over plain decoding by kind of prompt, and the worst one.

    python benchmarks/real_text.py --target DIR --all
    python benchmarks/real_text.py --target DIR --drafter head=HEAD --drafter ngram,head=ngram,HEAD --drafter k4=HEAD@4
    python benchmarks/real_text.py --target DIR --drafter auto=auto --prompts question.jsonl --kinds rag qa --per-kind 4

Prompts are those of a Spec-Bench-shaped file (the 26 of `prompts/chat.jsonl`, of 13 kinds, by default), through the
target's chat template. Spec-Bench itself (Xia et al. 2024, github.com/hemingkx/Spec-Bench, data/spec_bench) has 480 of
13 kinds: the eight of MT-bench, translation, summarization, qa, math_reasoning and rag. Its file is given by its path,
and the results name it by its SHA-256, with the kinds and the questions that were asked. Only the first turn is asked.

A contender is LABEL=NAME[,NAME...][@K]: drafters as in `headstart.load`, a list by commas, and with @K the same K nodes
in every step in place of adaptive pacing. `--all` is every temperature (0, 0.7, 1), one request at a time and eight,
and the usual contenders with the target's own 4-bit copy, beside those that are named.

All contenders share the target's weights and take turns, prompt by prompt (at a batch size above 1, group by group), in
a rotating order. One pass is one round of every batch size and temperature; what it measured is written at once, and
`--minutes` begins no pass that would end later. Ratios to plain decoding are of one prompt in one round at the same
temperature; a kind's is the median of all of its prompts' in all rounds, so that one odd answer does not decide.

Every contender writes as many tokens of an answer. At temperature 0 all texts must be the plain one, ends included, and
the table says how many are. Sampled texts differ from contender to contender, and an answer that happened to end after
a few tokens would be compared with a long one; so each sampled answer is as long as the greedy one to its prompt: its
end is ruled out before, for all contenders alike. Sampled requests have no seed, as in use: a seed gives different
contenders the same text only where drafts are point masses, and pacing may not learn from requests whose text is
promised. Past outputs are not kept for suffix matching, because the prompts come again in every round.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from drafter_samples import Sample, counts, per_forward
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headstart as hs
from headstart.base.errors import InvalidOption
from headstart.base.prompt_sets import by_category, read_prompt_set
from headstart.engine.prompts import templated
from headstart.pacing import FixedPacing

PLAIN = "plain"
USUAL = ("n-gram=ngram", "suffix=suffix", "early exit=early-exit")
ALL = ("n-gram=ngram", "suffix=suffix", "self-int4=self-int4", "n-gram, self-int4=ngram,self-int4")
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


def read(
    path: Path, tokenizer: Any, room: int, per_kind: int | None = None, kinds: Sequence[str] | None = None
) -> list[Item]:
    """The prompts that fit, through the chat template: at most so many of each kind, spread evenly over those of the
    file, since neighbours are often alike. kinds: those that are asked for; None is all.

    Raises:
        InvalidOption: the file has no prompt of a kind, or none that fits.
    """
    by_kind = by_category(read_prompt_set(path))
    missing = [kind for kind in kinds or () if kind not in by_kind]
    if missing:
        raise InvalidOption(
            f"{path.name} has no prompts of the kind {missing[0]!r}", hint=f"it has {', '.join(by_kind)}"
        )
    found: list[Item] = []
    for kind in by_kind if kinds is None else kinds:
        fitting: list[Item] = []
        for given in by_kind[kind]:
            item = templated(tokenizer, given)
            ids = item.prompt if isinstance(item.prompt, list) else list(tokenizer(item.prompt)["input_ids"])
            if len(ids) < room:
                fitting.append(Item(tuple(ids), kind, item.name))
        if not fitting:
            raise InvalidOption(
                f"no prompt of the kind {kind!r} has fewer than {room} tokens", hint="raise --max-length"
            )
        count = len(fitting) if per_kind is None else min(per_kind, len(fitting))
        found += [fitting[i * len(fitting) // count] for i in range(count)]
    return found


def asked(path: Path, items: Sequence[Item]) -> dict[str, Any]:
    """Which prompts were asked, for whoever has the same file: its name and SHA-256; by kind, the number of each and
    the tokens of the prompts."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()
    of_kinds = {kind: [item for item in items if item.kind == kind] for kind in dict.fromkeys(i.kind for i in items)}
    return {
        "file": path.name,
        "sha256": digest,
        "count": len(items),
        "kinds": {
            kind: {"names": [item.name for item in those], "tokens": [len(item.prompt) for item in those]}
            for kind, those in of_kinds.items()
        },
    }


class Cell:
    """One batch size and temperature: its engines, and what they have made so far."""

    def __init__(self, batch: int, temperature: float, items: Sequence[Item], engines: Mapping[str, hs.Engine]) -> None:
        self.batch, self.temperature = batch, temperature
        self.groups = [items[i : i + batch] for i in range(0, len(items), batch)]
        self.rounds: dict[str, Rounds] = {name: [] for name in engines}
        self._engines = engines
        self._turn = 0

    @property
    def name(self) -> str:
        return f"batch {self.batch}, T={self.temperature:g}"

    def warm_up(self) -> None:
        """A short completion of each contender that is not counted."""
        for engine in self._engines.values():
            engine.generate(list(self.groups[0][0].prompt), hs.Sampling(max_tokens=16, temperature=self.temperature))

    def round(self, samplings: Mapping[str, hs.Sampling]) -> None:
        """Every contender once through all groups. samplings: by prompt."""
        names = list(self._engines)
        for name in names:
            self.rounds[name].append([])
        for group in track(self.groups, self.name, console=Console(stderr=True), transient=True):
            first = self._turn % len(names)
            self._turn += 1
            for name in (*names[first:], *names[:first]):
                self.rounds[name][-1].append(self._group(name, group, samplings))

    def _group(self, name: str, group: Sequence[Item], samplings: Mapping[str, hs.Sampling]) -> Group:
        prompts = [list(item.prompt) for item in group]
        start = time.perf_counter()
        outs = self._engines[name].generate(prompts, [samplings[item.name] for item in group])
        seconds = time.perf_counter() - start
        return Group(tuple(map(Sample.of, outs)), seconds)

    def facts(self) -> dict[str, Any]:
        """All figures, by contender."""
        return {name: facts(rounds, self.rounds[PLAIN], self.groups) for name, rounds in self.rounds.items()}


def answer_lengths(plain: hs.Engine, items: Sequence[Item], max_tokens: int) -> tuple[dict[str, int], float]:
    """Tokens of the greedy answer to each prompt, and the tokens per second at which plain decoding made them."""
    found, start = {}, time.perf_counter()
    for item in track(items, "greedy answers", console=Console(stderr=True), transient=True):
        found[item.name] = len(plain.generate(list(item.prompt), hs.Sampling(max_tokens=max_tokens)).tokens)
    return found, sum(found.values()) / (time.perf_counter() - start)


def samplings(
    items: Sequence[Item], lengths: Mapping[str, int], temperature: float, args: argparse.Namespace
) -> dict[str, hs.Sampling]:
    """By prompt: to the answer's own end at temperature 0, else as many tokens as that answer has."""
    if temperature == 0:
        return {item.name: hs.Sampling(max_tokens=args.max_tokens, temperature=0.0) for item in items}
    return {
        item.name: hs.Sampling(
            max_tokens=lengths[item.name], min_tokens=lengths[item.name], temperature=temperature, seed=args.seed
        )
        for item in items
    }


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
        each = [ratios(mine, plain, [i]) for i in everything]  # [prompt][round]
        found["kinds"] = {
            kind: median(x for i in everything if groups[i][0].kind == kind for x in each[i]) for kind in kinds
        }
        found["tokens_per_forward_by_kind"] = {
            kind: per_forward(
                [s for row in mine for i in everything if groups[i][0].kind == kind for s in row[i].samples]
            )
            for kind in kinds
        }
        found["prompts"] = {group[0].name: median(each[i]) for i, group in enumerate(groups)}
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


def table_of_kinds(title: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    """Speed over plain decoding by kind of prompt, and tokens per forward."""
    made = Table(title=title)
    made.add_column("")
    drafted = {name: of for name, of in found.items() if name != PLAIN and "kinds" in of}
    for name in drafted:
        made.add_column(name, justify="right")
    for kind in found[PLAIN].get("kinds", ()):
        of_kind = ((of["kinds"][kind], of["tokens_per_forward_by_kind"][kind]) for of in drafted.values())
        made.add_row(kind, *(f"{over:.2f} ({tokens:.2f})" for over, tokens in of_kind))
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
    parser.add_argument(
        "--all", action="store_true", help=f"batch sizes 1 and 8, and besides --drafter these: {', '.join(ALL)}"
    )
    parser.add_argument("--prompts", type=Path, default=PROMPTS, help="Spec-Bench-shaped JSONL (%(default)s)")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="kinds of prompts, by their names in the file (all)")
    parser.add_argument("--per-kind", type=int, help="prompts of each kind (all)")
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer (%(default)s)")
    parser.add_argument("--max-length", type=int, default=2048, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="passes, at most (%(default)s)")
    parser.add_argument("--minutes", type=float, help="begin no pass that would end later (all rounds)")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--batch", type=int, nargs="+", help="requests at a time (1; with --all 1 and 8)")
    parser.add_argument("--seed", type=int, help="of sampled requests (none)")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--quantize", choices=["int8", "int4"])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    args = parser.parse_args(argv)
    args.batch = args.batch or ([1, 8] if args.all else [1])
    args.drafter = [*(args.drafter or []), *(Contender.parse(text) for text in (ALL if args.all else ()))]
    args.drafter = args.drafter or [Contender.parse(text) for text in USUAL]
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    begin = time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 200)
    provenance = Provenance.now("headstart", "torch", "transformers")
    target = hs.Target(args.target, dtype=args.dtype, quantize=args.quantize, max_length=args.max_length)
    items = read(args.prompts, target.tokenizer, args.max_length - args.max_tokens, args.per_kind, args.kinds)
    label = Path(args.target).resolve().name
    engines = {
        batch: {PLAIN: target.engine(None, max_batch_size=batch)}
        | {each.label: each.engine(target, batch) for each in args.drafter}
        for batch in args.batch
    }
    described = engines[args.batch[0]][PLAIN].describe()
    kind = args.quantize or described["dtype"]
    path = results_file(args.results, f"real-text-{label}-{kind}")
    lengths, speed_ = answer_lengths(engines[args.batch[0]][PLAIN], items, args.max_tokens)
    cells = [Cell(batch, t, items, engines[batch]) for batch in args.batch for t in args.temperature]
    pass_ = sum(lengths.values()) / speed_ * len(cells) * (1 + len(args.drafter)) / 60
    console.print(
        f"{len(items)} prompts, {sum(lengths.values())} tokens, plain decoding {speed_:.1f} tokens/s: one pass takes "
        f"at most about {pass_:.0f} minutes, {args.rounds} take {args.rounds * pass_:.0f}",
        highlight=False,
    )
    for cell in cells:
        cell.warm_up()
    for number in range(args.rounds):
        if number and args.minutes is not None and (time.monotonic() - begin) / 60 + pass_ > args.minutes:
            break
        start = time.monotonic()
        tables: dict[str, Any] = {}
        for cell in cells:
            cell.round(samplings(items, lengths, cell.temperature, args))
        for cell in cells:
            tables[cell.name] = cell.facts()
            title = f"{label}, {kind}, {cell.name}, rounds: {number + 1}"
            console.print(table(title, tables[cell.name]))
            if cell.batch == 1:
                console.print(table_of_kinds("over plain (tokens per forward), by kind", tables[cell.name]))
        record = {
            "prompts": asked(args.prompts, items),
            "max_tokens": args.max_tokens,
            "answer_tokens": lengths,
            "rounds": number + 1,
            "engine": {**described, "target": label},
            "tables": tables,
            "provenance": asdict(provenance),
        }
        path.write_text(json.dumps(record, indent=1) + "\n")  # what is measured is kept
        pass_ = (time.monotonic() - start) / 60
        console.print(f"written: {path.name}, a pass took {pass_:.1f} minutes", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
