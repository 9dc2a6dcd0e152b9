"""The options of an examination: what is looked at, for how long, and what is measured and kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, check_number, option, strict

_option = partial(option, panel="Examination")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What to look at, and for how long. What was not measured end to end is never kept."""

    given: tuple[str, ...] = _option(
        (), "A drafter to examine, as in 'generate'; with commas, a list of them. N-gram, suffix "
        "and early exit are always examined, and so are the drafters that come with the bundled target.",
        "--drafter", "-d", "--draft-model", metavar="DRAFTER", parse=tuple,
    )  # fmt: skip
    scan: Path | None = _option(None, "Look for drafters in the models below DIR.", metavar="DIR")
    seconds: float = _option(
        60.0, "About how many seconds the examination may take. Measuring the best three takes as long again."
    )
    measure: bool = _option(
        True, "Measure the three best predictions end to end, in turn with the target alone. Only what was measured is "
        "kept.", "--measure/--no-measure",
    )  # fmt: skip
    measure_all: bool = _option(
        False, "Measure every candidate end to end, not only the best three. This takes longer."
    )
    keep: bool = _option(
        True, "Remember what was measured: '--drafter auto' then follows it for this target.", "--keep/--no-keep"
    )

    def __post_init__(self) -> None:
        check_number("--seconds", self.seconds, above=0)
        check_fields(self)
        if self.measure_all and not self.measure:
            raise InvalidOption("--measure-all and --no-measure exclude each other", hint="leave out --no-measure")
