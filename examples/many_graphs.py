"""
Many graphs
===========

A list, a data set, a loader or a generator of graphs is one call, with one result for each. A graph that is no good costs the others nothing.
"""

import torch
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift
from graphmend.lab.training import ERM

digits = shift()
torch.manual_seed(0)
model = ERM(epochs=60)(GraphSAGE(64, 32, num_layers=2, out_channels=10), digits.splits)
card = graphmend.card(model, digits.splits.train[0])

broken = digits.clean[1].clone()
broken.x[5, 7] = float("inf")
week = [digits.clean[0], digits.tests[0], broken, digits.tests[1], digits.clean[2]]

results = graphmend.mend(model, week, card=card)
print(results)
assert [entry.decision for entry in results] == ["left alone", "applied", "failed", "applied", "left alone"]

# %%
# What failed has a sentence; everything else goes on.

for failure in results.failures:
    print(failure.sentence)

# %%
# One page with a table of all, and a page for each of them:

results.report("week.html")

# %%
# More graphs than fit into memory: ``mend_each`` reads one, mends it, hands it over, and forgets it.

for day, result in enumerate(graphmend.mend_each(model, iter(week), card=card)):
    print(day, result.decision)
