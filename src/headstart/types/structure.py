"""The form that a request's text must have: JSON, a JSON schema, a regular expression, a choice, a grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headstart.base.errors import InvalidGrammar
from headstart.base.options import check_choice, check_flag, check_number, token_ids

StructureKind = Literal["json", "schema", "regex", "choice", "lark", "gbnf", "text"]
Whitespace = Literal["flexible", "compact", "spaced"]
Spelling = Literal["canonical", "free"]


@dataclass(frozen=True, slots=True)
class Structure:
    """The form that a request's text must have. A value: it can be hashed, compared and pickled.

    kind: "json" is any JSON object; "schema", "regex", "choice", "lark" and "gbnf" say what is in `text`; "text" is no
        grammar at all, for a request that only has a limit on its thinking.
    text: a JSON schema, a regular expression that the whole text matches, a JSON list of the strings to choose from, or
        a grammar in the syntax of Lark or GBNF. Lark grammars are those of llguidance, special tokens included.
    whitespace: between the parts of JSON: "flexible" is what the model likes, up to eight characters each time;
        "compact" is none; "spaced" is ", " and ": ", as `json.dumps` writes. For "json" and "schema".
    spelling: "canonical" writes text that the grammar forces with the tokens that the tokenizer would write it with;
        "free" lets the model choose among all the tokens that spell it.
    lenient: ignore keywords of a schema that are not supported, instead of refusing the schema.
    after: token ids of the marker that ends the model's thinking. Up to and including the marker the text is free, and
        the grammar begins after it. Empty where the grammar begins with the first token.
    thinking: the most tokens before that marker; when so many have come, the marker follows. None is no limit.
    trigger: token ids after which the grammar begins. Up to them the text is free, it may end without them, and it is
        free again when the grammar is complete. Empty where the whole text follows the grammar.

    Raises:
        InvalidGrammar: a field has the wrong type, or two fields do not go together.

    Examples:
        >>> import headstart as hs
        >>> hs.Structure.choice(["yes", "no"]).kind
        'choice'
        >>> engine = hs.load("bundled", "ngram", dtype="float32")
        >>> engine.generate("It is ", hs.Sampling(structure=hs.Structure("regex", "yes|no"))).text in ("yes", "no")
        True
    """

    kind: StructureKind
    text: str = ""
    whitespace: Whitespace = "flexible"
    spelling: Spelling = "canonical"
    lenient: bool = False
    after: tuple[int, ...] = ()
    thinking: int | None = None
    trigger: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(StructureKind))
        check_choice("whitespace", self.whitespace, get_args(Whitespace))
        check_choice("spelling", self.spelling, get_args(Spelling))
        check_flag("lenient", self.lenient)
        if not isinstance(self.text, str) or bool(self.text) != (self.kind not in ("json", "text")):
            raise InvalidGrammar(
                f"a structure of the kind {self.kind!r} has the text {self.text!r}"[:200],
                hint="'json' and 'text' have none, all others need one",
            )
        for name in ("after", "trigger"):
            object.__setattr__(self, name, token_ids(name, getattr(self, name)))
        if self.thinking is not None:
            check_number("thinking", self.thinking, low=0, integer=True)
            if not self.after:
                raise InvalidGrammar(
                    f"thinking={self.thinking} without a marker that ends it",
                    hint="give the token ids of the marker as `after`",
                )
        if self.kind == "text" and (self.thinking is None or self.trigger):
            raise InvalidGrammar(
                "a structure of the kind 'text' only limits thinking", hint="give `thinking` and `after`, or a grammar"
            )

    @classmethod
    def schema(cls, schema: Mapping[str, Any] | bool | str, **more: Any) -> Structure:
        """JSON that a schema describes, given as an object or as text. more: further fields."""
        return cls("schema", schema if isinstance(schema, str) else _dumped(schema), **more)

    @classmethod
    def choice(cls, choices: Sequence[str], **more: Any) -> Structure:
        """One of these strings. more: further fields."""
        texts = isinstance(choices, Sequence) and not isinstance(choices, str)
        if not texts or not choices or not all(isinstance(each, str) and each for each in choices):
            raise InvalidGrammar(
                f"choice={choices!r} is not a list of texts"[:200], hint="give at least one, none empty"
            )
        return cls("choice", _dumped(list(choices)), **more)


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidGrammar(f"this is no JSON: {error}", hint="give strings, numbers, lists and objects") from None
