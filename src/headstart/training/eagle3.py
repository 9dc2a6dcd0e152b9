"""`train_eagle3`: train an EAGLE-3 head for a target with the training-time test (arXiv:2503.01840).

The target reads windows of text once; the head guesses from its hidden states, then from its own, `ttt_steps` times in
all, and at every pass its law is pulled towards the target's. Only the head learns: embeddings are the target's.

Alignment: row t has the target's states at t and the token at t + 1; pass i reads the token at t + 1 + i, and its label
is the target's law after that token, in logits row t + 1 + i.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.heads import eagle_checkpoint
from headstart.training import eagle_formats, eagle_start, provenance
from headstart.training.acceptance import DRAFT_LENGTH, Acceptance, Tally
from headstart.training.eagle_head import HeadShape
from headstart.training.guess_loss import Blend, guess_loss
from headstart.training.harness import Material, Observer, TrainingResult, train
from headstart.training.hidden import choose_layers, states_of
from headstart.training.options import Eagle3Training
from headstart.training.target_laws import StateLaws
from headstart.training.unrolled import nested

COVERAGE = 0.995  # of the text's tokens, by the draft vocabulary: what is left out is rejected
SMALLEST_VOCABULARY, LARGEST_VOCABULARY, STEP = 8_192, 32_768, 1_024


def train_eagle3(options: Eagle3Training, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train a head and write it to `options.output` in the field's formats, with its provenance.

    Raises what `headstart.training.harness.train` raises.
    """
    return train(options, lambda material: Eagle3Student(options, material), observe)


class Eagle3Student:
    """A head that learns the target's next law, and its laws after the head's own guesses."""

    kind = "eagle3"

    def __init__(self, options: Eagle3Training, material: Material) -> None:
        target, config = material.target, material.target.config.get_text_config()
        self._options, self._target = options, target
        begun = None if options.begin_with is None else eagle_checkpoint.read(options.begin_with, target.config)
        asked = options.layer_ids if options.layer_ids or begun is None else begun.config.layer_ids
        self.layer_ids = choose_layers(asked, config.num_hidden_layers)
        self.states = states_of(options, target, self.layer_ids, device=material.device, dtype=material.dtype)
        if begun is None or options.draft_vocab_size is not None:
            self.kept = draft_vocabulary(material.train, config, options.draft_vocab_size)
        else:
            self.kept = eagle_start.tokens_of(begun)
        shape = HeadShape.of(config, len(self.kept), norm_before_residual=options.norm_before_residual)
        if begun is not None:
            shape = eagle_start.shape_of(begun, shape)
        head = eagle_start.build(shape, target, self.kept, init=options.init, seed=options.seed)
        if begun is not None:
            eagle_start.go_on(head, begun, self.kept, self.layer_ids)
        self.head = self.module = head.to(material.device, material.dtype)
        if options.freeze_output:
            self.head.lm_head.requires_grad_(False)
        self.logits_per_token = max(config.vocab_size, 2 * len(self.kept))
        self._kept = self.kept.to(material.device)
        self._output = self.states.output.only(self._kept)
        # Where each of the target's tokens stands in the draft vocabulary; -1 if it does not
        self._index = torch.full((config.vocab_size,), -1, device=material.device)
        self._index[self._kept] = torch.arange(len(self.kept), device=material.device)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, each) for name, each in self.module.named_parameters() if each.requires_grad)

    def loss(self, ids: Tensor, places: Tensor, step: int) -> Tensor:
        """Mean loss of the guesses at the rows that each depth keeps; every window of the call keeps the same rows."""
        options = self._options
        depths = options.ttt_steps
        states = self.states.of(ids)
        laws = StateLaws(states.last, states.log_z, self._output)
        count = ids.shape[1] - depths  # the rows whose guesses all have a label
        shares = [options.row_share * max(options.depth_keep**i, options.depth_floor) for i in range(depths)]
        chance = torch.Generator().manual_seed(options.seed + 7919 * step + int(places[0]))
        kept = [rows.to(ids.device) for rows in nested(count, shares, chance)]
        passes = self.head.unroll(states.aux[:, :count], self._embedded(ids[:, 1:]), depths, kept)
        normed = [self.head.norm(state) for state in passes]
        return guess_loss(normed, kept, laws, self.head.lm_head.weight, self._blend(step))[0]

    def _blend(self, step: int) -> Blend:
        options = self._options
        warm = min(1.0, step / options.tv_warmup) if options.tv_warmup else 1.0
        decay = [options.step_decay**i for i in range(options.ttt_steps)]
        depths = tuple(decay) if options.depth_weights == "decay" else None
        return Blend(warm * options.tv_weight, options.tv_ramp, depths)

    @torch.no_grad()
    def measure(self, heldout: Tensor) -> Acceptance:
        """Chains of K = 4 from every position of the windows, the text being given (teacher forcing).

        The first position is left out, as it is for a draft LM. Tokens that the head cannot propose count as
        rejected. kl is that of the first pass, both laws over the draft vocabulary; draft_nats is the mean over text
        tokens in that vocabulary.
        """
        tally = Tally()
        for window in heldout:
            ids = window.long()[None].to(self._kept.device)
            aux, logits = self.states.read(ids)
            logits = logits[0].float()
            passes = self.head.unroll(aux[:, :-1], self._embedded(ids[:, 1:]), DRAFT_LENGTH)
            drafts = [self.head.logits(state[0]).float() for state in passes]
            log_p, log_q = self._restricted(logits[1:]).log_softmax(-1), drafts[0].log_softmax(-1)
            labels = ids[0, 2:]
            places = self._index[labels]
            known = places >= 0
            tally.add(
                log_p,
                log_q,
                lambda t, p=logits, qs=drafts: [self._rates(p[1 + i :], q, t) for i, q in enumerate(qs)],  # type: ignore[misc]
                target_nats=F.cross_entropy(logits[1:-1], labels),
                draft_nats=F.nll_loss(log_q[:-1][known], places[known]) if known.any() else log_q.new_zeros(()),
            )
        return tally.result(heldout)

    def write(self, folder: Path) -> None:
        eagle_formats.write(
            folder,
            self.head,
            self.kept,
            self._target.config,
            layer_ids=self.layer_ids,
            target_name=str(self._options.target),
            speculative_tokens=DRAFT_LENGTH,
            form=self._options.format,
        )

    def facts(self) -> dict[str, Any]:
        begun = self._options.begin_with
        return {
            "begun_with": {} if begun is None else provenance.weights_sha256(str(begun)),
            "layer_ids": list(self.layer_ids),
            "layer_ids_are": "inputs",
            "draft_vocab_size": len(self.kept),
            "parameters": sum(p.numel() for p in self.head.parameters()),
        }

    def _embedded(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._target.get_input_embeddings().weight)

    def _restricted(self, logits: Tensor) -> Tensor:
        """The columns of the draft vocabulary."""
        return logits if len(self._kept) == logits.shape[-1] else logits[..., self._kept]

    def _rates(self, target_logits: Tensor, draft_logits: Tensor, temperature: float) -> Tensor:
        """Chance at each row that one draft token is accepted: [T, V] and [T, draft vocabulary] to [T]."""
        if temperature == 0:
            return (target_logits.argmax(-1) == self._kept[draft_logits.argmax(-1)]).float()
        p = self._restricted((target_logits / temperature).softmax(-1))
        return torch.minimum(p, (draft_logits / temperature).softmax(-1)).sum(-1)


def draft_vocabulary(train: Tensor, config: Any, size: int | None) -> Tensor:
    """The target's ids [size], rising, that a head may propose: those most frequent in the windows, and the ends.

    Without a size, as many as cover `COVERAGE` of the windows' tokens, rounded up; tokens that never occur are taken
    in the order of their ids, which in most tokenizers is that of their frequency elsewhere.
    """
    width = int(config.vocab_size)
    counts = torch.bincount(train.flatten().long(), minlength=width)[:width]
    seen, ends = counts.clone(), config.eos_token_id
    for end in ends if isinstance(ends, list | tuple) else [ends]:
        if isinstance(end, int) and 0 <= end < width:
            counts[end] = train.numel() + 1
    order = counts.argsort(descending=True, stable=True)
    if size is None:
        covered = seen[order].cumsum(0) / seen.sum()
        wanted = 1 + int((covered < COVERAGE).sum())
        size = min(LARGEST_VOCABULARY, max(SMALLEST_VOCABULARY, -(-wanted // STEP) * STEP))
    return order[: min(width, size)].sort().values
