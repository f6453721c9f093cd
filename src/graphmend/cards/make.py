"""Making a source card."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Batch, Data
from torch_geometric.data.data import BaseData

from graphmend.cards.edges import edge_views, fit, fits_well, grid_of, pairs_of
from graphmend.cards.moments import Moments, moments
from graphmend.cards.prototypes import find_prototypes, in_units
from graphmend.cards.rows import EMPTY_ROW, in_blocks, one_hot, projected, row_statistics, times, widened
from graphmend.cards.source_card import SourceCard, nearest_centroid
from graphmend.cards.sums import Groups, RowSums
from graphmend.errors import GraphMendError, require, seed_number
from graphmend.files.digest import model_digest
from graphmend.graph.batches import Graphs, are_several, refuse_sampled
from graphmend.graph.canonical import node_keys, typical_size
from graphmend.graph.checks import check_graph, check_order, is_finite
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edge_lists import number_of_graphs
from graphmend.graph.edge_passes import edges_up_to, lowest_of
from graphmend.graph.mapped import on_disk
from graphmend.graph.tasks import check_task, task_of
from graphmend.model import FrozenGNN, Observation
from graphmend.model.call import Output, is_encoder
from graphmend.model.embedding import Tap
from graphmend.model.per_graph import has_row_per_graph
from graphmend.model.restore import plain, private
from graphmend.model.wiring import Taps
from graphmend.outputs import Task, probabilities, read_mask

__all__ = ["card", "column_range"]

HALVES = 20  # random halves of the nodes, for the noise level
TEMPERATURES = (-1.0, 1.0, 61)  # exponents of ten: lowest, highest, number; 1 is one of them
MANY_EDGES = 200_000  # enough for the quantiles of all of them
MARGIN = 0.1  # of a column's range, by which a value may exceed it


def card(
    model: nn.Module,
    train_data: Data | Sequence[Data] | Iterator[Data] | Dataset[Any] | DataLoader[Any] | Batch,
    *,
    embedding: str | None = None,
    seed: int = 0,
    output: Output = None,
    task: str | None = None,
) -> SourceCard:
    """A source card for a trained model: what its training graph looks like, seen from the model.

    Keep it beside the model. With it, :func:`graphmend.mend` can distinguish a graph that has shifted from one that has
    not.

    Args:
        model: The trained model; it is left as it was.
        train_data: The graph it was trained on, or several: a list, a data set, a loader or a ``Batch``. If there is a
            ``train_mask``, the noise level is measured on the other nodes; if there are labels ``y`` with a
            ``val_mask``, they calibrate the predictions.
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.
        seed: Seed of the random halves.
        output: Which part of what the model returns has the scores, see :func:`graphmend.mend`.
        task: What the model's rows are, ``"classes"``, ``"labels"``, ``"numbers"`` or ``"embedding"``, if the labels
            ``y`` of the graph do not say. The card keeps it, so that it need not be given again.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.cards import card
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60)), y=torch.arange(20) % 2)
        >>> card(GCN(3, 8, 2), data).first_mean.numel()
        8
    """
    with ExitStack() as stack:
        return _made(model, train_data, embedding, seed, output, task, stack)


def _made(
    model: nn.Module,
    train_data: Any,
    embedding: str | None,
    seed: int,
    output: Output,
    task: str | None,
    stack: ExitStack,
) -> SourceCard:
    check_order(model, train_data)
    graphs = [with_edge_index(data) for data in _listed_graphs(model, train_data, output)]
    seed, task = seed_number("seed", seed), check_task(task)
    for data in graphs:
        check_graph(data)
        refuse_sampled(data)
        for name in ("train_mask", "val_mask"):
            _mask(data, name)  # before any work is done
    widths = {data.x.size(1) for data in graphs}
    require(
        len(widths) == 1,
        f"the training graphs have different numbers of columns ({sorted(widths)}); "
        "give graphs with the feature columns the model was trained on",
    )
    graphs = sorted((plain(data) for data in graphs), key=lambda data: -int(data.edge_index.size(1)))
    for data in graphs:
        stack.enter_context(on_disk(data))
    taps: Taps | None = None  # found on the largest graph, and the same on all
    seen: list[Observation] = []
    maps: list[Tensor] = []
    keys: list[Tensor] = []
    unit = typical_size(*(data.x for data in graphs)) if len(graphs) > 1 else None  # as if they were one graph
    for data in graphs:
        with (
            torch.cuda.device_of(data.x),  # type: ignore[no-untyped-call]
            private(data) as own,
            on_disk(own),
            FrozenGNN(model, own, embedding=embedding, seed=seed, taps=taps, output=output) as frozen,
        ):
            taps = frozen.taps
            seen.append(frozen.observe(own))
            _check_finite(seen[-1])
            maps.append(frozen.first_map)
            keys.append(frozen.node_keys if unit is None else node_keys(data.x, data.edge_index, unit))
    assert taps is not None
    known = task_of([one.logits for one in seen], graphs, named=task, encodes=is_encoder(model)).known()
    return _card(model, graphs, seen, maps, keys, taps, embedding, seed, output, known)


def _listed_graphs(model: nn.Module, train_data: Any, output: Output) -> list[Data]:
    kind = type(train_data).__name__
    is_one = isinstance(train_data, BaseData) and not are_several(train_data)
    is_one |= isinstance(train_data, Batch) and has_row_per_graph(model, train_data, output)
    require(is_one or are_several(train_data), f"train_data must be a graph or a list of graphs (got {kind})")
    graphs = [train_data] if is_one else list(Graphs(train_data))
    require(len(graphs) > 0, "train_data is an empty list; give the graph the model was trained on")
    for place, graph in enumerate(graphs):
        if isinstance(graph, Exception):
            raise GraphMendError(f"graph {place} of train_data cannot be read ({graph}); leave it out") from graph
    return graphs


def _check_finite(seen: Observation) -> None:
    """Raise unless what the model shows of a training graph is finite; the message names a node where it is not."""
    for name, rows in (("first layer", seen.first), ("embedding", seen.z)):
        if not is_finite(rows):
            node = int((~rows.isfinite()).any(1).nonzero()[0])
            require(
                False,
                f"the model's {name} is not finite on the training graph, first at node {node}; "
                "check the model's weights and the size of this node's features",
            )


@torch.no_grad()
def _card(
    model: nn.Module,
    graphs: list[Data],
    seen: list[Observation],
    maps: list[Tensor],
    keys: list[Tensor],
    taps: Taps,
    embedding: str | None,
    seed: int,
    output: Output,
    task: Task,
) -> SourceCard:
    z_tap = taps.embedding if isinstance(taps.embedding, Tap) else None
    first, z, logits = (_joined([getattr(o, name) for o in seen]) for name in ("first", "z", "logits"))
    nodes = first.size(0)
    order = torch.cat(keys).argsort()
    held_out = torch.cat([_held_out(data) for data in graphs])
    halves, size = Groups(nodes, first.device), 0
    for half in _halves(order, held_out, seed, _members(graphs) if task.per_graph else None):
        halves.add(half)
        size = size or half.numel()
    alike = (
        [] if task.per_graph else graphs
    )  # graphs differ from one another, and random halves of them show by how much
    z_moments = moments(z)
    z_kinds = find_prototypes(z, order, held_out, seed, z_moments)
    temperature = _temperature(logits, graphs) if task.has_node_classes else 1.0
    if task.has_node_classes:
        probability = probabilities(logits, temperature, first.dtype)
    else:  # kinds of nodes take the place of classes
        kinds = nearest_centroid(z, z_kinds.centres, z_moments)
        probability = one_hot(kinds, z_kinds.centres.size(0), first)
    classes = probability.argmax(1)
    counts = one_hot(classes, probability.size(1), z)
    sizes = counts.sum(0).unsqueeze(1)
    centroids = z_kinds.centres.clone()  # the file format refuses two names for one tensor
    if task.has_node_classes:
        blocks = zip(in_blocks(z, counts.size(1)), in_blocks(counts, z.size(1)), strict=True)
        sums = torch.stack([count.t() @ in_units(block, z_moments) for block, count in blocks]).sum(0)
        centroids = (sums / sizes.clamp(min=1)).masked_fill(sizes == 0, torch.nan)
    low = torch.stack([data.x.amin(0) for data in graphs]).amin(0)
    high = torch.stack([data.x.amax(0) for data in graphs]).amax(0)
    rows = torch.cat([row_statistics(data.x, *column_range(low, high)) for data in graphs])
    narrow = _joined([projected(data.x) for data in graphs])
    narrow_moments = moments(narrow)
    empty = rows[:, 0] <= EMPTY_ROW
    row_low, row_high = torch.aminmax(rows[~empty] if not bool(empty.all()) else rows, dim=0)
    whole = moments(first)
    first_kinds = find_prototypes(first, order, held_out, seed, whole)
    hidden = [times(data.x, weight) for data, weight in zip(graphs, maps, strict=True)]
    looked_at = zip(graphs, hidden, keys, strict=True)
    views = torch.cat([edge_views(g.x, u, g.edge_index, _some_edges(g, k)) for g, u, k in looked_at], dim=1)
    grid = grid_of(views)
    fits = fit(views, grid)
    middle = float(fits.median())
    edges = sum(data.edge_index.size(1) for data in graphs)
    pairs, soft_pairs = (_pairs(rows, graphs) / max(1, edges) for rows in (counts, probability))
    return SourceCard(
        column_mean=_column_means(graphs),
        column_min=low,
        column_max=high,
        row_low=row_low,
        row_high=row_high,
        empty_rows=float(empty.double().mean()),
        first_mean=whole.mean,
        first_std=whole.std,
        first_centres=first_kinds.centres,
        first_reach=first_kinds.reach,
        rows_mean=narrow_moments.mean,
        rows_std=narrow_moments.std,
        rows_noise=_noise(narrow, narrow_moments, alike, halves, size),
        z_mean=z_moments.mean,
        z_std=z_moments.std,
        z_centres=z_kinds.centres,
        z_reach=z_kinds.reach,
        centroids=centroids,
        prior=probability.mean(0),
        pairs=pairs,
        soft_pairs=soft_pairs,
        edge_grid=grid,
        edge_middle=middle,
        edge_share=float(fits_well(fits, middle).double().mean()),
        agreement=float((nearest_centroid(z, centroids, z_moments) == classes).double().mean()),
        temperature=temperature,
        noise=_noise(first, whole, alike, halves, size),
        noise_nodes=size,
        nodes=nodes,
        edges_per_node=edges / nodes,
        model=model_digest(model),
        first_layer=taps.first_layer.tap.layer.text,
        first_norm=taps.first_layer.norm,
        z_layer=None if z_tap is None else z_tap.layer.text,
        z_is_output=z_tap is not None and z_tap.output,
        z_tail=[] if z_tap is None else [call.text for call in z_tap.tail],
        embedding=embedding,
        output=output,
        task=str(task),
        moves=list(task.moves),
    )


def _column_means(graphs: list[Data]) -> Tensor:
    """The mean of each feature column over the nodes of all graphs."""
    sums = [torch.stack([widened(block).sum(0) for block in in_blocks(data.x)]).sum(0) for data in graphs]
    mean: Tensor = torch.stack(sums).sum(0) / sum(data.x.size(0) for data in graphs)
    return mean.to(graphs[0].x.dtype)


def _some_edges(data: Data, keys: Tensor) -> Tensor | None:
    """Positions of enough edges for their quantiles, if there are many; the same edges in any order."""
    if data.edge_index.size(1) <= MANY_EDGES:
        return None
    return edges_up_to(data, keys, lowest_of(data, keys, MANY_EDGES)[0][-1])


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _pairs(rows: Tensor, graphs: list[Data]) -> Tensor:
    parts = torch.split(rows, [data.x.size(0) for data in graphs])
    return torch.stack([pairs_of(g, part) for g, part in zip(graphs, parts, strict=True)]).sum(0)


def column_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The range of each column with a margin at both ends."""
    margin = MARGIN * (high - low)
    return low - margin, high + margin


def _mask(data: Data, name: str) -> Tensor | None:
    """A mask of the nodes, the first if there are several columns; a mask of graphs is expanded to their nodes."""
    mask, batch = data.get(name), data.get("batch")
    if mask is None:
        return None
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.size(1) > 0:
        mask = mask[:, 0]
    if isinstance(batch, Tensor) and isinstance(mask, Tensor) and mask.shape == (number_of_graphs(data),):
        mask = mask.to(batch.device)[batch]
    return read_mask(mask, data.x.size(0), name, may_be_empty=True).to(data.x.device)


def _held_out(data: Data) -> Tensor:
    """The nodes that the model was not trained on; none if nothing says which they are."""
    mask = _mask(data, "train_mask")
    return torch.zeros(data.x.size(0), dtype=torch.bool, device=data.x.device) if mask is None else ~mask


def _members(graphs: list[Data]) -> Tensor:
    """The number of each node's graph, if a graph is a batch of several."""
    numbers, start = [], 0
    for data in graphs:
        batch = data.get("batch")
        own = torch.zeros(data.x.size(0), dtype=torch.long, device=data.x.device) if batch is None else batch
        numbers.append(own + start)
        start += number_of_graphs(data)
    return torch.cat(numbers)


def _halves(order: Tensor, held_out: Tensor, seed: int, graph: Tensor | None = None) -> Iterator[Tensor]:
    """Random halves of the nodes that the model was not trained on, or of all nodes where there are none.

    If graphs are predicted, whole graphs are drawn, because nodes of one graph are more alike than those of different
    graphs.

    Args:
        order: The nodes in an order that does not depend on their numbering.
        held_out: Which nodes the model was not trained on.
        seed: Seed of the draws.
        graph: The number of each node's graph, if whole graphs are to be drawn.
    """
    rows = order[held_out[order]]
    rows = order if rows.numel() < 4 else rows
    if graph is not None:
        own = graph[rows]
        place = torch.arange(own.numel(), device=own.device)
        first = torch.full((int(graph.max()) + 1,), own.numel(), device=own.device)
        first = first.scatter_reduce(0, own, place, "amin")  # graphs in an order that does not depend on theirs
        known = first.argsort()[: int((first < own.numel()).sum())]
        if known.numel() > 1:
            chosen = _halves(known, torch.zeros(first.numel(), dtype=torch.bool, device=own.device), seed)
            yield from (rows[torch.isin(own, half)] for half in chosen)
            return
    half = max(1, rows.numel() // 2)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(HALVES):
        yield rows[torch.randperm(rows.numel(), generator=generator).to(rows.device)[:half]]


def _noise(rows: Tensor, whole: Moments, graphs: list[Data], halves: Groups, size: int) -> float:
    """The largest distance of the moments of random halves from those of all.

    With several training graphs, at least the distance of any one of them from the others.
    """
    means, deviations = (part.to(rows.dtype) for part in RowSums.of(rows, halves).moments())
    noise = max(whole.distance(Moments(*half)) for half in zip(means, deviations, strict=True))
    return max(noise, _difference(rows, whole, graphs, noise, size))


def _difference(first: Tensor, whole: Moments, graphs: list[Data], noise: float, nodes: int) -> float:
    """The largest distance of one of several training graphs from the others, beyond what chance makes of it.

    The model has learned to live with such distances, so one of that size is no reason to change a later graph.

    Args:
        first: The first layer of all graphs.
        whole: Its moments.
        graphs: The training graphs.
        noise: The distance that chance makes of so many nodes.
        nodes: How many.
    """
    if len(graphs) < 2:
        return 0.0
    parts = torch.split(first, [data.x.size(0) for data in graphs])
    largest = 0.0
    for part in parts:
        others = 1 - len(part) / len(
            first
        )  # the graphs without this one are farther from it than all graphs including it
        distance, chance = whole.distance(moments(part)) / others, noise * math.sqrt(nodes / len(part))
        largest = max(largest, math.sqrt(max(0.0, distance**2 - chance**2)))
    return largest


def _labels(y: Tensor, mask: Tensor, classes: int) -> Tensor | None:
    """One label per node, from a column of labels or from one-hot rows; ``None`` if nodes have several labels."""
    y = y.double() if y.is_floating_point() else y.long()  # because few operations accept all types of numbers
    if y.size(1) == 1:
        return y[:, 0]
    rows = y[mask]
    is_one_hot = bool(((rows == 0) | (rows == 1)).all()) and bool((rows.sum(1) == 1).all())
    return y.long().argmax(1) if is_one_hot and y.size(1) == classes else None


def _temperature(logits: Tensor, graphs: list[Data]) -> float:
    """The temperature with the lowest negative log-likelihood on labelled validation nodes; 1 where there are none."""
    start, rows, labels = 0, [], []
    classes = probabilities(logits[:1]).size(1)
    for data in graphs:
        mask, y, nodes = _mask(data, "val_mask"), data.get("y"), data.x.size(0)
        if mask is not None and y is not None:
            shape = tuple(getattr(y, "shape", ()))
            require(shape[:1] == (nodes,), f"y must have one row for each of the {nodes} nodes (got shape {shape})")
            label = _labels(y.reshape(nodes, -1), mask, classes)
            if label is None:
                return 1.0
            chosen = (mask & (label >= 0) & (label < classes)).nonzero().view(-1)  # -1 and NaN stand for no label
            rows.append(chosen + start)
            labels.append(label[chosen].long())
        start += nodes
    if sum(map(len, rows)) == 0:
        return 1.0
    of_labelled, y = logits.index_select(0, torch.cat(rows)).double(), torch.cat(labels)
    low, high, number = TEMPERATURES
    grid = torch.logspace(low, high, number, dtype=torch.float64).tolist()
    losses = [F.nll_loss(probabilities(of_labelled, t).clamp(min=1e-12).log(), y) for t in grid]
    return float(grid[int(torch.stack(losses).argmin())])
