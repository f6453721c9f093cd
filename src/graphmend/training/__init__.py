"""Trainers: ``(model, splits) -> model``."""

from graphmend.training.base import OPTIMIZERS, Objective, Trainer, risk
from graphmend.training.erm import ERM

__all__ = ["ERM", "OPTIMIZERS", "Objective", "Trainer", "risk"]
