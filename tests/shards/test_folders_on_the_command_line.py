"""Every command that takes a graph takes a graph folder, with the same result, and writes large results as folders."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphmend import GraphMendError, Patch, load_graph, open_graph, save_graph
from graphmend.cli import mend_files
from graphmend.graph.mapped import MappedGraph
from graphmend.lab.backbones import GCN, save_model
from graphmend.results.patch import as_bits
from graphmend.shards import pack, save_folder
from support.commands import good, run

NODES = 80


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A model with its card, and the graph to mend as ``test.npz`` and as the folder ``packed/test``."""
    torch.manual_seed(0)
    places = torch.randperm(NODES**2)[:300].sort().values
    edges = torch.stack([places % NODES, places // NODES])  # in the order of a folder
    data = Data(x=torch.rand(NODES, 4), edge_index=edges, y=torch.randint(2, (NODES,)), name="monday")
    save_graph(tmp_path / "train.npz", data)
    data.x[:5] *= 1000
    data.x[7, 1] = torch.nan
    save_graph(tmp_path / "test.npz", data)
    save_model(GCN(4, 8, 2), tmp_path / "gcn.safetensors")
    for name in ("train", "test"):
        good("pack", tmp_path / f"{name}.npz", "--out", tmp_path / "packed" / name)
    return tmp_path


def mend(place: Path, graph: str, out: str, *more: object) -> Any:
    call = ("mend", "--graph", place / graph, "--model", place / "gcn.safetensors", "--out", place / out, "--json")
    return json.loads(good(*call, *more).stdout)[0]


def assert_same(first: Data, second: Data) -> None:
    """All arrays are the same, bit by bit, edges in the order in which folders have them."""
    one, other = (in_order(data) for data in (first, second))
    assert set(one) == set(other)
    for name, value in one.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == other[name].dtype
            assert torch.equal(as_bits(value.contiguous()), as_bits(other[name].contiguous())), name
        else:
            assert value == other[name]


def in_order(data: Data) -> dict[str, Any]:
    order = (data.edge_index[1] * NODES + data.edge_index[0]).argsort(stable=True)
    edges = {name: data[name][order] for name in ("edge_weight",) if name in data}
    return {**data.to_dict(), **edges, "edge_index": data.edge_index[:, order]}


def test_cards_and_facts_are_the_same(place: Path) -> None:
    digests = []
    for graph in (place / "train.npz", place / "packed" / "train"):
        card = place / f"{graph.stem}{len(digests)}.card.safetensors"
        model = ("--model", place / "gcn.safetensors")
        digests.append(json.loads(good("card", *model, "--graph", graph, "--out", card, "--json").stdout)["digest"])
    assert digests[0] == digests[1]
    facts = [
        json.loads(good("info", graph, "--json").stdout) for graph in (place / "test.npz", place / "packed" / "test")
    ]
    assert facts[0] == facts[1]


GTRANS = ("--adapter", "gtrans", "--steps", "6", "--lr-edge", "100", "--budget", "0.3")


@pytest.mark.parametrize(
    ("options", "large"),
    [
        (("--source",), False),
        (("--source",), True),
        (("--adapter", "impute"), False),
        (("--adapter", "impute"), True),
        (("--adapter", "impute", "--maximum", "0.4"), True),
        (GTRANS, False),
        ((*GTRANS, "--space", "random_block"), False),  # which adds edges
    ],
)
def test_a_folder_is_mended_as_the_file_is(
    options: tuple[str, ...], large: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr("graphmend.graph.mapped.LARGE", 1)
        monkeypatch.setattr("graphmend.scratch.LEAST", 1)
        for module in ("scratch", "results.patch", "graph.edits"):
            monkeypatch.setattr(f"graphmend.{module}.ROWS", 30)
    graphs = ("test.npz", "packed/test")
    if options == ("--source",):
        options = ("--source", str(place / "train.npz"))
    elif "impute" not in options:  # which alone fills missing values
        for graph in graphs:
            shutil.rmtree(place / graph) if (place / graph).is_dir() else (place / graph).unlink()
        data = load_graph(place / "train.npz")
        save_graph(place / "test.npz", data)
        pack(place / "packed" / "test", data)
    reports = [mend(place, graph, out, *options) for graph, out in zip(graphs, ("a", "b"), strict=True)]
    differ = {"graph", "arrays", "files", "checksum", "seconds", "provenance", "history"}
    same = [{name: value for name, value in report.items() if name not in differ} for report in reports]
    assert same[0] == same[1]

    assert {path.name for path in (place / "b").iterdir()} == {
        "test", "test.patch", "test.predictions.npz", "test.json",
    }  # fmt: skip
    mended = load_graph(place / "a" / "test.npz")
    assert_same(open_graph(place / "b" / "test"), mended)
    kinds = [json.loads(good("info", place / "b" / name, "--json").stdout)["kind"] for name in ("test", "test.patch")]
    assert kinds == ["graph", "patch"]
    patches = [Patch.load(place / "a" / "test.patch.safetensors"), Patch.load(place / "b" / "test.patch")]
    first, second = (patch.parts() for patch in patches)
    assert first[1] == second[1] and not patches[0].is_empty
    assert (patches[0].num_added > 0) == ("random_block" in options)
    assert all(torch.equal(value, second[0][name]) for name, value in first[0].items())

    for patch in ("a/test.patch.safetensors", "b/test.patch"):
        good("apply", place / patch, place / "packed" / "test")
        assert_same(open_graph(place / "packed" / "test.mended"), mended)
        good("revert", place / patch, place / "b" / "test")
        back = open_graph(place / "b" / "test.reverted")
        for name, value in load_graph(place / "test.npz").to_dict().items():
            same_bits = torch.equal(as_bits(value), as_bits(back[name])) if torch.is_tensor(value) else True
            assert same_bits, name
        shutil.rmtree(place / "packed" / "test.mended")
        shutil.rmtree(place / "b" / "test.reverted")
    good("apply", place / "b" / "test.patch", place / "packed" / "test", "--out", place / "again.npz")
    assert_same(load_graph(place / "again.npz"), mended)


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_what_is_there_and_whole_is_skipped(place: Path) -> None:
    first = mend(place, "packed/test", "out", "--adapter", "impute")
    assert set(first["files"]) == {"test", "test.patch", "test.predictions.npz"}
    before = times(place / "out")
    assert mend(place, "packed/test", "out", "--adapter", "impute") == first
    assert times(place / "out") == before


@pytest.mark.parametrize("name", ["test/x.npy", "test/graph.json", "test.patch/bits.npy", "test.patch/patch.json"])
def test_what_was_damaged_is_made_again(name: str, place: Path) -> None:
    first = mend(place, "packed/test", "out", "--adapter", "impute")
    content = (place / "out" / name).read_bytes()
    (place / "out" / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert mend(place, "packed/test", "out", "--adapter", "impute")["files"]["test"] == first["files"]["test"]
    assert (place / "out" / name).read_bytes() == content
    assert sorted(path.name for path in (place / "out").iterdir()) == sorted([*first["files"], "test.json"])


def test_other_settings_replace_the_folders(place: Path) -> None:
    mend(place, "packed/test", "out", "--adapter", "impute")
    mend(place, "packed/test", "out", "--adapter", "impute", "--maximum", "0.4")
    fresh = mend(place, "packed/test", "fresh", "--adapter", "impute", "--maximum", "0.4")
    assert_same(open_graph(place / "out" / "test"), open_graph(place / "fresh" / "test"))
    assert sorted(path.name for path in (place / "out").iterdir()) == sorted([*fresh["files"], "test.json"])


def test_a_folder_that_is_replaced_stays_until_the_new_one_is_whole(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mend(place, "packed/test", "out", "--adapter", "impute")
    old = open_graph(place / "out" / "test").x.clone()

    def full_disk(graph: Data, folder: Path) -> None:
        raise GraphMendError(f"cannot write into {folder}; make room")

    with monkeypatch.context() as patched:
        patched.setattr(mend_files, "save_folder", full_disk)
        call = ("--model", place / "gcn.safetensors", "--out", place / "out", "--adapter", "identity")
        assert run("mend", "--graph", place / "packed" / "test", *call, "--seed", 1).exit_code == 2
        patched.setattr(mend_files, "save_folder", save_folder)
    assert torch.equal(open_graph(place / "out" / "test").x, old)


def others_folder(place: Path) -> None:
    (place / "out" / "test").mkdir(parents=True)
    (place / "out" / "test" / "thesis.txt").write_text("years of work")


def file_in_place(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "test.patch").write_text("years of work")


@pytest.mark.parametrize(
    ("prepare", "out", "words"),
    [
        (others_folder, "out", "cannot replace .*out/test, which has no graph.json; remove it"),
        (file_in_place, "out", "cannot write into .*test.patch, which is a file; choose a folder"),
        (lambda place: None, "packed", "would overwrite .*packed/test, which is read"),
        (lambda place: shutil.copytree(place / "packed" / "test", place / "test" / "test"), ".", "would overwrite"),
    ],
    ids=["somebody's folder", "a file", "the graph itself", "a folder with the graph in it"],
)
def test_nothing_of_others_is_overwritten(prepare: Any, out: str, words: str, place: Path) -> None:
    prepare(place)
    graph = place / "test" / "test" if out == "." else place / "packed" / "test"
    before = times(place)
    done = run("mend", "--graph", graph, "--model", place / "gcn.safetensors", "--out", place / out)
    assert done.exit_code == 2
    assert re.search(words, done.stderr.replace("\n", " ")), done.stderr
    assert times(place) == before


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_a_folder_is_never_replaced(command: str, place: Path) -> None:
    mend(place, "packed/test", "out", "--adapter", "impute")
    before = times(place)
    graph = place / ("packed/test" if command == "apply" else "out/test")
    done = run(command, place / "out" / "test.patch", graph, "--out", place / "packed" / "train")
    assert done.exit_code == 2 and "is there already; choose a name with --out" in done.stderr
    assert times(place) == before


def test_an_interrupted_run_goes_on_with_the_shards_that_are_done(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MappedGraph, "shards", 4)

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(mend_files, "save_folder", interrupted)
        call = ("--model", place / "gcn.safetensors", "--out", place / "out", "--adapter", "impute")
        assert run("mend", "--graph", place / "packed" / "test", *call).exit_code == 130
    kept = place / "out" / ".test.graphmend-kept"
    before = times(kept)
    assert len(before) >= 4
    seen = []
    remove = mend_files.ResultFiles.remove_kept
    monkeypatch.setattr(mend_files.ResultFiles, "remove_kept", lambda files: (seen.append(times(kept)), remove(files)))
    mend(place, "packed/test", "out", "--adapter", "impute")
    assert seen == [before] and not kept.exists()
