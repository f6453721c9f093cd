"""
Several types of nodes
======================

A ``HeteroData`` and its model are mended with the same calls, one type of nodes at a time, with one patch for the whole.
"""

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

import graphmend


def library(seed):
    """Papers that cite papers, mostly of their own field, and authors who write in one."""
    rng = torch.Generator().manual_seed(seed)
    fields = {"paper": torch.randint(3, (200,), generator=rng), "author": torch.randint(3, (80,), generator=rng)}
    data = HeteroData()
    for kind, field in fields.items():
        data[kind].x = F.one_hot(field, 5).float() + torch.randn(len(field), 5, generator=rng)
    data["paper"].y, data["paper"].train_mask = fields["paper"], torch.rand(200, generator=rng) < 0.5
    for kind, relation in (("author", "writes"), ("paper", "cites")):
        alike = fields[kind].unsqueeze(1) == fields["paper"]
        chosen = alike & (torch.rand(alike.shape, generator=rng) < 0.08)
        data[kind, relation, "paper"].edge_index = chosen.nonzero().t().contiguous()
    return T.ToUndirected()(data)


class SAGE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


train = library(0)
torch.manual_seed(0)
model = to_hetero(SAGE(), train.metadata())
with torch.no_grad():
    model(train.x_dict, train.edge_index_dict)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
known = train["paper"].train_mask
for _ in range(60):
    optimizer.zero_grad()
    scores = model(train.x_dict, train.edge_index_dict)["paper"]
    F.cross_entropy(scores[known], train["paper"].y[known]).backward()
    optimizer.step()

# %%
# One card for the whole, with a part for each type of nodes.

card = graphmend.card(model, train)

# %%
# Today, a fourth of the authors come from a source that counts in another unit.

today = library(1)
today["author"].x[:20] *= 50
result = graphmend.mend(model, today, card=card)
print(result.verdict)
print(result.compare(today["paper"].y))
assert result.patch.nodes["author"].num_rows == 20

# %%
# What was done to each type:

for kind, parts in result.by_type.items():
    for part in parts:
        print(f"{kind:8}", part.patch.summary())
