"""The list of models: how each is made, which graph it is for, how it is called, and what is expected."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn

from support.gate_cases import BAD_ROWS, CLASSES, IN, N, planted, rng
from support.zoo import graphs, nodes, others

__all__ = ["SPECIMENS", "Specimen"]

EPOCHS = 25


def whole(model: nn.Module, data: Any) -> Any:
    """Called with the graph."""
    return model(data)


def encode(model: nn.Module, data: Any) -> Any:
    """The embedding, of a model that scores pairs of nodes."""
    return model.encode(data.x, data.edge_index)


def by_kind(model: nn.Module, data: Any) -> Any:
    """Called with dictionaries by kind of node and edge; papers are predicted."""
    out = model(data.x_dict, data.edge_index_dict)
    return out["paper"] if isinstance(out, dict) else out


def with_(*names: str) -> Callable[[nn.Module, Any], Any]:
    """Called with attributes of the graph, as a script writes it."""
    return lambda model, data: model(*(data[name] for name in names))


x_edges = with_("x", "edge_index")


@dataclass(frozen=True)
class Specimen:
    """A model with its graph and what is expected of them.

    Args:
        make: Makes the model, untrained.
        graph: Adds to a planted graph what this model needs.
        call: How a script calls it.
        output: Which part of what it returns has a row of scores per node.
        edges: Whether its edges can be learned.
        task: What its rows are, where the card has to be told.
        is_fixed: Whether it knows only the graph it was trained on.
        node_type: The nodes that are predicted, where there are several kinds.
        refused: Why it cannot be mended for, for a reader; a sentence has to say so.
    """

    make: Callable[[], nn.Module]
    graph: Callable[[Any], Any] = graphs.plain
    call: Callable[[nn.Module, Any], Any] = x_edges
    output: str | int | None = None
    edges: bool = True
    task: str | None = None
    is_fixed: bool = False
    node_type: str | None = None
    refused: str | None = None

    def graph_of(self, seed: int) -> Any:
        """A graph of the kind it is for."""
        return self.graph(planted(0 if self.is_fixed else seed))

    def logits(self, model: nn.Module, data: Any) -> Tensor:
        """The scores as a script gets them."""
        out = self.call(model, data)
        return out if self.output is None else out[self.output]

    @functools.cached_property
    def trained(self) -> nn.Module:
        """The model after a short training; one that is refused anyway is not trained."""
        torch.manual_seed(0)
        random.seed()  # PyG names files after a random number, and tests in other processes begin with the same ones
        model, data = self.make(), self.graph_of(0)
        if self.refused is not None:
            return model.eval()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            self.loss(model, data).backward()
            optimizer.step()
        return model.eval()

    def loss(self, model: nn.Module, data: Any) -> Tensor:
        """What is minimised in training."""
        if self.task == "embedding":
            return model.loss(*self.call(model, data))
        out = self.logits(model, data)
        if self.task is None:
            nodes = self.nodes(data)
            return F.cross_entropy(out[nodes.train_mask], nodes.y[nodes.train_mask])
        pieces = torch.arange(len(out))
        if self.task == "numbers":
            return F.mse_loss(out.reshape(-1), pieces / len(out))
        if out.size(1) == 1:
            return F.binary_cross_entropy_with_logits(out.reshape(-1), (pieces % 2).to(out))
        return F.cross_entropy(out, pieces % CLASSES)

    def broken(self, data: Any) -> Any:
        """A copy of a graph in which every sixth row is large noise."""
        out, x = data.clone(), self.nodes(data).x
        noise = 15.0 * torch.randn(N, IN, generator=rng(9))[: len(x)]
        self.nodes(out).x = torch.where(BAD_ROWS[: len(x), None], noise * (x.std(0) > 0), x)
        return out

    def nodes(self, data: Any) -> Any:
        """The nodes that are predicted: the graph, or a part of it where there are several kinds."""
        return data if self.node_type is None else data[self.node_type]


def two(conv: Any, *size: Any, **options: Any) -> Callable[[], nn.Module]:
    """A model of two convolutions of a kind."""
    return lambda: nodes.TwoLayers(conv(IN, nodes.HID, *size, **options), conv(nodes.HID, CLASSES, *size, **options))


def sequential() -> nn.Module:
    steps = [(pyg.GCNConv(IN, 16), "x, edge_index -> x"), nn.ReLU(inplace=True), (nn.Linear(16, CLASSES), "x -> x")]
    return pyg.Sequential("x, edge_index", steps)


def pna() -> nn.Module:
    return nodes.PNA(graphs.degree_histogram(graphs.training_graph()))


def rgat() -> nn.Module:
    model = nodes.RGCN(pyg.RGATConv)
    for conv in (model.conv1, model.conv2):
        nn.init.ones_(conv.l2)  # which PyG leaves as it finds the memory
    return model


def mixhop() -> nn.Module:
    return nodes.TwoLayers(pyg.MixHopConv(IN, 8), pyg.MixHopConv(24, CLASSES, powers=[1]))


def directional() -> nn.Module:
    return nodes.TwoLayers(pyg.DirGNNConv(pyg.SAGEConv(IN, 16)), pyg.DirGNNConv(pyg.SAGEConv(16, CLASSES)))


def antisymmetric() -> nn.Module:
    return nodes.TwoLayers(then_antisymmetric(pyg.SAGEConv(IN, 16)), pyg.GCNConv(16, CLASSES))


def then_antisymmetric(conv: nn.Module) -> nn.Module:
    steps = [(conv, "x, edge_index -> x"), (pyg.AntiSymmetricConv(16), "x, edge_index -> x")]
    return pyg.Sequential("x, edge_index", steps)


_EDGE_ATTR = {"graph": graphs.edge_attr, "call": with_("x", "edge_index", "edge_attr")}
_EDGE_TYPE = {"graph": graphs.edge_type, "call": with_("x", "edge_index", "edge_type")}
_BATCH: dict[str, Any] = {"graph": graphs.one_batch, "call": with_("x", "edge_index", "batch")}
_HETERO: dict[str, Any] = {"graph": others.two_kinds, "call": by_kind, "edges": False, "node_type": "paper"}
_PIECES: dict[str, Any] = {"graph": graphs.pieces, "call": with_("x", "edge_index", "batch")}

SPECIMENS: dict[str, Specimen] = {
    # node classification
    "GCN": Specimen(nodes.GCN),
    "GCN with edge weights": Specimen(nodes.GCN, graphs.edge_weight, with_("x", "edge_index", "edge_weight")),
    "GCN that keeps its normalisation": Specimen(lambda: nodes.GCN(cached=True), is_fixed=True),
    "GCN of the tutorial": Specimen(nodes.TutorialGCN, call=whole),
    "GAT": Specimen(nodes.GAT),
    "GATv2": Specimen(lambda: nodes.GAT(pyg.GATv2Conv)),
    "GAT with linear skips": Specimen(nodes.DeepGAT),
    "GATv2 with edge attributes": Specimen(nodes.EdgeGAT, **_EDGE_ATTR),
    "GraphSAGE in a list": Specimen(nodes.SAGE),
    "GCN with batch norm, `adj_t`": Specimen(nodes.OGB),
    "GraphSAGE with batch norm, `adj_t`": Specimen(lambda: nodes.OGB(pyg.SAGEConv)),
    "GCNII": Specimen(nodes.GCN2),
    "APPNP": Specimen(nodes.APPNP),
    "SGC": Specimen(nodes.SGC),
    "ARMA": Specimen(two(pyg.ARMAConv, num_stacks=2)),
    "ChebNet": Specimen(two(pyg.ChebConv, 3)),
    "TAGCN": Specimen(two(pyg.TAGConv)),
    "MixHop": Specimen(mixhop),
    "SuperGAT with its loss": Specimen(nodes.SuperGAT, output=0, edges=False),
    "GIN": Specimen(nodes.GIN),
    "Jumping knowledge, joined": Specimen(lambda: nodes.JumpingKnowledge("cat")),
    "Jumping knowledge, LSTM": Specimen(lambda: nodes.JumpingKnowledge("lstm")),
    "DNA": Specimen(nodes.DNA),
    "AGNN": Specimen(nodes.AGNN, edges=False),
    "LINKX": Specimen(lambda: pyg.LINKX(N, IN, 16, CLASSES, num_layers=1), is_fixed=True),
    "RGCN": Specimen(nodes.RGCN, **_EDGE_TYPE, edges=False),
    "RGAT": Specimen(rgat, **_EDGE_TYPE, edges=False),
    "Graph transformer": Specimen(nodes.GraphTransformer),
    "PNA with edge attributes": Specimen(pna, **_EDGE_ATTR, edges=False),
    "GPS with random-walk encodings": Specimen(
        nodes.NodeGPS, graphs.random_walk, with_("x", "pe", "edge_index", "batch")
    ),
    "GPS with edge attributes, Performer": Specimen(
        lambda: nodes.EdgeGPS("performer", edges=True),
        graphs.random_walk_and_attr,
        with_("x", "pe", "edge_index", "edge_attr", "batch"),
    ),
    "Laplacian eigenvectors beside features": Specimen(nodes.WithLaplacian, graphs.laplacian, whole),
    "SGFormer": Specimen(lambda: pyg.SGFormer(IN, 16, CLASSES, gnn_num_layers=2), **_BATCH),
    "Polynormer": Specimen(lambda: pyg.Polynormer(IN, 16, CLASSES, local_layers=2, global_layers=1), **_BATCH),
    "DeeperGCN": Specimen(nodes.DeeperGCN, **_EDGE_ATTR, edges=False),
    "RevGNN": Specimen(nodes.RevGNN),
    "Graph U-Net": Specimen(lambda: pyg.GraphUNet(IN, 16, CLASSES, depth=2)),
    "Cluster-GCN": Specimen(two(pyg.ClusterGCNConv), edges=False),
    "GraphSAINT": Specimen(nodes.SAINT),
    "FiLM": Specimen(two(pyg.FiLMConv), edges=False),
    "PMLP": Specimen(lambda: pyg.PMLP(IN, 16, CLASSES, num_layers=2), edges=False),
    "Encoder and decoder without `forward`": Specimen(others.LinkPredictor, call=encode),
    "VGAE": Specimen(lambda: pyg.VGAE(others.VariationalEncoder()), call=encode),
    "Dir-GNN": Specimen(directional),
    "Antisymmetric network": Specimen(antisymmetric),
    "EGC": Specimen(two(pyg.EGConv, num_heads=4), edges=False),
    "Residual gated network, kinds of nodes": Specimen(nodes.WithKinds, graphs.node_kinds, whole),
    "MoNet": Specimen(nodes.MoNet, graphs.pseudo_coordinates, whole, edges=False),
    "Edge-conditioned with GRU": Specimen(nodes.EdgeConditioned, graphs.edge_attr, whole, edges=False),
    "PointNet++ layer": Specimen(nodes.PointNet, graphs.positions, with_("x", "pos", "edge_index"), edges=False),
    "Node embeddings beside features": Specimen(
        nodes.WithNodeEmbedding, graphs.node_ids, with_("x", "edge_index", "node_id"), is_fixed=True
    ),
    "Node embeddings of its only graph": Specimen(nodes.WithAllNodeEmbeddings, is_fixed=True),
    "Normalises inside": Specimen(nodes.Normalising),
    "GraphNorm": Specimen(nodes.GraphNormed, **_BATCH),
    "`Sequential` of PyG": Specimen(sequential),
    "Scores and embedding in a dictionary": Specimen(nodes.AsDict, output="logits"),
    "Graph convolutional GRU with its state": Specimen(nodes.GraphGRU, output=0),
    "Time steps in the columns, GRU": Specimen(nodes.FlatHistory),
    "DGCNN, neighbours found inside": Specimen(nodes.DynamicEdges, graphs.positions, whole),
    "MLP": Specimen(others.MLP, call=with_("x"), edges=False),
    "Signed network": Specimen(nodes.Signed, graphs.two_signs, with_("x", "edge_index", "neg_edge_index"), edges=False),
    "Deep Graph Infomax": Specimen(others.infomax, output=0, task="embedding"),
    # one row per graph
    "GIN on molecules": Specimen(others.MoleculeGIN, **_PIECES, task="classes"),
    "Top-k pooling": Specimen(others.TopK, graphs.pieces, whole, task="classes"),
    "SAG pooling": Specimen(lambda: others.TopK(pyg.SAGPooling), graphs.pieces, whole, task="classes"),
    "SEAL with sort pooling": Specimen(others.SEAL, **_PIECES, task="classes"),
    "Message passing on molecules, Set2Set": Specimen(
        others.MoleculeMPNN, graphs.pieces_with_attr, whole, edges=False, task="numbers"
    ),
    "AttentiveFP": Specimen(
        lambda: pyg.AttentiveFP(IN, 16, 1, graphs.EDGE_DIM, 2, 2),
        graphs.pieces_with_attr,
        with_("x", "edge_index", "edge_attr", "batch"),
        edges=False,
        task="numbers",
    ),
    # several kinds of nodes
    "HGT": Specimen(lambda: others.HGT(others.two_kinds(planted(0))), **_HETERO),
    "GraphSAGE through `to_hetero`": Specimen(lambda: others.converted(others.two_kinds(planted(0))), **_HETERO),
    # what is refused, with a sentence
    "RGCN of entities without features": Specimen(
        nodes.EntityRGCN, graphs.edge_type, with_("edge_index", "edge_type"), refused="it reads no features"
    ),
    "UniMP": Specimen(
        nodes.UniMP,
        graphs.labels_to_spread,
        with_("x", "y", "edge_index", "label_mask"),
        refused="labels are kept from models",
    ),
    "GCN of a global graph": Specimen(others.GlobalGraph, refused="it takes no graph"),
    "SIGN": Specimen(others.SIGN, refused="its inputs were propagated before"),
    "Features of several time steps": Specimen(others.Series, graphs.series, refused="features have two dimensions"),
    "Link predictor": Specimen(
        others.LinkScores,
        graphs.pairs_to_score,
        with_("x", "edge_index", "edge_label_index"),
        refused="one row per pair: give its encoder",
    ),
    "LightGCN": Specimen(lambda: pyg.LightGCN(N, 16, 2), refused="it reads no features"),
    "Node2Vec": Specimen(others.WalkEmbedding, refused="it reads no graph"),
    "TGN memory": Specimen(others.Memory, graphs.node_ids, refused="it reads no graph"),
    "DiffPool": Specimen(others.DiffPool, refused="it works on dense matrices"),
    "ShaDow": Specimen(others.ShaDow, graphs.one_batch, refused="one row per root, which is no attribute of the graph"),
}
