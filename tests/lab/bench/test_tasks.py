"""Tasks on harmed graphs: numbers that can be had in another way."""

from __future__ import annotations

import numpy as np
import pytest

from graphmend.lab.bench.execute import execute
from graphmend.lab.bench.recipes import adapt_run, attack_run, stats_run, train_run, transfer_run
from graphmend.lab.bench.store import Result, Run, Store
from graphmend.lab.data import embedded

FEW = {"name": "erm", "epochs": 3}
GTRANS = {"name": "gtrans", "steps": 3, "surrogate_weight": 0.1, "lr_feature": 0.5, "validation": "val_mask"}
TARGETS = {name: train_run("wine", name, 0, FEW) for name in ("gcn", "airgnn")}
ATTACK = attack_run(TARGETS["gcn"], 0.2, epochs=3, block_size=2000, nodes="all")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


def done(store: Store, *runs: Run) -> list[Result]:
    assert execute(runs, store).failed == 0
    return [store.require(run) for run in runs]


def slow_stats(edge_index: np.ndarray, y: np.ndarray, x: np.ndarray) -> tuple[int, float, float]:
    """Number of edges, homophily and mean cosine, edge by edge."""
    same, cosines = [], []
    for i, j in edge_index.T:
        same.append(y[i] == y[j])
        cosines.append(x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j]))
    return len(same), float(np.mean(same)), float(np.mean(cosines))


def test_the_statistics_of_a_clean_graph_are_those_of_its_edges(store: Store) -> None:
    data = embedded("wine").test[0]
    (stats,) = done(store, stats_run(TARGETS["gcn"]))
    edges, homophily, similarity = slow_stats(data.edge_index.numpy(), data.y.numpy(), data.x.double().numpy())
    assert stats["edges"] == edges and stats["homophily"] == pytest.approx(homophily)
    assert stats["feature_similarity"] == pytest.approx(similarity)
    assert stats["edges_added"] == stats["edges_removed"] == 0


def test_every_flip_of_an_attack_is_two_entries(store: Store) -> None:
    train = TARGETS["gcn"]
    clean, attacked, mended, attack = done(
        store,
        stats_run(train),
        stats_run(train, attack=ATTACK),
        stats_run(train, {"name": "jaccard", "threshold": 0.9}, attack=ATTACK),
        ATTACK,
    )
    assert attacked["edges_added"] + attacked["edges_removed"] == 2 * attack["flips"] > 0
    assert attacked["edges"] == clean["edges"] + attacked["edges_added"] - attacked["edges_removed"]
    assert attacked["adversarial_removed"] == 0 < mended["adversarial_removed"] <= 1
    assert mended["edges"] < attacked["edges"]


def test_an_attack_on_all_nodes_is_another_attack(store: Store) -> None:
    test_nodes = attack_run(TARGETS["gcn"], 0.2, epochs=3, block_size=2000)
    assert test_nodes != ATTACK
    done(store, test_nodes, ATTACK)
    first, second = (store.artefact(run, ".npz").read_bytes() for run in (test_nodes, ATTACK))
    assert first != second


def test_models_on_an_unmended_graph_score_as_they_do_by_themselves(store: Store) -> None:
    transfer = transfer_run(TARGETS["gcn"], TARGETS, abnormal=0.3)
    result, *own = done(store, transfer, *(adapt_run(run, abnormal=0.3) for run in TARGETS.values()))
    assert result["scores"] == pytest.approx({name: alone["score"] for name, alone in zip(TARGETS, own, strict=True)})


def test_a_model_on_its_own_mended_graph_scores_as_after_adapting(store: Store) -> None:
    for name, train in TARGETS.items():
        transfer, adapt = done(
            store, transfer_run(train, TARGETS, GTRANS, abnormal=0.3), adapt_run(train, GTRANS, abnormal=0.3)
        )
        assert transfer["scores"][name] == pytest.approx(adapt["score"])
