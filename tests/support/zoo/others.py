"""Models of other tasks, of other inputs, and models that cannot be called with a graph."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from support.gate_cases import CLASSES, IN, N
from support.zoo.graphs import EDGE_DIM, training_graph

HID = 16


class MLP(nn.Module):
    """The baseline of the tutorial: no edges at all."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(IN, HID), nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor) -> Any:
        return self.lin2(F.dropout(self.lin1(x).relu(), training=self.training))


class GlobalGraph(nn.Module):
    """Reads a graph of the script it was written in."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(IN, CLASSES)

    def forward(self) -> Any:
        data = training_graph()
        return self.conv(data.x, data.edge_index)


class SIGN(nn.Module):
    """Takes a list of features that were propagated beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.lins, self.out = nn.ModuleList([nn.Linear(IN, HID) for _ in range(3)]), nn.Linear(3 * HID, CLASSES)

    def forward(self, xs: list[Tensor]) -> Any:
        return self.out(torch.cat([lin(x).relu() for lin, x in zip(self.lins, xs, strict=True)], dim=-1))


class LinkPredictor(nn.Module):
    """An encoder and a decoder, and no forward."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, HID)

    def encode(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)

    def decode(self, z: Tensor, edge_label_index: Tensor) -> Any:
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


class LinkScores(LinkPredictor):
    """Scores pairs of nodes."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Any:
        return self.decode(self.encode(x, edge_index), edge_label_index)


class VariationalEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv_mu, self.conv_logstd = (pyg.GCNConv(*size) for size in ((IN, 32), (32, HID), (32, HID)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.conv1(x, edge_index).relu()
        return self.conv_mu(x, edge_index), self.conv_logstd(x, edge_index)


def infomax() -> nn.Module:
    return pyg.DeepGraphInfomax(
        hidden_channels=HID,
        encoder=pyg.GCN(IN, HID, num_layers=1),
        summary=lambda z, *args, **kwargs: z.mean(dim=0).sigmoid(),
        corruption=lambda x, edge_index: (x[torch.randperm(x.size(0))], edge_index),
    )


class MoleculeGIN(nn.Module):
    """Sums over nodes, then a class per graph."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn = pyg.GIN(IN, HID, num_layers=3, dropout=0.2)
        self.classifier = pyg.MLP([HID, HID, CLASSES], norm="batch_norm", dropout=0.2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.classifier(pyg.global_add_pool(self.gnn(x, edge_index), batch))


class TopK(nn.Module):
    """Keeps the best nodes, then reads the graph out."""

    def __init__(self, pool: Any = pyg.TopKPooling) -> None:
        super().__init__()
        self.conv1, self.pool1, self.lin = pyg.GraphConv(IN, HID), pool(HID, ratio=0.8), nn.Linear(2 * HID, CLASSES)

    def forward(self, data: Data) -> Any:
        x = self.conv1(data.x, data.edge_index).relu()
        x, _, _, batch, *_ = self.pool1(x, data.edge_index, None, data.batch)
        return self.lin(torch.cat([pyg.global_max_pool(x, batch), pyg.global_mean_pool(x, batch)], dim=1))


class DiffPool(nn.Module):
    """Works on dense adjacency matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.lin = pyg.DenseSAGEConv(IN, HID), nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor | None = None) -> Any:
        return self.lin(self.conv1(x, adj, mask).relu().mean(dim=1))


class MoleculeMPNN(nn.Module):
    """Set2Set readout, one number per molecule."""

    def __init__(self) -> None:
        super().__init__()
        self.lin0, self.lin1 = nn.Linear(IN, HID), nn.Linear(2 * HID, 1)
        self.conv = pyg.NNConv(HID, HID, nn.Linear(EDGE_DIM, HID * HID), aggr="mean")
        self.set2set = pyg.aggr.Set2Set(HID, processing_steps=2)

    def forward(self, data: Data) -> Any:
        out = self.conv(self.lin0(data.x).relu(), data.edge_index, data.edge_attr).relu()
        return self.lin1(self.set2set(out, data.batch)).view(-1)


class SEAL(nn.Module):
    """Sorts the nodes of an enclosing subgraph and reads them with convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(IN, HID), pyg.GCNConv(HID, HID), pyg.GCNConv(HID, 1)])
        self.pool, self.conv1 = pyg.SortAggregation(k=10), nn.Conv1d(1, 4, 2 * HID + 1, 2 * HID + 1)
        self.mlp = pyg.MLP([40, HID, 1], dropout=0.2, norm=None)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        xs = [x]
        for conv in self.convs:
            xs.append(conv(xs[-1], edge_index).tanh())
        x = self.pool(torch.cat(xs[1:], dim=-1), batch).unsqueeze(1)
        return self.mlp(self.conv1(x).relu().flatten(1))


class ShaDow(nn.Module):
    """One row per root of a subgraph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.lin = pyg.SAGEConv(IN, HID), nn.Linear(2 * HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, root_n_id: Tensor) -> Any:
        x = self.conv1(x, edge_index).relu()
        return self.lin(torch.cat([x[root_n_id], pyg.global_mean_pool(x, batch)], dim=-1))


class Series(nn.Module):
    """Features of several time steps, ``(nodes, columns, steps)``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = pyg.GCNConv(IN, HID), nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.head(torch.stack([self.conv(x[..., t], edge_index) for t in range(x.size(-1))]).mean(0).relu())


class HGT(nn.Module):
    """Attention between kinds of nodes, by dictionaries."""

    def __init__(self, graph: HeteroData) -> None:
        super().__init__()
        self.lin_dict = nn.ModuleDict({kind: nn.Linear(IN, HID) for kind in graph.node_types})
        self.conv, self.lin = pyg.HGTConv(HID, HID, graph.metadata(), heads=2), nn.Linear(HID, CLASSES)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        x_dict = {kind: self.lin_dict[kind](x).relu() for kind, x in x_dict.items()}
        return self.lin(self.conv(x_dict, edge_index_dict)["paper"])


def two_kinds(data: Data) -> HeteroData:
    """Half of the nodes are papers, half are authors."""
    graph, half = HeteroData(), data.x.size(0) // 2
    graph["paper"].x, graph["author"].x = data.x[:half], data.x[half:]
    graph["paper"].y, graph["paper"].train_mask = data.y[:half], data.train_mask[:half]
    source, target = data.edge_index
    written, cites = (source >= half) & (target < half), (source < half) & (target < half)
    graph["author", "writes", "paper"].edge_index = torch.stack([source[written] - half, target[written]])
    graph["paper", "rev_writes", "author"].edge_index = torch.stack([target[written], source[written] - half])
    graph["paper", "cites", "paper"].edge_index = data.edge_index[:, cites]
    return graph


def converted(graph: HeteroData) -> nn.Module:
    """A model of one kind of nodes, made into one of several."""
    return pyg.to_hetero(pyg.GraphSAGE(IN, HID, num_layers=2, out_channels=CLASSES), graph.metadata())


class WalkEmbedding(nn.Module):
    """A learned vector per node, looked up; random walks train it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N, HID)

    def forward(self, batch: Tensor | None = None) -> Any:
        return self.embedding.weight if batch is None else self.embedding(batch)


class Memory(nn.Module):
    """The memory of a temporal network, read by node numbers and updated by events."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(N, HID))
        self.gru = nn.GRUCell(HID, HID)

    def forward(self, n_id: Tensor) -> Any:
        return self.gru(self.memory[n_id], self.memory[n_id]), n_id
