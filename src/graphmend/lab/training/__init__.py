"""Trainers: ``(model, splits) -> model``."""

from graphmend.lab.training.base import OPTIMIZERS, Objective, Trainer, mean_risk, outputs, risk
from graphmend.lab.training.dann import DANN
from graphmend.lab.training.eerm import EERM
from graphmend.lab.training.erm import ERM
from graphmend.lab.training.registry import TRAINERS, trainer_of
from graphmend.lab.training.sr_gnn import SRGNN
from graphmend.lab.training.uda_gcn import UDAGCN

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
