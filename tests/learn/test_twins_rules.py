"""The page's rules are those of the engine: exact distributions by enumeration, and the same verdicts from the same
noise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes
from support.twins import Twin

from headstart.rule.noise import Noise, Purpose
from headstart.rule.verify import traverse, verify, walk
from headstart.types import Draft, Verdict

V = 3
Texts = dict[tuple[int, ...], Fraction]


def as_text(distribution: Any) -> list[str]:
    return [str(x) for x in distribution]


def read(found: list[dict[str, Any]], key: str = "tokens") -> Texts:
    return {tuple(each[key]): Fraction(each["chance"]) for each in found}


def emitted(draft: Draft, verdict: Verdict) -> tuple[int, ...]:
    return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)


# -- fractions ---------------------------------------------------------------------------------------------------------


def test_fractions_are_pythons(js: Twin) -> None:
    rng = np.random.default_rng(1)
    pairs = [[f"{a}/{b}", f"{c}/{d}"] for a, c, b, d in rng.integers(1, 10**6, (50, 4)).tolist()]
    pairs += [["0", "-3/7"], ["-1/3", "1/3"], ["7", "7/1"], [f"{10**400 + 1}/{3 * 10**400}", "1/3"], ["1/7e-50", "2"]]
    call = """(pairs) => pairs.map(([x, y]) => {
      const [a, b] = [hs.rational.fraction(x), hs.rational.fraction(y)];
      return [a.plus(b), a.minus(b), a.times(b), a.over(b), a.compare(b), a.toNumber(), a.equals(b)];
    })"""
    for (x, y), found in zip(pairs, js(call, pairs), strict=True):
        a, b = Fraction(x) if "e" not in x else Fraction(10**50, 7), Fraction(y)
        assert [Fraction(each) for each in found[:4]] == [a + b, a - b, a * b, a / b]
        assert found[4] == (a > b) - (a < b)
        assert found[5] == float(a), "the nearest double"
        assert found[6] == (a == b)


def test_what_people_write_is_read(js: Twin) -> None:
    texts = {"0.25": "1/4", ".3": "3/10", "3/14": "3/14", "25%": "1/4", "1e-3": "1/1000", " 2 ": "2", "0,5": "1/2"}
    texts |= {"-1.50": "-3/2", "0.2/0.4": "1/2", "12.5%": "1/8"}
    assert js("(texts) => texts.map((t) => hs.rational.parse(t))", list(texts)) == list(texts.values())
    assert js("() => [hs.rational.fraction(0.1), hs.rational.fraction(3, 12), hs.rational.fraction(7n)]") == [
        "1/10",
        "1/4",
        "7",
    ]
    refused = """(texts) => texts.map((t) => {
      try { return String(hs.rational.parse(t)); } catch (error) { return error.constructor.name; }
    })"""
    assert js(refused, ["", "x", "1/0", "1/2/3", ".", "1..2", "e5", "%"]) == ["RangeError"] * 8
    decimals = js("() => ['2/3', '-1/8', '5', '1999/2000'].map((t) => hs.rational.parse(t).toDecimal(3))")
    assert decimals == ["0.667", "-0.125", "5.000", "1.000"]
    assert js("() => hs.rational.parse('7/2').toDecimal(0)") == "4"


# -- noise -------------------------------------------------------------------------------------------------------------

SEEDS = [0, 1, 123, 2**53 + 1, 2**63 - 1]


def test_noise_is_the_engines(js: Twin) -> None:
    asked = [
        (p, int(purpose), lane, index)
        for p in (0, 5, 4096)
        for purpose in Purpose
        for lane in (0, 7)
        for index in (0, 63)
    ]
    call = "([seed, asked]) => asked.map((each) => new hs.noise.Noise(seed).uniform(...each))"
    for seed in SEEDS:
        noise = Noise(seed)
        assert js(call, [str(seed), asked]) == [noise.uniform(p, Purpose(u), lane, i) for p, u, lane, i in asked]
    call = "(seed) => [undefined, [4, 11]].map((some) => new hs.noise.Noise(seed).exponentials(9, 1, 0, 20, some))"
    for seed in SEEDS:
        every, some = js(call, str(seed))
        wanted = Noise(seed).exponentials(9, Purpose.TOKEN, 0, 20)
        assert every == pytest.approx(wanted.tolist(), rel=1e-12)
        assert some == [every[4], every[11]]


def test_draws_are_the_engines(js: Twin) -> None:
    rng = np.random.default_rng(5)
    distributions = rng.random((20, 16)) * (rng.random((20, 16)) > 0.3)
    distributions[0] = 0
    distributions[0, 7] = 1
    call = "([seed, all]) => all.map((each, i) => new hs.noise.Noise(seed).draw(each, i, 1))"
    for seed in SEEDS:
        wanted = [Noise(seed).draw(distribution, i, Purpose.TOKEN) for i, distribution in enumerate(distributions)]
        assert js(call, [str(seed), distributions.tolist()]) == wanted


# -- trees -------------------------------------------------------------------------------------------------------------


def random_tree(seed: int, nodes: int) -> tuple[Draft, list[Any], list[Any]]:
    """A tree, its N + 1 distributions p and its N distributions q, of random fractions; elder siblings are struck from
    q."""
    rng = np.random.default_rng(seed)
    p, q = RandomModel(seed, V, zeros=0.2), RandomModel(seed + 1000, V, zeros=0.2)
    tokens: list[int] = []
    parents: list[int] = []
    distributions: list[Any] = []
    contexts: list[tuple[int, ...]] = [()]
    while len(tokens) < nodes:
        parent = int(rng.integers(-1, len(tokens)))
        taken = [tokens[i] for i, each in enumerate(parents) if each == parent]
        distribution = q(contexts[parent + 1]).copy()
        distribution[taken] = Fraction(0)
        if not distribution.sum():
            nodes -= 1
            continue
        distribution = distribution / distribution.sum()
        token = int(rng.choice(V, p=distribution.astype(float)))
        tokens.append(token)
        parents.append(parent)
        distributions.append(distribution)
        contexts.append((*contexts[parent + 1], token))
    return Draft(tuple(tokens), tuple(parents)), [p(context) for context in contexts], distributions


TREE = """({tokens, parents, p, q, rule}) => {
  const draft = hs.rules.makeDraft(tokens, parents);
  const [P, Q] = [p, q].map((distributions) => distributions.map(hs.arithmetic.fractions));
  const judge = hs.enumerate.JUDGES[rule];
  const found = hs.enumerate.outcomes((oracle) => judge(draft, P, Q, oracle), P[0][0]);
  return found.map(({ value, chance }) => ({ tokens: value, chance }));
}"""


@pytest.mark.parametrize("seed", range(12))
def test_traversal_of_random_trees_has_the_same_exact_distribution(js: Twin, seed: int) -> None:
    draft, p, q = random_tree(seed, nodes=1 + seed % 7)

    def traversed(oracle: Oracle) -> tuple[int, ...]:
        return emitted(
            draft,
            traverse(draft, p, q, lambda a, _: oracle.uniform(a), lambda distribution, _: oracle.draw(distribution)),
        )

    def walked(oracle: Oracle) -> tuple[int, ...]:
        return emitted(draft, walk(draft, p, lambda distribution, _: oracle.draw(distribution)))

    tree = {
        "tokens": draft.tokens,
        "parents": draft.parents,
        "p": [as_text(x) for x in p],
        "q": [as_text(x) for x in q],
    }
    assert read(js(TREE, {**tree, "rule": "traverse"})) == outcomes(traversed)
    assert read(js(TREE, {**tree, "rule": "walk"})) == outcomes(walked)


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_from_the_same_noise(js: Twin, seed: int) -> None:
    draft, exact_p, exact_q = random_tree(seed, nodes=6)
    p, q = (
        np.array([distribution.astype(float) for distribution in distributions]) for distributions in (exact_p, exact_q)
    )
    call = """({tokens, parents, p, q, seeds, rule}) => seeds.map((seed) => {
      const draft = hs.rules.makeDraft(tokens, parents);
      const { path, token } = hs.rules.verify(draft, p, q, new hs.noise.Noise(seed), 17, rule);
      return [path, token];
    })"""
    tree: dict[str, Any] = {"tokens": draft.tokens, "parents": draft.parents, "p": p.tolist()}
    seeds = range(40)
    for rule, distributions in (("exact", q), ("exact", None), ("coupled", q)):
        sent = {
            **tree,
            "q": None if distributions is None else distributions.tolist(),
            "rule": rule,
            "seeds": [str(s) for s in seeds],
        }
        wanted = [verify(draft, p, distributions, Noise(s), 17, rule) for s in seeds]  # type: ignore[arg-type]
        assert js(call, sent) == [[list(each.path), each.bonus] for each in wanted]


def test_a_verdict_says_what_it_did(js: Twin) -> None:
    call = """() => {
      const { fractions } = hs.arithmetic;
      const p = [fractions([".5", ".3", ".2"]), fractions([".5", ".3", ".2"]), fractions([".5", ".3", ".2"])];
      const q = [fractions([".2", ".6", ".2"]), fractions([".2", ".6", ".2"])];
      const first = (distribution) => distribution.findIndex((x) => !x.isZero());
      const run = (rule, numbers) => hs.rules[rule](hs.rules.chain([1, 0]), p, q, hs.rules.uniforms(numbers), first);
      return [run("chainRule", [0.6, 0.9]), run("blockRule", [0.6, 0.9]), run("chainRule", [0.1, 0.1])];
    }"""
    classic, block, both = js(call)
    assert (classic["accepted"], classic["kind"], classic["distribution"]) == (0, "correction", ["1", "0", "0"])
    assert [step["chance"] for step in classic["steps"]] == ["1/2"]
    # pi = 1, 1/2, 1: the second guess makes up for the first, and its uniform draw is looked at first
    assert block["weights"] == ["1", "1/2", "1"]
    assert (block["accepted"], block["kind"], block["emitted"]) == (2, "bonus", [1, 0, 0])
    assert (both["accepted"], both["kind"]) == (2, "bonus")


# -- chains, right and wrong -------------------------------------------------------------------------------------------

MODELS = """
  const distributions = (rows) => { const known = new Map(rows.map(([c, distribution]) => [c.join(),
  hs.arithmetic.fractions(distribution)]));
    return (context) => known.get(context.join()); };
"""


def contexts(length: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for context in found:
        if len(context) < length:
            found.extend((*context, token) for token in range(V))
    return found


def table(model: RandomModel, length: int) -> list[Any]:
    return [[list(context), as_text(model(context))] for context in contexts(length)]


@pytest.mark.parametrize("judge", ["chain", "block", "traverse"])
@pytest.mark.parametrize("seed", range(3))
def test_the_right_rules_keep_the_distribution_exactly(js: Twin, judge: str, seed: int) -> None:
    p, q = RandomModel(seed, V, zeros=0.2), RandomModel(seed + 100, V)
    call = f"""({{ p, q, k, judge }}) => {{ {MODELS}
      const setup = {{ p: distributions(p), q: distributions(q), k, judge: hs.enumerate.JUDGES[judge] }};
      const [text, alone] = [hs.enumerate.textDistribution(setup, k + 1), hs.enumerate.joint(setup.p, k + 1)];
      return {{ text, alone, distance: hs.enumerate.distance(text, alone) }};
    }}"""
    for k in (1, 2):
        # rounds go on after the first, so the models are asked about longer contexts
        found = js(call, {"p": table(p, 2 * k + 1), "q": table(q, 2 * k + 1), "k": k, "judge": judge})
        assert read(found["text"]) == read(found["alone"]) == joint(p, k + 1)
        assert found["distance"] == "0"


def residual(p: Any, q: Any) -> Any:
    rest = np.maximum(p - q, 0)
    return rest / rest.sum() if rest.sum() else p


Judge = Callable[[tuple[int, ...], list[Any], list[Any], Oracle], tuple[int, ...] | None]


def token_by_token(refused: Any = None, finished: Any = None, joined: Any = None, ratio: Any = None) -> Judge:
    """The classic rule in Python, with the parts that the mutants of the page get wrong."""
    refused = refused or (lambda p, q, i: residual(p[i], q[i]))
    finished = finished or (lambda p, k: p[k])
    joined = joined or (lambda kept, last, was_refused: (*kept, *last))
    ratio = ratio or (lambda tokens, p, q, i: p[i][tokens[i]] / q[i][tokens[i]])

    def judge(tokens: tuple[int, ...], p: list[Any], q: list[Any], oracle: Oracle) -> tuple[int, ...] | None:
        def drawn(distribution: Any) -> tuple[int, ...]:
            return () if distribution is None else (oracle.draw(distribution),)

        for i in range(len(tokens)):
            if not oracle.uniform(min(ratio(tokens, p, q, i), Fraction(1))):
                result: tuple[int, ...] | None = joined(tokens[:i], drawn(refused(p, q, i)), True)
                return result
        ended: tuple[int, ...] | None = joined(tokens, drawn(finished(p, len(tokens))), False)
        return ended

    return judge


def q_of_the_next(tokens: tuple[int, ...], p: Any, q: Any, i: int) -> Fraction:
    other = q[i][tokens[(i + 1) % len(tokens)]]
    return Fraction(p[i][tokens[i]] / other) if other else Fraction(1)


def judge_goes_on(tokens: tuple[int, ...], p: list[Any], q: list[Any], oracle: Oracle) -> tuple[int, ...]:
    out = []
    for i, token in enumerate(tokens):
        kept = oracle.uniform(min(p[i][token] / q[i][token], Fraction(1)))
        out.append(token if kept else oracle.draw(residual(p[i], q[i])))
    return (*out, oracle.draw(p[len(tokens)]))


def judge_last_only(tokens: tuple[int, ...], p: list[Any], q: list[Any], oracle: Oracle) -> tuple[int, ...]:
    i = len(tokens) - 1
    if not oracle.uniform(min(p[i][tokens[i]] / q[i][tokens[i]], Fraction(1))):
        return (*tokens[:i], oracle.draw(residual(p[i], q[i])))
    return (*tokens, oracle.draw(p[i + 1]))


def greedily(tokens: tuple[int, ...], p: Any, q: Any, i: int) -> Fraction:
    return Fraction(int(tokens[i] == int(p[i].argmax())))


MUTANTS: dict[str, Judge] = {
    "noResidual": token_by_token(refused=lambda p, q, i: None, finished=lambda p, k: None),
    "fromTarget": token_by_token(refused=lambda p, q, i: p[i]),
    "scrambled": token_by_token(
        joined=lambda kept, last, was_refused: (*last, *kept) if was_refused else (*kept, *last)
    ),
    "crash": token_by_token(joined=lambda kept, last, was_refused: None if was_refused else (*kept, *last)),
    "rowAfter": token_by_token(refused=lambda p, q, i: p[i + 1]),
    "residualRowAfter": token_by_token(refused=lambda p, q, i: residual(p[i + 1], q[i])),
    "residualUpsideDown": token_by_token(refused=lambda p, q, i: residual(q[i], p[i])),
    "greedyAcceptance": token_by_token(refused=lambda p, q, i: p[i], ratio=greedily),
    "otherToken": token_by_token(ratio=q_of_the_next),
    "goesOn": judge_goes_on,
    "lastOnly": judge_last_only,
}


def round_distribution(p: RandomModel, q: RandomModel, k: int, judge: Judge) -> dict[Any, Fraction]:
    def procedure(oracle: Oracle) -> tuple[int, ...] | None:
        tokens: tuple[int, ...] = ()
        for _ in range(k):
            tokens = (*tokens, oracle.draw(q(tokens)))
        return judge(tokens, [p(tokens[:i]) for i in range(k + 1)], [q(tokens[:i]) for i in range(k)], oracle)

    return outcomes(procedure)


def test_every_mutant_has_a_twin(js: Twin) -> None:
    assert sorted(js("() => Object.keys(hs.mutants.MUTANTS)")) == sorted(MUTANTS)


@pytest.mark.parametrize("name", [*MUTANTS, "right"])
def test_wrong_verifiers_have_the_same_exact_distribution_and_are_caught(js: Twin, name: str) -> None:
    p, q, k = RandomModel(3, V), RandomModel(103, V), 2
    found = round_distribution(p, q, k, MUTANTS[name] if name != "right" else token_by_token())
    call = f"""({{ p, q, k, name }}) => {{ {MODELS}
      const judge = hs.mutants.MUTANTS[name] ?? hs.mutants.RIGHT_VERIFIER;
      const setup = {{ p: distributions(p), q: distributions(q), k, judge }};
      const round = hs.enumerate.roundDistribution(setup).map(({{ tokens, chance }}) => ({{ tokens: tokens ?? [-1],
      chance }})); const [text, alone] = [hs.enumerate.textDistribution(setup, 3), hs.enumerate.joint(setup.p, 3)];
      return {{ round, text, distance: hs.enumerate.distance(text, alone) }};
    }}"""
    sent = js(call, {"p": table(p, 5), "q": table(q, 5), "k": k, "name": name})
    assert read(sent["round"]) == {(-1,) if tokens is None else tokens: chance for tokens, chance in found.items()}
    right = name == "right"
    assert (Fraction(sent["distance"]) == 0) == right, "the enumeration of the page catches it"
    speaking = {tokens: chance for tokens, chance in found.items() if tokens}
    total = sum(speaking.values())
    distribution = completed({tokens: chance / total for tokens, chance in speaking.items()}, p, 3)
    assert (distribution == joint(p, 3)) == right, "so does that of the tests"


PUBLISHED = {
    # On p = [.5 .3 .2] and q = [.2 .6 .2]: the distribution that each fault emits, and how far it is from p.
    "noResidual": (["2/7", "3/7", "2/7"], Fraction(3, 14)),
    "fromTarget": (["7/20", "39/100", "13/50"], Fraction(3, 20)),
    "residualUpsideDown": (["1/5", "3/5", "1/5"], Fraction(3, 10)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures_of_faults(js: Twin, name: str) -> None:
    call = """(name) => hs.enumerate.emittedDistribution(
      hs.arithmetic.fractions([".5", ".3", ".2"]), hs.arithmetic.fractions([".2", ".6", ".2"]),
      hs.mutants.MUTANTS[name])"""
    distribution, far = PUBLISHED[name]
    assert js(call, name) == distribution
    gaps = [
        Fraction(x) - y for x, y in zip(distribution, (Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)), strict=True)
    ]
    assert sum(abs(gap) for gap in gaps) / 2 == far


def test_greedy_acceptance_as_it_was_measured(js: Twin) -> None:
    call = """() => hs.enumerate.emittedDistribution(hs.arithmetic.fractions([".5", ".3", ".2"]),
      hs.arithmetic.fractions([".6", ".2", ".2"]), hs.mutants.MUTANTS.greedyAcceptance)"""
    assert js(call) == ["4/5", "3/25", "2/25"]
