"""What headstart says of every model type of transformers is what the fixture and docs/supported-models.md say."""

from __future__ import annotations

from functools import cache

import pytest
from support.model_types import (
    FAMILIES,
    REGENERATE,
    Verdict,
    agrees,
    by_config,
    causal_types,
    page,
    record,
    recorded,
    tried,
    wrapping_types,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from headstart.model.recipes import BUILDERS
from headstart.model.wrappers import SAME_ON_TEXT

RUN = f"run `{REGENERATE}`, look at what changed, and commit it"


@cache
def now(name: str) -> Verdict:
    return by_config(name)


def test_all_types_of_this_transformers_are_recorded() -> None:
    known = recorded()
    assert sorted(set(causal_types()) - known.keys()) == [], RUN
    assert sorted({name for names in FAMILIES.values() for name in names} - known.keys()) == [], RUN
    text_models = {name for name, each in known.items() if not each.text}
    gone = text_models - set(causal_types()) - {name for names in FAMILIES.values() for name in names}
    assert sorted(name for name in gone if known[name].verdict != "refused") == [], RUN


@pytest.mark.parametrize("name", sorted(BUILDERS.keys() & MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()))
def test_types_with_a_builder(name: str) -> None:
    assert agrees(now(name), recorded()[name]), RUN


def test_no_type_is_native_without_a_builder() -> None:
    native = {name: each for name, each in recorded().items() if each.verdict == "native"}
    types = {each.text or name for name, each in native.items()}
    assert {SAME_ON_TEXT.get(kind, kind) for kind in types} <= BUILDERS.keys(), RUN


def test_the_verdicts_of_all_types() -> None:
    known = recorded()
    changed = {name: (each, now(name)) for name, each in known.items() if not agrees(now(name), each)}
    assert changed == {}, RUN
    assert sorted(wrapping_types().keys() - known.keys()) == [], RUN


@pytest.mark.parametrize("name", ["llama", "mixtral", "persimmon", "mamba", "bert"])
def test_a_type_that_is_tried(name: str) -> None:
    assert tried(name) == recorded()[name], RUN


def test_the_page_is_made_of_the_fixture() -> None:
    from support.model_types import FIXTURE

    assert FIXTURE.read_text(encoding="utf-8") == record(recorded())
    written = (FIXTURE.parents[3] / "docs" / "supported-models.md").read_text(encoding="utf-8")
    version = written.partition("for transformers ")[2].partition(".\n")[0]
    assert page(recorded(), version) == written, RUN


def test_a_verdict_that_changed_would_be_noticed() -> None:
    exact = Verdict("modules", tried="exact")
    assert agrees(Verdict("modules"), exact)
    assert not agrees(Verdict("native"), exact)
    assert not agrees(Verdict("refused", "why"), exact)
    assert not agrees(Verdict("refused", "another reason"), Verdict("refused", "why"))
    assert agrees(Verdict("modules"), Verdict("refused", "at load: why", tried="refused"))
    assert not agrees(Verdict("refused", "why"), Verdict("refused", "at load: why", tried="refused"))
