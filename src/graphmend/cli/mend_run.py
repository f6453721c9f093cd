"""The work of 'graphmend mend': check everything, mend each graph, write the results of each as soon as it is done."""

from __future__ import annotations

import functools
import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor, nn

from graphmend.adapters import Identity
from graphmend.cli.card_files import Card, card_beside, card_of_graphs, find_card
from graphmend.cli.console import PlainConsole, has_terminal
from graphmend.cli.device import device_of, for_model
from graphmend.cli.engines import workers_of
from graphmend.cli.labels import check_answers, labels_digest, read_labels
from graphmend.cli.limits import limits_of
from graphmend.cli.mend_options import GATE
from graphmend.cli.mend_tables import print_reports, print_verdicts
from graphmend.cli.mend_work import Job, Mending, ModelFiles
from graphmend.cli.methods import adapter_of, applying, methods
from graphmend.cli.models import load_any_model
from graphmend.cli.paths import check_no_clash, results_of
from graphmend.cli.scoring import labelled_nodes, scores_of
from graphmend.errors import GraphMendError, require
from graphmend.files.files import check_folder, check_target, digest, is_whole
from graphmend.files.graph_files import load_graph
from graphmend.graph.checks import first_entry, is_finite
from graphmend.progress import track
from graphmend.results.fingerprint import fingerprint, fingerprint_of
from graphmend.version import __version__
from graphmend.workers.folders import in_folder
from graphmend.workers.local import Lost, Workers

WITHOUT_CARD = ("airgnn_tune", "fine_tune", "gtrans", "identity", "jaccard", "tent")
"""Adapters that do not look at a source card."""

TEST = "test_mask"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for; ``out`` is ``None`` if nothing shall be written."""

    graphs: list[Path]
    out: Path | None
    model: Path | None
    factory: str | None
    weights: Path | None
    adapter: str
    settings: dict[str, Any]
    given: set[str]
    limits: dict[str, Any]
    mode: str
    seed: int
    device: str
    card: Path | None
    sources: list[Path]
    no_card: bool
    verdict_only: bool
    questions: int
    labels: Path | None
    json: bool
    quiet: bool
    jobs: int | None = None
    ray: str | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The file that the model's weights come from."""
        return self.weights if self.model is None else self.model


def run_mend(request: Request) -> None:
    """Mend the graphs, or say what would be done, and print it."""
    workers = workers_of(request.jobs, request.ray, request.device)
    where = device_of(request.device)
    chosen = applying(request.adapter, request.settings, request.given)
    _check_request(request)
    answers = None if request.labels is None else read_labels(request.labels)
    net = load_any_model(request.model, factory=request.factory, weights=request.weights).to(where)
    adapter_of(request.adapter, chosen)  # complain before any graph is read
    card = _card(request, net, where)
    settings = {
        "adapter": request.adapter,
        **chosen,
        **request.limits,
        "seed": request.seed,
        "mode": request.mode,
        "card": card.digest,
        "questions": request.questions,
        "labels": None if answers is None else labels_digest(answers),
    }
    same: dict[str, Any] = {
        "model": digest(net.state_dict(), f"{net} {getattr(net, 'config', request.factory)}"),
        "graphmend": __version__,
        "settings": settings,
    }
    jobs = [_job(path, request, net, card, same) for path in request.graphs]
    for job in jobs:  # all labels are checked before the first graph is mended
        if job.report is None:
            _check_labels(job, request, net, card, chosen.get("label_mask"), answers)

    paths = (_absolute(request.model), request.factory, _absolute(request.weights), Path.cwd())
    left = [job for job in jobs if job.report is None]
    shown = not request.quiet and not request.json
    mending = Mending(
        net=net,
        files=ModelFiles(*paths, same["model"]),
        device=where,
        adapter=request.adapter,
        options=chosen,
        call={"seed": request.seed, "mode": request.mode, "progress": shown and len(left) == 1},
        card=card,
        questions=request.questions,
        answers=answers,
        labels=request.labels,
    )
    reports = _mended(mending, left, workers, request.out, progress=shown and len(left) > 1 and has_terminal())
    for job in left:
        job.report = reports[job.path]
    _print(request, [job.report for job in jobs if job.report is not None], card)


def _mended(
    mending: Mending, jobs: list[Job], workers: Workers, out: Path | None, progress: bool
) -> dict[Path, dict[str, Any]]:
    """The reports of graphs, by their paths; the bar counts graphs."""
    if out is None:
        results = workers(functools.partial(mending, folder=None), jobs)
    else:
        results = in_folder(workers, mending, out, jobs)
    reports: dict[Path, dict[str, Any]] = {}
    with closing(track(range(len(jobs)), "graphs", progress)) as bar:
        for _ in bar:
            result = next(results)
            if isinstance(result, Lost):
                raise GraphMendError(
                    f"the process that mended {result.item.path} died ({result.reason}); mend it alone"
                )
            path, reports[path] = result
    return reports


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _check_request(request: Request) -> None:
    """Raise, before any file is read, if options contradict each other or results cannot be written."""
    for flag, value in {
        "--verdict-only": request.verdict_only,
        "--questions": request.questions,
        "--labels": request.labels,
    }.items():
        gives = not value or request.adapter == GATE
        require(gives, f"{flag} asks for a verdict, and --adapter {request.adapter} gives none; drop one")
    one = len(request.graphs) == 1 or request.labels is None
    require(
        one, f"--labels {request.labels} is about one graph, but there are {len(request.graphs)}; mend one at a time"
    )
    if request.verdict_only:
        return
    if request.out is None:
        raise GraphMendError("there is no place for the results; give --out, or --verdict-only to write nothing")
    beside = None if request.checkpoint is None else card_beside(request.checkpoint)
    read = [request.model, request.weights, request.card, beside, request.labels, *request.graphs, *request.sources]
    targets = [target for path in request.graphs for target in results_of(path, request.out)]
    check_no_clash(targets, [path for path in read if path is not None])
    check_folder(request.out)
    for target in targets:
        check_target(target)


def _card(request: Request, net: nn.Module, device: torch.device) -> Card:
    """The card that was asked for, made or found."""
    if request.adapter in WITHOUT_CARD:
        useless = ["--card"] * (request.card is not None) + ["--source"] * bool(request.sources)
        require(
            not useless, f"--adapter {request.adapter} has no use for a source card; leave out {' and '.join(useless)}"
        )
        return Card(None, f"no source card, for which {request.adapter} has no use")
    if request.sources:
        wanted = "--card" if request.card is not None else "--no-card"
        single = request.card is None and not request.no_card
        require(single, f"--source makes a card on the way; leave out {wanted}")
        made = card_of_graphs(net, request.sources, device, request.settings["embedding"])
        return Card(made, f"source card made from {', '.join(map(str, request.sources))}")
    return find_card(request.checkpoint, request.card, request.no_card)


def _job(path: Path, request: Request, net: nn.Module, card: Card, same: dict[str, Any]) -> Job:
    """A graph that fits the model, the card and the limits."""
    original = load_graph(path)
    _check_missing(original.x, request.adapter, path)
    data = for_model(original, net, device_of(request.device))
    card.check(net, data)
    tensors = {name: value for name, value in original.to_dict().items() if torch.is_tensor(value)}
    record = {
        "graph": path.name,
        "fingerprint": fingerprint_of(original),
        "arrays": fingerprint(tensors),
        **same,
    }
    report = None if request.out is None else _done(results_of(path, request.out), record)
    return Job(path, original, data, limits_of(original, request.limits, path), record, report)


def _check_missing(x: Tensor, adapter: str, path: Path) -> None:
    """Raise if values are missing and the adapter does not fill them."""
    if not methods()[adapter].fills_missing and not is_finite(x):
        missing = x.isnan()
        raise GraphMendError(
            f"{path}: x holds {int(missing.sum())} missing values, first {first_entry(x, missing)}, and --adapter "
            f"{adapter} does not fill them; mend the graph with --adapter impute first, and the result with {adapter}"
        )


class _OnFilled(Identity):
    """Plain prediction, also where values are missing, which are filled."""

    fills_missing = True


def _check_labels(
    job: Job,
    request: Request,
    net: nn.Module,
    card: Card,
    label_mask: str | None,
    answers: dict[int, int] | None,
) -> None:
    """Read all labels that will be used or scored, and raise unless they are classes that the model knows."""
    data, path = job.data, job.path
    if label_mask is not None:
        job.labelled = labelled_nodes(data, label_mask, path)
    if request.out is not None and data.get("y") is not None and data.get(TEST) is not None:
        job.tested = labelled_nodes(data, TEST, path)
    if job.labelled is None and job.tested is None and answers is None:
        return
    logits = _OnFilled()(net, data, limits=job.limits, card=card.card).logits
    if job.labelled is not None and label_mask is not None:
        scores_of(logits, data, job.labelled, label_mask, path)
    if job.tested is not None:
        job.before = scores_of(logits, data, job.tested, TEST, path)
    if answers is not None and request.labels is not None:
        check_answers(answers, logits, request.labels)


def _done(results: list[Path], record: dict[str, Any]) -> dict[str, Any] | None:
    """The stored report of the very same work, if all of it is there and whole."""
    *parts, report_file = results
    try:
        stored = json.loads(report_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(stored, dict) and all(stored.get(key) == json.loads(json.dumps(record[key])) for key in record)
    return stored if same and all(map(is_whole, parts)) else None


def _print(request: Request, reports: list[dict[str, Any]], card: Card) -> None:
    if request.json:
        typer.echo(json.dumps(reports))
    elif request.verdict_only:
        print_verdicts(PlainConsole(), reports, card.origin, request.quiet)
    elif not request.quiet:
        print_reports(PlainConsole(), reports, card.origin, str(request.out), has_verdicts=request.adapter == GATE)
