"""
A step of a PyTorch Geometric pipeline
======================================

``graphmend.Mend`` is mending as a transform, from a graph to a graph, for ``Compose``, data sets and loaders.
"""

import torch
import torch_geometric.transforms as T
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift
from graphmend.lab.training import ERM

digits = shift()
torch.manual_seed(0)
model = ERM(epochs=60)(GraphSAGE(64, 32, num_layers=2, out_channels=10), digits.splits)
card = graphmend.card(model, digits.splits.train[0])

# %%
# The steps before it are those that the training graph went through, so that the model sees what it is used to.

prepare = T.Compose([T.RemoveDuplicatedEdges(), graphmend.Mend(model, card=card)])
mended = prepare(digits.tests[0])


def accuracy(graph):
    with torch.no_grad():
        return float((model(graph.x, graph.edge_index).argmax(1) == graph.y).float().mean())


print(f"accuracy {accuracy(digits.tests[0]):.1%} before, {accuracy(mended):.1%} after")
assert accuracy(mended) > accuracy(digits.tests[0]) + 0.2

# %%
# In front of a loader:

loader = DataLoader([prepare(graph) for graph in digits.tests], batch_size=3)
for batch in loader:
    print(batch.num_graphs, f"graphs, accuracy {accuracy(batch):.1%}")

# %%
# A transform returns the graph alone. Where the verdict, the logits or the patch matter, call ``graphmend.mend``.
