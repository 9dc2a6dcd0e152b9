"""States that can be rolled back: whatever is drafted, kept, forgotten or copied, a row's result is that of its path.

Two fuzzes. One has layers of whole numbers, whose states are exact, and everything that a cache may be asked for; what
is expected comes from the path alone. The other has tiny models of all three kinds, and transformers' own logits. Then
faults that other engines have had are planted, and the first fuzz has to find each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as tf
from transformers import AutoModelForCausalLM

from headstart.base.errors import InvalidBatch
from headstart.model import states as states_module
from headstart.model.cache import KVCache, LayerShape
from headstart.model.cut_points import CutPoints
from headstart.model.loading import adopt
from headstart.model.packed import Packed, Segment
from headstart.model.planes import LOG, Planes, Saved, StateShape
from headstart.model.runner import ModelRunner
from headstart.model.states import FOLD, LAST, MOST_DRAFTED, States
from headstart.model.walks import Walk
from headstart.types import Draft

TAPS = 3
RECURRENT = (0, 2, 3)
"""Layers of five: after the last of them comes one that keeps no state."""
LAYERS = 5
VOCAB = 11
CAPACITY = 400
SLOTS = 3

Kept = tuple[tuple[int, tuple[int, ...]], ...]
"""Of each recurrent layer: its state, and the last inputs of its convolution."""
EMPTY: Kept = ((0, (0,) * (TAPS - 1)),) * len(RECURRENT)


# -- layers of whole numbers ------------------------------------------------------------------------------------------


def applied(state: int, window: Sequence[int], gate: int) -> int:
    mixed = sum((2 * i + 3) * u for i, u in enumerate(window)) + gate
    return (31 * state + mixed) % 65521


def gate_of(u: int) -> int:
    return u * u % 101


def output(state: int, u: int) -> int:
    return (state + 13 * u) % 997


def after(kept: Kept, token: int) -> tuple[Kept, list[int]]:
    """What is kept after one more token, and the outputs of all recurrent layers at it."""
    u, found, outputs = token + 1, [], []
    for state, window in kept:
        state = applied(state, (*window, u), gate_of(u))
        found.append((state, (*window[1:], u)))
        u = output(state, u)
        outputs.append(u)
    return tuple(found), outputs


class Failed(Exception):
    """Of a forward, in the middle of its layers."""


def run(
    segments: Sequence[Segment], cache: KVCache, layers: int | None = None, fails_in: int | None = None
) -> list[int]:
    """The outputs of the last recurrent layer that runs, of all rows."""
    packed = Packed(segments, cache, torch.float32, torch.device("cpu"))
    states = cache.states
    assert states is not None
    walks = states.walks(packed, layers)
    inputs = [token + 1 for token in packed.token_ids]
    for layer in range(LAYERS if layers is None else layers):
        if layer == fails_in:
            raise Failed
        if layer in RECURRENT:
            inputs = [u for walk in walks for u in _walked(walk, inputs, states, layer)]
    states.written(walks, layers)
    return inputs


def _walked(walk: Walk, inputs: Sequence[int], states: States, layer: int) -> list[int]:
    """What a decoder does with a walk."""
    log, planes, kept = states.log[layer][walk.slot], states.planes[layer], states.kept[layer]
    rows = inputs[slice(*walk.rows)]
    logged = [[int(number) for number in log[place]] for place in walk.logged]
    before = [0] * (TAPS - 1) if walk.source is None else [int(u) for u in kept[walk.source, walk.slot, :, 0]]
    pool = [*rows, *(u for u, _ in logged), *before]
    gates = [*map(gate_of, rows), *(gate for _, gate in logged)]
    by_depth = {0: 0 if walk.source is None else int(planes[walk.source, walk.slot, 0])}
    outputs = {}
    points = {store.visits: store for store in walk.stores}
    assert len(points) == len(walk.stores)
    made = []
    for number, depth in enumerate(walk.depths, 1):
        numbers = walk.inputs[(number - 1) * TAPS : number * TAPS]
        window, own = [pool[i] for i in numbers], numbers[-1]
        state = applied(by_depth[max(0, depth - 1)], window, gates[own])
        by_depth[depth] = state
        outputs[own] = output(state, pool[own])
        if number in points:
            made.append((points[number], state))
    for store, state in made:
        planes[store.plane, walk.slot, 0] = state
        kept[store.plane, walk.slot, :, 0] = torch.tensor([float(pool[i]) for i in store.before])
    for row, place in zip(walk.written, walk.places, strict=True):
        log[place] = torch.tensor([float(pool[row]), float(gates[row])])
    return [outputs[row] for row in range(walk.fed)]


class Text:
    """A slot's text, and what is expected to be kept after each of its tokens."""

    def __init__(self, salt: int, promised: Sequence[int] = ()) -> None:
        """promised: the tokens that the slot was taken for, which are what is read first."""
        self.salt = salt
        self.promised = promised
        self.tokens: list[int] = []
        self.kept = [EMPTY]

    def append(self, token: int) -> list[int]:
        kept, outputs = after(self.kept[-1], token)
        self.tokens.append(token)
        self.kept.append(kept)
        return outputs

    def cut(self, length: int) -> None:
        del self.tokens[length:], self.kept[length + 1 :]


class Fuzz:
    """One cache and what is done with it. Every forward's outputs are compared with those of the paths alone."""

    def __init__(self, seed: int, *, whole: int | None = None) -> None:
        """whole: layers that all forwards run, as those of a cache for first layers alone do."""
        self.rng = random.Random(seed)
        self.whole = whole
        shape = StateShape(channels=1, taps=TAPS, gates=1, numbers=1)
        self.cache = KVCache(
            {1: LayerShape(1, 4, 4)}, slots=SLOTS, capacity=CAPACITY, dtype=torch.float32, device=torch.device("cpu"),
            states=dict.fromkeys(RECURRENT, shape),
        )  # fmt: skip
        self.cache.keeps_texts = True
        self.texts: dict[int, Text] = {}
        self.ended: list[Text] = []
        self.done: dict[str, int] = {}

    @property
    def states(self) -> States:
        assert self.cache.states is not None
        return self.cache.states

    def go(self, steps: int) -> None:
        doings: list[tuple[Callable[[], None], int]] = [
            (self.begin, 8), (self.forward, 20), (self.rewind, 5), (self.end, 5), (self.grow, 4), (self.chain, 4),
            (self.step_on, 8), (self.converse, 2),
        ]  # fmt: skip
        weights = [weight for _, weight in doings]
        for _ in range(steps):
            (doing,) = self.rng.choices([each for each, _ in doings], weights)
            doing()
            self.done[doing.__name__] = self.done.get(doing.__name__, 0) + 1
            self.audit()

    def audit(self) -> None:
        """Planes and checkpoints that are said to be of so many tokens are."""
        self.cache.check()
        for slot, text in self.texts.items():
            assert self.cache.lengths[slot] == len(text.tokens)
            known = self.states._slots[slot]
            for plane, tag in enumerate(known.tags):
                if tag is not None and tag <= len(text.tokens):
                    written = RECURRENT[: sum(layer < known.depths[plane] for layer in RECURRENT)]
                    for layer, (state, window) in zip(written, text.kept[tag], strict=False):
                        assert int(self.states.planes[layer][plane, slot, 0]) == state
                        assert self.states.kept[layer][plane, slot, :, 0].tolist() == list(window)

    # -- what is done -------------------------------------------------------------------------------------------------

    def token(self) -> int:
        return self.rng.randrange(VOCAB)

    def next_tokens(self, slot: int, count: int) -> tuple[int, ...]:
        text = self.texts[slot]
        promised = text.promised[len(text.tokens) :][:count]
        return (*promised, *(self.token() for _ in range(count - len(promised))))

    def some(self) -> int | None:
        return self.rng.choice(list(self.texts)) if self.texts else None

    def begin(self) -> None:
        """A request whose text begins like one that is or was there."""
        if not self.cache.free_slots:
            return
        known = [*self.texts.values(), *self.ended[-4:]]
        like = self.rng.choice(known) if known and self.rng.random() < 0.8 else Text(self.rng.randrange(2))
        common = self.rng.randrange(len(like.tokens) // 2, len(like.tokens) + 1)
        wanted = [*like.tokens[:common], *(self.token() for _ in range(self.rng.choice([1, 20, 50, 100])))][:CAPACITY]
        slot = self.cache.acquire(wanted, like.salt)
        text = self.texts[slot] = Text(like.salt, wanted)
        for token in wanted[: self.cache.lengths[slot]]:
            text.append(token)
        if self.cache.lengths[slot] == len(wanted):
            text.cut(self.cache.rewind(slot, len(wanted) - 1))
        self.done["copied"] = self.done.get("copied", 0) + (self.cache.lengths[slot] > 0)

    def end(self) -> None:
        slot = self.some()
        if slot is None:
            return
        text = self.texts.pop(slot)
        kept = text.tokens[: self.rng.choice([len(text.tokens), max(0, len(text.tokens) - self.rng.randrange(9))])]
        self.cache.release(slot, kept if self.rng.random() < 0.9 else (), text.salt)
        self.ended.append(text)

    def rewind(self) -> None:
        slot = self.some()
        if slot is None or not self.texts[slot].tokens:
            return
        held = len(self.texts[slot].tokens)
        back = self.rng.choice([1, self.rng.randrange(20), self.rng.randrange(held + 1)])
        wanted = max(0, held - back)
        reached = self.cache.rewind(slot, wanted)
        assert reached <= wanted
        self.texts[slot].cut(reached)
        self.states.check(slot, reached)

    def drafted(self, room: int) -> Draft:
        count = min(room, self.rng.choice([0, 0, 1, 3, 8, 20, MOST_DRAFTED]))
        chain = self.rng.random() < 0.5
        parents = [i - 1 if chain else self.rng.randrange(-1, i) for i in range(count)]
        return Draft(tuple(self.token() for _ in range(count)), tuple(parents))

    def forward(self) -> None:
        """Some slots read tokens and a draft; then it is kept, forgotten, or it has failed."""
        slots = [slot for slot in self.texts if self.rng.random() < 0.7]
        segments = []
        for slot in slots:
            left = CAPACITY - len(self.texts[slot].tokens)
            causal = min(left, self.rng.choice([1, 1, 1, 1, 2, 5, 9, 20, self.rng.randrange(1, 101)]))
            if causal:
                draft = self.drafted(left - causal)
                segments.append(Segment(slot, self.next_tokens(slot, causal), draft))
        if not segments:
            return
        if self.rng.random() < 0.1:
            try:
                run(segments, self.cache, self.whole, fails_in=self.rng.randrange(self.whole or LAYERS))
            except Failed:
                for segment in segments:  # as the engine does before the next step
                    self.texts[segment.slot].cut(self.cache.rewind(segment.slot, self.cache.lengths[segment.slot]))
            return
        self.compare(segments, run(segments, self.cache, self.whole), keeps=self.rng.random() < 0.8)

    def compare(self, segments: Sequence[Segment], rows: Sequence[int], *, keeps: bool) -> None:
        which = len([layer for layer in RECURRENT if layer < (self.whole or LAYERS)]) - 1
        found = iter(rows)
        for segment in segments:
            kept = self.texts[segment.slot].kept[-1]
            for token in segment.causal:
                kept, outputs = after(kept, token)
                assert next(found) == outputs[which]
            nodes: list[Kept] = []
            for token, parent in zip(segment.draft.tokens, segment.draft.parents, strict=True):
                node, outputs = after(kept if parent < 0 else nodes[parent], token)
                nodes.append(node)
                if len(nodes) > segment.held:
                    assert next(found) == outputs[which]
        assert next(found, None) is None
        for segment in segments if keeps else ():
            self.keep(segment)

    def keep(self, segment: Segment) -> None:
        """What is kept of the draft is what was promised, if anything was."""
        text, path = self.texts[segment.slot], list(segment.draft.path(self.rng.randrange(-1, len(segment.draft))))
        for i, token in enumerate(text.promised[len(text.tokens) + len(segment.causal) :][: len(path)]):
            if segment.draft.tokens[path[i]] != token:
                del path[i:]
                break
        self.cache.keep(segment.slot, len(segment.causal), path)
        for token in (*segment.causal, *(segment.draft.tokens[node] for node in path)):
            self.texts[segment.slot].append(token)

    def step_on(self) -> None:
        """Plain steps, one token each, so that many rows wait and the log is full."""
        slot = self.some()
        for _ in range(self.rng.choice([3, 20]) if slot is not None else 0):
            if slot is not None and len(self.texts[slot].tokens) < CAPACITY:
                segment = Segment(slot, self.next_tokens(slot, 1))
                self.compare([segment], run([segment], self.cache, self.whole), keeps=True)

    def converse(self) -> None:
        """Two turns of which the second begins like the first but for the last tokens before the answer."""
        slot = self.some()
        if slot is None or len(self.texts[slot].tokens) > 200:
            return
        text = self.texts[slot]
        turn = Segment(slot, self.next_tokens(slot, self.rng.choice([FOLD, 20, 50])))
        self.compare([turn], run([turn], self.cache, self.whole), keeps=True)
        end = len(text.tokens)
        for _ in range(LOG + 20):
            segment = Segment(slot, self.next_tokens(slot, 1))
            self.compare([segment], run([segment], self.cache, self.whole), keeps=True)
        before = end - self.rng.randrange(1, 6)
        reached = self.cache.rewind(slot, before)
        text.cut(reached)
        assert reached >= before - LAST - FOLD, "a checkpoint lies near the end of what was read"

    def grow(self) -> None:
        """A draft model's tree, whose nodes are held from level to level; then a path of it becomes text."""
        slot = self.some()
        if slot is None or not self.texts[slot].tokens:
            return
        room = min(MOST_DRAFTED, CAPACITY - len(self.texts[slot].tokens))
        draft, held = Draft(), 0
        for _ in range(4):
            fresh = min(self.rng.randrange(1, 9), room - held)
            if fresh <= 0:
                break
            parents = [*draft.parents, *(self.rng.randrange(-1, held) if held else -1 for _ in range(fresh))]
            draft = Draft((*draft.tokens, *(self.token() for _ in range(fresh))), tuple(parents))
            segment = Segment(slot, (), draft, judged=fresh, held=held)
            self.compare([segment], run([segment], self.cache, self.whole), keeps=False)
            held = len(draft)
        if self.rng.random() < 0.7 and held:
            self.keep(Segment(slot, (), draft, held=held))

    def chain(self) -> None:
        """A chain that is kept step by step and then taken back: of the first layers on the target's own cache, or of
        a draft model on its own."""
        slot = self.some()
        if slot is None or not self.texts[slot].tokens:
            return
        layers = None if self.whole is None and self.rng.random() < 0.5 else self.whole or self.rng.randrange(1, 4)
        begin = len(self.texts[slot].tokens)
        whole = layers == self.whole
        room = CAPACITY - begin if whole else self.cache.scratch_room(slot)
        for _ in range(min(room, self.rng.choice([3, 8, 12, 30]))):
            segment = Segment(slot, self.next_tokens(slot, 1))
            if whole:
                self.compare([segment], run([segment], self.cache, layers), keeps=False)
            else:
                run([segment], self.cache, layers)
            self.keep(segment)
        reached = self.cache.rewind(slot, begin)
        assert whole or reached == begin, "what first layers draft can always be taken back"
        self.texts[slot].cut(reached)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_whatever_happens_a_row_is_that_of_its_path(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.go(300)
    assert min(fuzz.done.values()) >= 1, fuzz.done


def test_a_cache_of_first_layers_alone() -> None:
    """Its states are whole, though layers above have none."""
    fuzz = Fuzz(0, whole=3)
    fuzz.go(200)


def test_a_chain_that_is_taken_back_leaves_the_text_where_it_was() -> None:
    """But for the first time, when nothing is known of the caller's habits."""
    fuzz = Fuzz(0)
    fuzz.begin()
    (slot,) = fuzz.texts
    turn = Segment(slot, fuzz.next_tokens(slot, 90))
    fuzz.compare([turn], run([turn], fuzz.cache), keeps=True)
    losses = 0
    for _ in range(40):
        begin = fuzz.cache.lengths[slot]
        for _ in range(20):
            run([Segment(slot, fuzz.next_tokens(slot, 1))], fuzz.cache)
            fuzz.cache.keep(slot, 1)
        losses += fuzz.cache.rewind(slot, begin) < begin
        fuzz.texts[slot].cut(fuzz.cache.lengths[slot])
        step = Segment(slot, fuzz.next_tokens(slot, 1))
        fuzz.compare([step], run([step], fuzz.cache), keeps=True)
    assert losses <= 1


def test_a_draft_that_the_log_cannot_hold_is_refused_and_changes_nothing() -> None:
    fuzz = Fuzz(0)
    fuzz.begin()
    (slot,) = fuzz.texts
    fuzz.step_on()
    with pytest.raises(InvalidBatch, match="the log of recurrent states"):
        run([Segment(slot, (1,), Draft.chain([1] * LOG))], fuzz.cache)
    room = fuzz.cache.scratch_room(slot)
    with pytest.raises(InvalidBatch, match="are needed"):
        run([Segment(slot, (1,) * 30, Draft.chain([1] * (room - 29)))], fuzz.cache, 2)
    step = Segment(slot, fuzz.next_tokens(slot, 1))
    fuzz.compare([step], run([step], fuzz.cache), keeps=True)


def test_checkpoints_are_few_and_lie_evenly() -> None:
    fuzz = Fuzz(0)
    fuzz.begin()
    (slot,) = fuzz.texts
    most = fuzz.states._most_saved
    assert most == 8
    while len(fuzz.texts[slot].tokens) + 20 <= CAPACITY:
        piece = Segment(slot, fuzz.next_tokens(slot, 20))
        fuzz.compare([piece], run([piece], fuzz.cache), keeps=True)
    tags = sorted(fuzz.states._slots[slot].saved)
    assert len(tags) == most
    assert tags[-1] >= CAPACITY - 20 - LAST
    assert max(b - a for a, b in zip([0, *tags], tags, strict=False)) <= 3 * CAPACITY / most


# -- planted faults ---------------------------------------------------------------------------------------------------


def _with(monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Any], Any]) -> None:
    monkeypatch.setattr(States, name, make(getattr(States, name)))


def _stale_without_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step without a draft after one that accepted several begins with the state before them (vLLM 39273, 52942)."""

    def make(walk: Any) -> Any:
        def faulty(self: States, segment: Segment, *rest: Any) -> Walk:
            found: Walk = walk(self, segment, *rest)
            waiting = len(found.logged) - segment.held
            if len(segment.draft) == 0 and waiting > 1 and not found.stores:
                skipped = waiting - 1
                return replace(found, inputs=found.inputs[skipped * TAPS :], depths=found.depths[skipped:])
            return found

        return faulty

    _with(monkeypatch, "_walk", make)


def _off_by_the_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plane counts as one token further on than it is (vLLM 33726, SGLang 12892)."""

    def make(walk: Any) -> Any:
        def faulty(self: States, *args: Any) -> Walk:
            found: Walk = walk(self, *args)
            return replace(found, stores=[replace(each, tag=each.tag + 1) for each in found.stores])

        return faulty

    _with(monkeypatch, "_walk", make)


def _whole_text_for_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a whole text is taken for that of its beginning."""
    monkeypatch.setattr(
        CutPoints, "ways", lambda self, length, depth: [(min(t, length), i) for i, t in enumerate(self.tags) if t]
    )


def _unkept_planes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a forward wrote that was never kept is found again, once the text is as long."""
    monkeypatch.setattr(CutPoints, "invalidate", lambda self, length: None)


def _planes_count_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(walks: Any) -> Any:
        def faulty(self: States, packed: Packed, layers: int | None) -> list[Walk]:
            found: list[Walk] = walks(self, packed, layers)
            self.written(found, layers)
            return found

        return faulty

    _with(monkeypatch, "walks", make)


def _paths_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    _with(monkeypatch, "keep", lambda keep: lambda self, number, base, path, saves: keep(
        self, number, base, range(len(path)), saves=saves
    ))  # fmt: skip


def _the_log_is_thought_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(walk: Any) -> Any:
        def faulty(self: States, segment: Segment, *rest: Any) -> Walk:
            before = self._slots[segment.slot].logged_from
            found: Walk = walk(self, segment, *rest)
            self._slots[segment.slot].logged_from = before
            return found

        return faulty

    _with(monkeypatch, "_walk", make)


def _trees_are_walked_as_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(walk: Any) -> Any:
        def faulty(self: States, segment: Segment, *rest: Any) -> Walk:
            found: Walk = walk(self, segment, *rest)
            text = sum(depth == 0 for depth in found.depths)
            return replace(found, depths=[*found.depths[:text], *range(1, len(found.depths) - text + 1)])

        return faulty

    _with(monkeypatch, "_walk", make)


def _siblings_are_in_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolution sums the rows before it, not those of its path."""

    def faulty(
        draft: Draft, nodes: Sequence[int], held: int, last: Sequence[int], inputs: list[int], depths: list[int]
    ) -> None:
        before, mine = [*last, *nodes], list[int]()
        visit(draft, nodes, held, last, mine, depths)
        for own in mine[len(last) :: len(last) + 1]:
            at = nodes.index(own)
            inputs += before[at : at + len(last) + 1]

    visit = states_module.visit_nodes
    monkeypatch.setattr(states_module, "visit_nodes", faulty)


def _few_layers_count_as_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(States, "_depth", lambda self, layers: self._layers)


def _checkpoints_without_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint brings back the state alone, not the convolution's last inputs."""

    def faulty(self: Planes, number: int, saved: Saved) -> None:
        for (planes, _, _), (state, _) in zip(self.groups, saved, strict=True):
            planes[:, 0, number] = state

    monkeypatch.setattr(Planes, "restore", faulty)


def _copies_without_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied prefix has the plane, but not the rows since."""

    def make(copy: Any) -> Any:
        def faulty(self: States, source: int, number: int, length: int) -> None:
            logs = [log[:, number].clone() for _, _, log in self._stored.groups]
            copy(self, source, number, length)
            for (_, _, log), old in zip(self._stored.groups, logs, strict=True):
                log[:, number] = old

        return faulty

    _with(monkeypatch, "copy", make)


def _copies_share_checkpoints_of_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied prefix keeps the checkpoints of the whole text."""

    def make(copy: Any) -> Any:
        def faulty(self: States, source: int, number: int, length: int) -> None:
            copy(self, source, number, length)
            self._slots[number].saved = dict(self._slots[source].saved)

        return faulty

    _with(monkeypatch, "copy", make)
    monkeypatch.setattr(CutPoints, "invalidate", lambda self, length: setattr(
        self, "tags", [None if tag is None or tag > length else tag for tag in self.tags]
    ))  # fmt: skip


def _any_length_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(States, "reach", lambda self, number, length: length)


def _held_nodes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(walk: Any) -> Any:
        def faulty(self: States, segment: Segment, *rest: Any) -> Walk:
            found: Walk = walk(self, segment, *rest)
            if not segment.held:
                return found
            text = sum(depth == 0 for depth in found.depths)
            nodes = [found.inputs[i * TAPS : (i + 1) * TAPS] for i in range(text, len(found.depths))]
            fed = [numbers for numbers in nodes if numbers[-1] < found.fed]
            inputs = [*found.inputs[: text * TAPS], *(number for numbers in fed for number in numbers)]
            return replace(found, inputs=inputs, depths=[*found.depths[:text], *[1] * len(fed)])

        return faulty

    _with(monkeypatch, "_walk", make)


FAULTS = [
    _stale_without_draft, _off_by_the_bonus, _whole_text_for_a_prefix, _unkept_planes_count,
    _planes_count_before_they_are_written, _paths_are_not_gathered, _the_log_is_thought_endless,
    _trees_are_walked_as_chains, _siblings_are_in_the_window, _few_layers_count_as_all, _checkpoints_without_inputs,
    _copies_without_the_log, _copies_share_checkpoints_of_more, _any_length_is_reached, _held_nodes_are_left_out,
]  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__.strip("_"))
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, InvalidBatch, KeyError)):
        _several()


def _several() -> None:
    for seed in range(4):
        Fuzz(seed).go(300)


# -- models -----------------------------------------------------------------------------------------------------------

_SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
MODELS: dict[str, Callable[[], Any]] = {
    "lfm2": lambda: tf.Lfm2Config(
        **_SIZES, num_hidden_layers=3, norm_eps=0.1, layer_types=["conv", "full_attention", "conv"],
        block_multiple_of=16, conv_bias=True, rope_parameters=_ROPE,
    ),
    "qwen3_5": lambda: tf.Qwen3_5TextConfig(
        **_SIZES, num_hidden_layers=3, rms_norm_eps=0.1, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=16,
        linear_num_key_heads=1, linear_num_value_heads=2,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        rope_parameters=_ROPE | {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True},
    ),
    "granitemoehybrid": lambda: tf.GraniteMoeHybridConfig(
        **_SIZES, num_hidden_layers=3, rms_norm_eps=0.1, num_local_experts=0, shared_intermediate_size=32,
        layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_n_heads=4, mamba_d_head=16,
        mamba_d_state=16, mamba_n_groups=2, mamba_expand=2,
    ),
}  # fmt: skip


def model(name: str) -> Any:
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(MODELS[name]()).float().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return made


@pytest.mark.parametrize("name", MODELS)
def test_models_give_transformers_logits_whatever_happens(name: str) -> None:
    """Chains, trees, forwards that are not kept, rewinds, prefixes; every judged row against transformers."""
    reference, runner = model(name), ModelRunner(adopt(model(name)))
    cache = runner.new_cache(2)
    cache.keeps_texts = True
    rng = random.Random(1)

    def expected(tokens: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = reference(torch.tensor([list(tokens)]), use_cache=False).logits[0, -1]
            return found

    slots: dict[int, list[int]] = {cache.acquire(): [] for _ in range(2)}
    worst, spread = 0.0, 0.0
    for step in range(40):
        segments = []
        for slot, text in slots.items():
            if len(text) > 4 and rng.random() < 0.15:
                del text[cache.rewind(slot, rng.randrange(max(0, len(text) - 30), len(text))) :]
            causal = tuple(rng.randrange(VOCAB) for _ in range(rng.choice([1, 1, 1, 2, 10, 40])))
            count = rng.choice([0, 0, 1, 4, 12])
            parents = tuple(rng.randrange(-1, i) if step % 2 else i - 1 for i in range(count))
            draft = Draft(tuple(rng.randrange(VOCAB) for _ in range(count)), parents)
            if len(text) + len(causal) + count < 200:
                segments.append(Segment(slot, causal, draft, judged=count + 1))
        judged = [segment.judged for segment in segments]
        rows = runner.forward(segments, cache).logits.split(judged) if segments else ()
        for segment, found in zip(segments, rows, strict=True):
            node = rng.randrange(-1, len(segment.draft))
            path = segment.draft.path(node)
            text = [*slots[segment.slot], *segment.causal, *(segment.draft.tokens[each] for each in path)]
            wanted = expected(text)
            worst = max(worst, float((wanted - found[node + 1]).abs().max()))
            spread = max(spread, float(wanted.max() - wanted.min()))
            if step % 5:
                cache.keep(segment.slot, len(segment.causal), path)
                slots[segment.slot] = text
        if step % 9 == 8:
            slot, text = rng.choice(list(slots.items()))
            del slots[slot]
            cache.release(slot, text)
            cache.check()
            again = [*rng.choice([text, *slots.values()])][: rng.randrange(20, 150)]
            slot = cache.acquire(again)
            slots[slot] = again[: cache.lengths[slot]]
            rest = tuple(again[len(slots[slot]) :])
            if rest:
                runner.forward([Segment(slot, rest)], cache)
                cache.keep(slot, len(rest))
                slots[slot] += rest
    assert 0 < worst < 1e-5 * spread
