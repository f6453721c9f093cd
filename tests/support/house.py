"""What imports what, read from the source."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

import graphmend

ROOT = Path(graphmend.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FOR_ALL = {"contracts", "errors", "outputs", "progress", "scratch", "version", "wrappers"}
"""Files in the root that every room may use, and that know no room themselves."""


def name_of(file: Path) -> str:
    """The dotted name of a module."""
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def room_of(file: Path) -> str:
    """The package a file is in, or its own name if it is in the root."""
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def lab_room_of(file: Path) -> str:
    """The same within the lab."""
    return file.relative_to(ROOT / "lab").parts[0].removesuffix(".py")


def imports(tree: ast.AST, module: str, is_package: bool) -> set[str]:
    """Every module named by an import anywhere in the file, relative ones resolved, functions' bodies included."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".") if is_package else module.split(".")[:-1]
            start = ".".join(base[: len(base) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (start, node.module or "") if part)
            names |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            names |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return names


@functools.cache
def imports_of(file: Path, at_run_time: bool = False) -> frozenset[str]:
    """Everything a file imports; ``at_run_time`` leaves out what only a type checker sees."""
    tree: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
    if at_run_time:
        tree = _WithoutTypeChecking().visit(tree)
    return frozenset(imports(tree, name_of(file), file.name == "__init__.py"))


class _WithoutTypeChecking(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING") else node


@functools.cache
def _in_root() -> frozenset[str]:
    return frozenset(room_of(file) for file in FILES)


def rooms_in(names: Iterable[str]) -> set[str]:
    """The rooms, or files of the root, that some dotted names of this package are in."""
    return {name.split(".")[1] for name in names if name.startswith("graphmend.")} & _in_root()


def lab_rooms_in(names: Iterable[str]) -> set[str]:
    """The rooms of the lab, or files of its root, that some dotted names are in."""
    existing = {lab_room_of(file) for file in FILES if room_of(file) == "lab"}
    return {name.split(".")[2] for name in names if name.startswith("graphmend.lab.")} & existing


def plan() -> dict[str, dict[str, list[str]]]:
    """For the product and the lab: every room, with the rooms of the same house that it imports."""
    product: dict[str, set[str]] = {}
    lab: dict[str, set[str]] = {}
    for file in FILES:
        names, room = imports_of(file, at_run_time=True), room_of(file)
        if room == "lab" and lab_room_of(file) != "__init__":
            lab.setdefault(lab_room_of(file), set()).update(lab_rooms_in(names) - {lab_room_of(file), "__init__"})
        elif room not in ("lab", "__init__", "__main__", *FOR_ALL):
            product.setdefault(room, set()).update(rooms_in(names) - {room} - FOR_ALL)
    return {"product": _sorted(product), "lab": _sorted(lab)}


def _sorted(rooms: dict[str, set[str]]) -> dict[str, list[str]]:
    return {room: sorted(rooms[room]) for room in sorted(rooms)}
