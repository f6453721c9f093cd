"""Transforms: ``Data -> Data``; the input is left as it was.

Views drop edges by giving them weight 0, which every model under GraphMend treats as no edge at all; so the sparse
structure of a graph is built only once. Their randomness comes from the generator passed in. ``Jaccard`` removes
suspicious edges. Corruptions and attacks are in the lab: :mod:`graphmend.lab.data`, :mod:`graphmend.lab.attacks`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import View
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.shared_features import scaled_rows, shuffled
from graphmend.errors import among, at_least, choose, read_fields, require, within
from graphmend.graph.checks import check_graph
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edits import without_edges

__all__ = [
    "PURIFIERS",
    "VIEWS",
    "DropEdge",
    "DropNode",
    "Jaccard",
    "Shuffle",
    "Subgraph",
    "View",
    "edge_similarity",
    "view_of",
    "with_edges",
]

KINDS = ("auto", "cosine", "jaccard")
CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class DropEdge:
    """Drop every stored edge entry independently with probability ``p`` (Rong et al., ICLR 2020).

    The two directions of an undirected edge are dropped independently and the others are not rescaled.

    Example:
        >>> import torch
        >>> from graphmend.transforms import DropEdge
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> DropEdge(1.0)(data).edge_weight
        tensor([0., 0.])
    """

    p: Annotated[float, within(0, 1)] = 0.5

    def __post_init__(self) -> None:
        read_fields(self)

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy with a fresh random set of edges."""
        data = with_edge_index(data)
        draw = torch.rand(data.edge_index.size(1), generator=generator, device=data.x.device)
        return with_edges(data, draw >= self.p)


@dataclass(frozen=True)
class DropNode:
    """Set the features of each node to zero with probability ``p``; its edges stay, as in the released GTrans code.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce()
        >>> from graphmend.transforms import DropNode
        >>> view = DropNode(0.5)(data, torch.Generator().manual_seed(0))
        >>> blank = (view.x == 0).all(1)
        >>> view.num_nodes, 0 < int(blank.sum()) < 20
        (20, True)
    """

    p: Annotated[float, within(0, 1)] = 0.05

    def __post_init__(self) -> None:
        read_fields(self)

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy with some nodes blank."""
        keep = torch.rand(data.x.size(0), generator=generator, device=data.x.device) >= self.p
        out = copy.copy(data)
        out.x = scaled_rows(data.x, keep.to(data.x.dtype).unsqueeze(-1))
        return out


@dataclass(frozen=True)
class Shuffle:
    """Permute the feature rows over the nodes (Veličković et al., "Deep Graph Infomax", ICLR 2019).

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce()
        >>> from graphmend.transforms import Shuffle
        >>> view = Shuffle()(data, torch.Generator().manual_seed(0))
        >>> torch.equal(view.edge_index, data.edge_index), torch.equal(view.x.sort(0).values, data.x.sort(0).values)
        (True, True)
    """

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy in which every node has the features of a random other one."""
        order = torch.randperm(data.x.size(0), generator=generator, device=data.x.device)
        out = copy.copy(data)
        out.x = shuffled(data.x, order)
        return out


@dataclass(frozen=True)
class Subgraph:
    """Keep the edges between nodes that random walks have visited; all nodes and features stay.

    Args:
        starts: Number of random start nodes, with repetition (at most the number of nodes).
        length: Steps of each walk along the direction of edges; a walk stays at a node without outgoing edges.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce()
        >>> from graphmend.transforms import Subgraph
        >>> view = Subgraph(starts=2, length=3)(data, torch.Generator().manual_seed(0))
        >>> view.num_nodes, 0 < float(view.edge_weight.mean()) < 1
        (20, True)
    """

    starts: Annotated[int, at_least(1)] = 1000
    length: int = 10

    def __post_init__(self) -> None:
        read_fields(self)

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy with the walked subgraph's edges."""
        data = with_edge_index(data)
        nodes, device = data.x.size(0), data.x.device
        first, targets = _out_edges(data)
        count = first[1:] - first[:-1]
        here = torch.randint(nodes, (min(self.starts, nodes),), generator=generator, device=device)
        visited = torch.zeros(nodes, dtype=torch.bool, device=device)
        visited[here] = True
        for _ in range(self.length if targets.numel() else 0):
            draw = torch.rand(here.numel(), generator=generator, device=device, dtype=torch.float64)
            stuck = count[here] == 0
            step = (draw * count[here]).long() + first[here]
            here = torch.where(stuck, here, targets[step.clamp(max=targets.numel() - 1)])
            visited[here] = True
        source, target = data.edge_index
        return with_edges(data, visited[source] & visited[target])


def _out_edges(data: Data) -> tuple[Tensor, Tensor]:
    """Offsets and targets of the outgoing edges of each node, those of weight 0 left out."""
    adjacency = Adjacency.of(data.edge_index, data.x.size(0))
    first, targets = adjacency.transpose.crow.long(), adjacency.transpose.col.long()
    weight = data.get("edge_weight")
    if weight is None:
        return first, targets
    exists = adjacency.order(weight.detach())[adjacency.tperm] != 0
    position = torch.nn.functional.pad(exists.cumsum(0), (1, 0))
    return position[first], targets[exists]


def with_edges(data: Data, keep: Tensor) -> Data:
    """A copy of ``data`` in which only the edges marked in ``keep`` are left, the others having weight 0.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce()
        >>> from graphmend.transforms import with_edges
        >>> with_edges(data, torch.arange(data.num_edges) < 25).edge_weight.sum()
        tensor(25.)
    """
    out = copy.copy(data)
    weight = data.get("edge_weight")
    out.edge_weight = keep.to(data.x.dtype) if weight is None else weight * keep
    return out


@dataclass(frozen=True)
class Jaccard:
    r"""Drop the edges whose ends have a similarity below ``threshold`` (Wu et al., IJCAI 2019, "GCN-Jaccard").

    .. math:: J_{ij} = \frac{|x_i \cap x_j|}{|x_i \cup x_j|} \quad\text{for binary features,}\qquad
              C_{ij} = \frac{x_i^\top x_j}{\lVert x_i \rVert \lVert x_j \rVert + 10^{-8}} \quad\text{for others.}

    Attacks mostly connect nodes that have little in common. Self-loops stay. The input is left as it was.

    Args:
        threshold: Edges below it are removed. The released GTrans code uses 0.8 (cosine) for OGB-Arxiv; for binary
            features 0.01 is usual, which keeps every edge whose ends have a feature in common.
        kind: ``"jaccard"``, ``"cosine"``, or ``"auto"``: Jaccard if all features are 0 or 1.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.transforms import Jaccard
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> data = Data(x=x, edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> Jaccard(0.5)(data).edge_index
        tensor([[0, 1],
                [1, 0]])
    """

    threshold: Annotated[float, within(-1, 1)] = 0.01
    kind: Annotated[str, among(KINDS)] = "auto"

    def __post_init__(self) -> None:
        read_fields(self)

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` without the edges between dissimilar nodes and without their attributes."""
        data = with_edge_index(data)
        check_graph(data)
        source, target = data.edge_index
        return without_edges(data, (source == target) | (edge_similarity(data, self.kind) >= self.threshold))


@torch.no_grad()
def edge_similarity(data: Data, kind: str = "auto", *, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
    """Similarity of the features at the two ends of each edge, computed in chunks of bounded memory.

    Args:
        data: The graph.
        kind: As in :class:`Jaccard`.
        chunk_bytes: Memory of each of the two feature matrices that are gathered at a time.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.transforms import edge_similarity
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> edge_similarity(Data(x=x, edge_index=torch.tensor([[0, 1], [1, 2]])))
        tensor([1., 0.])
    """
    x: Tensor = data.x.detach()
    binary = kind != "cosine" and bool(((x == 0) | (x == 1)).all())
    require(kind != "jaccard" or binary, "Jaccard similarity needs features of 0 and 1; use kind='cosine'")
    size = x.sum(1) if binary else torch.linalg.vector_norm(x, dim=1)
    chunk = max(1, chunk_bytes // (x.size(1) * x.element_size()))
    parts = []
    for source, target in zip(*(end.split(chunk) for end in data.edge_index), strict=True):
        shared = (x.index_select(0, source) * x.index_select(0, target)).sum(1)
        a, b = size[source], size[target]
        parts.append(shared / (a + b - shared).clamp(min=1) if binary else shared / (a * b + 1e-8))
    return torch.cat(parts)


VIEWS: dict[str, type[View]] = {
    "drop_edge": DropEdge,
    "drop_node": DropNode,
    "shuffle": Shuffle,
    "subgraph": Subgraph,
}
"""Every view by the name that options take.

Example:
    >>> from graphmend.transforms import VIEWS
    >>> list(VIEWS)
    ['drop_edge', 'drop_node', 'shuffle', 'subgraph']
"""
PURIFIERS: dict[str, type[Jaccard]] = {"jaccard": Jaccard}
"""Every transform that removes edges, by name.

Example:
    >>> from graphmend.transforms import PURIFIERS
    >>> list(PURIFIERS)
    ['jaccard']
"""


def view_of(name: str) -> View:
    """A view with its default arguments, by name.

    Example:
        >>> from graphmend.transforms import view_of
        >>> view_of("drop_edge")
        DropEdge(p=0.5)
    """
    return choose("view", name, VIEWS)()
