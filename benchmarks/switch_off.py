"""What adaptive pacing makes of drafts that are accepted so often: speed over plain decoding, and whether it drafts.

    python tools/random_model.py qwen3.5-0.8b --mtp --folder DIR
    python benchmarks/switch_off.py DIR --drafter mtp
    python benchmarks/switch_off.py DIR --drafter eagle3        # a head of random weights is made for the target

Each guess is kept with the probability of a row, whatever it is (`headstart.measure.bench.synthetic`), so that models
with random weights will do. Every row has an engine of its own, whose pacing begins anew, on the same weights. A plain
and a paced request on the same prompt of random tokens take turns step by step, so that a change of the machine's speed
meets both. A pair's speeds are without the prompt; the second half of the steps is also told apart, when pacing has had
time to learn. With --cpu-time the engine and
this script read the process's CPU time, on one thread. Everything is written to results/ as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from provenance import Provenance, results_file
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

import headstart as hs
from headstart.measure.bench.synthetic import SyntheticJudge

HEAD_TOKENS = 32_000
"""Of the vocabulary, what a random EAGLE-3 head guesses."""


def random_head(config: Any, folder: Path) -> Path:
    """An EAGLE-3 head of random weights with the target's width, in the size that published heads have."""
    torch.manual_seed(0)
    d, inner, dim = config.hidden_size, 4 * config.hidden_size, 64
    heads, tokens = d // dim, min(HEAD_TOKENS, config.vocab_size)
    kv = max(1, heads // 4)
    layer = {"self_attn.q_proj": (d, 2 * d), "self_attn.o_proj": (d, d), "mlp.down_proj": (d, inner)}
    layer |= {f"self_attn.{name}_proj": (kv * dim, 2 * d) for name in "kv"}
    layer |= {f"mlp.{name}_proj": (inner, d) for name in ("gate", "up")}
    shapes = {"fc": (d, 3 * d), "lm_head": (tokens, d)} | {f"midlayer.{name}": shape for name, shape in layer.items()}
    tensors = {f"{name}.weight": (0.02 * torch.randn(shape)).bfloat16() for name, shape in shapes.items()}
    gains = ("norm", *(f"midlayer.{name}" for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")))
    tensors |= {f"{name}.weight": torch.ones(d, dtype=torch.bfloat16) for name in gains}
    tensors["d2t"] = torch.zeros(tokens, dtype=torch.int64)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    said = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": d,
        "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim,
        "num_hidden_layers": 1,
        "vocab_size": config.vocab_size, "draft_vocab_size": tokens, "rms_norm_eps": 1e-5,
        "max_position_embeddings": config.max_position_embeddings, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def told(steps: list[tuple[hs.Step, float]]) -> dict[str, float]:
    """One request: seconds a token behind the first step, tokens a forward, and drafted tokens a forward of its second
    half."""
    after = steps[1:]
    tokens = sum(len(step.tokens) for step, _ in after)
    late = [step for step, _ in steps[len(steps) // 2 :]]
    return {
        "seconds_per_token": sum(seconds for _, seconds in after) / tokens,
        "late_seconds_per_token": late_seconds(steps),
        "tokens_per_forward": tokens / len(after),
        "drafted_late": sum(len(step.draft) for step in late) / len(late),
        "drafting_late": sum(len(step.draft) > 0 for step in late) / len(late),
    }


def late_seconds(steps: list[tuple[hs.Step, float]]) -> float:
    """Seconds a token of the second half of a text's steps."""
    late = steps[len(steps) // 2 :]
    return sum(seconds for _, seconds in late) / sum(len(step.tokens) for step, _ in late)


def in_turn(streams: dict[str, Iterator[Any]]) -> dict[str, list[tuple[Any, float]]]:
    """The steps of texts that are written in turn, one step of each at a time, with their seconds.

    A machine whose speed changes from second to second then changes it for all of them.
    """
    steps: dict[str, list[tuple[Any, float]]] = {name: [] for name in streams}
    while streams:
        for name in list(streams):
            begun = time.perf_counter()
            chunk = next(streams[name], None)
            seconds = time.perf_counter() - begun
            if chunk is None:
                del streams[name]
            else:
                steps[name].append((chunk.step, seconds))
    return steps


def measured(target: hs.Target, drafter: str, probability: float, args: argparse.Namespace) -> dict[str, Any]:
    """The pairs of one row."""
    engine = target.engine(drafter=drafter, draft_tree="none")
    plain = engine.plain()
    sampling = hs.Sampling(max_tokens=args.tokens, ignore_eos=True)
    pairs = []
    for number in range(args.pairs):
        torch.manual_seed(number)
        prompt = torch.randint(256, (64,)).tolist()
        with engine.judged(partial(SyntheticJudge, acceptance=probability, seed=number)):
            streams = {"plain": plain.stream(prompt, sampling), "paced": engine.stream(prompt, sampling)}
            steps = in_turn(streams)
        pairs.append({name: told(each) for name, each in steps.items()})
    return {"probability": probability, "pairs": pairs, "budget": engine.drafter.default_budget}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--drafter", choices=("mtp", "eagle3"), required=True)
    parser.add_argument("--percent", type=float, nargs="+", default=[0, 10, 20, 30, 50, 70, 85])
    parser.add_argument("--tokens", type=int, default=128, help="of each text")
    parser.add_argument("--pairs", type=int, default=2, help="of each row")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, and its time: for a machine that is busy")
    parser.add_argument("--quantize", default="none", help="of the target")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    provenance, console = Provenance.now("torch", "transformers"), Console()
    if args.cpu_time:
        torch.set_num_threads(1)
        time.perf_counter = time.process_time
    target = hs.Target(args.target, dtype="bfloat16", quantize=args.quantize, max_length=args.tokens + 96)
    with tempfile.TemporaryDirectory() as folder:
        drafter = "mtp" if args.drafter == "mtp" else str(random_head(target.runner.config, Path(folder)))
        rows = []
        table = Table(
            "kept", "speed over plain", "second half", "tokens/forward", "drafting at the end", "drafted a forward then"
        )
        for percent in args.percent:
            row = measured(target, drafter, percent / 100, args)
            rows.append(row)
            ratios, late = (
                sorted(pair["plain"][clock] / pair["paced"][clock] for pair in row["pairs"])
                for clock in ("seconds_per_token", "late_seconds_per_token")
            )
            paced = [pair["paced"] for pair in row["pairs"]]
            cells = (
                median(each[name] for each in paced) for name in ("tokens_per_forward", "drafting_late", "drafted_late")
            )
            table.add_row(
                f"{percent:g}%",
                *(f"{median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f})" for each in (ratios, late)),
                *(f"{each:.2f}" for each in cells),
            )  # fmt: skip
            console.print(f"{percent:g}%", *(f"{each:.2f}" for each in ratios))
    console.print(table)
    clock = {"clock": "CPU time of the process" if args.cpu_time else "wall", "threads": torch.get_num_threads()}
    file = results_file(args.out, f"switch-off-{args.target.name}-{args.drafter}")
    file.write_text(
        json.dumps({"provenance": provenance.record(), **clock, "drafter": args.drafter, "rows": rows}, indent=1)
    )
    console.print(file, *provenance.lines(), sep="\n")


if __name__ == "__main__":
    main()
