"""``fb100``: friendships at American colleges, one graph per school."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.files.files import Array
from graphmend.lab.data.catalogue import Availability, Dataset
from graphmend.lab.data.readers.arrays import array_names, edge_pairs, read_mat, read_named, undirected_edges
from graphmend.lab.data.readers.lazy import LazyGraphs
from graphmend.lab.data.readers.sources import FETCH_AGAIN, Source, data_dirs, download, find
from graphmend.lab.data.splits import Splits

__all__ = ["DATASETS", "availability", "code_union", "fb100", "one_hot"]

NPZ, FOLDER = "facebook100.npz", "facebook100"
TRIPLES = (
    ("JohnsHopkins55", "Caltech36", "Amherst41"),
    ("Bingham82", "Duke14", "Princeton12"),
    ("WashU32", "Brandeis99", "Carnegie49"),
)
VALIDATION = ("Cornell5", "Yale4")
TEST = ("Penn94", "Brown11", "Texas80")
ONLY_FEATURES = ("Reed98", "Berkeley13", "Columbia2", "Virginia63")
SCHOOLS = (*TEST, *VALIDATION, *(school for triple in TRIPLES for school in triple), *ONLY_FEATURES)
STAND_INS = {"Penn94": "Rutgers89", "Texas80": "Oklahoma97"}
SPELLINGS = {"JohnsHopkins55": ("JohnsHopkins55", "Johns Hopkins55")}
COLUMNS = {"status": 0, "major": 2, "second major": 3, "dorm": 4, "year": 5, "high school": 6}
GENDER = 1
_URL = "https://github.com/sisaman/pyg-datasets/raw/main/datasets/facebook100"
# nodes, undirected edges, nodes of class 1
PUBLISHED: dict[str, tuple[int, int, int | None]] = {
    "JohnsHopkins55": (5180, 186586, 2609),
    "Caltech36": (769, 16656, 475),
    "Amherst41": (2235, 90954, 1017),
    "Bingham82": (10004, 362894, 4692),
    "Duke14": (9895, 506442, 4675),
    "Princeton12": (6596, 293320, 3144),
    "WashU32": (7755, 367541, 3498),
    "Brandeis99": (3898, 137567, 1537),
    "Carnegie49": (6637, 249967, 3654),
    "Cornell5": (18660, 790777, 8687),
    "Yale4": (8578, 405450, 3970),
    "Brown11": (8600, 384526, 3701),
    "Penn94": (41554, 1362229, None),
    "Rutgers89": (24580, 784602, 10909),
    "Oklahoma97": (17425, 892528, 8013),
}


def fb100(*, seed: int = 0, data_dir: str | Path | None = None, triple: int = 0) -> Splits:
    """Gender from six other attributes and friendships, from `Traud, Mucha and Porter <https://arxiv.org/abs/1102.2166>`_.

    Trained on three schools, validated on Cornell5 and Yale4, tested on Penn94, Brown11 and Texas80. Class 1 is gender
    code 2, class 0 everything else, a missing gender included. Features are the one-hot codes of status, major, second
    major, dorm, year and high school over the union of the codes of those of the 18 schools of the protocol that are
    available; 0 for missing is a code like any other. ``meta`` records the schools and the number of codes.

    Where Penn94 or Texas80 is missing, Rutgers89 or Oklahoma97 stands in for it, in the test and in the union, and
    ``meta["name"]`` is ``fb100-standin``. A graph has thousands of columns, so each is built when it is first used, and
    test graphs are not kept (see :class:`LazyGraphs`).

    Args:
        seed: Not used; nothing here is random.
        data_dir: Where ``facebook100.npz`` or the published ``facebook100/<School>.mat`` lie; the two may be mixed.
        triple: Which three schools to train on: 0 Johns Hopkins55, Caltech36 and Amherst41, 1 Bingham82, Duke14 and
            Princeton12, 2 WashU32, Brandeis99 and Carnegie49.
    """
    require(triple in range(3), f"triple must be 0, 1 or 2 (got {triple})")
    files = _find_schools(data_dir)
    if not files:  # download everything that is published, or fail with the name of the first missing file
        files = {school: download(_source(school)) for school in SCHOOLS}
    stand_ins = _stand_ins(files)
    parts = {"train": TRIPLES[triple], "val": VALIDATION, "test": tuple(stand_ins.get(s, s) for s in TEST)}
    for school in (school for part in parts.values() for school in part if school not in files):
        files[school] = download(_source(school))
    union = [school for school in (stand_ins.get(s, s) for s in SCHOOLS) if school in files]
    codes = code_union(_local_info(files[school], school) for school in union)
    meta = {
        "name": _name(stand_ins),
        "classes": 2,
        "triple": triple,
        "stand_ins": stand_ins,
        "schools": union,
        "codes": {name: len(values) for name, values in codes.items()},
        "features": sum(_width(values) for values in codes.values()),
        "graphs": {part: list(schools) for part, schools in parts.items()},
    }
    graphs = {
        part: LazyGraphs([partial(_school, files[school], school, codes) for school in schools], keep=part != "test")
        for part, schools in parts.items()
    }
    return Splits(**graphs, metric="accuracy", task="binary", meta=meta)


def availability(data_dir: str | Path | None = None) -> Availability:
    """Which schools of ``triple=0`` are missing and which ones replace others; only the names of files are read."""
    files = _find_schools(data_dir)
    stand_ins = _stand_ins(files)
    needed = (*TRIPLES[0], *VALIDATION, *(stand_ins.get(school, school) for school in TEST))
    absent = [_source(school).path for school in needed if school not in files]
    layouts = [absent] if find(NPZ, data_dir) else [[NPZ], absent]
    return Availability(_name(stand_ins), layouts if absent else [], stand_ins)


def one_hot(codes: Array, categories: dict[str, Array]) -> Tensor:
    """One column per category; an attribute with two categories has a single column, for the second of them.

    The dense matrix is allocated once and only its ones are written.
    """
    x = np.zeros((len(codes), sum(_width(values) for values in categories.values())), dtype=np.float32)
    rows, start = np.arange(len(codes)), 0
    for name, values in categories.items():
        place = np.searchsorted(values, codes[:, COLUMNS[name]])
        if len(values) > 2:
            x[rows, start + place] = 1.0
        else:
            x[:, start] = place
        start += _width(values)
    return torch.from_numpy(x)


def _stand_ins(files: Container[str]) -> dict[str, str]:
    return {school: other for school, other in STAND_INS.items() if school not in files and other in files}


def _name(stand_ins: dict[str, str]) -> str:
    return "fb100-standin" if stand_ins else "fb100"


def _width(values: Array) -> int:
    return len(values) if len(values) > 2 else 1


def code_union(tables: Iterable[Array]) -> dict[str, Array]:
    """The sorted codes of each attribute that occur in any of the schools' tables."""
    codes: dict[str, list[Array]] = {name: [] for name in COLUMNS}
    for table in tables:
        for name, column in COLUMNS.items():
            codes[name].append(np.unique(table[:, column]))
    return {name: np.unique(np.concatenate(parts)) for name, parts in codes.items()}


def _school(path: Path, school: str, codes: dict[str, Array]) -> Data:
    info = _local_info(path, school)
    edge_index = _edges(path, school, len(info))  # before x, so that the two never need their memory at the same time
    y = torch.from_numpy((info[:, GENDER] == 2).astype(np.int64))
    return Data(x=one_hot(info, codes), edge_index=edge_index, y=y)


def _edges(path: Path, school: str, nodes: int) -> Tensor:
    if path.name == NPZ:
        name = f"{school}_edges"
        source, target = edge_pairs(path, name, read_named(path, [name])[name])
    else:
        adjacency = sp.coo_matrix(read_mat(path, ["A"])["A"])
        require(adjacency.shape == (nodes, nodes), f"{path}: A has shape {adjacency.shape}; {FETCH_AGAIN}")
        source, target = adjacency.row, adjacency.col
    return undirected_edges(path, source, target, nodes)


def _local_info(path: Path, school: str) -> Array:
    key = f"{school}_local_info"
    info = read_named(path, [key])[key] if path.name == NPZ else read_mat(path, ["local_info"])["local_info"]
    fits = info.ndim == 2 and info.shape[1] == 7 and len(info) > 0 and info.dtype.kind in "iuf"
    require(fits, f"{path}: the attributes of {school} are not a table of seven columns; {FETCH_AGAIN}")
    return info.astype(np.int64)


def _find_schools(data_dir: str | Path | None) -> dict[str, Path]:
    """Where each school lies, in either layout."""
    files: dict[str, Path] = {}
    for folder in data_dirs(data_dir):
        if (folder / NPZ).exists():
            names = set(array_names(folder / NPZ))
            for school in (*SCHOOLS, *STAND_INS.values()):
                if {f"{school}_edges", f"{school}_local_info"} <= names:
                    files.setdefault(school, folder / NPZ)
        for school in (*SCHOOLS, *STAND_INS.values()):
            for spelling in SPELLINGS.get(school, (school,)):
                path = folder / FOLDER / f"{spelling}.mat"
                if path.exists():
                    files.setdefault(school, path)
    return files


def _source(school: str) -> Source:
    return Source(f"{FOLDER}/{school}.mat", f"{_URL}/{school}.mat")


DATASETS = {
    "fb100": Dataset(
        "fb100",
        "schools",
        fb100,
        files=((NPZ,), tuple(_source(school).path for school in (*TRIPLES[0], *VALIDATION, *TEST))),
        published={
            school: {"nodes": nodes, "edges": edges, "classes": 2, **({} if ones is None else {"class 1": ones})}
            for school, (nodes, edges, ones) in PUBLISHED.items()
        },
        note="Rutgers89 and Oklahoma97 stand in for Penn94 and Texas80 where these are missing, then fb100-standin; "
        "the number of features depends on the schools present; triple=1 and 2 train on other schools",
        availability=availability,
    )
}
