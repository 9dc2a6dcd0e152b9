"""EAGLE-1, -2 and -3: a head of one layer drafts from the target's own hidden states.

The states of a text tell far more of what comes next than its tokens do. The head's row t is the pair (token x_{t+1},
the target's states h_t); the last one has the law of the first draft token, and its own state, fed back with that
token, goes on from there. In every round the rows of newly committed tokens are read with the target's states, which
are a guess or two and the bonus; what the head made of its own guesses is scratch and is overwritten.

Drafts are chains (`tree="none"`), EAGLE-2's dynamic trees ("top-k"), static trees whose shape is learnt ("sampled"), or
the last two by what a request asks for ("mixed", see `growing.policy`). A head may know only a part of the vocabulary:
the other tokens have probability 0 in its law, which keeps the rule exact.

Sources: EAGLE (arXiv:2401.15077), EAGLE-2 (2406.16858), EAGLE-3 (2503.01840).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from headstart.drafters import BuildContext, Observation, Row, Weights
from headstart.drafters.growing.chains import GrowingChain, grow_chains
from headstart.drafters.growing.policy import GrowingDrafter, TreePolicy, policy_of
from headstart.drafters.growing.trees import GrowingTree, TopK, grow_trees
from headstart.model.cache import Slots
from headstart.model.heads.eagle import Head, HeadOutput, complete
from headstart.model.heads.eagle_checkpoint import is_eagle as recognises
from headstart.model.heads.eagle_checkpoint import read, read_target
from headstart.model.heads.eagle_fused import make_head
from headstart.model.loading import fetch
from headstart.model.packed import Packed, Segment
from headstart.model.runner import ModelRunner
from headstart.options import check_number
from headstart.theory.trees import Shape
from headstart.types import Draft, TreeKind

WEIGHTS: Weights = "head"

__all__ = ["WEIGHTS", "EagleDrafter", "build", "recognises"]

NO_DRAFT = Draft()

LONGEST = 12
"""Tokens of the longest chain."""
NODES = 60
"""Of the largest tree."""
WIDTH = 10
"""Nodes that a dynamic tree expands in a level, and children of each."""

_SMALL = 1e8  # weights of a target's layers, of which a forward takes some milliseconds
_SCRATCH = 128  # rows behind the text, for the nodes of a tree


class EagleDrafter(GrowingDrafter):
    """Drafts of one head. It holds a cache of its own, of one layer.

    Args:
        head: ready to run.
        vocab_size: entries of the target's logits.
        slots: requests that run at once.
        max_length: tokens of text and draft together, at most.
        budget: nodes where nobody chooses; None takes what the kind of draft usually has.
        tree: the kind of drafts, as the module describes them.
        chunk: rows that are read at once.
    """

    def __init__(
        self,
        head: Head,
        *,
        vocab_size: int,
        slots: int,
        max_length: int,
        budget: int | None = None,
        tree: TreeKind = "mixed",
        name: str = "eagle",
        chunk: int = 512,
    ) -> None:
        super().__init__(policy_of(tree, chain=(5, LONGEST), trees=(24, NODES), width=WIDTH), budget)
        self.name = name
        check_number("budget", self.default_budget, low=0, integer=True)
        self.taps = head.config.layer_ids
        self.head = head
        self.cache = head.new_cache(slots)
        self._targets_cache: Slots | None = None
        self._max_length = max_length
        self._chunk = chunk
        self._memories: dict[int, _Memory] = {}
        self._vocab_size = vocab_size

    @classmethod
    def load(
        cls,
        folder: str | Path,
        runner: ModelRunner,
        *,
        target_folder: str | Path,
        slots: int,
        budget: int | None = None,
        tree: TreeKind | Literal["auto"] = "auto",
        quantize: str | None = "auto",
        name: str = "eagle",
    ) -> EagleDrafter:
        """Read a head for this target.

        Args:
            target_folder: where the target's safetensors are, for heads that borrow its output matrix.
            quantize: None, or "int8" or "auto" for matrices of 8-bit integers where the row kernels run them; rounding
                costs acceptance at most.
            tree: "auto" takes trees ("mixed"), but chains for a target so small that growing a tree takes about as long
                as one of its forwards.

        Raises:
            ModelNotFound, PickleCheckpoint, UnsupportedModel: see `eagle_checkpoint.read`.
        """
        checkpoint = read(folder, runner.config)
        embedding = runner.model.get_input_embeddings().weight.detach()
        output = embedding
        if "lm_head.weight" not in checkpoint.tensors and not runner.config.get_text_config().tie_word_embeddings:
            # the runner's own is laid out for its kernels by now
            output = read_target(fetch(str(target_folder)), "lm_head.weight")
        weights = complete(checkpoint, embedding=embedding, head=output, dtype=runner.dtype, device=runner.device)
        limit = min(runner.max_length, checkpoint.config.max_length)
        head = make_head(weights, limit + _SCRATCH, quantize=quantize)
        return cls(
            head,
            vocab_size=runner.vocab_size,
            slots=slots,
            max_length=limit,
            budget=budget,
            tree=_usual_tree(runner.config) if tree == "auto" else tree,
            name=name,
        )

    def weights(self) -> Iterable[Tensor]:
        return self.head.weights()

    def attach(self, target: ModelRunner, cache: Slots) -> None:  # noqa: ARG002 -- the head was made for it
        self._targets_cache = cache

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        ready = [row for row in rows if self._room(row) > 0]
        drafts = dict(zip((row.request for row in ready), self._drafts(ready), strict=True))
        return [drafts.get(row.request, NO_DRAFT) for row in rows]

    def observe(self, observation: Observation) -> None:
        request, tokens = observation.step.request, observation.tokens
        super().observe(observation)
        if not tokens or any(layer not in observation.hidden for layer in self.taps):
            return
        memory = self._memories.get(request)
        if memory is None:
            memory = self._memories[request] = self._first_seen(observation)
        if observation.start != memory.start + memory.known or memory.known + len(tokens) > self._max_length:
            memory.close()  # states are missing, or the text is longer than its context
            return
        memory.learn(tokens, [observation.hidden[layer] for layer in self.taps])
        while memory.readable >= self._chunk:  # a long prompt's states are not kept until somebody asks
            self._seat(memory)
            self._read([memory], self._chunk)

    def release(self, request: int) -> None:
        super().release(request)
        memory = self._memories.pop(request, None)
        if memory is None or memory.slot is None:
            return
        try:
            if self._keeps_texts and memory.readable:  # so that what is kept reaches to the end
                self._read([memory], memory.readable)
        finally:
            self.cache.release(memory.slot, memory.kept if self._keeps_texts else (), memory.salt)

    @property
    def _keeps_texts(self) -> bool:
        return self._targets_cache is not None and self._targets_cache.keeps_texts

    def _first_seen(self, observation: Observation) -> _Memory:
        """What is known of a request at its first step: nothing, or the rows of a text that was kept, by the target and
        here, up to where this step begins.

        Row t belongs to token t + 1, and depends on those before: so texts are kept from their second token on, apart
        by their first.
        """
        row, start = observation.row, observation.start
        if row is None or not self._keeps_texts:
            return _Memory(start)
        salt = row.sampling.cache_salt, row.tokens[0]
        slot = self.cache.acquire(row.tokens[1:], salt)
        memory = _Memory(start, held=row.tokens[:start] if self.cache.lengths[slot] >= start else (), salt=salt)
        memory.slot = slot
        self.cache.rewind(slot, memory.read)
        return memory

    def _room(self, row: Row) -> int:
        """How many nodes the draft may have: none where the latest states of the text are not known."""
        memory = self._memories.get(row.request)
        if memory is None or memory.start + memory.known != len(row.tokens) - 1:
            return 0
        return max(0, min(row.budget.nodes, self.limit, self._max_length - memory.known - 1))

    def _drafts(self, rows: Sequence[Row]) -> list[Draft]:
        memories = [self._memories[row.request] for row in rows]
        rooms = [self._room(row) for row in rows]
        for row, memory in zip(rows, memories, strict=True):
            self.cache.rewind(self._seat(memory), memory.follow(row.tokens[-1]))
        if isinstance(self._policy, TreePolicy):
            plans = [self._policy.plan(row, room) for row, room in zip(rows, rooms, strict=True)]
            trees = [_Growing(*each) for each in zip(rows, rooms, plans, memories, strict=True)]
            if all(row.sampling.greedy and row.law.unedited for row in rows):  # no need for the whole vocabulary
                grow_trees(trees, self._level, self.head.token_ids)
            else:
                grow_trees(trees, lambda live: self._widened(self._level(live)))
            return [tree.draft() for tree in trees]
        chains = [_Chain(*each) for each in zip(rows, rooms, memories, strict=True)]
        try:
            grow_chains(chains, lambda live: self._widened(self._next(live)))
        finally:
            for memory in memories:
                self.cache.rewind(self._seat(memory), memory.read)
        return [chain.draft() for chain in chains]

    def _next(self, live: Sequence[_Chain]) -> Tensor:
        """The logits after each chain's last token, or after its text."""
        if not live[0].tokens:  # all of them begin together
            return self._begin(live)
        segments = [Segment(self._seat(chain.memory), (chain.tokens[-1],)) for chain in live]
        logits = self._go_on(live, segments, [chain.states for chain in live])
        for segment in segments:
            self.cache.keep(segment.slot, 1)
        return logits

    def _level(self, live: Sequence[_Growing]) -> Tensor:
        """The logits after each tree's fresh nodes."""
        if not live[0].tokens:  # all of them begin together
            return self._begin(live)
        segments = [tree.segment(self._seat(tree.memory)) for tree in live]
        return self._go_on(live, segments, [tree.states_above() for tree in live])

    def _begin(self, live: _Live) -> Tensor:
        """Read what is new in the texts; the last rows begin the drafts."""
        memories = [each.memory for each in live]
        for memory in memories:
            while memory.readable > self._chunk:
                self._read([memory], self._chunk)
        return self._take(live, self._read(memories, self._chunk), [1] * len(live))

    def _go_on(self, live: _Live, segments: Sequence[Segment], states: Sequence[Tensor]) -> Tensor:
        """Draft on from the head's own states, which were left by the rows before."""
        given = states[0] if len(states) == 1 else torch.cat(tuple(states))
        return self._take(live, self._run(segments, given, own=True), [segment.judged for segment in segments])

    def _take(self, live: _Live, output: HeadOutput, counts: Sequence[int]) -> Tensor:
        """Give each the states to go on from; returns the logits [R, draft V]."""
        parts = [output.states] if len(live) == 1 else torch.split(output.states, list(counts))
        for each, states in zip(live, parts, strict=True):
            each.take(states)
        return output.logits

    def _widened(self, logits: Tensor) -> Tensor:
        """[R, draft V] to [R, V]: -inf for what the head does not know."""
        if self.head.token_ids is None:
            return logits
        wide = logits.new_full((len(logits), self._vocab_size), -math.inf)
        return wide.index_copy_(1, self.head.token_ids, logits)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, memories: Sequence[_Memory], count: int) -> HeadOutput:
        """Read up to `count` of each request's rows, and keep them; the output of the last of each."""
        parts = [memory.pop(count) for memory in memories]
        given = parts[0][1] if len(parts) == 1 else torch.cat([states for _, states in parts])
        segments = [Segment(self._seat(memory), tokens) for memory, (tokens, _) in zip(memories, parts, strict=True)]
        output = self._run(segments, given, own=False)
        for segment in segments:
            self.cache.keep(segment.slot, len(segment))
        return output

    def _run(self, segments: Sequence[Segment], given: Tensor, *, own: bool) -> HeadOutput:
        return self.head.run(Packed(segments, self.cache, self.head.dtype, self.head.device), given, own=own)

    def _seat(self, memory: _Memory) -> int:
        """The slot of a request, taken at its first use."""
        if memory.slot is None:
            memory.slot = self.cache.acquire()
        return memory.slot


def build(context: BuildContext) -> EagleDrafter:
    return EagleDrafter.load(
        context.source,
        context.target,
        target_folder=context.target_source,
        slots=context.slots,
        quantize=context.quantize,
        name=context.name,
        **context.given("budget", "tree"),
    )


class _Memory:
    """What is known of one request, and what its slot of the head's cache holds.

    Row t of the head is the target's states of token t, with the token after it.

    known: states seen.
    read: rows in the cache. Those in between wait, with the tokens after them as far as these are known.
    start: the position of the first state. Where it is not 0 the target had read the text before in an earlier
        request, and the rows of that were not kept; the head then sees only what came since, at positions that begin
        with 0, which costs acceptance at most.
    held: the text before `start`, where its rows are in the slot: as if they had been read just now.
    salt: of its texts in the cache.
    """

    def __init__(self, start: int = 0, held: Sequence[int] = (), salt: Hashable = "") -> None:
        self.start = start - len(held)
        self.salt = salt
        self.slot: int | None = None
        self.known = self.read = len(held)
        self._text = list(held)  # of the states that were seen
        self._states: list[Sequence[Tensor]] = []  # of each layer; joined when they are read, which may be never
        self._after: list[int] = []
        self._last: Tensor | None = None
        self._closed = False

    @property
    def kept(self) -> Sequence[int]:
        """The tokens of the rows that are of use to others; none where rows are missing."""
        return self._text[1:] if self.start == 0 and not self._closed else ()

    @property
    def readable(self) -> int:
        """Waiting rows whose next token is known."""
        return len(self._after)

    def learn(self, tokens: Sequence[int], states: Sequence[Tensor]) -> None:
        """The target has read these tokens, and had these states [n, d] of each layer."""
        if self._closed:
            return
        # the first of them follows a state that waits, or one that was read together with it
        self._after += tokens if self.known > self.read else tokens[1:]
        self._states.append(states)
        self._text += tokens
        self.known += len(tokens)

    def close(self) -> None:
        """No more states are taken; what is known no longer reaches the end of the text."""
        self._closed = True
        self._states.clear()
        self._after.clear()

    def follow(self, pending: int) -> int:
        """Line up for a draft after `pending`, the token after the last state: there is always a row to read. Returns
        how many are in the cache."""
        if not self._states:
            assert self._last is not None, "a row without states has been read"
            self._states.append([self._last])
            self.read -= 1
        del self._after[self.known - self.read - 1 :]
        self._after.append(pending)
        return self.read

    def pop(self, count: int) -> tuple[tuple[int, ...], Tensor]:
        """The next rows to read, at most `count`: tokens, and states [n, features]."""
        tokens = tuple(self._after[:count])
        parts = [joined_states(layers) for layers in self._states]
        states = parts[0] if len(parts) == 1 else torch.cat(parts)
        del self._after[:count]
        rest = states[len(tokens) :]
        self._states = [[rest]] if len(rest) else []
        states = states[: len(tokens)]
        self._last = states[-1:]
        self.read += len(tokens)
        return tokens, states


class _Chain(GrowingChain):
    """A chain, and the head's state behind its last token [1, d]."""

    states = torch.empty(0)

    def take(self, states: Tensor) -> None:
        self.states = states


class _Growing(GrowingTree):
    """A tree, and the head's states behind the nodes that were fed last [n, d]."""

    def __init__(self, row: Row, budget: int, plan: TopK | Shape, memory: _Memory) -> None:
        super().__init__(row, budget, plan, _SCRATCH, memory)
        self._states = torch.empty(0)
        self._first = -1

    def take(self, states: Tensor) -> None:
        self._states, self._first = states, self.fresh[0]

    def states_above(self) -> Tensor:
        """Of each fresh node, its parent's; parents are of the level before."""
        above = [self.parents[node] - self._first for node in self.fresh]
        return self._states if above == list(range(len(self._states))) else self._states[above]


_Live = Sequence[_Chain | _Growing]


def _usual_tree(config: Any) -> TreeKind:
    text = config.get_text_config()
    return "none" if 12 * text.num_hidden_layers * text.hidden_size**2 < _SMALL else "mixed"


def joined_states(states: Sequence[Tensor]) -> Tensor:
    """The states of the layers read [n, d] each, side by side, as a head takes them."""
    return states[0] if len(states) == 1 else torch.cat(tuple(states), -1)
