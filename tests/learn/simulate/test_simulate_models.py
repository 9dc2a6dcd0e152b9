"""Models of all kinds become the same thing; what is no distribution is refused with the context named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headstart.base.errors import HeadstartError, InvalidOption, InvalidPrompt
from headstart.learn import simulate as sim
from headstart.learn.simulate import contexts

GOOD = [0.5, 0.3, 0.2]


def uniform(context: tuple[int, ...]) -> Any:
    return GOOD


def bad_after(token: int, distribution: Any) -> Any:
    def model(context: tuple[int, ...]) -> Any:
        return distribution if context and context[-1] == token else GOOD

    return model


BAD = [
    ([0.5, 0.3, 0.1], "sums to 0.9"),
    ([0.6, 0.6, -0.2], "negative"),
    ([0.5, np.nan, 0.5], "NaN"),
    ([0.5, np.inf, 0.5], "infinity"),
    ([0.25] * 4, "has 4 tokens where 3"),
    ([[0.5, 0.3, 0.2]], r"shape \(1, 3\)"),
    (0.5, "shape"),
    ("no numbers", "cannot be read as numbers"),
    ([2.0, 1.0, 0.0], "sums to 3"),  # logits, not a distribution
]


@pytest.mark.parametrize(("distribution", "message"), BAD)
@pytest.mark.parametrize("role", ["target", "draft"])
def test_what_is_no_distribution_is_refused_and_the_context_named(role: str, distribution: Any, message: str) -> None:
    models = {"target": uniform, "draft": uniform, role: bad_after(2, distribution)}
    with pytest.raises(sim.InvalidDistribution, match=message) as caught:
        sim.speculate(models["target"], models["draft"], k=2, rounds=200, streams=1, prompt=(0, 1))
    assert role in caught.value.message
    assert ", 2)" in caught.value.hint
    assert isinstance(caught.value, HeadstartError)
    assert isinstance(caught.value, ValueError)


def test_an_error_names_the_row_of_a_batch() -> None:
    class Model:
        def __call__(self, context: tuple[int, ...]) -> Any:
            return GOOD

        def distributions(self, contexts: Any) -> Any:
            distributions = np.tile(GOOD, (len(contexts), 1))
            distributions[contexts[:, -1] == 1] = [0.5, 0.5, 0.5]
            return distributions

    with pytest.raises(sim.InvalidDistribution, match=r"sums to 1\.5") as caught:
        sim.plain(Model(), 5, streams=50, prompt=(0,))
    assert ", 1)" in caught.value.hint


def test_the_prompt_has_to_be_in_the_vocabulary() -> None:
    for model in (uniform, sim.random_table(3)):
        for prompt in ((0, 3), (-1,)):
            with pytest.raises(InvalidPrompt):
                sim.plain(model, 2, prompt=prompt)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 1, "tokens": 1}, {}, {"rounds": 0}, {"tokens": 2.5}, {"rounds": 1, "streams": 0},
        {"rounds": 1, "k": -1}, {"rounds": 1, "k": 2.5}, {"rounds": 1, "k": True}, {"rounds": 1, "rule": "typical"},
        {"rounds": 1, "seed": -1},
    ],
)  # fmt: skip
def test_arguments_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        sim.speculate(uniform, uniform, **wrong)


def test_a_model_sees_the_whole_context_and_is_asked_once_about_each() -> None:
    seen = []

    def target(context: tuple[int, ...]) -> Any:
        assert all(type(token) is int for token in context)
        seen.append(context)
        return [0.0, 0.0, 1.0]

    text = sim.plain(target, 3, streams=50, prompt=(0, 1))
    assert (text == 2).all()
    assert sorted(set(seen)) == [(0, 1), (0, 1, 2), (0, 1, 2, 2)]
    assert len(seen) == 4  # the first one twice: to learn V


def test_order_cuts_the_context_and_lets_contexts_be_shared() -> None:
    class Last:
        order = 1
        asked = 0

        def __call__(self, context: tuple[int, ...]) -> Any:
            assert len(context) == 1
            self.asked += 1
            return np.roll(GOOD, context[0])

    model = Last()
    run = sim.speculate(model, model, k=3, rounds=50, streams=20, prompt=(2, 2, 1))
    assert run.calls == (3, 3)
    assert model.asked == 7
    assert run.tokens_per_round.value == 4  # its own draft: everything is accepted


@pytest.mark.parametrize("rule", sim.RULES)
def test_forgetting_contexts_changes_nothing(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without an order has ever new contexts; they are dropped when they take too much room."""
    table, other = sim.dial_pair(0.5, vocab=6, seed=2)

    def target(context: tuple[int, ...]) -> Any:
        return table(context)

    def draft(context: tuple[int, ...]) -> Any:
        return other(context)

    def run() -> sim.Run:
        return sim.speculate(target, draft, k=3, rule=rule, tokens=30, streams=8, seed=5)

    roomy = run()
    monkeypatch.setattr(contexts, "MEMORY", 20_000)
    tight = run()
    np.testing.assert_array_equal(tight.tokens, roomy.tokens)
    np.testing.assert_array_equal(tight.lengths, roomy.lengths)
    by_table = sim.speculate(table, other, k=3, rule=rule, tokens=30, streams=8, seed=5)
    np.testing.assert_array_equal(by_table.tokens, roomy.tokens)


# -- adapters and tables ----------------------------------------------------------------------------------------------


def test_from_logits_one_by_one_and_in_batches_is_one_model() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (5, 5))
    one = sim.from_logits(lambda context: logits[context[-1]].tolist(), 0.7, order=1)
    many = sim.from_logits(lambda contexts: logits[contexts[:, -1]], 0.7, batched=True, order=1)
    expected = np.exp(logits[3] / 0.7) / np.exp(logits[3] / 0.7).sum()
    np.testing.assert_allclose(one((0, 3)), expected)
    np.testing.assert_allclose(many((0, 3)), expected)
    np.testing.assert_array_equal(sim.plain(one, 20, streams=10), sim.plain(many, 20, streams=10))


def test_from_logits_at_temperature_zero_and_with_forbidden_tokens() -> None:
    model = sim.from_logits(lambda context: [1.0, 3.0, -np.inf, 3.0], 0.0)
    assert model((0,)).tolist() == [0, 1, 0, 0]
    assert sim.from_logits(lambda context: [1.0, -np.inf])((0,)).tolist() == [1, 0]


@pytest.mark.parametrize(
    "logits", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf], [[1.0, 2.0], [1.0, 2.0]], 3.0, [], "text"]
)
def test_logits_that_make_no_distribution_are_refused(logits: Any) -> None:
    with pytest.raises(sim.InvalidDistribution) as caught:
        sim.plain(sim.from_logits(lambda context: logits), 2, prompt=(0, 1))
    assert "(0, 1)" in caught.value.hint


def test_temperature_of_a_distribution() -> None:
    model = sim.at_temperature(uniform, 0.5)
    np.testing.assert_allclose(model((0,)), np.square(GOOD) / np.square(GOOD).sum())
    assert sim.greedy(uniform)((0,)).tolist() == [1, 0, 0]
    table = sim.random_table(4, order=2, seed=1)
    hot = sim.at_temperature(table, 2.0)
    assert hot.order == 2
    np.testing.assert_allclose(hot((1, 2)), np.sqrt(table((1, 2))) / np.sqrt(table((1, 2))).sum())
    with pytest.raises(InvalidOption, match="temperature"):
        sim.at_temperature(uniform, -1)


def test_a_table_reads_its_last_tokens() -> None:
    table = sim.random_table(4, order=2, seed=1)
    np.testing.assert_array_equal(table((3, 0, 1, 2)), table.table[1, 2])
    np.testing.assert_array_equal(table((2,)), table.table[0, 2])
    np.testing.assert_array_equal(table(()), table.table[0, 0])
    np.testing.assert_array_equal(sim.random_table(4, order=0)((3,)), sim.random_table(4, order=0).table)
    with pytest.raises(InvalidOption):
        sim.TableModel(np.ones((2, 3)))


def test_planted_acceptance_is_exact_in_every_context() -> None:
    target, draft = sim.planted_pair([0.1, 0.5, 0.9, 1.0], vocab=4)
    np.testing.assert_allclose(np.minimum(target.table, draft.table).sum(-1), [0.1, 0.5, 0.9, 1.0])
    easy, hard = 0.9, 0.2
    target, draft = sim.changing_pair(easy, hard, half=3)
    np.testing.assert_allclose(np.minimum(target.table, draft.table).sum(-1)[:6], [easy] * 3 + [hard] * 3)
    np.testing.assert_allclose(target.table.sum(-1), 1)
    np.testing.assert_allclose(target.table[:3, :3].sum(-1), 0.98)
    for wrong in (1.5, [0.5] * 3):
        with pytest.raises(InvalidOption):
            sim.planted_pair(wrong, vocab=4)
