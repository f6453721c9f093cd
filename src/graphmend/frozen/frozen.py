"""FrozenGNN: any PyG model as a backbone, left exactly as it was."""

from __future__ import annotations

import copy
import inspect
import logging
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, UnsupportedLayerError, require
from graphmend.frozen.calling import Caller
from graphmend.frozen.embedding import Tap, find_tap, named_tap
from graphmend.frozen.state import frozen_model, untouched_rng
from graphmend.frozen.weights import Way, filtered, ways, why_not, with_more_edges, without_edges

_LOG = logging.getLogger(__name__)


class FrozenGNN:
    """A trained model with the backbone contract: logits, an embedding Z, and exact edge weights.

    The model is called as ``forward(x, edge_index)``, with ``edge_weight`` or ``edge_attr`` besides, or as
    ``forward(data)``, and returns logits, log-softmax or a single binary logit per node. Use it as a context manager:
    inside, the model is in eval mode without parameter gradients and the global generators are seeded; at the end, also
    after an exception, model and generators are as they were.

    Args:
        model: Any ``nn.Module``.
        data: The graph; its further attributes are passed on to a model that asks for them.
        embedding: Name of the module whose output is Z. By default the model's own ``embed`` method, else the
            node-level input of the last layer that runs.
        seed: For models that draw random numbers even in eval mode.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> data = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> with FrozenGNN(pyg.GraphSAGE(4, 16, num_layers=2, out_channels=2), data) as frozen:
        ...     frozen.embed(data.x, data.edge_index).shape
        torch.Size([3, 16])
    """

    def __init__(self, model: nn.Module, data: Data, *, embedding: str | None = None, seed: int = 0) -> None:
        require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
        self.model = model
        inner = getattr(model, "_orig_mod", model)  # torch.compile keeps the original in there
        self._inner: nn.Module = inner
        self._data = data
        self._embedding = embedding
        self._seed = seed
        self._stack: ExitStack | None = None
        self._tap: Tap | None = None
        self._way: Way | None = None
        self._copies_input = False

    def __enter__(self) -> Self:
        require(self._stack is None, "this FrozenGNN is already open; use it in one with block at a time")
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(untouched_rng(self._seed))
            stack.enter_context(frozen_model(self._inner))
            self._forward = Caller(self._inner.forward)
            self._trial()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None
        stack, self._stack = self._stack, None
        stack.__exit__(kind, error, trace)

    def __call__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits. ``edge_weight`` is the presence of each edge, on top of the weight the graph itself gives it."""
        return self._logits(self._run(self._caller(), x, edge_index, edge_weight))

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The representation Z, one row per node."""
        if self._embedding is None and self._own_embed is not None:
            z = self._run(self._own_embed, x, edge_index, edge_weight)
            is_nodes = isinstance(z, Tensor) and z.dim() == 2 and z.size(0) == x.size(0)
            require(is_nodes, "the model's embed does not return one row per node; name an embedding")
            return z  # type: ignore[no-any-return]
        if self._tap is None:
            self._tap = self._find_tap()
        return self._tap(lambda: self._run(self._caller(), x, edge_index, edge_weight))

    def predict(self, data: Data) -> Tensor:
        """Logits on a graph as it is, with its own weights."""
        return self._logits(self._caller()(copy.copy(data)))

    def require_edge_weights(self) -> None:
        """Raise :class:`~graphmend.errors.UnsupportedLayerError`, naming the layer, if edges cannot be learned."""
        if self._choose_way() is filtered:
            raise UnsupportedLayerError(why_not(self._inner))

    @property
    def _own_embed(self) -> Caller | None:
        method = getattr(self._inner, "embed", None)
        return Caller(method) if inspect.ismethod(method) else None

    def _caller(self) -> Caller:
        require(self._stack is not None, "a FrozenGNN is used inside its with block")
        return self._forward

    def _run(self, caller: Caller, x: Tensor, edge_index: Tensor, presence: Tensor | None) -> Any:
        data = with_more_edges(self._data, edge_index)
        data.x = x.clone() if self._copies_input else x
        if presence is None:
            return caller(data)
        return self._choose_way()(self._inner, caller, data, presence)

    def _logits(self, out: Any) -> Tensor:
        nodes = self._data.x.size(0)
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        fits = isinstance(out, Tensor) and out.dim() in (1, 2) and out.size(0) == nodes
        require(fits, f"the model must return one row of class scores per node, {nodes} rows (got {shape}); wrap it")
        return out  # type: ignore[no-any-return]

    def _trial(self) -> None:
        """Does the model run on the graph at all, and does it write into its input?"""
        data = copy.copy(self._data)
        x, edge_index = data.x.clone(), data.edge_index.clone()
        data.x, data.edge_index = x, edge_index
        try:
            with torch.no_grad():
                self._logits(self._forward(data))
        except GraphMendError:
            raise
        except Exception as error:
            raise GraphMendError(
                f"the model cannot run on this graph, whose x has shape {tuple(x.shape)}: "
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}; "
                "check feature width, dtype and device"
            ) from error
        self._copies_input = x._version > 0
        require(
            edge_index._version == 0,
            "the model writes into the edge_index it is given; make it work on a copy",
        )

    def _find_tap(self) -> Tap:
        data, x = self._data, self._data.x
        half = torch.arange(data.edge_index.size(1), device=x.device) % 2 == 0

        def run(graph: Data) -> Any:
            return self._forward(copy.copy(graph))

        def reacts(tap: Tap) -> bool:
            with torch.no_grad():
                return not torch.equal(tap(lambda: run(data)), tap(lambda: run(without_edges(data, half))))

        with torch.no_grad():
            if self._embedding is not None:
                return named_tap(self._inner, self._embedding, lambda: run(data), x.size(0))
            return find_tap(self._inner, lambda: run(data), x, reacts)

    def _choose_way(self) -> Way:
        """The first way in which weight 1 changes nothing and weight 0 equals the edge removed, tried on this graph."""
        if self._way is None:
            self._way = next(
                (way for way in ways(self._inner, self._forward, self._data) if self._is_exact(way)), filtered
            )
        return self._way

    @torch.no_grad()
    def _is_exact(self, way: Way) -> bool:
        data = self._data
        source, target = data.edge_index
        generator = torch.Generator(device=data.x.device).manual_seed(self._seed)
        dropped = torch.rand(source.numel(), generator=generator, device=data.x.device) < 0.5
        keep = ~(dropped & (source != target))
        ones = torch.ones_like(keep, dtype=data.x.dtype)
        try:
            pairs = [
                (self._forward(copy.copy(data)), way(self._inner, self._forward, copy.copy(data), ones)),
                (
                    self._forward(without_edges(data, keep)),
                    way(self._inner, self._forward, copy.copy(data), keep.to(ones.dtype)),
                ),
            ]
        except Exception as error:  # the model does not take weights this way
            _LOG.debug("%s does not work for %s: %s", way.__name__, type(self._inner).__name__, error)
            return False
        tolerance = 1e-7 if data.x.dtype == torch.float64 else 1e-3
        return all(bool((a - b).abs().max() <= tolerance * a.abs().max().clamp(min=1e-3)) for a, b in pairs)
