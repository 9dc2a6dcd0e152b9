"""A grammar as a processor: which tokens may come next at one place of a text.

The mask of a place is a function of the grammar and of the tokens before the place, and of nothing else: not of drafts,
of rejected tokens or of other requests. It is the last edit before the filters, so the distribution is the target's
own, restricted to the tokens that may come and renormalised, token by token.

llguidance's matchers are mutable, and copies of one share a lexer: a limit that a rejected draft has reached is then
reached for the committed text as well. So an error is believed only if a fresh matcher that is given the same tokens
has it too, and an end-of-text token, which matchers take without noting it, is never given to one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headstart.base.errors import GrammarFailed, HeadstartError
from headstart.rule import mask
from headstart.rule.compiled_grammar import Compiled, dead_end, mask_of
from headstart.rule.mask import Mask
from headstart.rule.processors import Processor

SLOW_MASK = 2.0
"""Seconds of processor time that a mask may take while a request runs; one that takes longer ends its request."""
NOTED_MASK = 0.05
"""Seconds of processor time from which a mask is written to the log."""

log = logging.getLogger(__name__)

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

    @classmethod
    def begin(cls, compiled: Compiled) -> Grammar:
        """The processor at the beginning of a text."""
        return cls(compiled, None, compiled.matcher())

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
        # Without one the newest that there is may do: its lexer knows other texts, none of which came to this limit
        matcher, tokens = (self._compiled.matcher() if first is None else first.deep_copy()), _tokens_of(path)
        taken = matcher.try_consume_tokens(tokens)
        if first is None and matcher.is_error():  # of that only a fresh one convicts a text, whatever it takes
            first = self._compiled.fresh(now=True)
            matcher = first.deep_copy()
            taken = matcher.try_consume_tokens(tokens)
        found = Grammar(self._compiled, path, matcher if taken == len(tokens) else None)
        if matcher.is_error():
            found._fail(matcher)
        elif first is not None:
            self._compiled.begin_again_with(first)
        return found

    def _fail(self, matcher: Any) -> None:
        said = (str(matcher.get_error()).strip() or str(matcher.stop_reason())).splitlines()[0]
        words = "no token can come next" if dead_end(matcher) else f"a limit of the grammar was reached ({said})"
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
        found = mask_of(self._matcher, self._compiled.tokens)
        if self._matcher.is_error():
            again = self._rebuilt(self._path)
            self._matcher, self._failure = again._matcher, again._failure
            if self._failure is not None or self._matcher is None:
                return None
            found = mask_of(self._matcher, self._compiled.tokens)
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
    found = Grammar.begin(compiled).after(tokens[:-1] if over and not ended else tokens)
    if not over:
        return found
    return Grammar(compiled, found._path, None, ended=ended)
