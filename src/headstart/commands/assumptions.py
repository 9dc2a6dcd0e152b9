"""What the options of `headstart simulate` say, as acceptances, costs or a machine.

Refused here: numbers that are none, and options that contradict each other or lack their companions. Ranges are checked
where the numbers are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headstart.errors import InvalidOption
from headstart.insight.what_if import Deployment
from headstart.theory import Machine, Model, StepCosts

_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def acceptances(alphas: list[float] | None, positions: str | None, *, asks_more: bool) -> list[list[float]]:
    """What --alpha or --by-position says; nothing where neither is given. asks_more: of batches or temperatures."""
    if positions is None:
        return [[alpha] for alpha in alphas or ()]
    if alphas:
        raise InvalidOption("--alpha and --by-position exclude each other", hint="give one of them")
    if asks_more:
        raise InvalidOption(
            "--temperature and --batch ask about one alpha, not about positions", hint="give --alpha instead"
        )
    return [[_number("--by-position", part, "0.9,0.85,0.8") for part in positions.split(",")]]


def costs_of(
    figures: Mapping[str, Any], c: float | None, verify_cost: str | None, *, default_c: float
) -> StepCosts | Deployment:
    """figures: options of the machine and its models by name, None where they were not given."""
    if any(value is not None for value in figures.values()):
        return _deployment(figures, c, verify_cost, default_c)
    v = None if verify_cost is None else _parse_cost(verify_cost)
    return StepCosts.in_plain_steps(default_c if c is None else c, v)


def _parse_cost(text: str) -> dict[int, float]:
    example = "1:1,8:1.2,16:1.6"
    costs: dict[int, float] = {}
    for part in text.split(","):
        rows, colon, cost = part.partition(":")
        if not colon or not rows.strip().isdecimal():
            raise InvalidOption(f"--verify-cost: {part!r} is not ROWS:COST", hint=f"for example {example}")
        costs[int(rows)] = _number("--verify-cost", cost, example)
    return costs


def _deployment(figures: Mapping[str, Any], c: float | None, verify_cost: str | None, default_c: float) -> Deployment:
    """A machine and its models; c and v(n) come from these, so they must not be given as well."""
    missing = [name for name in ("--bandwidth", "--flops", "--parameters") if figures[name] is None]
    given = next(name for name, value in figures.items() if value is not None)
    if missing:
        raise InvalidOption(
            f"{given} needs {' and '.join(missing)} too", hint="a machine's figures give c and v(n) at each batch size"
        )
    if verify_cost is not None:
        raise InvalidOption(
            "--verify-cost and a machine exclude each other", hint="the machine's figures say what more rows cost"
        )
    small = figures["--draft-parameters"]
    if small is not None and c is not None:
        raise InvalidOption("--c and --draft-parameters exclude each other", hint="the draft's size gives c")
    width = figures["--bytes-per-weight"]
    weight = 2.0 if width is None else width
    draft: Model | float = default_c if c is None else c
    if small is not None:
        draft = Model(_amount("--draft-parameters", small), weight)
    target = Model(_amount("--parameters", figures["--parameters"]), weight, figures["--kv-bytes-per-token"] or 0.0)
    machine = Machine(figures["--bandwidth"] * 1e9, figures["--flops"] * 1e12)
    return Deployment(machine, target, draft, figures["--context"] or 0.0)


def _amount(option: str, text: str) -> float:
    """A number with K, M, B or T behind it, or none."""
    unit = text.strip()[-1:].upper()
    digits = text.strip()[:-1] if unit in _UNITS else text
    return _number(option, digits, "7B, 350M or 7e9") * _UNITS.get(unit, 1.0)


def _number(option: str, text: str, example: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidOption(f"{option}: {text!r} is not a number", hint=f"for example {example}") from None
