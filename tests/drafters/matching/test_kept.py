"""The next turn of a conversation goes on with what was indexed in the last one, and drafts what it would have."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from headstart.drafters import Drafter, Observation, Row
from headstart.drafters.matching.kept import LEAST, KeptMemories
from headstart.drafters.ngram import NgramDrafter
from headstart.drafters.suffix import SuffixDrafter
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step

DRAFTERS = pytest.mark.parametrize("make", [NgramDrafter, SuffixDrafter])
DRAWN = random.Random(7)
TEXT = tuple(DRAWN.randrange(5) for _ in range(2 * LEAST))


def drafts(drafter: Drafter, tokens: Sequence[int], request: int, salt: str = "") -> list[tuple[int, ...]]:
    """The drafts of one request whose text gains nine tokens, one at a time; then it ends."""
    state = SamplingState(Sampling(cache_salt=salt), (), 100, frozenset())
    found = []
    for end in range(len(tokens) - 9, len(tokens) + 1):
        (draft,) = drafter.propose([Row(request, tuple(tokens[:end]), state, Noise(0), budget=Budget(8))])
        found.append(draft.tokens)
    drafter.release(request)
    return found


@DRAFTERS
def test_drafts_are_those_of_a_drafter_that_reads_all_of_it(make: Callable[[], Drafter]) -> None:
    drafter = make()
    for turn, end in enumerate((LEAST + 20, LEAST + 90, LEAST + 99, 2 * LEAST)):
        assert drafts(drafter, TEXT[:end], turn) == drafts(make(), TEXT[:end], 0)
    other = TEXT[:-40] + tuple(4 - token for token in TEXT[-40:])
    assert drafts(drafter, other, 9) == drafts(make(), other, 0), "another end: nothing of the old one comes"


@DRAFTERS
def test_a_long_text_is_indexed_in_slices(make: Callable[[], Drafter], monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is read, or where the cache held it, in the steps that follow: 2,039 tokens, 300 at a time."""
    whole = drafts(make(), TEXT, 0)
    for module in ("suffix", "matching.ngram_index"):
        monkeypatch.setattr(f"headstart.drafters.{module}.SLICE", 300)
    late = drafts(make(), TEXT, 0)
    assert late[:6] != whole[:6]
    assert late[7:] == whole[7:]
    reading = make()
    prompt = TEXT[:-9]
    row = Row(0, prompt, SamplingState(Sampling(), (), 100, frozenset()), Noise(0))
    for start in range(0, len(prompt), 256):
        new = prompt[start : start + 256]
        step = Step(0, 0, 0, Draft(), (), (), None, len(new), 1, Seconds(), None, Speculation(True, ""))
        reading.observe(Observation(step, new, start, row=row))
    assert drafts(reading, TEXT, 0) == whole


def test_only_the_same_salt_and_the_same_beginning_take_it() -> None:
    kept: KeptMemories[str] = KeptMemories(4 * LEAST)
    kept.keep("a", TEXT[:-10], "long")
    kept.keep("a", TEXT[:LEAST], "short")
    kept.keep("a", TEXT[: LEAST - 1], "too short")
    assert kept.take("b", TEXT) is None
    assert kept.take("a", (9, *TEXT[1:])) is None
    assert kept.take("a", TEXT[: LEAST - 1]) is None
    assert [kept.take("a", TEXT) for _ in range(3)] == ["long", "short", None]


def test_the_oldest_go_first() -> None:
    kept: KeptMemories[int] = KeptMemories(3 * LEAST)
    for number in range(5):
        kept.keep("", (number, *TEXT[1:LEAST]), number)
    kept.keep("", TEXT * 2, 9)
    assert [kept.take("", (number, *TEXT[1:])) for number in range(5)] == [None, None, 2, 3, 4]
    assert kept.take("", TEXT * 2) is None, "longer than all that may be kept"


@DRAFTERS
def test_the_text_is_not_indexed_again(make: Callable[[], Drafter], monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = KeptMemories.take

    def noting(self: KeptMemories[object], salt: str, tokens: tuple[int, ...]) -> object:
        taken.append(take(self, salt, tokens) is not None)
        return None

    monkeypatch.setattr(KeptMemories, "take", noting)
    drafter = make()
    for salt, end in (("", 1500), ("", 1600), ("else", 1700), ("", 1700)):
        drafts(drafter, TEXT[:end], end, salt)
    assert taken == [False, True, False, True]
