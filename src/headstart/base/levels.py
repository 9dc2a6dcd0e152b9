"""What processors can do, in levels: the sources are compiled once for each, and the best that is here is chosen.

A level asks for features of the processor, and its library is compiled with exactly these, so that it holds no
instruction that was not asked after. `cpu.cpp` says which features there are.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from headstart.base.errors import InvalidOption

VARIABLE = "HEADSTART_LEVEL"
"""The environment variable that forces a level."""

LevelName = Literal[
    "generic", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx", "neon", "dotprod", "i8mm"
]  # fmt: skip

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class Level:
    """A set of features that processors have together."""

    name: LevelName
    architecture: str
    """As `architecture()` names it; empty for any."""
    needs: tuple[str, ...]
    """Features of the processor, in GCC's names."""
    flags: tuple[str, ...]
    """What GCC and clang are told."""


def _x86(name: LevelName, needs: tuple[str, ...], *flags: str) -> Level:
    return Level(name, "x86_64", needs, ("-march=x86-64", *(f"-m{each}" for each in needs), *flags))


def _arm(name: LevelName, needs: tuple[str, ...], march: str) -> Level:
    return Level(name, "aarch64", needs, (f"-march={march}",))


_AVX2 = ("avx2", "fma", "f16c", "bmi", "bmi2")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni")
_AMX = (*_AVX512, "avx512bf16", "amx-tile", "amx-int8", "amx-bf16")
_WIDE = "-mprefer-vector-width=512"  # GCC's own choice for such processors is half as wide

_PLAIN = "-DHEADSTART_GENERIC"  # no vectors, which AArch64 has without being told

LEVELS: tuple[Level, ...] = (
    _x86("amx", _AMX, _WIDE),
    _x86("avx512-bf16", (*_AVX512, "avx512bf16"), _WIDE),
    _x86("avx512", _AVX512, _WIDE),
    _x86("avx-vnni", (*_AVX2, "avxvnni")),
    _x86("avx2", _AVX2),
    _arm("i8mm", ("dotprod", "fp16", "i8mm", "bf16"), "armv8.2-a+dotprod+fp16+i8mm+bf16"),
    _arm("dotprod", ("dotprod", "fp16"), "armv8.2-a+dotprod+fp16"),
    _arm("neon", (), "armv8-a"),
    Level("generic", "x86_64", (), ("-march=x86-64", _PLAIN)),
    Level("generic", "aarch64", (), ("-march=armv8-a", _PLAIN)),
    Level("generic", "", (), (_PLAIN,)),
)
"""All levels, the best first. Each says which processors it is for, since the compilers of some systems take others by
themselves."""


def architecture() -> str:
    """That of this process, in one spelling: "x86_64", "aarch64", or as the system says."""
    of_python = sysconfig.get_platform().removeprefix("win-")  # Windows runs programs of another one, and names its own
    machine = (of_python if sys.platform == "win32" else platform.machine()).lower()
    return _ARCHITECTURES.get(machine, machine)


def levels_of(architecture: str) -> tuple[Level, ...]:
    """The levels of an architecture, the best first."""
    own = [level for level in LEVELS if level.architecture == architecture]
    names = {level.name for level in own}
    return (*own, *(level for level in LEVELS if not level.architecture and level.name not in names))


def usable(features: Collection[str], of: str) -> tuple[Level, ...]:
    """The levels whose features are all there, the best first."""
    return tuple(level for level in levels_of(of) if set(level.needs) <= set(features))


_forced: str | None = None


def force(name: str | None) -> str | None:
    """From now on, this level alone is taken, before what the environment variable says; None takes that back.

    It holds for libraries that are loaded later. Returns what was forced before.
    """
    global _forced
    before, _forced = _forced, name
    return before


def forced() -> str | None:
    """The level that is forced, if one is."""
    return _forced or os.environ.get(VARIABLE) or None


def forced_by_call() -> str | None:
    """The same, whatever the environment says."""
    return _forced


def wanted(features: Collection[str], of: str, name: str | None) -> Sequence[Level]:
    """The levels to try on a processor, the best first; where one is named, that one alone.

    Raises:
        InvalidOption: it does not exist, or the processor has not what it needs.
    """
    here = usable(features, of)
    if name is None:
        return here
    for level in here:
        if level.name == name:
            return (level,)
    hint = f"here there are: {', '.join(level.name for level in here)}"
    for level in LEVELS:
        if level.name == name and level.architecture == of:
            lacking = ", ".join(each for each in level.needs if each not in features)
            raise InvalidOption(f"this processor cannot run the level {name!r}: it lacks {lacking}", hint=hint)
    known = "of another architecture" if name in {level.name for level in LEVELS} else "not known"
    raise InvalidOption(f"the level {name!r} is {known}", hint=hint)
