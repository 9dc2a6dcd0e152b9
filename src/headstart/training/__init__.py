"""Train drafters for a target: distil a draft language model, train an EAGLE-3 head, or train Medusa heads."""

from headstart.training.acceptance import Acceptance
from headstart.training.distil import train_draft
from headstart.training.eagle3 import train_eagle3
from headstart.training.harness import Report, TrainingResult
from headstart.training.medusa import MedusaTraining, train_medusa
from headstart.training.options import DraftTraining, Eagle3Training, Shape, Training
from headstart.training.progress import TrainingProgress

__all__ = [
    "Acceptance",
    "DraftTraining",
    "Eagle3Training",
    "MedusaTraining",
    "Report",
    "Shape",
    "Training",
    "TrainingProgress",
    "TrainingResult",
    "train_draft",
    "train_eagle3",
    "train_medusa",
]
