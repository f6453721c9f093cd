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
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data

from graphmend.engine.cache import remembering
from graphmend.engine.ops import has_triton
from graphmend.engine.shared_features import Rows, materialised
from graphmend.errors import GraphMendError, UnsupportedLayerError, listed, require
from graphmend.frozen.call import Caller
from graphmend.frozen.edge_weights import (
    Way,
    filtered,
    native,
    patched,
    ways,
    why_not,
    with_more_edges,
    without_edges,
)
from graphmend.frozen.embedding import Tap, find_tap, named_tap
from graphmend.frozen.restore import frozen_model, plain, untouched_rng
from graphmend.nn.layers import takes_views
from graphmend.nn.registry import BACKBONES

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
        lazy = listed(name for name, parameter in model.named_parameters() if is_lazy(parameter))
        require(not lazy, f"the model has never run: {lazy} have no values yet; load its weights first")
        self.model = model
        inner = getattr(model, "_orig_mod", model)  # torch.compile keeps the original in there
        self._inner: nn.Module = inner
        self._data = plain(data)
        self._embedding = embedding
        self._seed = seed
        self._stack: ExitStack | None = None
        self._source: Caller | Tap | None = None
        self._way: Way | None = None
        self._written: list[str] = []
        self._takes_rows: bool | None = None
        self.views_along: int | None = None  #: how several views are best embedded together, found out inside
        self.is_ours = type(inner) in BACKBONES.values() and not getattr(inner, "config", {}).get("released")

    def __enter__(self) -> Self:
        require(self._stack is None, "this FrozenGNN is already open; use it in one with block at a time")
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(untouched_rng(self._seed))
            stack.enter_context(frozen_model(self._inner))
            stack.enter_context(remembering())
            self._forward = Caller(self._inner)
            self.views_along = self._choose_views()
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
        return self._logits(self._run(self._caller(), self._way_for(edge_weight), x, edge_index, edge_weight))

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The representation Z, one row per node."""
        forward, way = self._caller(), self._way_for(edge_weight)  # found before the tap is in place
        if self._source is None:
            self._source = self._own_embed() or self._find_tap()
        if isinstance(self._source, Tap):
            return self._source(lambda: self._run(forward, way, x, edge_index, edge_weight))
        return self._run(self._source, way, x, edge_index, edge_weight)  # type: ignore[no-any-return]

    def predict(self, data: Data) -> Tensor:
        """Logits on a graph as it is, with its own weights."""
        if not self._takes_rows:
            data = copy.copy(data)
            data.x = materialised(data.x)
        return self._logits(self._caller()(self._fresh(data)))

    def require_edge_weights(self) -> None:
        """Raise :class:`~graphmend.errors.UnsupportedLayerError`, naming the layer, if edges cannot be learned."""
        if self._choose_way() is filtered:
            raise UnsupportedLayerError(why_not(self._inner))

    def is_faster_with_weights(self) -> bool:
        """Whether weights of 1 spare the model its own, slower message passing."""
        return self._choose_way() is patched

    def _choose_views(self) -> int | None:
        """See :mod:`graphmend.engine.view_batch`."""
        x = self._data.x
        plain = self.is_ours and self._embedding is None and self._data.get("edge_weight") is None
        if not (plain and takes_views(self._inner)):
            return None
        if x.device.type == "cpu":
            return 0
        fast = x.dtype == torch.float32 and has_triton(x.device) and self._data.edge_index.size(1) < 2**30
        return 1 if fast else None

    def _caller(self) -> Caller:
        require(self._stack is not None, "a FrozenGNN is used inside its with block")
        return self._forward

    def _way_for(self, presence: Tensor | None) -> Way | None:
        return None if presence is None else self._choose_way()

    def _run(self, caller: Caller, way: Way | None, x: Tensor, edge_index: Tensor, presence: Tensor | None) -> Any:
        if self.is_ours and self._data.get("edge_weight") is None:  # nothing to find out, nothing to copy
            self._takes_rows = True
            return caller.function(x, edge_index, presence)
        data = with_more_edges(self._data, edge_index)

        def run(features: Tensor) -> Any:
            data.x = features
            graph = self._fresh(data)
            return caller(graph) if way is None or presence is None else way(self._inner, caller, graph, presence)

        if isinstance(x, Rows) and self._takes_rows is None:
            try:
                out, self._takes_rows = run(x), True
                return out
            except Exception as error:  # compiled models want ordinary tensors
                _LOG.debug("no sharing of linear maps: %s", _first_line(error))
                self._takes_rows = False
        return run(x if self._takes_rows else materialised(x))

    def _fresh(self, data: Data) -> Data:
        """A copy for the model to keep, with its own tensors where the model writes into them."""
        out = copy.copy(data)
        for name in self._written:
            out[name] = data[name].clone()
        return out

    def _logits(self, out: Any) -> Tensor:
        nodes = self._data.x.size(0)
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        fits = isinstance(out, Tensor) and out.dim() in (1, 2) and out.size(0) == nodes
        require(fits, f"the model must return one row of class scores per node, {nodes} rows (got {shape}); wrap it")
        return out  # type: ignore[no-any-return]

    def _trial(self) -> None:
        """Does the model run on the graph at all, and does it write into its input?"""
        try:
            self._written = self._writes(self._forward)
        except GraphMendError:
            raise
        except Exception as error:
            if not self._can_do_without_edge_attr(error):
                raise GraphMendError(
                    f"the model cannot run on this graph, whose x has shape {tuple(self._data.x.shape)}: "
                    f"{_first_line(error)}; check feature width, dtype and device"
                ) from error
        require(
            "edge_index" not in self._written,
            "the model writes into the edge_index it is given; make it work on a copy",
        )

    def _can_do_without_edge_attr(self, error: Exception) -> bool:
        """Many models have an ``edge_attr`` parameter that only layers made with ``edge_dim`` can take."""
        bare = Caller(self._inner, leave_out=frozenset({"edge_attr"}))
        if self._data.get("edge_attr") is None or bare.extra == self._forward.extra:
            return False
        try:
            self._written = self._writes(bare)
        except Exception as again:  # it was something else
            _LOG.debug("without edge_attr: %s", _first_line(again))
            return False
        _LOG.warning("the model is called without edge_attr, which it cannot take (%s)", _first_line(error))
        self._forward = bare
        return True

    @torch.no_grad()
    def _writes(self, caller: Caller) -> list[str]:
        """Run the model once; the names of the tensors it has written into."""
        if self.is_ours:  # they write nothing; do width, type and device fit?
            x, width = self._data.x, vars(self._inner)["config"]["in_channels"]
            kinds = {(parameter.dtype, parameter.device) for parameter in self._inner.parameters()}
            if x.size(1) != width or kinds != {(x.dtype, x.device)}:
                caller(Data(x=x[:1], edge_index=self._data.edge_index[:, :0]))
            return []
        data = copy.copy(self._data)
        tensors = {name: value.clone() for name, value in data.to_dict().items() if isinstance(value, Tensor)}
        data.update(tensors)
        self._logits(caller(data))
        return [name for name, tensor in tensors.items() if tensor._version > 0]

    def _own_embed(self) -> Caller | None:
        """The model's ``embed`` method, if it has one that can be called like the model."""
        method = getattr(self._inner, "embed", None)
        if self._embedding is not None or not inspect.ismethod(method):
            return None
        own = Caller(method, self._forward.leave_out)
        if self.is_ours:
            return own
        data = copy.copy(self._data)
        try:
            with torch.enable_grad():  # even where only the value of Z is wanted
                data.x = data.x.clone().requires_grad_().clone()
                z = own(data)
        except Exception as error:
            _LOG.warning("the model's own embed is not used, it fails on this graph (%s)", _first_line(error))
            return None
        is_nodes = isinstance(z, Tensor) and z.dim() == 2 and z.size(0) == data.x.size(0)
        require(is_nodes, "the model's embed does not return one row per node; name an embedding")
        if not z.requires_grad:
            _LOG.warning("the model's own embed is not used, it has no gradient; does it run under no_grad?")
            return None
        if self._choose_way() is native and not self._is_exact(native, own):
            _LOG.warning("the model's own embed is not used, it does not take the edge weights that its forward takes")
            return None
        return own

    def _find_tap(self) -> Tap:
        data, nodes = self._data, self._data.x.size(0)
        half = torch.arange(data.edge_index.size(1), device=data.x.device) % 2 == 1

        def run(graph: Data) -> Any:
            return self._forward(self._fresh(graph))

        def reacts(tap: Tap) -> bool:
            with torch.no_grad():
                return not torch.equal(tap(lambda: run(data)), tap(lambda: run(without_edges(data, half))))

        with torch.no_grad():
            if self._embedding is not None:
                return named_tap(self._inner, self._embedding, lambda: run(data), nodes)
            return find_tap(self._inner, lambda: run(data), nodes, reacts)

    def _choose_way(self) -> Way:
        """The first way in which weight 1 changes nothing and weight 0 equals the edge removed, tried on this graph."""
        if self._way is None and self.is_ours:
            self._way = native  # the contract of our backbones, see their tests
        if self._way is None:
            found = (way for way in ways(self._inner, self._forward, self._data) if self._is_exact(way, self._forward))
            self._way = next(found, filtered)
        return self._way

    @torch.no_grad()
    def _is_exact(self, way: Way, caller: Caller) -> bool:
        data = self._data
        source, target = data.edge_index
        generator = torch.Generator(device=data.x.device).manual_seed(self._seed)
        dropped = torch.rand(source.numel(), generator=generator, device=data.x.device) < 0.5
        dropped |= (source != target).cumsum(0) == 1  # the first edge, so that there is one in the smallest graph
        keep = ~(dropped & (source != target))
        ones = torch.ones_like(keep, dtype=data.x.dtype)
        try:
            whole, part = caller(self._fresh(data)), caller(self._fresh(without_edges(data, keep)))
            pairs = [
                (whole, way(self._inner, caller, self._fresh(data), ones)),
                (part, way(self._inner, caller, self._fresh(data), keep.to(ones.dtype))),
            ]
        except Exception as error:  # the model does not take weights this way
            _LOG.debug("%s does not work for %s: %s", way.__name__, type(self._inner).__name__, error)
            return False
        # small beside what the edges do, and rounding beside the output
        tolerance = (1e-7 if ones.dtype == torch.float64 else 1e-3) * (whole - part).abs().max()
        tolerance = tolerance + 100 * torch.finfo(ones.dtype).eps * whole.abs().max()
        return all(bool((a - b).abs().max() <= tolerance) for a, b in pairs)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
