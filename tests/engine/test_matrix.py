"""The exactness matrix: every drafter x rule x setting x batch shape, and every drafter x architecture.
docs/exactness-matrix.md is its table.

One test is one drafter under one rule. All its settings are requests of one ragged batch, prompts of five lengths
mixed; some are repeated one at a time and must give the same tokens. Every emitted token is held against its own
distribution by transformers (`matrix_distributions`), greedy texts against `generate`. No cell is idle: drafts are
accepted and rejected in each, and where texts end early, some end within an accepted block. Seeds are fixed, so what
passes goes on passing.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from support.matrix_cells import (
    ACROSS,
    ALARM,
    ENTRIES,
    MIXED,
    PROMPTS,
    REFUSALS,
    RULES,
    SETTINGS,
    SLOTS,
    WRITER,
    Entry,
    Refusal,
    Setting,
    Workshop,
    table,
)
from support.matrix_distributions import Evidence, Text, check_end, check_logprobs, distributions, generated
from support.matrix_targets import ARCHITECTURES, Architecture

import headstart as hs
from headstart.drafters import capabilities
from headstart.engine import intake, judging, scheduler
from headstart.engine.intake import rule_of
from headstart.engine.request import Request
from headstart.model import int4, prefixes
from headstart.rule.distribution import SamplingRow, token_logprobs
from headstart.rule.noise import Noise, Purpose
from headstart.types import Draft, EngineRule, Output, Rule, Sampling, Step, Verdict

DOCS = Path(__file__).parents[2] / "docs" / "exactness-matrix.md"


@pytest.fixture(scope="session")
def shop(root: Path) -> Workshop:
    return Workshop(root / "matrix")


@pytest.fixture(scope="session")
def shop_of(root: Path) -> Callable[[Architecture], Workshop]:
    """Of each architecture."""

    @cache
    def made(architecture: Architecture) -> Workshop:
        return Workshop(root / f"matrix-{architecture.name}", architecture=architecture)

    return made


@pytest.fixture(scope="session")
def gpu_shop(root: Path) -> Workshop:
    return Workshop(root / "matrix-gpu", "cuda")


@dataclass(frozen=True)
class Asked:
    """One request of a run."""

    setting: Setting
    variant: int
    prompt: Text
    sampling: Sampling


@dataclass(frozen=True)
class Done:
    """What became of it. rounds: its steps that emitted something. free: see `Evidence.add_round`."""

    asked: Asked
    output: Output
    rounds: tuple[Step, ...]
    free: bool

    @property
    def cut(self) -> bool:
        """It ended with a draft token."""
        return self.rounds[-1].accepted == len(self.rounds[-1].tokens)


def requests(entry: Entry, settings: Sequence[Setting]) -> list[Asked]:
    """Of a ragged run, in a mixed order; each has a seed of its own."""
    found = []
    for setting in settings:
        for prompt in PROMPTS:
            turns = len(setting.variants) if setting.greedy else max(round(entry.seeds * entry.share), 2)
            for turn in range(turns):
                variant = turn % len(setting.variants)
                sampling = entry.sampling(setting.variants[variant], seed=len(found))
                found.append(Asked(setting, variant, prompt, sampling))
    random.Random(0).shuffle(found)
    return found


def run(shop: Workshop, entry: Entry, rule: EngineRule, asked: Sequence[Asked], slots: int = SLOTS) -> list[Done]:
    """Generate all of it in one call, and audit the caches afterwards."""
    if len({each.setting.adaptive for each in asked}) > 1:
        parts = [[each for each in asked if each.setting.adaptive is adaptive] for adaptive in (False, True)]
        return [done for part in parts for done in run(shop, entry, rule, part, slots)]
    rounds: dict[int, list[Step]] = defaultdict(list)
    with engine(shop, entry, rule, slots, adaptive=asked[0].setting.adaptive) as made:
        made.subscribe(lambda step: rounds[step.request].append(step))
        wishes = [entry.drafting(each.prompt) for each in asked]
        outs = made.generate([list(each.prompt) for each in asked], [each.sampling for each in asked], wishes)
    assert all(out.stats.speculation.error is None for out in outs), "a drafter failed"
    steps = [tuple(step for step in rounds[number] if step.tokens) for number in sorted(rounds)]
    point_masses = not capabilities.draws(made.drafter)
    free = [point_masses or rule_of(each.sampling, rule) == "exact" for each in asked]
    return [Done(*each) for each in zip(asked, outs, steps, free, strict=True)]


@contextmanager
def engine(shop: Workshop, entry: Entry, rule: EngineRule, slots: int, *, adaptive: bool) -> Iterator[hs.Engine]:
    made = shop.engine(entry, rule, slots, adaptive=adaptive)
    yield made
    caches = [made.cache]
    drafter = made.drafter
    caches += [member.cache for member in getattr(drafter, "members", (drafter,)) if hasattr(member, "cache")]
    for slots_ in caches:
        slots_.check()
        assert slots_.free_slots == len(slots_.lengths), "a slot was not given back"


@cache
def reference(path: str, tokenizer: Any, prompt: Text, setting: str, variant: int) -> Text:
    chosen = next(each for each in (*SETTINGS, *ACROSS) if each.name == setting)
    return generated(path, tokenizer, prompt, chosen.variants[variant])


def faults(
    shop: Workshop, entry: Entry, setting: Setting, done: Sequence[Done], whole: Evidence, *, blocks: bool = True
) -> list[str]:
    """What is wrong with one cell. whole: see `impossible`. blocks: some texts must end within an accepted block."""
    found = [fault for each in done if (fault := check_end(each.output, each.asked.sampling))]
    if setting.greedy:
        for each in done:
            expected = reference(shop.path, shop.tokenizer, each.asked.prompt, setting.name, each.asked.variant)
            if each.output.tokens != expected:
                found.append(f"{each.asked}: {each.output.tokens} where transformers writes {expected}")
    else:
        found += impossible(shop, done, whole)
    drafted, accepted = (sum(getattr(each.output.stats, name) for each in done) for name in ("drafted", "accepted"))
    if entry.make is not None and not 0 < accepted < drafted:
        found.append(f"{accepted} of {drafted} draft tokens accepted: the cell says nothing")
    if entry.make is not None and setting.stops and blocks:
        stopped = [each for each in done if each.output.finish_reason == "stop"]
        if not any(each.cut for each in stopped):
            found.append(f"none of {len(stopped)} early ends came in an accepted block")
    return found


def impossible(shop: Workshop, done: Sequence[Done], whole: Evidence) -> list[str]:
    """Faults of sampled texts, and of the log-probabilities that came with them. whole: evidence of all cells, which
    gains by theirs."""
    groups: dict[tuple[Text, int], list[Done]] = defaultdict(list)
    for each in done:
        groups[each.asked.prompt, each.asked.variant].append(each)
    evidence = Evidence()
    found = []
    for (prompt, variant), members in groups.items():
        sampling = members[0].asked.sampling
        known = distributions(shop.path, prompt, sampling, (each.output.tokens for each in members))
        for each in members:
            p = known.p[each.output.tokens]
            evidence.add(prompt, each.output.tokens, p, (each.asked.setting.name, variant))
            for step in each.rounds:
                evidence.add_round(step, p[step.position - len(prompt) :], free=each.free)
            found += [fault] if (fault := check_logprobs(each.output, sampling, known)) else []
    if evidence.impossible:
        found.append(f"{evidence.impossible} tokens of probability 0")
    whole += evidence
    return found + improbable(evidence)


def improbable(evidence: Evidence) -> list[str]:
    return [f"{way}: p = {p:.1e} of {evidence.tokens} tokens" for way, p in evidence.p_values().items() if p < ALARM]


IN_TURNS = [
    (entry, RULES[number % 2], SETTINGS[number % 3 :: 3])
    for number, entry in enumerate(each for each in ENTRIES if each.quick)
]


@pytest.mark.parametrize(("entry", "rule", "settings"), IN_TURNS, ids=lambda each: getattr(each, "name", None))
def test_settings_in_turns(entry: Entry, rule: Rule, settings: Sequence[Setting], shop: Workshop) -> None:
    """The fast suite's part of the table: every setting under both rules, each time of another drafter."""
    one_by_one(shop, entry, rule, check_cells(entry, rule, shop, settings))


def test_the_fast_suite_has_every_setting_under_both_rules() -> None:
    found = {(setting.name, rule) for _, rule, settings in IN_TURNS for setting in settings}
    assert found == {(setting.name, rule) for setting in SETTINGS for rule in RULES}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_setting(entry: Entry, rule: Rule, shop: Workshop) -> None:
    one_by_one(shop, entry, rule, check_cells(entry, rule, shop))


def when(place: int) -> tuple[pytest.MarkDecorator, ...]:
    """One drafter of each architecture is fast, half of all are for CI, and the others `combined`: what an architecture
    computes and what a drafter does are tested one by one elsewhere."""
    if place % len(ENTRIES) == 0:
        return ()
    return (pytest.mark.slow,) if place // 2 % 2 == 0 else (pytest.mark.slow, pytest.mark.combined)


ACROSS_CELLS = [
    pytest.param(architecture, entry, RULES[place % 2], marks=when(place))
    for column, architecture in enumerate(ARCHITECTURES)
    for place, entry in enumerate(ENTRIES, start=5 * column)
]


@pytest.mark.parametrize(("architecture", "entry", "rule"), ACROSS_CELLS, ids=lambda each: getattr(each, "name", each))
def test_every_architecture(
    architecture: Architecture, entry: Entry, rule: Rule, shop_of: Callable[[Architecture], Workshop]
) -> None:
    """The fast suite has one drafter of each, and none of them twice; CI has half of all, with every architecture and
    every drafter under both rules; `make slow` runs all."""
    shop = shop_of(architecture)
    if entry.native and not architecture.native:
        if "4-bit" in entry.name and not int4.can_run(torch.device("cpu")):
            pytest.skip("this processor has no codes in groups")
        with pytest.raises(hs.errors.HeadstartError, match=r"cannot be left early|needs the row kernels"):
            shop.engine(entry, rule, 1)
        return
    settings = ACROSS if architecture.sampled else ACROSS[:1]
    one_by_one(shop, entry, rule, check_cells(entry, rule, shop, settings, blocks=False))


def test_ci_has_every_architecture_and_every_drafter_under_both_rules() -> None:
    in_ci = [each.values for each in ACROSS_CELLS if all(mark.name != "combined" for mark in each.marks)]
    assert len(in_ci) <= 0.55 * len(ACROSS_CELLS)
    assert {(str(cell[0]), cell[2]) for cell in in_ci} == {
        (str(each), rule) for each in ARCHITECTURES for rule in RULES
    }
    assert {(cell[1], cell[2]) for cell in in_ci} == {(entry, rule) for entry in ENTRIES for rule in RULES}


WHERE_KEPT = ("greedy", "T=1", "penalties", "EOS in a block", "greedy, adaptive pacing", "T=1, adaptive pacing")
"""Settings that look at the text before a token, or at where it ends; the others only edit a distribution."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "rule"),
    [(entry, RULES[number % 2]) for number, entry in enumerate(ENTRIES)],
    ids=lambda each: getattr(each, "name", each),
)
def test_settings_where_texts_are_kept(
    entry: Entry, rule: Rule, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most requests begin on a slot that holds a part of their prompt: of these prompts two tokens must do. Seeded
    ones do, too: each keeps its distribution, if not its text. Every drafter is here under one of the rules: what a
    slot holds is settled before any rule is asked."""
    for module in (prefixes, scheduler):
        monkeypatch.setattr(module, "SHORTEST", 2)
    monkeypatch.setattr(shop, "keeps_texts", True)
    monkeypatch.setattr(scheduler.Scheduler, "_reproducible", lambda *_: False)
    warm = []
    admit = Request.admit
    monkeypatch.setattr(
        Request, "admit", lambda self, slot, cached: warm.append(cached > 0) or admit(self, slot, cached)
    )
    check_cells(entry, rule, shop, [each for each in SETTINGS if each.name in WHERE_KEPT], blocks=False)
    assert sum(warm) > len(warm) / 2


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(each, marks=() if each.name == "draft LM, tree sampled" else pytest.mark.slow)
        for each in ENTRIES
        if each.quick
    ],
    ids=lambda entry: entry.name,
)
def test_rule_auto(entry: Entry, shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests with a seed and without in the same batches, each judged by its own rule."""
    drawn = itertools.count(10**6)  # the seeds of those without one follow each other, too
    monkeypatch.setattr(intake.secrets, "randbits", lambda _: next(drawn))
    done = check_cells(entry, "auto", shop, [each for each in SETTINGS if each.name in MIXED])
    assert len({rule_of(each.asked.sampling, "auto") for each in done if not each.asked.sampling.greedy}) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_setting_on_a_gpu(entry: Entry, rule: Rule, gpu_shop: Workshop) -> None:
    """The same table, with target and drafters on a GPU; `test_every_setting` is its CPU twin. Distributions and greedy
    texts are transformers' on the CPU. Batch 1 and batches need not give the same tokens there."""
    if "4-bit" in entry.name:
        pytest.skip("a GPU has no codes in groups: the copy would be the target itself")
    check_cells(entry, rule, gpu_shop)


def check_cells(
    entry: Entry, rule: EngineRule, shop: Workshop, settings: Sequence[Setting] = SETTINGS, *, blocks: bool = True
) -> list[Done]:
    asked = requests(entry, settings)
    if rule == "auto":  # the other half of them has no seed
        asked = [
            replace(each, sampling=replace(each.sampling, seed=None)) if number % 2 else each
            for number, each in enumerate(asked)
        ]
    done = run(shop, entry, rule, asked)
    wrong = {}
    whole = Evidence()
    for setting in settings:
        members = [each for each in done if each.asked.setting is setting]
        if found := faults(shop, entry, setting, members, whole, blocks=blocks):
            wrong[setting.name] = found[:3]
    assert not wrong
    assert all(setting.greedy for setting in settings) or not improbable(whole)
    return done


def one_by_one(shop: Workshop, entry: Entry, rule: Rule, done: Sequence[Done]) -> None:
    """Batch 1: the same seeds give the same tokens, so what was found of the batch's distribution holds here, too."""
    chosen: dict[tuple[str, int], list[Done]] = defaultdict(list)
    for each in done:
        same = chosen[each.asked.setting.name, each.asked.variant]
        if len(same) < 2 and all(each.asked.prompt != other.asked.prompt for other in same):
            same.append(each)
    again = [each for members in chosen.values() for each in members]
    again.sort(key=lambda each: each.asked.setting.adaptive)  # as `run` takes them
    alone = run(shop, entry, rule, [each.asked for each in again], slots=1)
    assert [each.output.tokens for each in alone] == [each.output.tokens for each in again]


def test_all_members_of_a_list_are_accepted(shop: Workshop) -> None:
    """Copies and drawn tokens in one batch: their distributions are one-hot, or not."""
    entry = next(each for each in ENTRIES if each.name == "list, best of")
    chosen = next(each for each in SETTINGS if each.name == "T=1")
    kinds = set()
    for done in run(shop, entry, "exact", requests(entry, [chosen])):
        for step in done.rounds:
            hot = [step.draft.q is None or bool(step.draft.q[node].max() == 1) for node in step.path]
            kinds |= {(step.draft.q is None, each) for each in hot}
    assert kinds >= {(True, True), (False, False)}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.what)
def test_what_cannot_be_exact_is_refused(refusal: Refusal, shop: Workshop) -> None:
    with pytest.raises(refusal.error, match=re.escape(refusal.reason)):
        refusal.attempt(shop)


def test_the_committed_table_is_what_is_declared() -> None:
    assert DOCS.read_text(encoding="utf-8") == table(), f"write it anew: {WRITER}"


# -- the test is tested: wrong rules that other engines have had -------------------------------------------------------


def found(shop: Workshop, name: str, *settings: str) -> list[str]:
    """The faults of some cells of a drafter, and of all of them together."""
    entry = next(each for each in ENTRIES if each.name == name)
    chosen = [each for each in (*SETTINGS, *ACROSS) if each.name in settings]
    assert len(chosen) == len(settings)
    done = run(shop, entry, "exact", requests(entry, chosen))
    whole = Evidence()
    by_cell = [
        faults(shop, entry, setting, [each for each in done if each.asked.setting is setting], whole)
        for setting in chosen
    ]
    faulty = [fault for cell in by_cell for fault in cell]
    return faulty if all(setting.greedy for setting in chosen) else faulty + improbable(whole)


def _resampling(draft: Draft, p: Any, q: Any, noise: Noise, position: int, rule: Rule) -> Verdict:
    """Accepts rightly, but draws from p after a rejection, not from what is left of it."""
    path: list[int] = []
    while True:
        node, place = path[-1] if path else -1, position + len(path)
        distribution = p[node + 1]
        for child in draft.children[node + 1]:
            token = draft.tokens[child]
            chance = distribution[token] / (1 if q is None else q[child][token])
            if noise.uniform(place, Purpose.ACCEPT, lane=position, index=child) < chance:
                path.append(child)
                break
        else:
            return Verdict(tuple(path), noise.draw(distribution, place, Purpose.TOKEN))


def _typical(draft: Draft, p: Any, q: Any, noise: Noise, position: int, rule: Rule) -> Verdict:
    """Typical acceptance: what is likely enough is accepted."""
    path: list[int] = []
    while True:
        node = path[-1] if path else -1
        distribution = p[node + 1]
        likely = [child for child in draft.children[node + 1] if distribution[draft.tokens[child]] > 0.2]
        if not likely:
            return Verdict(tuple(path), noise.draw(distribution, position + len(path), Purpose.TOKEN))
        path.append(likely[0])


WRONG = [
    pytest.param(name, verify, marks=() if (row + column) % 2 == 0 else pytest.mark.slow)
    for row, name in enumerate(["n-gram", "draft LM, chain", "EAGLE-2, dynamic tree", "draft LM, tree sampled"])
    for column, verify in enumerate([_resampling, _typical])
]


@pytest.mark.parametrize(("name", "verify"), WRONG)
def test_a_wrong_rule_is_found(name: str, verify: Any, shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "verify", verify)
    assert any("p = " in fault for fault in found(shop, name, "T=1", "min-p", "logit bias"))


def test_penalties_that_do_not_see_the_draft_are_found(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "sampling_rows", lambda state, draft: (SamplingRow(state),) * (len(draft) + 1))
    assert any("p = " in fault for fault in found(shop, "draft LM, chain", "penalties"))
    assert not found(shop, "draft LM, chain", "T=1")


def test_an_end_overlooked_within_a_block_is_found(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    extend = Request.extend

    def overlooking(self: Request, tokens: Sequence[int]) -> tuple[int, ...]:
        held, self.stop_ids = self.stop_ids, frozenset()
        first = extend(self, tokens[:-1]) if len(tokens) > 1 else ()
        self.stop_ids = held
        return (*first, *(extend(self, tokens[-1:]) if self.finish_reason is None else ()))

    monkeypatch.setattr(Request, "extend", overlooking)
    assert any("ends as" in fault for fault in found(shop, "draft LM, chain", "EOS in a block"))


@pytest.mark.parametrize("name", ["gemma3_text", "gemma4_text", "phi3", "starcoder2"])
def test_a_window_that_is_too_wide_is_found(name: str, root: Path, shop_of: Callable[[Architecture], Workshop]) -> None:
    """By one token, which the few tokens at load do not tell."""
    right = next(each for each in ARCHITECTURES if each.name == name)

    def wide() -> Any:
        made = right.model()
        made.config.sliding_window += 1
        return made

    shop = Workshop(root / f"matrix-wide-{name}", architecture=replace(right, model=wide))
    shop.path = shop_of(right).path
    assert any("where transformers writes" in fault for fault in found(shop, "n-gram", ACROSS[0].name))


def test_log_probabilities_of_the_other_kind_are_found(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    def exchanged(*args: Any, mode: str, **options: Any) -> Any:
        return token_logprobs(*args, mode="raw" if mode == "processed" else "processed", **options)

    monkeypatch.setattr(judging, "token_logprobs", exchanged)
    assert any("where the distribution says" in fault for fault in found(shop, "draft LM, chain", "logprobs"))
