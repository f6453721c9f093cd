"""Sources: data sets with their splits, and the frozen models trained on them.

All models (:mod:`graphmend.lab.beyond.models`) are trained by ERM with Adam (lr 0.01, L2 penalty 5e-4) for 200 epochs,
100 on the large sets (see :data:`SETS`); the weights of the best validation epoch are kept. Binary tasks have two
logits, as ``graphmend train`` makes them. After training, weight matrices are rounded to eight bits of mantissa
(bfloat16 has seven): the rounded model is the one that is scored, stored and attacked, and its checkpoint compresses to
less than half.

Two names say what was changed: ``fb100-standin`` tests Rutgers89 and Oklahoma97 instead of Penn94 and Texas80, and
``arxiv-size-0.25`` has a quarter of the nodes of the generated ``arxiv-size-ood``. ``half-cora-pc-0`` is trained on the
lower half of Cora along its first principal component, ``half-cora-pc-1`` on the upper one, and ``half-cora-pc-0-all``
on every node of its half, so that none is held out (:mod:`graphmend.lab.beyond.halves`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, choose, require
from graphmend.lab.beyond.halves import GRAPHS, WAYS, cora_dense, half_splits, tiny
from graphmend.lab.beyond.models import BACKBONES, made, read, write
from graphmend.lab.data import Scenario, Splits, load, photo_graph, shift
from graphmend.lab.training import ERM

__all__ = ["FAMILY", "HALVES", "SETS", "Recipe", "Source", "digits", "model_of", "model_path", "named", "splits_of"]

MANTISSA = 8  # bits of the stored weights; bfloat16 has 7
PHOTO_TRAIN, PHOTO_VAL = 20, 30  # nodes per class
ALL = ("cora", "citeseer", "acm")  # graphs whose halves are also trained on without a held-out node
HALVES: dict[str, tuple[str, str, int, bool]] = {  # graph, way, side, whether every node is trained on
    f"half-{graph}-{way}-{side}{'-all' if everyone else ''}": (graph, way, side, everyone)
    for everyone in (False, True)
    for graph in GRAPHS
    if graph in ALL or not everyone
    for way in WAYS
    for side in (0, 1)
}


@dataclass(frozen=True)
class Source:
    """A trained model.

    Args:
        name: A key of :data:`SETS`.
        backbone: A key of :data:`graphmend.lab.beyond.models.BACKBONES`.
        seed: The run seed, of the training and of whatever the set draws.
    """

    name: str
    backbone: str
    seed: int = 0

    def __post_init__(self) -> None:
        choose("source", self.name, SETS)
        choose("backbone", self.backbone, BACKBONES)
        require(self.seed >= 0, f"seed must not be negative (got {self.seed})")

    def __str__(self) -> str:
        return f"{self.name}-{self.backbone}-{self.seed}"


@dataclass(frozen=True)
class Recipe:
    """How a set is loaded and trained on.

    Args:
        load: The splits of a run seed.
        seeded: Whether the splits depend on the run seed.
        epochs: Epochs of training.
        large: Whether one process should handle all its seeds, because loading takes long.
    """

    load: Callable[[int], Splits]
    seeded: bool = False
    epochs: int = 200
    large: bool = False


def splits_of(source: Source) -> Splits:
    """The splits of a source, on the CPU; they are kept for the next call, so they must not be changed."""
    return _splits(source.name, source.seed if SETS[source.name].seeded else 0)


@functools.lru_cache(maxsize=2)
def _splits(name: str, seed: int) -> Splits:
    return SETS[name].load(seed)


def model_of(source: Source, store: Path, device: str | torch.device = "cpu") -> nn.Module:
    """The model of a source in evaluation mode: read from ``store``, or trained and written there."""
    path = model_path(source, store)
    try:
        return read(path, source.backbone).to(device)
    except GraphMendError:  # there is none, or the file was damaged since it was written
        sizes = _sizes(splits_of(source))
        write(_trained(source, torch.device(device)), path, source.backbone, *sizes)
    return read(path, source.backbone).to(device)


def model_path(source: Source, store: Path) -> Path:
    """Where the checkpoint of a source lies."""
    return store / "models" / f"{source}.safetensors"


def named(text: str) -> Source:
    """The source that ``str`` turns into ``text``; names of sets and of backbones have hyphens, too."""
    rest, _, seed = text.rpartition("-")
    fitting = [kind for kind in BACKBONES if rest.endswith(f"-{kind}") and rest.removesuffix(f"-{kind}") in SETS]
    require(len(fitting) == 1 and seed.isdigit(), f"{text} is not a set, a backbone and a seed")
    return Source(rest.removesuffix(f"-{fitting[0]}"), fitting[0], int(seed))


def _trained(source: Source, device: torch.device) -> nn.Module:
    splits = _on_device(source.name, source.seed if SETS[source.name].seeded else 0, str(device))
    torch.manual_seed(source.seed)
    model = made(source.backbone, *_sizes(splits)).to(device)
    epochs = SETS[source.name].epochs
    ERM(lr=0.01, weight_decay=5e-4, epochs=epochs, optimizer="adam", seed=source.seed)(model, splits)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(rounded(weight))
    return model


def _sizes(splits: Splits) -> tuple[int, int]:
    return splits.train[0].num_features, int(splits.meta["classes"])


@functools.lru_cache(maxsize=1)
def _on_device(name: str, seed: int, device: str) -> Splits:
    """Training and validation graphs on the device; graphs that are two masks of one share its tensors there, too."""
    splits = _splits(name, seed)
    moved: dict[int, Tensor] = {}

    def move(data: Data) -> Data:
        def to_device(tensor: Tensor) -> Tensor:
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor.to(device)
            return moved[id(tensor)]

        return Data(**{key: to_device(value) for key, value in data.to_dict().items() if isinstance(value, Tensor)})

    train, val = ([move(data) for data in part] for part in (splits.train, splits.val))
    return replace(splits, train=train, val=val, test=train)


def rounded(weight: Tensor, bits: int = MANTISSA) -> Tensor:
    """The nearest single-precision numbers with ``bits`` bits of mantissa."""
    drop = 23 - bits
    whole = weight.detach().float().contiguous().view(torch.int32)
    return (((whole + (1 << (drop - 1))) >> drop) << drop).view(torch.float32)


def _named(name: str, **options: Any) -> Callable[[int], Splits]:
    return lambda seed: load(name, seed=seed, **options)


def _half(graph: str, way: str, side: int, everyone: bool) -> Callable[[int], Splits]:
    return lambda seed: half_splits(graph, way, side, seed, everyone=everyone)


def _photo(seed: int) -> Splits:
    """The co-purchase graph with a random split: 20 nodes per class to train on, 30 to validate, the rest to test."""
    graph = photo_graph()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(graph.num_nodes, generator=generator)
    rank = torch.empty_like(order)
    for label in range(int(graph.y.max()) + 1):
        members = order[graph.y[order] == label]
        rank[members] = torch.arange(members.numel())
    graph.train_mask = rank < PHOTO_TRAIN
    graph.val_mask = (rank >= PHOTO_TRAIN) & (rank < PHOTO_TRAIN + PHOTO_VAL)
    graph.test_mask = rank >= PHOTO_TRAIN + PHOTO_VAL
    return Splits.transductive(graph, meta={"name": "photo", "classes": int(graph.y.max()) + 1})


@functools.cache
def digits() -> Scenario:
    """The shift of the digits, with its graphs before the shift."""
    return shift()


SETS: dict[str, Recipe] = {  # the most important first
    "cora": Recipe(_named("cora")),
    "citeseer": Recipe(_named("citeseer")),
    "pubmed": Recipe(_named("pubmed")),
    "cora-ood": Recipe(_named("cora-ood"), seeded=True),
    "citation-acmv9": Recipe(_named("citation", source="ACMv9")),
    "citation-citationv1": Recipe(_named("citation", source="Citationv1")),
    "photo-ood": Recipe(_named("photo-ood"), seeded=True),
    "digits-shift": Recipe(lambda seed: digits().splits),
    "csbm": Recipe(_named("csbm"), seeded=True),
    "twitch-e": Recipe(_named("twitch-e")),
    "photo": Recipe(_photo, seeded=True),
    "wine": Recipe(_named("wine")),
    "breast-cancer": Recipe(_named("breast-cancer")),
    "fb100-standin": Recipe(_named("fb100"), epochs=100, large=True),
    "elliptic-size": Recipe(_named("elliptic-size"), epochs=100, large=True),
    "arxiv-size-0.25": Recipe(_named("arxiv-size-ood", scale=0.25), epochs=100, large=True),
    "cora-dense": Recipe(lambda seed: cora_dense()),
    "tiny": Recipe(lambda seed: tiny()),
    **{name: Recipe(_half(*parts), seeded=True) for name, parts in HALVES.items()},
    "arxiv-votes-ood": Recipe(_named("arxiv-votes-ood"), epochs=100, large=True),
}
FAMILY: dict[str, str] = {  # sets that share a graph, or the way in which it was made
    "cora": "cora",
    "citeseer": "citeseer",
    "pubmed": "pubmed",
    "cora-ood": "cora",
    "citation-acmv9": "citation",
    "citation-citationv1": "citation",
    "photo-ood": "photo",
    "digits-shift": "digits",
    "csbm": "csbm",
    "twitch-e": "twitch",
    "photo": "photo",
    "wine": "wine",
    "breast-cancer": "breast-cancer",
    "fb100-standin": "fb100",
    "elliptic-size": "elliptic-size",
    "arxiv-size-0.25": "arxiv-size",
    "cora-dense": "cora",
    "tiny": "digits",
    **{
        name: {"acm": "citation", "citation1": "citation", "cora-dense": "cora"}.get(graph, graph)
        for name, (graph, _, _, _) in HALVES.items()
    },
    "arxiv-votes-ood": "arxiv-votes",
}
