"""The tests tested: faults planted in the rule, the distribution, the judge and the cache, each caught by a check of
its kind.

A fault is a change of one place in a module's source, which is then executed as a module of its own. Every check is
also run on the module as it is, and must pass there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.enumeration import Oracle, RandomModel, completed, joint, outcomes
from support.reference_distribution import GREEDY, OUTPUT, PROMPT, SAMPLED, STOPS, V, random_logits, transformers_logits
from support.tiny import random_model

from headstart.base.errors import NonFiniteLogits
from headstart.drafters import Drafter
from headstart.drafters.growing import tree as siblings
from headstart.engine import judging
from headstart.loading.assembly import assemble
from headstart.model import cache
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.rule import distribution, distributions, drafted, filters, processors, verify
from headstart.types import Draft, Sampling, Verdict


def mutant(module: ModuleType, old: str, new: str) -> Any:
    """The module with one place of its source changed."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    made = ModuleType("a_mutant")
    sys.modules["a_mutant"] = made  # dataclasses look it up
    try:
        exec(compile(source.replace(old, new), f"{module.__name__} with {new!r}", "exec"), made.__dict__)
    finally:
        del sys.modules["a_mutant"]
    return made


def caught(check: Callable[..., None], *args: Any) -> bool:
    try:
        check(*args)
    except (Exception, pytest.fail.Exception):  # a fault may also show as an index out of range, say
        return True
    return False


# -- the rule: exact enumeration --------------------------------------------------------------------------------------


def judged(module: Any, draft: Draft, rows: Any, distributions: Any, oracle: Oracle) -> tuple[int, ...]:
    if distributions is None:
        verdict = module.walk(draft, rows, lambda p, _: oracle.draw(p))
    else:
        verdict = module.traverse(
            draft, rows, distributions, lambda a, _: oracle.uniform(a), lambda p, _: oracle.draw(p)
        )
    return (*(draft.tokens[node] for node in verdict.path), verdict.bonus)


def keeps_the_distribution_of_chains(module: Any) -> None:
    for seed in range(3):
        p, q = RandomModel(seed, zeros=0.2), RandomModel(seed + 100, zeros=0.2)

        def procedure(oracle: Oracle) -> tuple[int, ...]:
            tokens = [oracle.draw(q(()))]  # noqa: B023
            tokens.append(oracle.draw(q(tuple(tokens))))  # noqa: B023
            rows, drawn_from = ([model(tuple(tokens[:i])) for i in range(3)] for model in (p, q))  # noqa: B023
            return judged(module, Draft.chain(tokens), rows, drawn_from[:2], oracle)

        assert completed(outcomes(procedure), p, 3) == joint(p, 3)


def keeps_the_distribution_of_siblings(module: Any, growing: Any = siblings) -> None:
    for seed in range(6):
        p, q = RandomModel(seed), RandomModel(seed + 100)

        def procedure(oracle: Oracle) -> tuple[int, ...]:
            first = oracle.draw(q(()))  # noqa: B023
            rest = q(()).copy()  # noqa: B023
            rest[first] = Fraction(0)
            tokens = (first, oracle.draw(rest))
            rows = [p(()), *(p((token,)) for token in tokens)]  # noqa: B023
            drawn_from = growing.distributions_of_children(q(()), tokens)  # noqa: B023
            return judged(module, Draft(tokens, (-1, -1)), rows, drawn_from, oracle)

        assert completed(outcomes(procedure), p, 2) == joint(p, 2)


def keeps_the_distribution_of_point_masses(module: Any) -> None:
    p, draft = RandomModel(2), Draft((0, 1, 2, 0), (-1, -1, 0, 1))
    rows = [p(tuple(draft.tokens[n] for n in draft.path(node))) for node in range(-1, len(draft))]
    emitted = outcomes(lambda oracle: judged(module, draft, rows, None, oracle))
    assert completed(emitted, p, 3) == joint(p, 3)


def keeps_the_distribution_of_partial_drafts(kind: Any) -> None:
    """Pairs of siblings that were drawn from two of the three tokens, which the distribution names in falling order."""
    known = np.array([2, 1])
    part = drafted.Known(known)
    for seed in range(4):
        p, q = RandomModel(seed), RandomModel(seed + 100)

        def procedure(oracle: Oracle) -> tuple[int, ...]:
            distribution = q(())[known]  # noqa: B023
            first = oracle.draw(distribution / distribution.sum())
            tokens = (int(known[first]), int(known[1 - first]))
            rest = np.array([Fraction(0), Fraction(0)], dtype=object)
            rest[1 - first] = Fraction(1)
            rows = [p(()), *(p((token,)) for token in tokens)]  # noqa: B023
            distributions = [kind(part, distribution / distribution.sum()), kind(part, rest)]
            return judged(verify, Draft(tokens, (-1, -1)), rows, distributions, oracle)

        assert completed(outcomes(procedure), p, 2) == joint(p, 2)


class StubNoise:
    """Uniform draws of a given height that notes whose they were."""

    def __init__(self, height: float) -> None:
        self.height = height
        self.keys: list[object] = []

    def uniform(self, *key: object, **more: object) -> float:
        self.keys.append((key, tuple(more.items())))
        return self.height

    def draw(self, p: Any, *_: object) -> int:
        return int(p.argmax())


def uniforms_are_strict_and_each_node_has_its_own(module: Any) -> None:
    p = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    q = np.array([[0.5, 0.0, 0.5]] * 2)
    draft = Draft((0, 2), (-1, -1))
    noise = StubNoise(0.5)
    for position in (10, 11):
        verdict = module.verify(draft, p, q, noise, position, "exact")
        assert verdict == Verdict((), 1), "a uniform draw as high as the chance must not pass"
    assert len(set(noise.keys)) == len(noise.keys) >= 2
    # two siblings, a node below, and another round: four uniform draws
    more, p, q = StubNoise(0.9), np.array([[0.25, 0.25, 0.5]] * 4), np.array([[1.0, 0, 0], [0, 0, 1], [1, 0, 0]])
    module.verify(Draft((0, 2, 0), (-1, -1, 1)), p, q, more, 10, "exact")
    module.verify(Draft((0,), (-1,)), p[:2], q[:1], more, 11, "exact")
    assert len(set(more.keys)) == len(more.keys) == 4


RULE = [
    ("a uniform draw as high as the chance passes", "index=node) < chance", "index=node) <= chance",
     uniforms_are_strict_and_each_node_has_its_own),
    ("uniform draws of one node for all", ", index=node)", ")", uniforms_are_strict_and_each_node_has_its_own),
    ("the residual may be negative", "np.maximum(weight * distribution - covered, 0)",
     "weight * distribution - covered",
     keeps_the_distribution_of_chains),
    ("the residual forgets the weight", "np.maximum(weight * distribution", "np.maximum(distribution",
     keeps_the_distribution_of_chains),
    ("a rejected child leaves the distribution as it was", "weight)), rest", "weight)), distribution",
     keeps_the_distribution_of_siblings),
    ("a rejected child leaves the weight as it was", "total / (total + (1 - weight))", "weight",
     keeps_the_distribution_of_chains),
    ("chances above 1 are passed on", "min(weight * distribution[token] / covered[token], 1)",
     "weight * distribution[token] / covered[token]", keeps_the_distribution_of_chains),
    ("the uniform draw of a node is its own, not its path's", "visit(child, min(weight * distribution",
     "visit(child, min(distribution",
     keeps_the_distribution_of_chains),
    ("the bonus is drawn from the distribution before",
     "draw(p[node + 1] if distribution is None else distribution, len(path))",
     "draw(p[max(node, 0)], len(path))", keeps_the_distribution_of_chains),
    ("the bonus forgets what was rejected", "p[node + 1] if distribution is None else distribution", "p[node + 1]",
     keeps_the_distribution_of_chains),
    ("a child of a larger token will do", "draft.tokens[c] == token", "draft.tokens[c] >= token",
     keeps_the_distribution_of_point_masses),
    ("the walk reads the row before", "draw(p[node + 1], len(path))", "draw(p[max(node, 0)], len(path))",
     keeps_the_distribution_of_point_masses),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "check"), [row[1:] for row in RULE], ids=[row[0] for row in RULE])
def test_a_fault_in_the_rule_is_caught(old: str, new: str, check: Callable[..., None]) -> None:
    check(verify)
    assert caught(check, mutant(verify, old, new))


PARTIAL = [
    ("what q covers is not taken away", "distribution[self.known.tokens] - self.weights",
     "distribution[self.known.tokens]"),
    ("the residual may be negative", "np.maximum(distribution[self.known.tokens] - self.weights, 0)",
     "distribution[self.known.tokens] - self.weights"),
    ("tokens are taken for columns", "self.known.columns.get(token)", "token"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [row[1:] for row in PARTIAL], ids=[row[0] for row in PARTIAL])
def test_a_fault_in_distributions_over_a_part_of_the_vocabulary_is_caught(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps_the_distribution_of_partial_drafts(drafted.PartialDistribution)
    made = mutant(drafted, old, new)
    monkeypatch.setattr(verify, "PartialDistribution", made.PartialDistribution)
    assert caught(keeps_the_distribution_of_partial_drafts, made.PartialDistribution)


def test_elder_siblings_left_in_q_are_caught() -> None:
    keeps_the_distribution_of_siblings(verify)
    assert caught(keeps_the_distribution_of_siblings, verify, mutant(siblings, "            row[token] = 0\n", ""))


# -- the distribution: transformers' processors
# --------------------------------------------------------------------------------


def is_the_distribution_of_transformers(module: Any) -> None:
    x = random_logits(8, seed=1)
    for sampling in SAMPLED.values():
        for cut in (0, 3, len(OUTPUT)):  # what is committed, and what is drafted
            state = module.SamplingState(sampling, PROMPT, V, STOPS).after(OUTPUT[:cut])
            found = module.process(x, [module.SamplingRow(state, OUTPUT[cut:])] * len(x))
            expected = transformers_logits(x, sampling)
            torch.testing.assert_close(found, expected)
            assert torch.equal(found.isneginf(), expected.isneginf())


def has_the_masses_of_transformers(module: Any) -> None:
    x = random_logits(8, seed=1)
    for sampling in SAMPLED.values():
        state = module.SamplingState(sampling, PROMPT, V, STOPS).after(OUTPUT)
        expected = transformers_logits(x, sampling).softmax(-1)
        torch.testing.assert_close(module.distribution(x, [module.SamplingRow(state)] * len(x)), expected)


def bad_rows_are_reported(module: Any) -> None:
    rows = [module.SamplingRow(module.SamplingState(s, PROMPT, V, STOPS)) for s in GREEDY.values()]
    for bad in (math.nan, math.inf):
        x = random_logits(len(rows), seed=4)
        x[::2, 41] = bad
        tokens, p = module.greedy(x, rows), module.distribution(x, rows)
        assert [token == -1 for token in tokens] == [r % 2 == 0 for r in range(len(rows))]
        assert p.isnan().all(-1).tolist() == [r % 2 == 0 for r in range(len(rows))]


def ties_are_cut_as_transformers_does(module: Any) -> None:
    for top_p, kept in ((0.25, 1), (0.26, 2), (0.6, 3)):
        state = module.SamplingState(Sampling(temperature=1, top_p=top_p), (), 4, frozenset())
        assert int(module.process(torch.zeros(1, 4), [module.SamplingRow(state)]).isfinite().sum()) == kept


LAW = [
    (filters, "top_p drops the token that crosses the cut",
     "int(np.count_nonzero(mass < limit)) + 1", "max(1, int(np.count_nonzero(mass < limit)))",
     is_the_distribution_of_transformers),
    (filters, "top_p counts ties wrongly", "[: count - len(above)]", "[: count - len(above) + 1]",
     ties_are_cut_as_transformers_does),
    (filters, "top_k keeps one fewer", "row[ids[:k]][-1]", "row[ids[: max(1, k - 1)]][-1]",
     is_the_distribution_of_transformers),
    (filters, "min_p drops the likeliest", "np.where(masses < least", "np.where(masses <= least",
     is_the_distribution_of_transformers),
    (filters, "temperature upside down", "numpy() / np.array(divisors", "numpy() * np.array(divisors",
     is_the_distribution_of_transformers),
    (distribution, "a lone temperature is forgotten",
     "divisors = [divisor for row in rows if (divisor := row.state.divisor)",
     "divisors = [1.0 for row in rows if row.state.divisor", has_the_masses_of_transformers),
    (distribution, "a temperature counts twice", "filtered(torch.from_numpy(x), samplings).numpy(), [1.0] * len(rows)",
     "filtered(torch.from_numpy(x), samplings).numpy(), [max(s.temperature, COLDEST) for s in samplings]",
     has_the_masses_of_transformers),
    (distribution, "draft tokens are not seen", ".place.after(self.drafted).processors", ".processors",
     is_the_distribution_of_transformers),
    (distribution, "a NaN row is ignored at temperature 0", "token if math.isfinite(row[token]) else -1", "token",
     bad_rows_are_reported),
    (filters, "a NaN row is one-hot", "nothing = highest - highest", "nothing = torch.zeros_like(highest)",
     bad_rows_are_reported),
    (processors, "min_tokens holds one token too long", "self.stop_ids if self.missing > 0 else",
     "self.stop_ids if self.missing >= 0 else", is_the_distribution_of_transformers),
    (processors, "min_tokens ends one token early", "self.stop_ids if self.missing > 0 else",
     "self.stop_ids if self.missing > 1 else", is_the_distribution_of_transformers),
    (processors, "the repetition penalty does not see output",
     "np.concatenate([self.seen, np.asarray(tokens, dtype=np.int64)])", "self.seen",
      is_the_distribution_of_transformers),
    (processors, "the repetition penalty has the wrong sign", "where(score < 0,", "where(score > 0,",
     is_the_distribution_of_transformers),
    (processors, "tokens count once", "counts.get(token, 0) + 1", "1", is_the_distribution_of_transformers),
    (processors, "no presence penalty", "score - by_count - presence", "score - by_count",
     is_the_distribution_of_transformers),
]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "old", "new", "check"), [(row[0], *row[2:]) for row in LAW], ids=[row[1] for row in LAW]
)
def test_a_fault_in_the_distribution_is_caught(
    module: ModuleType, old: str, new: str, check: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(distribution)
    wrong = mutant(module, old, new)
    for other, names in ((processors, ("processors_of",)), (filters, ("filtered", "first_maximum", "one_hot"))):
        if module is other:
            for name in names:
                monkeypatch.setattr(distribution, name, getattr(wrong, name))
            wrong = distribution
    assert caught(check, wrong)


# -- the cache: what stands where -------------------------------------------------------------------------------------


def keeps_the_path(module: Any) -> None:
    """Write numbered rows, keep paths of many shapes, and read back what should stand there."""
    kept = module.KVCache(
        {0: module.LayerShape(1, 2, 2)}, slots=2, capacity=32, dtype=torch.float32, device=torch.device("cpu")
    )
    slot, held, number = kept.acquire(), [], 0
    for causal, nodes, path in (
        (3, 0, ()),
        (1, 4, (0, 1)),
        (1, 5, (1, 3, 4)),
        (2, 3, ()),
        (1, 6, (2, 3, 5)),
        (1, 0, ()),
    ):
        rows = [float(number + i) for i in range(causal + nodes)]
        number += len(rows)
        states = torch.tensor(rows)[None, :, None].expand(1, -1, 2)
        keys, values = kept.write(0, slot, kept.lengths[slot], states, -states)
        assert keys.shape[2] == values.shape[2] == len(held) + len(rows)
        kept.keep(slot, causal, path)
        held += rows[:causal] + [rows[causal + node] for node in path]
        assert kept.lengths[slot] == len(held)
        assert kept.keys[0][slot, 0, : len(held), 0].tolist() == held
        assert kept.values[0][slot, 0, : len(held), 1].tolist() == [-each for each in held]
    kept.rewind(slot, len(held))
    kept.rewind(slot, 2)
    with pytest.raises(ValueError, match="cannot rewind"):
        kept.rewind(slot, 3)
    kept.release(slot)
    kept.check()
    assert {kept.acquire(), kept.acquire()} == {0, 1}


CACHE = [
    ("keep counts one too many", "base + len(path)\n\n", "base + len(path) + 1\n\n"),
    ("keep forgets the causal rows", "base = self.lengths[slot] + causal", "base = self.lengths[slot]"),
    ("paths are never gathered", "if list(path) != list(range(len(path))):", "if False:"),
    ("the path is gathered backwards", "base + node for node in path", "base + node for node in reversed(path)"),
    ("the path is gathered from one row before", "base + node for node in path", "base + node - 1 for node in path"),
    (
        "values stay where they were",
        "for store in (*self.keys.values(), *self.values.values()):\n            rows = ",
        "for store in self.keys.values():\n            rows = ",
    ),
    ("rows are written one place late", "keys[:, start:end] = key", "keys[:, start + 1 : end + 1] = key"),
    ("rewind cannot stay", "if length > self.lengths[slot]:", "if length >= self.lengths[slot]:"),
    ("rewind goes forward", "if length > self.lengths[slot]:", "if False:"),
    ("a slot is let go twice", "self._free.append(slot)", "self._free += [slot, slot]"),
    (
        "a free slot is not empty",
        "        self.lengths[slot] = length\n        self._free.append(slot)\n",
        "        self._free.append(slot)\n",
    ),
]


@pytest.mark.parametrize(("old", "new"), [row[1:] for row in CACHE], ids=[row[0] for row in CACHE])
def test_a_fault_in_the_cache_is_caught(old: str, new: str) -> None:
    keeps_the_path(cache)
    assert caught(keeps_the_path, mutant(cache, old, new))


# -- judging: texts of the engine -------------------------------------------------------------------------------------


class HalfRight(Drafter):
    """Guesses a text that is right at first, beside a sibling that is wrong."""

    name = "half right"
    default_budget = 5

    def __init__(self, text: tuple[int, ...]) -> None:
        self.text = text

    def propose(self, contexts: Any) -> list[Draft]:
        drafts = []
        for context in contexts:
            begin = len(context.tokens)
            a, b, c = (*self.text[begin : begin + 3], 0, 0, 0)[:3]
            wrong = (c + 1) % 97 if begin % 2 else c
            drafts.append(Draft((a ^ 1, a, b, b ^ 1, wrong), (-1, -1, 1, 1, 2)))
        return drafts


@pytest.fixture(scope="module")
def target() -> ModelRunner:
    return ModelRunner(adopt(random_model("llama")), max_length=64)


@pytest.fixture(scope="module")
def plain(target: ModelRunner) -> tuple[int, ...]:
    return (5, 17, 40, *assemble(target).generate([5, 17, 40], GREEDY_16).tokens)


GREEDY_16 = Sampling(
    max_tokens=16, ignore_eos=True, logit_bias={10: 60, 11: 60, 12: 60}, frequency_penalty=6
)  # each token depends on those just before


def the_engine_gives_the_plain_text(target: ModelRunner, plain: tuple[int, ...]) -> None:
    engine = assemble(target, drafter=HalfRight(plain))
    out = engine.generate([5, 17, 40], GREEDY_16)
    assert out.tokens == plain[3:]
    assert 4 <= out.stats.accepted < out.stats.drafted
    engine.cache.check()


def a_broken_model_is_reported() -> None:
    model = random_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[40] = float("nan")
    out = assemble(ModelRunner(adopt(model), max_length=64)).generate([5, 17, 40], Sampling(max_tokens=4))
    assert isinstance(out.error, NonFiniteLogits)


def elder(verdict: Verdict) -> Verdict:
    return Verdict(tuple(max(node - 1, 0) for node in verdict.path), verdict.bonus)


JUDGING: list[tuple[str, ModuleType, str, Callable[[Any], Any]]] = [
    ("each row is judged by the distribution after it", distributions, "_Tokens",
     lambda f: lambda rows, x: f(rows, torch.cat((x[1:], x[-1:])))),
    ("penalties do not see the draft", judging, "sampling_rows",
     lambda _: lambda state, draft: (distribution.SamplingRow(state),) * (len(draft) + 1)),
    ("all of a draft is accepted", judging, "walk",
     lambda f: lambda draft, p, draw: Verdict(draft.path(len(draft) - 1), f(draft, p, draw).bonus)),
    ("the bonus comes from the first row", judging, "walk",
     lambda f: lambda draft, p, draw: Verdict(f(draft, p, draw).path, p[0])),
    ("the path is one node short", judging, "walk",
     lambda f: lambda draft, p, draw: Verdict(f(draft, p, draw).path[:-1], f(draft, p, draw).bonus)),
    ("the elder sibling is taken", judging, "walk",
     lambda f: lambda draft, p, draw: elder(f(draft, p, draw))),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "fault"), [row[1:] for row in JUDGING], ids=[row[0] for row in JUDGING])
def test_a_fault_in_judging_is_caught(
    module: ModuleType,
    name: str,
    fault: Any,
    target: ModelRunner,
    plain: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    the_engine_gives_the_plain_text(target, plain)
    monkeypatch.setattr(module, name, fault(getattr(module, name)))
    assert caught(the_engine_gives_the_plain_text, target, plain)


def test_a_judge_that_ignores_nan_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    a_broken_model_is_reported()
    monkeypatch.setattr(
        distributions, "greedy", lambda x, rows: [max(token, 0) for token in distribution.greedy(x, rows)]
    )
    assert caught(a_broken_model_is_reported)
