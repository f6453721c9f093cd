"""One call, for one graph or for many."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from os import PathLike
from typing import Any, TypeAlias, Unpack, overload

from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Batch, Data, HeteroData

from graphmend.adapters.base import call
from graphmend.adapters.case import Options, check_options
from graphmend.adapters.registry import adapter_of
from graphmend.cards.make import card as make_card
from graphmend.cards.source_card import SourceCard
from graphmend.contracts import Adapter
from graphmend.errors import require
from graphmend.files.digest import unchanged
from graphmend.graph.batches import Graphs, are_several
from graphmend.graph.checks import check_order
from graphmend.graph.limits import Limits
from graphmend.hetero import HeteroAdaptation, HeteroCard, hetero_card, mend_hetero, read_any_card
from graphmend.model.call import Output
from graphmend.model.per_graph import has_row_per_graph
from graphmend.progress import track
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import Step
from graphmend.results.results import Failure, Results, without_locals
from graphmend.workers.shard_tasks import on_cluster

__all__ = ["Mend", "card", "mend", "mend_each"]

_LOG = logging.getLogger(__name__)

Method: TypeAlias = Adapter | Callable[..., Adaptation] | type | str | None
"""An adapter, a function, the class of an adapter, its name, or ``None`` for the gate."""
Several: TypeAlias = Sequence[Data] | Iterator[Data] | Dataset[Any] | DataLoader[Any] | Batch
"""What holds several graphs."""


@overload
def mend(
    model: nn.Module,
    data: Data,
    adapter: Method = None,
    *,
    source: Data | Several | None = None,
    ray: str | None = None,
    **options: Unpack[Options],
) -> Adaptation: ...


@overload
def mend(  # type: ignore[overload-cannot-match]  # here, where types of PyG are not looked at
    model: nn.Module,
    data: Several,
    adapter: Method = None,
    *,
    source: Data | Several | None = None,
    **options: Unpack[Options],
) -> Results: ...


@overload
def mend(  # type: ignore[overload-cannot-match]  # the same
    model: nn.Module,
    data: HeteroData,
    adapter: Method = None,
    *,
    source: HeteroData | Several | None = None,
    **options: Unpack[Options],
) -> HeteroAdaptation: ...


def mend(
    model: nn.Module,
    data: Data | Several | HeteroData,
    adapter: Method = None,
    *,
    source: Data | Several | None = None,
    ray: str | None = None,
    **options: Unpack[Options],
) -> Adaptation | Results | HeteroAdaptation:
    """Mend a graph for a frozen model, if there is something to mend: ``result = mend(model, data, card=card)``.

    Without an adapter the :class:`~graphmend.adapters.gate.Gate` decides what to do, and ``result.verdict`` says why.
    With a source card it sees far more; without one it acts only where the evidence is plain.

    Args:
        model: Any trained PyG module; it is left as it was.
        data: The test graph; it is left as it was. Missing features (NaN) are filled in the mended graph. Or several
            graphs: a list, a data set, a loader of graphs or a ``Batch``, each of which is mended by itself. For a
            model with one row per graph, a ``Batch`` is one graph. Or a ``HeteroData``, see
            :func:`graphmend.hetero.mend_hetero`, whose result has the same attributes.
        adapter: A method, instead of leaving the choice to the gate: ``GTrans(steps=20)``, ``GTrans`` or ``"gtrans"``.
        source: The graph the model was trained on, or several of them, to make a card from on the way.
        ray: Who works on the shards of a graph folder (:func:`graphmend.open_graph`): ``"local"`` starts a Ray
            on this machine, ``"auto"`` is the cluster that this machine is part of, and anything else the address of
            a cluster, which must be one that you trust.
        options: ``card`` (what the model saw in training, from :func:`graphmend.card`, or the file that holds it),
            ``limits``, ``seed``, ``progress``, ``callback``, ``mode``, ``output`` (which part of what the model returns
            has the scores: ``"logits"``, ``0``) and ``task`` (what the model's rows are, if that cannot be determined:
            ``"classes"``, ``"labels"``, ``"numbers"`` or ``"embedding"``), see :class:`graphmend.adapters.Adapter`.

    Returns:
        An :class:`~graphmend.Adaptation` with ``data`` (the mended graph), ``logits``, the reversible ``patch`` and the
        ``verdict``. For several graphs, :class:`~graphmend.Results`, a sequence of these; in the place of a graph that
        cannot be mended there is a :class:`~graphmend.Failure` with the reason. All of them are in memory:
        :func:`mend_each` yields one at a time.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> today = data.clone()
        >>> today.x[:5] *= 100
        >>> result = graphmend.mend(model, today, card=graphmend.card(model, data))
        >>> print(result.verdict)
        applied: 5 broken feature rows were repaired from their neighbours
    """
    check_order(model, data)
    batch = data if isinstance(data, Batch) else None
    is_one = batch is not None and has_row_per_graph(model, batch, options.get("output"))
    if ray is None and are_several(data) and not is_one:
        with unchanged(model):
            return Results(mend_each(model, data, adapter, source=source, **options), batch)
    method = adapter_of(adapter)
    with unchanged(model), on_cluster(data, ray, options.get("progress", False)) as graph:
        _make_card(model, source, method, options)
        result: Adaptation = _mended(method, model, graph, options)
        return result


def _mended(adapter: Any, model: nn.Module, data: Any, options: Options) -> Any:
    """The result of one graph, of whatever kind."""
    if isinstance(data, HeteroData):
        given: Any = options
        return mend_hetero(model, data, adapter, **given)  # which has cards and limits by type
    return call(adapter, model, data, **options)


def mend_each(
    model: nn.Module,
    graphs: Several,
    adapter: Method = None,
    *,
    source: Data | Several | None = None,
    **options: Unpack[Options],
) -> Iterator[Adaptation | Failure]:
    """Mend many graphs, one after the other: the result of each is yielded before the next graph is read.

    So only one graph is in memory, as long as the caller keeps no others. A problem with the model, the card or an
    option is an error at once; a problem with a graph becomes its :class:`~graphmend.Failure`, and the next graph
    follows. An exception in the caller's own ``callback`` ends everything. A progress bar counts graphs.

    Args:
        model: Any trained PyG module; it is left as it was.
        graphs: A list, a data set, a loader of graphs, a ``Batch`` or a generator of graphs.
        adapter: As in :func:`mend`.
        source: As in :func:`mend`.
        options: As in :func:`mend`. ``limits`` hold for every graph; those of a ``Batch`` mark its nodes and edges.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphmend import mend_each
        >>> import torch
        >>> from graphmend.lab.backbones import GCN
        >>> edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> days = (Data(x=torch.rand(4, 3), edge_index=edges) for day in range(2))
        >>> [result.decision for result in mend_each(GCN(3, 8, 2), days)]
        ['left alone', 'left alone']
    """
    check_order(model, graphs)
    require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
    kind = type(graphs).__name__
    require(are_several(graphs), f"graphs must be a list, a data set, a loader or a Batch of graphs (got {kind})")
    several, method = Graphs(graphs), adapter_of(adapter)
    check_options(options)
    limits, parts = options.get("limits"), list(several) if isinstance(graphs, Batch) else []
    each = limits.split([p.num_nodes for p in parts], [p.num_edges for p in parts]) if limits and parts else None
    _make_card(model, source, method, options)
    given: Any = options.get("card")
    if isinstance(given, (str, PathLike)):
        given = options["card"] = read_any_card(given)  # type: ignore[typeddict-item]  # once for all graphs
    if given is not None and not isinstance(given, HeteroCard):
        own = SourceCard.of(given)
        own.check_model(model)
        options["card"] = own
    return _each(model, several, method, options, each)


def _each(
    model: nn.Module, graphs: Graphs, adapter: Any, options: Options, limits: Sequence[Limits] | None
) -> Iterator[Adaptation | Failure]:
    watched = _Watched(options.get("callback"))
    if watched.callback is not None:
        options["callback"] = watched
    show = options.pop("progress", False)
    with closing(track(graphs, "graphs", show, graphs.number)) as bar:
        for index, data in enumerate(bar):
            if limits is not None:
                options["limits"] = limits[index]
            yield _result_or_failure(index, model, data, adapter, options, watched)


def _result_or_failure(
    index: int, model: nn.Module, data: Any, adapter: Any, options: Options, watched: _Watched
) -> Adaptation | Failure:
    if isinstance(data, Exception):
        return _failure(index, f"it cannot be read ({type(data).__name__}: {data})", data)
    _LOG.debug("graph %d", index)
    try:
        return _mended(adapter, model, data, options)  # type: ignore[no-any-return]
    except Exception as error:
        if error is watched.error:
            raise
        return _failure(index, str(error) or type(error).__name__, error, data)


def _failure(index: int, reason: str, error: Exception, data: Data | None = None) -> Failure:
    _LOG.warning("graph %d cannot be mended: %s", index, reason)
    return Failure(index, reason, without_locals(error), data)


class _Watched:
    """A callback that remembers its exception, which is meant for the caller and is not a failure of a graph."""

    def __init__(self, callback: Callable[[Step], None] | None) -> None:
        self.callback = callback
        self.error: Exception | None = None

    def __call__(self, step: Step) -> None:
        assert self.callback is not None
        try:
            self.callback(step)
        except Exception as error:
            self.error = error
            raise


def _make_card(model: nn.Module, source: Data | Several | None, adapter: Any, options: Options) -> None:
    """Put a card made from ``source`` among the options, if there is one."""
    if source is not None:
        given = options.get("card") is not None
        require(not given, "give a card or the source to make one from, not both")
        embedding, output, task = getattr(adapter, "embedding", None), options.get("output"), options.get("task")
        options["card"] = card(model, source, embedding=embedding, output=output, task=task)


def card(
    model: nn.Module,
    train_data: Data | Several,
    *,
    embedding: str | None = None,
    seed: int = 0,
    output: Output = None,
    task: str | None = None,
    ray: str | None = None,
    progress: bool = False,
) -> SourceCard:
    """A source card for a trained model: what its training graph looks like, seen from the model.

    Keep it beside the model. With it, :func:`mend` can distinguish a graph that has shifted from one that has not. See
    :func:`graphmend.cards.card` for details of the arguments. For a ``HeteroData``, or several of them, the result is a
    :class:`~graphmend.hetero.HeteroCard` with a card for each node type.

    Args:
        model: The trained model; it is left as it was.
        train_data: The graph it was trained on, or several of them.
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.
        seed: Seed of the random halves.
        output: Which part of what the model returns has the scores, see :func:`mend`.
        task: What the model's rows are, if the labels ``y`` of the graph do not say, see :func:`mend`.
        ray: Who works on the shards of a graph folder, see :func:`mend`.
        progress: Whether to show a bar over the shards that they work on.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> card = graphmend.card(model, data)
        >>> card.nodes, card.column_mean.numel(), card.task
        (178, 13, 'classes')
        >>> card.save("wine.card.safetensors")
    """
    first: Any = train_data[0] if isinstance(train_data, (list, tuple)) and len(train_data) > 0 else train_data
    if isinstance(first, HeteroData):
        options: Any = {"embedding": embedding, "seed": seed, "output": output, "task": task}
        return hetero_card(model, train_data, **options)  # type: ignore[return-value]
    with on_cluster(train_data, ray, progress) as graph:
        return make_card(model, graph, embedding=embedding, seed=seed, output=output, task=task)


def _batch(data: Data | Several) -> Batch | None:
    return data if isinstance(data, Batch) else None


class Mend:
    """:func:`mend` as a transform from graph to graph, for ``torch_geometric.transforms.Compose`` and data sets.

    It returns only the mended graph; call :func:`mend` if you need the verdict, the logits or the patch.

    Args:
        model: Any trained PyG module; it is left as it was.
        adapter: A method, its class or its name; ``None`` stands for the gate.
        options: ``card``, ``limits``, ``seed``, ``mode``, ``output`` and ``task``, as in :func:`mend`.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphmend import Mend
        >>> import torch
        >>> import torch_geometric.transforms as T
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> T.Compose([T.NormalizeFeatures(), Mend(GCN(3, 8, 2))])(data)
        Data(x=[4, 3], edge_index=[2, 3])
    """

    def __init__(self, model: nn.Module, adapter: Method = None, **options: Any) -> None:
        require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
        self.model, self.adapter, self.options = model, adapter_of(adapter), options
        if isinstance(options.get("card"), (str, PathLike)):
            options["card"] = read_any_card(options["card"])

    def __call__(self, data: Data) -> Data:
        """The mended graph; the input is left as it was."""
        return mend(self.model, data, self.adapter, **self.options).data

    def __repr__(self) -> str:
        return f"Mend({type(self.model).__name__}, {self.adapter!r})"
