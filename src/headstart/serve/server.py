"""`ModelServer`: one server from its socket to its end, with all that stands behind it. `headstart serve` runs it.

Nothing here imports the packages of a server before `listen`: the command line has its options without them.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.base.errors import InvalidFile
from headstart.base.lazy import transformers
from headstart.base.options import values_of
from headstart.base.web.build import page
from headstart.base.words import counted
from headstart.loading.options import EngineOptions, TargetOptions
from headstart.serve.ledger import Ledger
from headstart.serve.options import KEY_VARIABLE, Limits, Recording, ServerOptions
from headstart.serve.responses_store import ResponseStore
from headstart.serve.traffic_log import TrafficLog

if TYPE_CHECKING:
    from headstart.engine.engine import Engine
    from headstart.serve.api.service import Served
    from headstart.serve.bridge import Bridge
    from headstart.serve.saved_slots import SavedSlots


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a server serves."""

    engine: Engine
    config: Mapping[str, Any]
    """What the model's makers say of sampling."""
    fingerprint: str
    """Of the model."""


def load(target: str, drafter: Sequence[str], loading: TargetOptions, options: EngineOptions) -> Loaded:
    """Load a model and its drafters.

    Raises:
        HeadstartError: it cannot be loaded.
    """
    from headstart.loading.load import Target

    transformers.first(lambda library: library.utils.logging.disable_progress_bar())
    loaded = Target(target, **values_of(loading))
    engine = loaded.engine(drafters_of(drafter), **values_of(options))
    return Loaded(engine, loaded.generation_config, loaded.checkpoint.fingerprint)


def drafters_of(asked: Sequence[str]) -> list[str] | str:
    """The drafters of a server: what was asked for, behind the predicted outputs of requests."""
    if list(asked) == ["none"]:
        return "none"
    return list(asked) if "prediction" in asked else ["prediction", *asked]


@dataclass(frozen=True, slots=True)
class Page:
    """A page for people that the server shows: one file, that asks for nothing but this server's paths."""

    name: str
    """What it is called in a sentence."""
    write: Callable[[], str]
    """Its whole text."""


def playground_page() -> str:
    """One's own prompts, with every token marked by where it came from."""
    about = "Run prompts on this server and see where each token came from."
    styles = ("viewer", "playground")
    return page("playground/main", "headstart playground", styles=styles, connects=True, description=about)


def viewer_page() -> str:
    """The trace viewer without a trace: it asks for a file, which stays in the browser."""
    about, data = "Open a trace of headstart and replay it round by round.", {"playground": "/"}
    return page("viewer/main", "A trace, round by round", data=data, styles=("viewer",), description=about)


PAGES: Mapping[str, Page] = {
    "/": Page("the playground", playground_page),
    "/trace": Page("the trace viewer", viewer_page),
}
"""By path. The command adds the lessons, which belong to another wing."""


class ModelServer:
    """One server. The ledger and the store of responses are open from the beginning, the file of
    traffic once the model is known.

    options: with a name of the model.
    load: the model; called once the server listens, on a thread of its own.
    pages: for people, by path.
    say: is called with what the user should know, line by line.

    Raises:
        InvalidFile: the ledger or the store of responses cannot be opened.
    """

    def __init__(
        self, options: ServerOptions, limits: Limits, recording: Recording, load: Callable[[], Loaded],
        pages: Mapping[str, Page], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._options, self._limits, self._recording = options, limits, recording
        self._load, self._pages, self._say = load, pages, say
        self._responses = ResponseStore.of(recording)
        self._ledger = Ledger.of(recording, options.served_model_name[0])
        self._traffic_log: TrafficLog | None = None
        self._slots: SavedSlots | None = None
        self._failure: BaseException | None = None
        self._url = ""

    def listen(self, target: str) -> None:
        """Serve until a signal comes. target: what is loaded, for the user.

        Raises:
            HeadstartError: the model could not be loaded, or the address cannot be had.
        """
        from headstart.serve.api.app import Application
        from headstart.serve.api.listening import Server, bound_socket

        def started(url: str) -> None:
            self._url = url
            self._say(f"{url}/v1 answers soon: loading {target}")

        def failed(error: BaseException) -> None:
            self._failure = error
            server.should_exit = True

        bound, grace = bound_socket(self._options), self._limits.stop_grace_seconds
        app = Application(
            self.served, self._options, grace_seconds=grace, on_ready=self.tell_ready, on_failure=failed,
            pages={path: page.write for path, page in self._pages.items()},
        )  # fmt: skip
        server = Server(app, self._options, grace_seconds=grace, on_started=started)
        server.run([bound])
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Write down what is still to be written."""
        for recorder in (self._ledger, self._traffic_log, self._slots):
            if recorder is not None:
                recorder.close()
        self._responses.close()

    def served(self) -> Served:
        """Load the model, and put together what answers: the bridge, and those who subscribe to its events."""
        from headstart.serve.api.schemas.parts import Defaults
        from headstart.serve.api.service import Served
        from headstart.serve.metrics import Metrics
        from headstart.serve.named_slots import NamedSlots
        from headstart.serve.saved_slots import SavedSlots
        from headstart.serve.worker import ThreadBridge

        loaded = self._load()
        gc.collect()
        gc.freeze()  # else a collection in the middle of a step looks through all that was imported, for 0.1 s
        self._slots = loaded.engine.cache.saved_texts = SavedSlots.of(
            self._recording, loaded.engine, loaded.fingerprint
        )
        self._traffic_log = TrafficLog.of(self._recording, loaded.fingerprint)
        metrics = Metrics(self._options.served_model_name[0])
        recorders = [recorder for recorder in (self._ledger, self._traffic_log) if recorder is not None]
        bridge = ThreadBridge(loaded.engine, self._limits, [metrics, *recorders])
        metrics.follow(bridge)
        return Served(
            bridge, Defaults.of(loaded.config), metrics, self._recorded,
            request_seconds=self._limits.max_request_seconds, responses=self._responses,
            saved=None if self._slots is None else NamedSlots(self._slots),
        )  # fmt: skip

    def tell_ready(self, bridge: Bridge) -> None:
        """Say what is served, what is written down, and how to ask."""
        about = bridge.describe()
        self._say(f"{self._url}/v1 serves {self._options.served_model_name[0]!r}, drafter {about['drafter']}, "
                  f"{counted(about['max_batch_size'], 'request')} at once of "
                  f"{counted(about['max_length'], 'token')} each")  # fmt: skip
        if self._recorded:
            file = self._recording.traffic
            self._say(f'prompts and answers are written to {file}; "store": false leaves a request out')
        if (kept := self._recording.responses) is not None:
            self._say(f'answers of /v1/responses are kept in {kept}; "store": false leaves one out')
        if (folder := self._recording.slot_save_path) is not None and self._slots is not None:
            self._say(
                f"what slots have read is kept in {folder}, which holds {counted(len(self._slots.files), 'text')}"
            )
        if self._pages:
            self._say("open " + ", ".join(f"{self._url}{path} ({page.name})" for path, page in self._pages.items()))
        self._say("try it:")
        self._say(f"  {example(self._url, self._options, chat=bool(getattr(bridge.tokenizer, 'chat_template', '')))}")

    @property
    def _recorded(self) -> bool:
        """Whether prompts and answers are written down: not where the file could not be opened."""
        return self._traffic_log is not None and self._traffic_log.stopped is None


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


def all_keys(options: ServerOptions, file: Path | None) -> tuple[str, ...]:
    """The keys of the options, the environment and a file.

    Raises:
        InvalidFile: the file cannot be read, or holds no key.
    """
    keys = list(options.api_keys)
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


def log_to_stderr(*, verbose: bool) -> None:
    """What the server notes goes to standard error; uvicorn speaks only of what is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("headstart", logging.INFO if verbose else logging.WARNING), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
