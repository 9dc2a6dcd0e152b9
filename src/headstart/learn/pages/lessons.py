"""`lessons_page`: all chapters, the recorded traces and the race in one HTML file that opens offline."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from headstart.base.web import build
from headstart.learn.simulate import scenarios

TITLE = "Speculative decoding, taken apart"
_NO_LESSONS = ("theme", "base", "playground", "report")  # the first two are in every page


def lessons_page(playground: str = "") -> str:
    """The page of the lessons, as text. playground: the address of one, where a server has it."""
    return build.page(
        "lessons/main",
        TITLE,
        data={
            "traces": traces(),
            "race": race(),
            "scenarios": situations(),
            "playground": playground,
            "kinds": kinds(),
        },
        styles=styles(),
        description="Speculative decoding in short chapters: see it, change it, and check what you understood.",
    )


def traces() -> list[dict[str, Any]]:
    """The recorded traces that the page shows: name, title and the lines of each."""
    folder = files("headstart.learn").joinpath("traces")
    index = folder.joinpath("index.json")
    if not index.is_file():
        return []
    return [
        {**each, "lines": [json.loads(line) for line in _lines(folder.joinpath(f"{each['name']}.jsonl"))]}
        for each in json.loads(index.read_text(encoding="utf-8"))
    ]


def race() -> Any:
    """The recorded race of baseline and speculative decoding; None where there is none."""
    file = files("headstart.learn").joinpath("traces", "race.json")
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def situations() -> list[dict[str, Any]]:
    """The scenarios of `headstart simulate --scenarios`, whose consequences the page works out itself."""
    return [{"name": each.name, "story": each.story, **each.parameters()} for each in scenarios().values()]


def kinds() -> Any:
    """How many guesses pass in four kinds of text, as `tools/record_kinds.py` recorded it."""
    return json.loads(files("headstart.learn").joinpath("kinds.json").read_text(encoding="utf-8"))


def styles() -> list[str]:
    """The style sheets of the lessons: those of several chapters first, then each chapter's own."""
    folder = files("headstart.base.web").joinpath("styles")
    names = [each.name.removesuffix(".css") for each in folder.iterdir() if each.name.endswith(".css")]
    return sorted({*names} - {*_NO_LESSONS}, key=lambda name: (name.startswith("chapter-"), name))


def _lines(file: Any) -> list[str]:
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line]
