"""Bad input is answered by one sentence that names the value and the remedy, before anything is written."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Data
from typer.testing import CliRunner

from graphmend import GraphMendError, GTrans, Identity, Limits, Patch, mend
from graphmend.cli import app
from graphmend.files.graph_files import save_graph
from graphmend.lab.backbones import GCN, save_model
from graphmend.surrogates import Contrastive, Supervised
from graphmend.transforms import DropEdge


def graph(**changes: object) -> Data:
    x = torch.linspace(-1, 1, 20).view(5, 4)
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    return Data(**{"x": x, "edge_index": edges, "y": torch.tensor([0, 1, 0, 1, 0]), **changes})


def model() -> GCN:
    return GCN(4, 8, 2).eval()


def nan_at(row: int, column: int, value: float) -> Tensor:
    x = graph().x.clone()
    x[row, column] = value
    return x


GRAPHS: dict[str, tuple[Callable[[], object], str]] = {
    "not a Data": (lambda: {"x": 1}, "must be a torch_geometric.data.Data (got dict)"),
    "no x": (lambda: Data(edge_index=graph().edge_index), "no feature tensor x"),
    "NaN": (lambda: graph(x=nan_at(2, 1, float("nan"))), "x[2, 1] = nan"),
    "inf": (lambda: graph(x=nan_at(3, 0, float("inf"))), "x[3, 0] = inf"),
    "1-D x": (lambda: graph(x=torch.ones(5)), "two dimensions, nodes x features (got shape (5,))"),
    "integer x": (lambda: graph(x=torch.ones(5, 4, dtype=torch.long)), "x.float()"),
    "sparse x": (lambda: graph(x=torch.eye(5, 4).to_sparse()), "x.to_dense()"),
    "no nodes": (lambda: graph(x=torch.ones(0, 4), y=None), "the graph is empty"),
    "no columns": (lambda: graph(x=torch.ones(5, 0)), "x has no columns"),
    "no edge_index": (lambda: Data(x=graph().x), "no edge_index tensor"),
    "no edges": (lambda: graph(edge_index=torch.empty(2, 0, dtype=torch.long)), "the graph has no edges"),
    "edge too high": (lambda: graph(edge_index=torch.tensor([[0], [5]])), "names node 5, but the nodes are 0 to 4"),
    "edge negative": (lambda: graph(edge_index=torch.tensor([[-1], [3]])), "names node -1"),
    "float edges": (lambda: graph(edge_index=torch.ones(2, 3)), "torch.int64 (got torch.float32)"),
    "edges transposed": (lambda: graph(edge_index=torch.ones(8, 2, dtype=torch.long)), "shape (2, edges) (got (8, 2))"),
    "num_nodes": (lambda: graph(num_nodes=7), "x has 5 rows but num_nodes is 7"),
    "weight length": (lambda: graph(edge_weight=torch.ones(3)), "shape (3,) but there are 8 edges"),
    "weight NaN": (lambda: graph(edge_weight=torch.full((8,), float("nan"))), "edge_weight holds non-finite"),
    "y length": (lambda: graph(y=torch.tensor([1, 2])), "y has shape (2,) but the graph 5 nodes"),
    "width": (lambda: graph(x=torch.ones(5, 7)), "x has shape (5, 7)"),
    "dtype": (lambda: graph(x=graph().x.double()), "data.x = data.x.float() or model.double()"),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_bad_graph(case: str) -> None:
    make, expected = GRAPHS[case]
    data = make()
    for adapter in (Identity(), GTrans(steps=2)):
        with pytest.raises(GraphMendError) as caught:
            adapter(model(), data)
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)


ARGUMENTS: dict[str, tuple[Callable[[], object], str]] = {
    "budget 1.3": (lambda: GTrans(budget=1.3), "budget as a fraction must be in [0, 1] (got 1.3)"),
    "budget -1": (lambda: GTrans(budget=-1), "budget must not be negative (got -1)"),
    "budget text": (lambda: GTrans(budget="lots"), "budget must be a float fraction or an int count (got 'lots')"),
    "steps -1": (lambda: GTrans(steps=-1), "steps must be a whole number of at least 0 (got -1)"),
    "steps 1.5": (lambda: GTrans(steps=1.5), "steps must be a whole number of at least 0 (got 1.5)"),
    "nothing to learn": (lambda: GTrans(feature_steps=0, edge_steps=0), "nothing to learn"),
    "lr 0": (lambda: GTrans(lr_feature=0.0), "lr_feature must be a finite number above 0 (got 0.0)"),
    "lr NaN": (lambda: GTrans(lr_edge=float("nan")), "lr_edge must be a finite number above 0 (got nan)"),
    "surrogate": (
        lambda: GTrans("contrastiv"),
        "unknown surrogate 'contrastiv'; choose one of adgcl, contrastive",
    ),
    "surrogate type": (lambda: GTrans(3), "a function (model, data) -> scalar (got 3)"),
    "edge_update": (lambda: GTrans(edge_update="sgd"), "unknown edge_update 'sgd'; choose one of adam, gradient, sign"),
    "space": (lambda: GTrans(space="all"), "unknown space 'all'; choose one of existing, random_block"),
    "directed": (lambda: GTrans(directed="flip"), "unknown directed 'flip'; choose one of delete, reverse"),
    "mode": (lambda: mend(model(), graph(), mode="fast"), "unknown mode 'fast'; choose one of auto, eager"),
    "time limit": (lambda: GTrans(time_limit=0), "time_limit must be"),
    "DropEdge": (lambda: DropEdge(1.5), "DropEdge's p must be a number in [0, 1] (got 1.5)"),
    "factor": (lambda: float("inf") * Contrastive(), "factor must be a finite number (got inf)"),
    "empty mask": (lambda: Supervised(torch.zeros(5, dtype=torch.bool)), "marks no node"),
    "mask dtype": (lambda: Supervised(torch.ones(5)), "must be boolean, or 0 and 1 as integers (got torch.float32"),
    "layers": (lambda: GCN(4, 8, 2, num_layers=1), "num_layers must be a whole number of at least 2"),
    "channels": (lambda: GCN(0, 8, 2), "in_channels must be a whole number of at least 1 (got 0)"),
    "dropout": (lambda: GCN(4, 8, 2, dropout=1.0), "dropout must be a number in [0, 1) (got 1.0)"),
    "mask length": (lambda: mend(model(), graph(), GTrans(Supervised(torch.ones(4).bool()))), "per node, 5 in all"),
    "no labels": (
        lambda: mend(model(), graph(y=None), GTrans(Supervised(torch.ones(5).bool())), task="classes"),
        "graph has no y",
    ),
    "limit mask": (
        lambda: mend(model(), graph(), limits=Limits(frozen_nodes=torch.ones(3).bool())),
        "per node, 5 in all",
    ),
    "limit range": (lambda: mend(model(), graph(), limits=Limits(minimum=1.0, maximum=0.0)), "swap them"),
    "embedding": (lambda: mend(model(), graph(), GTrans(embedding="nope")), "has no module 'nope'"),
    "not a model": (lambda: mend(len, graph()), "must be a torch.nn.Module (got builtin_function_or_method)"),
    "duplicates": (
        lambda: mend(model(), graph(edge_index=torch.tensor([[0, 1, 0], [1, 0, 1]])), GTrans()),
        "lists 1 edges more than once, first 0 -> 1",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_bad_argument(case: str) -> None:
    make, expected = ARGUMENTS[case]
    with pytest.raises(GraphMendError) as caught:
        make()
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def checkpoint(folder: Path) -> Path:
    save_model(model(), folder / "model.safetensors")
    return folder / "model.safetensors"


def write(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def npz(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def good_graph(folder: Path) -> Path:
    save_graph(folder / "good.npz", graph())
    return folder / "good.npz"


def torch_bytes(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


class Evil:
    """Would run code when unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("hacked"),))


XE = {"x": np.ones((5, 4), np.float32), "edge_index": np.array([[0, 1], [1, 2]])}
FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda d: d / "none.npz", "there is no file"),
    "a folder": (lambda d: d, "no complete graph folder"),
    "unknown ending": (lambda d: write(d, "g.csv", b"1,2"), "unknown ending '.csv'"),
    "empty file": (lambda d: write(d, "g.npz", b""), "not a readable .npz"),
    "truncated": (lambda d: write(d, "g.npz", good_graph(d).read_bytes()[:-200]), "not a readable .npz"),
    "damaged": (lambda d: write(d, "g.npz", good_graph(d).read_bytes().replace(b"x.npy", b"x.npz")), "g.npz"),
    "pickle as npz": (lambda d: write(d, "g.npz", pickle.dumps(Evil())), "not a readable .npz"),
    "objects in npz": (lambda d: write(d, "g.npz", npz(**XE, y=np.array([Evil()], object))), "not a readable .npz"),
    "one array": (lambda d: (np.save(d / "g.npy", np.ones(3)), (d / "g.npy").rename(d / "g.npz"))[1], "g.npz"),
    "no x in npz": (lambda d: write(d, "g.npz", npz(edge_index=XE["edge_index"])), "has no array x; it has edge_index"),
    "text in npz": (lambda d: write(d, "g.npz", npz(**XE, y=np.array(["a"]))), "not numbers"),
    "NaN in npz": (lambda d: write(d, "g.npz", npz(**{**XE, "x": np.full((5, 4), np.nan)})), "nothing but missing"),
    "pickle as pt": (lambda d: write(d, "g.pt", pickle.dumps(Evil())), "save the graph as .npz"),
    "code in pt": (lambda d: write(d, "g.pt", torch_bytes({"x": Evil()})), "save the graph as .npz"),
    "tensor in pt": (lambda d: write(d, "g.pt", torch_bytes(torch.ones(3))), "holds a Tensor"),
    "truncated pt": (lambda d: write(d, "g.pt", torch_bytes(graph())[:-300]), "save the graph as .npz"),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_graph_file_ends_the_command_with_code_2_and_writes_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, expected = FILES[case]
    path, out = make(tmp_path), tmp_path / "out"
    command = ["mend", "--model", str(checkpoint(tmp_path)), "--graph", str(path), "--out", str(out)]
    complains(command, expected)
    assert not out.exists() and not (tmp_path / "hacked").exists()


def complains(command: list[str], expected: str) -> None:
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ") and expected in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1 and "Traceback" not in result.stderr


def corrupt_checkpoint(folder: Path) -> Path:
    path = checkpoint(folder)
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2])
    return path


def foreign_safetensors(folder: Path) -> Path:
    save_file({"w": torch.ones(2)}, folder / "foreign.safetensors")
    return folder / "foreign.safetensors"


def wrong_header(folder: Path) -> Path:
    header = {"format": "graphmend-model-1", "backbone": "gcn", "config": '{"in_channels": 4}'}
    save_file({"w": torch.ones(2)}, folder / "wrong.safetensors", header)
    return folder / "wrong.safetensors"


def gtrans(folder: Path, *more: str) -> list[str]:
    return ["--model", str(checkpoint(folder)), "--adapter", "gtrans", *more]


MODELS: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "no model": (lambda d: [], "give a checkpoint, or both a factory and weights"),
    "missing": (lambda d: ["--model", str(d / "none")], "there is no file"),
    "corrupt": (lambda d: ["--model", str(corrupt_checkpoint(d))], "not a readable safetensors file"),
    "foreign": (lambda d: ["--model", str(foreign_safetensors(d))], "holds no GraphMend checkpoint"),
    "wrong header": (lambda d: ["--model", str(wrong_header(d))], "does not"),
    "both": (lambda d: ["--model", str(checkpoint(d)), "--factory", "a:b"], "not both"),
    "factory form": (lambda d: ["--factory", "json", "--weights", "w"], "package.module:function (got 'json')"),
    "factory import": (lambda d: ["--factory", "no_such:f", "--weights", "w"], "cannot import 'no_such'"),
    "factory name": (lambda d: ["--factory", "json:nope", "--weights", "w"], "has no function 'nope'"),
    "factory result": (lambda d: ["--factory", "os:getcwd", "--weights", "w"], "returned a str, not a model"),
    "weights": (
        lambda d: ["--factory", "their_gcn:build", "--weights", str(foreign_safetensors(d))],
        "do not fit the model of their_gcn:build",
    ),
    "budget": (lambda d: gtrans(d, "--budget", "1.3"), "(got 1.3)"),
    "budget text": (lambda d: gtrans(d, "--budget", "many"), "(got 'many')"),
    "steps": (lambda d: gtrans(d, "--steps", "-1"), "(got -1)"),
    "surrogate": (lambda d: gtrans(d, "--surrogate", "x"), "unknown surrogate 'x'"),
    "adapter": (
        lambda d: ["--model", str(checkpoint(d)), "--adapter", "x"],
        "unknown adapter 'x'; choose one of",
    ),
    "mode": (lambda d: ["--model", str(checkpoint(d)), "--mode", "x"], "unknown mode 'x'; choose one of auto, eager"),
    "view": (lambda d: gtrans(d, "--view", "x"), "unknown view 'x'; choose one of drop_edge"),
    "label mask": (lambda d: gtrans(d, "--label-mask", "m"), "the graph has no mask 'm'"),
    "device": (lambda d: ["--model", str(checkpoint(d)), "--device", "tpu"], "unknown device 'tpu'"),
    "gpu": (lambda d: ["--model", str(checkpoint(d)), "--device", "cuda:99"], "there is no device 'cuda:99'"),
    "overwrite": (
        lambda d: ["--model", str(checkpoint(d)), "--out", str(d)],
        "good.npz, which is read; rename a file or choose another --out",
    ),
    "out is a file": (lambda d: ["--model", str(checkpoint(d)), "--out", str(checkpoint(d))], "is a file; choose"),
}


@pytest.mark.parametrize("case", MODELS)
def test_bad_model_or_option(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_gcn.py").write_text(
        "from graphmend.lab.backbones import GCN\ndef build():\n    return GCN(4, 8, 2)\n"
    )
    make, expected = MODELS[case]
    path = good_graph(tmp_path)
    before = path.read_bytes()
    complains(["mend", "--graph", str(path), "--out", str(tmp_path / "out"), *make(tmp_path)], expected)
    assert not (tmp_path / "out").exists() and path.read_bytes() == before


def test_two_graphs_with_one_name(tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths += ["--graph", str(good_graph(tmp_path / name))]
    complains(
        ["mend", "--model", str(checkpoint(tmp_path)), *paths, "--out", str(tmp_path / "o")],
        "good.npz would be written twice in this call",
    )


def test_train_needs_labels_and_masks(tmp_path: Path) -> None:
    path = good_graph(tmp_path)
    complains(["train", "--graph", str(path), "--out", str(tmp_path / "m")], "has no train_mask, val_mask, test_mask")
    complains(["train", "--out", str(tmp_path / "m")], "give either --dataset or --graph")
    complains(["train", "--dataset", "iris", "--out", str(tmp_path / "m")], "unknown data set 'iris'")
    complains(
        ["train", "--dataset", "wine", "--backbone", "mlp", "--out", str(tmp_path / "m")], "unknown backbone 'mlp'"
    )
    assert not (tmp_path / "m").exists()


def test_the_patch_of_another_graph_is_refused() -> None:
    result = mend(model(), graph(), GTrans(steps=2))
    with pytest.raises(GraphMendError, match="was made for another graph"):
        result.patch.apply(graph(x=graph().x + 1))
    with pytest.raises(GraphMendError, match="did not make this graph"):
        result.patch.revert(graph())


def test_a_patch_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(GraphMendError, match="holds no GraphMend patch"):
        Patch.load(checkpoint(tmp_path))
    with pytest.raises(GraphMendError, match="not a readable safetensors"):
        Patch.load(corrupt_checkpoint(tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    from graphmend.files.files import write_atomically

    def fill(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"no space")

    with pytest.raises(GraphMendError, match=r"cannot write .*No space left on device; free some space"):
        write_atomically(tmp_path / "result.json", fill)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    from graphmend.files.files import write_atomically, write_text

    write_text(tmp_path / "result.json", "old")

    def interrupted(temporary: Path) -> None:
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "result.json", interrupted)
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    assert (tmp_path / "result.json").read_text() == "old"
