"""The speedup of a trained drafter: what its held-out acceptance promises, and what the engine measures.

The promise is (accepted in a row + 1) * (seconds of a plain token) / (seconds of a round of K guesses), where the
acceptance is the one found on held-out text at temperature 0 and both times are measured; the speedup is the ratio of
tokens per second in the same runs, plain and drafted in turn. Reading the prompt counts in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headstart.base.words import counted
from headstart.engine.in_turn import Round, in_turn
from headstart.loading.load import load
from headstart.train.harness import TrainingResult
from headstart.types import Sampling

NEW_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Payoff:
    """Speedups over plain decoding at batch 1, greedy.

    predicted: from the held-out acceptance.
    measured: by the engine.
    predicted_tokens_per_round: from the held-out acceptance.
    tokens_per_round: as measured.
    plain_rate: tokens per second without the drafter.
    drafted_rate: tokens per second with it.
    k: draft tokens in a row.
    prompts: how many prompts were continued.
    """

    predicted: float
    measured: float
    predicted_tokens_per_round: float
    tokens_per_round: float
    plain_rate: float
    drafted_rate: float
    k: int
    prompts: int

    def record(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        """One line for people."""
        return (
            f"speedup: {self.predicted:.2f}x predicted ({self.predicted_tokens_per_round:.2f} tokens a round), "
            f"{self.measured:.2f}x measured ({self.tokens_per_round:.2f} tokens a round; "
            f"{self.drafted_rate:.1f} tokens/s, {self.plain_rate:.1f} plain); "
            f"{counted(self.prompts, 'held-out prompt')}, greedy, K={self.k}"
        )


def measure_payoff(result: TrainingResult, *, device: str = "auto", new_tokens: int = NEW_TOKENS) -> Payoff:
    """Load target and drafter, and complete the run's held-out prompts with and without it, in turn.

    Raises what `headstart.load` raises.
    """
    longest, guesses = max(map(len, result.prompts)) + new_tokens, result.acceptance.guesses
    drafted = load(
        *result.used,
        device,
        num_speculative_tokens=guesses,
        pacing="fixed",
        draft_tree="none",
        max_batch_size=1,
        max_length=longest + guesses + 1,
    )
    plain = drafted.plain()
    sampling = Sampling(max_tokens=new_tokens, ignore_eos=True)
    for engine in (plain, drafted):  # what is made at the first use is not counted
        engine.generate(result.prompts[0], sampling)
    found: dict[str, list[Round]] = {"plain": [], "drafted": []}
    for turn, prompt in enumerate(result.prompts):
        for run in in_turn({"plain": plain, "drafted": drafted}, prompt, sampling, turn=turn):
            found[run.name] += run.rounds
    rounds = len(found["drafted"])
    promised = 1 + result.acceptance.length["0"]
    plain_rate, drafted_rate = _rate(found["plain"]), _rate(found["drafted"])
    return Payoff(
        predicted=promised * rounds / sum(one.seconds for one in found["drafted"]) / plain_rate,
        measured=drafted_rate / plain_rate,
        predicted_tokens_per_round=promised,
        tokens_per_round=sum(one.tokens for one in found["drafted"]) / rounds,
        plain_rate=plain_rate,
        drafted_rate=drafted_rate,
        k=guesses,
        prompts=len(result.prompts),
    )


def _rate(rounds: Sequence[Round]) -> float:
    """Tokens per second."""
    return sum(one.tokens for one in rounds) / sum(one.seconds for one in rounds)
