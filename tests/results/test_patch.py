"""The reversible change: bit for bit in both directions, on its own graph only, and on disk."""

from __future__ import annotations

import copy
import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Data

from graphmend import GTrans
from graphmend.adapters.identity import Identity
from graphmend.errors import GraphMendError
from graphmend.files.files import read_safetensors, write_safetensors
from graphmend.lab.backbones import GCN
from graphmend.results.fingerprint import fingerprint_of
from graphmend.results.patch import Patch
from graphmend.results.patch_file import FORMAT
from support.graphs import directed, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16}
AWKWARD = [0.0, -0.0, 1.0, -1.0, 1e-45, 5e-324, 1e-310, 1e38, -3e38, 1e-30, 0.1, 1 / 3, 16777217.0]


def bits(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.dtype, tuple(value.shape), value.contiguous().view(BITS.get(value.dtype, value.dtype)).tolist()


def contents(data: Data) -> dict[str, Any]:
    return {name: bits(value) for name, value in data.to_dict().items()}


@dataclasses.dataclass
class Case:
    data: Data
    x: Tensor
    removed: Tensor
    added: Tensor
    weight: Tensor | None  #: of the edges of the mended graph, if it changes

    @property
    def changes(self) -> tuple[Data, Tensor, Tensor, Tensor, Tensor | None]:
        return self.data, self.x, self.removed, self.added, self.weight


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n, width = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=8))
    edge_index = torch.tensor(edges).t().contiguous()
    count = edge_index.size(1)
    values = st.one_of(st.sampled_from(AWKWARD), st.floats(-1e6, 1e6, allow_subnormal=False))
    dtype = draw(st.sampled_from(DTYPES))
    rows = st.lists(values, min_size=n * width, max_size=n * width)
    x = torch.tensor(draw(rows), dtype=torch.float64).view(n, width).to(dtype)
    data = Data(x=x, edge_index=edge_index, y=torch.arange(n), name="a graph", mask=torch.arange(n) % 2 == 0)
    if draw(st.booleans()):
        data.edge_weight = torch.tensor(draw(st.lists(values, min_size=count, max_size=count)), dtype=torch.float32)
    may_add = True
    if draw(st.booleans()):
        wide = draw(st.booleans())
        may_add = not wide
        data.edge_attr = torch.arange(count * (2 if wide else 1)).view(count, -1)
    if draw(st.booleans()):
        data.edge_time = torch.arange(count) * 7
    changed = x.clone()
    for i in draw(st.sets(st.integers(0, n - 1))):
        changed[i, draw(st.integers(0, width - 1))] = draw(values)
    removed = torch.tensor(sorted(draw(st.sets(st.integers(0, count - 1)))), dtype=torch.long)
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    new = draw(st.lists(ends, max_size=4)) if may_add else []
    added = torch.tensor(new, dtype=torch.long).view(-1, 2).t()
    weight = None
    if draw(st.booleans()):
        total = count - removed.numel() + added.size(1)
        kind = torch.float32 if "edge_weight" in data else dtype
        weight = torch.tensor(draw(st.lists(values, min_size=total, max_size=total)), dtype=torch.float64).to(kind)
        same = torch.tensor(draw(st.lists(st.booleans(), min_size=total, max_size=total)), dtype=torch.bool)
        if "edge_weight" in data:  # some of them stay as they are
            keep = [e for e in range(count) if e not in removed.tolist()]
            before = torch.cat([data.edge_weight[keep], torch.ones(added.size(1))])
            weight = torch.where(same, before, weight)
    return Case(data, changed, removed, added, weight)


@settings(max_examples=300)
@given(cases())
def test_apply_gives_the_mended_graph_and_revert_every_bit_of_the_original(case: Case) -> None:
    data, before = case.data, contents(case.data)
    patch, mended = Patch.make(*case.changes)
    assert contents(data) == before
    assert bits(mended.x) == bits(case.x)
    keep = [e for e in range(data.edge_index.size(1)) if e not in case.removed.tolist()]
    assert mended.edge_index.tolist() == torch.cat([data.edge_index[:, keep], case.added], dim=1).tolist()
    for name in ("edge_weight", "edge_attr", "edge_time"):
        if name in data:
            ones = torch.ones(case.added.size(1), *data[name].shape[1:], dtype=data[name].dtype)
            expected = torch.cat([data[name][keep], ones])
            if name == "edge_weight" and case.weight is not None:
                assert patch.num_weights == changed_numbers(expected[: len(keep)], case.weight[: len(keep)])
                expected = case.weight
            assert bits(mended[name]) == bits(expected)
    if "edge_weight" not in data and case.weight is not None:
        assert bits(mended.edge_weight) == bits(case.weight)
    assert ("edge_weight" in mended) == ("edge_weight" in data or case.weight is not None)
    assert ("edge weights changed" in patch.summary()) == (patch.num_weights > 0)
    assert all(mended[name] is data[name] for name in ("y", "mask", "name"))
    applied = patch.apply(data)
    assert contents(applied) == contents(mended) and contents(data) == before
    reverted = patch.revert(applied)
    assert contents(reverted) == before
    assert contents(applied) == contents(mended)
    assert patch.num_removed == case.removed.numel() and patch.num_added == case.added.size(1)
    different = [a != b for a, b in zip(bits(data.x)[2], bits(case.x)[2], strict=True)]
    assert patch.num_rows == sum(different)


def changed_numbers(before: Tensor, after: Tensor) -> int:
    return sum(a != b for a, b in zip(bits(before)[2], bits(after)[2], strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_of_either_sign_are_told_apart(dtype: torch.dtype) -> None:
    data = Data(x=torch.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=dtype), edge_index=torch.tensor([[0], [1]]))
    patch, mended = Patch.make(data, data.x * torch.tensor([[-1.0, 1.0]], dtype=dtype), *nothing())
    assert patch.rows.tolist() == [0, 1] and bits(mended.x) != bits(data.x)
    assert bits(patch.revert(mended).x) == bits(data.x)


def nothing() -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.long), torch.empty(2, 0, dtype=torch.long)


def graph(**more: Any) -> Data:
    edge_index = undirected(8, 1)
    x = torch.randn(8, 3, generator=rng())
    return Data(x=x, edge_index=edge_index, edge_weight=torch.rand(edge_index.size(1), generator=rng(1)), **more)


def patched() -> tuple[Data, Patch, Data]:
    data = graph()
    return data, *Patch.make(data, data.x + 0.1, torch.tensor([1, 4]), torch.tensor([[0], [7]]))


def nudge_x(data: Data) -> None:
    data.x = data.x.clone()
    data.x[3, 1] = torch.nextafter(data.x[3, 1], torch.tensor(9.0))


def nudge_zero(data: Data) -> None:
    data.edge_weight = data.edge_weight.clone()
    data.edge_weight[0] = torch.nextafter(data.edge_weight[0], torch.tensor(9.0))


def swap_edges(data: Data) -> None:
    order = torch.arange(data.edge_index.size(1))
    order[:2] = order[:2].flip(0)
    data.edge_index, data.edge_weight = data.edge_index[:, order], data.edge_weight[order]


def drop_weights(data: Data) -> None:
    data.edge_weight = None


def widen(data: Data) -> None:
    data.x = data.x.double()


def reshape(data: Data) -> None:
    data.x = data.x.view(4, -1)


def lose_a_row(data: Data) -> None:
    data.x = data.x[:-1]


def lose_edges(data: Data) -> None:
    data.edge_index, data.edge_weight = data.edge_index[:, :2], data.edge_weight[:2]


def lose_all_edges(data: Data) -> None:
    data.edge_index, data.edge_weight = data.edge_index[:, :0], data.edge_weight[:0]


def widen_weights(data: Data) -> None:
    data.edge_weight = data.edge_weight.unsqueeze(-1).expand(-1, 2)


def double_weights(data: Data) -> None:
    data.edge_weight = data.edge_weight.double()


def short_weights(data: Data) -> None:
    data.edge_weight = data.edge_weight[:-1]


def long_weights(data: Data) -> None:
    data.edge_weight = torch.cat([data.edge_weight, data.edge_weight])


OTHERS = [nudge_x, nudge_zero, swap_edges, drop_weights, widen, reshape]
OTHERS += [lose_a_row, lose_edges, lose_all_edges, widen_weights, double_weights, short_weights, long_weights]


@pytest.mark.parametrize("change", OTHERS)
def test_another_graph_is_refused(change: Any) -> None:
    data, patch, mended = patched()
    other, other_mended = copy.copy(data), copy.copy(mended)
    change(other)
    change(other_mended)
    with pytest.raises(GraphMendError, match=r"made for another graph; apply it to"):
        patch.apply(other)
    with pytest.raises(GraphMendError, match=r"did not make this graph; revert it on"):
        patch.revert(other_mended)


def reweighted(has_weights: bool) -> tuple[Data, Patch, Data]:
    """The same with other weights, of a graph that had some or none."""
    data = graph()
    if not has_weights:
        del data.edge_weight
    removed, added = torch.tensor([1, 4]), torch.tensor([[0], [7]])
    weight = torch.rand(data.edge_index.size(1) - 1, generator=rng(2))
    return data, *Patch.make(data, data.x + 0.1, removed, added, weight)


@pytest.mark.parametrize("has_weights", [True, False], ids=["had weights", "had none"])
@pytest.mark.parametrize("change", OTHERS)
def test_another_graph_is_refused_where_weights_change(change: Any, has_weights: bool) -> None:
    data, patch, mended = reweighted(has_weights)
    other, other_mended = copy.copy(data), copy.copy(mended)
    change(other_mended)
    with pytest.raises(GraphMendError, match=r"did not make this graph; revert it on"):
        patch.revert(other_mended)
    if has_weights:
        change(other)
        with pytest.raises(GraphMendError, match=r"made for another graph; apply it to"):
            patch.apply(other)


@pytest.mark.parametrize("has_weights", [True, False], ids=["had weights", "had none"])
def test_weights_there_and_back(has_weights: bool) -> None:
    data, patch, mended = reweighted(has_weights)
    assert ("edge_weight" in data) is has_weights and "edge_weight" in mended
    reverted = patch.revert(mended)
    assert contents(reverted) == contents(data) and ("edge_weight" in reverted) is has_weights
    assert patch.num_weights == mended.edge_index.size(1) - has_weights  # one of them is that of the added edge
    assert f"1 added, {patch.num_weights} edge weights changed (graph" in patch.summary()
    patch.apply(data).edge_weight.zero_()
    assert contents(patch.apply(data)) == contents(mended), "the patch keeps its own numbers"
    with pytest.raises(GraphMendError, match="another graph"):
        patch.apply(mended)
    with pytest.raises(GraphMendError, match="did not make"):
        patch.revert(data)


def test_weights_that_stay_leave_no_trace() -> None:
    data = graph()
    patch, mended = Patch.make(data, data.x + 1, *nothing(), data.edge_weight.double())
    assert patch.weight_bits is None and patch.num_weights == 0 and contents(patch.revert(mended)) == contents(data)


def test_weights_need_one_number_per_edge_of_the_mended_graph() -> None:
    data = graph()
    count = data.edge_index.size(1)
    with pytest.raises(
        GraphMendError, match=rf"edge_weight has shape \({count},\), but the mended graph {count - 1} edges"
    ):
        Patch.make(data, data.x, torch.tensor([0]), nothing()[1], torch.ones(count))


def test_twice_is_refused() -> None:
    data, patch, mended = patched()
    with pytest.raises(GraphMendError, match="another graph"):
        patch.apply(mended)
    with pytest.raises(GraphMendError, match="did not make"):
        patch.revert(data)


def test_a_new_edge_attribute_makes_another_graph() -> None:
    data, patch, _ = patched()
    data.edge_attr = torch.ones(data.edge_index.size(1), 2)
    with pytest.raises(GraphMendError, match="another graph"):
        patch.apply(data)


def test_labels_and_names_do_not_matter() -> None:
    data, patch, mended = patched()
    data.y, data.name = torch.arange(8), "labelled since"
    assert bits(patch.apply(data).x) == bits(mended.x)


def test_sizes_that_coincide_after_mending() -> None:
    """PyG tells edge-level attributes by their length, which changes: here to 8 nodes and to 8 unrelated numbers."""
    data = graph(colours=torch.arange(7.0), edge_ages=torch.arange(100))
    count = data.edge_index.size(1)
    data.edge_ages = data.ages = torch.arange(count)  # "ages" does not even have "edge" in its name
    for left in (7, 8):
        patch, mended = Patch.make(data, data.x, torch.arange(count - left), nothing()[1])
        assert mended.edge_index.size(1) == mended.ages.numel() == left and mended.colours.numel() == 7
        assert contents(patch.revert(mended)) == contents(data)


def test_pairs_of_nodes_are_not_edges() -> None:
    """For link prediction ``edge_label_index`` often is as long as ``edge_index``."""
    data = graph()
    data.edge_label_index = data.edge_index.clone()
    patch, mended = Patch.make(data, data.x + 1, torch.tensor([0, 3]), nothing()[1])
    assert torch.equal(mended.edge_label_index, data.edge_label_index)
    assert contents(patch.revert(mended)) == contents(data)


def test_all_edges_can_go_and_come_back() -> None:
    data = graph()
    patch, mended = Patch.make(data, data.x, torch.arange(data.edge_index.size(1)), nothing()[1])
    assert mended.edge_index.shape == (2, 0)
    assert contents(patch.revert(patch.apply(data))) == contents(data)


def test_added_edges_need_attributes_of_one_number() -> None:
    data = graph()
    data.edge_attr = torch.ones(data.edge_index.size(1), 3)
    with pytest.raises(GraphMendError, match=r"edge_attr \(3 values each\); use space='existing'"):
        Patch.make(data, data.x, nothing()[0], torch.tensor([[0], [7]]))


def test_features_that_require_a_gradient() -> None:
    data = graph()
    data.x.requires_grad_()
    patch, mended = Patch.make(data, data.x.detach() + 1, *nothing())
    assert not mended.x.requires_grad and bits(patch.revert(mended).x) == bits(data.x.detach())


def test_summary_and_fingerprint() -> None:
    data, patch, mended = patched()
    assert patch.summary() == f"8 feature rows changed, 2 edge entries removed, 1 added (graph {patch.before[:12]})"
    assert patch.before == fingerprint_of(data) == fingerprint_of(copy.deepcopy(data)) != fingerprint_of(mended)


@pytest.mark.parametrize("budget", [0, 3])
def test_the_patch_of_an_adaptation(budget: int, tmp_path: Path) -> None:
    data = Data(x=torch.randn(9, 4, generator=rng()), edge_index=undirected(9))
    torch.manual_seed(0)
    model = GCN(4, 8, 3)
    result = GTrans(steps=10, budget=budget, lr_edge=0.9, space="random_block", block_size=5)(model, data)
    result.patch.save(tmp_path / "a.patch")
    patch = Patch.load(tmp_path / "a.patch")
    assert contents(patch.apply(data)) == contents(result.data)
    assert contents(patch.revert(result.data)) == contents(data)
    same = Identity()(model, data)
    same.patch.save(tmp_path / "b.patch")
    assert contents(Patch.load(tmp_path / "b.patch").apply(data)) == contents(data)


# ---------------------------------------------------------------- on disk


@settings(max_examples=60)
@given(cases())
def test_a_patch_survives_the_disk(tmp_path_factory: pytest.TempPathFactory, case: Case) -> None:
    path = tmp_path_factory.mktemp("patch") / "new folder" / "p.safetensors"
    patch, mended = Patch.make(*case.changes)
    patch.save(path)
    loaded = Patch.load(path)
    assert contents(loaded.apply(case.data)) == contents(mended)
    assert contents(loaded.revert(mended)) == contents(case.data)
    assert loaded.summary() == patch.summary()
    assert [file.name for file in path.parent.iterdir()] == ["p.safetensors"]


def test_the_file_is_safetensors_with_a_json_header(tmp_path: Path) -> None:
    _, patch, _ = patched()
    patch.save(tmp_path / "p")
    raw = (tmp_path / "p").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    ours = json.loads(header.pop("__metadata__")["graphmend"])
    assert ours["format"] == FORMAT and ours["before"] == patch.before and ours["summary"] == patch.summary()
    assert 8 + length + max(entry["data_offsets"][1] for entry in header.values()) == len(raw)  # nothing else in it


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Patch, Path, bytes]:
    _, patch, _ = reweighted(True)
    path = tmp_path_factory.mktemp("saved") / "p.safetensors"
    patch.save(path)
    return patch, path, path.read_bytes()


def test_a_truncated_file_is_refused(saved: tuple[Patch, Path, bytes]) -> None:
    _, path, raw = saved
    for length in [0, 1, 7, 8, 9, 50, len(raw) // 2, len(raw) - 8, len(raw) - 1]:
        path.write_bytes(raw[:length])
        with pytest.raises(GraphMendError, match=r"p\.safetensors"):
            Patch.load(path)


@settings(max_examples=400)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_file_is_refused_or_unharmed(saved: tuple[Patch, Path, bytes], position: int, damage: int) -> None:
    """Also damage in the numbers themselves, which the format alone would not notice."""
    patch, path, raw = saved
    broken = bytearray(raw)
    broken[position % len(raw)] ^= damage
    path.write_bytes(broken)
    try:
        loaded = Patch.load(path)
    except GraphMendError:
        return
    assert loaded.before == patch.before
    for a, b in zip(vars(loaded).values(), vars(patch).values(), strict=True):
        if isinstance(a, dict):
            assert {k: bits(v) for k, v in a.items()} == {k: bits(v) for k, v in b.items()}
        else:
            assert bits(a) == bits(b)


def header_of(before: Any) -> dict[str, Any]:
    return {"format": FORMAT, "before": before, "nodes": 3, "edges": 2, "sequences": {}}


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.patch"
    with pytest.raises(GraphMendError, match=r"there is no file .*x\.patch"):
        Patch.load(path)
    with pytest.raises(GraphMendError, match="there is no file"):
        Patch.load(tmp_path)
    torch.save({"x": torch.ones(3)}, path)  # a pickle
    with pytest.raises(GraphMendError, match="not a readable safetensors file"):
        Patch.load(path)
    for metadata in (None, {"graphmend": "{}"}, {"graphmend": "[]"}, {"graphmend": json.dumps({"format": "other"})}):
        save_file({"x": torch.ones(3)}, path, metadata)
        with pytest.raises(GraphMendError, match="holds no GraphMend patch"):
            Patch.load(path)
    for header in (json.dumps({"format": FORMAT}), "{"):
        save_file({"x": torch.ones(3)}, path, {"graphmend": header})
        with pytest.raises(GraphMendError, match="incomplete"):
            Patch.load(path)
    _, patch, _ = patched()
    patch.save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(GraphMendError, match="damaged: its checksum does not fit"):
        Patch.load(path)


def test_a_patch_with_a_checksum_of_its_own_is_still_read(tmp_path: Path) -> None:
    """Such patches were written before all files of ours had one."""
    path, (data, patch, mended) = tmp_path / "p", patched()
    patch.save(path)
    tensors, metadata = read_safetensors(path)
    header = {**json.loads(metadata["graphmend"]), "checksum": "0123"}
    save_file(tensors, path, {"graphmend": json.dumps(header)})
    assert torch.equal(Patch.load(path).apply(data).x, mended.x)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    _, patch, _ = patched()
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(GraphMendError, match="cannot write"):
        patch.save(tmp_path / "file" / "p.safetensors")
    with pytest.raises(GraphMendError, match="cannot write"):
        patch.save(tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder", "full"]


def test_saving_replaces_the_whole_file(tmp_path: Path) -> None:
    _, patch, _ = patched()
    path = tmp_path / "p"
    path.write_bytes(b"x" * 100_000)
    patch.save(path)
    assert Patch.load(path).before == patch.before and path.stat().st_mode & 0o600 == 0o600


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_patch_made_on_the_gpu_works_on_the_cpu() -> None:
    data = Data(x=torch.randn(9, 3, generator=rng()), edge_index=directed(9)).to("cuda")
    removed, added = torch.tensor([1, 2], device="cuda"), torch.tensor([[0], [8]], device="cuda")
    patch, mended = Patch.make(data, data.x + 1, removed, added)
    assert contents(patch.apply(data.cpu())) == contents(mended.cpu())
    assert contents(patch.revert(mended.cpu())) == contents(data.cpu())


@pytest.mark.parametrize("number", [1, 4])
def test_a_patch_of_an_older_format_says_so(number: int, tmp_path: Path) -> None:
    path, old = tmp_path / "old.safetensors", f"graphmend-patch-{number}"
    write_safetensors(path, {"rows": torch.zeros(1)}, {"graphmend": json.dumps({"format": old})})
    with pytest.raises(GraphMendError, match=f"format {old}, this version reads graphmend-patch-6"):
        Patch.load(path)


@pytest.mark.parametrize("data", [None, "graph", Data(), Data(x=torch.ones(3, 2))], ids=repr)
def test_what_is_no_graph_is_refused(data: Any) -> None:
    _, patch, _ = patched()
    with pytest.raises(GraphMendError, match="was made for another graph"):
        patch.apply(data)
    with pytest.raises(GraphMendError, match="did not make this graph"):
        patch.revert(data)
