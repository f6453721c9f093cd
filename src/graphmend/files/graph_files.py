"""Graphs on disk: ``.npz`` of plain arrays, or a PyG ``Data`` saved with torch; no file can run code."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import GlobalStorage

from graphmend.errors import GraphMendError, choose, require
from graphmend.files.array_graphs import TYPES, npz_can_hold, read_npz, write_npz
from graphmend.files.files import check_file, path_of
from graphmend.files.hetero_graphs import are_of_types, flat, hetero_of, own_name
from graphmend.files.torch_graphs import read_torch, torch_can_hold, write_torch
from graphmend.graph.checks import check_graph
from graphmend.graph.convert import with_edge_index
from graphmend.graph.stores import check_hetero

__all__ = ["load_graph", "save_graph"]

_LOG = logging.getLogger(__name__)


class Format(NamedTuple):
    """How attributes of a graph are read from a file and written into one, and which ones it can hold."""

    read: Callable[[Path], dict[str, Any]]
    write: Callable[[Path, dict[str, Any]], None]
    can_hold: Callable[[Any], bool]


_NPZ = Format(read_npz, write_npz, npz_can_hold)
_TORCH = Format(read_torch, write_torch, torch_can_hold)
FORMATS = {".npz": _NPZ, ".pt": _TORCH, ".pth": _TORCH}

_OF_A_GRAPH = {"x", "edge_index", "edge_weight", "edge_attr", "y", "pos", "batch", "time", "face", "num_nodes"}
_OF_PYG = ({*dir(Data), *dir(GlobalStorage)} - _OF_A_GRAPH) | {"self"}


def load_graph(path: str | Path, *, missing_allowed: bool = True) -> Data:
    """Read and check a graph.

    No code in the file is run, and the memory that it would take is compared with its size and with the free memory
    before it is read.

    Args:
        path: An ``.npz`` with ``x`` (nodes x features) and ``edge_index`` (2 x edges), and optionally ``edge_weight``,
            ``y`` and any further arrays such as ``train_mask``; or a ``.pt`` or ``.pth`` with a PyG ``Data`` of tensors
            and plain values, written by ``torch.save``, whose edges may also be in a sparse ``adj_t``. A ``HeteroData``
            is read as well: a ``.pt`` of it, or an ``.npz`` with arrays such as ``paper.x`` and
            ``author__writes__paper.edge_index``.
        missing_allowed: Whether features may be missing (NaN); :func:`~graphmend.mend` fills them.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphmend import load_graph, save_graph
        >>> import tempfile, torch
        >>> graph = Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), name="a path")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_graph(f"{folder}/graph.npz", graph)
        ...     load_graph(f"{folder}/graph.npz")
        Data(name='a path', x=[3, 2], edge_index=[2, 2])
    """
    path = path_of(path)
    kind = path.suffix.lower()
    check_file(path)
    require(kind in FORMATS, f"{path} has an unknown ending {kind!r}; give a .npz or a .pt file")
    attributes = FORMATS[kind].read(path)
    for name, value in attributes.items():
        own = own_name(name, attributes)
        check_name(path, own)
        if own == "num_nodes":
            attributes[name] = _node_count(path, value)
    if are_of_types(attributes):
        return _checked_hetero(path, attributes, missing_allowed)
    data = Data()
    for name, value in attributes.items():
        data[name] = value
    try:
        data = with_edge_index(data)
        check_graph(data, missing_allowed=missing_allowed)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {error}") from error
    return data


def _checked_hetero(path: Path, attributes: dict[str, Any], missing_allowed: bool) -> HeteroData:
    try:
        data = hetero_of(path, attributes)
        check_hetero(data, missing_allowed=missing_allowed)
    except GraphMendError as error:
        raise GraphMendError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    return data


def save_graph(path: str | Path, data: Data) -> None:
    """Write a graph, atomically, so that :func:`load_graph` returns it.

    Attributes that the file cannot hold are left out, and a warning in the log names them. An ``.npz`` holds tensors,
    numbers, texts, and lists and dictionaries of numbers and texts; a ``.pt`` also holds sparse tensors, tuples, and
    tensors in lists and dictionaries.

    Args:
        path: A file that ends in ``.npz``, ``.pt`` or ``.pth``.
        data: The graph.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> data = embedded("wine").test[0]
        >>> graphmend.save_graph("wine.npz", data)
        >>> graphmend.load_graph("wine.npz").num_nodes
        178
    """
    path, given = path_of(path), type(data).__name__
    require(isinstance(data, (Data, HeteroData)), f"the graph must be a torch_geometric.data.Data (got {given})")
    form = choose("ending of a graph file", path.suffix.lower(), FORMATS)
    given_attributes = flat(path, data) if isinstance(data, HeteroData) else data.to_dict()
    attributes = {name: _as_stored(value) for name, value in given_attributes.items()}
    for name in attributes:
        check_name(path, own_name(name, attributes))
    left_out = [name for name, value in attributes.items() if not form.can_hold(value)]
    needed = [name for name in attributes if own_name(name, attributes) in ("x", "edge_index")]
    for name in needed if isinstance(data, HeteroData) else ("x", "edge_index"):
        kind = getattr(attributes.get(name), "dtype", type(attributes.get(name)).__name__)
        require(name not in left_out, f"{path} cannot hold the graph: {name} is {kind}; convert it to a dense tensor")
    form.write(path, {name: value for name, value in attributes.items() if name not in left_out})
    if left_out:
        _LOG.warning("%s cannot hold these attributes of the graph, which are left out: %s", path, ", ".join(left_out))


def check_name(path: Path, name: str) -> None:
    """Raise unless an attribute of a graph may have a name."""
    is_free = name != "" and name.isprintable() and not name.startswith("_") and name not in _OF_PYG
    require(is_free, f"{path}: an attribute cannot have the name {name[:40]!r}, which PyG needs itself; rename it")


def _node_count(path: Path, value: Any) -> int:
    if isinstance(value, Tensor) and value.numel() == 1 and value.dtype in (torch.int32, torch.int64):
        value = int(value)
    require(type(value) is int, f"{path}: num_nodes is a {type(value).__name__}, not one whole number; leave it out")
    count: int = value
    return count


def _as_stored(value: Any) -> Any:
    """A tensor as it goes into a file: plain, on the CPU, and not a view of something larger."""
    if not isinstance(value, Tensor) or value.is_meta or value.is_nested or value.dtype not in TYPES.values():
        return value
    plain = value.detach().cpu()
    if plain.layout != torch.strided:
        return plain
    plain = plain.as_subclass(Tensor).resolve_conj().resolve_neg().contiguous()
    is_part = plain.untyped_storage().nbytes() > plain.numel() * plain.element_size()
    return plain.clone() if is_part else plain
