"""A file of traffic: what is written is read, it stays private and small, and whatever is broken is told or mended."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from headstart.base.errors import InvalidFile
from headstart.base.traffic import Exchange, Tokens, TrafficWriter, forget, read, write, writer

SOME = (
    Exchange((1, 2, 3), (4, 5), 0.7, 494_000, "chät", "ab12"),
    Exchange((9,), (8,)),
)


def written(path: Path, *exchanges: Exchange, limit: int = 1 << 20, target: str = "t") -> None:
    writer = TrafficWriter(path, target, limit=limit)
    writer.append(exchanges)
    writer.close()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "traffic.jsonl"
    written(path, SOME[0])
    written(path, SOME[1])
    traffic = read(path)
    assert traffic.exchanges == SOME
    assert (traffic.target, traffic.damaged) == ("t", False)
    write(path, SOME[1:], "u")
    assert (read(path).exchanges, read(path).target) == (SOME[1:], "u")


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    written(path, *SOME)
    write(tmp_path / "copy.jsonl", SOME, "t")
    for file in (path, tmp_path / "traffic.jsonl.salt", tmp_path / "copy.jsonl"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_users_are_hashed_with_a_salt_that_stays_beside_the_file(tmp_path: Path) -> None:
    names = []
    for folder in ("a", "a", "b"):
        writer = TrafficWriter(tmp_path / folder / "t", "t", limit=1000)
        names.append(writer.pseudonym("ann@example.com"))
        assert writer.pseudonym("") == ""
        assert writer.pseudonym("bob") != names[-1]
        writer.close()
    assert names[0] == names[1] != names[2]
    assert (tmp_path / "a" / "t.salt").read_bytes() != (tmp_path / "b" / "t.salt").read_bytes()
    assert b"ann" not in (tmp_path / "a" / "t").read_bytes()
    assert (tmp_path / "a" / "t.salt").stat().st_size == 32


def test_a_user_can_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writer = TrafficWriter(path, "t", limit=10_000)
    users = [writer.pseudonym(name) for name in ("ann", "bob", "ann")]
    writer.append(Exchange((n + 1,), (7,), user=user) for n, user in enumerate(users))
    with pytest.raises(InvalidFile, match="another process"):
        forget(path, "ann")
    writer.close()
    assert (forget(path, "ann"), forget(path, "nobody")) == (2, 0)
    assert [exchange.prompt for exchange in read(path).exchanges] == [(2,)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "t.salt").unlink()
    with pytest.raises(InvalidFile, match="no salt"):
        forget(path, "bob")


def test_the_oldest_are_forgotten_and_the_file_stays_small(tmp_path: Path) -> None:
    path, limit = tmp_path / "t", 2000
    writer = TrafficWriter(path, "t", limit=limit)
    for n in range(200):
        assert writer.append([Exchange((n,), (n, n))]) == 0
        assert path.stat().st_size <= limit
    assert writer.append([Exchange(tuple(range(1000)), (1,))]) == 1, "longer than half of the file"
    writer.close()
    kept = [exchange.prompt[0] for exchange in read(path).exchanges]
    assert kept == list(range(kept[0], 200))
    assert len(kept) > 10
    assert read(path).target == "t"


def test_a_line_that_was_broken_off_is_left_out_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path, *SOME)
    whole = path.read_bytes()
    for cut in (1, 5, 30):
        path.write_bytes(whole[:-cut])
        assert read(path).exchanges == SOME[:1] if cut > 1 else SOME
        assert read(path).damaged == (cut > 1)
        written(path, SOME[0])
        assert read(path).exchanges == (SOME[0], SOME[0])
        assert not read(path).damaged


def test_plain_lines_are_read_with_a_tokenizer(tmp_path: Path) -> None:
    def encode(text: str, before: Tokens | None) -> Tokens:
        return (0 if before is None else len(before), *map(ord, text))

    path = tmp_path / "plain.jsonl"
    path.write_text('{"prompt": "a", "output": "b", "x": 1}\n\n{"prompt": [5, 6], "output": [7], "temperature": 1}')
    assert read(path, encode).exchanges == (Exchange((0, 97), (2, 98)), Exchange((5, 6), (7,), 1.0))
    with pytest.raises(InvalidFile, match='line 1: "prompt" is text'):
        read(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[]\n", "not a JSON object"),
        ("{\n{}\n", "line 1: not JSON"),
        ('{"headstart_traffic": 2}\n', "version 2"),
        ('{"prompt": [], "output": [1]}\n', '"prompt"'),
        ('{"prompt": [1], "output": [-1]}\n', '"output"'),
        ('{"prompt": [1], "output": [true]}\n', '"output"'),
        ('{"prompt": [1], "output": [1], "temperature": -1}\n', "temperature"),
        ('{"prompt": [1], "output": [1], "hour": "noon"}\n', "hour"),
    ],
)
def test_what_is_no_traffic_is_refused_by_its_line(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(InvalidFile, match=match):
        read(tmp_path / "t")


def test_a_missing_file_and_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xff\xfe")
    for name in ("t", "nothing"):
        with pytest.raises(InvalidFile, match="cannot read"):
            read(tmp_path / name)


def test_a_writer_refuses_what_is_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path, *SOME)
    with pytest.raises(InvalidFile, match="another model"):
        TrafficWriter(path, "other", limit=1000)
    first = TrafficWriter(path, "t", limit=1000)
    with pytest.raises(InvalidFile, match="another process"):
        TrafficWriter(path, "t", limit=1000)
    first.close()
    for text, match in (("a shopping list\n", "not a file of traffic"), ('{"headstart_traffic": 9}\n', "version 9")):
        (tmp_path / "other").write_text(text)
        with pytest.raises(InvalidFile, match=match):
            TrafficWriter(tmp_path / "other", "t", limit=1000)
        assert (tmp_path / "other").read_text() == text


def test_on_windows_one_process_writes_and_no_open_file_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a lock like Windows', on bytes of a file, and its refusal to replace what is open."""
    locked: dict[int, int] = {}  # by file, which was locked where

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        if os.fstat(descriptor).st_ino in locked:
            raise OSError(36, "deadlock avoided")
        locked[os.fstat(descriptor).st_ino] = os.lseek(descriptor, 0, os.SEEK_CUR)

    def replace(source: str, target: Path, move: Callable[..., None] = os.replace) -> None:
        assert str(target) not in {each.path for each in psutil.Process().open_files()}
        move(source, target)

    monkeypatch.setattr(writer, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2), raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "replace", replace)
    first = TrafficWriter(tmp_path / "t", "t", limit=1000)
    with pytest.raises(InvalidFile, match="another process"):
        TrafficWriter(tmp_path / "t", "t", limit=1000)
    assert min(locked.values()) >= 32, "the salt itself can be read by others"
    name = first.pseudonym("ada")
    for n in range(60):
        first.append([Exchange((n,), (n,))])
    first.close()
    assert 0 < len(read(tmp_path / "t").exchanges) < 60
    locked.clear()
    again = TrafficWriter(tmp_path / "t", "t", limit=1000)
    assert again.pseudonym("ada") == name
    again.close()


def test_the_first_line_says_what_it_is(tmp_path: Path) -> None:
    written(tmp_path / "t")
    assert json.loads((tmp_path / "t").read_text()) == {"headstart_traffic": 1, "target": "t"}
