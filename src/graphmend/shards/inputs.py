"""What a graph folder is packed from: tables, a folder in OGB's layout, files with arrays, a Data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import listed, require
from graphmend.files.array_graphs import read_note, tensor_of
from graphmend.files.files import check_file, open_arrays, path_of
from graphmend.files.graph_files import check_name
from graphmend.files.torch_graphs import read_torch
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edits import edge_attribute_names
from graphmend.shards.folder import open_array

__all__ = ["Arrays", "Tables", "arrays_of", "identity", "ogb_tables", "tables_of"]

TABLES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_AGAIN = "write the file again"


@dataclass(frozen=True)
class Arrays:
    """A graph of arrays, mapped where they come from a file.

    Args:
        nodes: Everything with a row for each node; ``x`` among them.
        edge_index: The edges.
        edges: Everything else with a row for each edge.
        values: What is neither.
    """

    nodes: dict[str, Tensor]
    edge_index: Tensor
    edges: dict[str, Tensor]
    values: dict[str, Any]


@dataclass(frozen=True)
class Tables:
    """Files of tables.

    Args:
        nodes: Files with a row for each node.
        edges: Files with a row for each edge.
        extra: Further files with a row for each node and one column, by the name of the attribute.
        masks: Files that list the nodes of a mask, by its name.
        has_header: Whether the first line of a text file names the columns.
    """

    nodes: tuple[Path, ...]
    edges: tuple[Path, ...]
    extra: dict[str, Path] = field(default_factory=dict)
    masks: dict[str, Path] = field(default_factory=dict)
    has_header: bool = True

    @property
    def files(self) -> list[Path]:
        """All files."""
        return [*self.nodes, *self.edges, *self.extra.values(), *self.masks.values()]

    def relation(self, file: Path) -> str:
        """A file as something to select from, in SQL."""
        name = "'" + str(file).replace("'", "''") + "'"
        if file.name.lower().endswith(".parquet"):
            return f"read_parquet({name})"
        return f"read_csv({name}, header={str(self.has_header).lower()}, parallel=false)"


def tables_of(nodes: Sequence[str | Path] | str | Path, edges: Sequence[str | Path] | str | Path) -> Tables:
    """The tables in some files, folders of files, or both."""
    return Tables(_files(nodes, "nodes"), _files(edges, "edges"))


def _files(given: Sequence[str | Path] | str | Path, kind: str) -> tuple[Path, ...]:
    paths = [given] if isinstance(given, str | Path) else list(given)
    files: list[Path] = []
    for path in map(path_of, paths):
        inside = sorted(file for file in path.iterdir() if _is_table(file)) if path.is_dir() else [path]
        require(len(inside) > 0, f"{path} holds no table; give files that end in {', '.join(TABLES)}")
        files += inside
    for file in files:
        check_file(file)
        require(_is_table(file), f"{file} is no table of {kind}; give files that end in {', '.join(TABLES)}")
    require(len(files) > 0, f"there is no table of {kind}; give at least one file")
    return tuple(file.absolute() for file in files)


def _is_table(file: Path) -> bool:
    return file.name.lower().endswith(TABLES)


def ogb_tables(folder: Path) -> Tables:
    """The tables of a data set as OGB has them on disk: ``raw/*.csv.gz`` and ``split/*/*.csv.gz``."""
    raw = folder / "raw"
    needed = {name: raw / f"{name}.csv.gz" for name in ("edge", "node-feat", "num-node-list")}
    missing = [name for name, file in needed.items() if not file.is_file()]
    require(not missing, f"{folder} is no data set in OGB's layout: raw/ has no {listed(missing)}; give other files")
    require(
        len((folder / "raw" / "num-node-list.csv.gz").read_bytes()) < 4096,
        f"{folder} holds many graphs; a graph folder holds one",
    )
    label, weight = raw / "node-label.csv.gz", raw / "node_year.csv.gz"
    extra = {name: file.absolute() for name, file in (("y", label), ("node_year", weight)) if file.is_file()}
    splits = [path for path in sorted((folder / "split").glob("*")) if path.is_dir()]
    require(len(splits) < 2, f"{folder / 'split'} has several splits; leave one")
    names = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
    lists = {mask: splits[0] / f"{name}.csv.gz" for name, mask in names.items()} if splits else {}
    masks = {mask: file.absolute() for mask, file in lists.items() if file.is_file()}
    return Tables((needed["node-feat"].absolute(),), (needed["edge"].absolute(),), extra, masks, has_header=False)


def identity(files: Sequence[Path]) -> list[list[Any]]:
    """What tells whether files are still those that were begun with."""
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def arrays_of(source: Path | Data, scratch: Path) -> Arrays:
    """The arrays of a graph file or a ``Data``; entries of an archive are unpacked into a folder and mapped."""
    if isinstance(source, Data):
        data = source
    else:
        check_file(source)
        kind = source.suffix.lower()
        require(kind in (".npz", ".pt", ".pth"), f"{source} has an unknown ending {kind!r}; give .npz, .pt or tables")
        data = Data()
        values = _unpacked(source, scratch) if kind == ".npz" else read_torch(source, mapped=True)
        for name, value in values.items():
            check_name(source, name)
            data[name] = value
    data = with_edge_index(data)
    name = "the graph" if isinstance(source, Data) else str(source)
    x, edge_index = data.get("x"), data.get("edge_index")
    is_graph = isinstance(x, Tensor) and x.dim() == 2 and x.is_floating_point() and x.numel() > 0
    require(is_graph, f"{name} has no x of nodes x features, floating-point; set data.x")
    is_list = isinstance(edge_index, Tensor) and edge_index.dim() == 2 and edge_index.size(0) == 2
    require(is_list, f"{name} has no edge_index of shape (2, edges); set data.edge_index")
    assert isinstance(x, Tensor) and isinstance(edge_index, Tensor)
    require(not edge_index.is_floating_point(), f"{name}: edge_index holds {edge_index.dtype}; use whole numbers")
    of_edges = set(edge_attribute_names(data)) - {"edge_index"}
    nodes: dict[str, Tensor] = {}
    edges: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for key, value in data.to_dict().items():
        if key in ("edge_index", "num_nodes"):
            continue
        if not isinstance(value, Tensor):
            plain = isinstance(value, str | int | float | bool) or value is None
            require(plain, f"{name}: {key!r} is a {type(value).__name__}, which no array holds; leave it out")
            rest[key] = value
            continue
        value = value.detach().cpu()
        rows = value.size(0) if value.dim() else 0
        if key in of_edges:
            require(rows == edge_index.size(1), f"{name}: {key!r} has {rows} rows for {edge_index.size(1)} edges")
            edges[key] = value
        else:
            fits = rows == x.size(0)
            require(fits, f"{name}: {key!r} has {rows} rows, but there are {x.size(0)} nodes; leave it out")
            nodes[key] = value
    return Arrays(nodes, edge_index.detach().cpu(), edges, rest)


def _unpacked(source: Path, scratch: Path) -> dict[str, Any]:
    """The arrays of an ``.npz``, each copied into a file of its own and mapped; zip compares the checksums."""
    out: dict[str, Any] = {}
    with open_arrays(source, _AGAIN) as file:
        note = read_note(source, file)
        for name in file.files:
            check_name(source, name)
            copy = scratch / f"{name}.npy"
            file.unpack(name, copy)
            out[name] = tensor_of(source, name, open_array(copy, _AGAIN), note["types"].get(name))
        out.update(note["values"])
    missing = [name for name in ("x", "edge_index") if name not in out]
    require(not missing, f"{source} has no array {' and no '.join(missing)}; it has {listed(out) or 'none'}")
    return out
