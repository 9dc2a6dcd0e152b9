"""A check that fails keeps an engine out, and says what it found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleets import fake_export, fake_installation, free_port

from headstart.base.errors import CheckFailed
from headstart.fleet.launch.checks import CheckOptions, Checks, smoke
from headstart.fleet.launch.fleet import Fleet

NEITHER = CheckOptions(parity=False, audit=False)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    checks = Checks(NEITHER)
    with Fleet.start(
        fake_export(tmp_path / "out"), fake_installation(tmp_path / "env"), engines=1, port=free_port(), timeout=30,
        admit=checks.admit,
    ) as fleet:  # fmt: skip
        yield fleet


def test_engines_must_write_the_same_text(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks(NEITHER)
    checks.admit(fleet.engines[0])
    checks.through_router(fleet)
    assert checks.lines == ["answers: one greedy text, the same from engine-0, and through the router"]
    old = fleet.engines[0]
    monkeypatch.setenv("FAKE_VLLM", "text=other")
    with pytest.raises(CheckFailed, match="engine-0-2 writes other greedy text than the engine before it: ' other0"):
        fleet.replace(0, old.served.folder)
    assert fleet.engines[0] is old
    assert smoke(fleet.url, "fake").startswith(" word0")


def test_what_is_no_completion_is_refused(fleet: Fleet) -> None:
    with pytest.raises(CheckFailed, match="answered 404"):
        smoke(f"{fleet.url}/nothing", "fake")
    fleet.stop()
    with pytest.raises(CheckFailed, match="does not answer"):
        smoke(fleet.url, "fake")
