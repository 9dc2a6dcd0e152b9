"""What a schema or grammar may ask for, checked before it is compiled: the text of a stranger must not stop a server.

Compiled code cannot be interrupted, and llguidance's own limits do not bound all of it: the regular expression
``((x{50}){50}){50}`` compiles in a millisecond and then takes seconds for one mask. So what a text can grow to is
bounded here, from the text alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from headstart.base.errors import InvalidGrammar
from headstart.types import Structure

MOST_BYTES = 262_144
"""Of a schema or grammar, in UTF-8."""
LONGEST_REGEX = 4096
"""Characters of a regular expression."""
MOST_NODES = 20_000
"""Objects, lists and values of a schema together."""
DEEPEST = 64
"""Levels of a schema."""
MOST_REPEATED = 10_000
"""Characters of a regular expression once its counted repetitions are written out."""
_COUNTED = re.compile(r"\{(\d*)(?:(,)(\d*))?\}|~(\d+)(?:\.\.(\d+))?")
_DEFINITION = re.compile(r"^\s*[?!]?([A-Za-z_][\w-]*)[^:\n/\"]*(?:::=|:)", re.MULTILINE)
_BEFORE_A_COUNT = re.compile(r"\s+(?=[{~])")
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_HUGE = 10**9


def check(structure: Structure) -> None:
    """Refuse a structure that is too large or would be too costly.

    Raises:
        InvalidGrammar: it is, or it is no JSON where it should be.
    """
    size = len(structure.text.encode(errors="replace"))
    if size > MOST_BYTES:
        raise InvalidGrammar(f"the {structure.kind} has {size} bytes", hint=f"give at most {MOST_BYTES}")
    if structure.kind in ("schema", "choice"):
        _check_schema(_parsed(structure.text))
    elif structure.kind == "regex":
        _check_regex(structure.text)
    elif structure.kind in ("lark", "gbnf"):
        _check_grammar(structure.text)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidGrammar(f"the schema is no JSON: {error}"[:200], hint="give a JSON schema as text") from None


def _check_schema(schema: Any) -> None:
    """Walk through it without recursion: it may be deeper than Python's stack."""
    nodes, level, depth = 0, [schema], 0
    while level:
        nodes, depth = nodes + len(level), depth + 1
        if nodes > MOST_NODES or depth > DEEPEST:
            what = f"more than {MOST_NODES} parts" if nodes > MOST_NODES else f"more than {DEEPEST} levels"
            raise InvalidGrammar(f"the schema has {what}", hint="give a smaller one, or leave parts of it open")
        below: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                below += each.values()
                for pattern in _patterns(each):
                    _check_regex(pattern)
            elif isinstance(each, list):
                below += each
        level = below


def _patterns(node: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(node.get("pattern"), str):
        yield node["pattern"]
    more = node.get("patternProperties")
    if isinstance(more, Mapping):
        yield from more


def _check_regex(pattern: str) -> None:
    if len(pattern) > LONGEST_REGEX:
        raise InvalidGrammar(
            f"a regular expression has {len(pattern)} characters", hint=f"give at most {LONGEST_REGEX}"
        )
    _refuse(expanded(pattern))


def _refuse(size: int) -> None:
    if size > MOST_REPEATED:
        raise InvalidGrammar(
            f"the repetitions of a regular expression multiply to {min(size, _HUGE)} characters or more",
            hint=f"give at most {MOST_REPEATED}: use * or + for what may be long, and nest fewer counts",
        )


def expanded(pattern: str, sizes: Mapping[str, int] | None = None) -> int:
    """About how many characters a regular expression, or the right side of a rule, has once the counted repetitions are
    written out.

    sizes: of what the names in it are defined as.
    """
    groups: list[tuple[int, int]] = [(0, 0)]  # of each open group, its size so far and the size of its last atom
    at = 0

    def closed(group: tuple[int, int]) -> int:
        return min(_HUGE, group[0] + group[1])

    while at < len(pattern):
        counted = _COUNTED.match(pattern, at)
        total, last = groups[-1]
        if counted is not None and (counted[1] or counted[3] or counted[4]):
            count = max(int(number[:9]) for number in (counted[1], counted[3], counted[4], counted[5]) if number)
            groups[-1] = (total, min(_HUGE, last * max(count, 1)))
            at = counted.end()
            continue
        name = _NAME.match(pattern, at) if sizes is not None else None
        length, atom = 1, 1
        if pattern[at] == "\\":
            length = 2
        elif pattern[at] == "[":
            length = _class_length(pattern, at)
        elif pattern[at] == "(":
            groups.append((0, 0))
            at += 1
            continue
        elif pattern[at] == ")" and len(groups) > 1:
            atom = closed(groups.pop())
            total, last = groups[-1]
        elif name is not None and sizes is not None:
            length, atom = len(name[0]), sizes.get(name[0], 1)
        groups[-1] = (min(_HUGE, total + last), atom)
        at += length
    return min(_HUGE, sum(map(closed, groups)))


def _class_length(pattern: str, at: int) -> int:
    """Of a class of characters [...], with its brackets."""
    end = at + 1 + pattern.startswith("^", at + 1)
    end += pattern.startswith("]", end)
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1 - at


def _check_grammar(text: str) -> None:
    """Of each rule and terminal, what it grows to with all that it is made of: a count may hide behind names."""
    starts = list(_DEFINITION.finditer(text))
    ends = [each.start() for each in starts[1:]] + [len(text)]
    bodies: dict[str, str] = {}
    for found, end in zip(starts, ends, strict=False):  # what defines nothing has no start, and one end
        body = text[found.end() : end]
        bodies[found[1]] = f"{bodies.get(found[1], '')} {body}"
    sizes: dict[str, int] = {}
    for name in _in_order(bodies):
        # what is not known yet is a rule that contains itself, which repeats without a count
        sizes[name] = expanded(_BEFORE_A_COUNT.sub("", bodies[name]), sizes)
        if _COUNTED.search(bodies[name]) or name.isupper():
            _refuse(sizes[name])


def _in_order(bodies: Mapping[str, str]) -> list[str]:
    """The names so that each comes after those it is made of, as far as that can be."""
    order: list[str] = []
    seen: set[str] = set()
    for first in bodies:
        stack = [(first, False)]
        while stack:
            name, done = stack.pop()
            if done:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                stack.append((name, True))
                stack += [(other, False) for other in _NAME.findall(bodies[name]) if other in bodies]
    return order
