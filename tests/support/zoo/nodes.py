"""Node classifiers, as the examples of PyG and its tutorials write theirs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from support.gate_cases import CLASSES, IN, N
from support.zoo.graphs import EDGE_DIM, TYPES, WALK

HID = 16


class GCN(nn.Module):
    """Dropout in front of both layers, the normalisation kept from the first run."""

    def __init__(self, cached: bool = False) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(IN, HID, cached=cached)
        self.conv2 = pyg.GCNConv(HID, CLASSES, cached=cached)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


class TutorialGCN(nn.Module):
    """Takes the whole graph and returns log-probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, CLASSES)

    def forward(self, data: Data) -> Any:
        x, edge_index = data.x, data.edge_index
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


class GAT(nn.Module):
    """Eight heads, joined in the first layer and averaged in the second."""

    def __init__(self, conv: Any = pyg.GATConv) -> None:
        super().__init__()
        self.conv1 = conv(IN, 4, heads=4, dropout=0.2)
        self.conv2 = conv(16, CLASSES, heads=2, concat=False, dropout=0.2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = F.dropout(x, p=0.2, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        return self.conv2(F.dropout(x, p=0.2, training=self.training), edge_index)


class DeepGAT(nn.Module):
    """Attention with linear skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.lin1 = pyg.GATConv(IN, 8, heads=2), nn.Linear(IN, 16)
        self.conv2, self.lin2 = pyg.GATConv(16, CLASSES, heads=2, concat=False), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = F.elu(self.conv1(x, edge_index) + self.lin1(x))
        return self.conv2(x, edge_index) + self.lin2(x)


class EdgeGAT(nn.Module):
    """Attention that looks at edge attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GATv2Conv(IN, 8, heads=2, edge_dim=EDGE_DIM)
        self.conv2 = pyg.GATv2Conv(16, CLASSES, edge_dim=EDGE_DIM)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        return self.conv2(self.conv1(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class SAGE(nn.Module):
    """Any number of layers in a list, and a loop over them; one more method for inference in batches."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(IN, HID), pyg.SAGEConv(HID, CLASSES)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = F.dropout(x.relu(), p=0.5, training=self.training)
        return x

    @torch.no_grad()
    def inference(self, x_all: Tensor, loader: Any) -> Tensor:
        for conv in self.convs:
            x_all = torch.cat([conv(x_all, batch.edge_index) for batch in loader])
        return x_all


class OGB(nn.Module):
    """Batch normalisation between layers; the edges are called ``adj_t``, as where they are a sparse matrix."""

    def __init__(self, conv: Any = pyg.GCNConv) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(IN, HID), conv(HID, HID), conv(HID, CLASSES)])
        self.bns = nn.ModuleList([nn.BatchNorm1d(HID), nn.BatchNorm1d(HID)])

    def reset_parameters(self) -> None:
        for module in (*self.convs, *self.bns):
            module.reset_parameters()

    def forward(self, x: Tensor, adj_t: Tensor) -> Any:
        for conv, bn in zip(self.convs[:-1], self.bns, strict=True):
            x = F.dropout(bn(conv(x, adj_t)).relu(), p=0.2, training=self.training)
        return self.convs[-1](x, adj_t).log_softmax(dim=-1)


class GCN2(nn.Module):
    """Initial residuals and identity maps."""

    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(IN, HID), nn.Linear(HID, CLASSES)])
        self.convs = nn.ModuleList([pyg.GCN2Conv(HID, 0.1, 0.5, layer + 1) for layer in range(4)])

    def forward(self, x: Tensor, adj_t: Tensor) -> Any:
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(F.dropout(x, 0.2, training=self.training), x_0, adj_t).relu()
        return self.lins[1](x)


class APPNP(nn.Module):
    """A perceptron, then propagation."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2, self.prop1 = nn.Linear(IN, HID), nn.Linear(HID, CLASSES), pyg.APPNP(10, 0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = F.dropout(x, training=self.training)
        x = F.dropout(self.lin1(x).relu(), training=self.training)
        return F.log_softmax(self.prop1(self.lin2(x), edge_index), dim=1)


class SGC(nn.Module):
    """One linear layer on features that were propagated."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.SGConv(IN, CLASSES, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return F.log_softmax(self.conv1(x, edge_index), dim=1)


class TwoLayers(nn.Module):
    """Two convolutions of a kind."""

    def __init__(self, conv1: nn.Module, conv2: nn.Module) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv1, conv2

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = F.dropout(F.relu(self.conv1(x, edge_index)), training=self.training, p=0.2)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


class SuperGAT(nn.Module):
    """Returns the loss of its attention beside the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.SuperGATConv(IN, 8, heads=2, is_undirected=True)
        self.conv2 = pyg.SuperGATConv(16, CLASSES, heads=2, concat=False, is_undirected=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = F.elu(self.conv1(x, edge_index))
        loss = self.conv1.get_attention_loss() if self.training else x.new_zeros(())
        x = self.conv2(x, edge_index)
        return F.log_softmax(x, dim=-1), loss


class GIN(nn.Module):
    """Perceptrons with batch normalisation inside the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GINConv(pyg.MLP([IN, HID, HID]), train_eps=True)
        self.conv2 = pyg.GINConv(nn.Sequential(nn.Linear(HID, HID), nn.BatchNorm1d(HID), nn.ReLU()), train_eps=True)
        self.lin = nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.lin(self.conv2(self.conv1(x, edge_index).relu(), edge_index))


class JumpingKnowledge(nn.Module):
    """All layers' outputs side by side."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.SAGEConv(IN, HID), pyg.SAGEConv(HID, HID)
        self.jump = pyg.JumpingKnowledge(mode, channels=HID, num_layers=2)
        self.lin = nn.Linear(2 * HID if mode == "cat" else HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x1 = self.conv1(x, edge_index).relu()
        x2 = self.conv2(x1, edge_index).relu()
        return self.lin(self.jump([x1, x2]))


class DNA(nn.Module):
    """Every layer attends to the outputs of all layers before it."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(IN, HID), nn.Linear(HID, CLASSES)
        self.convs = nn.ModuleList([pyg.DNAConv(HID, heads=2, groups=2), pyg.DNAConv(HID, heads=2, groups=2)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x_all = self.lin1(x).relu().view(-1, 1, HID)
        for conv in self.convs:
            x_all = torch.cat([x_all, conv(x_all, edge_index).relu().view(-1, 1, HID)], dim=1)
        return torch.log_softmax(self.lin2(x_all[:, -1]), dim=1)


class AGNN(nn.Module):
    """Linear maps around attention without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.prop1, self.lin2 = nn.Linear(IN, HID), pyg.AGNNConv(), nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.lin2(self.prop1(self.lin1(x).relu(), edge_index))


class RGCN(nn.Module):
    """Convolutions by the type of the edge."""

    def __init__(self, conv: Any = pyg.RGCNConv) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(IN, HID, TYPES), conv(HID, CLASSES, TYPES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Any:
        return self.conv2(self.conv1(x, edge_index, edge_type).relu(), edge_index, edge_type)


class EntityRGCN(nn.Module):
    """Learns what the nodes are and takes no features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.RGCNConv(N, HID, TYPES, num_bases=2)
        self.conv2 = pyg.RGCNConv(HID, CLASSES, TYPES, num_bases=2)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Any:
        return self.conv2(self.conv1(None, edge_index, edge_type).relu(), edge_index, edge_type)


class UniMP(nn.Module):
    """Spreads known labels together with the features."""

    def __init__(self) -> None:
        super().__init__()
        self.label = pyg.MaskLabel(CLASSES, IN)
        self.conv = pyg.TransformerConv(IN, CLASSES, heads=2, concat=False)

    def forward(self, x: Tensor, y: Tensor, edge_index: Tensor, label_mask: Tensor) -> Any:
        return self.conv(self.label(x, y, label_mask), edge_index)


class GraphTransformer(nn.Module):
    """Gated skip connections and layer normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.TransformerConv(IN, 8, heads=2, beta=True)
        self.norm = nn.LayerNorm(16)
        self.conv2 = pyg.TransformerConv(16, CLASSES, heads=2, beta=True, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv2(self.norm(self.conv1(x, edge_index)).relu(), edge_index)


class PNA(nn.Module):
    """Several aggregations, scaled by degree."""

    def __init__(self, deg: Tensor) -> None:
        super().__init__()
        options: dict[str, Any] = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
        self.lin = nn.Linear(IN, HID)
        self.conv, self.norm = pyg.PNAConv(HID, HID, deg=deg, edge_dim=EDGE_DIM, **options), pyg.BatchNorm(HID)
        self.mlp = nn.Sequential(nn.Linear(HID, HID), nn.ReLU(), nn.Linear(HID, CLASSES))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        x = self.lin(x)
        return self.mlp(self.norm(self.conv(x, edge_index, edge_attr)).relu())


class GPS(nn.Module):
    """Positional encodings joined with the features, local layers and global attention."""

    def __init__(self, attn_type: str = "multihead", edges: bool = False) -> None:
        super().__init__()
        self.node_emb, self.pe_norm, self.pe_lin = nn.Linear(IN, 12), nn.BatchNorm1d(WALK), nn.Linear(WALK, 4)
        self.edge_emb = nn.Linear(EDGE_DIM, HID) if edges else None
        mlp = nn.Sequential(nn.Linear(HID, HID), nn.ReLU(), nn.Linear(HID, HID))
        conv = pyg.GINEConv(mlp) if edges else pyg.GINConv(mlp)
        self.convs = nn.ModuleList([pyg.GPSConv(HID, conv, heads=2, attn_type=attn_type)])
        self.mlp = nn.Sequential(nn.Linear(HID, HID), nn.ReLU(), nn.Linear(HID, CLASSES))

    def embedded(self, x: Tensor, pe: Tensor) -> Tensor:
        return torch.cat([self.node_emb(x), self.pe_lin(self.pe_norm(pe))], dim=1)


class NodeGPS(GPS):
    def forward(self, x: Tensor, pe: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        x = self.embedded(x, pe)
        for conv in self.convs:
            x = conv(x, edge_index, batch)
        return self.mlp(x)


class EdgeGPS(GPS):
    def forward(self, x: Tensor, pe: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Any:
        x, edge_attr = self.embedded(x, pe), self.edge_emb(edge_attr)
        for conv in self.convs:
            x = conv(x, edge_index, batch, edge_attr=edge_attr)
        return self.mlp(x)


class WithLaplacian(nn.Module):
    """Eigenvectors of the graph's Laplacian beside the features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GraphConv(IN + WALK, HID), pyg.GraphConv(HID, CLASSES)

    def forward(self, data: Data) -> Any:
        x = torch.cat([data.x, data.laplacian_eigenvector_pe], dim=-1)
        return self.conv2(self.conv1(x, data.edge_index).relu(), data.edge_index)


class DeeperGCN(nn.Module):
    """Pre-activated residual layers with softmax aggregation."""

    def __init__(self) -> None:
        super().__init__()
        self.node_encoder, self.edge_encoder = nn.Linear(IN, HID), nn.Linear(EDGE_DIM, HID)
        self.layers = nn.ModuleList()
        for _ in range(3):
            conv = pyg.GENConv(HID, HID, aggr="softmax", t=1.0, learn_t=True, num_layers=2, norm="layer")
            norm, act = nn.LayerNorm(HID), nn.ReLU(inplace=True)
            self.layers.append(pyg.DeepGCNLayer(conv, norm, act, block="res+", dropout=0.1))
        self.lin = nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        x, edge_attr = self.node_encoder(x), self.edge_encoder(edge_attr)
        x = self.layers[0].conv(x, edge_index, edge_attr)
        for layer in self.layers[1:]:
            x = layer(x, edge_index, edge_attr)
        return self.lin(self.layers[0].act(self.layers[0].norm(x)))


class _RevBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(HID // 2), pyg.SAGEConv(HID // 2, HID // 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv(self.norm(x).relu(), edge_index)


class RevGNN(nn.Module):
    """Reversible blocks that keep no activations."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2, self.norm = nn.Linear(IN, HID), nn.Linear(HID, CLASSES), nn.LayerNorm(HID)
        self.convs = nn.ModuleList([pyg.GroupAddRev(_RevBlock(), num_groups=2) for _ in range(2)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.lin1(x)
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.lin2(self.norm(x).relu())


class SAINT(nn.Module):
    """Three layers joined; the features are called ``x0``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GraphConv(IN, HID, aggr="mean"), pyg.GraphConv(HID, HID, aggr="mean")
        self.lin = nn.Linear(2 * HID, CLASSES)

    def set_aggr(self, aggr: str) -> None:
        self.conv1.aggr = self.conv2.aggr = aggr

    def forward(self, x0: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        x1 = self.conv1(x0, edge_index, edge_weight).relu()
        x2 = self.conv2(x1, edge_index, edge_weight).relu()
        return self.lin(torch.cat([x1, x2], dim=-1)).log_softmax(dim=-1)


class MoNet(nn.Module):
    """Gaussian kernels over pseudo-coordinates of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GMMConv(IN, HID, dim=2, kernel_size=3)
        self.conv2 = pyg.GMMConv(HID, CLASSES, dim=2, kernel_size=3)

    def forward(self, data: Data) -> Any:
        x = F.elu(self.conv1(data.x, data.edge_index, data.edge_attr))
        return F.log_softmax(self.conv2(x, data.edge_index, data.edge_attr), dim=1)


class EdgeConditioned(nn.Module):
    """A small network makes the weights of every edge."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(IN, HID)
        self.conv = pyg.NNConv(HID, HID, nn.Linear(EDGE_DIM, HID * HID), aggr="mean")
        self.gru, self.out = nn.GRU(HID, HID), nn.Linear(HID, CLASSES)

    def forward(self, data: Data) -> Any:
        out = self.lin(data.x).relu()
        h = out.unsqueeze(0)
        for _ in range(2):
            m = self.conv(out, data.edge_index, data.edge_attr).relu()
            out, h = self.gru(m.unsqueeze(0), h)
            out = out.squeeze(0)
        return self.out(out)


class DynamicEdges(nn.Module):
    """Finds the nearest neighbours itself, from positions and features, and reads no edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.EdgeConv(nn.Sequential(nn.Linear(2 * (IN + 3), HID), nn.ReLU()), aggr="max")
        self.lin = nn.Linear(HID, CLASSES)

    def forward(self, data: Data) -> Any:
        x = torch.cat([data.x, data.pos], dim=-1)
        nearest = torch.cdist(x, x).topk(5, largest=False).indices
        target = torch.arange(x.size(0)).repeat_interleave(5)
        return self.lin(self.conv1(x, torch.stack([nearest.view(-1), target])))


class PointNet(nn.Module):
    """Messages of features and relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.PointNetConv(nn.Linear(IN + 3, HID), nn.Linear(HID, HID))
        self.lin = nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor) -> Any:
        return self.lin(self.conv1(x, pos, edge_index).relu())


class WithNodeEmbedding(nn.Module):
    """A learned vector per node beside its features."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(N, 4)
        self.conv1, self.conv2 = pyg.SAGEConv(IN + 4, HID), pyg.SAGEConv(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, node_id: Tensor) -> Any:
        x = torch.cat([x, self.emb(node_id)], dim=-1)
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class WithAllNodeEmbeddings(nn.Module):
    """A learned vector for each node of its only graph."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(N, IN)
        self.conv1, self.conv2 = pyg.SAGEConv(IN, HID), pyg.SAGEConv(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv2(self.conv1(x + self.emb.weight, edge_index).relu(), edge_index)


class WithKinds(nn.Module):
    """The kind of a node, a whole number, looked up in a table."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(6, IN)
        self.convs = nn.ModuleList([pyg.ResGatedGraphConv(IN, HID), pyg.ResGatedGraphConv(HID, CLASSES)])

    def forward(self, data: Data) -> Any:
        x = data.x + self.emb(data.node_type)
        return self.convs[1](self.convs[0](x, data.edge_index).relu(), data.edge_index)


class Normalising(nn.Module):
    """Scales features itself, by statistics kept from training."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((IN,), 0.1))
        self.register_buffer("std", torch.full((IN,), 2.0))
        self.conv1, self.norm, self.conv2 = pyg.GCNConv(IN, HID), pyg.PairNorm(), pyg.GCNConv(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = F.normalize((x - self.mean) / self.std, dim=-1)
        return self.conv2(self.norm(self.conv1(x, edge_index)).relu(), edge_index)


class GraphNormed(nn.Module):
    """Normalises over all nodes of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2 = pyg.GraphConv(IN, HID), pyg.GraphNorm(HID), pyg.GraphConv(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Any:
        return self.conv2(self.norm(self.conv1(x, edge_index), batch).relu(), edge_index)


class AsDict(nn.Module):
    """Scores and embedding by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = pyg.SAGEConv(IN, HID), nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        z = self.conv(x, edge_index).relu()
        return {"embedding": z, "logits": self.head(z)}


class GraphGRU(nn.Module):
    """A gated recurrent unit made of convolutions; returns scores and the state for the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.candidate = pyg.GCNConv(IN + HID, 2 * HID), pyg.GCNConv(IN + HID, HID)
        self.linear = nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, h: Any = None) -> Any:
        h = x.new_zeros(x.size(0), HID) if h is None else h
        z, r = self.gates(torch.cat([x, h], -1), edge_index, edge_weight).sigmoid().chunk(2, -1)
        new = self.candidate(torch.cat([x, r * h], -1), edge_index, edge_weight).tanh()
        h = z * h + (1 - z) * new
        return self.linear(h.relu()), h


class FlatHistory(nn.Module):
    """Several time steps side by side in the columns, one convolution each, then a GRU over time."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.conv, self.gru, self.head = pyg.GCNConv(IN // steps, HID), nn.GRU(HID, HID), nn.Linear(HID, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        seen = [self.conv(part, edge_index).relu() for part in x.chunk(self.steps, dim=1)]
        return self.head(self.gru(torch.stack(seen))[0][-1])


class Signed(nn.Module):
    """Friends and enemies: two lists of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = pyg.SignedGCN(IN, 16, num_layers=2), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, pos_edge_index: Tensor, neg_edge_index: Tensor) -> Any:
        return self.head(self.encoder(x, pos_edge_index, neg_edge_index))
