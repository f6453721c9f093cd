"""Random small faults in the product's core, one at a time: do the tests notice?

``make mutants COUNT=60 SEED=0 JOBS=2`` works in copies of the tree, one for each job. First every test file runs once
without a fault: which functions does it enter, how long does it take, which of its tests fail on this machine anyhow?
Then each mutant changes one place in one file and runs the test files that enter the changed function, those of its
own room first, until the first failure. Mutants that survive are printed as differences. ``--out FILE`` keeps all
outcomes as JSON after each mutant, and what is in the file is not tried again; ``--baseline FILE`` does so for the
first part.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import os
import platform
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROOMS = ("adapters", "adapters/gate", "cards", "engine", "graph", "model")
LEFT_OUT = ("triton", "cuda_graphs", "__init__", "memory")
"""What needs a GPU, and thresholds of memory that are right by measuring only."""

TESTS = ("adapters", "cards", "engine", "graph", "hetero", "model", "results", "shards", "surrogates")
"""Folders whose tests are asked, beside the files of ``tests`` itself."""

NOT_ASKED = ("test_clean_install", "test_docs", "test_imports", "test_odd_paths", "test_public_names")
"""Test files that look at the package from outside."""

MEMORY = 24 << 30  #: bytes of address space for the tests of one mutant: a loop without an end fills no machine

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

    path: str  #: below ``src/graphmend``
    function: str  #: the qualified name of the innermost function around it
    line: int
    before: str
    after: str

    def difference(self) -> str:
        """The change as a unified difference, without context."""
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=0)
        return f"{self.path}:{self.line} in {self.function}\n" + "\n".join(list(lines)[3:])


@dataclass(frozen=True)
class TestFile:
    """What one test file did in the tree without a fault."""

    path: str
    seconds: float
    entered: frozenset[str]
    failed: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether it ran at all here."""
        return bool(self.entered)


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
    places = [(path, index) for path in core() for index, _ in enumerate(changes_in(_parsed(path)))]
    return [_made(path, index) for path, index in random.Random(seed).sample(places, min(count, len(places)))]


def core() -> list[Path]:
    """The files that faults are put into."""
    source = ROOT / "src" / "graphmend"
    files = sorted(path for room in ROOMS for path in (source / room).glob("*.py"))
    return [path for path in files if not any(word in str(path) for word in LEFT_OUT)]


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _made(path: Path, index: int) -> Mutant:
    tree = _parsed(path)
    before = ast.unparse(copy.deepcopy(tree))
    line, change = list(changes_in(tree))[index]
    function = function_at(tree, line)
    change()
    after = ast.unparse(ast.fix_missing_locations(tree))
    return Mutant(path.relative_to(ROOT / "src" / "graphmend").as_posix(), function, line, before, after)


def function_at(tree: ast.AST, line: int) -> str:
    """The qualified name of the innermost function around a line, as in ``co_qualname``; ``<module>`` outside."""
    name, parts, node = "<module>", list[str](), tree
    while True:
        inner = (child for child in ast.walk(node) if child is not node and _spans(child, line))
        node = next(inner, None)  # type: ignore[assignment]
        if node is None:
            return name
        if isinstance(node, ast.ClassDef):
            parts.append(node.name)
        else:
            name = ".".join([*parts, node.name])  # type: ignore[attr-defined]
            parts += [node.name, "<locals>"]  # type: ignore[attr-defined]


def _spans(node: ast.AST, line: int) -> bool:
    defines = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return defines and node.lineno <= line <= (node.end_lineno or 0)  # type: ignore[attr-defined]


def copied_tree(folder: Path) -> Path:
    """A copy of what the tests read; its core is written as mutants are, so that nothing else differs in them."""
    folder.mkdir()
    for part in ("src", "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for file in ROOT.iterdir():
        if file.is_file() and file.suffix in (".md", ".toml", ".txt", ".cff"):
            shutil.copy(file, folder)
    for path in core():
        (folder / path.relative_to(ROOT)).write_text(ast.unparse(_parsed(path)), encoding="utf-8")
    return folder


def pytest_in(tree: Path, arguments: list[str], seconds: float, **variables: str) -> int | None:
    """The exit code of pytest in a tree, on one thread and without a GPU; None if the time is up."""
    paths = [str(tree / "src"), str(tree / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    fixed = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    limited = ["sh", "-c", f'ulimit -v {MEMORY >> 10} && exec "$@"', "sh"]
    command = [*limited, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *arguments]
    try:
        return subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, **fixed, "CUDA_VISIBLE_DEVICES": "", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def without_fault(path: str, tree: Path) -> TestFile:
    """Run one test file in a tree that has no fault."""
    record = tree / "entered.json"
    record.unlink(missing_ok=True)
    start = time.perf_counter()
    pytest_in(tree, ["-p", "support.entered", path], 900, ENTERED=str(record))
    noted = json.loads(record.read_text()) if record.exists() else {"entered": [], "failed": []}
    entered = frozenset(name for name in noted["entered"] if name.startswith(tuple(f"{room}/" for room in ROOMS)))
    return TestFile(path, round(time.perf_counter() - start, 1), entered, tuple(noted["failed"]))


def asked_about(mutant: Mutant, files: list[TestFile], most: float) -> list[TestFile]:
    """The test files that enter the changed function: its room's first, quick ones first, for ``most`` seconds."""
    room, stem = f"tests/{Path(mutant.path).parent.as_posix()}/", Path(mutant.path).stem.strip("_").rstrip("s")
    entering = [file for file in files if f"{mutant.path}:{mutant.function}" in file.entered]
    chosen, total = list[TestFile](), 0.0
    for file in sorted(
        entering, key=lambda file: (not file.path.startswith(room), stem not in file.path, file.seconds)
    ):
        if not chosen or total + file.seconds <= most:
            chosen, total = [*chosen, file], total + file.seconds
    return chosen


def outcome(mutant: Mutant, tree: Path, files: list[TestFile]) -> str:
    """What these test files say in a tree that has the mutant."""
    target = tree / "src" / "graphmend" / mutant.path
    target.write_text(mutant.after, encoding="utf-8")
    known = [argument for file in files for name in file.failed for argument in ("--deselect", name)]
    try:
        code = pytest_in(
            tree, ["-x", *known, *(file.path for file in files)], 60 + 4 * sum(file.seconds for file in files)
        )
    finally:
        target.write_text(mutant.before, encoding="utf-8")
    if code is None:
        return UNDECIDED
    return NOTICED if code not in (0, 5) else SURVIVED  # 5: no test was selected


class Trees:
    """Copies of the tree, each for one job at a time."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            self._free.put(copied_tree(folder / f"tree{number}"))

    @contextmanager
    def one(self) -> Iterator[Path]:
        """A tree that nobody else uses meanwhile."""
        tree = self._free.get()
        try:
            yield tree
        finally:
            self._free.put(tree)


def _read(path: Path | None) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else None


def _write(path: Path | None, content: Any) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def baseline(trees: Trees, pool: ThreadPoolExecutor, kept: Path | None) -> list[TestFile]:
    """Every test file without a fault; those that the file says something about are not run again."""
    stored = _read(kept) or []
    known = {
        one["path"]: TestFile(one["path"], one["seconds"], frozenset(one["entered"]), tuple(one["failed"]))
        for one in stored
    }

    def run(path: str) -> TestFile:
        with trees.one() as tree:
            return without_fault(path, tree)

    tests = ROOT / "tests"
    paths = [*tests.glob("test_*.py"), *(path for name in TESTS for path in (tests / name).rglob("test_*.py"))]
    paths = sorted((path for path in paths if path.stem not in NOT_ASKED), key=lambda path: -path.stat().st_size)
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    for future in as_completed([pool.submit(run, name) for name in names if name not in known]):
        known[future.result().path] = future.result()
        _write(kept, [{**asdict(file), "entered": sorted(file.entered)} for file in known.values()])
    return [known[name] for name in names if name in known]


def main() -> int:
    """Try mutants and say which were not noticed; 1 if more than a tenth was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="which")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time, one thread each")
    parser.add_argument("--most", type=float, default=240, help="seconds of tests that one mutant is worth")
    parser.add_argument("--out", type=Path, help="JSON with the outcomes; those in it are not tried again")
    parser.add_argument("--baseline", type=Path, help="JSON with the tests without a fault; read if it is there")
    options = parser.parse_args()
    start = time.perf_counter()
    drawn = mutants(options.count, options.seed)  # before the copies, so that both are of the same source
    with tempfile.TemporaryDirectory(prefix="mutants") as name, ThreadPoolExecutor(options.jobs) as pool:
        trees = Trees(Path(name), options.jobs)
        files = baseline(trees, pool, options.baseline)
        failing = [name for file in files for name in file.failed] + [file.path for file in files if not file.usable]
        print(f"{len(files)} test files without a fault, {time.perf_counter() - start:.0f} s", flush=True)
        print(*(f"not asked, it fails here without a fault: {name}" for name in failing), sep="\n", flush=True)
        usable = [file for file in files if file.usable]
        known = {one["difference"]: one for one in (_read(options.out) or {"mutants": []})["mutants"]}

        def run(mutant: Mutant) -> dict[str, Any]:
            if mutant.difference() in known:
                return known[mutant.difference()]
            chosen = asked_about(mutant, usable, options.most)
            begun = time.perf_counter()
            with trees.one() as tree:
                told = outcome(mutant, tree, chosen) if chosen else SURVIVED
            seconds = round(time.perf_counter() - begun, 1)
            asked = [file.path for file in chosen]
            return {"outcome": told, "difference": mutant.difference(), "seconds": seconds, "asked": asked}

        tried = list[dict[str, Any]]()
        for future in as_completed([pool.submit(run, mutant) for mutant in drawn]):
            tried.append(one := future.result())
            print(f"{len(tried)}: {one['outcome']} in {one['seconds']} s {one['difference']}", flush=True)
            counts = Counter(one["outcome"] for one in tried)
            machine = {"python": platform.python_version(), "cores": os.cpu_count(), "jobs": options.jobs}
            wall = round(time.perf_counter() - start)
            about = {"seed": options.seed, "count": options.count, **machine, "wall_seconds": wall, "left_out": failing}
            _write(options.out, {**about, "outcomes": counts, "mutants": tried})
    for one in tried:
        if one["outcome"] == SURVIVED:
            print(f"{SURVIVED} {one['difference']}\nasked: {' '.join(one['asked']) or 'no test enters it'}\n")
    decided = counts[NOTICED] + counts[SURVIVED]
    print(f"{counts[NOTICED]} of {decided} noticed, {counts[UNDECIDED]} undecided, {time.perf_counter() - start:.0f} s")
    return int(counts[SURVIVED] > decided / 10)


if __name__ == "__main__":
    sys.exit(main())
