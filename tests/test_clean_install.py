"""The wheel in clean environments, which hold what its metadata names and nothing else, with and without the extra.

No package index is asked: the environments are filled with links to the packages that are installed here, those that
the wheel requires and those that these require in turn.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from safetensors.torch import save_file

from support.small_files import small_graph

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
MODEL = """
from torch_geometric.nn import GCN

def build():
    return GCN(4, 8, num_layers=2, out_channels=2)
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder to work in."""

    home: Path
    folder: Path

    def path(self, name: str) -> Path:
        """Where the environment keeps its ``purelib`` (packages) or its ``scripts``."""
        return Path(sysconfig.get_path(name, "venv", {"base": str(self.home)}))

    def graphmend(self, *arguments: str | Path, code: int = 0) -> str:
        """What the command prints, on both streams; it must end with the exit code."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRAPHMEND"))}
        ended = subprocess.run(
            [self.path("scripts") / "graphmend", *arguments],
            cwd=self.folder,
            env={**variables, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert ended.returncode == code, ended.stdout
        assert "Traceback" not in ended.stdout
        return ended.stdout


def run(*command: str | Path, **options: str | Path) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the source, because building leaves files behind."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(source, copy / name, ignore=ignored) if source.is_dir() else shutil.copy(source, copy)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=copy)
    (built,) = out.iterdir()
    return built


def requirements(distribution: importlib.metadata.Distribution, extras: Iterable[str]) -> list[Requirement]:
    """What a distribution requires on this machine, with some of its extras."""
    every = [Requirement(text) for text in distribution.requires or ()]
    return [r for r in every if not r.marker or any(r.marker.evaluate({"extra": e}) for e in ("", *extras))]


def required(distribution: importlib.metadata.Distribution, extras: set[str]) -> dict[str, set[str]]:
    """Every package that a distribution needs, itself included, with its extras."""
    wanted: dict[str, set[str]] = {distribution.name: set()}
    waiting = [(distribution, extras)]
    while waiting:
        one, its_extras = waiting.pop()
        wanted[one.name] |= its_extras
        for requirement in requirements(one, wanted[one.name]):
            own = requirement.name == distribution.name
            other = distribution if own else importlib.metadata.distribution(requirement.name)
            if other.name not in wanted or not requirement.extras <= wanted[other.name]:
                wanted.setdefault(other.name, set())
                waiting.append((other, set(requirement.extras)))
    return wanted


def link(name: str, site: Path) -> None:
    """Make an installed distribution importable in another folder of packages, its metadata included."""
    distribution = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    for top in tops:
        source = Path(str(distribution.locate_file(top)))
        if source.exists() and not (site / top).exists():  # packages of one namespace share a folder
            (site / top).symlink_to(source, target_is_directory=source.is_dir())


def environment(wheel: Path, base: Path, *extras: str) -> Environment:
    """The wheel with everything that it requires."""
    made = Environment(base / "venv", base / "work")
    made.folder.mkdir()
    venv.create(made.home, symlinks=True)
    pip, site = (sys.executable, "-m", "pip", "--python", made.home), made.path("purelib")
    run(*pip, "install", "--no-index", "--no-deps", "--quiet", wheel)
    (own,) = importlib.metadata.distributions(name="graphmend", path=[str(site)])
    for name in required(own, set(extras)):
        if name != own.name:
            link(name, site)
    run(*pip, "check")
    return made


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return environment(wheel, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def with_lab(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return environment(wheel, tmp_path_factory.mktemp("lab"), "lab")


def test_the_extra_brings_what_the_lab_needs_and_nothing_for_developers(
    plain: Environment, with_lab: Environment
) -> None:
    def names(one: Environment) -> set[str]:
        return {path.name for path in one.path("purelib").iterdir()}

    assert {"graphmend", "torch", "typer"} <= names(plain) and not {"matplotlib", "pytest", "mypy"} & names(plain)
    assert "matplotlib" in names(with_lab) - names(plain) and not {"pytest", "mypy"} & names(with_lab)


def test_the_product_works_without_the_extra(plain: Environment) -> None:
    """A model and a graph of somebody's own: make a card, mend, take it back, make it again."""
    folder = plain.folder
    (folder / "mine.py").write_text(MODEL)
    built: dict[str, object] = {}
    exec(MODEL, built)
    save_file(built["build"]().state_dict(), folder / "mine.safetensors")  # type: ignore[operator]
    small_graph(folder / "train.npz")
    small_graph(folder / "today.npz", x=torch.linspace(0, 1, 20).view(5, 4))
    model = ("--factory", "mine:build", "--weights", "mine.safetensors")
    card = ("--card", "mine.card.safetensors")
    plain.graphmend("card", *model, "--graph", "train.npz", "--out", card[1])
    said = plain.graphmend("mend", *model, *card, "--graph", "today.npz", "--out", "out", "--json", "--quiet")
    assert json.loads(said)
    plain.graphmend("mend", *model, "--adapter", "gtrans", "--steps", "4", "--graph", "today.npz", "--out", "gtrans")
    patch = "gtrans/today.patch.safetensors"
    plain.graphmend("revert", patch, "gtrans/today.npz", "--out", "old.npz")
    plain.graphmend("apply", patch, "old.npz", "--out", "again.npz")
    assert "patch" in plain.graphmend("info", patch)
    assert "torch" in plain.graphmend("info")
    assert "gtrans" in plain.graphmend("list", "adapters")


def test_the_lab_works_without_its_extra_or_says_what_to_install(plain: Environment) -> None:
    plain.graphmend("train", "--dataset", "digits", "--epochs", "2", "--out", "gcn.safetensors")
    assert "gcn" in plain.graphmend("list", "backbones")
    assert "digits" in plain.graphmend("data", "list")
    assert "ood-accuracy" in plain.graphmend("bench", "list")
    plain.graphmend("bench", "ood-accuracy", "--smoke")
    plain.graphmend("bench", "ood-boxplots", "--smoke")
    figure = ("bench", "render", "ood-boxplots", "--smoke", "--out", "figures")
    assert "pip install 'graphmend[lab]'" in " ".join(plain.graphmend(*figure, code=2).split())
    said = plain.graphmend("demo", "--seeds", "1", "--out", "demo")
    assert "pip install 'graphmend[lab]'" in " ".join(said.split())
    assert [path.name for path in (plain.folder / "demo").iterdir()] == ["demo.json"]


def test_the_extra_completes_the_lab(with_lab: Environment) -> None:
    with_lab.graphmend("demo", "--seeds", "1", "--out", "demo")
    assert {path.suffix for path in (with_lab.folder / "demo").iterdir()} == {".json", ".png"}
    with_lab.graphmend("bench", "ood-boxplots", "--smoke")
    with_lab.graphmend("bench", "render", "ood-boxplots", "--smoke", "--out", "figures")
    assert {path.suffix for path in (with_lab.folder / "figures").iterdir()} >= {".png"}
