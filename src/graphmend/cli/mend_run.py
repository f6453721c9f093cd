"""The work of 'graphmend mend': check everything, mend each graph, write the results of each as soon as it is done."""

from __future__ import annotations

import functools
import json
from contextlib import chdir, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters import ADAPTERS
from graphmend.adapters.case import Needs, prepare
from graphmend.cli.card_files import Card, card_beside, card_of_graphs, find_card
from graphmend.cli.common import GATE, check_no_clash, workers_of
from graphmend.cli.console import PlainConsole, has_terminal, show_log
from graphmend.cli.mend_adapter import adapter_with
from graphmend.cli.mend_files import ResultFiles, stored_report, write_results
from graphmend.cli.mend_hetero import mend_hetero_files
from graphmend.cli.mend_inputs import (
    Answers,
    answers_digest,
    answers_in,
    check_answers,
    labelled_nodes,
    limits_of,
    mask_in,
    settle,
)
from graphmend.cli.mend_pages import check_pages, facts_for, write_index_of
from graphmend.cli.mend_scores import Scored, scored, scores_of
from graphmend.cli.mend_tables import print_reports, print_verdicts
from graphmend.cli.models import device_of, for_model, load_any_model
from graphmend.cli.settings import LOSS, settings, values_for
from graphmend.errors import GraphMendError, require
from graphmend.files.digest import model_digest, unchanged
from graphmend.files.files import check_folder, check_target, digest
from graphmend.files.hetero_graphs import is_hetero_file
from graphmend.files.provenance import provenance
from graphmend.graph.checks import first_entry, is_finite
from graphmend.graph.edits import edge_attributes
from graphmend.graph.limits import Limits
from graphmend.graph.mapped import MappedGraph
from graphmend.progress import track
from graphmend.results.fingerprint import fingerprint, fingerprint_of
from graphmend.shards.folder import read_graph
from graphmend.version import __version__
from graphmend.workers.folders import in_folder
from graphmend.workers.local import Lost, Workers
from graphmend.workers.ray_cluster import Ray
from graphmend.workers.shard_tasks import on_cluster

Report = dict[str, Any]

TEST = "test_mask"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for; ``out`` is ``None`` if nothing is to be written, ``given`` has settings of the adapter."""

    graphs: list[Path]
    out: Path | None
    model: Path | None
    factory: str | None
    weights: Path | None
    adapter: str
    given: dict[str, Any]
    limits: dict[str, Any]
    output: str | int | None
    task: str | None
    mode: str
    seed: int
    device: str
    card: Path | None
    sources: list[Path]
    no_card: bool
    verdict_only: bool
    report: bool
    questions: int
    labels: Path | None
    json: bool
    quiet: bool
    log_level: int
    jobs: int | None = None
    ray: str | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The file that the model's weights come from."""
        return self.weights if self.model is None else self.model


@dataclass
class Job:
    """One graph, and what is read and checked before it is mended.

    Args:
        path: The file of the graph.
        original: The graph as it is in the file.
        data: The graph as the model takes it.
        limits: What must not change.
        record: What, besides the graph's fingerprint, must agree for finished work to be valid.
        files: Where its results are written, unless nothing is to be written.
        report: The report of the same work, if it was done before.
        arrays: The arrays of the graph file that settings of the adapter name.
        tested: What is scored.
        before: Its scores on the unmended graph.
    """

    path: Path
    original: Data
    data: Data
    limits: Limits
    record: dict[str, Any]
    files: ResultFiles | None
    report: Report | None = None
    arrays: dict[str, Tensor] = field(default_factory=dict)
    tested: Scored | None = None
    before: dict[str, float] | None = None

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the graph in the file."""
        return fingerprint_of(self.original)


@dataclass(frozen=True)
class ModelFiles:
    """Where a model comes from, so that another process can read it.

    Args:
        model: A checkpoint, or ``None``.
        factory: The function that builds it otherwise.
        weights: Its weights.
        folder: The current folder, which is searched for the function first.
        digest: A digest of the model, so that a model that was read before is not mistaken for another.
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
        settings: Its settings.
        call: Seed, mode and progress.
        card: The source card.
        pages: Whether a page about each graph is written.
        questions: How many nodes to ask about at most.
        answers: Known labels, by node.
        labels: The file that they come from.
        log_level: Which log messages are shown, in other processes, too.
    """

    net: nn.Module | None
    files: ModelFiles
    device: torch.device
    adapter: str
    settings: dict[str, Any]
    call: dict[str, Any]
    card: Card
    pages: bool
    questions: int
    answers: Answers | None
    labels: Path | None
    log_level: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_model, ({**vars(self), "net": None},)

    def __call__(self, job: Job, folder: Path | None) -> tuple[Path, Report]:
        """The graph's path and report; the results are written if there is a folder for them."""
        net = _read_once(self.files, self.device) if self.net is None else self.net
        adapter = adapter_with(self.adapter, self.settings, job.arrays)
        result = adapter(net, job.data, card=self.card.card, limits=job.limits, **self.call)
        if self.answers is not None and self.labels is not None:
            result = settle(result, self.answers, self.labels)
        nodes = result.questions(self.questions).tolist() if self.questions else None
        more: Report = {"questions": nodes, "card": self.card.summary()}
        facts = facts_for(job.path, result, job.data, job.tested) if self.pages else None  # in the model's own type
        if (job.data.x.dtype, job.data.x.device) != (job.original.x.dtype, job.original.x.device):
            result = result.rebase(job.original, cast=job.data, before=vars(job).get("fingerprint"))
        if folder is None or job.files is None:
            return job.path, {"graph": job.path.name, **result.summary(), **more}
        more["provenance"] = provenance(self.device)
        return job.path, write_results(job, result, more, job.files.into(folder), facts)


def _without_model(fields: dict[str, Any]) -> Mending:
    show_log(fields["log_level"])
    return Mending(**fields)


@functools.lru_cache(maxsize=1)
def _read_once(files: ModelFiles, device: torch.device) -> nn.Module:
    with nullcontext() if files.factory is None else chdir(files.folder):
        return load_any_model(files.model, factory=files.factory, weights=files.weights).to(device)


def run_mend(request: Request) -> None:
    """Mend the graphs, or say what would be done, and print it."""
    workers = workers_of(request.jobs, request.ray, request.device)
    where = device_of(request.device)
    chosen = values_for(request.adapter, request.given)
    _check_request(request)
    answers = None if request.labels is None else answers_in(request.labels)
    net = load_any_model(request.model, factory=request.factory, weights=request.weights).to(where)
    adapter_with(request.adapter, chosen, {})  # complain before any graph is read
    with unchanged(net):
        if any(map(is_hetero_file, request.graphs)):
            mend_hetero_files(request, net, adapter_with(request.adapter, chosen, {}), where)
        else:
            _run(request, net, chosen, answers, workers, where)


def _run(
    request: Request,
    net: nn.Module,
    chosen: dict[str, Any],
    answers: Answers | None,
    workers: Workers,
    where: torch.device,
) -> None:
    card = _card(request, net, where)
    same: dict[str, Any] = {
        "model": _digest_of(net, request.factory),
        "graphmend": __version__,
        "settings": {
            "adapter": request.adapter,
            **chosen,
            **request.limits,
            "output": request.output,
            "task": request.task,
            "seed": request.seed,
            "mode": request.mode,
            "card": card.digest,
            "questions": request.questions,
            "labels": None if answers is None else answers_digest(answers),
        },
    }
    jobs = [_job(path, request, net, card, same) for path in request.graphs]
    for job in jobs:  # all labels are checked before the first graph is mended
        if job.report is None:
            _read_arrays(job, request, chosen)
            _check_labels(job, request, net, card, chosen.get("label_mask"), answers)

    paths = (_absolute(request.model), request.factory, _absolute(request.weights), Path.cwd())
    left = [job for job in jobs if job.report is None]
    shown = not request.quiet and not request.json
    mending = Mending(
        net=net,
        files=ModelFiles(*paths, same["model"]),
        device=where,
        adapter=request.adapter,
        settings=chosen,
        call={
            "output": request.output,
            "task": request.task,
            "seed": request.seed,
            "mode": request.mode,
            "progress": shown and len(left) == 1,
        },
        card=card,
        pages=request.report,
        questions=request.questions,
        answers=answers,
        labels=request.labels,
        log_level=request.log_level,
    )
    cluster = workers if isinstance(workers, Ray) and where.type == "cpu" else None
    apart = [job for job in left if cluster is None or not isinstance(job.data, MappedGraph)]
    reports = _mended(mending, apart, workers, request.out, progress=shown and len(left) > 1 and has_terminal())
    for job in left:
        if job.path not in reports:  # a graph folder is work for all of them together
            with on_cluster(job.data, cluster, shown) as graph:
                _, reports[job.path] = mending(replace(job, data=graph), request.out)
        job.report = reports[job.path]
    if request.report and request.out is not None:
        write_index_of(request.out, [(job.path, job.report) for job in jobs if job.report is not None])
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
                message = f"the process that mended {result.item.path} died ({result.reason}); mend it alone"
                raise GraphMendError(message)
            path, reports[path] = result
    return reports


def _digest_of(net: nn.Module, factory: str | None) -> str:
    """A digest of a model: its weights with their types, its layers, and how it was made."""
    types = sorted({str(parameter.dtype) for parameter in net.parameters()})
    return digest({}, f"{model_digest(net)} {types} {net} {getattr(net, 'config', factory)}")


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
        require(not request.report, "--report writes a page, and --verdict-only writes nothing; drop one")
        return
    if request.out is None:
        raise GraphMendError("there is no place for the results; give --out, or --verdict-only to write nothing")
    beside = None if request.checkpoint is None else card_beside(request.checkpoint)
    read = [request.model, request.weights, request.card, beside, request.labels, *request.graphs, *request.sources]
    results = [ResultFiles.of(path, request.out, request.report) for path in request.graphs]
    targets = [target for files in results for target in (*files.parts, files.report)]
    pages = check_pages(request.out, len(request.graphs)) if request.report else []
    check_no_clash([*targets, *pages], [path for path in read if path is not None])
    check_folder(request.out)
    for files in results:
        files.check()
    for page in pages:
        check_target(page)


def _card(request: Request, net: nn.Module, device: torch.device) -> Card:
    """The card that was asked for, made or found."""
    if not ADAPTERS[request.adapter].uses_card:
        useless = ["--card"] * (request.card is not None) + ["--source"] * bool(request.sources)
        require(
            not useless, f"--adapter {request.adapter} has no use for a source card; leave out {' and '.join(useless)}"
        )
        return Card(None, f"no source card, for which {request.adapter} has no use")
    if request.sources:
        wanted = "--card" if request.card is not None else "--no-card"
        single = request.card is None and not request.no_card
        require(single, f"--source makes a card on the way; leave out {wanted}")
        made = card_of_graphs(
            net, request.sources, device, request.given.get("embedding"), request.output, request.task
        )
        return Card(made, f"source card made from {', '.join(map(str, request.sources))}")
    return find_card(request.checkpoint, request.card, request.no_card)


def _job(path: Path, request: Request, net: nn.Module, card: Card, same: dict[str, Any]) -> Job:
    """A graph that fits the model, the card and the limits."""
    files = None if request.out is None else ResultFiles.of(path, request.out, request.report)
    # machines of a cluster need not see the folder of the results, so nothing is kept there
    original = read_graph(path, keep=files.kept if files is not None and request.ray is None else None)
    _check_missing(original.x, request.adapter, path)
    data = for_model(original, net, device_of(request.device))
    card.check(net, data)
    graph = {"x", "edge_index", *edge_attributes(original)}  # which the fingerprint of the graph covers
    others = {name: value for name, value in original.to_dict().items() if torch.is_tensor(value) and name not in graph}
    record = {"graph": path.name, "arrays": fingerprint(others), **same}
    job = Job(path, original, data, limits_of(original, request.limits, path), record, files)
    if files is not None:
        job.report = stored_report(job, files)
        if job.report is not None:
            files.remove_kept()
    return job


def _check_missing(x: Tensor, adapter: str, path: Path) -> None:
    """Raise if values are missing and the adapter does not fill them."""
    if not ADAPTERS[adapter].fills_missing and not is_finite(x):
        missing = x.isnan()
        raise GraphMendError(
            f"{path}: x holds {int(missing.sum())} missing values, first {first_entry(x, missing)}, and --adapter "
            f"{adapter} does not fill them; mend the graph with --adapter impute first, and the result with {adapter}"
        )


def _read_arrays(job: Job, request: Request, chosen: dict[str, Any]) -> None:
    """Read the arrays that settings of the adapter name."""
    for setting in settings()[request.adapter]:
        name = chosen[setting.name]
        if setting.kind == "array" and name is not None:
            if setting in LOSS:  # all of these nodes need labels
                job.arrays[setting.name] = labelled_nodes(job.data, name, job.path)
            else:
                job.arrays[setting.name] = mask_in(job.data, setting.name, name, job.path)


def _check_labels(
    job: Job,
    request: Request,
    net: nn.Module,
    card: Card,
    label_mask: str | None,
    answers: Answers | None,
) -> None:
    """Read all labels that will be used or scored, and raise unless the model predicts such labels."""
    data, path = job.data, job.path
    has_test = request.out is not None and data.get("y") is not None and data.get(TEST) is not None
    if label_mask is None and not has_test and answers is None:
        return
    filled = Needs("a plain prediction", fills_missing=True)
    options: Any = {"limits": job.limits, "card": card.card, "output": request.output, "task": request.task}
    with prepare(net, data, filled, **options) as case, torch.no_grad():
        logits = case.require_frozen().predict(case.data)
        task = case.task(logits)
    if label_mask is not None:
        scores_of(logits, data, job.arrays["label_mask"], label_mask, path)
    if has_test:
        job.tested, job.before = scored(task, logits, data, TEST, path)
    if answers is not None and request.labels is not None:
        check_answers(answers, task, logits, request.labels)


def _print(request: Request, reports: list[dict[str, Any]], card: Card) -> None:
    if request.json:
        typer.echo(json.dumps(reports))
    elif request.verdict_only:
        print_verdicts(PlainConsole(), reports, card.origin, request.quiet)
    elif not request.quiet:
        print_reports(PlainConsole(), reports, card.origin, str(request.out), has_verdicts=request.adapter == GATE)
