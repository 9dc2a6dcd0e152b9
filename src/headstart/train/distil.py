"""`train_draft`: distil a small draft from any causal LM (Hinton et al. 2015; for drafts: DistillSpec, 2310.08461).

The target reads windows of text, the draft reads the same, and at every position the draft's distribution is pulled
towards the target's. A parallel draft reads mask tokens too, and learns the target's distributions further on from them
(`depths`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.base.errors import UnsupportedModel
from headstart.drafters.draft_model import mask_token
from headstart.train import draft_start
from headstart.train.acceptance import DRAFT_LENGTH, Acceptance, Guessed, acceptance_rates, compared
from headstart.train.frequent_tokens import Logits, LossTokens
from headstart.train.harness import Material, Observer, TrainingResult, train
from headstart.train.hidden import states_of
from headstart.train.objective import divergence
from headstart.train.options import DraftTraining
from headstart.train.student import Student
from headstart.train.windows import DEPTHS, Layout, Windows, shares


def train_draft(options: DraftTraining, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train a draft and write it to `options.output` as a plain Hugging Face directory with its provenance.

    Raises what `headstart.train.harness.train` raises.
    """
    return train(options, lambda material: DraftStudent(options, material), observe)


class DraftStudent(Student):
    """A draft LM that learns the target's distribution at every position; at several depths, where it drafts in
    parallel."""

    kind = "draft"
    _options: DraftTraining
    module: Any

    def __init__(self, options: DraftTraining, material: Material) -> None:
        super().__init__(options, material)
        target = material.target
        if options.begin_with is None:
            shape = draft_start.full_shape(options.shape, target.config)
            draft: Any = draft_start.build(shape, target, init=options.init, seed=options.seed)
        else:
            draft = draft_start.go_on(str(options.begin_with), target, material.tokenizer)
        mask = mask_token(draft.config)
        depths = options.parallel or (1 if mask is None else DEPTHS)
        if depths > 1 and mask is None:
            mask = draft_start.mask_for(target, material.tokenizer)
            draft = draft_start.with_mask(draft, mask)
        self.mask = mask if depths > 1 else None
        self.module = draft.to(material.device, material.dtype)
        self._vocab = int(target.config.get_text_config().vocab_size)
        self._shares = shares(depths, options.depth_keep, options.depth_floor)
        self._over = LossTokens.of(material.train.ids, self._vocab, options.loss_tokens)
        self.logits_per_token: int = round(self._over.size * sum(self._shares) * options.row_share)
        self._tokenizer = material.tokenizer
        self._theirs, self._ours = Logits(target), Logits(draft)
        if options.target_quantize is not None or options.cache_hidden != 0:
            with suppress(UnsupportedModel):  # its logits are more than a matrix of its states: it is read at each step
                self.states = states_of(options, target, (), device=material.device, dtype=material.dtype)

    def loss(self, learnt: Windows, places: Tensor, step: int) -> Tensor:
        """The divergence of the draft's distributions from the target's, mean over all rows of all depths.

        Prompts are learnt too: a small model has a language to learn, and every text helps.
        """
        options, ids = self._options, learnt.ids.long().to(self._device)
        self.module.train()
        chance = self.chance(places, step)
        layout = Layout.of(ids.shape[1], self._shares, chance)
        rows = torch.arange(len(layout))
        if options.row_share < 1:
            rows = torch.randperm(len(rows), generator=chance)[: max(1, round(options.row_share * len(rows)))]
        over = self._over.draw(chance)
        if over[0] is None and self._vocab < self.module.config.vocab_size:
            over = torch.arange(self._vocab), torch.zeros(self._vocab)  # the mask is no token of the target's
        tokens, weights = (None if each is None else each.to(self._device) for each in over)
        with torch.no_grad():
            theirs = self._distributions(ids, layout.positions[rows], tokens, weights)
        read = ids if self.mask is None else layout.tokens(ids, self.mask)
        ours = self._ours(read, rows, tokens, weights, **self._places(layout))
        return divergence(theirs.flatten(0, 1), ours.flatten(0, 1), options.tv_weight)

    def _distributions(self, ids: Tensor, rows: Tensor, tokens: Tensor | None, weights: Tensor | None) -> Tensor:
        """The target's logits [n, R, m], as `Logits` gives them; from states on disk where they are kept."""
        if self.states is None:
            return self._theirs(ids, rows, tokens, weights)
        last = self.states.of(ids).last[:, rows]
        output = self.states.output
        if tokens is None or weights is None:
            return output(last)
        logits = output.only(tokens)(last)
        return logits + weights.to(logits.dtype)

    def _places(self, layout: Layout) -> dict[str, Any]:
        """Positions and mask of these rows; nothing where they are the text alone."""
        if self.mask is None:
            return {}
        mask = layout.mask(self.module.dtype).to(self._device)
        return {"position_ids": layout.positions[None].to(self._device), "attention_mask": mask}

    def measure(self, heldout: Windows) -> Acceptance:
        self.module.eval()
        return super().measure(heldout)

    def guessed(self, ids: Tensor) -> Guessed:
        """Chains of K = 4, each guess where the text is given. The first position is left out."""
        theirs = self._target(ids, use_cache=False).logits[0]
        if self.mask is None:
            return compared(theirs, self.module(ids, use_cache=False).logits[0], ids)
        layout = Layout.of(ids.shape[1], [1.0] * min(DRAFT_LENGTH, len(self._shares)))
        p, read = theirs[1:].float(), layout.tokens(ids, self.mask)
        q = self.module(read, use_cache=False, **self._places(layout)).logits[0, :, : p.shape[-1]].float()
        passes = [q[layout.depths == depth][1:] for depth in range(int(layout.depths.max()) + 1)]
        return Guessed(
            p,
            p.log_softmax(-1),
            passes[0].log_softmax(-1),
            ids[0, 2:],
            lambda t: [acceptance_rates(p[k:], q, t) for k, q in enumerate(passes)],
        )

    def write(self, folder: Path) -> None:
        self.module.to(torch.bfloat16).save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)
