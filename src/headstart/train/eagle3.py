"""`train_eagle3`: train an EAGLE-3 head for a target with the training-time test (arXiv:2503.01840).

The target reads windows of text once; the head guesses from its hidden states, then from its own, `ttt_steps` times in
all, or all guesses in one forward, where a mask stands in the place of each token after the first (P-EAGLE,
arXiv:2602.01469); see `unrolled_student`. Only the head learns: embeddings are the target's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headstart.base.errors import InvalidOption
from headstart.model.heads import eagle_checkpoint
from headstart.model.heads.eagle_checkpoint import EagleCheckpoint
from headstart.train import eagle_formats, eagle_start
from headstart.train.acceptance import DRAFT_LENGTH
from headstart.train.frequent_tokens import draft_vocabulary, unused_token
from headstart.train.harness import Material, Observer, TrainingResult, train
from headstart.train.head_layer import HeadShape
from headstart.train.hidden import States, choose_layers, states_of
from headstart.train.options import Eagle3Training
from headstart.train.selector import Shortlists, selector_loss
from headstart.train.unrolled_head import EagleHead
from headstart.train.unrolled_student import UnrolledStudent
from headstart.train.windows import Windows


def train_eagle3(options: Eagle3Training, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train a head and write it to `options.output` in the field's formats, with its provenance.

    Raises what `headstart.train.harness.train` raises.
    """
    return train(options, lambda material: Eagle3Student(options, material), observe)


class Eagle3Student(UnrolledStudent):
    """An EAGLE-3 head that learns, or a P-EAGLE head."""

    kind = "eagle3"
    _options: Eagle3Training
    head: EagleHead

    def __init__(self, options: Eagle3Training, material: Material) -> None:
        target, config = material.target, material.target.config.get_text_config()
        super().__init__(options, material)
        begun = None if options.begin_with is None else eagle_checkpoint.read(options.begin_with, target.config)
        wanted = options.layer_ids if options.layer_ids or begun is None else begun.config.layer_ids
        self.layer_ids = choose_layers(wanted, config.num_hidden_layers)
        self.states = states_of(options, target, self.layer_ids, device=material.device, dtype=material.dtype)
        if begun is None or options.draft_vocab_size is not None:
            kept = draft_vocabulary(material.train.ids[material.train.answers], config, options.draft_vocab_size)
        else:
            kept = eagle_start.tokens_of(begun)
        self._know(kept, material)
        shape = HeadShape.of(
            config,
            len(kept),
            norm_before_residual=options.norm_before_residual,
            layers=options.layers,
            parallel=options.parallel > 0,
            selector_rank=options.selector_rank,
            selector_top_k=options.selector_top_k,
        )
        if begun is not None:
            shape = eagle_start.shape_of(begun, shape)
        head = eagle_start.build(shape, target, kept, init=options.init, seed=options.seed)
        if begun is not None:
            eagle_start.go_on(head, begun, kept, self.layer_ids)
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
        self.mask_token = options.mask_token
        if options.parallel:
            self._begin_masks(material.train.ids, begun)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that are trained, under names that tell the optimiser which are tables."""
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                yield f"embed.{name}" if name.endswith("codebook") else name, parameter

    def features(self, states: States) -> Tensor:
        return states.aux

    @property
    def matrix(self) -> Tensor:
        return self.head.lm_head.weight

    def loss(self, learnt: Windows, places: Tensor, step: int) -> Tensor:
        """Of a head with a selector, that of the selector too."""
        if not self.head.shape.selector_rank:
            return super().loss(learnt, places, step)
        ids = learnt.ids.long().to(self._kept.device)
        selector = self.head.candidate_selector
        lists, kept = Shortlists(selector.top), self._rows(ids, places, step)
        loss, normed = self._loss_of(ids, kept, step, lists)
        before = [ids[:, rows + 1 + i] for i, rows in enumerate(kept)]
        return loss + selector_loss(selector, normed, before, lists)

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

    def _guesses(self, read: Tensor, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """As a selector corrects them, where there is one; the first guess's logits as they are without."""
        if not self.head.shape.selector_rank:
            return super()._guesses(read, ids)
        normed = self._normed(read, ids)
        drafts: list[Tensor] = [self.head.lm_head(state).float() for state in normed]
        distributions = self.head.candidate_selector.distributions
        return drafts[0], [
            distributions(q, state, ids[0, 1 + i : 1 + i + len(q)])
            for i, (q, state) in enumerate(zip(drafts, normed, strict=True))
        ]

    @property
    def guesses(self) -> int:
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
