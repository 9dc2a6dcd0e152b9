"""The suffix trie against direct counting, drafts against the definition, and the store of past outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.base.errors import DamagedStore, InvalidOption
from headstart.drafters import Observation, Row
from headstart.drafters.matching.suffix_store import SuffixStore
from headstart.drafters.matching.suffix_trie import ROOT, SuffixTrie, Text
from headstart.drafters.suffix import SuffixDrafter
from headstart.rule.distribution import SamplingState
from headstart.rule.noise import Noise
from headstart.types import Budget, Draft, Sampling, Seconds, Speculation, Step

texts_ = st.lists(st.lists(st.integers(0, 3), max_size=25), min_size=1, max_size=5)


def context(tokens: Sequence[int], budget: int, request: int = 0, salt: str = "") -> Row:
    distribution = SamplingState(Sampling(cache_salt=salt), (), 100, frozenset())
    return Row(request, tuple(tokens), distribution, Noise(0), budget=Budget(budget))


def step(request: int, tokens: Sequence[int]) -> Observation:
    made = Step(request, 0, 0, Draft(), (), tuple(tokens), None, 1, 1, Seconds(), None, Speculation(True, "suffix"))
    return Observation(made)


def filled(texts: Sequence[Sequence[int]], depth: int) -> tuple[SuffixTrie, list[Text]]:
    trie, held = SuffixTrie(depth), []
    for tokens in texts:
        text = Text()
        trie.extend(text, tokens)
        held.append(text)
    return trie, held


def followers(texts: Sequence[Sequence[int]], pattern: Sequence[int]) -> Counter[int]:
    """What comes after each occurrence, by searching."""
    found: Counter[int] = Counter()
    n = len(pattern)
    for text in texts:
        for i in range(len(text) - n):
            if list(text[i : i + n]) == list(pattern):
                found[text[i + n]] += 1
    return found


def check(trie: SuffixTrie, texts: Sequence[Sequence[int]], depth: int) -> None:
    """Every string of fewer than `depth` tokens leads to the shares that searching gives."""
    patterns = {tuple(text[i : i + n]) for text in texts for i in range(len(text)) for n in range(1, depth)}
    for pattern in patterns | {(0, 0, 0), (3, 2)}:
        if not 0 < len(pattern) < depth:
            continue
        expected = followers(texts, pattern)
        place = trie.find(pattern)
        got = {} if place is None else {one.token: one.share for one in trie.after(place)}
        total = sum(expected.values())
        assert got == pytest.approx({token: count / total for token, count in expected.items()}), pattern


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts=texts_, depth=st.integers(2, 6))
def test_shares_are_those_of_a_direct_count(texts: list[list[int]], depth: int) -> None:
    trie, held = filled(texts, depth)
    check(trie, texts, depth)
    for length, node in enumerate(held[0].ends[1:], start=1):
        pattern = texts[0][len(texts[0]) - length :]
        assert trie.find(pattern) is not None
        assert node != ROOT


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts=texts_, depth=st.integers(2, 6), gone=st.integers(1, 5))
def test_taking_texts_out_leaves_what_was_never_in(texts: list[list[int]], depth: int, gone: int) -> None:
    trie, held = filled(texts, depth)
    for text in held[:gone]:
        trie.remove(text)
    rest = texts[gone:]
    check(trie, rest, depth)
    if not rest:
        assert trie.nodes == 1, "nodes that nobody needs"
    text = Text()
    trie.extend(text, [0, 1, 0, 1, 2])  # freed nodes are used again
    check(trie, [*rest, [0, 1, 0, 1, 2]], depth)


def test_a_token_costs_at_most_one_visit_for_each_depth() -> None:
    trie, text = SuffixTrie(depth=8), Text()
    for _ in range(500):
        trie.append(text, 1)
        assert len(text.ends) <= 8
    assert trie.nodes <= 9


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tokens=st.lists(st.integers(0, 3), min_size=1, max_size=40), budget=st.integers(1, 9))
def test_a_draft_follows_what_stands_in_the_text(tokens: list[int], budget: int) -> None:
    (draft,) = SuffixDrafter().propose([context(tokens, budget)])
    assert len(draft) <= budget
    assert draft.q is None
    assert draft.is_chain
    if tokens[-1] in tokens[:-1]:
        assert len(draft) > 0
        ways = followers([tokens], tokens[-1:])
        assert all(draft.tokens[node] in ways for node in draft.children[0])
    else:
        assert len(draft) == 0
    for below in draft.children:
        assert len({draft.tokens[node] for node in below}) == len(below), "two children with one token"


def test_the_likeliest_continuation_of_the_longest_match_wins() -> None:
    # after (7, 8): 1 once, after (8): 2 twice; two tokens of match are worth more
    tokens = [7, 8, 1, 5, 8, 2, 6, 8, 2, 4, 7, 8]
    (draft,) = SuffixDrafter().propose([context(tokens, 3)])
    assert draft.tokens[0] == 1
    (draft,) = SuffixDrafter().propose([context([8, 1, 5, 8, 2, 6, 8, 2, 4, 8], 1)])
    assert draft.tokens == (2,)


def test_a_loop_is_followed_round_and_round() -> None:
    (draft,) = SuffixDrafter().propose([context([1, 2, 3] * 4, 12)])
    assert draft.tokens == (1, 2, 3) * 4


def test_past_outputs_are_found_by_requests_of_their_salt_alone() -> None:
    drafter = SuffixDrafter(store=SuffixStore())
    drafter.propose([context([1], 4, request=0, salt="a")])
    drafter.observe(step(0, [5, 6]))
    drafter.observe(step(0, [7, 8]))
    drafter.release(0)
    same, other = drafter.propose([context([2, 5, 6], 4, 1, "a"), context([2, 5, 6], 4, 2, "b")])
    assert same.tokens == (7, 8)
    assert other.tokens == ()


def test_without_a_store_nothing_is_remembered() -> None:
    drafter = SuffixDrafter()
    drafter.propose([context([1], 4)])
    drafter.observe(step(0, [5, 6, 7]))
    drafter.release(0)
    drafter.release(99)
    (draft,) = drafter.propose([context([2, 5, 6], 4, request=1)])
    assert draft.tokens == ()


def test_the_store_lets_the_oldest_go() -> None:
    store = SuffixStore(limit=6)
    for text in ([1, 2, 3], [4, 5], [6, 7]):
        store.add(text)
    assert len(store) == 4
    trie = store.trie()
    assert trie is not None
    assert trie.find([1]) is None
    assert trie.find([6]) is not None
    store.add([8, 9, 10, 11, 12, 13, 14])
    assert len(store) == 6, "a text longer than the store keeps its end"
    store.add([1], salt="other")
    assert store.trie("") is None, "a salt without texts holds nothing"


@settings(max_examples=25, deadline=None, derandomize=True)
@given(texts=texts_)
def test_a_saved_store_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]]) -> None:
    path = tmp_path_factory.mktemp("store") / "past.safetensors"
    store = SuffixStore()
    for number, text in enumerate(texts):
        store.add(text, salt=str(number % 2))
    store.save(path)
    again = SuffixStore.load(path, vocab_size=4)
    assert len(again) == len(store)
    for salt in ("0", "1"):
        trie = again.trie(salt)
        mine = [text for number, text in enumerate(texts) if str(number % 2) == salt]
        if trie is not None:
            check(trie, mine, 5)
    assert list(path.parent.iterdir()) == [path]


def test_damaged_stores_are_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "past.safetensors"
    store = SuffixStore()
    store.add([1, 2, 300])
    store.save(path)
    with pytest.raises(DamagedStore, match="another model"):
        SuffixStore.load(path, vocab_size=100)
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"no store at all", whole.replace(b"store 1", b"store 9")):
        path.write_bytes(broken)
        with pytest.raises(DamagedStore) as error:
            SuffixStore.load(path)
        assert "delete it" in error.value.hint
    with pytest.raises(FileNotFoundError):
        SuffixStore.load(tmp_path / "nowhere")


@pytest.mark.parametrize("options", [{"shortest": 0}, {"budget": -1}])
def test_options(options: dict[str, int]) -> None:
    with pytest.raises(InvalidOption):
        SuffixDrafter(**options)  # type: ignore[arg-type]
