"""The options of a training run: `Training`, which every kind of run shares, and a class for each kind."""

from headstart.train.options.kinds import (
    DraftTraining,
    Eagle3Training,
    ExitTraining,
    MedusaTraining,
    MtpTraining,
    Shape,
)
from headstart.train.options.shared import DepthTraining, HeadTraining, Training, UnrolledTraining

__all__ = [
    "DepthTraining", "DraftTraining", "Eagle3Training", "ExitTraining", "HeadTraining", "MedusaTraining", "MtpTraining",
    "Shape", "Training", "UnrolledTraining",
]  # fmt: skip
