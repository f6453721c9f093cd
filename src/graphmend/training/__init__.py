"""Trainers: ``(model, splits) -> model``."""

from graphmend.training.base import OPTIMIZERS, Objective, Trainer, mean_risk, outputs, risk
from graphmend.training.dann import DANN
from graphmend.training.eerm import EERM
from graphmend.training.erm import ERM
from graphmend.training.registry import TRAINERS, trainer_of
from graphmend.training.sr_gnn import SRGNN
from graphmend.training.uda_gcn import UDAGCN

__all__ = [
    "DANN",
    "EERM",
    "ERM",
    "OPTIMIZERS",
    "SRGNN",
    "TRAINERS",
    "UDAGCN",
    "Objective",
    "Trainer",
    "mean_risk",
    "outputs",
    "risk",
    "trainer_of",
]
