"""Where results are written: never over what was given, and never over each other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from graphmend.errors import require

PARTS = (".npz", ".predictions.npz", ".patch.safetensors", ".json")
"""The ends of the files that a mended graph leaves, in the order in which they are written."""


def results_of(graph: Path, out: Path) -> list[Path]:
    """The files that mending a graph writes into a folder, in the order of :data:`PARTS`."""
    return [out / f"{graph.stem}{part}" for part in PARTS]


def check_no_clash(targets: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise if a file to be written is one of the inputs, or one that is written anyway.

    Args:
        targets: All files that one call will write.
        inputs: All files that it reads.
    """
    taken = {_real(path): f"overwrite {path}, which is read" for path in inputs}
    for target in targets:
        place = _real(target)
        problem = taken.get(place)
        require(problem is None, f"the result {target} would {problem}; rename a file or choose another --out")
        taken[place] = "be written twice in this call"


def _real(path: Path) -> str:
    return os.path.realpath(path)  # Path.resolve raises for a loop of links
