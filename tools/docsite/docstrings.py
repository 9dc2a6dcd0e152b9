"""How docstrings become the API reference: a Griffe extension, which reads the sources and runs nothing.

Docstrings are written to be read as plain text. The few habits of theirs that a page would show badly are turned into
what it shows well, and a field declared by `option(default, "words")` gets its default and those words.
"""

from __future__ import annotations

import re
from ast import literal_eval
from typing import Any

import griffe

_DECLARES = re.compile(r"option|_[a-z]+")  # `option`, or a partial of it that a module keeps for itself
_RAISES = re.compile(r"^Raises:\n((?:    [^:\n]+\n?)+)(?!    )", re.MULTILINE)
_SHARED = re.compile(r"^    (\w+(?:, \w+)+): (.*)$", re.MULTILINE)
_SHAPE = re.compile(r"(?<![`\]\w])((?:\[[^\[\]`]+\]){2,})(?!\()")
_DOCUMENT = re.compile(r"\bdocs/([\w/-]+\.md)\b")


class Docstrings(griffe.Extension):
    """See the module."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """A field declared by a call of `option`."""
        call = attr.value
        if not isinstance(call, griffe.ExprCall) or not _DECLARES.fullmatch(str(call.function)):
            return
        try:
            words = literal_eval(str(call.arguments[1]))
        except (IndexError, SyntaxError, ValueError):
            return  # another call, or the words are put together elsewhere
        if isinstance(words, str):
            attr.value = call.arguments[0]
            attr.docstring = griffe.Docstring(words, parent=attr, lineno=attr.lineno)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Any docstring."""
        if obj.docstring:
            obj.docstring.value = for_a_page(obj.docstring.value)


def for_a_page(docstring: str) -> str:
    """A docstring in plain text as one in Markdown, in Google's form."""

    def shared(names: re.Match[str]) -> str:
        return "\n".join(f"    {name}: {names[2]}" for name in names[1].split(", "))

    def raised(names: re.Match[str]) -> str:
        return "Raises " + re.sub(r"(\w+)", r"`\1`", " ".join(names[1].split()))

    docstring = _RAISES.sub(raised, _SHARED.sub(shared, docstring))
    return _DOCUMENT.sub(r"[\1](../\1)", _SHAPE.sub(r"`\1`", docstring))
