"""JSON-Schema-Test-Suite and MaskBench through the masks: what a schema allows comes, what it forbids is stopped.

Every token of an instance is asked of the mask at its place, as a draft's tokens are, and the end of the text of the
mask behind them. Schemas are strict here: a keyword that is not supported refuses the schema, and nothing is ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from support.suites import expected, named

from headstart.base.errors import InvalidGrammar
from headstart.model.tokens.matching import matching_tokenizer
from headstart.rule.compiled_grammar import Compiled, Tokens
from headstart.rule.grammar import Grammar
from headstart.rule.grammars import Grammars
from headstart.types import Structure

EVERY = 10
"""Of MaskBench's 11,305 schemas, every so many-th is tried."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(named("MODEL"), local_files_only=True)


@pytest.fixture
def compiled(tokenizer: Any) -> Callable[[Any], Compiled]:
    """Compiles a schema for this tokenizer, as an engine does."""
    ends = frozenset({tokenizer.eos_token_id})
    grammars = Grammars(Tokens(partial(matching_tokenizer, tokenizer, len(tokenizer), ends), len(tokenizer), ends))
    return lambda schema: grammars.compiled(Structure.schema(schema))


def accepted(compiled: Compiled, tokens: Iterable[int], end: int) -> bool:
    """Whether the masks let these tokens come, and the text end behind them."""
    place = Grammar.begin(compiled)
    for token in tokens:
        if not place.allows(token):
            return False
        place = place.after((token,))
    return place.allows(end)


def tried(
    compiled: Callable[[Any], Compiled], tokenizer: Any, schema: Any, instances: Iterable[tuple[Any, bool]]
) -> list[str]:
    """What became of each instance: "right", "refused" or "accepted" wrongly, or "no grammar" for its schema."""
    instances = list(instances)
    try:
        grammar = compiled(schema)
    except InvalidGrammar:
        return ["no grammar"] * len(instances)
    found = []
    for instance, valid in instances:
        tokens = tokenizer(json.dumps(instance, ensure_ascii=False), add_special_tokens=False)["input_ids"]
        ok = accepted(grammar, tokens, tokenizer.eos_token_id)
        found.append("right" if ok == valid else ("accepted" if ok else "refused"))
    return found


@pytest.fixture
def judged(compiled: Callable[[Any], Compiled], tokenizer: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Counts the verdicts on the groups of a suite, each a schema with its instances, against expected.toml."""

    def judge(suite: str, groups: Iterable[tuple[Any, Sequence[Mapping[str, Any]]]]) -> None:
        counts, schemas = Counter[str](), Counter[bool]()
        for schema, instances in groups:
            found = tried(compiled, tokenizer, schema, [(each["data"], each["valid"]) for each in instances])
            counts.update(found)
            schemas["no grammar" not in found] += 1
        with capsys.disabled():
            print(f"\n{suite}: {schemas[True]} of {schemas.total()} schemas compile; instances {dict(counts)}")
        most = expected()[suite]
        assert counts["right"], "no schema has compiled"
        assert counts["accepted"] <= most["accepted"], "the masks let through what a schema forbids"
        assert counts["refused"] <= most["refused"], "the masks stop what a schema allows"
        assert counts["no grammar"] <= most["no grammar"]

    return judge


def test_json_schema_test_suite(judged: Callable[..., None]) -> None:
    files = sorted((named("JSON_SCHEMA_TESTS") / "draft2020-12").glob("*.json"))
    groups = (group for path in files for group in json.loads(path.read_text()))
    judged("JSON-Schema-Test-Suite", ((group["schema"], group["tests"]) for group in groups))


def test_maskbench(judged: Callable[..., None]) -> None:
    cases = (json.loads(path.read_text()) for path in sorted(named("MASKBENCH").glob("*.json"))[::EVERY])
    judged("MaskBench", ((case["schema"], case["tests"]) for case in cases))
