"""A trace in an answer, for `speculation.trace`: the lines of the trace file, by public names and with texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headstart.engine.trace.lines import Texts
from headstart.model.tokens.spelling import Spelling
from headstart.serve.bridge import TracedChunk
from headstart.serve.names import public_name, public_words
from headstart.types import Chunk

Json = dict[str, Any]


def lines_of(chunk: Chunk) -> list[Json]:
    """The lines behind a chunk, with the names that models and drafters have outside."""
    if not isinstance(chunk, TracedChunk):
        return []
    return [_PUBLIC[line["type"]](line, chunk.step.speculation.drafter) for line in chunk.lines]


def _header(line: Json, _drafter: str) -> Json:
    # These two may name files
    engine = {name: value for name, value in line["engine"].items() if name not in ("chosen", "not_guessing")}
    engine |= {name: public_name(str(engine[name])) for name in ("target", "drafter")}
    engine["drafter_weights"] = _by_public_name(engine["drafter_weights"])
    return {
        **line,
        "engine": engine,
        "drafters": [{**each, "name": public_name(each["name"])} for each in line["drafters"]],
    }


def _request(line: Json, _drafter: str) -> Json:
    return line


def _step(line: Json, drafter: str) -> Json:
    budget = {**line["budget"], "reason": public_words(line["budget"]["reason"], drafter)}
    if "max_nodes" in budget:
        budget["max_nodes"] = _by_public_name(budget["max_nodes"])
    return {**line, "source": public_name(line["source"]), "budget": budget}


def _end(line: Json, drafter: str) -> Json:
    stats = dict(line["stats"])
    for name in ("accepted_by_source", "refused_by_source"):
        stats[name] = _by_public_name(stats[name])
    speculation = stats["speculation"]
    stats["speculation"] = {
        **speculation,
        "drafter": public_name(speculation["drafter"]),
        "reason": public_words(speculation["reason"], drafter),
    }
    return {**line, "stats": stats}


_PUBLIC = {"trace": _header, "request": _request, "step": _step, "end": _end}


def _by_public_name(values: Mapping[str, Any]) -> Json:
    return {public_name(name): value for name, value in values.items()}


class Traced:
    """The trace of one choice of an answer, as it goes out.

    choice: its index, which its lines bear as their request.
    """

    def __init__(self, choice: int, spelling: Spelling) -> None:
        self._choice = choice
        self._spelling = spelling
        self._texts = Texts(spelling.raw)

    def event(self, lines: Sequence[Json]) -> Json:
        """`headstart` of an event: its steps, and whichever of the other lines there are, by their type."""
        found: Json = {"steps": []}
        for line in lines:
            line = self._texts.add_to(line)
            if line["type"] != "trace":
                line["request"] = self._choice
            if line["type"] == "step":
                found["steps"].append(line)
            else:
                found[line["type"]] = line
        if "request" in found:
            tokenizer = self._spelling.tokenizer
            prompt = tokenizer.decode(found["request"]["prompt_tokens"], skip_special_tokens=False)
            found["request"]["prompt"] = str(prompt)
        return found
