"""What a request asks for: how its tokens are drawn, and how it may be drafted for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, check_number, described, option, strict, token_ids
from headstart.types.structure import Structure

LogprobsMode = Literal["raw", "processed"]

LONGEST_STOP = 4096
"""Characters of a stop string."""
MOST_STOP_CHARACTERS = 16_384
"""Of all stop strings of a request together: each of them is followed while the text comes."""

_option = partial(option, panel="Sampling")


def _parse_bias(pairs: Sequence[str]) -> dict[int, float]:
    """The command line's ID=VALUE, ... as a mapping."""
    bias: dict[int, float] = {}
    for pair in pairs:
        token, _, value = pair.partition("=")
        try:
            bias[int(token)] = float(value)
        except ValueError:
            hint = "for example --logit-bias 42=-100 forbids token 42"
            raise InvalidOption(f"--logit-bias {pair!r} is not ID=VALUE", hint=hint) from None
    return bias


_BIAS = described(
    "Number to add to the logit of a token, by the token's id.",
    metavar="ID=VALUE", kind=list[str], parse=_parse_bias, panel="Sampling",
)  # fmt: skip


@strict
@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of one request are drawn. Names and defaults follow OpenAI and vLLM; greedy by default.

    The processors act in this order: logit_bias, repetition_penalty, presence_penalty and frequency_penalty,
    min_tokens, structure, temperature, top_k, top_p, min_p. The values top_k=0, top_p=1 and min_p=0 switch those off.

    structure: the form that the text must have, such as JSON; a `Structure`. Tokens that cannot come are masked before
        the filters. Default: None, any text.
    shown_special_tokens: ids of special tokens that stay in the text, such as the marks around a call of a tool. All
        others are left out. Default: none.
    cache_salt: what an engine keeps of requests is shared only among requests of the same salt. Default: "".

    Raises:
        InvalidOption: a field does not exist, has the wrong type, or lies outside its range.

    Examples:
        >>> import headstart as hs
        >>> hs.Sampling().greedy
        True
        >>> hs.Sampling(temperature=0.8, top_p=0.95, seed=7, max_tokens=64, stop=["\\n\\n"]).stop
        ('\\n\\n',)
        >>> hs.Sampling(temperature=-1)
        Traceback (most recent call last):
        headstart.base.errors.InvalidOption: ...
    """

    max_tokens: int = _option(256, "The most new tokens.", "-n", low=1)
    temperature: float = _option(
        0.0, "Randomness: 0 always takes the likeliest token, 1 draws from the model's distribution.", "-T", low=0
    )
    top_k: int = _option(0, "Keep only this many of the likeliest tokens; 0 keeps all.", low=0)
    top_p: float = _option(1.0, "Keep only the likeliest tokens that together reach this probability.", above=0, high=1)
    min_p: float = _option(0.0, "Keep only tokens at least this many times as likely as the likeliest.", low=0, high=1)
    repetition_penalty: float = _option(
        1.0, "Above 1, tokens of the prompt and the text become less likely to come again.", low=0.001, high=1000
    )
    presence_penalty: float = _option(
        0.0, "Subtracted from the logit of every token in the text so far.", low=-1000, high=1000
    )
    frequency_penalty: float = _option(
        0.0, "Subtracted from a token's logit for each time the text so far contains it.", low=-1000, high=1000
    )
    logit_bias: Mapping[int, float] = field(default_factory=dict, metadata=_BIAS)
    seed: int | None = _option(
        None,
        "One seed gives one text, unless the rule is 'exact'. Without one, a seed is drawn.",
        low=0,
        high=2**63 - 1,
    )
    min_tokens: int = _option(0, "The text does not end before this many new tokens.", low=0)
    stop: Sequence[str] = _option((), "End the text before this string.", metavar="TEXT")
    stop_token_ids: Sequence[int] = _option((), "End the text at this token.", "--stop-token-id", metavar="ID", low=0)
    ignore_eos: bool = _option(False, "Continue past the model's end-of-text token until the limit on new tokens.")
    logprobs: int | None = option(
        None, "Also return the log-probability of each token, and of this many of the likeliest.", panel="Output", low=0
    )
    logprobs_mode: LogprobsMode = option(
        "raw", "Log-probabilities before ('raw') or after ('processed') penalties and temperature.", panel="Output"
    )
    structure: Structure | None = None
    shown_special_tokens: Sequence[int] = ()
    cache_salt: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.min_tokens > self.max_tokens:
            raise InvalidOption(
                f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}",
                hint="min_tokens must not exceed max_tokens",
            )
        if not isinstance(self.cache_salt, str):
            raise InvalidOption(f"cache_salt={self.cache_salt!r} is not text", hint="give a string, or leave it out")
        if self.structure is not None:
            _check_beside(self.structure, self)
        object.__setattr__(self, "shown_special_tokens", token_ids("shown_special_tokens", self.shown_special_tokens))
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "logit_bias", _bias(self.logit_bias))

    @property
    def greedy(self) -> bool:
        """Temperature 0: the distribution is one-hot."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Drafting:
    """How drafts may be made for one request. Its text follows the same distribution whatever is set here.

    enabled: whether anything is drafted for the request. Default: True.
    max_draft_tokens: the most nodes of a draft. Default: None, which leaves it to the drafter and the pacing.
    sources: names of the drafters that may draft, where an engine has several. Default: None, which is all of them.
    prediction: token ids that the output is expected to contain, to a large part and in this order. See
        `Engine.encode_after`. Default: none.
    texts: token ids of texts from which the output may copy passages, beside its prompt; the likeliest first. Default:
        none.

    Raises:
        InvalidOption: a field has the wrong type or lies outside its range.

    Examples:
        >>> import headstart as hs
        >>> engine = hs.load("bundled", ["prediction", "ngram"], dtype="float32")
        >>> expected = engine.encode_after("def add(a, b):", "\\n    return a + b\\n")
        >>> out = engine.generate("def add(a, b):", hs.Sampling(max_tokens=8), hs.Drafting(prediction=expected))
        >>> engine.generate("def add(a, b):", hs.Sampling(max_tokens=8), hs.Drafting(enabled=False)).text == out.text
        True
    """

    enabled: bool = True
    max_draft_tokens: int | None = None
    sources: tuple[str, ...] | None = None
    prediction: tuple[int, ...] = ()
    texts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise InvalidOption(f"enabled={self.enabled!r} is neither true nor false", hint="give True or False")
        if self.max_draft_tokens is not None:
            check_number("max_draft_tokens", self.max_draft_tokens, low=0, integer=True)
        if self.sources is not None:
            names = (self.sources,) if isinstance(self.sources, str) else self.sources
            if not isinstance(names, Iterable) or not all(isinstance(name, str) and name for name in names):
                raise InvalidOption(f"sources={self.sources!r} are no names", hint="give the names of drafters")
            object.__setattr__(self, "sources", tuple(names))
        object.__setattr__(self, "prediction", token_ids("prediction", self.prediction))
        if not isinstance(self.texts, Iterable):
            raise InvalidOption(f"texts={self.texts!r} is not a list", hint="give a tuple of token ids for each text")
        object.__setattr__(self, "texts", tuple(token_ids("texts", text) for text in self.texts))


def _check_beside(structure: object, sampling: Sampling) -> None:
    """Check what a request with a grammar may ask for besides it."""
    if not isinstance(structure, Structure):
        raise InvalidOption(f"structure={structure!r} is no Structure"[:200], hint="give a headstart.types.Structure")
    if structure.kind == "text":
        return
    for name in ("min_tokens", "ignore_eos"):
        if getattr(sampling, name):
            raise InvalidOption(
                f"{name} and structure exclude each other: nothing can follow a text that is complete",
                hint=f"leave {name} out; the grammar says how long the text is",
            )


def _stop_strings(stop: object) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else stop
    if not isinstance(strings, Sequence) or not all(isinstance(s, str) and s for s in strings):
        hint = "give one non-empty string, or a list of them"
        raise InvalidOption(f"stop={stop!r} is not a list of strings", hint=hint)
    lengths = [len(string) for string in strings]
    too_long = next((n for n, length in enumerate(lengths) if length > LONGEST_STOP), None)
    if too_long is not None:
        raise InvalidOption(
            f"stop[{too_long}] has {lengths[too_long]} characters", hint=f"a stop string has at most {LONGEST_STOP}"
        )
    if sum(lengths) > MOST_STOP_CHARACTERS:
        raise InvalidOption(
            f"stop=[...] has {sum(lengths)} characters in {len(lengths)} strings",
            hint=f"give at most {MOST_STOP_CHARACTERS} characters of them",
        )
    return tuple(strings)


_MOST_BIAS = 1e6
"""Far beyond any logit, and far from where float32 ends."""


def _bias(bias: object) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise InvalidOption(f"logit_bias={bias!r} is not a mapping", hint="give {token id: bias}")
    for token, value in bias.items():
        check_number("logit_bias token", token, low=0, integer=True)
        check_number(f"logit_bias[{token}]", value, low=-_MOST_BIAS, high=_MOST_BIAS)
    return dict(bias)
