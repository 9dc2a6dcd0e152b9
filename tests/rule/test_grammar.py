"""Grammars: the exact distribution against masks that were found in another way, planted faults, errors, limits."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny_words
from support.allowed_tokens import AllowedTokens
from support.enumeration import Oracle, completed, joint, outcomes
from support.masked_rounds import World
from support.tiny_words import AB, EOS, MARK, SIZE, A, C, grammars, tokenizer

from headstart.base.errors import GrammarFailed, InvalidGrammar
from headstart.model.tokens.matching import matching_tokenizer
from headstart.rule import compiled_grammar, gates, mask
from headstart.rule import grammars as grammars_module
from headstart.rule.compiled_grammar import Compiled, Tokens
from headstart.rule.distribution import SamplingRow, SamplingState
from headstart.rule.distributions import sampling_rows
from headstart.rule.gates import Gate, ThinkingBudget
from headstart.rule.grammar import Grammar
from headstart.rule.grammars import Grammars
from headstart.types import Draft, Sampling, Structure

WORDS = 'start: "ab" /c?/ "ab"'
STRUCTURES = {
    "canonical": Structure("lark", WORDS),
    "free": Structure("lark", WORDS, spelling="free"),
    "gate": Structure("lark", WORDS, after=(MARK,)),
    "long marker": Structure("lark", WORDS, after=(C, MARK)),
    "budget": Structure("lark", WORDS, after=(C, MARK), thinking=1),
    "budget alone": Structure("text", after=(C, MARK), thinking=1),
    "trigger": Structure("lark", 'start: "ab"', trigger=(MARK,)),
}


def begin(structure: Structure) -> SamplingState:
    sampling = Sampling(temperature=1.0, structure=structure)
    return SamplingState(sampling, (0,), SIZE, frozenset({EOS}), processors=grammars().processors(structure))


allowed = AllowedTokens(grammars(), SIZE, EOS)


def world(structure: Structure) -> World:
    return World(lambda: begin(structure), SIZE, lambda text: allowed(structure, text))


def keeps_the_distribution(world: World, shape: Sequence[int], drawn: str | None, first: int = 2) -> None:
    length = len(shape) + first

    def procedure(oracle: Oracle) -> tuple[int, ...]:
        state, text = world.begin(), ()
        while len(text) < first:
            emitted = world.round(oracle, state, text, shape, drawn)
            state, text = state.after(emitted), (*text, *emitted)
        return text[:length]

    found: dict[Any, Fraction] = completed(outcomes(procedure), world.model, length)
    assert found == joint(world.model, length, SIZE)


PLAIN = ("canonical", "free")
"""The others let everything come at first, so there is much more to enumerate."""


@pytest.mark.parametrize(
    ("name", "shape", "drawn"),
    [
        pytest.param(name, shape, drawn, marks=() if name in PLAIN or shape == (1, 1) else pytest.mark.slow)
        for name in STRUCTURES
        for shape in ((1, 1), (2,))
        for drawn in ("masked", "unmasked", None)
        if name in PLAIN or drawn != "unmasked"
    ],
)
def test_the_distribution_is_the_masked_one_exactly(name: str, shape: tuple[int, ...], drawn: str | None) -> None:
    once = drawn == "unmasked" or (drawn is not None and name not in (*PLAIN, "budget"))
    keeps_the_distribution(world(STRUCTURES[name]), shape, drawn, first=1 if once else 2)


@pytest.mark.parametrize("drawn", ["masked", None])
@pytest.mark.parametrize("name", ["canonical", "gate", "budget"])
def test_tokens_that_are_certain_may_follow_any_draft(name: str, drawn: str | None) -> None:
    longer = world(STRUCTURES[name])
    longer.lengthens = True
    keeps_the_distribution(longer, (1,), drawn, first=1 if drawn else 2)


# -- faults -----------------------------------------------------------------------------------------------------------


def mask_of_the_wrong_node(world: World, patch: pytest.MonkeyPatch) -> None:
    world.rows = lambda state, draft: (SamplingRow(state),) * (len(draft) + 1)


def bonus_row_unmasked(world: World, patch: pytest.MonkeyPatch) -> None:
    plain = SamplingState(Sampling(temperature=1.0), (0,), SIZE, frozenset())

    def rows(state: SamplingState, draft: Draft) -> tuple[SamplingRow, ...]:
        return (*sampling_rows(state, draft)[:-1], SamplingRow(plain)) if len(draft) else sampling_rows(state, draft)

    world.rows = rows


def drawn_draft_dropped(world: World, patch: pytest.MonkeyPatch) -> None:
    world.cuts_drawn = True


def gate_one_token_late(world: World, patch: pytest.MonkeyPatch) -> None:
    class Late(Gate):
        def _after(self, token: int) -> Any:
            return self.begin if self.seen == len(self.marker) else Late(*self._seeing(token))

        def _seeing(self, token: int) -> tuple[Any, ...]:
            return self.marker, self.begin, False, gates.matched(self.marker, self.seen, token)

    patch.setattr(grammars_module, "Gate", Late)


def end_of_text_consumed(world: World, patch: pytest.MonkeyPatch) -> None:
    after = Grammar._after

    def consuming(self: Grammar, token: int) -> Grammar:
        if token != EOS or self._matcher is None:
            return after(self, token)
        matcher = self._matcher.deep_copy()
        return Grammar(self._compiled, self._path, matcher if matcher.consume_token(token) else None)

    patch.setattr(Grammar, "_after", consuming)


def budget_counted_at_the_commit(world: World, patch: pytest.MonkeyPatch) -> None:
    """Draft tokens do not count, so that a round may think on."""
    patch.setattr(ThinkingBudget, "after", lambda self, tokens: self)


FAULTS: list[tuple[Any, str, tuple[int, ...], str | None]] = [
    (mask_of_the_wrong_node, "canonical", (1, 1), "masked"),
    (mask_of_the_wrong_node, "free", (1, 1), None),
    (bonus_row_unmasked, "canonical", (1,), "masked"),
    (drawn_draft_dropped, "free", (1, 1), "unmasked"),
    (gate_one_token_late, "gate", (1, 1), "unmasked"),
    (end_of_text_consumed, "short", (1, 1), "masked"),
    (budget_counted_at_the_commit, "budget", (1, 1), "unmasked"),
]


@pytest.mark.parametrize(("fault", "name", "shape", "drawn"), FAULTS, ids=lambda each: getattr(each, "__name__", None))
def test_a_planted_fault_is_found(
    fault: Callable[..., None], name: str, shape: tuple[int, ...], drawn: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    structure = STRUCTURES.get(name, Structure("regex", "c"))
    keeps_the_distribution(world(structure), shape, drawn, first=1)
    broken = world(structure)
    fault(broken, monkeypatch)
    with pytest.raises(AssertionError):
        keeps_the_distribution(broken, shape, drawn, first=1)


# -- purity, failures -------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_mask_depends_on_the_tokens_before_it_alone(data: Any) -> None:
    """Whatever was looked at, drafted, rejected, or sent to another process before."""
    structure = data.draw(st.sampled_from([STRUCTURES["canonical"], STRUCTURES["free"]]))
    first = begin(structure).processors[0]
    assert isinstance(first, Grammar)
    value, path = first, ()
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, 3))):  # a draft that is rejected
            guess = value.after(data.draw(st.lists(st.integers(0, SIZE - 1), max_size=3)))
            getattr(guess, data.draw(st.sampled_from(["mask", "complete", "failure"])))
        if data.draw(st.booleans()):
            value = pickle.loads(pickle.dumps(value))
        if value.ended:
            assert value.mask is None
            break
        may = allowed.by_grammar(structure, path)
        assert [token for token in range(SIZE) if value.allows(token)] == may
        assert value.forced() == (may[0] if len(may) == 1 else None)
        token = data.draw(st.sampled_from(may))
        value = value.after((token,))
        path = path if token == EOS else (*path, token)


class Poisoned:
    """A matcher that has an error wherever `of` says so, as copies that share a lexer have."""

    def __init__(self, matcher: Any, of: Callable[[], bool]) -> None:
        self._matcher, self._of = matcher, of

    def deep_copy(self) -> Poisoned:
        return Poisoned(self._matcher.deep_copy(), self._of)

    def is_error(self) -> bool:
        return self._of() or bool(self._matcher.is_error())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)


def test_an_error_of_a_copy_is_not_believed_unless_a_fresh_matcher_has_it_too() -> None:
    made = Compiled(Structure("lark", WORDS), tiny_words.tokens())
    poisoned = False
    made._first = Poisoned(made._first, lambda: poisoned)
    value = Grammar.begin(made).after((AB,))
    poisoned = True  # a draft has driven a copy into a limit, and all that share its lexer with it
    after = value.after((C,))
    assert [token for token in range(SIZE) if value.allows(token)] == [A, C, AB]
    assert [token for token in range(SIZE) if after.allows(token)] == [AB]
    assert value.failure is None
    assert after.failure is None
    assert made.rebuilt > 0
    assert not Grammar.begin(made).failure, "later requests are copied from a sound one"


def test_a_grammar_that_takes_long_to_compile_is_not_compiled_while_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled_grammar, "COSTLY", -1.0)
    kept, structure = tiny_words.new_grammars(), Structure("lark", WORDS)
    kept.prepare(structure)
    made, poisoned = kept.compiled(structure), False
    made._first = Poisoned(made._first, lambda: poisoned)
    values = [Grammar.begin(made).after((AB,)) for _ in range(2)]
    poisoned = True
    monkeypatch.setattr(made, "_made", lambda: pytest.fail("compiled on the thread of the engine"))
    for value in values:  # the matcher in reserve is there for the first, and for the second what came of it
        assert [token for token in range(SIZE) if value.allows(token)] == [A, C, AB]
    assert made.spent
    assert kept.compiled(structure) is made
    kept.prepare(structure)
    assert kept.compiled(structure) is not made


def test_a_pause_while_a_grammar_is_compiled_does_not_make_it_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 10.0])  # of the first compilation, the second takes no time
    monkeypatch.setattr(compiled_grammar, "time", SimpleNamespace(thread_time=lambda: next(times, 10.0)))
    made = Compiled(Structure("lark", WORDS), tiny_words.tokens())
    assert made.fresh() is not None
    assert made.fresh() is not None
    assert not made.spent


def test_where_a_fresh_matcher_fails_too_the_row_has_a_failure_and_logits_are_left_alone() -> None:
    made = Compiled(Structure("lark", WORDS), tiny_words.tokens())
    fresh, broken = made.fresh, False
    made.fresh = lambda *, now=False: Poisoned(fresh(now=True), lambda: broken)  # type: ignore[method-assign]
    made._first = made.fresh()
    value = Grammar.begin(made).after((AB,))
    broken = True
    assert isinstance(value.failure, GrammarFailed)
    x = np.array([1, 2, np.nan, 4, 5, 6], np.float32)
    value.edit(x)
    assert np.array_equal(x, [1, 2, np.nan, 4, 5, 6], equal_nan=True)
    assert value.after((C,)).failure is value.failure, "a guess behind it is no other failure"


# -- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [6, 64, 1000])
def test_all_ways_to_apply_a_mask_agree_to_the_bit(size: int) -> None:
    import torch

    rng = np.random.default_rng(size)
    for density in (0.0, 0.02, 0.5, 1.0):
        bits = rng.random(size) < density
        packed = np.zeros(-(-size // 32) * 4, np.uint8)
        packed[: -(-size // 8)] = np.packbits(bits, bitorder="little")
        words = packed.view(np.uint32)
        x = rng.normal(size=size).astype(np.float32)
        x[[1, 3]] = np.nan, np.inf
        with np.errstate(invalid="ignore"):
            wanted = np.where(bits, x, x - np.float32(np.inf)).astype(np.float32)
            one, two, three = x.copy(), x.copy(), torch.from_numpy(x.copy())[None]
            mask.apply(one, words)
            mask.in_numpy(two, words)
            mask.apply_to_rows(three, [0], [words])
            ids = rng.permutation(size)[: size // 2]
            some = x[ids].copy()
            mask.apply_to_columns(some, ids, words)
        for found in (one, two, three[0].numpy()):
            assert np.array_equal(found, wanted, equal_nan=True)
        assert np.array_equal(some, wanted[ids], equal_nan=True)
        assert mask.count(words) == bits.sum()
        assert [token for token in range(size + 40) if mask.allows(words, token)] == np.flatnonzero(bits).tolist()
    for token in (0, size - 1):
        alone = np.zeros(-(-size // 32), np.uint32)
        alone[token // 32] = 1 << token % 32
        assert mask.only(alone) == token


# -- limits -----------------------------------------------------------------------------------------------------------

BOMBS = {
    "nested counts": Structure("regex", "((x{50}){50}){50}"),
    "nested counts in a schema": Structure.schema({"type": "string", "pattern": "((x{50}){50}){50}"}),
    "counts behind names": Structure("lark", "start: A{50}\nA: B{50}\nB: /x{50}/"),
    "counts behind names in gbnf": Structure("gbnf", 'root ::= a{50}\na ::= b{50}\nb ::= "x"{50}'),
    "too deep": Structure("schema", '{"items":' * 100 + "true" + "}" * 100),
    "far too deep": Structure("schema", "[" * 100_000),
    "too many parts": Structure.schema({"enum": list(range(30_000))}),
    "too long": Structure("schema", '"' + "x" * 300_000 + '"'),
    "a long regular expression": Structure("regex", "x" * 5000),
    "nothing can be written": Structure.schema({"$ref": "#"}),
    "types that exclude each other": Structure.schema({"allOf": [{"type": "string"}, {"type": "object"}]}),
    "not supported": Structure.schema({"not": {}}),
    "no JSON": Structure("schema", "{nope"),
    "no schema": Structure("schema", "3"),
    "false": Structure.schema(False),
    "a reference to the network": Structure.schema({"$ref": "http://localhost:1/x"}),
    "no regular expression": Structure("regex", "(("),
    "no grammar": Structure("lark", "start: nothing"),
    "nothing that a grammar says": Structure("lark", ","),
    "nothing that gbnf says": Structure("gbnf", ","),
    "no gbnf": Structure("gbnf", 'root ::= ("a" |'),
    "no choice": Structure("choice", "3"),
    "no token": Structure("json", after=(SIZE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_cannot_be_followed_is_refused_soon_and_with_one_line(name: str) -> None:
    with pytest.raises(InvalidGrammar) as refused:
        grammars().processors(BOMBS[name])
    assert "\n" not in refused.value.message
    assert len(refused.value.message) <= 400


@pytest.mark.parametrize(
    ("structure", "reason"),
    [
        (Structure("regex", "(("), "the regex cannot be followed: unclosed group"),
        (Structure.schema({"type": "string", "pattern": "(("}), "the schema cannot be followed: unclosed group"),
        (Structure.schema({"type": "strin"}), "the schema cannot be followed: Invalid type: strin"),
        (Structure("lark", "start: nothing"), 'the lark cannot be followed: at 1(8): unknown name: "nothing"'),
    ],
)
def test_what_is_wrong_with_a_grammar_is_said(structure: Structure, reason: str) -> None:
    with pytest.raises(InvalidGrammar) as refused:
        grammars().processors(structure)
    assert refused.value.message == reason


def test_of_several_tokens_that_end_a_text_one_comes_where_nothing_else_can() -> None:
    """Where the text may go on, or end, all of them may come: how likely the end is, is the model's to say."""
    ends = frozenset({EOS, MARK})
    make = partial(matching_tokenizer, tokenizer(), SIZE, ends)
    for end, expected in ((None, EOS), (MARK, MARK), (A, EOS)):  # one that ends no text is not taken
        made = Grammars(Tokens(make, SIZE, ends, end))
        place = Grammar.begin(made.compiled(Structure("regex", "ab(ab)?")))
        open_, closed = place.after((AB,)), place.after((AB, AB))
        assert [token for token in range(SIZE) if open_.allows(token)] == [A, AB, EOS, MARK]
        assert [token for token in range(SIZE) if closed.allows(token)] == [expected]
        assert closed.forced() == expected
        assert closed.complete
        again = pickle.loads(pickle.dumps(closed))
        assert again.forced() == expected


def test_compiled_grammars_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars_module, "KEPT", 2)
    kept = tiny_words.new_grammars()
    first = kept.compiled(Structure("regex", "a"))
    assert kept.compiled(Structure("regex", "a", after=(MARK,))) is first, "what surrounds it is another matter"
    kept.compiled(Structure("regex", "b"))
    assert kept.compiled(Structure("regex", "a")) is first
    kept.compiled(Structure("regex", "c"))
    assert kept.compiled(Structure("regex", "a")) is first
    assert len(kept._compiled) == 2
