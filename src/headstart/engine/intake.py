"""`Intake`: from what a caller gives to requests, with every check that must come before anything is generated."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from headstart.base.errors import InvalidOption
from headstart.engine.prompts import Prompt, encode, is_listed, refuse_media
from headstart.engine.request import Request
from headstart.rule.distribution import SamplingState
from headstart.types import Drafting, EngineRule, Rule, Sampling, Speculation, Structure

if TYPE_CHECKING:
    from headstart.engine.parts import EngineParts
    from headstart.rule.grammars import Grammars
    from headstart.rule.processors import Processor
    from headstart.types.structure import Spelling

T = TypeVar("T")


class Intake:
    """Makes the requests of one engine, each checked before anything is generated."""

    def __init__(self, parts: EngineParts) -> None:
        self._target = parts.target
        self._tokenizer = parts.tokenizer
        self._eos = parts.eos_token_ids
        self._drafter = parts.drafter
        self._reason = parts.reason
        self.rule_of: Callable[[Sampling], Rule] = partial(rule_of, rule=parts.rule)
        """What a request is judged by."""
        self._numbers = itertools.count()

    @cached_property
    def _grammars(self) -> Grammars:
        from headstart.model.tokens.matching import matching_tokenizer
        from headstart.rule.compiled_grammar import Tokens
        from headstart.rule.grammars import Grammars

        size = self._target.vocab_size
        ends = frozenset(token for token in self._eos if token < size)
        make = partial(matching_tokenizer, self._tokenizer, size, ends)
        return Grammars(Tokens(make, size, ends, getattr(self._tokenizer, "eos_token_id", None)))

    @property
    def spelling(self) -> Spelling:
        """How text that a grammar forces is spelled, where a request does not choose; see `Structure.spelling`."""
        made: Grammars | None = vars(self).get("_grammars")
        return "canonical" if made is None else made.tokens.spelling

    def prepare(self, structure: Structure) -> None:
        """See `Engine.prepare`."""
        self._grammars.prepare(structure)

    def processors(self, structure: Structure | None) -> Sequence[Processor]:
        """What edits the logits of a request with this structure. Grammars are compiled once and kept.

        Raises:
            InvalidGrammar: it cannot be followed.
            InvalidOption: llguidance is not installed, or cannot read this model's tokenizer.
        """
        return () if structure is None else self._grammars.processors(structure)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """See `prompts.encode`."""
        target = self._target
        ids = encode(self._tokenizer, prompt, vocab_size=target.vocab_size, limit=target.max_length)
        refuse_media(ids, target.media_tokens)
        return ids

    def requests(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | Sequence[Sampling] | None,
        drafting: Drafting | Sequence[Drafting] | None,
    ) -> list[Request]:
        """A request for each prompt, all of them or none. sampling, drafting: one for all, or one for each.

        Raises:
            InvalidPrompt, ContextExceeded: see `prompts.encode`.
            InvalidOption: an option does not fit the model, or `drafting` names a source that is not there.
        """
        count = len(prompts)
        each = zip(
            prompts,
            one_for_each(sampling, count, Sampling()),
            one_for_each(drafting, count, Drafting()),
            strict=True,
        )
        return [self._request(*given) for given in each]

    def _request(self, prompt: Prompt, sampling: Sampling, drafting: Drafting) -> Request:
        target, speculation = self._target, self._speculation(drafting)
        if sampling.stop and self._tokenizer is None:
            raise InvalidOption("stop strings need a tokenizer", hint="use stop_token_ids, or load one with the model")
        given = [("stop_token_ids", sampling.stop_token_ids), ("prediction", drafting.prediction)]
        for name, named in (*given, *(("texts", text) for text in drafting.texts)):
            outside = next((token for token in named if token >= target.vocab_size), None)
            if outside is not None:
                raise InvalidOption(
                    f"{name} names token {outside}", hint=f"the vocabulary has the ids 0 to {target.vocab_size - 1}"
                )
        ids = self.encode(prompt)
        stop_ids = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self._eos)
        return Request(
            next(self._numbers),
            ids,
            sampling,
            seed=secrets.randbits(63) if sampling.seed is None else sampling.seed,
            rule=self.rule_of(sampling),
            sampling_state=SamplingState(
                sampling, ids, target.vocab_size, stop_ids, processors=self.processors(sampling.structure)
            ),
            stop_ids=stop_ids,
            limit=target.max_length,
            speculation=speculation,
            drafting=drafting,
            decode=text_of(self._tokenizer, sampling),
        )

    def _speculation(self, drafting: Drafting) -> Speculation:
        """How a request with these wishes begins."""
        known = self._drafter.sources
        unknown = next((name for name in drafting.sources or () if name not in known), None)
        if unknown is not None:
            raise InvalidOption(
                f"sources names {unknown!r}, and nothing here drafts by that name",
                hint=f"this engine has {', '.join(map(repr, known)) or 'no drafter'}",
            )
        name = self._drafter.name
        if not known:
            return Speculation(False, name, self._reason)
        if not drafting.enabled or drafting.max_draft_tokens == 0 or drafting.sources == ():
            return Speculation(False, name, "the request asked for no drafts")
        return Speculation(True, name)


def rule_of(sampling: Sampling, rule: EngineRule) -> Rule:
    """What a request is judged by in an engine of this rule. A greedy one has no random numbers to couple."""
    if rule != "auto":
        return rule
    return "exact" if sampling.seed is None or sampling.greedy else "coupled"


def text_of(tokenizer: Any, sampling: Sampling) -> Callable[[list[int]], str]:
    """What makes text of tokens, with those special tokens that the request wants. tokenizer: None makes none."""
    if tokenizer is None:
        return lambda _: ""
    if not sampling.shown_special_tokens:
        return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""
    hidden = _special_tokens(tokenizer) - set(sampling.shown_special_tokens)
    return lambda ids: str(tokenizer.decode([each for each in ids if each not in hidden], skip_special_tokens=False))


@lru_cache(maxsize=4)
def _special_tokens(tokenizer: Any) -> frozenset[int]:
    return frozenset(token for token, about in tokenizer.added_tokens_decoder.items() if about.special)


def is_one(prompts: Prompt | Sequence[Prompt]) -> bool:
    """One prompt is text, a conversation, or a flat sequence of ids (an empty one is refused as an empty prompt).

    Arrays and tensors count as sequences. What is no prompt and no list of them counts as one, which is then refused.
    """
    if not is_listed(prompts) or len(prompts) == 0:
        return True
    first = prompts[0]
    return not isinstance(first, str) and not is_listed(first)


def one_for_each(given: T | Sequence[T] | None, count: int, default: T) -> Sequence[T]:
    """One value, such as a `Sampling`, for each of `count` prompts; the default where none is given."""
    if given is None:
        return [default] * count
    several: Sequence[Any] = given if is_listed(given) else [given] * count  # type: ignore[assignment]
    kind = type(default)
    wrong = next((each for each in several if not isinstance(each, kind)), None)
    if wrong is not None or len(several) != count:
        found = f"{len(several)} {kind.__name__}s for {count} prompts"
        raise InvalidOption(
            found if wrong is None else f"a {type(wrong).__name__} is no {kind.__name__}",
            hint=f"give one {kind.__name__}, or one for each prompt",
        )
    return several
