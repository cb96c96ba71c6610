"""One training: what decides it (`Training`), and the loop that is a function of it, a seed, a state and masks."""

from .duration import Duration
from .loop import train
from .result import Checkpoint, Epoch, Result
from .schedules import learning_rates
from .settings import DataChoice, Training

__all__ = [
    "Checkpoint",
    "DataChoice",
    "Duration",
    "Epoch",
    "Result",
    "Training",
    "learning_rates",
    "train",
]
