"""What a file states below its architecture's name, and the refusal of what it states that is not known here."""

from __future__ import annotations

from typing import Any

from headstart.base.errors import UnsupportedModel
from headstart.model.gguf.files import GgufFile
from headstart.model.gguf.metadata import Metadata


class Stated:
    """Metadata of the architecture."""

    def __init__(self, metadata: Metadata, architecture: str) -> None:
        self._metadata, self._architecture = metadata, architecture

    def get(self, key: str) -> Any:
        """A value of any type, or None."""
        return self._metadata.get(f"{self._architecture}.{key}")

    def whole(self, key: str, *default: Any) -> Any:
        return self._metadata.whole(f"{self._architecture}.{key}", *default)

    def number(self, key: str, *default: Any) -> Any:
        return self._metadata.number(f"{self._architecture}.{key}", *default)

    def positive(self, key: str, *default: Any) -> Any:
        """A number above 0."""
        found = self.number(key, *default)
        if found <= 0:
            raise self._metadata.wrong(f"{self._architecture}.{key}", "a number above 0")
        return found

    def text(self, key: str, *default: Any) -> Any:
        return self._metadata.text(f"{self._architecture}.{key}", *default)


def not_run(file: GgufFile, why: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{file.label}: {why}", hint="give the original checkpoint, a directory with config.json and *.safetensors"
    )
