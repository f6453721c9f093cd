"""Nothing is lost: everything is checked before any work, and finished work is written before it is scored."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from graphmend import load_graph, save_graph
from graphmend.cli.common import reported
from graphmend.cli.console import PlainConsole
from graphmend.cli.mend_scores import Scored
from graphmend.cli.mend_tables import print_reports
from graphmend.files.files import is_whole
from graphmend.lab.backbones import load_model
from graphmend.outputs import CLASSES
from graphmend.results.scores import scores
from support.commands import complains, run
from support.small_files import small_graph, small_model

pytestmark = pytest.mark.usefixtures("one_thread")
ESCAPE = "\x1b[31m"


def mend(folder: Path, *graphs: Path, adapter: str = "identity") -> list[str | Path]:
    parts: list[str | Path] = ["mend", "--adapter", adapter, "--model", small_model(folder / "model.safetensors")]
    for path in graphs:
        parts += ["--graph", path]
    return [*parts, "--out", folder / "out"]


# labels and masks


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_a_test_mask_means_the_same_in_every_type(kind: torch.dtype, tmp_path: Path) -> None:
    mask = torch.tensor([True, False, True, True, False])
    path = small_graph(tmp_path / "g.npz", test_mask=mask.to(kind))
    assert run(*mend(tmp_path, path), "-q").exit_code == 0
    data, model = load_graph(path), load_model(tmp_path / "model.safetensors")
    expected = scores(model(data.x, data.edge_index), data.y, mask)
    assert json.loads((tmp_path / "out" / "g.json").read_text())["test"]["before"] == expected


BAD_LABELS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown class": (
        {"y": torch.tensor([0, 1, 7, 1, 0])},
        "bad.npz: test_mask: labels of scored nodes must lie in 0..1",
    ),
    "no label": ({"y": torch.tensor([0, 1, -1, 1, 0])}, "holds the label -1 in test_mask"),
    "fraction": ({"y": torch.tensor([0.0, 1.0, 0.5, 1.0, 0.0])}, "y holds 0.5, which is no class"),
    "indices": ({"test_mask": torch.tensor([0, 2])}, "bad.npz: test_mask must have one entry per node"),
    "numbers": ({"test_mask": torch.tensor([0, 2, 3, 0, 0])}, "bad.npz: test_mask must hold 0 and 1 only"),
    "nobody": ({"test_mask": torch.zeros(5, dtype=torch.bool)}, "bad.npz: test_mask marks no node"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels_are_found_before_any_graph_is_mended(case: str, tmp_path: Path) -> None:
    changes, expected = BAD_LABELS[case]
    good, bad = small_graph(tmp_path / "good.npz"), small_graph(tmp_path / "bad.npz", tested=True, **changes)
    complains(expected, *mend(tmp_path, good, bad, adapter="gtrans"))
    assert not (tmp_path / "out").exists()


def test_a_label_mask_of_integers_is_a_mask_and_its_labels_are_checked(tmp_path: Path) -> None:
    losses = []
    for kind in (torch.bool, torch.int64):
        path = small_graph(tmp_path / "g.npz", known=torch.tensor([1, 1, 0, 0, 0]).to(kind))
        result = run(*mend(tmp_path, path, adapter="gtrans"), "--label-mask", "known", "--steps", "2", "--json")
        losses.append(json.loads(result.stdout)[0]["loss_first"])
    assert losses[0] == losses[1]
    wrong = small_graph(tmp_path / "w.npz", known=torch.tensor([1, 1, 0, 0, 0]), y=torch.tensor([0, 9, 0, 0, 0]))
    complains(
        "known: labels of scored nodes must lie in 0..1",
        *mend(tmp_path, wrong, adapter="gtrans"),
        "--label-mask",
        "known",
    )


def test_a_score_that_fails_all_the_same_costs_nothing_but_itself(tmp_path: Path) -> None:
    data = load_graph(small_graph(tmp_path / "g.npz", tested=True))
    failed = Scored(CLASSES, data.test_mask).scores_if_possible(torch.full((5, 2), torch.nan), data)
    assert failed["after"] is None and "3 of the scored logits" not in failed and "NaN" in failed["reason"]
    assert run(*mend(tmp_path, tmp_path / "g.npz"), "-q").exit_code == 0
    report = json.loads((tmp_path / "out" / "g.json").read_text())
    report["test"] = {"before": report["test"]["before"], **failed}
    console = PlainConsole()
    with console.capture() as captured:
        print_reports(console, [report], "no card", "out", has_verdicts=False)
    assert "absent" in captured.get() and "there is no score of the mended graph" in captured.get()


def test_train_reads_masks_of_integers_and_checks_them_before_training(tmp_path: Path) -> None:
    masks = {name: torch.zeros(5, dtype=torch.uint8) for name in ("train_mask", "val_mask", "test_mask")}
    for node, mask in zip((0, 1), (masks["train_mask"], masks["val_mask"]), strict=False):
        mask[node] = 1
    masks["test_mask"][2:] = 1
    path = small_graph(tmp_path / "g.npz", **masks)
    command = ["train", "--graph", path, "--epochs", "2", "--out", tmp_path / "m.safetensors"]
    result = run(*command, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["test"]["accuracy"] in (0.0, 1 / 3, 2 / 3, 1.0)
    (tmp_path / "m.safetensors").unlink()
    small_graph(tmp_path / "g.npz", **masks, y=torch.tensor([0, 1, 5, 1, 0]))
    complains("test_mask has the label 5, but training and validation know the classes 0 to 1", *command)
    small_graph(tmp_path / "g.npz", **{**masks, "val_mask": torch.tensor([3, 4])})
    complains("val_mask must have one entry per node", *command)
    assert not (tmp_path / "m.safetensors").exists()


# places


def test_a_checkpoint_that_cannot_be_written_is_found_before_training(tmp_path: Path) -> None:
    command = ["train", "--dataset", "wine", "--epochs", "1000000", "--out"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    complains("is a folder; choose", *command, tmp_path / "folder")
    complains("is a file; choose", *command, tmp_path / "file" / "m.safetensors")
    complains("loop", *command, tmp_path / "loop")
    (tmp_path / "x.card.safetensors").mkdir()
    complains("x.card.safetensors, which is a folder", *command, tmp_path / "x.safetensors")


def test_graphs_whose_results_would_have_the_same_name_are_refused(tmp_path: Path) -> None:
    first, second = small_graph(tmp_path / "a.npz"), small_graph(tmp_path / "a.predictions.npz")
    complains("a.predictions.npz would be written twice in this call", *mend(tmp_path, first, second))
    complains("a.npz would be written twice in this call", *mend(tmp_path, first, first))
    assert not (tmp_path / "out").exists()


def test_no_result_takes_the_place_of_an_input(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    graph, labels = small_graph(tmp_path / "a.npz"), tmp_path / "out" / "a.json"
    labels.write_text("0,1\n")
    gate = mend(tmp_path, graph, adapter="gate")
    complains("a.json, which is read", *gate, "--labels", labels)
    complains("a.npz, which is read", *gate, "--source", small_graph(tmp_path / "out" / "a.npz"))
    weights = small_model(tmp_path / "out" / "a.patch.safetensors")
    complains("a.patch.safetensors, which is read", *mend(tmp_path, graph)[:3], "--model", weights, *gate[5:])
    (tmp_path / "out" / "b.npz").symlink_to(graph)
    complains("b.npz would overwrite", *mend(tmp_path, graph, small_graph(tmp_path / "b.npz")))
    assert labels.read_text() == "0,1\n"


@pytest.mark.parametrize("part", ["g.npz", "g.predictions.npz", "g.patch.safetensors"])
@pytest.mark.parametrize("size", [0, 100])
def test_a_result_that_is_not_whole_is_made_again(part: str, size: int, tmp_path: Path) -> None:
    command = mend(tmp_path, small_graph(tmp_path / "g.npz"), adapter="gtrans")
    assert run(*command, "-q").exit_code == 0
    whole = (tmp_path / "out" / part).read_bytes()
    (tmp_path / "out" / part).write_bytes(whole[:size])
    assert run(*command, "-q").exit_code == 0
    assert len((tmp_path / "out" / part).read_bytes()) == len(whole) and is_whole(tmp_path / "out" / part)


@pytest.mark.parametrize("change", ["report", "nested report", "another graph"])
def test_a_result_that_was_changed_is_made_again(change: str, tmp_path: Path) -> None:
    """Although every file by itself is whole."""
    command, out = mend(tmp_path, small_graph(tmp_path / "g.npz"), adapter="gtrans"), tmp_path / "out"
    assert run(*command, "-q").exit_code == 0
    whole, report = (out / "g.npz").read_bytes(), json.loads((out / "g.json").read_text())
    if change == "report":
        (out / "g.json").write_text(json.dumps({**report, "seconds": -1.0}))
    elif change == "nested report":
        (out / "g.json").write_text("[" * 100_000)
    else:
        shutil.copy(tmp_path / "g.npz", out / "g.npz")
    assert run(*command, "-q").exit_code == 0
    assert (out / "g.npz").read_bytes() == whole and json.loads((out / "g.json").read_text())["seconds"] >= 0


PLACES = {"missing": "there is no file", "folder": "folder", "empty.npz": "empty.npz", "loop.npz": "loop.npz", "": "."}


@pytest.mark.parametrize("name", PLACES)
def test_a_graph_that_is_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.npz").touch()
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    path = tmp_path / name if name else Path()
    patch = small_model(tmp_path / "p.safetensors")
    for command in (mend(tmp_path, path), ["info", path], ["train", "--graph", path, "--out", tmp_path / "m"]):
        complains(PLACES[name], *command)
    complains("", "apply", patch, path)


def test_without_a_graph_there_is_nothing_to_mend() -> None:
    result = run("mend")
    assert result.exit_code == 2 and "Missing option '--graph'" in result.stderr


@pytest.mark.parametrize("name", ["none.csv", "folder"])
def test_labels_that_are_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    gate = mend(tmp_path, small_graph(tmp_path / "g.npz"), adapter="gate")
    complains(f"{tmp_path / name}", *gate, "--labels", tmp_path / name)


# numbers, names and surprises


@pytest.mark.parametrize(
    "option",
    [
        "--seed 18446744073709551616",
        "--seed -1",
        "--lr nan",
        "--lr inf",
        "--lr -1",
        "--weight-decay nan",
        "--weight-decay -1",
        "--dropout 2",
        "--dropout nan",
        "--epochs 0",
        "--hidden-channels 0",
        "--num-layers -3",
    ],
)
def test_numbers_that_make_no_sense_are_refused(option: str, tmp_path: Path) -> None:
    result = run("train", "--dataset", "wine", "--out", tmp_path / "m.safetensors", *option.split())
    value = option.split()[1]
    assert result.exit_code == 2 and value in result.stderr and "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "option",
    [
        "--seed 18446744073709551616",
        "--lr-feature nan",
        "--lr-edge inf",
        "--budget nan",
        "--surrogate-weight nan",
        "--minimum nan",
        "--maximum inf",
        "--time-limit nan",
        "--questions -1",
        "--steps -1",
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_mend(option: str, tmp_path: Path) -> None:
    result = run(*mend(tmp_path, small_graph(tmp_path / "g.npz"), adapter="gtrans"), *option.split())
    assert result.exit_code == 2 and option.split()[1] in result.stderr and not (tmp_path / "out").exists()


def test_the_highest_seed_works(tmp_path: Path) -> None:
    seed = ("--seed", str(2**63 - 1))
    assert run(*mend(tmp_path, small_graph(tmp_path / "g.npz"), adapter="gtrans"), *seed, "-q").exit_code == 0
    assert run("train", "--dataset", "wine", "--epochs", "1", "--out", tmp_path / "t.safetensors", *seed).exit_code == 0


def test_names_are_shown_as_they_are_and_steer_no_terminal(tmp_path: Path) -> None:
    folder = tmp_path / f"[bold]{ESCAPE}"
    folder.mkdir()
    graph = small_graph(folder / f"[red]a{ESCAPE}\u202e:smile:.npz")
    result = run(*mend(folder, graph), columns=250)
    assert result.exit_code == 0, result.output
    assert "[red]a\\x1b[31m\\u202e:smile:.npz" in result.stdout and "[bold]\\x1b[31m" in result.stdout
    missing = run("info", folder / "none\n.npz")
    assert missing.stderr.count("\n") == 1 and "none\\n.npz" in missing.stderr
    for said in (result.output, missing.output):
        assert "\x1b" not in said and "\u202e" not in said


def test_tables_of_mend_keep_words_whole_in_80_columns(tmp_path: Path) -> None:
    graphs = [small_graph(tmp_path / f"monday-{day}.npz", tested=True) for day in range(2)]
    for adapter in ("gtrans", "gate"):
        said = run(*mend(tmp_path, *graphs, adapter=adapter)).stdout
        table = said.split("\n\n")[0]
        assert max(map(len, table.splitlines())) <= 80 and "…" not in table
        assert {"monday-0.npz", "graph", "accuracy", "→"} <= set(table.split())


def failing(error: BaseException) -> Any:
    surprised = typer.Typer()

    @surprised.command()
    @reported
    def command() -> None:
        raise error

    return CliRunner().invoke(surprised, [])


def test_what_nobody_expected_is_one_sentence_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHMEND_DEBUG", raising=False)
    result = failing(RuntimeError("their layer\n  failed"))
    assert result.exit_code == 1
    assert (
        result.stderr == "error: RuntimeError: their layer failed; set GRAPHMEND_DEBUG=1 to see where it comes from\n"
    )
    monkeypatch.setenv("GRAPHMEND_DEBUG", "1")
    assert isinstance(failing(RuntimeError("why")).exception, RuntimeError)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 2, "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory."), 2, "out of GPU memory"),
        (PermissionError(13, "Permission denied", "secret"), 2, "secret: Permission denied"),
    ],
)
def test_known_surprises(error: BaseException, code: int, said: str) -> None:
    result = failing(error)
    assert result.exit_code == code and said in result.stderr and result.stderr.count("\n") == 1


def test_a_model_of_ones_own_that_fails_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import torch\nclass Broken(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    code += "        self.w = torch.nn.Linear(4, 2)\n"
    code += "    def forward(self, x, edge_index):\n        raise KeyError('mine')\n"
    (tmp_path / "broken_models.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_models", raising=False)
    from safetensors.torch import save_file

    save_file({"w.weight": torch.ones(2, 4), "w.bias": torch.ones(2)}, "w.safetensors")
    own = ("--factory", "broken_models:Broken", "--weights", "w.safetensors")
    result = run("mend", *own, "--graph", small_graph(tmp_path / "g.npz"), "--out", "out")
    assert result.exit_code in (1, 2) and "mine" in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


# limits


def test_limits_by_name(tmp_path: Path) -> None:
    nodes, columns, edges = np.array([1, 0, 0, 0, 0]), np.array([0, 0, 1, 0]), np.zeros(8, dtype=np.uint8)
    edges[0] = 1
    data = load_graph(small_graph(tmp_path / "g.npz"))
    for name, mask in (("known_nodes", nodes), ("fixed", columns), ("sure", edges)):
        data[name] = torch.from_numpy(mask)
    save_graph(tmp_path / "g.npz", data)
    named = ("--frozen-nodes", "known_nodes", "--frozen-columns", "fixed", "--frozen-edges", "sure", "--non-negative")
    strong = ("--lr-feature", "1", "--budget", "1.0", "--feature-scale", "absolute", "-q")
    assert run(*mend(tmp_path, tmp_path / "g.npz", adapter="gtrans"), *named, *strong).exit_code == 0
    mended = load_graph(tmp_path / "out" / "g.npz")
    assert torch.equal(mended.x[0], data.x[0]) and torch.equal(mended.x[:, 2], data.x[:, 2])
    free = mended.x[1:][:, [0, 1, 3]]
    assert bool((free >= 0).all()) and bool((free != data.x[1:][:, [0, 1, 3]]).any())
    assert [0, 1] in mended.edge_index.t().tolist() and [1, 0] in mended.edge_index.t().tolist()
    command = mend(tmp_path, tmp_path / "g.npz", adapter="gtrans")
    complains("--frozen-nodes: ", *command, "--frozen-nodes", "nothing")
    complains("has no array 'nothing'; it has", *command, "--frozen-nodes", "nothing")
    complains("g.npz: limits.frozen_edges must", *command, "--frozen-edges", "fixed")
