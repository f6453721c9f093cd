"""
Ask for a few labels
====================

Somebody has added edges where they do harm. The gate sees that something is wrong with the edges, has a remedy, and does not trust it. Nine labels
settle the matter.
"""

import torch
from torch_geometric.nn import GCN

import graphmend
from graphmend.lab.data import embedded, structure_attack
from graphmend.lab.training import ERM

splits = embedded("digits")
torch.manual_seed(0)
model = ERM(epochs=60)(GCN(64, 32, num_layers=2, out_channels=10), splits)
card = graphmend.card(model, splits.train[0])

today = structure_attack(model, splits, epochs=10).tests[0]
result = graphmend.mend(model, today, card=card)
print(result.verdict)
print(f"the change that was not made would flip {result.verdict.flips:.0%} of the predictions")

# %%
# Only a node whose prediction flips can tell whether the change helps. These are the first ones to ask about:

nodes = result.questions(25)
nodes[:10]

# %%
# Somebody looks them up. A sequential test stops as soon as the answers suffice.

settled = result.decide({int(node): int(today.y[node]) for node in nodes})
print(settled.verdict)

# %%
# And what was it good for?

comparison = settled.compare(today.y)
print(comparison)
assert settled.verdict.decision == "applied" and comparison.helped > comparison.harmed

# %%
# Had the answers been the other way round, the graph would have stayed as it was.

before = result.before.argmax(1)
against = result.decide({int(node): int(before[node]) for node in nodes})
print(against.verdict)
assert against.patch.is_empty
