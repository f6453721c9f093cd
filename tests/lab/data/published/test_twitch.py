"""The Twitch loader on small files in the published format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmend.errors import GraphMendError
from graphmend.graph.checks import check_graph
from graphmend.lab.data.published.twitch import COUNTRIES, twitch
from support.real_data import nowhere as nowhere_fixture

nowhere = nowhere_fixture


def write_twitch(folder: Path) -> None:
    for number, country in enumerate(COUNTRIES):
        place = folder / country
        place.mkdir(exist_ok=True)
        start = f"{country}/musae_{country}"
        rows = [
            "id,days,mature,views,partner,new_id",
            "77,1,True,5,False,2",
            "78,2,False,6,True,0",
            "79,3,True,1,False,1",
        ]
        if country == "FR":
            rows += ["79,3,True,1,False,1", "78,2,False,6,True,0"]
        (folder / f"{start}_target.csv").write_text("\n".join(rows) + "\n")
        (folder / f"{start}_edges.csv").write_text("from,to\n2,0\n0,1\n")
        lists = {"0": [3169, 5, 5], "2": [number], "1": []}
        (folder / f"{start}_features.json").write_text(json.dumps(lists))


def test_twitch(nowhere: Path) -> None:
    write_twitch(nowhere)
    splits = twitch(data_dir=nowhere)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [1, 1, 5]
    assert splits.metric == "roc_auc" and splits.task == "binary"
    for number, graph in enumerate([*splits.train, *splits.val, *splits.test]):
        check_graph(graph)
        assert graph.y.tolist() == [0, 1, 1]  # by new_id
        assert graph.edge_index.tolist() == [[2, 0], [0, 1]]  # as listed
        assert graph.x.shape == (3, 3170) and graph.x.nonzero().tolist() == [[0, 5], [0, 3169], [2, number]]
    both = twitch(data_dir=nowhere, undirected=True).train[0].edge_index
    assert both.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]


TWITCH_DAMAGE: dict[str, tuple[str, bytes, str]] = {
    "no column": ("target.csv", b"id,days,views\n1,2,3\n", "target.csv has no column 'mature' .its first line is"),
    "no edge column": ("edges.csv", b"from\n1\n", "edges.csv has no column 'to'"),
    "short line": ("edges.csv", b"from,to\n1\n", "edges.csv cannot be read as csv"),
    "node out of range": ("edges.csv", b"from,to\n1,3\n", "names node 3, but the nodes are 0 to 2"),
    "not a number": ("edges.csv", b"from,to\n1,x\n", "edges.csv cannot be read as csv .*'x'"),
    "not UTF-8": ("edges.csv", b"from,to\n1,\xff\xfe\n", "is not UTF-8 text"),
    "flag": ("target.csv", b"mature,new_id\nmaybe,0\n", "has mature = 'maybe', not True or False"),
    "numbering": ("target.csv", b"mature,new_id\nTrue,0\nTrue,7\n", "does not number its 2 nodes from 0"),
    "empty": ("target.csv", b"", "has no column 'mature'"),
    "no rows": ("target.csv", b"mature,new_id\n", "target.csv holds no rows"),
    "feature out of range": ("features.json", b'{"0": [3170]}', "names feature .3170., but they are 0 to 3169"),
    "feature node": ("features.json", b'{"9": [1]}', "names node 9"),
    "no JSON": ("features.json", b'{"0": [1', "is no JSON of feature lists"),
    "JSON list": ("features.json", b"[1]", "is no JSON of feature lists"),
    "features not UTF-8": ("features.json", b"\xff", "is not UTF-8 text"),
}


@pytest.mark.parametrize("kind, content, said", TWITCH_DAMAGE.values(), ids=TWITCH_DAMAGE.keys())
def test_damaged_twitch_files(nowhere: Path, kind: str, content: bytes, said: str) -> None:
    write_twitch(nowhere)
    (nowhere / f"ENGB/musae_ENGB_{kind}").write_bytes(content)
    with pytest.raises(GraphMendError, match=said) as caught:
        twitch(data_dir=nowhere)
    assert "delete the file and fetch it again" in str(caught.value)
