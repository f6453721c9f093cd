"""
Quick start
===========

A model learns to read handwritten digits. Then the images have less contrast, as from another camera. One call finds out what is
wrong, repairs it and says why; the model stays as it was trained, and no label is needed.
"""

import torch
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift
from graphmend.lab.training import ERM

digits = shift()  # images as nodes, joined with similar ones; the test images have less contrast
torch.manual_seed(0)
model = ERM(epochs=100)(GraphSAGE(64, 32, num_layers=2, out_channels=10), digits.splits)

# %%
# The *source card* says in a few kilobytes what the model is used to. It is made once, when the model is trained.

card = graphmend.card(model, digits.splits.train[0])
card

# %%
# Today's graph comes in. The verdict says what was done and why.

today = digits.tests[0]
result = graphmend.mend(model, today, card=card)
print(result.verdict)

# %%
# Everything that was looked for, with its limits:

result.verdict

# %%
# We happen to know the labels, so we can see what it was good for. They are used for nothing else.

comparison = result.compare(today.y)
print(comparison)
assert comparison.helped > 10 * comparison.harmed

# %%
# The same as a picture. ``result.report("today.html")`` makes a page to look around in.

figure = result.plot()

# %%
# Every change can be taken back, bit for bit.

assert torch.equal(result.patch.revert(result.data).x, today.x)

# %%
# A graph that is as it should be is left alone.

same = graphmend.mend(model, digits.clean[0], card=card)
print(same.verdict)
assert same.patch.is_empty
