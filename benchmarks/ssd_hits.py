"""How often is the bonus token among the draft's likeliest? The hit rate of drafting ahead, by fan-out and temperature.

    python benchmarks/ssd_hits.py                                        # the bundled pair, its twelve prompts
    python benchmarks/ssd_hits.py --target DIR --drafter DIR --prompts FILE

The target writes texts, and both models read them: distributions p and q at every position. What follows is in
expectation, without further noise. Alpha is the mean of sum min(p, q). After a rejection, where s drawn from q was
rejected (the chance max(q - p, 0)) and the bonus token is drawn from max(p - q, 0), the hit rate is the chance that it
is among the F likeliest of q other than s; after a draft that was accepted as a whole, p of the F likeliest of q.
Positions count alike, whereas rounds begin more often where drafts are rejected; so figures of an engine at work may
differ a little.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from provenance import Provenance
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM

import headstart as hs
from headstart.base.files import write_text
from headstart.base.prompt_sets import read_prompt_set
from headstart.measure.samples import sample_prompts

PAIR = Path(hs.__file__).parent / "pair"
MOST = 8
Distributions = NDArray[np.float64]


def distributions(logits: Distributions, temperature: float) -> Distributions:
    """[n, V] at a temperature; 0 is the likeliest token."""
    if not temperature:
        return np.asarray(np.eye(logits.shape[-1])[logits.argmax(-1)])
    x = logits / temperature
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


class Hits:
    """Sums over positions."""

    def __init__(self) -> None:
        self.positions, self.alpha, self.rejected = 0, 0.0, 0.0
        self.after, self.full = np.zeros(MOST), np.zeros(MOST)

    def add(self, target: Distributions, draft: Distributions, temperature: float) -> None:
        p, q = distributions(target, temperature), distributions(draft, temperature)
        order = (-draft).argsort(-1)[:, : MOST + 1]
        kept, wrong = np.minimum(p, q).sum(-1), np.maximum(q - p, 0)
        left = np.maximum(p - q, 0)
        left /= np.maximum(left.sum(-1, keepdims=True), 1e-300)
        taken = np.take_along_axis(left, order, -1).cumsum(-1)  # of the residual, among the 1..MOST + 1 likeliest
        inside = np.take_along_axis(wrong, order, -1).cumsum(-1)[:, :MOST]  # rejected tokens among the F likeliest
        outside = wrong.sum(-1, keepdims=True) - inside
        self.positions += len(p)
        self.alpha += kept.sum()
        self.rejected += wrong.sum()
        # A rejected token has no residual; where it is among the F likeliest, one more can be foreseen in its place
        self.after += (inside * taken[:, 1:] + outside * taken[:, :MOST]).sum(0)
        self.full += np.take_along_axis(p, order[:, :MOST], -1).cumsum(-1).sum(0)

    def record(self) -> dict[str, Any]:
        return {
            "positions": self.positions,
            "alpha": self.alpha / self.positions,
            "hits": (self.after / max(self.rejected, 1e-300)).tolist(),
            "hits_full": (self.full / self.positions).tolist(),
        }


def texts(engine: Any, prompts: list[Any], temperature: float, tokens: int) -> list[tuple[list[int], int]]:
    """(prompt and text, length of the prompt), as the target writes."""
    found = []
    for seed, prompt in enumerate(prompts):
        begin = engine.encode(prompt)
        out = engine.generate(begin, hs.Sampling(max_tokens=tokens, temperature=temperature, seed=seed))
        found.append(([*begin, *out.tokens], len(begin)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=PAIR / "target")
    parser.add_argument("--drafter", type=Path, default=PAIR / "draft")
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--limit", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    origin = Provenance.now("torch", "transformers")
    items = read_prompt_set(args.prompts) if args.prompts else sample_prompts()
    prompts: list[Any] = [item.prompt for item in items[: args.limit]]
    engine: Any = hs.load(target=str(args.target), drafter="none")  # so that a seed gives one text
    models = [AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (args.target, args.drafter)]
    found: dict[str, Any] = {}
    table = Table("T", "positions", "alpha", "hit rate after", *(f"F={f}" for f in range(1, MOST + 1)), box=None)
    for temperature in args.temperatures:
        hits = Hits()
        for text, begin in texts(engine, prompts, temperature, args.tokens):
            with torch.inference_mode():
                target, draft = (model(torch.tensor([text])).logits[0, begin - 1 : -1].double() for model in models)
            width = min(target.shape[-1], draft.shape[-1])  # a padded vocabulary
            hits.add(target[:, :width].numpy(), draft[:, :width].numpy(), temperature)
        one = found[f"{temperature:g}"] = hits.record()
        for name, words in (("hits", "a rejection"), ("hits_full", "all accepted")):
            row = [f"{share:.2f}" for share in one[name]]
            table.add_row(f"{temperature:g}", str(one["positions"]), f"{one['alpha']:.3f}", words, *row)
    console = Console(width=110)
    console.print(table)
    for line in origin.lines():
        console.print(line, style="dim")
    if args.output is not None:
        record = {"provenance": origin.rows(), "temperatures": found}
        write_text(args.output, json.dumps(record, indent=1), hint="name another file")


if __name__ == "__main__":
    main()
