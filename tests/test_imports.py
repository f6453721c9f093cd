"""What the library may not do, read from its source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import graphmend

ROOT = Path(graphmend.__file__).parent
OUTSIDE = ("bench", "report", "cli", "demo")
FILES = sorted(ROOT.rglob("*.py"))
PICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def is_library(file: Path) -> bool:
    top = file.relative_to(ROOT).parts[0].removesuffix(".py")
    return top not in (*OUTSIDE, "__main__")


LIBRARY = [file for file in FILES if is_library(file)]
in_library = pytest.mark.parametrize("file", LIBRARY, ids=name_of)


def imports(tree: ast.AST, module: str, is_package: bool) -> set[str]:
    """Every module named by an import anywhere in the file, relative ones resolved, functions' bodies included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".") if is_package else module.split(".")[:-1]
            start = ".".join(base[: len(base) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (start, node.module or "") if part)
            found |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def imports_of(file: Path) -> set[str]:
    return imports(ast.parse(file.read_text(encoding="utf-8")), name_of(file), file.name == "__init__.py")


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_the_walk_sees_every_kind_of_import() -> None:
    source = """
import graphmend.cli
from graphmend import report
def late():
    from . import bench
    from ..demo import main
    importlib.import_module("pickle")
"""
    found = imports(ast.parse(source), "graphmend.frozen.restore", is_package=False)
    assert {"graphmend.cli", "graphmend.report", "graphmend.frozen.bench", "graphmend.demo.main", "pickle"} <= found
    assert "graphmend.bench" in imports(ast.parse("from . import bench"), "graphmend", is_package=True)
    assert len(LIBRARY) > 30 and ROOT / "adapters" / "gtrans.py" in LIBRARY


@in_library
def test_the_library_does_not_know_its_front_ends(file: Path) -> None:
    wrong = {name for name in imports_of(file) for outside in OUTSIDE if is_within(name, f"graphmend.{outside}")}
    assert not wrong


@in_library
def test_the_library_never_prints(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "print"]
    streams = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("stdout", "stderr")
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    ]
    assert not names and not streams


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_there_is_no_pickle(file: Path) -> None:
    """Only the error that ``torch.load`` raises when it refuses one may be named, and the published Planetoid files,
    which are pickles, are read by an unpickler that admits arrays alone."""
    allowed = {"UnpicklingError"} | ({"Unpickler"} if file.name == "planetoid.py" else set())
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert not {name for name in imports_of(file) if name.split(".")[0] in PICKLES} - {"pickle"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pickle":
            assert node.attr in allowed
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        given = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
        assert given.get("allow_pickle") is not True
        owner = node.func.value
        if node.func.attr == "load" and isinstance(owner, ast.Name) and owner.id == "torch":
            assert given.get("weights_only") is True


def test_importing_the_library_loads_no_front_end() -> None:
    code = f"import sys, graphmend; print(*[m for m in sys.modules if m.split('.')[1:2] and m.split('.')[0] == 'graphmend' and m.split('.')[1] in {OUTSIDE!r}])"  # noqa: E501
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "" and done.stderr == ""
