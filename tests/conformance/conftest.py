"""Suites that others wrote, run unchanged against this server. They are not part of this repository.

Each is named by an environment variable and skipped where that is missing; docs/guides/conformance.md has the commands.
What a suite asks and this server refuses on purpose is in expected.toml, with the reason. A case that fails and is not
there fails the test, and so does one that is there and passes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.http_server import listening
from support.scripted_bridge import ScriptedAnswer, ScriptedBridge
from support.suites import NAMES, Results, expected, named
from transformers import AutoTokenizer

from headstart.model.tokens.matching import matching_tokenizer
from headstart.rule.compiled_grammar import Tokens
from headstart.rule.grammars import Grammars
from headstart.serve.api.app import Application
from headstart.serve.api.service import Served
from headstart.serve.bridge import Answer, Job
from headstart.serve.options import ServerOptions
from headstart.types import Structure


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The suites are slow, and can be chosen: -m conformance."""
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker("slow")
            item.add_marker("conformance")


class Willing(ScriptedBridge):
    """A model that does what it is asked: it calls the first tool that it may, and writes the least that a form allows.

    The suites ask about interfaces. What a small model writes there depends on the model, and what a large one writes
    cannot be had in a test. Grammars are those of an engine, with the same masks.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, [""])
        ends = frozenset({tokenizer.eos_token_id})
        make = partial(matching_tokenizer, tokenizer, len(tokenizer), ends)
        self._grammars = Grammars(Tokens(make, len(tokenizer), ends))
        least = [tokenizer.convert_tokens_to_ids(each) for each in ('"', "{", "}", "]", "3", "Ġ", "true")]
        self._letter, self._end = tokenizer.convert_tokens_to_ids(["a", "}"])
        by_length = sorted(range(len(tokenizer)), key=lambda token: len(tokenizer.decode([token]).strip()) or 99)
        self._choices = [tokenizer.eos_token_id, *least, *by_length]

    def prepare(self, structure: Structure) -> None:
        self._grammars.processors(structure)

    def submit(self, jobs: Sequence[Job]) -> Sequence[Answer]:
        self.jobs += jobs
        return [ScriptedAnswer(self, job, self._says(job)) for job in jobs]

    def _says(self, job: Job) -> str:
        prompt = str(self.tokenizer.decode(list(job.prompt), skip_special_tokens=False))
        turn, opened = ["", *prompt.split("<|im_start|>")][-2:]
        structure = job.sampling.structure
        places = [] if structure is None else self._grammars.processors(structure)
        tools = [line for line in prompt.splitlines() if line.startswith('{"type": "function"')]
        calls = bool(tools) and not turn.startswith("tool") and "<tool_call>" not in opened
        if calls and not places:  # the model is free to call
            return _call(json.loads(tools[0])["function"])
        said: list[int] = []
        begin = self.tokenizer("<tool_call>\n", add_special_tokens=False)["input_ids"] if calls else []
        while places and len(said) < 200:
            text = self.tokenizer.decode(said)
            opened = text.endswith('"') and text.count('"') % 2 == 1
            first = [self._letter] if opened else [self._end] if text.endswith("{") else []
            wanted = [*begin[len(said) : len(said) + 1], *first, *self._choices]
            token = next(each for each in wanted if all(place.allows(each) for place in places))
            if token == self.tokenizer.eos_token_id:
                break
            said.append(token)
            places = [place.after((token,)) for place in places]
        return self.tokenizer.decode(said) or "Hello there, Alice."


def _call(function: Mapping[str, Any]) -> str:
    """A call of a function with the least arguments, as this template writes one."""
    schema = function["parameters"]
    given = {
        name: 3 if schema["properties"][name].get("type") in ("integer", "number") else "a"
        for name in schema.get("required", ())
    }
    return f"<tool_call>\n{json.dumps({'name': function['name'], 'arguments': given})}\n</tool_call>"


@pytest.fixture(scope="session")
def served() -> Iterator[str]:
    """The address of a server with a tokenizer and a chat template that has tools, by the names that suites ask for."""
    bridge = Willing(AutoTokenizer.from_pretrained(named("MODEL"), local_files_only=True))
    app = Application(Served(bridge), ServerOptions(served_model_name=NAMES), grace_seconds=0.0)
    with listening(app) as url:
        yield url


@pytest.fixture
def judged(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[[str, Results], None]:
    """Compares the results of a suite with what is expected of it."""

    def judge(suite: str, results: Results) -> None:
        refused = expected().get(suite, {})
        failed = {case: why for case, why in results.items() if why not in ("", "skipped")}
        unexpected = {case: why for case, why in failed.items() if case not in refused}
        passed = sum(why == "" for why in results.values())
        skipped = len(results) - passed - len(failed)
        with capsys.disabled():
            print(
                f"\n{suite}: {passed} passed, {len(failed) - len(unexpected)} refused on purpose, "
                f"{len(unexpected)} failed, {skipped} skipped"
            )
        assert not unexpected, "\n".join(f"{case}: {why}" for case, why in unexpected.items())
        assert results, "the suite has run no case"
        stale = [case for case in refused if results.get(case) == ""]
        assert not stale, f"these pass, and expected.toml says that they are refused: {stale}"

    return judge
