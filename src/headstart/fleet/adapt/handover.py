"""Handing a new export to a fleet that another process runs: a file in the export that it was launched from.

`headstart adapt --fleet DIR` writes `DIR/rollout.json`; `headstart launch DIR` finds it, takes it away, rolls the new
export out, and writes `DIR/rolled-out.json` at the end.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.base.as_json import as_json
from headstart.base.errors import HeadstartError, InvalidFile, InvalidOption
from headstart.base.files import replacing, write_text
from headstart.fleet.adapt.rollout import Rollout, RolloutOptions

if TYPE_CHECKING:
    from headstart.fleet.launch.fleet import Fleet

VERSION = 1
REQUEST, ANSWER = "rollout.json", "rolled-out.json"


def request(launched: Path, new: Path) -> Path:
    """Ask the fleet that was launched from one export for another.

    Raises:
        InvalidOption: there is no such folder, a request waits already, or it cannot be written.
    """
    path = launched / REQUEST
    if not launched.is_dir():
        raise InvalidOption(f"{launched} is no folder", hint="give the export that `headstart launch` runs")
    if path.exists():
        raise InvalidOption(f"{path} waits already", hint="is `headstart launch` running there? Else remove the file")
    try:
        with replacing(path) as partial:
            partial.write_text(
                json.dumps({"headstart_rollout": VERSION, "export": str(new.absolute())}) + "\n", encoding="utf-8"
            )
    except OSError as error:
        raise InvalidOption(f"cannot write {path}: {error.strerror or error}", hint="may you write there?") from error
    return path


def hand_over(fleet: Path, target: str, new: str, folder: Path, progress: Callable[[str, float], None]) -> Path:
    """Export a drafter as that of a fleet was, and ask the fleet for it.

    Args:
        fleet: the export that it was launched from.
        folder: of the new export; where there is one already, which the fleet may run, a number stands behind its name.
        progress: called with what is being done, and with the share of it that is done.

    Returns:
        The folder that was written.
    """
    from headstart.fleet.export.options import same_options
    from headstart.fleet.export.write import export

    names = (folder if n == 1 else folder.with_name(f"{folder.name}-{n}") for n in itertools.count(1))
    free = next(name for name in names if not name.exists())
    export(target, new, free, same_options(fleet), progress=progress)
    request(fleet, free)
    return free


class Handover:
    """Looks for requests and carries them out, one at a time: `tend` is to be called every second or so."""

    def __init__(
        self,
        fleet: Fleet,
        launched: Path,
        options: RolloutOptions | None = None,
        *,
        begin: Callable[..., Rollout] = Rollout,
    ) -> None:
        self.serving = launched
        """The export that the fleet runs; after a rollout the new one."""
        self._fleet, self._launched, self._options, self._begin = fleet, launched, options, begin
        self._rollout: Rollout | None = None
        self._new = launched

    def tend(self) -> list[str]:
        """What has happened since the last call, as sentences. An impossible request is reported and dropped."""
        if self._rollout is None:
            try:
                return self._take()
            except HeadstartError as error:
                return [f"the rollout was refused: {error.message}"]
        try:
            events = self._rollout.step()
        except HeadstartError as error:  # an export that cannot be read, for example; the fleet goes on
            self._rollout = None
            return [f"the rollout ended: {error.message}"]
        if (outcome := self._rollout.outcome) is not None:
            if outcome == "replaced":
                self.serving = self._new
            record = json.dumps(as_json(self._rollout.record()), indent=1) + "\n"
            self._rollout = None
            write_text(self._launched / ANSWER, record)
        return events

    def _take(self) -> list[str]:
        path = self._launched / REQUEST
        if not path.exists():
            return []
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            self._new = Path(found["export"])
            known = found["headstart_rollout"] == VERSION
        except (OSError, ValueError, KeyError, TypeError) as error:
            known, self._new = False, self._launched
            raise InvalidFile(f"{path} cannot be read: {error}", hint="write it with `headstart adapt`") from error
        finally:
            path.unlink(missing_ok=True)
        if not known or not self._new.is_dir():
            raise InvalidFile(f"{path} names no export that this headstart knows", hint="write it again")
        self._rollout = self._begin(self._fleet, self._new, self.serving, self._options)
        return [f"asked for {self._new}"]
