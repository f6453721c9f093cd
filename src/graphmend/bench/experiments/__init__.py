"""Every table and figure by name."""

from __future__ import annotations

from graphmend.bench.experiment import Experiment
from graphmend.bench.experiments import (
    abnormal_features,
    attack,
    attack_stats,
    budget,
    feature_vs_structure,
    loss_ablation,
    methods,
    model_vs_data,
    ood_accuracy,
    ood_variants,
    transfer,
)

__all__ = ["EXPERIMENTS"]

_ALL = (
    ood_accuracy.EXPERIMENT,
    ood_variants.SELF_SUPERVISION,
    ood_variants.SLAPS_LOSS,
    ood_variants.ADGCL,
    ood_variants.AUGMENTATIONS,
    methods.METHODS,
    methods.ABNORMAL_METHODS,
    abnormal_features.EXPERIMENT,
    model_vs_data.EXPERIMENT,
    attack.EXPERIMENT,
    transfer.EXPERIMENT,
    attack_stats.EXPERIMENT,
    loss_ablation.EXPERIMENT,
    feature_vs_structure.EXPERIMENT,
    budget.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
