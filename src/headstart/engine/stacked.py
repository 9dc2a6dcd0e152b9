"""A drafter that is a target with a drafter: a model whose own text is guessed for, by the engine's own step loop.

A large draft model guesses well and slowly. It is slow for the reason for which every model is: it reads its weights
for each token. So it gets a drafter of its own, and writes several tokens of a draft in one forward. What it writes has
the model's own distribution whatever its drafter does, by the same rule; that distribution is the q by which the outer
target judges the draft. Nothing here decides what is kept: a round of the outer engine is a few steps of an inner one,
on a text that is taken back to where the outer one says it ends. The inner drafter may be a stack again.

Under rule "coupled" the inner model draws with the target's own noise, as any draft model does, and judges by the same
rule, so that a seed gives one text. Under "exact" each round has noise of its own (`Noise.of_stack`): a decision of the
inner rule must have nothing to do with one of the outer rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.base.errors import DrafterFailed
from headstart.drafters import Drafter, Observation, Row, capabilities
from headstart.drafters.growing.own_model import FEW, to_be_taken_over, with_reading
from headstart.engine.chunks import Reading
from headstart.engine.guarded_drafter import GuardedDrafter
from headstart.engine.guards import GuardedPacing
from headstart.engine.judging import HostJudge, Outcome
from headstart.engine.loop import StepLoop
from headstart.engine.request import Request
from headstart.engine.scheduler import Scheduler
from headstart.model.takeover import alike, take_over
from headstart.types import NO_DRAFT, Budget, CaughtUp, Draft, Speculation, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headstart.model.cache import Slots
    from headstart.model.runner import ModelRunner
    from headstart.pacing import Pacing

BUDGET, LONGEST = 7, 15
"""Tokens of a draft where nobody chooses a number, and of the longest."""
CHUNK = 512
"""Prompt tokens that the inner model reads in one forward."""


class StackedDrafter(Drafter):
    """Chains drawn from a model that has a drafter of its own.

    Args:
        model: what drafts; its tokens are the target's.
        cache: of the model, unused but for measurements, with a slot for each request that runs at once.
        drafter: guesses for the model, to which it is attached. A list (`Cascade`), be it of one: its members that copy
            are told what is unsettled and do not index it, and those that cannot guess behind it are not asked.
        pacing: decides how much the drafter guesses for the model.
        name: of the stack.
        vocab_size: entries of the target's logits.
        budget: tokens of a draft where the user chooses no number.
        copy: whether the model is a copy of the target, which need not read what the target has read.
        same_model: whether it is a copy, whatever it reads.
    """

    draws = True
    limit = LONGEST
    reads_unsettled = True

    def __init__(
        self,
        model: ModelRunner,
        cache: Slots,
        drafter: Drafter,
        pacing: Pacing,
        *,
        name: str,
        vocab_size: int,
        budget: int | None = None,
        copy: bool = False,
        same_model: bool = False,
    ) -> None:
        self.name = name
        self.same_model = same_model
        self._copy = copy
        self.default_budget = BUDGET if budget is None else budget
        self.model = model
        self.cache = cache
        self.inner = drafter
        guarded = GuardedDrafter(drafter, model)
        self._texts: dict[int, _Text] = {}
        self._targets_cache: Slots | None = None
        self._reading = _WithinADraft()
        self._rounds = _Rounds(
            cache,
            chunks=self._reading,
            drafts_matter=True,
            states_matter=bool(guarded.taps),
        )
        self._loop = StepLoop(model, cache, self._rounds, guarded, GuardedPacing(pacing), _Judge(vocab_size))
        self._loop.recorders.add(_record)

    def attach(self, target: ModelRunner, cache: Slots) -> None:  # noqa: ARG002 -- it runs on a model of its own
        self._targets_cache = cache
        self._copy = self._copy and alike(self.cache, cache)

    def weights(self) -> Iterable[Tensor]:
        yield from self.model.weights()
        for part in capabilities.parts(self.inner):
            yield from capabilities.weights(part)

    @property
    def weights_in_words(self) -> str:
        return self.model.weights_in_words

    def propose(self, rows: Sequence[Row]) -> list[Draft]:
        self.cache.keeps_texts = self._targets_cache is not None and self._targets_cache.keeps_texts
        texts = {row.request: self._text(row) for row in rows if not (self._copy and to_be_taken_over(row))}
        left = min((row.reading for row in rows if row.reading is not None), default=None)
        free = 0
        for row in rows:
            text = texts.get(row.request)
            if text is None or not text.unfinished:
                continue
            text.free = row.reading is None or self._lacking(text) <= FEW
            if self._copy and not row.reproducible and self._lacking(text) > FEW:
                taken = self._take_over(row, text, None if text.free else left)
                left = left if text.free or left is None else left - taken
            if text.free and self._lacking(text) > 1:
                free += self._lacking(text)
        self._reading.begin(left, free)
        while self._rounds.go_on(list(texts.values())):
            if self._loop.step():
                continue
            if self._reading.left == 0:
                break  # the others of the outer engine would wait for more
            raise DrafterFailed(f"{self.name}: no slot for the text of a draft", hint="report this")
        return [self._draft(row, texts.get(row.request)) for row in rows]

    def _lacking(self, text: _Text) -> int:
        """Tokens of its text that the cache does not hold."""
        return len(text.tokens) - (0 if text.slot is None else self.cache.lengths[text.slot])

    def _take_over(self, row: Row, text: _Text, most: int | None) -> int:
        """Take what the target has read, at most so many tokens; returns how many."""
        if self._targets_cache is None:
            return 0
        slot = self.cache.acquire() if text.slot is None else text.slot
        if text.slot is None:
            text.admit(slot, 0)
        held, length = self.cache.lengths[slot], len(row.tokens) - 1 - row.unsettled
        length = length if most is None else min(length, held + most)
        return take_over(self.cache, slot, self._targets_cache, row.slot, length) - held

    def _draft(self, row: Row, text: _Text | None) -> Draft:
        """What was written for a row, and what was read for it. text: None where the row waits for the target."""
        if text is None:
            known = self._texts.get(row.request)
            held = 0 if known is None or known.slot is None else known.shared(row, self.cache.lengths[known.slot])
            return with_reading(NO_DRAFT, CaughtUp(self.name, 0, len(row.tokens) - held))
        read = 0 if text.slot is None else text.read(self.cache.lengths[text.slot])
        unread = self._lacking(text) if text.unfinished else 0
        if read + unread <= FEW:
            read = 0
        if read or unread or text.read_inside:
            return with_reading(text.draft(), CaughtUp(self.name, read + text.read_inside, unread))
        return text.draft()

    def release(self, request: int) -> None:
        text = self._texts.pop(request, None)
        if text is None:
            return
        if text.slot is not None:
            self._rounds.running = [text]
            self._loop.end(text, "cancelled")
        elif text in self._rounds.waiting:
            self._rounds.waiting.remove(text)

    def _text(self, row: Row) -> _Text:
        """The row's text, taken back to what it shares with what was written last, and with a draft to write."""
        text = self._texts.get(row.request)
        if text is None:
            text = self._texts[row.request] = _Text(row, self.model.max_length)
        elif text.slot is not None:
            text.held = self.cache.rewind(text.slot, text.shared(row, self.cache.lengths[text.slot]))
        text.begin(row, min(row.budget.nodes, self.cache.most_drafted), self.model.vocab_size)
        return text


class _Text(Request):
    """One request of the outer engine, as the inner one runs it: a text that may be taken back, and the draft that is
    being written behind it."""

    def __init__(self, row: Row, limit: int) -> None:
        super().__init__(
            row.request,
            row.tokens[: row.prompt_tokens] or row.tokens,
            row.sampling,
            seed=row.noise.seed,
            rule=row.rule,
            sampling_state=row.sampling_state,
            stop_ids=frozenset(),
            limit=limit,
            speculation=Speculation(True, ""),
            drafting=replace(row.drafting, sources=None, max_draft_tokens=None),
            decode=lambda _: "",
        )
        self.reproducible = row.reproducible
        self._settled = self._begun = self._wanted = self._left = 0
        self._readable = True
        self.held = 0
        """Tokens that the cache held before any was read for this draft."""
        self.read_inside = 0
        """Tokens that the model's own drafter has read for this draft."""
        self.free = True
        """Whether what it lacks is not counted: it is next to nothing, or nobody may wait for less."""
        self._q: list[NDArray[np.float32]] = []

    def shared(self, row: Row, held: int) -> int:
        """How many of the tokens that the cache holds are those of the row's text. x0 is always read again."""
        end = min(held, len(row.tokens) - 1)
        same = min(self._settled, end)
        while same < end and self.tokens[same] == row.tokens[same]:
            same += 1
        return same

    def begin(self, row: Row, nodes: int, vocab_size: int) -> None:
        """A draft of so many nodes behind the row's text; none where the model has no embedding of a token."""
        self._readable = self._readable and all(token < vocab_size for token in row.tokens[self._settled :])
        self.tokens = list(row.tokens)
        self._settled, self._begun = len(row.tokens) - row.unsettled, len(row.tokens)
        self._wanted = min(nodes, self.limit - len(row.tokens)) if self._readable else 0
        self._left = self._wanted if row.left is None else row.left
        self._q = []
        self.read_inside, self.free = 0, True
        self.finish_reason = self.error = None
        # no log-probabilities of drafts; and all that was drafted is to be judged, so nothing ends it
        self.sampling = replace(row.sampling, logprobs=None)
        self.sampling_state = row.sampling_state.filtered(self.sampling)
        self.noise = row.noise if self.rule == "coupled" else row.noise.of_stack(len(row.tokens))

    def admit(self, slot: int, held: int) -> None:
        super().admit(slot, held)
        self.held = held

    def read(self, length: int) -> int:
        """Tokens of the row's text that were read for this draft, where the cache holds so many of all."""
        return max(0, min(length, self._begun) - self.held)

    @property
    def written(self) -> int:
        """Tokens of the draft so far; they are unsettled."""
        return len(self.tokens) - self._begun

    @property
    def unfinished(self) -> bool:
        return self.finish_reason is None and self.written < self._wanted

    @property
    def room(self) -> int:
        return max(0, self._wanted - self.written - 1) if self.speculation.on else 0

    @property
    def left(self) -> int:
        """Of the outer request's text: what is read for one draft is of use to those that follow."""
        return self._left - self.written

    @property
    def unsettled(self) -> int:
        return len(self.tokens) - self._settled

    @property
    def seeded(self) -> bool:
        return self.reproducible

    def extend(self, tokens: Sequence[int]) -> tuple[int, ...]:
        taken = tuple(tokens[: self._wanted - self.written])
        self.tokens += taken
        self.sampling_state = self.sampling_state.after(taken)
        return taken

    def record(self, step: Step) -> None:
        """Nothing is told of a draft in the making."""

    def explain(self, budget: Budget) -> None:
        """Nor why it is made so."""

    def keep(self, observation: Observation) -> None:
        """Note the distributions that a step's tokens were drawn from."""
        self.read_inside += sum(each.read for each in observation.step.draft.caught_up)
        found, path = observation.distributions, observation.step.path
        if found is None or self.sampling.greedy:
            return
        at = [0, *(node + 1 for node in path)]
        for place, token in enumerate(observation.step.tokens):
            if place < len(at):
                self._q.append(found[at[place]])
            else:  # an end that a grammar leaves alone
                certain = np.zeros_like(self._q[-1])
                certain[token] = 1
                self._q.append(certain)

    def draft(self) -> Draft:
        tokens = self.tokens[self._begun :]
        if self.sampling.greedy or not tokens:
            return Draft.chain(tokens)
        return Draft.chain(tokens, torch.from_numpy(np.stack(self._q)))


def _record(observation: Observation, request: Request) -> None:
    assert isinstance(request, _Text), "the loop runs nothing else"
    request.keep(observation)


class _WithinADraft(Reading):
    """What the inner model and its drafter read for one draft. left: all together; None where it is no matter."""

    left: int | None = None
    _free = 0

    def begin(self, left: int | None, free: int) -> None:
        """free: what the model reads first and nobody counts."""
        self.left, self._free = left, free

    def tokens(self, *, beside: bool, at: int = 0) -> int:  # noqa: ARG002 -- who waits: the outer engine's matter
        return CHUNK if self.left is None else min(CHUNK, self.left + self._free)

    def counted(self, tokens: int) -> int:
        """Those of a step's tokens that are not free."""
        return max(0, tokens - self._free)

    def left_to_drafters(self, *, target_reads: bool) -> int | None:  # noqa: ARG002 -- the same
        return self.left

    def took(self, tokens: int, seconds: float, caught_up: Sequence[CaughtUp] = ()) -> None:  # noqa: ARG002 -- the same
        if self.left is not None:
            self.left = max(0, self.left - self.counted(tokens) - sum(each.read for each in caught_up))
            self._free = max(0, self._free - tokens)


class _Rounds(Scheduler):
    """The texts whose drafts are being written; those whose drafts are whole wait in their slots."""

    chunks: _WithinADraft

    def go_on(self, texts: Sequence[_Text]) -> bool:
        """Let those run that are not finished; whether there are any."""
        unfinished = [text for text in texts if text.unfinished]
        self.running = [text for text in unfinished if text.slot is not None]
        self.waiting = deque(text for text in unfinished if text.slot is None)
        return bool(unfinished)

    def admit(self) -> None:
        super().admit()
        self.running.sort(key=lambda text: isinstance(text, _Text) and not text.free)

    def _left_to_drafters(self, feeds: Sequence[tuple[Request, tuple[int, ...]]]) -> int | None:
        """What the model leaves them, whoever runs here: those who wait are in the outer engine."""
        if self.chunks.left is None:
            return None
        return max(0, self.chunks.left - self.chunks.counted(sum(len(feed) for _, feed in feeds if len(feed) > 1)))

    def _row(self, request: Request, feed: tuple[int, ...], reading: int | None) -> Row:
        assert isinstance(request, _Text), "nothing else runs here"
        row = super()._row(request, feed, reading)
        return replace(row, unsettled=request.unsettled)


class _Judge(HostJudge):
    """The rule of each row, over the target's vocabulary: the model's may differ from it by padding, which is never
    drafted."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self._vocab_size = vocab_size

    def outcomes(self, rows: Sequence[Row], drafts: Sequence[Draft], logits: Tensor) -> list[Outcome]:
        missing = self._vocab_size - logits.shape[-1]
        fit = F.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[:, : self._vocab_size]
        if missing > 0:
            drafts = [_widened(draft, missing) for draft in drafts]
        return super().outcomes(rows, drafts, fit)


def _widened(draft: Draft, missing: int) -> Draft:
    """A draft of the model's own drafter over the target's vocabulary, of which the model lacks so many tokens."""
    if draft.q is None or draft.vocabulary is not None:
        return draft
    return replace(draft, q=F.pad(draft.q, (0, missing)))
