"""The options of a training run: `Training`, which every kind of run shares, and a class for each kind."""

from headstart.training.options.draft import DraftTraining, Shape
from headstart.training.options.eagle3 import Eagle3Training
from headstart.training.options.exit import ExitTraining
from headstart.training.options.medusa import MedusaTraining
from headstart.training.options.shared import HeadTraining, Training

__all__ = ["DraftTraining", "Eagle3Training", "ExitTraining", "HeadTraining", "MedusaTraining", "Shape", "Training"]
