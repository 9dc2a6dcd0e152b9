"""The result of a bench as a file: JSON of version 1, everything raw in it, figures only as a convenience.

What reads it computes its figures from the runs; "summary" is there for people and other programs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from headstart.errors import InvalidFile, InvalidOption
from headstart.insight.bench.records import (
    FAST,
    PLAIN,
    PromptRecord,
    Record,
    Round,
    RunRecord,
    SourceRecord,
)
from headstart.theory import DraftCost, StepCosts

VERSION = 1
KEY = "headstart_bench"


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything a bench found out.

    units: which prompts ran together, by index; one each at batch size 1. rounds: both lanes of every unit and
    repetition. sweep: rounds with PLAIN and fixed K, on some of the units. engine: `Engine.describe()`. settings: what
    was asked for. compared: whether both lanes had to write the same text. memory: bytes, None where unknown.
    no_energy: why rounds have no joules, or "". complete: False if it was interrupted. provenance: `Provenance`.
    """

    provenance: Mapping[str, Any]
    engine: Mapping[str, Any]
    settings: Mapping[str, Any]
    prompts: tuple[PromptRecord, ...]
    units: tuple[tuple[int, ...], ...]
    rounds: tuple[Round, ...]
    compared: bool
    sweep: tuple[Round, ...] = ()
    costs: StepCosts | None = None
    memory: Mapping[str, int | None] = field(default_factory=dict)
    no_energy: str = ""
    complete: bool = True

    def category(self, unit: int) -> str:
        """Of a unit's prompts, which are all of one category."""
        return self.prompts[self.units[unit][0]].category

    def record(self, summary: Sequence[Record] = ()) -> Record:
        """As JSON values."""
        return {KEY: VERSION, **asdict(self), "summary": list(summary)}

    def write(self, path: Path, summary: Sequence[Record] = ()) -> Path:
        """Raises `InvalidOption` if the file cannot be written."""
        text = json.dumps(self.record(summary), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            reason = error.strerror or error
            raise InvalidOption(f"cannot write {path}: {reason}", hint="name another file for the result") from error
        return path

    @classmethod
    def read(cls, path: Path) -> BenchResult:
        """Raises `InvalidFile`: not there, not JSON (naming the line), another kind, another version, damaged."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        except OSError as error:
            raise InvalidFile(
                f"cannot read {path}: {error.strerror}", hint="give a file that `headstart bench --json FILE` wrote"
            ) from error
        except json.JSONDecodeError as error:
            raise InvalidFile(
                f"{path}, line {error.lineno}: not JSON: {error.msg}", hint="the file is cut off or damaged: bench anew"
            ) from error
        except ValueError as error:  # not UTF-8, or NaN
            raise InvalidFile(
                f"{path} is not JSON: {error}", hint="give a file that `headstart bench --json FILE` wrote"
            ) from error
        _check_kind(data, path)
        try:
            result = _from_record(data)
            _check(result)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InvalidFile(f"{path} is damaged: {what}", hint="bench anew; results are not to be edited") from error
        return result


def _check_kind(data: object, path: Path) -> None:
    if not isinstance(data, dict) or KEY not in data:
        kind = next((key for key in data if key.startswith("headstart_")), "") if isinstance(data, dict) else ""
        raise InvalidFile(
            f"{path} is not the result of a bench" + (f" but of {kind.replace('_', ' ')}" if kind else ""),
            hint="give a file that `headstart bench --json FILE` wrote",
        )
    if data[KEY] != VERSION:
        raise InvalidFile(
            f"{path} is a bench result of version {data[KEY]}, and this headstart reads version {VERSION}",
            hint="bench anew with this headstart, or read it with the one that wrote it",
        )


def _from_record(data: Record) -> BenchResult:
    costs = data["costs"]
    return BenchResult(
        provenance=dict(data["provenance"]),
        engine=dict(data["engine"]),
        settings=dict(data["settings"]),
        prompts=tuple(PromptRecord(**each) for each in data["prompts"]),
        units=tuple(tuple(unit) for unit in data["units"]),
        rounds=tuple(map(_round, data["rounds"])),
        compared=bool(data["compared"]),
        sweep=tuple(map(_round, data["sweep"])),
        costs=None
        if costs is None
        else StepCosts(
            tuple((int(n), float(seconds)) for n, seconds in costs["rows"]),
            drafts={name: DraftCost(**cost) for name, cost in costs["drafts"].items()},
        ),
        memory=dict(data["memory"]),
        no_energy=str(data["no_energy"]),
        complete=bool(data["complete"]),
    )


def _round(data: Record) -> Round:
    return Round(**{**data, "runs": tuple(map(_run, data["runs"]))})


def _run(data: Record) -> RunRecord:
    lists = {name: tuple(data[name]) for name in ("arrivals", "counts", "tested", "kept")}
    sources = {name: SourceRecord(**source) for name, source in data["sources"].items()}
    return RunRecord(**{**data, **lists, "sources": sources})


def _check(result: BenchResult) -> None:
    """Raises ValueError where figures could not be computed of it."""
    for unit in result.units:
        if not unit or not all(0 <= index < len(result.prompts) for index in unit):
            raise ValueError("a unit names a prompt that is not there")
    if not {each.lane for each in result.rounds} <= {PLAIN, FAST}:
        raise ValueError("a round is of a lane that no bench has")
    for each in (*result.rounds, *result.sweep):
        if not 0 <= each.unit < len(result.units):
            raise ValueError("a round names a unit that is not there")
        if not (isinstance(each.seconds, int | float) and math.isfinite(each.seconds) and each.seconds > 0):
            raise ValueError(f"a round took {each.seconds} seconds")
        for run in each.runs:
            if not 0 <= run.prompt < len(result.prompts):
                raise ValueError("a run names a prompt that is not there")
            if len(run.arrivals) != len(run.counts) or len(run.tested) != len(run.kept):
                raise ValueError("lists of a run have different lengths")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
