"""Graphs as ``.pt``: a PyG ``Data`` written by ``torch.save`` and read without running any code from the file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from graphmend.errors import GraphMendError, require
from graphmend.files.archives import check_contents, check_size, open_archive
from graphmend.files.array_graphs import DEPTH, TYPES
from graphmend.files.files import BROKEN, first_line, write_atomically
from graphmend.files.hetero_graphs import are_of_types, hetero_of, own_name, store_name

_SAFE = [Data, HeteroData, DataEdgeAttr, DataTensorAttr, BaseStorage, GlobalStorage, NodeStorage, EdgeStorage]
_AS_NPZ = "save the graph as .npz instead"
_DENSE = ("x", "edge_index", "edge_weight", "y")


def read_torch(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """The attributes of a graph. Sizes and checksums are compared first: torch itself does neither.

    Args:
        path: The file.
        mapped: Whether tensors stay in the file until they are used; then they need not fit into memory.
    """
    try:
        with open_archive(path) as archive:
            unpacked = check_contents(path, archive)
    except GraphMendError:
        raise
    except BROKEN as error:
        raise GraphMendError(
            f"{path} is damaged, or was not written by torch.save of version 1.6 or later ({first_line(error)}); "
            f"{_AS_NPZ}"
        ) from error
    attributes = _attributes(path, _load(path, mapped))
    count, size = 0, 0
    for part in _parts(path, attributes):
        count, size = count + 1, size + (_size(part) if isinstance(part, Tensor) else 0)
        # A byte of the file makes one item at most, unless lists hold the same lists again and again.
        require(count <= unpacked, f"{path} holds lists that are out of proportion to the file; {_AS_NPZ}")
    if not mapped:
        check_size(path, size, "if its contents really are that large, save its tensors with .contiguous()")
    return {name: _plain(path, name, value, own_name(name, attributes)) for name, value in attributes.items()}


def write_torch(path: Path, attributes: Mapping[str, Any]) -> None:
    """Write attributes that :func:`torch_can_hold`."""
    data, starts = Data(), set()
    is_hetero = are_of_types(attributes)
    for name, value in attributes.items():
        if isinstance(value, Tensor) and value.layout == torch.strided:
            is_shared = value.data_ptr() in starts  # torch does not save the same memory as two types
            starts.add(value.data_ptr())
            value = value.clone() if is_shared else value
        data[name] = value
    whole = hetero_of(path, data.to_dict()) if is_hetero else data
    write_atomically(path, lambda temporary: torch.save(whole, temporary))


def torch_can_hold(value: Any, depth: int = 0) -> bool:
    """Whether :func:`read_torch` gives back an attribute as it is."""
    if type(value) in (list, tuple, set) and depth < DEPTH:
        return all(torch_can_hold(item, depth + 1) for item in value)
    if type(value) is dict and depth < DEPTH:
        return all(torch_can_hold(part, depth + 1) for pair in value.items() for part in pair)
    if isinstance(value, Tensor):
        is_usual = not (value.is_nested or value.is_quantized or value.is_meta)
        return type(value) is Tensor and is_usual and value.dtype in TYPES.values()
    return value is None or type(value) in (str, int, float, bool, complex)


def _load(path: Path, mapped: bool) -> Any:
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_SAFE):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a file made to do harm can lead to an error of any kind
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds {refused[1]}" if refused else first_line(error)
        raise GraphMendError(
            f"{path} is not a PyG Data saved with torch.save, or holds more than tensors and plain values ({reason}); "
            f"{_AS_NPZ}"
        ) from error


def _attributes(path: Path, data: Any) -> dict[str, Any]:
    """What is in the storage of a ``Data``; everything else about the object is ignored."""
    if type(data) is HeteroData:
        return _of_stores(path, data)
    kind = type(data).__name__
    require(type(data) is Data, f"{path} holds a {kind}, not a torch_geometric.data.Data; save the graph alone")
    store = vars(data).get("_store")
    return _mapping(path, store)


def _of_stores(path: Path, data: Any) -> dict[str, Any]:
    """The attributes of a ``HeteroData`` by type and name, as in ``paper.x``."""
    nodes, edges = (vars(data).get(name) for name in ("_node_store_dict", "_edge_store_dict"))
    is_sound = isinstance(nodes, dict) and isinstance(edges, dict)
    require(is_sound, f"{path} holds a HeteroData without types; {_AS_NPZ}")
    out = _mapping(path, vars(data).get("_global_store"))
    for kind, store in [*nodes.items(), *edges.items()]:
        start = store_name(path, kind)
        out |= {f"{start}.{name}": value for name, value in _mapping(path, store).items()}
    return out


def _mapping(path: Path, store: Any) -> dict[str, Any]:
    mapping = vars(store).get("_mapping") if isinstance(store, BaseStorage) else None
    is_sound = isinstance(mapping, dict) and all(isinstance(name, str) for name in mapping)
    require(is_sound, f"{path} holds a Data without attributes, or of PyG before version 2; {_AS_NPZ}")
    assert isinstance(mapping, dict)
    return dict(mapping)


def _parts(path: Path, value: Any, depth: int = 0) -> Iterator[Any]:
    """Everything in lists and dictionaries."""
    require(depth <= DEPTH, f"{path} holds lists within lists, deeper than {DEPTH}; {_AS_NPZ}")
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(path, key, depth + 1)
            yield from _parts(path, item, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _parts(path, item, depth + 1)
    yield value


def _size(value: Tensor) -> int:
    """Bytes that a tensor takes once it is no view of something smaller."""
    if value.is_nested:
        return 0  # refused later
    if value.layout == torch.sparse_coo:
        return _size(value._indices()) + _size(value._values())
    if value.layout != torch.strided:
        return value._nnz() * (value.element_size() + 16)
    return value.numel() * value.element_size()


def _plain(path: Path, name: str, value: Any, own: str) -> Any:
    """A tensor with values of its own, in a type that the library can work with; other things as they are."""
    if not isinstance(value, Tensor):
        return value
    where = f"{path}: {name!r}"
    require(value.device.type == "cpu", f"{where} is on the device {value.device}, so it has no values; write it again")
    require(not value.is_quantized, f"{where} is quantised; convert it with dequantize()")
    require(value.dtype in TYPES.values(), f"{where} holds {value.dtype}; convert it with .float()")
    require(not value.is_nested, f"{where} is a nested tensor; pad it")
    is_dense = value.layout == torch.strided
    require(
        is_dense or own not in _DENSE,
        f"{where} is stored as {value.layout}; pass a dense tensor, .to_dense()",
    )
    return value.detach().resolve_conj().resolve_neg().contiguous() if is_dense else value.detach()
