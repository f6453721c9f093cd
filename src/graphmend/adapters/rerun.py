"""Run the caller's model once more, after an adapter has returned."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import InnerProductDecoder

from graphmend.errors import ModelFailedError, require
from graphmend.files.digest import model_digest
from graphmend.graph.checks import check_edges
from graphmend.model import FrozenGNN
from graphmend.model.call import Output
from graphmend.model.failures import first_line
from graphmend.model.restore import frozen_model, untouched_rng

__all__ = ["Rerun"]


@dataclass(frozen=True, eq=False)
class Rerun:
    """How a result runs the model later, for whatever is computed only on demand.

    The model belongs to the caller, who may train it further in the meantime. The digest of its weights reveals that,
    and the result is an error instead of misleading numbers.

    Args:
        model: The caller's model.
        digest: That of its weights when the graph was mended.
        dtype: The type of the features then.
        device: Where they were then.
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.
        seed: Seed of everything random.
        mode: ``"auto"`` or ``"eager"``.
        output: Which part of what the model returns has the scores.
    """

    model: nn.Module
    digest: str
    dtype: torch.dtype
    device: torch.device
    embedding: str | None
    seed: int
    mode: str
    output: Output = None

    @classmethod
    def of(
        cls, model: nn.Module, x: Tensor, embedding: str | None, seed: int, mode: str, output: Output = None
    ) -> Rerun:
        """For a model as it is now, and features of the type and on the device of ``x``."""
        return cls(model, model_digest(model), x.dtype, x.device, embedding, seed, mode, output)

    def logits(self, data: Data, weights_count: bool = False) -> Tensor:
        """The output of the caller's model on a graph; the model is left as it was.

        Args:
            data: The graph.
            weights_count: Whether its ``edge_weight`` counts for a model that does not read it, too.
        """
        data = self._converted(data)
        with self._frozen(self.model, data) as frozen, torch.no_grad():
            return frozen.predict(data, weights_count=weights_count)

    def embedding_of(self, data: Data, model: nn.Module, weights_count: bool = False) -> Tensor:
        """Z of the caller's model, or of an adapter's copy of it, on a graph; the model is left as it was.

        Args:
            data: The graph.
            model: The model.
            weights_count: Whether its ``edge_weight`` counts for a model that does not read it, too.
        """
        data = self._converted(data)
        with self._frozen(model, data) as frozen, torch.no_grad(), frozen.on(data, weights_count=weights_count):
            return frozen.embed(data.x, data.edge_index)

    def pair_scores(self, model: nn.Module, z: Tensor, pairs: Tensor) -> Tensor:
        """How the model scores pairs of nodes: by its own ``decode``, or by the dot product of their embeddings.

        PyG's ``InnerProductDecoder`` applies a sigmoid to that dot product, which rounds all large ones to 1.
        """
        check_edges(pairs, z.size(0), "edge_label_index")
        pairs = pairs.to(z.device)
        decode = getattr(getattr(model, "_orig_mod", model), "decode", None)
        own = callable(decode) and not isinstance(getattr(model, "decoder", None), InnerProductDecoder)
        if not own or decode is None:
            source, target = z.detach().double()[pairs]
            products: Tensor = (source * target).sum(1)
            return products
        with untouched_rng(self.seed), frozen_model(model), torch.no_grad():
            try:
                scores: Any = decode(z, pairs)
            except Exception as error:
                raise ModelFailedError(f"the model's decode cannot score the pairs: {first_line(error)}") from error
        fits = isinstance(scores, Tensor) and scores.numel() == pairs.size(1)
        require(fits, f"the model's decode must return one score for each of the {pairs.size(1)} pairs; wrap it")
        flat: Tensor = scores.reshape(-1)
        return flat

    def _frozen(self, model: nn.Module, data: Data) -> FrozenGNN:
        same = model is not self.model or model_digest(model) == self.digest
        require(same, "the model has changed since the graph was mended; ask for this before training goes on")
        return FrozenGNN(model, data, embedding=self.embedding, seed=self.seed, mode=self.mode, output=self.output)

    def _converted(self, data: Data) -> Data:
        out = copy.copy(data).to(self.device)
        out.x = out.x.to(self.dtype)
        return out
