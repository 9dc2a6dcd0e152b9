"""`train_exit`: train a way out of the target after some of its layers (see `headstart.model.heads.exit`).

A norm's gain and a linear map are all that learns. They begin as the target's own way out, the gain as that of its
final norm and the map as the identity, so that the first guesses are those of plain early exit. In use the states of
guesses are computed by the same layers as those of the text, so training on text is training on what will be seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import InvalidOption, UnsupportedModel
from headstart.model.decoders.parts import gain_of
from headstart.model.heads import exit as exits
from headstart.model.recipes import find_recipe
from headstart.train.acceptance import Guessed, acceptance_rates, chain_rates
from headstart.train.frequent_tokens import LARGE, by_frequency
from headstart.train.harness import Material, Observer, TrainingResult, train
from headstart.train.hidden import TargetStates, states_of
from headstart.train.objective import divergence
from headstart.train.options import ExitTraining
from headstart.train.student import Student
from headstart.train.windows import Windows

KNOWN = 16_384
"""Tokens that the exit of a target with a large vocabulary knows, by default."""
_NEVER = -1e4  # a logit whose token has probability 0


def train_exit(options: ExitTraining, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train an exit and write it to `options.output` with its provenance.

    Raises what `headstart.train.harness.train` raises.
    """
    return train(options, lambda material: ExitStudent(options, material), observe)


class ExitModule(nn.Module):
    """The map after the norm."""

    def __init__(self, gain: Tensor, eps: float) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(len(gain), eps=eps)
        self.linear = nn.Linear(len(gain), len(gain), bias=False)
        with torch.no_grad():
            self.norm.weight.copy_(gain)
            nn.init.eye_(self.linear.weight)

    def forward(self, states: Tensor) -> Tensor:
        """What the output matrix reads [..., d], of states after the exit's layer [..., d]."""
        mapped: Tensor = self.linear(self.norm(states))
        return mapped


class ExitStudent(Student):
    """An exit that learns the target's distribution from the state after some of its layers."""

    kind = "exit"
    _options: ExitTraining
    module: ExitModule
    states: TargetStates

    def __init__(self, options: ExitTraining, material: Material) -> None:
        target, config = material.target, material.target.config.get_text_config()
        super().__init__(options, material)
        self._vocab = int(config.vocab_size)
        depth = int(config.num_hidden_layers)
        recipe = find_recipe(config)
        norm = None if recipe is None else recipe.final_norm
        if norm is None or depth < 2:
            hint = "exits need headstart's own decoder; train a head or a draft model instead"
            raise UnsupportedModel(f"{config.model_type} of {depth} layers cannot be left early", hint=hint)
        self.layers = options.layers or max(1, depth // 4)
        if self.layers >= depth:
            raise InvalidOption(
                f"layers={self.layers}, but the target has {depth}", hint=f"choose from 1 to {depth - 1}"
            )
        self.states = states_of(options, target, (self.layers,), device=material.device, dtype=material.dtype)
        wanted = options.draft_vocab_size or (KNOWN if self._vocab >= LARGE else self._vocab)
        self.known: Tensor | None = None
        if wanted < self._vocab:
            order = by_frequency(material.train.ids, self._vocab)
            self.known = order[:wanted].sort().values.to(material.device)
        self._theirs = self.states.output if self.known is None else self.states.output.only(self.known)
        gain = gain_of(target, norm)
        module = ExitModule(torch.ones(int(config.hidden_size)) if gain is None else gain, norm.eps)
        self.module = module.to(material.device, material.dtype)
        self.size = self._vocab if self.known is None else len(self.known)
        """Tokens that it knows."""
        self.logits_per_token = 2 * self.size

    def loss(self, learnt: Windows, places: Tensor, step: int) -> Tensor:
        """The divergence of the exit's distribution from the target's over the tokens it knows, mean over rows."""
        options, found = self._options, self.states.of(learnt.ids.long().to(self._device))
        count = learnt.ids.numel()
        rows = torch.randperm(count, generator=self.chance(places, step))[: max(1, round(options.row_share * count))]
        with torch.no_grad():
            theirs = self._theirs(found.last.flatten(0, 1)[rows])
        ours = self._theirs(self.module(found.aux.flatten(0, 1)[rows]))
        return divergence(theirs, ours, options.tv_weight)

    def guessed(self, ids: Tensor) -> Guessed:
        """Chains of K = 4, each guess where the text is given. The first position is left out, as for a draft LM;
        tokens that the exit does not know count as rejected, and are left out of draft_nats."""
        found = self.states.of(ids)
        p = self.states.output(found.last[0, 1:]).float()
        mine = self._theirs(self.module(found.aux[0, 1:])).float()
        q = mine
        if self.known is not None:
            q = torch.full_like(p, _NEVER)
            q[:, self.known] = mine
        theirs, labels = p if self.known is None else p[:, self.known], ids[0, 2:]
        known = q[:-1].gather(1, labels[:, None])[:, 0] > _NEVER
        nats = F.nll_loss(q[:-1].log_softmax(-1), labels, reduction="none")
        return Guessed(
            p,
            theirs.log_softmax(-1),
            mine.log_softmax(-1),
            labels,
            lambda t: chain_rates(acceptance_rates(p, q, t)),
            nats.masked_fill(~known, torch.nan),
        )

    def write(self, folder: Path) -> None:
        made = exits.Exit(self.layers, self.module.norm.weight, self.module.linear.weight, self.known)
        exits.write(folder, made, vocab_size=self._vocab, target=str(self._options.target))

    def facts(self) -> dict[str, Any]:
        return {"layers": self.layers, "draft_vocab_size": self.size, **super().facts()}
