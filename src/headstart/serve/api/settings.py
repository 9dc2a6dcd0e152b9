"""How the HTTP interface behaves; the options of `headstart serve` are made from this."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.base.errors import InvalidOption
from headstart.base.options import check_fields, option, strict

_PANEL = "Server"


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where the server listens, who may ask, and what it takes."""

    host: str = option("127.0.0.1", "The address to listen on. Any but this machine's own needs a key.", panel=_PANEL)
    port: int = option(8000, "The port; 0 takes a free one.", "-p", panel=_PANEL, low=0, high=65535)
    api_keys: Sequence[str] = option(
        (), "A key that clients must send. Others see it in the list of processes: prefer a file or the environment.",
        "--api-key", metavar="KEY", panel=_PANEL,
    )  # fmt: skip
    served_model_name: Sequence[str] = option(
        (), "The model's name in requests and answers; answers show the first of several. Default: its own.",
        panel=_PANEL,
    )  # fmt: skip
    allowed_hosts: Sequence[str] = option(
        (), "A name of this server in the Host header, beside its address; '*' takes any, which invites pages of "
        "other sites.", "--allowed-host", metavar="HOST", panel=_PANEL,
    )  # fmt: skip
    cors_origins: Sequence[str] = option(
        (), "An origin whose pages may use this server, such as https://chat.example.com; '*' is every page.",
        "--cors-origin", metavar="ORIGIN", panel=_PANEL,
    )  # fmt: skip
    share_cache: bool = option(
        False, "Let requests of different keys share what the server keeps of texts. Who can measure time can then "
        "learn what others have sent.", panel=_PANEL,
    )  # fmt: skip
    max_body_bytes: int = option(16 * 2**20, "The most bytes of a request.", panel=_PANEL, low=1)
    body_seconds: float = option(30.0, "The most that a request's body may take to arrive.", panel=_PANEL, above=0)
    ping_seconds: float = option(15.0, "Interval of keep-alive comments on idle streams.", panel=_PANEL, above=0)
    stall_seconds: float = option(
        60.0, "A client that takes nothing of its stream for so long counts as gone.", panel=_PANEL, above=0
    )
    max_connections: int = option(2000, "Connections at once; more are told to come back.", panel=_PANEL, low=1)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("api_keys", "served_model_name", "allowed_hosts", "cors_origins"):
            values = getattr(self, name)
            if isinstance(values, str) or not all(isinstance(value, str) and value for value in values):
                raise InvalidOption(f"{name} is not a list of names", hint="give non-empty strings")
            object.__setattr__(self, name, tuple(values))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def check_safe(self) -> None:
        """Raises:
        InvalidOption: others could reach the server without a key.
        """
        if not self.loopback and not self.api_keys:
            raise InvalidOption(
                f"{self.host} can be reached by others, and there is no key",
                hint="give --api-key-file FILE, or HEADSTART_API_KEY in the environment; or stay with 127.0.0.1",
            )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
