"""Comparisons: hyper-parameters that are chosen fairly, and the published ones."""

from graphmend.lab.bench.presets import preset, presets
from graphmend.lab.bench.tuning import ByAdapting, ByTraining, Trial, Tuned, grid_points, tune

__all__ = ["ByAdapting", "ByTraining", "Trial", "Tuned", "grid_points", "preset", "presets", "tune"]
