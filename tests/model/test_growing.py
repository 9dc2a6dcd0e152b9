"""A tree grown over several forwards: each feeds the newest nodes alone, and the logits are those of one forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from support.tiny import VOCAB
from transformers import AutoModelForCausalLM

from headstart.model.cache import Slots
from headstart.model.loading import adopt
from headstart.model.packed import Segment
from headstart.model.runner import ModelRunner
from headstart.types import Draft

LEVELS = (3, 4, 3)
"""Nodes of each; their parents are scattered over the level before."""
PARENTS = (-1, -1, -1, 0, 0, 2, 1, 4, 6, 4)
DECODERS = [
    *((name, "fused") for name in ("llama", "mistral", "qwen2", "qwen3")),
    *((name, decoder) for name in ("llama", "mistral") for decoder in ("lean", "modules")),
]
OTHERS = [(name, "modules") for name in ("gemma2", "gpt_oss", "gpt2")]


def tokens(n: int, seed: int) -> tuple[int, ...]:
    return tuple(torch.randint(3, VOCAB, (n,), generator=torch.Generator().manual_seed(seed)).tolist())


@cache
def runner_of(path: str, decoder: Any) -> ModelRunner:
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)), decoder=decoder)


def read(runner: ModelRunner, cache: Slots, prompt: Sequence[int]) -> int:
    slot = cache.acquire()
    runner.forward([Segment(slot, tuple(prompt))], cache)
    cache.keep(slot, len(prompt))
    return slot


def grow(runner: ModelRunner, cache: Slots, trees: Sequence[tuple[int, Draft]], levels: Sequence[int]) -> torch.Tensor:
    """Level by level, all trees in one forward; logits [trees, nodes, V]."""
    rows: list[list[torch.Tensor]] = [[] for _ in trees]
    end = 0
    for count in levels:
        held, end = end, end + count
        segments = [
            Segment(slot, (), Draft(tree.tokens[:end], tree.parents[:end]), judged=count, held=held)
            for slot, tree in trees
        ]
        assert [len(segment) for segment in segments] == [count] * len(trees)
        logits = runner.forward(segments, cache).logits.reshape(len(trees), count, -1)
        for row, mine in zip(rows, logits, strict=True):
            row.append(mine)
    return torch.stack([torch.cat(row) for row in rows])


@pytest.mark.parametrize(("name", "decoder"), DECODERS + OTHERS)
@pytest.mark.parametrize(
    ("levels", "parents"),
    [(LEVELS, PARENTS), ((1, 1, 1, 1), (-1, 0, 1, 2)), ((1, 1, 2, 1), (-1, 0, 1, 1, 2)), ((1,) * 9, PARENTS[:9])],
    ids=["tree", "chain", "chain, then tree", "node by node"],
)
def test_level_by_level_is_one_forward(
    levels: tuple[int, ...], parents: tuple[int, ...], name: str, decoder: str, tiny: Callable[..., str]
) -> None:
    """Of two requests at once, whose windows (Mistral: 7 tokens) begin before and within the draft."""
    runner = runner_of(tiny(name), decoder)
    cache = runner.new_cache(2)
    slots = [read(runner, cache, tokens(n, n)) for n in (5, 30)]
    trees = [Draft(tokens(len(parents), 3 + n), parents) for n in range(2)]
    whole = runner.forward(
        [Segment(slot, (), tree, judged=len(tree)) for slot, tree in zip(slots, trees, strict=True)], cache
    ).logits.reshape(2, len(parents), -1)
    grown = grow(runner, cache, list(zip(slots, trees, strict=True)), levels)
    if decoder == "fused":
        assert torch.equal(grown, whole)
    else:
        torch.testing.assert_close(grown, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "decoder"), DECODERS)
def test_a_path_is_kept_as_if_it_had_been_read(name: str, decoder: str, tiny: Callable[..., str]) -> None:
    """Also after siblings, whose places the path then takes."""
    runner = runner_of(tiny(name), decoder)
    prompt, after = tokens(12, 1), tokens(4, 2)
    tree = Draft(tokens(len(PARENTS), 3), PARENTS)
    path = tree.path(8)
    assert path == (1, 6, 8)
    cache = runner.new_cache(2)
    slot = read(runner, cache, prompt)
    grow(runner, cache, [(slot, tree)], LEVELS)
    cache.keep(slot, 0, path)
    plain = read(runner, cache, (*prompt, *(tree.tokens[node] for node in path)))
    assert cache.lengths[slot] == cache.lengths[plain]
    mine, want = (runner.forward([Segment(s, after, judged=4)], cache).logits for s in (slot, plain))
    torch.testing.assert_close(mine, want, rtol=1e-4, atol=1e-4)
    if decoder == "fused":
        assert torch.equal(mine, want)


@pytest.mark.parametrize(("causal", "held"), [((), -1), ((), 3), ((5,), 1)])
def test_what_cannot_be_held(causal: tuple[int, ...], held: int) -> None:
    with pytest.raises(ValueError, match="held"):
        Segment(0, causal, Draft.chain([7, 8]), held=held)
