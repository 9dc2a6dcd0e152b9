"""`headstart serve`: an OpenAI-compatible server of one model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from headstart.base.extras import require_server
from headstart.base.options import option
from headstart.commands import loading as cli
from headstart.commands.options import command
from headstart.commands.terminal import messages, say
from headstart.learn.pages.lessons import lessons_page
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.serve.names import public_name
from headstart.serve.options import Limits, Recording, ServerOptions
from headstart.serve.server import KEY_VARIABLE, ModelServer, Page, all_keys, load, log_to_stderr
from headstart.serve.server import PAGES as SERVED_PAGES

_PANEL = "Server"
_ENGINE = EngineOptions(prefix_cache=True)
_TARGET = TargetOptions(max_length="auto")
"""Agents begin with 20,000 tokens: a server takes contexts as long as memory allows."""

PAGES = {"/": SERVED_PAGES["/"], "/learn": Page("the lessons", lambda: lessons_page(playground="/")), **SERVED_PAGES}
"""All pages of the server, by path; the lessons belong to another wing."""


@command(
    "model drafter host port api-key-file served-model-name max-model-len max-batch-size num-speculative-tokens "
    "quantize device threads traffic max-request-seconds verbose"
)
def serve(
    *,
    words: list[str] = cli.words("[MODEL]"),
    target: str = cli.TARGET,
    drafter: list[str] = cli.DRAFTER,
    suffix_store: Path | None = cli.SUFFIX_STORE,
    loading: TargetOptions = _TARGET,
    options: EngineOptions = _ENGINE,
    server: ServerOptions,
    api_key_file: Path | None = option(
        None, f"Keys that clients must send, one a line. The variable {KEY_VARIABLE} may hold one, too.", panel=_PANEL
    ),
    no_pages: bool = option(
        False,
        "Serve the interface alone, without the playground at /, lessons at /learn and traces at /trace.",
        panel=_PANEL,
    ),
    verbose: bool = option(False, "Log every request: number, path, status and time, never its text.", panel=_PANEL),
    limits: Limits,
    recording: Recording,
) -> None:
    """Serve a model to OpenAI clients: chat and completions, streaming, with speculation that changes no answer.

    Ctrl-C or SIGTERM stops it: running answers may end first, for --stop-grace-seconds. A second Ctrl-C ends them.

    **Examples**

        headstart serve
        headstart serve HuggingFaceTB/SmolLM2-135M-Instruct --port 8080
        headstart serve path/to/model --drafter path/to/draft --host 0.0.0.0 --api-key-file keys.txt
    """
    del words  # none is left
    require_server()
    server = replace(server, api_keys=all_keys(server, api_key_file))
    if not server.served_model_name:
        server = replace(server, served_model_name=(public_name(target),))
    server.check_safe()
    log_to_stderr(verbose=verbose)
    pages = {} if no_pages else PAGES
    with cli.past_outputs(suffix_store, drafter, options) as engine:
        loaded = partial(load, target, drafter, loading, engine)
        with closing(ModelServer(server, limits, recording, loaded, pages, partial(say, messages()))) as run:
            run.listen(target)
