"""The lines of a trace, made from what the engine knows. Plain objects of JSON, in the form that `format` states."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from headstart.base.machine import versions_of
from headstart.drafters import Drafter, Observation, capabilities, kinds
from headstart.engine.trace import numbers
from headstart.engine.trace.format import VERSION
from headstart.engine.trace.replay import Replay, replay, states, uniform_of
from headstart.rule.distributions import Distributions
from headstart.rule.drafted import drafted_distributions, whole
from headstart.rule.row import Row
from headstart.types import Draft, Output, Sampling, Stats, Step, Structure

if TYPE_CHECKING:
    from headstart.engine.request import Request

Json = dict[str, Any]
PACKAGES = ("headstart", "torch", "transformers", "numpy")
_NOT_TOLD = {"seed", "cache_salt"}
_DIGITS = 7
"""Of seconds, behind the point."""


class Described(Protocol):
    """What the first line needs of an engine."""

    @property
    def drafter(self) -> Drafter: ...

    def describe(self) -> Mapping[str, Any]: ...


def header(engine: Described, *, command: str, note: str) -> Json:
    """The first line of a trace of this engine."""
    return {
        "type": "trace",
        "headstart_trace": VERSION,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command,
        "versions": dict(versions_of(*PACKAGES)),
        "engine": dict(engine.describe()),
        "drafters": [{"name": each.name, "kind": _kind(each)} for each in capabilities.parts(engine.drafter)],
        **({"note": note} if note else {}),
    }


def _kind(drafter: Drafter) -> str:
    module = type(capabilities.in_turn(drafter)).__module__  # one that drafts ahead drafts what it would in turn
    if module == "headstart.engine.stacked":  # made of other drafters, so it has no definition
        return "stack"
    return next((name for name, kind in kinds().items() if kind.defined_in(module)), "other")


def request_line(request: Request, before: Sequence[int], tokenizer: Any) -> Json:
    """The line with which the recording of a request begins. before: what it had emitted until then."""
    prompt = None if tokenizer is None else str(tokenizer.decode(list(request.prompt), skip_special_tokens=False))
    return {
        "type": "request",
        "request": request.number,
        "prompt": prompt,
        "prompt_tokens": list(request.prompt),
        **({"before": list(before)} if before else {}),
        "sampling": _sampling(request.sampling),
        "seed": str(request.noise.seed),
        "rule": request.rule,
    }


def _sampling(sampling: Sampling) -> Json:
    found: Json = {"temperature": sampling.temperature}
    plain = Sampling()
    for each in fields(Sampling):
        value = getattr(sampling, each.name)
        if each.name not in _NOT_TOLD and value != getattr(plain, each.name):
            found[each.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    if isinstance(value, Structure):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


def step_line(observation: Observation, top: int, zero: float) -> Json:
    """What one step made of one request.

    top: how many of the likeliest tokens of each distribution are recorded. zero: when the recording began, as
        `Step.began`.
    """
    step, row, distributions = observation.step, observation.row, observation.distributions
    assert row is not None, "a step has a row"
    line = {
        "type": "step",
        "request": step.request,
        "i": step.index,
        "position": step.position,
        "source": step.draft.source if len(step.draft) else "",
        "tokens": list(step.draft.tokens),
        "parents": list(step.draft.parents),
        "path": list(step.path),
        "emitted": list(step.tokens),
        "procedure": "read",
        "rows": step.rows,
        "batch": step.batch,
        **({} if step.experts is None else {"experts": step.experts}),
        "budget": _budget(step),
        "seconds": {part: round(value, _DIGITS) for part, value in asdict(step.seconds).items()},
        "at": round(step.began - zero, _DIGITS),
        **_ahead(step),
        "distributions": [],
        "nodes": [{"p": None, "state": "beyond"} for _ in step.draft.tokens],
        "end": None,
        "finish_reason": step.finish_reason,
    }
    return line if distributions is None else line | _judged(step, row, distributions, top)


def _budget(step: Step) -> Json:
    found: Json = {"nodes": step.budget.nodes, "reason": step.budget.reason}
    return found | ({"max_nodes": dict(step.budget.max_nodes)} if step.budget.max_nodes else {})


def _ahead(step: Step) -> Json:
    prepared = step.draft.prepared
    if prepared is None:
        return {}
    found = asdict(prepared)
    found |= {name: round(found[name] - step.began, _DIGITS) for name in ("begin", "end", "asked", "answered")}
    return {"ahead": found if prepared.forwards else found | {"begin": None, "end": None}}


def _judged(step: Step, row: Row, distributions: Distributions, top: int) -> Json:
    """What a step has more where the target's distributions judged something."""
    draft = step.draft
    dense = distributions.dense.detach().cpu().numpy()
    again = replay(draft, distributions, dense, row.noise, step.position, row.rule)
    model = numbers.softmax(distributions.logits.detach().float().cpu().numpy()) if row.sampling.greedy else None
    verdict = again.verdict
    found: Json = {
        "procedure": again.procedure,
        "distributions": [
            _distribution(distribution, None if model is None else model[at], top)
            for at, distribution in enumerate(dense)
        ],
        "nodes": _nodes(step, row, dense, model, again, top),
        "end": {
            "token": verdict.bonus,
            "kind": _kind_of_end(draft, verdict.path),
            "distribution": numbers.top(again.last, top),
        },
    }
    if again.drawn:
        found["drawn"] = [list(pair) for pair in again.drawn]
    tokens = (*(draft.tokens[node] for node in verdict.path), verdict.bonus)
    most = len(tokens)  # behind them may stand an end that was certain
    if verdict.path != step.path or tokens[: len(step.tokens)] != step.tokens[:most]:
        found["mismatch"] = f"the rule, run again, accepts {list(verdict.path)} and emits {list(tokens)}"
    return found


def _distribution(distribution: NDArray[Any], model: NDArray[Any] | None, top: int) -> Json:
    entries = numbers.top(distribution, top)
    found: Json = {"p": entries, "rest": numbers.rest(distribution, entries), "entropy": numbers.entropy(distribution)}
    return found if model is None else found | {"model": numbers.top(model, top)}


def _nodes(
    step: Step, row: Row, dense: NDArray[Any], model: NDArray[Any] | None, again: Replay, top: int
) -> list[Json]:
    draft = step.draft
    q = None if draft.q is None else [whole(each, dense.shape[1]) for each in drafted_distributions(draft)]
    drawn = dict(again.drawn)
    found: list[Json] = []
    for node, (token, parent, state) in enumerate(zip(draft.tokens, draft.parents, states(draft, again), strict=True)):
        distribution = dense[parent + 1]
        line: Json = {"p": numbers.rounded(float(distribution[token]))}
        if model is not None:
            line["model"] = numbers.rounded(float(model[parent + 1][token]))
        if q is not None:
            entries = numbers.top(q[node], top)
            line |= {
                "q": numbers.rounded(float(q[node][token])),
                "q_top": entries,
                "q_rest": numbers.rest(q[node], entries),
                "residual": numbers.residual(distribution, q[node], top),
                # In full: a uniform draw and a weight that are close must not change places
                "uniform": uniform_of(draft, node, row.noise, step.position),
            }
        if node in again.weights:
            line["weight"] = again.weights[node]
        if parent in drawn:
            line["drawn"] = drawn[parent]
        found.append(line | {"state": state})
    return found


def _kind_of_end(draft: Draft, path: Sequence[int]) -> str:
    if not len(draft):
        return "plain"
    last = path[-1] if path else -1
    return "correction" if draft.children[last + 1] else "bonus"


def end_line(number: int, output: Output) -> Json:
    """The line with which a request ends."""
    return {
        "type": "end",
        "request": number,
        "finish_reason": output.finish_reason,
        "text": output.text,
        "tokens": list(output.tokens),
        "stats": _stats(output.stats),
        **({} if output.error is None else {"error": output.error.message}),
    }


def _stats(stats: Stats) -> Json:
    speculation = stats.speculation
    found: Json = {}
    for each in fields(Stats):
        value = getattr(stats, each.name)
        if each.name == "seconds":
            found["seconds"] = {part: round(spent, 6) for part, spent in asdict(value).items()}
        elif each.name == "ahead":
            found |= {} if value is None else {"ahead": {name: _number(part) for name, part in asdict(value).items()}}
        elif each.name != "speculation":
            found[each.name] = _number(value)
    found["tokens_per_forward"] = numbers.rounded(stats.tokens_per_forward)
    found["speculation"] = {"on": speculation.on, "drafter": speculation.drafter, "reason": speculation.reason}
    return found


def _number(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else _plain(value)


def ids_of(line: Mapping[str, Any]) -> Iterator[int]:
    """The token ids that a line names, in order of appearance, some more than once."""
    for name in ("prompt_tokens", "before", "tokens", "emitted"):
        yield from line.get(name, ())
    for distribution in line.get("distributions", ()):
        yield from (token for token, _ in distribution["p"])
        yield from (token for token, _ in distribution.get("model") or ())
    for node in line.get("nodes", ()):
        for name in ("q_top", "residual"):
            yield from (token for token, _ in node.get(name) or ())
        if node.get("drawn") is not None:
            yield node["drawn"]
    if line.get("end") is not None and line["type"] == "step":
        yield line["end"]["token"]
        yield from (token for token, _ in line["end"]["distribution"])


_RAW = re.compile("[\udc80-\udcff]")


def as_text(raw: bytes) -> str:
    """Bytes as text; one that belongs to no whole character stands as <0xE2>."""
    return _RAW.sub(lambda found: f"<0x{ord(found[0]) - 0xDC00:02X}>", raw.decode("utf-8", "surrogateescape"))


class Texts:
    """Adds the text of each token of a request to the first line that names it. raw: what a token writes, in bytes."""

    def __init__(self, raw: Callable[[int], bytes]) -> None:
        self._raw = raw
        self._named: set[int] = set()

    def add_to(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """The line with the texts of the tokens that no line before it named."""
        new = dict.fromkeys(token for token in ids_of(line) if token not in self._named)
        self._named.update(new)
        return {**line, "texts": {str(token): as_text(self._raw(token)) for token in new}} if new else dict(line)
