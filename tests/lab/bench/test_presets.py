"""Presets: every table fits the constructor it is meant for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphmend import GTrans
from graphmend.lab.bench import grid_points, preset, presets
from graphmend.lab.data import DATASETS

GTRANS = presets()["gtrans"]
BACKBONES = ("gcn", "sage", "gat", "gpr")


def test_released_values_are_those_of_the_release() -> None:
    assert preset("gtrans", "ood", "cora-ood", "gcn") == {
        "lr_feature": 1e-3,
        "lr_edge": 0.1,
        "steps": 5,
        "budget": 0.005,
    }
    assert preset("gtrans", "abnormal", "pubmed")["lr_feature"] == 1.0
    assert preset("gtrans", "attack", "common")["budget"] == 0.3


def gtrans_settings() -> Iterator[dict[str, Any]]:
    ood, abnormal, attack = GTRANS["ood"], GTRANS["abnormal"], GTRANS["attack"]
    for name in ood.keys() - {"grid", "losses", "common"}:
        yield from ({**ood["common"], **ood[name][backbone]} for backbone in BACKBONES)
    yield from ({**ood["common"], **point} for point in grid_points(ood["grid"]))
    yield from ({**abnormal["common"], **abnormal[name]} for name in ("cora", "citeseer", "pubmed", "arxiv"))
    yield from ({**attack["common"], **attack[mode]} for mode in ("paper", "released"))
    yield from ({**attack["common"], **attack["paper"], **point} for point in grid_points(attack["grid"]))
    yield from ({**abnormal["common"], **point} for point in grid_points(abnormal["grid"]))


def test_gtrans_takes_all_of_its_settings() -> None:
    for settings in gtrans_settings():
        settings.pop("surrogate_weight", None)
        GTrans(**settings)


def test_every_experiment_has_the_discrete_graphs_of_the_paper() -> None:
    assert {settings["candidates"] for settings in gtrans_settings()} == {"paper"}


def test_data_sets_exist() -> None:
    assert GTRANS["ood"].keys() - {"grid", "losses", "common"} <= DATASETS.keys()
    assert presets()["eerm"].keys() <= DATASETS.keys()


def test_a_caller_may_change_what_it_gets() -> None:
    preset("gtrans", "ood", "cora-ood", "gcn")["steps"] = 77
    assert preset("gtrans", "ood", "cora-ood", "gcn")["steps"] == 5
