"""The one assembly of an engine: parts, a second engine without a drafter, the key of a profile, and who knows whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import pytest

import headstart as hs
from headstart.drafters.ngram import NgramDrafter
from headstart.loading.assembly import Assembly, Facts, assemble
from headstart.loading.choice import choose
from headstart.loading.options import EngineOptions
from headstart.model.runner import ModelRunner

PROMPT = [5, 6, 7, 5, 6]
SAMPLING = hs.Sampling(max_tokens=12, ignore_eos=True)


@pytest.fixture
def named(tiny: Callable[..., str]) -> hs.Target:
    return hs.Target(tiny("llama"))


@pytest.fixture
def target(load: Callable[..., hs.Engine]) -> ModelRunner:
    return load("llama", None).target


def test_plain_is_the_same_assembly_without_a_drafter(target: ModelRunner) -> None:
    engine = assemble(
        target, drafter=NgramDrafter(), rule="coupled", max_batch_size=3, prefill_chunk=7, prefix_cache=True,
        eos_token_ids=frozenset({2}), target_name="its name",
    )  # fmt: skip
    plain = engine.plain()
    assert plain.target is engine.target
    assert plain.cache is not engine.cache
    ours, theirs = engine.describe(), plain.describe()
    different = {name for name in ours if ours[name] != theirs[name]}
    assert different == {"drafter", "chosen", "prefix_cache"}, "a kept text would flatter what it is compared with"
    assert theirs["drafter"] == "none"
    assert plain.eos_token_ids == engine.eos_token_ids
    assert plain.generate(PROMPT, SAMPLING).tokens == engine.generate(PROMPT, SAMPLING).tokens
    assert plain.plain().describe() == theirs


def test_rows_of_a_forward_count_once_where_models_take_turns(tiny: Callable[..., str]) -> None:
    """They run in the same memory, but for a drafter that drafts while the target works."""
    target, draft = (hs.Target(tiny(name)) for name in ("llama", "qwen3"))

    def rows(ahead: bool) -> list[int]:
        made = Assembly(
            target.checkpoint, None, target.device, choose(target.source, "ngram"), {"d": draft.checkpoint},
            target.device, EngineOptions(ahead=ahead),
        )  # fmt: skip
        return [need.rows for need in made.needs()[target.device]]

    each = rows(ahead=True)
    assert min(each) > 0
    assert sorted(rows(ahead=False)) == [0, max(each)]


def test_the_key_of_a_profile_holds_what_it_held(named: hs.Target) -> None:
    made = Assembly(
        named.checkpoint, None, named.device, choose(named.source, "ngram"), {},
        named.device, EngineOptions(),
    )  # fmt: skip
    facts = made.facts(named.runner)
    assert isinstance(facts, Facts)
    names = ["models", "drafters", "ahead", "tree", "quantize", "blocks", "decoder", "headstart"]
    assert list(asdict(facts)) == names, "profiles that users have are found by these"
    found = json.loads(json.dumps(asdict(facts), default=str))
    assert found["ahead"] == [False, None, "None"]
    assert found["quantize"] == [None, "auto"]
    assert found["blocks"] == [[]]


def test_nothing_is_known_of_the_costs_of_an_object_of_ones_own(named: hs.Target) -> None:
    made = Assembly(
        named.checkpoint, None, named.device, choose(named.source, NgramDrafter()), {},
        named.device, EngineOptions(),
    )  # fmt: skip
    assert made.facts(named.runner) is None
