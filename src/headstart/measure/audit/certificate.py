"""The certificate: what was audited, how, what each part found, and the one verdict that all of it comes to.

JSON: {"headstart_audit": 1, "verdict", "exit_code", "reasons", "subject", "reference", "parts": {"sampling", "greedy",
"behaviour", "comparison"}, "notes", "settings", "provenance"}; each part has its "verdict" and "reasons".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headstart.base.as_json import as_json
from headstart.base.files import write_text
from headstart.measure.audit.subject import Verdict
from headstart.measure.provenance import Provenance

VERSION = 1
SUPPORTING = "behaviour"
"""The part that can accuse, but whose passing alone clears no engine."""
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
    """What an audit found. parts: by name, in the order in which they are shown."""

    subject: Mapping[str, Any]
    reference: Mapping[str, Any]
    parts: Mapping[str, Part]
    settings: Mapping[str, Any]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Not lossless if any part is not; lossless if every part that can clear does, and there is one."""
        if any(part.verdict == "not lossless" for part in self.parts.values()):
            return "not lossless"
        clearing = [part.verdict for name, part in self.parts.items() if name != SUPPORTING]
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
        found = {
            "headstart_audit": VERSION,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "reasons": self.reasons,
            "subject": self.subject,
            "reference": self.reference,
            "parts": {name: part.record() for name, part in self.parts.items()},
            "notes": self.notes,
            "settings": self.settings,
            "provenance": self.provenance,
        }
        return as_json(found, unknown=str)  # type: ignore[no-any-return]

    def write(self, path: Path) -> Path:
        """The record as a JSON file.

        Raises:
            InvalidOption: the file cannot be written there.
        """
        return write_text(path, json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n")
