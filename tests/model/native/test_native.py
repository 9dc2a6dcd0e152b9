"""The border of the native forward: structures, slots and rows that do not fit, and where the library lies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.tiny import VOCAB
from transformers import AutoModelForCausalLM

from headstart.base.errors import InvalidBatch, NotEnoughMemory
from headstart.model import native
from headstart.model.cache import KVCache, Slots
from headstart.model.decoders.tiled import TiledCache
from headstart.model.loading import adopt
from headstart.model.native import structs
from headstart.model.native.memory import aligned, read_bandwidth
from headstart.model.packed import Packed, Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

CAPACITY = 29  # of a slot; not whole tiles
POSITIONS = 60


@pytest.fixture
def runner(tiny: Callable[..., str]) -> ModelRunner:
    model = AutoModelForCausalLM.from_pretrained(tiny("llama"), dtype=torch.float32)
    return ModelRunner(adopt(model), decoder="fused", max_length=POSITIONS)


# -- structures -------------------------------------------------------------------------------------------------------


def library_layout() -> str:
    library = ctypes.CDLL(str(native.kernels().library.path))
    library.headstart_layout.restype = ctypes.c_char_p
    return library.headstart_layout().decode()  # type: ignore[no-any-return]


def test_the_mirrors_lie_in_memory_as_the_library_says() -> None:
    assert structs.difference(library_layout()) is None
    assert {line.split()[0] for line in library_layout().splitlines()} == {m.__name__ for m in structs.MIRRORS}


def test_parts_of_a_forward_have_the_names_of_the_library() -> None:
    source = native.MAIN.with_name("team.h").read_text()
    names = source[source.index("enum class Part") :].partition("{")[2].partition("}")[0]
    assert [
        name.strip().lower().replace("_", " ").replace("gate up", "gate and up")
        for name in names.split(",")
        if name.strip()
    ] == list(native.PARTS)


FIELDS = tuple(structs.Batch._fields_)
PLANTS: dict[str, tuple[Any, ...]] = {
    "a field more": (*FIELDS, ("added", ctypes.c_int64)),
    "a field less": FIELDS[:-1],
    "two fields exchanged": (FIELDS[0], FIELDS[2], FIELDS[1], *FIELDS[3:]),
    "another width": ((FIELDS[0][0], ctypes.c_int32), *FIELDS[1:]),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_another_layout_makes_the_kernels_unavailable(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = type("Batch", (ctypes.Structure,), {"_fields_": PLANTS[plant]})
    monkeypatch.setattr(structs, "MIRRORS", (*structs.MIRRORS[:-1], wrong))
    native._outcome.cache_clear()
    try:
        assert not native.available()
        assert "struct Batch is [Batch" in str(native.reason())
        with pytest.raises(native.Unavailable, match="other sources"):
            native.kernels()
    finally:
        monkeypatch.undo()
        native._outcome.cache_clear()
    assert native.available()


# -- slots and rows ---------------------------------------------------------------------------------------------------


def contents(cache: Slots) -> list[torch.Tensor]:
    assert isinstance(cache, TiledCache)
    return [tensor.clone() for tensor in (*cache.keys.values(), *cache.values.values())]


def filled(runner: ModelRunner, length: int) -> Slots:
    """A cache of two slots, of which the first holds so many tokens."""
    cache = runner._decoder.new_cache(2, CAPACITY)
    runner.forward([Segment(cache.acquire(), tuple(range(3, 3 + length)))], cache)
    cache.keep(0, length)
    return cache


@pytest.mark.parametrize("slot", [0, 1])
def test_a_slot_filled_to_its_last_token(slot: int, runner: ModelRunner) -> None:
    """By a prompt, a chain and a tree; the neighbour keeps its bits, and the logits are those of a larger cache."""
    text, tree = tuple(range(3, 3 + CAPACITY)), Draft((40, 41, 42, 43), (-1, -1, 1, 2))
    wide = runner._decoder.new_cache(2, 4 * CAPACITY)
    for draft, rows in ((Draft(), CAPACITY), (Draft.chain(text[-4:]), CAPACITY - 4), (tree, CAPACITY - 4)):
        cache = runner._decoder.new_cache(2, CAPACITY)
        for each in (cache, wide):
            for other in (0, 1):
                each.lengths[other] = 0
                runner.forward([Segment(other, (7, 8, 9))], each)
        before = [tensor[1 - slot] for tensor in contents(cache)]
        segment = Segment(slot, text[:rows], draft, judged=len(draft) + 1)
        assert torch.equal(runner.forward([segment], cache).logits, runner.forward([segment], wide).logits)
        for mine, then in zip(contents(cache), before, strict=True):
            assert torch.equal(mine[1 - slot].nan_to_num(), then.nan_to_num())
        cache.keep(slot, rows, draft.path(len(draft) - 1))
        assert cache.lengths[slot] == rows + len(draft.path(len(draft) - 1))


BEYOND: dict[str, tuple[Callable[[], Segment], str]] = {
    "one token too many": (lambda: Segment(0, (3,) * 10), "the place in its slot 29, which is not below 29"),
    "one node too many": (lambda: Segment(0, (3,), Draft.chain((4,) * 9)), "the place in its slot 29"),
    "a tree that is too wide": (lambda: Segment(0, (3,), Draft((4,) * 9, (-1,) * 9)), "the place in its slot 29"),
    "a token that is not in the vocabulary": (lambda: Segment(0, (VOCAB,)), f"the token {VOCAB}"),
    "a negative token": (lambda: Segment(0, (3, -1)), "the token -1"),
    "a drafted one": (lambda: Segment(0, (3,), Draft((-7,), (-1,))), "the token -7"),
    "a judged row that is not fed": (lambda: Segment(0, (3,), judged=2), "the judged row -1"),
    "no rows": (lambda: Segment(0, (), judged=0), "without rows"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(name: str, runner: ModelRunner) -> None:
    make, message = BEYOND[name]
    cache = filled(runner, CAPACITY - 9)
    before = contents(cache)
    with pytest.raises(InvalidBatch, match=message):
        runner.forward([make()], cache)
    for mine, then in zip(contents(cache), before, strict=True):
        assert torch.equal(mine.nan_to_num(), then.nan_to_num())


def packed_with(runner: ModelRunner, **changes: Any) -> Packed:
    packed = Packed([Segment(0, (3, 4))], filled(runner, 5), runner.dtype, runner.device)
    for name, value in changes.items():
        setattr(packed, name, value)
    return packed


def test_slots_and_positions_that_do_not_exist(runner: ModelRunner) -> None:
    decoder = runner._decoder
    for changes, message in (
        ({"starts": [POSITIONS - 1]}, "the position 60, which is not below 60"),
        ({"starts": [-1]}, "the position -1"),
        ({"segments": [Segment(2, (3, 4))]}, "the slot 2, which is not below 2"),
        ({"segments": [Segment(-1, (3, 4))]}, "the slot -1"),
    ):
        with pytest.raises(InvalidBatch, match=message):
            decoder.run(packed_with(runner, **changes))
    decoder.run(packed_with(runner))
    for layers, taps in ((0, ()), (runner.layers + 1, ()), (1, (2,)), (None, (-1,))):
        with pytest.raises(InvalidBatch, match="layers"):
            decoder.run(packed_with(runner), taps, layers)


def test_a_cache_of_another_model_is_refused(runner: ModelRunner, tiny: Callable[..., str]) -> None:
    other = ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(tiny("qwen3"), dtype=torch.float32)))
    plain = KVCache(runner.shapes, slots=1, capacity=CAPACITY, dtype=torch.float32, device=runner.device)
    half = TiledCache(runner.shapes, slots=1, capacity=CAPACITY, dtype=torch.bfloat16)
    for cache in (plain, half, *([other.new_cache(1)] if other.shapes != runner.shapes else [])):
        with pytest.raises(InvalidBatch, match="own model"):
            runner.forward([Segment(cache.acquire(), (3,))], cache)


@pytest.mark.parametrize(("slot", "base", "path"), [(2, 5, (1,)), (0, CAPACITY - 1, (1,)), (0, 5, (-1,))])
def test_a_path_outside_its_slot_is_not_gathered(
    slot: int, base: int, path: tuple[int, ...], runner: ModelRunner
) -> None:
    with pytest.raises(InvalidBatch, match="holds no path"):
        filled(runner, 5)._gather(slot, base, path)


def test_a_forward_for_which_there_is_no_memory(runner: ModelRunner) -> None:
    """The library says so instead of ending the process."""
    product = structs.Product(None, None, None, None, 16, 16, native.FLOAT32, results=16)
    with pytest.raises(NotEnoughMemory):
        native.kernels().multiply(product, None, 2**50, None, 1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [4096, 3 << 20, (1 << 21) + 512])
def test_a_plain_read_reads_every_byte(size: int, threads: int) -> None:
    memory = aligned(size).zero_()
    assert native.kernels().read(memory.data_ptr(), size, threads) == 0
    for at in (0, 511, 512, size // 2, size - 1):
        memory[at] = 255
        assert native.kernels().read(memory.data_ptr(), size, threads) == 255 << at % 4 * 8, at
        memory[at] = 0


def test_read_bandwidth_is_that_of_a_machine_of_this_age() -> None:
    assert 1e7 < read_bandwidth(1 << 22, rounds=2) < 1e13
