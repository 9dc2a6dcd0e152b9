"""Whether the experts of guesses can be foreseen, of any mixture of experts and a text; and what it could gain at most.

    python benchmarks/foresight.py MIXTURE TEXT.txt
    python benchmarks/foresight.py MIXTURE TEXT.jsonl --balanced       # lines of {"text"}

Of the experts that a row newly needs beyond those of the last accepted row, the share is counted that is among the 4
or 8 likeliest by each of three predictors: how often the layer chooses an expert, the experts of the last 8 rows, and
the router's order for the last row. Prices are those of the union that rows in fact meet, where `--share` of a plain
step reads experts. Pacing that knows the price of every draft length at every place, against one that knows the means,
is what foresight could gain at most. With --balanced each expert's scores are brought to the same mean and deviation
before the choice, as if a bias had balanced the loads, while the forward keeps the choices of the router.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
from provenance import Provenance, results_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

BEFORE, LONGEST, ROW = 8, 5, 0.03


def texts_of(file: Path) -> list[str]:
    read = file.read_text(encoding="utf-8")
    return [json.loads(line)["text"] for line in read.splitlines()] if file.suffix == ".jsonl" else [read]


@torch.no_grad()
def scores_of(folder: Path, texts: list[str], tokens: int) -> tuple[Tensor, int]:
    """[text, layer, token, expert] logits of the routers, and how many are chosen."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    coded = [tokenizer(text, verbose=False)["input_ids"][:tokens] for text in texts]
    rows = [
        torch.stack(model(torch.tensor([ids]), output_router_logits=True, logits_to_keep=1).router_logits)
        for ids in coded
        if len(ids) == tokens
    ]
    return torch.stack(rows).float(), model.config.num_experts_per_tok


def chosen_of(scores: Tensor, k: int) -> Tensor:
    return torch.zeros_like(scores).scatter(-1, scores.topk(k, -1).indices, 1)


def union(chosen: Tensor, rows: int) -> Tensor:
    """[text, layer, place, expert] met by so many rows from each place on."""
    last = chosen.shape[2] - BEFORE
    return torch.stack([chosen[:, :, i : last + i] for i in range(rows)]).amax(0)


def recalled(scores: Tensor, chosen: Tensor, frequencies: Tensor, distance: int) -> dict[str, float]:
    """Of the experts that the row at this distance newly needs, the share that each predictor names."""
    places = slice(BEFORE, chosen.shape[2] - BEFORE)
    now = chosen[:, :, places]
    new = chosen[:, :, places.start + distance : places.stop + distance] * (1 - now)
    last = sum(0.8**i * chosen[:, :, places.start - i : places.stop - i] for i in range(1, BEFORE + 1))
    often = frequencies[:, None].expand_as(now)
    found = {"new": float(new.sum(-1).mean())}
    for name, order in {"frequency": often, "last rows": last + 1e-3 * often, "router": scores[:, :, places]}.items():
        for many in (4, 8):
            named = chosen_of(order.masked_fill(now > 0, -math.inf), many)
            found[f"{name}, {many}"] = float((named * new).sum() / new.sum())
    return found


def gain(chosen: Tensor, k: int, share: float, rate: float) -> float:
    """Speed of pacing that knows every price over that of one that knows the means."""
    one = chosen.shape[1] * k
    met = torch.stack([union(chosen, n + 1).sum((1, 3)).flatten() / one for n in range(LONGEST + 1)])
    prices = 1 + ROW * torch.arange(LONGEST + 1)[:, None] + share * (met - 1)  # [length, place]
    tokens = torch.tensor([sum(rate**i for i in range(n + 1)) for n in range(LONGEST + 1)])
    blind = worth = float((tokens / prices.mean(1)).max())
    for _ in range(20):  # Dinkelbach: what a second is worth
        length = (tokens[:, None] - worth * prices).argmax(0)
        worth = float(tokens[length].sum() / prices.gather(0, length[None]).sum())
    return worth / blind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mixture", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=512, help="of each text; shorter ones are left out")
    parser.add_argument("--share", type=float, default=0.62, help="of a plain step (%(default)s)")
    parser.add_argument("--balanced", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    provenance = Provenance.now("torch", "transformers")
    scores, k = scores_of(args.mixture, texts_of(args.text), args.tokens)
    if args.balanced:
        scores = (scores - scores.mean((0, 2), keepdim=True)) / scores.std((0, 2), keepdim=True)
    chosen, experts = chosen_of(scores, k), scores.shape[-1]
    half = len(chosen) // 2
    frequencies = chosen[:half].mean((0, 2))
    scores, chosen = scores[half:], chosen[half:]
    alike: dict[int, float] = {}
    for n in (2, 4, 8):
        met = float(union(chosen, n).sum(-1).mean())
        alike[n] = 1 - (math.log(1 - met / experts) / math.log(1 - k / experts) - 1) / (n - 1)
    shared = {d: float((chosen[:, :, d:] * chosen[:, :, :-d]).sum(-1).mean()) / k for d in (*range(1, 9), 64)}
    facts: dict[str, Any] = {
        "texts": len(chosen), "experts": experts, "chosen": k, "share": args.share,
        "most_loaded": float(frequencies.max() * experts / k), "rho": alike, "shared_at_distance": shared,
        "recalled": {d: recalled(scores, chosen, frequencies, d) for d in (1, 2, 3, 4)},
        "gain": {rate: gain(chosen, k, args.share, rate) for rate in (0.3, 0.4, 0.5, 0.6, 0.7, 0.85)},
    }  # fmt: skip
    for name, value in facts.items():
        print(name, value)
    file = results_file(args.out, f"foresight-{args.mixture.name}")
    file.write_text(json.dumps({"provenance": provenance.record(), **facts}, indent=1) + "\n")
    print(file.name)


if __name__ == "__main__":
    main()
