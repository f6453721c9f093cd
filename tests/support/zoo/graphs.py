"""What the graphs of the zoo have beside features and edges."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
from torch_geometric.utils import degree

from support.gate_cases import planted

WALK, EDGE_DIM, TYPES, PIECES = 6, 3, 3, 8


def plain(data: Data) -> Data:
    return data


def edge_weight(data: Data) -> Data:
    """A weight per undirected edge."""
    low, high = data.edge_index.amin(0), data.edge_index.amax(0)
    data.edge_weight = 0.5 + ((low * 31 + high * 17) % 101) / 101
    return data


def edge_attr(data: Data) -> Data:
    """How the features of both ends differ, in a few numbers."""
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(data.x.size(1), EDGE_DIM, generator=generator) / 4
    source, target = data.edge_index
    data.edge_attr = ((data.x[source] - data.x[target]) @ projection).tanh()
    return data


def pseudo_coordinates(data: Data) -> Data:
    """Degrees of both ends, as MoNet has them."""
    inverse = degree(data.edge_index[0], data.x.size(0)).clamp(min=1).rsqrt()
    data.edge_attr = inverse[data.edge_index].t().contiguous()
    return data


def edge_type(data: Data) -> Data:
    data.edge_type = data.edge_index.sum(0) % TYPES
    return data


def edge_type_and_attr(data: Data) -> Data:
    return edge_type(edge_attr(data))


def one_batch(data: Data) -> Data:
    """The vector that says all nodes are of one graph."""
    data.batch = torch.zeros(data.x.size(0), dtype=torch.long)
    return data


def pieces(data: Data) -> Data:
    """Several graphs in one, without the edges between them."""
    data.batch = torch.arange(data.x.size(0)) * PIECES // data.x.size(0)
    source, target = data.edge_index
    data.edge_index = data.edge_index[:, data.batch[source] == data.batch[target]]
    return data


def pieces_with_attr(data: Data) -> Data:
    return edge_attr(pieces(data))


def random_walk(data: Data) -> Data:
    return one_batch(AddRandomWalkPE(walk_length=WALK, attr_name="pe")(data))


def random_walk_and_attr(data: Data) -> Data:
    return random_walk(edge_attr(data))


def laplacian(data: Data) -> Data:
    torch.manual_seed(0)
    return AddLaplacianEigenvectorPE(k=WALK, attr_name="laplacian_eigenvector_pe", is_undirected=True)(data)


def node_ids(data: Data) -> Data:
    data.node_id = torch.arange(data.x.size(0))
    return data


def node_kinds(data: Data) -> Data:
    """A kind for each node, by its degree."""
    data.node_type = degree(data.edge_index[1], data.x.size(0)).long().clamp(max=5)
    return data


def positions(data: Data) -> Data:
    generator = torch.Generator().manual_seed(0)
    data.pos = data.x @ torch.randn(data.x.size(1), 3, generator=generator) / 4
    return data


def positions_in_one_batch(data: Data) -> Data:
    return one_batch(positions(data))


def pairs_to_score(data: Data) -> Data:
    """Pairs of nodes that a link predictor is asked about."""
    data.edge_label_index = data.edge_index[:, ::7].contiguous()
    return data


def two_signs(data: Data) -> Data:
    """Every third edge says that its ends disagree."""
    negative = data.edge_index.sum(0) % 3 == 0
    data.neg_edge_index = data.edge_index[:, negative]
    data.edge_index = data.edge_index[:, ~negative]
    return data


def series(data: Data) -> Data:
    """Features of three time steps."""
    data.x = torch.stack([data.x, 0.9 * data.x, 1.1 * data.x], dim=-1)
    return data


def labels_to_spread(data: Data) -> Data:
    data.label_mask = data.train_mask
    return data


def degree_histogram(data: Data) -> Tensor:
    return torch.bincount(degree(data.edge_index[1], data.x.size(0)).long())


def training_graph() -> Data:
    return planted(0)
