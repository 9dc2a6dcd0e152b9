"""Engines that draft with an EAGLE head, what they proposed, and what transformers writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from headstart.drafters import Row
from headstart.drafters.eagle import EagleDrafter
from headstart.engine.engine import Engine
from headstart.loading.assembly import assemble
from headstart.model.heads.eagle import Head, TensorHead, complete
from headstart.model.heads.eagle_checkpoint import read
from headstart.model.heads.eagle_fused import FusedHead
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.types import Draft
from support.eagle_heads import CONTEXT

PROMPTS = ([3, 5, 2], [7] * 20, [4], [1, 2, 3, 4, 5, 6, 7, 8, 9], [11, 12] * 7)


def runner_of(path: str, **options: Any) -> ModelRunner:
    dtype = options.pop("dtype", torch.float32)
    return ModelRunner(adopt(AutoModelForCausalLM.from_pretrained(path, dtype=dtype)), **options)


def head_of(folder: Path, runner: ModelRunner, kind: str, length: int = CONTEXT, **options: Any) -> Head:
    embedding = runner.model.get_input_embeddings().weight
    weights = complete(
        read(folder, runner.config), embedding=embedding, head=embedding, dtype=runner.dtype, device=runner.device
    )
    return TensorHead(weights, length) if kind == "tensor" else FusedHead(weights, length, **options)


def engines() -> Iterator[Callable[..., Engine]]:
    """What makes engines on a head's directory, audited afterwards: the body of a fixture."""
    engines: list[Engine] = []

    def make(
        target: str, folder: Path, tree: Any = "none", slots: int = 3, budget: int | None = None, **options: Any
    ) -> Engine:
        runner = runner_of(target, max_length=options.pop("max_length", None))
        drafter = EagleDrafter.load(
            folder, runner, target_folder=target, slots=slots, budget=budget, tree=tree, quantize=None
        )
        drafter._reader.chunk = 4  # so that tiny prompts are long ones
        engines.append(assemble(runner, None, drafter, max_batch_size=slots, prefill_chunk=6, **options))
        return engines[-1]

    yield make
    for engine in engines:
        drafter = engine.drafter
        assert isinstance(drafter, EagleDrafter)
        for slots in (engine.cache, drafter.cache):
            slots.check()
            assert slots.free_slots == len(slots.lengths), "a slot was not given back"


def recorded(engine: Engine) -> list[tuple[tuple[int, ...], Row, Draft]]:
    """Every draft from now on, with the text it was made for."""
    drafter, found = engine.drafter, []
    assert drafter is not None
    original = drafter.propose

    def propose(contexts: Sequence[Row]) -> Sequence[Draft]:
        drafts = original(contexts)
        found.extend((tuple(c.tokens), c, draft) for c, draft in zip(contexts, drafts, strict=True))
        return drafts

    drafter.propose = propose  # type: ignore[method-assign]
    return found


def paths(draft: Draft) -> list[tuple[int, ...]]:
    return [tuple(draft.tokens[node] for node in draft.path(i)) for i in range(len(draft))]


@cache
def reference(path: str, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    return tuple(out[0, len(prompt) :].tolist())
