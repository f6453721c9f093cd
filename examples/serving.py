"""
Serve a model behind FastAPI
============================

A service gets a graph, mends it where that is called for, and answers with predictions and the reason. A graph that is no good is the caller's
mistake, and gets a sentence.
"""

from typing import Annotated

import torch
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift
from graphmend.lab.training import ERM

# %%
# In a service, model and card come from files; here they are made.

digits = shift()
torch.manual_seed(0)
model = ERM(epochs=60)(GraphSAGE(64, 32, num_layers=2, out_channels=10), digits.splits)
card = graphmend.card(model, digits.splits.train[0])

# %%
# A value may be ``null``: it is missing, and filled. Requests may come at the same time; mending takes turns by itself.


class Graph(BaseModel):
    x: list[Annotated[list[float | None], Field(min_length=64, max_length=64)]]
    edge_index: Annotated[list[list[int]], Field(min_length=2, max_length=2)]


class Answer(BaseModel):
    predictions: list[int]
    decision: str
    verdict: str


app = FastAPI()


@app.post("/predict")
def predict(graph: Graph) -> Answer:
    rows = [[float("nan") if value is None else value for value in row] for row in graph.x]
    try:
        data = Data(x=torch.tensor(rows), edge_index=torch.tensor(graph.edge_index))
        result = graphmend.mend(model, data, card=card)
    except graphmend.GraphMendError as error:
        raise HTTPException(422, str(error)) from error
    return Answer(
        predictions=result.predictions.tolist(), decision=result.verdict.decision, verdict=result.verdict.sentence
    )


# %%
# Start it with ``uvicorn serving:app``. Here a real request goes through the whole application, without a network.

client = TestClient(app)
today = digits.tests[0]
response = client.post("/predict", json={"x": today.x.tolist(), "edge_index": today.edge_index.tolist()})
answer = response.json()
print(response.status_code, answer["verdict"])
right = sum(int(a) == int(b) for a, b in zip(answer["predictions"], today.y, strict=True)) / today.num_nodes
print(f"accuracy {right:.1%}")
assert response.status_code == 200 and answer["decision"] == "applied" and right > 0.85

# %%
# An edge to a node that is not there:

wrong = client.post("/predict", json={"x": today.x.tolist(), "edge_index": [[0], [5000]]})
print(wrong.status_code, wrong.json()["detail"])
assert wrong.status_code == 422 and "5000" in wrong.json()["detail"]
