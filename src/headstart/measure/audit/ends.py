"""Ends of text: nothing comes after them, and none comes before min_tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headstart.measure.audit.findings import NotTested, Trial
from headstart.measure.audit.subject import Ask, Completion, Reference, Subject
from headstart.types import Sampling

ENDING = (0.1, 0.3)
"""How likely an end should be at each position of a text, so that most texts end at one that matters; and then more."""
ENOUGH = 8
"""Texts that must end for ends to be tested."""
_WARM = Sampling(temperature=1.0)


@dataclass(eq=False)
class Ends:
    """Promises about the tokens that end a text, tried on one subject.

    texts: the greedy text of each ask
    gives_tokens, may_ignore: see `audit_behaviour`
    """

    subject: Subject
    reference: Reference | None
    asks: Sequence[Ask]
    texts: Sequence[Completion]
    _: KW_ONLY
    gives_tokens: bool
    may_ignore: bool

    @cached_property
    def ids(self) -> list[int]:
        """The tokens that end a text, as far as they are known."""
        return [] if self.reference is None else sorted(self.reference.stop_ids(Sampling()))

    @property
    def _length(self) -> int:
        return max((ask.sampling.max_tokens for ask in self.asks), default=1)

    def nothing_after(self) -> Trial:
        """Nothing after the end of a text, wherever in a block it comes; made likelier until enough texts end."""
        if not self.ids:
            raise NotTested("no token is known to end a text")
        if not self.gives_tokens:
            raise NotTested("the server tells no tokens")
        failures: list[str] = []
        lengths: list[int] = []
        cases = 0
        for chance in ENDING:
            found = self._sample_biased(self._bias(chance))
            cases += len(found)
            failures += filter(None, map(self._end_failure, found))
            lengths += [len(c.tokens) for c in found if self._ended(c)]
            if len(lengths) >= ENOUGH or failures:
                break
        if not lengths and not failures:
            raise NotTested(f"none of {cases} texts ended within {self._length} tokens")
        kept = f"nothing came after it in {len(lengths)} texts that ended, at {len(set(lengths))} different lengths"
        return Trial(cases, failures, kept)

    def min_tokens(self, least: int) -> Trial:
        """No end before that many, in texts that would end sooner."""
        if not self.ids or not self.gives_tokens:
            raise NotTested("no token is known to end a text")
        bias = self._bias(max(ENDING))
        sooner, early = self._early(bias, least), self._early(bias, least, min_tokens=least)
        if len(sooner) < ENOUGH:
            raise NotTested(f"hardly a text ends within {least} tokens by itself")
        if self.may_ignore and len(early) >= len(sooner) / 2:
            raise NotTested("the server does not know min_tokens")
        failures = [f"min_tokens={least}: ended after {count} tokens" for count in early]
        return Trial(len(sooner), failures, f"no text ended before {least} tokens")

    def _sample_biased(self, bias: float, **options: Any) -> list[Completion]:
        """Texts at temperature 1 with a bias on the tokens that end them."""
        warm = Sampling(max_tokens=self._length, temperature=1.0, logit_bias=dict.fromkeys(self.ids, bias), **options)
        each = max(1, 2 * ENOUGH // max(1, len(self.asks)))
        return self.subject.sample([Ask(ask.prompt, warm) for ask in self.asks for _ in range(each)])

    def _bias(self, chance: float) -> float:
        """What to add to the logits of the ends, so that a text ends with this probability at each position: on
        average over the greedy texts, by the reference's distribution."""
        assert self.reference is not None, "ends are known from the reference"
        of_texts = zip(self.asks, self.texts, strict=True)
        distributions = [self.reference.distributions(ask.prompt, text.tokens, _WARM) for ask, text in of_texts]
        ends = np.concatenate([distribution[:, self.ids].sum(-1) for distribution in distributions]).clip(
            1e-12, 1 - 1e-12
        )
        odds = np.log(ends) - np.log1p(-ends)
        biases = np.linspace(-5, 40, 181)
        means = (1 / (1 + np.exp(-(odds + biases[:, None])))).mean(1)
        return round(float(biases[np.searchsorted(means, chance).clip(max=len(biases) - 1)]), 2)

    def _ended(self, completion: Completion) -> bool:
        return bool(completion.tokens) and completion.tokens[-1] in self.ids

    def _early(self, bias: float, least: int, **options: Any) -> list[int]:
        """Lengths (without the end) of texts that ended before `least` tokens."""
        lengths = [len(c.tokens) - 1 for c in self._sample_biased(bias, **options) if self._ended(c)]
        return [length for length in lengths if length < least]

    def _end_failure(self, completion: Completion) -> str | None:
        at = next((i for i, token in enumerate(completion.tokens) if token in self.ids), None)
        if at is not None and at + 1 < len(completion.tokens):
            return f"{len(completion.tokens) - at - 1} tokens after the end of a text of {at + 1}"
        if at is not None and completion.finish_reason != "stop":
            return f"a text that ended has finish_reason {completion.finish_reason!r}"
        return None
