"""Every table and figure by name."""

from __future__ import annotations

from graphmend.lab.bench.experiment import Experiment
from graphmend.lab.bench.experiments import (
    abnormal_features,
    attack,
    attack_stats,
    budget,
    cmd_shift,
    efficiency,
    feature_vs_structure,
    gradient_correlation,
    graph_da,
    loss_ablation,
    methods,
    model_vs_data,
    ood_accuracy,
    ood_boxplots,
    ood_ranks,
    ood_variants,
    search_space,
    theory,
    transfer,
    tsne,
)

__all__ = ["EXPERIMENTS"]

_ALL = (
    ood_accuracy.EXPERIMENT,
    ood_ranks.EXPERIMENT,
    ood_accuracy.REDRAWS,
    ood_variants.SELF_SUPERVISION,
    ood_variants.SLAPS_LOSS,
    ood_variants.ADGCL,
    ood_variants.AUGMENTATIONS,
    methods.METHODS,
    methods.ABNORMAL_METHODS,
    ood_boxplots.EXPERIMENT,
    efficiency.EXPERIMENT,
    tsne.EXPERIMENT,
    cmd_shift.CMD_SHIFT,
    cmd_shift.CMD_PERIODS,
    graph_da.EXPERIMENT,
    gradient_correlation.EXPERIMENT,
    theory.EXPERIMENT,
    search_space.EXPERIMENT,
    abnormal_features.EXPERIMENT,
    model_vs_data.EXPERIMENT,
    attack.TEST_NODES,
    attack.ALL_NODES,
    attack.VARIANTS,
    transfer.EXPERIMENT,
    attack_stats.EXPERIMENT,
    loss_ablation.EXPERIMENT,
    feature_vs_structure.EXPERIMENT,
    budget.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
