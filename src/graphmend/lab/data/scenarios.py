"""Three ways in which the handwritten digits of a test graph differ from those a model was trained on.

Every scenario has a *validation* graph that suffers the same kind of harm on other nodes, so that settings such as step
sizes can be chosen without any test label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch_geometric.data import Data

from graphmend.lab.data.attacked import attack_graph
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.corruptions import FeatureNoise
from graphmend.lab.data.sklearn_graphs import embedded, knn_graph, stratified_parts
from graphmend.lab.data.splits import Splits

__all__ = ["Scenario", "abnormal_features", "shift", "structure_attack"]

# The domains of the shift: their share of the images and how far their contrast and brightness move.
DOMAINS = {
    "train": (0.3, 0.0),
    "val": (0.2, 0.75),
    "test 1": (1 / 6, 1.0),
    "test 2": (1 / 6, 1.125),
    "test 3": (1 / 6, 1.25),
}
OTHER_SEED = 10_000  # added to the seed for validation graphs, so that they suffer another draw than test graphs


@dataclass(frozen=True)
class Scenario:
    """Graphs to train on, to tune an adapter on, and to report on.

    Args:
        name: Name for tables.
        splits: For the trainer; its graphs are not harmed (only the validation domain of the shift is, mildly).
        validation: The harmed graph on which an adapter's settings are chosen, by the nodes in its ``mask`` (if any).
        tests: The harmed graphs to report on, each with its ``mask`` (if any).
        clean: The graphs of ``tests`` before the harm, in the same order, to show what the model could reach.

    Example:
        >>> from graphmend.lab.data import Scenario, shift
        >>> scenario = shift()
        >>> isinstance(scenario, Scenario), len(scenario.tests), len(scenario.clean)
        (True, 3, 3)
    """

    name: str
    splits: Splits
    validation: Data
    tests: list[Data]
    clean: list[Data]


def shift(neighbours: int = 10) -> Scenario:
    """Distribution shift: images of lower contrast and higher brightness, more so from domain to domain.

    The images are split into five disjoint stratified domains. Pixels in [0, 1] become ``x * (1 - 0.5 * t) + 0.3 * t``,
    with t = 0 for training, 0.75 for validation and 1, 1.125, 1.25 for the tests; each domain has its own kNN graph.

    Example:
        >>> from graphmend.lab.data import shift
        >>> digits = shift()
        >>> bool(digits.tests[0].x.std() < digits.clean[0].x.std())
        True
    """
    pixels, labels = load_digits(return_X_y=True)
    parts = stratified_parts(labels, [share for share, _ in DOMAINS.values()], seed=0)

    def domain(index: int, t: float) -> Data:
        x = torch.from_numpy(pixels[parts[index]] / 16.0 * (1 - 0.5 * t) + 0.3 * t).float()
        return Data(x=x, edge_index=knn_graph(x, neighbours), y=torch.from_numpy(labels[parts[index]]).long())

    strengths = [t for _, t in DOMAINS.values()]
    train, val, *tests = (domain(index, t) for index, t in enumerate(strengths))
    clean = [domain(index, 0.0) for index in range(2, len(strengths))]
    meta = {"name": "digits shift", "neighbours": neighbours, "classes": 10, "strengths": strengths}
    return Scenario("shift", Splits([train], [val], tests, meta=meta), val, tests, clean)


def load_shift(*, seed: int = 0, data_dir: str | Path | None = None) -> Splits:
    """The graphs of :func:`shift` as a data set, which needs no files."""
    splits = shift().splits
    return replace(splits, meta={**splits.meta, "name": "digits-shift", "seed": seed})


_NOTE = "scikit-learn's digits as graphs of nearest neighbours, with simulated contrast and brightness"
DATASETS = {"digits-shift": Dataset("digits-shift", "contrast, brightness", load_shift, generated=True, note=_NOTE)}


def abnormal_features(
    splits: Splits | None = None, *, seed: int = 0, ratio: float = 0.3, scale: float = 3.0
) -> Scenario:
    """Abnormal features: a share of the test nodes has its pixels replaced by noise.

    The validation graph is the clean graph with noise on the same share of its validation nodes instead.

    Args:
        splits: A transductive set with ``val_mask`` and ``test_mask``; the digits when ``None``.
        seed: Seed of the nodes and the noise.
        ratio: Share of the test nodes.
        scale: Standard deviation of the noise. On this homophilous graph 1 costs a point or two.

    Example:
        >>> from graphmend.lab.data import abnormal_features, embedded
        >>> scenario = abnormal_features(embedded("wine"))
        >>> bool((scenario.tests[0].x != scenario.clean[0].x).any())
        True
    """
    splits = embedded("digits") if splits is None else splits
    val, test = splits.val[0], splits.test[0]
    validation = FeatureNoise(val.val_mask, ratio, scale, seed + OTHER_SEED)(val)
    harmed = FeatureNoise(test.test_mask, ratio, scale, seed)(test)
    return Scenario("abnormal features", splits, validation, [harmed], [test])


def structure_attack(
    model: nn.Module, splits: Splits | None = None, *, seed: int = 0, rate: float = 0.1, epochs: int = 25
) -> Scenario:
    """Structure attack: edges flipped by :func:`attack_graph` so that ``model`` errs on the test nodes.

    The validation graph is the clean graph attacked at its validation nodes instead. The attacker knows the labels of
    the training nodes only.

    Args:
        model: The model under attack, trained on ``splits``.
        splits: A transductive set with ``train_mask``, ``val_mask`` and ``test_mask``; the digits when ``None``.
        seed: Seed of the attack.
        rate: Budget as a fraction of the undirected edges at the attacked nodes.
        epochs: Steps of the attack.

    Example:
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.data import embedded, structure_attack
        >>> scenario = structure_attack(GCN(13, 16, 3), embedded("wine"), rate=0.05, epochs=2)
        >>> scenario.tests[0].num_nodes
        178
    """
    splits = embedded("digits") if splits is None else splits
    val, test = splits.val[0], splits.test[0]
    validation = attack_graph(model, val, val.val_mask, rate, seed + OTHER_SEED, epochs, known=val.train_mask)
    harmed = attack_graph(model, test, test.test_mask, rate, seed, epochs, known=test.train_mask)
    return Scenario("structure attack", splits, validation, [harmed], [test])
