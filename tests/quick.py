"""The tests that are nearest to a change, for ``make quick``; ``make test`` runs all of them.

    python tests/quick.py [pytest options]

Changes are counted since the branch left main, and include what is not committed. A test file stands for itself; a
source file for the test files that bear its name and the contract test of its room, or for all of its room; a page of
the documentation for the examples in it. A few short tests from all over the house always run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

ROOT = Path(__file__).parent.parent
SMOKE = ("tests/test_mending.py", "tests/test_errors.py", "tests/cli/test_cli_start.py", "tests/results/test_patch.py")
MOST = 15  #: test files that are run; more take longer than a minute


def changed_files() -> list[PurePath]:
    """Files that differ from where the branch left main, and those that git does not know yet."""
    base = _git("merge-base", "HEAD", "main") or _git("rev-parse", "HEAD")
    names = [*_git("diff", "--name-only", *base), *_git("ls-files", "--others", "--exclude-standard")]
    return [PurePath(name) for name in dict.fromkeys(names)]


def _git(*arguments: str) -> list[str]:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ended.stdout.splitlines() if ended.returncode == 0 else []


def tests_of(file: PurePath) -> list[str]:
    """The test files for one file, nearest first; none if it is no part of the program."""
    if file.suffix == ".md" or file.parts[0] == "docs":
        return ["tests/test_docs.py"]
    if file.parts[0] == "examples":
        return ["tests/website/test_gallery.py"]
    if file.suffix != ".py":
        return []
    if file.parts[0] == "tests":
        return [str(file)] if file.name.startswith("test_") and (ROOT / file).exists() else []
    if file.parts[:2] != ("src", "graphmend"):
        return []
    inside = file.parts[2:-1]
    rooms = inside[: 2 if inside[:1] == ("lab",) else 1]
    if not rooms:
        return _paths(Path("tests").glob(f"test_{file.stem}*.py"))
    every = list((ROOT / "tests").joinpath(*rooms).rglob("test_*.py"))
    near = [path for path in every if file.stem.strip("_") in path.stem]
    return _paths([*near, *(path for path in every if path.stem.endswith("_contract"))] if near else every)


def _paths(found: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) if path.is_absolute() else str(path) for path in sorted(found)]


def in_turns(lists: list[list[str]]) -> Iterator[str]:
    """The first of each list, then the second of each, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield from (one[place] for one in lists if place < len(one))


def main() -> int:
    """Run them; the exit code is that of pytest."""
    chosen = list(dict.fromkeys([*in_turns([tests_of(file) for file in changed_files()]), *SMOKE]))
    left_out = len(chosen) - MOST
    if left_out > 0:
        sys.stdout.write(f"{left_out} more test files belong to this change; 'make test' runs them\n")
    sys.stdout.flush()
    options = ["-q", "-n", "auto", *chosen[:MOST], *sys.argv[1:]]
    return subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
