"""
No labels, no training data, no card
====================================

Only a model and a graph: the gate is *blind*. It repairs what stands out by itself, and says what it cannot tell.
"""

import torch
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift
from graphmend.lab.training import ERM

digits = shift()
torch.manual_seed(0)
model = ERM(epochs=60)(GraphSAGE(64, 32, num_layers=2, out_channels=10), digits.splits)

# %%
# Rows in another unit lie beyond a wide gap, in any graph. They are repaired from their neighbours.

broken = digits.clean[0].clone()
broken.x[::9] *= 30
result = graphmend.mend(model, broken)
print(result.verdict)
print(result.compare(broken.y))  # labels, to see what it was good for
assert result.verdict.regime == "blind" and result.patch.num_rows == 34

# %%
# Missing values are filled.

holes = digits.clean[0].clone()
holes.x[torch.rand(holes.x.shape, generator=torch.Generator().manual_seed(0)) < 0.2] = torch.nan
print(graphmend.mend(model, holes).verdict)

# %%
# A shift of everything does not stand out: for all the gate knows, the model was trained on such images. It does nothing, and says
# what would help.

shifted = graphmend.mend(model, digits.tests[0])
print(shifted.verdict)
print(shifted.verdict.next_step)
assert shifted.verdict.decision == "left alone"
