"""`train_eagle3`: train an EAGLE-3 head for a target with the training-time test (arXiv:2503.01840).

The target reads windows of text once; the head guesses from its hidden states, then from its own, `ttt_steps` times in
all, or all guesses in one forward (P-EAGLE, arXiv:2602.01469); and at every depth its distribution is pulled towards
the target's. Only the head learns: embeddings are the target's.

Alignment: row t has the target's states at t and the token at t + 1; depth i reads the token at t + 1 + i, or a mask in
its place, and its label is the target's distribution after that token, in logits row t + 1 + i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.base.errors import InvalidOption
from headstart.model.heads import eagle_checkpoint
from headstart.model.heads.eagle_checkpoint import EagleCheckpoint
from headstart.train import eagle_formats, eagle_start
from headstart.train.acceptance import DRAFT_LENGTH, Guessed
from headstart.train.eagle_head import HeadShape, Shortlists, selector_loss
from headstart.train.frequent_tokens import draft_vocabulary, unused_token
from headstart.train.guess_loss import Blend, guess_loss
from headstart.train.harness import Material, Observer, TrainingResult, train
from headstart.train.hidden import TargetStates, choose_layers, states_of
from headstart.train.options import Eagle3Training
from headstart.train.output_matrix import StateDistributions
from headstart.train.student import Student
from headstart.train.unrolled import nested
from headstart.train.windows import Windows, shares


def train_eagle3(options: Eagle3Training, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train a head and write it to `options.output` in the field's formats, with its provenance.

    Raises what `headstart.train.harness.train` raises.
    """
    return train(options, lambda material: Eagle3Student(options, material), observe)


class Eagle3Student(Student):
    """A head that learns the target's next distribution, and its distributions after the head's own guesses."""

    kind = "eagle3"
    _options: Eagle3Training
    states: TargetStates

    def __init__(self, options: Eagle3Training, material: Material) -> None:
        target, config = material.target, material.target.config.get_text_config()
        super().__init__(options, material)
        begun = None if options.begin_with is None else eagle_checkpoint.read(options.begin_with, target.config)
        wanted = options.layer_ids if options.layer_ids or begun is None else begun.config.layer_ids
        self.layer_ids = choose_layers(wanted, config.num_hidden_layers)
        self.states = states_of(options, target, self.layer_ids, device=material.device, dtype=material.dtype)
        if begun is None or options.draft_vocab_size is not None:
            self.kept = draft_vocabulary(material.train.ids[material.train.answers], config, options.draft_vocab_size)
        else:
            self.kept = eagle_start.tokens_of(begun)
        shape = HeadShape.of(
            config,
            len(self.kept),
            norm_before_residual=options.norm_before_residual,
            layers=options.layers,
            parallel=options.parallel > 0,
            selector_rank=options.selector_rank,
            selector_top_k=options.selector_top_k,
        )
        if begun is not None:
            shape = eagle_start.shape_of(begun, shape)
        head = eagle_start.build(shape, target, self.kept, init=options.init, seed=options.seed)
        if begun is not None:
            eagle_start.go_on(head, begun, self.kept, self.layer_ids)
        self.head = self.module = head.to(material.device, material.dtype)
        if options.freeze_first and begun is not None:
            eagle_start.freeze(head, begun)
        if options.freeze_output:
            head.lm_head.requires_grad_(False)
        if begun is None and options.init == "target":
            found = eagle_start.forecast(
                self.states, material.train.ids, self._embedded, head.norm.weight.detach(), head.shape.eps
            )
            eagle_start.begin(head, found, seed=options.seed)
        self.lengths = {"fc.weight": eagle_start.lengths(self.states, material.train.ids)}
        self.logits_per_token = max(config.vocab_size, 2 * len(self.kept))
        self._kept = self.kept.to(material.device)
        self._output = self.states.output.only(self._kept)
        # The draft vocabulary's index of each of the target's tokens; -1 for those that it lacks
        self._index = torch.full((config.vocab_size,), -1, device=material.device)
        self._index[self._kept] = torch.arange(len(self.kept), device=material.device)
        self.mask_token = options.mask_token
        if options.parallel:
            self._begin_masks(material.train.ids, begun)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that are trained, under names that tell the optimiser which are tables."""
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                yield f"embed.{name}" if name.endswith("codebook") else name, parameter

    def loss(self, learnt: Windows, places: Tensor, step: int) -> Tensor:
        """Mean loss of the guesses at the rows that each depth keeps; every window of the call keeps the same rows.

        Prompts are learnt as well as answers: a head that saw the answers alone was no better at them.
        """
        options = self._options
        ids = learnt.ids.long().to(self._kept.device)
        depths = options.depths
        states = self.states.of(ids)
        distributions = StateDistributions(states.last, states.log_z, self._output)
        count = ids.shape[1] - depths  # the rows whose guesses all have a label
        kept_shares = [options.row_share * each for each in shares(depths, options.depth_keep, options.depth_floor)]
        kept = [rows.to(ids.device) for rows in nested(count, kept_shares, self.chance(places, step))]
        passes = self.head.unroll(states.aux[:, :count], self._embedded(ids[:, 1:]), depths, kept)
        normed = [self.head.norm(state) for state in passes]
        if not self.head.shape.selector_rank:
            return guess_loss(normed, kept, distributions, self.head.lm_head.weight, self._blend(step))[0]
        selector = self.head.candidate_selector
        lists = Shortlists(selector.top)
        loss, _ = guess_loss(normed, kept, distributions, self.head.lm_head.weight, self._blend(step), lists)
        before = [ids[:, rows + 1 + i] for i, rows in enumerate(kept)]
        return loss + selector_loss(selector, normed, before, lists)

    def _blend(self, step: int) -> Blend:
        options = self._options
        warm = min(1.0, step / options.tv_warmup) if options.tv_warmup else 1.0
        decay = [options.step_decay**i for i in range(options.depths)]
        depths = tuple(decay) if options.depth_weights == "decay" else None
        return Blend(warm * options.tv_weight, options.tv_ramp, depths)

    @torch.no_grad()
    def _begin_masks(self, train: Tensor, begun: EagleCheckpoint | None) -> None:
        """The first weights of the masked rows: those of a parallel head, or the mean state of a window's tokens and a
        token's embedding."""
        table, learns = self._target.get_input_embeddings().weight, self._options.learn_mask
        ids = train[:1].long().to(table.device)
        if begun is not None and begun.config.mask_token_id is not None:
            self.mask_token = begun.config.mask_token_id
            row = begun.tensors.get("embed_tokens.weight", table)[self.mask_token]
            hidden = begun.tensors["mask_hidden"]
        else:
            if self.mask_token is None:
                self.mask_token = unused_token(train, len(table))
            elif self.mask_token >= len(table):
                raise InvalidOption(f"mask_token={self.mask_token}, the target has {len(table)}", hint="give less")
            row = self._embedded(ids)[0].mean(0) if learns else table[self.mask_token]
            hidden = self.states.of(ids).aux[0].mean(0)
        self.head.mask_row.copy_(row).requires_grad_(learns)
        self.head.mask_hidden.copy_(hidden)

    def guessed(self, ids: Tensor) -> Guessed:
        """Chains of K guesses from every position of the window.

        K is 4, or as many as a parallel head guesses in one forward, by the distributions that it will be used with: a
        selector's, after the text's own token. The first position is left out, as it is for a draft LM. Tokens that
        the head cannot propose count as rejected. kl is that of the first guess without a selector, both distributions
        over the draft vocabulary; draft_nats is the mean over text tokens in that vocabulary.
        """
        aux, logits = self.states.read(ids)
        p, labels = logits[0, 1:].float(), ids[0, 2:]
        first, drafts = self._guesses(aux, ids)
        log_q, places = first.log_softmax(-1), self._index[labels]
        nats = F.nll_loss(log_q[:-1], places.clamp(min=0), reduction="none").masked_fill(places < 0, torch.nan)
        log_p = self._restricted(p).log_softmax(-1)
        return Guessed(p, log_p, log_q, labels, lambda t: self._rates(p, drafts, t), nats)

    def _guesses(self, aux: Tensor, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The first guess's logits [T, draft V], and those of every depth as they will be used [T - i, draft V]."""
        passes = self.head.unroll(aux[:, :-1], self._embedded(ids[:, 1:]), self.guesses)
        normed = [self.head.norm(state[0]) for state in passes]
        drafts: list[Tensor] = [self.head.lm_head(state).float() for state in normed]
        if not self.head.shape.selector_rank:
            return drafts[0], drafts
        distributions = self.head.candidate_selector.distributions
        return drafts[0], [
            distributions(q, state, ids[0, 1 + i : 1 + i + len(q)])
            for i, (q, state) in enumerate(zip(drafts, normed, strict=True))
        ]

    @property
    def guesses(self) -> int:
        """Guesses in a row that are measured, and that the head's config recommends to engines."""
        return self._options.parallel or DRAFT_LENGTH

    def write(self, folder: Path) -> None:
        eagle_formats.write(
            folder,
            self.head,
            self.kept,
            self._target.config,
            layer_ids=self.layer_ids,
            target_name=str(self._options.target),
            speculative_tokens=self.guesses,
            form=self._options.format,
            masks=self._masks(),
        )

    def _masks(self) -> eagle_formats.Masks | None:
        if self.mask_token is None:
            return None
        table = self._target.get_input_embeddings().weight.detach().clone()
        row = self.head.mask_row.detach().to(table.dtype)
        if torch.equal(table[self.mask_token].bfloat16(), row.bfloat16()):  # as it will be stored
            return eagle_formats.Masks(self.mask_token)
        table[self.mask_token] = row
        return eagle_formats.Masks(self.mask_token, table)

    def facts(self) -> dict[str, Any]:
        return {
            "layer_ids": list(self.layer_ids),
            "layer_ids_are": "inputs",
            "draft_vocab_size": len(self.kept),
            "guesses_in_one_forward": self._options.parallel or 1,
            **super().facts(),
        }

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
