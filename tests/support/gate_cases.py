"""A planted graph, models trained on it, and what may happen to a test graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.cards import SourceCard, card
from graphmend.lab.attacks import PRBCD
from graphmend.lab.backbones import GCN, SAGE
from support.graphs import rng

N, IN, CLASSES = 400, 16, 4
SPARE = 2  # the last columns, 0 in training


def planted(seed: int = 0, shares: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)) -> Data:
    """Four classes with features of their own; most edges lie within a class."""
    generator = rng(seed)
    y = torch.multinomial(torch.tensor(shares), N, replacement=True, generator=generator)
    centres = torch.randn(CLASSES, IN, generator=rng(1000))
    x = centres[y] + 1.6 * torch.randn(N, IN, generator=generator)
    x[:, -SPARE:] = 0.0
    same = y[:, None] == y
    chance = 3.0 / same.sum(1, keepdim=True) * same + 0.4 / (~same).sum(1, keepdim=True) * ~same
    dense = torch.triu(torch.rand(N, N, generator=generator) < (chance + chance.t()) / 2, diagonal=1)
    part = torch.rand(N, generator=generator)
    edges = (dense | dense.t()).nonzero().t().contiguous()
    return Data(x=x, edge_index=edges, y=y, train_mask=part < 0.4, val_mask=(part >= 0.4) & (part < 0.7))


class LogSoftmax(nn.Module):
    """Two convolutions and log-probabilities."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, 16), pyg.GCNConv(16, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return F.log_softmax(self.b(self.a(x, edge_index).relu(), edge_index), dim=-1)


class SingleLogit(nn.Module):
    """Says with one number per node whether it is of the last two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = pyg.GCNConv(IN, 16), nn.BatchNorm1d(16), pyg.GCNConv(16, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(self.norm(self.a(x, edge_index)).relu(), edge_index)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: GCN(IN, 16, CLASSES, batch_norm=True, dropout=0.5),
    "sage": lambda: SAGE(IN, 16, CLASSES, dropout=0.5),
    "stock GCN": lambda: pyg.GCN(IN, 16, num_layers=2, out_channels=CLASSES),
    "stock GraphSAGE": lambda: pyg.GraphSAGE(IN, 16, num_layers=2, out_channels=CLASSES),
    "stock GAT": lambda: pyg.GAT(IN, 16, num_layers=2, out_channels=CLASSES, heads=4),
    "stock GIN": lambda: pyg.GIN(IN, 16, num_layers=2, out_channels=CLASSES),
    "log-softmax": LogSoftmax,
    "single logit": SingleLogit,
}


@functools.cache
def trained(name: str) -> nn.Module:
    """A model of this name, trained on the planted graph; not to be changed."""
    torch.manual_seed(0)
    return fitted(MODELS[name](), planted())


def fitted(model: nn.Module, data: Data) -> nn.Module:
    """The model after a short training, in evaluation mode."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    for _ in range(60):
        optimizer.zero_grad()
        _loss(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


def _loss(logits: Tensor, y: Tensor) -> Tensor:
    if logits.size(1) == 1:
        return F.binary_cross_entropy_with_logits(logits.view(-1), (y >= CLASSES // 2).float())
    return F.cross_entropy(logits, y)


@functools.cache
def card_of(name: str) -> SourceCard:
    """The card of the model of this name."""
    return card(trained(name), planted(), task="classes")


def moved(data: Data, stretch: float = 1.5, size: float = 2.5) -> Data:
    """Every row stretched and moved."""
    x = stretch * data.x + size * torch.randn(IN, generator=rng(7))
    x[:, -SPARE:] = 0.0
    return with_features(data, x)


BAD_ROWS = torch.arange(N) % 6 == 2


def with_bad_rows(data: Data) -> Data:
    """Every sixth row is large noise."""
    noise = 15.0 * torch.randn(N, IN, generator=rng(9))
    noise[:, -SPARE:] = 0.0
    return with_features(data, torch.where(BAD_ROWS.unsqueeze(1), noise, data.x))


def with_other_classes(seed: int = 1) -> Data:
    """Most nodes are of one class."""
    return planted(seed, (0.76, 0.08, 0.08, 0.08))


def with_unseen_columns(data: Data) -> Data:
    """The columns that were 0 in training hold something."""
    x = data.x.clone()
    x[:, -SPARE:] = 40.0 * torch.rand(N, SPARE, generator=rng(5))
    return with_features(data, x)


WORDS, READERS = 240, 600
ATTACKED = torch.arange(READERS) % 3 == 0


def reading_circles() -> Data:
    """Circles of 12 nodes that share words of their own, so that true edges fit; one node in twenty has a label."""
    generator, circle = rng(0), torch.arange(READERS) // 12
    circles = READERS // 12
    y = (torch.arange(circles) % CLASSES)[circle]
    chosen = torch.rand(circles, WORDS, generator=rng(77)).argsort(1)[:, :10]
    own = torch.zeros(circles, WORDS).scatter_(1, chosen, 1.0)
    topic = (torch.arange(WORDS) // (WORDS // CLASSES) == torch.arange(CLASSES)[:, None]).float()
    chance = 0.4 * own[circle] + 1.5 * topic[y] / (WORDS // CLASSES) + 3.0 / WORDS
    x = (torch.rand(READERS, WORDS, generator=generator) < chance).float()
    near, alike = circle[:, None] == circle, y[:, None] == y
    kinds = {3.0: near, 0.5: alike & ~near, 0.2: ~alike}
    rate = torch.stack([mean / mask.sum(1, keepdim=True) * mask for mean, mask in kinds.items()]).sum(0)
    dense = torch.triu(torch.rand(READERS, READERS, generator=generator) < rate, diagonal=1)
    train = torch.rand(READERS, generator=generator) < 0.05
    return Data(x=x, edge_index=(dense | dense.t()).nonzero().t().contiguous(), y=y, train_mask=train)


@functools.cache
def attacked() -> tuple[nn.Module, SourceCard, Data]:
    """A GCN, its card, and the reading circles after PR-BCD on every third node."""
    data = reading_circles()
    torch.manual_seed(0)
    model = fitted(GCN(WORDS, 16, CLASSES, batch_norm=True, dropout=0.5), data)
    options: dict[str, Any] = {"rate": 0.25, "epochs": 40, "block_size": 50_000}
    return (
        model,
        card(model, data, task="classes"),
        PRBCD(model, nodes=ATTACKED, known=data.train_mask, **options)(data),
    )


def with_features(data: Data, x: Tensor) -> Data:
    out = data.clone()
    out.x = x
    return out


def plain_logits(model: nn.Module, data: Data) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(data.x, data.edge_index)
    return out


def accuracy(logits: Tensor, data: Data) -> float:
    return float((logits.argmax(1) == data.y).double().mean())
