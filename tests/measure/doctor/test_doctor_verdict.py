"""Verdicts in words, from made-up predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from headstart.loading.options import TargetOptions
from headstart.measure.doctor.candidates import Candidate
from headstart.measure.doctor.facts import flags, load_line
from headstart.measure.doctor.prediction import BATCHES, Member, Prediction
from headstart.measure.doctor.question import Setup
from headstart.measure.doctor.verdict import (
    Measured,
    Ranked,
    decide,
    finalists,
    preferred,
    promising,
    sentence,
    stops_paying,
)
from headstart.theory.statistics import Interval


def prediction(
    k: int, speedup: float, *, alpha: float = 0.7, c: float = 0.1, break_even: float = 0.4, share: float = 1.0,
    batches: dict[int, float] | None = None,
) -> Prediction:  # fmt: skip
    member = Member(share, alpha, c, break_even, (alpha,), ((7, 10),))
    by_batch = batches or dict.fromkeys(BATCHES, speedup)
    return Prediction(k, k, Interval(speedup), 2.0, {"d": member} if share else {}, by_batch)


def judged(*names: str, predictions: tuple[Prediction, ...], measured: Measured | None = None) -> Ranked:
    """The default pacing is as good as the best length."""
    best = max(predictions, key=lambda one: one.speedup.value)
    return Ranked(Candidate(names, "given"), False, best, predictions, measured)


def end_to_end(speedup: float, *, first_token: float = 0.1) -> Measured:
    return Measured(Interval(speedup), first_token, 0.1, 2.0, 6)


POOR = judged("poor", predictions=(prediction(2, 0.8, alpha=0.48, c=0.2, break_even=0.55), prediction(4, 0.6)))
SUFFIX = judged("suffix", predictions=(prediction(4, 1.3), prediction(8, 1.4), prediction(16, 1.4)))


def test_the_sentence_of_the_brief() -> None:
    assert sentence(POOR, SUFFIX) == (
        "poor: alpha 0.48 is below the break-even of 0.55 for c = 0.20: do not use this draft; "
        "suffix gives 1.4x on these prompts."
    )


@pytest.mark.parametrize("gain", [0.8, 1.02, 1.4])
def test_no_sentence_says_whose_the_prompts_were(gain: float) -> None:
    """They may be samples, and a line below says so where they are."""
    verdict = decide([POOR, judged("other", predictions=(prediction(4, gain),))])
    assert "your" not in " ".join([verdict.headline, *verdict.reasons])
    assert "these prompts" in verdict.headline


def test_the_best_length_is_the_shortest_of_the_best() -> None:
    assert SUFFIX.best.k == 8
    verdict = decide([POOR, SUFFIX])
    assert verdict.kind == "good"
    assert verdict.best is SUFFIX
    assert verdict.headline == "Yes: suffix, predicted 1.40x on these prompts."
    assert [reason.split(":")[0] for reason in verdict.reasons] == ["suffix", "poor"]
    assert "alpha 0.70 against a break-even of 0.40 for c = 0.10; drafting in every step" in verdict.reasons[0]


def test_nothing_helps() -> None:
    verdict = decide([POOR])
    assert (verdict.kind, verdict.best) == ("bad", None)
    assert "Decode plainly" in verdict.headline
    assert verdict.reasons[0].endswith("do not use this draft.")
    hardly = decide([judged("x", predictions=(prediction(2, 1.01),))])
    assert (hardly.kind, hardly.best) == ("unsure", None)
    assert "next to nothing" in hardly.reasons[0]
    assert decide([]).kind == "bad"
    silent = replace(judged("ngram", predictions=(prediction(4, 1.05, share=0.0),)), measured=end_to_end(1.3))
    none = decide([silent])
    assert (none.kind, none.best) == ("bad", None), "what a drafter that never drafted gains is noise"
    assert "never drafted" in none.headline


def test_other_reasons() -> None:
    dear = judged("dear", predictions=(prediction(1, 0.4, c=1.5, break_even=math.nan),))
    assert "not even guesses that are always right would pay" in sentence(dear)
    silent = judged("ngram", predictions=(prediction(4, 1.0, share=0.0),))
    assert "never drafted" in sentence(silent)
    seldom = judged("ngram", predictions=(prediction(4, 1.2, share=0.25),))
    assert "drafting in 25% of the steps" in sentence(seldom)
    odd = judged("odd", predictions=(prediction(4, 0.9, alpha=0.6, break_even=0.5),))
    assert "yet 0.90x (predicted) in all" in sentence(odd)


def test_a_list_must_be_clearly_better_than_its_members() -> None:
    pair = judged("suffix", "poor", predictions=(prediction(8, 1.42),))
    assert preferred([POOR, SUFFIX, pair]) is SUFFIX
    better = judged("suffix", "poor", predictions=(prediction(8, 1.5),))
    assert preferred([POOR, SUFFIX, better]) is better


def test_what_was_measured_counts_more_than_what_was_predicted() -> None:
    tested = replace(SUFFIX, measured=end_to_end(0.9))
    assert tested.gain == 0.9
    assert tested.error == pytest.approx(1.4 / 0.9 - 1)
    verdict = decide([tested])
    assert verdict.kind == "bad"
    assert "measured at 0.90x" in verdict.headline


def test_a_copy_that_looked_best_is_not_taken_once_others_were_measured_to_be_better() -> None:
    """What predictions left out: the copy on 4 bits reads every prompt a second time."""
    copy = judged("self-int4", predictions=(prediction(3, 1.59),), measured=end_to_end(1.17, first_token=0.243))
    head = judged("eagle3", predictions=(prediction(3, 1.06),), measured=end_to_end(1.27))
    pair = judged("ngram", "eagle3", predictions=(prediction(3, 1.14),), measured=end_to_end(1.34))
    unmeasured = judged("/d", predictions=(prediction(3, 3.0),))
    assert preferred([copy, head, pair, unmeasured]) is pair
    assert "the first token comes after 243 ms instead of 100" in sentence(copy, pair)
    assert "1.17x (measured; 1.59x was predicted)" in sentence(copy, pair)


def test_what_auto_takes_anyway_stays_unless_another_is_clearly_better() -> None:
    usual = judged("ngram", "eagle3", predictions=(prediction(3, 1.3),), measured=end_to_end(1.30))
    close = judged("eagle3", predictions=(prediction(3, 1.3),), measured=end_to_end(1.32))
    better = judged("/d", predictions=(prediction(3, 1.3),), measured=end_to_end(1.36))
    names = ("ngram", "eagle3")
    assert preferred([usual, close], names) is usual
    assert preferred([usual, close]) is close
    assert preferred([usual, close, better], names) is better
    hardly = replace(usual, measured=end_to_end(1.01))
    assert decide([hardly], names).best is hardly, "nobody loses by having asked"
    assert decide([hardly]).best is None
    assert decide([replace(usual, measured=end_to_end(0.96))], names).best is None


def test_the_best_three_are_measured_and_the_usual_one() -> None:
    ranked = [judged(f"/{n}", predictions=(prediction(3, 1 + n / 10),)) for n in range(6)]
    assert [one.candidate.drafters[0] for one in finalists(ranked)] == ["/5", "/4", "/3"]
    assert [one.candidate.drafters[0] for one in finalists(ranked, ["/1"])] == ["/5", "/4", "/3", "/1"]


def test_where_it_stops_paying() -> None:
    falling = {1: 1.5, 2: 1.3, 4: 1.1, 8: 0.9, 16: 0.8, 32: 0.7, 64: 0.6}
    short = {1: 1.2, 2: 1.2, 4: 1.15, 8: 1.05, 16: 0.95, 32: 0.9, 64: 0.9}
    one = judged("d", predictions=(prediction(8, 1.5, batches=falling), prediction(2, 1.2, batches=short)))
    assert stops_paying(one) == "d stops paying between batch 8 (1.05x predicted) and batch 16 (0.95x)."
    assert stops_paying(SUFFIX) == "suffix still pays at batch 64 (1.40x predicted)."
    assert stops_paying(POOR) == "poor pays at no batch size."


def test_lines_to_paste() -> None:
    pair = judged("ngram", "/models/a draft", predictions=(prediction(5, 1.5),))
    setup = Setup("my/model", TargetOptions(dtype="float32", max_length=512))
    line = load_line(setup, pair)
    assert line == "hs.load('my/model', ['ngram', '/models/a draft'], dtype='float32', max_length=512)"
    compile(line, "", "eval")
    assert load_line(setup, pair, fixed=True).endswith('num_speculative_tokens=5, pacing="fixed")')
    assert flags(setup, pair, fixed=True) == (
        "--model my/model --drafter ngram --drafter '/models/a draft' --dtype float32 --max-model-len 512 "
        "-k 5 --pacing fixed"
    )
    assert load_line(Setup(), None) == "hs.load('bundled', 'none')"


def test_lists_worth_a_try() -> None:
    ngram = judged("ngram", predictions=(prediction(8, 1.5),))
    draft = judged("/d", predictions=(prediction(4, 1.2),))
    head = replace(judged("/h", predictions=(prediction(16, 1.3),)), tree=True)
    slow = judged("/s", predictions=(prediction(4, 0.5),))
    found = promising([ngram, SUFFIX, draft, head, slow])
    assert [each.drafters for each in found] == [("ngram", "/h"), ("ngram", "/d")]
    assert promising([draft]) == []


def test_spoken() -> None:
    assert Interval(1.5).times == "1.50x"
    assert Interval(1.5, 1.25, 1.75).times == "1.50x (1.25 to 1.75)"
