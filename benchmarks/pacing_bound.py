"""What any pacing can reach on the first text of an engine, calculated: the best policy that knows costs and rates.

    python benchmarks/pacing_bound.py
    python benchmarks/pacing_bound.py --steps 60 --acceptance 0.5 0.7 0.85

A text has one of a few acceptance rates, and the policy knows which ones there are, but not which one it has met. Its
state is how many guesses were accepted and how many rounds ended with a refusal: nothing else tells the rates apart. So
dynamic programming finds the best policy for any weights of the rates. Weights are then moved towards rates at which it
falls short of its best fixed length (multiplicative weights), until it does equally well at all of them. The policy
that draws one of these policies at random is nearly the best for the worst rate. Costs are those of LFM2-8B-A1B's shape
with independent routing (`pacing_simulation`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pacing_simulation import MIXTURES, expected
from provenance import Provenance, results_file

LONGEST = 5
ROUNDS = 40


def best_policy(worth: NDArray[Any], rates: NDArray[Any], weights: NDArray[Any], steps: int) -> list[NDArray[Any]]:
    """Guesses by step and state [accepted, refused]. worth: [rate, length] of a step, in tokens above the target's."""
    accepted, refused = np.arange(LONGEST * steps + 1), np.arange(steps + 1)
    seen = weights * rates ** accepted[:, None, None] * (1 - rates) ** refused[None, :, None]
    later = np.zeros((len(accepted) + LONGEST, len(refused) + 1))
    policy = []
    for _ in range(steps):
        values = []
        for k in range(LONGEST + 1):
            after = later[k : k + len(accepted), :-1].copy()
            for right in range(k):
                after += later[right : right + len(accepted), 1:]
            values.append(seen @ worth[:, k] + after)
        policy.append(np.argmax(values, axis=0))
        later[: len(accepted), : len(refused)] = np.max(values, axis=0)
    return policy[::-1]


def speed(policy: list[NDArray[Any]], rate: float, costs: list[float]) -> float:
    """Tokens over plain steps' time that this policy has on average at one rate."""
    places, tokens, seconds = {(0, 0): 1.0}, 0.0, 0.0
    for lengths in policy:
        after: dict[tuple[int, int], float] = {}
        for (accepted, refused), chance in places.items():
            k = int(lengths[accepted, refused])
            tokens += chance * expected(rate, k)
            seconds += chance * costs[k]
            for right in range(k + 1):
                state = accepted + right, refused + (right < k)
                share = chance * rate**right * (1 - rate if right < k else 1.0)
                after[state] = after.get(state, 0.0) + share
        places = after
    return tokens / seconds


def bound(costs: list[float], rates: NDArray[Any], steps: int) -> dict[str, Any]:
    """Speeds of the best fixed lengths, and of the policy that does best for the worst rate."""
    tokens = np.array([[expected(rate, k) for k in range(LONGEST + 1)] for rate in rates])
    best = (tokens / costs).max(1)
    weights, found = np.full(len(rates), 1 / len(rates)), []
    for _ in range(ROUNDS):
        policy = best_policy(tokens - 0.97 * best[:, None] * np.array(costs), rates, weights, steps)
        found.append([speed(policy, rate, costs) for rate in rates])
        weights = weights * np.exp(-3 * np.array(found[-1]) / best)
        weights /= weights.sum()
    reached = np.mean(found[ROUNDS // 2 :], axis=0)
    return {"steps": steps, "rates": rates.tolist(), "best": best.tolist(), "reached": reached.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[24, 60])
    parser.add_argument("--acceptance", type=float, nargs="+", default=[0.3, 0.5, 0.7, 0.85])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    provenance, world = Provenance.now("numpy"), MIXTURES[-1]
    costs = [world.forward(1 + k) for k in range(LONGEST + 1)]
    rows = [bound(costs, np.array(args.acceptance), steps) for steps in args.steps]
    for row in rows:
        for rate, best, reached in zip(row["rates"], row["best"], row["reached"], strict=True):
            print(
                f"{row['steps']} steps, {rate:.2f}: best {best:.3f}, reached {reached:.3f}, {reached / best:.3f} of it"
            )
    file = results_file(args.out, "pacing-bound")
    facts = {"world": world.name, "costs": costs, "bounds": rows}
    file.write_text(json.dumps({"provenance": provenance.record(), **facts}, indent=1) + "\n")
    print(file.name)


if __name__ == "__main__":
    main()
