"""The model hub: whether it can be reached is asked once, quickly, before a model is read from it.

`huggingface_hub` tries five times to reach a hub that is not there, for half a minute for each file. Where one short
question shows that nothing answers, the library is put into its own offline mode instead: models in the local cache
are read as usual, and everything else fails at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Thread

from headstart.base.lazy import huggingface_hub

SECONDS = 3.0
"""How long the hub may take to answer."""
_KEPT_SECONDS = 60
"""How long its answer, or its silence, is remembered."""


@contextmanager
def hub(source: str) -> Iterator[str]:
    """While a model is read: yields why the hub cannot be reached for it, or "" where it can or need not be."""
    if not _is_hub_id(source) or (constants := huggingface_hub.constants).is_offline_mode():
        yield ""
        return
    why = _unreachable(constants.ENDPOINT, int(time.monotonic() / _KEPT_SECONDS))
    constants.HF_HUB_OFFLINE = bool(why)
    try:
        yield why
    finally:
        constants.HF_HUB_OFFLINE = False


def folder_of(source: str | Path) -> Path:
    """The directory of a model: its own, or where the configs and weights of a hub id are kept, fetched if need be."""
    if Path(source).is_dir():
        return Path(source)
    return Path(huggingface_hub.snapshot_download(str(source), allow_patterns=["*.json", "*.safetensors"]))


def _is_hub_id(source: str) -> bool:
    if Path(source).exists():
        return False
    try:
        huggingface_hub.utils.validate_repo_id(source)
    except huggingface_hub.errors.HFValidationError:
        return False
    return True


@lru_cache(maxsize=1)
def _unreachable(endpoint: str, _minute: int) -> str:
    """Why nothing answers at this address, or "". Any answer will do, whatever its status."""
    found = [f"no answer within {SECONDS:g} seconds"]

    def ask() -> None:
        try:
            huggingface_hub.get_session().head(endpoint, timeout=SECONDS)
        except Exception as error:  # of whichever HTTP client the library uses
            found.append(str(error) or type(error).__name__)
        else:
            found.append("")

    asking = Thread(target=ask, daemon=True)  # looking up a name has no time limit of its own
    asking.start()
    asking.join(SECONDS)
    return f"{endpoint} cannot be reached: {found[-1]}" if found[-1] else ""
