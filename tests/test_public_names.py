"""No public name is lost, and every name that README and docs use can be imported."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

NAMES = {
    "graphmend": """
        Adaptation AirGNNTune Align Failure FineTune FrozenGNN GTrans Gate GraphMendError Identity Impute JaccardFilter
        Limits Mend Patch Purify Results Reweight SourceCard Tent UnsupportedLayerError Verdict
        card load_graph mend mend_each open_graph save_graph __version__
    """,
    "graphmend.adapters": """
        ADAPTERS Adapter Align Case GTrans Gate Identity Impute Proposal Purify Reweight Sequence Stopped
    """,
    "graphmend.cards": "SourceCard card",
    "graphmend.contracts": "Adapter Backbone Surrogate Transform View",
    "graphmend.lab.data": """
        DATASETS SHIFTS ColumnShift EdgeSubsample FeatureNoise RandomEdges LabelShift MissingColumns Scenario
        Splits abnormal_features
        attack_graph attacked embedded knn_graph load node_mask shift structure_attack
    """,
    "graphmend.model": "FrozenGNN",
    "graphmend.monitor": "Alarm Entry KINDS Monitor",
    "graphmend.lab.metrics": """
        GraphStats PairedTest average_rank central_moment_discrepancy cmd compare_paired gradient_correlation
        graph_stats holm transfer
    """,
    "graphmend.lab.backbones": """
        APPNP BACKBONES DualGCN GAT GCN GPR RobustGCN SAGE AirGNN SimPGCN build load_model save_model
    """,
    "graphmend.surrogates": """
        ADGCL SLAPS SURROGATES Backbone Contrastive Custom Entropy Moments Reconstruction Scaled Sum Supervised
        Surrogate embed_views surrogate_class surrogate_of
    """,
    "graphmend.lab.training": "DANN EERM ERM OPTIMIZERS SRGNN TRAINERS UDAGCN Trainer risk trainer_of",
    "graphmend.transforms": """
        PURIFIERS VIEWS DropEdge DropNode Jaccard Shuffle Subgraph View edge_similarity view_of
    """,
    "graphmend.lab.attacks": "ATTACKS GRBCD PRBCD EdgeAttack",
    "graphmend.outputs": "predictions probabilities read_labels read_mask",
    "graphmend.results.scores": "METRICS score scores",
    "graphmend.cli": "app main",
}
"""What a user may import today; names may come, none may go."""


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            if not hasattr(value, name):
                return False
            value = getattr(value, name)
        return True
    return False


def blocks(text: str) -> list[str]:
    """The Python code blocks of a page, without the prompts of an interactive session and what it answers."""
    code = re.findall(r"^ *```(?:python|py|pycon)\n(.*?)^ *```", text, re.M | re.S)
    return [_without_prompts(block) for block in code]


def _without_prompts(block: str) -> str:
    lines = block.splitlines()
    if not any(line.lstrip().startswith(">>> ") for line in lines):
        return block
    return "\n".join(line.lstrip()[4:] for line in lines if line.lstrip().startswith((">>> ", "... ")))


def names_in_code(code: str) -> set[str]:
    """All dotted names of this package that are imported, or used through ``graphmend.``, in a piece of code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "graphmend":
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.split(".")[0] == "graphmend"}
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("graphmend."):
            names.add(ast.unparse(node))
    return {name for name in names if re.fullmatch(r"[\w.]+", name)}


def names_in_text(text: str) -> set[str]:
    """Dotted names between backticks, such as ``graphmend.lab.backbones.GCN`` or ``graphmend.mend(model, data)``."""
    return set(re.findall(r"`(graphmend(?:\.\w+)+)(?=[`(])", text))


def test_the_pages_are_read() -> None:
    page = """
Text with `graphmend.lab.backbones.GCN` and `graphmend.mend(model, data)` and `graphmend mend`.
```python
import graphmend
from graphmend.surrogates import Contrastive, Supervised as Known
result = graphmend.mend(model, data).patch
```
```python
>>> from graphmend import Limits
Limits
```
```
from graphmend import this_is_no_python
```
"""
    code = set().union(*map(names_in_code, blocks(page)))
    assert names_in_text(page) == {"graphmend.lab.backbones.GCN", "graphmend.mend"}
    assert code == {
        "graphmend",
        "graphmend.mend",
        "graphmend.surrogates.Contrastive",
        "graphmend.surrogates.Supervised",
        "graphmend.Limits",
    }
    assert (
        resolves("graphmend.lab.backbones.GCN") and resolves("graphmend.engine.engine") and resolves("graphmend.mend")
    )
    assert (
        not resolves("graphmend.lab.backbones.GCM")
        and not resolves("graphmend.nothing")
        and not resolves("nothing.at.all")
    )
    assert names_in_code("\n".join(blocks((ROOT / "README.md").read_text()))) >= {"graphmend.mend"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_of_the_pages_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = names_in_text(text).union(*map(names_in_code, blocks(text)))
    assert not {name for name in names if not resolves(name)}


@pytest.mark.parametrize("package", NAMES)
def test_no_public_name_is_lost(package: str) -> None:
    module = importlib.import_module(package)
    assert not [name for name in NAMES[package].split() if not hasattr(module, name)]


@pytest.mark.parametrize("package", NAMES)
def test_what_a_package_offers_exists(package: str) -> None:
    module = importlib.import_module(package)
    offered = getattr(module, "__all__", [])
    assert len(offered) == len(set(offered)) and all(hasattr(module, name) for name in offered)


def test_a_type_checker_sees_the_names_that_are_imported_when_used() -> None:
    """The package lists its names twice: as imports for type checkers, and with their homes for ``__getattr__``."""
    tree = ast.parse((ROOT / "src" / "graphmend" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    package = importlib.import_module("graphmend")
    homes = {name: f"graphmend.{home}" for name, home in vars(package)["_HOMES"].items()}
    assert seen == homes and sorted(seen) == package.__all__
