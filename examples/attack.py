"""
Attack a model, and mend the graph
==================================

How much harm can a few edges do, and how much of it can be undone? ``PRBCD`` looks for the edges that hurt most; the gate, GTrans and a filter
see only the result.
"""

import torch
from torch_geometric.nn import GCN

import graphmend
from graphmend.lab.attacks import PRBCD
from graphmend.lab.data import embedded
from graphmend.lab.training import ERM

splits = embedded("digits")
data = splits.test[0]
torch.manual_seed(0)
model = ERM(epochs=60)(GCN(64, 32, num_layers=2, out_channels=10), splits)
card = graphmend.card(model, splits.train[0])


def accuracy(graph):
    with torch.no_grad():
        right = model(graph.x, graph.edge_index).argmax(1) == data.y
    return float(right[data.test_mask].float().mean())


# %%
# The attacker may add or remove a tenth as many edges as there are, and knows model and labels.

attacked = PRBCD(model, rate=0.1, epochs=25)(data)
print(f"accuracy {accuracy(data):.1%} before the attack, {accuracy(attacked):.1%} after it")
assert accuracy(attacked) < accuracy(data) - 0.05

# %%
# Three ways to deal with it, none of which sees a label.

gate = graphmend.mend(model, attacked, card=card)
methods = {
    "the gate": gate,
    "GTrans": graphmend.mend(model, attacked, graphmend.GTrans(steps=20, lr_feature=0.02)),
    "Jaccard filter": graphmend.mend(model, attacked, graphmend.JaccardFilter()),
}
for name, result in methods.items():
    print(f"{name:15} {accuracy(result.data):.1%}   {result.patch.summary()}")
print(gate.verdict)

# %%
# The gate sees it, and asks before it acts.

asked = gate.decide(data.y[gate.questions(25)])
print(asked.verdict)
print(f"{'asked':15} {accuracy(asked.data):.1%}   {asked.patch.summary()}")
assert accuracy(asked.data) > accuracy(attacked)
