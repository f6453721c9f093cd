"""Files in which values are missing, on the command line: mended, described, taken back, refused for training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmend import load_graph, save_graph
from support.commands import complains, good
from support.small_files import small_graph, small_model

pytestmark = pytest.mark.usefixtures("one_thread")


def features(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    x[1, 2] = x[0, 1] = x[0, 3] = torch.nan
    return x


@pytest.fixture(params=["npz", "pt"])
def holes(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A graph file with three missing values in two rows, and labels to score."""
    return small_graph(tmp_path / f"holes.{request.param}", tested=True, x=features())


def same_file(first: Data, second: Data) -> None:
    for name in first.keys():  # noqa: SIM118 (iterating over a Data gives pairs)
        assert first[name].numpy().tobytes() == second[name].numpy().tobytes(), name


@pytest.mark.parametrize("has_card", [True, False], ids=["card", "blind"])
def test_missing_values_are_filled_and_said_and_come_back(holes: Path, has_card: bool, tmp_path: Path) -> None:
    model, out = small_model(tmp_path / "m.safetensors"), tmp_path / "out"
    card = ("--source", small_graph(tmp_path / "train.npz")) if has_card else ("--no-card",)
    said = good("mend", "--model", model, "--graph", holes, *card, "--out", out).output
    assert "3 missing values in 2 rows were filled" in said and "impute" in said
    report = json.loads((out / "holes.json").read_text())
    assert report["missing_values_filled"] == 3 and report["verdict"]["menders"][0] == "impute"
    assert 0 <= report["test"]["before"]["accuracy"] <= 1 and report["test"]["after"] is not None
    mended = load_graph(out / "holes.npz")
    assert bool(mended.x.isfinite().all())
    good("revert", out / "holes.patch.safetensors", out / "holes.npz", "--out", tmp_path / "back.npz")
    same_file(load_graph(tmp_path / "back.npz"), load_graph(holes))
    good("apply", out / "holes.patch.safetensors", holes, "--out", tmp_path / "again.npz")
    same_file(load_graph(tmp_path / "again.npz"), mended)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_files_of_another_type_than_the_model(dtype: torch.dtype, tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.safetensors")
    graph = small_graph(tmp_path / "g.npz", x=features(dtype))
    said = good("mend", "--model", model, "--graph", graph, "--adapter", "impute", "--out", tmp_path / "out").output
    assert "g.npz: 3 missing values filled, 2 feature rows changed" in said
    assert load_graph(tmp_path / "out" / "g.npz").x.dtype == dtype
    good("revert", tmp_path / "out" / "g.patch.safetensors", tmp_path / "out" / "g.npz", "--out", tmp_path / "b.npz")
    same_file(load_graph(tmp_path / "b.npz"), load_graph(graph))


def test_info_says_how_much_is_missing(holes: Path, tmp_path: Path) -> None:
    facts = json.loads(good("info", holes, "--json").stdout)
    assert facts["missing values"] == "3 in 2 rows, 15 % of all" and "nan" not in facts["x"]
    assert "missing values" in good("info", holes).stdout
    assert "missing values" not in good("info", small_graph(tmp_path / "whole.npz")).stdout


@pytest.mark.parametrize("adapter", ["gtrans", "tent", "identity"])
def test_adapters_that_do_not_fill_name_the_remedy(holes: Path, adapter: str, tmp_path: Path) -> None:
    model, out = small_model(tmp_path / "m.safetensors"), tmp_path / "out"
    expected = f"{holes}: x holds 3 missing values, first x[0, 1] = nan, and --adapter {adapter} does not fill them"
    complains(expected, "mend", "--model", model, "--graph", holes, "--adapter", adapter, "--out", out)
    assert not out.exists()


def test_infinities_are_refused(tmp_path: Path) -> None:
    x = features()
    x[4, 0] = torch.inf
    graph = small_graph(tmp_path / "g.npz", x=x)
    expected = f"{graph}: x holds 1 infinite values, first x[4, 0] = inf"
    complains(expected, "mend", "--model", small_model(tmp_path / "m"), "--graph", graph, "--out", tmp_path / "out")
    complains(expected, "info", graph)


def test_training_graphs_have_to_be_complete(holes: Path, tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.safetensors")
    expected = f"{holes}: x holds 3 non-finite values, first x[0, 1] = nan; replace or impute them"
    complains(expected, "card", "--model", model, "--graph", holes)
    complains(expected, "train", "--graph", holes, "--out", tmp_path / "n.safetensors")
    whole = small_graph(tmp_path / "whole.npz")
    complains(expected, "mend", "--model", model, "--graph", whole, "--source", holes, "--out", tmp_path / "out")


def test_a_graph_is_stored_and_read_as_it_is(tmp_path: Path) -> None:
    data = Data(x=features(), edge_index=torch.tensor([[0, 1], [1, 2]]))
    for name in ("g.npz", "g.pt"):
        save_graph(tmp_path / name, data)
        same_file(load_graph(tmp_path / name), data)
    np.savez(tmp_path / "plain.npz", x=data.x.numpy(), edge_index=data.edge_index.numpy())
    same_file(load_graph(tmp_path / "plain.npz"), data)
