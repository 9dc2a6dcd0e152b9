"""The result of a bench as a file: JSON of version 1, everything raw in it, figures only as a convenience.

What reads it computes its figures from the runs; "summary" is there for people and other programs. Nothing here
imports torch: a result is read on a machine that has no model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from headstart.base.errors import InvalidFile
from headstart.base.files import write_text
from headstart.base.prompt_sets import words_of_forms
from headstart.theory import StepCosts

PLAIN, FAST = "plain", "speculative"
"""The two arms of every bench. A sweep has arms "K=1", "K=2", ... beside PLAIN."""


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """A prompt: its name and category, its length in tokens, and a hash by which two results know it again.

    text: only with `keep_texts`. form: how it was sent, see `headstart.base.prompt_sets`; "" in older files.
    """

    name: str
    category: str
    tokens: int
    digest: str
    text: str | list[int] | None = None
    form: str = ""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What one drafter did in a run: how often it drafted, with how many nodes and levels, and what was accepted."""

    drafts: int
    nodes: int
    depth: int
    accepted: int

    def __add__(self, other: SourceRecord) -> SourceRecord:
        return SourceRecord(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def added(records: Iterable[tuple[str, SourceRecord]]) -> dict[str, SourceRecord]:
    """The sum of each source's records, by its name."""
    found: dict[str, SourceRecord] = {}
    for name, each in records:
        found[name] = found[name] + each if name in found else each
    return found


def _named_as_today(parts: Any) -> Any:
    """Older files name planning "commit" and sampling "law", and have no time of the commit."""
    if not isinstance(parts, dict) or "law" not in parts:
        return parts
    rest = {name: seconds for name, seconds in parts.items() if name not in ("law", "commit")}
    return {"plan": parts.get("commit", 0.0), **rest, "sample": parts["law"], "commit": 0.0}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One request. Times are seconds from its submission.

    arrivals, counts: when each chunk with tokens came, and how many there were. seconds: to the last token. forwards:
    target forwards that judged one of its positions. tested[i], kept[i]: how often position i+1 was judged with all
    before it accepted, and how often it was accepted then (`Stats.drafted_per_position`). parts: its share of each
    step's seconds, by part (`Seconds`). chains: whether every draft was one. on, reason: whether speculation was
    running at the end, and if not, why not. differs_at: the first token that is not the plain run's of the same prompt
    and repetition; None where all are the same, or where they need not be. text: only with `keep_texts`.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    prompt: int
    seconds: float
    arrivals: tuple[float, ...]
    counts: tuple[int, ...]
    forwards: int
    prefills: int
    drafted: int
    accepted: int
    tested: tuple[int, ...]
    kept: tuple[int, ...]
    parts: Annotated[Mapping[str, float], BeforeValidator(_named_as_today)]
    sources: Mapping[str, SourceRecord]
    chains: bool
    finish_reason: str
    on: bool
    drafter: str
    reason: str
    differs_at: int | None = None
    text: str | None = None

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    @property
    def first(self) -> float:
        """Seconds to the first token; to the end where there was none."""
        return self.arrivals[0] if self.arrivals else self.seconds

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between one chunk and the next."""
        return tuple(later - sooner for sooner, later in zip(self.arrivals, self.arrivals[1:], strict=False))

    @property
    def seconds_per_token(self) -> float | None:
        """Time per output token after the first chunk; None where there is no token after it."""
        rest = self.tokens - self.counts[0] if self.counts else 0
        return (self.arrivals[-1] - self.arrivals[0]) / rest if rest else None


@dataclass(frozen=True, slots=True)
class Trial:
    """A unit of prompts (one, or a batch) once through one arm. seconds: wall clock, from the first submission to the
    last token, everything in it. joules: of the whole machine meanwhile, None where it does not tell."""

    arm: Annotated[str, Field(alias="lane")]
    unit: int
    repetition: int
    seconds: float
    runs: tuple[RunRecord, ...]
    joules: float | None = None

    @property
    def tokens(self) -> int:
        return sum(run.tokens for run in self.runs)


Record = dict[str, Any]
"""A JSON object."""


VERSION = 1
KEY = "headstart_bench"
_AGAIN = "run the bench again; results are not to be edited"
_HINT = "give a file that `headstart bench --output FILE` wrote"


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything a bench found out.

    units: which prompts ran together, by index; one each at batch size 1. trials: both arms of every unit and
    repetition. sweep: trials with PLAIN and fixed K, on some of the units. engine: `Engine.describe()`. settings: what
    the user named. compared: whether both arms had to write the same text. memory: bytes, None where unknown.
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
            hint = "the file is cut off or damaged: run the bench again"
            raise InvalidFile(f"{path}, line {error.lineno}: not JSON: {error.msg}", hint=hint) from error
        except ValueError as error:  # not UTF-8, or NaN
            raise InvalidFile(f"{path} is not JSON: {error}", hint=_HINT) from error
        _check_kind(data, path)
        try:
            result = _ADAPTER.validate_python({name: value for name, value in data.items() if name != KEY})
            _check(result)
        except ValueError as error:
            what = _in_words(error) if isinstance(error, ValidationError) else str(error)
            raise InvalidFile(f"{path} is damaged: {what}", hint=_AGAIN) from error
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
            hint="run the bench again with this headstart, or read it with the one that wrote it",
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
