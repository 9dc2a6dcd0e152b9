"""Grammars as processors: which tokens may come next, by llguidance, and what surrounds a grammar in an answer.

The mask of a place is a function of the grammar and of the tokens before the place, and of nothing else: not of drafts,
of rejected tokens or of other requests. It is the last edit before the filters, so the distribution is the target's
own, restricted to the tokens that may come and renormalised, token by token.

llguidance's matchers are mutable, and copies of one share a lexer: a limit that a rejected draft has hit is then hit
for the committed text as well. So an error is believed only if a fresh matcher that is given the same tokens has it
too, and an end-of-text token, which matchers take without noting it, is never given to one.

Source: llguidance 1.9 (github.com/guidance-ai/llguidance), docs/syntax.md and docs/fast_forward.md.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import GrammarFailed, HeadstartError, InvalidGrammar
from headstart.base.extras import extra
from headstart.rule import grammar_limits, mask
from headstart.rule.mask import Mask
from headstart.rule.processors import Processor
from headstart.types import Structure
from headstart.types.structure import Spelling

KEPT = 64
"""Compiled grammars that an engine keeps."""
KEPT_BYTES = 1 << 20
"""Of the texts of those grammars together."""
SLOW_PROBE = 0.25
"""Seconds of computing that one of the first masks may take. A busy machine does not count, here and below."""
SLOW_MASK = 2.0
"""Seconds that a mask may take while a request runs; one that takes longer ends its request."""
NOTED_MASK = 0.05
"""Seconds from which a mask is written to the log."""
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,8}"
"""Without a bound, models go on with spaces until the limit on tokens."""
_FREE = '%llguidance {"no_forcing": true}\n'

log = logging.getLogger(__name__)


class Tokens:
    """A tokenizer as matchers know it, made when the first grammar is compiled. It can be pickled if `make` can, and
    comes back as the same one in the same process.

    make: returns llguidance's tokenizer. vocab_size: V, of the target's logits. ends: the tokens that end a text.
    """

    def __init__(
        self, make: Callable[[], Any], vocab_size: int, ends: frozenset[int], number: str | None = None
    ) -> None:
        self.vocab_size = vocab_size
        self.ends = ends
        self._number = uuid.uuid4().hex if number is None else number
        self._make = make
        self._made: Any = None
        self._lock = threading.Lock()
        _KNOWN[self._number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _known_tokens, (self._make, self.vocab_size, self.ends, self._number)

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


def _known_tokens(make: Callable[[], Any], vocab_size: int, ends: frozenset[int], number: str) -> Tokens:
    return _KNOWN.get(number) or Tokens(make, vocab_size, ends, number)


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
        self._first = self.fresh()
        _refuse(self._first, structure)
        self._probe()

    def fresh(self) -> Any:
        """A matcher that shares nothing with any other."""
        limits = self._library.LLParserLimits(
            initial_lexer_fuel=200_000,
            step_lexer_fuel=50_000,
            step_max_items=10_000,
            max_lexer_states=20_000,
            max_grammar_size=50_000,
            verbose_errors=False,  # they hold the schema and the text
        )
        return self._library.LLMatcher(self.tokens.made, self.text, log_level=0, limits=limits)

    def begin(self) -> Grammar:
        """The processor at the beginning of a text."""
        return Grammar(self, None, self._first.deep_copy())

    def begin_again_with(self, matcher: Any) -> None:
        """Copy new requests' matchers from this one: what they were copied from has an error."""
        self._first = matcher
        self.rebuilt += 1
        log.warning("a grammar's matcher was built again: a limit was reached that its text alone does not reach")

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self.structure, self.tokens)

    def _probe(self) -> None:
        """Compute the first masks. A grammar whose masks take long must not reach the engine's thread."""
        matcher = self._first.deep_copy()
        for _ in range(2):
            began = time.thread_time()
            _mask_of(matcher, self.tokens)
            seconds = time.thread_time() - began
            _refuse(matcher, self.structure)
            if seconds > SLOW_PROBE:
                raise InvalidGrammar(
                    f"the {self.structure.kind} is too costly: to find out which tokens may come took {seconds:.1f} s",
                    hint="simplify its regular expressions, or split large unions and enumerations",
                )
            if not (forced := matcher.compute_ff_tokens()) or matcher.try_consume_tokens(forced) < len(forced):
                break


def _refuse(matcher: Any, structure: Structure) -> None:
    """Raise the error of a matcher as one of the request's."""
    if not matcher.is_error():
        return
    message = str(matcher.get_error()).strip()
    first = message.splitlines()[0] if message else "it has an error"
    if "NoExtensionBias" in first:
        first = "no text at all follows it"
    elif "\n" in message and first.endswith("error:"):
        first = message.splitlines()[-1]
    hint = "change it so that some text follows it"
    if "nimplemented" in first:
        hint = "leave the keywords out that are named, or set lenient to ignore them"
    raise InvalidGrammar(f"the {structure.kind} cannot be followed: {first}"[:400], hint=hint)


def _mask_of(matcher: Any, tokens: Tokens) -> Mask:
    """The mask of a place, of V tokens: a tokenizer may have more than the target."""
    found = mask.empty(tokens.made.vocab_size)
    matcher.unsafe_compute_mask_ptr(found.__array_interface__["data"][0], found.nbytes)
    return mask.cut(found, tokens.vocab_size)


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
    return free + structure.text


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
    return {**schema, "x-guidance": options}


Path = tuple["Path", int] | None
"""The tokens that a grammar has taken, last one first: what is before it, and the token."""


def _tokens_of(path: Path) -> list[int]:
    tokens = []
    while path is not None:
        path, token = path
        tokens.append(token)
    return tokens[::-1]


class Grammar(Processor):
    """Lets only those tokens come that the grammar allows at this place of the text.

    matcher: has taken the tokens of `path`; None where nothing more is asked of it.
    ended: whether an end-of-text token has come.
    """

    masks = True

    def __init__(self, compiled: Compiled, path: Path, matcher: Any, *, ended: bool = False) -> None:
        self._compiled = compiled
        self._path = path
        self._matcher = matcher
        self._mask: Mask | None = None
        self._failure: HeadstartError | None = None
        self.ended = ended

    def __reduce__(self) -> tuple[Any, ...]:
        return _grammar_after, (self._compiled, _tokens_of(self._path), self.ended, self._matcher is None)

    def after(self, tokens: Sequence[int]) -> Grammar:
        found = self
        with self._compiled.lock:
            for token in tokens:
                found = found._after(token)
        return found

    def _after(self, token: int) -> Grammar:
        if self._matcher is None or self._failure is not None:
            return self  # a guess behind what cannot come, or behind the end
        if token in self._compiled.tokens.ends:
            return Grammar(self._compiled, self._path, None, ended=self.allows(token))
        path = (self._path, token)
        matcher = self._matcher.deep_copy()
        if matcher.try_consume_tokens([token]) == 1 and not matcher.is_error():
            return Grammar(self._compiled, path, matcher)
        if not matcher.is_error():
            return Grammar(self._compiled, path, None)
        return self._rebuilt(path)

    def _rebuilt(self, path: Path) -> Grammar:
        """The value after these tokens, from a matcher that shares nothing with those that drafts have used."""
        first = self._compiled.fresh()
        matcher, tokens = first.deep_copy(), _tokens_of(path)
        taken = matcher.try_consume_tokens(tokens)
        found = Grammar(self._compiled, path, matcher if taken == len(tokens) else None)
        if matcher.is_error():
            found._fail(matcher)
        else:
            self._compiled.begin_again_with(first)
        return found

    def _fail(self, matcher: Any) -> None:
        reason = str(matcher.stop_reason())
        said = (str(matcher.get_error()).strip() or reason).splitlines()[0]
        dead = "NoExtension" in said or "NoExtension" in reason
        words = "no token can come next" if dead else f"a limit of the grammar was reached ({said})"
        self._failure = GrammarFailed(
            f"the grammar cannot go on after {len(_tokens_of(self._path))} tokens: {words}"[:300],
            hint="the text up to there is kept; simplify the schema or grammar, or allow other endings",
        )

    @property
    def mask(self) -> Mask | None:
        """Which tokens may come; None where nothing is masked: behind a token that cannot come, and after the end."""
        if self._mask is None and self._matcher is not None and self._failure is None:
            with self._compiled.lock:
                if self._mask is None and self._failure is None:
                    self._mask = self._found()
        return self._mask

    def _found(self) -> Mask | None:
        began = time.thread_time()
        found = _mask_of(self._matcher, self._compiled.tokens)
        if self._matcher.is_error():
            again = self._rebuilt(self._path)
            self._matcher, self._failure = again._matcher, again._failure
            if self._failure is not None or self._matcher is None:
                return None
            found = _mask_of(self._matcher, self._compiled.tokens)
            if self._matcher.is_error():
                self._fail(self._matcher)
                return None
        seconds = time.thread_time() - began
        if seconds > NOTED_MASK:
            log.warning("a mask of a grammar took %.0f ms", 1000 * seconds)
        if seconds > SLOW_MASK:
            self._failure = GrammarFailed(
                f"a mask of the grammar took {seconds:.1f} s", hint="simplify the schema's regular expressions"
            )
            return None
        return found

    @property
    def complete(self) -> bool:
        """Whether nothing but the end of the text can come next."""
        if self.ended:
            return True
        with self._compiled.lock:
            if self._matcher is None or not self._matcher.is_accepting() or (found := self.mask) is None:
                return False
        ends = self._compiled.tokens.ends
        return mask.count(found) == sum(mask.allows(found, token) for token in ends)

    @property
    def failure(self) -> HeadstartError | None:
        return None if self.mask is not None else self._failure

    def edit(self, x: NDArray[np.float32]) -> None:
        if (found := self.mask) is not None:
            mask.apply(x, found)

    def edit_columns(self, x: NDArray[np.float32], ids: NDArray[np.int64], size: int) -> None:  # noqa: ARG002
        if (found := self.mask) is not None:
            mask.apply_to_columns(x, ids, found)

    @classmethod
    def edit_rows(cls, x: Tensor, members: Sequence[tuple[int, Any]]) -> None:
        found = [(r, each.mask) for r, each in members if each.mask is not None]
        if found:
            mask.apply_to_rows(x, [r for r, _ in found], [each for _, each in found])

    def forced(self) -> int | None:
        return None if (found := self.mask) is None else mask.only(found)

    def allows(self, token: int) -> bool:
        found = self.mask
        return found is not None and mask.allows(found, token)


def _grammar_after(compiled: Compiled, tokens: list[int], ended: bool, over: bool) -> Grammar:
    """The same value in another process."""
    found = compiled.begin().after(tokens[:-1] if over and not ended else tokens)
    if not over:
        return found
    return Grammar(compiled, found._path, None, ended=ended)


@dataclass(frozen=True, eq=False)
class Gate(Processor):
    """Does nothing until a marker has come, and from then on is the processor within.

    marker: its tokens.
    begin: the processor right after the marker.
    again: whether the gate closes when that processor is a complete grammar, until the marker comes again.
    seen: how many of the marker's tokens the text ends with.
    within: the processor where the gate is open; None where it is closed.
    """

    masks = True

    marker: tuple[int, ...]
    begin: Processor
    again: bool = False
    seen: int = 0
    within: Processor | None = None

    def after(self, tokens: Sequence[int]) -> Processor:
        found: Processor = self
        for n, token in enumerate(tokens):
            if not isinstance(found, Gate):
                return found.after(tokens[n:])
            found = found._after(token)
        return found

    def _after(self, token: int) -> Processor:
        if self.within is not None:
            within = self.within.after((token,))
            closes = getattr(within, "complete", False) and not getattr(within, "ended", False)
            return replace(self, seen=0, within=None if closes else within)
        seen = _matched(self.marker, self.seen, token)
        if seen < len(self.marker):
            return self if seen == self.seen else replace(self, seen=seen)
        return replace(self, seen=0, within=self.begin) if self.again else self.begin

    def edit(self, x: NDArray[np.float32]) -> None:
        if self.within is not None:
            self.within.edit(x)

    def edit_columns(self, x: NDArray[np.float32], ids: NDArray[np.int64], size: int) -> None:
        if self.within is not None:
            self.within.edit_columns(x, ids, size)

    @classmethod
    def edit_rows(cls, x: Tensor, members: Sequence[tuple[int, Any]]) -> None:
        within = [(r, gate.within) for r, gate in members if gate.within is not None]
        for kind in dict.fromkeys(type(each) for _, each in within):
            kind.edit_rows(x, [(r, each) for r, each in within if type(each) is kind])

    def forced(self) -> int | None:
        return None if self.within is None else self.within.forced()

    def allows(self, token: int) -> bool:
        return self.within is None or self.within.allows(token)

    @property
    def failure(self) -> HeadstartError | None:
        return None if self.within is None else self.within.failure


def _matched(marker: Sequence[int], seen: int, token: int) -> int:
    """How many of the marker's tokens a text ends with, once this token follows `seen` of them."""
    text = (*marker[:seen], token)
    return next(n for n in range(min(len(text), len(marker)), -1, -1) if n == 0 or text[-n:] == tuple(marker[:n]))


@dataclass(frozen=True, eq=False)
class ThinkingBudget(Processor):
    """Lets a marker come after so many tokens at the latest, by letting nothing else come.

    marker: its tokens.
    left: tokens that may still come before it.
    seen: how many of the marker's tokens the text ends with; all of them once it has come.
    """

    masks = True

    marker: tuple[int, ...]
    left: int
    seen: int = 0

    def after(self, tokens: Sequence[int]) -> ThinkingBudget:
        left, seen = self.left, self.seen
        for token in tokens:
            if seen == len(self.marker):
                break
            seen = _matched(self.marker, seen, token)
            left -= 1
        return ThinkingBudget(self.marker, left, seen) if seen != self.seen or left != self.left else self

    def forced(self) -> int | None:
        return self.marker[self.seen] if self.left <= 0 and self.seen < len(self.marker) else None

    def allows(self, token: int) -> bool:
        forced = self.forced()
        return forced is None or token == forced

    def edit(self, x: NDArray[np.float32]) -> None:
        forced = self.forced()
        if forced is not None:
            kept = x[forced]
            x += np.float32(-np.inf)
            x[forced] = kept


class Grammars:
    """The compiled grammars of an engine, the least recently used of which are forgotten. Any thread may ask."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._compiled: OrderedDict[Structure, Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def compiled(self, structure: Structure) -> Compiled:
        """The grammar, which is compiled the first time.

        Raises:
            InvalidGrammar: see `Compiled`.
            InvalidOption: llguidance is not installed.
        """
        key = replace(structure, after=(), thinking=None, trigger=())
        with self._lock:
            if (found := self._compiled.get(key)) is not None:
                self._compiled.move_to_end(key)
                return found
        made = Compiled(key, self.tokens)
        with self._lock:
            made = self._compiled.setdefault(key, made)
            while len(self._compiled) > KEPT or (
                len(self._compiled) > 1 and sum(len(each.text) for each in self._compiled) > KEPT_BYTES
            ):
                self._compiled.popitem(last=False)
        return made

    def processors(self, structure: Structure) -> list[Processor]:
        """What a request with this structure is edited by, before its first token.

        Raises:
            InvalidGrammar, InvalidOption: as above.
        """
        outside = [token for token in (*structure.after, *structure.trigger) if token >= self.tokens.vocab_size]
        if outside:
            raise InvalidGrammar(
                f"a marker of the structure names token {outside[0]}",
                hint=f"the vocabulary has the ids 0 to {self.tokens.vocab_size - 1}",
            )
        made: list[Processor] = []
        if structure.kind != "text":
            grammar: Processor = self.compiled(structure).begin()
            if structure.trigger:
                grammar = Gate(structure.trigger, grammar, again=True)
            made.append(Gate(structure.after, grammar) if structure.after else grammar)
        if structure.thinking is not None:
            made.append(ThinkingBudget(structure.after, structure.thinking))
        return made
