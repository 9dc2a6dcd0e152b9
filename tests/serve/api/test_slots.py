"""What clients do with slots, over HTTP: saved under a name, restored, erased, and by their owner alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from support.byte_models import save_model
from support.http_server import Running, serving

import headstart as hs
from headstart.base.errors import InvalidOption, Overloaded
from headstart.model import slot_files
from headstart.serve import named_slots, saved_slots
from headstart.serve.api import slots
from headstart.serve.named_slots import NamedSlots
from headstart.serve.saved_slots import SavedSlots

TEXT = "a text that is long enough to be worth a slot, and says so: " * 2
KEY, OTHER = "the key of these tests", "another key of these tests"
MB = 10**6


@pytest.fixture(scope="module")
def engine(root: Path) -> hs.Engine:
    path = save_model(root / "slots", context=512)
    return hs.load(path, "none", dtype="float32", max_length=512, max_batch_size=2, prefix_cache=True)


@pytest.fixture
def running(engine: hs.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Nothing is written but what is asked for."""
    monkeypatch.setattr(SavedSlots, "_write", lambda self, seconds: None)
    assert engine.forget_texts()
    engine.cache.saved_texts = saved = SavedSlots(tmp_path / "slots", 100 * MB, engine, "")
    try:
        with serving(engine, {"api_keys": (KEY, OTHER)}, saved=NamedSlots(saved)) as found:
            yield found
            assert found.settled()
    finally:
        saved.close()
        engine.cache.saved_texts = None
        engine.cache.check()


def post(running: Running, path: str, body: Any = None, *, key: str = KEY) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{running.url}/{path}", json={} if body is None else body, headers=headers, timeout=60)


def cached(running: Running, text: str, *, key: str = KEY, **more: Any) -> int:
    """Tokens of a prompt that some slot held."""
    body = {"prompt": text, "max_tokens": 2, **more}
    answer = post(running, "v1/completions", body, key=key).json()
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def action(running: Running, slot: int, name: str, file: str = "turn.bin", **more: Any) -> dict[str, Any]:
    answer = post(running, f"slots/{slot}?action={name}", {"filename": file}, **more)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def refused(answer: httpx.Response, status: int, code: str, words: str = "") -> None:
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code
    assert words in answer.json()["error"]["message"]


def filled(engine: hs.Engine) -> int:
    """The slot that holds a text; there is one."""
    ((slot, _),) = engine.cache.kept()
    return slot


def test_a_slot_is_saved_erased_and_restored(running: Running, engine: hs.Engine, tmp_path: Path) -> None:
    assert cached(running, TEXT) == 0
    slot = filled(engine)
    held = engine.cache.lengths[slot]
    saved = action(running, slot, "save")
    (file,) = (tmp_path / "slots").iterdir()
    assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (slot, "turn.bin", held)
    assert saved["n_written"] == file.stat().st_size
    assert saved["timings"]["save_ms"] > 0
    assert "turn" not in file.name
    assert action(running, slot, "erase") == {"id_slot": slot, "n_erased": held}
    assert not engine.cache.kept()
    assert action(running, slot, "erase")["n_erased"] == 0
    other = 1 - slot
    restored = action(running, other, "restore")
    assert (restored["id_slot"], restored["n_restored"], restored["n_read"]) == (other, held, saved["n_written"])
    assert filled(engine) == other
    assert cached(running, TEXT + "more") >= len(TEXT) - 1


def test_a_saved_text_is_found_without_being_restored(running: Running, engine: hs.Engine) -> None:
    cached(running, TEXT)
    action(running, filled(engine), "save")
    assert engine.forget_texts()
    assert cached(running, TEXT + "more") >= len(TEXT) - 1


def test_a_slot_and_its_names_are_their_owners(running: Running, engine: hs.Engine) -> None:
    cached(running, TEXT)
    slot = filled(engine)
    refused(post(running, f"slots/{slot}?action=save", {"filename": "a"}, key=OTHER), 400, "invalid_value", "of yours")
    assert action(running, slot, "erase", key=OTHER)["n_erased"] == 0
    action(running, slot, "save")
    restore = f"slots/{1 - slot}?action=restore"
    refused(post(running, restore, {"filename": "turn.bin"}, key=OTHER), 400, "invalid_value", "no slot was saved")
    refused(post(running, restore, {"filename": "turn.bin", "cache_salt": "x"}), 400, "invalid_value")
    assert cached(running, TEXT, key=OTHER) == 0
    assert cached(running, "salted " + TEXT, cache_salt="x") == 0
    salted = next(number for number, text in engine.cache.kept() if text.salt.endswith("/x"))
    refused(post(running, f"slots/{salted}?action=save", {"filename": "s"}), 400, "invalid_value", "of yours")
    assert post(running, f"slots/{salted}?action=save", {"filename": "s", "cache_salt": "x"}).status_code == 200


def test_what_cannot_be_is_refused_with_a_type(
    running: Running, engine: hs.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(running, TEXT)
    slot = filled(engine)
    name = {"filename": "turn.bin"}
    refused(post(running, f"slots/{slot}?action=copy", name), 400, "invalid_value", "save, restore, erase")
    refused(post(running, f"slots/{slot}", name), 400, "invalid_value")
    refused(post(running, "slots/x?action=save", name), 400, "invalid_value", "GET /slots")
    refused(post(running, "slots/2?action=save", name), 400, "invalid_value", "0 to 1")
    refused(post(running, f"slots/{1 - slot}?action=save", name), 400, "invalid_value", "no text")
    refused(post(running, f"slots/{slot}?action=save"), 400, "missing_field")
    for bad in ("../up", "a\\b", "a\nb", "", "x" * 256):
        refused(post(running, f"slots/{slot}?action=save", {"filename": bad}), 400, "invalid_value", "filename")
    action(running, slot, "save")
    (file,) = (tmp_path / "slots").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    refused(post(running, f"slots/{slot}?action=restore", name), 400, "invalid_slot_file", "cut off")
    monkeypatch.setattr(engine.cache.saved_texts, "limit", 100)
    refused(post(running, f"slots/{slot}?action=save", name), 400, "invalid_value", "--slot-save-limit")


def test_a_slot_that_runs_is_left_alone(running: Running, engine: hs.Engine) -> None:
    """It is neither saved, nor erased, nor filled; the other one can be meanwhile, between two steps."""
    cached(running, TEXT)
    saved = filled(engine)
    action(running, saved, "save")
    body = {"prompt": "go", "max_tokens": 400, "stream": True, "ignore_eos": True}
    url, headers = f"{running.v1}/completions", {"authorization": f"Bearer {KEY}"}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        (busy,) = (number for number in range(2) if engine.cache.held(number) is None)
        for name in ("save", "restore", "erase"):
            refused(post(running, f"slots/{busy}?action={name}", {"filename": "turn.bin"}), 400, "invalid_value")
        assert action(running, 1 - busy, "restore")["n_restored"] > 0
        assert sum(line.startswith("data: {") for line in lines) > 0


def test_a_file_is_restored_piece_by_piece(
    running: Running, engine: hs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request could have a step between two of them."""
    monkeypatch.setattr(slot_files, "PIECE", 32)
    monkeypatch.setattr(slots, "STEP_SECONDS", 0.0)
    cached(running, TEXT)
    slot = filled(engine)
    action(running, slot, "save")
    calls = threading.Semaphore(0)
    some = slots._some

    def counted(pieces: Any) -> int | None:
        calls.release()
        return some(pieces)

    monkeypatch.setattr(slots, "_some", counted)
    assert action(running, slot, "restore")["n_restored"] > 96
    assert sum(calls.acquire(blocking=False) for _ in range(50)) > 4


def test_an_owner_has_so_many_names(running: Running, engine: hs.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_slots, "MOST_NAMES", 2)
    cached(running, TEXT)
    slot = filled(engine)
    for name in ("a", "b", "a"):
        action(running, slot, "save", name)
    refused(post(running, f"slots/{slot}?action=save", {"filename": "c"}), 400, "invalid_value", "2 slots are saved")
    cached(running, "another " + TEXT, key=OTHER)
    theirs = next(number for number, text in engine.cache.kept() if number != slot)
    action(running, theirs, "save", "c", key=OTHER)


def test_few_slots_are_written_at_once(engine: hs.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are told to come back, and hold no thread."""
    saved = SavedSlots(tmp_path / "busy", 100 * MB, engine, "")
    monkeypatch.setattr(named_slots, "AT_ONCE", 1)
    names = NamedSlots(saved)
    with names._writing, pytest.raises(Overloaded, match="being written"):
        names.save(0, "a", "")
    with pytest.raises(InvalidOption, match="no text of yours"):
        names.save(0, "a", "somebody else")
    saved.close()


def test_a_step_that_fails_meanwhile_empties_the_slot(
    running: Running, engine: hs.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed step may have written is shared with nobody, and the engine goes on."""
    monkeypatch.setattr(slot_files, "PIECE", 32)
    monkeypatch.setattr(slots, "STEP_SECONDS", 0.0)
    cached(running, TEXT)
    slot = filled(engine)
    action(running, slot, "save")
    some, emptied = slots._some, []

    def failing(pieces: Any) -> int | None:
        found = some(pieces)
        if not emptied:
            emptied.append(engine.forget_texts())  # what the engine does after a step that raised
        return found

    monkeypatch.setattr(slots, "_some", failing)
    answer = post(running, f"slots/{slot}?action=restore", {"filename": "turn.bin"})
    refused(answer, 400, "invalid_value", "a step failed")
    assert emptied == [True]
    assert not engine.cache.kept()
    assert action(running, slot, "restore")["n_restored"] > 96


def test_without_a_folder_there_is_nothing_to_save(engine: hs.Engine) -> None:
    with serving(engine) as found:
        for name in ("save", "restore", "erase"):
            refused(post(found, f"slots/0?action={name}", {"filename": "a"}), 501, "not_supported", "--slot-save-path")


def test_what_is_next_to_give_way_is_written_at_once(engine: hs.Engine, tmp_path: Path) -> None:
    """The others are left for some seconds: a conversation usually goes on sooner."""
    assert engine.forget_texts()
    saved = SavedSlots(tmp_path / "early", 100 * MB, engine, "")
    try:
        saved._closing.set()  # its own thread writes nothing more
        saved._thread.join()
        once = hs.Sampling(max_tokens=2)
        engine.generate(TEXT, once)
        before = len(saved.files)
        saved._write(saved_slots.IDLE_SECONDS)
        assert len(saved.files) == before, "there is an empty slot yet"
        engine.generate("b" + TEXT, once)
        saved._write(saved_slots.IDLE_SECONDS)
        assert [engine.tokenizer.decode(file.tokens[:1]) for file in saved.files] == ["a"]
    finally:
        saved.close()
