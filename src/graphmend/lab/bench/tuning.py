"""Hyper-parameters chosen on validation labels, never on test labels.

``tune(evaluate, grid)`` scores every point of a grid. What a score is, ``evaluate`` decides: :class:`ByAdapting` mends
validation graphs (distribution shift), or the one graph with only its validation nodes counting (abnormal features,
attacks); :class:`ByTraining` trains and takes the validation score of the trained model.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import joblib
import torch
from torch import nn
from torch_geometric.data import Data

from graphmend.adapters import Adapter
from graphmend.errors import GraphMendError, require
from graphmend.lab.data.splits import Splits, node_mask
from graphmend.lab.training.base import Trainer
from graphmend.progress import track
from graphmend.results.scores import score

__all__ = ["ByAdapting", "ByTraining", "Trial", "Tuned", "grid_points", "tune"]


@dataclass(frozen=True)
class Trial:
    """One point of a grid: its settings with their score, or with the error if they failed.

    Example:
        >>> from graphmend.lab.bench import Trial, tune
        >>> tune(lambda lr: -abs(lr - 0.1), {"lr": [1.0, 0.1]}).trials[1] == Trial({"lr": 0.1}, 0.0)
        True
    """

    settings: dict[str, Any]
    score: float | None
    error: str | None = None


@dataclass(frozen=True)
class Tuned:
    """The best settings, their score, and all trials in the order of the grid.

    Example:
        >>> from graphmend.lab.bench import Tuned, tune
        >>> best = tune(lambda lr: -abs(lr - 0.1), {"lr": [1.0, 0.1]})
        >>> isinstance(best, Tuned), best.settings
        (True, {'lr': 0.1})
    """

    settings: dict[str, Any]
    score: float
    trials: list[Trial] = field(repr=False)


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations, the last name varying fastest.

    Example:
        >>> from graphmend.lab.bench import grid_points
        >>> grid_points({"lr": [0.1, 0.01], "steps": [5]})
        [{'lr': 0.1, 'steps': 5}, {'lr': 0.01, 'steps': 5}]
    """
    empty = [name for name, values in grid.items() if len(values) == 0]
    require(not empty, f"the grid has no values for {', '.join(empty)}; give at least one")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def tune(
    evaluate: Callable[..., float], grid: Mapping[str, Sequence[Any]], *, jobs: int = 1, progress: bool = False
) -> Tuned:
    """Score every point of a grid; the best one wins, the first among equals.

    Args:
        evaluate: Takes the settings of a point as keyword arguments and returns a score, the higher the better.
        grid: Values to try by name.
        jobs: Processes that work at the same time; -1 for as many as there are cores.
        progress: Show a progress bar with the time left.

    Returns:
        The best settings. A point that fails is among the trials, with its error.

    Example:
        >>> from graphmend.lab.bench import tune
        >>> tune(lambda lr: -abs(lr - 0.1), {"lr": [1.0, 0.1, 0.01]}).settings
        {'lr': 0.1}
    """
    points = grid_points(grid)
    trials = list(_progressing(_trials(evaluate, points, jobs), len(points), progress))
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise GraphMendError(f"none of {len(points)} settings could be scored; the first said: {trials[0].error}")
    best = max(scored, key=lambda trial: trial.score or 0.0)
    assert best.score is not None
    return Tuned(best.settings, best.score, trials)


def _trials(evaluate: Callable[..., float], points: list[dict[str, Any]], jobs: int) -> Iterator[Trial]:
    if jobs == 1:
        return (_trial(evaluate, point) for point in points)
    made: Iterator[Trial] = joblib.Parallel(n_jobs=jobs, return_as="generator")(
        joblib.delayed(_trial)(evaluate, point) for point in points
    )
    return made


def _progressing(trials: Iterator[Trial], number: int, show: bool) -> Iterator[Trial]:
    return (next(trials) for _ in track(range(number), "tuning", show))


def _trial(evaluate: Callable[..., float], settings: dict[str, Any]) -> Trial:
    try:
        value = float(evaluate(**settings))
    except Exception as error:  # one point out of memory must not end the search
        return Trial(settings, None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if value != value:
        return Trial(settings, None, "the score is not a number")
    return Trial(settings, value)


@dataclass(frozen=True)
class ByAdapting:
    """The mean score of an adapter over graphs with labels, each on the nodes of its ``mask``.

    Args:
        adapter: Makes an adapter from settings, such as the class :class:`~graphmend.GTrans`.
        model: The trained model.
        graphs: Validation graphs; or the graph of interest, with its validation nodes as ``mask``.
        metric: A name from :data:`graphmend.lab.metrics.METRICS`.
        fixed: Settings that are not tuned.
        call: Arguments of the call, such as ``seed`` or ``limits``.

    Example:
        >>> from graphmend import GTrans
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.bench import ByAdapting, tune
        >>> from graphmend.lab.data import embedded
        >>> evaluate = ByAdapting(GTrans, GCN(13, 16, 3), embedded("wine").val, fixed={"edge_steps": 0})
        >>> len(tune(evaluate, {"lr_feature": [0.01, 0.1], "steps": [2]}).trials)
        2
    """

    adapter: Callable[..., Adapter]
    model: nn.Module
    graphs: Sequence[Data]
    metric: str = "accuracy"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, **settings: Any) -> float:
        """The score of these settings."""
        adapter = self.adapter(**{**self.fixed, **settings})
        results = [(adapter(self.model, data, **self.call), data) for data in self.graphs]
        values = [score(self.metric, result.logits, data.y, node_mask(data)) for result, data in results]
        return sum(values) / len(values)


@dataclass(frozen=True)
class ByTraining:
    """The validation score of a model after training; the trainer sees test graphs without their labels.

    Args:
        trainer: Makes a trainer from settings, such as the class :class:`~graphmend.lab.training.ERM`.
        build: Makes an untrained model; it is called under ``seed``.
        splits: The data.
        seed: Seed of the initial weights.
        fixed: Settings of the trainer that are not tuned.

    Example:
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.bench import ByTraining, tune
        >>> from graphmend.lab.data import embedded
        >>> from graphmend.lab.training import ERM
        >>> evaluate = ByTraining(ERM, lambda: GCN(13, 16, 3), embedded("wine"), fixed={"epochs": 3})
        >>> len(tune(evaluate, {"lr": [0.1, 0.01]}).trials)
        2
    """

    trainer: Callable[..., Trainer]
    build: Callable[[], nn.Module]
    splits: Splits
    seed: int = 0
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, **settings: Any) -> float:
        """The score of these settings."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model = self.build()
        hidden = replace(self.splits, test=[_without_labels(data) for data in self.splits.test])
        model = self.trainer(**{**self.fixed, **settings})(model, hidden)
        with torch.no_grad():
            parts = [
                (model(data.x, data.edge_index)[node_mask(data)], data.y.reshape(-1)[node_mask(data)])
                for data in self.splits.val
            ]
        logits, y = (torch.cat(part) for part in zip(*parts, strict=True))
        return score(self.splits.metric, logits, y)


def _without_labels(data: Data) -> Data:
    """A shallow copy in which no node has a label."""
    bare = copy.copy(data)
    bare.y = torch.full_like(data.y, -1)
    return bare
