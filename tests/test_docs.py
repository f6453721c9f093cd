"""The examples in the documentation run as they stand, and what the pages say about the code is true.

Every block that is marked as ``python`` in one of the pages in ``RUNNING`` is run. The blocks of one page run in order,
as a reader would run them, in one namespace that is empty at the beginning: a page brings all it needs. Of the other
pages and of docstrings, the imports are run.
"""

from __future__ import annotations

import ast
import doctest
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphmend.adapters import ADAPTERS
from graphmend.lab.backbones import BACKBONES
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.data import DATASETS
from graphmend.lab.training import TRAINERS
from graphmend.surrogates import SURROGATES

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parent.parent
RUNNING = (
    "README.md",
    "docs/bench.md",
    "docs/methods.md",
    "docs/models.md",
    "docs/extending.md",
    "docs/files.md",
    "docs/graphs-and-models.md",
    "docs/gtrans.md",
    "docs/guide.md",
    "docs/heterogeneous.md",
    "docs/monitor.md",
    "docs/no-harm.md",
    "docs/start.md",
    "docs/what-comes-back.md",
    *(f"docs/how-to/{page.name}" for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))),
)
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").glob("*.md"))),
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))),
)
BUILT = ("api/", "gallery/")
"""Pages that only `make docs` writes, which then checks the links to them."""
SOURCE = ROOT / "src" / "graphmend"
pages = pytest.mark.parametrize("name", PAGES)


@pytest.fixture
def own_registries() -> Iterator[None]:
    """Examples may register what they define, and set the log's level; afterwards both are as they were."""
    log = logging.getLogger("graphmend")
    level = log.level
    registries: tuple[dict[str, Any], ...] = (ADAPTERS, BACKBONES, DATASETS, EXPERIMENTS, SURROGATES, TRAINERS)
    before = [dict(registry) for registry in registries]
    yield
    log.setLevel(level)
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """The line in which each Python block of a page begins, and its code."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start(1)), match.group(1)


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("name", RUNNING)
def test_the_examples_of_a_page_run_in_order(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # examples may write files
    page, module = ROOT / name, ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look up the module that they are defined in
    examples = list(blocks(page))
    assert examples
    for line, code in examples:
        shown = "\n" * line + code  # so that an error names the line of the page
        exec(compile(shown, str(page), "exec", dont_inherit=True), vars(module))


def test_the_table_of_rooms_is_that_of_the_picture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:\.py)?` \| .* \| (.*) \|$", page.split("## Five contracts")[0], re.MULTILINE)
    shown = [(room, set(re.findall(r"`(\w+)`", cell))) for room, cell in rows]
    stored = json.loads((ROOT / "docs" / "images" / "architecture.json").read_text(encoding="utf-8"))
    product, lab = (dict(part) for part in (shown[: len(stored["product"])], shown[len(stored["product"]) :]))
    assert product == {room: set(others) for room, others in stored["product"].items()}
    assert lab == {room: set(others) for room, others in stored["lab"].items()}


@pages
def test_imports_in_examples_work(name: str) -> None:
    for _, code in blocks(ROOT / name):
        run_imports(code)


def test_imports_in_docstrings_work() -> None:
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                examples = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
                run_imports("".join(example.source for example in examples))


def run_imports(code: str) -> None:
    tree = ast.parse(code)
    imports: list[ast.stmt] = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    exec(compile(ast.Module(imports, []), "imports", "exec", dont_inherit=True), {})


@pages
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in path or path.startswith(BUILT):
            continue
        target = (page.parent / path) if path else page
        assert target.exists(), f"{name} links to {link}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pages
def test_commands_and_files_of_a_page_are_there(name: str) -> None:
    """``python -m MODULE``, and in what contributors read also the files of the library."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for module in re.findall(r"python -m ((?:graphmend|benchmarks)[\w.]*)", text):
        path = ROOT.joinpath("src" if module.startswith("graphmend") else "", *module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{name} names {module}"
    if name in ("CONTRIBUTING.md", "docs/extending.md", "docs/architecture.md"):
        for file in re.findall(r"`([\w/]+/[\w]+\.py)`", text):
            assert any((folder / file).exists() for folder in (ROOT, SOURCE)), f"{name} names {file}"
