"""Edge attributes whose memory is laid out in any way lead to the same result, and come back as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GTrans, Patch
from support.sample_models import seeded

NODES, EDGES, WIDTH = 20, 60, 3


class WithAttributes(nn.Module):
    """Two layers that read the attributes of edges."""

    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.a, self.b = layer(4, 8, edge_dim=WIDTH), layer(8, 3, edge_dim=WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x, edge_index, edge_attr).relu(), edge_index, edge_attr)
        return out


def graph() -> Data:
    torch.manual_seed(3)
    edge_index = torch.unique(torch.randint(NODES, (2, EDGES)), dim=1)
    return Data(x=torch.randn(NODES, 4), edge_index=edge_index, edge_attr=torch.randn(edge_index.size(1), WIDTH))


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda attr: attr.t().contiguous().t(),
    "every other column": lambda attr: torch.stack([attr, attr], dim=2)[:, :, 0],
    "every other row": lambda attr: torch.stack([attr, attr], dim=1)[:, 0],
    "a later part": lambda attr: torch.cat([attr[:5], attr])[5:],
    "one row for all": lambda attr: attr[:1].expand_as(attr),
    "one column for all": lambda attr: attr[:, :1].expand_as(attr),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv], ids=lambda layer: layer.__name__)
def test_the_layout_in_memory_does_not_matter(layer: type[nn.Module], layout: str, tmp_path: object) -> None:
    model, strided, plain = seeded(lambda: WithAttributes(layer)), graph(), graph()
    strided.edge_attr = LAYOUTS[layout](strided.edge_attr)
    plain.edge_attr = strided.edge_attr.clone(memory_format=torch.contiguous_format)
    given, steps = strided.edge_attr, strided.edge_attr.stride()
    adapter = GTrans(steps=3, budget=3, feature_steps=1, edge_steps=2)
    found, expected = adapter(model, strided), adapter(model, plain)
    assert torch.equal(found.data.edge_attr, expected.data.edge_attr)
    torch.testing.assert_close(found.logits, expected.logits)
    found.patch.save(f"{tmp_path}/patch.safetensors")
    back = Patch.load(f"{tmp_path}/patch.safetensors").revert(found.data)
    assert torch.equal(back.edge_attr, plain.edge_attr) and back.edge_index.equal(plain.edge_index)
    assert strided.edge_attr is given and given.stride() == steps
