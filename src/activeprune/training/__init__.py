"""One training: what decides it (`Training`), and the loop that is a function of it, a seed, a state and masks."""

from .case import Case, Span
from .duration import Duration
from .loop import train
from .result import Checkpoint, Epoch, Failure, ForeignCheckpoint, Result
from .schedules import learning_rates
from .settings import DataChoice, NetworkChoice, Training

__all__ = [
    "Case",
    "Checkpoint",
    "DataChoice",
    "Duration",
    "Epoch",
    "Failure",
    "ForeignCheckpoint",
    "NetworkChoice",
    "Result",
    "Span",
    "Training",
    "learning_rates",
    "train",
]
