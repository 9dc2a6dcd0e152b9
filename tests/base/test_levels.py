"""The table of levels: what they ask for, which are chosen for a processor, and forcing one."""

from __future__ import annotations

import itertools
import sys
from typing import get_args

import pytest

from headstart.base import levels
from headstart.base.errors import InvalidOption
from headstart.base.levels import LEVELS, LevelName, levels_of, usable, wanted

HASWELL = ("avx2", "fma", "f16c", "bmi", "bmi2")
SKYLAKE_X = (*HASWELL, "avx512f", "avx512dq", "avx512bw", "avx512vl")  # no VNNI
CASCADE_LAKE = (*SKYLAKE_X, "avx512vnni")
SAPPHIRE_RAPIDS = (*CASCADE_LAKE, "avxvnni", "avx512bf16", "amx-tile", "amx-int8", "amx-bf16")
PROCESSORS = {
    "a Nehalem": ("x86_64", (), "generic"),
    "a Haswell": ("x86_64", HASWELL, "avx2"),
    "one whose system keeps no wide registers": ("x86_64", ("bmi", "bmi2"), "generic"),
    "an Alder Lake": ("x86_64", (*HASWELL, "avxvnni"), "avx-vnni"),
    "a Skylake-X": ("x86_64", SKYLAKE_X, "avx2"),
    "a Cascade Lake": ("x86_64", CASCADE_LAKE, "avx512"),
    "a Zen 4": ("x86_64", (*CASCADE_LAKE, "avx512bf16"), "avx512-bf16"),
    "a Sapphire Rapids": ("x86_64", SAPPHIRE_RAPIDS, "amx"),
    "one in a virtual machine without tiles": ("x86_64", SAPPHIRE_RAPIDS[:-3], "avx512-bf16"),
    "a Pi 4": ("aarch64", (), "neon"),
    "a Graviton 2": ("aarch64", ("fp16", "dotprod"), "dotprod"),
    "a Graviton 3": ("aarch64", ("fp16", "dotprod", "sve", "i8mm", "bf16"), "i8mm"),
    "another": ("riscv64", (), "generic"),
}


@pytest.fixture(autouse=True)
def _nothing_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(levels.VARIABLE, raising=False)
    monkeypatch.setattr(levels, "_forced", None)


@pytest.mark.parametrize("name", PROCESSORS)
def test_the_level_of_a_processor(name: str) -> None:
    architecture, features, best = PROCESSORS[name]
    here = usable(features, architecture)
    assert (here[0].name, here[-1].name) == (best, "generic")
    assert list(wanted(features, architecture, None)) == list(here)


def test_the_table() -> None:
    assert {level.name for level in LEVELS} == set(get_args(LevelName))
    for architecture in ("x86_64", "aarch64"):
        own = levels_of(architecture)
        for better, worse in itertools.pairwise(own):
            assert not set(better.needs) < set(worse.needs), "the best first"
        assert {level.architecture for level in own} == {architecture}
        assert all(level.flags[0].startswith("-march=") for level in own), "whatever a compiler takes by itself"
    assert [level.name for level in levels_of("riscv64")] == ["generic"]


@pytest.mark.parametrize("level", levels_of("x86_64"), ids=lambda level: level.name)
def test_nothing_is_compiled_that_was_not_asked_after(level: levels.Level) -> None:
    of_the_processor = [flag for flag in level.flags if flag.startswith("-m")]
    told = {flag.removeprefix("-m") for flag in of_the_processor if not flag.startswith(("-march=", "-mprefer-"))}
    assert told == set(level.needs)
    assert level.flags[0] == "-march=x86-64"


@pytest.mark.parametrize("level", levels_of("aarch64"), ids=lambda level: level.name)
def test_nor_on_arm(level: levels.Level) -> None:
    told = {name for flag in level.flags for name in flag.split("+")[1:]}
    assert told == set(level.needs)


@pytest.mark.parametrize("by", ["the environment", "a call"])
def test_a_forced_level_is_the_only_one(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "a call":
        monkeypatch.setenv(levels.VARIABLE, "generic")
        levels.force("avx2")
    else:
        monkeypatch.setenv(levels.VARIABLE, "avx2")
    assert levels.forced() == "avx2"
    assert [level.name for level in wanted(SAPPHIRE_RAPIDS, "x86_64", levels.forced())] == ["avx2"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("amx", "this processor cannot run the level 'amx': it lacks .*amx-tile"),
        ("neon", "the level 'neon' is of another architecture"),
        ("sse9", "the level 'sse9' is not known"),
    ],
)
def test_a_level_that_is_not_there_is_an_error_that_names_those_that_are(name: str, says: str) -> None:
    with pytest.raises(InvalidOption, match=says) as caught:
        wanted(CASCADE_LAKE, "x86_64", name)
    assert caught.value.hint == "here there are: avx512, avx2, generic"


@pytest.mark.parametrize(("python", "found"), [("win-amd64", "x86_64"), ("win-arm64", "aarch64")])
def test_on_windows_the_architecture_is_that_of_python(
    python: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ARM processor runs it in either, and the system names itself."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(levels.platform, "machine", lambda: "ARM64")
    monkeypatch.setattr(levels.sysconfig, "get_platform", lambda: python)
    assert levels.architecture() == found
