"""The certificate: what was audited, how, what each part found, and the one verdict that all of it comes to.

JSON: {"headstart_audit": 1, "verdict", "exit_code", "reasons", "subject", "reference", "parts": {"sampling", "greedy",
"behaviour", "comparison"}, "notes", "settings", "provenance"}; each part has its "verdict" and "reasons".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headstart.errors import InvalidOption
from headstart.insight.audit.subject import Verdict
from headstart.insight.provenance import Provenance

VERSION = 1
EXIT_CODES: Mapping[Verdict, int] = {"lossless": 0, "not lossless": 1, "undecided": 2}
HEADLINES: Mapping[Verdict, str] = {
    "lossless": "Lossless within the stated power",
    "not lossless": "Not lossless",
    "undecided": "Could not decide",
}


class Part(Protocol):
    """What one kind of test found."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def reasons(self) -> list[str]: ...

    def record(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Certificate:
    """What an audit found.

    parts: by name, in the order in which they are shown
    supporting: names of parts that can accuse, but whose passing alone clears nobody
    """

    subject: Mapping[str, Any]
    reference: Mapping[str, Any]
    parts: Mapping[str, Part]
    settings: Mapping[str, Any]
    provenance: Provenance
    notes: tuple[str, ...] = ()
    supporting: frozenset[str] = field(default=frozenset({"behaviour"}))

    @property
    def verdict(self) -> Verdict:
        """Not lossless if any part is not; lossless if every part that can clear does, and there is one."""
        if any(part.verdict == "not lossless" for part in self.parts.values()):
            return "not lossless"
        clearing = [part.verdict for name, part in self.parts.items() if name not in self.supporting]
        return "lossless" if clearing and all(verdict == "lossless" for verdict in clearing) else "undecided"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def reasons(self) -> list[str]:
        """Of the parts that the verdict rests on first."""
        verdict = self.verdict
        ordered = sorted(self.parts.items(), key=lambda item: item[1].verdict != verdict)
        return [f"{name}: {reason}" for name, part in ordered for reason in part.reasons]

    def record(self) -> dict[str, Any]:
        """Everything, as JSON values; numbers that JSON does not know are text."""
        plain: dict[str, Any] = _plain(
            {
                "headstart_audit": VERSION,
                "verdict": self.verdict,
                "exit_code": self.exit_code,
                "reasons": self.reasons,
                "subject": dict(self.subject),
                "reference": dict(self.reference),
                "parts": {name: part.record() for name, part in self.parts.items()},
                "notes": list(self.notes),
                "settings": dict(self.settings),
                "provenance": self.provenance.record(),
            }
        )
        return plain

    def write(self, path: Path) -> Path:
        """The record as a JSON file.

        Raises:
            InvalidOption: the file cannot be written there.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidOption(f"cannot write {path}: {error.strerror}", hint="name another file") from error
        return path


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
