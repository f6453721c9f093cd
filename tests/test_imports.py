"""The plan of the house: which room knows which, that the product does not know the lab, and what importing may not do.

Read from the source, and from a fresh process that imports the package.
"""

from __future__ import annotations

import ast
import graphlib
import json
import platform
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from support.house import FILES, FOR_ALL, ROOT, imports, imports_of, name_of, plan, room_of, rooms_in
from support.processes import run_python

PICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
FRONT_ENDS = ("cli", "lab")
"""What the library does not know: the command line, and the lab, which only the command line opens a door to."""

STORED: dict[str, dict[str, list[str]]] = json.loads(
    (Path(__file__).parent.parent / "docs" / "images" / "architecture.json").read_text(encoding="utf-8")
)
"""Every room of the product and of the lab with those that it imports, as they are drawn in docs/architecture.md."""

LONGEST = 500  # lines of a module of the product


def is_library(file: Path) -> bool:
    return room_of(file) not in (*FRONT_ENDS, "__main__")


LIBRARY = [file for file in FILES if is_library(file)]
PRODUCT = [file for file in FILES if room_of(file) != "lab"]
LAB = [file for file in FILES if room_of(file) == "lab"]
in_library = pytest.mark.parametrize("file", LIBRARY, ids=name_of)


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
    names = imports(ast.parse(source), "graphmend.model.restore", is_package=False)
    assert {"graphmend.cli", "graphmend.report", "graphmend.model.bench", "graphmend.demo.main", "pickle"} <= names
    assert "graphmend.bench" in imports(ast.parse("from . import bench"), "graphmend", is_package=True)
    assert len(LIBRARY) > 30 and ROOT / "adapters" / "gtrans.py" in LIBRARY


def folders_of(home: Path) -> set[str]:
    return {path.name for path in home.iterdir() if path.is_dir() and path.name != "__pycache__"}


def test_the_picture_of_the_house_is_that_of_the_source_and_imports_point_one_way() -> None:
    assert plan() == STORED, "does the new import belong there? If so, run docs/images/architecture.py again"
    for rooms in STORED.values():
        list(graphlib.TopologicalSorter(rooms).static_order())  # raises if rooms import each other in a circle
    assert folders_of(ROOT) - {"lab"} <= set(STORED["product"]) and folders_of(ROOT / "lab") <= set(STORED["lab"])


def test_no_module_imports_itself_in_a_circle() -> None:
    """Not through an import inside a function either, which would only hide the circle."""
    modules = {name_of(file) for file in FILES}
    graph: dict[str, set[str]] = {}
    for file in FILES:
        names = (imports_of(file, at_run_time=True) & modules) - {name_of(file)}
        graph[name_of(file)] = {
            n for n in names if not any(is_within(o, n) for o in names - {n})
        }  # not the package of n
    list(graphlib.TopologicalSorter(graph).static_order())


@in_library
def test_a_room_uses_no_front_door(file: Path) -> None:
    """The front door knows every room; what every room may use knows none."""
    names, room = imports_of(file, at_run_time=True), room_of(file)
    assert room == "__init__" or "graphmend" not in names
    assert room not in FOR_ALL or rooms_in(names) <= FOR_ALL


@in_library
def test_the_library_does_not_know_its_front_ends(file: Path) -> None:
    assert not {name for name in imports_of(file) for end in FRONT_ENDS if is_within(name, f"graphmend.{end}")}


@pytest.mark.parametrize("file", PRODUCT, ids=name_of)
def test_the_product_never_imports_the_lab(file: Path) -> None:
    assert not {name for name in imports_of(file) if is_within(name, "graphmend.lab")}


def test_every_imported_package_is_declared_where_it_is_needed() -> None:
    """The product needs its dependencies, the lab these and its extra; and what is declared is imported somewhere."""
    project = tomllib.loads((ROOT.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: distributions(texts) for name, texts in project["optional-dependencies"].items()}
    own, lab = distributions(project["dependencies"]), extras["lab"] | extras["plot"]
    product = {name for file in PRODUCT for name in outside(file)}
    assert product - extras["ray"] - extras["scale"] - COME_ALONG <= own | extras["plot"]
    assert {name for file in LAB for name in outside(file)} <= own | lab
    assert own <= product and lab <= {name for file in FILES for name in outside(file)} | {"graphmend"}


COME_ALONG = {"triton"}
"""Imported where torch has brought it."""


def distributions(requirements: list[str]) -> set[str]:
    """The names of packages that are required, as they are imported."""
    names = {re.split(r"[^\w.-]", text)[0] for text in requirements}
    return {{"scikit-learn": "sklearn"}.get(name, name) for name in names}


def outside(file: Path) -> set[str]:
    """The packages that a file imports and that come neither with Python nor from here."""
    return {name.split(".")[0] for name in imports_of(file)} - {"graphmend", ""} - sys.stdlib_module_names


def test_mending_does_not_load_the_lab() -> None:
    code = """
import sys, torch, graphmend, torch_geometric.nn as pyg
from torch_geometric.data import Data
from graphmend.cli import app
data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
model = pyg.GCN(3, 8, 2, 2)
graphmend.mend(model, data, card=graphmend.card(model, data, task="classes"))
print([name for name in sys.modules if name.startswith("graphmend.lab.") and not name.startswith("graphmend.lab.cli")])
"""
    assert run_python(code).strip() == "[]"


@pytest.mark.parametrize("file", PRODUCT, ids=name_of)
def test_a_file_is_one_subject(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("room", sorted({file.parent for file in FILES} - {ROOT / "lab"}), ids=str)
def test_a_room_is_worth_a_door(room: Path) -> None:
    assert len(list(room.glob("*.py"))) >= 3


def test_no_two_files_of_tests_share_a_name() -> None:
    """Pytest imports them by their names alone, and would leave out the second."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []


def test_the_root_shows_the_plan() -> None:
    assert len([path for path in ROOT.iterdir() if path.is_file()]) <= 12


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
    processes = (
        {"joblib"} if room_of(file) in ("workers", "lab") else set()
    )  # its process pool alone; see the calls below
    assert not {name for name in imports_of(file) if name.split(".")[0] in PICKLES - processes} - {"pickle"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pickle":
            assert node.attr in allowed
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        given = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
        assert given.get("allow_pickle") is not True
        owner = node.func.value
        assert not (isinstance(owner, ast.Name) and owner.id == "joblib" and node.func.attr in ("load", "dump"))
        if node.func.attr == "load" and isinstance(owner, ast.Name) and owner.id == "torch":
            assert given.get("weights_only") is True


PROBE = """
import ctypes, gc, json, logging, os, random, signal, sys, threading, warnings
import numpy, torch, torch_geometric

libraries = []
class Noted(ctypes.CDLL):  # glibc is reached through this
    def __init__(self, *args, **kwargs):
        libraries.append(str(args[:1]))
        super().__init__(*args, **kwargs)
ctypes.CDLL = Noted

def state():
    return {
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "path": list(sys.path),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads(), threading.active_count()],
        "default dtype": str(torch.get_default_dtype()),
        "gradients": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch generator": torch.get_rng_state().tolist(),
        "Python generator": str(random.getstate()),
        "NumPy generator": str(numpy.random.get_state()),
        "warnings": str(warnings.filters),
        "handlers": str(logging.getLogger().handlers),
        "signals": str([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]),
        "tensors": sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects()),
        "CUDA": torch.cuda.is_initialized(),
        "libraries": list(libraries),
    }

def differences(before):
    after = state()
    return [name for name in before if before[name] != after[name]]

before = state()
import graphmend
for name in graphmend.__all__:
    getattr(graphmend, name)  # they are imported when they are used
changed = differences(before)
outside = [name for name in sys.modules if name.startswith("graphmend.") and name.split(".")[1] in sys.argv[1:]]
import sklearn, sklearn.datasets, sklearn.metrics  # which sets variables of its own
before = state()
import graphmend.adapters, graphmend.engine.memory, graphmend.surrogates, graphmend.transforms
import graphmend.lab.data, graphmend.lab.metrics, graphmend.lab.backbones, graphmend.lab.training
changed += differences(before)
with graphmend.engine.memory.keeping_memory(torch.zeros(3, 3), 3, 3):
    pass
print(json.dumps({"differences": changed, "outside": outside, "noted": libraries}))
"""


def test_importing_changes_nothing_in_the_process() -> None:
    """No environment variable, no allocator setting (``mallopt`` is reached through ``ctypes``), no generator, no
    thread, no tensor, no CUDA context; and no front end is loaded."""
    report = json.loads(run_python(PROBE, *FRONT_ENDS))
    assert report["differences"] == [] and report["outside"] == []
    if platform.system() == "Linux" and platform.libc_ver()[0] == "glibc":
        assert report["noted"] == ["(None,)"], "the probe should notice when the allocator is set for real"


@in_library
def test_no_allocator_setting_outside_of_functions(file: Path) -> None:
    """Neither directly nor through a function that a module calls while it is imported."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    uses = [
        n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in ("mallopt", "malloc_trim", "madvise")
    ]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    assert all(any(f.lineno <= use.lineno <= (f.end_lineno or 0) for f in functions) for use in uses)
    assert not uses or file == ROOT / "engine" / "memory.py"
    at_import = [n.value for n in tree.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    at_import = [call for call in at_import if "NullHandler()" not in ast.unparse(call)]  # as every library has one
    assert not at_import, "a module does nothing but define"
