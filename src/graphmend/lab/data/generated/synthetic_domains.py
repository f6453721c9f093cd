"""``cora-ood`` and ``photo-ood``: ten domains that differ in ten spurious columns."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import Propagation, gcn_norm
from graphmend.errors import GraphMendError, choose, require
from graphmend.files.files import digest
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.published.photo import NPZ, PHOTO, photo_graph
from graphmend.lab.data.published.planetoid import PARTS, planetoid_graph
from graphmend.lab.data.readers.sources import cached_arrays
from graphmend.lab.data.splits import Splits

__all__ = ["DATASETS", "Draw", "accepted_draw", "draw_domains", "is_acceptable", "random_networks", "synthetic_domains"]

CLASSES = 10  # also the number of domains and of spurious columns
MIN_CLASSES, MIN_SHARE, MAX_SHARE = 6, 0.01, 0.5
MOST_DRAWS = 10_000
BLOCK = 20  # draws that are evaluated together
BASES: dict[str, Callable[[str | Path | None], Data]] = {
    "cora-ood": functools.partial(planetoid_graph, "cora"),
    "photo-ood": photo_graph,
}
DOMAINS = [f"domain {index}" for index in range(CLASSES)]


def synthetic_domains(
    name: str, *, seed: int = 0, data_dir: str | Path | None = None, one_draw: bool = False
) -> Splits:
    r"""A real graph with generated labels and ten generated columns, in ten domains, as in the paper.

    Three random untrained networks are drawn: :math:`y = \arg\max G_y(X, A)`, and domain :math:`i` has the features
    :math:`[X, G_x(\text{onehot}(y), A) + G_n(\text{onehot}(i))]`. Nodes, edges and labels are the same in all domains;
    they differ by a constant added to the last ten columns. Those columns depend on the label, by design. Domain 0 is
    for training, 1 for validation, 2 to 9 for tests. See `EERM <https://arxiv.org/abs/2202.02466>`_ for the recipe.

    A random network often puts most nodes into one class. Draws are numbered 0, 1, 2, ...; those with fewer than 6
    classes of at least 1 % of the nodes, or with a class above 50 %, are passed over, and run seed ``s`` uses the
    ``s``-th of the others. ``meta`` records the draw and those that were rejected on the way.

    Args:
        name: ``"cora-ood"`` or ``"photo-ood"``.
        seed: Which acceptable draw.
        data_dir: Where the base graph lies.
        one_draw: Use the first acceptable draw whatever the seed, as the paper does.
    """
    base = choose("synthetic data set", name, BASES)(data_dir)
    require(seed >= 0, f"seed must not be negative (got {seed})")
    hop = gcn_norm(Adjacency.of(base.edge_index, base.num_nodes), None, torch.float64)
    x = base.x.double()
    index, rejected = accepted_draw(x, hop, 0 if one_draw else seed)
    draw = draw_domains(x, hop, index)
    graphs = [
        Data(x=torch.cat([base.x, draw.spurious + shift], dim=1), edge_index=base.edge_index, y=draw.y)
        for shift in draw.shifts
    ]
    meta = {
        "name": name,
        "classes": CLASSES,
        "draw": draw.number,
        "one_draw": one_draw,
        "rejected": rejected,
        "shares": _shares(draw.y).tolist(),
        "graphs": {"train": DOMAINS[:1], "val": DOMAINS[1:2], "test": DOMAINS[2:]},
    }
    return Splits(graphs[:1], graphs[1:2], graphs[2:], metric="accuracy", task="multiclass", meta=meta)


class Draw(NamedTuple):
    """One draw of the three networks: labels, the spurious columns without their shift, one shift per domain."""

    number: int
    y: Tensor
    spurious: Tensor
    shifts: Tensor


def draw_domains(x: Tensor, hop: Propagation, index: int) -> Draw:
    """Draw number ``index``, a function of the graph and that number alone.

    The networks are drawn in single precision and applied in double, so that no label depends on the order of a sum.

    Args:
        x: The original features in double precision.
        hop: The normalised adjacency with self-loops, in double precision.
        index: The number of the draw, which seeds its own generator.
    """
    y = _labels(x, hop, [index])[0]
    networks = random_networks(x.size(1), index)
    hidden = torch.relu(hop(F.one_hot(y, CLASSES).double() @ networks.third))
    spurious = hop(hidden @ networks.fourth)
    return Draw(index, y, spurious.float(), (networks.weight.t() + networks.bias).float())


class _Networks(NamedTuple):
    """The label generator (first, second), the spurious one (third, fourth) and the domain one (weight, bias)."""

    first: Tensor
    second: Tensor
    third: Tensor
    fourth: Tensor
    weight: Tensor
    bias: Tensor


def random_networks(width: int, index: int) -> _Networks:
    """Glorot weights without bias for the graph convolutions, torch's own initialisation for the linear layer."""
    generator = torch.Generator().manual_seed(index)
    glorot = [_uniform((rows, CLASSES), math.sqrt(6 / (rows + CLASSES)), generator) for rows in (width, *[CLASSES] * 3)]
    linear = [_uniform(shape, math.sqrt(1 / CLASSES), generator) for shape in ((CLASSES, CLASSES), (CLASSES,))]
    return _Networks(*glorot, *linear)


def _labels(x: Tensor, hop: Propagation, indices: Sequence[int]) -> list[Tensor]:
    """The labels of several draws at once, which costs little more than those of one."""
    networks = [random_networks(x.size(1), index) for index in indices]
    first = torch.cat([each.first for each in networks], dim=1)
    hidden = torch.relu(hop(x @ first)).view(-1, len(networks), CLASSES).unbind(dim=1)
    out = hop(torch.cat([part @ each.second for part, each in zip(hidden, networks, strict=True)], dim=1))
    return [part.argmax(dim=1) for part in out.view(-1, len(networks), CLASSES).unbind(dim=1)]


def is_acceptable(y: Tensor) -> bool:
    """At least 6 classes of 1 % of the nodes or more, and none above half of them."""
    return _is_balanced(_shares(y))


def _is_balanced(shares: Tensor) -> bool:
    return int((shares >= MIN_SHARE).sum()) >= MIN_CLASSES and float(shares.max()) <= MAX_SHARE


def accepted_draw(
    x: Tensor, hop: Propagation, number: int, *, most_draws: int = MOST_DRAWS
) -> tuple[int, list[dict[str, Any]]]:
    """The index of acceptable draw ``number``, and the draws before it that were rejected."""
    accepted, rejected = 0, []
    graph = digest({"x": x.float(), "row": hop.adjacency.row, "col": hop.adjacency.col})
    for start in range(0, most_draws, BLOCK):
        for index, counts in enumerate(_counts(x, hop, graph, start), start):
            shares = counts.double() / x.size(0)
            if not _is_balanced(shares):
                classes = int((shares >= MIN_SHARE).sum())
                rejected.append({"draw": index, "classes": classes, "majority": round(float(shares.max()), 4)})
            elif accepted == number:
                return index, rejected
            else:
                accepted += 1
    raise GraphMendError(
        f"only {accepted} of the first {most_draws} draws have balanced classes, but seed {number} needs "
        f"{number + 1}; take a smaller seed"
    )


def _counts(x: Tensor, hop: Propagation, graph: str, start: int) -> Tensor:
    """Class sizes of ``BLOCK`` draws, cached for the other seeds if the cache can be written."""

    @functools.cache
    def build() -> dict[str, Any]:
        labels = _labels(x, hop, range(start, start + BLOCK))
        return {"counts": torch.stack([torch.bincount(y, minlength=CLASSES) for y in labels]).numpy()}

    try:
        arrays = cached_arrays("synthetic-domains", f"{graph} {start} {BLOCK}", build)
    except GraphMendError:
        arrays = build()
    return torch.from_numpy(arrays["counts"])


def _shares(y: Tensor) -> Tensor:
    return torch.bincount(y, minlength=CLASSES).double() / y.numel()


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    return ((2 * torch.rand(shape, generator=generator) - 1) * bound).double()


def _entry(name: str, base: dict[str, int], files: tuple[tuple[str, ...], ...]) -> Dataset:
    return Dataset(
        name,
        "spurious features, ten domains",
        functools.partial(synthetic_domains, name),
        files=files,
        published={domain: {**base, "classes": CLASSES} for domain in DOMAINS},
        note="labels and ten columns drawn at random, one draw per seed",
    )


DATASETS = {
    "cora-ood": _entry(
        "cora-ood",
        {"nodes": 2708, "edges": 5278, "features": 1443},
        (("planetoid_cora.npz",), tuple(f"ind.cora.{part}" for part in PARTS)),
    ),
    "photo-ood": _entry("photo-ood", {"nodes": 7650, "edges": 119081, "features": 755}, ((NPZ,), (PHOTO.path,))),
}
