"""`headstart audit --tools`: whether tool calls and JSON are, byte for byte, what the server writes without drafts.

Every request is asked over each interface that the server has, and answered without drafts twice, one after another
and all at once; then with drafts in four ways. An answer is compared with the one of the same interface in all that the
model wrote: content, reasoning, the names and arguments of its calls, and why it ended.

Where the two answers without drafts differ already, drafts are not to blame: such a request decides nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headstart.base.as_json import as_json
from headstart.base.errors import EndpointFailed, InvalidOption
from headstart.base.files import write_text
from headstart.base.words import counted
from headstart.fleet.audit.agent_cases import Case, cases
from headstart.fleet.audit.interfaces import CHAT, INTERFACES, Interface, Written
from headstart.fleet.http import Client, Hints, short
from headstart.measure.audit.certificate import EXIT_CODES
from headstart.measure.audit.subject import Verdict

PLAIN = ("plain", "plain, all at once")
DRAFTED = ("drafted", "all at once", "again", "cold")
ARMS: Mapping[str, str] = {
    "plain": "without drafts, one after another",
    "plain, all at once": "without drafts, together: the control",
    "drafted": "with drafts, one after another",
    "all at once": "with drafts, together",
    "again": "with drafts, one after another, from a cache that has seen them",
    "cold": "with drafts, each with a cache of its own",
}
_HINTS = Hints(late="give it more time with --timeout", absent="start the server, and name its address: …/v1")
_SHOWN = 60

_ABSENT = (404, 405, 501)
"""How a server answers at a path that it does not have."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer parts from the one without drafts. plain, found: from there on, cut; position: in characters."""

    case: str
    arm: str
    field: str
    position: int
    plain: str
    found: str


@dataclass(frozen=True)
class ToolsAudit:
    """What was found.

    rows: of each request, by arm, "same", "differs", "refused" or "unsteady".
    interfaces: those that were asked.
    """

    endpoint: str
    against: str | None
    model: str
    interfaces: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]
    differences: tuple[Difference, ...]
    refusals: Mapping[str, str]
    notes: tuple[str, ...]

    def count(self, state: str) -> int:
        """Requests that have this state in any arm."""
        return sum(state in row.values() for row in self.rows.values())

    @property
    def compared(self) -> int:
        """Answers that were compared with the one without drafts."""
        return sum(row.get(arm) in ("same", "differs") for row in self.rows.values() for arm in DRAFTED)

    @property
    def verdict(self) -> Verdict:
        if self.differences:
            return "not lossless"
        return "undecided" if not self.compared or self.count("unsteady") else "lossless"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def reasons(self) -> list[str]:
        asked = len(self.rows) - self.count("refused") - self.count("unsteady")
        names = ", ".join(self.interfaces)
        found = [f"{len(self.differences)} differ, of {self.compared} answers to {counted(asked, 'request')} ({names})"]
        if unsteady := self.count("unsteady"):
            found.append(f"{counted(unsteady, 'request')} with two answers without drafts, which decide nothing")
        if refused := self.count("refused"):
            found.append(f"{counted(refused, 'request')} refused by the server, with drafts and without")
        return found

    def record(self) -> dict[str, Any]:
        return {
            "headstart_audit_tools": 1, "verdict": self.verdict, "exit_code": self.exit_code, "reasons": self.reasons,
            "endpoint": self.endpoint, "against": self.against, "model": self.model,
            "interfaces": list(self.interfaces), "arms": dict(ARMS), "requests": as_json(self.rows),
            "differences": [asdict(each) for each in self.differences], "refusals": dict(self.refusals),
            "notes": list(self.notes),
        }  # fmt: skip

    def write(self, path: Path) -> Path:
        return write_text(path, json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n")


def audit_tools(
    endpoint: str, against: str | None = None, *, model: str | None = None, against_model: str | None = None,
    api_key: str | None = None, timeout: float = 120.0, concurrency: int = 8,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> ToolsAudit:  # fmt: skip
    """Ask a server the requests of agents with drafts and without, and compare.

    endpoint: with the /v1 of its interface, as are all.
    against: the same model without speculation; None asks `endpoint` itself, which has to be headstart's.
    progress: is called with an arm, and how many of how many requests are answered.

    Raises:
        EndpointFailed: a server does not answer.
        InvalidOption: the server cannot be asked for an answer without drafts, and there is no other.
    """
    with Client(_HINTS, timeout=timeout, api_key=api_key, retries=2) as client:
        server = _Server(client, endpoint, model)
        other = server if against is None else _Server(client, against, against_model)
        if against is None and server.about is None:
            raise InvalidOption(
                f"{endpoint} is no server of headstart, and cannot be told to leave drafts out",
                hint="name the same model on a server without speculation with --against",
            )
        seeded = against is None and (server.about or {}).get("rule") in ("auto", "coupled")
        plain_fields: dict[str, Any] = {"speculation": {"enabled": False}} if other.about is not None else {}
        notes = [] if seeded else [
            "requests with seeds are left out: drafts keep their distribution, not each text, unless the server is "
            "headstart's and has the rule 'auto' or 'coupled'"
        ]  # fmt: skip
        spoken = [each for each in INTERFACES if server.has(each) and (other is server or other.has(each))]
        notes += [f"/v1/{each.path} is not asked: it is not there" for each in INTERFACES if each not in spoken]
        asked = [(interface, case) for interface in spoken for case in cases(seeded=seeded)]
        salt, answers = secrets.token_hex(8), {}

        def arm(name: str, who: _Server, fields: Callable[[], dict[str, Any]], at_once: int) -> None:
            with ThreadPoolExecutor(at_once) as threads:
                found = []
                for written in threads.map(lambda each: who.ask(each[0], each[1], fields()), asked):
                    found.append(written)
                    progress(name, len(found), len(asked))
            answers[name] = found

        def fresh() -> dict[str, Any]:
            return {"cache_salt": secrets.token_hex(8)}

        arm(PLAIN[0], other, lambda: plain_fields | fresh(), 1)
        arm(PLAIN[1], other, lambda: plain_fields | fresh(), concurrency)
        arm("drafted", server, lambda: {"cache_salt": salt}, 1)
        arm("all at once", server, fresh, concurrency)
        arm("again", server, lambda: {"cache_salt": salt}, 1)
        arm("cold", server, fresh, 1)
        names = [f"{case.name}, {interface.name}" for interface, case in asked]
        spoken_names = tuple(each.name for each in spoken)
        return _compared(
            names, answers, ToolsAudit(endpoint, against, server.model, spoken_names, {}, (), {}, tuple(notes))
        )


class _Server:
    """A server, its model, and what it says of itself if it is headstart's."""

    def __init__(self, client: Client, url: str, model: str | None) -> None:
        self._client, self._url = client, url.rstrip("/")
        answer = client.send("GET", f"{self._url}/models")
        try:
            models = {each["id"]: each for each in answer.json()["data"]}
            self.model = next(iter(models)) if model is None else model
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            raise EndpointFailed(
                f"{self._url}/models does not list a model: {short(answer.text)}",
                hint="give the address of an OpenAI-compatible server, with its /v1",
            ) from error
        self.about: dict[str, Any] | None = models.get(self.model, {}).get("headstart")

    def has(self, interface: Interface) -> bool:
        """Whether the server has an interface. An empty request is refused by those that have it."""
        return interface is CHAT or self._post(interface, {}).status_code not in _ABSENT

    def ask(self, interface: Interface, case: Case, fields: Mapping[str, Any]) -> Written:
        answer = self._post(interface, {"model": self.model, **interface.body({**case.body, **fields})})
        if answer.status_code != 200:
            return {"status": answer.status_code, "error": short(answer.text)}
        try:
            return interface.written(answer.text)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise EndpointFailed(
                f"{self._url}/{interface.path} answers in another form than its interface has: {short(answer.text)}",
                hint="give the address of an OpenAI-compatible server, with its /v1",
            ) from error

    def _post(self, interface: Interface, body: Mapping[str, Any]) -> Any:
        return self._client.send("POST", f"{self._url}/{interface.path}", json=body)


def _compared(names: Sequence[str], answers: Mapping[str, Sequence[Written]], empty: ToolsAudit) -> ToolsAudit:
    rows: dict[str, dict[str, str]] = {}
    differences: list[Difference] = []
    refusals: dict[str, str] = {}
    for number, name in enumerate(names):
        plain, control = (answers[arm][number] for arm in PLAIN)
        row = rows[name] = dict.fromkeys(PLAIN, "same")
        steady = plain == control
        for arm in DRAFTED:
            found = answers[arm][number]
            if not steady:
                row[arm] = "unsteady"
            elif "error" in plain and found.get("status") == plain["status"]:
                row[arm] = "refused"
                refusals[name] = plain["error"]
            elif found == plain:
                row[arm] = "same"
            else:
                row[arm] = "differs"
                differences.append(_difference(name, arm, plain, found))
    return replace(empty, rows=rows, differences=tuple(differences), refusals=refusals)


def _difference(case: str, arm: str, plain: Written, found: Written) -> Difference:
    either = "error" in plain or "error" in found
    field = "error" if either else next(name for name in (*plain, *found) if plain.get(name) != found.get(name))
    a, b = (str(each.get(field, "")) for each in (plain, found))
    position = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    begin = max(0, position - _SHOWN // 3)
    return Difference(case, arm, field, position, a[begin : begin + _SHOWN], b[begin : begin + _SHOWN])
