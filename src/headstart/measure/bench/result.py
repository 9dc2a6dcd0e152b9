"""The result of a bench as a file: JSON of version 1, everything raw in it, figures only as a convenience.

What reads it computes its figures from the runs; "summary" is there for people and other programs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import Field, TypeAdapter, ValidationError

from headstart.base.errors import InvalidFile
from headstart.base.files import write_text
from headstart.base.prompt_sets import words_of_forms
from headstart.measure.bench.records import FAST, PLAIN, PromptRecord, Record, Trial
from headstart.theory import StepCosts

VERSION = 1
KEY = "headstart_bench"
_HINT = "give a file that `headstart bench --json FILE` wrote"


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything a bench found out.

    units: which prompts ran together, by index; one each at batch size 1. trials: both arms of every unit and
    repetition. sweep: trials with PLAIN and fixed K, on some of the units. engine: `Engine.describe()`. settings: what
    was asked for. compared: whether both arms had to write the same text. memory: bytes, None where unknown.
    no_energy: why trials have no joules, or "". complete: False if it was interrupted. provenance: `Provenance`.
    """

    provenance: Mapping[str, Any]
    engine: Mapping[str, Any]
    settings: Mapping[str, Any]
    prompts: tuple[PromptRecord, ...]
    units: tuple[tuple[int, ...], ...]
    trials: Annotated[tuple[Trial, ...], Field(alias="rounds")]
    compared: bool
    sweep: tuple[Trial, ...] = ()
    costs: StepCosts | None = None
    memory: Mapping[str, int | None] = field(default_factory=dict)
    no_energy: str = ""
    complete: bool = True

    def category(self, unit: int) -> str:
        """Of a unit's prompts, which are all of one category."""
        return self.prompts[self.units[unit][0]].category

    @property
    def forms(self) -> str:
        """How the prompts were sent, in words; nothing in older files."""
        return words_of_forms(prompt.form for prompt in self.prompts)

    def record(self, summary: Sequence[Record] = ()) -> Record:
        """As JSON values."""
        values = _ADAPTER.dump_python(self, mode="json", by_alias=True)
        return {KEY: VERSION, **values, "summary": list(summary)}

    def write(self, path: Path, summary: Sequence[Record] = ()) -> Path:
        """Raises `InvalidOption` if the file cannot be written."""
        text = json.dumps(self.record(summary), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return write_text(path, text + "\n", hint="name another file for the result")

    @classmethod
    def read(cls, path: Path) -> BenchResult:
        """Raises `InvalidFile`: not there, not JSON (naming the line), another kind, another version, damaged."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        except OSError as error:
            raise InvalidFile(f"cannot read {path}: {error.strerror}", hint=_HINT) from error
        except json.JSONDecodeError as error:
            hint = "the file is cut off or damaged: bench anew"
            raise InvalidFile(f"{path}, line {error.lineno}: not JSON: {error.msg}", hint=hint) from error
        except ValueError as error:  # not UTF-8, or NaN
            raise InvalidFile(f"{path} is not JSON: {error}", hint=_HINT) from error
        _check_kind(data, path)
        try:
            result = _ADAPTER.validate_python({name: value for name, value in data.items() if name != KEY})
            _check(result)
        except ValueError as error:
            what = _in_words(error) if isinstance(error, ValidationError) else str(error)
            raise InvalidFile(f"{path} is damaged: {what}", hint="bench anew; results are not to be edited") from error
        return result


_ADAPTER = TypeAdapter(BenchResult)


def _in_words(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors()[0]
    *place, name = map(str, first["loc"])
    where = f" in {'.'.join(place)}" if place else ""
    return f"no {name!r}{where}" if first["type"] == "missing" else f"{name}{where}: {first['msg']}"


def _check_kind(data: object, path: Path) -> None:
    if not isinstance(data, dict) or KEY not in data:
        kind = next((key for key in data if key.startswith("headstart_")), "") if isinstance(data, dict) else ""
        other = f" but of {kind.replace('_', ' ')}" if kind else ""
        raise InvalidFile(f"{path} is not the result of a bench{other}", hint=_HINT)
    if data[KEY] != VERSION:
        raise InvalidFile(
            f"{path} is a bench result of version {data[KEY]}, and this headstart reads version {VERSION}",
            hint="bench anew with this headstart, or read it with the one that wrote it",
        )


def _check(result: BenchResult) -> None:
    """Raises ValueError where figures could not be computed of it."""
    for unit in result.units:
        if not unit or not all(0 <= index < len(result.prompts) for index in unit):
            raise ValueError("a unit names a prompt that is not there")
    if not {each.arm for each in result.trials} <= {PLAIN, FAST}:
        raise ValueError("a round has a 'lane' that no bench has")
    for each in (*result.trials, *result.sweep):
        if not 0 <= each.unit < len(result.units):
            raise ValueError("a trial names a unit that is not there")
        if not (math.isfinite(each.seconds) and each.seconds > 0):
            raise ValueError(f"a trial took {each.seconds:g} seconds")
        for run in each.runs:
            if not 0 <= run.prompt < len(result.prompts):
                raise ValueError("a run names a prompt that is not there")
            if len(run.arrivals) != len(run.counts) or len(run.tested) != len(run.kept):
                raise ValueError("lists of a run have different lengths")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
