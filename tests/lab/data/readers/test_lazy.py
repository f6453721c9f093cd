from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch
from torch_geometric.data import Data

from graphmend.lab.data.readers.lazy import LazyGraphs


def test_lazy_graphs_are_lists_that_build_on_demand() -> None:
    built: list[int] = []

    def builder(index: int) -> Callable[[], Data]:
        def build() -> Data:
            built.append(index)
            return Data(x=torch.full((2, 1), float(index)))

        return build

    kept, passing = (LazyGraphs([builder(i) for i in range(3)], keep=keep) for keep in (True, False))
    assert isinstance(kept, list) and len(kept) == 3 and bool(kept) and not built
    assert kept[1] is kept[-2] and built == [1]
    assert [int(data.x[0]) for data in passing] == [0, 1, 2] and built == [1, 0, 1, 2]
    held = passing[2]
    assert passing[2] is held and built == [1, 0, 1, 2, 2]
    del held
    assert int(passing[2].x[0]) == 2 and len(built) == 6
    assert [int(data.x[0]) for data in [*kept[1:], *reversed(kept)]] == [1, 2, 2, 1, 0]
    assert len(kept + kept) == len(list(kept) + kept) == 6 and type(list(kept)) is list
    copied = pickle.loads(pickle.dumps(kept))
    assert type(copied) is list and len(copied) == 3
    with pytest.raises(IndexError):
        kept[3]
    assert "3 graphs" in repr(kept) and kept != passing
