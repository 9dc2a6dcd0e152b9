"""The grammar of a text that a tool takes, as rules within the grammar of a call.

Most forms write such a text as a JSON string, where a line break is a backslash and an "n". So the literals and the
regular expressions of the tool's grammar are rewritten to match the text as JSON spells it; its rules stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headstart.base.errors import InvalidGrammar
from headstart.types import Structure

_PIECES = re.compile(
    r"""(?P<space>\s+|//[^\n]*)|(?P<alias>->\s*\w+)|(?P<priority>\.\s*-?\d+(?=\s*:))
    |(?P<range>"(?:\\.|[^"\\\n])+"\s*\.\.\s*"(?:\\.|[^"\\\n])+")|(?P<string>"(?:\\.|[^"\\\n])*")(?P<fold>i?)
    |/(?P<regex>(?:\\.|[^/\\\n])+)/(?P<flags>[a-z]*)|(?P<word>[?!]?[A-Za-z_]\w*)(?P<more>\s*\[[^\]\n]*\]\s*:)?
    |%(?P<directive>\w+)(?P<rest>[^\n]*)|(?P<other>[:|()\[\]*+?~.,{}\d]+)""",
    re.VERBOSE,
)
_COMMON = {
    "LF": r"\n", "CR": r"\r", "NEWLINE": r"(\r?\n)+", "WS": r"[ \t\f\r\n]+", "WS_INLINE": r"[ \t]+", "DIGIT": "[0-9]",
    "INT": "[0-9]+", "SIGNED_INT": "[+-]?[0-9]+", "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+", "LETTER": "[a-zA-Z]",
    "NUMBER": r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", "SIGNED_NUMBER": r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?",
    "LCASE_LETTER": "[a-z]", "UCASE_LETTER": "[A-Z]", "WORD": "[a-zA-Z]+", "CNAME": "[_a-zA-Z][_a-zA-Z0-9]*",
    "HEXDIGIT": "[0-9a-fA-F]", "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
}  # fmt: skip
"""Terminals that Lark's own library of that name has (lark-parser, lark/grammars/common.lark)."""
_ESCAPED = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\b": r"\b", "\f": r"\f"}
_UNIT = re.compile(
    r"\\(?:x(?P<hex>[0-9A-Fa-f]{2})|u(?P<code>[0-9A-Fa-f]{4})|(?P<control>[nrtf])|(?P<kind>[dswDSW])|(?P<mark>[^\w]|_))"
    r"|(?P<any>\.)|(?P<open>\((?:\?:|\?P?<\w+>)?(?!\?))|(?P<join>[)|]|[*+?]\??|\{\d*,?\d*\})|(?P<plain>[^\\.()|*+?{\[^$])"
)
_ANCHORS = re.compile(r"^\^|(?<!\\)\$$")
"""A text follows its grammar as a whole in any case."""
_PAIR = re.compile(r"\\(?:(/)|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a text is written.

    own: characters that are terminals of their own, and how they are spelled.
    others: the class of all other characters.
    """

    own: Mapping[str, str]
    others: str
    as_json: bool


_AS_JSON = _Spelling(_ESCAPED, r'[^"\\\x00-\x1F]', as_json=True)


def text_item(grammar: Structure, name: str, *, as_json: bool, close: str = "") -> tuple[str, list[str]]:
    """A text that follows a grammar, as an item of a rule and the rules that it needs.

    grammar: of the kind "lark" or "regex".
    name: with which the names of those rules begin.
    as_json: whether the text is a JSON string, with its quotation marks; else it stands as it is, before `close`.

    Raises:
        InvalidGrammar: it has what cannot be written within another grammar.
    """
    spelling = _AS_JSON
    if not as_json:
        own = dict.fromkeys(("\n", *close[:1]))
        spelling = _Spelling({each: each for each in own}, f"[^{''.join(map(_in_regex, own))}]", as_json=False)
    if grammar.kind == "lark":
        item, rules = f"{name}_start", [_lark(grammar.text, name, spelling)]
    else:
        item, rules = _regex(_ANCHORS.sub("", grammar.text), "", spelling), []
    return f'"\\"" {item} "\\""' if as_json else item, rules


def _lark(text: str, name: str, spelling: _Spelling) -> str:
    found: list[str] = []
    imported: dict[str, str] = {}
    at = 0
    while at < len(text):
        piece = _PIECES.match(text, at)
        if piece is None:
            raise _refused(f"what follows {json.dumps(text[at : at + 20])} cannot be read", "use Lark's basic syntax")
        at = piece.end()
        match piece.lastgroup:
            case "space":
                found.append("\n" if "\n" in piece[0] else " ")
            case "alias" | "priority":
                pass
            case "word":
                found.append(_named(piece["word"], name))
            case "more":
                raise _refused("a rule has attributes", "leave the brackets behind its name out")
            case "range":
                first, last = (json.loads(each) for each in re.split(r"(?<=\")\s*\.\.\s*(?=\")", piece[0]))
                found.append(_regex(f"[{re.escape(first)}-{re.escape(last)}]", "", spelling))
            case "string" | "fold":
                found.append(_literal(piece["string"], piece["fold"], spelling))
            case "regex" | "flags":
                found.append(_regex(piece["regex"], piece["flags"], spelling))
            case "directive" | "rest":
                imported |= _imported(piece["directive"], piece["rest"])
            case _:
                found.append(piece[0])
    lines = "".join(found).strip()
    for own, terminal in imported.items():
        lines += f"\n{_named(own, name)}: {_regex(terminal, '', spelling)}"
    if not re.search(rf"^{name}_start\s*:", lines, re.MULTILINE):
        raise _refused("no rule is called start", "name the first rule start")
    return lines


def _named(word: str, name: str) -> str:
    """A rule or a terminal, by a name that no rule of ours has. All are rules here: what JSON spells as two characters
    is more than one terminal."""
    word = word.lstrip("?!")
    return f"{name}_{'t_' if word.isupper() else ''}{word.lower()}"


def _imported(directive: str, rest: str) -> dict[str, str]:
    """The terminals that a line imports, by the names that it gives them."""
    found = re.fullmatch(r"\s*common\s*(?:\.\s*(\w+)\s*(?:->\s*(\w+)\s*)?|\(([\w\s,]*)\)\s*)", rest)
    if directive != "import" or found is None:
        raise _refused(f"%{directive[:20]} is not read within a call", "write its terminals out")
    names = [found[1]] if found[1] else found[3].replace(",", " ").split()
    unknown = next((each for each in names if each not in _COMMON), None)
    if unknown is not None:
        raise _refused(f"common has no {unknown[:40]} here", f"it has {', '.join(_COMMON)}")
    return {found[2] or each: _COMMON[each] for each in names}


def _literal(quoted: str, fold: str, spelling: _Spelling) -> str:
    if not spelling.as_json:
        return quoted + fold
    try:
        text = str(json.loads(quoted))
    except ValueError:
        raise _refused(f"{quoted[:40]} is no string", "use the escapes of JSON") from None
    if fold:
        return _regex(re.escape(text), "i", spelling)
    return _quoted(json.dumps(text, ensure_ascii=False)[1:-1])


def _regex(pattern: str, flags: str, spelling: _Spelling) -> str:
    """A regular expression, as an expression that matches a text as it is or as JSON spells it.

    llguidance takes for a terminal as many characters as it can, and does not go back. So a backslash must not be able
    to go on with one terminal and to begin the next, nor what may begin the mark behind the text. Each of these
    characters is a terminal of its own.
    """
    if strange := set(flags) - set("isu"):
        raise _refused(f"the flag {min(strange)} of a regular expression is not read here", "leave it out")
    pattern = _PAIR.sub(lambda found: found[1] or found[0], pattern)  # the result's slashes get a backslash, once
    units = list(_units(pattern, flags, spelling))
    if all(unit.escapes == () for unit in units):
        return f"/{''.join(unit.plain.replace('/', chr(92) + '/') for unit in units)}/"
    found: list[str] = []
    last = max((n for n, unit in enumerate(units) if not unit.joins), default=0)
    for number, unit in enumerate(units):
        if unit.joins:
            found.append(unit.plain)
            continue
        run = number == last and units[number + 1 : number + 2] and units[number + 1].plain[:1] in ("*", "+")
        plain = [f"/{unit.plain.replace('/', chr(92) + '/')}{'+' if run else ''}/"] if unit.plain else []
        found.append(f"({' | '.join([*plain, *map(_quoted, unit.escapes)])})")
    return f"({' '.join(found)})"


@dataclass(frozen=True, slots=True)
class _Unit:
    """A piece of a regular expression.

    plain: the expression of its characters that are no terminals of their own; "" where there are none.
    escapes: the spelling of the others.
    joins: whether it is no character but a bracket, a bar or a count.
    """

    plain: str
    escapes: tuple[str, ...] = ()
    joins: bool = False


def _units(pattern: str, flags: str, spelling: _Spelling) -> Iterator[_Unit]:
    at = 0
    while at < len(pattern):
        if pattern[at] == "[":
            end = _class_end(pattern, at)
            yield _one_of(pattern[at:end], flags, spelling)
            at = end
            continue
        unit = _UNIT.match(pattern, at)
        if unit is None:
            words = f"{pattern[at : at + 12]!r} in a regular expression is not read within a call"
            raise _refused(words, "use characters, classes, groups and counts")
        at = unit.end()
        match unit.lastgroup:
            case "open":
                yield _Unit("(", joins=True)
            case "join":
                yield _Unit(unit[0] if unit[0] == "?" else unit[0].removesuffix("?"), joins=True)
            case "any":
                yield _one_of(r"[\s\S]" if "s" in flags else r"[^\n]", flags, spelling)
            case "kind":
                yield _one_of(f"[{unit[0]}]", flags, spelling)
            case "hex" | "code":
                yield _character(chr(int(unit["hex"] or unit["code"], 16)), flags, spelling)
            case "control":
                yield _character(_CONTROLS[unit["control"]], flags, spelling)
            case kind:
                yield _character(unit[str(kind)], flags, spelling)


def _character(character: str, flags: str, spelling: _Spelling) -> _Unit:
    if character in spelling.own:
        return _Unit("", (spelling.own[character],))
    if spelling.as_json and character < " ":
        return _Unit("", (json.dumps(character)[1:-1],))
    plain = _in_regex(character)
    return _Unit(f"(?i:{plain})" if "i" in flags and character.isalpha() else plain)


def _in_regex(character: str) -> str:
    return re.escape(character) if character >= " " else f"\\x{ord(character):02x}"


def _one_of(kind: str, flags: str, spelling: _Spelling) -> _Unit:
    """A class of characters. Of a text as JSON, control characters without an escape of two characters are left out."""
    if "[" in kind[1:-1].replace("\\[", "") or "&&" in kind or "--" in kind:
        raise _refused(f"the class {kind[:40]} is not read within a call", "write it without sets of sets")
    try:
        has = re.compile(kind, re.IGNORECASE if "i" in flags else 0)
    except re.error as error:
        raise _refused(f"the class {kind[:40]} has an error: {error}", "correct it") from None
    plain = f"[{kind}&&{spelling.others}]"  # which may be empty
    if "i" in flags:
        plain = f"(?i:{plain})"
    return _Unit(plain, tuple(twice for once, twice in spelling.own.items() if has.fullmatch(once)))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _class_end(pattern: str, at: int) -> int:
    end = at + 1 + pattern.startswith("^", at + 1)
    end += pattern.startswith("]", end)
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    if end >= len(pattern):
        raise _refused("a class of characters does not end", "close its bracket")
    return end + 1


def _refused(words: str, hint: str) -> InvalidGrammar:
    return InvalidGrammar(f"the grammar of a tool cannot be followed: {words}"[:300], hint=hint)
