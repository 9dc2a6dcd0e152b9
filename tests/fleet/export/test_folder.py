"""A folder is written as a whole or not at all, and nothing of the user's is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.base.errors import InvalidOption
from headstart.fleet.export.folder import hashes, whole_folder


def write(path: Path, text: str = "new", *, force: bool = False) -> None:
    with whole_folder(path, force=force) as fresh:
        (fresh / "manifest.json").write_text(text)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_a_new_folder_and_its_parents(tmp_path: Path) -> None:
    write(tmp_path / "a" / "out")
    assert names(tmp_path / "a") == {"out"}
    assert (tmp_path / "a" / "out").stat().st_mode & 0o055


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out")
    assert names(tmp_path / "out") == {"manifest.json"}


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")

    def fail() -> None:
        with whole_folder(tmp_path / "out", force=True) as fresh:
            (fresh / "manifest.json").write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(tmp_path) == {"out"}
    assert (tmp_path / "out" / "manifest.json").read_text() == "old"


def test_a_full_folder_is_refused_without_force(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    with pytest.raises(InvalidOption, match="not empty"):
        write(tmp_path / "out")
    write(tmp_path / "out", force=True)
    assert (tmp_path / "out" / "manifest.json").read_text() == "new"
    assert names(tmp_path) == {"out"}


def test_force_replaces_exports_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InvalidOption, match="no export"):
        write(tmp_path, force=True)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_what_the_user_put_there_stays_and_old_parts_go(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    (out / "drafter").mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "logs").mkdir()
    (out / "logs" / "engine-1.log").write_text("log")
    write(out, force=True)
    assert names(out) == {"manifest.json", "notes.txt", "logs"}
    assert (out / "logs" / "engine-1.log").read_text() == "log"


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    if kind == "file":
        path.write_text("mine")
    else:
        (tmp_path / "there").mkdir()
        path.symlink_to(tmp_path / "there")
    with pytest.raises(InvalidOption, match="no folder"):
        write(path, force=True)


def test_hashes_are_of_contents(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".hidden.json").write_text("{}")
    (tmp_path / "picture.png").write_text("")
    assert hashes(tmp_path) == {"config.json": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}
