"""`headstart trace`: what a recorded run did, in numbers, and as a page that replays it step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.base.errors import InvalidOption
from headstart.base.options import option
from headstart.commands.options import command
from headstart.commands.terminal import messages, output, say

if TYPE_CHECKING:
    from headstart.engine.trace.reader import Trace, TracedRequest

_OUT, _LOOK = "Output", "What to look at"


@command()
def trace(
    *,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A trace: the file that was named after --trace.")
    ] = None,
    request: int | None = option(None, "Show only the request with this number.", "-r", low=0, panel=_LOOK),
    what_if: int | None = option(
        None, "Also say what drafts of at most K tokens would have given.", metavar="K", low=0, panel=_LOOK
    ),
    html: Path | None = option(None, "Write the page that replays it: one file, which opens offline.", panel=_OUT),
    as_json: bool = option(False, "Print the numbers as JSON.", "--json", panel=_OUT),
    schema: bool = option(False, "Print the JSON schema of a line of a trace, and nothing else.", panel=_OUT),
) -> None:
    """Look into a recorded run: how many tokens each pass gave, what was accepted, and where drafts were lost.

    Record one with **headstart generate --trace run.jsonl**. The page shows each step: the tree of guesses, the
    distributions p (target) and q (drafter) of each, the uniform draw and the weight that decided, and the time.

    **Examples**

        headstart generate "def add(a, b):" --trace run.jsonl
        headstart trace run.jsonl
        headstart trace run.jsonl --html run.html
        headstart trace run.jsonl --what-if 3
        headstart trace run.jsonl --request 2 --json
    """
    from headstart.engine.trace.format import schema as schema_of

    if schema:
        print(json.dumps(schema_of(), indent=2))
        return
    if file is None:
        raise InvalidOption("no trace is named", hint="headstart trace run.jsonl")
    from headstart.engine.trace.reader import read_trace

    found = read_trace(file)
    chosen = list(found.requests) if request is None else [found.request(request)]
    if html is not None:
        _write_page(html, file, chosen if request is not None else None)
    if as_json:
        print(json.dumps(_as_json(found, chosen, what_if), ensure_ascii=False))
        return
    from headstart.commands.trace_view import view

    view(output(), found, chosen, what_if)
    for words in found.warnings:
        say(messages(), words, "yellow")


def _write_page(path: Path, source: Path, only: list[TracedRequest] | None) -> None:
    """The viewer with these requests, or with all of the file's."""
    from headstart.base.files import write_text
    from headstart.base.web.build import page
    from headstart.engine.trace.reader import lines_of

    lines = lines_of(source)
    if only is not None:
        numbers = {each.number for each in only}
        lines = [line for line in lines if line["type"] == "trace" or line["request"] in numbers]
    write_text(path, page("viewer/main", f"Trace: {source.name}", data={"trace": lines}, styles=["viewer"]))
    say(messages(), f"the page is in {path}", "dim")


def _as_json(trace: Trace, requests: list[TracedRequest], k: int | None) -> dict[str, Any]:
    from headstart.base.as_json import as_json
    from headstart.engine.trace.summary import summarise
    from headstart.learn.what_if.recorded import what_if

    found = []
    for each in requests:
        summary = summarise(each)
        entry = as_json(summary) | {
            "tokens_per_forward": summary.tokens_per_forward,
            "conditional": list(summary.conditional),
        }
        if k is not None:
            answer = what_if(trace, each, k)
            entry["what_if"] = as_json(answer) | {"tokens_per_forward": list(answer.tokens_per_forward)}
        found.append(entry)
    header = trace.header.model_dump(mode="json")
    return {"trace": header, "warnings": list(trace.warnings), "requests": found}
