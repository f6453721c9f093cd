"""One graph of 'graphmend mend': what is known about it, and mending it, in this process or another one."""

from __future__ import annotations

import functools
import json
from contextlib import chdir, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.cli.card_files import Card
from graphmend.cli.labels import settle
from graphmend.cli.methods import adapter_of
from graphmend.cli.models import load_any_model
from graphmend.cli.paths import results_of
from graphmend.cli.scoring import scores_if_possible
from graphmend.files.files import write_arrays, write_text
from graphmend.files.graph_files import save_graph
from graphmend.files.provenance import provenance
from graphmend.graph.limits import Limits
from graphmend.outputs import predictions
from graphmend.results.adaptation import Adaptation

Report = dict[str, Any]


@dataclass
class Job:
    """One graph, and what is known before it is mended.

    Args:
        path: The file of the graph.
        original: The graph as it is in the file.
        data: The graph as the model takes it.
        limits: What must not change.
        record: What must be the same for the work to be the same.
        report: The report of the very same work, if that was done before.
        labelled: The nodes whose labels the loss may use.
        tested: The nodes that are scored.
        before: Their scores as the graph is.
    """

    path: Path
    original: Data
    data: Data
    limits: Limits
    record: dict[str, Any]
    report: Report | None = None
    labelled: Tensor | None = None
    tested: Tensor | None = None
    before: dict[str, float] | None = None


@dataclass(frozen=True)
class ModelFiles:
    """Where a model comes from, so that another process can read it.

    Args:
        model: A checkpoint, or ``None``.
        factory: The function that builds it otherwise.
        weights: Its weights.
        folder: The current folder, in which the function is looked for first.
        digest: A digest of the model, so that one that was read before is not taken for another.
    """

    model: Path | None
    factory: str | None
    weights: Path | None
    folder: Path
    digest: str


@dataclass(frozen=True, kw_only=True)
class Mending:
    """Mends one graph after another.

    Args:
        net: The model; another process, to which it is not sent, reads it from ``files`` once.
        files: Where it comes from.
        device: Where to compute.
        adapter: Who mends.
        options: Its options.
        call: Seed, mode and progress.
        card: The source card.
        questions: How many nodes to ask about at most.
        answers: Known labels, by node.
        labels: The file that they are from.
    """

    net: nn.Module | None
    files: ModelFiles
    device: torch.device
    adapter: str
    options: dict[str, Any]
    call: dict[str, Any]
    card: Card
    questions: int
    answers: dict[int, int] | None
    labels: Path | None

    def __reduce__(self) -> tuple[Any, ...]:
        return _sent, ({**vars(self), "net": None},)

    def __call__(self, job: Job, folder: Path | None) -> tuple[Path, Report]:
        """The graph's path and report; the results are written if there is a folder for them."""
        net = _read_once(self.files, self.device) if self.net is None else self.net
        adapter = adapter_of(self.adapter, self.options, job.labelled)
        result = adapter(net, job.data, card=self.card.card, limits=job.limits, **self.call)
        if self.answers is not None and self.labels is not None:
            result = settle(result, self.answers, self.labels)
        nodes = result.questions(self.questions).tolist() if self.questions else None
        more: Report = {"questions": nodes, "card": self.card.summary()}
        result = result.rebase(job.original)
        if folder is None:
            return job.path, {"graph": job.path.name, **result.summary(), **more}
        return job.path, _written(job, result, {**more, "provenance": provenance(self.device)}, folder)


def _sent(fields: dict[str, Any]) -> Mending:
    return Mending(**fields)


@functools.lru_cache(maxsize=1)
def _read_once(files: ModelFiles, device: torch.device) -> nn.Module:
    with nullcontext() if files.factory is None else chdir(files.folder):
        return load_any_model(files.model, factory=files.factory, weights=files.weights).to(device)


def _written(job: Job, result: Adaptation, more: dict[str, Any], out: Path) -> dict[str, Any]:
    """The report of a mended graph; graph, predictions and patch are written first, the report last."""
    graph, predicted, patch, report_file = results_of(job.path, out)
    save_graph(graph, result.data)
    arrays = {"logits": result.logits.cpu().numpy(), "prediction": predictions(result.logits).cpu().numpy()}
    write_arrays(predicted, arrays)
    result.patch.save(patch)
    report = {
        **job.record,
        **result.summary(),
        "history": [asdict(step) for step in result.history],
        "candidates": [asdict(candidate) for candidate in result.candidates],
        **more,
    }
    if job.tested is not None:
        report["test"] = {"before": job.before, **scores_if_possible(result.logits, job.data, job.tested)}
    write_text(report_file, json.dumps(report, indent=2) + "\n")
    return report
