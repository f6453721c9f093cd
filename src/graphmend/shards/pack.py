"""Packing a graph into a folder, with bounded memory, in parts that survive a crash.

DuckDB reads the tables, joins the names of nodes with their numbers and sorts the edges; what does not fit into its
share of the memory goes to the disk. Its database lies in the unfinished folder beside the result. Every part, a file
that is read or a range of targets that is sorted, is one transaction, so a run that was killed goes on with the part
it was in.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.files.files import Array, check_folder, escaped, path_of
from graphmend.shards.folder import NOTE, checksum, create_array, open_array, write_note
from graphmend.shards.inputs import Arrays, Tables, arrays_of, identity, ogb_tables, tables_of
from graphmend.shards.reading import checked_edges, read_edges, read_nodes

__all__ = ["pack"]

_LOG = logging.getLogger(__name__)

PART = 4_000_000  # edges, or numbers of features, at a time
MEMORY = 1.0  # GiB that DuckDB may take
_BUSY: set[str] = set()  # folders that this process packs; DuckDB keeps other processes out
_LOCK = threading.Lock()


def pack(
    out: str | Path,
    source: Data | str | Path | None = None,
    *,
    nodes: Sequence[str | Path] | str | Path | None = None,
    edges: Sequence[str | Path] | str | Path | None = None,
    both_directions: bool = False,
    memory: float = MEMORY,
    part: int = PART,
) -> Path:
    r"""Write a graph folder; a run that was interrupted is resumed by the same call.

    Args:
        out: The folder to make; until it is complete, it is called ``OUT.partial``.
        source: A ``Data``, an ``.npz`` or a ``.pt`` with one, or a folder in OGB's layout; or else give tables.
        nodes: Tables with a row for each node, Parquet or CSV, also compressed: a column ``id`` (any numbers or texts),
            ``y``, masks (``*_mask``), and features: all other numbers, or a column of lists.
        edges: Tables with a row for each edge: the columns ``source`` and ``target``, or else the first two; and
            ``edge_weight`` or ``weight``; further numbers become ``edge_attr``.
        both_directions: Whether each edge is listed once and shall be there in both directions.
        memory: How many GiB DuckDB may take.
        part: How many edges, or numbers of features, are held at a time.

    Example:
        >>> from pathlib import Path
        >>> from graphmend import open_graph
        >>> from graphmend.shards import pack
        >>> _ = Path("nodes.csv").write_text("id,height,weight\nann,1.7,60\nbob,1.8,80\n")
        >>> _ = Path("edges.csv").write_text("source,target\nann,bob\n")
        >>> _ = pack("people", nodes="nodes.csv", edges="edges.csv")
        >>> open_graph("people").x.shape
        torch.Size([2, 2])
    """
    target = path_of(out)
    remedy = "remove it or choose another folder"
    require(not target.exists(), f"{target} is there already; {remedy}")
    check_folder(target)
    given = source is not None, nodes is not None or edges is not None
    require(given in ((True, False), (False, True)), "give either a graph, or tables of nodes and edges")
    require(source is not None or (nodes is not None and edges is not None), "give tables of nodes and of edges")
    if source is None:
        assert nodes is not None and edges is not None
        read: Any = tables_of(nodes, edges)
    elif isinstance(source, Data):
        read = source
    else:
        path = path_of(source)
        read = ogb_tables(path) if path.is_dir() else path.absolute()
    require(0.05 <= memory <= 1e6, f"memory must be at least 0.05 GiB (got {memory})")
    with _working(target, memory) as (connection, work):
        _Packing(connection, work, read, both_directions, max(1, part)).run()
        connection.close()
        _finish(work, target)
    return target


@contextmanager
def _working(target: Path, memory: float) -> Iterator[tuple[Any, Path]]:
    """The unfinished folder and its database, for this process alone."""
    try:
        import duckdb
    except ImportError as error:
        raise GraphMendError("packing needs DuckDB; install it with pip install 'graphmend[scale]'") from error
    work = target.parent / f"{target.name}.partial"
    busy = f"{work} is being written by another process; wait for it, or choose another folder"
    name = str(work.resolve())
    with _LOCK:
        require(name not in _BUSY, busy)
        _BUSY.add(name)
    connection = None
    try:
        work.mkdir(parents=True, exist_ok=True)
        try:
            connection = duckdb.connect(str(work / "work.duckdb"))
        except duckdb.IOException as error:
            require("lock" not in str(error).lower(), busy)
            raise
        for name_, value in (
            ("memory_limit", f"'{int(memory * 1024)}MB'"),
            ("temp_directory", "'" + str(work / "spilled").replace("'", "''") + "'"),
            ("preserve_insertion_order", "true"),
            ("enable_progress_bar", "false"),
            ("threads", str(max(1, min(4, torch.get_num_threads())))),
        ):
            connection.execute(f"SET {name_}={value}")
        yield connection, work
    except duckdb.Error as error:
        raise GraphMendError(_sentence(error, work)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise GraphMendError(
            f"cannot write into {work}: {reason}; make room, and run the same call again to resume"
        ) from error
    finally:
        if connection is not None:
            connection.close()
        with _LOCK:
            _BUSY.discard(str(work.resolve()))


def _sentence(error: Exception, work: Path) -> str:
    reason = " ".join(str(error).split())
    is_full = "No space left" in reason or "disk" in reason.lower()
    remedy = "make room, and run the same call again to resume" if is_full else "mend the table and run it again"
    return f"the graph cannot be packed ({escaped(reason, 300)}); {remedy}"


def _finish(work: Path, target: Path) -> None:
    for name in ("work.duckdb", "work.duckdb.wal"):
        (work / name).unlink(missing_ok=True)
    for folder in ("spilled", "inputs"):
        shutil.rmtree(work / folder, ignore_errors=True)
    work.rename(target)


class _Packing:
    """One call of :func:`pack`, as steps that are done once each."""

    def __init__(self, connection: Any, work: Path, source: Any, both_directions: bool, part: int) -> None:
        self.sql, self.work, self.source, self.part = connection, work, source, part
        self.both_directions = both_directions
        self.arrays: dict[str, dict[str, Any]] = {}
        self.values: dict[str, Any] = {}

    def run(self) -> None:
        """All steps, those that are done left out."""
        self._begin()
        if isinstance(self.source, Tables):
            self._read_tables(self.source)
            nodes = self._count("nodes")
            attributes = None
        else:
            scratch = self.work / "inputs"
            scratch.mkdir(exist_ok=True)
            attributes = arrays_of(self.source, scratch)
            nodes = self._read_arrays(attributes)
        self._write_edges(nodes, attributes)
        self.done("checksums", self._checksums)
        rows = self.sql.execute(
            "SELECT name, kind, shape, sum FROM arrays JOIN sums USING (name) ORDER BY name"
        ).fetchall()
        arrays = {n: {"type": kind, "shape": json.loads(shape), "checksum": total} for n, kind, shape, total in rows}
        write_note(self.work, arrays, self.values, self._is_symmetric())

    def done(self, step: str, do: Callable[[], object]) -> None:
        """Do a step, in one transaction with the note that it is done, unless that is there."""
        if self._is_done(step):
            return
        _LOG.info("packing %s: %s", self.work.name.removesuffix(".partial"), step)
        self.sql.execute("BEGIN")
        try:
            do()
            self.sql.execute("INSERT INTO done VALUES (?)", [step])
            self.sql.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    def _is_done(self, step: str) -> bool:
        return bool(self.sql.execute("SELECT count(*) FROM done WHERE step = ?", [step]).fetchone()[0])

    def _rollback(self) -> None:
        try:
            self.sql.execute("ROLLBACK")
        except Exception as error:  # the transaction has been given up already
            _LOG.debug("no transaction to take back: %s", error)

    def _begin(self) -> None:
        """Start anew if there is nothing, or if what was begun has another source."""
        if isinstance(self.source, Tables):
            files: list[Any] = identity(self.source.files)
        elif isinstance(self.source, Data):
            files = [None]  # an object may change at any time
        else:
            require(self.source.is_file(), f"there is no file {self.source}; check the path")
            files = identity([self.source])
        wanted = json.dumps([1, files, self.both_directions, self.part])
        self.sql.execute("CREATE TABLE IF NOT EXISTS call (text VARCHAR)")
        found = self.sql.execute("SELECT text FROM call").fetchone()
        if found is None or found[0] != wanted or isinstance(self.source, Data):
            tables = self.sql.execute("SELECT table_name FROM information_schema.tables").fetchall()
            for (name,) in tables:
                self.sql.execute(f'DROP TABLE "{name}"')
            for file in self.work.glob("*.npy"):
                file.unlink()
            shutil.rmtree(self.work / "inputs", ignore_errors=True)
            self.sql.execute("CREATE TABLE call (text VARCHAR)")
            self.sql.execute("CREATE TABLE done (step VARCHAR)")
            self.sql.execute("INSERT INTO call VALUES (?)", [wanted])
        for name in (NOTE,):
            (self.work / name).unlink(missing_ok=True)

    def _count(self, table: str) -> int:
        return int(self.sql.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def _is_symmetric(self) -> bool:
        forth, back = self.sql.execute(
            "SELECT sum(hash(source, target)::HUGEINT), sum(hash(target, source)::HUGEINT) FROM numbered"
        ).fetchone()
        return bool(forth == back)

    # ---------------------------------------------------------------- reading

    def _read_tables(self, tables: Tables) -> None:
        read_nodes(self, tables)
        read_edges(self, tables)

    def _read_arrays(self, arrays: Arrays) -> int:
        nodes, edges = int(arrays.nodes["x"].size(0)), int(arrays.edge_index.size(1))
        self.values = arrays.values
        require(edges > 0, "the graph has no edges; there is nothing to pass messages over")
        for name, tensor in arrays.nodes.items():
            step = max(1, self.part // max(1, tensor[:1].numel()))
            blocks = [(start, min(nodes, start + step)) for start in range(0, nodes, step)]
            for start, end in blocks:
                self.done(f"{name} {start}", partial(self._write_rows, name, tensor[start:end], start, nodes))
        self.sql.execute("CREATE TABLE IF NOT EXISTS numbered (source BIGINT, target BIGINT, place BIGINT)")
        for start in range(0, edges, self.part):
            self.done(f"edges {start}", partial(self._number, arrays.edge_index, start, nodes))
        return nodes

    def _number(self, edge_index: Tensor, start: int, nodes: int) -> None:
        source, target = edge_index[:, start : start + self.part].long().numpy()
        checked_edges(source, target, start, nodes)
        place = np.arange(start, start + source.size)
        piece = {"source": source, "target": target, "place": place}
        self.sql.register("piece", piece)
        self.sql.execute("INSERT INTO numbered SELECT source, target, place FROM piece")
        if self.both_directions:
            self.sql.execute("INSERT INTO numbered SELECT target, source, place FROM piece WHERE source <> target")
        self.sql.unregister("piece")

    # ---------------------------------------------------------------- writing

    def _file(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """The array of an attribute, to write into."""
        file = self.work / f"{name}.npy"
        if file.is_file() and self._is_done(f"{name}.npy"):
            return open_array(file, "pack the graph again", "r+")
        array = create_array(file, shape, dtype)
        self.sql.execute("INSERT INTO done VALUES (?)", [f"{name}.npy"])
        return array

    def _write_rows(self, name: str, rows: Tensor | Array, start: int, total: int) -> None:
        """Rows of an attribute of the nodes; what is infinite is refused."""
        tensor = rows if isinstance(rows, Tensor) else torch.from_numpy(rows)
        if name == "x" and bool(tensor.isinf().any()):
            row, column = tensor.isinf().nonzero()[0].tolist()
            value = float(tensor[row, column])
            require(False, f"feature {column} of node {start + row} is {value}; replace it, or leave it empty")
        array = self._file(name, (total, *tensor.shape[1:]), _numpy_type(tensor))
        array[start : start + tensor.size(0)] = _as_array(tensor)
        _flush(array)
        self._note(name, tensor, array.shape)

    def _note(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
        kind = str(tensor.dtype).removeprefix("torch.")
        self.sql.execute("CREATE TABLE IF NOT EXISTS arrays (name VARCHAR, kind VARCHAR, shape VARCHAR)")
        self.sql.execute("DELETE FROM arrays WHERE name = ?", [name])
        self.sql.execute("INSERT INTO arrays VALUES (?, ?, ?)", [name, kind, json.dumps(list(map(int, shape)))])

    def _write_edges(self, nodes: int, arrays: Arrays | None) -> None:
        """Sorted by target and then by source, one range of targets after the other."""
        edges = self._count("numbered")
        require(edges > 0, "the graph has no edges; there is nothing to pass messages over")
        ranges = max(1, -(-edges // self.part))
        width = -(-nodes // ranges)
        counted = self.sql.execute(f"SELECT target // {width}, count(*) FROM numbered GROUP BY ALL").fetchall()
        counts = dict(counted)
        start = 0
        for number in range(-(-nodes // width)):
            first, last = number * width, min(nodes, (number + 1) * width)
            self.done(f"targets {first}", partial(self._sort, first, last, start, nodes, edges, arrays))
            start += counts.get(number, 0)

    def _sort(self, first: int, last: int, start: int, nodes: int, edges: int, arrays: Arrays | None) -> None:
        found = self.sql.execute(
            f"SELECT * FROM numbered WHERE target >= {first} AND target < {last} ORDER BY target, source, place"
        ).fetchnumpy()
        columns = {name: np.asarray(column) for name, column in found.items()}
        source, target, place = (columns.pop(name) for name in ("source", "target", "place"))
        end = start + source.size
        edge_index = self._file("edge_index", (2, edges), np.int64)
        edge_index[0, start:end], edge_index[1, start:end] = source, target
        _flush(edge_index)
        self._note("edge_index", torch.empty(0, dtype=torch.int64), edge_index.shape)
        offsets = self._file("offsets", (nodes + 1,), np.int64)
        offsets[first + 1 : last + 1] = start + np.cumsum(np.bincount(target - first, minlength=last - first))
        _flush(offsets)
        self._note("offsets", torch.empty(0, dtype=torch.int64), offsets.shape)
        further = {} if arrays is None else {k: v[torch.from_numpy(place)] for k, v in arrays.edges.items()}
        if arrays is None:
            further = {k: torch.from_numpy(v.astype(np.float32)) for k, v in columns.items() if k == "edge_weight"}
            wide = [v.astype(np.float32) for k, v in columns.items() if k != "edge_weight"]
            further |= {"edge_attr": torch.from_numpy(np.stack(wide, 1))} if wide else {}
        for name, tensor in further.items():
            array = self._file(name, (edges, *tensor.shape[1:]), _numpy_type(tensor))
            array[start:end] = _as_array(tensor)
            _flush(array)
            self._note(name, tensor, array.shape)

    def _checksums(self) -> None:
        rows = self.sql.execute("SELECT name, kind, shape FROM arrays ORDER BY name").fetchall()
        for name, _, _ in rows:
            self.sql.execute("CREATE TABLE IF NOT EXISTS sums (name VARCHAR, sum VARCHAR)")
            self.sql.execute("INSERT INTO sums VALUES (?, ?)", [name, checksum(self.work / f"{name}.npy")])


def _flush(array: Array) -> None:
    if isinstance(array, np.memmap):
        array.flush()


def _numpy_type(tensor: Tensor) -> Any:
    return np.int16 if tensor.dtype == torch.bfloat16 else _as_array(tensor[:0]).dtype


def _as_array(tensor: Tensor) -> Array:
    out: Array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return out
