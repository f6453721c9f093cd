"""Trainers: ``(model, splits) -> model``."""

from graphmend.training.erm import ERM, OPTIMIZERS, risk

__all__ = ["ERM", "OPTIMIZERS", "risk"]
