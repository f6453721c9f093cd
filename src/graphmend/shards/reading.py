"""Reading tables of nodes and edges into the database of a folder that is being packed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphmend.errors import listed, require
from graphmend.files.files import Array
from graphmend.shards.inputs import Tables

__all__ = ["checked_edges", "read_edges", "read_nodes"]

ID, LABEL, MASK = "id", "y", "_mask"
WEIGHTS = ("edge_weight", "weight")
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT")
_NUMERIC = (*_NUMBERS, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")


class Packing(Protocol):
    """What reading needs of the call that packs."""

    sql: Any
    part: int
    both_directions: bool

    def done(self, step: str, do: Any) -> None:
        """Do a step once."""
        ...

    def _write_rows(self, name: str, rows: Any, start: int, total: int) -> None: ...


def checked_edges(source: Array, target: Array, start: int, nodes: int) -> None:
    """Raise unless all ends of edges are nodes; the message names the first row where they are not."""
    wrong = (source < 0) | (source >= nodes) | (target < 0) | (target >= nodes)
    if wrong.any():
        row = int(wrong.argmax())
        require(
            False,
            f"row {start + row} of the edges (counted from 0) leads from node {source[row]} to node {target[row]}, "
            f"but the nodes are 0 to {nodes - 1}; drop such edges or add the nodes",
        )


def _columns(packing: Packing, relation: str) -> dict[str, str]:
    return {row[0]: row[1] for row in packing.sql.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_number(kind: str) -> bool:
    return kind.startswith(_NUMERIC) and not kind.endswith("]")


def _is_list(kind: str) -> bool:
    return kind.endswith("]") and _is_number(kind.split("[")[0])


def read_nodes(packing: Packing, tables: Tables) -> None:
    """The nodes: their names, if they have some, and everything with a row for each."""
    kinds = _columns(packing, tables.relation(tables.nodes[0]))
    _read_files(packing, tables, tables.nodes, "nodes", kinds)
    sql = packing.sql
    total = int(sql.execute("SELECT count(*) FROM nodes").fetchone()[0])
    require(total > 0, f"{tables.nodes[0]} has no rows; give a row for each node")
    special = {name for name in kinds if tables.has_header and (name in (ID, LABEL) or name.endswith(MASK))}
    features = [name for name, kind in kinds.items() if name not in special]
    texts = [name for name in features if not _is_number(kinds[name]) and not _is_list(kinds[name])]
    require(not texts, f"the columns {listed(texts)} of {tables.nodes[0]} hold no numbers; encode them")
    require(len(features) > 0, f"{tables.nodes[0]} has no columns of features; give at least one column of numbers")
    step = max(1, packing.part // max(1, len(features)))
    for start in range(0, total, step):
        packing.done(f"x {start}", partial(_write_features, packing, features, kinds, start, start + step, total))
    for name in sorted(special - {ID}):
        for start in range(0, total, packing.part):
            packing.done(f"{name} {start}", partial(_write_column, packing, "nodes", name, name, start, total))
    for name, file in tables.extra.items():
        _read_files(packing, tables, (file,), f"extra_{name}", _columns(packing, tables.relation(file)))
        column = next(iter(_columns(packing, f"extra_{name}")))
        rows = int(sql.execute(f"SELECT count(*) FROM extra_{name}").fetchone()[0])
        require(rows == total, f"{file} has {rows} rows, but there are {total} nodes; write it again")
        for start in range(0, total, packing.part):
            packing.done(
                f"{name} {start}", partial(_write_column, packing, f"extra_{name}", column, name, start, total)
            )
    for name, file in tables.masks.items():
        packing.done(name, partial(_write_mask, packing, tables, name, file, total))
    if ID in special:
        query = f"SELECT {ID} FROM nodes GROUP BY {ID} HAVING count(*) > 1 OR {ID} IS NULL LIMIT 1"
        twice = sql.execute(query).fetchone()
        require(twice is None, f"the id {twice and twice[0]!r} is there more than once, or empty; make ids unique")


def _read_files(packing: Packing, tables: Tables, files: tuple[Path, ...], table: str, kinds: dict[str, str]) -> None:
    columns = ", ".join(map(_quoted, kinds))
    defined = ", ".join(f"{_quoted(name)} {kind}" for name, kind in kinds.items())
    packing.sql.execute(f"CREATE TABLE IF NOT EXISTS {table} ({defined})")
    for file in files:
        own = _columns(packing, tables.relation(file))
        missing = [name for name in kinds if name not in own]
        require(not missing, f"{file} has no column {listed(missing)}, which {files[0]} has; write it again")
        query = f"INSERT INTO {table} SELECT {columns} FROM {tables.relation(file)}"
        packing.done(f"read {table} {file}", partial(packing.sql.execute, query))


def _block(packing: Packing, table: str, columns: str, start: int, end: int) -> dict[str, Any]:
    query = f"SELECT {columns} FROM {table} WHERE rowid >= {start} AND rowid < {end} ORDER BY rowid"
    found: dict[str, Any] = packing.sql.execute(query).fetchnumpy()
    return found


def _write_features(
    packing: Packing, features: list[str], kinds: dict[str, str], start: int, end: int, total: int
) -> None:
    chosen = ", ".join(_quoted(n) if _is_list(kinds[n]) else f"{_quoted(n)}::FLOAT AS {_quoted(n)}" for n in features)
    found, parts = _block(packing, "nodes", chosen, start, end), []
    for name in features:
        column = found[name]
        if _is_list(kinds[name]):
            widths = {len(row) for row in column if row is not None}
            require(len(widths) == 1, f"the lists in {name} have different lengths ({listed(widths)}); pad them")
            parts.append(np.array([row for row in column], dtype=np.float32))
        else:
            parts.append(np.ma.filled(column.astype(np.float32), np.nan)[:, None])
    packing._write_rows("x", np.ascontiguousarray(np.concatenate(parts, 1)), start, total)


def _write_column(packing: Packing, table: str, column: str, name: str, start: int, total: int) -> None:
    values = _block(packing, table, _quoted(column), start, start + packing.part)[column]
    if np.ma.isMaskedArray(values) and values.mask.any():
        row = start + int(np.argmax(np.ma.getmaskarray(values)))
        allowed = name == LABEL
        require(allowed, f"{name} of node {row} is empty; write True or False")
        values = values.filled(-1)
    values = np.asarray(values)
    if name.endswith(MASK):
        require(values.dtype.kind in "biu", f"{name} holds {values.dtype}; write True or False")
        values = values.astype(bool)
    else:
        require(values.dtype.kind in "biuf", f"{name} holds {values.dtype}, no numbers; encode it")
        values = values.astype(np.int64) if values.dtype.kind in "biu" else values.astype(np.float32)
    packing._write_rows(name, values, start, total)


def _write_mask(packing: Packing, tables: Tables, name: str, file: Path, total: int) -> None:
    rows = packing.sql.execute(f"SELECT * FROM {tables.relation(file)}").fetchnumpy()
    numbers = np.asarray(next(iter(rows.values()))).astype(np.int64)
    wrong = (numbers < 0) | (numbers >= total)
    if wrong.any():
        row = int(wrong.argmax())
        require(False, f"row {row} of {file} names node {numbers[row]}, but the nodes are 0 to {total - 1}")
    mask = np.zeros(total, bool)
    mask[numbers] = True
    packing._write_rows(name, mask, 0, total)


def read_edges(packing: Packing, tables: Tables) -> None:
    """The edges, with the numbers of the nodes that they lead between."""
    kinds = _columns(packing, tables.relation(tables.edges[0]))
    require(len(kinds) >= 2, f"{tables.edges[0]} has {len(kinds)} columns; give the two ends of each edge")
    source, target = ("source", "target") if {"source", "target"} <= set(kinds) else list(kinds)[:2]
    further = {name: kind for name, kind in kinds.items() if name not in (source, target)}
    texts = [name for name, kind in further.items() if not _is_number(kind)]
    require(not texts, f"the columns {listed(texts)} of {tables.edges[0]} hold no numbers; encode them")
    _read_files(packing, tables, tables.edges, "edges", kinds)
    has_names = tables.has_header and ID in _columns(packing, "nodes")
    packing.done("numbered", partial(_number, packing, tables, source, target, list(further), has_names))


def _number(packing: Packing, tables: Tables, source: str, target: str, further: list[str], has_names: bool) -> None:
    sql, s, t = packing.sql, _quoted(source), _quoted(target)
    weight = next((name for name in further if name in WEIGHTS), None)
    ordered = [*([weight] if weight else []), *(name for name in further if name != weight)]
    named = [f"e.{_quoted(n)} AS {'edge_weight' if n == weight else _quoted(n)}" for n in ordered]
    more = "".join(f", {column}" for column in named)
    total = int(sql.execute("SELECT count(*) FROM nodes").fetchone()[0])
    if has_names:
        ends = "a.rowid, b.rowid"
        joined = f"edges e LEFT JOIN nodes a ON e.{s} = a.{ID} LEFT JOIN nodes b ON e.{t} = b.{ID}"
    else:
        kinds = _columns(packing, "edges")
        wrong = [name for name in (source, target) if not kinds[name].startswith(_NUMBERS)]
        first = f"{wrong[0]} holds {kinds[wrong[0]]}" if wrong else ""
        require(not wrong, f"{tables.edges[0]}: {first}, no numbers of nodes; give the nodes a column 'id'")
        ends, joined = f"e.{s}::BIGINT, e.{t}::BIGINT", "edges e"
    first_end, second_end = ends.split(", ")
    sql.execute(
        f"CREATE OR REPLACE TABLE numbered AS SELECT {first_end} AS source, {second_end} AS target, "
        f"e.rowid::BIGINT AS place{more} FROM {joined}"
    )
    bad = sql.execute(
        f"SELECT min(place) FROM numbered WHERE source IS NULL OR target IS NULL OR source < 0 OR target < 0 "
        f"OR source >= {total} OR target >= {total}"
    ).fetchone()[0]
    if bad is not None:
        a, b = sql.execute(f"SELECT {s}, {t} FROM edges WHERE rowid = {bad}").fetchone()
        file, row = _row_of(packing, tables, int(bad))
        known = f"which are not both in the column 'id' of the {total} nodes" if has_names else ""
        known = known or f"but the nodes are 0 to {total - 1}"
        require(
            False,
            f"row {row} of {file} (counted from 0) leads from {a!r} to {b!r}, {known}; drop such edges",
        )
    if packing.both_directions:
        rest = "".join(f", {'edge_weight' if n == weight else _quoted(n)}" for n in ordered)
        sql.execute(f"INSERT INTO numbered SELECT target, source, place{rest} FROM numbered WHERE source <> target")


def _row_of(packing: Packing, tables: Tables, row: int) -> tuple[Path, int]:
    """The file of a row of the edges, and its number there."""
    for file in tables.edges:
        rows = int(packing.sql.execute(f"SELECT count(*) FROM {tables.relation(file)}").fetchone()[0])
        if row < rows:
            return file, row
        row -= rows
    return tables.edges[-1], row
