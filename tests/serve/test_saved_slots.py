"""Slots in files: after a restart only what is new is read, all bits are the same, and nothing there is believed."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from support.hybrids import checkpoint

import headstart as hs
from headstart.base.errors import InvalidFile
from headstart.engine.engine import Engine
from headstart.model import slot_files
from headstart.model.prefixes import HeldText
from headstart.serve import saved_slots
from headstart.serve.saved_slots import SavedSlots

PROMPT = tuple(3 + 7 * i % 90 for i in range(90))
SAMPLING = hs.Sampling(max_tokens=12, logprobs=3, ignore_eos=True)
MB = 10**6


@pytest.fixture(scope="module")
def make(root: Path, tiny: Callable[..., str]) -> Callable[..., Engine]:
    paths = {"llama": tiny("llama"), "bf16": tiny("llama"), "hybrid": checkpoint(root, "lfm2"), "lean": tiny("gemma2")}

    def made(kind: str = "llama", **options: Any) -> Engine:
        dtype = "bfloat16" if kind == "bf16" else "float32"
        given = {"dtype": dtype, "max_batch_size": 2, "max_length": 128, "prefix_cache": True, **options}
        return hs.load(paths[kind], "none", **given)

    return made


@pytest.fixture
def saving(tmp_path: Path) -> Any:
    """saving(engine): the engine with its slots saved in a folder of the test."""
    all_of_them = []

    def put(engine: Engine, *, limit: int = 100 * MB, fingerprint: str = "") -> SavedSlots:
        engine.cache.saved_texts = saved = SavedSlots(tmp_path / "slots", limit, engine, fingerprint)
        all_of_them.append(saved)
        return saved

    yield put
    for saved in all_of_them:
        saved.close()


@pytest.mark.parametrize(
    ("kind", "piece"),
    [("llama", slot_files.PIECE), ("bf16", 32), ("hybrid", slot_files.PIECE), ("hybrid", 32), ("lean", 32)],
)
def test_after_a_restart_only_what_is_new_is_read_and_the_bits_are_those_of_a_cold_server(
    kind: str, piece: int, make: Callable[..., Engine], saving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_files, "PIECE", piece)
    first = make(kind)
    saved = saving(first)
    out = first.generate(PROMPT, SAMPLING)
    ((slot, text),) = first.cache.kept()
    saved.close()
    (file,) = saved.files
    assert file.path.stat().st_mode & 0o777 == 0o600
    size = slot_files.text_bytes(first.cache, slot, len(text.tokens))
    assert size == file.size - len(file.header), "states are counted too"
    with safe_open(file.path, "pt") as found:  # any program of the format can read it
        assert found.get_tensor("tokens").tolist() == [*PROMPT, *out.tokens[:-1]]
    second, cold = make(kind, max_length=120), make(kind)
    saved = saving(second)
    for turn, cached in (
        ((*PROMPT, *out.tokens, 5, 6, 7), len(PROMPT) + 11),
        ((*PROMPT[:80], 5, 6), 0 if kind == "hybrid" else 80),  # a state is there near the prompt's end alone
    ):
        expected = cold.plain().generate(turn, SAMPLING)
        warm = second.generate(turn, SAMPLING)
        assert warm.stats.cached_tokens >= cached
        assert warm.tokens == expected.tokens
        assert warm.logprobs == expected.logprobs or not second.target.width_invariant
    second.cache.check()


def test_others_go_on_while_a_text_is_read_piece_by_piece(
    make: Callable[..., Engine], saving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_files, "PIECE", 32)
    monkeypatch.setattr(saved_slots, "STEP_SECONDS", 0.0)
    engine = make()
    saved = saving(engine)
    engine.generate(PROMPT, SAMPLING)
    saved.close()
    engine = make()
    saved = saving(engine)
    running = engine.submit([4, 5, 6], hs.Sampling(max_tokens=100, ignore_eos=True))
    engine.step()
    waiting = engine.submit((*PROMPT, 9), SAMPLING)
    steps = 0
    while waiting.slot is None:
        engine.step()
        steps += 1
    assert steps > 3
    assert running.generated == steps + 1
    engine.cancel(waiting)
    assert waiting.finish().stats.cached_tokens == len(PROMPT)
    engine.cancel(running)
    assert engine.forget_texts()
    busy = engine.submit([4, 5, 6], SAMPLING)  # and a text that is half read when a step fails
    engine.step()
    engine.submit((*PROMPT, 9), SAMPLING)
    engine.step()
    for request in (*engine.waiting, busy):
        engine.cancel(request)
    assert engine.forget_texts()
    assert engine.cache.free_slots == 2
    engine.cache.check()


def test_a_text_that_had_to_give_way_is_read_from_its_file(make: Callable[..., Engine], saving: Any) -> None:
    engine = make("hybrid", max_batch_size=1)
    saved = saving(engine)
    first = engine.generate(PROMPT, SAMPLING)
    saved._write(0.0)
    assert engine.generate(tuple(reversed(PROMPT)), SAMPLING).stats.cached_tokens == 0
    turn = (*PROMPT, *first.tokens, 5)
    again = engine.generate(turn, SAMPLING)
    assert again.stats.cached_tokens == len(turn) - 2
    assert again.logprobs == engine.plain().generate(turn, SAMPLING).logprobs


def test_keys_see_their_own_texts_alone(make: Callable[..., Engine], saving: Any) -> None:
    first = make()
    saved = saving(first)
    first.generate(PROMPT, hs.Sampling(max_tokens=2, cache_salt="mine"))
    saved.close()
    second = make()
    saving(second)
    cached = [
        second.generate(PROMPT, hs.Sampling(max_tokens=2, cache_salt=salt)).stats.cached_tokens
        for salt in ("", "other", "mine")
    ]
    assert cached == [0, 0, len(PROMPT) - 1]


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _header_of_the_whole_memory(path: Path) -> None:
    path.write_bytes((2**62).to_bytes(8, "little") + b"{" * 100)


def _more_tokens(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"tokens":"91"', b'"tokens":"99"', 1))


def _readable(path: Path) -> None:
    path.chmod(0o644)


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _flipped(path: Path) -> None:
    """Seen when it is read."""
    with path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


HARMS = [_cut, _header_of_the_whole_memory, _more_tokens, _readable, _link, _pipe, _flipped]


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_not_as_it_should_be_is_left_out_with_one_line(
    harm: Callable[[Path], None], make: Callable[..., Engine], saving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = make()
    saved = saving(first)
    out = first.generate(PROMPT, hs.Sampling(max_tokens=2))
    saved.close()
    harm(saved.files[0].path)
    second = make()
    with caplog.at_level(logging.WARNING):
        saved = saving(second)
        assert second.generate(PROMPT, hs.Sampling(max_tokens=2)).tokens == out.tokens
    assert "slot-" in "".join(record.message for record in caplog.records if "saved slot" in record.message)
    assert len(caplog.records) == 1
    assert not saved.files
    second.cache.check()


def test_no_file_is_believed(make: Callable[..., Engine], saving: Any) -> None:
    """Whatever is changed in a header, and wherever a file is cut."""
    engine = make("hybrid")
    saved = saving(engine)
    engine.generate(PROMPT, hs.Sampling(max_tokens=2))
    saved.close()
    (file,) = saved.files
    data, drawn = file.path.read_bytes(), random.Random(1)
    for _ in range(300):
        at, end = drawn.randrange(len(file.header)), drawn.choice([len(data), drawn.randrange(len(data))])
        changed = data[:at] + bytes([data[at] ^ drawn.randrange(1, 256)]) + data[at + 1 : end]
        file.path.write_bytes(changed)
        with pytest.raises(InvalidFile):
            slot_files.opened(file.path, engine.cache, saved.identity)
    file.path.write_bytes(data)
    assert slot_files.opened(file.path, engine.cache, saved.identity) == file


def test_a_file_of_another_model_is_left_out(make: Callable[..., Engine], saving: Any) -> None:
    first = make()
    saved = saving(first)
    first.generate(PROMPT, hs.Sampling(max_tokens=2))
    saved.close()
    assert not saving(make(), fingerprint="another").files
    assert not saving(make(dtype="bfloat16")).files
    assert len(saving(make()).files) == 1


def test_a_longer_text_takes_the_place_of_its_beginning_and_the_least_used_goes_first(
    make: Callable[..., Engine], saving: Any
) -> None:
    engine = make()
    saved = saving(engine)
    once = hs.Sampling(max_tokens=2)
    first = engine.generate(PROMPT, once)
    saved._write(0.0)
    for text in ((*PROMPT, *first.tokens, *range(3, 30)), tuple(reversed(PROMPT))):
        engine.generate(text, once)
        saved._write(0.0)
    assert sorted(len(file.tokens) for file in saved.files) == [91, 120]
    engine.generate((*reversed(PROMPT), *range(5)), once)
    for slot, text in engine.cache.kept():
        saved._since[slot] = text, -1.0
    saved._write(0.5)
    assert sorted(len(file.tokens) for file in saved.files) == [91, 120], "nearly all of it is there already"
    saved.limit = sum(file.size for file in saved.files) + 100
    os.utime(next(file.path for file in saved.files if len(file.tokens) == 120), (1, 1))
    engine.generate((9, *PROMPT), once)
    saved._write(0.0)
    assert sorted(len(file.tokens) for file in saved.files) == [92, 96]


def test_a_slot_that_is_taken_while_it_is_written_leaves_no_file(make: Callable[..., Engine], tmp_path: Path) -> None:
    engine = make()
    engine.generate(PROMPT, hs.Sampling(max_tokens=2))
    ((slot, text),) = engine.cache.kept()
    begun = threading.Event()

    def unchanged() -> bool:
        if not begun.is_set():
            begun.set()
            engine.generate(tuple(reversed(PROMPT)), hs.Sampling(max_tokens=2))
            engine.generate(PROMPT[5:], hs.Sampling(max_tokens=2))
        return engine.cache.keeps(slot, text)

    assert slot_files.save(tmp_path / "x.safetensors", engine.cache, slot, text, "", unchanged) is None
    assert not list(tmp_path.iterdir())
    assert not engine.cache.keeps(slot, HeldText())
