"""A card as a section for the page of a model."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import graphmend


def own_card(task: str) -> graphmend.SourceCard:
    torch.manual_seed(0)
    data = Data(x=torch.rand(40, 3), edge_index=torch.randint(40, (2, 160)))
    return graphmend.card(GCN(3, 8, 2, 2), data, task=task)


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_the_section_says_what_the_card_holds_and_how_to_use_it(task: str) -> None:
    card = own_card(task)
    text = card.markdown("a b.safetensors")
    assert text.startswith("## Source card\n") and "40 nodes, 4.0 edges per node" in text
    assert ("| classes |" in text) == (task == "classes") and card.model[:16] in text
    (code,) = re.findall(r"```python\n(.*?)\n```", text, re.S)
    (call,) = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert ast.unparse(call) == "graphmend.mend(model, data, card='a b.safetensors')"
    rows = text[text.index("| | |") :].strip().splitlines()
    assert len(rows) == 9 and all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)


def test_names_from_a_model_are_no_markup() -> None:
    card = replace(own_card("classes"), first_layer="a|b\n# <script>[x](y)*z*`")
    row = next(line for line in card.markdown().splitlines() if line.startswith("| first layer"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert "<script>" not in row and "\\# &lt;script&gt;\\[x\\](y)\\*z\\*\\`" in row
