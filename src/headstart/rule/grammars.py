"""The compiled grammars of an engine, and what a request's structure becomes: its processors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from headstart.base.errors import InvalidGrammar
from headstart.rule.compiled_grammar import Compiled, Tokens
from headstart.rule.gates import Gate, ThinkingBudget
from headstart.rule.grammar import Grammar
from headstart.rule.processors import Processor
from headstart.types import Structure

KEPT = 64
"""Compiled grammars that an engine keeps."""
KEPT_CHARACTERS = 1 << 20
"""Characters that the texts of those grammars may have together."""


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
        key = _key(structure)
        with self._lock:
            if (found := self._compiled.get(key)) is not None:
                self._compiled.move_to_end(key)
                return found
        made = Compiled(key, self.tokens)
        with self._lock:
            made = self._compiled.setdefault(key, made)
            while len(self._compiled) > KEPT or (
                len(self._compiled) > 1 and sum(len(each.text) for each in self._compiled) > KEPT_CHARACTERS
            ):
                self._compiled.popitem(last=False)
        return made

    def prepare(self, structure: Structure) -> None:
        """Compile what requests with this structure will need, beside the thread that steps.

        Raises:
            InvalidGrammar, InvalidOption: as above.
        """
        key = _key(structure)
        with self._lock:
            found = self._compiled.get(key)
        if found is not None and found.spent:
            made = Compiled(key, self.tokens)  # requests that come meanwhile take the old one
            with self._lock:
                if key in self._compiled:
                    self._compiled[key] = made
        self.processors(structure)

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
            grammar: Processor = Grammar.begin(self.compiled(structure))
            if structure.trigger:
                grammar = Gate(structure.trigger, grammar, again=True)
            made.append(Gate(structure.after, grammar) if structure.after else grammar)
        if structure.thinking is not None:
            made.append(ThinkingBudget(structure.after, structure.thinking))
        return made


def _key(structure: Structure) -> Structure:
    return replace(structure, after=(), thinking=None, trigger=())
