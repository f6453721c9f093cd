"""Writes the pages of the reference: one for each public name, and one that lists them."""

from __future__ import annotations

import importlib
import inspect
import textwrap
import typing
from pathlib import Path
from typing import Any

from sphinx.ext.napoleon import GoogleDocstring

from public_names import PACKAGES, PublicName, public_names

GALLERY = """
.. minigallery:: {name}
   :add-heading: In the gallery
"""


def write_api_pages(folder: Path) -> None:
    """Write a page for each public name and ``index.rst``; what is there and no longer needed goes."""
    folder.mkdir(exist_ok=True)
    names = public_names()
    pages = {f"{name.page}.rst": page_of(name) for name in names}
    pages["index.rst"] = index_of(names)
    for old in folder.glob("*.rst"):
        if old.name not in pages:
            old.unlink()
    for file, text in pages.items():
        path = folder / file
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # Sphinx reads again what is newer
            path.write_text(text, encoding="utf-8")


def page_of(name: PublicName) -> str:
    """The page of one name, in reStructuredText, which is what docstrings are written in."""
    head = f"{name.name}\n{'=' * len(name.name)}\n\n.. currentmodule:: {name.package}\n\n"
    if name.kind == "data":  # Sphinx would show the docstring of its type
        text = textwrap.indent(str(GoogleDocstring(name.docstring)), "   ")
        return f"{head}.. data:: {name.name}\n\n{text}\n\n{textwrap.indent(entries_of(name.value), '   ')}"
    options = "   :members:\n" if name.kind == "class" else ""
    if name.kind == "class" and name.value.__bases__ != (object,):
        options += "   :show-inheritance:\n"
    plain = plain_signature(name.value)
    if plain:
        text = textwrap.indent(str(GoogleDocstring(name.docstring)), "   ")
        return f"{head}.. function:: {name.name}{plain}\n\n{text}\n{GALLERY.format(name=name)}"
    return f"{head}.. auto{name.kind}:: {name}\n{options}{GALLERY.format(name=name)}"


def plain_signature(value: Any) -> str:
    """The arguments of a function with several signatures for type checkers, which would fill a screen."""
    if not inspect.isfunction(value) or not typing.get_overloads(value):
        return ""
    signature = inspect.signature(value)
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def entries_of(value: Any) -> str:
    """The names of a registry with a sentence about each, or the items of another collection."""
    if not isinstance(value, dict):
        return ", ".join(f"``{item!r}``" for item in value) + "\n"
    rows = [f"   * - ``{key}``\n     - {about(part)}" for key, part in value.items()]
    return "\n".join([".. list-table::", "   :widths: 30 70", "", *rows]) + "\n"


def about(entry: Any) -> str:
    """What an entry of a registry is: a text, or the first paragraph of its docstring."""
    text = entry if isinstance(entry, str) else inspect.getdoc(entry) or ""
    return " ".join(text.split("\n\n")[0].split())


def index_of(names: list[PublicName]) -> str:
    """The list of all names by package."""
    parts = ["Python reference", "================", ""]
    parts += ["Every name that a user may import. Each page has an example, and all of them are run by the tests.", ""]
    for package in PACKAGES:
        own = [name for name in names if name.package == package]
        if not own:
            continue
        title = f"``{package}``"
        about = (importlib.import_module(package).__doc__ or "").split("\n\n")[0]
        parts += [title, "-" * len(title), "", " ".join(about.split()), ""]
        parts += [".. list-table::", "   :widths: 30 70", ""]
        for name in own:
            parts += [f"   * - :doc:`{name.name} <{name.page}>`", f"     - {name.summary}"]
        parts += ["", ".. toctree::", "   :hidden:", ""]
        parts += [f"   {name.name} <{name.page}>" for name in own]
        parts += [""]
    return "\n".join(parts)
