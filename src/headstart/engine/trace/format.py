"""The form of a trace: JSON lines, version 3. These models are what a reader gets, and the source of the JSON schema.

A trace is text, one JSON object a line: a header, and then for each request its own line, one for each step it had a
part in, and one for its end. Lines of several requests may alternate. A line says in "type" what it is.

Conventions: tokens are ids; a node is the index of a drafted token, and -1 the token before the draft; probabilities
have five significant digits; times are seconds. Distribution after all sampling processors: p the target's, q the
draft's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from headstart.types import Preparation

VERSION = 3
READ = (1, 2, 3)
"""The versions that can be read. Before version 3, distributions were named "laws" and "law", and a uniform draw was
named "coin". In version 1, "commit" of a step's seconds was what is now "plan", "law" what is now "sample", and the
commit was not measured."""
TOP = 8
"""How many of the likeliest tokens of a distribution are written down by default."""

Entry = tuple[int, float]
"""A token and its probability."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, use_attribute_docstrings=True)


class DrafterLine(_Part):
    """One of the drafters that can draft."""

    name: str
    """What steps call it."""
    kind: str
    """What it is: a key of `headstart.drafters.kinds()`, or "other"."""


class Header(_Part):
    """The first line: what made the trace."""

    type: Literal["trace"]
    headstart_trace: Literal[1, 2, 3]
    """The version of the format."""
    created: str
    """When the recording began, in UTC, as ISO 8601."""
    command: str
    """The command that was run; "" for a program of its own."""
    versions: dict[str, str]
    """Of headstart and of what it computes with."""
    engine: dict[str, Any]
    """`Engine.describe()`: target, drafter, rule, pacing, number type and so on."""
    drafters: list[DrafterLine] = []
    """The drafters of the engine, in the order in which they are asked."""
    note: str = ""
    """What else there is to know about it."""


class RequestLine(_Part):
    """A request whose recording begins."""

    type: Literal["request"]
    request: int
    """The request's number; all of its lines bear it."""
    prompt: str | None
    """The prompt as text; null where there is no tokenizer."""
    prompt_tokens: list[int]
    """The prompt as token ids."""
    before: list[int] = []
    """Tokens that it had emitted before the recording began."""
    sampling: dict[str, Any]
    """The temperature, and what differs from the defaults of `Sampling`. Neither seed nor cache salt."""
    seed: str
    """As a string: it may be beyond what a double holds exactly."""
    rule: Literal["exact", "coupled"]
    """What its drafts were judged by."""
    texts: dict[str, str] = {}
    """By token id, what a token writes, of ids that no earlier line of the request gave. Bytes that are a part of a
    character stand as <0xE2>. Every line may have some."""


class DistributionLine(_Part):
    """The target's distribution after x0 or after a node."""

    p: list[Entry]
    """The likeliest tokens, likeliest first. One alone for a greedy request."""
    rest: float
    """The probability of all others."""
    entropy: float
    """Of p, in nats."""
    model: list[Entry] | None = None
    """For greedy requests, the model's own softmax before any processor: its likeliest tokens."""


class NodeLine(_Part):
    """A drafted token. Both distributions are those after its parent."""

    p: float | None
    """What the target gives it; null where nothing was judged."""
    model: float | None = None
    """For greedy requests, what the model's own softmax gives it."""
    q: float | None = None
    """What it was drawn with, given its elder siblings; null for a point mass, as are the next five."""
    q_top: list[Entry] | None = None
    """The likeliest tokens of that distribution."""
    q_rest: float | None = None
    """The probability of all others."""
    residual: list[Entry] | None = None
    """The likeliest tokens of norm(max(p - q, 0)), from which the classic rule draws after a refusal; empty where p
    does not exceed q anywhere."""
    uniform: float | None = Field(None, validation_alias=AliasChoices("uniform", "coin"))
    """The uniform number of this node, from the request's seed, whether or not the rule looked at it."""
    weight: float | None = None
    """What the rule compared the uniform draw with: the node is accepted if the uniform draw lies below. 0 where
    nothing was left to accept it with; null where the rule did not look."""
    drawn: int | None = None
    """Where the rule is "walk" and stood before this node: the token that the target drew there."""
    state: Literal["accepted", "refused", "beyond"]
    """refused: judged and not accepted. beyond: below a refused node, or behind an elder sibling that was accepted."""


class BudgetLine(_Part):
    """How much could be drafted."""

    nodes: int
    """The most tokens that could be drafted."""
    reason: str
    """Why so much, in words."""
    max_nodes: dict[str, int] = {}
    """By source, where pacing limits single drafters."""


class SecondsLine(_Part):
    """Wall-clock time of the whole step, which its requests share; `Seconds`."""

    plan: float
    """Scheduling and pacing."""
    draft: float
    """The drafter."""
    verify: float
    """The target's forward."""
    sample: float
    """From logits to distributions, and the rule."""
    commit: float
    """Writing what was decided into the cache and the requests."""

    @model_validator(mode="before")
    @classmethod
    def _of_version_1(cls, found: Any) -> Any:
        if isinstance(found, dict) and "law" in found:
            rest = {name: value for name, value in found.items() if name not in ("law", "commit")}
            return {**rest, "plan": found.get("commit"), "sample": found["law"], "commit": 0.0}
        return found

    @property
    def total(self) -> float:
        return self.plan + self.draft + self.verify + self.sample + self.commit


class AheadLine(_Part):
    """How a draft came about that a drafter made ahead, while the target judged the round before; `Preparation`. Times
    are seconds from the step's beginning, negative before it."""

    hit: bool
    """Whether the draft was ready when it was asked for, in part or whole."""
    node: int | None
    """Of the round before, the node after which nothing was accepted, -1 for x0; null where no round was foreseen."""
    depth: int
    """How many tokens of the round before were accepted."""
    rank: int | None
    """The place of its bonus token among the drafter's likeliest ones there, from 0; null if it was not among them."""
    branches: int
    """Outcomes of the round before for which drafts were being made; 0 where none were, as before a first draft."""
    forwards: int
    """Forwards of the drafter that made them, for all requests of the batch."""
    begin: float | None
    """When the first of them began; null where there was none."""
    end: float | None
    """When the last of them ended."""
    asked: float
    """When this draft was asked for."""
    answered: float
    """When it was there; what lies between is waiting, or drafting after a miss."""
    beside: bool = False
    """Whether drafts were made ahead while the target judged this one; not so while drafting in turn is quicker."""

    @property
    def prepared(self) -> Preparation:
        """The same as the engine has it, on the step's own clock."""
        return Preparation(**self.model_dump() | {"begin": self.begin or 0.0, "end": self.end or 0.0})


class EndToken(_Part):
    """The last token of a step, before stops were applied."""

    token: int
    """Its id."""
    kind: Literal["correction", "bonus", "plain"]
    """correction: after a refusal. bonus: after a draft that was accepted as far as it went. plain: nothing was
    drafted."""
    distribution: list[Entry] = Field(validation_alias=AliasChoices("distribution", "law"))
    """The likeliest tokens of the distribution that it was drawn from: p, or what the rule has left of it."""


class StepLine(_Part):
    """One request's part in one step of the engine."""

    type: Literal["step"]
    request: int
    """Whose step it is."""
    i: int
    """The number of the step, counted for the request from 0."""
    position: int
    """The absolute position of the first token that the step could emit."""
    source: str
    """Who drafted; "" where nothing was drafted."""
    tokens: list[int]
    """The N drafted tokens."""
    parents: list[int]
    """[i]: the node above node i."""
    path: list[int]
    """The accepted nodes, in order."""
    emitted: list[int]
    """What the text gained: the tokens of the path, one more, and the end of the text where that was certain; a stop
    may have cut it short."""
    procedure: Literal["traverse", "walk", "plain", "read"]
    """The rule that ran: traverse for drawn nodes, from the leaves to the root (block verification on a chain); walk
    for point masses and for all of rule "coupled", from the root; plain: nothing was drafted; read: nothing was judged,
    because a long prompt is being read or the logits were broken."""
    rows: int
    """Rows of the target's forward."""
    batch: int
    """Requests in the forward."""
    experts: int | None = None
    """How many experts all rows of the forward met, each counted once a layer; absent where the model has none, or
    nothing counts them."""
    budget: BudgetLine
    """How much could be drafted, and why."""
    seconds: SecondsLine
    """Where the time went."""
    at: float | None = None
    """When the step began, in seconds from the beginning of the recording; absent in traces of before this was
    recorded."""
    ahead: AheadLine | None = None
    """How the draft came about, where drafts are made ahead; absent elsewhere."""
    distributions: list[DistributionLine] = Field(validation_alias=AliasChoices("distributions", "laws"))
    """The target's distributions: N + 1, after x0 and after each node; none where nothing was judged."""
    nodes: list[NodeLine]
    """The N drafted tokens, and what became of each."""
    drawn: list[tuple[int, int]] = []
    """For walk: [node, the target's own token after it] for each node at which it stood."""
    end: EndToken | None
    """Null where nothing was judged."""
    finish_reason: Literal["stop", "length", "error", "cancelled"] | None
    """Why the request ended with this step; null where it did not."""
    texts: dict[str, str] = {}
    """Of tokens that no earlier line of the request named."""
    mismatch: str | None = None
    """Only where the recorder could not repeat the engine's verdict; weights and distributions of the step are then not
    to be trusted."""

    @property
    def accepted(self) -> int:
        """How many of the emitted tokens were guessed."""
        return min(len(self.path), len(self.emitted))

    @property
    def is_chain(self) -> bool:
        """Whether each drafted token follows the one before it."""
        return self.parents == list(range(-1, len(self.parents) - 1))

    @property
    def judged(self) -> bool:
        """Whether tokens came of it."""
        return self.procedure != "read"


class EndLine(_Part):
    """A request has ended."""

    type: Literal["end"]
    request: int
    """Which one."""
    finish_reason: Literal["stop", "length", "error", "cancelled"]
    """Why it has ended."""
    text: str
    """All of its output, without a stop string."""
    tokens: list[int]
    """All tokens of its output."""
    stats: dict[str, Any]
    """`Stats`, and tokens_per_forward."""
    error: str | None = None
    """Why it failed, where the finish_reason is "error"."""
    texts: dict[str, str] = {}
    """Of tokens that no earlier line of the request named."""


Line = Annotated[Header | RequestLine | StepLine | EndLine, Field(discriminator="type")]
LINES: TypeAdapter[Header | RequestLine | StepLine | EndLine] = TypeAdapter(Line)
"""Reads one line."""


def schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of one line."""
    found = LINES.json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of a headstart trace, version {VERSION}",
        **found,
    }
