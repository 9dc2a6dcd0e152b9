"""What can be asked of `headstart simulate`, with `--ssd` and without, as options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict

DEFAULT_ALPHA, DEFAULT_C = 0.7, 0.1
MOST = 16
"""The longest draft considered by default."""
DEFAULT_ALIKE = 0.45
"""That of `headstart.theory.mixture`, which is not loaded for this."""
DEFAULT_EXPERT_SHARE = 0.6
"""As in Qwen3-30B-A3B, counted in numbers."""
DEFAULT_K, DEFAULT_FAN_OUT, DEFAULT_ROUNDS = 5, 3, 2000
DEFAULT_HITS = (0.46, 0.68, 0.79, 0.82, 0.85)
DEFAULT_HITS_FULL = (0.88, 0.94, 0.96, 0.98, 0.98)
"""As measured on the bundled pair, greedy (benchmarks/ssd_hits.py): after a rejection, and after a whole draft."""
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


def _whole(flag: str, text: str) -> tuple[int, ...]:
    found = parse_numbers(flag, text, "3 or 4,3,2,2,2,6")
    if any(one != int(one) for one in found):
        raise InvalidOption(f"{flag}: {text!r} are not whole numbers", hint="for example 3 or 4,3,2,2,2,6")
    return tuple(int(one) for one in found)


def _parse_size(flag: str, text: str) -> float:
    """A number, which K, M, B or T may follow."""
    unit = text.strip()[-1:].upper()
    digits = text.strip()[:-1] if unit in _UNITS else text
    return _number(flag, digits, "7B, 350M or 7e9") * _UNITS.get(unit, 1.0)


_pair = partial(option, panel="Draft and target")
_ahead = partial(option, panel="Drafting ahead, with --ssd (times in steps of the target alone)")
_machine = partial(option, panel="Machine (in place of --draft-cost and --verify-cost)")
_mixture = partial(option, panel="Mixture of experts (in place of --verify-cost)")


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
    k: int | None = _pair(
        None, "Tokens drafted per step (K). Default: the best number.", "--num-speculative-tokens", "-k", "--k"
    )
    c: float | None = _pair(
        None,
        f"Time of drafting one token, relative to a step of the target alone. Default: {DEFAULT_C}.",
        "--draft-cost",
        "--c",
    )
    verify_cost: Mapping[int, float] | None = _pair(
        None, "v(n): what a target forward over several rows costs, relative to one row, as in '1:1,8:1.2,16:1.6'. "
        "Default: always the same.",
        metavar="ROWS:COST,...", kind=str, parse=partial(parse_cost, "--verify-cost", example="1:1,8:1.2,16:1.6"),
    )  # fmt: skip
    most: int | None = _pair(None, f"The longest draft considered. Default: {MOST}.")
    temperature: Sequence[float] = _pair(
        (), "What this temperature would make of alpha, shown on a toy pair with --alpha at temperature 1.",
        "-T", 
    )  # fmt: skip
    batch: Sequence[int] = _machine((), "Requests in a batch.", "-b")
    bandwidth: float | None = _machine(None, "Memory read per second.", metavar="GB/S")
    flops: float | None = _machine(None, "Arithmetic per second.", metavar="TFLOP/S")
    parameters: float | None = _machine(
        None, "Parameters of the target, as in 8B or 350M; of a mixture of experts the active ones.",
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
    context: float | None = _machine(None, "Cached tokens of each request. Default: 0.", metavar="TOKENS")
    experts: int | None = _mixture(None, "Experts of a layer, from which a router chooses.", metavar="N", low=1)
    experts_per_token: int | None = _mixture(None, "How many of them it chooses for a token.", metavar="N", low=1)
    expert_share: float | None = _mixture(
        None, "The share that the chosen experts have of all weights that one token reads. Default: "
        f"{DEFAULT_EXPERT_SHARE}.",
        low=0, high=1,
    )  # fmt: skip
    alike: float | None = _mixture(
        None,
        f"How alike neighbouring tokens choose: 0 for independent choices. Default: {DEFAULT_ALIKE}.",
        metavar="RHO",
        low=0,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the fields that were given."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) not in (None, ()))


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
    hand_over: float | None = _ahead(
        None, "Time of telling the drafter the outcome and of fetching a draft. Default: 0.", low=0
    )
    slow: float | None = _ahead(
        None, "How much longer a verification takes while the drafter works too, as a share: 0 on hardware of its own. "
        "Default: 0.",
        low=0,
    )  # fmt: skip
    draft_slow: float | None = _ahead(None, "The same for the drafter. Default: as --slow.", low=0)
    split: bool = _ahead(
        False, "The cores are divided between the two for good, so that both are slower all the time.", "--split"
    )
    jitter: float | None = _ahead(None, "How much verifications vary: standard deviation over mean. Default: 0.", low=0)
    late: Literal["serve", "finish", "wait"] = _ahead(
        "serve", "If a verification ends before the drafts are ready: use what is ready, finish the needed "
        "draft, or wait for all."
    )  # fmt: skip
    drafted: Literal["all", "missed", "nothing"] = _ahead(
        "missed", "If some requests of a batch missed: draft again for all of them, for the missed ones, or for none."
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


def flag(name: str) -> str:
    """A field's name as an option of the command line."""
    return f"--{name.replace('_', '-')}"


def one_named(name: str, names: Iterable[str], kind: str) -> str:
    """The one of `names` that is `name`, or else the only one that contains it; upper and lower case are the same.

    Raises:
        InvalidOption: there is none, or there are several. kind: what they are names of, in the message.
    """
    known = list(names)
    found = [one for one in known if name.lower() in one.lower()]
    exact = [one for one in found if one.lower() == name.lower()]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise InvalidOption(f"there is no {kind} {name!r}", hint=f"the {kind}s are: {'; '.join(known)}")
    raise InvalidOption(f"{name!r} is part of several {kind}s", hint=f"which of: {'; '.join(found)}?")
