"""The source card: a few kilobytes about the training graph that describe what a model is used to."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.cards.moments import Moments
from graphmend.cards.prototypes import Mix, Prototypes, in_units
from graphmend.cards.rows import in_blocks, widened
from graphmend.errors import GraphMendError, as_float, listed, require
from graphmend.files.digest import model_digest
from graphmend.files.files import first_line, read_header, read_safetensors, write_safetensors
from graphmend.graph.checks import is_finite
from graphmend.model.embedding import Call, Tap
from graphmend.model.first_layer import FirstLayer
from graphmend.model.wiring import OwnEmbed, Taps
from graphmend.outputs import FLOATS, TASKS, Task
from graphmend.results.tables import html_table, markdown_table, text_lines
from graphmend.wrappers import unwrapped

__all__ = ["SourceCard", "nearest_centroid"]

FORMAT = "graphmend-card-3"

MOST = 1e30
TINY = 1e-30
RANGES = {
    **dict.fromkeys(("empty_rows", "edge_share", "agreement"), (0.0, 1.0)),
    **dict.fromkeys(("first_reach", "z_reach", "noise", "rows_noise", "edges_per_node"), (0.0, MOST)),
    **{"edge_middle": (-MOST, MOST), "temperature": (TINY, MOST)},
    **dict.fromkeys(("nodes", "noise_nodes"), (1.0, 2.0**62)),
}
"""The range of each number on a card; larger ones could not be computed with."""

SHARES = ("prior", "pairs", "soft_pairs")
ROUNDING = 0.01  # of shares in half precision
SHOWN = 10  # classes in the text
WHOLE = "the model itself"


@dataclass(frozen=True, eq=False)
class SourceCard:
    """What a model saw when it was trained, in a few kilobytes, without a single row of the training graph.

    Args:
        column_mean: Mean of each feature column.
        column_min: Smallest value of each column.
        column_max: Largest value of each column.
        row_low: Smallest value of each of the :data:`~graphmend.cards.rows.ROW_STATISTICS`, empty rows aside.
        row_high: Largest value of the same.
        empty_rows: Share of the rows without any entry.
        first_mean: Mean of the first layer's output before any activation.
        first_std: Standard deviation of the same.
        first_centres: The kinds of nodes in the first layer, see :mod:`graphmend.cards.prototypes`.
        first_reach: The distance from the nearest of them that 95 % of the held-out nodes have at most.
        rows_mean: Mean of the feature rows, projected to a few columns (:func:`graphmend.cards.rows.projected`).
        rows_std: Standard deviation of the same.
        rows_noise: The largest distance of the moments of half of the rows from those of all.
        z_centres: The kinds of nodes in the embedding.
        z_reach: As ``first_reach``.
        z_mean: Mean of the embedding.
        z_std: Standard deviation of the embedding.
        centroids: Mean of the standardised embedding per predicted class; NaN for a class never predicted.
        prior: Share of each predicted class.
        pairs: Share of the edges that lead from one predicted class to another, ``(classes, classes)``.
        soft_pairs: The same with the probabilities of the classes at both ends instead of the predicted ones.
        edge_grid: Quantiles of the three views of an edge, see :mod:`graphmend.cards.edges`.
        edge_middle: The median of the edges' fit.
        edge_share: The share of the edges that fit at least as well as that.
        agreement: Share of the nodes whose prediction is also the class of the nearest centroid.
        temperature: Divides logits so that probabilities are calibrated.
        noise: The largest distance of the moments of half of the nodes from those of all, or of one of several
            training graphs from the others.
        noise_nodes: The number of nodes in such a half.
        nodes: Nodes of the training graph.
        edges_per_node: Stored edges per node.
        model: Digest of the model's weights, the same in every floating-point type that holds them exactly.
        first_layer: The module whose output is the first layer, as in ``convs.0``; ``convs.0#2`` is its second call.
        first_norm: The batch normalisation that is given this output, if there is one.
        z_layer: The module whose input is the embedding, ``""`` being the model itself; ``None`` if it comes from the
            model's own ``embed`` method.
        z_is_output: Whether the embedding is the output of that module instead.
        z_tail: Modules that the embedding is sent through afterwards.
        embedding: Name of the module whose output is the embedding, if one was named.
        output: Which part of what the model returns has the scores, if it returns several.
        task: What the model's rows are. If nodes have no predicted classes, the kinds of nodes in the embedding take
            their place in ``centroids``, ``prior``, ``pairs`` and ``soft_pairs``.
        moves: For numbers, by how much each has to move to count as changed.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> graphmend.card(model, data).save("wine.card.safetensors")
        >>> card = graphmend.SourceCard.load("wine.card.safetensors")
        >>> card.nodes, tuple(card.pairs.shape)
        (178, (3, 3))
        >>> print(card.markdown("wine.card.safetensors").splitlines()[0])
        ## Source card
    """

    column_mean: Tensor
    column_min: Tensor
    column_max: Tensor
    row_low: Tensor
    row_high: Tensor
    empty_rows: float
    first_mean: Tensor
    first_std: Tensor
    first_centres: Tensor
    first_reach: float
    rows_mean: Tensor
    rows_std: Tensor
    rows_noise: float
    z_mean: Tensor
    z_std: Tensor
    z_centres: Tensor
    z_reach: float
    centroids: Tensor
    prior: Tensor
    pairs: Tensor
    soft_pairs: Tensor
    edge_grid: Tensor
    edge_middle: float
    edge_share: float
    agreement: float
    temperature: float
    noise: float
    noise_nodes: int
    nodes: int
    edges_per_node: float
    model: str
    first_layer: str
    first_norm: str | None
    z_layer: str | None
    z_is_output: bool
    z_tail: list[str]
    embedding: str | None = None
    output: str | int | None = None
    task: str = "classes"
    moves: list[float] = field(default_factory=list)

    @property
    def known_task(self) -> Task:
        """What the model's rows are."""
        return Task.of(self.task, tuple(self.moves))

    @property
    def taps(self) -> Taps:
        """Where the first layer and the embedding come from in the model, on every graph."""
        first_layer = FirstLayer(Tap(Call.of(self.first_layer), output=True), self.first_norm)
        tail = tuple(Call.of(call) for call in self.z_tail)
        if self.z_layer is None:
            return Taps(first_layer, OwnEmbed())
        return Taps(first_layer, Tap(Call.of(self.z_layer), self.z_is_output, tail))

    @property
    def first(self) -> Moments:
        """The moments of the first layer."""
        return Moments(self.first_mean, self.first_std)

    @property
    def z(self) -> Moments:
        """The moments of the embedding."""
        return Moments(self.z_mean, self.z_std)

    @property
    def rows(self) -> Moments:
        """The moments of the projected feature rows."""
        return Moments(self.rows_mean, self.rows_std)

    def first_mix(self, first: Tensor) -> Mix:
        """How the kinds of nodes that the model knows make up a graph, according to its first layer there."""
        return Prototypes(self.first_centres, self.first_reach).mix(first, self.first)

    def z_mix(self, z: Tensor) -> Mix:
        """The same from its embedding."""
        return Prototypes(self.z_centres, self.z_reach).mix(z, self.z)

    @property
    def homophily(self) -> float:
        """The share of edges between nodes of the same predicted class."""
        return float(self.pairs.diagonal().sum())

    def nearest_class(self, z: Tensor) -> Tensor:
        """The class whose centroid is nearest to each row of an embedding."""
        units = self.z_mean.numel()
        require(
            z.size(1) == units,
            f"the embedding has {z.size(1)} units, but {units} on the source card; name the module it was made with",
        )
        return nearest_centroid(z, self.centroids, self.z)

    def relative_density(self, data: Data) -> float:
        """Edges per node of a graph, relative to the training graph."""
        per_node: float = data.edge_index.size(1) / data.x.size(0)
        return per_node / max(self.edges_per_node, 1e-12)

    def noise_for(self, nodes: int) -> float:
        """How far the moments of a graph with this number of nodes may be from the card's by chance."""
        return self.noise * self._growth(nodes)

    def rows_noise_for(self, nodes: int) -> float:
        """How far the moments of the feature rows may be from the card's by chance."""
        return self.rows_noise * self._growth(nodes)

    def _growth(self, nodes: int) -> float:
        return max(1.0, math.sqrt(self.noise_nodes / max(1, nodes)))

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything on the card by name: the tensors, and the rest, which goes into JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        return tensors, {name: value for name, value in values.items() if name not in tensors}

    def to(self, device: torch.device, dtype: torch.dtype) -> SourceCard:
        """The same card on a device, in a floating-point type."""
        moved: dict[str, Any] = {name: value.to(device, dtype) for name, value in self.parts()[0].items()}
        return replace(self, **moved)

    def check(self, model: nn.Module, data: Data) -> None:
        """Raise unless the card belongs to this model and the graph has the columns it was made with."""
        columns = self.column_mean.numel()
        require(
            data.x.size(1) == columns,
            f"the source card is of a graph with {columns} feature columns, this graph has {data.x.size(1)}; "
            "make a card from the graph the model was trained on",
        )
        self.check_model(model)

    def check_model(self, model: nn.Module) -> None:
        """Raise unless the card belongs to this model."""
        require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
        require(
            model_digest(model) == self.model,
            "the source card belongs to another model, or this one was trained further; "
            "make a new one with graphmend.card(model, train_data)",
        )
        missing = self._missing_in(unwrapped(model))
        require(
            not missing,
            f"the source card was made with {listed(missing)}, which the model no longer has; "
            "make a new one with graphmend.card(model, train_data)",
        )

    def _missing_in(self, model: nn.Module) -> list[str]:
        """The modules that the first layer and the embedding come from and that the model does not have."""
        calls = [self.first_layer, *self.z_tail, *([] if self.z_layer is None else [self.z_layer])]
        names = [Call.of(call).name for call in calls] + ([] if self.first_norm is None else [self.first_norm])
        modules = dict(model.named_modules())
        missing = [f"the module {name!r}" for name in dict.fromkeys(names) if name not in modules]
        has_embed = self.z_layer is not None or callable(getattr(model, "embed", None))
        return missing if has_embed else [*missing, "an embed method"]

    def summary(self) -> str:
        """What is on the card, in a few lines."""
        size = sum(tensor.numel() for tensor in self.parts()[0].values())
        kinds = self.prior.numel()
        first_line = (
            f"{kinds} classes" if self.known_task.has_node_classes else f"the task {self.task}, {kinds} kinds of nodes"
        )
        shares = ", ".join(f"{100 * float(p):.0f} %" for p in self.prior)
        shown = (
            f"predicted classes: {shares}; temperature {self.temperature:.2f}"
            if self.known_task.has_node_classes
            else None
        )
        return "\n".join(
            (
                f"source card of {self.nodes} nodes, {self.column_mean.numel()} feature columns, "
                f"{first_line} ({4 * size / 1024:.0f} kB, no rows of the training graph)",
                f"first layer: {self.first_layer}, {self.first_mean.numel()} units, noise level {self.noise:.3f} "
                f"(for graphs of {self.noise_nodes} nodes or more)",
                *([] if shown is None else [shown]),
                f"edges: {self.edges_per_node:.1f} per node, {100 * self.homophily:.0f} % within a {self._kind}",
            )
        )

    def __repr__(self) -> str:
        return text_lines(self._title, self._rows())

    def _repr_html_(self) -> str:
        return html_table(self._title, self._rows())

    def markdown(self, file: str = "model.card.safetensors") -> str:
        """A section for the page of a model (a *model card*, as on Hugging Face): what the model is used to.

        Args:
            file: The file in which this card is kept, for the line that says how to use it.
        """
        columns, spread = self.column_mean.numel(), [float(self.column_min.min()), float(self.column_max.max())]
        rows = [
            ("training graph", f"{self.nodes:,} nodes, {self.edges_per_node:.1f} edges per node"),
            ("feature columns", f"{columns}, with values from {spread[0]:.3g} to {spread[1]:.3g}"),
            *((name, value) for name, value in self._rows() if name != "edges"),
            ("edges", f"{100 * self.homophily:.0f} % within a {self._kind}"),
            ("weights", f"the card belongs to those with the digest {self.model[:16]}"),
        ]
        call = f"```python\nresult = graphmend.mend(model, data, card={json.dumps(file)})\n```"
        about = (
            "What the model is used to, seen from its first layer and its embedding; no row of the training graph is "
            f"in it. `{file}` has the card itself, with which a graph can be compared and mended:"
        )
        return "\n\n".join(("## Source card", about, call, markdown_table(rows))) + "\n"

    @property
    def _title(self) -> str:
        size = 4 * sum(tensor.numel() for tensor in self.parts()[0].values()) / 1024
        columns, kinds = self.column_mean.numel(), self.prior.numel()
        classes_text = f"{kinds} classes" if self.known_task.has_node_classes else f"task {self.task}"
        return f"SourceCard of {self.nodes:,} nodes, {columns} feature columns, {classes_text} ({size:.0f} kB)"

    def _rows(self) -> list[tuple[str, str]]:
        shares = [f"{100 * float(share):.0f} %" for share in self.prior[:SHOWN]]
        more = ["..."] if self.prior.numel() > SHOWN else []
        layer, units = self.first_layer or WHOLE, self.first_mean.numel()
        z_layer = "the model's own embed" if self.z_layer is None else self.embedding or self.z_layer or WHOLE
        return [
            ("first layer", f"{layer}, {units} units, noise level {self.noise:.3f}"),
            ("embedding", f"{z_layer}, {self.z_mean.numel()} units"),
            ("classes", f"predicted for {', '.join(shares + more)} of the nodes; temperature {self.temperature:.2f}")
            if self.known_task.has_node_classes
            else ("kinds of nodes", f"{self.prior.numel()}, which stand in for predicted classes"),
            ("edges", f"{self.edges_per_node:.1f} per node, {100 * self.homophily:.0f} % within a {self._kind}"),
        ]

    @property
    def _kind(self) -> str:
        return "predicted class" if self.known_task.has_node_classes else "kind of nodes"

    def save(self, path: str | Path) -> None:
        """Write as safetensors with a JSON header, atomically."""
        tensors, numbers = self.parts()
        header = {"format": FORMAT, "numbers": numbers, "summary": self.summary()}
        write_safetensors(path, tensors, {"graphmend": json.dumps(header)})

    @classmethod
    def of(cls, card: SourceCard | str | PathLike[str]) -> SourceCard:
        """A card, or the one in a file."""
        if isinstance(card, (str, PathLike)):
            return cls.load(Path(card))
        require(
            isinstance(card, SourceCard), f"card must be a graphmend.SourceCard or its file (got {type(card).__name__})"
        )
        return card

    @classmethod
    def load(cls, path: str | Path) -> SourceCard:
        """Read a card written by :meth:`save`."""
        tensors, metadata = read_safetensors(path)
        try:
            written = {"kind": "source card", "written_by": "'graphmend card'", "remedy": "make it again"}
            numbers = read_header(path, metadata, FORMAT, **written)["numbers"]
        except (KeyError, RecursionError) as error:
            raise GraphMendError(
                f"the source card {path} is incomplete ({first_line(error)}); make it again"
            ) from error
        return cls.of_parts(tensors, numbers, path)

    @classmethod
    def of_parts(cls, tensors: dict[str, Tensor], numbers: dict[str, Any], path: str | Path) -> SourceCard:
        """A card from its :meth:`parts`, which come from a file."""
        try:
            values: dict[str, Any] = {**tensors, **numbers}
            made = cls(**values)
        except (KeyError, TypeError, RecursionError) as error:
            raise GraphMendError(
                f"the source card {path} is incomplete ({first_line(error)}); make it again"
            ) from error
        wrong = made._inconsistent()
        require(not wrong, f"the source card {path} is damaged: {listed(wrong)} cannot be right; make it again")
        return made

    def _inconsistent(self) -> list[str]:
        """The names of invalid parts: of a wrong type, or of a shape that does not fit the others."""
        types = {
            "Tensor": (Tensor,),
            "float": (int, float),
            "int": (int,),
            "bool": (bool,),
            "str": (str,),
            "list[str]": (list,),
            "list[float]": (list,),
            "str | None": (str, type(None)),
            "str | int | None": (str, int, type(None)),
        }
        wrong = [f.name for f in fields(self) if type(getattr(self, f.name)) not in types[str(f.type)]]
        if not wrong and not all(type(call) is str for call in self.z_tail):
            wrong = ["z_tail"]
        if not wrong and not all(type(move) is float for move in self.moves):
            wrong = ["moves"]
        if not wrong and self.task not in TASKS:
            wrong = ["task"]
        if wrong:
            return wrong
        columns, units, z = (t.numel() for t in (self.column_mean, self.first_mean, self.z_mean))
        rows, classes = self.row_low.numel(), self.prior.numel()
        shapes: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("column_mean", "column_min", "column_max"), (columns,)),
            **dict.fromkeys(("row_low", "row_high"), (rows,)),
            **dict.fromkeys(("first_mean", "first_std"), (units,)),
            **dict.fromkeys(("z_mean", "z_std"), (z,)),
            **dict.fromkeys(("rows_mean", "rows_std"), (self.rows_mean.numel(),)),
            **{"first_centres": (*self.first_centres.shape[:1], units), "z_centres": (*self.z_centres.shape[:1], z)},
            **dict.fromkeys(("pairs", "soft_pairs"), (classes, classes)),
            **{"centroids": (classes, z), "prior": (classes,), "edge_grid": (3, *self.edge_grid.shape[1:2])},
        }
        tensors = self.parts()[0]
        wrong = [name for name, shape in shapes.items() if tuple(tensors[name].shape) != shape]
        wrong += [name for name, value in tensors.items() if value.dtype not in FLOATS or value.numel() == 0]
        known = ~self.centroids.isnan().all(1) if not wrong else torch.zeros(0, dtype=torch.bool)
        if wrong or not bool(known.any()):
            return wrong or ["centroids"]
        wrong = [name for name, (low, high) in RANGES.items() if not low <= as_float(getattr(self, name)) <= high]
        wrong += [name for name, value in tensors.items() if name != "centroids" and not is_finite(value)]
        wrong += [] if is_finite(self.centroids[known]) else ["centroids"]
        wrong += [name for name in SHARES if tensors[name].min() < 0 or tensors[name].max() > 1 + ROUNDING]
        return wrong + [name for name in tensors if name.endswith("_std") and tensors[name].min() < 0]


def nearest_centroid(rows: Tensor, centroids: Tensor, unit: Moments | None = None) -> Tensor:
    """The nearest centroid of each row, among the classes that were predicted at all, whose centroids are not NaN.

    Args:
        rows: The rows.
        centroids: Of each class.
        unit: The mean and spread in whose units the centroids are; the rows are in them already without these.
    """
    is_missing, known = centroids.isnan().all(1), widened(centroids.nan_to_num(nan=0.0))
    blocks = in_blocks(rows, known.size(0))
    distances = (torch.cdist(widened(in_units(block, unit)), known) for block in blocks)
    return torch.cat([distance.masked_fill_(is_missing, torch.inf).argmin(1) for distance in distances])
