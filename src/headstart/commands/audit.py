"""`headstart audit`: a losslessness certificate, for our own engine or for a server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import TextColumn, TimeElapsedColumn
from rich.text import Text

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, check_number, option, strict
from headstart.base.prompt_sets import PromptItem
from headstart.commands import loading as cli
from headstart.commands.options import command, only
from headstart.commands.prompts import read_file
from headstart.commands.terminal import messages, note, output, progress_bar, say, table_of
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.measure.audit.plan import AuditPlan
from headstart.measure.samples import sample_prompts
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.engine.engine import Engine
    from headstart.fleet.audit.agents import ToolsAudit
    from headstart.measure.audit.certificate import Certificate
    from headstart.measure.audit.subject import Progress

_AUDIT, _OUT = "Audit", "Output"
_SAMPLING = Sampling(temperature=1.0)
_SAMPLING_FIELDS = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias",
)  # fmt: skip
_TOOLS_HEADLINES = {
    "lossless": "0 differ: tool calls and JSON are the same with drafts and without",
    "not lossless": "Not lossless: drafts change what the server answers",
    "undecided": "Could not decide",
}
_MOST_SHOWN = 5
_COLOURS = {"lossless": "green", "not lossless": "red", "undecided": "yellow"}


_server_option = partial(option, panel="Server")


@strict
@dataclass(frozen=True, slots=True)
class Servers:
    """Which servers to audit instead of an engine of our own, and how to reach them."""

    endpoint: str | None = _server_option(
        None, "Audit this OpenAI-compatible server instead, against the weights of --model. For example "
        "http://localhost:8000/v1.",
        metavar="URL",
    )  # fmt: skip
    against: str | None = _server_option(
        None,
        "Compare --endpoint with this second server, which does not speculate; no weights are read.",
        metavar="URL",
    )
    model: str | None = _server_option(None, "The model's name at --endpoint.", "--endpoint-model")
    against_model: str | None = _server_option(None, "The model's name at --against.")
    api_key_env: str | None = _server_option(
        None, "The environment variable that holds the server's key.", metavar="VAR"
    )
    timeout: float = _server_option(120.0, "Seconds to wait for an answer.", metavar="SECONDS")
    concurrency: int = _server_option(8, "Requests at once.")
    tools: bool = _server_option(
        False, "Ask --endpoint what agents ask, tool calls and JSON, with drafts and without, and compare byte for "
        "byte. --against answers without drafts where --endpoint is no server of headstart.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_fields(self)
        if self.against is not None and self.endpoint is None:
            raise InvalidOption("--against needs --endpoint", hint="name the server with speculation with --endpoint")
        if self.tools and self.endpoint is None:
            raise InvalidOption("--tools needs --endpoint", hint="start 'headstart serve', and name its address")
        cli.api_key(self.api_key_env)

    def settings(self, seed: int) -> dict[str, Any]:
        """How each server is reached; no key where none was named."""
        key = cli.api_key(self.api_key_env)
        return {"api_key": key, "timeout": self.timeout, "concurrency": self.concurrency, "seed": seed}


@command(
    "model drafter endpoint against tools prompts limit temperature effect significance "
    "num-speculative-tokens output html"
)
def audit(
    *,
    words: list[str] = cli.words("[MODEL]"),
    target: str = cli.TARGET,
    loading: TargetOptions,
    drafter: list[str] = cli.DRAFTER,
    options: EngineOptions,
    sampling: Annotated[Sampling, only(*_SAMPLING_FIELDS)] = _SAMPLING,
    servers: Servers,
    prompts: Path | None = option(
        None,
        "JSONL (Spec-Bench or plain), a text file, or a directory. Default: a few lines of Python.",
        metavar="PATH",
        panel=_AUDIT,
    ),
    split: bool = cli.SPLIT,
    limit: int = option(8, "Use the first N prompts.", panel=_AUDIT),
    plan: AuditPlan,
    out: Path | None = option(None, "Write the certificate as JSON.", "--output", "-o", panel=_OUT),
    as_json: bool = option(False, "Print the certificate as JSON.", "--json", panel=_OUT),
    html: Path | None = option(None, "Write the certificate as a page.", panel=_OUT),
) -> None:
    """Test whether an engine writes what the model alone would write: sampled and greedy text, stops, ends and limits.

    Exit codes: 0 lossless within the stated power, 1 not lossless, 2 could not decide (too few samples, or the audit
    could not run).

    **Examples**

        headstart audit --drafter ngram
        headstart audit path/to/target --drafter path/to/draft --temperature 0.8 --top-p 0.95 --html page.html
        headstart audit path/to/target --endpoint http://localhost:8000/v1 --dtype bfloat16
        headstart audit --endpoint http://localhost:8000/v1 --against http://localhost:8001/v1
        headstart audit --tools --endpoint http://localhost:8000/v1
    """
    del words  # none is left
    check_number("--limit", limit, low=1, integer=True)
    cli.check_outputs(out, html)
    if servers.tools:
        raise typer.Exit(_tools(servers, out, html, messages(), as_json=as_json))
    items = (sample_prompts() if prompts is None else read_file(prompts, split=split))[:limit]
    k = options.num_speculative_tokens
    plan = replace(plan, sampling=sampling, k=8 if k is None else k)
    console = messages()
    if servers.against is not None:
        certificate = _against(servers, items, plan, console)
    else:
        drafters = drafter if servers.endpoint is None else ["none"]
        engine = cli.load_engine(console, target, drafters, loading, options)
        from headstart.engine.prompts import templated

        # checked by the engine that will read them; of conversations the first turn
        ids = [list(engine.encode(templated(engine.tokenizer, item).prompt)) for item in items]
        if servers.endpoint is None:
            certificate = _own(engine, ids, plan, k, console)
        else:
            certificate = _server(servers, engine, ids, plan, target, console)
    if as_json:
        print(json.dumps(certificate.record(), indent=1, allow_nan=False))
    else:
        _print(certificate)
    _write(certificate, out, html, console)
    raise typer.Exit(certificate.exit_code)


def _own(engine: Engine, prompts: list[list[int]], plan: AuditPlan, k: int | None, console: Console) -> Certificate:
    from headstart.measure.audit.run import audit_engine

    longest = engine.drafter.default_budget if k is None else k
    with _progress(console) as progress:
        return audit_engine(engine, prompts, replace(plan, k=longest), progress)


def _server(
    servers: Servers, engine: Engine, prompts: list[list[int]], plan: AuditPlan, target: str, console: Console
) -> Certificate:
    from headstart.fleet.audit.endpoint import EndpointSubject
    from headstart.fleet.audit.run import audit_endpoint
    from headstart.measure.audit.engines import transformers_logits

    if engine.tokenizer is None:
        raise InvalidOption(f"{target} has no tokenizer", hint="put the tokenizer's files beside the reference weights")
    tokens: dict[str, Any] = {"vocab_size": engine.target.vocab_size, "ends": engine.eos_token_ids}
    given = servers.settings(plan.seed) | tokens
    with EndpointSubject(str(servers.endpoint), model=servers.model, tokenizer=engine.tokenizer, **given) as subject:
        subject.probe(prompts[0])  # before weights are read a second time
        other = None
        if engine.target.quantize is None:
            with note(console, "loading the weights a second time, as transformers runs them …"):
                other = transformers_logits(target, engine.target.dtype, engine.target.device)
        with _progress(console) as progress:
            return audit_endpoint(subject, engine, prompts, plan, progress, other=other)


def _against(servers: Servers, items: Sequence[PromptItem], plan: AuditPlan, console: Console) -> Certificate:
    from headstart.fleet.audit.endpoint import EndpointSubject
    from headstart.fleet.audit.run import audit_against

    texts = [item.prompt for item in items if isinstance(item.prompt, str)]
    if len(texts) < len(items):
        raise InvalidOption("without reference weights prompts are text", hint="leave token ids out of --prompts")
    a = EndpointSubject(str(servers.endpoint), model=servers.model, **servers.settings(plan.seed))
    b = EndpointSubject(str(servers.against), model=servers.against_model, **servers.settings(plan.seed + 1))
    with a, b, _progress(console) as progress:
        return audit_against(a, b, [[ord(char) for char in text] for text in texts], plan, progress)


def _tools(servers: Servers, out: Path | None, html: Path | None, console: Console, *, as_json: bool) -> int:
    from headstart.fleet.audit.agents import audit_tools

    if html is not None:
        raise InvalidOption("--tools writes no page", hint="--output FILE writes what was found as JSON")
    with _progress(console) as progress:
        found = audit_tools(
            str(servers.endpoint), servers.against, model=servers.model, against_model=servers.against_model,
            api_key=cli.api_key(servers.api_key_env), timeout=servers.timeout, concurrency=servers.concurrency,
            progress=progress,
        )  # fmt: skip
    if as_json:
        print(json.dumps(found.record(), indent=1, allow_nan=False))
    else:
        _print_tools(found)
    if out is not None:
        say(console, f"wrote {found.write(out)}")
    return found.exit_code


def _print_tools(found: ToolsAudit) -> None:
    from headstart.fleet.audit.agents import DRAFTED

    console = output()
    rows = [(name, *(row[arm] for arm in DRAFTED)) for name, row in found.rows.items()]
    console.print(table_of("request", *DRAFTED, left=("request",), rows=rows))
    headline, colour = _TOOLS_HEADLINES[found.verdict], _COLOURS[found.verdict]
    console.print(Text(headline, style=f"bold {colour}"))
    for line in (*found.reasons, *(f"note: {words}" for words in found.notes)):
        say(console, f"  {line}")
    for each in found.differences[:_MOST_SHOWN]:
        say(console, f"  {each.case}, {each.arm}: {each.field} differs at character {each.position}:")
        say(console, f"    without drafts {each.plain!r}")
        say(console, f"    with drafts    {each.found!r}")
    for name, why in list(found.refusals.items())[:1]:
        say(console, f"  {name} was refused: {why}")


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """A bar for each part, on a terminal."""
    bar = progress_bar(console, TextColumn("{task.fields[words]}"), TimeElapsedColumn())
    tasks: dict[str, Any] = {}

    def progress(part: str, done: int, most: int, words: str = "") -> None:
        if part not in tasks:
            tasks[part] = bar.add_task(part, total=most, words="")
        bar.update(tasks[part], completed=done, total=most, words=words)

    with bar:
        yield progress


def _write(certificate: Certificate, out: Path | None, html: Path | None, console: Console) -> None:
    if out is not None:
        say(console, f"wrote {certificate.write(out)}")
    if html is not None:
        from headstart.measure.pages.audit_page import audit_page

        say(console, f"wrote {audit_page(certificate.record()).write(html)}")


def _print(certificate: Certificate) -> None:
    from headstart.measure.audit.certificate import HEADLINES

    console = output()
    verdict = certificate.verdict
    console.print(Text(HEADLINES[verdict], style=f"bold {_COLOURS[verdict]}"))
    for line in (*certificate.reasons, *(f"note: {words}" for words in certificate.notes)):
        say(console, f"  {line}")
