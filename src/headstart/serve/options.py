"""The options of `headstart serve`: where it listens and who may ask, what it allows, what it writes down."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict
from headstart.serve.conversation.formats import format_named

KEY_VARIABLE = "HEADSTART_API_KEY"
"""The environment variable that may hold a key of the server."""

_server = partial(option, panel="Server")
_limit = partial(option, panel="Limits")
_recording = partial(option, panel="Recording")


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where the server listens, who may ask, and what it takes."""

    host: str = _server("127.0.0.1", "The address to listen on. Any but this machine's own needs a key.")
    port: int = _server(8000, "The port; 0 takes a free one.", low=0, high=65535)
    api_keys: Sequence[str] = _server(
        (), "A key that clients must send. Others see it in the list of processes: prefer a file or the environment.",
        "--api-key", metavar="KEY",
    )  # fmt: skip
    served_model_name: Sequence[str] = _server(
        (), "The model's name in requests and answers; answers show the first of several. Default: its own."
    )
    allowed_hosts: Sequence[str] = _server(
        (), "A name of this server in the Host header, beside its address; '*' takes any, which invites pages of "
        "other sites.", "--allowed-host", metavar="HOST",
    )  # fmt: skip
    cors_origins: Sequence[str] = _server(
        (), "An origin whose pages may use this server, such as https://chat.example.com; '*' is every page.",
        "--cors-origin", metavar="ORIGIN",
    )  # fmt: skip
    chat_format: str = _server(
        "", "The form in which the model writes calls, such as hermes. Default: what its tokenizer or chat template "
        "says.", metavar="NAME",
    )  # fmt: skip
    constrain_tools: Literal["auto", "always", "never"] = _server(
        "auto", "Whether calls are held to the schemas of their tools where a request leaves them to the model: 'auto' "
        "where llguidance is installed. Calls that a request demands, and calls of strict tools, always are.",
    )  # fmt: skip
    share_cache: bool = _server(
        False, "Let requests of different keys share what the server keeps of texts. Who can measure time can then "
        "learn what others have sent.",
    )  # fmt: skip
    max_body_bytes: int = _server(16 * 2**20, "The most bytes of a request.", low=1)
    body_seconds: float = _server(30.0, "The longest time that a request's body may take to arrive.", above=0)
    ping_seconds: float = _server(15.0, "Interval of keep-alive comments on idle streams.", above=0)
    stall_seconds: float = _server(60.0, "Close a stream whose client has read nothing for so long.", above=0)
    max_connections: int = _server(2000, "The most connections at once; more are answered with 503.", low=1)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("api_keys", "served_model_name", "allowed_hosts", "cors_origins"):
            values = getattr(self, name)
            if isinstance(values, str) or not all(isinstance(value, str) and value for value in values):
                raise InvalidOption(f"{name} is not a list of names", hint="give non-empty strings")
            object.__setattr__(self, name, tuple(values))
        if self.chat_format:
            format_named(self.chat_format)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def check_safe(self) -> None:
        """Raises:
        InvalidOption: others could reach the server without a key.
        """
        if not self.loopback and not self.api_keys:
            hint = "give --api-key-file FILE, or HEADSTART_API_KEY in the environment; or stay with 127.0.0.1"
            raise InvalidOption(f"{self.host} can be reached by others, and there is no key", hint=hint)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@strict
@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds within which one engine serves many clients."""

    max_waiting_requests: int = _limit(
        256, "Requests that may wait for a free slot; more are refused for the time being.", low=1
    )
    max_waiting_prompt_tokens: int = _limit(
        262_144, "Prompt tokens that may wait; one prompt may always wait alone.", low=1
    )
    max_request_seconds: float | None = _limit(
        None, "End a request this long after it arrived, with the text written until then.", above=0
    )
    max_unread_tokens: int = _limit(1024, "Generated tokens that a streaming client may leave unread.", low=1)
    max_unread_seconds: float = _limit(
        30.0, "Cancel a request whose client has left too many tokens unread for so long.", low=0
    )
    flush_seconds: float = _limit(
        0.004, "Streams are handed new tokens at most this often; the first and the last at once.", low=0, high=1
    )
    stop_grace_seconds: float = _limit(
        30.0, "When the server is stopped, let running requests continue for so long.", low=0
    )
    switch_seconds: float = _limit(
        0.0005, "How long one Python thread may keep others waiting; Python's own is 0.005.", above=0, high=1
    )

    def __post_init__(self) -> None:
        check_fields(self)


@strict
@dataclass(frozen=True, slots=True)
class Recording:
    """What a server writes down: how often guesses were right, and its texts. By default nothing.

    Responses of `/v1/responses` are kept in any case, unless a request says "store": false; without a file in memory.
    """

    ledger: Path | None = _recording(
        None, "Count in this SQLite file, hour by hour, how often guesses were right (mode 600). It holds no text."
    )
    ledger_days: int = _recording(90, "Delete hours that are older.", low=1)
    traffic: Path | None = _recording(
        None, "Write prompts and answers, in tokens, to this file (mode 600), for `headstart adapt`. Requests with "
        '"store": false are left out. Tell your users.',
    )  # fmt: skip
    traffic_limit: float = _recording(
        64.0, "The most megabytes of that file; when it is full, the older half is deleted.", metavar="MB", above=0
    )
    traffic_of: Literal["all", "consenting"] = _recording(
        "all", 'Whose requests are written: of all who do not refuse, or only of those that say "store": true '
        "('consenting').",
    )  # fmt: skip
    responses: Path | None = _recording(
        None, "Keep the answers of /v1/responses in this SQLite file (mode 600), which outlives the server; else they "
        'are kept in memory. Requests with "store": false are left out.',
    )  # fmt: skip
    responses_days: int = _recording(30, "Delete responses that are older.", low=1)
    responses_limit: float = _recording(
        64.0, "The most megabytes of responses, compressed, for each key; the least recently used are deleted first.",
        metavar="MB",
        above=0,
    )  # fmt: skip
    slot_save_path: Path | None = _recording(
        None, "Keep what slots have read in this folder (mode 600), so that conversations go on after a restart "
        "without being read again. The files hold their texts, in tokens.", metavar="DIR",
    )  # fmt: skip
    slot_save_limit: float = _recording(
        4096.0,
        "The most megabytes of that folder; the least recently used texts are deleted first.",
        metavar="MB",
        above=0,
    )

    def __post_init__(self) -> None:
        check_fields(self)
