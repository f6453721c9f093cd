"""
A method of your own
====================

An adapter is a class with one function, ``propose``. It sees the graph and the frozen model, and returns what to change. Checking, seeding, predicting, the patch
and putting everything back come for free, and so do the command line and the comparison with other methods.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch_geometric.nn import GCN

import graphmend
from graphmend.adapters import Adapter, Proposal
from graphmend.errors import read_fields, within
from graphmend.lab.data import embedded
from graphmend.lab.training import ERM

splits = embedded("wine")
data = splits.test[0]
torch.manual_seed(0)
model = ERM(epochs=50)(GCN(13, 16, num_layers=2, out_channels=3), splits)

# %%
# This one brings entries that are far from their column's median back to a limit. A range beside a type is checked when the adapter is made.


@dataclass(frozen=True)
class Clip(Adapter):
    """Bring entries that are far from their column's median back to a limit, counted in median deviations."""

    most: Annotated[float, within(above=0)] = 5.0

    def __post_init__(self):
        read_fields(self)

    def propose(self, case):
        x = case.data.x
        middle = x.median(dim=0).values
        reach = self.most * (x - middle).abs().median(dim=0).values
        return Proposal(x=case.within_limits(torch.minimum(torch.maximum(x, middle - reach), middle + reach)))


# %%
# It is called like any other.

broken = data.clone()
broken.x[::20] += 30

result = graphmend.mend(model, broken, Clip())
print(result)
print(result.compare(data.y))
assert torch.equal(result.patch.revert(result.data).x, broken.x)

# %%
# Limits hold for it as well, it can be one of several, and a wrong setting gets a sentence.

limits = graphmend.Limits(frozen_nodes=torch.arange(178) < 100)
kept = graphmend.mend(model, broken, Clip() >> graphmend.GTrans(steps=5, lr_feature=0.02), limits=limits)
assert torch.equal(kept.data.x[:100], broken.x[:100])

try:
    Clip(most=-1)
except graphmend.GraphMendError as error:
    print(error)
