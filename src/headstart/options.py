"""Options that reject what they do not know: a decorator for dataclasses, and the checks they share."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

from headstart.errors import InvalidOption

T = TypeVar("T")


def reject_unknown(given: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Raise `InvalidOption` for the first name in `given` that `known` lacks, with the nearest name as a hint."""
    names = list(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            raise InvalidOption(
                f"{owner} has no option {name!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"the options are: {', '.join(names)}",
            )


def strict(cls: type[T]) -> type[T]:
    """Make a dataclass raise `InvalidOption`, not `TypeError`, for an option it does not have."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    original = cls.__init__

    @functools.wraps(original)
    def init(self: T, *args: Any, **kwargs: Any) -> None:
        reject_unknown(kwargs, names, cls.__name__)
        original(self, *args, **kwargs)

    cls.__init__ = init  # type: ignore[method-assign, assignment]
    return cls


def check_number(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
    integer: bool = False,
) -> None:
    """Check that `value` is a finite number with low <= value <= high (and value > above), or raise."""
    kind = Integral if integer else Real  # NumPy's scalars are registered as these
    if isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value):
        number = float(value)
        if low <= number <= high and (above is None or number > above):
            return
    wanted = "a whole number" if integer else "a number"
    if above is not None:
        wanted += f" above {above:g}"
    elif low > -math.inf:
        wanted += f" of at least {low:g}"
    if high < math.inf:
        wanted += f" and at most {high:g}"
    raise InvalidOption(f"{name}={value!r} is out of range", hint=f"{name} must be {wanted}")
