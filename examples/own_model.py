"""
A model and a graph of your own
===============================

Nothing here comes from GraphMend's own collection: a model is a plain ``torch.nn.Module``, a graph a PyTorch Geometric ``Data``.
"""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import graphmend

# %%
# A model is called as ``model(x, edge_index)``, or as ``model(data)``. It may be written as you like, and have been trained by anybody.


class Classifier(torch.nn.Module):
    def __init__(self, columns, classes):
        super().__init__()
        self.first = SAGEConv(columns, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.second = SAGEConv(32, classes)

    def forward(self, x, edge_index):
        hidden = F.dropout(self.norm(self.first(x, edge_index)).relu(), 0.3, self.training)
        return self.second(hidden, edge_index)


# %%
# A graph: 600 customers of three kinds, who mostly know customers of their own kind.


def customers(seed):
    rng = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (600,), generator=rng)
    spending = 2.0 * F.one_hot(kind, 8).float() + torch.randn(600, 8, generator=rng)
    likely = torch.where(kind[:, None] == kind[None], 0.02, 0.002)
    know = (torch.rand(600, 600, generator=rng) < likely).triu(1).nonzero().t()
    return Data(x=spending, edge_index=torch.cat([know, know.flip(0)], 1), y=kind)


train = customers(seed=0)
train.train_mask = torch.arange(600) % 2 == 0

torch.manual_seed(0)
model = Classifier(8, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(train.x, train.edge_index)[train.train_mask], train.y[train.train_mask])
    loss.backward()
    optimizer.step()

# %%
# The training script makes the card, and keeps it beside the weights.

graphmend.card(model, train).save("classifier.card.safetensors")

# %%
# Months later, one branch reports in cents.

today = customers(seed=1)
today.x[:40] *= 100

result = graphmend.mend(model, today, card="classifier.card.safetensors")
print(result.verdict)
print(result.compare(today.y))
assert set(range(40)) >= set(result.patch.rows.tolist()) and result.patch.num_rows >= 38

# %%
# The model is as it was, in training mode as it was left, and so is the graph. What you go on with is in the result.

assert model.training and float(today.x[:40].abs().max()) > 100
result.data, result.predictions.shape

# %%
# One page tells the whole story to somebody who was not there.

result.report("today.html", today.y)
