from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.lab.backbones import GCN
from graphmend.lab.data import Splits
from graphmend.lab.training import EERM, risk
from graphmend.lab.training.eerm import Editor, flipped
from support.graphs import dense, directed, rng

N = 6


def graph(seed: int = 0) -> Data:
    return Data(
        x=torch.randn(N, 4, generator=rng(seed)),
        edge_index=directed(N, seed, density=0.5),
        y=torch.arange(N) % 3,
    )


def entries(editor: Editor, chosen: Tensor) -> set[tuple[int, int]]:
    """The (source, target) pairs of some candidates."""
    offsets = editor.offsets.tolist()
    return {((r + offsets[c]) % N, r) for r, row in enumerate(chosen.tolist()) for c in row}


@pytest.mark.parametrize("candidates", [None, N, N + 5, 4])
def test_a_view_flips_what_was_drawn(candidates: int | None) -> None:
    torch.manual_seed(0)
    data = graph()
    editor = Editor(data, 2, candidates)
    assert editor.scores.shape == (N, min(candidates or N, N))
    assert ((editor.scores >= 0) & (editor.scores < 1)).all()
    chosen = editor.draw()
    wanted = entries(editor, chosen)
    assert len(wanted) == 2 * N, "different candidates for every node"
    before, after = dense(data.edge_index, N), dense(editor.view(chosen).edge_index, N)
    changed = {(int(source), int(target)) for target, source in (before != after).nonzero()}
    assert changed == wanted and set(after.unique().tolist()) <= {0.0, 1.0}


def test_weights_stay_and_an_edge_of_weight_zero_is_added() -> None:
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    data = Data(x=torch.ones(N, 1), edge_index=edge_index, edge_weight=torch.tensor([0.5, 0.25, 0.0, 2.0]))
    view = flipped(data, torch.tensor([1, 2, 5]), torch.tensor([2, 3, 5]))
    pairs = map(tuple, view.edge_index.t().tolist())
    found = dict(zip(pairs, view.edge_weight.tolist(), strict=True))
    assert found == {(0, 1): 0.5, (3, 4): 2.0, (2, 3): 1.0, (5, 5): 1.0}
    assert data.edge_index is edge_index and view.x is data.x


def slow_log_probability(scores: Tensor, chosen: Tensor) -> float:
    total = 0.0
    for row, picks in zip(scores.double().tolist(), chosen.tolist(), strict=True):
        left = dict(enumerate(row))
        for pick in picks:
            total += left[pick] - math.log(sum(math.exp(value) for value in left.values()))
            del left[pick]
    return total


@pytest.mark.parametrize("flips", [1, 3, 4])
def test_the_log_probability_is_the_formula(flips: int) -> None:
    torch.manual_seed(1)
    editor = Editor(graph(), flips, 4)
    with torch.no_grad():
        editor.scores.normal_(std=2.0)
    chosen = editor.draw()
    assert editor.log_probability(chosen).item() == pytest.approx(slow_log_probability(editor.scores, chosen), rel=1e-5)


def test_probabilities_of_all_draws_add_up_to_one_and_are_those_of_the_draws() -> None:
    torch.manual_seed(2)
    editor = Editor(Data(x=torch.ones(3, 1), edge_index=torch.empty(2, 0, dtype=torch.long)), 2)
    with torch.no_grad():
        editor.scores.normal_()
        editor.scores[1:] = -torch.inf  # the other nodes can draw one thing only
        editor.scores[1:, :2] = torch.tensor([[50.0, 0.0]])
    ways = list(itertools.permutations(range(3), 2))
    fixed = [[0, 1], [0, 1]]
    chances = {way: math.exp(editor.log_probability(torch.tensor([list(way), *fixed])).item()) for way in ways}
    assert sum(chances.values()) == pytest.approx(1.0, abs=1e-5)
    draws = [tuple(editor.draw()[0].tolist()) for _ in range(4000)]
    for way in ways:
        assert draws.count(way) / 4000 == pytest.approx(chances[way], abs=0.03)


def test_the_released_way_draws_by_row_and_scores_by_column() -> None:
    torch.manual_seed(3)
    editor = Editor(graph(), 2, released=True)
    b = torch.empty(N, N)  # b[i, r]: flip the edge from i to r
    with torch.no_grad():
        editor.scores.normal_(std=2.0)
        for r in range(N):
            for c in range(N):
                b[(r + c) % N, r] = editor.scores[r, c]
    weights = (b.double().softmax(0) / b.double().softmax(0).sum(1, keepdim=True))[0]  # what node 0 draws from
    first = [(editor.draw()[0, 0] % N).item() for _ in range(3000)]
    for i in range(N):
        assert first.count(i) / 3000 == pytest.approx(weights[i].item(), abs=0.03)
    chosen = editor.draw()
    drawn = [(int(i), r) for r in range(N) for i in (chosen[r] + r) % N]
    expected = sum(b[i, r].item() for i, r in drawn) - b.double().logsumexp(0).sum().item()
    assert editor.log_probability(chosen).item() == pytest.approx(expected, rel=1e-5)


def test_every_entry_is_equally_likely_to_be_a_candidate() -> None:
    torch.manual_seed(4)
    editor, counts = Editor(graph(), 1, 2), torch.zeros(N)
    for _ in range(1200):
        editor.reset()
        counts[editor.offsets] += 1
        assert editor.offsets.unique().numel() == 2
    assert (counts / 1200 - 1 / 3).abs().max() < 0.05


def test_all_candidates_are_the_original_method() -> None:
    """As many candidates as nodes give the same weights as no bound at all, to the bit."""
    data = Splits([graph(0)], [graph(1)], [graph(2)])
    states = []
    for candidates in (None, N, 100):
        torch.manual_seed(0)
        trainer = EERM(epochs=5, flips=2, views=2, editor_lr=0.1, candidates=candidates)
        states.append(trainer(GCN(4, 8, 3), data).state_dict())
    for other in states[1:]:
        assert all(torch.equal(states[0][key], other[key]) for key in other)


def losses_of(trainer: EERM, model: GCN, data: Splits, epochs: list[int]) -> list[float]:
    torch.manual_seed(0)
    loss, modules = trainer.objective(model, data)
    assert modules == ()
    return [float(loss(epoch).detach()) for epoch in epochs]


def test_the_loss_is_the_variance_and_the_growing_mean_of_the_risks() -> None:
    data, views = Splits([graph(0), graph(3)], [graph(1)], [graph(2)]), 3
    torch.manual_seed(0)
    model = GCN(4, 8, 3)
    trainer = EERM(epochs=10, views=views, flips=1, beta=2.0, beta_growth=9.0, candidates=4)
    (actual,) = losses_of(trainer, model, data, [5])
    torch.manual_seed(0)
    editors = [[Editor(part, 1, 4) for part in data.train] for _ in range(views)]
    drawn = [[editor.draw() for editor in view] for view in editors]
    risks = []
    for view, choices in zip(editors, drawn, strict=True):
        parts = [editor.view(chosen) for editor, chosen in zip(view, choices, strict=True)]
        values = [risk(model(part.x, part.edge_index), part.y, "multiclass").item() for part in parts]
        risks.append(sum(values) / 2)
    mean = sum(risks) / views
    variance = sum((value - mean) ** 2 for value in risks) / (views - 1)
    assert actual == pytest.approx(variance + 2.0 * (1 + 9 * 5 / 10) * mean, rel=1e-5)


def test_editors_learn_to_flip_what_spreads_the_risks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Editor] = []
    reset = Editor.reset
    monkeypatch.setattr(Editor, "reset", lambda self: (made.append(self), reset(self))[1])
    data = Splits([graph(0)], [graph(1)], [graph(2)])
    torch.manual_seed(0)
    model = GCN(4, 8, 3)
    kept = EERM(epochs=3, views=2, flips=1, editor_lr=0.1, editor_steps=3)
    losses_of(kept, model, data, [0, 1])
    assert len(made) == 2 and any((editor.scores < 0).any() or (editor.scores > 1).any() for editor in made)
    made.clear()
    losses_of(EERM(epochs=3, views=2, flips=1, reset_editors=True), model, data, [0, 1])
    assert len(made) == 6  # two editors: when they are made, and in two epochs
