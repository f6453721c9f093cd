"""Graphs on disk: ``.npz`` of plain arrays, or a PyG ``Data`` saved with torch; no pickle can run code."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from graphmend.errors import GraphMendError, listed, require
from graphmend.graph.checks import check_graph
from graphmend.io.files import BROKEN, first_line, read_arrays, write_arrays

_SAFE = [Data, DataEdgeAttr, DataTensorAttr, BaseStorage, GlobalStorage, NodeStorage, EdgeStorage]


def load_graph(path: str | Path) -> Data:
    """Read and check a graph.

    An ``.npz`` holds ``x`` (nodes x features) and ``edge_index`` (2 x edges), and optionally ``edge_weight``, ``y`` and
    any further arrays such as ``train_mask``. A ``.pt`` or ``.pth`` holds a PyG ``Data``, read with ``weights_only``.
    """
    path = Path(path)
    require(path.exists(), f"there is no file {path}; check the path")
    require(path.is_file(), f"{path} is not a file; give a .npz or a .pt file")
    kind = path.suffix.lower()
    require(kind in (".npz", ".pt", ".pth"), f"{path} has an unknown ending {kind!r}; give a .npz or a .pt file")
    data = _read_npz(path) if kind == ".npz" else _read_torch(path)
    try:
        check_graph(data)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {error}") from error
    return data


def save_graph(path: str | Path, data: Data) -> None:
    """Write every tensor of a graph into a compressed ``.npz``, atomically."""
    arrays = {name: value.detach().cpu().numpy() for name, value in data.to_dict().items() if isinstance(value, Tensor)}
    write_arrays(path, arrays)


def _read_npz(path: Path) -> Data:
    arrays = read_arrays(path)
    missing = [name for name in ("x", "edge_index") if name not in arrays]
    require(not missing, f"{path} has no array {' and no '.join(missing)}; it has {listed(arrays) or 'none'}")
    tensors = {}
    for name, array in arrays.items():
        require(array.dtype.kind in "biuf", f"{path}: {name} holds {array.dtype}, not numbers; convert it")
        if array.dtype.kind == "u":  # few operations of torch take unsigned integers
            array = array.astype(np.int64)
        tensors[name] = torch.from_numpy(np.ascontiguousarray(array))
    if tensors["edge_index"].dtype in (torch.int8, torch.int16, torch.int32):
        tensors["edge_index"] = tensors["edge_index"].long()
    if "y" in tensors and not tensors["y"].is_floating_point():
        tensors["y"] = tensors["y"].long()
    return Data(**tensors)


def _read_torch(path: Path) -> Data:
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_SAFE):
            warnings.simplefilter("ignore")  # torch warns about old pickles before it refuses them
            data = torch.load(path, map_location="cpu", weights_only=True)
    except (*BROKEN, RuntimeError, pickle.UnpicklingError, AttributeError) as error:
        raise GraphMendError(
            f"{path} is not a PyG Data saved with torch.save, or holds more than tensors ({first_line(error)}); "
            "save the graph as .npz instead"
        ) from error
    require(isinstance(data, Data), f"{path} holds a {type(data).__name__}, not a torch_geometric.data.Data")
    return data
