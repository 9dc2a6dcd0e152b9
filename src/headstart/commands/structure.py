"""The options that say which form a text must have: a JSON schema, a regular expression, or a grammar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headstart.base.errors import InvalidFile, InvalidGrammar, InvalidOption
from headstart.base.options import option, strict
from headstart.types import Sampling, Structure

_option = partial(option, panel="Structured output")


@strict
@dataclass(frozen=True, slots=True)
class StructureOptions:
    """Which form the text must have; one of them at most."""

    json_schema: Path | None = _option(None, "The text is JSON that this JSON schema describes.")
    regex: str | None = _option(None, "The whole text matches this regular expression.", metavar="PATTERN")
    grammar: Path | None = _option(None, "The text follows this grammar, in llguidance's Lark, or in GBNF.")

    def __post_init__(self) -> None:
        given = [name for name in ("json_schema", "regex", "grammar") if getattr(self, name) is not None]
        if len(given) > 1:
            words = " and ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InvalidOption(f"{words} exclude each other", hint="a text follows one of them: leave the others out")

    def of(self, sampling: Sampling) -> Sampling:
        """The same sampling, of texts in this form.

        Raises:
            InvalidFile: a file cannot be read.
            InvalidOption: what is in it is empty, or does not go with another option.
        """
        if self.json_schema is not None:
            return replace(sampling, structure=_made("schema", _read(self.json_schema), self.json_schema))
        if self.regex is not None:
            return replace(sampling, structure=Structure("regex", self.regex))
        if self.grammar is not None:
            text = _read(self.grammar)
            gbnf = self.grammar.suffix == ".gbnf" or "::=" in text
            return replace(sampling, structure=_made("gbnf" if gbnf else "lark", text, self.grammar))
        return sampling


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} cannot be read: {error}", hint="give a text file in UTF-8") from None


def _made(kind: str, text: str, path: Path) -> Structure:
    if not text.strip():
        raise InvalidGrammar(f"{path} is empty", hint="it must hold a JSON schema or a grammar")
    return Structure(kind, text)  # type: ignore[arg-type]  # the kinds of above
