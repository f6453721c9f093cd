r"""The paper's theory in numbers: two theorems and an example.

**Theorem 1.** Let :math:`\rho(G)` be the correlation (cosine) of :math:`\nabla_G \mathcal L_c(G, \mathcal Y)`, the
gradient of the classification loss, and :math:`\nabla_G \mathcal L_s(G)`, that of the surrogate loss. Let
:math:`\lVert \mathbf H(G, \mathcal Y) \rVert_2 \le M` for the Hessian of :math:`\mathcal L_c` for all G. When
:math:`\rho(G) > 0` and

.. math:: \epsilon < \frac{2 \rho(G) \lVert \nabla_G \mathcal L_c(G, \mathcal Y) \rVert_2}
                          {M \lVert \nabla_G \mathcal L_s(G) \rVert_2},
          \quad \text{then} \quad
          \mathcal L_c\left(G - \epsilon \nabla_G \mathcal L_s(G), \mathcal Y\right) < \mathcal L_c(G, \mathcal Y).

Checked on many random graphs with a linearised GCN, for which M is known: steps below the bound must all lower the
loss. Steps far above it show that the bound is not empty, and where :math:`\rho < 0` no step lowers the loss, because
the loss of this model is convex in the features.

**Theorem 2.** If augmentation keeps the class of a node, classes are balanced, and the mean of Z and that of
:math:`\hat Z` are the same for each class, then minimising the first term of :math:`\mathcal L_s`,
:math:`\sum_i (1 - \hat z_i^\top z_i / (\lVert \hat z_i \rVert \lVert z_i \rVert))`, is approximately minimising the
class-conditional entropy :math:`H(Z \mid Y) \le \sum_k \sum_{z_i \in Z_k} \lVert z_i - c_k \rVert^2`. The first term
alone can collapse: all nodes at one point. Measured on a test graph: the assumption on class means, the right-hand side
per node, and the mean cosine of two nodes, which rises to 1 in a collapse, before and after steps down the first term
alone, and both terms. The collapse itself is shown on small connected graphs with a linear embedding.

**Example.** Two nodes with the mean-aggregated features 0.45 and 0.53 and different labels; after an attack both are
0.45. No classifier can tell them apart, not even with their labels; other features can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.presets import paper
from graphmend.lab.bench.recipes import train_run
from graphmend.lab.bench.store import Result, Run

__all__ = ["EXPERIMENT"]

GRAPHS = 1000
MULTIPLES = (0.1, 0.5, 0.999, 10.0, 100.0)
STEPS, LR = (10, 200), 0.01
COLLAPSE, COLLAPSE_LR = (100, 3000), 0.03


def _measures(choice: Choice) -> list[Measure]:
    return [*_theorem_1(choice), *_theorem_2(choice), *_collapse(choice), *_example()]


def _theorem_1(choice: Choice) -> list[Measure]:
    size = {"graphs": 50 if choice.smoke else GRAPHS, "multiples": list(MULTIPLES)}
    runs = tuple(Run("step_bound", {**size, "seed": seed}) for seed in choice.seeds)
    rows: list[tuple[str, Callable[[Result], float], int]] = []
    for sign, symbol, shown in (("positive", "> 0", MULTIPLES), ("negative", "< 0", MULTIPLES[:1])):
        rows.append((f"graphs with rho {symbol}", _entry(sign, "graphs"), 0))
        for multiple in shown:
            words = f"rho {symbol}: steps of {multiple:g} times the bound that do not lower the test loss (%)"
            rows.append((words, _entry(sign, "not_lower", str(multiple)), 2))
    return [Measure(("Theorem 1", words), "value", runs, value, None, digits) for words, value, digits in rows]


def _theorem_2(choice: Choice) -> list[Measure]:
    trained = [train_run(choice.datasets[0], "gcn", seed, choice.trainer()) for seed in choice.seeds]
    own: dict[str, Any] = {"graph": 0, "steps": list(STEPS[:1] if choice.smoke else STEPS), "lr": LR}
    runs = tuple(Run("class_means", {**train.settings, **own}, (train,)) for train in trained)
    gaps = [] if choice.smoke else paper("theory")["class_means"]
    rows: list[tuple[str, Callable[[Result], float], Any]] = [
        ("class means of Z and its view, mean difference", lambda r: sum(r["gaps"]) / len(r["gaps"]), _mean(gaps)),
        ("class means of Z and its view, largest difference", lambda r: max(r["gaps"]), max(gaps, default=None)),
    ]
    cases = {"before": "before"}
    for key, words in (("pull", "first term alone"), ("both", "both terms")):
        cases |= {f"{key} {steps}": f"{words}, {steps} steps" for steps in own["steps"]}
    for name, key in (("squared distance to the class mean", "within"), ("mean cosine of two nodes", "cosine")):
        rows += [(f"{name}: {words}", _entry(case, key), None) for case, words in cases.items()]
    return [Measure(("Theorem 2", words), "value", runs, value, published(known), 3) for words, value, known in rows]


def _collapse(choice: Choice) -> list[Measure]:
    steps = (10,) if choice.smoke else COLLAPSE
    runs = tuple(Run("collapse", {"steps": list(steps), "lr": COLLAPSE_LR, "seed": seed}) for seed in choice.seeds)
    rows = [("pull", "0", "before")]
    rows += [
        (key, str(s), f"{w}, {s} steps")
        for key, w in (("pull", "first term alone"), ("both", "both terms"))
        for s in steps
    ]
    return [
        Measure(("Collapse", f"small connected graphs, mean cosine: {words}"), "value", runs, _entry(key, at), None, 3)
        for key, at, words in rows
    ]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _example() -> list[Measure]:
    runs = (Run("worked_example", {}),)
    known = paper("theory")["example"]
    measures = []
    for case in ("clean", "attacked"):
        for node in (0, 1):
            there = published(known[case][node])
            words = f"{case}: aggregated feature of node {node + 1}"
            value = _entry(case, "aggregated", node)
            measures.append(Measure(("Example", words), "value", runs, value, there))
    for case, words in (("attacked", "attacked"), ("model", "model adapted"), ("data", "features adapted")):
        measures.append(Measure(("Example", f"{words}: loss"), "value", runs, _entry(case, "loss"), None, 3))
        measures.append(Measure(("Example", f"{words}: error (%)"), "value", runs, _entry(case, "error"), None, 0))
    return measures


def _entry(*path: Any) -> Callable[[Result], float]:
    def value(result: Result) -> float:
        found: Any = result
        for name in path:
            found = found[name]
        return float(found)

    return value


EXPERIMENT = Experiment.of_measures(
    "theory",
    "Theorems 1 and 2 and the worked example in numbers",
    Choice(("cora-ood",), ("gcn",)),
    "ood",
    _measures,
)
