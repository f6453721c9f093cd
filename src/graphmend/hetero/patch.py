"""The reversible change of a heterogeneous graph: one patch per node type and edge type, in one file."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from graphmend.errors import GraphMendError, listed, require
from graphmend.files.files import path_of, read_header, read_safetensors, write_safetensors
from graphmend.graph.stores import EdgeType, check_stores, edge_name, feature_types, node_count
from graphmend.results.fingerprint import fingerprint_of
from graphmend.results.patch import Patch
from graphmend.results.tables import html_table

__all__ = ["HeteroPatch", "fingerprint_of_any", "is_of_format", "read_any_patch"]

FORMAT = "graphmend-hetero-patch-1"


@dataclass(frozen=True, eq=False)
class HeteroPatch:
    """What was changed in a ``HeteroData``, so that it can be done again and taken back, both bit for bit.

    Args:
        nodes: The :class:`~graphmend.Patch` of each node type with features: what changes in its rows.
        edges: The patch of each edge type: which edges are removed, with their attributes.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> from torch_geometric.nn import HGTConv
        >>> _ = torch.manual_seed(0)
        >>> data = HeteroData()
        >>> data["paper"].x, data["author"].x = torch.randn(60, 4), torch.randn(30, 3)
        >>> data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(60) % 30, torch.arange(60)])
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = HGTConv({"paper": 4, "author": 3}, 8, data.metadata())
        ...         self.last = torch.nn.Linear(8, 2)
        ...     def forward(self, x_dict, edge_index_dict):
        ...         return self.last(self.conv(x_dict, edge_index_dict)["paper"].relu())
        >>> model = Net()
        >>> import graphmend
        >>> from graphmend.hetero import HeteroPatch
        >>> today = data.clone()
        >>> today["author"].x[:3] *= 100
        >>> result = graphmend.mend(model, today)
        >>> result.patch.save("library.patch.safetensors")
        >>> patch = HeteroPatch.load("library.patch.safetensors")
        >>> torch.equal(patch.revert(result.data)["author"].x, today["author"].x)
        True
    """

    nodes: dict[str, Patch]
    edges: dict[EdgeType, Patch]

    @classmethod
    def make(
        cls, data: HeteroData, x: Mapping[str, Tensor], removed: Mapping[EdgeType, Tensor]
    ) -> tuple[HeteroPatch, HeteroData]:
        """The patch that changes a graph, and the mended graph.

        Args:
            data: The graph.
            x: The new features, by node type; other types keep theirs.
            removed: Positions of the edges to remove, ascending, by edge type.
        """
        nodes = {kind: Patch.make(_node_graph(data, kind), x.get(kind))[0] for kind in feature_types(data)}
        edges = {kind: Patch.make(_edge_graph(data, kind), removed=removed.get(kind))[0] for kind in data.edge_types}
        patch = cls(nodes, edges)
        return patch, patch.apply(data)

    def apply(self, data: HeteroData) -> HeteroData:
        """The mended graph; ``data`` must be the graph the patch was made for and is left as it was."""
        return self._changed(data, lambda patch, graph: patch.apply(graph), "was made for another graph")

    def revert(self, data: HeteroData) -> HeteroData:
        """The original graph, bit for bit; ``data`` must be the mended graph and is left as it was."""
        return self._changed(data, lambda patch, graph: patch.revert(graph), "did not make this graph")

    def _changed(self, data: HeteroData, change: Callable[[Patch, Data], Data], otherwise: str) -> HeteroData:
        check_stores(data)
        kinds = {*feature_types(data), *map(edge_name, data.edge_types)}
        own = {*self.nodes, *map(edge_name, self.edges)}
        require(kinds == own, f"this patch {otherwise}: it is of {listed(own)}, and the graph has {listed(kinds)}")
        out = copy.copy(data)
        for kind, patch in self.nodes.items():
            out[kind].x = _done(kind, change, patch, _node_graph(data, kind)).x
        for edge_type, patch in self.edges.items():
            changed = _done(edge_name(edge_type), change, patch, _edge_graph(data, edge_type, patch))
            store = out[edge_type]
            for name in {"edge_index", *patch.removed_attributes, *patch.removed_sequences}:
                store[name] = changed[name]
        return out

    @property
    def before(self) -> str:
        """A fingerprint of the graph the patch belongs to."""
        parts = [f"{name} {patch.before};" for name, patch in sorted(self._by_name().items())]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def _by_name(self) -> dict[str, Patch]:
        return {**self.nodes, **{edge_name(kind): patch for kind, patch in self.edges.items()}}

    @property
    def num_rows(self) -> int:
        """Nodes with changed features, of all types."""
        return sum(patch.num_rows for patch in self.nodes.values())

    @property
    def num_removed(self) -> int:
        """Stored edge entries removed, of all types."""
        return sum(patch.num_removed for patch in self.edges.values())

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return all(patch.is_empty for patch in self._by_name().values())

    def summary(self) -> str:
        """One line for people."""
        rows = [f"{patch.num_rows} of {kind}" for kind, patch in self.nodes.items() if patch.num_rows]
        edges = [f"{patch.num_removed} of {edge_name(kind)}" for kind, patch in self.edges.items() if patch.num_removed]
        return (
            f"feature rows changed: {', '.join(rows) or 'none'}; edge entries removed: {', '.join(edges) or 'none'} "
            f"(graph {self.before[:12]})"
        )

    def __repr__(self) -> str:
        return f"HeteroPatch({self.summary()})"

    def _repr_html_(self) -> str:
        rows = {f"feature rows of {kind}": f"{p.num_rows} of {p.nodes} changed" for kind, p in self.nodes.items()}
        rows |= {f"edges {edge_name(k)}": f"{p.num_removed} of {p.edges} removed" for k, p in self.edges.items()}
        return html_table("HeteroPatch", rows.items(), note=f"for the graph {self.before[:12]}")

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file with a JSON header, atomically."""
        tensors: dict[str, Tensor] = {}
        stores = []
        for number, (kind, patch) in enumerate([*self.nodes.items(), *self.edges.items()]):
            own, rest = patch.parts()
            tensors |= {f"{number}.{name}": value for name, value in own.items()}
            stores.append([kind, rest])
        header = {"format": FORMAT, "before": self.before, "summary": self.summary(), "stores": stores}
        write_safetensors(path, tensors, {"graphmend": json.dumps(header)})

    @classmethod
    def load(cls, path: str | Path) -> HeteroPatch:
        """Read a patch written by :meth:`save`; one that could not fit any graph is refused."""
        tensors, metadata = read_safetensors(path)
        written = {"kind": "heterogeneous patch", "written_by": "HeteroPatch.save", "remedy": "mend again"}
        header = read_header(path, metadata, FORMAT, **written)
        nodes: dict[str, Patch] = {}
        edges: dict[EdgeType, Patch] = {}
        try:
            for number, (kind, rest) in enumerate(header["stores"]):
                start = f"{number}."
                own = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
                patch = Patch.of_parts(own, rest, path)
                if isinstance(kind, str):
                    nodes[kind] = patch
                else:
                    source, relation, target = map(str, kind)
                    edges[source, relation, target] = patch
        except GraphMendError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise GraphMendError(f"the patch {path} is incomplete ({error!r:.80}); mend again") from error
        return cls(nodes, edges)


def fingerprint_of_any(data: Data | HeteroData) -> str:
    """The fingerprint of either kind of graph, which its patches name.

    Example:
        >>> from graphmend.hetero import fingerprint_of_any
        >>> from graphmend.lab.data import embedded
        >>> data = embedded("wine").test[0]
        >>> fingerprint_of_any(data) == fingerprint_of_any(data.clone())
        True
    """
    return HeteroPatch.make(data, {}, {})[0].before if isinstance(data, HeteroData) else fingerprint_of(data)


def read_any_patch(path: str | Path) -> Patch | HeteroPatch:
    """A patch of either kind of graph, as the header of the file says.

    Example:
        >>> import graphmend
        >>> from graphmend.hetero import read_any_patch
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> result = graphmend.mend(GCN(13, 16, 2, 3), embedded("wine").test[0], graphmend.GTrans(steps=2))
        >>> result.patch.save("any.patch.safetensors")
        >>> type(read_any_patch("any.patch.safetensors")).__name__
        'Patch'
    """
    if path_of(path).is_dir():
        return Patch.load(path)
    _, metadata = read_safetensors(path)
    return HeteroPatch.load(path) if is_of_format(metadata, FORMAT) else Patch.load(path)


def is_of_format(metadata: Mapping[str, str], form: str) -> bool:
    """Whether the header of a safetensors file names a format, of whatever version."""
    return f'"format": "{form.rstrip("0123456789")}' in metadata.get("graphmend", "")


def _done(name: str, change: Callable[[Patch, Data], Data], patch: Patch, graph: Data) -> Data:
    try:
        return change(patch, graph)
    except GraphMendError as error:
        raise GraphMendError(f"{name}: {error}") from error


def _node_graph(data: HeteroData, node_type: str) -> Data:
    """A node type as a graph without edges."""
    x = data[node_type].x
    return Data(x=x, edge_index=torch.empty(2, 0, dtype=torch.long, device=x.device))


def _edge_graph(data: HeteroData, edge_type: EdgeType, patch: Patch | None = None) -> Data:
    """An edge type as a graph whose nodes stand for those at both ends and have nothing to change.

    Everything with an entry per edge goes along. With a patch, it has as many nodes as the graph that it was made for.
    """
    store, (source, _, target) = data[edge_type], edge_type
    edge_index = store.edge_index
    edges, nodes = edge_index.size(1), max(node_count(data, source), node_count(data, target), 1)
    names = {"edge_weight"} if patch is None else {"edge_weight", *patch.removed_attributes, *patch.removed_sequences}
    own = {name: value for name, value in store.items() if name != "edge_index"}
    own = {name: value for name, value in own.items() if name in names or _has_one_each(value, edges)}
    nodes = nodes + (nodes == edges) if patch is None else patch.nodes
    x = torch.zeros(nodes, 1, device=edge_index.device)
    graph = Data(x=x, edge_index=edge_index)
    for name, value in own.items():
        graph[name] = value
    return graph


def _has_one_each(value: Any, edges: int) -> bool:
    if isinstance(value, Tensor):
        return value.dim() > 0 and value.size(0) == edges
    return hasattr(value, "__len__") and not isinstance(value, (str, dict)) and len(value) == edges
