"""The nouns of the engine, as small frozen values. Nothing here computes; nothing here imports the engine.

Symbols follow the papers: p is the target's law, q the draft's, K the length of a draft, x0 the pending token.
Shapes: V is the vocabulary, N the number of nodes of a draft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from headstart.errors import HeadstartError, InvalidOption
from headstart.options import check_fields, check_number, described, option, strict

if TYPE_CHECKING:
    import torch

Rule = Literal["exact", "coupled"]
TreeKind = Literal["none", "mixed", "top-k", "sampled"]
"""What models and heads draft: chains ("none"); dynamic trees of the likeliest nodes ("top-k"); static trees drawn
without replacement ("sampled"); or the first for greedy requests and the second for others ("mixed"). At temperature 0
both trees do about as well; above it point masses are accepted less often than drawn nodes, and a tree of them may
bring less than a drawn chain."""
LogprobsMode = Literal["raw", "processed"]
FinishReason = Literal["stop", "length", "error", "cancelled"]


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
    """How one request is sampled. Names and defaults follow the OpenAI and vLLM parameters; greedy by default.

    The processors act in this order: logit_bias, repetition_penalty, presence_penalty and frequency_penalty,
    min_tokens, temperature, top_k, top_p, min_p. The values top_k=0, top_p=1 and min_p=0 switch those off.
    """

    max_tokens: int = _option(256, "The most new tokens.", "-n", low=1)
    temperature: float = _option(
        0.0, "0 always takes the likeliest token; 1 draws from the model's distribution.", "-T", low=0
    )
    top_k: int = _option(0, "Keep only the N likeliest tokens; 0 keeps all.", low=0)
    top_p: float = _option(1.0, "Keep only the likeliest tokens that together reach probability X.", above=0, high=1)
    min_p: float = _option(0.0, "Keep only tokens at least X times as likely as the likeliest.", low=0, high=1)
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
        None, "The same seed gives the same text. Without one, a seed is drawn.", low=0, high=2**63 - 1
    )
    min_tokens: int = _option(0, "The text does not end before this many new tokens.", low=0)
    stop: Sequence[str] = _option((), "End the text before this string.", metavar="TEXT")
    stop_token_ids: Sequence[int] = _option((), "End the text at this token.", "--stop-token-id", metavar="ID", low=0)
    ignore_eos: bool = _option(False, "Continue past the model's end-of-text token until the limit on new tokens.")
    logprobs: int | None = option(
        None, "Also return the log-probability of each token, and of the N likeliest.", panel="Output", low=0
    )
    logprobs_mode: LogprobsMode = option(
        "raw", "Log-probabilities before ('raw') or after ('processed') penalties and temperature.", panel="Output"
    )
    cache_salt: str = ""
    """What an engine learns from past requests is shared only among requests of the same salt."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.min_tokens > self.max_tokens:
            raise InvalidOption(
                f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}",
                hint="min_tokens must not exceed max_tokens",
            )
        if not isinstance(self.cache_salt, str):
            raise InvalidOption(f"cache_salt={self.cache_salt!r} is not text", hint="give a string, or leave it out")
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "logit_bias", _bias(self.logit_bias))

    @property
    def greedy(self) -> bool:
        """Temperature 0: the law is one-hot."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Drafting:
    """How one request may be drafted for. Its text follows the same law whatever stands here.

    Raises:
        InvalidOption: a field has the wrong type or lies outside its range.
    """

    enabled: bool = True
    """Whether anything is drafted for it at all."""
    max_draft_tokens: int | None = None
    """The most nodes of a draft; None leaves it to the drafter and the pacing."""
    sources: tuple[str, ...] | None = None
    """The names of the drafters that may be asked, where an engine has several; None is all of them."""
    prediction: tuple[int, ...] = ()
    """Token ids that the output is expected to contain, to a large part and in this order."""

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise InvalidOption(f"enabled={self.enabled!r} is neither true nor false", hint="give True or False")
        if self.max_draft_tokens is not None:
            check_number("max_draft_tokens", self.max_draft_tokens, low=0, integer=True)
        if self.sources is not None:
            names = (self.sources,) if isinstance(self.sources, str) else tuple(self.sources)
            if not all(isinstance(name, str) and name for name in names):
                raise InvalidOption(f"sources={self.sources!r} are no names", hint="give the names of drafters")
            object.__setattr__(self, "sources", names)
        for token in self.prediction:
            check_number("prediction token", token, low=0, integer=True)
        object.__setattr__(self, "prediction", tuple(self.prediction))


def _stop_strings(stop: object) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else stop
    if isinstance(strings, Sequence) and all(isinstance(s, str) and s for s in strings):
        return tuple(strings)
    raise InvalidOption(f"stop={stop!r} is not a list of strings", hint="give one non-empty string, or a list of them")


_MOST_BIAS = 1e6
"""Far beyond any logit, and far from where float32 ends."""


def _bias(bias: object) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise InvalidOption(f"logit_bias={bias!r} is not a mapping", hint="give {token id: bias}")
    for token, value in bias.items():
        check_number("logit_bias token", token, low=0, integer=True)
        check_number(f"logit_bias[{token}]", value, low=-_MOST_BIAS, high=_MOST_BIAS)
    return dict(bias)


@dataclass(frozen=True, slots=True)
class Preparation:
    """How a draft came about where drafts are made ahead, while the target judges the round before.

    hit: whether the draft was ready, in part or whole.
    node: the node of the draft before after which nothing was accepted, -1 for x0; None where no round was foreseen.
    depth: how many tokens were accepted there.
    rank: the place of the bonus token among the drafter's likeliest ones there, from 0; None if it was not among them.
    branches: outcomes for which drafts were being made.
    forwards: the drafter's forwards that made them.
    begin, end: when the drafter was at it, in seconds of `time.perf_counter`, begin of the first and end of the last
        forward; equal where there was none.
    asked, answered: when this draft was asked for, and when the engine had it; what lies between is waiting.
    beside: whether drafts are made ahead while the target judges this one.
    """

    hit: bool
    node: int | None = None
    depth: int = 0
    rank: int | None = None
    branches: int = 0
    forwards: int = 0
    begin: float = 0.0
    end: float = 0.0
    asked: float = 0.0
    answered: float = 0.0
    beside: bool = False

    @property
    def foreseen(self) -> bool:
        """Whether there was a round to foresee: not before the first draft of a request."""
        return self.branches > 0

    @property
    def waited(self) -> float:
        """Seconds that the engine waited for the draft."""
        return self.answered - self.asked


@dataclass(frozen=True, eq=False)
class Draft:
    """A tree of draft tokens. A chain, an n-gram, a Medusa or EAGLE tree are all this type.

    tokens: N token ids.
    parents: parents[i] < i is the index of node i's parent, -1 for a child of the pending token x0.
    q: [N, V] float. Row i is the law that node i was drawn from *given its elder siblings* (so a tree sampled
        without replacement has them zeroed and the row renormalised). None if the nodes are point masses, which
        were not drawn (n-gram, suffix, top-k trees, greedy drafts).
    source: the name of the drafter it comes from. The engine fills it in where a drafter leaves it empty.
    expected: how many of its tokens the drafter expects to be accepted; None where it has no estimate.
    passed_over: what other sources would have drafted instead, to learn from what was then accepted.
    prepared: how it came about, where drafts are made ahead.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    q: torch.Tensor | None = None
    source: str = ""
    expected: float | None = None
    passed_over: tuple[Draft, ...] = ()
    prepared: Preparation | None = None

    @classmethod
    def chain(cls, tokens: Sequence[int], q: torch.Tensor | None = None) -> Draft:
        """A draft in which each token follows the one before it."""
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)), q if tokens else None)

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        if any(not -1 <= parent < i for i, parent in enumerate(self.parents)):
            raise ValueError(f"a parent must stand before its child: {self.parents}")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """depths[i]: 1 for a child of x0, 2 for its children, and so on."""
        return depths_of(self.parents)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """children[i + 1]: the nodes below node i in drafting order; children[0] those below x0."""
        return children_of(self.parents)

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self) - 1))

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from x0's child down to `node`, both included; () for node -1."""
        up: list[int] = []
        while node >= 0:
            up.append(node)
            node = self.parents[node]
        return tuple(reversed(up))


def depths_of(parents: Sequence[int]) -> tuple[int, ...]:
    """Of a tree's nodes, given their parents (-1: x0): 1 for a child of x0, 2 for its children, and so on."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return tuple(depths)


def children_of(parents: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """[i + 1]: the nodes below node i, in their order; [0]: those below x0."""
    below: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        below[parent + 1].append(node)
    return tuple(tuple(nodes) for nodes in below)


@dataclass(frozen=True, slots=True)
class Budget:
    """How many nodes one request may draft in one step."""

    nodes: int = 0
    reason: str = ""
    """Why so many, in plain words."""
    max_nodes: Mapping[str, int] = field(default_factory=dict)
    """By source (a drafter's name), where a drafter has several, the most nodes: one with 0 is not asked, one that is
    not named may use them all, as far as its own default goes."""
    expected_gain: Mapping[str, float] = field(default_factory=dict)
    """By source, the accepted tokens that a draft of it should bring, less the tokens that plain decoding would make in
    the time it takes to draft."""

    def within(self, room: int) -> Budget:
        """The same, with at most `room` nodes and never less than none."""
        nodes = max(0, min(self.nodes, room))
        return self if nodes == self.nodes else Budget(nodes, self.reason, self.max_nodes, self.expected_gain)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rule's decision: the accepted nodes in order from the root, and the bonus token after them."""

    path: tuple[int, ...]
    bonus: int

    @property
    def accepted(self) -> int:
        return len(self.path)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probability (nats) of an emitted token under the target, and of the likeliest alternatives."""

    token: int
    logprob: float
    top: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock seconds by part: drafter, target forward, logits to law; and scheduling, pacing and the rule."""

    draft: float = 0.0
    verify: float = 0.0
    law: float = 0.0
    commit: float = 0.0

    @property
    def total(self) -> float:
        return self.draft + self.verify + self.law + self.commit

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(
            self.draft + other.draft,
            self.verify + other.verify,
            self.law + other.law,
            self.commit + other.commit,
        )


@dataclass(frozen=True, slots=True)
class Speculation:
    """Whether speculation was running for a request, with which drafter, and if not, why not.

    While it is on, `reason` is that of the last budget: how much was drafted, and why.
    """

    on: bool
    drafter: str
    reason: str = ""
    error: HeadstartError | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One request's part in one engine step: the event behind streaming, stats, metrics and every viewer.

    request: the request's number.
    index: the number of the step, counted for this request from 0.
    position: the absolute position of the first token that this step can emit.
    draft: the draft that was judged.
    path: the nodes of it that were accepted.
    tokens: the emitted tokens, after stops were applied; empty while a long prompt is still being read.
        tokens[:accepted] came from the draft.
    logprobs: of the emitted tokens, where the request asked for them.
    rows: rows of the target's forward that were this request's.
    batch: requests in the forward.
    seconds: of the whole step, shared by its requests.
    finish_reason: why the request ended with this step; None where it did not.
    speculation: whether the request goes on speculating.
    budget: how much could be drafted, and why.
    began: when the step began, in seconds of `time.perf_counter`.
    """

    request: int
    index: int
    position: int
    draft: Draft
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None
    rows: int
    batch: int
    seconds: Seconds
    finish_reason: FinishReason | None
    speculation: Speculation
    budget: Budget = Budget()
    began: float = 0.0

    @property
    def accepted(self) -> int:
        """How many of `tokens` the drafter guessed (a stop may have cut the accepted path short)."""
        return min(len(self.path), len(self.tokens))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream: text that is final, the tokens of the step, and the step itself."""

    text: str
    tokens: tuple[int, ...]
    step: Step

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.step.finish_reason


@dataclass(frozen=True, slots=True)
class AheadStats:
    """What drafting ahead brought a request: how often its draft was ready when it was asked for.

    A round counts where something was foreseen of it. Not before the first draft of a request, nor where the target
    was done before the drafter had drafted anything; so `drafts` is more than hits and misses.

    drafts: drafts of a drafter that drafts ahead.
    hits: rounds after which the draft was ready, in part or whole.
    misses: rounds that came to an outcome for which nothing was drafted; the draft was made then.
    waits: of both, rounds whose next draft was asked for while the drafter was still in a forward for what might come.
    seconds_on_hits, seconds_on_misses: that the engine waited for those drafts. Requests of a batch share them, as they
        share `Seconds.draft`.
    rounds_per_depth: [k] counts the rounds of which k draft tokens were accepted.
    hits_per_depth: [k] counts the hits among them.
    """

    drafts: int = 0
    hits: int = 0
    misses: int = 0
    waits: int = 0
    seconds_on_hits: float = 0.0
    seconds_on_misses: float = 0.0
    rounds_per_depth: tuple[int, ...] = ()
    hits_per_depth: tuple[int, ...] = ()

    @property
    def rounds(self) -> int:
        """Rounds of which something was foreseen."""
        return self.hits + self.misses

    @property
    def hit_rate(self) -> float:
        """The share of hits among these rounds; 0 where there are none."""
        return self.hits / self.rounds if self.rounds else 0.0

    def counting(self, prepared: Preparation) -> AheadStats:
        """The same with one draft more."""
        if not prepared.foreseen:
            return replace(self, drafts=self.drafts + 1)
        hit = prepared.hit
        at = () if prepared.node is None else (*(0,) * prepared.depth, 1)
        return self + AheadStats(
            drafts=1,
            hits=int(hit),
            misses=int(not hit),
            waits=int(prepared.end > prepared.asked),
            seconds_on_hits=prepared.waited if hit else 0.0,
            seconds_on_misses=0.0 if hit else prepared.waited,
            rounds_per_depth=at,
            hits_per_depth=at if hit else (0,) * len(at),
        )

    def __add__(self, other: AheadStats) -> AheadStats:
        return AheadStats(
            self.drafts + other.drafts,
            self.hits + other.hits,
            self.misses + other.misses,
            self.waits + other.waits,
            self.seconds_on_hits + other.seconds_on_hits,
            self.seconds_on_misses + other.seconds_on_misses,
            _added(self.rounds_per_depth, other.rounds_per_depth),
            _added(self.hits_per_depth, other.hits_per_depth),
        )


def _added(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one request.

    target_forwards: forwards that judged a position of this request.
    prefill_forwards: forwards that only read a part of its prompt.
    drafted: draft tokens that were proposed.
    accepted: draft tokens that were accepted.
    drafted_per_position: [i] counts the drafts that reached depth i + 1 *and* whose tokens before it were all
        accepted, so that its fate is known.
    accepted_per_position: [i] counts those of them whose token at depth i + 1 was accepted. The ratio of the two
        is the conditional acceptance.
    seconds: by part of the steps it took part in.
    seconds_to_first_token: from the request's submission to its first token.
    total_seconds: from the request's submission to its end.
    queue_seconds: from the request's submission until it had a slot; they are part of both.
    cached_tokens: tokens of the prompt that the cache held already, so that they were not read again.
    accepted_by_source: of `accepted`, those of each drafter, by its name.
    refused_by_source: how often a guess of each drafter's was refused; what hung below it had no chance.
    ahead: what drafting ahead brought; None where no draft was made by a drafter that drafts ahead.
    """

    tokens: int
    prompt_tokens: int
    target_forwards: int
    prefill_forwards: int
    drafted: int
    accepted: int
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    seconds: Seconds
    seconds_to_first_token: float
    total_seconds: float
    speculation: Speculation
    queue_seconds: float = 0.0
    cached_tokens: int = 0
    accepted_by_source: Mapping[str, int] = field(default_factory=dict)
    refused_by_source: Mapping[str, int] = field(default_factory=dict)
    ahead: AheadStats | None = None

    @property
    def tokens_per_forward(self) -> float:
        """tau: the tokens emitted per target forward; 1.0 is plain decoding."""
        return self.tokens / self.target_forwards if self.target_forwards else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.total_seconds if self.total_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Output:
    """A finished request. `error` is set if and only if finish_reason is "error"; the text up to there is kept.

    The `seed`, given to another request, repeats the text if draft lengths do (see docs/concepts/pacing.md).
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...] | None
    stats: Stats
    prompt_tokens: tuple[int, ...]
    seed: int
    error: HeadstartError | None = None
