"""Recurrent layers on the row kernels: against their twins, and a row's bits in any company and after any rollback."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from support.hybrids import HYBRIDS, VOCAB, hybrid

from headstart.base.errors import InvalidBatch, NotEnoughMemory, UnsupportedModel
from headstart.model import native
from headstart.model.cache import Slots
from headstart.model.packed import Segment
from headstart.model.planes import LOG
from headstart.model.probe import _without_kernels
from headstart.model.runner import ModelRunner
from headstart.model.states import FOLD, SHORT, States
from headstart.model.threads import use_threads
from headstart.types import NO_DRAFT, Draft

pytestmark = pytest.mark.skipif(not native.available(), reason="there are no row kernels here")
each = pytest.mark.parametrize("name", HYBRIDS)

ROUNDED = {"int8": native.INT8, "int4": native.GROUPED4, "int8-grouped": native.GROUPED4}
WEIGHTS = ("float32", "bfloat16", *ROUNDED)


@cache
def runner_of(name: str, weights: str = "float32", decoder: Any = "fused", **more: Any) -> ModelRunner:
    if weights not in ROUNDED:
        return ModelRunner(hybrid(name, getattr(torch, weights), **more), decoder=decoder)
    if not native.kernels().supported(ROUNDED[weights]):
        pytest.skip(f"this processor has no {weights} products")
    return ModelRunner(hybrid(name, torch.bfloat16, **more), quantize=weights, decoder=decoder)


def tokens(count: int, seed: int) -> tuple[int, ...]:
    chosen = random.Random(seed)
    return tuple(chosen.randrange(VOCAB) for _ in range(count))


def logits_of(runner: ModelRunner, text: Sequence[int], judged: int = 1) -> torch.Tensor:
    """Of the last tokens of a text that is read at once from nothing."""
    cache = runner.new_cache(1)
    return runner.forward([Segment(cache.acquire(), tuple(text), judged=judged)], cache).logits


def one_by_one(runner: ModelRunner, prompt: Sequence[int], text: Sequence[int]) -> torch.Tensor:
    cache = runner.new_cache(1)
    slot, rows = read(runner, cache, prompt), []
    for token in text:
        rows.append(runner.forward([Segment(slot, (token,))], cache).logits[0])
        cache.keep(slot, 1)
    return torch.stack(rows)


def read(runner: ModelRunner, cache: Slots, prompt: Sequence[int]) -> int:
    slot = cache.acquire()
    runner.forward([Segment(slot, tuple(prompt))], cache)
    cache.keep(slot, len(prompt))
    return slot


# -- against the twins ------------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize(("dtype", "limit"), [("float32", 5e-6), ("bfloat16", 0.03)])
def test_logits_are_those_of_transformers_and_of_tensor_operations(name: str, dtype: str, limit: float) -> None:
    text = tokens(80, 1)
    with torch.no_grad():
        want = hybrid(name)(torch.tensor([text]), use_cache=False).logits[0]
    spread = want.max() - want.min()
    fused, lean = (logits_of(runner_of(name, dtype, decoder), text, 80) for decoder in ("fused", "lean"))
    assert (fused - want).abs().max() < limit * spread
    assert (lean - want).abs().max() < limit * spread


@each
def test_a_tree_after_a_text_is_that_of_tensor_operations(name: str) -> None:
    """Also where the text is not in the plane but in the log."""
    fused, lean = (runner_of(name, "float32", decoder) for decoder in ("fused", "lean"))
    tree = Draft(tokens(9, 3), (-1, 0, -1, 1, 0, 2, 5, 5, 1))
    found = []
    for runner in (fused, lean):
        cache = runner.new_cache(1)
        slot = read(runner, cache, tokens(40, 2))
        for _ in range(3):
            runner.forward([Segment(slot, (5, 6))], cache)
            cache.keep(slot, 2)
        found.append(runner.forward([Segment(slot, (4,), tree, judged=10)], cache).logits)
    assert (found[0] - found[1]).abs().max() < 1e-5 * (found[1].max() - found[1].min())


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("qwen3_5", {"linear_value_head_dim": 24}),
        ("qwen3_5", {"linear_key_head_dim": 24}),
        ("granite4h", {"mamba_d_state": 24}),
        ("granite4h", {"mamba_n_heads": 16, "mamba_d_head": 8}),
        ("lfm2", {"conv_L_cache": 17}),
    ],
)
def test_what_the_kernels_do_not_take_runs_in_tensor_operations(name: str, more: dict[str, Any]) -> None:
    assert runner_of(name, decoder="auto", **more).decoder == "lean"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("qwen3_5", {"linear_value_head_dim": 48, "linear_key_head_dim": 64, "linear_num_key_heads": 4}),
        ("qwen3_5", {"linear_conv_kernel_dim": 2, "linear_num_value_heads": 18}),
        ("granite4h", {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_conv_bias": False}),
        ("falcon_h1", {"mamba_norm_before_gate": False, "mamba_d_head": 32, "mamba_n_heads": 3, "mamba_n_groups": 1}),
        ("falcon_h1", {"mamba_rms_norm": False, "mlp_bias": False, "projectors_bias": False}),
        ("lfm2", {"conv_L_cache": 8, "conv_bias": False, "hidden_size": 320}),
    ],
)
def test_other_sizes(name: str, more: dict[str, Any]) -> None:
    """Tiles of one vector and of two, heads that are no whole vector, keys shared and not, and channels in several
    pieces."""
    text = tokens(50, 1)
    with torch.no_grad():
        want = hybrid(name, **more)(torch.tensor([text]), use_cache=False).logits[0]
    runner = runner_of(name, **more)
    got = logits_of(runner, text, 50)
    assert (got - want).abs().max() < 5e-6 * (want.max() - want.min())
    assert torch.equal(one_by_one(runner, text[:20], text[20:30]), got[20:30])


# -- the same bits in any company -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", WEIGHTS)
@each
class TestWidthInvariance:
    """Bit for bit: alone, in a chain, in a tree, in a batch beside a prompt being read, and a prompt in pieces."""

    prompt, text = tokens(21, 1), tokens(10, 2)

    def test_chain_and_tree(self, name: str, weights: str) -> None:
        runner = runner_of(name, weights)
        assert runner.width_invariant
        alone = one_by_one(runner, self.prompt, self.text)
        cache = runner.new_cache(1)
        slot = read(runner, cache, self.prompt)
        chain = Segment(slot, self.text[:1], Draft.chain(self.text[1:]), judged=10)
        assert torch.equal(runner.forward([chain], cache).logits, alone)
        # never kept; the true path of the tree lies among others
        a, b, c = self.text[1:4]
        tree = Draft(((a + 1) % VOCAB, a, b, 5, 6, (b + 1) % VOCAB, c, c, 7), (-1, -1, 1, 0, 3, 1, 2, 5, 4))
        out = runner.forward([Segment(slot, self.text[:1], tree, judged=10)], cache).logits
        assert torch.equal(out[[0, 2, 3, 7]], alone[:4])
        cache.keep(slot, 1, (1, 2, 6))
        rest = Segment(slot, self.text[4:5], Draft.chain(self.text[5:]), judged=6)
        assert torch.equal(runner.forward([rest], cache).logits, alone[4:])

    def test_batch(self, name: str, weights: str) -> None:
        runner = runner_of(name, weights)
        prompts = [tokens(n, n) for n in (3, 5, 17, 21, 33, 8, 9, 40)]
        alone = [one_by_one(runner, prompt, self.text[:4]) for prompt in prompts]
        cache = runner.new_cache(9)
        slots = [read(runner, cache, prompt) for prompt in prompts]
        segments = [Segment(s, self.text[:1], Draft.chain(self.text[1:4]), judged=4) for s in slots]
        segments.insert(3, Segment(cache.acquire(), tokens(47, 9), judged=0))
        out = runner.forward(segments, cache).logits.reshape(8, 4, -1)
        for mine, want in zip(out, alone, strict=True):
            assert torch.equal(mine, want)

    def test_pieces_of_a_prompt(self, name: str, weights: str) -> None:
        runner = runner_of(name, weights)
        prompt = tokens(3 * SHORT, 5)
        whole = logits_of(runner, prompt)
        for pieces in ([1] * len(prompt), [SHORT + 1, 1, SHORT, 5, SHORT - 7], [FOLD, 3, 40, 45]):
            cache = runner.new_cache(1)
            slot, at = cache.acquire(), 0
            for count in pieces:
                last = runner.forward([Segment(slot, prompt[at : at + count])], cache).logits
                cache.keep(slot, count)
                at += count
            assert at == len(prompt)
            assert torch.equal(last, whole), pieces


@each
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    runner = runner_of(name, "bfloat16")
    found = []
    for count in (1, 2, 3, 7):
        use_threads(count)
        try:
            cache = runner.new_cache(2)
            slots = [read(runner, cache, tokens(n, n)) for n in (33, 5)]
            segments = [Segment(slot, (9,), Draft.chain(tokens(4, slot)), judged=5) for slot in slots]
            found.append(runner.forward(segments, cache).logits)
        finally:
            use_threads(None)
    assert all(torch.equal(each, found[0]) for each in found)


# -- after any rollback -----------------------------------------------------------------------------------------------


class Life:
    """Requests at random in a few slots, each forward compared with the same text read from nothing."""

    def __init__(self, runner: ModelRunner, seed: int, slots: int = 3) -> None:
        self.runner, self.random = runner, random.Random(seed)
        self.cache = runner.new_cache(slots)
        self.cache.keeps_texts = True
        self.texts: dict[int, list[int]] = {}
        self.ended = [list(tokens(40, seed))]
        self.seen = set[str]()

    def step(self) -> None:
        if self.cache.free_slots and self.random.random() < 0.4:
            self._begin()
        if self.texts and self.random.random() < 0.2:
            slot = self.random.choice(list(self.texts))
            self.ended.append(self.texts.pop(slot))
            self.cache.release(slot, self.ended[-1])
        for slot, text in self.texts.items():
            if len(text) > 4 and self.random.random() < 0.1:
                length = self.random.randrange(max(0, len(text) - 20), len(text))
                got = self.cache.rewind(slot, length)
                assert got <= length
                self.seen.add("rewound" if got == length else "rewound to a state")
                del text[got:]
        segments = [segment for slot in self.texts if (segment := self._segment(slot)) is not None]
        if not segments:
            return
        if self.random.random() < 0.1:  # an early exit, as drafters do it
            self.runner.forward(segments, self.cache, layers=self.random.randrange(1, self.runner.layers))
        out, at = self.runner.forward(segments, self.cache).logits, 0
        keeps = self.random.random() < 0.8
        for segment in segments:
            text, rows = self.texts[segment.slot], out[at : at + segment.judged]
            at += segment.judged
            node = self.random.randrange(-1, len(segment.draft))
            path = segment.draft.path(node)
            full = [*text, *segment.causal, *(segment.draft.tokens[each] for each in path)]
            assert torch.equal(rows[node + 1], logits_of(self.runner, full)[0])
            if keeps:
                self.cache.keep(segment.slot, len(segment.causal), path)
                self.texts[segment.slot] = full

    def _begin(self) -> None:
        text = self.random.choice(self.ended)
        prompt = [*text[: self.random.randrange(len(text) + 1)], *tokens(9, self.random.randrange(1000))]
        slot = self.cache.acquire(prompt)
        held = min(self.cache.lengths[slot], len(prompt) - 1)
        held = self.cache.rewind(slot, held)
        self.seen.add("reused" if held else "began anew")
        self.texts[slot] = prompt[:held]
        rest = tuple(prompt[held:])
        self.runner.forward([Segment(slot, rest)], self.cache)
        self.cache.keep(slot, len(rest))
        self.texts[slot] = prompt

    def _segment(self, slot: int) -> Segment | None:
        if self.random.random() < 0.3 or len(self.texts[slot]) > 400:
            return None
        causal = tokens(self.random.choice([1, 1, 1, 1, 2, 5, SHORT + 1]), self.random.randrange(10**6))
        nodes = self.random.choice([0, 0, 1, 3, 7, 20])
        tree = self.random.random() < 0.5
        parents = tuple(self.random.randrange(-1, i) if tree else i - 1 for i in range(nodes))
        draft = Draft(tokens(nodes, self.random.randrange(10**6)), parents) if nodes else NO_DRAFT
        return Segment(slot, causal, draft, judged=nodes + 1)


@each
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_text_has_the_same_bits_after_any_rollback(name: str, seed: int) -> None:
    life = Life(runner_of(name), seed)
    for _ in range(80):
        life.step()
    assert {"rewound", "reused", "began anew"} <= life.seen
    for slot, text in life.texts.items():
        life.cache.release(slot, text)
    life.cache.check()


@each
def test_held_nodes(name: str) -> None:
    """A drafter's tree that grows: nodes of earlier forwards are not fed again."""
    runner = runner_of(name)
    text, (a, b, c, d) = tokens(30, 4), tokens(4, 5)
    cache = runner.new_cache(1)
    slot = read(runner, cache, text)
    grown: list[int] = []
    parents = (-1, -1, 1, 2)
    for token in (a, b, c, d):
        held = len(grown)
        grown.append(token)
        draft = Draft(tuple(grown), parents[: held + 1])
        got = runner.forward([Segment(slot, (), draft, judged=1, held=held)], cache).logits[0]
        path = [grown[node] for node in draft.path(held)]
        assert torch.equal(got, logits_of(runner, [*text, *path])[0])
    cache.keep(slot, 0, (1, 2, 3))
    got = runner.forward([Segment(slot, (9,))], cache).logits[0]
    assert torch.equal(got, logits_of(runner, [*text, b, c, d, 9])[0])


# -- failures ---------------------------------------------------------------------------------------------------------


@each
def test_a_forward_that_fails_destroys_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forwards that would write both planes: refused ones, and one for which there is no memory."""
    runner = runner_of(name)
    cache = runner.new_cache(2)
    texts = [[*tokens(50, 1)], [*tokens(7, 2)]]
    slots = [read(runner, cache, text) for text in texts]
    for _ in range(FOLD):
        runner.forward([Segment(slots[0], (3,))], cache)
        cache.keep(slots[0], 1)
        texts[0].append(3)
    long = Segment(slots[0], tokens(SHORT + 8, 3))
    outside = Segment(slots[1], (VOCAB + 5,))
    too_large = Segment(slots[1], (1,), Draft.chain(tokens(LOG, 4)))
    for wrong in (outside, too_large):
        with pytest.raises(InvalidBatch):
            runner.forward([long, wrong], cache)

    def no_memory(*_: object) -> None:
        raise NotEnoughMemory("none", hint="")

    monkeypatch.setattr(native.kernels(), "forward", no_memory)
    with pytest.raises(NotEnoughMemory):
        runner.forward([long], cache)
    monkeypatch.undo()
    for slot, text in zip(slots, texts, strict=True):
        got = runner.forward([Segment(slot, (8,))], cache).logits
        assert torch.equal(got, logits_of(runner, [*text, 8]))


@each
def test_numbers_that_are_none_reach_the_logits_of_their_own_rows_alone(name: str) -> None:
    """A broken row is seen, and does no harm to another request."""
    model = hybrid(name)
    clean = runner_of(name)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = float("nan")
    runner = ModelRunner(model, decoder="fused")
    cache = runner.new_cache(2)
    segments = [Segment(cache.acquire(), (7, 3), judged=1), Segment(cache.acquire(), (3, 4, 5), judged=1)]
    out = runner.forward(segments, cache).logits
    assert not out[0].isfinite().any()
    assert torch.equal(out[1], logits_of(clean, (3, 4, 5))[0])


# -- at load ----------------------------------------------------------------------------------------------------------


@each
def test_the_check_at_load_finds_states_that_a_rejected_token_has_changed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(States, "keep", lambda *_, **__: None)  # the log keeps the rejected row in the kept one's place
    with pytest.raises(UnsupportedModel, match="its own logits"):
        ModelRunner(hybrid(name), decoder="fused")


def test_nothing_is_said_of_kernels_that_transformers_lacks(caplog: pytest.LogCaptureFixture) -> None:
    """Its modules run once, for the check at load."""
    logger = logging.getLogger("transformers.integrations.hub_kernels")
    propagates, logger.propagate = logger.propagate, True
    try:
        with _without_kernels():
            logger.warning("`f` is falling back to its reference PyTorch implementation because `g` is not installed.")
            logger.warning("another")
        logger.warning("`f` is falling back to its reference PyTorch implementation because `g` is not installed.")
    finally:
        logger.propagate = propagates
    assert [record.getMessage()[:9] for record in caplog.records] == ["another", "`f` is fa"]
