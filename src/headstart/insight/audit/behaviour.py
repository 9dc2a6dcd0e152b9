"""Where speculation leaks without touching the law: stops, ends, limits, log-probabilities and seeds.

A block of accepted tokens can run past what should have ended it, at any offset inside the block; so each limit is put
at every offset in turn, and what comes back must be the subject's own unlimited greedy text, cut there. A text that is
another one than before (a server's batches change) says nothing about cuts and is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headstart.insight.audit.checks import BehaviourResult, Check, checked
from headstart.insight.audit.rounding import Rounding
from headstart.insight.audit.servers.endpoint import CUT
from headstart.insight.audit.servers.wire import Refused
from headstart.insight.audit.subject import Ask, Completion, Reference, Subject, sample_all
from headstart.types import Sampling

LENGTH = 40
OFFSETS = 24
ENDING = (0.1, 0.3)
"""How likely an end should be at each position of a text, so that most texts end at one that matters; and then more."""
ENOUGH = 8
_LOGPROB = 1e-3
"""Nats: what decimals and float32 explain."""
_STRAY = 0.05
"""Share of log-probabilities that may lie outside the tolerance: the largest change measured is not the largest."""

Seeded = Callable[[Sequence[int], Sampling], Completion]


def audit_behaviour(
    subject: Subject,
    reference: Reference | None,
    prompts: Sequence[Sequence[int]],
    rounding: Rounding | None,
    *,
    k: int,
    tells_tokens: bool = True,
    may_ignore: bool = False,
    seeded: Seeded | None = None,
) -> BehaviourResult:
    """Try every promise on the prompts.

    reference, rounding: None where there are no reference weights; what needs them is not tested then. k: the longest
    draft; limits are tried up to k + 3. tells_tokens: False for a server that gives text alone.
    may_ignore: fields beyond OpenAI's may be unknown to the subject; ignoring one altogether is then no failure.
    seeded: one completion with the seed of its `Sampling`, for a subject that can.
    """
    base = _Base.of(subject, prompts)
    trial = _Trial(subject, reference, base, may_ignore=may_ignore, tells_tokens=tells_tokens)
    return BehaviourResult(
        (
            _tried("stop strings", trial.stop_strings),
            _tried("stop tokens", trial.stop_tokens),
            _tried("max_tokens", lambda: trial.max_tokens(k + 3)),
            _tried("end of text", trial.ends),
            _tried("min_tokens", lambda: trial.min_tokens(k + 3)),
            _tried("logprobs", lambda: trial.logprobs(rounding)),
            _tried("seeds", lambda: _seeds(seeded, prompts)),
        )
    )


def _tried(name: str, check: Callable[[], Check]) -> Check:
    """The check, or why the server would not have it: some refuse fields while they speculate."""
    try:
        return check()
    except Refused as error:
        return Check(name, "not tested", f"refused: {error.message}")


@dataclass(frozen=True)
class _Base:
    """Greedy texts without any limit but LENGTH tokens. steady: those that come out the same twice."""

    asks: tuple[Ask, ...]
    texts: tuple[Completion, ...]
    steady: tuple[int, ...]

    @classmethod
    def of(cls, subject: Subject, prompts: Sequence[Sequence[int]]) -> _Base:
        asks = tuple(Ask(tuple(prompt), Sampling(max_tokens=LENGTH)) for prompt in prompts)
        texts, again = sample_all(subject, asks), sample_all(subject, asks)
        pairs = enumerate(zip(texts, again, strict=True))
        steady = tuple(i for i, (a, b) in pairs if _same(a, b) and a.finish_reason != CUT)
        return cls(asks, tuple(texts), steady)

    @property
    def unsteady(self) -> str:
        return "no greedy text came out the same twice" if self.asks else "there is no prompt"


class _Trial:
    """One subject, tried."""

    def __init__(
        self, subject: Subject, reference: Reference | None, base: _Base, *, may_ignore: bool, tells_tokens: bool
    ) -> None:
        self._subject, self._reference, self._base = subject, reference, base
        self._may_ignore, self._tells_tokens = may_ignore, tells_tokens
        self._end_ids = [] if reference is None else sorted(reference.stop_ids(Sampling()))

    def stop_strings(self) -> Check:
        """A stop string at each of the first offsets of each text."""
        cases = [
            (i, offset, stop)
            for i in self._base.steady
            for offset, stop in _stops(self._base.texts[i].text, max(1, OFFSETS // len(self._base.steady)))
        ]
        found = self._ask([(i, {"stop": [stop]}) for i, _, stop in cases])
        failures, counted = [], 0
        for (i, offset, stop), completion in zip(cases, found, strict=True):
            text = self._base.texts[i].text
            if completion.text == text[:offset] and completion.finish_reason == "stop":
                counted += 1
            elif stop in completion.text or text.startswith(completion.text):
                counted += 1
                failures.append(
                    f"stop {stop!r} at character {offset}: {completion.text[-30:]!r} ({completion.finish_reason}), "
                    f"expected {text[:offset][-30:]!r} (stop)"
                )
        kept = f"cut before the first occurrence at {counted} offsets"
        return checked("stop strings", counted, failures, kept=kept, untested=self._base.unsteady)

    def stop_tokens(self) -> Check:
        """A stop token at each of the first positions."""
        if not self._tells_tokens:
            return Check("stop tokens", "not tested", "the server tells no tokens")
        cases = []
        for i in self._base.steady:
            tokens = self._base.texts[i].tokens
            firsts = [at for at, token in enumerate(tokens) if tokens.index(token) == at and token not in self._end_ids]
            cases += [(i, at) for at in firsts[:OFFSETS]]
        found = self._ask([(i, {"stop_token_ids": [self._base.texts[i].tokens[at]]}) for i, at in cases])
        failures, counted, ignored = [], 0, 0
        for (i, at), completion in zip(cases, found, strict=True):
            tokens = self._base.texts[i].tokens
            if completion.tokens[:at] != tokens[:at] and tokens[: len(completion.tokens)] != completion.tokens:
                continue  # another text
            counted += 1
            ignored += completion.tokens == tokens
            if completion.tokens not in (tokens[: at + 1], tokens[:at]) or completion.finish_reason != "stop":
                failures.append(
                    f"stop token at position {at}: {len(completion.tokens)} tokens ({completion.finish_reason})"
                )
        if self._may_ignore and counted and ignored == counted:
            return Check("stop tokens", "not tested", "the server does not know stop_token_ids")
        kept = f"nothing after the stop token at {counted} positions"
        return checked("stop tokens", counted, failures, kept=kept, untested=self._base.unsteady)

    def max_tokens(self, most: int) -> Check:
        """1, 2, ... `most` tokens."""
        cases = [(i, count) for i in self._base.steady for count in range(1, most + 1)]
        found = self._ask([(i, {"max_tokens": count}) for i, count in cases])
        failures, counted = [], 0
        for (i, count), completion in zip(cases, found, strict=True):
            whole = self._base.texts[i]
            too_many = len(completion.tokens) > count
            if not too_many and not _begins(completion, whole, self._tells_tokens):
                continue
            counted += 1
            if not self._tells_tokens:
                wrong = completion.text != whole.text and completion.finish_reason != "length"
            else:
                expected = min(count, len(whole.tokens))
                reason = "length" if count < len(whole.tokens) else whole.finish_reason
                wrong = (len(completion.tokens), completion.finish_reason) != (expected, reason)
            if wrong:
                failures.append(f"max_tokens={count}: {len(completion.tokens)} tokens ({completion.finish_reason})")
        kept = f"exact, for each of 1 to {most}" if self._tells_tokens else "each text is cut short, with finish_reason"
        return checked("max_tokens", counted, failures, kept=kept, untested=self._base.unsteady)

    def ends(self) -> Check:
        """Nothing after the end of a text, wherever in a block it comes; made likelier until enough texts end."""
        name = "end of text"
        if not self._end_ids:
            return Check(name, "not tested", "no token is known to end a text")
        if not self._tells_tokens:
            return Check(name, "not tested", "the server tells no tokens")
        failures: list[str] = []
        lengths: list[int] = []
        cases = 0
        for chance in ENDING:
            found = self._biased(self._bias(chance))
            cases += len(found)
            failures += [said for completion in found if (said := self._end_failure(completion)) is not None]
            lengths += [len(c.tokens) for c in found if c.tokens and c.tokens[-1] in self._end_ids]
            if len(lengths) >= ENOUGH or failures:
                break
        if not lengths and not failures:
            return Check(name, "not tested", f"none of {cases} texts ended within {LENGTH} tokens")
        kept = f"nothing came after it in {len(lengths)} texts that ended, at {len(set(lengths))} different lengths"
        return checked(name, cases, failures, kept=kept, untested="")

    def min_tokens(self, least: int) -> Check:
        """No end before that many, in texts that would end sooner."""
        name = "min_tokens"
        if not self._end_ids or not self._tells_tokens:
            return Check(name, "not tested", "no token is known to end a text")
        bias = self._bias(max(ENDING))
        sooner, early = self._early(bias, least), self._early(bias, least, min_tokens=least)
        if len(sooner) < ENOUGH:
            return Check(name, "not tested", f"hardly a text ends within {least} tokens by itself")
        if self._may_ignore and len(early) >= len(sooner) / 2:
            return Check(name, "not tested", "the server does not know min_tokens")
        failures = [f"min_tokens={least}: ended after {count} tokens" for count in early]
        return checked(name, len(sooner), failures, kept=f"no text ended before {least} tokens", untested="")

    def _early(self, bias: float, least: int, **options: Any) -> list[int]:
        """Lengths (without the end) of texts that ended before `least` tokens."""
        found = self._biased(bias, **options)
        lengths = [len(c.tokens) - 1 for c in found if c.tokens and c.tokens[-1] in self._end_ids]
        return [length for length in lengths if length < least]

    def _bias(self, chance: float) -> float:
        """What to add to the logits of the ends, so that a text ends with this probability at each position: on
        average over the greedy texts, by the reference's law."""
        assert self._reference is not None, "ends are known from the reference"
        warm = Sampling(temperature=1.0)
        laws = [
            self._reference.laws(a.prompt, c.tokens, warm)
            for a, c in zip(self._base.asks, self._base.texts, strict=True)
        ]
        ends = np.concatenate([law[:, self._end_ids].sum(-1) for law in laws]).clip(1e-12, 1 - 1e-12)
        odds = np.log(ends) - np.log1p(-ends)
        biases = np.linspace(-5, 40, 181)
        means = (1 / (1 + np.exp(-(odds + biases[:, None])))).mean(1)
        return round(float(biases[np.searchsorted(means, chance).clip(max=len(biases) - 1)]), 2)

    def logprobs(self, rounding: Rounding | None) -> Check:
        """The log-probabilities given are those of the reference for the very tokens."""
        name = "logprobs"
        if self._reference is None or rounding is None:
            return Check(name, "not tested", "there are no reference weights")
        asks = [Ask(ask.prompt, replace(ask.sampling, logprobs=1)) for ask in self._base.asks]
        found = [(ask, c) for ask, c in zip(asks, sample_all(self._subject, asks), strict=True) if c.logprobs]
        if not found or not self._tells_tokens:
            return Check(name, "not tested", "the server gives none")
        tolerance = max(_LOGPROB, rounding.logprob)
        off: list[tuple[float, str]] = []
        cases = 0
        for number, (ask, completion) in enumerate(found):
            laws = self._reference.laws(ask.prompt, completion.tokens, Sampling(temperature=1.0))
            for at, entry in enumerate(completion.logprobs or ()):
                expected = float(np.log(max(float(laws[at, entry.token]), 1e-38)))
                cases += 1
                if not abs(expected - entry.logprob) <= tolerance:
                    said = f"text {number}, position {at}: {entry.logprob:.4f}, expected {expected:.4f}"
                    off.append((abs(expected - entry.logprob), said))
        if len(off) <= _STRAY * cases:
            return Check(name, "passed", f"{cases - len(off)} of {cases} within {tolerance:.2g} nats", cases)
        return checked(name, cases, [said for _, said in sorted(off, reverse=True)], kept="", untested="")

    def _biased(self, bias: float, **options: Any) -> list[Completion]:
        warm = Sampling(max_tokens=LENGTH, temperature=1.0, logit_bias=dict.fromkeys(self._end_ids, bias), **options)
        each = max(1, 2 * ENOUGH // max(1, len(self._base.asks)))
        return sample_all(self._subject, [Ask(ask.prompt, warm) for ask in self._base.asks for _ in range(each)])

    def _end_failure(self, completion: Completion) -> str | None:
        at = next((i for i, token in enumerate(completion.tokens) if token in self._end_ids), None)
        if at is not None and at + 1 < len(completion.tokens):
            return f"{len(completion.tokens) - at - 1} tokens after the end of a text of {at + 1}"
        if at is not None and completion.finish_reason != "stop":
            return f"a text that ended has finish_reason {completion.finish_reason!r}"
        return None

    def _ask(self, cases: Sequence[tuple[int, dict[str, Any]]]) -> list[Completion]:
        return sample_all(
            self._subject,
            [Ask(self._base.asks[i].prompt, replace(self._base.asks[i].sampling, **options)) for i, options in cases],
        )


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
    """The same seed twice. Reported only: servers promise it at most for one batch size."""
    name = "seeds"
    if seeded is None:
        return Check(name, "not tested", "the subject takes no seeds")
    warm = Sampling(max_tokens=LENGTH, temperature=1.0, seed=7)
    equal = sum(_same(seeded(prompt, warm), seeded(prompt, warm)) for prompt in prompts)
    said = f"{equal} of {len(prompts)} texts came out the same with the same seed"
    return Check(name, "passed" if equal == len(prompts) and prompts else "noted", said, len(prompts))
