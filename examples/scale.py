"""
A graph on disk
===============

A graph that does not fit into memory lives in a folder of arrays. Here it is a small one, packed from two tables; the calls are those for a large one.
"""

import csv
from pathlib import Path

import torch
from torch_geometric.nn import GCN

import graphmend
from graphmend.lab.data import embedded
from graphmend.lab.training import ERM
from graphmend.shards import pack

splits = embedded("digits")
torch.manual_seed(0)
model = ERM(epochs=60)(GCN(64, 32, num_layers=2, out_channels=10), splits)
card = graphmend.card(model, splits.train[0])

# %%
# A team keeps nodes and edges in two tables, CSV or Parquet. Yesterday's export went wrong for some rows.

today = splits.test[0]
features = today.x.clone()
features[::50] *= 40
with Path("nodes.csv").open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow([f"pixel{column}" for column in range(64)])
    table.writerows(features.tolist())
with Path("edges.csv").open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["source", "target"])
    table.writerows(today.edge_index.t().tolist())

# %%
# ``pack`` sorts and checks them, with bounded memory, and goes on where it was if it is interrupted. On the command line:
# ``graphmend pack --nodes nodes.csv --edges edges.csv --out graph``.

pack("graph", nodes=["nodes.csv"], edges=["edges.csv"])
print(*sorted(path.name for path in Path("graph").iterdir()))

# %%
# An open graph is a ``Data`` whose arrays stay on the disk until they are used; ``card`` and ``mend`` take it like any other. Where a whole run would
# take too much memory, the model runs on ranges of nodes with their surroundings, and gives the same numbers.

graph = graphmend.open_graph("graph")
result = graphmend.mend(model, graph, card=card)
print(result.verdict)
assert result.patch.num_rows == 36

# %%
# The change is small and is kept as a file of its own.

result.patch.save("today.patch.safetensors")
print(f"{Path('today.patch.safetensors').stat().st_size / 1024:.0f} kB")
