"""The kinds of models: GraphMend's own backbones, stock PyG models, and one as users write them; how they are stored.

All have two layers and 32 hidden units (attention: 4 heads of 8) and dropout 0.5. A GraphMend backbone is stored by
:func:`graphmend.lab.backbones.save_model`; of any other model the weights are, with its kind and its sizes in the
header.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn

from graphmend.errors import require
from graphmend.files.files import read_safetensors, write_safetensors
from graphmend.lab.backbones import build, load_model, save_model

__all__ = ["BACKBONES", "OWN", "STOCK", "made", "read", "write"]

FORMAT = "beyond-model-1"
DROPOUT = 0.5


class Transformer(nn.Module):
    """Two transformer convolutions with a ReLU between them."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = pyg.TransformerConv(in_channels, 8, heads=4)
        self.second = pyg.TransformerConv(32, out_channels, heads=1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores."""
        x = F.dropout(x, DROPOUT, self.training)
        x = F.dropout(torch.relu(self.first(x, edge_index)), DROPOUT, self.training)
        out: Tensor = self.second(x, edge_index)
        return out


class Own(nn.Module):
    """Attention, a batch norm and a mean of neighbours, as a user who has never heard of GraphMend might write it."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.attention = pyg.GATv2Conv(num_features, 8, heads=4)
        self.norm = nn.BatchNorm1d(32)
        self.head = pyg.SAGEConv(32, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores."""
        x = F.dropout(x, p=DROPOUT, training=self.training)
        x = F.relu(self.norm(self.attention(x, edge_index)))
        x = F.dropout(x, p=DROPOUT, training=self.training)
        out: Tensor = self.head(x, edge_index)
        return out


OWN: dict[str, dict[str, int | bool]] = {  # GraphMend's backbones and their options
    "gcn": {"hidden_channels": 32, "batch_norm": True},
    "sage": {"hidden_channels": 32},
    "gat": {"hidden_channels": 8, "heads": 4},
    "gpr": {"hidden_channels": 32},
}
STOCK: dict[str, Callable[[int, int], nn.Module]] = {  # by the numbers of features and classes
    "gcn-plain": lambda a, b: pyg.GCN(a, 32, 2, b, dropout=DROPOUT),
    "gatv2-bn": lambda a, b: pyg.GAT(a, 32, 2, b, dropout=DROPOUT, v2=True, heads=4, norm="BatchNorm"),
    "gin-bn": lambda a, b: pyg.GIN(a, 32, 2, b, dropout=DROPOUT, norm="BatchNorm"),
    "jk": lambda a, b: pyg.GCN(a, 32, 2, b, dropout=DROPOUT, jk="cat"),
    "transformer": Transformer,
    "own": Own,
}
BACKBONES = {**OWN, **STOCK}


def made(kind: str, in_channels: int, out_channels: int) -> nn.Module:
    """A model with random weights."""
    if kind in STOCK:
        return STOCK[kind](in_channels, out_channels)
    return build(kind, in_channels=in_channels, out_channels=out_channels, dropout=DROPOUT, **OWN[kind])


def write(model: nn.Module, path: Path, kind: str, in_channels: int, out_channels: int) -> None:
    """A checkpoint of a model of one of the kinds."""
    if kind in OWN:
        save_model(model, path)
        return
    header = {"format": FORMAT, "kind": kind, "in": str(in_channels), "out": str(out_channels)}
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    write_safetensors(path, tensors, header)


def read(path: Path, kind: str) -> nn.Module:
    """The model of a checkpoint on the CPU, in evaluation mode."""
    if kind in OWN:
        return load_model(path)
    tensors, header = read_safetensors(path)
    found = header.get("format"), header.get("kind")
    require(found == (FORMAT, kind), f"{path} holds {found}, not a model of the kind {kind}; train it again")
    with torch.random.fork_rng(devices=[]):  # the first weights of a model are random
        model = made(kind, int(header["in"]), int(header["out"]))
    model.load_state_dict(tensors)
    return model.eval()
