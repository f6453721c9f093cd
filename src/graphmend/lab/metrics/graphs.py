"""What a graph looks like beside the clean one, and how far apart two sets of representations are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require, whole_number

__all__ = ["GraphStats", "central_moment_discrepancy", "cmd", "graph_stats"]

_NUMBERS = 1 << 24  # numbers of both ends of some edges that are compared at a time


@dataclass(frozen=True)
class GraphStats:
    """Statistics of a graph; ``None`` where there is nothing to compute them from.

    Edges are the stored entries: an undirected edge counts twice. An edge of weight 0 is not there.

    Example:
        >>> from graphmend.lab.data import embedded
        >>> from graphmend.lab.metrics import GraphStats, graph_stats
        >>> stats = graph_stats(embedded("wine").test[0])
        >>> isinstance(stats, GraphStats), stats.homophily > 0.8
        (True, True)
    """

    edges: int  #: number of edges
    homophily: float | None  #: share of the edges whose ends have the same label, among those with labels at both ends
    feature_similarity: float | None  #: mean cosine of the features of both ends
    edges_added: int | None = None  #: edges that the clean graph does not have
    edges_removed: int | None = None  #: edges of the clean graph that are not there
    adversarial_removed: float | None = None  #: share of the edges added by an attack that are gone
    clean_removed: float | None = None  #: share of the clean edges that the attack had left and that are gone


@torch.no_grad()
def graph_stats(data: Data, clean: Data | None = None, attacked: Data | None = None) -> GraphStats:
    """Statistics of a graph, alone or beside the clean graph and the attacked graph that it was mended from.

    Args:
        data: The graph. Homophily needs its labels ``y``; a negative label stands for none.
        clean: The same nodes with the edges before an attack.
        attacked: The same nodes with the edges after the attack.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.metrics import graph_stats
        >>> path = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 0, 1]))
        >>> graph_stats(path).homophily
        0.5
    """
    require(attacked is None or clean is not None, "give the clean graph, too: it tells which edges were attacked")
    nodes = data.x.size(0)
    for name, other in {"clean": clean, "attacked": attacked}.items():
        if other is not None:
            require(
                other.x.size(0) == nodes,
                f"the {name} graph has {other.x.size(0)} nodes but the graph {nodes}; give versions of one graph",
            )
    edge_index = _existing(data)
    stats = GraphStats(
        edges=edge_index.size(1),
        homophily=_homophily(edge_index, data.get("y")),
        feature_similarity=_similarity(edge_index, data.x),
    )
    if clean is None:
        return stats
    own, before = _keys(data), _keys(clean)
    stats = replace(stats, edges_added=_missing(own, before), edges_removed=_missing(before, own))
    if attacked is None:
        return stats
    after = _keys(attacked)
    is_clean = torch.isin(after, before)
    return replace(
        stats,
        adversarial_removed=_share_missing(after[~is_clean], own),
        clean_removed=_share_missing(after[is_clean], own),
    )


def _existing(data: Data) -> Tensor:
    weight = data.get("edge_weight")
    edge_index: Tensor = data.edge_index if weight is None else data.edge_index[:, weight != 0]
    return edge_index


def _keys(data: Data) -> Tensor:
    """Each edge as one number, without repetitions, on the CPU."""
    source, target = _existing(data).long().cpu()
    keys: Tensor = torch.unique(source * data.x.size(0) + target)
    return keys


def _missing(keys: Tensor, other: Tensor) -> int:
    return int((~torch.isin(keys, other)).sum())


def _share_missing(keys: Tensor, other: Tensor) -> float | None:
    return _missing(keys, other) / keys.numel() if keys.numel() else None


def _homophily(edge_index: Tensor, y: Tensor | None) -> float | None:
    if y is None:
        return None
    source, target = y.reshape(-1)[edge_index]
    known = (source >= 0) & (target >= 0)
    return float((source == target)[known].double().mean()) if bool(known.any()) else None


def _similarity(edge_index: Tensor, x: Tensor) -> float | None:
    edges = edge_index.size(1)
    if edges == 0:
        return None
    norm = torch.linalg.vector_norm(x.double(), dim=1)
    total, size = 0.0, max(1, _NUMBERS // max(1, x.size(1)))
    for source, target in zip(*(end.split(size) for end in edge_index), strict=True):
        product = torch.linalg.vecdot(x[source].double(), x[target].double())
        lengths = norm[source] * norm[target]
        total += float((product / lengths.masked_fill(lengths == 0, torch.inf)).sum())
    return total / edges


def central_moment_discrepancy(u: Tensor, v: Tensor, moments: int = 5) -> Tensor:
    r"""Central moment discrepancy (Zellinger et al., ICLR 2017), in the version of SR-GNN (Zhu et al., NeurIPS 2021,
    https://arxiv.org/abs/2108.01099), which does not divide by the range of the values.

    .. math:: \mathrm{CMD}(U, V) = \lVert \bar u - \bar v \rVert
              + \sum_{k=2}^{K} \left\lVert \overline{(U - \bar u)^k} - \overline{(V - \bar v)^k} \right\rVert

    with powers entry by entry, means over rows and Euclidean norms. It can be differentiated, as a loss must be;
    :func:`cmd` is the same as a number.

    Args:
        u: One row per node, such as embeddings of the training graph.
        v: One row per node of another graph, as wide as ``u`` and on the same device.
        moments: K, the highest moment.

    Example:
        >>> import torch
        >>> from graphmend.lab.metrics import central_moment_discrepancy
        >>> central_moment_discrepancy(torch.zeros(3, 4), torch.ones(5, 4))
        tensor(2.)
    """
    shapes = f"{tuple(u.shape)} and {tuple(v.shape)}"
    fits = u.dim() == v.dim() == 2 and u.size(1) == v.size(1)
    require(fits, f"cmd compares two matrices with the same number of columns (got {shapes})")
    require(u.size(0) > 0 and v.size(0) > 0, f"cmd needs at least one row in each matrix (got {shapes})")
    moments = whole_number("moments", moments, 1)
    mean_u, mean_v = u.mean(0), v.mean(0)
    distance: Tensor = torch.linalg.vector_norm(mean_u - mean_v)
    power_u, power_v = u, v = u - mean_u, v - mean_v
    for _ in range(moments - 1):
        power_u, power_v = power_u * u, power_v * v
        distance = distance + torch.linalg.vector_norm(power_u.mean(0) - power_v.mean(0))
    return distance


@torch.no_grad()
def cmd(u: Tensor, v: Tensor, moments: int = 5) -> float:
    """:func:`central_moment_discrepancy` as a number, computed in double precision.

    Example:
        >>> import torch
        >>> from graphmend.lab.metrics import cmd
        >>> cmd(torch.zeros(3, 4), torch.ones(5, 4))
        2.0
    """
    return float(central_moment_discrepancy(u.double(), v.double().to(u.device), moments))
