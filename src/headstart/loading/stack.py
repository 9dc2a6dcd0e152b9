"""`Stack`: a drafter that is a target with a drafter, by an object or in writing, "MODEL(DRAFTER, ...)"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.base.errors import InvalidOption

if TYPE_CHECKING:
    from headstart.drafters import Drafter

_HINT = 'write "MODEL(DRAFTER)" or "MODEL(DRAFTER, DRAFTER)", such as "self-int4(ngram)"'


@dataclass(frozen=True)
class Stack:
    """A draft model with a drafter of its own. Give it to `headstart.load` in place of a drafter.

    model: "self-int4", or the directory, .gguf file or hub id of a causal LM with the target's tokens.
    drafter: what guesses for that model: a drafter or a list, as `headstart.load` takes them with this model as the
        target. It may be another stack. Default: "ngram".

    Raises:
        InvalidOption: it has no drafter.

    Examples:
        >>> import headstart as hs
        >>> engine = hs.load("bundled", hs.Stack("self-int4", "ngram"), dtype="float32")
        >>> engine.drafter_name
        'self-int4(ngram)'
    """

    model: str | Path
    drafter: Drafter | str | Path | Stack | Sequence[Drafter | str | Path | Stack] = "ngram"

    def __post_init__(self) -> None:
        if not self.drafters or self.drafters in (["none"], [None]):
            raise InvalidOption(
                f"the stack on {self.model} has no drafter",
                hint=f"give it one, or name the model alone: drafter={str(self.model)!r}",
            )

    @property
    def drafters(self) -> list[Drafter | str | Path | Stack]:
        """The drafter as a list: one entry, or all that were given."""
        given = self.drafter
        return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]

    @property
    def label(self) -> str:
        """The name of the stack, such as "self-int4(ngram)"."""
        inner = (
            each.label if isinstance(each, Stack) else getattr(each, "name", None) or each for each in self.drafters
        )
        return f"{self.model}({', '.join(map(str, inner))})"


def as_stack(name: str) -> Stack | None:
    """The stack that is written so; None for what is no stack. A name that is a path is one, brackets or not.

    Raises:
        InvalidOption: brackets that do not match, or hold nothing.
    """
    text = name.strip()
    if "(" not in text or Path(text).expanduser().exists():
        return None
    start, depth = len(text), 0
    while start and (depth or start == len(text)):  # from behind: the model may be a path with brackets
        start -= 1
        depth += (text[start] == ")") - (text[start] == "(")
    model, parts = text[:start].strip(), _parts(text[start + 1 : -1])
    if depth or not text.endswith(")") or not model or not all(parts):
        raise InvalidOption(f"drafter={name!r} is no stack of drafters", hint=_HINT)
    return Stack(model, [as_stack(part) or part for part in parts])


def _parts(text: str) -> list[str]:
    """What commas part that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
