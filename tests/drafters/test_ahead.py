"""`Ahead(inner)` hands out the very drafts that `inner` would have made: token by token, distribution by distribution,
to the bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, get_args

import pytest
from support.ahead_twins import RAGGED, VOCAB, WARM, Case, difference, draft_model, hits, same_draft, shown
from support.scripted_worker import ALL, scripted

from headstart.base.errors import InvalidOption
from headstart.drafters import Drafter, Foresees, Observation, Row, capabilities
from headstart.drafters.ahead import Ahead, AheadDrafter, MakeWorker
from headstart.drafters.ngram import NgramDrafter
from headstart.engine.scheduler import Scheduler
from headstart.types import Draft, Sampling, TreeKind

SCRIPTS: dict[str, Any] = {"none": 0, "one": 1, "two": 2, "three": 3, "all": ALL, "changing": (ALL, 0, 1, 3, 2, ALL, 1)}
TREES: tuple[TreeKind, ...] = get_args(TreeKind)
TWINS = [(tree, rule, script) for tree in TREES for rule in ("exact", "coupled") for script in (*SCRIPTS, "random")]
FAST = {
    ("none", "exact", "random"),
    ("none", "coupled", "changing"),
    ("top-k", "exact", "all"),
    ("top-k", "coupled", "one"),
    ("sampled", "exact", "random"),
    ("sampled", "coupled", "two"),
    ("mixed", "exact", "three"),
    ("mixed", "coupled", "random"),
}


def idles(script: str, seed: int = 0) -> Any:
    return random.Random(seed) if script == "random" else SCRIPTS[script]


@pytest.fixture
def unpromised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests have seeds, so that two runs can be compared, but no promise that comes with them: they are drafted for
    as others are."""
    monkeypatch.setattr(Scheduler, "_reproducible", lambda *_: False)


# -- twins ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unpromised")
@pytest.mark.parametrize(
    ("tree", "rule", "script"),
    [pytest.param(*twin, marks=() if twin in FAST else pytest.mark.slow) for twin in TWINS],
)
def test_it_drafts_what_the_inner_drafter_would(tree: TreeKind, rule: Any, script: str) -> None:
    """A ragged batch: temperatures 0 and above, filters and penalties; budgets that change from step to step; requests
    that are cancelled and that join."""
    case = Case(tree, rule, cancels={5: 1, 8: 0})
    ahead = case.run(case.ahead(scripted(idles(script))))
    assert not difference(case.run(case.inner()), ahead)
    hit, missed = hits(ahead)
    assert (hit, missed) == (0, 0) if script == "none" else min(hit, missed) > 0


@pytest.mark.usefixtures("unpromised")
@pytest.mark.parametrize("tree", ["none", "sampled"])
def test_alone_in_its_batch(tree: TreeKind) -> None:
    """With budgets that stay, so that trees are hits more often."""
    asked = ((RAGGED[1][0], replace(WARM, max_tokens=20)), (RAGGED[4][0], Sampling(max_tokens=20)))
    case = Case(tree, asked=asked, slots=1, budgets=(3,))
    ahead = case.run(case.ahead(scripted(ALL), branches=40))
    assert not difference(case.run(case.inner()), ahead)
    hit, missed = hits(ahead)
    assert hit > missed


@pytest.mark.usefixtures("unpromised")
@pytest.mark.parametrize("tree", ["none", "top-k", "sampled"])
def test_where_the_drafts_context_ends(tree: TreeKind) -> None:
    """Behind a text near the end there is no room for all branches, and at last for none."""
    case = Case(tree, asked=[(prompt, replace(s, max_tokens=30)) for prompt, s in RAGGED], max_length=24, budgets=(3,))
    ahead = case.run(case.ahead(scripted(random.Random(5)), branches=6))
    assert not difference(case.run(case.inner()), ahead)
    assert hits(ahead)[0] > 0
    assert any(step.budget.nodes and not len(step.draft) for step in ahead), "no text reached the end"


@pytest.mark.usefixtures("unpromised")
def test_where_texts_are_kept() -> None:
    """Requests begin with the texts of earlier ones, which both caches hold."""
    asked = [((*range(VOCAB), *range(i)), replace(s, max_tokens=8)) for i, (_, s) in enumerate(RAGGED[:4])]
    case = Case(asked=asked, prefix_cache=True, again=True, cancels={4: 2})
    ahead = case.run(case.ahead(scripted(random.Random(2))))
    assert not difference(case.run(case.inner()), ahead)


@pytest.mark.parametrize("tree", ["none", "sampled"])
def test_what_a_seed_promises_waits_for_the_whole_draft(tree: TreeKind) -> None:
    """Partial drafts would be served, but not to requests whose text a seed promises."""
    case = Case(tree, asked=[each for each in RAGGED if not each[1].greedy])
    ahead = case.run(case.ahead(scripted((1, 2, 0, 3)), partial=True))
    assert not difference(case.run(case.inner()), ahead)
    assert hits(ahead)[0] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("unpromised")
def test_forwards_that_are_not_width_invariant_agree_but_for_rounding() -> None:
    case = Case(decoder="lean", asked=[each for each in RAGGED if each[1].greedy])
    ahead = case.run(case.ahead(scripted((ALL, 1))))
    assert not difference(case.run(case.inner()), ahead)
    assert hits(ahead)[0] > 0


# -- drafts served in part --------------------------------------------------------------------------------------------


class Beside(AheadDrafter):
    """Also asks another drafter what it would have drafted in its place: whole drafts, and shorter ones."""

    def __init__(self, how: Ahead, others: Sequence[Drafter], worker: MakeWorker) -> None:
        super().__init__(how, worker)
        self.others = others
        self.faults: list[str] = []
        self.shorter = 0

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        drafts = super().propose(rows)
        wanted = [other.propose(rows) for other in self.others]
        for index, draft in enumerate(drafts):
            whole = [each[index] for each in wanted]
            self.shorter += not same_draft(draft, whole[0])
            if not any(same_draft(draft, cut(each, len(draft))) for each in whole):
                self.faults.append(f"{shown(draft)} for {shown(whole[0])}")
        return drafts

    def observe(self, observation: Observation) -> None:
        super().observe(observation)
        draft = replace(observation.step.draft, source="near")
        for other in self.others:
            other.observe(replace(observation, step=replace(observation.step, draft=draft)))

    def release(self, request: int) -> None:
        super().release(request)
        for other in self.others:
            other.release(request)


def cut(draft: Draft, nodes: int) -> Draft:
    """Its first nodes."""
    return Draft(draft.tokens[:nodes], draft.parents[:nodes], None if draft.q is None else draft.q[:nodes])


@pytest.mark.usefixtures("unpromised")
@pytest.mark.parametrize("tree", ["none", "sampled", "top-k"])
def test_a_draft_that_is_served_in_part_is_the_beginning_of_the_whole(tree: TreeKind) -> None:
    """Of a chain its first tokens, of a drawn tree its first levels, of a tree of the likeliest nodes what it would be
    with fewer levels."""
    case = Case(tree, budgets=(6,))
    depths = (None, 1, 2, 3, 4) if tree == "top-k" else (None,)
    others = [draft_model(case.slots, tree, depth=depth) for depth in depths]
    drafter = Beside(Ahead(case.inner(), branches=24, partial=True), others, scripted((1, 2, 3, 2)))
    steps = case.run(drafter)
    assert not drafter.faults
    assert drafter.shorter > 0
    assert hits(steps)[0] > 0


# -- its face ---------------------------------------------------------------------------------------------------------


def test_it_says_what_the_inner_drafter_says_of_itself() -> None:
    inner = draft_model(2, "sampled")
    drafter = AheadDrafter(Ahead(inner))
    assert (drafter.name, drafter.in_turn) == ("ahead:near", inner)
    for name in ("default_budget", "limit", "sizes", "draws", "taps"):
        of = getattr(capabilities, name, None) or attrgetter(name)
        assert of(drafter) == of(inner)
    assert list(drafter.weights()) == list(inner.weights())


def test_what_cannot_foresee_is_refused() -> None:
    with pytest.raises(InvalidOption, match="ngram cannot draft ahead") as caught:
        Ahead(NgramDrafter())
    assert "draft models" in caught.value.hint
    assert not isinstance(NgramDrafter(), Foresees)


@pytest.mark.parametrize("options", [{"branches": 0}, {"branches": 1.5}, {"threads": 0}], ids=str)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Ahead(draft_model(1), **options)


def test_what_was_foreseen_is_told_with_the_draft() -> None:
    """Greedy, with all outcomes foreseen: hits but for the first, and the depths are those of the accepted paths."""
    case = Case(asked=RAGGED[:1], slots=1, budgets=(3,))
    steps = case.run(case.ahead(scripted(ALL), branches=4 * VOCAB))
    drafted = [step for step in steps if len(step.draft)]
    for before, step in pairwise(drafted):
        prepared = step.draft.prepared
        assert prepared is not None
        assert prepared.foreseen
        assert prepared.node == (before.path[-1] if before.path else -1)
        assert prepared.depth == len(before.path)
        assert prepared.hit == (prepared.rank is not None)
        assert prepared.asked <= prepared.answered
        assert prepared.begin <= prepared.end
    assert hits(steps)[0] > hits(steps)[1]
