"""What can be asked of `headstart simulate`, as options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict

DEFAULT_ALPHA, DEFAULT_C = 0.7, 0.1
MOST = 16
"""The longest draft considered by default."""
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def _number(flag: str, text: str, example: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidOption(f"{flag}: {text!r} is not a number", hint=f"for example {example}") from None


def parse_numbers(flag: str, text: str, example: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(_number(flag, part, example) for part in text.split(","))


def parse_cost(flag: str, text: str, example: str) -> dict[int, float]:
    """ROWS:COST,... as {rows: cost}."""
    costs: dict[int, float] = {}
    for part in text.split(","):
        rows, colon, cost = part.partition(":")
        if not colon or not rows.strip().isdecimal():
            raise InvalidOption(f"{flag}: {part!r} is not ROWS:COST", hint=f"for example {example}")
        costs[int(rows)] = _number(flag, cost, example)
    return costs


def _parse_size(flag: str, text: str) -> float:
    """A number, which K, M, B or T may follow."""
    unit = text.strip()[-1:].upper()
    digits = text.strip()[:-1] if unit in _UNITS else text
    return _number(flag, digits, "7B, 350M or 7e9") * _UNITS.get(unit, 1.0)


_pair = partial(option, panel="Draft and target")
_machine = partial(option, panel="Machine (gives c and v(n) at each batch size)")


@strict
@dataclass(frozen=True, slots=True)
class Question:
    """A question to the formulas, for `ask`. A machine's figures replace c and verify_cost.

    What is left out takes a default where it is needed. Ranges are checked where the numbers are used.
    """

    alpha: Sequence[float] = _pair(
        (), f"Share of the draft tokens that are accepted. Default: {DEFAULT_ALPHA}.", "-a", metavar="A"
    )
    by_position: Sequence[float] = _pair(
        (), "Instead of --alpha: the acceptance at each position, given that all before it were accepted, as "
        "`headstart bench` reports it.",
        metavar="A1,A2,...", kind=str, parse=partial(parse_numbers, "--by-position", example="0.9,0.85,0.8"),
    )  # fmt: skip
    k: int | None = _pair(None, "Draft length. Default: the best one.", "-k")
    c: float | None = _pair(
        None, f"Time of a draft step relative to a step of the target alone. Default: {DEFAULT_C}.", "-c", metavar="C"
    )
    verify_cost: Mapping[int, float] | None = _pair(
        None, "v(n): what a target forward over several rows costs, relative to one row, as in '1:1,8:1.2,16:1.6'. "
        "Default: always the same.",
        metavar="ROWS:COST,...", kind=str, parse=partial(parse_cost, "--verify-cost", example="1:1,8:1.2,16:1.6"),
    )  # fmt: skip
    most: int | None = _pair(None, f"The longest draft considered. Default: {MOST}.")
    temperature: Sequence[float] = _pair(
        (), "What this temperature would make of alpha, shown on a toy pair with --alpha at temperature 1.",
        "-T", metavar="T",
    )  # fmt: skip
    batch: Sequence[int] = _machine((), "Requests in a batch.", "-b")
    bandwidth: float | None = _machine(None, "Memory read per second.", metavar="GB/S")
    flops: float | None = _machine(None, "Arithmetic per second.", metavar="TFLOP/S")
    parameters: float | None = _machine(
        None, "Parameters of the target, as in 8B or 350M.",
        metavar="N", kind=str, parse=partial(_parse_size, "--parameters"),
    )  # fmt: skip
    draft_parameters: float | None = _machine(
        None, "Parameters of the draft model; gives c in place of --c.",
        metavar="N", kind=str, parse=partial(_parse_size, "--draft-parameters"),
    )  # fmt: skip
    bytes_per_weight: float | None = _machine(None, "1 for int8. Default: 2, as in bf16.", metavar="N")
    kv_bytes_per_token: float | None = _machine(
        None, "Size of the target's cache: 2 x layers x KV heads x head size x bytes. Default: 0.", metavar="N"
    )
    context: float | None = _machine(None, "Cached tokens of each request. Default: 0.", metavar="N")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the fields that were given."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) not in (None, ()))
