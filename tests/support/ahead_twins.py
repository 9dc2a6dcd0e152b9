"""`Ahead(inner)` beside `inner`: the same requests, cancelled at the same steps, and all that was drafted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
import transformers as tf
from transformers import AutoModelForCausalLM

from headstart.drafters import Drafter
from headstart.drafters.ahead import Ahead, AheadDrafter, MakeWorker
from headstart.drafters.draft_model import DraftModel
from headstart.engine.engine import Engine
from headstart.loading.assembly import assemble
from headstart.model.loading import adopt
from headstart.model.runner import ModelRunner
from headstart.pacing import FixedPacing, Plan, Row
from headstart.types import Budget, Draft, Rule, Sampling, Step, TreeKind

VOCAB = 20
"""More than are ranked, so that some bonus tokens cannot be foreseen."""
CONTEXT = 256
"""Room for all branches behind every text."""


@cache
def runner(noise: float = 0.0, max_length: int = CONTEXT, decoder: Any = "auto") -> ModelRunner:
    """A random Llama, or with noise one that nearly agrees with it."""
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=max_length, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    made = AutoModelForCausalLM.from_config(config)
    matrices = [parameter.data for parameter in made.parameters() if parameter.dim() > 1]
    for matrix in matrices:
        matrix.normal_(0, 0.35)
    for matrix in matrices:
        matrix += noise * torch.randn_like(matrix)
    return ModelRunner(adopt(made), max_length=max_length, decoder=decoder)


def draft_model(
    slots: int, tree: TreeKind = "none", max_length: int = CONTEXT, decoder: Any = "auto", **options: Any
) -> DraftModel:
    """A draft LM that is nearly the target."""
    near = runner(0.06, max_length, decoder)
    return DraftModel(near, name="near", vocab_size=VOCAB, slots=slots, tree=tree, **options)


class Budgets(FixedPacing):
    """Nodes by a list, another for each step and request: more, less and none."""

    def __init__(self, nodes: Sequence[int]) -> None:
        super().__init__(0)
        self._nodes, self._steps = nodes, 0

    def plan(self, rows: Sequence[Row]) -> Plan:
        self._steps += 1
        return Plan([Budget(self._nodes[(self._steps + 3 * row.request) % len(self._nodes)]) for row in rows])


CHANGING = (4, 4, 4, 2, 6, 6, 0, 0, 5, 1, 4, 12)
"""Most rounds are as large as the one before them, so that trees can be hits."""
WARM = Sampling(max_tokens=12, temperature=1.0, seed=1)
RAGGED = (
    (tuple(range(3)), Sampling(max_tokens=16)),
    ((5, 7, 5, 7, 9, 11, 2, 5, 7, 5, 3), WARM),
    ((4,), replace(WARM, temperature=0.8, top_p=0.9, repetition_penalty=1.3, frequency_penalty=0.4, seed=2)),
    ((1, 2, 3, 1, 2, 3, 1), replace(WARM, temperature=1.3, max_tokens=6, logit_bias={2: 2.0, 5: -100.0}, seed=3)),
    ((8, 8, 9, 8, 8), Sampling(max_tokens=14, presence_penalty=0.5, frequency_penalty=0.2)),
    ((6, 7), replace(WARM, temperature=0.5, seed=4)),
    ((3, 2, 1), Sampling(max_tokens=9)),
)
"""Prompts of different lengths, with texts of different lengths; two of them wait until a place is free."""
Asked = tuple[tuple[int, ...], Sampling]


@dataclass(frozen=True)
class Case:
    """What is asked of both. cancels: by step, the request that ends there. again: whether the requests come a second
    time, with what they were given before as part of their prompts. max_length: of the draft's context."""

    tree: TreeKind = "none"
    rule: Rule = "exact"
    asked: Sequence[Asked] = RAGGED
    slots: int = 5
    budgets: Sequence[int] = CHANGING
    cancels: dict[int, int] = field(default_factory=dict)
    max_length: int = CONTEXT
    prefix_cache: bool = False
    again: bool = False
    decoder: Any = "auto"

    def inner(self) -> DraftModel:
        return draft_model(self.slots, self.tree, self.max_length, self.decoder)

    def ahead(self, worker: MakeWorker, **options: Any) -> AheadDrafter:
        how = Ahead(self.inner(), **{"partial": False, "branches": 12, "always": True, **options})
        return AheadDrafter(how, worker)

    def run(self, drafter: Drafter) -> list[Step]:
        """All steps of all requests, as they came; the caches are checked."""
        steps: list[Step] = []
        engine = self.engine(drafter)
        engine.subscribe(steps.append)
        self.play(engine, self.asked)
        if self.again:
            texts: dict[int, tuple[int, ...]] = {}
            for step in steps:
                texts[step.request] = texts.get(step.request, ()) + step.tokens
            firsts = sorted(texts)
            later = [(prompt + texts[each], s) for each, (prompt, s) in zip(firsts, self.asked, strict=True)]
            self.play(engine, [(prompt, s) for prompt, s in later if len(prompt) + 2 < engine.target.max_length])
        for slots in (engine.cache, getattr(drafter, "inner", drafter).cache):
            slots.check()
            assert slots.free_slots == len(slots.lengths), "a slot was not given back"
        return steps

    def engine(self, drafter: Drafter) -> Engine:
        return assemble(
            runner(),
            drafter=drafter,
            rule=self.rule,
            pacing=Budgets(self.budgets),
            max_batch_size=self.slots,
            prefix_cache=self.prefix_cache,
        )

    def play(self, engine: Engine, asked: Sequence[Asked]) -> None:
        requests = [engine.submit(list(prompt), sampling) for prompt, sampling in asked]
        count = 0
        while any(request.finish_reason is None for request in requests):
            engine.step()
            count += 1
            if count in self.cancels:
                engine.cancel(requests[self.cancels[count]])
        assert all(request.error is None for request in requests)
        assert all(request.speculation.error is None for request in requests), "the drafter failed"


def difference(one: Sequence[Step], other: Sequence[Step]) -> str:
    """Where two runs differ first: in a draft, its distributions, what was accepted or what was emitted; "" where they
    do not. Requests are told apart by their order."""
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} steps"
    numbers = [{n: i for i, n in enumerate(sorted({step.request for step in steps}))} for steps in (one, other)]
    for index, (a, b) in enumerate(zip(one, other, strict=True)):
        if not same_draft(a.draft, b.draft):
            return f"step {index}: drafted {shown(a.draft)} and {shown(b.draft)}"
        facts = [
            (number[s.request], s.index, s.position, s.path, s.tokens, s.finish_reason, s.rows, s.batch)
            for s, number in zip((a, b), numbers, strict=True)
        ]
        if facts[0] != facts[1]:
            return f"step {index}: {facts[0]} and {facts[1]}"
    return ""


def same_draft(one: Draft, other: Draft) -> bool:
    """Tokens, parents and distributions: to the bit where forwards are width-invariant."""
    if (one.tokens, one.parents, one.q is None) != (other.tokens, other.parents, other.q is None):
        return False
    if one.q is None or other.q is None:
        return True
    return torch.equal(one.q, other.q) or (not TO_THE_BIT and torch.allclose(one.q, other.q, atol=1e-5))


TO_THE_BIT = runner().width_invariant
"""False where no compiler is at hand."""


def shown(draft: Draft) -> str:
    distributions = "" if draft.q is None else f", q {draft.q.sum().item():.9f}"
    return f"{draft.tokens} below {draft.parents}{distributions}"


def hits(steps: Sequence[Step]) -> tuple[int, int]:
    """Drafts that were ready, and those that were not though a round was foreseen."""
    found = [step.draft.prepared for step in steps if step.draft.prepared is not None]
    return sum(each.hit for each in found), sum(each.foreseen and not each.hit for each in found)
