"""Targets: the graphs on which a frozen model is to predict, one after the other.

Targets are made when they are asked for and are functions of the set and the run seed, so that all backbones of a seed
see the same graphs (attacked ones included, see :mod:`graphmend.lab.beyond.attacks`). Which graphs these are depends on
the suite.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.graph.edits import reordered
from graphmend.lab.beyond.attacks import ATTACKED, RATES, attacked_graph
from graphmend.lab.beyond.faults import FAULTS, broken_rows
from graphmend.lab.beyond.sources import HALVES, Source, digits, splits_of
from graphmend.lab.beyond.suites import FAULTY
from graphmend.lab.data import (
    ColumnShift,
    EdgeSubsample,
    LabelShift,
    MissingColumns,
    Splits,
    load,
    masked,
    node_mask,
)
from graphmend.lab.data.corruptions import FeatureNoise, RandomEdges
from graphmend.lab.data.readers.lazy import LazyGraphs

__all__ = ["KINDS", "Target", "is_transductive", "targets_of", "training_graphs"]

KINDS = (
    "ood",
    "citation",
    "noise",
    "attack",
    "attack-random",
    "unshifted",
    "simulated",
    "rows",
    "missing",
    "half",
    "mix",
)
NOISE_KINDS = ("gaussian", "swap", "zero", "scale", "marginal")
NOISE_RATIOS = (0.1, 0.2, 0.3, 0.5)
RANDOM_RATES = (0.1, 0.25)
HALVED = ("pubmed", "photo")  # the sets of which a random half is a target
CSBM_SHIFTS: dict[str, dict[str, Any]] = {
    "features 1": {"feature_shift": 1.0},
    "features 2": {"feature_shift": 2.0},
    "structure 0.3": {"structure_shift": 0.3},
    "structure 0.6": {"structure_shift": 0.6},
    "labels 1": {"label_shift": 1.0},
    "labels 2": {"label_shift": 2.0},
    "features and structure": {"feature_shift": 1.0, "structure_shift": 0.3},
}
SIMULATED = ("cora", "pubmed", "photo", "digits-shift", "csbm")  # the sets that simulated shifts are made of
SIMULATIONS: dict[str, Callable[[int], Callable[[Data], Data]]] = {
    "label shift, mild": lambda seed: LabelShift(concentration=10.0, seed=seed),
    "label shift, strong": lambda seed: LabelShift(concentration=1.0, seed=seed),
    "column shift, mild": lambda seed: ColumnShift(share=0.2, scale=1.5, offset=0.5, seed=seed),
    "column shift, strong": lambda seed: ColumnShift(share=0.5, scale=2.0, offset=1.0, seed=seed),
    "missing columns 0.2": lambda seed: MissingColumns(share=0.2, seed=seed),
    "missing columns 0.5": lambda seed: MissingColumns(share=0.5, seed=seed),
    "edges 0.8": lambda seed: EdgeSubsample(keep=0.8, seed=seed),
    "edges 0.5": lambda seed: EdgeSubsample(keep=0.5, seed=seed),
}
OTHER_SEED = 10_000  # added to the seed of a harm where it is done to a validation graph


@dataclass(frozen=True, eq=False)
class Target:
    """A graph to predict on.

    Args:
        name: Its name within the source.
        kind: One of :data:`KINDS`.
        data: ``x``, ``edge_index``, ``y``, and ``mask`` if not all nodes are scored; in transductive sets also
            ``train_mask`` and ``val_mask``, whose labels a method may know.
        metric: A name from :data:`graphmend.lab.metrics.METRICS`.
        validation: Graphs that suffer the same harm, or one like it, with the nodes in ``mask`` whose labels may be
            used to choose settings; none where there are none.
    """

    name: str
    kind: str
    data: Data
    metric: str
    validation: Sequence[Data] = ()


def targets_of(source: Source, model: nn.Module, store: Path, suite: str = "readme") -> Iterator[Target]:
    """All targets of a source.

    Args:
        source: The source.
        model: Its model; no target depends on it today, as the victim of an attack is read from ``store``.
        store: The folder of models and attacked graphs.
        suite: A key of :data:`graphmend.lab.beyond.suites.SUITES`. Targets with one name are one graph in all suites.
    """
    splits = splits_of(source)
    parts = [_shifted, _noisy, _attacked, _random, _unshifted, _simulated]
    if source.name in HALVES:
        parts = [_halved]
    elif suite == "trust" and source.name in FAULTY:
        parts = [_attacked, _unshifted, _faulty]
    for part in parts:
        yield from part(source, splits, store)


def training_graphs(source: Source) -> list[Data]:
    """The graphs that a card of the source may be made from.

    Each has ``x``, ``edge_index``, ``y`` and ``train_mask``. Where the validation nodes lie in the training graph, and
    are not the training nodes themselves, there is a ``val_mask``, too. The labels of all other nodes are -1, so that
    no card can read them.
    """
    splits = splits_of(source)
    graphs = []
    one = splits.val[0].x is splits.train[0].x
    for data in splits.train:
        known = node_mask(data)
        graph = Data(x=data.x, edge_index=data.edge_index, train_mask=known)
        if one and not torch.equal(known, node_mask(splits.val[0])):
            graph.val_mask = node_mask(splits.val[0])
            known = known | graph.val_mask
        graph.y = data.y.masked_fill(~known, -1)
        graphs.append(graph)
    return graphs


def is_transductive(splits: Splits) -> bool:
    """Whether training, validation and test are masks of one graph."""
    return splits.train[0].get("test_mask") is not None


def _shifted(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """The test graphs of sets that are shifted by themselves."""
    if source.name == "csbm":
        for name, options in CSBM_SHIFTS.items():
            drawn = load("csbm", seed=source.seed, test_graphs=1, **options)
            yield Target(name, "ood", _plain(drawn.test[0]), drawn.metric, drawn.val)
    elif not is_transductive(splits):
        citation = source.name.startswith("citation")
        names = _graph_names(splits)
        for name, data in zip(names, splits.test, strict=True):
            yield Target(name, "citation" if citation else "ood", _plain(data), splits.metric, splits.val)


def _graph_names(splits: Splits) -> list[str]:
    count = len(splits.test)
    if "graphs" in splits.meta:
        return [str(name) for name in splits.meta["graphs"]["test"]]
    if "upper_years" in splits.meta:
        return [f"until {year}" for year in splits.meta["upper_years"]["test"]]
    return [f"test {number}" for number in range(1, count + 1)]


def _noisy(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """Abnormal features at a share of the test nodes."""
    if source.name not in ATTACKED:
        return
    clean = splits.test[0]
    validation = splits.val[0]
    for kind in NOISE_KINDS:
        for ratio in NOISE_RATIOS:
            harmed = FeatureNoise(clean.test_mask, ratio, seed=source.seed, kind=kind)(clean)
            same = FeatureNoise(validation.val_mask, ratio, seed=source.seed + OTHER_SEED, kind=kind)
            yield Target(f"{kind} {ratio}", "noise", _plain(harmed), splits.metric, [same(validation)])


def _attacked(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """Flipped edges."""
    if source.name not in ATTACKED:
        return
    for rate in RATES:
        harmed = _plain(attacked_graph(source, rate, store))
        same = LazyGraphs([partial(attacked_graph, source, rate, store, nodes="val")], keep=True)
        yield Target(f"attack {rate}", "attack", harmed, splits.metric, same)


def _random(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """As a control for attacks, random edges."""
    if source.name not in ATTACKED:
        return
    for rate in RANDOM_RATES:
        harmed = RandomEdges(rate, seed=source.seed)(splits.test[0])
        yield _transductive(f"random edges {rate}", "attack-random", harmed, splits)


def _unshifted(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """Graphs on which there is nothing to mend: a method should leave them alone."""
    if source.name == "digits-shift":
        for number, data in enumerate(digits().clean, 1):
            yield Target(f"clean {number}", "unshifted", _plain(data), splits.metric, splits.val)
    elif source.name == "csbm":
        for number, data in enumerate(splits.test, 1):
            yield Target(f"fresh draw {number}", "unshifted", _plain(data), splits.metric, splits.val)
    elif source.name.startswith("citation"):
        scored, other = _halves(splits.val[0], source.seed)
        yield Target("half of the validation nodes", "unshifted", scored, splits.metric, [other])
    elif is_transductive(splits):
        clean = splits.test[0]
        changes: dict[str, Callable[[Data, int], Data]] = {"permuted": permuted, "reordered edges": shuffled_edges}
        if source.name in HALVED:
            changes["random half"] = half
        yield _transductive("clean", "unshifted", clean, splits)
        for name, change in changes.items():
            yield _transductive(name, "unshifted", change(clean, source.seed), splits)


def _halves(data: Data, seed: int) -> tuple[Data, Data]:
    """One graph under two masks, each with a random half of the nodes that count."""
    first = torch.rand(data.num_nodes, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask = node_mask(data)
    return _plain(masked(data, mask & first)), _plain(masked(data, mask & ~first))


def _simulated(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """Shifts of known kind and size of a graph that is not shifted by itself.

    The validation graph of an inductive set is another graph under the same kind of shift, drawn with another seed.
    """
    if source.name not in SIMULATED:
        return
    for name, shift in SIMULATIONS.items():
        if is_transductive(splits):
            yield _transductive(name, "simulated", shift(source.seed)(splits.test[0]), splits)
            continue
        clean, other = splits.test[0], splits.val[0]
        if source.name == "digits-shift":
            first, second, other = digits().clean
            clean = _side_by_side(first, second)  # twice as many nodes, because a label shift leaves few of them
        validation = shift(source.seed + OTHER_SEED)(other)
        yield Target(name, "simulated", _plain(shift(source.seed)(clean)), splits.metric, [_plain(validation)])


def _faulty(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """Faults of known kind and size at all nodes of a graph."""
    for name, (kind, fault) in FAULTS.items():
        yield _transductive(name, kind, fault(source.seed)(splits.test[0]), splits)


def _halved(source: Source, splits: Splits, store: Path) -> Iterator[Target]:
    """The other half, another mix of the own half, and the other half with broken rows; no label in it is known."""
    other, own = _plain(splits.test[0]), splits.train[0]
    yield Target("other half", "half", other, splits.metric)
    held_out = splits.meta["held_out"]
    if bool(held_out.any()):
        chosen = torch.rand(own.num_nodes, generator=torch.Generator().manual_seed(source.seed + OTHER_SEED)) < 0.5
        mix = masked(Data(x=own.x, edge_index=own.edge_index, y=own.y), held_out).subgraph(chosen)
        yield Target("random half of the own half", "mix", mix, splits.metric)
    harmed = broken_rows("gaussian", 0.2, source.seed)(other)
    yield Target("other half, gaussian rows 0.2", "rows", _plain(harmed), splits.metric)


def _side_by_side(one: Data, two: Data) -> Data:
    """Two graphs as one without an edge between them."""
    edge_index = torch.cat([one.edge_index, two.edge_index + one.num_nodes], dim=1)
    return Data(x=torch.cat([one.x, two.x]), edge_index=edge_index, y=torch.cat([one.y, two.y]))


def _transductive(name: str, kind: str, harmed: Data, splits: Splits) -> Target:
    """A changed graph that is scored at its test nodes and tuned at its validation nodes."""
    plain = _plain(masked(harmed, harmed.test_mask))
    return Target(name, kind, plain, splits.metric, [masked(plain, harmed.val_mask)])


def _plain(data: Data) -> Data:
    """The attributes that a target has, and no other."""
    keys = ("x", "edge_index", "y", "mask", "train_mask", "val_mask")
    return Data(**{key: data[key] for key in keys if data.get(key) is not None})


def permuted(data: Data, seed: int) -> Data:
    """The same graph with its nodes in another order."""
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel())
    out = copy.copy(data)
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor) and key != "edge_index" and value.size(0) == data.num_nodes:
            out[key] = value[order]
    out.edge_index = place[data.edge_index]
    return out


def shuffled_edges(data: Data, seed: int) -> Data:
    """The same graph with its edges listed in another order."""
    return reordered(data, torch.randperm(data.num_edges, generator=torch.Generator().manual_seed(seed)))


def half(data: Data, seed: int) -> Data:
    """The subgraph of a random half of the nodes."""
    chosen = torch.rand(data.num_nodes, generator=torch.Generator().manual_seed(seed)) < 0.5
    return data.subgraph(chosen)
