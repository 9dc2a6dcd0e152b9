"""What guesses cost a mixture of experts: v(n) beside what the experts met let expect, and paced drafts beside others.

    python benchmarks/mixtures.py DIR --make                 # random weights: tokens choose nearly independently
    python benchmarks/mixtures.py DIR --make --alike 0.6     # tokens that stand close in the vocabulary choose alike
    python benchmarks/mixtures.py DIR
    python benchmarks/mixtures.py MODEL.gguf                 # any mixture, on its file's blocks

The model that is made has the widths and experts of Qwen3-30B-A3B, and few layers and tokens. Random weights route
neighbours of a text nearly independently, which trained ones do not; with --alike, embeddings lie around the centres of
groups of neighbouring tokens, and the guesses are of the last token's group. Guesses cost nothing to draft, and each is
kept with the probability of a row, whatever it is (`headstart.measure.bench.synthetic`). Plain decoding, fixed lengths
and paced drafts take turns step by step on the same prompt, and all make as many steps. Speed is seconds over the
tokens that steps of such drafts have on average, so that lucky draws do not count, but for what pacing learns from
them; a step takes the median of its contender's with drafts as long. Everything is written to results/ as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table
from switch_off import in_turn
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import headstart as hs
from headstart.drafters import Drafter, Row
from headstart.measure.bench.synthetic import SyntheticJudge
from headstart.model.kept.config import real
from headstart.model.packed import Segment
from headstart.pacing.measuring import measure
from headstart.pacing.mixtures import mixture_of
from headstart.pacing.synthetic import varied_tokens
from headstart.theory import expected_tokens
from headstart.types import Draft

GROUP = 32
"""Tokens that lie around one centre."""
ROWS = (1, 2, 3, 4, 6, 8, 16)
LONGEST = 4
"""Of the fixed lengths."""


def make(folder: Path, layers: int, vocabulary: int, alike: float) -> None:
    """Write the model. alike: the share of an embedding's variance that its group has in common."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=vocabulary, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768,
        num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True, max_position_embeddings=4096, tie_word_embeddings=False,
        torch_dtype="bfloat16",
    )  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen3MoeForCausalLM(config)
    table = model.model.embed_tokens.weight.data
    centres = torch.randn(vocabulary // GROUP + 1, table.shape[1], dtype=torch.float32).repeat_interleave(GROUP, 0)
    own = torch.randn(table.shape, dtype=torch.float32)
    # As large as trained ones beside what layers add: else attention to a common text would make all rows alike
    table.copy_(alike**0.5 * centres[:vocabulary] + (1 - alike) ** 0.5 * own)
    model.save_pretrained(folder)


class Neighbours(Drafter):
    """Guesses tokens of the last one's group, in no time."""

    name = "neighbours"
    default_budget = 8

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [Draft.chain(neighbours(row.tokens[-1], len(row.tokens), row.budget.nodes)) for row in rows]


def neighbours(token: int, place: int, count: int) -> list[int]:
    """Different tokens of a group, by the place in the text."""
    first = token // GROUP * GROUP
    return [first + (token + 1 + 7 * place + 11 * i) % GROUP for i in range(count)]


def curve(engine: hs.Engine, kind: str, rounds: int) -> list[dict[str, Any]]:
    """Seconds and experts of forwards by rows, in turn. kind: of the guesses, "alike" (of a group) or "others"."""
    target, cache = engine.target, engine.cache
    slot, tokens = cache.acquire(), varied_tokens(target.vocab_size)
    target.forward([Segment(slot, tuple(islice(tokens, 64)))], cache)
    cache.keep(slot, 64)
    seconds: dict[int, list[float]] = {n: [] for n in ROWS}
    met: dict[int, list[int]] = {n: [] for n in ROWS}
    for place in range(rounds):
        for n in ROWS:
            first = next(tokens)
            rest = neighbours(first, place, n - 1) if kind == "alike" else list(islice(tokens, n - 1))
            segment = Segment(slot, (first,), Draft.chain(rest), judged=n)
            begun = time.perf_counter()
            target.forward([segment], cache).logits.argmax(-1)
            seconds[n].append(time.perf_counter() - begun)
            met[n].append(target.experts_touched or 0)
    cache.release(slot)
    plain, one = median(seconds[1]), sum(met[1]) / rounds
    return [
        {"rows": n, "seconds": median(seconds[n]), "v": median(seconds[n]) / plain, "met": sum(met[n]) / rounds / one}
        for n in ROWS
    ]


def paced(target: hs.Target, probability: float, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds a token of every contender, on the same prompts."""
    plain = target.engine(drafter="none")
    engines = {"plain": plain, "paced": target.engine(drafter=Neighbours())}
    for k in range(1, LONGEST + 1):
        engines[f"K={k}"] = target.engine(drafter=Neighbours(), pacing="fixed", num_speculative_tokens=k)
    sampling = hs.Sampling(max_tokens=args.steps * (1 + Neighbours.default_budget), ignore_eos=True)
    seconds: dict[str, list[tuple[int, float]]] = {name: [] for name in engines}
    late: dict[str, list[tuple[int, float]]] = {name: [] for name in engines}
    drafted: list[int] = []
    for number in range(args.prompts):
        prompt = list(islice(varied_tokens(target.runner.vocab_size), 64 * number, 64 * (number + 1)))
        with ExitStack() as judged:
            for name, engine in engines.items():
                if name != "plain":
                    judge = partial(SyntheticJudge, acceptance=probability, seed=number)
                    judged.enter_context(engine.judged(judge))
            steps = in_turn(
                {name: islice(engine.stream(prompt, sampling), 1 + args.steps) for name, engine in engines.items()}
            )
        for name, each in steps.items():
            each = each[1:]
            counted = [(len(step.draft), took) for step, took in each]
            seconds[name] += counted
            late[name] += counted[len(counted) // 2 :]
        drafted += [len(step.draft) for step, _ in steps["paced"][len(steps["paced"]) // 2 :]]
    return {
        "probability": probability,
        "seconds_per_token": {name: per_token(each, probability) for name, each in seconds.items()},
        "late_seconds_per_token": {name: per_token(each, probability) for name, each in late.items()},
        "drafted_late": sum(drafted) / max(1, len(drafted)),
    }


def per_token(steps: Sequence[tuple[int, float]], probability: float) -> float:
    """Seconds, of steps with drafts of so many tokens; each takes the median of those with drafts as long, since other
    work on a machine adds time to a few."""
    by_length: dict[int, list[float]] = {}
    for length, took in steps:
        by_length.setdefault(length, []).append(took)
    tokens = sum(len(took) * float(expected_tokens(probability, length)) for length, took in by_length.items())
    return sum(len(took) * median(took) for took in by_length.values()) / tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--make", action="store_true", help="write the model and end")
    parser.add_argument("--alike", type=float, default=0.0, help="of the embeddings of a group (%(default)s)")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--percent", type=float, nargs="*", default=[50, 70, 85])
    parser.add_argument("--steps", type=int, default=80, help="of each contender on a prompt")
    parser.add_argument("--prompts", type=int, default=1, help="of each row")
    parser.add_argument("--rounds", type=int, default=15, help="of forwards")
    parser.add_argument("--quantize", help="of the target; as it is stored where left out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    if args.make:
        make(args.target, args.layers, args.vocabulary, args.alike)
        return
    provenance, console = Provenance.now("torch", "transformers"), Console()
    target = hs.Target(args.target, dtype="bfloat16", quantize=args.quantize, max_length=10 * args.steps + 128)
    mixture = mixture_of(real(target.runner.config))
    assert mixture is not None, "a mixture of experts"
    engine = target.engine(drafter="none")
    ran = engine.target
    facts: dict[str, Any] = {"decoder": ran.decoder, "weights": ran.weights_in_words, "layers": ran.layers}
    facts |= {
        "experts": mixture.routing.experts,
        "chosen": mixture.routing.chosen,
        "expert_share": mixture.expert_share,
    }
    facts["threads"] = torch.get_num_threads()
    facts["curves"] = {kind: curve(engine, kind, args.rounds) for kind in ("others", "alike")}
    facts["profile"] = asdict(measure(engine.target, engine.cache, (), batch=1).costs)
    table = Table(
        "rows", *(f"{kind}: {what}" for kind in facts["curves"] for what in ("experts met", "v(n)", "by experts"))
    )
    for rows in zip(*facts["curves"].values(), strict=True):
        cells = []
        for each in rows:
            expected = 1 - mixture.expert_share + mixture.expert_share * each["met"]
            each["expected"] = expected
            cells += [f"{each['met']:.2f}", f"{each['v']:.2f}", f"{expected:.2f}"]
        table.add_row(str(rows[0]["rows"]), *cells)
    console.print(f"a profile's rows choose alike with {facts['profile']['alike']:.2f}")
    console.print(facts["decoder"], f"{1e3 * facts['curves']['others'][0]['seconds']:.2f} ms a plain forward", table)
    facts["paced"] = []
    file = results_file(args.out, f"mixture-{args.target.name}")
    for percent in args.percent:
        row = paced(target, percent / 100, args)
        facts["paced"].append(row)
        for clock in ("seconds_per_token", "late_seconds_per_token"):
            took = row[clock]
            best = min((name for name in took if name != "paced"), key=lambda name, took=took: took[name])
            console.print(
                f"{percent:g}% {clock}: paced {took['plain'] / took['paced']:.3f} of plain, best {best} "
                f"{took['plain'] / took[best]:.3f}, paced over best {took[best] / took['paced']:.3f}, drafted late "
                f"{row['drafted_late']:.2f}"
            )
        file.write_text(json.dumps({"provenance": provenance.record(), **facts}, indent=1))
    console.print(file, *provenance.lines(), sep="\n")


if __name__ == "__main__":
    main()
