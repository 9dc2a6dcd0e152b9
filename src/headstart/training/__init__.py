"""Train drafters: so far, distil a draft language model from a target (`train_draft`)."""

from headstart.training.acceptance import Acceptance
from headstart.training.distil import Report, TrainingResult, train_draft
from headstart.training.options import DraftTraining, Shape
from headstart.training.progress import TrainingProgress

__all__ = ["Acceptance", "DraftTraining", "Report", "Shape", "TrainingProgress", "TrainingResult", "train_draft"]
