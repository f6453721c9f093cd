"""
Watch a stream
==============

A graph a day. Is the stream still what it was, and since when not? The probability that there is *ever* a false alarm is at most 1 %.
"""

import json
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift
from graphmend.lab.training import ERM
from graphmend.monitor import KINDS, Monitor

digits = shift()
torch.manual_seed(0)
model = ERM(epochs=60)(GraphSAGE(64, 32, num_layers=2, out_channels=10), digits.splits)
card = graphmend.card(model, digits.splits.train[0])

# %%
# Each day brings other nodes. From day 40 on, the images slowly lose contrast, 1.5 % more every day: too little for anybody to notice it
# from one day to the next.


def day(number):
    chosen = torch.rand(digits.clean[0].num_nodes, generator=torch.Generator().manual_seed(number)) < 0.5
    graph = digits.clean[0].subgraph(chosen)
    graph.x = graph.x * (1 - 0.015 * max(0, number - 40))
    return graph


with Monitor(model, card, "state.json", log="log.jsonl", mends=False) as monitor:
    for number in range(70):
        _, entry = monitor.update(day(number), f"day {number}")
        if entry.alarm:
            print(f"day {number}: {entry.alarm}")
            break

assert monitor.alarm is not None and 40 <= monitor.alarm.since < number < 65

# %%
# The state is a small file. A process that is killed goes on where it was; here a new monitor reads it again.

with Monitor(model, card, "state.json", log="log.jsonl", mends=False) as again:
    assert again.alarm.since == monitor.alarm.since

# %%
# The log has a line for each day: what was measured, and how much evidence there is against each kind of trouble, as the logarithm of the capital
# of a gambler who bets against the stream.

days = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
for kind in KINDS:
    axes.plot([entry["capital"][kind] for entry in days], label=kind)
axes.axvline(40, color="0.7")
axes.set(xlabel="day", ylabel="evidence", title="The change begins on day 40")
axes.legend()
