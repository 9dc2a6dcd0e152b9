"""What can be asked of `headstart simulate --ssd`, as options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict
from headstart.learn.what_if.options import parse_cost, parse_numbers

DEFAULT_K, DEFAULT_FAN_OUT, DEFAULT_ROUNDS = 5, 3, 2000
DEFAULT_HITS = (0.46, 0.68, 0.79, 0.82, 0.85)
DEFAULT_HITS_FULL = (0.88, 0.94, 0.96, 0.98, 0.98)
"""As measured on the bundled pair, greedy (benchmarks/ssd_hits.py): after a rejection, and after a whole draft."""

_ahead = partial(option, panel="Drafting ahead (--ssd; times in steps of the target alone)")


def _whole(flag: str, text: str) -> tuple[int, ...]:
    found = parse_numbers(flag, text, "3 or 4,3,2,2,2,6")
    if any(one != int(one) for one in found):
        raise InvalidOption(f"{flag}: {text!r} are not whole numbers", hint="for example 3 or 4,3,2,2,2,6")
    return tuple(int(one) for one in found)


@strict
@dataclass(frozen=True, slots=True)
class SsdQuestion:
    """A question about drafting ahead, beside alpha, K, c, verify_cost and one batch size of `Question`.

    What is left out takes a default where it is needed. Ranges are checked where the numbers are used.
    """

    placement: str | None = _ahead(
        None, "Show one of the placements in detail, by its name or a part of it, instead of your own figures."
    )
    fan_out: Sequence[int] = _ahead(
        (), f"Foreseen bonus tokens after each number of accepted tokens: one number, or K + 1. "
        f"Default: {DEFAULT_FAN_OUT}.",
        metavar="F,...", kind=str, parse=partial(_whole, "--fan-out"),
    )  # fmt: skip
    hits: Sequence[float] = _ahead(
        (), "Hit rate by fan-out: the share of bonus tokens among the first 1, 2, 3, ... that the draft finds likely. "
        "Default: that of the bundled pair, greedy.",
        metavar="H1,H2,...", kind=str, parse=partial(parse_numbers, "--hits", example="0.5,0.7,0.8"),
    )  # fmt: skip
    hits_full: Sequence[float] = _ahead(
        (), "The same where the whole draft was accepted. Default: as --hits.",
        metavar="H1,H2,...", kind=str, parse=partial(parse_numbers, "--hits-full", example="0.8,0.9,0.95"),
    )  # fmt: skip
    draft_costs: Mapping[int, float] | None = _ahead(
        None, "A forward of the drafter by rows, one row for each foreseen outcome, as in '1:0.1,24:0.2'. Default: "
        "--c, however many rows.",
        metavar="ROWS:COST,...", kind=str, parse=partial(parse_cost, "--draft-costs", example="1:0.1,24:0.2"),
    )  # fmt: skip
    hand_over: float | None = _ahead(None, "Telling the drafter the outcome, and fetching a draft. Default: 0.", low=0)
    slow: float | None = _ahead(
        None, "How much longer a verification takes while the drafter works too, as a share: 0 on hardware of its own. "
        "Default: 0.",
        low=0,
    )  # fmt: skip
    draft_slow: float | None = _ahead(None, "The same for the drafter. Default: as --slow.", low=0)
    split: bool = _ahead(
        False, "The machine is divided for good (cores), so that both are slow all the time.", "--split"
    )
    jitter: float | None = _ahead(None, "How much verifications vary: standard deviation over mean. Default: 0.", low=0)
    late: Literal["serve", "finish", "wait"] = _ahead(
        "serve", "A verification ends before the drafts are ready: serve what is ready, finish the wanted one, or wait "
        "for all."
    )  # fmt: skip
    drafted: Literal["all", "missed", "nothing"] = _ahead(
        "missed", "Some requests of a batch missed: draft for all of them again, for the missed ones, or for none."
    )
    plain_ms: float | None = _ahead(None, "Milliseconds of a plain step, to print times and tokens/s.", above=0)
    rounds: int = _ahead(DEFAULT_ROUNDS, "Rounds that are simulated.", low=10)
    seed: int = _ahead(0, "Seed of the simulation.", low=0)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the fields that differ from their default."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) != each.default)
