"""Features whose linear maps are shared: always the same numbers and gradients as ordinary ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.shared_features import SharedFeatures, as_tensor, scaled_rows, shuffled, stacked
from support.graphs import rng

N, IN = 6, 4
W = torch.randn(IN, 3, generator=rng(1), dtype=torch.float64)
B = torch.randn(3, generator=rng(2), dtype=torch.float64)
ORDER = torch.randperm(N, generator=rng(3))
FACTOR = torch.tensor([[1.0], [0.0], [0.5], [1.0], [2.0], [0.0]], dtype=torch.float64)
LINEAR = nn.Linear(IN, 3).double().requires_grad_(False)


class Square(torch.autograd.Function):
    """Goes past everything a tensor subclass can see."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grad


@torch.jit.script
def compiled(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x) @ w


USES: dict[str, Callable[[Tensor], Tensor]] = {
    "matmul": lambda x: x @ W,
    "mm": lambda x: torch.mm(x, W),
    "linear": lambda x: F.linear(x, W.t().contiguous(), B),
    "linear with keywords": lambda x: F.linear(input=x, weight=W.t().contiguous(), bias=B),
    "module": LINEAR,
    "dropout, then a module": lambda x: LINEAR(F.dropout(x, 0.5, training=False)),
    "contiguous, then a module": lambda x: LINEAR(x.contiguous()),
    "two maps": lambda x: torch.cat([LINEAR(x), (x @ W).relu()], dim=1),
    "the same map twice": lambda x: LINEAR(x) * LINEAR(x),
    "elementwise": lambda x: (2 * x).tanh(),
    "rows": lambda x: x[[1, 1, 2]],
    "map and itself": lambda x: (x @ W).sum(1) * x.sum(1),
    "custom function": Square.apply,
    "compiled": lambda x: compiled(x, W),
    "transposed": lambda x: x.t() @ x,
    "concatenated": lambda x: torch.cat([x, x]),
    "batched": lambda x: x @ W.expand(2, IN, 3),
    "from the right": lambda x: W.t() @ x.t(),
    "a vector": lambda x: x @ W[:, 0],
}
View = Callable[[Tensor], Tensor]
VIEWS: dict[str, tuple[View, View]] = {  # and what they are of ordinary features
    "whole": (lambda x: x, lambda x: x),
    "shuffled": (lambda x: shuffled(x, ORDER), lambda x: x[ORDER]),
    "scaled": (lambda x: scaled_rows(x, FACTOR), lambda x: x * FACTOR),
    "shuffled and scaled": (lambda x: scaled_rows(shuffled(x, ORDER), FACTOR), lambda x: x[ORDER] * FACTOR),
    "scaled and shuffled": (lambda x: shuffled(scaled_rows(x, FACTOR), ORDER), lambda x: (x * FACTOR)[ORDER]),
    "stacked": (
        lambda x: stacked([x, shuffled(x, ORDER), scaled_rows(x, FACTOR)]),
        lambda x: torch.cat([x, x[ORDER], x * FACTOR]),
    ),
    "stacked with ordinary features": (lambda x: stacked([x, 2 * x]), lambda x: torch.cat([x, 2 * x])),
}
views = pytest.mark.parametrize(("view", "plain"), VIEWS.values(), ids=VIEWS)


def features() -> Tensor:
    return torch.randn(N, IN, generator=rng(), dtype=torch.float64)


def shared(x: Tensor | None = None) -> SharedFeatures:
    return SharedFeatures.of(LinearMaps(features() if x is None else x))


@views
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_values_and_gradients(use: Callable[[Tensor], Tensor], view: View, plain: View) -> None:
    x = features().requires_grad_()
    expected = use(plain(x))
    seen = torch.rand(expected.shape, generator=rng(4), dtype=torch.float64)
    maps = LinearMaps(x)
    actual = use(view(SharedFeatures.of(maps)))
    torch.testing.assert_close(actual, expected)
    gradient = maps.gradient((actual * seen).sum()).rows(0, N, torch.empty_like(x))
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * seen).sum(), x)[0])


@views
def test_without_gradients(view: View, plain: View) -> None:
    x = features()
    given = view(shared(x))
    torch.testing.assert_close(LINEAR(given), LINEAR(plain(x)))
    assert torch.equal(as_tensor(given), plain(x)) and not LINEAR(given).requires_grad


@pytest.mark.parametrize("name", ["whole", "shuffled", "scaled", "shuffled and scaled", "stacked"])
def test_views_share_the_products_of_the_features(name: str) -> None:
    """A product is looked up, not computed: one that somebody falsified shows up in all views."""
    maps = LinearMaps(features())
    x = SharedFeatures.of(maps)
    marked = torch.arange(3.0 * N, dtype=torch.float64).view(N, 3)
    (x @ W).data.copy_(marked)
    view, plain = VIEWS[name]
    assert torch.equal(view(x) @ W, plain(marked))


def test_a_map_is_computed_once() -> None:
    x = shared()
    assert (x @ W) is (x @ W) and LINEAR(x) is LINEAR(x)


def test_it_looks_like_the_features() -> None:
    x = features()
    given = shared(x)
    assert isinstance(given, Tensor) and given.shape == x.shape and given.dtype == x.dtype and given.device == x.device
    assert given.size(0) == given.size(dim=0) == len(given) == N and given.dim() == 2 and given.is_floating_point()
    assert not given.requires_grad and shared(x.clone().requires_grad_()).requires_grad
    assert stacked([given, shuffled(given, ORDER)]).shape == (2 * N, IN)
    assert torch.equal(as_tensor(given), x) and as_tensor(x) is x


def test_ordinary_features_stay_ordinary() -> None:
    x = features()
    assert torch.equal(shuffled(x, ORDER), x[ORDER]) and torch.equal(scaled_rows(x, FACTOR), x * FACTOR)
    assert torch.equal(stacked([x, 2 * x]), torch.cat([x, 2 * x]))
    two = stacked([shared(x), shared(x)])  # products of one are not products of the other
    assert type(two) is Tensor and torch.equal(two, torch.cat([x, x]))


def test_dropout_in_training_is_not_skipped() -> None:
    for dropped in (F.dropout(shared(), 0.5), F.dropout(shared(), 0.5, True), F.dropout(shared(), 0.5, training=True)):
        assert type(dropped) is Tensor and not dropped.all()


def test_trained_weights_are_not_looked_up() -> None:
    x, weight = shared(), W.clone().requires_grad_()
    assert (x @ weight).requires_grad
    with torch.no_grad():
        assert (x @ weight) is (x @ weight)


def test_what_cannot_be_shared_is_computed_as_ever() -> None:
    x = features()
    given, vector = shared(x), torch.randn(IN, dtype=torch.float64)
    assert torch.equal(F.linear(given, vector), F.linear(x, vector))
    with pytest.raises(RuntimeError, match="same dtype"):
        given @ W.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (shared(x.float()) @ W.float()).dtype == torch.bfloat16
