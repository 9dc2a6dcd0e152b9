"""The options of a training run: `Training`, which every kind of run shares, and a class for each kind."""

from headstart.train.options.draft import DraftTraining, Shape
from headstart.train.options.eagle3 import Eagle3Training
from headstart.train.options.exit import ExitTraining
from headstart.train.options.medusa import MedusaTraining
from headstart.train.options.shared import HeadTraining, Training

__all__ = ["DraftTraining", "Eagle3Training", "ExitTraining", "HeadTraining", "MedusaTraining", "Shape", "Training"]
