"""The bookkeeping of slots that keep texts, against a plain model of it: no attention is computed here."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headstart.model.cache import KVCache, LayerShape
from headstart.model.prefixes import SHORTEST, common_prefix

SLOTS, CAPACITY = 3, 40


def test_a_common_prefix_is_found_within_blocks_and_across_them() -> None:
    text = tuple(range(1000))
    for at in (0, 1, 255, 256, 257, 511, 512, 999):
        assert common_prefix(text, (*text[:at], -1, *text[at + 1 :])) == at
    assert common_prefix(text, text[:300]) == common_prefix(text[:300], text) == 300
    assert common_prefix((), text) == 0


class Texts(RuleBasedStateMachine):
    """Each token's key says what the text up to it is, so a row that is in the wrong place is seen."""

    def __init__(self) -> None:
        super().__init__()
        shape = LayerShape(heads=1, key_dim=1, value_dim=1)
        self.cache = KVCache(
            {0: shape}, slots=SLOTS, capacity=CAPACITY, dtype=torch.float64, device=torch.device("cpu")
        )
        self.running: dict[int, tuple[list[int], str]] = {}

    def _rows(self, tokens: Sequence[int], salt: str) -> torch.Tensor:
        return torch.tensor(
            [float(hash((salt, tuple(tokens[: i + 1]))) % 10**9) for i in range(len(tokens))], dtype=torch.float64
        )

    @precondition(lambda self: self.cache.free_slots)
    @rule(
        shared=st.integers(0, 30),
        own=st.lists(st.integers(0, 1), min_size=1, max_size=8),
        salt=st.sampled_from(["", "a"]),
    )
    def acquire(self, shared: int, own: list[int], salt: str) -> None:
        tokens = [7] * shared + own
        slot = self.cache.acquire(tokens, salt)
        assert slot not in self.running
        length = self.cache.lengths[slot]
        assert length == 0 or length >= SHORTEST
        assert length <= len(tokens)
        self.running[slot] = (tokens, salt)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.integers(1, 20))
    def read(self, data: st.DataObject, count: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.running)))
        tokens, salt = self.running[slot]
        begin = self.cache.lengths[slot]
        end = min(begin + count, len(tokens))
        rows = self._rows(tokens, salt)[begin:end].reshape(1, -1, 1)
        self.cache.write(0, slot, begin, rows, rows)
        self.cache.keep(slot, end - begin)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), new=st.lists(st.integers(0, 1), max_size=3))
    def write(self, data: st.DataObject, new: list[int]) -> None:
        tokens, _ = self.running[data.draw(st.sampled_from(sorted(self.running)))]
        tokens += new[: CAPACITY - len(tokens)]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), length=st.integers(0, CAPACITY))
    def rewind(self, data: st.DataObject, length: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.running)))
        self.cache.rewind(slot, min(length, self.cache.lengths[slot]))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), keeps=st.booleans(), cut=st.integers(0, 3))
    def release(self, data: st.DataObject, keeps: bool, cut: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.running)))
        tokens, salt = self.running.pop(slot)
        self.cache.release(slot, tokens[: len(tokens) - cut] if keeps else (), salt)

    @invariant()
    def rows_are_those_of_the_texts(self) -> None:
        self.cache.check()
        for slot in range(SLOTS):
            text, salt = self.running.get(slot) or (self.cache._texts[slot].tokens, self.cache._texts[slot].salt)
            length = self.cache.lengths[slot]
            for store in (self.cache.keys[0], self.cache.values[0]):
                assert store[slot, 0, :length, 0].tolist() == self._rows(text, str(salt)).tolist()[:length]


TestTexts = Texts.TestCase
TestTexts.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
