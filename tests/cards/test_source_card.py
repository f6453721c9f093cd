"""Making a source card, with models of all kinds; what is in it, what is not, and its file."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from graphmend import FrozenGNN, GraphMendError, Identity, mend
from graphmend.cards import SourceCard, card
from graphmend.cards.edges import STEPS, edge_views, fits_well, grid_of
from graphmend.cards.moments import moments
from graphmend.cards.prototypes import MOST_ROWS
from graphmend.cards.source_card import FORMAT, nearest_centroid
from graphmend.files.digest import model_digest
from graphmend.files.files import write_safetensors
from graphmend.lab.backbones import BACKBONES, build
from graphmend.model.embedding import Call
from graphmend.outputs import probabilities
from support.graphs import directed, labelled, rng, undirected
from support.sample_models import (
    ByData,
    DenseWeights,
    OwnEmbed,
    PredictThenPropagate,
    Residual,
    Shared,
    TwoConvs,
    Wrapped,
    basic,
)
from support.slow_edges import slow_fits, slow_views
from support.untouched import assert_same, state_of

N, IN, OUT = 40, 5, 3


def graph(n: int = N, seed: int = 0, **more: Any) -> Data:
    data = labelled(n, seed)
    data.x = data.x.double()
    data.update(more)
    return data


def trained(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(2)
    return make().double()


def gcn() -> nn.Module:
    return trained(lambda: build("gcn", IN, 8, OUT, batch_norm=True))


class OneLogit(nn.Module):
    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.inner, self.flat = pyg.GCN(IN, 8, num_layers=2, out_channels=1), flat

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        out = self.inner(x, edge_index)
        return out.view(-1) if self.flat else out


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build(name, IN, 8, OUT, batch_norm=True) for name in BACKBONES},
    **{name: lambda name=name: basic(name, num_layers=2) for name in ("GCN", "GraphSAGE", "GAT", "GATv2", "GIN")},
    "GraphSAGE with batch norm": lambda: basic("GraphSAGE", num_layers=3, norm="BatchNorm", dropout=0.5),
    "max aggregation": lambda: basic("GraphSAGE", num_layers=2, aggr="max"),
    "hand-written": lambda: DenseWeights(True),
    "residual": Residual,
    "takes data": ByData,
    "log-softmax": lambda: Wrapped(TwoConvs(pyg.GCNConv), "plain"),
    "one logit": lambda: OneLogit(True),
    "one logit in a column": lambda: OneLogit(False),
}
models = pytest.mark.parametrize("kind", MODELS)


@models
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "edge weights"])
def test_every_model_has_one(kind: str, weighted: bool) -> None:
    data, model = graph(), trained(MODELS[kind]).train()
    if kind == "hand-written":  # it makes weights of its own in single precision
        data.x, model = data.x.float(), model.float()
    if weighted:
        data.edge_weight = 0.5 + torch.rand(data.edge_index.size(1), generator=rng(3)).to(data.x)
    before = state_of(model, data)
    made = card(model, data, task="classes")
    assert_same(before, state_of(model, data))
    classes = 2 if kind.startswith("one logit") else OUT
    with FrozenGNN(model, data) as frozen:
        seen = frozen.observe(data)
        assert torch.equal(seen.logits, frozen.predict(data)), "the graph's own weights are used"
    torch.testing.assert_close(made.first_mean, seen.first.mean(0))
    torch.testing.assert_close(made.first_std, seen.first.std(0, correction=0))
    torch.testing.assert_close(made.z_mean, seen.z.mean(0))
    torch.testing.assert_close(made.z_std, seen.z.std(0, correction=0))
    p = probabilities(seen.logits, made.temperature)
    torch.testing.assert_close(made.prior, p.mean(0))
    assert made.pairs.shape == made.soft_pairs.shape == (classes, classes)
    assert made.centroids.shape == (classes, made.z_mean.numel())
    for share in (made.prior, made.pairs, made.soft_pairs):
        assert float(share.sum()) == pytest.approx(1, rel=1e-5)
    is_missing = torch.bincount(p.argmax(1), minlength=classes) == 0
    assert torch.equal(made.centroids.isnan().all(1), is_missing), "NaN stands for a class that is never predicted"
    tensors, _ = made.parts()
    tensors["centroids"] = made.centroids[~is_missing]
    assert all(bool(value.isfinite().all()) for value in tensors.values())
    made.check(model, data)
    assert Identity()(model, data, card=made).reason is None


def test_the_numbers_of_a_card() -> None:
    data, model = graph(), gcn()
    made = card(model, data, task="classes")
    with FrozenGNN(model, data) as frozen:
        seen, weight = frozen.observe(data), frozen.first_map
    p = probabilities(seen.logits, made.temperature)
    classes = p.argmax(1)
    x, edges = data.x, data.edge_index
    torch.testing.assert_close(made.column_mean, x.mean(0))
    assert torch.equal(made.column_min, x.amin(0)) and torch.equal(made.column_max, x.amax(0))
    assert (made.nodes, made.edges_per_node) == (N, edges.size(1) / N)
    for a in range(OUT):
        for b in range(OUT):
            hard = sum(int(classes[i]) == a and int(classes[j]) == b for i, j in edges.t()) / edges.size(1)
            soft = sum(float(p[i, a] * p[j, b]) for i, j in edges.t()) / edges.size(1)
            assert float(made.pairs[a, b]) == pytest.approx(hard, abs=1e-12)
            assert float(made.soft_pairs[a, b]) == pytest.approx(soft, rel=1e-10)
    assert made.homophily == pytest.approx(float((classes[edges[0]] == classes[edges[1]]).double().mean()))
    standard = (seen.z - made.z_mean) / moments(seen.z).unit
    for c in classes.unique().tolist():
        torch.testing.assert_close(made.centroids[c], standard[classes == c].mean(0))
    nearest = [min(set(classes.tolist()), key=lambda c: float((row - made.centroids[c]).norm())) for row in standard]
    assert made.nearest_class(seen.z).tolist() == nearest
    assert made.agreement == pytest.approx(sum(a == int(b) for a, b in zip(nearest, classes, strict=True)) / N)
    views = torch.tensor(slow_views(x, x @ weight, edges), dtype=torch.float64).t()
    torch.testing.assert_close(made.edge_grid, grid_of(views), rtol=0, atol=1 / STEPS)
    fits = sorted(slow_fits(edge_views(x, x @ weight, edges), made.edge_grid))
    assert made.edge_middle == pytest.approx(fits[(len(fits) - 1) // 2])
    well = sum(bool(fits_well(torch.tensor(f), made.edge_middle)) for f in fits)
    assert made.edge_share == pytest.approx(well / len(fits)) and 0.5 <= made.edge_share < 0.6


def test_a_class_that_is_never_predicted_attracts_nobody() -> None:
    z = torch.tensor([[1.0, 0.0], [0.1, 0.1], [-1.0, 0.0]])
    centroids = torch.tensor([[math.nan, math.nan], [2.0, 0.0], [-2.0, 0.0]])
    assert nearest_centroid(z, centroids).tolist() == [1, 1, 2]
    centroids[0] = 0.0
    assert nearest_centroid(z, centroids).tolist() == [0, 0, 0], "one in the middle is none that is missing"


def test_a_graph_of_one_node(tmp_path: Path) -> None:
    data = Data(x=torch.rand(1, IN, generator=rng(1)).double(), edge_index=torch.zeros(2, 1, dtype=torch.long))
    model = gcn()
    for favourite in range(OUT):
        with torch.no_grad():
            model.convs[-1].bias.zero_()[favourite] = 50.0
        made = card(model, data, task="classes")
        assert made.agreement == 1.0 and int(made.centroids.isnan().all(1).sum()) == OUT - 1
        made.save(tmp_path / "one.card")
        assert torch.equal(SourceCard.load(tmp_path / "one.card").centroids.isnan(), made.centroids.isnan())


def union(*graphs: Data) -> Data:
    batch = Batch.from_data_list([Data(**graph.to_dict()) for graph in graphs])
    return Data(**{name: batch[name] for name in graphs[0].keys()})  # noqa: SIM118


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat", "appnp", "GIN", "GraphSAGE"])
def test_a_list_of_graphs_equals_their_disjoint_union(kind: str) -> None:
    graphs, model = [graph(30, 0), graph(25, 1), graph(41, 2)], trained(MODELS[kind])
    apart, together = card(model, graphs, task="classes"), card(model, union(*graphs), task="classes")
    for field in dataclasses.fields(SourceCard):
        mine, other = getattr(apart, field.name), getattr(together, field.name)
        if field.name.startswith("edge_"):
            continue  # the response of the first layer's mean is that of each graph, or that of all
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9, equal_nan=True, msg=field.name)
        elif field.name == "noise":
            assert mine >= other - 1e-9, "a list also says how much the graphs differ"
        else:
            assert mine == pytest.approx(other), field.name
    torch.testing.assert_close(apart.edge_grid[1:], together.edge_grid[1:], rtol=0, atol=1 / STEPS)
    if kind in ("gcn", "appnp"):  # one linear map, so that cosines do not depend on its size
        torch.testing.assert_close(apart.edge_grid, together.edge_grid, rtol=0, atol=1 / STEPS)
        assert apart.edge_middle == pytest.approx(together.edge_middle, abs=0.02)
        assert apart.edge_share == pytest.approx(together.edge_share, abs=0.02)


def moved(data: Data, by: float) -> Data:
    other = copy.copy(data)
    other.x = data.x + by
    return other


def test_the_noise_level_covers_the_differences_of_training_graphs() -> None:
    """The distance of a graph from the others, in units of the spread of all, without what chance makes of it."""
    graphs, model = [graph(60, 0), moved(graph(20, 1), 0.5), moved(graph(40, 2), -0.5)], gcn()
    first = []
    for data in graphs:
        with FrozenGNN(model, data) as frozen:
            first.append(frozen.observe(data).first.detach())
    made = card(model, graphs, task="classes")
    alone = card(model, union(*graphs), task="classes")
    assert made.noise_nodes == alone.noise_nodes == 30
    everything, found = torch.cat(first), []
    spread = everything.std(0, correction=0)
    for own in first:
        squares = (own.mean(0) - everything.mean(0)) ** 2 + (own.std(0, correction=0) - spread) ** 2
        distance = float((squares / spread**2).mean().sqrt()) / (1 - len(own) / 120)
        found.append(math.sqrt(distance**2 - alone.noise**2 * 30 / len(own)))
    assert made.noise == pytest.approx(max(found)) and made.noise > 2 * alone.noise
    assert card(model, graphs[:1], task="classes").noise == card(model, graphs[0], task="classes").noise, (
        "one graph differs from none"
    )


def test_a_training_graph_of_one_node_does_not_silence_the_gate() -> None:
    """Beside it the spread of all nodes counts, since its own is zero."""
    large, model = graph(60), gcn()
    small = Data(x=large.x.mean(0, keepdim=True), edge_index=torch.zeros(2, 1, dtype=torch.long))
    assert card(model, [large, small], task="classes").noise < 5


def test_the_noise_level_is_measured_on_nodes_that_were_not_trained_on() -> None:
    data, model = graph(200), gcn()
    data.train_mask = torch.arange(200) < 150
    made = card(model, data, task="classes")
    assert made.noise_nodes == 25
    without = copy.copy(data)
    del without.train_mask
    assert card(model, without, task="classes").noise_nodes == 100
    assert 0 < card(model, without, task="classes").noise < made.noise
    assert made.noise_for(25) == made.noise == made.noise_for(1000)
    assert made.noise_for(25 // 4) == pytest.approx(made.noise * math.sqrt(25 / 6))
    assert (
        card(model, data, seed=0, task="classes").noise == made.noise != card(model, data, seed=1, task="classes").noise
    )
    data.train_mask = torch.ones(200, dtype=torch.bool)
    assert card(model, data, task="classes").noise_nodes == 100, "where all were trained on, all are used"
    data.train_mask = torch.stack([torch.arange(200) < 150, torch.arange(200) < 7], dim=1)
    assert card(model, data, task="classes").noise_nodes == 25, "the first one of several splits"


def negative_log_likelihood(model: nn.Module, data: Data, temperature: float) -> float:
    with FrozenGNN(model, data) as frozen:
        p = probabilities(frozen.predict(data), temperature)
    chosen = p[data.val_mask.nonzero().view(-1), data.y[data.val_mask]]
    return float(-chosen.log().mean())


@pytest.mark.parametrize("scale", [0.05, 1.0, 12.0])
def test_the_temperature_calibrates_on_validation_nodes(scale: float) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GCNConv(IN, OUT)
            with torch.no_grad():
                self.conv.lin.weight.copy_(torch.eye(OUT, IN))

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return scale * self.conv(x, edge_index)

    data, model = graph(), trained(Scaled)
    made = card(model, data, task="classes")
    now, before = (negative_log_likelihood(model, data, t) for t in (made.temperature, 1.0))
    assert now <= before + 1e-12
    for factor in (0.8, 1.25):
        if 0.1 < made.temperature * factor < 10:
            assert now <= negative_log_likelihood(model, data, made.temperature * factor)
    if scale > 1:
        assert made.temperature > 2 and now < before


@pytest.mark.parametrize("missing", ["y", "val_mask", "no node", "no label"])
def test_without_validation_labels_the_temperature_is_one(missing: str) -> None:
    data = graph()
    if missing == "no node":
        data.val_mask = torch.zeros(N, dtype=torch.bool)
    elif missing == "no label":
        data.y = torch.full((N,), -1)
    else:
        del data[missing]
    assert card(gcn(), data, task="classes").temperature == 1.0


def test_labels_of_all_shapes() -> None:
    data, model = graph(), gcn()
    expected = card(model, data, task="classes").temperature
    for y in (data.y.view(-1, 1), data.y.double(), data.y.to(torch.int32)):
        assert card(model, graph(y=y), task="classes").temperature == expected
    some = data.y.clone()
    some[1] = -1
    assert (
        card(model, graph(y=some), task="classes").temperature
        == card(model, graph(y=some.double().masked_fill(some < 0, math.nan)), task="classes").temperature
    )
    masks = torch.stack([data.val_mask, ~data.val_mask], dim=1)
    assert card(model, graph(val_mask=masks), task="classes").temperature == expected


@pytest.mark.parametrize("dtype", [torch.long, torch.float64, torch.bool])
def test_one_hot_labels_calibrate_like_labels(dtype: torch.dtype) -> None:
    data, model = graph(), gcn()
    one_hot = torch.eye(OUT)[data.y].to(dtype)
    assert (
        card(model, graph(y=one_hot), task="classes").temperature
        == card(model, data, task="classes").temperature
        != 1.0
    )


def test_several_labels_per_node_do_not_calibrate() -> None:
    model = gcn()
    several = (torch.rand(N, OUT, generator=rng(1)) < 0.6).long()
    for y in (several, torch.rand(N, OUT, generator=rng(1)), torch.eye(OUT + 1)[graph().y], torch.zeros(N, OUT)):
        assert card(model, graph(y=y), task="classes").temperature == 1.0


@pytest.mark.parametrize("name", ["train_mask", "val_mask"])
def test_masks_that_are_none_are_named(name: str) -> None:
    model = gcn()
    masks: list[Any] = [
        torch.arange(7),
        torch.arange(N),
        torch.ones(N + 1, dtype=torch.bool),
        [True] * N,
        torch.tensor(True),
    ]
    for mask in masks:
        with pytest.raises(
            GraphMendError, match=rf"{name} must (have one entry per node, {N}|hold 0 and 1|be a boolean)"
        ):
            card(model, graph(**{name: mask}), task="classes")
    truth = torch.arange(N) < 15
    as_numbers, as_mask = (card(model, graph(**{name: mask}), task="classes") for mask in (truth.long(), truth))
    assert (as_numbers.noise, as_numbers.temperature) == (as_mask.noise, as_mask.temperature)


@pytest.mark.parametrize("nodes", [40, 400])
def test_no_row_of_the_training_graph_is_in_it(nodes: int, tmp_path: Path) -> None:
    data, model = graph(nodes), gcn()
    made = card(model, data, task="classes")
    made.save(tmp_path / "card")
    tensors = load_file(tmp_path / "card")
    seen = [row for t in tensors.values() for row in t.reshape(-1, t.size(-1)) if t.size(-1) == IN]
    assert seen and not any(torch.equal(row, other) for row in seen for other in data.x)
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        rows = (frozen.first_layer(data.x, data.edge_index) - made.first_mean) / made.first.unit
    assert made.first_centres.size(0) <= 64
    assert float(torch.cdist(made.first_centres, rows).min()) > 1e-3, "a centre is a mean of several rows"


def saved(tmp_path: Path) -> Path:
    card(gcn(), graph(), task="classes").save(tmp_path / "small.card")
    return tmp_path / "small.card"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_card_survives_the_disk(dtype: torch.dtype, tmp_path: Path) -> None:
    data, model = graph(), gcn().to(dtype)
    data.x = data.x.to(dtype)
    made, path = card(model, data, task="classes"), tmp_path / "new folder" / "model.card"
    made.save(path)
    loaded = SourceCard.load(path)
    for field in dataclasses.fields(SourceCard):
        mine, other = getattr(made, field.name), getattr(loaded, field.name)
        if isinstance(mine, Tensor):
            torch.testing.assert_close(other, mine, rtol=0, atol=0, equal_nan=True)
        else:
            assert mine == other
    assert loaded.summary() == made.summary()
    loaded.check(model, data)
    assert [file.name for file in path.parent.iterdir()] == ["model.card"]


def test_a_damaged_card_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    raw, expected = path.read_bytes(), SourceCard.load(path)
    for length in [0, 1, 8, 50, len(raw) // 2, len(raw) - 1]:
        path.write_bytes(raw[:length])
        with pytest.raises(GraphMendError, match=r"small\.card"):
            SourceCard.load(path)
    for position in range(0, len(raw), 37):
        broken = bytearray(raw)
        broken[position] ^= 4
        path.write_bytes(broken)
        try:
            loaded = SourceCard.load(path)
        except GraphMendError:
            continue
        assert loaded.summary() == expected.summary() and torch.equal(loaded.first_mean, expected.first_mean)
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(GraphMendError, match="damaged: its checksum does not fit"):
        SourceCard.load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.card"
    with pytest.raises(GraphMendError, match=r"there is no file .*x\.card"):
        SourceCard.load(path)
    for metadata in (None, {"graphmend": "[]"}, {"graphmend": json.dumps({"format": "graphmend-patch-5"})}):
        save_file({"x": torch.ones(3)}, path, metadata)
        with pytest.raises(GraphMendError, match="holds no source card; give a file written by"):
            SourceCard.load(path)
    for version in ("graphmend-card-1", "graphmend-card-99"):
        save_file({"x": torch.ones(3)}, path, {"graphmend": json.dumps({"format": version})})
        with pytest.raises(GraphMendError, match=f"of the format {version}, this version reads {FORMAT}; make it"):
            SourceCard.load(path)
    for header in ("{", json.dumps({"format": FORMAT}), json.dumps({"format": FORMAT, "numbers": 3})):
        save_file({"x": torch.ones(3)}, path, {"graphmend": header})
        with pytest.raises(GraphMendError, match="incomplete"):
            SourceCard.load(path)
    tensors = load_file(saved(tmp_path))
    write_safetensors(path, tensors, {"graphmend": json.dumps({"format": FORMAT, "numbers": {}})})
    with pytest.raises(GraphMendError, match="incomplete"):
        SourceCard.load(path)


@pytest.mark.parametrize("number", [1, 2])
def test_a_card_of_an_older_version_says_to_make_it_again(number: int, tmp_path: Path) -> None:
    """Although its file is complete and its checksum is right: what the gate looks for now is not on it."""
    path = saved(tmp_path)
    numbers, tensors = SourceCard.load(path).parts()[1], load_file(path)
    older = FORMAT.replace("3", str(number))
    write_safetensors(path, tensors, {"graphmend": json.dumps({"format": older, "numbers": numbers})})
    with pytest.raises(GraphMendError, match=f"of the format {older}, this version reads {FORMAT}; make it again"):
        SourceCard.load(path)
    write_safetensors(path, tensors, {"graphmend": json.dumps({"format": FORMAT, "numbers": numbers})})
    SourceCard.load(path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_card_is_small_even_where_there_are_many_columns(dtype: torch.dtype, tmp_path: Path) -> None:
    """As many columns as Cora has, and as many nodes as the prototypes are found from."""
    columns, nodes = 1433, MOST_ROWS
    x = (torch.rand(nodes, columns, generator=rng(0)) < 0.01).to(dtype)
    edge_index = torch.randint(nodes, (2, 4 * nodes), generator=rng(1))
    torch.manual_seed(0)
    model = build("gcn", columns, 32, 7, batch_norm=True).to(dtype)
    made = card(model, Data(x=x, edge_index=edge_index), task="classes")
    assert made.first_centres.size(0) > 32 and made.z_centres.size(0) > 32, "otherwise its size is not tested"
    made.save(tmp_path / "model.card")
    assert (tmp_path / "model.card").stat().st_size < 100_000


def test_a_card_with_a_checksum_of_its_own_is_still_read(tmp_path: Path) -> None:
    """Such cards were written before all files of ours had one."""
    path = saved(tmp_path)
    numbers = SourceCard.load(path).parts()[1]
    header = {"format": FORMAT, "numbers": numbers, "checksum": "0123"}
    save_file(load_file(path), path, {"graphmend": json.dumps(header)})
    assert SourceCard.load(path).parts()[1] == numbers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes", "many"),
        ("nodes", True),
        ("nodes", -3),
        ("temperature", 0.0),
        ("temperature", math.nan),
        *(
            (name, value)
            for name in ("noise", "z_reach", "edges_per_node")
            for value in (math.nan, -1.0, math.inf, 10**400)
        ),
        *((name, value) for name in ("agreement", "empty_rows") for value in (math.nan, -0.1, 1.5)),
        ("temperature", 10**400),
        ("nodes", 10**400),
        ("z_std", torch.full((8,), -1.0)),
        ("first_mean", torch.full((8,), torch.nan)),
        ("column_max", torch.full((IN,), torch.inf)),
        ("column_mean", torch.ones(IN).to(torch.float8_e4m3fn)),
        ("prior", torch.full((OUT,), -0.1)),
        ("embedding", 3),
        ("model", None),
        ("centroids", torch.ones(OUT + 1, 2)),
        ("pairs", torch.ones(OUT)),
        ("edge_grid", torch.tensor(1.0)),
        ("column_mean", torch.ones(IN, dtype=torch.long)),
        ("first_std", torch.ones(0)),
        ("z_mean", 1.5),
    ],
)
def test_parts_that_no_card_has_are_refused(name: str, value: object, tmp_path: Path) -> None:
    """The checksum is right, so that whoever wrote the file meant it."""
    card(gcn(), graph(), task="classes").save(tmp_path / "card")
    tensors = load_file(tmp_path / "card")
    numbers = SourceCard.load(tmp_path / "card").parts()[1]
    tensors.pop(name, None)
    (tensors if isinstance(value, Tensor) else numbers)[name] = value
    header = {"format": FORMAT, "numbers": numbers}
    write_safetensors(tmp_path / "card", tensors, {"graphmend": json.dumps(header)})
    with pytest.raises(GraphMendError, match=rf"damaged: .*{name}.* cannot be right; make it again"):
        SourceCard.load(tmp_path / "card")


class Compiled(nn.Module):
    """What ``torch.compile`` returns, as far as we look at it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._orig_mod = model


def test_it_belongs_to_one_model_and_one_kind_of_graph() -> None:
    data, model = graph(), gcn()
    made = card(model, data, task="classes")
    made.check(copy.deepcopy(model), graph(9, 3))
    made.check(Compiled(model), data)
    with pytest.raises(GraphMendError, match=f"with {IN} feature columns, this graph has {IN - 1}"):
        made.check(model, Data(x=data.x[:, 1:], edge_index=data.edge_index))
    further = copy.deepcopy(model)
    with torch.no_grad():
        next(further.parameters())[0, 0] += 1e-9
    with pytest.raises(GraphMendError, match=r"another model, or this one was trained further; .* graphmend\.card\("):
        made.check(further, data)
    statistics = copy.deepcopy(model)
    statistics.norms[0].running_mean += 1
    assert model_digest(statistics) != model_digest(model)


def test_the_type_that_holds_the_weights_does_not_matter() -> None:
    data, model = graph(), gcn().float()
    data.x = data.x.float()
    made, double = card(model, data, task="classes"), copy.deepcopy(model).double()
    made.check(double, data)
    with torch.no_grad():
        next(double.parameters())[0, 0] += 1e-9
    assert model_digest(double) != made.model, "single precision does not hold this"


def test_to_another_type() -> None:
    made = card(gcn(), graph(), task="classes")
    single = made.to(torch.device("cpu"), torch.float32)
    tensors = {name: value for name, value in vars(single).items() if isinstance(value, Tensor)}
    assert {value.dtype for value in tensors.values()} == {torch.float32} and len(tensors) == 18
    assert single.temperature == made.temperature and made.first_mean.dtype == torch.float64


def test_the_summary_is_for_people() -> None:
    lines = card(gcn(), graph(), task="classes").summary().splitlines()
    assert lines[0].startswith(f"source card of {N} nodes, {IN} feature columns, {OUT} classes (")
    assert "no rows of the training graph" in lines[0] and len(lines) == 4


@pytest.mark.parametrize("kind", MODELS)
def test_a_card_is_five_lines(kind: str) -> None:
    made = card(trained(MODELS[kind]), graph(), task="classes")
    for shown in (made, made.to(torch.device("cpu"), torch.float32)):
        title, *lines = repr(shown).splitlines()
        assert title.startswith(f"SourceCard of {N} nodes, {IN} feature columns, {shown.prior.numel()} classes")
        assert (
            len(lines) == 4
            and f"noise level {shown.noise:.3f}" in lines[0]
            and f"{shown.edges_per_node:.1f} per node" in lines[3]
        )
        assert all(len(line) < 120 for line in lines)
        html = shown._repr_html_()
        assert html.count("<tr>") == 4 and title in html


def test_a_card_of_many_classes_names_a_few() -> None:
    made = dataclasses.replace(card(gcn(), graph()), prior=torch.full((40,), 1 / 40))
    assert "..." in repr(made) and repr(made).count(" %") == 11


def test_bad_input_is_named() -> None:
    model = gcn()
    with pytest.raises(GraphMendError, match="train_data is an empty list; give the graph"):
        card(model, [], task="classes")
    with pytest.raises(GraphMendError, match=r"different numbers of columns \(\[3, 5\]\); give graphs"):
        card(model, [graph(), Data(x=torch.rand(4, 3), edge_index=undirected(4, isolated=0))], task="classes")
    with pytest.raises(GraphMendError, match="non-finite"):
        card(model, Data(x=torch.full((3, IN), math.nan), edge_index=directed(3, isolated=0)), task="classes")
    with pytest.raises(GraphMendError, match="cannot run on this graph"):
        card(model, Data(x=torch.rand(9, 2).double(), edge_index=undirected()), task="classes")
    with pytest.raises(GraphMendError, match="no module 'q'"):
        card(model, graph(), embedding="q", task="classes")


def test_z_by_name(tmp_path: Path) -> None:
    data, model = graph(), trained(Residual)
    made = card(model, data, embedding="blocks.0", task="classes")
    assert made.embedding == "blocks.0" and card(model, data, task="classes").embedding is None
    made.save(tmp_path / "card")
    assert SourceCard.load(tmp_path / "card").embedding == "blocks.0"
    with FrozenGNN(model, data, embedding="blocks.0") as frozen:
        torch.testing.assert_close(made.z_mean, frozen.embed(data.x, data.edge_index).mean(0).detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_small_floats_do_not_overflow(dtype: torch.dtype) -> None:
    """The sum of a column is beyond the largest number of half precision."""
    data, model = graph(400), gcn().to(dtype)
    data.x = 1000 + data.x.to(dtype)
    made = card(model, data, task="classes")
    assert made.column_mean.dtype == dtype and float(data.x.double().sum(0).min()) > 3e5
    torch.testing.assert_close(made.column_mean, data.x.double().mean(0).to(dtype))
    assert 0 < made.first_reach < math.inf


def test_a_first_layer_that_is_not_finite_is_named() -> None:
    data = graph()
    data.x[7] = 1e308
    model = gcn()
    with torch.no_grad():
        next(model.convs[0].parameters()).fill_(100.0)
    with pytest.raises(GraphMendError, match="the model's first layer is not finite on the training graph, first at"):
        card(model, data, task="classes")


def test_an_embedding_that_is_not_finite_at_one_node_is_named() -> None:
    class Breaking(nn.Module):
        """Z is infinite at one node, and the output is finite all the same."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.last = pyg.GCNConv(IN, 8), nn.Linear(8, OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            h = self.conv(x, edge_index).exp()
            h = torch.where((torch.arange(len(h)) == 7).unsqueeze(1), math.inf * h, h)
            return self.last(h).nan_to_num()

    said = "the model's embedding is not finite on the training graph, first at node 7; check the model's weights and"
    with pytest.raises(GraphMendError, match=said):
        card(trained(Breaking), graph(), task="classes")


@pytest.mark.parametrize("graphs", [None, 3, torch.tensor(1.0), ...], ids=repr)
def test_what_is_no_list_of_graphs_is_named(graphs: Any) -> None:
    with pytest.raises(GraphMendError, match="train_data must be a graph or a list of graphs"):
        card(gcn(), graphs, task="classes")
    with pytest.raises(GraphMendError, match=r"must be a torch_geometric\.data\.Data \(got HeteroData\)"):
        card(gcn(), HeteroData(), task="classes")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [torch.uint16, torch.int32, torch.float16, torch.float8_e5m2, torch.bool], ids=str)
def test_labels_of_any_type_calibrate(kind: torch.dtype) -> None:
    data = graph()
    data.val_mask = torch.ones(data.x.size(0), dtype=torch.bool)
    data.y = (torch.arange(data.x.size(0)) % 2).float().to(kind)
    assert card(gcn(), data, task="classes").temperature > 0


@pytest.mark.parametrize("kind", [*MODELS, "predict, then propagate", "shared", "own embed", "one layer"])
def test_the_first_layer_and_the_embedding_are_on_it_by_name(kind: str, tmp_path: Path) -> None:
    others: dict[str, Callable[[], nn.Module]] = {
        "predict, then propagate": lambda: PredictThenPropagate(nn.Linear(IN, OUT), pyg.APPNP(2, 0.1)),
        "shared": Shared,
        "own embed": OwnEmbed,
        "one layer": lambda: pyg.GCNConv(IN, OUT),
    }
    model, data = trained({**MODELS, **others}[kind]), graph()
    made = card(model, data, task="classes")
    made.save(tmp_path / "model.card")
    taps = SourceCard.load(tmp_path / "model.card").taps
    assert made.first_layer in dict(model.named_modules())
    with FrozenGNN(model, data) as found, FrozenGNN(model, data, taps=taps) as given:
        assert found.taps.first_layer == given.taps.first_layer
        for method in ("first_layer", "embed"):
            one, other = (getattr(frozen, method)(data.x, data.edge_index) for frozen in (found, given))
            assert torch.equal(one, other), method


@pytest.mark.parametrize("layer", [pyg.GCNConv, pyg.SAGEConv, pyg.GATConv])
def test_a_model_that_is_a_layer_itself_is_mended_with_its_card(layer: Any, tmp_path: Path) -> None:
    """Its only module has the empty name."""
    model, data = trained(lambda: layer(IN, OUT)), graph()
    made = card(model, data, task="classes")
    assert made.z_layer == ""
    made.save(tmp_path / "layer.card")
    result = mend(model, data, card=SourceCard.load(tmp_path / "layer.card"))
    assert result.verdict is not None and result.verdict.regime == "card"


def test_a_layer_that_is_gone_is_named() -> None:
    model, data = trained(lambda: PredictThenPropagate(nn.Linear(IN, OUT), pyg.APPNP(2, 0.1))), graph()
    made = card(model, data, task="classes")
    assert made.z_tail == ["propagate"]
    made.check(model, data)
    del model.propagate
    model.elsewhere = pyg.APPNP(2, 0.1)
    with pytest.raises(GraphMendError, match=r"made with the module 'propagate', which the model no longer has; make"):
        made.check(model, data)
    model, data = trained(OwnEmbed), graph()
    made = card(model, data, task="classes")
    assert made.z_layer is None
    model.embed = None  # type: ignore[assignment]
    with pytest.raises(GraphMendError, match="made with an embed method, which the model no longer has"):
        made.check(model, data)


@pytest.mark.parametrize(("name", "turn", "text"), [("a.b", 1, "a.b"), ("a", 3, "a#3"), ("a#2", 1, "a#2#1")])
def test_calls_have_a_text(name: str, turn: int, text: str) -> None:
    assert Call(name, turn).text == text and Call.of(text) == Call(name, turn)
