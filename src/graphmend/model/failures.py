"""Messages for models that fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.report import Stopped
from graphmend.errors import GraphMendError, ModelFailedError
from graphmend.model.call import Caller

__all__ = ["cannot_run", "failures_named", "first_line"]

_CONVERT = {torch.float16: "half", torch.bfloat16: "bfloat16", torch.float32: "float", torch.float64: "double"}


@contextmanager
def failures_named(model: nn.Module | None, data: Data) -> Iterator[None]:
    """Inside, an error of the model becomes a sentence about model and graph.

    Args:
        model: The model, whose type and device are compared with the graph's, if it is known.
        data: The graph.
    """
    try:
        yield
    except (GraphMendError, Stopped, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelFailedError(cannot_run(model, data, error)) from error


def cannot_run(model: nn.Module | None, data: Data, error: Exception) -> str:
    """The sentence for a model that does not run on a graph."""
    sentence = f"the model cannot run on this graph, whose x has shape {tuple(data.x.shape)}: {first_line(error)}"
    if isinstance(error, NotImplementedError):
        return f"{sentence}; give it a forward(x, edge_index) that returns the scores of the nodes"
    return f"{sentence}; {_remedy(model, data, str(error))}"


def _remedy(model: nn.Module | None, data: Data, message: str) -> str:
    x: Tensor = data.x
    weight = next((p for p in model.parameters() if p.is_floating_point()), x) if model is not None else x
    if weight.dtype != x.dtype and {weight.dtype, x.dtype} <= set(_CONVERT):
        remedy = f"data.x = data.x.{_CONVERT[weight.dtype]}() or model.{_CONVERT[x.dtype]}()"
        return f"its weights are {weight.dtype} but x is {x.dtype}: convert one of them, {remedy}"
    if weight.device != x.device:
        return f"its weights are on {weight.device} but x is on {x.device}: move one of them"
    called = "" if model is None else _called(model)
    if "adj_t" in message:
        return "the graph is given to it with edge_index instead of adj_t, so that edges can change: let it read that"
    return f"{called}check feature width, dtype and device"


def _called(model: nn.Module) -> str:
    """How the model was called, if it may have expected something else."""
    caller = Caller(model)
    if caller.wants_data:
        return f"its forward was given the whole graph as {caller.graph[0]}, so wrap it if that is something else, or "
    if caller.graph[:2] != ["x", "edge_index"]:
        given = ", ".join(f"{name}={value}" for name, value in zip(caller.graph, ("x", "edge_index"), strict=False))
        return f"its forward was called with {given}, so wrap it if it wants something else, or "
    return ""


def first_line(error: Exception) -> str:
    """Type and message of an error, short enough to be part of a sentence."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
