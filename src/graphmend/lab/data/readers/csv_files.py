"""Tables in csv files, plain, gzipped or inside a zip archive."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from graphmend.errors import GraphMendError, require
from graphmend.files.files import BROKEN, Array, first_line
from graphmend.lab.data.readers.sources import FETCH_AGAIN

Member = Path | zipfile.Path
"""A file on its own, or one inside a zip archive."""


def read_table(path: Member, dtype: Any, header: Sequence[str] = (), ndmin: Literal[1, 2] = 1) -> Array:
    """A csv file (or .csv.gz) as an array, streamed line by line through NumPy's parser.

    Args:
        path: The file, on its own or inside a zip archive.
        dtype: Of one row: a plain one with ``ndmin=2``, or a structured one.
        header: Names of the columns to read; the first line must list them. Without names there is no header line.
        ndmin: As in ``np.loadtxt``.
    """
    try:
        with _text(path) as file:
            columns = _columns(path, file.readline(), header) if header else None
            first = file.readline()
            require(bool(first.strip()), f"{path} holds no rows; {FETCH_AGAIN}")
            table: Array = np.loadtxt(
                chain([first], file), dtype, comments=None, delimiter=",", quotechar='"', usecols=columns, ndmin=ndmin
            )
    except GraphMendError:
        raise
    except UnicodeDecodeError as error:
        raise GraphMendError(f"{path} is not UTF-8 text (byte {error.start}); {FETCH_AGAIN}") from error
    except BROKEN as error:
        reason = first_line(error).split(";")[0]
        raise GraphMendError(f"{path} cannot be read as csv ({reason}); {FETCH_AGAIN}") from error
    return table


@contextmanager
def _text(path: Member) -> Iterator[TextIO]:
    require(path.exists(), f"there is no file {path}; put it there or choose another --data-dir")
    with path.open("rb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if path.name.endswith(".gz") else raw
        with io.TextIOWrapper(stream, encoding="utf-8-sig") as text:
            yield text


def _columns(path: Member, line: str, wanted: Sequence[str]) -> list[int]:
    names = [name.strip().strip('"') for name in line.split(",")]
    for name in wanted:
        first_line = f"its first line is {line.strip()[:60]!r}"
        require(name in names, f"{path} has no column {name!r} ({first_line}); {FETCH_AGAIN}")
    return [names.index(name) for name in wanted]
