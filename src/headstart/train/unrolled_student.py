"""What an EAGLE-3 head and an MTP head have in common while they learn: guesses in a row from states, at every depth of
which the head's distribution is pulled towards the target's.

Alignment: row t has what the head reads of the target at t and the token at t + 1; depth i reads the token at
t + 1 + i, and its label is the target's distribution after that token, in logits row t + 1 + i.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.train.acceptance import DRAFT_LENGTH, Guessed
from headstart.train.guess_loss import Blend, guess_loss
from headstart.train.harness import Material
from headstart.train.hidden import States, TargetStates
from headstart.train.options import UnrolledTraining
from headstart.train.output_matrix import StateDistributions
from headstart.train.selector import Shortlists
from headstart.train.student import Student
from headstart.train.unrolled import nested
from headstart.train.unrolled_head import UnrolledHead
from headstart.train.windows import Windows, shares


class UnrolledStudent(Student):
    """A head that learns the target's next distribution, and its distributions after the head's own guesses.

    A subclass sets `head` and `states`, and calls `_know`.
    """

    _options: UnrolledTraining
    head: UnrolledHead
    states: TargetStates

    @abstractmethod
    def features(self, states: States) -> Tensor:
        """What the head reads of the target [B, T, ...]."""

    @property
    @abstractmethod
    def matrix(self) -> Tensor:
        """The output matrix of the tokens that the head may guess [draft V, d]."""

    def _know(self, kept: Tensor, material: Material) -> None:
        """Note the target's ids of the tokens that the head may guess [draft V], rising."""
        vocab_size = int(material.target.config.get_text_config().vocab_size)
        self.kept, self._kept = kept, kept.to(material.device)
        self.logits_per_token = max(vocab_size, 2 * len(kept))
        self._output = self.states.output.only(self._kept)
        # The draft vocabulary's index of each of the target's tokens; -1 for those that it lacks
        self._index = torch.full((vocab_size,), -1, device=material.device)
        self._index[self._kept] = torch.arange(len(kept), device=material.device)

    def loss(self, learnt: Windows, places: Tensor, step: int) -> Tensor:
        """Mean loss of the guesses at the rows that each depth keeps; every window of the call keeps the same rows.

        Prompts are learnt as well as answers: a head that saw the answers alone was no better at them.
        """
        ids = learnt.ids.long().to(self._kept.device)
        return self._loss_of(ids, self._rows(ids, places, step), step, Shortlists(0))[0]

    def _rows(self, ids: Tensor, places: Tensor, step: int) -> list[Tensor]:
        """The rows that each depth keeps of windows ids [B, T]: of those whose guesses all have a label."""
        options = self._options
        of_all = shares(options.depths, options.depth_keep, options.depth_floor)
        kept = [options.row_share * each for each in of_all]
        return [rows.to(ids.device) for rows in nested(ids.shape[1] - options.depths, kept, self.chance(places, step))]

    def _loss_of(self, ids: Tensor, kept: list[Tensor], step: int, lists: Shortlists) -> tuple[Tensor, list[Tensor]]:
        """The loss, and the normed states of each depth."""
        states, depths = self.states.of(ids), self._options.depths
        distributions = StateDistributions(states.last, states.log_z, self._output)
        read = self.features(states)[:, : ids.shape[1] - depths]
        passes = self.head.unroll(read, self._embedded(ids[:, 1:]), depths, kept)
        normed = [self.head.norm(state) for state in passes]
        return guess_loss(normed, kept, distributions, self.matrix, self._blend(step), lists)[0], normed

    def _blend(self, step: int) -> Blend:
        options = self._options
        warm = min(1.0, step / options.tv_warmup) if options.tv_warmup else 1.0
        decay = [options.step_decay**i for i in range(options.depths)]
        depths = tuple(decay) if options.depth_weights == "decay" else None
        return Blend(warm * options.tv_weight, options.tv_ramp, depths)

    def guessed(self, ids: Tensor) -> Guessed:
        """Chains of K guesses from every position of the window.

        K is 4, or as many as a parallel head guesses in one forward, by the distributions that it will be used with: a
        selector's, after the text's own token. The first position is left out, as it is for a draft LM. Tokens that
        the head cannot propose count as rejected. kl is that of the first guess without a selector, both distributions
        over the draft vocabulary; draft_nats is the mean over text tokens in that vocabulary.
        """
        states = self.states.of(ids)
        logits = self.states.output(states.last)
        p, labels = logits[0, 1:].float(), ids[0, 2:]
        first, drafts = self._guesses(self.features(states), ids)
        log_q, places = first.log_softmax(-1), self._index[labels]
        nats = F.nll_loss(log_q[:-1], places.clamp(min=0), reduction="none").masked_fill(places < 0, torch.nan)
        log_p = self._restricted(p).log_softmax(-1)
        return Guessed(p, log_p, log_q, labels, lambda t: self._rates(p, drafts, t), nats)

    def _guesses(self, read: Tensor, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The first guess's logits [T, draft V], and those of every depth as they will be used [T - i, draft V]."""
        drafts = [F.linear(state, self.matrix).float() for state in self._normed(read, ids)]
        return drafts[0], drafts

    def _normed(self, read: Tensor, ids: Tensor) -> list[Tensor]:
        """The head's states of every depth [T - i, d], behind its norm."""
        passes = self.head.unroll(read[:, :-1], self._embedded(ids[:, 1:]), self.guesses)
        return [self.head.norm(state[0]) for state in passes]

    @property
    def guesses(self) -> int:
        """Guesses in a row that are measured, and that the head's config recommends to engines."""
        return DRAFT_LENGTH

    def _embedded(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._target.get_input_embeddings().weight)

    def _restricted(self, logits: Tensor) -> Tensor:
        """The columns of the draft vocabulary."""
        return logits if len(self._kept) == logits.shape[-1] else logits[..., self._kept]

    def _rates(self, target_logits: Tensor, drafts: Sequence[Tensor], temperature: float) -> list[Tensor]:
        """The chance at each row that a draft token is accepted, [T - i] at depth i.

        target_logits [T, V] are those after row t's first guess, and depth i's are i rows further on; drafts: the
        logits of each depth, [T - i, draft vocabulary]. The target's distributions are made once for all depths.
        """
        if temperature == 0:
            likeliest = self._index[target_logits.argmax(-1)]
            return [(likeliest[i:] == draft.argmax(-1)).float() for i, draft in enumerate(drafts)]
        p = self._restricted((target_logits / temperature).softmax(-1))
        return [torch.minimum(p[i:], (draft / temperature).softmax(-1)).sum(-1) for i, draft in enumerate(drafts)]
