"""`train_eagle3`: train an EAGLE-3 head for a target with the training-time test (arXiv:2503.01840).

The target reads windows of text once; the head guesses from its hidden states, then from its own, `ttt_steps` times in
all, and at every pass its law is pulled towards the target's. Only the head learns: embeddings are the target's.

Alignment: row t has the target's states at t and the token at t + 1; pass i reads the token at t + 1 + i, and its label
is the target's law after that token, in logits row t + 1 + i.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headstart.model.heads import eagle_checkpoint
from headstart.training import eagle_formats, eagle_start, provenance
from headstart.training.acceptance import DRAFT_LENGTH, Acceptance, Tally
from headstart.training.eagle_head import HeadShape
from headstart.training.harness import Material, Observer, TrainingResult, train
from headstart.training.hidden import choose_layers, states_of
from headstart.training.objective import head_divergence
from headstart.training.options import Eagle3Training

DEFAULT_VOCABULARY = 32_000


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
        self.named_parameters = self.module.named_parameters
        self.logits_per_token = max(config.vocab_size, 2 * len(self.kept))
        self._kept = self.kept.to(material.device)
        # Where each of the target's tokens stands in the draft vocabulary; -1 if it does not
        self._index = torch.full((config.vocab_size,), -1, device=material.device)
        self._index[self._kept] = torch.arange(len(self.kept), device=material.device)

    def loss(self, ids: Tensor, places: Tensor, step: int) -> Tensor:
        """Mean divergence over passes, each weighing `step_decay` times the one before, and over the rows whose
        likeliest token is in the draft vocabulary."""
        options = self._options
        passes = options.ttt_steps
        aux, logits = self.states.read(ids)
        states = self.head.unroll(aux[:, :-1], self._embedded(ids[:, 1:]), passes)
        # Logits row r is the label of row r - 1 - i of pass i: from r = passes on, of every pass
        labels = logits[:, passes:]
        rows = self._index[labels.argmax(-1)] >= 0
        if options.row_share < 1:
            chance = torch.Generator().manual_seed(options.seed + 7919 * step + int(places[0]))
            rows &= (torch.rand(rows.shape, generator=chance) < options.row_share).to(rows.device)
        guesses = torch.stack([state[:, passes - 1 - i :][rows] for i, state in enumerate(states)])
        weights = [options.step_decay**i for i in range(passes)]
        weights = [weight / sum(weights) for weight in weights]
        theirs = self._restricted(labels[rows])
        return head_divergence(theirs, self.head.norm(guesses), self.head.lm_head.weight, weights, options.tv_weight)

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
            states = self.head.unroll(aux[:, :-1], self._embedded(ids[:, 1:]), DRAFT_LENGTH)
            drafts = [self.head.logits(state[0]).float() for state in states]
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
    """The target's ids [size], rising, that a head may propose: those most frequent in the windows, and the ends."""
    width = int(config.vocab_size)
    wanted = min(width, DEFAULT_VOCABULARY if size is None else size)
    counts = torch.bincount(train.flatten().long(), minlength=width)[:width]
    ends = config.eos_token_id
    for end in ends if isinstance(ends, list | tuple) else [ends]:
        if isinstance(end, int) and 0 <= end < width:
            counts[end] = train.numel() + 1
    return counts.argsort(descending=True, stable=True)[:wanted].sort().values
