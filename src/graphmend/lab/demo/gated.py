"""The gate in the demo: with a source card, without tuning, without labels; and with a few that it asks for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import mean

from torch import nn
from torch_geometric.data import Data

from graphmend.adapters.gate import Gate
from graphmend.cards import card
from graphmend.lab.data import Scenario, node_mask
from graphmend.outputs import predictions
from graphmend.results.adaptation import Adaptation
from graphmend.results.questions import poll
from graphmend.results.scores import score

QUESTIONS = 25
"""Labels the gate may ask for per graph; it stops as soon as they settle the matter."""


@dataclass(frozen=True)
class Gated:
    """What the gate did in one scenario with one seed; accuracies in percent, averaged over graphs.

    Args:
        gate: Accuracy on the harmed graphs.
        gate_clean: Accuracy on the clean graphs.
        asked: Accuracy on the harmed graphs where the gate may ask for labels.
        labels: Labels it used for that, per graph.
        verdicts: What it says of each harmed graph.
        clean_verdicts: What it says of each clean graph.
        gate_seconds: Time for the card and all graphs.
    """

    gate: float
    gate_clean: float
    asked: float
    labels: float
    verdicts: list[str]
    clean_verdicts: list[str]
    gate_seconds: float


def run_gate(model: nn.Module, scenario: Scenario, seed: int) -> Gated:
    """Make a card from the training graphs, and put the harmed and the clean graphs before the gate."""
    start = time.perf_counter()
    source = card(model, scenario.splits.train, task="classes")
    harmed = [Gate()(model, data, card=source, seed=seed) for data in scenario.tests]
    clean = [Gate()(model, data, card=source, seed=seed) for data in scenario.clean]
    seconds = time.perf_counter() - start
    settled = [_asked(result, data) for result, data in zip(harmed, scenario.tests, strict=True)]
    return Gated(
        gate=_accuracy(harmed, scenario.tests),
        gate_clean=_accuracy(clean, scenario.clean),
        asked=_accuracy([result for result, _ in settled], scenario.tests),
        labels=mean(number for _, number in settled),
        verdicts=[str(result.verdict) for result in harmed],
        clean_verdicts=[str(result.verdict) for result in clean],
        gate_seconds=seconds,
    )


def _asked(result: Adaptation, data: Data) -> tuple[Adaptation, int]:
    """The result after the gate's questions were answered, and the number of labels that took."""
    nodes = result.questions(QUESTIONS)
    if nodes.numel() == 0 or result.alternative is None:
        return result, 0
    answers = data.y[nodes]
    assert result.alternative.logits is not None
    own, other = (predictions(logits)[nodes] for logits in (result.logits, result.alternative.logits))
    return result.decide(answers), poll(own, other, answers.tolist()).asked


def _accuracy(results: list[Adaptation], graphs: list[Data]) -> float:
    pairs = zip(results, graphs, strict=True)
    return mean(100 * score("accuracy", result.logits, data.y, node_mask(data)) for result, data in pairs)
