"""Simulated shifts: a graph from a graph, as another place or time might have given it; the input is left as it was.

They make a test bench of any labelled graph: what a mender does to a shift of known kind and size. They differ from
corruptions (:class:`~graphmend.transforms.FeatureNoise`) and attacks in that they concern the graph as a whole.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import check_fields, real_number, require, seed_number, shown
from graphmend.files.files import Array
from graphmend.graph.checks import check_features, check_graph
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edits import subgraph, without_edges
from graphmend.outputs import count_classes, read_labels

__all__ = ["SHIFTS", "ColumnShift", "EdgeSubsample", "LabelShift", "MissingColumns"]


@dataclass(frozen=True)
class LabelShift:
    r"""Keep a subsample of the nodes whose classes have other shares, with all edges among them.

    Of class :math:`c` with :math:`n_c` nodes

    .. math:: k_c = \lfloor m \pi_c \rceil, \qquad m = \min_{c: \pi_c > 0} n_c / \pi_c

    random nodes stay, the largest subsample with the shares :math:`\pi`. These are given, or drawn from
    :math:`\mathrm{Dir}(\kappa C \pi^0)`, whose mean are the present shares :math:`\pi^0` of the C classes: the smaller
    :math:`\kappa`, the larger the shift. Neighbourhoods are subsampled with the nodes, and all attributes of nodes and
    edges, masks among them, are carried over.

    Args:
        shares: The shares of all classes, in their order; they are divided by their sum. Drawn when ``None``.
        concentration: :math:`\kappa`.
        seed: Seed of the shares and of the nodes.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.data import LabelShift
        >>> line = torch.stack([torch.arange(7), torch.arange(1, 8)])
        >>> data = Data(x=torch.ones(8, 1), edge_index=line, y=torch.arange(8) % 2)
        >>> LabelShift(shares=(0.75, 0.25))(data).y.bincount()
        tensor([4, 1])
    """

    shares: Sequence[float] | None = None
    _: KW_ONLY
    concentration: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, seed_number, "seed")
        check_fields(self, real_number, "concentration", above=0, hint="1 is a strong shift")
        if self.shares is not None:
            try:
                shares = np.asarray(self.shares, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                shares = np.zeros(0)
            good = shares.ndim == 1 and bool(np.isfinite(shares).all() and (shares >= 0).all() and (shares > 0).any())
            require(
                good, f"shares must not be negative and not all 0 (got {shown(self.shares)}); give a number per class"
            )

    def __call__(self, data: Data) -> Data:
        """The subgraph of the nodes that stay, in their order."""
        data = with_edge_index(data)
        check_graph(data)
        require(data.get("y") is not None, "a label shift needs labels, but the graph has no y; set data.y")
        labels = read_labels(data.y, data.x.size(0))
        classes = count_classes(labels, data.x.size(0))
        y: Array = labels.cpu().numpy()
        rng = np.random.default_rng(self.seed)
        counts = np.bincount(y, minlength=classes)
        wanted = self._shares(counts, rng)
        present = wanted > 0
        size = (counts[present] / wanted[present]).min()
        keep = np.rint(size * wanted).astype(np.int64)
        require(keep.sum() > 0, f"no node is left for the shares {wanted.round(3).tolist()}; ask for present classes")
        chosen = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:count] for c, count in enumerate(keep)])
        mask = torch.zeros(len(y), dtype=torch.bool)
        mask[torch.from_numpy(chosen)] = True
        return subgraph(data, mask.to(data.x.device))

    def _shares(self, counts: Array, rng: np.random.Generator) -> Array:
        classes = len(counts)
        if self.shares is None:
            drawn = np.zeros(classes)
            present = counts > 0
            alpha = self.concentration * present.sum() * counts[present] / counts.sum()
            drawn[present] = rng.dirichlet(alpha)
            return drawn
        given = np.asarray(self.shares, dtype=np.float64)
        require(given.size >= classes, f"shares must name all {classes} classes (got {given.size}); add the others")
        missing = np.flatnonzero(given[classes:] > 0) + classes
        require(missing.size == 0, f"class {missing[:1]} has a share but no node; set its share to 0")
        shares: Array = given[:classes] / given.sum()
        return shares


@dataclass(frozen=True, kw_only=True)
class ColumnShift:
    r"""Stretch and move a random share of the columns of the features, as another sensor or unit would.

    With mean :math:`m_j` and standard deviation :math:`s_j` of column :math:`j`

    .. math:: x'_{ij} = m_j + a_j (x_{ij} - m_j) + b_j s_j, \qquad
              \ln a_j \sim U(-\ln \text{scale}, \ln \text{scale}), \quad b_j \sim U(-\text{offset}, \text{offset}).

    Constant columns stay as they are.

    Args:
        share: Share of the columns, rounded down.
        scale: The largest factor; 1 stretches nothing.
        offset: The largest move, in standard deviations.
        seed: Seed of the columns, the factors and the moves.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.data import ColumnShift
        >>> data = Data(x=torch.arange(8.0).view(4, 2), edge_index=torch.zeros(2, 0, dtype=torch.long))
        >>> (ColumnShift(share=0.5)(data).x != data.x).any(0).sum()
        tensor(1)
    """

    share: float = 0.5
    scale: float = 2.0
    offset: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, real_number, "share", low=0, high=1)
        check_fields(self, real_number, "scale", low=1)
        check_fields(self, real_number, "offset", low=0)
        check_fields(self, seed_number, "seed")

    def __call__(self, data: Data) -> Data:
        """A copy with other features."""
        columns, rng = _columns(data, self.share, self.seed)
        limit = math.log(self.scale)
        draws = rng.uniform(-1.0, 1.0, (2, columns.numel()))
        factor, move = (
            torch.from_numpy(draw).to(data.x) for draw in (np.exp(limit * draws[0]), self.offset * draws[1])
        )
        part: Tensor = data.x[:, columns]
        mean = part.mean(0)
        deviation = (part - mean).square().mean(0).sqrt()
        return _with_columns(
            data, columns, torch.where(deviation > 0, mean + factor * (part - mean) + move * deviation, part)
        )


@dataclass(frozen=True, kw_only=True)
class MissingColumns:
    """Set a random share of the columns of the features to a constant.

    Args:
        share: Share of the columns, rounded down.
        value: The constant.
        seed: Seed of the columns.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.data import MissingColumns
        >>> data = Data(x=torch.ones(2, 4), edge_index=torch.zeros(2, 0, dtype=torch.long))
        >>> MissingColumns(share=0.5)(data).x.sum()
        tensor(4.)
    """

    share: float = 0.2
    value: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, real_number, "share", low=0, high=1)
        check_fields(self, real_number, "value", hint="0 stands for missing words")
        check_fields(self, seed_number, "seed")

    def __call__(self, data: Data) -> Data:
        """A copy with other features."""
        columns, _ = _columns(data, self.share, self.seed)
        largest = torch.finfo(data.x.dtype).max
        require(
            abs(self.value) <= largest, f"value is {self.value}, more than {data.x.dtype} can hold; take a smaller one"
        )
        return _with_columns(data, columns, torch.full_like(data.x[:, columns], self.value))


@dataclass(frozen=True, kw_only=True)
class EdgeSubsample:
    r"""Keep a random share of the edges.

    These are :math:`\lfloor \text{keep} \cdot |E| \rceil` edges. Two nodes that are joined by an edge in each
    direction lose or keep both. Self-loops stay, attributes of edges go with them.

    Args:
        keep: Share of the joined pairs of nodes that stay joined.
        seed: Seed of the pairs.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.data import EdgeSubsample
        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> EdgeSubsample(keep=0.5)(data).num_edges
        2
    """

    keep: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, real_number, "keep", low=0, high=1)
        check_fields(self, seed_number, "seed")

    def __call__(self, data: Data) -> Data:
        """A copy with fewer edges, in their order."""
        data = with_edge_index(data)
        check_graph(data)
        source, target = data.edge_index
        low, high = torch.minimum(source, target), torch.maximum(source, target)
        joined, pair = torch.unique(low * data.x.size(0) + high, return_inverse=True)
        loops = torch.zeros_like(joined, dtype=torch.bool).index_fill(0, pair[source == target], True)
        others = (~loops).nonzero().view(-1)
        order = np.random.default_rng(self.seed).permutation(others.numel())
        count = round(self.keep * others.numel())
        stays = loops.index_fill(0, others[torch.from_numpy(order[:count]).to(others)], True)
        return without_edges(data, stays[pair])


SHIFTS: dict[str, Callable[..., Any]] = {
    "labels": LabelShift,
    "columns": ColumnShift,
    "missing columns": MissingColumns,
    "edges": EdgeSubsample,
}
"""All simulated shifts by name; each can be made without arguments and called with a graph.

Example:
    >>> from graphmend.lab.data import SHIFTS
    >>> list(SHIFTS)
    ['labels', 'columns', 'missing columns', 'edges']
"""


def _columns(data: Data, share: float, seed: int) -> tuple[Tensor, np.random.Generator]:
    """A random share of the columns, and the generator for whatever is drawn next."""
    check_features(data)
    rng = np.random.default_rng(seed)
    width = data.x.size(1)
    chosen = rng.permutation(width)[: math.floor(share * width + 1e-9)]
    return torch.from_numpy(chosen).to(data.x.device), rng


def _with_columns(data: Data, columns: Tensor, values: Tensor) -> Data:
    changed = copy.copy(data)
    changed.x = data.x.index_copy(1, columns, values)
    return changed
