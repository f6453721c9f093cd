"""Trainers: ``(model, splits) -> model``."""

from graphmend.training.erm import ERM

__all__ = ["ERM"]
