"""Where speculation leaks without touching the distribution: stops, ends, limits, log-probabilities and seeds.

A block of accepted tokens can run past what should have ended it, at any offset inside the block; so each limit is put
at every offset in turn, and what comes back must be the subject's own unlimited greedy text, cut there. A text that
differs from the one before (a server's batches change) says nothing about cuts and is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from headstart.base.words import counted
from headstart.measure.audit.engines import Rounding
from headstart.measure.audit.findings import BehaviourResult, Check, NotTested, Trial, check
from headstart.measure.audit.subject import (
    CUT,
    Ask,
    Completion,
    Progress,
    Reference,
    Subject,
    no_progress,
)
from headstart.types import Sampling

ENDING = (0.1, 0.3)
"""How likely an end should be at each position of a text, so that most texts end at one that matters; and then more."""
ENOUGH = 8
"""Texts that must end for ends to be tested."""
_WARM = Sampling(temperature=1.0)


PROMPTS = 3
"""Prompts that promises are tried on."""
LENGTH = 40
"""Tokens of the greedy texts."""
OFFSETS = 24
"""Offsets of a text at which a stop is put."""
_LOGPROB = 1e-3
"""Nats: what decimals and float32 explain."""
_STRAY = 0.05
"""Share of log-probabilities that may lie outside the tolerance: the largest change measured is not the largest."""
_WARM = Sampling(temperature=1.0)

Seeded = Callable[[Sequence[int], Sampling], Completion]


def audit_behaviour(
    subject: Subject,
    reference: Reference | None,
    prompts: Sequence[Sequence[int]],
    rounding: Rounding | None,
    progress: Progress = no_progress,
    *,
    k: int,
    gives_tokens: bool = True,
    may_ignore: bool = False,
    seeded: Seeded | None = None,
) -> BehaviourResult:
    """Try every promise on the first `PROMPTS` prompts.

    reference, rounding: None where there are no reference weights; what needs them is not tested then
    k: the longest draft; limits are tried up to k + 3
    gives_tokens: False for a server that gives text alone
    may_ignore: fields beyond OpenAI's may be unknown to the subject; ignoring one altogether is then no failure
    seeded: one completion with the seed of its `Sampling`, for a subject that can
    """
    progress("behaviour", 0, 1)
    asks = [Ask(tuple(prompt), Sampling(max_tokens=LENGTH)) for prompt in prompts[:PROMPTS]]
    texts, again = subject.sample(asks), subject.sample(asks)
    promises = _Promises(subject, reference, asks, texts, again, gives_tokens, may_ignore)
    return BehaviourResult(
        (
            check("stop strings", promises.stop_strings),
            check("stop tokens", promises.stop_tokens),
            check("max_tokens", lambda: promises.max_tokens(k + 3)),
            check("end of text", promises.nothing_after),
            check("min_tokens", lambda: promises.min_tokens(k + 3)),
            check("logprobs", lambda: promises.logprobs(rounding)),
            _seeds(seeded, prompts[:PROMPTS]),
        )
    )


@dataclass(eq=False)
class _Promises:
    """The promises, tried on one subject.

    texts, again: the greedy text of each ask, and a second time; only those that come out the same twice are compared
        with others
    gives_tokens, may_ignore: see `audit_behaviour`
    """

    subject: Subject
    reference: Reference | None
    asks: Sequence[Ask]
    texts: Sequence[Completion]
    again: Sequence[Completion]
    gives_tokens: bool
    may_ignore: bool

    @cached_property
    def _steady(self) -> list[int]:
        pairs = enumerate(zip(self.texts, self.again, strict=True))
        return [i for i, (a, b) in pairs if _same(a, b) and a.finish_reason != CUT]

    @property
    def _untested(self) -> str:
        return "no greedy text came out the same twice" if self.asks else "there is no prompt"

    def stop_strings(self) -> Trial:
        """A stop string at each of the first offsets of each text."""
        cases = [
            (i, offset, stop)
            for i in self._steady
            for offset, stop in _stops(self.texts[i].text, max(1, OFFSETS // len(self._steady)))
        ]
        found = self._sample([(i, {"stop": [stop]}) for i, _, stop in cases])
        failures, tried = [], 0
        for (i, offset, stop), completion in zip(cases, found, strict=True):
            text = self.texts[i].text
            if completion.text == text[:offset] and completion.finish_reason == "stop":
                tried += 1
            elif stop in completion.text or text.startswith(completion.text):
                tried += 1
                failures.append(
                    f"stop {stop!r} at character {offset}: {completion.text[-30:]!r} ({completion.finish_reason}), "
                    f"expected {text[:offset][-30:]!r} (stop)"
                )
        return Trial(tried, failures, f"cut before the first occurrence at {counted(tried, 'offset')}", self._untested)

    def stop_tokens(self) -> Trial:
        """A stop token at each of the first positions."""
        if not self.gives_tokens:
            raise NotTested("the server tells no tokens")
        cases = []
        for i in self._steady:
            tokens = self.texts[i].tokens
            firsts = [at for at, token in enumerate(tokens) if tokens.index(token) == at and token not in self.ids]
            cases += [(i, at) for at in firsts[:OFFSETS]]
        found = self._sample([(i, {"stop_token_ids": [self.texts[i].tokens[at]]}) for i, at in cases])
        failures, tried, ignored = [], 0, 0
        for (i, at), completion in zip(cases, found, strict=True):
            tokens = self.texts[i].tokens
            if completion.tokens[:at] != tokens[:at] and tokens[: len(completion.tokens)] != completion.tokens:
                continue  # another text
            tried += 1
            ignored += completion.tokens == tokens
            if completion.tokens not in (tokens[: at + 1], tokens[:at]) or completion.finish_reason != "stop":
                failures.append(
                    f"stop token at position {at}: {counted(len(completion.tokens), 'token')} "
                    f"({completion.finish_reason})"
                )
        if self.may_ignore and tried and ignored == tried:
            raise NotTested("the server does not know stop_token_ids")
        return Trial(tried, failures, f"nothing after the stop token at {counted(tried, 'position')}", self._untested)

    def max_tokens(self, most: int) -> Trial:
        """1, 2, ... `most` tokens."""
        cases = [(i, count) for i in self._steady for count in range(1, most + 1)]
        found = self._sample([(i, {"max_tokens": count}) for i, count in cases])
        failures, tried = [], 0
        for (i, count), completion in zip(cases, found, strict=True):
            whole = self.texts[i]
            if len(completion.tokens) <= count and not _begins(completion, whole, self.gives_tokens):
                continue
            tried += 1
            if not self.gives_tokens:
                wrong = completion.text != whole.text and completion.finish_reason != "length"
            else:
                expected = min(count, len(whole.tokens))
                reason = "length" if count < len(whole.tokens) else whole.finish_reason
                wrong = (len(completion.tokens), completion.finish_reason) != (expected, reason)
            if wrong:
                failures.append(
                    f"max_tokens={count}: {counted(len(completion.tokens), 'token')} ({completion.finish_reason})"
                )
        exact = f"exact, for each of 1 to {most}"
        kept = exact if self.gives_tokens else "each text is cut short, with finish_reason"
        return Trial(tried, failures, kept, self._untested)

    def logprobs(self, rounding: Rounding | None) -> Trial:
        """The log-probabilities given are those of the reference for the very tokens."""
        if self.reference is None or rounding is None:
            raise NotTested("there are no reference weights")
        asks = [Ask(ask.prompt, replace(ask.sampling, logprobs=1)) for ask in self.asks]
        found = [(ask, c) for ask, c in zip(asks, self.subject.sample(asks), strict=True) if c.logprobs]
        if not found or not self.gives_tokens:
            raise NotTested("the server gives none")
        tolerance = max(_LOGPROB, rounding.logprob)
        off: list[tuple[float, str]] = []
        cases = 0
        for number, (ask, completion) in enumerate(found):
            distributions = self.reference.distributions(ask.prompt, completion.tokens, _WARM)
            for at, entry in enumerate(completion.logprobs or ()):
                expected = float(np.log(max(float(distributions[at, entry.token]), 1e-38)))
                cases += 1
                if not abs(expected - entry.logprob) <= tolerance:
                    words = f"text {number}, position {at}: {entry.logprob:.4f}, expected {expected:.4f}"
                    off.append((abs(expected - entry.logprob), words))
        kept = f"{cases - len(off)} of {cases} within {tolerance:.2g} nats"
        failures = [words for _, words in sorted(off, reverse=True)] if len(off) > _STRAY * cases else []
        return Trial(cases, failures, kept)

    def _sample(self, cases: Sequence[tuple[int, dict[str, Any]]]) -> list[Completion]:
        """The greedy texts of these numbers again, with options."""
        asks = [Ask(self.asks[i].prompt, replace(self.asks[i].sampling, **options)) for i, options in cases]
        return self.subject.sample(asks)

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
            raise NotTested(f"none of {counted(cases, 'text')} ended within {counted(self._length, 'token')}")
        ended = counted(len(lengths), "text")
        kept = f"nothing came after it in {ended} that ended, at {len(set(lengths))} different lengths"
        return Trial(cases, failures, kept)

    def min_tokens(self, least: int) -> Trial:
        """No end before that many, in texts that would end sooner."""
        if not self.ids or not self.gives_tokens:
            raise NotTested("no token is known to end a text")
        bias = self._bias(max(ENDING))
        sooner, early = self._early(bias, least), self._early(bias, least, min_tokens=least)
        if len(sooner) < ENOUGH:
            raise NotTested(f"hardly a text ends within {counted(least, 'token')} by itself")
        if self.may_ignore and len(early) >= len(sooner) / 2:
            raise NotTested("the server does not know min_tokens")
        failures = [f"min_tokens={least}: ended after {counted(count, 'token')}" for count in early]
        return Trial(len(sooner), failures, f"no text ended before {counted(least, 'token')}")

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
        ends = np.concatenate([each[:, self.ids].sum(-1) for each in distributions]).clip(1e-12, 1 - 1e-12)
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
            return f"{counted(len(completion.tokens) - at - 1, 'token')} after the end of a text of {at + 1}"
        if at is not None and completion.finish_reason != "stop":
            return f"a text that ended has finish_reason {completion.finish_reason!r}"
        return None


def _stops(text: str, most: int) -> list[tuple[int, str]]:
    """(offset, string): strings of 1 to 8 characters that first come at each of the first offsets of a text."""
    found = []
    for offset in range(len(text)):
        for size in (*range(1 + offset % 3, 9), *range(1, 1 + offset % 3)):
            stop = text[offset : offset + size]
            if len(stop) == size and text.find(stop) == offset and "\ufffd" not in stop:
                found.append((offset, stop))
                break
    return found[:most]


def _same(a: Completion, b: Completion) -> bool:
    return (a.tokens, a.text) == (b.tokens, b.text)


def _begins(part: Completion, whole: Completion, tokens: bool) -> bool:
    """Whether one text is the beginning of the other."""
    a, b = (part.tokens, whole.tokens) if tokens else (part.text, whole.text)
    return a == b[: len(a)] or b == a[: len(b)]


def _seeds(seeded: Seeded | None, prompts: Sequence[Sequence[int]]) -> Check:
    """The same seed twice. It is reported only: servers promise it at most for one batch size."""
    if seeded is None:
        return Check("seeds", "not tested", "the subject takes no seeds")
    warm = replace(_WARM, max_tokens=LENGTH, seed=7)
    equal = sum(_same(seeded(prompt, warm), seeded(prompt, warm)) for prompt in prompts)
    detail = f"{equal} of {counted(len(prompts), 'text')} came out the same with the same seed"
    return Check("seeds", "passed" if equal == len(prompts) and prompts else "noted", detail, len(prompts))
