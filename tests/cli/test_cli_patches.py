"""``graphmend apply`` and ``graphmend revert``: the change of the user's own file, there and back, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmend import Patch, load_graph, save_graph
from graphmend.results.fingerprint import fingerprint_of
from support.commands import complains, good
from support.small_files import small_graph, small_model

pytestmark = pytest.mark.usefixtures("one_thread")


def assert_same_graph(first: Data, second: Data) -> None:
    """All attributes, types included, to the last bit."""
    assert set(first.keys()) == set(second.keys())
    for name in first.keys():  # noqa: SIM118 (iterating over a Data gives pairs)
        value, other = first[name], second[name]
        assert value.dtype == other.dtype and value.numpy().tobytes() == other.numpy().tobytes(), name


@pytest.fixture(params=[torch.float32, torch.float64, torch.float16], ids=str)
def mended(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a graph of some type, and in ``out`` what became of it; node 0 keeps its features."""
    x = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(request.param)
    frozen = torch.tensor([True, False, False, False, False])
    graph = small_graph(tmp_path / "g.npz", tested=True, x=x, frozen_nodes=frozen)
    command = ["mend", "--adapter", "gtrans", "--model", small_model(tmp_path / "m.safetensors"), "--graph", graph]
    good(*command, "--out", tmp_path / "out", "--lr-feature", "0.5", "--budget", "2", "-q")
    return tmp_path


def test_apply_gives_what_mend_wrote_and_revert_the_file(mended: Path) -> None:
    patch, graph, out = mended / "out" / "g.patch.safetensors", mended / "g.npz", mended / "out" / "g.npz"
    assert "feature rows changed" in good("apply", patch, graph, "--out", mended / "again.npz").stdout
    assert_same_graph(load_graph(mended / "again.npz"), load_graph(out))
    good("revert", patch, out, "--out", mended / "back.npz", "-q")
    assert_same_graph(load_graph(mended / "back.npz"), load_graph(graph))


def test_results_belong_to_the_file_and_not_to_the_model(mended: Path) -> None:
    original, result = load_graph(mended / "g.npz"), load_graph(mended / "out" / "g.npz")
    report = json.loads((mended / "out" / "g.json").read_text())
    assert result.x.dtype == original.x.dtype
    assert torch.equal(result.x[0], original.x[0]) and not torch.equal(result.x[1], original.x[1])
    assert (
        report["fingerprint"] == fingerprint_of(original) == Patch.load(mended / "out" / "g.patch.safetensors").before
    )


def test_files_have_names_of_their_own_unless_told_otherwise(mended: Path) -> None:
    patch = mended / "out" / "g.patch.safetensors"
    facts = json.loads(good("apply", patch, mended / "g.npz", "--json").stdout)
    assert facts["graph"] == str(mended / "g.mended.npz")
    assert facts["fingerprint"] == fingerprint_of(load_graph(mended / "out" / "g.npz"))
    complains("g.mended.npz is there already; choose a name with --out", "apply", patch, mended / "g.npz")
    good("apply", patch, mended / "g.npz", "--out", mended / "g.mended.npz")
    good("revert", patch, mended / "g.mended.npz")
    assert_same_graph(load_graph(mended / "g.mended.reverted.npz"), load_graph(mended / "g.npz"))


def test_what_does_not_fit_is_refused_and_nothing_written(tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "g.npz")
    model = small_model(tmp_path / "m.safetensors")
    good("mend", "--adapter", "gtrans", "--model", model, "--graph", graph, "--out", tmp_path / "out", "-q")
    patch, result = tmp_path / "out" / "g.patch.safetensors", tmp_path / "out" / "g.npz"
    before = sorted(tmp_path.rglob("*"))
    complains("was made for another graph", "apply", patch, result)
    complains("did not make this graph", "revert", patch, graph)
    complains("no GraphMend patch", "apply", model, graph)
    complains("there is no file", "apply", tmp_path / "none.safetensors", graph)
    complains("g.npz, which is read", "apply", patch, graph, "--out", graph)
    complains("unknown ending of a graph file '.csv'", "apply", patch, graph, "--out", tmp_path / "x.csv")
    complains("is a folder", "apply", patch, graph, "--out", _folder(tmp_path / "f.npz"))
    (tmp_path / "f.npz").rmdir()
    assert sorted(tmp_path.rglob("*")) == before


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_graph_of_pyg_stays_one(tmp_path: Path) -> None:
    data = load_graph(small_graph(tmp_path / "g.npz"))
    save_graph(tmp_path / "g.pt", data)
    model = small_model(tmp_path / "m.safetensors")
    good("mend", "--adapter", "gtrans", "--model", model, "--graph", tmp_path / "g.pt", "--out", tmp_path / "o", "-q")
    good("apply", tmp_path / "o" / "g.patch.safetensors", tmp_path / "g.pt")
    assert_same_graph(load_graph(tmp_path / "g.mended.pt"), load_graph(tmp_path / "o" / "g.npz"))


def test_the_predictions_are_those_of_the_model_on_the_mended_graph(mended: Path) -> None:
    from graphmend.lab.backbones import load_model

    data, model = load_graph(mended / "out" / "g.npz"), load_model(mended / "m.safetensors")
    with np.load(mended / "out" / "g.predictions.npz") as stored, torch.no_grad():
        logits = model(data.x.float(), data.edge_index, data.get("edge_weight"))
        tolerance = 1e-2 if data.x.dtype == torch.float16 else 1e-5
        torch.testing.assert_close(torch.from_numpy(stored["logits"]), logits, rtol=tolerance, atol=tolerance)
