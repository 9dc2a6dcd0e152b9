"""`train_draft`: distil a small draft from any causal LM (Hinton et al. 2015; for drafts: DistillSpec, 2310.08461).

The target reads windows of text, the draft reads the same, and at every position the draft's law is pulled towards
the target's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.training import provenance, student
from headstart.training.acceptance import Acceptance, measure
from headstart.training.harness import Material, Observer, TrainingResult, train
from headstart.training.objective import divergence
from headstart.training.options import DraftTraining


def train_draft(options: DraftTraining, *, observe: Observer = lambda _: None) -> TrainingResult:
    """Train a draft and write it to `options.output` as a plain Hugging Face directory with its provenance.

    Raises what `headstart.training.harness.train` raises.
    """
    return train(options, lambda material: DraftStudent(options, material), observe)


class DraftStudent:
    """A draft LM that learns the target's law at every position."""

    kind = "draft"
    states = None

    def __init__(self, options: DraftTraining, material: Material) -> None:
        target, self._begun = material.target, options.begin_with
        if options.begin_with is None:
            shape = student.full_shape(options.shape, target.config)
            draft: Any = student.build(shape, target, init=options.init, seed=options.seed)
        else:
            draft = student.go_on(str(options.begin_with), target, material.tokenizer)
        self.module = draft.to(material.device, material.dtype)
        self.named_parameters = self.module.named_parameters
        self.logits_per_token: int = draft.config.vocab_size
        self._target, self._tokenizer = target, material.tokenizer
        self._tv_weight = options.tv_weight

    def loss(self, ids: Tensor, places: Tensor, step: int) -> Tensor:  # noqa: ARG002 (the protocol's)
        """The divergence of the draft's law from the target's, mean over all positions."""
        self.module.train()
        with torch.no_grad():
            theirs = self._target(ids, use_cache=False).logits.flatten(0, 1)
        ours = self.module(ids, use_cache=False).logits.flatten(0, 1)
        return divergence(theirs, ours, self._tv_weight)

    def measure(self, heldout: Tensor) -> Acceptance:
        return measure(self._target, self.module.eval(), heldout)

    def write(self, folder: Path) -> None:
        self.module.to(torch.bfloat16).save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)

    def facts(self) -> dict[str, Any]:
        return {"begun_with": {} if self._begun is None else provenance.weights_sha256(str(self._begun))}
