"""`headstart index`: texts that drafters are to copy from, in one file."""

from __future__ import annotations

import inspect
import time
from pathlib import Path

from rich.progress import MofNCompleteColumn

from headstart.base.options import check_number, option
from headstart.base.words import counted
from headstart.commands import loading as cli
from headstart.commands.options import command
from headstart.commands.terminal import messages, note, output, progress_bar, say

_TEXTS = "Texts"
_MEGABYTE = 1 << 20


@command()
def index(
    *,
    paths: list[Path] = option(
        inspect.Parameter.empty,
        "Folders and text files. A file of --suffix-store gives its past answers.",
        metavar="PATHS...",
        positional=True,
    ),
    target: str = option(
        "bundled",
        "The model whose tokenizer is used: a directory, a .gguf file, a hub id, or 'bundled'.",
        "--model",
        "-m",
        "--target",
        "--tokenizer",
        metavar="MODEL",
        panel="Model",
    ),
    output_file: Path = option(
        Path("index.safetensors"), "Where to write the index.", "--output", "-o", panel="Output"
    ),
    max_file_size: float = option(1.0, "The largest file that is read, in megabytes.", metavar="MB", panel=_TEXTS),
    max_tokens: int = option(
        20_000_000, "The most tokens of all texts; each takes 8 bytes of the file.", low=1, panel=_TEXTS
    ),
    tool_calls: bool = option(
        False,
        "Index each text also as a JSON string spells it, as calls of tools do. Twice the size.",
        panel=_TEXTS,
    ),
    trust_remote_code: bool = option(
        False, "Run Python code from the model's repository to read its tokenizer.", panel="Model"
    ),
) -> None:
    """Index files, so that drafters copy from them: your code, your documents, past answers.

    With `--index FILE`, generate, chat, serve and bench look up the last tokens of a text in the index, and draft what
    followed there. This changes no text. Files that git ignores are left out, and so are files that are not UTF-8 text.

    The index holds the texts themselves, and all requests share it. Clients can learn from the speed of answers what
    is in it.

    **Examples**

        headstart index src/ --model my/model --output code.index
        headstart index src/ docs/ past.safetensors --model my/model --tool-calls --output code.index
        headstart serve --model my/model --index code.index
    """  # fmt: skip
    check_number("max_tokens", max_tokens, low=1, integer=True)
    console = messages()
    with note(console, f"reading the tokenizer of {target} …"):
        from headstart.loading import indexing

        tokenizer = indexing.tokenizer_of(target, trust_remote_code=trust_remote_code)
    cli.check_outputs(output_file, None)
    start = time.perf_counter()
    files = indexing.files_of(paths)
    with progress_bar(console, MofNCompleteColumn()) as bar:
        task = bar.add_task("reading files", total=len(files))
        reading = indexing.read(
            files, tokenizer, most_bytes=int(max_file_size * _MEGABYTE), most_tokens=max_tokens, escaped=tool_calls,
            observe=lambda count: bar.advance(task, count),
        )  # fmt: skip
    with note(console, f"sorting {counted(reading.tokens, 'token', ',')} …"):
        indexing.write(reading, tokenizer, output_file)
    size, seconds = output_file.stat().st_size / _MEGABYTE, time.perf_counter() - start
    held = f"{counted(len(reading.texts), 'text', ',')}, {counted(reading.tokens, 'token', ',')}"
    say(output(), f"{output_file}: {held}, {size:.1f} MB, {seconds:.1f} s")
    for reason, count in reading.left_out.most_common():
        say(console, f"left out: {count:,} {reason}")
    say(console, f"next  headstart serve --model {target} --index {output_file}")
