"""`headstart generate`: text for one prompt, streamed, or for many as one ragged batch."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeElapsedColumn

from headstart.base.errors import InvalidOption, InvalidPrompt
from headstart.base.options import option
from headstart.base.prompt_sets import Prompt, PromptItem
from headstart.base.words import counted
from headstart.commands import loading as cli
from headstart.commands.figures import Total, output_as_json, stats_table
from headstart.commands.options import command
from headstart.commands.prompts import read_prompts
from headstart.commands.structure import StructureOptions
from headstart.commands.terminal import BAD_INPUT, for_stdout, messages, print_error, progress_bar, say
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.types import Output, Sampling

if TYPE_CHECKING:
    from headstart.engine.engine import Engine
    from headstart.engine.request import Request

_OUT, _PROMPTS = "Output", "Prompts"
_LONGEST_NAME = 256
"""Characters: a longer text is no folder."""


@command(
    "model drafter max-tokens temperature top-p seed stop chat prompts json stats trace quantize "
    "num-speculative-tokens max-model-len threads"
)
def generate(
    *,
    words: list[str] = cli.words(
        "[MODEL] PROMPT",
        "The model, as --model takes it, and the text to continue. One word alone is the text; without one, or for "
        "'-', it is read from standard input.",
        least=1,
        most=1,
    ),
    prompt: str | None = option(
        None, "The text to continue. It may also be given without a flag.", "-p", metavar="TEXT", panel=_PROMPTS
    ),
    prompts: Path | None = option(
        None,
        'Many prompts: JSONL with "turns" (Spec-Bench), "messages", "prompt" or "text"; any other file is one prompt.',
        metavar="PATH",
        panel=_PROMPTS,
    ),
    split: bool = cli.SPLIT,
    chat: bool = option(
        False,
        "Ask the model: prompts go through its chat template. Turns and messages of a file do in any case, "
        "where the model has one.",
        panel=_PROMPTS,
    ),
    target: str = cli.TARGET,
    drafter: list[str] = cli.DRAFTER,
    suffix_store: Path | None = cli.SUFFIX_STORE,
    loading: TargetOptions,
    options: EngineOptions,
    sampling: Sampling,
    structure: StructureOptions,
    as_json: bool = option(False, "One JSON object per prompt, one per line.", "--json", panel=_OUT),
    stats: bool = option(False, "Print speed and acceptance to standard error.", panel=_OUT),
    trace: Path | None = option(
        None,
        "Record every step, for 'headstart trace': guesses, distributions, uniform draws, times. Steps take longer.",
        panel=_OUT,
    ),
) -> None:
    """Continue a prompt. Streams the text, and nothing but the text, to standard output.

    In each step a fast drafter proposes several tokens, and the model checks them all in one pass. The text is what the
    model alone would write, and it comes sooner. Several prompts (--prompts) run as one batch.

    **Examples**

        headstart generate "def add(a, b):"
        headstart generate HuggingFaceTB/SmolLM2-135M-Instruct --chat "Why is the sky blue?"
        headstart generate "def add(a, b):" --temperature 0.8 --top-p 0.95 --seed 7 --stats
        headstart generate "The answer is " --regex "yes|no"
        headstart generate "def add(a, b):" --trace run.jsonl
        cat prompt.txt | headstart generate --model Qwen/Qwen2.5-Coder-1.5B --drafter Qwen/Qwen2.5-Coder-0.5B
        headstart generate --prompts humaneval.jsonl --max-tokens 128 --json > answers.jsonl
    """
    if sampling.logprobs is not None and not as_json:
        raise InvalidOption("--logprobs needs --json", hint="add --json: log-probabilities have no place in the text")
    sampling = structure.of(sampling)
    cli.check_outputs(trace, None)
    items = read_prompts(_one_text(words, prompt, target), prompts, split=split)
    slots = min(options.max_batch_size, len(items))  # a slot takes the memory of a whole context
    with cli.past_outputs(suffix_store, drafter, replace(options, max_batch_size=slots)) as options:
        engine = cli.load_engine(messages(), target, drafter, loading, options)
        texts = _encoded(engine, items, chat=chat)
        with _recorded(engine, trace):
            _run(engine, texts, sampling, as_json=as_json, stats=stats)


def _one_text(words: Sequence[str], prompt: str | None, target: str) -> str | None:
    """The prompt, if there is one on the command line."""
    if words and prompt is None and target == "bundled" and _like_a_model(words[0]):
        hint = (
            f"to continue a text with it: headstart generate {words[0]} TEXT, or - for standard input; or give -p TEXT"
        )
        raise InvalidOption(
            f"{words[0]} is the only word, so it is the text to continue; it looks like a model", hint=hint
        )
    if not words or prompt is None:
        return words[0] if words else prompt
    raise InvalidOption(
        f"both {words[0]!r} and --prompt are texts to continue",
        hint="name the model with --model" if target == "bundled" else "leave one of them out",
    )


def _like_a_model(word: str) -> bool:
    named = re.fullmatch(r"[\w.-]+/[\w.-]+|\S+\.gguf", word)
    return bool(named) or (len(word) < _LONGEST_NAME and (Path(word) / "config.json").is_file())


@contextmanager
def _recorded(engine: Engine, path: Path | None) -> Iterator[None]:
    """Meanwhile every step is recorded, if there is a file for it. Says where it is, or why it is not whole."""
    if path is None:
        yield
        return
    with engine.trace(path, command=shlex.join(["headstart", *sys.argv[1:]])) as recording:
        yield
    if recording.failure is not None:
        messages().print(f"the trace in {path} ends early: {recording.failure}", style="yellow", markup=False)
    else:
        messages().print(f"recorded; look at it with: headstart trace {path}", style="dim", markup=False)


def _encoded(engine: Engine, items: Sequence[PromptItem], *, chat: bool) -> list[Prompt]:
    """The prompts as they are sent. Says on standard error what a file holds that is not done."""
    from headstart.engine.prompts import templated

    sent = [templated(engine.tokenizer, item, chat=chat) for item in items]
    raw = sum(item.form == "turns raw" for item in sent)
    later = sum(len(item.chat.later) for item in items if item.chat is not None)
    for words in (
        f"this model has no chat template: the turns of {counted(raw, 'prompt')} are sent as plain text" if raw else "",
        f"{counted(later, 'later turn')} not asked: only the first of each conversation is answered" if later else "",
    ):
        if words:
            say(messages(), words, "dim")
    return [item.prompt for item in sent]


def _run(engine: Engine, prompts: Sequence[Prompt], sampling: Sampling, *, as_json: bool, stats: bool) -> None:
    """Print what comes, as it comes; then the figures, and the errors of single requests."""
    console = messages()
    start = time.perf_counter()
    done: list[Output] = []
    try:
        if len(prompts) == 1 and not as_json:
            request = engine.submit(prompts[0], sampling)
            try:
                _stream(engine, request)
            finally:  # an interrupted text has its figures too
                engine.cancel(request)
                done.append(request.finish())
        else:
            for number, out in enumerate(_batch(engine, prompts, sampling, console), start=1):
                line = json.dumps(output_as_json(out), ensure_ascii=False) if as_json else for_stdout(out.text)
                print(line if as_json else f"--- prompt {number} ---\n{line}", flush=True)
                done.append(out)
    finally:
        if stats and done:
            total = Total(tuple(out.stats for out in done), time.perf_counter() - start)
            console.print(stats_table(total, chosen=engine.reason))
    failed = [out.error for out in done if out.error is not None]
    for error in failed:
        print_error(error)
    if failed:
        raise typer.Exit(BAD_INPUT)


def _stream(engine: Engine, request: Request) -> None:
    """Write each step's text at once. However it ends, the last line is finished."""
    try:
        while request.finish_reason is None:
            engine.step()
            while request.chunks:
                sys.stdout.write(for_stdout(request.chunks.popleft().text))
            sys.stdout.flush()
    finally:
        print(flush=True)


def _batch(engine: Engine, prompts: Sequence[Prompt], sampling: Sampling, console: Console) -> Iterator[Output]:
    """Outputs in the order of the prompts, each as soon as all before it are out; a bar on a terminal meanwhile."""
    requests = [_submit(engine, prompt, sampling, number) for number, prompt in enumerate(prompts, start=1)]
    columns = (MofNCompleteColumn(), TimeElapsedColumn())
    bar = progress_bar(console, *columns, disable=not console.is_terminal or len(prompts) == 1)
    tokens = 0
    start = time.perf_counter()
    try:
        with bar:
            task = bar.add_task("", total=len(requests))
            for request in requests:
                while request.finish_reason is None:
                    tokens += sum(len(step.tokens) for step in engine.step())
                    ended = sum(r.finish_reason is not None for r in requests)
                    rate = tokens / (time.perf_counter() - start)
                    bar.update(task, completed=ended, description=f"{rate:.0f} tokens/s")
                bar.stop()  # so that it does not stand in the middle of what the caller prints
                yield request.finish()
                bar.start()
    finally:
        for request in requests:
            engine.cancel(request)


def _submit(engine: Engine, prompt: Prompt, sampling: Sampling, number: int) -> Request:
    try:
        return engine.submit(prompt, sampling)
    except InvalidPrompt as error:
        error.message = f"prompt {number}: {error.message}"
        raise
