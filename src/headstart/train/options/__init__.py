"""The options of a training run: `Training`, which every kind of run shares, and a class for each kind."""

from headstart.train.options.kinds import DraftTraining, Eagle3Training, ExitTraining, MedusaTraining, Shape
from headstart.train.options.shared import DepthTraining, HeadTraining, Training

__all__ = [
    "DepthTraining", "DraftTraining", "Eagle3Training", "ExitTraining", "HeadTraining", "MedusaTraining", "Shape",
    "Training",
]  # fmt: skip
