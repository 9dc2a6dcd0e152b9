"""`headstart learn --check`: right answers pass, wrong ones are refuted with a hint, and none can harm the check."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from headstart.base.errors import InvalidOption
from headstart.learn.check import Checked, _end, check
from headstart.learn.exercises import EXERCISES, Exercise, exercise, solutions, starter
from headstart.learn.exercises.adaptive_k import compare
from headstart.learn.exercises.enumeration import Oracle, distance, joint, outcomes
from headstart.learn.exercises.findings import Findings, WrongAnswer
from headstart.learn.exercises.verifier import _cases, _mean, _round
from headstart.learn.simulate import SimpleK
from headstart.learn.simulate.lengths import History
from headstart.rule.verify import traverse
from headstart.types import Draft

HEAD = "from collections.abc import Callable, Sequence\nfrom typing import Any\nimport numpy as np\n\n"


def answers(folder: Path, source: str, name: str = "answers.py") -> Path:
    file = folder / name
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No attempts are remembered from other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def judged(number: int, function: Callable[..., Any]) -> Findings:
    """The verdict; an answer that cannot be judged counts as wrong, as in the command."""
    try:
        return exercise(number).check(function)
    except WrongAnswer as wrong:
        return Findings.wrong(f"{wrong.message}: {wrong.hint}")


def said(findings: Findings) -> str:
    return " ".join(findings.say)


# -- right ------------------------------------------------------------------------------------------------------------


def test_the_solutions_pass_as_they_are_shown(home: Path) -> None:
    file = answers(home, HEAD + "\n".join(each.source for each in EXERCISES))
    results = check(file)
    assert [each.report.state for each in results] == ["passed"] * 4
    assert all(each.failures == 0 and each.hints == () for each in results)


def test_nothing_of_the_starter_passes_and_nothing_of_it_counts_as_a_try(home: Path) -> None:
    file = answers(home, starter())
    results = check(file)
    assert [each.report.state for each in results] == ["empty"] * 4
    assert not any(each.hints or each.failures for each in results)


def test_the_starter_has_every_function_with_a_text_and_the_examples_are_right() -> None:
    import doctest

    space: dict[str, Any] = {}
    exec(compile(starter(), "answers", "exec"), space)
    right = {each.name: each.solution[0] for each in EXERCISES}
    ran = 0
    for name in right:
        assert space[name].__doc__, name
        for test in doctest.DocTestFinder().find(space[name], name, globs={**space, **right}):
            done = doctest.DocTestRunner().run(test)
            ran += done.attempted
            assert done.failed == 0
    assert ran >= 8


def test_block_verification_passes_and_is_told_from_the_classic_rule() -> None:
    assert "as much as block verification" in said(judged(4, solutions.verify_block))
    classic = judged(4, solutions.verify)
    assert classic.passed
    assert "less than block verification" in said(classic)


def test_answers_may_sum_the_series_or_return_arrays_or_compute_in_floats() -> None:
    assert judged(1, lambda alpha, gamma: sum(alpha**i for i in range(gamma + 1))).passed
    assert judged(2, lambda p, q: list(solutions.corrected_distribution(p, q))).passed

    def floats(draft: Any, p: Any, q: Any, accept: Any, draw: Any) -> list[int]:
        return solutions.verify(draft, [x.astype(float) for x in p], [x.astype(float) for x in q], accept, draw)

    found = judged(4, floats)
    assert found.passed
    assert "up to rounding" in said(found)


# -- wrong ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda alpha, gamma: (1 - alpha**gamma) / (1 - alpha) if alpha < 1 else gamma, "one term less"),
        (lambda alpha, gamma: sum(alpha**i for i in range(1, gamma + 1)), "one token more"),
        (lambda alpha, gamma: 1 + alpha * gamma, "gives 5; it should be 3.689"),
        (lambda alpha, gamma: gamma + 1 if alpha > 0.99 else solutions.expected_tokens(alpha, gamma), "0.999, 50"),
        (lambda alpha, gamma: float("nan"), "nan"),
    ],
)
def test_wrong_expectations_are_told(answer: Callable[..., Any], words: str) -> None:
    found = judged(1, answer)
    assert not found.passed
    assert words in said(found)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda p, q: np.maximum(np.array(p) - q, 0), "divide by the sum"),
        (lambda p, q: p, "p itself"),
        (lambda p, q: (np.array(p) - q) / (np.array(p) - q).sum() if p[0] == 9 else np.array(p) - q, "below 0"),
        (lambda p, q: np.maximum(np.array(p) - q, 0) / max(np.maximum(np.array(p) - q, 0).sum(), 1e-30), "0.25 0.75"),
    ],
)
def test_wrong_corrections_are_told(answer: Callable[..., Any], words: str) -> None:
    found = judged(2, answer)
    assert not found.passed
    assert words in said(found)


def test_a_correction_that_divides_by_nothing_is_found() -> None:
    def divides(p: Any, q: Any) -> Any:
        rest = np.maximum(np.array(p) - q, 0)
        with np.errstate(invalid="ignore"):
            return rest / rest.sum()

    assert "0 was divided by 0" in said(judged(2, divides))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("max(2, min(10, k))", "k", "outside 2 to 10"),
        ("share > 0.8", "share >= 0.8", "neither more than 80%"),
        ("share < 0.5", "share <= 0.5", "neither more than 80% nor less than 50%"),
        ("history[-5:]", "history[:5]", "older rounds"),
        ("len(last) == 5", "last", "fewer than five"),
        ("k += 1", "k += 2", "gives 7; it should be 6"),
        (
            "sum(accepted for _, accepted in last) / sum(drafted for drafted, _ in last)",
            "sum(a / d for d, a in last) / 5",
            "of all guesses",
        ),
    ],
)
def test_wrong_lengths_are_told(old: str, new: str, words: str) -> None:
    found = judged(3, changed(exercise(3), old, new))
    assert not found.passed
    assert words in said(found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("np.maximum(p[i] - q[i], 0)", "p[i]", "from p itself"),
        ("np.maximum(p[i] - q[i], 0)", "q[i]", "drawn from q"),
        ("accept(min(1, p[i][token] / q[i][token]))", "accept(1)", "every guess were kept"),
        ("accept(min(1, p[i][token] / q[i][token]))", "p[i][token] >= q[i][token]", "REFUTED"),
        ("min(1, p[i][token] / q[i][token])", "p[i][token]", "gives tokens away|REFUTED"),
        ("p[i][token] / q[i][token]", "p[i + 1][token] / q[i][token]", "REFUTED"),
        ("draw(p[len(draft)])", "draw(p[0])", "REFUTED"),
        ("draw(p[len(draft)])", "draw(q[-1])", "REFUTED"),
        ("[*draft, draw(p[len(draft)])]", "draft", "one token more is free"),
        ("[*draft[:i], draw(residual / residual.sum())]", "draft[:i]", "no token"),
        ("[*draft[:i], draw(residual / residual.sum())]", "[draw(residual / residual.sum()), *draft[:i]]", "order"),
        ("draw(residual / residual.sum())", "draw(residual)", "divide by the sum"),
        ("return [*draft, draw(p[len(draft)])]", "return None", "returns nothing"),
        ("return [*draft, draw(p[len(draft)])]", "return 3", "a list of tokens"),
        ("return [*draft, draw(p[len(draft)])]", "return [*draft, 99]", "whole numbers"),
    ],
)
def test_wrong_verifiers_are_refuted(old: str, new: str, words: str) -> None:
    found = judged(4, changed(exercise(4), old, new))
    assert not found.passed
    assert any(each in said(found) for each in words.split("|")), found.say


def test_a_counterexample_is_the_smallest_and_its_numbers_are_exact() -> None:
    text = said(judged(4, changed(exercise(4), "np.maximum(p[i] - q[i], 0)", "p[i]")))
    assert "words a, b; K = 1; at the start p = [1/2 1/2], q = [1/4 3/4]" in text
    assert "TV distance 1/8" in text  # min(p, q) + 1/4 p = [3/8 5/8], by hand


def test_a_verifier_that_is_right_but_keeps_too_little_is_proved_and_does_not_pass() -> None:
    def shy(draft: Any, p: Any, q: Any, accept: Any, draw: Any) -> list[int]:
        return [draw(p[0])]

    found = judged(4, shy)
    assert not found.passed
    assert "PROVED" in said(found)
    assert "refuses guesses that it may keep" in said(found) or "one token more is free" in said(found)


def test_other_chance_than_coin_and_draw_is_noticed() -> None:
    import random

    luck = random.Random(5)

    def lucky(draft: Any, p: Any, q: Any, accept: Any, draw: Any) -> list[int]:
        for i, token in enumerate(draft):
            if luck.random() >= p[i][token] / q[i][token]:
                residual = np.maximum(p[i] - q[i], 0)
                return [*draft[:i], draw(residual / residual.sum())]
        return [*draft, draw(p[len(draft)])]

    assert not judged(4, lucky).passed


def changed(of: Exercise, old: str, new: str) -> Callable[..., Any]:
    """The solution with a fault planted in it."""
    source = HEAD + of.source
    assert old in source
    space: dict[str, Any] = {}
    exec(source.replace(old, new), space)
    found: Callable[..., Any] = space[of.name]
    return found


# -- the check's own arithmetic ---------------------------------------------------------------------------------------


def test_block_verification_here_is_the_engines_own_rule() -> None:
    """Twins: the solution on a list of tokens, and `traverse` on a chain."""

    def engines(draft: list[int], p: Any, q: Any, accept: Any, draw: Any) -> list[int]:
        verdict = traverse(
            Draft.chain(tuple(draft)),
            p,
            q,
            lambda chance, _: accept(chance),
            lambda distribution, _: draw(distribution),
        )
        return [*(draft[node] for node in verdict.path), verdict.bonus]

    for case in _cases():
        assert _round(engines, case) == _round(solutions.verify_block, case)


def test_the_cases_tell_block_verification_from_the_classic_rule() -> None:
    gains = [_mean(_round(solutions.verify_block, case)) - _mean(_round(solutions.verify, case)) for case in _cases()]
    assert min(gains) >= 0 < max(gains)


def test_distributions_are_enumerated_exactly() -> None:
    def play(oracle: Oracle) -> tuple[int, ...]:
        return (int(oracle.accept(Fraction(1, 3))), oracle.draw([Fraction(1, 4), 0, Fraction(3, 4)]))

    distribution = outcomes(play)
    assert distribution[1, 2] == Fraction(1, 4)
    assert sum(distribution.values()) == 1
    assert distance(distribution, {(0, 0): Fraction(1)}) == Fraction(5, 6)
    assert joint(lambda context: [Fraction(1, 2)] * 2, 2)[0, 1] == Fraction(1, 4)


def test_the_rule_of_exercise_three_is_the_simulators() -> None:
    luck = np.random.default_rng(0)
    for _ in range(200):
        k, history, past = 5, [], History(1, lambda: np.zeros(1))
        for _ in range(12):
            accepted = int(luck.integers(0, k + 1)) if luck.random() < 0.5 else k
            history.append((k, accepted))
            past.note(np.array([k]), np.array([accepted]))
            k = solutions.adaptive_k(k, history)
            assert k == int(SimpleK()(past)[0])


def test_a_rule_that_adapts_is_told_what_it_did_not_know() -> None:
    assert "and it was not told which length that is." in said(judged(3, solutions.adaptive_k))


def test_on_text_that_changes_no_length_beats_knowing_and_calls_fall_as_k_grows() -> None:
    runs = {run.name: run for run in compare({"adaptive": solutions.adaptive_k}, texts=60)}
    fixed = [run for name, run in runs.items() if name != "adaptive"]
    calls = [run.target_calls for run in fixed]
    assert calls == sorted(calls, reverse=True)
    assert all(run.drafted == pytest.approx(run.target_calls * int(run.name.split("= ")[1]), rel=1e-9) for run in fixed)
    assert runs["adaptive"].time < min(run.time for run in fixed)


# -- programs that harm -----------------------------------------------------------------------------------------------


def checked(home: Path, source: str, seconds: float = 10.0) -> list[Checked]:
    return check(answers(home, source), seconds=seconds)


def test_each_harm_is_told_with_its_line_and_the_other_exercises_go_on(home: Path) -> None:
    began = time.monotonic()
    results = checked(
        home,
        """\
        import os
        def expected_tokens(alpha, gamma):
            print("here", alpha)
            return 1 / 0
        def corrected_distribution(p, q):
            while True:
                pass
        def adaptive_k(k, history):
            raise SystemExit(3)
        def verify(draft, p, q, accept, draw):
            os._exit(7)
        """,
        seconds=1.5,
    )
    one, two, three, four = (each.report for each in results)
    assert (one.state, one.line) == ("raised", 4)
    assert "ZeroDivisionError" in one.say[0]
    assert one.printed == "here 0.8\n"
    assert two.state == "endless"
    assert two.line in (6, 7)
    assert (three.state, three.line) == ("exited", 9)
    assert four.state == "exited"
    assert "exit code 7" in four.say[0]
    assert time.monotonic() - began < 40


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("def expected_tokens(alpha, gamma)\n    return 1\n", 1, "expected ':'"),
        ("import numpy\nimport no_such_package\n", 2, "No module named"),
        ("import sys\n\nsys.exit()\n", 3, "ends the program while it is loaded"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_reported_once(home: Path, source: str, line: int, words: str) -> None:
    (only,) = checked(home, source)
    assert (only.report.state, only.report.line) == ("unreadable", line)
    assert words in only.report.say[0]
    assert only.failures == 0


def test_what_is_not_there_or_returns_nothing_is_told_apart(home: Path) -> None:
    results = checked(
        home,
        '''\
        def expected_tokens(alpha, gamma):
            """A text."""
        def corrected_distribution(p, q):
            p[0] - q[0]
        def adaptive_k(k, history):
            return "5"
        ''',
    )
    assert [each.report.state for each in results] == ["empty", "wrong", "wrong", "missing"]
    assert "return" in results[1].report.say[0]
    assert "whole number" in results[2].report.say[0]


def test_a_chatty_answer_is_cut_and_recursion_without_end_is_an_error(home: Path) -> None:
    results = checked(
        home,
        """\
        def expected_tokens(alpha, gamma):
            for _ in range(100_000):
                print("all work and no play")
            return 0
        def corrected_distribution(p, q):
            return corrected_distribution(p, q)
        """,
    )
    assert len(results[0].report.printed) <= 2000
    assert results[1].report.state == "raised"
    assert "RecursionError" in results[1].report.say[0]


def test_a_process_that_is_killed_from_within_has_ended_and_not_run_out_of_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.learn.check.EXERCISES", EXERCISES[:1])
    report = checked(home, "import os\ndef expected_tokens(a, g):\n    os.kill(os.getpid(), 9)\n")[0].report
    assert report.state == "exited"
    assert "exit code -9" in report.say[0]


def test_numbers_of_numpy_are_numbers() -> None:
    assert judged(1, lambda alpha, gamma: np.float64(solutions.expected_tokens(alpha, gamma))).passed
    assert judged(3, lambda k, history: np.int64(solutions.adaptive_k(k, history))).passed


def test_hints_come_one_by_one_and_begin_anew_after_a_pass(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstart.learn.check.EXERCISES", EXERCISES[:1])
    wrong, right = "def expected_tokens(alpha, gamma):\n    return 1\n", HEAD + exercise(1).source
    hints = [len(checked(home, wrong)[0].hints) for _ in range(3)]
    assert hints == [1, 2, 2]
    assert checked(home, right)[0].hints == ()
    assert len(checked(home, wrong)[0].hints) == 1


def test_a_store_of_attempts_that_is_broken_or_cannot_be_written_stops_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.learn.check.EXERCISES", EXERCISES[:1])
    store = home / "cache" / "headstart" / "learn"
    store.mkdir(parents=True)
    (store / "attempts.json").write_text("[not json")
    assert checked(home, HEAD + exercise(1).source)[0].passed
    (store / "attempts.json").unlink()
    (store / "attempts.json").mkdir()
    assert len(checked(home, "def expected_tokens(a, g): return 1")[0].hints) == 1


def test_no_file_and_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="there is no file"):
        check(tmp_path / "none.py")
    with pytest.raises(InvalidOption, match="no Python file"):
        check(answers(tmp_path, "", "answers.txt"))


@pytest.mark.parametrize("number", [0, 5, -1])
def test_there_is_no_other_exercise(number: int) -> None:
    with pytest.raises(InvalidOption, match="there is no exercise"):
        exercise(number)


def test_where_there_are_no_process_groups_what_an_answer_started_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()']).pid, flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    started = psutil.Process(int(process.stdout.readline()))
    monkeypatch.delattr(os, "killpg")
    _end(process)
    process.stdout.close()
    process.stdin.close()
    assert process.returncode != 0
    psutil.wait_procs([started], timeout=30)
    assert not started.is_running() or started.status() == psutil.STATUS_ZOMBIE
