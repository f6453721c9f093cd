"""A store as a few archives of bounded size, to carry it from one machine to another.

Every file is compressed by itself (xz, with the settings that suit numbers of four bytes), so that the size of an
archive is known before it is written. Files come in the order of :data:`graphmend.lab.beyond.sources.SETS`; those
beyond the total are left out and named.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from graphmend.errors import require
from graphmend.files.files import check_file, within, write_bytes
from graphmend.files.tars import members_of, plain_of, tar_of
from graphmend.lab.beyond.sources import SETS
from graphmend.workers.local import processes

__all__ = ["pack", "unpack"]

ARCHIVE, TOTAL, ARCHIVES = 15 * 2**20, 60 * 2**20, 8
HEADER = 4096  # bytes that a member of a tar file needs besides its content, at most
REMEDY = "pack the store again"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 3, "lc": 0, "lp": 2, "pb": 2}]


def pack(store: Path, out: Path, *, only: list[str] | None = None, jobs: int = 1) -> list[Path]:
    """Write the models and attacked graphs of ``store`` into archives in ``out``; the files left out are printed.

    Args:
        store: The folder of models and attacked graphs.
        out: Where ``store-0.tar``, ``store-1.tar``, ... go.
        only: The sets whose files are packed; all of them when ``None``.
        jobs: Processes that compress.
    """
    require(store.is_dir(), f"there is no folder {store}; train first")
    names = [path for path in store.glob("*/*") if path.suffix in (".safetensors", ".npz") and _wanted(path, only)]
    files = sorted(names, key=lambda path: (_rank(path), str(path)))
    archives: list[list[tuple[str, bytes]]] = [[]]
    sizes, left_out = [0], []
    for path, content in zip(files, _all_compressed(files, jobs), strict=True):
        name, size = f"{path.relative_to(store)}.xz", len(content) + HEADER
        if sizes[-1] + size > ARCHIVE and len(archives) < ARCHIVES:
            archives.append([])
            sizes.append(0)
        if sizes[-1] + size > ARCHIVE or sum(sizes) + size > TOTAL:
            left_out.append(name)
            continue
        archives[-1].append((name, content))
        sizes[-1] += size
    written = [out / f"store-{number}.tar" for number, members in enumerate(archives) if members]
    for path, members in zip(written, archives, strict=False):
        write_bytes(path, tar_of(members))
        print(f"{path.name}: {len(members)} files, {path.stat().st_size / 2**20:.1f} MiB", flush=True)
    if left_out:
        print(f"left out {len(left_out)} of {len(files)} files, pack them with --sources: {', '.join(left_out)}")
    return written


def unpack(archives: list[Path], store: Path) -> int:
    """Write the files of archives into ``store`` and return their number; each archive is checked as a whole before."""
    count = 0
    for archive in archives:
        check_file(archive, REMEDY)
        files = []
        for name, content in members_of(archive, archive.read_bytes(), REMEDY):
            target = within(store, name)
            require(target.suffix == ".xz", f"{archive} holds {name}, which pack does not write; {REMEDY}")
            files.append((target.with_suffix(""), plain_of(f"{archive}: {name}", content, REMEDY)))
        for target, plain in files:
            write_bytes(target, plain)
        count += len(files)
    return count


def _all_compressed(files: list[Path], jobs: int) -> list[bytes]:
    if jobs == 1:
        return [_compressed(path) for path in files]
    with processes(jobs, 1) as pool:
        return list(pool.map(_compressed, files, chunksize=4))


def _compressed(path: Path) -> bytes:
    return lzma.compress(path.read_bytes(), filters=FILTERS)


def _set_of(path: Path) -> str:
    """The set whose name a file name begins with; of ``cora`` and ``cora-ood`` the longer."""
    fitting = [name for name in SETS if path.name.startswith(f"{name}-")]
    return max(fitting, key=len, default="")


def _wanted(path: Path, only: list[str] | None) -> bool:
    return only is None or _set_of(path) in only


def _rank(path: Path) -> int:
    name = _set_of(path)
    return list(SETS).index(name) if name else len(SETS)
