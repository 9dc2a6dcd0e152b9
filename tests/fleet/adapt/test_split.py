"""What is judged was never learned from: conversations stay whole, repeats and near copies go."""

from __future__ import annotations

import random

import pytest

from headstart.base.errors import InvalidOption
from headstart.base.traffic import Exchange, Tokens
from headstart.fleet.adapt.split import SHINGLE, Split, require, split

SYSTEM = tuple(range(900, 960))


def prompt(seed: int, length: int = 40) -> Tokens:
    return tuple(random.Random(seed).choices(range(800), k=length))


def asked(count: int, before: Tokens = ()) -> list[Exchange]:
    return [Exchange((*before, *prompt(n)), (n % 800, 1)) for n in range(count)]


def prompts(found: Split) -> tuple[set[Tokens], set[Tokens]]:
    return {one.prompt for one in found.learnt}, {one.exchange.prompt for one in found.held_out}


@pytest.mark.parametrize("before", [(), SYSTEM])
def test_about_the_share_is_held_out_and_nothing_is_on_both_sides(before: Tokens) -> None:
    """A system prompt that all have in common does not make all alike."""
    found = split(asked(400, before), 0.2)
    assert len(found.learnt) + len(found.held_out) == 400
    assert 50 <= len(found.held_out) <= 110
    assert not set.intersection(*prompts(found))
    assert (found.repeats, found.alike) == (0, 0)


def test_the_side_of_a_conversation_stays_as_a_file_grows_and_turns_with_the_salt() -> None:
    first, more = prompts(split(asked(100), 0.3)), prompts(split(asked(300)[::-1], 0.3))
    assert first[0] <= more[0]
    assert first[1] <= more[1]
    assert prompts(split(asked(100), 0.3, salt="other")) != first


def test_a_conversation_goes_to_one_side() -> None:
    turns = []
    for begin in asked(60, SYSTEM):
        text = begin.prompt
        for turn in range(4):
            turns.append(Exchange(text, prompt(1000 + turn)))
            text = (*text, *turns[-1].output, *prompt(2000 + turn, 5))
    random.Random(0).shuffle(turns)
    found = split(turns, 0.4)
    names = {}
    for one in found.held_out:
        names.setdefault(one.conversation, []).append(one.exchange.prompt)
    assert all(len(each) == 4 for each in names.values())
    assert len(found.learnt) == 4 * (60 - len(names))
    assert 10 <= len(names) <= 40


def test_repeats_are_removed_and_a_prompt_is_judged_on_once() -> None:
    several = asked(50)
    found = split([*several, *several, *(Exchange(one.prompt, (7, 7)) for one in several)], 0.5)
    assert len(found.held_out) == len(prompts(found)[1])
    assert all(one.exchange.output == (7, 7) for one in found.held_out), "the newest answer"
    assert len(found.learnt) == 2 * len(prompts(found)[0]), "two answers to one prompt are two texts"
    assert found.repeats == 50 + len(found.held_out)


def test_near_copies_of_what_is_held_out_are_not_learned_from() -> None:
    several = asked(100)
    changed = [Exchange((*one.prompt[:-1], 801), (5,)) for one in several]
    found = split([*several, *changed], 0.3)
    runs = {one.exchange.prompt[i : i + SHINGLE] for one in found.held_out for i in range(40 - SHINGLE + 1)}
    assert found.alike > 20
    for one in found.learnt:
        own = [one.prompt[i : i + SHINGLE] for i in range(40 - SHINGLE + 1)]
        assert sum(run in runs for run in own) < len(own) / 2
    assert len(found.learnt) + len(found.held_out) + found.alike == 200


def test_short_prompts_make_no_conversation_of_everything() -> None:
    found = split([Exchange((1,), (2,)), *asked(100, (1,))], 0.3)
    assert 15 <= len(found.held_out) <= 50


def test_too_little_is_refused() -> None:
    with pytest.raises(InvalidOption, match="too few to judge on"):
        require(split(asked(10), 0.2), 20)
    with pytest.raises(InvalidOption, match="nothing is left"):
        require(Split((), split(asked(100), 0.5).held_out, 0, 0), 20)
    assert split([], 0.2) == Split((), (), 0, 0)
    with pytest.raises(InvalidOption):
        split([], 0.0)
