"""The first run of a model nobody has seen before: how it is called, and whether it writes into its input."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.model.call import LABELS_ARE_KEPT, Caller
from graphmend.model.failures import cannot_run, first_line
from graphmend.model.wiring import Wiring

if TYPE_CHECKING:
    from graphmend.model.frozen import FrozenGNN

__all__ = ["FirstRun"]

_LOG = logging.getLogger(__name__)


class FirstRun:
    """Runs a model for the first time, on a few nodes or, if that does not work, on the whole graph.

    Args:
        frozen: The frozen model.
        model: The model itself, in eval mode.
        whole: The graph.
        wiring: Where the results are kept.
    """

    def __init__(self, frozen: FrozenGNN, model: nn.Module, whole: Data, wiring: Wiring) -> None:
        self.frozen, self.model, self.whole, self.wiring = frozen, model, whole, wiring

    def run(self, sampled: Callable[[], Data]) -> None:
        """Find out how the model is called, whether it runs on a sample, and what it writes into.

        Args:
            sampled: Makes the sample of the graph.
        """
        try:
            self.wiring.written = self._written_attributes(self._forward, sampled())
            self.wiring.runs_on_sample = True
        except Exception as error:  # a model for this very graph, or one that does not run
            _LOG.debug("no trials on a sample: %s", first_line(error))
            self.wiring.runs_on_sample = False
            self.wiring.written = self._written_on_the_whole_graph()

    @property
    def _forward(self) -> Caller:
        return Caller(self.model, self.wiring.leave_out, output=self.frozen.output)

    def _written_on_the_whole_graph(self) -> tuple[str, ...]:
        try:
            return self._written_attributes(self._forward, self.whole)
        except GraphMendError:
            raise
        except Exception as error:
            written = self._written_without_edge_attr(error)
            if written is None:
                require(not self._runs_with_labels(), LABELS_ARE_KEPT)
                raise GraphMendError(cannot_run(self.model, self.whole, error)) from error
            return written

    def _runs_with_labels(self) -> bool:
        """Whether the model would run if it were given the labels."""
        if self.whole.get("y") is None:
            return False
        try:
            self._written_attributes(Caller(self.model, output=self.frozen.output, shows_labels=True), self.whole)
        except Exception as error:  # labels were not the reason
            _LOG.debug("with labels: %s", first_line(error))
            return False
        return True

    def _written_without_edge_attr(self, error: Exception) -> tuple[str, ...] | None:
        """Many models have an ``edge_attr`` parameter that only layers made with ``edge_dim`` can take."""
        bare = Caller(self.model, leave_out=frozenset({"edge_attr"}), output=self.frozen.output)
        if self.whole.get("edge_attr") is None or bare.extra == self._forward.extra:
            return None
        try:
            written = self._written_attributes(bare, self.whole)
        except Exception as again:  # edge_attr was not the reason
            _LOG.debug("without edge_attr: %s", first_line(again))
            return None
        _LOG.warning("the model is called without edge_attr, which it cannot take (%s)", first_line(error))
        self.wiring.leave_out = bare.leave_out
        return written

    @torch.no_grad()
    def _written_attributes(self, caller: Caller, graph: Data) -> tuple[str, ...]:
        data = copy.copy(graph)
        tensors = {name: value.clone() for name, value in data.to_dict().items() if isinstance(value, Tensor)}
        data.update(tensors)
        with self.frozen.on(graph):
            self.frozen.checked_logits(caller(data))
        return tuple(name for name, tensor in tensors.items() if tensor._version > 0)
