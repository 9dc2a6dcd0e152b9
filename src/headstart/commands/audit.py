"""`headstart audit`: a losslessness certificate, for our own engine or for a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from headstart.commands import options as cli
from headstart.commands.outputs import check_outputs
from headstart.commands.terminal import Traceback, harmless, messages, note, output, reported
from headstart.errors import InvalidOption
from headstart.insight.samples import sample_prompts
from headstart.options import check_number
from headstart.prompt_sets import Prompt, read_prompt_set
from headstart.types import Sampling

if TYPE_CHECKING:
    from headstart.engine.engine import Engine
    from headstart.insight.audit.certificate import Certificate
    from headstart.insight.audit.run import AuditPlan, Told

_SERVER, _AUDIT, _OUT = "Server", "Audit", "Output"
_COLOURS = {"lossless": "green", "not lossless": "red", "undecided": "yellow"}


def audit(
    target: cli.Target = "bundled",
    drafter: cli.Drafter = cli.AUTO,
    k: cli.K = None,
    pacing: cli.Pacing = "adaptive",
    tree: cli.Tree = "auto",
    rule: cli.RuleOption = "exact",
    device: cli.Device = "auto",
    dtype: cli.Dtype = "auto",
    quantize: cli.Quantize = None,
    max_length: cli.MaxLength = None,
    max_batch_size: cli.MaxBatchSize = 8,
    trust_remote_code: cli.TrustRemoteCode = False,
    temperature: cli.Temperature = 1.0,
    top_k: cli.TopK = cli.DEFAULT.top_k,
    top_p: cli.TopP = cli.DEFAULT.top_p,
    min_p: cli.MinP = cli.DEFAULT.min_p,
    repetition_penalty: cli.RepetitionPenalty = cli.DEFAULT.repetition_penalty,
    presence_penalty: cli.PresencePenalty = cli.DEFAULT.presence_penalty,
    frequency_penalty: cli.FrequencyPenalty = cli.DEFAULT.frequency_penalty,
    logit_bias: cli.LogitBias = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            rich_help_panel=_SERVER,
            help="Audit this OpenAI-compatible server instead, against the weights of --target. "
            "For example http://localhost:8000/v1.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="URL",
            rich_help_panel=_SERVER,
            help="Hold --endpoint against this second server, without speculation; no weights are read.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", rich_help_panel=_SERVER, help="The model's name there."),
    ] = None,
    against_model: Annotated[
        str | None,
        typer.Option("--against-model", metavar="NAME", rich_help_panel=_SERVER, help="Its name at --against."),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            "--api-key-env",
            metavar="VAR",
            rich_help_panel=_SERVER,
            help="The variable that holds the server's key.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", rich_help_panel=_SERVER, help="Seconds to wait for an answer.")
    ] = 120.0,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", rich_help_panel=_SERVER, help="Requests at once.")
    ] = 8,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            rich_help_panel=_AUDIT,
            help="JSONL (Spec-Bench or plain), a text file, or a directory. Default: a few lines of Python.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", rich_help_panel=_AUDIT, help="Use the first N prompts.")
    ] = 8,
    level: Annotated[
        float,
        typer.Option(
            "--level", metavar="X", rich_help_panel=_AUDIT, help="How likely a lossless engine may be accused, at most."
        ),
    ] = 0.01,
    effect: Annotated[
        float,
        typer.Option(
            "--effect",
            metavar="X",
            rich_help_panel=_AUDIT,
            help="The bias that should be noticed: total variation of a token's law, on average.",
        ),
    ] = 0.05,
    power: Annotated[
        float,
        typer.Option("--power", metavar="X", rich_help_panel=_AUDIT, help="How likely such a bias should be noticed."),
    ] = 0.9,
    max_samples: Annotated[
        int,
        typer.Option("--max-samples", metavar="N", rich_help_panel=_AUDIT, help="Completions at most; fewer if sure."),
    ] = 4000,
    sample_tokens: Annotated[
        int,
        typer.Option("--sample-tokens", metavar="N", rich_help_panel=_AUDIT, help="Tokens of a sampled text."),
    ] = 12,
    greedy_tokens: Annotated[
        int, typer.Option("--greedy-tokens", metavar="N", rich_help_panel=_AUDIT, help="Tokens of a greedy text.")
    ] = 64,
    near_tie: Annotated[
        float | None,
        typer.Option(
            "--near-tie",
            metavar="X",
            rich_help_panel=_AUDIT,
            help="Logits by which a greedy token may be off. Default: twice the largest change measured here.",
        ),
    ] = None,
    greedy_only: Annotated[
        bool, typer.Option("--greedy-only", rich_help_panel=_AUDIT, help="Leave sampled text out.")
    ] = False,
    sampling_only: Annotated[
        bool, typer.Option("--sampling-only", rich_help_panel=_AUDIT, help="Leave greedy text out.")
    ] = False,
    behaviour: Annotated[
        bool,
        typer.Option(
            "--behaviour/--no-behaviour", rich_help_panel=_AUDIT, help="Stops, ends, limits, log-probabilities, seeds."
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", rich_help_panel=_AUDIT, help="Begins the seeds of the completions.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", rich_help_panel=_OUT, help="Write the certificate as JSON."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", rich_help_panel=_OUT, help="Write it as a page.")
    ] = None,
    traceback: Traceback = False,
) -> None:
    """Does this engine say what the model says? Tests sampled and greedy text, stops, ends and limits.

    Exit codes: 0 lossless within the stated power, 1 not lossless, 2 could not decide (too few samples, or the audit
    could not run).

    **Examples**

        headstart audit --drafter ngram
        headstart audit --target path/to/target --drafter path/to/draft --temperature 0.8 --top-p 0.95 --html page.html
        headstart audit --endpoint http://localhost:8000/v1 --target path/to/target --dtype bfloat16
        headstart audit --endpoint http://localhost:8000/v1 --against http://localhost:8001/v1
    """
    with reported(traceback):
        from headstart.insight.audit.run import AuditPlan

        if against is not None and endpoint is None:
            raise InvalidOption("--against needs --endpoint", hint="name the server with speculation with --endpoint")
        check_number("--limit", limit, low=1, integer=True)
        check_outputs(out, html)
        items = [item.prompt for item in (sample_prompts() if prompts is None else read_prompt_set(prompts))][:limit]
        plan = AuditPlan(
            sampling=Sampling(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
                presence_penalty=presence_penalty,
                frequency_penalty=frequency_penalty,
                logit_bias=cli.parse_logit_bias(logit_bias),
            ),
            greedy=not sampling_only,
            sampled=not greedy_only,
            behaviour=behaviour,
            level=level,
            effect=effect,
            power=power,
            max_samples=max_samples,
            sample_tokens=sample_tokens,
            greedy_tokens=greedy_tokens,
            near_tie=near_tie,
            k=8 if k is None else k,
            seed=seed,
        )
        console = messages()
        server = {"api_key": _key(api_key_env), "timeout": timeout, "concurrency": concurrency, "seed": seed}
        if endpoint is not None and against is not None:
            certificate = _against(endpoint, against, model, against_model, items, plan, server, console)
        else:
            engine = cli.load_engine(
                console, target=target, drafter=drafter if endpoint is None else ["none"], device=device, dtype=dtype,
                quantize=quantize, rule=rule, k=k, pacing=pacing, tree=tree, max_batch_size=max_batch_size,
                max_length=max_length, trust_remote_code=trust_remote_code,
            )  # fmt: skip
            ids = _encoded(engine, items)
            if endpoint is None:
                certificate = _own(engine, ids, plan, k, console)
            else:
                certificate = _server(endpoint, model, engine, ids, plan, server, target, console)
        _print(certificate)
        _write(certificate, out, html, console)
    raise typer.Exit(certificate.exit_code)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise InvalidOption(f"the environment has no {variable}", hint=f"export {variable}=...")
    return os.environ[variable]


def _encoded(engine: Engine, prompts: Sequence[Prompt]) -> list[list[int]]:
    """Token ids, checked by the engine that will read them."""
    return [list(engine.encode(prompt)) for prompt in prompts]


def _own(engine: Engine, prompts: list[list[int]], plan: AuditPlan, k: int | None, console: Console) -> Certificate:
    from headstart.insight.audit.run import audit_engine

    longest = engine.drafter.default_budget if k is None else k
    with _progress(console) as told:
        return audit_engine(engine, prompts, replace(plan, k=longest), told)


def _server(
    url: str,
    model: str | None,
    engine: Engine,
    prompts: list[list[int]],
    plan: AuditPlan,
    server: dict[str, Any],
    target: str,
    console: Console,
) -> Certificate:
    from headstart.insight.audit.rounding import transformers_logits
    from headstart.insight.audit.run import audit_endpoint
    from headstart.insight.audit.servers.endpoint import EndpointSubject

    if engine.tokenizer is None:
        raise InvalidOption(f"{target} has no tokenizer", hint="put the tokenizer's files beside the reference weights")
    tokens: dict[str, Any] = {"vocab_size": engine.target.vocab_size, "ends": engine.eos_token_ids}
    with EndpointSubject(url, model=model, tokenizer=engine.tokenizer, **tokens, **server) as subject:
        subject.meet(prompts[0])  # before weights are read a second time
        other = None
        if engine.target.quantize is None:
            with note(console, "loading the weights a second time, as transformers runs them …"):
                other = transformers_logits(target, engine.target.dtype, engine.target.device)
        with _progress(console) as told:
            return audit_endpoint(subject, engine, prompts, plan, other=other, told=told)


def _against(
    url: str,
    against: str,
    model: str | None,
    against_model: str | None,
    prompts: Sequence[Prompt],
    plan: AuditPlan,
    server: dict[str, Any],
    console: Console,
) -> Certificate:
    from headstart.insight.audit.run import audit_against
    from headstart.insight.audit.servers.endpoint import EndpointSubject

    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if len(texts) < len(prompts):
        raise InvalidOption("without reference weights prompts are text", hint="leave token ids out of --prompts")
    a = EndpointSubject(url, model=model, **server)
    b = EndpointSubject(against, model=against_model, **(server | {"seed": server["seed"] + 1}))
    with a, b, _progress(console) as told:
        return audit_against(a, b, [[ord(char) for char in text] for text in texts], plan, told)


@contextmanager
def _progress(console: Console) -> Iterator[Told]:
    """A bar for each part, on a terminal."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal, redirect_stdout=False,
    )  # fmt: skip
    tasks: dict[str, Any] = {}

    def told(part: str, done: int, most: int, words: str = "") -> None:
        if part not in tasks:
            tasks[part] = bar.add_task(part, total=most, words="")
        bar.update(tasks[part], completed=done, total=most, words=words)

    with bar:
        yield told


def _write(certificate: Certificate, out: Path | None, html: Path | None, console: Console) -> None:
    if out is not None:
        console.print(Text(f"wrote {certificate.write(out)}"), soft_wrap=True)
    if html is not None:
        from headstart.insight.report.audit_page import audit_page

        console.print(Text(f"wrote {audit_page(certificate.record()).write(html)}"), soft_wrap=True)


def _print(certificate: Certificate) -> None:
    from headstart.insight.audit.certificate import HEADLINES

    console = output()
    verdict = certificate.verdict
    console.print(Text(HEADLINES[verdict], style=f"bold {_COLOURS[verdict]}"))
    for line in (*certificate.reasons, *(f"note: {said}" for said in certificate.notes)):
        console.print(Text(f"  {harmless(line)}"), soft_wrap=True)
