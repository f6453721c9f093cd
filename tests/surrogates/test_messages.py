"""What surrogates cannot work with is named, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans, UnsupportedLayerError
from graphmend.cards import card
from graphmend.lab.backbones import GCN
from graphmend.surrogates import ADGCL, SLAPS, SURROGATES, Contrastive, Entropy, Moments, Supervised, surrogate_of
from graphmend.surrogates.adgcl import info_nce
from support.graphs import directed
from support.sample_models import basic, seeded
from support.surrogate_cases import IN, OUT, N, graph, model, some, training_graph


def with_labels(y: Any) -> Data:
    data = graph()
    data.y = y
    return data


def of_other_width() -> Any:
    with FrozenGNN(model(), graph()) as frozen:
        return Moments(card(GCN(IN, 7, OUT).double(), graph(), task="classes"))(frozen, graph())


def bad_function(value: Any) -> Any:
    return surrogate_of(lambda model, data: value)(model(), graph())


LONELY = Data(x=graph().x[:1], edge_index=torch.zeros(2, 1, dtype=torch.long))
NO_MASK = torch.zeros(N, dtype=torch.bool)
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    # which surrogate
    "unknown": (lambda: surrogate_of("constrastive"), "'constrastive'.*" + ".*".join(sorted(SURROGATES))),
    "slaps by name": (lambda: GTrans("slaps"), r"SLAPS\.fit\(train_data"),
    "moments by name": (lambda: surrogate_of("moments"), r"Moments\(graphmend\.card\("),
    "supervised by name": (lambda: surrogate_of("supervised"), r"Supervised\(mask\)"),
    "no surrogate": (lambda: surrogate_of(3), "got 3"),  # type: ignore[arg-type]
    "a function of a float": (lambda: bad_function(3.0), "one number"),
    "a function of nothing": (lambda: bad_function(None), "one number"),
    "a function of many numbers": (lambda: bad_function(torch.ones(2, 1)), "one number"),
    **{
        f"factor {factor!r}": (lambda factor=factor: Contrastive().__mul__(factor), "factor must be a finite number")
        for factor in ("x", None, True, 1j, float("nan"), float("inf"), torch.ones(2), np.ones(2))
    },
    # its settings
    **{f"Entropy({n!r})": (lambda n=n: Entropy(n), f"nodes .*{n!r}") for n in (0, -1, 2.5, "all")},
    **{
        f"ADGCL({name})": (lambda name=name: ADGCL(**{name: -1}), f"{name} .*got -1")
        for name in ("batch_size", "hidden_channels", "steps", "lr", "temperature", "regularisation")
    },
    **{
        f"SLAPS.fit({name})": (lambda name=name, bad=bad: SLAPS.fit(training_graph(), **{name: bad}), f"{name} .*{bad}")
        for name, bad in {"mask_ratio": 0.0, "epochs": 0, "lr": float("nan"), "hidden_channels": 0}.items()
    },
    "SLAPS of a graph": (lambda: SLAPS(training_graph()), r"got Data.*SLAPS\.fit"),  # type: ignore[arg-type]
    "SLAPS without features": (lambda: SLAPS.fit(Data(edge_index=torch.tensor([[0], [1]]))), "no feature tensor x"),
    "Moments of a file": (lambda: Moments("card.safetensors"), r"got str.*graphmend\.card"),  # type: ignore[arg-type]
    "Supervised by nodes": (lambda: Supervised(torch.arange(3)), r"mask\[2\] = 2"),
    "Supervised of two masks": (lambda: Supervised(torch.ones(N, 2, dtype=torch.bool)), r"mask\[:, 0\]"),
    "Supervised of nobody": (lambda: Supervised(NO_MASK), "marks no node"),
    # the model and the graph
    "ADGCL unprepared": (lambda: ADGCL()(model(), graph()), r"ADGCL\(\)\.prepare\(model, data\)"),  # type: ignore[arg-type]
    "ADGCL of one node": (lambda: GTrans("adgcl", edge_steps=0)(model(), LONELY), "graph has 1; use another"),
    "InfoNCE of one node": (lambda: info_nce(torch.ones(1, 2), torch.ones(1, 2), 0.2, 10), "use another surrogate"),
    "SLAPS of another width": (
        lambda: SLAPS.fit(Data(x=torch.rand(5, 3), edge_index=directed(5)))(model(), graph()),
        f"{IN} feature columns .* had 3",
    ),
    "Moments of a bare model": (
        lambda: Moments(card(model(), graph(), task="classes"))(model(), graph()),
        "first layer.*wrap",
    ),  # type: ignore[arg-type]
    "Moments of another model": (of_other_width, "8 columns, but 7"),
    "Supervised of another size": (lambda: Supervised(some()[:5])(model(), graph()), f"{N} in all"),
    "no labels": (lambda: Supervised(some())(model(), with_labels(None)), "no y"),
    "a label too high": (lambda: Supervised(some())(model(), with_labels(graph().y + 1)), f"got 1..{OUT}"),
    "a label too low": (lambda: Supervised(some())(model(), with_labels(graph().y - 1)), r"got -1\.\."),
    "two labels per node": (
        lambda: Supervised(some())(model(), with_labels(graph().y.view(-1, 1).expand(-1, 2))),
        r"\(12, 2\)",
    ),
}


@pytest.mark.parametrize(("call", "said"), CASES.values(), ids=CASES)
def test_what_it_cannot_work_with_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(GraphMendError, match=said):
        call()


def test_a_layer_that_knows_no_weights_is_named_before_any_work() -> None:
    """AD-GCL drops edges in part."""
    with pytest.raises(UnsupportedLayerError, match=r"ADGCL .*use the surrogate"):
        GTrans("adgcl", edge_steps=0)(seeded(lambda: basic("PNA", num_layers=2)), graph(torch.float32))
