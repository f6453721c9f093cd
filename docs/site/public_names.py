"""Every public name of the library, each once, where the reference documents it."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = (
    "graphmend",
    "graphmend.adapters",
    "graphmend.cards",
    "graphmend.hetero",
    "graphmend.model",
    "graphmend.monitor",
    "graphmend.shards",
    "graphmend.contracts",
    "graphmend.surrogates",
    "graphmend.transforms",
    "graphmend.lab.data",
    "graphmend.lab.backbones",
    "graphmend.lab.training",
    "graphmend.lab.attacks",
    "graphmend.lab.metrics",
    "graphmend.lab.bench",
)
"""In the order of the reference; a name that several of them offer belongs to the first."""


@dataclass(frozen=True)
class PublicName:
    """A name that users import.

    Args:
        package: Where the reference documents it.
        name: What it is called there.
        value: What it stands for.
    """

    package: str
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.package}.{self.name}"

    @property
    def kind(self) -> str:
        """``"class"``, ``"function"`` or ``"data"``, as Sphinx calls them."""
        if inspect.isclass(self.value):
            return "class"
        return "function" if inspect.isroutine(self.value) else "data"

    @property
    def page(self) -> str:
        """The name of its page, without an ending; ``Mend`` and ``mend`` differ where capitals do not count, too."""
        return f"{self}-class" if self.kind == "class" else str(self)

    @functools.cached_property
    def docstring(self) -> str:
        """Its docstring; that of data stands below the assignment, and Python does not keep it."""
        if self.kind != "data":
            return inspect.getdoc(self.value) or ""
        home = Path(inspect.getfile(importlib.import_module(self.package)))
        for file in sorted(home.parent.rglob("*.py")) if home.name == "__init__.py" else [home]:
            body = ast.parse(file.read_text(encoding="utf-8")).body
            for assignment, text in itertools.pairwise(body):
                target = getattr(assignment, "target", None) or (getattr(assignment, "targets", None) or [None])[0]
                is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                if isinstance(target, ast.Name) and target.id == self.name and is_text:
                    return inspect.cleandoc(str(text.value.value))
        return ""

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring."""
        return " ".join(self.docstring.split("\n\n")[0].split())

    @property
    def example(self) -> str:
        """The code of the examples in its docstring."""
        return "".join(example.source for example in doctest.DocTestParser().get_examples(self.docstring))


def public_names() -> list[PublicName]:
    """All of them, in the order of the reference."""
    found: dict[int, PublicName] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__, key=str.casefold):
            value = getattr(module, name)
            found.setdefault(id(value), PublicName(package, name, value))
    return list(found.values())
