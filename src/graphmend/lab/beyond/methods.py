"""What may be done to a graph before the frozen model predicts on it.

A method is a function ``(model, data, card, seed) -> Adaptation``. It sees a graph without the labels that are scored:
``y`` is there only where training or validation nodes lie in the graph, and is -1 elsewhere. The card is made once per
source from :func:`graphmend.lab.beyond.targets.training_graphs`.

To add one, put it into :data:`METHODS`. To change one, give it a new string in :data:`VERSIONS`: rows of another
version are measured again. Baselines that must know the set, the kind of harm or validation graphs are made for each
case (:mod:`graphmend.lab.beyond.baselines`).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch_geometric.data import Data

from graphmend import Adaptation, Gate, GraphMendError, Identity
from graphmend.adapters import Adapter, Align, Impute, Purify, Reweight
from graphmend.cards import SourceCard, card
from graphmend.lab.beyond.baselines import BASELINES, Case
from graphmend.lab.beyond.sources import Source
from graphmend.lab.beyond.targets import training_graphs

__all__ = ["METHODS", "VERSIONS", "Method", "card_of", "method_for", "names", "version_of"]

Method = Callable[[nn.Module, Data, SourceCard | None, int], Adaptation]


def _with_card(adapter: Adapter) -> Method:
    return lambda model, data, card, seed: adapter(model, data, card=card, seed=seed, task="classes")


def _without_card(adapter: Adapter) -> Method:
    return lambda model, data, card, seed: adapter(model, data, seed=seed, task="classes")


METHODS: dict[str, Method] = {
    "identity": _without_card(Identity()),
    "impute": _with_card(Impute()),
    "align": _with_card(Align()),
    "impute-align": _with_card(Impute() >> Align()),
    "purify": _with_card(Purify()),
    "reweight": _with_card(Reweight()),
    "gate": _with_card(Gate()),
    "gate-blind": _without_card(Gate()),
}
VERSIONS: dict[str, str] = {}
"""The version of a method, ``"1"`` if it is not here."""


def names() -> list[str]:
    """All methods, those of :data:`METHODS` first."""
    return [*METHODS, *BASELINES]


def version_of(name: str) -> str:
    """The version under which the rows of a method are stored."""
    return VERSIONS.get(name, "1")


def method_for(name: str, case: Case) -> Method | None:
    """A method for a case, or ``None`` if it is not meant for it."""
    return METHODS[name] if name in METHODS else BASELINES[name](case)


def card_of(source: Source, model: nn.Module) -> SourceCard | None:
    """The card of a source, on the device of its model; ``None``, and a line that says why, if it has none."""
    device = next(model.parameters()).device
    try:
        return card(model, [data.to(str(device)) for data in training_graphs(source)], seed=source.seed, task="classes")
    except GraphMendError as error:
        print(f"{source} has no card: {error}", flush=True)
        return None
