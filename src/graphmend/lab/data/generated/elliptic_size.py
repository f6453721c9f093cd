"""Generated transactions of the size of Elliptic, written in Elliptic's csv format and read like the real ones."""

from __future__ import annotations

import functools
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import scipy.sparse as sp

from graphmend.errors import GraphMendError, require
from graphmend.files.files import Array
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.generated.csbm import Blocks, distinct
from graphmend.lab.data.published.elliptic import FEATURES, FILES, FOLDER, elliptic
from graphmend.lab.data.readers.sources import cache_dir
from graphmend.lab.data.splits import Splits

__all__ = ["DATASETS", "elliptic_size", "write_files"]

# Nodes of the published data, step by step
# fmt: off
STEP_NODES = (
    7_880, 4_544, 6_621, 5_693, 6_803, 4_328, 6_048, 4_457, 4_996, 6_727, 4_296, 2_047, 4_528, 2_022, 3_639, 2_975,
    3_385, 1_976, 3_506, 4_291, 3_537, 5_894, 4_165, 4_592, 2_314, 2_523, 1_089, 1_653, 4_275, 2_483, 2_816, 4_525,
    3_151, 2_486, 5_507, 6_393, 3_306, 2_891, 2_760, 4_481, 5_342, 7_140, 5_063, 4_975, 5_598, 3_519, 5_121, 2_954,
    2_454,
)
# fmt: on
EDGES = 234_355
LOCAL = 93  # features of the transaction itself; the others summarise its neighbours
SHUTDOWN = 43  # the step at which the illicit transactions change
ILLICIT = (0.0245, 0.012)  # their share before and since then
LICIT = 0.206
HOMOPHILY = 0.95  # illicit transactions are so rare that a third of their neighbours are licit even so
SIGNAL = 4.0  # distance of the illicit transactions' mean from the others', in standard deviations
DRIFT = 0.8  # how far all features move in 25 steps, in standard deviations
FIRST_ID = 100_000_000


def elliptic_size(
    *, seed: int = 0, data_dir: str | Path | None = None, scale: float = 1.0, graph_seed: int = 0
) -> Splits:
    """Generated data in the size and the file format of Elliptic, read by the loader of the real data.

    203,769 nodes and 234,355 edges in 49 steps, 165 features, about 2 % illicit, 21 % licit and the rest unknown. All
    features drift slowly; at step 43 most illicit transactions vanish and the others look different.

    Args:
        seed: Accepted for uniformity; the data are the same for every run, as the real ones are.
        data_dir: Accepted for uniformity; the files are written into the cache.
        scale: Share of the nodes and edges, for small tests.
        graph_seed: Seed of the data.
    """
    require(0.01 <= scale <= 1, f"scale must be in [0.01, 1] (got {scale})")
    folder = cache_dir() / "elliptic-size" / f"1-{scale:g}-{graph_seed}"
    if not folder.exists():
        _write_once(folder, scale, graph_seed)
    splits = elliptic(data_dir=folder)
    meta = {**splits.meta, "name": "elliptic-size", "generated": True, "scale": scale, "seed": graph_seed}
    return replace(splits, meta=meta)


def write_files(folder: Path, *, scale: float = 1.0, seed: int = 0) -> None:
    """Write the three csv files into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    features, classes, edges = ((folder / f"{name}.csv").open("wb") for name in FILES)
    with features, classes, edges:
        classes.write(b"txId,class\n")
        edges.write(b"txId1,txId2\n")
        node_ends, edge_ends = (_ends(total * scale) for total in (sum(STEP_NODES), EDGES))
        for number in range(1, len(STEP_NODES) + 1):
            nodes, links = np.diff(node_ends)[number - 1], np.diff(edge_ends)[number - 1]
            step = _step(number, int(nodes), int(links), seed)
            ids = FIRST_ID + np.arange(node_ends[number - 1], node_ends[number])
            _write_features(features, ids, number, step.x)
            names = np.array(["1", "2", "unknown"])[step.code]
            classes.write("".join(f"{i},{name}\n" for i, name in zip(ids, names, strict=True)).encode())
            edges.write("".join(f"{a},{b}\n" for a, b in zip(*ids[step.edges].tolist(), strict=True)).encode())


def _ends(total: float) -> Array:
    """The boundaries of the steps when ``total`` items are distributed over them like the published nodes."""
    ends = np.cumsum((0, *STEP_NODES))
    shared: Array = np.rint(ends / ends[-1] * total).astype(np.int64)
    return shared


class _Step(NamedTuple):
    x: Array
    code: Array  # 0 illicit, 1 licit, 2 unknown
    edges: Array


def _step(number: int, nodes: int, links: int, seed: int) -> _Step:
    """One time step: a hidden class for every node, edges and features that depend on it, and some labels."""
    rng = np.random.default_rng([seed, number])
    fixed = np.random.default_rng([seed, 0])
    contrast, other, drift = (fixed.standard_normal(LOCAL) / np.sqrt(LOCAL) for _ in range(3))
    late = number >= SHUTDOWN
    illicit = rng.random(nodes) < ILLICIT[late] * 4  # a quarter of the illicit transactions will be labelled
    blocks = Blocks(illicit, 2, np.minimum(rng.random(nodes) ** -0.6, 60.0))

    def draw(stream: np.random.Generator, size: int) -> Array:
        source, target = blocks.pairs(stream, size, HOMOPHILY)
        return np.where(source == target, -1, source * nodes + target)

    keys = distinct(draw, links, (seed, number, 1))
    source, target = keys // nodes, keys % nodes
    local = rng.standard_normal((nodes, LOCAL))
    local += illicit[:, None] * SIGNAL * (0.3 * contrast + 0.7 * other if late else contrast)
    local += DRIFT * (number / 25 - 1) * drift
    adjacency = sp.csr_array((np.ones(2 * keys.size), (np.r_[source, target], np.r_[target, source])), (nodes, nodes))
    mean = adjacency @ local / np.maximum(adjacency.sum(axis=1), 1.0)[:, None]
    x = np.concatenate([local, mean[:, : FEATURES - LOCAL] + 0.1 * rng.standard_normal((nodes, FEATURES - LOCAL))], 1)
    labelled = rng.random(nodes) < np.where(illicit, 0.25, LICIT / (1 - 4 * ILLICIT[late]))
    code = np.where(labelled, np.where(illicit, 0, 1), 2)
    return _Step(x, code, np.stack([source, target]))


@functools.cache
def _texts() -> Array:
    """The text of every thousandth in (-10, 10) after a comma, padded to six characters by a decimal above zero.

    Looking up these bytes is much faster than formatting 34 million numbers one by one.
    """
    return np.array([f",{q / 1000:.4f}" if q >= 0 else f",{q / 1000:.3f}" for q in range(-9999, 10000)], dtype="S7")


def _write_features(file: BinaryIO, ids: Array, step: int, x: Array) -> None:
    quantised = np.clip(np.rint(x * 1000), -9999, 9999).astype(np.int64) + 9999
    values = _texts()[quantised].view(np.uint8).reshape(len(ids), -1)
    start = np.array([f"{i},{step}" for i in ids], dtype=f"S{len(f'{ids[0]},{step}')}").view(np.uint8)
    end = np.full((len(ids), 1), ord("\n"), np.uint8)
    file.write(np.concatenate([start.reshape(len(ids), -1), values, end], axis=1).tobytes())


def _write_once(folder: Path, scale: float, seed: int) -> None:
    """Fill a temporary folder and rename it; if another process was faster, its folder is kept instead."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise GraphMendError(f"cannot write {folder}: {error.strerror}; set GRAPHMEND_CACHE") from error
    try:
        write_files(temporary / FOLDER, scale=scale, seed=seed)
        temporary.chmod(0o755)
        temporary.rename(folder)
    except OSError as error:
        if not folder.exists():
            raise GraphMendError(f"cannot write {folder}: {error.strerror}; free some space") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


DATASETS = {
    "elliptic-size": Dataset(
        "elliptic-size",
        "time: later steps, a market shutdown at step 43",
        elliptic_size,
        "macro_f1",
        generated=True,
        note="generated in the size of Elliptic and read from its csv format",
    )
}
