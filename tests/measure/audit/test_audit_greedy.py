"""The greedy audit: a planted bug is a bug, a near-tie is a near-tie, and neither hides what comes after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import headstart as hs
from headstart.loading.assembly import assemble
from headstart.measure.audit.engines import (
    EngineReference,
    EngineSubject,
    Rounding,
    measure_rounding,
    transformers_logits,
)
from headstart.measure.audit.greedy import GreedyResult, audit_greedy
from headstart.measure.audit.subject import Ask, Completion
from headstart.model import loading
from headstart.model.runner import ModelRunner
from headstart.types import Sampling

NEW = hs.Sampling(max_tokens=24)
EXACT = Rounding(0.0, 0.0, 0.0, 0.0, 10, "exact")


@dataclass
class Writes:
    """A subject that writes these tokens."""

    tokens: tuple[tuple[int, ...], ...]
    name: str = "writes"

    def sample(self, asks: Sequence[Ask]) -> list[Completion]:
        assert all(ask.sampling.greedy for ask in asks)
        return [Completion(self.tokens[i % len(self.tokens)], "length") for i in range(len(asks))]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass
class Distributions:
    """A reference whose distribution after any text is this row of logits, the end being token 3."""

    logits: Sequence[Sequence[float]]

    def distributions(self, prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> Any:
        assert (sampling.temperature, sampling.top_p) == (1.0, 1.0), "margins are taken before temperature"
        rows = torch.tensor([list(row) for row in self.logits[: len(tokens) + 1]], dtype=torch.float64)
        return rows.softmax(-1).numpy()

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        return frozenset({3})

    def describe(self) -> dict[str, Any]:
        return {}


def judged(tokens: tuple[int, ...], logits: Sequence[Sequence[float]], margin: float) -> GreedyResult:
    rounding = replace(EXACT, margin=margin)
    return audit_greedy(
        Writes((tokens,)), Distributions(logits), [[1]], NEW, rounding, spell=lambda token: "abcd"[token]
    )


def test_a_tie_a_bug_and_what_comes_after_them() -> None:
    logits = [[5.0, 4.0, 1.0, 0.0], [4.99, 5.0, 1.0, 0.0], [5.0, 1.0, 3.0, 0.0], [1.0, 9.0, 1.0, 0.0]]
    result = judged((0, 0, 2, 1), logits, 0.05)
    tie, bug = result.divergences
    assert (tie.position, tie.best_text, tie.said_text, tie.verdict) == (1, "b", "a", "near-tie")
    assert tie.margin == pytest.approx(0.01)
    assert (bug.position, bug.best, bug.second, bug.said, bug.verdict) == (2, 0, 2, 2, "bug")
    assert bug.margin == pytest.approx(2.0)
    assert (result.positions, result.verdict) == (4, "not lossless")
    assert "'c' for 'a' at position 2" in result.reasons[0]
    assert judged((0, 0), logits, 0.05).verdict == "lossless"
    assert judged((0, 0), logits, 0.0).verdict == "not lossless", "where nothing rounds, a hair is a bug"
    assert result.record()["where"][0]["verdict"] == "bug"


def test_past_the_end_is_a_bug_though_every_token_is_the_likeliest() -> None:
    logits = [[5.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0], [5.0, 0.0, 0.0, 0.0]]
    assert judged((0, 3), logits, 0.0).verdict == "lossless"
    result = judged((0, 3, 0), logits, 0.0)
    assert (result.past_end, result.positions, result.divergences) == (1, 2, ())
    assert result.verdict == "not lossless"


def test_nothing_seen_decides_nothing() -> None:
    assert judged((), [[1.0, 0.0, 0.0, 0.0]], 0.0).verdict == "undecided"


def test_tokens_that_count_as_one() -> None:
    result = audit_greedy(
        Writes(((0,),)),
        Distributions([[1.0, 0.0, 5.0, 0.0]]),
        [[1]],
        NEW,
        EXACT,
        spell=str,
        token_class=np.array([0, 1, 0, 3]),
    )
    assert result.verdict == "lossless", "2 is the likeliest, and 2 counts as 0"


# -- engines ---------------------------------------------------------------------------------------------------------


def texts_of(engine: hs.Engine, prompts: list[list[int]]) -> list[tuple[list[int], tuple[int, ...]]]:
    return [(prompt, engine.generate(prompt, NEW).tokens) for prompt in prompts]


PROMPTS = [[5, 6, 5, 6, 5], [9] * 12, [3, 80, 41]]


@pytest.mark.parametrize(
    "options", [{}, {"repetition_penalty": 1.3, "presence_penalty": 0.4, "min_tokens": 9}], ids=str
)
def test_a_correct_engine(options: dict[str, Any], load: Callable[..., hs.Engine], tiny: Callable[..., str]) -> None:
    engine = load("llama", tiny("llama", noise=0.02))
    plain = EngineSubject(engine.plain())
    rounding = measure_rounding(EngineReference.of(engine), texts_of(engine.plain(), PROMPTS), NEW)
    result = audit_greedy(
        EngineSubject(engine), EngineReference.of(engine), PROMPTS, replace(NEW, **options), rounding,
        spell=str, plain=plain,
    )  # fmt: skip
    assert result.verdict == "lossless", result.reasons
    assert result.count("bug") == 0
    assert result.plain is not None
    assert result.plain.equal == len(PROMPTS)
    assert result.positions > len(PROMPTS) * 9


def test_one_swapped_token_is_found_where_it_is(load: Callable[..., hs.Engine]) -> None:
    """The runner-up at position 7, then greedy decoding on from there: one bug, not seventeen."""
    engine = load("llama")
    reference = EngineReference.of(engine)
    prompt = PROMPTS[0]
    before = engine.generate(prompt, Sampling(max_tokens=7, ignore_eos=True)).tokens
    runner_up = int(np.argsort(reference.distributions(prompt, before, Sampling(temperature=1.0))[-1])[-2])
    after = engine.generate([*prompt, *before, runner_up], Sampling(max_tokens=16, ignore_eos=True)).tokens
    subject = Writes(((*before, runner_up, *after),))
    cold = Sampling(max_tokens=24, ignore_eos=True)
    rounding = measure_rounding(EngineReference.of(engine), texts_of(engine, PROMPTS), NEW)
    result = audit_greedy(subject, reference, [prompt], cold, rounding, spell=str)
    (bug,) = result.divergences
    assert (bug.position, bug.said, bug.verdict) == (7, runner_up, "bug")
    assert bug.second == runner_up


def test_row_kernels_round_the_same_at_every_width(load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", dtype="bfloat16")
    if not engine.target.width_invariant:
        pytest.skip("no row kernels on this machine")
    rounding = measure_rounding(EngineReference.of(engine), texts_of(engine, PROMPTS), NEW)
    assert (rounding.margin, rounding.logprob, rounding.variation) == (0, 0, 0)
    assert "the same bits" in rounding.how


def test_another_implementation_rounds_otherwise(load: Callable[..., hs.Engine], tiny: Callable[..., str]) -> None:
    """transformers' own modules: a little in float32, more in bf16; a bf16 engine of theirs has near-ties, no bugs."""
    measured = {}
    for dtype in ("float32", "bfloat16"):
        engine = load("llama", dtype=dtype)
        other = transformers_logits(tiny("llama"), engine.target.dtype, engine.target.device)
        texts = texts_of(engine, PROMPTS)
        measured[dtype] = measure_rounding(
            EngineReference.of(engine), texts, NEW, other=other, other_name="transformers' own"
        )
    assert 0 < measured["float32"].margin < 1e-3 < measured["bfloat16"].margin < 1.0
    for rounding in measured.values():
        assert 0 < rounding.variation < rounding.variation_most
    assert measured["float32"].variation < measured["bfloat16"].variation < 0.1
    assert "transformers' own" in measured["bfloat16"].how
    model = loading.load_weights(
        tiny("llama"), loading.load_config(tiny("llama"), trust_remote_code=False), torch.bfloat16,
        torch.device("cpu"), trust_remote_code=False,
    )  # fmt: skip
    theirs = assemble(ModelRunner(model, max_length=128, decoder="modules"), eos_token_ids=engine.eos_token_ids)
    result = audit_greedy(
        EngineSubject(theirs), EngineReference.of(engine), PROMPTS, NEW, measured["bfloat16"], spell=str
    )
    assert result.count("bug") == 0, result.reasons
