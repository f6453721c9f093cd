"""Every table and figure by name."""

from __future__ import annotations

from graphmend.bench.experiment import Experiment
from graphmend.bench.experiments import methods, ood_accuracy, ood_variants

__all__ = ["EXPERIMENTS"]

_ALL = (
    ood_accuracy.EXPERIMENT,
    ood_variants.SELF_SUPERVISION,
    ood_variants.SLAPS_LOSS,
    ood_variants.ADGCL,
    ood_variants.AUGMENTATIONS,
    methods.METHODS,
    methods.ABNORMAL_METHODS,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
