"""SimP-GCN, and its search for the nodes with the most similar features."""

from __future__ import annotations

import itertools
import weakref

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import Propagation, gcn_norm
from graphmend.lab.backbones.layers import batch_norms, keeps_config

__all__ = ["cosine_neighbours"]


class SimilarityConvolution(nn.Module):
    r"""One layer :math:`s (\hat A H + b) + (1 - s)(\hat K H + b) + \gamma\, d\, (H + b)` with :math:`H = X W`.

    Each node weighs its neighbours in the graph against those in the kNN graph :math:`K` by
    :math:`s = \sigma(X w_s + b_s)`, and itself by :math:`d = X w_d + b_d`.
    """

    def __init__(self, in_channels: int, out_channels: int, gamma: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_channels, out_channels)))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.gates = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_channels, 2)))
        self.gate_bias = nn.Parameter(torch.zeros(2))
        self.gamma = gamma

    def forward(self, x: Tensor, graph: Propagation, similar: Propagation) -> Tensor:
        """``graph`` and ``similar`` are the two normalised adjacencies."""
        score, own = (x @ self.gates + self.gate_bias).chunk(2, dim=-1)
        share, h = torch.sigmoid(score), x @ self.weight
        near = share * (graph(h) + self.bias) + (1 - share) * (similar(h) + self.bias)
        return near + self.gamma * own * (h + self.bias)


class SimPGCN(nn.Module):
    r"""Similarity-preserving GCN (Jin et al., WSDM 2021, https://arxiv.org/abs/2011.09643).

    Each layer (:class:`SimilarityConvolution`) mixes the graph with the graph of the ``k`` nearest neighbours by cosine
    of the input features. There is no non-linearity between layers, only normalisation (if asked for) and dropout;
    ``embed`` returns the input of the last layer. The self-supervised loss of the paper, which compares pairs of
    nodes, is left out.

    The kNN graph is a function of the features, computed exactly in O(N²) time and O(N k) memory, once per feature
    tensor. No gradient flows through the choice of neighbours.

    Args:
        in_channels: Columns of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of classes.
        num_layers: Number of layers.
        k: Nearest neighbours.
        gamma: Weight of a node's own features.
        batch_norm: Batch normalisation of the hidden layers.
        dropout: Dropout of the hidden layers.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import SimPGCN
        >>> model = SimPGCN(8, 16, 3)
        >>> model(torch.rand(4, 8), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 3])
    """

    @keeps_config
    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        k: int = 20,
        gamma: float = 0.1,
        batch_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(SimilarityConvolution(a, b, gamma) for a, b in itertools.pairwise(sizes))
        self.norms = batch_norms(num_layers - 1, hidden_channels, batch_norm)
        self.k, self.dropout = k, dropout

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The representation before the last layer."""
        return self._embed(x, *self._graphs(x, edge_index, edge_weight))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        graphs = self._graphs(x, edge_index, edge_weight)
        out: Tensor = self.convs[-1](self._embed(x, *graphs), *graphs)
        return out

    def _embed(self, x: Tensor, graph: Propagation, similar: Propagation) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = F.dropout(norm(conv(x, graph, similar)), self.dropout, self.training)
        return x

    def _graphs(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Propagation, Propagation]:
        similar = Adjacency.of(cosine_neighbours(x, self.k), x.size(0))
        return gcn_norm(Adjacency.of(edge_index, x.size(0)), edge_weight, x.dtype), gcn_norm(similar, None, x.dtype)


_BLOCK = 2**24  # similarities at a time
_Entry = tuple["weakref.ref[Tensor]", Tensor, Tensor]
_CACHE: dict[tuple[int, int], _Entry] = {}


@torch.no_grad()
def cosine_neighbours(x: Tensor, k: int) -> Tensor:
    """Edges into every node from the ``k`` others whose features have the highest cosine with its own, exactly.

    A node is no neighbour of nodes with a cosine of 0 or less. The result is kept as long as the tensor ``x`` lives,
    and used again if its content is still the same.

    Args:
        x: Features ``(N, F)``.
        k: Neighbours per node; with fewer other nodes, all of them.

    Example:
        >>> cosine_neighbours(torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]]), 1)
        tensor([[1, 0, 1],
                [0, 1, 2]])
    """
    cache, key = _CACHE, (id(x), k)
    if key in cache:
        owner, content, edges = cache[key]
        if owner() is x and torch.equal(content, x):
            return edges
    edges = _search(x, k)
    content = x.detach().clone()
    cache[key] = (weakref.ref(x, lambda _: cache.pop(key, None)), content, edges)
    return edges


def _search(x: Tensor, k: int) -> Tensor:
    nodes = x.size(0)
    k = min(k, nodes - 1)
    unit = F.normalize(x.detach())
    source, target = [], []
    for rows in torch.split(torch.arange(nodes, device=x.device), max(1, _BLOCK // nodes)):
        cosine = unit[rows] @ unit.t()
        cosine[torch.arange(rows.numel(), device=x.device), rows] = -1.0
        value, near = cosine.topk(k, dim=1)
        keep = value > 0
        source.append(near[keep])
        target.append(rows.unsqueeze(1).expand_as(near)[keep])
    return torch.stack([torch.cat(source), torch.cat(target)])
