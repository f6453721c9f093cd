"""A patch file from somebody else: whole, with a checksum that fits, and nonsense all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.files.files import read_safetensors, write_safetensors
from graphmend.results.patch import Patch
from graphmend.results.patch_file import FORMAT
from support.graphs import rng, undirected

Parts = tuple[dict[str, Tensor], dict[str, Any]]


def graph(has_weights: bool = True) -> Data:
    edge_index = undirected(8, 1)
    data = Data(x=torch.randn(8, 3, generator=rng()), edge_index=edge_index)
    if has_weights:
        data.edge_weight = torch.rand(edge_index.size(1), generator=rng(1))
    data.edge_names = [f"e{i}" for i in range(edge_index.size(1))]
    return data


def parts_of(path: Path, has_weights: bool = True) -> Parts:
    """The parts of a sound file, to be spoilt."""
    data = graph(has_weights)
    weight = torch.rand(data.edge_index.size(1) - 1, generator=rng(2))
    patch, _ = Patch.make(data, data.x + 1, torch.tensor([1, 4]), torch.tensor([[0], [7]]), weight)
    patch.save(path)
    tensors, metadata = read_safetensors(path)
    return tensors, json.loads(metadata["graphmend"])


def write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    write_safetensors(path, tensors, {"graphmend": json.dumps(header)})


def test_what_is_not_spoilt_is_read(tmp_path: Path) -> None:
    tensors, header = parts_of(tmp_path / "p")
    write(tmp_path / "q", tensors, header)
    assert Patch.load(tmp_path / "q").apply(graph()).edge_names[1] == "e2"


def first(value: int) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        out = tensor.clone()
        out.view(-1)[0] = value
        return out

    return change


NAN = torch.tensor(float("nan"))
TENSORS: list[tuple[str, Callable[[Tensor], Tensor], str]] = [
    ("rows", first(-1), "rows names -1 to 7, but there are 8"),
    ("rows", lambda t: t + 1, "rows names 1 to 8, but there are 8"),
    ("rows", first(1), "rows is not ascending"),
    ("rows", lambda t: t.flip(0), "rows is not ascending"),
    ("rows", lambda t: t.int(), "rows is torch.int32"),
    ("rows", lambda t: t.view(2, 4), r"rows is torch.int64 of shape \(2, 4\)"),
    ("rows", lambda t: t[:-1], "bits is torch.int32 of shape .* for 7 rows"),
    ("bits", lambda t: t[:, :0], "bits is"),
    ("bits", lambda t: t[0], "bits is"),
    ("bits", lambda t: t.float(), "bits is torch.float32"),
    ("removed", lambda t: t + 10**9, "removed names 1000000001 to"),
    ("removed", first(-3), "removed names -3"),
    ("removed", lambda t: t[:1].repeat(2), "removed is not ascending"),
    ("removed", lambda t: t[:1], "is torch"),
    ("removed.edge_index", first(8), "an edge joins the nodes"),
    ("removed.edge_index", first(-1), "an edge joins the nodes -1"),
    ("removed.edge_index", lambda t: t.float(), "edge_index is torch.float32"),
    ("removed.edge_index", lambda t: t[:, :1], "edge_index is torch"),
    ("removed.edge_index", lambda t: t[:1], "'edge_index' is torch"),
    ("added.edge_index", first(8), "an edge joins the nodes"),
    ("added.edge_index", lambda t: t.repeat(2, 1), "'edge_weight' is torch"),
    ("added.edge_weight", lambda t: t.double(), "removed and added edges have different attributes"),
    ("added.edge_weight", lambda t: t * NAN, "an edge weight is not finite"),
    ("removed.edge_weight", lambda t: t * float("inf"), "an edge weight is not finite"),
    ("removed.edge_weight", lambda t: t.sum(), r"'edge_weight' is torch.float32 of shape \(\)"),
    ("weight_bits", lambda t: t[:-1], "weight_bits is"),
    ("weight_bits", lambda t: t.long(), "weight_bits is torch.int64"),
    ("weight_bits", lambda t: t.float(), "weight_bits is torch.float32"),
]


@pytest.mark.parametrize(("name", "change", "message"), TENSORS, ids=[f"{n}-{m[:20]}" for n, _, m in TENSORS])
def test_tensors_that_fit_no_graph_are_refused_when_they_are_read(
    name: str, change: Callable[[Tensor], Tensor], message: str, tmp_path: Path
) -> None:
    tensors, header = parts_of(tmp_path / "p")
    tensors[name] = change(tensors[name]).contiguous()
    write(tmp_path / "q", tensors, header)
    with pytest.raises(GraphMendError, match=f"q fits no graph: .*{message}.*; mend again"):
        Patch.load(tmp_path / "q")


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t.long(), lambda t: t * NAN, lambda t: t.view(1, -1)])
def test_new_weights_that_fit_no_graph(change: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    tensors, header = parts_of(tmp_path / "p", has_weights=False)
    tensors["new_weights"] = change(tensors["new_weights"])
    write(tmp_path / "q", tensors, header)
    with pytest.raises(GraphMendError, match="new_weights is"):
        Patch.load(tmp_path / "q")


@pytest.mark.parametrize(
    "name", ["rows", "bits", "removed", "removed.edge_index", "added.edge_index", "added.edge_weight"]
)
def test_a_missing_tensor_is_named_or_missed(name: str, tmp_path: Path) -> None:
    tensors, header = parts_of(tmp_path / "p")
    del tensors[name]
    write(tmp_path / "q", tensors, header)
    with pytest.raises(GraphMendError, match=r"is incomplete|fits no graph"):
        Patch.load(tmp_path / "q")


def test_a_tensor_that_means_nothing(tmp_path: Path) -> None:
    tensors, header = parts_of(tmp_path / "p")
    write(tmp_path / "q", {**tensors, "x\x1b[31m": torch.zeros(1)}, header)
    with pytest.raises(GraphMendError, match="means nothing") as caught:
        Patch.load(tmp_path / "q")
    assert "\x1b" not in str(caught.value)


HEADERS: list[tuple[str, Any]] = [
    ("nodes", -8),
    ("nodes", 0),
    ("nodes", 8.0),
    ("nodes", True),
    ("nodes", "8"),
    ("nodes", None),
    ("nodes", 10**400),
    ("nodes", 3),
    ("edges", -1),
    ("edges", 1),
    ("edges", 10**18),
    ("edges", [1]),
    ("before", 7),
    ("before", "x" * 64),
    ("before", "\x1b[31m" + "a" * 59),
    ("before", None),
    ("sequences", []),
    ("sequences", None),
    ("sequences", {"edge_names": ["e1"]}),
    ("sequences", {"edge_names": 3}),
    ("sequences", {"edge_names": [["e1"], ["e2"], ["e3"]]}),
]


@pytest.mark.parametrize(("name", "value"), HEADERS, ids=[f"{n}={str(v)[:10]!r}" for n, v in HEADERS])
def test_headers_that_fit_no_graph_are_refused_when_they_are_read(name: str, value: Any, tmp_path: Path) -> None:
    tensors, header = parts_of(tmp_path / "p")
    write(tmp_path / "q", tensors, {**header, name: value})
    with pytest.raises(GraphMendError, match="fits no graph") as caught:
        Patch.load(tmp_path / "q")
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "{", "\x00", f'{{"format": "{FORMAT}", "before": {{}}}}']
)
def test_a_header_that_is_no_json_of_ours(text: str, tmp_path: Path) -> None:
    save_file({"x": torch.ones(3)}, tmp_path / "q", {"graphmend": text})
    with pytest.raises(GraphMendError, match=r"incomplete|holds no GraphMend patch") as caught:
        Patch.load(tmp_path / "q")
    assert len(str(caught.value)) < 400


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["before", "nodes", "edges", "sequences"]), JSON | st.dictionaries(st.text(), JSON))
def test_whatever_a_header_says_there_is_one_kind_of_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("headers")
    tensors, header = parts_of(folder / "p")
    write(folder / "q", tensors, {**header, name: value})
    try:
        patch = Patch.load(folder / "q")
        patch.apply(graph())
    except GraphMendError:
        return
    assert name == "edges" and patch.edges == graph().edge_index.size(1)


def test_features_that_are_not_finite_are_refused_when_they_are_made(tmp_path: Path) -> None:
    """The file holds differences of bits, so that only the graph itself shows what comes out."""
    tensors, header = parts_of(tmp_path / "p")
    data = graph()
    tensors["bits"] = data.x.view(torch.int32) ^ torch.full_like(data.x, float("nan")).view(torch.int32)
    write(tmp_path / "q", tensors, header)
    with pytest.raises(GraphMendError, match="this patch is damaged: with it x is not finite"):
        Patch.load(tmp_path / "q").apply(data)
    tensors, header = parts_of(tmp_path / "p")
    tensors["weight_bits"] = torch.full_like(tensors["weight_bits"], -1)
    bits = torch.cat([data.edge_weight[[0, 2, 3]], data.edge_weight[5:]]).view(torch.int32)
    tensors["weight_bits"] = bits ^ torch.full_like(bits, 0x7FC00000)
    write(tmp_path / "q", tensors, header)
    with pytest.raises(GraphMendError, match="this patch is damaged: with it edge_weight is not finite"):
        Patch.load(tmp_path / "q").apply(data)


@pytest.mark.parametrize(("key", "value"), [("nodes", 9), ("edges", 10**12)])
def test_a_patch_that_claims_other_sizes_is_for_another_graph(key: str, value: int, tmp_path: Path) -> None:
    tensors, header = parts_of(tmp_path / "p")
    if key == "edges":
        del tensors["weight_bits"]
    write(tmp_path / "q", tensors, {**header, key: value})
    with pytest.raises(GraphMendError, match="made for another graph"):
        Patch.load(tmp_path / "q").apply(graph())


def test_a_patch_that_lies_about_the_removed_edges_is_for_another_graph(tmp_path: Path) -> None:
    tensors, header = parts_of(tmp_path / "p")
    tensors["removed.edge_index"] = tensors["removed.edge_index"].flip(0)
    write(tmp_path / "q", tensors, header)
    with pytest.raises(GraphMendError, match="made for another graph"):
        Patch.load(tmp_path / "q").apply(graph())
