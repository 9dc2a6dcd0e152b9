"""What a run trains, whatever its kind: how it learns from windows of text, how it is measured, and what it writes."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headstart.train.acceptance import Acceptance, Guessed, Tally
from headstart.train.hidden import TargetStates
from headstart.train.optimiser import ALIKE
from headstart.train.options import DepthTraining, Training
from headstart.train.windows import Windows


@dataclass(frozen=True, slots=True)
class Material:
    """What a student is made from."""

    target: Any
    """The frozen target, a model of transformers."""
    tokenizer: Any
    train: Windows
    """What is learnt from."""
    heldout: Windows
    """What is measured on."""
    device: torch.device
    dtype: torch.dtype
    """Of the student's weights during training."""


class Student(ABC):
    """What is trained. Its parameters must be a function of options and material alone, so that a run can resume."""

    kind: ClassVar[str]
    """For the provenance: "draft", "eagle3", ..."""

    module: nn.Module
    """What is trained."""

    logits_per_token: int
    """Logits held at once for each token of a window, which bounds the windows of a micro-batch."""

    lengths: Mapping[str, Tensor] = ALIKE
    """By matrix, how long its inputs are, where that differs much: see `Optimiser`."""

    states: TargetStates | None = None
    """What it learns from, where that can be read ahead and kept."""

    def __init__(self, options: Training, material: Material) -> None:
        self._options, self._target, self._device = options, material.target, material.device

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """What the optimiser updates, under names that tell it which are embeddings and output matrices."""
        return self.module.named_parameters()

    @abstractmethod
    def loss(self, learnt: Windows, places: Tensor, step: int) -> Tensor:
        """Mean loss, with its graph, on windows that have these `places` [n] among the training windows."""

    @abstractmethod
    def guessed(self, ids: Tensor) -> Guessed:
        """What it guesses of one window ids [1, T], the text being given (teacher forcing)."""

    @torch.no_grad()
    def measure(self, heldout: Windows) -> Acceptance:
        """How often its drafts would be accepted on the answers in these windows."""
        tally = Tally()
        for window, answers in heldout:
            tally.add(self.guessed(window.long()[None].to(self._device)), answers)
        return tally.result(heldout)

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write its files into an empty directory."""

    def used(self, folder: Path) -> tuple[str, str]:
        """What `headstart.load` takes to draft with what was written to a directory: target and drafter."""
        return str(self._options.target), str(folder)

    def facts(self) -> dict[str, Any]:
        """What the provenance records beside the options."""
        found: dict[str, Any] = {"parameters": sum(each.numel() for each in self.module.parameters())}
        if isinstance(self._options, DepthTraining):
            begun = self._options.begin_with
            found["begun_with"] = {} if begun is None else weights_sha256(str(begun))
        return found

    def chance(self, places: Tensor, step: int) -> torch.Generator:
        """What draws a step's rows and tokens: a function of the seed, the step and its first window."""
        return torch.Generator().manual_seed(self._options.seed + 7919 * step + int(places[0]))


def weights_sha256(source: str) -> dict[str, str]:
    """Hash of each weight file, for a target in a local directory; empty for a hub id (its commit is in the config)."""
    return {p.name: _sha256(p) for p in sorted(Path(source).glob("*.safetensors"))}


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
