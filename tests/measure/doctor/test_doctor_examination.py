"""Whole examinations of tiny models."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.byte_models import save_model
from support.gguf_files import Q, write
from support.gguf_mixtures import MIXTURES
from support.gguf_models import made
from support.tiny import random_model

import headstart as hs
from headstart.base.errors import HeadstartError, InvalidPrompt, ModelNotFound, NotEnoughMemory
from headstart.base.prompt_sets import Chat, PromptItem
from headstart.drafters.ngram import NgramDrafter
from headstart.loading import advice
from headstart.loading import pacing as making
from headstart.loading.checkpoint import Checkpoint
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.doctor import measuring
from headstart.measure.doctor import memory as needs
from headstart.measure.doctor import question as asking
from headstart.measure.doctor.candidates import Candidate
from headstart.measure.doctor.examination import Examination, _reading, examine
from headstart.measure.doctor.facts import markdown, not_measured, record, target_facts, warning
from headstart.measure.doctor.measuring import Sample, affordable, by_prompt, measure_candidate, spread
from headstart.measure.doctor.memory import inspect
from headstart.measure.doctor.question import Clock, Question, Setup
from headstart.measure.doctor.trials import Trials
from headstart.measure.doctor.verdict import Ranked, Recommendation, decide
from headstart.model import int4, native
from headstart.model.gguf.files import open_gguf
from headstart.pacing import FixedPacing
from headstart.types import Sampling

SAMPLING = Sampling(max_tokens=24, ignore_eos=True)
ITEMS = tuple(PromptItem([5 + i, 6, 7, 5 + i, 6, 7], f"kind {i % 2}", f"prompt {i}") for i in range(4))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def question(target: str, **options: object) -> Question:
    how = Setup(target, TargetOptions(dtype="float32", max_length=96), EngineOptions(max_batch_size=2))
    return replace(Question(how, ITEMS, SAMPLING, seconds=3.0), **options)  # type: ignore[arg-type]


def quiet(what: str, share: float) -> None:
    assert what
    assert 0 <= share <= 1


def by_name(examination: Examination) -> dict[str, object]:
    return {one.candidate.name: one.result for one in examination.inspected}


@pytest.mark.skipif(not native.available(), reason="no row kernels on this machine")
def test_of_a_file_of_experts_a_forward_reads_those_that_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", made(MIXTURES["qwen3_moe"]()), kind=Q.Q8_0)
    mixture, read = _reading(Checkpoint(path, "target", device=torch.device("cpu"), dtype="float32"), None)
    assert mixture is not None
    tensors = open_gguf(path).tensors
    parts = {name: 3 / 8 if "_exps." in name else float(name != "token_embd.weight") for name in tensors}
    assert read == pytest.approx(sum(part * tensors[name].data.nbytes for name, part in parts.items()), rel=0.01)


def test_a_mixture_of_experts_is_told_with_what_more_rows_read(tiny: Callable[..., str]) -> None:
    found = examine(question(tiny("mixtral"), given=("ngram",), measure=False), quiet)
    assert found.mixture is not None
    assert (found.mixture.routing.experts, found.mixture.routing.chosen) == (4, 2)
    experts, rest = 4 * 4 * 3 * 32 * 64, sum(p.numel() for p in random_model("mixtral").parameters())
    met = rest - experts / 2
    assert found.mixture.met == pytest.approx(met / rest)
    assert found.mixture.expert_share == pytest.approx(experts / 2 / met)
    assert 1 < found.mixture.v(2) < found.mixture.v(16) < 2
    assert found.read is not None
    assert target_facts(found)["experts"].startswith("2 of 4 for a token, 72% of the weights that it meets; v(n) by")
    told = json.loads(json.dumps(record(found)))["mixture"]
    assert (told["experts"], told["experts_per_token"]) == (4, 2)
    assert told["v"]["2"] == pytest.approx(found.mixture.v(2))


def test_an_examination(tiny: Callable[..., str]) -> None:
    draft = tiny("llama", noise=0.02)
    found = examine(question(tiny("llama"), given=(draft, "/no/such/draft"), measure_all=True, seconds=6.0), quiet)
    results = by_name(found)
    assert {"ngram", "suffix", "early-exit", Path(draft).name, "/no/such/draft"} <= results.keys()
    failed = results["/no/such/draft"]
    assert isinstance(failed, ModelNotFound)
    names = [one.candidate.name for one in found.ranked]
    assert Path(draft).name in names
    assert len(found.verdict.reasons) == len(names) + (found.ahead is not None), "and one sentence on drafting ahead"
    one = next(each for each in found.ranked if each.candidate.name == Path(draft).name)
    assert [p.k for p in one.predictions] == list(range(1, measuring.LONGEST + 1))
    member = one.best.members[draft]
    assert 0 < member.alpha <= 1
    assert member.share > 0.9
    assert all(each.measured is not None and each.measured.prompts for each in found.ranked), "all, with check"
    written = json.loads(json.dumps(record(found), allow_nan=False))
    assert written["headstart_doctor"] == 1
    assert written["candidates"][1]["error"]["type"] == "ModelNotFound"
    assert written["costs"]["v"]["1"] == 1
    assert "| drafter |" in markdown(found)
    assert "ModelNotFound" in dict(not_measured(found))["/no/such/draft"]
    assert target_facts(found)["memory"].startswith("fits")
    assert isinstance(warning(found), str)


@pytest.mark.slow
@pytest.mark.skipif(not int4.can_run(torch.device("cpu")), reason="no products of 4-bit weights here")
def test_the_targets_own_copy_is_examined_and_recommended_to_auto(
    tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it pays is of no matter: a tiny model's steps say nothing of a real one's, so the advice is made up."""
    monkeypatch.setattr(asking, "LEAST_COPIED", 1)
    found = examine(question(tiny("llama"), given=("self-int4",), seconds=6.0), quiet)
    sample, looked = by_name(found)["self-int4"], next(o for o in found.inspected if o.candidate.name == "self-int4")
    assert isinstance(sample, Sample)
    assert sample.costs.draft("self-int4", 1) > 0
    assert looked.memory is not None
    assert "self-int4 while it is made" in looked.memory.words
    (ranked,) = (one for one in found.ranked if one.candidate.name == "self-int4")
    assert ranked.best.members["self-int4"].acceptance[0] > 0.3, "of a tiny random model, whose weights are few"
    target = hs.Target(tiny("llama"), dtype="float32", max_length=96)
    told = advice.Advice(("self-int4",), 3, "none", 2.0, (0.9,), "2026-11-22")
    assert advice.write(*target.advised_by, told) is not None
    assert target.engine("auto").drafter_name == "self-int4"


def test_the_answer_is_kept_for_load(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is its own draft, judged as if it paid: what is recommended can be read, and its costs are known
    to the next load."""
    target = tiny("llama")
    monkeypatch.setattr("headstart.pacing.measuring.STEADY", math.inf)  # on a busy machine no costs would be kept

    def as_if_it_paid(ranked: Sequence[Ranked], usual: Sequence[str]) -> Recommendation:
        own = next(one for one in ranked if one.candidate.drafters == (target,))
        return replace(decide(ranked), best=own)

    monkeypatch.setattr("headstart.measure.doctor.examination.decide", as_if_it_paid)
    found = examine(question(target, given=(target,), measure_all=True), quiet)
    assert found.advice is not None
    opened, _ = found.question.setup.open()
    mine = opened.checkpoint
    read = advice.read(mine.source, mine.config.to_dict(), mine.dtype, opened.device, None)
    assert read is not None
    assert read.drafters == (target,)
    assert read.acceptance
    assert "doctor measured" in read.reason

    def measured_again(*_: object, **__: object) -> None:
        raise AssertionError("the costs should have been known")

    monkeypatch.setattr(making, "measure", measured_again)
    monkeypatch.setattr(making, "a_few_forwards", lambda *_: {1: 1e9})
    hs.load(target, list(read.drafters), dtype="float32", max_length=96, max_batch_size=2)


def test_nothing_is_kept_where_nothing_is_to_be(tiny: Callable[..., str], tmp_path: Path) -> None:
    assert examine(question(tiny("llama"), keep=False, seconds=0.5), quiet).advice is None
    predicted = examine(question(tiny("llama"), measure=False, seconds=0.5), quiet)
    assert predicted.advice is None, "what was only predicted is no advice"
    assert all(one.measured is None for one in predicted.ranked)
    assert not (tmp_path / "headstart" / "advice").exists()


def test_a_drafter_that_gives_up_is_reported(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: NgramDrafter, contexts: object) -> None:
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(NgramDrafter, "propose", broken)
    results = by_name(examine(question(tiny("llama"), seconds=20.0), quiet))
    failed = results["ngram"]
    assert isinstance(failed, HeadstartError)
    assert "out of ideas" in failed.message
    assert isinstance(results["suffix"], Sample)


def test_early_exit_where_it_cannot_be(tiny: Callable[..., str]) -> None:
    failed = by_name(examine(question(tiny("persimmon"), seconds=20.0), quiet))["early-exit"]
    assert isinstance(failed, HeadstartError)
    assert "cannot be left early" in failed.message


def test_a_target_that_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        examine(question(str(tmp_path / "nowhere")), quiet)


def test_prompts_are_checked_before_anything_is_measured(tiny: Callable[..., str]) -> None:
    wrong = (*ITEMS, PromptItem([1, 2, 97], name="the last"))
    with pytest.raises(InvalidPrompt, match="the last: token id 97"):
        examine(question(tiny("llama"), items=wrong), quiet)


def test_too_little_memory(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny("llama")
    _, memory = question(target).setup.open()
    need = memory.needs[0]
    monkeypatch.setattr(asking, "free_bytes", lambda device: need.weights + need.rows + need.cache * 3 // 4)
    opened, memory = question(target).setup.open()
    assert not memory.fits
    assert opened.checkpoint.length == 72, "three quarters of 96, and it goes on with that"
    monkeypatch.setattr(asking, "free_bytes", lambda device: need.weights // 2)
    with pytest.raises(NotEnoughMemory, match="does not fit"):
        question(target).setup.open()


def test_a_draft_that_does_not_fit_is_reported(tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    target, memory = question(tiny("llama")).setup.open()
    monkeypatch.setattr(needs, "free_bytes", lambda device: 1000)
    with pytest.raises(NotEnoughMemory, match="does not fit"):
        inspect(target, memory, Candidate((tiny("llama", noise=0.02),), "given"))
    assert inspect(target, memory, Candidate(("ngram",), "always"))[1] is None


def test_trees_are_measured_in_a_few_sizes(tiny: Callable[..., str]) -> None:
    how = replace(question(tiny("llama")).setup, engine_options=EngineOptions(max_batch_size=2, draft_tree="top-k"))
    target, _ = how.open()
    candidate = Candidate((tiny("llama", noise=0.02),), "given")
    sample = measure_candidate(
        candidate, how.engine(target, candidate), how.engine(target), ITEMS, SAMPLING, seconds=2.0
    )
    assert [setting.k for setting in sample.settings][:2] == [None, 6], "the default pacing first"
    assert all(setting.tree and len(setting.texts) >= 1 for setting in sample.settings)
    assert sample.plain
    last = sample.settings[-1]
    assert max(one.nodes for text in last.texts.values() for one in text.rounds) <= (last.k or 0)


def test_no_run_copies_from_what_another_has_written(tiny: Callable[..., str]) -> None:
    """Else "suffix" would find every answer in its store from the second setting on."""
    how = question(tiny("llama")).setup
    target, _ = how.open()
    engine = how.engine(target, Candidate(("suffix",), "always"), FixedPacing(8))
    first, again = (by_prompt({"": engine}, ITEMS[:1], SAMPLING, until=0.0)[0][""][0].rounds for _ in range(2))
    assert [(one.nodes, one.accepted) for one in again] == [(one.nodes, one.accepted) for one in first]


def test_a_drafter_that_gives_up_does_not_stop_the_others(
    tiny: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: NgramDrafter, contexts: object) -> None:
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(NgramDrafter, "propose", broken)
    how = question(tiny("llama")).setup
    target, _ = how.open()
    names = ("ngram", "suffix")
    engines = {"": how.engine(target), **{name: how.engine(target, Candidate((name,), "always")) for name in names}}
    texts, failed = by_prompt(engines, ITEMS, SAMPLING, until=0.0)
    assert failed.keys() == {"ngram"}
    assert len(texts[""]) == len(texts["suffix"]) == 1


def test_two_drafters_of_one_name_are_both_measured(tiny: Callable[..., str], tmp_path: Path) -> None:
    """Tables show the last part of a path, which two candidates may share."""
    names = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "draft").symlink_to(tiny("llama", noise=0.02))
        names.append(str(tmp_path / folder / "draft"))
    how = question(tiny("llama"))
    target, memory = how.setup.open()
    trials = Trials(how, Clock(how, quiet), target, memory, how.setup.engine(target), ITEMS, SAMPLING)
    trials.measure_all([Candidate((name,), "given") for name in names])
    chosen = [one for one in trials.ranked if one.candidate.drafters[0] in names]
    assert len({one.candidate.name for one in chosen}) == 1
    assert len(chosen) == 2
    trials.measure(chosen)
    assert sum(one.measured is not None for one in trials.ranked) == 2


def test_an_engine_may_run_seldom(tiny: Callable[..., str]) -> None:
    how = question(tiny("llama")).setup
    target, _ = how.open()
    engines = {"plain": how.engine(target), "other": how.engine(target)}
    found, failed = by_prompt(engines, ITEMS, SAMPLING, until=math.inf, seldom={"plain": 3})
    assert not failed
    assert (list(found["plain"]), list(found["other"])) == ([0, 3], [0, 1, 2, 3])


def test_an_answer_that_was_cut_short_counts_its_reading_by_what_was_written(tiny: Callable[..., str]) -> None:
    how = question(tiny("llama")).setup
    target, _ = how.open()
    engines = {"": how.engine(target)}
    whole, cut = (by_prompt(engines, ITEMS, SAMPLING, until=0.0, asked=asked)[0][""][0] for asked in (24, 24_000_000))
    assert whole.reading > 0
    assert cut.reading < whole.reading / 100, "a millionth of the answer was written"


def test_prompts_of_all_kinds_come_first() -> None:
    items = [PromptItem("x", kind, name) for kind, name in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"))]
    assert [item.name for item in spread(items)] == ["1", "4", "2", "3"]


def test_fewer_tokens_where_there_is_no_time() -> None:
    assert affordable(10.0, 0.001, 128) == 128
    assert affordable(10.0, 0.04, 128) == 62
    assert affordable(1.0, 0.1, 128) == measuring.SHORT
    assert affordable(1.0, 0.1, 16) == 16


@pytest.mark.parametrize("chat", [True, False])
def test_conversations_go_through_the_template(chat: bool, tmp_path: Path) -> None:
    """Later turns are prompts too, with the model's own answers, and the record says how prompts were sent."""
    talk = Chat(({"role": "user", "content": "Hi"},), ("More",))
    items = (PromptItem("Hi", "talk", "81", talk), PromptItem("def f", "code", "text"))
    target = str(save_model(tmp_path / "m", chat=chat))
    found = examine(question(target, items=items, keep=False), quiet)
    words = (
        "2 through the chat template, 1 raw" if chat else "1 raw, 1 turns raw, because the model has no chat template"
    )
    assert found.forms == record(found)["prompts_sent"] == words
    assert words in target_facts(found)["prompts"]
