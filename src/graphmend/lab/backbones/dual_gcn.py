"""The network of UDA-GCN: one GCN on the graph and on the graph of what random walks find together."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import cached
from graphmend.engine.propagation import Propagation, gcn_norm
from graphmend.lab.backbones.layers import GraphConvolution, batch_norms, keeps_config

__all__ = ["ppmi_graph"]


class DualGCN(nn.Module):
    r"""One GCN on the graph and on its random-walk graph (Wu et al., WWW 2020, UDA-GCN,
    https://doi.org/10.1145/3366423.3380219).

    The same convolutions encode the graph and its PPMI graph (:func:`ppmi_graph`). Attention over the two encodings
    :math:`H_1, H_2` of each node, :math:`Z = \sum_v \mathrm{softmax}_v(H_v a + b)\, H_v`, is the embedding, and a
    linear map of it the class scores. No gradient flows into the PPMI graph. It is computed once per edge list, or in
    every call when there are edge weights.

    Args:
        in_channels: Columns of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of classes.
        num_layers: Number of convolutions.
        encoding_channels: Width of the embedding.
        batch_norm: Batch normalisation of the hidden layers.
        dropout: Dropout of the hidden layers.
        walks: Random walks per node.
        walk_length: Steps of the longest walks.

    Example:
        >>> import torch
        >>> from graphmend.lab.backbones import DualGCN
        >>> model = DualGCN(8, 128, 3)
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
        encoding_channels: int = 16,
        batch_norm: bool = False,
        dropout: float = 0.0,
        walks: int = 40,
        walk_length: int = 10,
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), encoding_channels]
        self.convs = nn.ModuleList(GraphConvolution(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = batch_norms(num_layers - 1, hidden_channels, batch_norm)
        self.attention = nn.Linear(encoding_channels, 1)
        self.classify = nn.Linear(encoding_channels, out_channels)
        self.encoding_channels, self.dropout = encoding_channels, dropout
        self.walks, self.walk_length = walks, walk_length

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Both encodings of each node, weighted by attention."""
        adjacency = Adjacency.of(edge_index, x.size(0))
        far, weight = self._ppmi(adjacency, edge_index, edge_weight)
        views = (
            gcn_norm(Adjacency.of(far, x.size(0)), weight, x.dtype),
            gcn_norm(adjacency, edge_weight, x.dtype),
        )
        both = torch.stack([self._encode(x, view) for view in views])
        share: Tensor = self.attention(both).softmax(dim=0)
        return (share * both).sum(dim=0)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores."""
        out: Tensor = self.classify(self.embed(x, edge_index, edge_weight))
        return out

    def _encode(self, x: Tensor, propagate: Propagation) -> Tensor:
        *hidden, last = self.convs
        for conv, norm in zip(hidden, self.norms, strict=True):
            assert isinstance(conv, GraphConvolution)
            x = F.dropout(conv.hidden(x, propagate, norm), self.dropout, self.training)
        out: Tensor = last(x, propagate)
        return out

    def _ppmi(self, adjacency: Adjacency, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Tensor, Tensor]:
        key, nodes = ("ppmi", self.walks, self.walk_length), adjacency.num_nodes

        def compute() -> tuple[Tensor, Tensor]:
            return ppmi_graph(edge_index, edge_weight, nodes, walks=self.walks, length=self.walk_length)

        if edge_weight is None:
            return adjacency.derive(key, compute)
        return cached(key, (edge_weight, adjacency.row), compute)


@torch.no_grad()
def ppmi_graph(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, *, walks: int = 40, length: int = 10
) -> tuple[Tensor, Tensor]:
    r"""The edges :math:`b \to a` with a positive :math:`w_{ab}`, and these weights in double precision.

    From every node :math:`a` start ``walks`` random walks of 1 to ``length`` steps. With :math:`f(b \mid a)` the share
    of :math:`b` among the nodes that the walks from :math:`a` visit, the positive pointwise mutual information is

    .. math:: w_{ab} = \max\!\Big(0,\; \log \frac{f(b \mid a)}{\frac1N \sum_{a'} f(b \mid a')}\Big).

    Walks go along edges in both directions, in proportion to their weights. The random numbers are the same in every
    call, so the result is a function of the graph alone.

    Args:
        edge_index: Edges of the graph.
        edge_weight: Their weights; one that is not positive counts as no edge.
        num_nodes: Number of nodes.
        walks: Walks per node.
        length: Steps of the longest walks.
    """
    visits = _visits(_Neighbours(edge_index, edge_weight, num_nodes), walks, length)
    key, count = torch.unique(visits, return_counts=True)
    start, found = key // num_nodes, key % num_nodes

    def per_node(node: Tensor, values: Tensor) -> Tensor:
        return values.new_zeros(num_nodes).index_add_(0, node, values)[node]

    share = count.double()
    share /= per_node(start, share)
    weight = (share * num_nodes / per_node(found, share)).log()
    keep = weight > 0
    return torch.stack([found, start])[:, keep], weight[keep]


class _Neighbours:
    """The neighbours of every node in a row, so that one of them can be drawn by its weight."""

    def __init__(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> None:
        source, target = edge_index.long()
        weight = source.new_ones(source.numel(), dtype=torch.double) if edge_weight is None else edge_weight.double()
        key, order = torch.cat([source * num_nodes + target, target * num_nodes + source]).sort(stable=True)
        self.num_nodes, self.neighbour = num_nodes, key % num_nodes
        self.total = torch.cat([weight, weight]).clamp_(min=0)[order].cumsum(0)
        ends = torch.searchsorted(key // num_nodes, torch.arange(num_nodes + 1, device=key.device))
        self.high = torch.cat([self.total.new_zeros(1), self.total])[ends]

    def step(self, node: Tensor, draw: Tensor) -> Tensor:
        """From each node to the neighbour that a number in [0, 1) falls on."""
        low, high = self.high[node], self.high[node + 1]
        place = torch.searchsorted(self.total, low + draw * (high - low), right=True)
        return self.neighbour[place.clamp_(max=self.total.numel() - 1)]


def _visits(graph: _Neighbours, walks: int, length: int) -> Tensor:
    """Start and visited node of every step of every walk, as one number."""
    generator = torch.Generator().manual_seed(0)
    first = (graph.high.diff() > 0).nonzero().view(-1)  # nodes that a walk can leave

    def draw() -> Tensor:
        numbers = torch.rand(walks, graph.num_nodes, generator=generator, dtype=torch.double).to(first.device)
        return numbers[:, first].view(-1)

    start = node = first.repeat(walks)
    steps = (draw() * length).long() + 1
    visits = []
    for t in range(length):
        node = graph.step(node, draw())
        visits.append((start * graph.num_nodes + node)[steps > t])
    return torch.cat(visits)
