"""The sampled audit on toy distributions: how often it accuses the innocent, what it catches, whether its figures are
true."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from support.audit_toys import Distribution, ToyReference, ToySubject, Wrong, powered

from headstart.base.errors import HeadstartError, InvalidOption, InvalidPrompt, NonFiniteLogits
from headstart.measure.audit.betting import Pool
from headstart.measure.audit.findings import SampledResult
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.audit.power import BIASES, TO_GUESSES, at_effect, distance, redraw
from headstart.measure.audit.prefixes import KEPT, Block, Prefixes
from headstart.measure.audit.sampled import LowerBound, audit_sampling
from headstart.measure.audit.subject import Ask, Completion
from headstart.types import Sampling

PROMPTS = ((1, 2), (3,), (4, 5))
WARM = Sampling(temperature=1.0, max_tokens=8)


def plan(**options: Any) -> AuditPlan:
    return AuditPlan(**{"effect": 0.03, "replicates": 20, "sample_tokens": 8, **options})


def audit(
    wrong: Wrong | None = None, *, reference: ToyReference | None = None, seed: int = 0, **options: Any
) -> SampledResult:
    reference = ToyReference() if reference is None else reference
    asked = plan(seed=seed, **options)
    subject = ToySubject(reference, seed=1000 + seed, wrong=wrong)
    return audit_sampling(subject, reference, asked.asks(PROMPTS), asked)


def blocks(
    count: int, size: int, *, reference: ToyReference | None = None, wrong: Wrong | None = None, seed: int = 0
) -> list[Block]:
    """What an audit of `count` batches would bet on, of a subject like this."""
    reference = ToyReference() if reference is None else reference
    asks = [Ask(prompt, WARM) for prompt in PROMPTS]
    prefixes = Prefixes(reference, asks, ToyReference(reference.vocab, seed=1))
    subject = ToySubject(reference, seed=seed, wrong=wrong)
    found = []
    for _ in range(count):
        turn = [i % 3 for i in range(size)]
        texts = [(ask, subject.sample([asks[ask]])[0].tokens) for ask in turn]
        met = [prefix for ask, text in texts for prefix in prefixes.along(ask, text)]
        found.append(Block.of(met, [token for _, text in texts for token in text]))
        prefixes.settle()
    return found


def highest(
    pool: Pool, met: Sequence[Block], distributions: Callable[[Block], Distribution], audits: int
) -> Distribution:
    """The most log capital [R] that each audit ever has, if the tokens come from these distributions."""
    generator = np.random.default_rng(5)
    most = np.zeros(audits)
    for block in met:
        pool.bet(block, redraw(distributions(block), audits, generator))
        most = np.maximum(most, pool.total())
    return most


def alarms(most: Distribution, level: float) -> float:
    """The share of audits that accuse at this level."""
    return float((most >= math.log(1 / level)).mean())


def at_most(share: float, level: float, trials: int) -> bool:
    """Whether a measured share is compatible with a probability of at most `level` (3 standard deviations)."""
    return share <= level + 3 * math.sqrt(level * (1 - level) / trials)


# -- no false alarms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocab", "audits"),
    [(12, 2000), pytest.param(97, 500, marks=pytest.mark.slow), pytest.param(700, 300, marks=pytest.mark.slow)],
)
def test_bets_against_the_truth_are_won_as_seldom_as_stated(vocab: int, audits: int) -> None:
    """Audits over the same places, tokens drawn from p."""
    met = blocks(12, 48, reference=ToyReference(vocab))
    pool = Pool.of(audits, tolerance=0.0, expected=200, knows_draft=True)
    most = highest(pool, met, lambda block: block.p, audits)
    for level in (0.01, 0.05, 0.3):
        assert at_most(alarms(most, level), level, audits), (level, alarms(most, level))


@pytest.mark.parametrize("tolerance", [0.0, 0.02])
def test_every_payoff_is_fair_under_every_distribution_that_is_tolerated(tolerance: float) -> None:
    """Exactly: the mean of each variant's payoff under the worst distribution within the tolerance, after some
    learning."""
    *before, last = blocks(6, 48)
    classes = last.p.shape[1]
    pool = Pool.of(classes, tolerance=tolerance, expected=200, knows_draft=True)
    for block in before:
        pool.bet(block, np.tile(block.drawn, (classes, 1)))
    moved = set()
    for i in range(0, len(last), 7):
        at = slice(i, i + 1)
        one = Block(last.prefixes[at], last.p[at], last.scores[at], last.buckets[at], last.drawn[at])
        for bettor in pool.bettors:
            payoffs = np.exp(bettor.payoffs(one, np.arange(classes)[:, None]))  # [C, T]
            worst = one.p[0] @ payoffs + tolerance * np.ptp(payoffs, 0)
            assert (worst <= 1 + 1e-9).all(), (bettor.strategy, worst)
            assert tolerance or np.allclose(worst, 1), (bettor.strategy, worst)
            if np.ptp(payoffs) > 0:
                moved.add(bettor.strategy)
    assert moved == set(pool.strategies), "a bettor that never bets"


@pytest.mark.slow
def test_audits_of_a_right_subject_accuse_as_seldom_as_stated() -> None:
    """Whole audits: paths, learning and early stops included."""
    reference, trials, level = ToyReference(8), 120, 0.05
    accused = [
        audit(reference=reference, seed=seed, level=level, effect=0.2, replicates=10, max_samples=240, batch=24).verdict
        == "not lossless"
        for seed in range(trials)
    ]
    assert at_most(np.mean(accused), level, trials), np.mean(accused)


@pytest.mark.parametrize(
    "bias",
    [pytest.param(bias, marks=pytest.mark.slow if 0 < bias < len(BIASES) else ()) for bias in range(len(BIASES) + 1)],
)
def test_within_the_tolerance_nobody_is_accused(bias: int) -> None:
    """Distributions that are off by as much as is tolerated, in every way that bets look for."""
    tolerance, level = 0.03, 0.05
    met = blocks(10, 48)

    def off(block: Block) -> Distribution:
        towards = (*BIASES, TO_GUESSES)[bias].distributions(block, 2.0)
        apart = np.abs(block.p - towards).sum(1, keepdims=True) / 2
        share = np.minimum(1.0, tolerance / np.maximum(apart, 1e-12))
        return (1 - share) * block.p + share * towards

    assert 0.7 * tolerance < distance(met[0].p, off(met[0])) < 1.001 * tolerance
    audits = 500
    tolerant, strict = (Pool.of(audits, tolerance=each, expected=200, knows_draft=True) for each in (tolerance, 0.0))
    assert at_most(alarms(highest(tolerant, met, off, audits), level), level, audits)
    assert alarms(highest(strict, met, off, audits), level) > 0.1, "the tolerance made no difference"


# -- what is wrong is caught ------------------------------------------------------------------------------------------


def to_seen(p: Distribution, tokens: tuple[int, ...]) -> Distribution:
    q = p.copy()
    q[list(tokens)] *= 1.6
    return q / q.sum()


def early_ends(p: Distribution, tokens: tuple[int, ...]) -> Distribution:
    q = p.copy()
    q[-1] *= 2
    return q / q.sum()


def one_token(p: Distribution, tokens: tuple[int, ...]) -> Distribution:
    q = p.copy()
    q[4] *= 1.7
    return q / q.sum()


def first_token(p: Distribution, tokens: tuple[int, ...]) -> Distribution:
    return p if tokens else np.roll(p, 1)


@pytest.mark.parametrize(
    ("wrong", "strategies"),
    [
        (powered(1.3), {"likelier", "ranks"}),
        (powered(0.75), {"likelier", "ranks"}),
        (to_seen, {"repeats"}),
        (early_ends, {"ends", "ids"}),
        (one_token, {"ids"}),
        (first_token, {"prefixes", "lag", "likelier"}),
    ],
    ids=["sharper", "flatter", "repeats", "ends", "one token", "first token"],
)
def test_a_wrong_distribution_is_caught_by_who_looks_for_it(wrong: Wrong, strategies: set[str]) -> None:
    result = audit(wrong, effect=0.01, max_samples=3000)
    assert result.verdict == "not lossless"
    best = max(result.strategies, key=lambda name: result.strategies[name])
    assert best in strategies, result.strategies
    assert "won" in result.reasons[0]


def test_tokens_that_are_impossible_are_proof_at_the_second_or_third() -> None:
    reference = ToyReference()
    only = Sampling(temperature=1.0, top_k=4)

    def beyond(p: Distribution, tokens: tuple[int, ...]) -> Distribution:
        return 0.97 * p + 0.03 * (p == 0) / (p == 0).sum()

    result = audit(beyond, reference=reference, effect=0.01, sampling=only)
    assert result.verdict == "not lossless"
    assert result.impossible >= 2
    assert any("probability 0" in reason for reason in result.reasons)
    assert audit(reference=reference, effect=0.1, sampling=only).impossible == 0


def test_texts_past_their_end_are_proof() -> None:
    class Going(ToySubject):
        def sample(self, asks: Sequence[Ask]) -> list[Completion]:
            return [
                Completion((*each.tokens, 3), "length") if each.finish_reason == "stop" else each
                for each in super().sample(asks)
            ]

    reference = ToyReference()
    result = audit_sampling(Going(reference), reference, plan().asks(PROMPTS), plan(replicates=10))
    assert result.verdict == "not lossless"
    assert result.past_end > 0
    assert "went on" in result.reasons[0]


# -- its figures are true ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_power_is_the_share_that_is_caught() -> None:
    """Against audits of subjects that have the very bias, at a size where some are caught and some are not."""
    count, trials, paths, replicates, exponent = 192, 60, 4, 50, 1.15
    common: dict[str, Any] = {"power": 0.999, "effect": 0.05, "max_samples": count, "batch": 32}
    shares = []
    for seed in range(paths):  # what is stated depends on the texts that were met
        powers = audit(replicates=replicates, seed=seed, **common).powers
        shares.append(next(power.share for power in powers if power.bias == "sharper"))
    stated = np.mean(shares)
    met = blocks(6, 32, wrong=powered(exponent))
    apart = np.mean([distance(each.p, each.p**exponent / (each.p**exponent).sum(1, keepdims=True)) for each in met])
    assert abs(apart - 0.05) < 0.004, "the subject does not have the bias that was asked about"
    audits = [audit(powered(exponent), replicates=10, seed=seed, **common) for seed in range(trials)]
    caught = np.mean([each.verdict == "not lossless" for each in audits])
    assert 0.2 < caught < 0.98
    deviation = math.sqrt(0.25 / trials + 0.25 / (paths * replicates))
    assert abs(stated - caught) < 3 * deviation, (stated, caught)


@pytest.mark.parametrize("knows_draft", [False, True])
def test_biases_have_the_effect_they_are_given(knows_draft: bool) -> None:
    block = blocks(1, 48)[0]
    for bias in (*BIASES, *([TO_GUESSES] if knows_draft else [])):
        for effect in (0.01, 0.05):
            distributions = at_effect(block, bias, effect)
            assert np.allclose(distributions.sum(1), 1)
            assert (distributions >= 0).all()
            assert not distributions[block.p == 0].any(), "a bias is no impossible token"
            assert distance(block.p, distributions) == pytest.approx(effect, rel=1e-3), bias.name


@pytest.mark.slow
def test_the_lower_bound_is_below_the_truth() -> None:
    level, wrong = 0.1, powered(1.6)
    above = []
    for seed in range(20):
        bound = LowerBound(level)
        pool = Pool.of(1, tolerance=0.0, expected=200, knows_draft=False)
        true = []
        for block in blocks(8, 48, wrong=wrong, seed=seed):
            bound.add(block, pool.favoured(block))
            pool.bet(block, block.drawn[None])
            biased = block.p**1.6 / (block.p**1.6).sum(1, keepdims=True)
            true.append(distance(block.p, biased))
        above.append(bound.value > np.mean(true))
    assert at_most(np.mean(above), level, len(above))
    assert bound.value > 0.3 * np.mean(true), "a bound that is of no use"


# -- how it goes about it ---------------------------------------------------------------------------------------------


def test_it_stops_when_it_is_sure() -> None:
    seen: list[tuple[int, int]] = []
    reference = ToyReference()
    sure = plan(effect=0.1)
    result = audit_sampling(
        ToySubject(reference), reference, sure.asks(PROMPTS), sure,
        lambda part, done, most, words="": seen.append((done, most)),
    )  # fmt: skip
    assert result.verdict == "lossless"
    assert result.completions == seen[-1][0] < seen[-1][1]
    assert [completions for completions, _, _ in result.curve] == [done for done, _ in seen]
    *before, last = [power for _, _, power in result.curve]
    assert last >= 0.9
    assert all(power < 0.9 for power in before)
    assert all(power.share >= 0.9 for power in result.powers if power.counted)
    assert reference.asked < result.tokens, "each prefix is asked about once, a text's all together"


def test_too_few_samples_are_said_to_be_too_few() -> None:
    few = audit(effect=0.02, max_samples=256, replicates=40)
    assert few.verdict == "undecided"
    assert few.needed is None or few.needed > 256
    assert "a power of 0.9 takes" in few.reasons[1]
    more = audit(effect=0.05, max_samples=320, replicates=60, power=0.95)
    assert more.verdict == "undecided"
    assert more.needed is not None
    enough = audit(effect=0.05, max_samples=4 * more.needed, replicates=60, power=0.95)
    assert enough.verdict == "lossless"
    assert more.needed / 3 < enough.completions < 3 * more.needed


def test_distributions_without_chance_decide_nothing() -> None:
    result = audit(reference=ToyReference(spread=1e6), max_samples=128)
    assert result.verdict == "undecided"
    assert not any(power.counted for power in result.powers)
    assert "almost nothing to chance" in result.reasons[0]


def test_the_same_seeds_give_the_same_audit() -> None:
    assert audit(effect=0.1).record() == audit(effect=0.1).record()


def test_the_record_is_json() -> None:
    record = json.loads(json.dumps(audit(effect=0.1).record()))
    assert record["verdict"] == "lossless"
    assert set(record["power"]) == {bias.name for bias in BIASES}
    assert record["total_variation"]["at_least"] == 0.0
    assert record["settings"]["level"] == 0.01
    assert len(record["asks"]) == 3


def test_large_vocabularies_are_lumped_and_nothing_is_lost_of_the_mass() -> None:
    reference = ToyReference(700)
    prefixes = Prefixes(reference, [Ask((1, 2), WARM)])
    p = reference.distribution((1, 2), WARM)
    unlikely = int(p.argmin())
    prefix = prefixes.along(0, (unlikely,))[0]
    assert len(prefix.ids) == KEPT
    assert prefix.p.sum() == pytest.approx(1)
    assert prefix.p[prefix.class_of(int(p.argmax()))] == pytest.approx(p.max())
    assert prefix.class_of(int(p.argmax())) == 0
    assert prefix.class_of(unlikely) == prefix.rest
    assert prefix.class_of(699) < KEPT, "what ends the text is kept apart"
    assert prefix.class_of(-1) == prefix.impossible
    cut = Prefixes(reference, [Ask((1, 2), Sampling(temperature=1.0, top_k=200))]).along(0, (unlikely,))[0]
    order = np.argsort(-p)
    first, last, *outside = (cut.class_of(int(token)) for token in order[[0, 199, 200, 699]])
    assert (first, last, outside) == (0, cut.rest, [cut.impossible] * 2)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"level": 0.0}, InvalidOption),
        ({"effect": 0.0}, InvalidOption),
        ({"sampling": Sampling()}, InvalidOption),
        ({"replicates": 1}, InvalidOption),
        ({"nonsense": 1}, InvalidOption),
    ],
)
def test_bad_plans_are_refused(given: dict[str, Any], error: type[HeadstartError]) -> None:
    with pytest.raises(error):
        AuditPlan(**given)


def test_bad_input_is_refused() -> None:
    reference = ToyReference()
    subject = ToySubject(reference)
    for prompts in ((), ((),)):
        with pytest.raises(InvalidPrompt, match="needs prompts"):
            plan().asks(prompts)
        with pytest.raises(InvalidPrompt, match="needs prompts"):
            audit_sampling(subject, reference, [Ask(prompt, WARM) for prompt in prompts], plan())
    with pytest.raises(InvalidOption, match="temperature above 0"):
        audit_sampling(subject, reference, [Ask((1,), Sampling())], plan())
    with pytest.raises(InvalidOption, match="hides an effect"):
        audit_sampling(subject, reference, [Ask((1,), WARM)], plan(), tolerance=0.03)

    class Broken(ToyReference):
        def distribution(self, prefix: Sequence[int], sampling: Sampling) -> Distribution:
            return np.full(self.vocab, np.nan)

    with pytest.raises(NonFiniteLogits, match="no distribution after"):
        audit_sampling(subject, Broken(), plan().asks(PROMPTS), plan(replicates=10))
