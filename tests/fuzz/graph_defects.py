"""Small graphs, sound ones and such with everything that can be wrong with them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

IN, CLASSES = 5, 3
Defect = Callable[[random.Random, Data], None]


def generator_from(rng: random.Random) -> torch.Generator:
    """A generator of torch that depends on the case alone."""
    return torch.Generator().manual_seed(rng.getrandbits(62))


def sound_graph(rng: random.Random, dtype: torch.dtype = torch.float32, columns: int = IN, plain: bool = False) -> Data:
    """A graph without defects: directed or not, with labels, masks and weights or not; all of them unless ``plain``."""
    generator, nodes = generator_from(rng), rng.randint(10, 30)
    dense = torch.triu(torch.rand(nodes, nodes, generator=generator) < 4 / nodes, diagonal=1)
    dense[0, 1] = True
    if rng.random() < 0.8:
        dense = dense | dense.t()
    if rng.random() < 0.3:
        dense.fill_diagonal_(True)
    edge_index = dense.nonzero().t().contiguous()
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    y[:CLASSES] = torch.arange(CLASSES)
    x = torch.randn(nodes, columns, generator=generator) + torch.nn.functional.one_hot(y, columns)
    if rng.random() < 0.3:
        x = (x > 0.5).float()
    data = Data(x=x.to(dtype), edge_index=edge_index)
    part = torch.arange(nodes) % 3
    more: dict[str, Tensor] = {"y": y, **{f"{n}_mask": part == k for k, n in enumerate(("train", "val", "test"))}}
    for name, value in more.items():
        if plain or rng.random() < 0.7:
            data[name] = value
    if not plain and rng.random() < 0.3:
        data.edge_weight = torch.rand(edge_index.size(1), generator=generator).to(dtype)
    if not plain and rng.random() < 0.2:
        data.edge_attr = torch.rand(edge_index.size(1), 2, generator=generator)
    return data


def specimen_graph() -> Data:
    """One graph without defects, the same every time."""
    data = sound_graph(random.Random(0), plain=True)
    data.edge_weight = torch.ones(data.edge_index.size(1))
    return data


def _set(name: str, *makes: Callable[[Data], Any]) -> Defect:
    """An attribute becomes one of several things; what cannot be made of this graph leaves it as it is."""

    def defect(rng: random.Random, data: Data) -> None:
        try:
            data[name] = rng.choice(makes)(data)
        except (RuntimeError, IndexError, TypeError, AttributeError, ValueError, NotImplementedError):
            return

    return defect


def _filled(value: float) -> Callable[[Data], Any]:
    """The features with one entry replaced."""

    def fill(data: Data) -> Any:
        x = data.x.clone()
        x[-1, 0] = value
        return x

    return fill


def _like_nodes(make: Callable[[int], Any]) -> Callable[[Data], Any]:
    return lambda data: make(data.x.size(0))


def _like_edges(make: Callable[[int], Any]) -> Callable[[Data], Any]:
    return lambda data: make(data.edge_index.size(1))


def _edges(make: Callable[[Tensor, int], Any]) -> Callable[[Data], Any]:
    return lambda data: make(data.edge_index, data.x.size(0))


TYPES = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool, torch.complex64)
MASKS = ("train_mask", "val_mask", "test_mask", "mask", "frozen_nodes")

_MASK_VALUES: tuple[Callable[[Data], Any], ...] = (
    _like_nodes(torch.ones),
    _like_nodes(lambda n: torch.arange(n) % 2),
    _like_nodes(lambda n: torch.arange(n) % 4),
    _like_nodes(lambda n: torch.arange(n)[: n // 2]),
    _like_nodes(lambda n: torch.zeros(n, dtype=torch.bool)),
    _like_nodes(lambda n: torch.ones(n + 1, dtype=torch.bool)),
    _like_nodes(lambda n: torch.ones(n, 2, dtype=torch.bool)),
    _like_nodes(lambda n: torch.full((n,), torch.nan)),
    _like_nodes(lambda n: [True] * n),
    _like_nodes(lambda n: np.ones(n, dtype=bool)),
    lambda data: torch.tensor(True),
    lambda data: "all",
    lambda data: torch.empty(0, dtype=torch.bool),
)

DEFECTS: dict[str, Defect] = {
    "x: another type": _set("x", *(lambda data, dtype=dtype: data.x.to(dtype) for dtype in TYPES)),
    "x: float8": _set("x", lambda data: data.x.to(torch.float8_e4m3fn), lambda data: data.x.to(torch.float8_e5m2)),
    "x: another shape": _set(
        "x",
        lambda data: data.x[:, 0],
        lambda data: data.x.unsqueeze(0),
        lambda data: data.x[:0],
        lambda data: data.x[:, :0],
        lambda data: data.x[:-1],
        lambda data: data.x[:, :-1],
        lambda data: torch.tensor(1.0),
    ),
    "x: not finite": _set("x", _filled(torch.nan), _filled(torch.inf), _filled(-torch.inf)),
    "x: extreme": _set("x", _filled(3e38), _filled(-1e20), _filled(1e-45), lambda data: data.x * 1e30),
    "x: constant": _set("x", lambda data: torch.zeros_like(data.x), lambda data: torch.ones_like(data.x)),
    "x: sparse": _set("x", lambda data: data.x.to_sparse(), lambda data: data.x.to_sparse_csr()),
    "x: an expanded view": _set("x", lambda data: data.x[:1].expand(data.x.size(0), -1)),
    "x: not contiguous": _set("x", lambda data: data.x.t().contiguous().t(), lambda data: data.x.repeat(1, 2)[:, ::2]),
    "x: requires a gradient": _set(
        "x", lambda data: data.x.requires_grad_(), lambda data: torch.nn.Parameter(data.x) * 2
    ),
    "x: without values": _set("x", lambda data: data.x.to("meta")),
    "x: negated lazily": _set("x", lambda data: torch._neg_view(data.x)),
    "x: an inference tensor": _set("x", lambda data: _in_inference_mode(data.x)),
    "x: no tensor": _set("x", lambda data: data.x.numpy(), lambda data: None, lambda data: [[1.0]], lambda data: "x"),
    "edges: another type": _set(
        "edge_index", *(lambda data, dtype=dtype: data.edge_index.to(dtype) for dtype in (torch.int32, *TYPES))
    ),
    "edges: another shape": _set(
        "edge_index",
        _edges(lambda e, n: e.t()),
        _edges(lambda e, n: e[:, :0]),
        _edges(lambda e, n: e[0]),
        _edges(lambda e, n: e.unsqueeze(0)),
        _edges(lambda e, n: torch.cat([e, e[:1]])),
        _edges(lambda e, n: e[:, :1]),
    ),
    "edges: no such node": _set(
        "edge_index",
        _edges(lambda e, n: e + 1),
        _edges(lambda e, n: e - 1),
        _edges(lambda e, n: e + 2**40),
        _edges(lambda e, n: torch.full_like(e, 2**63 - 1)),
    ),
    "edges: several times": _set("edge_index", _edges(lambda e, n: torch.cat([e, e], dim=1))),
    "edges: self-loops alone": _set("edge_index", _edges(lambda e, n: torch.arange(n).expand(2, -1))),
    "edges: of few nodes": _set("edge_index", _edges(lambda e, n: torch.tensor([[0, 1], [1, 0]]))),
    "edges: complete": _set("edge_index", _edges(lambda e, n: torch.ones(n, n).nonzero().t())),
    "edges: not contiguous": _set("edge_index", _edges(lambda e, n: e.t().contiguous().t())),
    "edges: sparse": _set("edge_index", _edges(lambda e, n: e.to_sparse())),
    "edges: without values": _set("edge_index", lambda data: data.edge_index.to("meta")),
    "edges: no tensor": _set("edge_index", lambda data: data.edge_index.numpy(), lambda data: None, lambda data: [[0]]),
    "edges: as a sparse matrix": lambda rng, data: _as_sparse_matrix(rng, data),
    "weights": _set(
        "edge_weight",
        _like_edges(lambda m: torch.ones(m + 1)),
        _like_edges(lambda m: torch.ones(m, 1)),
        _like_edges(lambda m: torch.ones(m, 3)),
        _like_edges(lambda m: torch.full((m,), torch.nan)),
        _like_edges(lambda m: torch.full((m,), -1.0)),
        _like_edges(torch.zeros),
        _like_edges(lambda m: torch.full((m,), 1e38)),
        _like_edges(lambda m: torch.ones(m, dtype=torch.long)),
        _like_edges(lambda m: torch.ones(m, dtype=torch.float64)),
        _like_edges(lambda m: torch.ones(m, dtype=torch.float16)),
        _like_edges(lambda m: torch.ones(m, dtype=torch.complex64)),
        _like_edges(lambda m: torch.ones(m).requires_grad_()),
        _like_edges(lambda m: torch.ones(1).expand(m)),
        _like_edges(lambda m: [1.0] * m),
        lambda data: torch.tensor(1.0),
        lambda data: "heavy",
    ),
    "edge attributes": _set(
        "edge_attr",
        _like_edges(lambda m: torch.ones(m - 1, 2)),
        _like_edges(lambda m: torch.full((m,), torch.nan)),
        _like_edges(lambda m: torch.ones(m, 2, dtype=torch.long)),
        _like_edges(lambda m: torch.ones(m, 2).to_sparse()),
        _like_edges(lambda m: torch.ones(m, 0)),
        lambda data: torch.tensor(1.0),
        lambda data: ["a"],
    ),
    "labels": _set(
        "y",
        _like_nodes(lambda n: (torch.arange(n) % 3).unsqueeze(1)),
        _like_nodes(lambda n: torch.ones(n, 3)),
        _like_nodes(lambda n: torch.nn.functional.one_hot(torch.arange(n) % 3)),
        _like_nodes(lambda n: torch.full((n,), torch.nan)),
        _like_nodes(lambda n: (torch.arange(n) % 3).double()),
        _like_nodes(lambda n: torch.full((n,), 0.5)),
        _like_nodes(lambda n: torch.full((n,), 2**62)),
        _like_nodes(lambda n: torch.full((n,), -1)),
        _like_nodes(lambda n: torch.arange(n)),
        _like_nodes(lambda n: torch.ones(n + 1, dtype=torch.long)),
        _like_nodes(lambda n: torch.arange(n) % 2 == 0),
        _like_nodes(lambda n: (torch.arange(n) % 3).to(torch.uint8)),
        _like_nodes(lambda n: (torch.arange(n) % 3).to_sparse()),
        _like_nodes(lambda n: torch.ones(n, dtype=torch.complex64)),
        _like_nodes(lambda n: torch.empty(n, 0)),
        _like_nodes(lambda n: np.ones(n)),
        _like_nodes(lambda n: ["cat"] * n),
        lambda data: torch.tensor(1),
        lambda data: "labels",
    ),
    "num_nodes": _set(
        "num_nodes",
        *(lambda data, value=value: value for value in (0, -1, 7, 10**12, 2**70, "many", None, 12.5, True)),
        lambda data: torch.tensor(3),
        lambda data: torch.ones(4),
    ),
    "further attributes": lambda rng, data: data.update(
        {rng.choice(("name", "batch", "ptr", "pos", "edge_kind", "face", "node_names")): rng.choice(_FURTHER)()}
    ),
}
_FURTHER: tuple[Callable[[], Any], ...] = (
    lambda: "text",
    lambda: ["a", "b"],
    lambda: {"a": torch.ones(2)},
    lambda: torch.ones(3),
    lambda: torch.eye(3).to_sparse(),
    lambda: torch.ones(2, device="meta"),
    lambda: Data(x=torch.ones(2, 2)),
    lambda: None,
    lambda: 3,
    lambda: object(),
    lambda: np.ones(3),
    lambda: {1, 2},
)
DEFECTS |= {f"mask: {name}": _set(name, *_MASK_VALUES) for name in MASKS}
DEFECTS["mask: frozen_edges"] = _set(
    "frozen_edges", _like_edges(lambda m: torch.ones(m, dtype=torch.bool)), _like_edges(torch.ones), *_MASK_VALUES[-3:]
)
DEFECTS["mask: frozen_columns"] = _set(
    "frozen_columns", lambda data: torch.ones(IN, dtype=torch.bool), *_MASK_VALUES[:2]
)


def _in_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


def _as_sparse_matrix(rng: random.Random, data: Data) -> None:
    """PyG's other way to store edges, with or without the usual one."""
    nodes = data.x.size(0)
    dense = torch.zeros(nodes, nodes)
    dense[data.edge_index[1], data.edge_index[0]] = 1.0
    data.adj_t = rng.choice((dense.to_sparse_csr, dense.to_sparse, dense.clone))()
    if rng.random() < 0.5:
        del data.edge_index


def odd_graph(rng: random.Random, defects: int | None = None, **options: Any) -> tuple[str, Data]:
    """A graph with no, one or several defects, and what they are."""
    data = sound_graph(rng, **options)
    number = rng.choice((0, 1, 1, 1, 2, 3)) if defects is None else defects
    names = rng.sample(list(DEFECTS), number)
    for name in names:
        try:
            DEFECTS[name](rng, data)
        except (RuntimeError, IndexError, TypeError, AttributeError, NotImplementedError):  # of an earlier defect
            continue
    return "; ".join(names) or "sound", data


NO_GRAPHS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a dictionary": lambda: {"x": torch.ones(3, IN)},
    "a tuple": lambda: (torch.ones(3, IN), torch.zeros(2, 1, dtype=torch.long)),
    "an empty Data": Data,
    "a heterogeneous graph": HeteroData,
    "a list": lambda: [Data(x=torch.ones(3, IN))],
    "the class": lambda: Data,
    "a batch": lambda: Batch.from_data_list(
        [Data(x=torch.rand(4, IN), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]])) for _ in range(2)]
    ),
}


def any_graph(rng: random.Random) -> tuple[str, Any]:
    """A graph with defects, or seldom something that is none."""
    if rng.random() < 0.04:
        name = rng.choice(list(NO_GRAPHS))
        return name, NO_GRAPHS[name]()
    return odd_graph(rng)
