"""`headstart serve`: an OpenAI-compatible server of one model."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from headstart.base.errors import InvalidFile, InvalidOption
from headstart.base.extras import how_to_install
from headstart.base.options import option, values_of
from headstart.commands import loading as cli
from headstart.commands.options import command
from headstart.commands.terminal import harmless, messages
from headstart.learn.pages.lessons import lessons_page
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.serve.api.settings import ServerOptions
from headstart.serve.ledger import Recording
from headstart.serve.limits import Limits
from headstart.serve.names import public_name
from headstart.serve.pages import PAGES as SERVED_PAGES
from headstart.serve.pages import Page
from headstart.serve.traffic_log import TrafficOptions

if TYPE_CHECKING:
    from headstart.drafters.matching.suffix_store import SuffixStore
    from headstart.serve.api.service import Served
    from headstart.serve.events import Subscriber
    from headstart.serve.traffic_log import TrafficLog

KEY_VARIABLE = "HEADSTART_API_KEY"
_PANEL = "Server"
_ENGINE = EngineOptions(prefix_cache=True)

PAGES = {**SERVED_PAGES, "/learn": Page("the lessons", lambda: lessons_page(playground="/"))}
"""All pages of the server, by path."""


@command
def serve(
    *,
    target: str = cli.TARGET,
    drafter: list[str] = cli.DRAFTER,
    suffix_store: Path | None = cli.SUFFIX_STORE,
    loading: TargetOptions,
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
    traffic: TrafficOptions,
) -> None:
    """Serve a model to OpenAI clients: chat and completions, streaming, with speculation that changes no answer.

    Ctrl-C or SIGTERM stops it: running answers may end first, for --stop-grace-seconds. A second Ctrl-C ends them.

    **Examples**

        headstart serve
        headstart serve --target HuggingFaceTB/SmolLM2-135M-Instruct --port 8080
        headstart serve --target path/to/model --drafter path/to/draft --host 0.0.0.0 --api-key-file keys.txt
    """
    _require_extra()
    server = replace(server, api_keys=_keys(server, api_key_file))
    if not server.served_model_name:
        server = replace(server, served_model_name=(public_name(target),))
    server.check_safe()
    store = cli.open_store(suffix_store, drafter)
    options = replace(options, suffix_store="auto" if store is None else store)
    _log(verbose=verbose)
    run = _Run(server, limits, recording, traffic, lambda: _load(target, drafter, loading, options), store,
               {} if no_pages else PAGES)  # fmt: skip
    try:
        run.listen(target)
    finally:
        run.close()
        if store is not None and suffix_store is not None:
            store.save(suffix_store)


def _load(target: str, drafter: Sequence[str], loading: TargetOptions, options: EngineOptions) -> tuple[Any, Any, str]:
    """The engine, what the model's makers say of sampling, and the model's fingerprint."""
    from transformers.utils import logging as transformers_logging

    from headstart.loading.load import Target

    transformers_logging.disable_progress_bar()
    loaded = Target(target, **values_of(loading))
    engine = loaded.engine(drafters_of(drafter), **values_of(options))
    return engine, loaded.generation_config, loaded.checkpoint.fingerprint


def drafters_of(asked: Sequence[str]) -> list[str] | str:
    """The drafters of a server: what was asked for, behind the predicted outputs of requests."""
    if list(asked) == ["none"]:
        return "none"
    return list(asked) if "prediction" in asked else ["prediction", *asked]


class _Run:
    """One server, from its socket to its end."""

    def __init__(
        self,
        server: ServerOptions,
        limits: Limits,
        recording: Recording,
        traffic: TrafficOptions,
        load: Callable[[], tuple[Any, Any, str]],
        store: SuffixStore | None,
        pages: Mapping[str, Page],
    ) -> None:
        self._options, self._limits = server, limits
        self._load, self._store, self._pages = load, store, pages
        self._ledger = recording.open(server.served_model_name[0])
        self._traffic = traffic
        self._traffic_log: TrafficLog | None = None
        self._failure: BaseException | None = None
        self._url = ""

    def listen(self, target: str) -> None:
        """Serve until a signal comes.

        Raises:
            HeadstartError: the model could not be loaded, or the address cannot be had.
        """
        from headstart.serve.api.app import Application
        from headstart.serve.api.listening import Server, bound_socket

        bound = bound_socket(self._options)
        app = Application(
            self._served, self._options, grace_seconds=self._limits.stop_grace_seconds,
            on_ready=self._ready, on_failure=self._failed,
            pages={path: page.write for path, page in self._pages.items()},
        )  # fmt: skip
        self._server = Server(
            app, self._options, grace_seconds=self._limits.stop_grace_seconds,
            on_started=lambda url: self._started(url, target),
        )  # fmt: skip
        self._server.run([bound])
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Write down what is still to be written."""
        for recorder in (self._ledger, self._traffic_log):
            if recorder is not None:
                recorder.close()

    def _served(self) -> Served:
        from headstart.serve.api.schemas.common import Defaults
        from headstart.serve.api.service import Served
        from headstart.serve.metrics import Metrics
        from headstart.serve.worker import ThreadBridge

        engine, config, fingerprint = self._load()
        self._traffic_log = self._traffic.open(fingerprint)
        metrics = Metrics(self._options.served_model_name[0])
        recorders = [recorder for recorder in (self._ledger, self._traffic_log) if recorder is not None]
        subscribers: list[Subscriber] = [metrics, *recorders]
        bridge = ThreadBridge(engine, self._limits, subscribers)
        metrics.follow(bridge)
        # The bridge itself tells of an overload
        return Served(
            bridge, Defaults.of(config), metrics.exposition, metrics.totals, self._recorded,
            request_seconds=self._limits.max_request_seconds,
        )  # fmt: skip

    @property
    def _recorded(self) -> bool:
        """Whether prompts and answers are written down: not where the file could not be opened."""
        return self._traffic_log is not None and self._traffic_log.stopped is None

    # -- what is told ---------------------------------------------------------------------------------------------

    def _started(self, url: str, target: str) -> None:
        self._url = url
        _say(f"{url}/v1 answers soon: loading {target}")

    def _ready(self, served: Served) -> None:
        about = served.bridge.describe()
        _say(f"{self._url}/v1 serves {self._options.served_model_name[0]!r}, drafter {about['drafter']}, "
             f"{about['max_batch_size']} requests at once")  # fmt: skip
        if self._recorded:
            _say(f'prompts and answers are written to {self._traffic.traffic}; "store": false leaves a request out')
        if self._pages:
            _say("open " + ", ".join(f"{self._url}{path} ({page.name})" for path, page in self._pages.items()))
        _say("try it:")
        _say(f"  {example(self._url, self._options, chat=bool(getattr(served.bridge.tokenizer, 'chat_template', '')))}")

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self._server.should_exit = True


def example(url: str, options: ServerOptions, *, chat: bool) -> str:
    """A line for a shell that asks the server something."""
    model = options.served_model_name[0]
    body: dict[str, Any] = {"model": model}
    if chat:
        body |= {"messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    else:
        body |= {"prompt": "def add(a, b):", "max_tokens": 32}
    key = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if options.api_keys else ""
    path = "chat/completions" if chat else "completions"
    data = json.dumps(body).replace("'", r"'\''")
    return f"curl {url}/v1/{path} -H 'Content-Type: application/json'{key} -d '{data}'"


def _keys(server: ServerOptions, file: Path | None) -> tuple[str, ...]:
    """The keys of the options, the environment and a file.

    Raises:
        InvalidFile: the file cannot be read, or holds no key.
    """
    keys = list(server.api_keys)
    if found := os.environ.get(KEY_VARIABLE, "").strip():
        keys.append(found)
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFile(f"cannot read the keys in {file}: {error}", hint="give a text file") from error
        named = [line for line in lines if line and not line.startswith("#")]
        if not named:
            raise InvalidFile(f"{file} holds no key", hint="write one key a line")
        keys += named
    return tuple(dict.fromkeys(keys))


def _require_extra() -> None:
    """Raises:
    InvalidOption: a package that only the server needs is not installed.
    """
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise InvalidOption(
                f"a server needs fastapi, uvicorn and prometheus-client, and {error.name or module} cannot be imported",
                hint=how_to_install("serve"),
            ) from error


def _log(*, verbose: bool) -> None:
    """What the server notes goes to standard error; uvicorn speaks only of what is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("headstart", logging.INFO if verbose else logging.WARNING), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def _say(words: str) -> None:
    messages().print(Text(harmless(words)), soft_wrap=True)
