"""Every drafter on one target: tokens per forward, acceptance by depth, the draft's share of the time, and what it
gains.

    python benchmarks/drafters.py --prompts FILE
    python benchmarks/drafters.py --target T1B --drafter D30M --eagle E1B --medusa M1B --prompts FILE --limit 4

Batch 1, prefill included. Two tables for each temperature. "Paced": adaptive pacing with costs measured in this run,
tokens per second over plain decoding, for prompts as given and for prompts of category "edit", which show their text
twice and begin it a third time, as when a file is edited or quoted. "Fixed": the same budget in every step, for what a
draft of a given size brings whatever it costs here: tokens per target forward of chains and trees, and of chains
judged token by token instead of as a block.

All drafters share the target's weights and take turns prompt by prompt in a rotating order; ratios are taken round by
round against plain decoding of the same temperature. At temperature 0 every text must be the plain one (where the
forward is width-invariant), and it is checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import drafter_samples
from drafter_samples import Sample
from provenance import Provenance, results_file
from rich.console import Console
from rich.progress import track

import headstart as hs
from headstart.base.prompt_sets import PromptItem
from headstart.commands.demo import PROMPTS
from headstart.commands.prompts import read_prompts
from headstart.engine.prompts import templated
from headstart.pacing import FixedPacing
from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import Distributions, DraftedDistributions, left, verify
from headstart.types import Draft, Verdict

PLAIN, MTP = "plain", "mtp"
CHAIN, TREE = 5, 32
"""Nodes of the fixed drafts."""


@dataclass(frozen=True, slots=True)
class Contender:
    """drafter: as in `headstart.load`. options: more of its options. fixed: nodes in every step, or None if paced."""

    drafter: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    fixed: int | None = None
    store: bool = False
    by_token: bool = False


def contenders(args: argparse.Namespace) -> dict[str, Contender]:
    """What takes part. Past outputs are kept by one of the suffix drafters only: the prompts come again each round."""
    draft = str(args.drafter)
    found = {
        "n-gram": Contender(("ngram",)),
        "suffix": Contender(("suffix",)),
        "suffix, past outputs": Contender(("suffix",), store=True),
        "lookahead": Contender(("lookahead",)),
        "early exit": Contender(("early-exit",)),
        "draft LM": Contender((draft,)),
        "draft LM, top-k trees": Contender((draft,), {"tree": "top-k"}),
        "draft LM, sampled trees": Contender((draft,), {"tree": "sampled"}),
        "n-gram, draft LM": Contender(("ngram", draft)),
        "suffix, draft LM": Contender(("suffix", draft)),
    }
    if args.medusa is not None:
        found["Medusa"] = Contender((str(args.medusa),))
    if args.eagle is not None:
        eagle = str(args.eagle)
        found |= {
            "EAGLE-3, chains": Contender((eagle,), {"tree": "none"}),
            "EAGLE-3, trees": Contender((eagle,), {"tree": "mixed"}),
            "n-gram, EAGLE-3": Contender(("ngram", eagle)),
            "suffix, EAGLE-3": Contender(("suffix", eagle)),
        }
    if args.mtp:
        found |= {
            "MTP, chains": Contender((MTP,), {"tree": "none"}),
            "MTP, trees": Contender((MTP,), {"tree": "mixed"}),
            "n-gram, MTP (auto)": Contender(("ngram", MTP)),
        }
    found |= {
        "fixed: draft LM, chain": Contender((draft,), fixed=CHAIN),
        "fixed: draft LM, chain, by token": Contender((draft,), fixed=CHAIN, by_token=True),
        "fixed: draft LM, top-k tree": Contender((draft,), {"tree": "top-k"}, fixed=TREE),
        "fixed: draft LM, sampled tree": Contender((draft,), {"tree": "sampled"}, fixed=TREE),
    }
    if args.medusa is not None:
        found["fixed: Medusa, tree"] = Contender((str(args.medusa),), fixed=TREE)
    if args.eagle is not None:
        found["fixed: EAGLE-3, chain"] = Contender((eagle,), {"tree": "none"}, fixed=CHAIN)
        found["fixed: EAGLE-3, tree"] = Contender((eagle,), {"tree": "mixed"}, fixed=TREE)
    if args.mtp:
        found["fixed: MTP, chain"] = Contender((MTP,), {"tree": "none"}, fixed=CHAIN)
        found["fixed: MTP, tree"] = Contender((MTP,), {"tree": "mixed"}, fixed=TREE)
    if unknown := set(args.only or ()) - set(found):
        raise SystemExit(f"--only {' '.join(sorted(unknown))}: the drafters are {', '.join(found)}")
    return {name: each for name, each in found.items() if not args.only or name in args.only}


class Bench:
    """The target, its drafters, and an engine for each contender."""

    def __init__(self, args: argparse.Namespace, console: Console) -> None:
        self.target = hs.Target(args.target, dtype=args.dtype, quantize=args.quantize, max_length=args.max_length)
        self.contenders = contenders(args)
        self.engines = {PLAIN: self.target.engine(None, max_batch_size=1)}
        self.bytes: dict[str, int] = {}
        self.exits: dict[str, int] = {}
        for name, contender in self.contenders.items():
            console.print(f"loading {name}", style="dim", highlight=False)
            before = resident()
            engine = self.engines[name] = self._engine(contender)
            self.bytes[name] = max(0, resident() - before)
            if (layer := getattr(engine.drafter, "layer", None)) is not None:
                self.exits[name] = layer

    def _engine(self, contender: Contender) -> hs.Engine:
        options = {"draft_tree": contender.options["tree"]} if "tree" in contender.options else {}
        pacing = "adaptive" if contender.fixed is None else FixedPacing(contender.fixed)
        return self.target.engine(
            list(contender.drafter),
            rule="exact",
            max_batch_size=1,
            pacing=pacing,
            suffix_store="auto" if contender.store else None,
            **options,
        )

    def complete(self, name: str, prompt: Sequence[int], sampling: hs.Sampling) -> Sample:
        by_token = name != PLAIN and self.contenders[name].by_token
        with judged_by_token() if by_token else nullcontext():
            return Sample.of(self.engines[name].generate(list(prompt), sampling))


def resident() -> int:
    """Bytes of this process in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return 1024 * int(line.split()[1])
    return 0


@contextmanager
def judged_by_token() -> Iterator[None]:
    """Meanwhile drawn chains are judged by the rule of Leviathan et al. (arXiv:2211.17192), for comparison."""

    def by_token(
        draft: Draft, p: Distributions, q: DraftedDistributions | None, noise: Noise, position: int, rule: Any
    ) -> Verdict:
        if q is None:
            return verify(draft, p, q, noise, position, rule)
        for node, token in enumerate(draft.tokens):
            uniform = noise.uniform(position + node, Purpose.ACCEPT, lane=position, index=node)
            if not uniform < p[node][token] / q[node][token]:
                rest, total = left(p[node], 1, q[node])
                distribution = rest if total > 0 else p[node]
                return Verdict(tuple(range(node)), noise.draw(distribution, position + node, Purpose.TOKEN))
        end = len(draft)
        return Verdict(tuple(range(end)), noise.draw(p[end], position + end, Purpose.TOKEN))

    with patch("headstart.engine.judging.verify", by_token):
        yield


def edit(text: str) -> str:
    """A prompt that has its text twice and begins it a third time."""
    body = text.strip("\n")
    half = body[: max(1, len(body) // 4)]
    return f"{body}\n    pass\n\n\n{body}\n    pass\n\n\n{half}"


def read(args: argparse.Namespace, tokenizer: Any, room: int) -> tuple[list[list[int]], list[str]]:
    """Prompts as token ids, and the category of each."""
    given = read_prompts(None, args.prompts) if args.prompts else [PromptItem(text) for text in PROMPTS]
    edits = [edit(item.prompt) for item in given if isinstance(item.prompt, str)]
    sent = [templated(tokenizer, item).prompt for item in given]
    found: list[tuple[list[int], str]] = []
    for category, prompts in (("as given", sent), ("edit", edits)):
        encoded = (p if isinstance(p, list) else list(tokenizer(p)["input_ids"]) for p in prompts)
        fits = [ids for ids in encoded if len(ids) + args.max_tokens < room]
        found += [(ids, category) for ids in fits[: args.limit]]
    return [ids for ids, _ in found], [category for _, category in found]


def run(
    bench: Bench, prompts: Sequence[list[int]], temperature: float, args: argparse.Namespace, console: Console
) -> dict[str, list[list[Sample]]]:
    """samples[name][round][prompt]; one short completion of each before that is not counted."""
    names = list(bench.engines)
    found: dict[str, list[list[Sample]]] = {name: [[] for _ in range(args.rounds)] for name in names}
    for name in names:
        bench.complete(name, prompts[0], hs.Sampling(max_tokens=16, ignore_eos=True))
    for turn in track(range(args.rounds * len(prompts)), console=console, transient=True):
        round_, number = divmod(turn, len(prompts))
        seed = number if args.seeds else None
        sampling = hs.Sampling(max_tokens=args.max_tokens, ignore_eos=True, temperature=temperature, seed=seed)
        first = (round_ + number) % len(names)
        for name in (*names[first:], *names[:first]):
            found[name][round_].append(bench.complete(name, prompts[number], sampling))
    return found


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="bundled", help='directory or hub id of the target, or "bundled"')
    parser.add_argument("--drafter", default="bundled", help="the draft LM")
    parser.add_argument("--eagle", help='an EAGLE head; the bundled one with the bundled target ("none" for none)')
    parser.add_argument("--medusa", help="Medusa heads; likewise")
    parser.add_argument("--mtp", action="store_true", help="the MTP head in the target's checkpoint")
    parser.add_argument("--prompts", type=Path, help="JSONL or a text file (the demo's prompts)")
    parser.add_argument(
        "--limit", type=int, default=8, help="prompts of each category, the first that fit (%(default)s)"
    )
    parser.add_argument("--max-tokens", type=int, default=96, help="new tokens for each prompt (%(default)s)")
    parser.add_argument("--max-length", type=int, default=1024, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument(
        "--seeds",
        action="store_true",
        help="seed the requests: point masses must then give the plain text at any temperature, but a seed also "
        "forbids pacing to learn where the drafter draws",
    )
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--quantize", choices=["int8"])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these drafters (all)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the JSON goes")
    args = parser.parse_args(argv)
    for name, bundled in (("eagle", "eagle3"), ("medusa", "medusa")):
        given = getattr(args, name)
        if given is None and args.target == "bundled":
            setattr(args, name, bundled)
        elif given == "none":
            setattr(args, name, None)
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 170)
    provenance = Provenance.now("headstart", "torch", "transformers")
    bench = Bench(args, console)
    tokenizer = bench.target.tokenizer
    prompts, categories = read(args, tokenizer, bench.engines[PLAIN].target.max_length)
    described = bench.engines[PLAIN].describe()
    kind = args.quantize or described["dtype"]
    label = "bundled_pair" if args.target == "bundled" else Path(args.target).resolve().name
    path = results_file(args.results, f"drafters-{label}-{kind}")
    tables: dict[str, dict[str, Any]] = {}
    for temperature in args.temperature:
        samples = run(bench, prompts, temperature, args, console)
        found = {name: drafter_samples.facts(rows, samples[PLAIN], categories) for name, rows in samples.items()}
        tables[f"T={temperature:g}"] = found
        for title, fixed in (("paced", False), ("the same nodes in every step", True)):
            part = {name: of for name, of in found.items() if name.startswith("fixed") is fixed}
            if part:
                console.print(drafter_samples.table(f"{label}, {kind}, T={temperature:g}, {title}", part, bench.bytes))
        facts = {
            "prompts": {
                "file": args.prompts.name if args.prompts else "of the demo",
                "used": {category: categories.count(category) for category in dict.fromkeys(categories)},
            },
            "new_tokens": args.max_tokens,
            "nodes_of_fixed_drafts": {"chain": CHAIN, "tree": TREE},
            "engine": described,
            "exits": bench.exits,
            "resident_bytes": bench.bytes,
            "tables": tables,
            "provenance": asdict(provenance),
        }
        path.write_text(json.dumps(facts, indent=1) + "\n")  # after each temperature: what is measured is kept
    for name, layer in bench.exits.items():
        console.print(f"{name}: after layer {layer} of {bench.engines[PLAIN].target.layers}", highlight=False)
    for line in provenance.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"written: {path.name}", highlight=False)


if __name__ == "__main__":
    main()
