"""Random small faults in the product's core, one at a time: do the tests of the room notice?

``make mutants COUNT=60 SEED=0`` copies the tree, and for each mutant changes one place in one file, runs the tests that
mirror its room until the first failure, and changes the place back. Mutants that survive are printed as differences.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("adapters", "adapters/gate", "cards", "engine", "graph", "model")
LEFT_OUT = ("triton", "cuda_graphs", "__init__", "memory")
"""What needs a GPU, and thresholds of memory that are right by measuring only."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
}
"""Operators, and what a mutant has in their place."""

NOTICED, SURVIVED, UNDECIDED = "noticed", "SURVIVED", "undecided: out of time"
Change = Callable[[], None]


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path  #: below ``src/graphmend``
    line: int
    before: str
    after: str

    @property
    def tests(self) -> list[str]:
        """The tests of the room; a file with tests of its own name is tried with these first."""
        room = Path("tests") / self.path.parent
        own = [path for path in (ROOT / room).glob(f"test_{self.path.stem.rstrip('s')}*.py")]
        return [*(str(path.relative_to(ROOT)) for path in own), str(room)]

    def difference(self) -> str:
        """The change as a unified difference, without context."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=0)
        return f"{self.path}:{self.line}\n" + "\n".join(list(lines)[3:])


def changes_in(tree: ast.AST) -> Iterator[tuple[int, Change]]:
    """Every change that can be made in a tree, with its line; docstrings, annotations and messages stay."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS and not _is_annotation(node):
            yield line, lambda node=node: setattr(node, "op", SWAPS[type(node.op)]())  # type: ignore[misc]
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield line, lambda node=node: node.ops.__setitem__(0, SWAPS[type(node.ops[0])]())  # type: ignore[misc]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            yield line, lambda node=node: _replace(node, node.operand)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            yield line, lambda node=node, value=value: setattr(node, "value", value)  # type: ignore[misc]
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield line, lambda node=node: setattr(node, "value", ast.Constant(None))  # type: ignore[misc]


def _is_annotation(node: ast.AST) -> bool:
    """``int | None`` is no arithmetic."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return any(part.value is None or isinstance(part.value, str) for part in parts)


def _replace(node: ast.UnaryOp, operand: ast.expr) -> None:
    node.op, node.operand = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not(), operand
    if isinstance(node.op, ast.Not):
        node.operand = ast.UnaryOp(ast.Not(), operand)


def mutants(count: int, seed: int) -> list[Mutant]:
    """So many different ones, drawn from all changes in all rooms; the same for the same seed."""
    source = ROOT / "src" / "graphmend"
    files = sorted(path for room in ROOMS for path in (source / room).glob("*.py"))
    files = [path for path in files if not any(word in str(path) for word in LEFT_OUT)]
    places: list[tuple[Path, int]] = []
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        places += [(path, index) for index, _ in enumerate(changes_in(tree))]
    return [_made(path, index) for path, index in random.Random(seed).sample(places, min(count, len(places)))]


def _made(path: Path, index: int) -> Mutant:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    before = ast.unparse(copy.deepcopy(tree))
    line, change = list(changes_in(tree))[index]
    change()
    after = ast.unparse(ast.fix_missing_locations(tree))
    return Mutant(path.relative_to(ROOT / "src" / "graphmend"), line, before, after)


def outcome(mutant: Mutant, tree: Path, seconds: float) -> str:
    """What the tests of the room say in a copy of the tree that has the mutant."""
    target = tree / "src" / "graphmend" / mutant.path
    whole = target.read_bytes()
    target.write_text(mutant.after, encoding="utf-8")
    paths = os.pathsep.join(str(tree / name) for name in ("src", "tests"))
    variables = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *mutant.tests]
    try:
        ended = subprocess.run(command, cwd=tree, env=variables, capture_output=True, timeout=seconds)
        return NOTICED if ended.returncode else SURVIVED
    except subprocess.TimeoutExpired:
        return UNDECIDED
    finally:
        target.write_bytes(whole)


def main() -> int:
    """Try mutants and say which were not noticed; 1 if more than a tenth was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="which")
    parser.add_argument("--seconds", type=float, default=600, help="limit for the tests of one mutant")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants") as name:
        tree = Path(name)
        for part in ("src", "tests", "docs"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        for number, mutant in enumerate(mutants(options.count, options.seed), 1):
            told = outcome(mutant, tree, options.seconds)
            outcomes[told] += 1
            print(f"{number}: {told} {mutant.difference()}", flush=True)
    decided = outcomes[NOTICED] + outcomes[SURVIVED]
    print(f"{outcomes[NOTICED]} of {decided} noticed, {outcomes[UNDECIDED]} undecided")
    return int(outcomes[SURVIVED] > decided / 10)


if __name__ == "__main__":
    sys.exit(main())
