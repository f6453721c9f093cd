"""One contract for every convolution: presence 1 is the layer itself, presence 0 the graph without the edge."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    APPNP,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    MessagePassing,
    PNAConv,
    SAGEConv,
    SGConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.nn.aggr import SumAggregation

from graphmend.errors import GraphMendError, UnsupportedLayerError
from graphmend.model.convs.registry import CONVOLUTIONS, weighted_forward, why_unsupported
from support.sparse_patterns import devices, dtypes

IN, OUT, ATTR = 4, 3, 2


class Case(NamedTuple):
    make: Callable[[], MessagePassing]
    takes: str | None = None  # "edge_weight", "edge_attr" or neither


def gin_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(IN, OUT), nn.Tanh(), nn.Linear(OUT, OUT))


CASES = {
    "gcn": Case(lambda: GCNConv(IN, OUT)),
    "gcn-weighted": Case(lambda: GCNConv(IN, OUT), "edge_weight"),
    "gcn-improved": Case(lambda: GCNConv(IN, OUT, improved=True, bias=False)),
    "gcn-improved-weighted": Case(lambda: GCNConv(IN, OUT, improved=True), "edge_weight"),
    "gcn-no-loops": Case(lambda: GCNConv(IN, OUT, add_self_loops=False), "edge_weight"),
    "gcn-unnormalised": Case(lambda: GCNConv(IN, OUT, normalize=False)),
    "gcn-unnormalised-weighted": Case(lambda: GCNConv(IN, OUT, normalize=False), "edge_weight"),
    "graph-add": Case(lambda: GraphConv(IN, OUT)),
    "graph-add-weighted": Case(lambda: GraphConv(IN, OUT, aggr=SumAggregation()), "edge_weight"),
    "graph-mean": Case(lambda: GraphConv(IN, OUT, aggr="mean", bias=False)),
    "graph-mean-weighted": Case(lambda: GraphConv(IN, OUT, aggr="mean"), "edge_weight"),
    "sage": Case(lambda: SAGEConv(IN, OUT)),
    "sage-sum": Case(lambda: SAGEConv(IN, OUT, aggr="sum", root_weight=False)),
    "sage-project-normalize": Case(lambda: SAGEConv(IN, OUT, project=True, normalize=True)),
    "gin": Case(lambda: GINConv(gin_mlp(), eps=0.3, train_eps=True)),
    "gin-mean": Case(lambda: GINConv(gin_mlp(), aggr="mean")),
    "gat": Case(lambda: GATConv(IN, OUT)),
    "gat-heads-residual": Case(lambda: GATConv(IN, OUT, heads=2, residual=True)),
    "gat-averaged-no-loops": Case(lambda: GATConv(IN, OUT, heads=2, concat=False, add_self_loops=False)),
    "gat-two-lins": Case(lambda: GATConv((IN, IN), OUT, heads=2, bias=False, negative_slope=0.1)),
    "gat-edge-mean": Case(lambda: GATConv(IN, OUT, heads=2, edge_dim=ATTR), "edge_attr"),
    "gat-edge-add": Case(lambda: GATConv(IN, OUT, edge_dim=ATTR, fill_value="add"), "edge_attr"),
    "gat-edge-constant": Case(lambda: GATConv(IN, OUT, edge_dim=ATTR, fill_value=0.5), "edge_attr"),
    "gat-edge-tensor": Case(lambda: GATConv(IN, OUT, edge_dim=ATTR, fill_value=torch.tensor([0.5, -1.0])), "edge_attr"),
    "gat-edge-no-loops": Case(lambda: GATConv(IN, OUT, edge_dim=ATTR, add_self_loops=False), "edge_attr"),
    "gat-edge-ignored": Case(lambda: GATConv(IN, OUT), "edge_attr"),
    "gatv2": Case(lambda: GATv2Conv(IN, OUT, heads=2)),
    "gatv2-shared-averaged": Case(lambda: GATv2Conv(IN, OUT, heads=2, concat=False, share_weights=True)),
    "gatv2-no-loops-residual": Case(lambda: GATv2Conv(IN, OUT, add_self_loops=False, residual=True)),
    "gatv2-edge": Case(lambda: GATv2Conv(IN, OUT, heads=2, edge_dim=ATTR), "edge_attr"),
    "transformer": Case(lambda: TransformerConv(IN, OUT, heads=2)),
    "transformer-beta-averaged": Case(lambda: TransformerConv(IN, OUT, heads=2, concat=False, beta=True)),
    "transformer-edge": Case(lambda: TransformerConv(IN, OUT, heads=2, edge_dim=ATTR, root_weight=False), "edge_attr"),
    "transformer-edge-beta": Case(lambda: TransformerConv(IN, OUT, edge_dim=ATTR, beta=True), "edge_attr"),
    "appnp": Case(lambda: APPNP(K=3, alpha=0.2, dropout=0.5)),
    "appnp-no-loops-weighted": Case(lambda: APPNP(K=2, alpha=0.1, add_self_loops=False), "edge_weight"),
    "appnp-unnormalised": Case(lambda: APPNP(K=2, alpha=0.1, normalize=False)),
    "sg": Case(lambda: SGConv(IN, OUT, K=2)),
    "sg-no-loops-weighted": Case(lambda: SGConv(IN, OUT, K=2, add_self_loops=False), "edge_weight"),
    "tag": Case(lambda: TAGConv(IN, OUT, K=3)),
    "tag-unnormalised-weighted": Case(lambda: TAGConv(IN, OUT, K=2, normalize=False, bias=False), "edge_weight"),
    "cheb-sym": Case(lambda: ChebConv(IN, OUT, K=3)),
    "cheb-rw-weighted": Case(lambda: ChebConv(IN, OUT, K=3, normalization="rw"), "edge_weight"),
    "cheb-plain": Case(lambda: ChebConv(IN, OUT, K=4, normalization=None, bias=False), "edge_weight"),
}

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
loops = pytest.mark.parametrize("with_loops", [False, True], ids=["no-loops", "loops"])


class Graph(NamedTuple):
    """A directed graph; the last node is isolated."""

    x: Tensor
    edge_index: Tensor
    extra: dict[str, Tensor]  # the edge weights or attributes the convolution takes

    def select(self, keep: Tensor) -> Graph:
        """The graph with these edges (a mask, or positions in any order, also repeated)."""
        return Graph(self.x, self.edge_index[:, keep], {key: value[keep] for key, value in self.extra.items()})


def make_graph(
    case: Case,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    with_loops: bool = True,
    num_nodes: int = 12,
    density: float = 0.3,
) -> Graph:
    generator = torch.Generator().manual_seed(7)
    dense = torch.rand(num_nodes, num_nodes, generator=generator) < density
    dense.fill_diagonal_(False)
    if with_loops:
        dense[[1, 3], [1, 3]] = True
    dense[-1], dense[:, -1] = False, False
    edge_index = dense.nonzero().t()
    edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=generator)].contiguous()
    x = torch.randn(num_nodes, IN, generator=generator, dtype=torch.float64)
    extra = {}
    if case.takes == "edge_weight":
        extra["edge_weight"] = 0.5 + torch.rand(edge_index.size(1), generator=generator, dtype=torch.float64)
    elif case.takes == "edge_attr":
        extra["edge_attr"] = torch.randn(edge_index.size(1), ATTR, generator=generator, dtype=torch.float64)
    extra = {key: value.to(device, dtype) for key, value in extra.items()}
    return Graph(x.to(device, dtype), edge_index.to(device), extra)


@cache
def make_conv(case: Case, dtype: torch.dtype = torch.float64, device: str = "cpu") -> MessagePassing:
    """The layer in evaluation mode with all its parameters random: PyG starts biases at 0."""
    torch.manual_seed(3)
    conv = case.make()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_(std=0.7)
    assert why_unsupported(conv) is None
    return conv.to(device, dtype).eval()


def weighted(conv: MessagePassing, presence: Tensor, graph: Graph) -> Tensor:
    return weighted_forward(conv, presence)(graph.x, graph.edge_index, **graph.extra)


def original(conv: MessagePassing, graph: Graph) -> Tensor:
    out: Tensor = conv(graph.x, graph.edge_index, **graph.extra)
    return out


def some_loss(out: Tensor) -> Tensor:
    return (out * torch.arange(out.numel(), device=out.device).cos().view_as(out)).sum()


def is_loop(graph: Graph) -> Tensor:
    return graph.edge_index[0] == graph.edge_index[1]


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert expected.isfinite().all()
    tolerance = 2e-5 if expected.dtype == torch.float32 else 1e-10
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@cases
@devices
@dtypes
@loops
def test_presence_one_is_the_original(case: Case, device: str, dtype: torch.dtype, with_loops: bool) -> None:
    conv, graph = make_conv(case, dtype, device), make_graph(case, dtype, device, with_loops)
    presence = torch.ones(graph.edge_index.size(1), device=device)
    assert_equal(weighted(conv, presence, graph), original(conv, graph))


@cases
@devices
@dtypes
@loops
def test_presence_zero_is_the_edge_removed(case: Case, device: str, dtype: torch.dtype, with_loops: bool) -> None:
    conv, graph = make_conv(case, dtype, device), make_graph(case, dtype, device, with_loops)
    source, target = graph.edge_index
    generator = torch.Generator().manual_seed(1)
    removed = (torch.rand(source.numel(), generator=generator) < 0.4).to(device)
    removed |= (target == 0) | (source == 2)  # nobody reaches node 0, node 2 reaches nobody
    removed &= ~is_loop(graph)
    expected = original(conv, graph.select(~removed))
    assert_equal(weighted(conv, (~removed).to(dtype), graph), expected)
    assert not torch.allclose(original(conv, graph), expected), "the removal should matter"


@cases
@devices
def test_an_edge_split_in_two_is_the_whole_edge(case: Case, device: str) -> None:
    """Between 0 and 1: an edge of presence r beside one of presence 1 - r is one edge."""
    conv, graph = make_conv(case, device=device), make_graph(case, device=device)
    edges = torch.arange(graph.edge_index.size(1), device=device)
    twice = torch.cat([edges, edges[~is_loop(graph)]])
    presence = torch.rand(edges.numel(), dtype=torch.float64, device=device)
    presence[is_loop(graph)] = 1.0
    presence = torch.cat([presence, 1.0 - presence[~is_loop(graph)]])
    assert_equal(weighted(conv, presence, graph.select(twice)), original(conv, graph))


@cases
def test_gradients_equal_finite_differences(case: Case) -> None:
    conv, graph = make_conv(case), make_graph(case, num_nodes=6, density=0.4)
    presence = 0.3 + 0.6 * torch.rand(graph.edge_index.size(1), dtype=torch.float64)
    inputs = (presence.requires_grad_(), graph.x.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda r, x: weighted(conv, r, graph._replace(x=x)), inputs)


@cases
@devices
@dtypes
def test_gradients_are_finite_where_edges_vanish(case: Case, device: str, dtype: torch.dtype) -> None:
    conv, graph = make_conv(case, dtype, device), make_graph(case, dtype, device)
    of_a_node, all_edges = (graph.edge_index == 0).any(0), torch.ones_like(graph.edge_index[0], dtype=torch.bool)
    for faint, vanishing in itertools.product((0.0, 1e-30, 1e-12, 1e-6), (of_a_node, all_edges)):
        presence = torch.where(vanishing & ~is_loop(graph), faint, 1.0).to(dtype).requires_grad_()
        x = graph.x.clone().requires_grad_()
        out = weighted(conv, presence, graph._replace(x=x))
        some_loss(out).backward()
        assert out.isfinite().all()
        assert presence.grad is not None and presence.grad.isfinite().all()
        assert x.grad is not None and x.grad.isfinite().all()


@cases
def test_an_absent_edge_beside_others_has_a_gradient(case: Case) -> None:
    """Otherwise an edge that was removed once could never come back."""
    conv, graph = make_conv(case), make_graph(case, with_loops=False)
    target = graph.edge_index[1]
    edge = int((target == target.mode().values).nonzero()[0])
    presence = torch.ones(target.numel(), dtype=torch.float64)
    presence[edge] = 0.0
    presence.requires_grad_()
    some_loss(weighted(conv, presence, graph)).backward()
    assert presence.grad is not None and presence.grad[edge] != 0


@cases
def test_the_order_of_nodes_and_edges_does_not_matter(case: Case) -> None:
    conv, graph = make_conv(case), make_graph(case)
    presence = torch.rand(graph.edge_index.size(1), dtype=torch.float64)
    edges, nodes = torch.randperm(presence.numel()), torch.randperm(graph.x.size(0))
    shuffled = graph.select(edges)
    shuffled = shuffled._replace(x=graph.x[nodes], edge_index=nodes.argsort()[shuffled.edge_index])
    assert_equal(weighted(conv, presence[edges], shuffled), weighted(conv, presence, graph)[nodes])


@cases
def test_no_edges_at_all(case: Case) -> None:
    conv, graph = make_conv(case), make_graph(case)
    graph = graph.select(torch.zeros(graph.edge_index.size(1), dtype=torch.bool))
    actual = weighted(conv, torch.ones(0), graph)
    if getattr(conv, "normalization", "") is None:  # the original divides by the largest degree, 0
        assert actual.isfinite().all()
    else:
        assert_equal(actual, original(conv, graph))


def test_every_convolution_is_in_the_contract() -> None:
    assert {type(case.make()) for case in CASES.values()} == set(CONVOLUTIONS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GATConv(IN, OUT, heads=2, dropout=1.0),
        lambda: GATv2Conv(IN, OUT, dropout=1.0, add_self_loops=False),
        lambda: TransformerConv(IN, OUT, dropout=1.0),
        lambda: APPNP(K=2, alpha=0.1, dropout=1.0),
    ],
    ids=["gat", "gatv2", "transformer", "appnp"],
)
def test_dropout_follows_the_mode_of_the_layer(make: Callable[[], MessagePassing]) -> None:
    conv, graph = make_conv(Case(make)), make_graph(Case(make))
    presence = torch.ones(graph.edge_index.size(1))
    assert_equal(weighted(conv, presence, graph), original(conv, graph))
    conv.train()
    assert_equal(weighted(conv, presence, graph), original(conv, graph))


@pytest.mark.parametrize(
    "lambda_max, batched",
    [(1.5, False), (torch.tensor(1.5), True), (torch.tensor([1.5]), False), (torch.tensor([1.5, 1.2]), True)],
    ids=["number", "scalar", "one", "per-graph"],
)
@pytest.mark.parametrize("normalization", ["sym", "rw", None])
def test_cheb_takes_lambda_max(normalization: str | None, lambda_max: Any, batched: bool) -> None:
    case = Case(lambda: ChebConv(IN, OUT, K=3, normalization=normalization))
    conv, graph = make_conv(case), make_graph(case)
    given = {"lambda_max": lambda_max, "batch": (torch.arange(graph.x.size(0)) > 5).long() if batched else None}
    keep = (torch.arange(graph.edge_index.size(1)) % 3 > 0) | is_loop(graph)
    actual = weighted_forward(conv, keep.double())(graph.x, graph.edge_index, **given)
    # where lambda_max is of single precision, so is the factor of the original
    torch.testing.assert_close(actual, conv(graph.x, graph.edge_index[:, keep], **given), rtol=1e-6, atol=1e-6)


def test_one_dimensional_edge_attributes() -> None:
    case = Case(lambda: GATConv(IN, OUT, edge_dim=1))
    conv, graph = make_conv(case), make_graph(case)
    graph.extra["edge_attr"] = torch.randn(graph.edge_index.size(1), dtype=torch.float64)
    assert_equal(weighted(conv, torch.ones(graph.edge_index.size(1)), graph), original(conv, graph))


@pytest.mark.parametrize(
    "make, cache",
    [
        (lambda: GCNConv(IN, OUT, cached=True), "_cached_edge_index"),
        (lambda: APPNP(K=2, alpha=0.1, cached=True), "_cached_edge_index"),
        (lambda: SGConv(IN, OUT, cached=True), "_cached_x"),
    ],
    ids=["gcn", "appnp", "sg"],
)
def test_caches_are_neither_written_nor_read(make: Callable[[], MessagePassing], cache: str) -> None:
    case = Case(make)
    conv, graph = make_conv(case), make_graph(case)
    presence = torch.ones(graph.edge_index.size(1))
    before = weighted(conv, presence, graph)
    assert getattr(conv, cache) is None
    conv(graph.x + 1.0, graph.edge_index[:, :5])  # fills the cache with another graph
    filled = getattr(conv, cache)
    assert filled is not None
    assert torch.equal(weighted(conv, presence, graph), before)
    assert getattr(conv, cache) is filled


def with_hook() -> MessagePassing:
    conv = GCNConv(IN, OUT)
    conv.register_message_forward_hook(lambda *_: None)
    return conv


class MyGCN(GCNConv):  # type: ignore[misc]
    pass


@pytest.mark.parametrize(
    "make, named",
    [
        (lambda: SAGEConv(IN, OUT, aggr="max"), "SAGEConv with aggr='max' has no edge weights"),
        (lambda: SAGEConv(IN, OUT, aggr=["mean", "max"]), "SAGEConv with aggr="),
        (lambda: SAGEConv(IN, OUT, aggr="lstm"), "SAGEConv with aggr='lstm'"),
        (lambda: GraphConv(IN, OUT, aggr="max"), "GraphConv with aggr='max'"),
        (lambda: GINConv(gin_mlp(), aggr="max"), "GINConv with aggr='max'"),
        (lambda: GCNConv(IN, OUT, aggr="mean"), "only a sum can fade"),
        (lambda: GATConv(IN, OUT, aggr="max"), "GATConv with aggr='max'"),
        (lambda: GCNConv(IN, OUT, flow="target_to_source"), "flow='target_to_source'"),
        (lambda: GCNConv(IN, OUT, decomposed_layers=3), "decomposed_layers=3"),
        (lambda: GATConv(IN, OUT, edge_dim=ATTR, fill_value="max"), "fill_value='max'"),
        (with_hook, "GCNConv has hooks"),
        (lambda: MyGCN(IN, OUT), "MyGCN has no edge weights"),
        (lambda: PNAConv(IN, OUT, ["mean"], ["identity"], torch.ones(3)), "PNAConv has no edge weights"),
    ],
)
def test_what_is_unsupported_is_named(make: Callable[[], MessagePassing], named: str) -> None:
    conv = make()
    reason = why_unsupported(conv)
    assert reason is not None and named in reason
    with pytest.raises(UnsupportedLayerError, match="edge_steps=0 still works"):
        weighted_forward(conv, torch.ones(1))


def test_a_fill_value_without_edge_attributes_does_not_matter() -> None:
    assert why_unsupported(GATConv(IN, OUT, fill_value="max")) is None


@pytest.mark.parametrize(
    "make, call, said",
    [
        (lambda: SAGEConv(IN, OUT), lambda f, x, e: f((x, x), e), "bipartite input \\(got tuple\\)"),
        (lambda: GCNConv(IN, OUT), lambda f, x, e: f(x.expand(2, -1, -1), e), "got shape \\(2, 12, 4\\)"),
        (lambda: GINConv(gin_mlp()), lambda f, x, e: f(x, e, size=(12, 5)), "got size \\(12, 5\\)"),
        (lambda: GCNConv(IN, OUT), lambda f, x, e: f(x, e[:, :4]), "called with 4 edges"),
        (lambda: GCNConv(IN, OUT), lambda f, x, e: f(x, e, torch.ones(3)), "one value per edge \\(got 3"),
        (
            lambda: GCNConv(IN, OUT),
            lambda f, x, e: f(x, torch.eye(12).to_sparse()),
            "not for a sparse adjacency",
        ),
        (
            lambda: GATConv(IN, OUT),
            lambda f, x, e: f(x, e, return_attention_weights=True),
            "return_attention_weights",
        ),
        (
            lambda: GATv2Conv(IN, OUT),
            lambda f, x, e: f(x, e, torch.ones(e.size(1), 1).double()),
            "without edge_dim",
        ),
        (lambda: TransformerConv(IN, OUT, edge_dim=ATTR), lambda f, x, e: f(x, e), "and no edge_attr"),
        (
            lambda: ChebConv(IN, OUT, K=2),
            lambda f, x, e: f(x, e, lambda_max=torch.ones(2)),
            "no batch vector",
        ),
    ],
)
def test_what_a_call_cannot_have_is_said(
    make: Callable[[], MessagePassing], call: Callable[..., Tensor], said: str
) -> None:
    conv, graph = make_conv(Case(make)), make_graph(Case(make))
    forward = weighted_forward(conv, torch.ones(graph.edge_index.size(1)))
    with pytest.raises(GraphMendError, match=said):
        call(forward, graph.x, graph.edge_index)
