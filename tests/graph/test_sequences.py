"""Lists, tuples and NumPy arrays of edges, cut and put together again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.graph.edge_lists import edge_sequences, lengthened, merged, removed_entries, selected

FORMS: list[Any] = [
    list,
    tuple,
    lambda v: np.array(v, dtype=np.int32),
    lambda v: np.array([[i, i] for i in v]).reshape(-1, 2),
]


@pytest.mark.parametrize("form", FORMS, ids=["list", "tuple", "array", "rows"])
@given(st.lists(st.booleans(), max_size=8), st.integers(0, 3))
def test_what_was_cut_out_fits_again(form: Any, flags: list[bool], more: int) -> None:
    value, gone = form(list(range(len(flags)))), np.array(flags, dtype=bool)
    kept, cut = selected(value, ~gone), removed_entries(value, gone, None)
    assert type(kept) is type(value) and len(kept) == (~gone).sum() and len(cut) == gone.sum()
    if not (isinstance(value, np.ndarray) and value.ndim == 2):
        kept = lengthened("a", kept, more)
        assert len(kept) == (~gone).sum() + more
    whole = merged(kept, cut, gone)
    assert type(whole) is type(value) and np.array_equal(whole, value)
    listed = cut.tolist() if isinstance(cut, np.ndarray) else cut
    assert np.array_equal(merged(kept, listed, gone), value), "as it comes back from a file"


def test_too_few_or_unfit_entries_are_refused() -> None:
    gone = np.array([True, False, True])
    for kept, cut in (([1], [2]), ([], [1, 2]), ("ab", [1, 2]), (None, [1, 2]), ([1], None)):
        with pytest.raises(GraphMendError, match="too few entries"):
            merged(kept, cut, gone)
    with pytest.raises(GraphMendError, match="do not fit"):
        merged(np.array([1]), ["a", "b"], gone)
    with pytest.raises(GraphMendError, match="one sequence per graph"):
        merged([[1]], [[1], [2]], gone, [0, 1, 3])


def test_which_attributes_have_one_entry_per_edge() -> None:
    data = Data(x=torch.rand(2, 1), edge_index=torch.tensor([[0, 1, 0], [1, 0, 0]]))
    data.a, data.b, data.c, data.d, data.e = [1, 2, 3], (1, 2, 3), np.zeros((3, 2)), [1, 2], np.zeros((2, 3))
    data.f, data.g = "abc", np.array(3)
    assert sorted(edge_sequences(data)) == ["a", "b", "c"]
