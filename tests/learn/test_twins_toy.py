"""The lessons' toy, NumPy's legacy generator in JavaScript, adaptive draft lengths, and the drift detector."""

from __future__ import annotations

import importlib.util
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.twins import Twin

from headstart.learn.simulate import History, SimpleK
from headstart.theory import round_cost

ROOT = Path(__file__).parents[2]


def toy_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy_table", ROOT / "tools/toy_table.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_numpy_makes(js: Twin) -> None:
    tool = toy_tool()
    found = js("() => [hs['toy-table'].TARGET, hs['toy-table'].DRAFT]")
    # exp may differ in its last digit from one machine to the next
    assert np.array(found) == pytest.approx(np.array([tool.target(), tool.draft()]), rel=1e-14)


def test_random_numbers_are_numpys(js: Twin) -> None:
    call = """(seed) => { const rng = new hs.randomstate.RandomState(seed);
      const uniforms = Array.from({ length: 700 }, () => rng.random());
      return [uniforms, rng.randn(31), rng.choice([0.1, 0, 0.9]), rng.gauss()]; }"""
    for seed in (0, 42, 4_000_000_000):
        rng = np.random.RandomState(seed)
        uniforms, normals, choice, gauss = js(call, seed)
        assert uniforms == rng.random_sample(700).tolist()
        assert normals == pytest.approx(rng.randn(31), rel=1e-12)
        assert choice == rng.choice(3, p=[0.1, 0, 0.9])
        assert gauss == pytest.approx(rng.randn(), rel=1e-12)


def test_the_published_guess_and_round(js: Twin) -> None:
    found = js("() => hs.toy.singleToken()")
    words = js("() => hs.toy.WORDS")
    assert words[found["guess"]["token"]] == "sat"
    judged = found["judged"]
    assert [round(x, 3) for x in judged["p"]] == [0.374, 0.345, 0.062, 0.041, 0.048, 0.018, 0.011, 0.046, 0.003, 0.052]
    assert [round(x, 3) for x in judged["q"]] == [0.101, 0.237, 0.208, 0.111, 0.044, 0.111, 0.045, 0.055, 0.044, 0.043]
    assert round(judged["chance"], 3) == 0.297
    assert not judged["accepted"]
    assert words[found["end"]["token"]] == "cat"
    found = js("() => { const r = hs.toy.recordedRound(); return [r.drafted.map((d) => d.token), r.emitted, r]; }")
    assert [words[t] for t in found[0]] == ["cat", "a", "red", "big", "on"]
    assert [words[t] for t in found[1]] == ["cat", "a", "cat"]
    assert [each["accepted"] for each in found[2]["judged"]] == [True, True, False]
    assert found[2]["end"]["kind"] == "correction"


@pytest.mark.parametrize(
    ("gamma", "calls", "drafts", "printed", "of_drafted", "conditional", "saved"),
    [(3, 24, 72, 70.8, 37.5, 58.7, 2.08), (5, 23, 115, 47.0, 27.0, 60.8, 2.17), (7, 17, 119, 46.2, 31.9, 71.7, 2.94)],
)
def test_the_published_runs(
    js: Twin, gamma: int, calls: int, drafts: int, printed: float, of_drafted: float, conditional: float, saved: float
) -> None:
    run = js("(gamma) => ({ ...hs.toy.recordedRun(gamma), rounds: 0, printedThen: hs.toy.PRINTED[gamma] })", gamma)
    assert (run["targetCalls"], run["draftCalls"]) == (calls, drafts)
    shares = [round(100 * run[key], 1) for key in ("printed", "acceptedOfDrafted", "conditional")]
    assert shares == [printed, of_drafted, conditional]
    assert round(run["callsSaved"], 2) == saved
    assert len(run["tokens"]) == 50
    then = run["printedThen"]
    assert (then["targetCalls"], then["draftCalls"], then["speedup"]) == (calls, drafts, saved)


def test_the_published_comparison(js: Twin) -> None:
    call = """() => { const t = hs.toy, start = t.tokensOf("the cat sat");
      const run = t.recordedRun(5, 20);
      return [t.greedy(start, 10), t.sampled(start, 10, new hs.randomstate.RandomState(42)), run.tokens.slice(0, 10)]
        .map(t.words).concat([run.targetCalls, run.printed, run.acceptedOfDrafted]); }"""
    greedy, sampled, speculative, calls, printed, really = js(call)
    assert greedy == "dog a dog a cat mat dog the cat ran"
    assert sampled == "dog red ran on on the the ran ran on"
    assert speculative == "sat a sat sat sat ran the a on sat"
    assert (calls, round(100 * printed, 1), round(100 * really, 1)) == (11, 38.2, 18.2)


def test_the_published_dial(js: Twin) -> None:
    for level, printed, found in js("() => hs.toy.DIAL.map(([a, rate]) => [a, rate, hs.toy.dialAcceptance(a).rate])"):
        assert found == pytest.approx(printed, abs=0.0005), level


def test_simple_k_is_the_simulators(js: Twin) -> None:
    rng = np.random.default_rng(2)
    for options, names in (({}, {}), ({"start": 4, "least": 1, "most": 6, "rounds": 3, "up": 0.7}, {})):
        rule = SimpleK(**{**options, **names})  # type: ignore[arg-type]
        history: list[dict[str, int]] = []
        ours = History(1, lambda: np.zeros(1), deque(maxlen=64), deque(maxlen=64))
        sent: list[Any] = []
        wanted: list[int] = []
        for _ in range(60):
            k = int(rule(ours)[0])
            sent.append(list(history))
            wanted.append(k)
            kept = int(rng.binomial(k, rng.choice([0.2, 0.95])))
            ours.note(np.array([k]), np.array([kept]))
            history.append({"drafted": k, "accepted": kept})
        assert js("([histories, o]) => histories.map(hs.adaptive.simpleK(o))", [sent, options]) == wanted
        assert len(set(wanted)) > 3


def test_a_text_written_in_rounds(js: Twin) -> None:
    call = """() => {
      const alphas = hs.adaptive.changingAlpha({ seed: 1, length: 200 });
      const runs = [hs.adaptive.fixedK(0), hs.adaptive.fixedK(4), hs.adaptive.simpleK()].map((choose) =>
        hs.adaptive.decode({ alphas, choose, seed: 3 }));
      return [alphas, runs, runs.map((run) => hs.adaptive.cost(run, 0.1))];
    }"""
    alphas, runs, costs = js(call)
    assert set(alphas) == {0.95, 0.3}
    plain, fixed, adaptive = runs
    assert plain["targetCalls"] == 200
    assert costs[0] == 200
    assert {each["drafted"] for each in fixed["rounds"]} == {4}
    for run in runs:
        last = run["rounds"][-1]
        assert last["at"] < 200 <= last["at"] + last["accepted"] + 1
        assert run["accepted"] + run["targetCalls"] == last["at"] + last["accepted"] + 1
    assert costs[1] == pytest.approx(fixed["targetCalls"] * round_cost(4, 0.1))
    assert len({each["drafted"] for each in adaptive["rounds"]}) > 3


def test_luck_belongs_to_the_place(js: Twin) -> None:
    """Whatever K is, a guess at a position is kept or not by the seed alone."""
    call = """() => [2, 6].map((k) => {
      const run = hs.adaptive.decode({ alphas: [0.6], tokens: 300, choose: hs.adaptive.fixedK(k), seed: 9 });
      const fate = {};
      for (const { at, drafted, accepted } of run.rounds)
        for (let i = 0; i < Math.min(accepted + 1, drafted); i++) fate[at + i] = i < accepted;
      return fate;
    })"""
    short, long = js(call)
    both = short.keys() & long.keys()
    assert len(both) > 50
    assert all(short[at] == long[at] for at in both)


def detector(xs: Any, m: float, bets: list[float]) -> list[float]:
    sizes = np.array(bets) / (1 - m)
    capital = np.zeros(len(bets))
    evidence = []
    for x in xs:
        capital = np.maximum(1, capital) * (1 + sizes * (m - x))
        evidence.append(float(capital.mean()))
    return evidence


def test_evidence_of_drift(js: Twin) -> None:
    rng = np.random.default_rng(4)
    xs = np.concatenate([rng.beta(7, 3, 200), rng.beta(5, 5, 200)])
    found = js(
        "([xs, m]) => ({ ...hs.drift.detect(xs, { m, alarm: 1000 }), bets: hs.drift.BETS })", [xs.tolist(), 0.68]
    )
    assert found["evidence"] == pytest.approx(detector(xs, 0.68, found["bets"]), rel=1e-12)
    assert 200 < found["at"] < 280, "silent before the fall, soon after it"
    bound = js("(xs) => hs.drift.lowerBound(xs, 0.01)", xs[:200].tolist())
    assert bound == pytest.approx(xs[:200].mean() - np.sqrt(np.log(100) / 400))


def test_false_alarms_are_as_rare_as_promised(js: Twin) -> None:
    """The mean time to an alarm at level A is at least A, even at the edge of the claim: few of 40 streams alarm."""
    rng = np.random.default_rng(6)
    streams = rng.beta(7, 3, (40, 500)).tolist()
    alarms = js("(streams) => streams.map((xs) => hs.drift.detect(xs, { m: 0.7, alarm: 1000 }).at)", streams)
    assert sum(at >= 0 for at in alarms) <= 20
