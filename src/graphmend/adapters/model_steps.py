"""Steps of a model's own weights down a loss, for adapters that change the model instead of the graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.case import Case
from graphmend.engine.report import Measured, Stopped
from graphmend.errors import GraphMendError, ModelFailedError, require
from graphmend.model import FrozenGNN
from graphmend.surrogates.base import Surrogate

__all__ = ["learn"]


def learn(
    case: Case,
    surrogate: Surrogate,
    parameters: Iterable[nn.Parameter],
    *,
    steps: int,
    lr: float,
    weight_decay: float = 0.0,
    is_training: bool = False,
    better: Callable[[Tensor], float] | None = None,
) -> None:
    """Move parameters of the adapter's own copy of the model down a loss, with Adam.

    Args:
        case: What the adapter works on; ``case.model`` is changed.
        surrogate: The loss.
        parameters: The parameters of ``case.model`` that move.
        steps: How many steps.
        lr: Learning rate.
        weight_decay: L2 penalty.
        is_training: Whether the model is in training mode during the steps, with dropout and batch statistics.
        better: A score of the logits, the higher the better: the weights after the step with the best score are kept.
            Without it, those of the last step are kept.
    """
    model, moving = case.model, list(parameters)
    require(len(moving) > 0, f"{type(model).__name__} has no parameters that could be moved; use GTrans, for example")
    with FrozenGNN(model, case.data, embedding=None, seed=case.seed, mode="eager", output=case.output) as frozen:
        graph = _with_presence(case.data, frozen)
        surrogate = surrogate.prepare(frozen, graph, case.seed)
        for parameter in moving:
            parameter.requires_grad_(True)
        optimizer = torch.optim.Adam(moving, lr=lr, weight_decay=weight_decay)
        best, learned = -float("inf"), copy.deepcopy(model.state_dict())
        for t in case.history.steps(steps):
            model.train(is_training)
            optimizer.zero_grad()
            measured = _differentiate(surrogate, frozen, graph, case.generator, moving)
            case.history.add(t, "model", measured)
            optimizer.step()
            model.eval()
            score = 0.0 if better is None else _score(better, frozen, case.data)
            if better is None or score > best:
                best, learned = score, copy.deepcopy(model.state_dict())
        optimizer.zero_grad()
    model.load_state_dict(learned)  # the frozen model was restored


def _with_presence(data: Data, frozen: FrozenGNN) -> Data:
    """The graph as a surrogate expects it, with the full weight of every edge."""
    graph = copy.copy(data)
    graph.edge_weight = data.x.new_ones(data.edge_index.size(1)) if frozen.takes_edge_weights else None
    return graph


def _differentiate(
    surrogate: Surrogate, frozen: FrozenGNN, graph: Data, generator: torch.Generator, moving: list[nn.Parameter]
) -> Measured:
    try:
        terms = surrogate.terms(frozen, graph, generator)
        loss = torch.stack([value.reshape(()) for value in terms.values()]).sum()
    except ModelFailedError as error:
        raise Stopped(str(error)) from error
    except (GraphMendError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise Stopped(f"the surrogate failed with {type(error).__name__}: {error}") from error
    if not loss.requires_grad:
        raise Stopped("the surrogate loss does not depend on the model's parameters")
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad.reshape(-1) for parameter in moving if parameter.grad is not None]
    if not gradients:
        raise Stopped("the surrogate loss does not depend on the model's parameters")
    norm = torch.linalg.vector_norm(torch.cat(gradients))
    values = [value.detach().reshape(()).to(norm.dtype) for value in terms.values()]
    return Measured(tuple(terms), torch.stack([*values, norm, norm.new_zeros(())]))


@torch.no_grad()
def _score(better: Callable[[Tensor], float], frozen: FrozenGNN, data: Data) -> float:
    return better(frozen.predict(data))
