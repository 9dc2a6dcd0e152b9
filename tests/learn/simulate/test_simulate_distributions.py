"""The simulator's claim: whatever the draft, the rule and the lengths, the text has the target's distribution.

Exactly, by enumerating what one round can emit, and against headstart.rule.verify; by chi-square over whole texts. The
same two tests have to catch rules that are wrong in the ways seen in the wild.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes
from support.rotation import rotated

from headstart.learn import simulate as sim
from headstart.learn.simulate.contexts import shared
from headstart.learn.simulate.distributions import Draws, Floats, Ints
from headstart.rule.verify import traverse, walk
from headstart.types import Draft

V = 3
PATHS = list(product(range(V), repeat=2))  # every draft of two tokens


def drafted(p: Any, q: Any, k: int) -> sim.Round:
    """A round in which stream i drafted PATHS[i], cut to k tokens; all that matters to both models is known."""
    contexts, p_distributions, q_distributions, start = shared(p, q, ())
    assert q_distributions is not None
    here, found, tokens = np.full(len(PATHS), start), [], []
    for depth in range(k):
        found.append(here)
        tokens.append(np.array([path[depth] for path in PATHS]))
        q_distributions.require(here)
        here = contexts.follow(here, tokens[-1])
    found.append(here)
    for one in found:
        p_distributions.require(one)
    q_distributions.cover()
    return sim.Round(found, tokens, np.full(len(PATHS), k), p_distributions, q_distributions)


def verdicts(rule: sim.ChainRule, p: Any, q: Any, k: int) -> list[dict[tuple[int, ...], float]]:
    """For each stream the exact distribution of what the rule emits, given its draft."""
    round_ = drafted(p, q, k)
    reach = [np.ones(len(PATHS)), *rule.reach(round_), np.zeros(len(PATHS))]
    result: list[dict[tuple[int, ...], float]] = [{} for _ in PATHS]
    for kept in range(k + 1):
        chance = reach[kept] - reach[kept + 1]
        rest = rule.rest(round_, np.full(len(PATHS), kept))
        for stream in np.flatnonzero(chance):
            for token in np.flatnonzero(rest[stream]).tolist():
                text = (*PATHS[stream][:kept], token)
                weight = chance[stream] * rest[stream, token] / rest[stream].sum()
                result[stream][text] = result[stream].get(text, 0) + weight
    return result


def distribution_of_round(rule: sim.ChainRule, p: Any, q: Any, k: int) -> dict[tuple[int, ...], Any]:
    """What a round emits, over all drafts the rule would propose."""
    result: dict[tuple[int, ...], float] = {}
    for path, distribution in zip(PATHS, verdicts(rule, p, q, k), strict=True):
        if path[k:] != (0,) * (2 - k):
            continue  # cut to k tokens it is another one's twin
        chance = 1.0
        for i in range(k):
            own = q(path[:i])
            chance *= float(own[path[i]]) if rule.name != "point-mass" else float(int(np.argmax(own)) == path[i])
        for emitted, weight in distribution.items():
            result[emitted] = result.get(emitted, 0) + chance * weight
    return result


def distance(one: dict[Any, Any], other: dict[Any, Any]) -> float:
    """Total variation."""
    return sum(abs(float(one.get(key, 0)) - float(other.get(key, 0))) for key in {*one, *other}) / 2


EXACT = [sim.ChainRule(), sim.BlockRule(), sim.PointMassRule()]


@pytest.mark.parametrize("zeros", [0.0, 0.4], ids=["full support", "zeros in p and q"])
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: rule.name)
def test_one_round_keeps_the_distribution_exactly(rule: sim.ChainRule, k: int, zeros: float) -> None:
    for seed in range(4):
        p, q = RandomModel(seed, zeros=zeros), RandomModel(seed + 100, zeros=zeros)
        found = completed(distribution_of_round(rule, p, q, k), p, k + 1)
        assert distance(found, joint(p, k + 1)) < 1e-12


@pytest.mark.parametrize("zeros", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_each_draft_is_judged_as_the_engine_judges_it(seed: int, zeros: float) -> None:
    """block = traverse on a chain; chain = the same where one token was drafted; point-mass = walk."""
    p, q = RandomModel(seed, zeros=zeros), RandomModel(seed + 100, zeros=zeros)
    for k in (1, 2):
        found = {rule.name: verdicts(rule, p, q, k) for rule in EXACT}
        for stream, path in enumerate(PATHS):
            draft = Draft.chain(path[:k])
            rows = [p(path[:i]) for i in range(k + 1)]
            distributions = [q(path[:i]) for i in range(k)]
            walked = outcomes(partial(engine_walk, draft, rows))
            assert distance(found["point-mass"][stream], walked) < 1e-12
            if any(distributions[i][path[i]] == 0 for i in range(k)):
                continue  # never drafted
            judged = outcomes(partial(engine_traverse, draft, rows, distributions))
            assert distance(found["block"][stream], judged) < 1e-12
            if k == 1:
                assert distance(found["chain"][stream], judged) < 1e-12


def engine_walk(draft: Draft, p: list[Any], oracle: Oracle) -> tuple[int, ...]:
    return emitted(draft, walk(draft, p, lambda distribution, _: oracle.draw(distribution)))


def engine_traverse(draft: Draft, p: list[Any], q: list[Any], oracle: Oracle) -> tuple[int, ...]:
    return emitted(
        draft, traverse(draft, p, q, lambda a, _: oracle.uniform(a), lambda distribution, _: oracle.draw(distribution))
    )


def emitted(draft: Draft, verdict: Any) -> tuple[int, ...]:
    return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)


# -- whole texts ------------------------------------------------------------------------------------------------------

TEXTS, LENGTH, WORDS = 40_000, 3, 4


def joint_distribution(model: Any, length: int = LENGTH) -> dict[tuple[int, ...], float]:
    """Of the first tokens after prompt (0,), under plain sampling."""
    distribution: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        distribution = {(*t, w): c * float(model((0, *t))[w]) for t, c in distribution.items() for w in range(WORDS)}
    return distribution


def p_value(model: Any, texts: Ints) -> float:
    distribution = {text: chance for text, chance in joint_distribution(model).items() if chance > 0}
    counts = Counter(map(tuple, texts.tolist()))
    assert set(counts) <= set(distribution), "an impossible text was emitted"
    rare = {text for text, chance in distribution.items() if chance * len(texts) < 5}  # one cell for all of them
    observed = [counts[text] for text in distribution if text not in rare] + [sum(counts[text] for text in rare)]
    expected = [distribution[text] * len(texts) for text in distribution if text not in rare] + [
        sum(distribution[t] for t in rare) * len(texts)
    ]
    if expected[-1] == 0:
        del observed[-1], expected[-1]
    return float(chisquare(observed, expected).pvalue)


def pair(temperature: float) -> tuple[Any, Any]:
    """Two unrelated models, a pair on which even the least of the wrong rules shows."""
    models = (sim.random_table(WORDS, order=2, seed=seed, spread=1.2) for seed in (2, 11))
    target, draft = (sim.at_temperature(model, temperature) for model in models)
    return target, draft


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_plain_decoding_follows_the_joint_distribution(temperature: float) -> None:
    target, _ = pair(temperature)
    assert p_value(target, sim.plain(target, LENGTH, streams=TEXTS, seed=1)) > 1e-4


def by_parity(history: sim.History) -> Ints:
    """A rule of one's own: streams draft different numbers of tokens, some of them none."""
    return (np.arange(history.streams) + len(history.drafted)) % 4


KS = (1, 3, sim.SimpleK(start=2, rounds=1), sim.ConfidentK(0.45, most=4), sim.OracleK(0.2, most=5), by_parity)


@pytest.mark.parametrize(
    ("rule", "k", "temperature"),
    rotated([list(sim.RULES), KS], [(0.7,), (1.0,), (1.3,)], most=1),
    ids=lambda each: (
        str(each) if isinstance(each, (int, float, str)) else getattr(each, "__name__", type(each).__name__)
    ),
)
def test_speculation_follows_the_joint_distribution(rule: str, k: Any, temperature: float) -> None:
    """Every rule with every way to choose k, and each of both at every temperature."""
    target, draft = pair(temperature)
    run = sim.speculate(target, draft, k=k, rule=rule, tokens=LENGTH, streams=TEXTS, seed=2)
    assert p_value(target, run.tokens) > 1e-4


class FromP(sim.ChainRule):
    """Wrong: after a rejection it samples p, not the residual."""

    def rest(self, drafted: sim.Round, kept: Ints) -> Floats:
        return drafted.p.rows(drafted.after(kept))


class NextRow(sim.ChainRule):
    """Wrong: it samples from the row after the rejected one."""

    def rest(self, drafted: sim.Round, kept: Ints) -> Floats:
        return drafted.p.rows(drafted.after(np.minimum(kept + 1, drafted.k)))


class OtherToken(sim.ChainRule):
    """Wrong: it compares p of the token with q of the draft's likeliest one."""

    def reach(self, drafted: sim.Round) -> list[Floats]:
        chances, so_far = [], np.ones(len(drafted.k))
        for i, token in enumerate(drafted.tokens):
            here = drafted.contexts[i]
            so_far = so_far * np.minimum(drafted.p.of(here, token) / drafted.q.top(here), 1)
            chances.append(so_far)
        return chances


class KeepsLess(sim.BlockRule):
    """Wrong: block acceptance with the chain rule's residual."""

    def rest(self, drafted: sim.Round, kept: Ints) -> Floats:
        return sim.ChainRule.rest(self, drafted, kept)


class GreedyAcceptance(sim.ChainRule):
    """Wrong in a sampled request: a guess is kept if it is the target's likeliest token."""

    def reach(self, drafted: sim.Round) -> list[Floats]:
        chances, so_far = [], np.ones(len(drafted.k))
        for i, token in enumerate(drafted.tokens):
            so_far = so_far * (drafted.p.best(drafted.contexts[i]) == token)
            chances.append(so_far)
        return chances


WRONG = [FromP(), NextRow(), OtherToken(), KeepsLess(), GreedyAcceptance()]


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: type(rule).__name__)
def test_wrong_rules_are_caught(rule: sim.ChainRule) -> None:
    target, draft = pair(1.0)
    run = sim.speculate(target, draft, k=3, rule=rule, tokens=LENGTH, streams=TEXTS, seed=2)
    assert p_value(target, run.tokens) < 1e-6
    p, q = RandomModel(1), RandomModel(101)
    assert distance(completed(distribution_of_round(rule, p, q, 2), p, 3), joint(p, 3)) > 1e-3


class LooksAtTheToken(sim.ChainRule):
    """Wrong: guesses the draft gave less than 0.3 are dropped after they were drawn, and p is sampled instead."""

    def reach(self, drafted: sim.Round) -> list[Floats]:
        sure = np.ones(len(drafted.k), dtype=bool)
        chances = []
        for i, (chance, token) in enumerate(zip(super().reach(drafted), drafted.tokens, strict=True)):
            sure = sure & (drafted.q.of(drafted.contexts[i], token) >= 0.3)
            chances.append(chance * sure)
        return chances


def test_a_stop_that_looks_at_the_drawn_token_is_caught() -> None:
    """Why length rules see the draft's distribution, and not what was drawn from it."""
    target, draft = pair(1.0)
    run = sim.speculate(target, draft, k=3, rule=LooksAtTheToken(), tokens=LENGTH, streams=TEXTS, seed=2)
    assert p_value(target, run.tokens) < 1e-6


# -- greedy, and rule "coupled" ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", sim.RULES)
def test_greedy_text_is_the_target_s_own(rule: str) -> None:
    target, draft = sim.dial_pair(0.5, order=2, seed=4)
    alone = sim.plain(sim.greedy(target), 40, streams=3, prompt=(1, 2))
    context = [1, 2]
    for token in alone[0].tolist():
        assert token == int(np.argmax(target(tuple(context))))
        context.append(token)
    for drafter in (draft, sim.greedy(draft)):
        run = sim.speculate(sim.greedy(target), drafter, k=4, rule=rule, tokens=40, streams=3, prompt=(1, 2))
        np.testing.assert_array_equal(run.tokens, alone)


@pytest.mark.parametrize("k", [0, 1, 5, sim.ConfidentK(0.3), by_parity])
def test_coupled_gives_one_text_per_seed_whatever_the_draft(k: Any) -> None:
    target, _ = sim.dial_pair(0.5, seed=4)
    alone = sim.plain(target, 30, streams=50, seed=8)
    for a in (0.0, 0.9, 1.0):
        draft = sim.dial_pair(a, seed=4)[1]
        run = sim.speculate(target, draft, k=k, rule="coupled", tokens=30, streams=50, seed=8)
        np.testing.assert_array_equal(run.tokens, alone)
    assert (sim.plain(target, 30, streams=50, seed=9) != alone).any()


def test_race_noise_is_exponential_and_unrelated_between_streams_and_positions() -> None:
    from scipy.stats import kstest

    draws = Draws(5, 200, 100)
    first, second = draws.exponentials(0), draws.exponentials(1)
    assert kstest(first.ravel(), "expon").pvalue > 1e-3
    for one, other in ((first, second), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.03
    draws.advance(1)
    np.testing.assert_array_equal(draws.exponentials(0), second)
