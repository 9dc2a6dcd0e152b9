"""Drafters that have a long text to read: so little in each step that no other request waits, and no text changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from support import eagle_heads
from support.counting import rows_fed
from support.eagle_engines import runner_of
from support.rows import a_row
from support.tiny import ARCHITECTURES, VOCAB, drawn

import headstart as hs
from headstart.drafters import Drafter, Row
from headstart.drafters.cascade import Cascade
from headstart.drafters.draft_model import DraftModel
from headstart.drafters.eagle import EagleDrafter
from headstart.drafters.ngram import NgramDrafter
from headstart.engine.chunks import LEAST, Chunks, Reading
from headstart.engine.engine import Engine
from headstart.engine.guarded_drafter import attach
from headstart.engine.stacked import StackedDrafter
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing import FixedPacing
from headstart.types import Budget, CaughtUp, Draft, Step

LONG = 2000
PROMPT = [7 + number * number % 80 for number in range(LONG)]
SHORT = [5, 6]
K, BOUND = 2, 64
GREEDY = hs.Sampling(max_tokens=60, ignore_eos=True)


class Steady(Reading):
    """So many tokens, whatever the clock says."""

    def tokens(self, *, beside: bool, at: int = 0) -> int:
        return 512

    def left_to_drafters(self, *, target_reads: bool) -> int:
        return LEAST if target_reads else BOUND

    def took(self, tokens: int, seconds: float, caught_up: Sequence[CaughtUp] = ()) -> None:
        pass


@pytest.fixture(scope="module")
def runner() -> Callable[..., ModelRunner]:
    def make(noise: float = 0.0, context: int = LONG + 200) -> ModelRunner:
        config = tf.LlamaConfig(**{**ARCHITECTURES["llama"]().to_dict(), "max_position_embeddings": 4096})
        return ModelRunner(adopt(drawn(config, noise=noise)), max_length=context)

    return make


def draft_model(made: ModelRunner, **options: Any) -> DraftModel:
    return DraftModel(made, name="draft", vocab_size=VOCAB, slots=2, **options)


def stack(made: ModelRunner) -> StackedDrafter:
    cache, inner = made.new_cache(2), Cascade([NgramDrafter()])
    attach(inner, made, cache)
    return StackedDrafter(made, cache, inner, FixedPacing(K), name="stack", vocab_size=VOCAB)


def engine_of(target: ModelRunner, drafter: Drafter | None, **options: Any) -> Engine:
    engine = assemble(target, drafter=drafter, num_speculative_tokens=K, max_batch_size=2, **options)
    engine.scheduler.chunks = Steady()
    return engine


def beside(engine: Engine, sampling: hs.Sampling = GREEDY) -> tuple[list[list[Step]], list[tuple[int, ...]]]:
    """The steps in which a long prompt joins a stream, and both texts."""
    stream = engine.submit(SHORT, hs.Sampling(max_tokens=150, ignore_eos=True))
    engine.step()
    reader = engine.submit(PROMPT, sampling)
    steps = []
    while engine.running:
        steps.append(engine.step())
    return steps, [stream.output, reader.output]


def texts_alone(target: ModelRunner) -> list[tuple[int, ...]]:
    plain = assemble(target, max_batch_size=1)
    samplings = [hs.Sampling(max_tokens=150, ignore_eos=True), GREEDY]
    return [plain.generate(each, sampling).tokens for each, sampling in zip((SHORT, PROMPT), samplings, strict=True)]


@pytest.mark.parametrize("kind", ["draft LM", "tree", "stack"])
def test_a_stream_gets_a_token_in_each_step_and_a_step_reads_so_much(
    kind: str, runner: Callable[..., ModelRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, made = runner(), runner(0.02)
    drafter: Any = stack(made) if kind == "stack" else draft_model(made, tree="top-k" if kind == "tree" else "none")
    fed = rows_fed(drafter if kind != "stack" else _with_runner(drafter), monkeypatch)
    engine = engine_of(target, drafter)
    rows = []
    stream = engine.submit(SHORT, hs.Sampling(max_tokens=150, ignore_eos=True))
    engine.step()
    reader = engine.submit(PROMPT, GREEDY)
    drafted = []
    while engine.running:
        writing = stream.finish_reason is None
        before = len(fed)
        steps = engine.step()
        if writing:
            assert any(step.request == stream.number and step.tokens for step in steps), "the stream stood still"
        if writing and reader.finish_reason is None:
            rows.append(sum(fed[before:]))
        drafted += [len(step.draft) for step in steps if step.request == reader.number and step.tokens]
    assert [stream.output, reader.output] == texts_alone(target)
    assert max(rows) <= BOUND + 8 * (K + 1), "the drafter read more than a step may"
    assert LONG // BOUND <= sum(count > BOUND // 2 for count in rows) <= LONG // BOUND + 8, "or dawdled"
    waited = drafted.index(next(filter(None, drafted)))
    assert LONG // BOUND - 2 <= waited <= LONG // BOUND + 2, "steps without a draft"
    assert all(drafted[waited : waited + 20]), "once it has caught up, it drafts"


def _with_runner(drafter: StackedDrafter) -> Any:
    """A stack, for `rows_fed`."""

    class Given:
        runner = drafter.model

    return Given


def test_what_the_drafter_in_a_stack_reads_counts_too(
    runner: Callable[..., ModelRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, made, small = runner(), runner(0.02), runner(0.03)
    cache, within = made.new_cache(2), draft_model(small)
    inner = Cascade([within])
    attach(inner, made, cache)
    drafter = StackedDrafter(made, cache, inner, FixedPacing(K), name="stack", vocab_size=VOCAB)
    engine = engine_of(target, drafter)
    outer_rows, inner_rows = rows_fed(_with_runner(drafter), monkeypatch), rows_fed(within, monkeypatch)
    # of the stream nothing is drafted, so that within the stack nobody waits
    stream = engine.submit(SHORT, hs.Sampling(max_tokens=150, ignore_eos=True), hs.Drafting(enabled=False))
    engine.step()
    prompt = PROMPT[:800]
    reader = engine.submit(prompt, GREEDY)
    most = read = told = 0
    while stream.finish_reason is None and reader.finish_reason is None:
        before = sum(outer_rows), sum(inner_rows)
        steps = engine.step()
        most = max(most, sum(outer_rows) + sum(inner_rows) - sum(before))
        told += sum(each.read for step in steps for each in step.draft.caught_up)
        read = sum(inner_rows)
    assert read >= len(prompt), "the inner drafter has caught up"
    assert most <= BOUND + 8 * (K + 1), "and kept to the bound"
    assert 2 * len(prompt) <= told <= 2 * len(prompt) + 50, "and both said what they read"
    engine.cancel(stream)
    engine.cancel(reader)


def test_a_stack_says_only_what_it_has_read(runner: Callable[..., ModelRunner]) -> None:
    target, made = runner(), runner(0.02, 500)
    engine = engine_of(target, stack(made))
    steps, texts = beside(engine)
    assert texts == texts_alone(target)
    told = [each for found in steps for step in found for each in step.draft.caught_up]
    assert not told, "a text beyond the model's context is not read"


def test_one_that_is_alone_has_its_drafter_read_all_at_once(runner: Callable[..., ModelRunner]) -> None:
    engine = engine_of(runner(), draft_model(runner(0.02)))
    request = engine.submit(PROMPT, GREEDY)
    while not request.output:
        (step,) = engine.step()
    assert len(step.draft) == K
    assert step.draft.caught_up == (CaughtUp("draft", LONG),)
    engine.cancel(request)


def test_what_a_seed_promises_does_not_depend_on_who_waits(runner: Callable[..., ModelRunner]) -> None:
    sampling = hs.Sampling(max_tokens=24, temperature=1.0, seed=7, ignore_eos=True)

    def drafts(together: bool) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
        engine = engine_of(runner(), draft_model(runner(0.02)), rule="exact")
        if together:
            steps, (_, output) = beside(engine, sampling)
        else:
            request, steps = engine.submit(PROMPT, sampling), []
            while request.finish_reason is None:
                steps.append(engine.step())
            output = request.output
        mine = [step for each in steps for step in each if step.position >= LONG and step.tokens]
        return [step.draft.tokens for step in mine], output

    (alone, text), (beside_it, same) = drafts(together=False), drafts(together=True)
    assert text == same
    assert alone == beside_it


def test_a_copy_takes_over_piece_by_piece_what_it_would_read(
    runner: Callable[..., ModelRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, drafter = runner(), draft_model(runner(), copy=True)
    engine = engine_of(target, drafter)
    fed = rows_fed(drafter, monkeypatch)
    lengths: list[int] = []
    engine.subscribe(lambda step: lengths.append(max(drafter.cache.lengths)))
    fed.clear()
    _, texts = beside(engine)
    assert texts == texts_alone(target)
    grown = [b - a for a, b in pairwise(lengths)]
    assert BOUND <= max(grown) <= BOUND + 8, "it takes over so many tokens in a step"


def test_taking_over_in_pieces_leaves_what_taking_over_at_once_leaves(runner: Callable[..., ModelRunner]) -> None:
    from headstart.model.packed import Segment
    from headstart.model.takeover import take_over

    target = runner()
    theirs, whole, pieces = target.new_cache(1), target.new_cache(1), target.new_cache(1)
    for cache in (theirs, whole, pieces):
        cache.take(0)
    target.forward([Segment(0, tuple(PROMPT[:100]))], theirs)
    theirs.keep(0, 100)
    assert take_over(whole, 0, theirs, 0, 90) == 90
    assert [take_over(pieces, 0, theirs, 0, length) for length in (7, 40, 41, 90, 30)] == [7, 40, 41, 90, 90]
    for layer in theirs.keys:
        for one, other, own in zip(*(cache.read(layer, 0, 90) for cache in (whole, pieces, theirs)), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
            torch.testing.assert_close(one, own, rtol=0, atol=0)


# -- how much ---------------------------------------------------------------------------------------------------------


def learnt() -> tuple[Chunks, int, int]:
    """Chunks that have seen both readers, with the tokens that each may read in a step."""
    chunks = Chunks(512, bounded=True)
    for _ in range(12):
        chunks.took(0, 0.02)
        chunks.took(chunks.tokens(beside=True), 0.04)
        chunks.took(0, 0.04, [CaughtUp("draft", drafters_may(chunks))])
    return chunks, chunks.tokens(beside=True), drafters_may(chunks)


def drafters_may(chunks: Chunks) -> int:
    left = chunks.left_to_drafters(target_reads=False)
    assert left is not None
    return left


def test_the_target_and_drafters_share_a_step() -> None:
    chunks, target, drafters = learnt()
    assert chunks.left_to_drafters(target_reads=True) == LEAST, "nobody is known to lack more"
    chunks.took(0, 0.02, [CaughtUp("draft", LEAST, unread=700)])
    assert chunks.tokens(beside=True) == pytest.approx(target / 2, rel=0.02)
    assert chunks.left_to_drafters(target_reads=True) == pytest.approx(drafters / 2, rel=0.02)
    chunks.took(100, 0.05, [CaughtUp("draft", 100, unread=600)])
    assert chunks.left_to_drafters(target_reads=False) == drafters
    chunks.took(0, 0.02, [CaughtUp("draft", 30)])
    assert chunks.tokens(beside=True) == target
    chunks.took(100, 0.02, [CaughtUp("copy", 0, unread=600)])
    assert chunks.tokens(beside=True) == target, "who waits for the target takes no time"


def test_where_both_have_read_for_too_long_both_read_less() -> None:
    chunks, target, drafters = learnt()
    both = [CaughtUp("draft", 100, unread=0)]
    chunks.took(100, 0.1, both)
    assert chunks.tokens(beside=True) == pytest.approx(target * 0.75, rel=0.15)
    assert chunks.left_to_drafters(target_reads=False) == pytest.approx(drafters * 0.75, rel=0.15)
    chunks.took(100, 60.0, both)
    assert chunks.tokens(beside=True) == pytest.approx(target * 0.375, rel=0.25)
    assert chunks.left_to_drafters(target_reads=False) == pytest.approx(drafters * 0.375, rel=0.25)


def test_a_drafter_is_not_bounded_either_where_bits_depend_on_it() -> None:
    chunks = Chunks(512, bounded=False)
    chunks.took(16, 0.02, [CaughtUp("draft", 16, unread=700)])
    assert chunks.tokens(beside=True) == 512
    assert chunks.left_to_drafters(target_reads=True) is None
    assert chunks.left_to_drafters(target_reads=False) is None


@pytest.mark.parametrize("each", [1e-5, 1e-4, 1e-3])
def test_a_drafter_that_reads_quicker_may_read_more(each: float) -> None:
    chunks = Chunks(512, bounded=True)
    for _ in range(30):
        chunks.took(0, 0.02)
        count = chunks.left_to_drafters(target_reads=False)
        assert 0.02 + each * count <= 0.1, "from the first step on nobody waits longer"
        chunks.took(0, 0.02 + each * count, [CaughtUp("draft", count, unread=1000)])
        chunks.took(0, 0.02)
    assert chunks.left_to_drafters(target_reads=False) == pytest.approx(min(8192, 0.063 / each), rel=0.08, abs=1)
    assert chunks.tokens(beside=True) == LEAST, "of the target it says nothing"


# -- who is told ------------------------------------------------------------------------------------------------------


class _Reads(Drafter):
    """Lacks so many tokens."""

    default_budget, draws = K, False

    def __init__(self, name: str, unread: int) -> None:
        self.name, self._unread = name, unread

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        return [Draft(caught_up=(CaughtUp("x", 5, self._unread),)) for _ in rows]


def test_a_list_says_what_each_of_its_members_lacks(load: Callable[..., hs.Engine]) -> None:
    engine = load("llama", [_Reads("one", 3), _Reads("two", 4), NgramDrafter(shortest=1)])
    request = engine.submit([5, 6, 5, 6, 5], hs.Sampling(max_tokens=3))
    (step,) = engine.step()
    assert step.draft.source == "ngram"
    assert step.draft.caught_up == (CaughtUp("one", 5, 3), CaughtUp("two", 5, 4))
    engine.cancel(request)


WRONG: list[Any] = [
    (3,),
    3,
    None,
    {CaughtUp("x", 1)},
    (CaughtUp("x", None),),  # type: ignore[arg-type]
    (CaughtUp("x", "5"),),  # type: ignore[arg-type]
    (CaughtUp("x", 5, 0.5),),  # type: ignore[arg-type]
    (CaughtUp("x", -5),),
    (CaughtUp("x", 5, -1),),
    (CaughtUp(7, 5),),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_what_is_not_of_the_kind_is_refused(given: Any, load: Callable[..., hs.Engine]) -> None:
    class Wrong(_Reads):
        def propose(self, rows: Sequence[Row]) -> list[Draft]:
            return [Draft(caught_up=given) for _ in rows]

    engine = load("llama", Wrong("wrong", 0))
    out = engine.generate([5, 6], hs.Sampling(max_tokens=3))
    assert len(out.tokens) == 3
    assert "caught_up" in out.stats.speculation.reason


class _Greedy(_Reads):
    """Reads what it may of a text of 100 tokens."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 0)
        self.bounds: list[int | None] = []

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        self.bounds += [row.reading for row in rows]
        return [Draft(caught_up=(CaughtUp("x", min(row.reading or 0, 100)),)) for row in rows[:1]] + [Draft()] * (
            len(rows) - 1
        )


def test_members_share_what_may_be_read(load: Callable[..., hs.Engine]) -> None:
    one, two = _Greedy("one"), _Greedy("two")
    cascade = Cascade([one, two, one])
    cascade.propose([replace(a_row(number, 5, 9), reading=150, budget=Budget(2)) for number in range(2)])
    assert one.bounds == [150, 150, 0, 0]
    assert two.bounds == [50, 50]


# -- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 7])
def test_a_head_reads_a_prompt_with_the_target(seed: int | None, root: Path, tmp_path: Path) -> None:
    """Of a text that a seed promises in pieces of its own, which are no matter of other requests."""
    path = eagle_heads.target(root)
    folder = eagle_heads.write(tmp_path / "head", "eagle1")
    runner = runner_of(path)
    drafter = EagleDrafter.load(folder, runner, target_folder=path, slots=1, tree="none", quantize=None)
    drafter._reader.chunk = 90
    read: list[int] = []
    original = drafter.head.run

    def run(packed: Any, *given: Any, **options: Any) -> Any:
        read.append(sum(len(segment.causal) for segment in packed.segments))
        return original(packed, *given, **options)

    drafter.head.run = run  # type: ignore[method-assign]
    engine = assemble(runner, drafter=drafter, rule="exact", max_batch_size=1, prefill_chunk=30)
    engine.submit(
        [3 + number % 20 for number in range(100)],
        hs.Sampling(max_tokens=2, temperature=1.0, seed=seed, ignore_eos=True),
    )
    pieces = []
    for _ in range(4):
        before = len(read)
        engine.step()
        pieces.append(sum(read[before:]))
    assert pieces == ([0, 0, 89, 0] if seed is None else [0, 0, 0, 90])


# -- a stack's texts ---------------------------------------------------------------------------------------------------


def _row(request: int, tokens: int, reading: int | None, **options: Any) -> Row:
    return replace(a_row(request, tokens, 9, **options), reading=reading, budget=Budget(K))


def test_a_text_that_a_seed_promises_lifts_no_bound_of_others(runner: Callable[..., ModelRunner]) -> None:
    drafter = stack(runner(0.02))
    promised, other = drafter.propose([_row(0, 100, None, reproducible=True), _row(1, 100, 20)])
    assert len(promised) == K
    assert promised.caught_up == (CaughtUp("stack", 100),)
    assert other.caught_up == (CaughtUp("stack", 20, 80),)


def test_a_short_text_that_is_new_leaves_its_tokens_to_no_other(runner: Callable[..., ModelRunner]) -> None:
    drafter = stack(runner(0.02))
    drafter.propose([_row(0, 100, 20)])
    long, short = drafter.propose([_row(0, 100, 20), _row(1, 6, 20)])
    assert len(short) == K
    assert long.caught_up == (CaughtUp("stack", 20, 60),)


def test_a_text_that_nobody_asks_for_is_not_read(runner: Callable[..., ModelRunner]) -> None:
    made = runner(0.02)
    drafter, theirs = stack(made), made.new_cache(2)
    theirs.keeps_texts = True
    drafter.attach(made, theirs)
    _, waiting = drafter.propose([_row(0, 100, 20), _row(1, 100, 20)])
    assert waiting.caught_up == (CaughtUp("stack", 0, 100),), "it begins with what the other reads"
    for _ in range(6):
        drafter.propose([_row(0, 100, 20)])
    assert drafter.cache.free_slots == 1
