"""Train drafters for a target: a draft language model, an EAGLE-3 or MTP head, Medusa heads, an early exit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headstart.base.lazy import lazily
from headstart.train.options import (
    DraftTraining,
    Eagle3Training,
    ExitTraining,
    MedusaTraining,
    MtpTraining,
    Shape,
    Training,
)

if TYPE_CHECKING:
    from headstart.train.acceptance import Acceptance
    from headstart.train.distil import train_draft
    from headstart.train.eagle3 import train_eagle3
    from headstart.train.exit_head import train_exit
    from headstart.train.medusa import train_medusa
    from headstart.train.mtp import train_mtp
    from headstart.train.schedule import Report, TrainingProgress, TrainingResult

__all__ = [
    "Acceptance",
    "DraftTraining",
    "Eagle3Training",
    "ExitTraining",
    "MedusaTraining",
    "MtpTraining",
    "Report",
    "Shape",
    "Training",
    "TrainingProgress",
    "TrainingResult",
    "train_draft",
    "train_eagle3",
    "train_exit",
    "train_medusa",
    "train_mtp",
]

__getattr__ = lazily(
    __name__,
    acceptance="Acceptance",
    distil="train_draft",
    eagle3="train_eagle3",
    exit_head="train_exit",
    medusa="train_medusa",
    mtp="train_mtp",
    schedule="Report TrainingProgress TrainingResult",
)
