"""What a trained drafter is worth: the speedup that its held-out acceptance promises, and the one that the engine has.

The promise is (accepted in a row + 1) * (seconds of a plain token) / (seconds of a round of K guesses), where the
acceptance is the one found on held-out text at temperature 0 and both times are measured; the speedup is the ratio of
tokens per second in the same runs, plain and drafted in turn. Reading the prompt counts in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headstart.loading.load import load
from headstart.training.acceptance import DRAFT_LENGTH
from headstart.training.harness import TrainingResult
from headstart.types import Output, Sampling

NEW_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Payoff:
    """predicted, measured: speedups over plain decoding at batch 1, greedy. tokens_per_round: predicted and measured.
    plain_rate, drafted_rate: tokens per second. k: guesses in a row."""

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
            f"{self.prompts} held-out prompts, greedy, K={self.k}"
        )


def measure_payoff(
    target: str | Path, result: TrainingResult, *, device: str = "auto", new_tokens: int = NEW_TOKENS
) -> Payoff:
    """Load target and drafter, and complete the run's held-out prompts with and without it, in turn.

    Raises what `headstart.load` raises.
    """
    longest = max(map(len, result.prompts)) + new_tokens
    drafted = load(
        target,
        str(result.path),
        device,
        num_speculative_tokens=DRAFT_LENGTH,
        pacing="fixed",
        draft_tree="none",
        max_batch_size=1,
        max_length=longest + DRAFT_LENGTH + 1,
    )
    plain = drafted.plain()
    sampling = Sampling(max_tokens=new_tokens, ignore_eos=True)
    for engine in (plain, drafted):  # what is made at the first use is not counted
        engine.generate(result.prompts[0], sampling)
    pairs = [(plain.generate(p, sampling), drafted.generate(p, sampling)) for p in result.prompts]
    slow, fast = ([outputs[i] for outputs in pairs] for i in (0, 1))
    rounds = sum(out.stats.target_forwards - 1 for out in fast)
    promised = 1 + result.acceptance.length["0"]
    plain_rate, drafted_rate = _rate(slow), _rate(fast)
    return Payoff(
        predicted=promised * rounds / _seconds(fast) / plain_rate,
        measured=drafted_rate / plain_rate,
        predicted_tokens_per_round=promised,
        tokens_per_round=_tokens(fast) / rounds,
        plain_rate=plain_rate,
        drafted_rate=drafted_rate,
        k=DRAFT_LENGTH,
        prompts=len(pairs),
    )


def _seconds(outputs: Sequence[Output]) -> float:
    """From each first token to each last."""
    return sum(out.stats.total_seconds - out.stats.seconds_to_first_token for out in outputs)


def _tokens(outputs: Sequence[Output]) -> int:
    return sum(out.stats.tokens - 1 for out in outputs)


def _rate(outputs: Sequence[Output]) -> float:
    return _tokens(outputs) / _seconds(outputs)
