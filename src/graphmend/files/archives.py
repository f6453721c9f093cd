"""Zip archives from anywhere: how much memory they would take is read from their headers before they are unpacked."""

from __future__ import annotations

import io
import math
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from graphmend.engine.memory import available_memory
from graphmend.errors import require

__all__ = ["LARGE", "Array", "ArrayFile", "check_contents", "check_size", "open_archive"]

Array = np.ndarray[Any, np.dtype[Any]]

LARGE = 1 << 30
"""Contents up to this number of bytes are accepted whatever the size of the file."""

SMALL = 1 << 24
"""This number of bytes is assumed to be free."""

RATIO = 200
"""How many times its own size a file may take beyond that; sparse features, compressed, take about a hundred times."""

STORE_PLAINLY = "if its contents really are that large, store it without compression"

_CHUNK = 1 << 20
_HEADER = 1 << 14  # numpy refuses longer headers of an array, but only after it has read them


def check_size(path: Path, needed: int, remedy: str = STORE_PLAINLY) -> None:
    """Raise unless ``needed`` bytes are in proportion to the file they come from, and fit into memory."""
    size = path.stat().st_size
    require(
        needed <= max(LARGE, RATIO * size),
        f"{path} has {_in_words(size)}, but its contents would take {_in_words(needed)} of memory, which is out of "
        f"proportion; {remedy}",
    )
    if needed <= SMALL:  # asking for the free memory takes longer than reading so little
        return
    available = available_memory(torch.device("cpu"))
    require(
        needed <= available,
        f"the contents of {path} would take {_in_words(needed)} of memory, but {_in_words(available)} are free; "
        "use a larger machine or a part of the data",
    )


def _in_words(size: int) -> str:
    unit, name = next((pair for pair in ((2**30, "GiB"), (2**20, "MiB")) if size >= pair[0]), (2**10, "KiB"))
    return f"{size / unit:.1f} {name}"


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive, provided that its entries can be read by name without a password or an unusual method."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        plain = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        require(not any(entry.flag_bits & 1 for entry in entries), f"{path} is encrypted; decrypt it first")
        require(
            all(entry.compress_type in plain for entry in entries),
            f"{path} is compressed by an unusual method; write it again with np.savez or torch.save",
        )
        names = [entry.filename for entry in entries]
        require(len(set(names)) == len(names), f"{path} holds two entries of one name; write it again")
        yield archive


def check_contents(path: Path, archive: zipfile.ZipFile) -> int:
    """The size of all entries; raises unless it is acceptable and each of them fits its checksum (CRC-32)."""
    total = sum(entry.file_size for entry in archive.infolist())
    check_size(path, total)
    for entry in archive.infolist():
        with archive.open(entry) as file:
            while file.read(_CHUNK):
                pass
    return total


class ArrayHeader(NamedTuple):
    """What an entry says about its array."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]

    @property
    def num_values(self) -> int:
        """The product of the shape."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """What the values take."""
        return self.num_values * self.dtype.itemsize


class ArrayFile:
    """The arrays of an ``.npz`` by name, each read when it is asked for; nothing in it is ever unpickled.

    Entries that are no ``.npy`` are left aside.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive = path, archive
        arrays = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        self._entries = {entry.filename.removesuffix(".npy"): entry for entry in arrays}

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self._entries)

    def header(self, name: str) -> ArrayHeader:
        """Shape and type of an array, provided that the archive has as many bytes for it."""
        entry = self._entries[name]
        with self._archive.open(entry) as file:
            start = io.BytesIO(file.read(_HEADER))
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(start)
        if version not in readers:
            raise ValueError(f"{name!r} has the .npy format {version}")
        try:
            header = ArrayHeader(*readers[version](start))
        except Exception as error:  # numpy parses it as Python, with errors of any kind
            raise ValueError(f"the header of {name!r} is damaged") from error
        if header.dtype.hasobject:
            raise ValueError(f"{name!r} holds Python objects")
        if header.num_bytes != entry.file_size - start.tell():
            raise ValueError(f"{name!r} has the shape {header.shape}, but {entry.file_size - start.tell()} bytes")
        return header

    def __getitem__(self, name: str) -> Array:
        header = self.header(name)
        check_size(self.path, header.num_bytes)
        with self._archive.open(self._entries[name]) as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
            file.read(1)  # its checksum is compared only at the end of an entry
        return array

    def unpack(self, name: str, target: Path) -> None:
        """Copy an array into a ``.npy`` of its own, a piece at a time, unless it is there."""
        entry = self._entries[name]
        if target.is_file() and target.stat().st_size == entry.file_size:
            return
        with self._archive.open(entry) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 22)

    def text(self, name: str) -> str | None:
        """The entry with exactly that name as text, if there is one."""
        if name not in self._archive.namelist():
            return None
        check_size(self.path, self._archive.getinfo(name).file_size)
        return self._archive.read(name).decode()

    def size(self) -> int:
        """Bytes that all arrays take together, as the headers say."""
        return sum(self.header(name).num_bytes for name in self.files)
