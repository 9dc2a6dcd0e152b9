"""A grammar, compiled by llguidance for a tokenizer, from which the matchers of requests are copied.

Compiling refuses what cannot be followed and what would be too costly (`grammar_limits`), so that neither reaches the
thread of the engine.

Source: llguidance 1.9 (github.com/guidance-ai/llguidance), docs/syntax.md and docs/fast_forward.md.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any

from headstart.base.errors import InvalidGrammar
from headstart.base.extras import extra
from headstart.rule import grammar_limits, mask
from headstart.rule.json_patterns import guarded, guarded_lark
from headstart.rule.mask import Mask
from headstart.types import Structure
from headstart.types.structure import Spelling

SLOW_PROBE = 0.05
"""Seconds of this thread's processor time that one of the first masks of a grammar may take."""
PROBED = 4
"""Places of a text whose masks are tried before a request may use the grammar."""
COSTLY = 0.02
"""Seconds of processor time of compiling that a step of the engine may lose; what takes longer is compiled twice."""
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,8}"
"""Without a bound, models go on with spaces until the limit on tokens."""
_PLACE = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?")
"""In an error, a place in the grammar that the compiler makes of a schema or of a regular expression."""
_FREE = '%llguidance {"no_forcing": true}\n'

log = logging.getLogger(__name__)


class Tokens:
    """A tokenizer as matchers know it, made when the first grammar is compiled. It can be pickled if `make` can, and
    comes back as the same one in the same process.

    make: returns llguidance's tokenizer. vocab_size: V, of the target's logits. ends: the tokens that end a text.
    end: the one of them that ends a text after which a grammar lets nothing else come; None is the first.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        vocab_size: int,
        ends: frozenset[int],
        end: int | None = None,
        number: str | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.ends = ends
        self.end = end if end in ends else min(ends, default=None)
        self._number = uuid.uuid4().hex if number is None else number
        self._make = make
        self._made: Any = None
        self._lock = threading.Lock()
        _KNOWN[self._number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _known_tokens, (self._make, self.vocab_size, self.ends, self.end, self._number)

    @property
    def made(self) -> Any:
        """llguidance's tokenizer."""
        if self._made is not None:
            return self._made
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    @property
    def spelling(self) -> Spelling:
        """How text that a grammar forces is spelled where a request does not ask for "free": "free" too, where
        llguidance cannot write as the tokenizer does."""
        return "canonical" if self._made is None or self._made.is_canonical else "free"


_KNOWN: weakref.WeakValueDictionary[str, Tokens] = weakref.WeakValueDictionary()


def _known_tokens(
    make: Callable[[], Any], vocab_size: int, ends: frozenset[int], end: int | None, number: str
) -> Tokens:
    return _KNOWN.get(number) or Tokens(make, vocab_size, ends, end, number)


class Compiled:
    """One grammar, compiled, from which the matchers of requests are copied.

    Raises:
        InvalidGrammar: it has an error, nothing can be written by it, or it is too costly.
    """

    def __init__(self, structure: Structure, tokens: Tokens) -> None:
        grammar_limits.check(structure)
        self.structure = structure
        self.tokens = tokens
        self.lock = threading.RLock()
        """Held while a matcher is at work: a drafter on another thread may ask the same one."""
        self.rebuilt = 0
        """How often an error of a matcher was not one of a fresh one."""
        self.text = _grammar_of(structure)
        self._library = extra("llguidance", "agents")
        self._first, seconds = self._timed()
        _refuse(self._first, structure)
        self._probe()
        self._reserve = None
        if seconds > COSTLY:
            self._reserve, again = self._timed()
            seconds = min(seconds, again)  # the first one can have met a pause of the machine
        self._costly = seconds > COSTLY

    @property
    def spent(self) -> bool:
        """Whether the matcher in reserve is used up, so that the grammar should be compiled again beside the engine."""
        return self._costly and self._reserve is None

    def fresh(self, *, now: bool = False) -> Any:
        """A matcher that shares nothing with any other; None where it would take too long to compile one. now: however
        long that takes."""
        if now or not self._costly:
            return self._made()
        found, self._reserve = self._reserve, None
        return found

    def _timed(self) -> tuple[Any, float]:
        began = time.thread_time()
        return self._made(), time.thread_time() - began

    def _made(self) -> Any:
        limits = self._library.LLParserLimits(
            initial_lexer_fuel=200_000,
            step_lexer_fuel=50_000,
            step_max_items=10_000,
            max_lexer_states=20_000,
            max_grammar_size=50_000,
            verbose_errors=False,  # they hold the schema and the text
        )
        return self._library.LLMatcher(self.tokens.made, self.text, log_level=0, limits=limits)

    def matcher(self) -> Any:
        """A matcher for one request, at the beginning of its text."""
        return self._first.deep_copy()

    def begin_again_with(self, matcher: Any) -> None:
        """Copy the matchers of new requests from this one, because the one they were copied from has an error."""
        self._first = matcher
        self.rebuilt += 1
        log.warning("a grammar's matcher was built again: a limit was reached that its text alone does not reach")

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self.structure, self.tokens)

    def _probe(self) -> None:
        """Compute the first masks. A grammar whose masks take long must not reach the engine's thread, and one that
        comes to a limit at once need not: of a text that goes on in several ways, the lowest token is tried."""
        matcher, certain = self._first.deep_copy(), True
        for _ in range(PROBED):
            began = time.thread_time()
            found = mask_of(matcher, self.tokens)
            seconds = time.thread_time() - began
            if seconds > SLOW_PROBE:
                raise InvalidGrammar(
                    f"the {self.structure.kind} is too costly: to find out which tokens may come took {seconds:.2f} s",
                    hint="simplify its regular expressions, or split large unions and enumerations",
                )
            if not matcher.is_error():
                forced = matcher.compute_ff_tokens()
                certain = certain and bool(forced)
                ahead = forced or [mask.first(found)]
                if ahead[0] in self.tokens.ends:
                    break
                matcher.try_consume_tokens(ahead)
            if matcher.is_error():
                if certain or not dead_end(matcher):
                    _refuse(matcher, self.structure)
                break


def dead_end(matcher: Any) -> bool:
    """Whether the error of a matcher is that no token can come next, rather than a limit."""
    return "NoExtension" in str(matcher.get_error()) or "NoExtension" in str(matcher.stop_reason())


def _refuse(matcher: Any, structure: Structure) -> None:
    """Raise the error of a matcher as one of the request's."""
    if not matcher.is_error():
        return
    lines = str(matcher.get_error()).strip().splitlines() or ["it has an error"]
    reason = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    if structure.kind not in ("lark", "gbnf"):
        reason = _PLACE.sub("", reason)
    hint = "correct what the message names"
    if dead_end(matcher):
        reason, hint = "no text at all follows it", "change it so that some text follows it"
    elif "nimplemented" in reason:
        hint = "leave the keywords out that are named, or set lenient to ignore them"
    raise InvalidGrammar(f"the {structure.kind} cannot be followed: {reason}"[:400], hint=hint)


def mask_of(matcher: Any, tokens: Tokens) -> Mask:
    """The mask of a place, of V tokens: a tokenizer may have more than the target.

    Where nothing but the end of the text can come, one token may, however many there are that end a text: which of them
    comes says nothing, and what is certain needs no forward.
    """
    found = mask.empty(tokens.made.vocab_size)
    matcher.unsafe_compute_mask_ptr(found.__array_interface__["data"][0], found.nbytes)
    found = mask.cut(found, tokens.vocab_size)
    if len(tokens.ends) > 1 and tokens.end is not None and mask.allows(found, tokens.end):
        ends = sum(mask.allows(found, token) for token in tokens.ends)
        if mask.count(found) == ends > 1:
            found = mask.one(tokens.end, tokens.vocab_size)
    return found


def _grammar_of(structure: Structure) -> str:
    """The grammar in llguidance's own form."""
    free = _FREE if structure.spelling == "free" else ""
    if structure.kind in ("json", "schema"):
        return f"{free}start: %json {json.dumps(_schema_of(structure))}"
    if structure.kind == "choice":
        choices = json.loads(structure.text)
        if not isinstance(choices, list) or not choices or not all(isinstance(each, str) and each for each in choices):
            raise InvalidGrammar("the choice is not a JSON list of texts", hint="give at least one, none empty")
        return free + "start: " + " | ".join(json.dumps(each, ensure_ascii=False) for each in dict.fromkeys(choices))
    matcher = extra("llguidance", "agents")
    if structure.kind == "regex":
        return free + str(
            json.loads(matcher.LLMatcher.grammar_from_regex(structure.text))["grammars"][0]["lark_grammar"]
        )
    if structure.kind == "gbnf":
        try:
            return free + str(matcher.grammar_from("gbnf", structure.text))
        except (ValueError, RecursionError) as error:
            raise InvalidGrammar(
                f"the gbnf has an error: {error}"[:400], hint="see llama.cpp's guide to GBNF"
            ) from None
    return free + guarded_lark(structure.text)


def _schema_of(structure: Structure) -> Any:
    """The schema with its options."""
    schema = {"type": "object"} if structure.kind == "json" else json.loads(structure.text)
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise InvalidGrammar("the schema is neither an object nor true", hint="give a JSON schema")
    options: dict[str, Any] = {"coerce_one_of": True, "lenient": structure.lenient}
    if structure.whitespace == "flexible":
        options["whitespace_pattern"] = _WHITESPACE
    else:
        options["whitespace_flexible"] = False
        if structure.whitespace == "spaced":
            options |= {"item_separator": ", ", "key_separator": ": "}
    return {**guarded(schema), "x-guidance": options}
