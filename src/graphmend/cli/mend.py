"""``graphmend mend``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from torch import nn
from torch_geometric.data import Data

import graphmend
from graphmend.adapters import Identity
from graphmend.cli import mend_options as options
from graphmend.cli.card_files import Card, card_of_graphs, find_card
from graphmend.cli.common import (
    Device,
    JsonFlag,
    Quiet,
    Seed,
    device_of,
    for_model,
    log_to_stderr,
    parse_budget,
    reported,
)
from graphmend.cli.labels import labels_digest, read_labels, settle
from graphmend.cli.mend_tables import print_reports, print_verdicts
from graphmend.cli.methods import GATE, adapt, adapter_of, applying
from graphmend.errors import require
from graphmend.graph.limits import Limits
from graphmend.io.files import check_folder, digest, write_arrays, write_text
from graphmend.io.graph_files import load_graph, save_graph
from graphmend.io.provenance import provenance
from graphmend.metrics import predictions, scores
from graphmend.nn.checkpoint import load_any_model
from graphmend.results.adaptation import Adaptation
from graphmend.results.fingerprint import fingerprint, fingerprint_of

WITHOUT_CARD = ("gtrans", "identity")
"""Adapters that do not look at a source card."""


@reported
def mend(
    context: typer.Context,
    graph: options.Graphs,
    out: options.Out = None,
    model: options.Model = None,
    factory: options.Factory = None,
    weights: options.Weights = None,
    adapter: options.Method = GATE,
    embedding: options.Embedding = None,
    mode: options.Mode = "auto",
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
    card: options.CardFile = None,
    source: options.Source = None,
    no_card: options.NoCard = False,
    verdict_only: options.VerdictOnly = False,
    questions: options.Questions = 0,
    labels: options.Labels = None,
    minimum: options.Minimum = None,
    maximum: options.Maximum = None,
    binary: options.Binary = False,
    surrogate: options.SurrogateName = "contrastive",
    view: options.View = "drop_edge",
    label_mask: options.LabelMask = None,
    surrogate_weight: options.SurrogateWeight = 0.01,
    steps: options.Steps = 10,
    feature_steps: options.FeatureSteps = 4,
    edge_steps: options.EdgeSteps = 1,
    lr_feature: options.LrFeature = 1e-3,
    feature_scale: options.FeatureScale = "relative",
    lr_edge: options.LrEdge = 0.1,
    budget: options.Budget = "0.05",
    num_samples: options.NumSamples = 5,
    edge_update: options.EdgeUpdate = "adam",
    space: options.Space = "existing",
    directed: options.Directed = "delete",
    time_limit: options.TimeLimit = None,
) -> None:
    """Mend graphs for a trained model, where there is something to mend; labels are not needed.

    The gate compares each graph with what the model saw in training, as the source card has it, and says what it did
    and why; a graph that is as it should be is left alone. --verdict-only shows all evidence and writes nothing.

    For each graph NAME these files are written: NAME.npz (the mended graph), NAME.predictions.npz,
    NAME.patch.safetensors (the change; graphmend.Patch.load(...).revert takes it back) and NAME.json (the verdict and
    all settings). Graphs that were already mended with the same settings and the same card are skipped. Arrays
    frozen_nodes, frozen_columns and frozen_edges in a graph mark what must not change.
    """
    log_to_stderr(quiet)
    where = device_of(device)
    gtrans: dict[str, Any] = {
        "surrogate": surrogate,
        "view": view,
        "label_mask": label_mask,
        "surrogate_weight": surrogate_weight,
        "steps": steps,
        "feature_steps": feature_steps,
        "edge_steps": edge_steps,
        "lr_feature": lr_feature,
        "feature_scale": feature_scale,
        "lr_edge": lr_edge,
        "budget": budget,
        "num_samples": num_samples,
        "edge_update": edge_update,
        "space": space,
        "directed": directed,
        "embedding": embedding,
        "time_limit": time_limit,
    }
    chosen = applying(adapter, gtrans, context)
    if "budget" in chosen:
        chosen["budget"] = parse_budget(budget)
    _check_request(adapter, graph, out, verdict_only, {"--questions": questions, "--labels": labels})
    answers = None if labels is None else read_labels(labels)
    net = load_any_model(model, factory=factory, weights=weights).to(where)
    adapter_of(adapter, chosen)  # complain before any graph is read
    known = _card(net, model or weights, card, source or [], no_card, adapter, embedding, where)
    graphs = [for_model(load_graph(path), net, where) for path in graph]
    for data in graphs:
        known.check(net, data)
    bounds: dict[str, Any] = {"minimum": minimum, "maximum": maximum, "binary": binary}
    asked = {"questions": questions, "labels": None if answers is None else labels_digest(answers)}
    settings = {"adapter": adapter, **chosen, **bounds, "seed": seed, "mode": mode, "card": known.digest, **asked}

    def mended(data: Data) -> tuple[Adaptation, dict[str, Any]]:
        method = adapter_of(adapter, chosen, data)
        call = {"limits": _limits(data, **bounds), "seed": seed, "mode": mode, "progress": not quiet and not json_}
        result = adapt(method, net, data, card=known.card, **call)
        if answers is not None and labels is not None:
            result = settle(result, answers, labels)
        nodes = result.questions(questions).tolist() if questions else None
        return result, {"questions": nodes, "card": known.summary()}

    reports = []
    for path, data in zip(graph, graphs, strict=True):
        record = {
            "graph": path.name,
            "fingerprint": fingerprint_of(data),
            "arrays": fingerprint({name: value for name, value in data.to_dict().items() if torch.is_tensor(value)}),
            "model": digest(net.state_dict(), f"{net} {getattr(net, 'config', factory)}"),
            "graphmend": graphmend.__version__,
            "settings": settings,
        }
        if out is None or verdict_only:
            result, more = mended(data)
            reports.append({"graph": path.name, **result.summary(), **more})
            continue
        target = out / f"{path.stem}.json"
        report = _done(target, record)
        if report is None:
            result, more = mended(data)
            report = {**record, **_report(result, net, data), **more, "provenance": provenance(where)}
            _write(result, out, path.stem)
            write_text(target, json.dumps(report, indent=2) + "\n")
        reports.append(report)
    if json_:
        typer.echo(json.dumps(reports))
    elif verdict_only:
        print_verdicts(Console(), reports, known.origin, quiet)
    elif not quiet:
        print_reports(Console(), reports, known.origin, str(out), has_verdicts=adapter == GATE)


def _check_request(
    adapter: str, graphs: list[Path], out: Path | None, verdict_only: bool, asked: dict[str, Any]
) -> None:
    """Raise, before any file is read, if options contradict each other or results cannot be written."""
    for flag, value in {"--verdict-only": verdict_only, **asked}.items():
        require(
            not value or adapter == GATE, f"{flag} asks for a verdict, and --adapter {adapter} gives none; drop one"
        )
    one = len(graphs) == 1 or not asked["--labels"]
    require(one, f"--labels {asked['--labels']} is about one graph, but there are {len(graphs)}; mend one at a time")
    if verdict_only:
        return
    require(out is not None, "there is no place for the results; give --out, or --verdict-only to write nothing")
    assert out is not None
    names = [path.stem for path in graphs]
    require(len(set(names)) == len(names), f"two graphs have the same file name ({', '.join(names)}); rename one")
    clash = [path for path in graphs if (out / f"{path.stem}.npz").resolve() == path.resolve()]
    require(not clash, f"the result would overwrite the graph {clash[0] if clash else ''}; choose another --out")
    check_folder(out)


def _card(
    net: nn.Module,
    checkpoint: Path | None,
    given: Path | None,
    source: list[Path],
    no_card: bool,
    adapter: str,
    embedding: str | None,
    device: torch.device,
) -> Card:
    """The card that was asked for, made or found."""
    if adapter in WITHOUT_CARD:
        useless = ["--card"] * (given is not None) + ["--source"] * bool(source)
        require(not useless, f"--adapter {adapter} has no use for a source card; leave out {' and '.join(useless)}")
        return Card(None, f"no source card, for which {adapter} has no use")
    if source:
        wanted = "--card" if given is not None else "--no-card"
        require(given is None and not no_card, f"--source makes a card on the way; leave out {wanted}")
        made = card_of_graphs(net, source, device, embedding)
        return Card(made, f"source card made from {', '.join(map(str, source))}")
    return find_card(checkpoint, given, no_card)


def _limits(data: Data, *, minimum: float | None, maximum: float | None, binary: bool) -> Limits:
    return Limits(
        frozen_nodes=data.get("frozen_nodes"),
        frozen_columns=data.get("frozen_columns"),
        frozen_edges=data.get("frozen_edges"),
        minimum=minimum,
        maximum=maximum,
        binary=torch.ones(data.x.size(1), dtype=torch.bool) if binary else None,
    )


def _report(result: Adaptation, net: nn.Module, data: Data) -> dict[str, Any]:
    report = {
        **result.summary(),
        "history": [asdict(step) for step in result.history],
        "candidates": [asdict(candidate) for candidate in result.candidates],
    }
    if data.get("y") is not None and data.get("test_mask") is not None:
        before = Identity()(net, data).logits
        report["test"] = {
            "before": scores(before, data.y, data.test_mask),
            "after": scores(result.logits, data.y, data.test_mask),
        }
    return report


def _write(result: Adaptation, out: Path, name: str) -> None:
    save_graph(out / f"{name}.npz", result.data)
    arrays = {"logits": result.logits.cpu().numpy(), "prediction": predictions(result.logits).cpu().numpy()}
    write_arrays(out / f"{name}.predictions.npz", arrays)
    result.patch.save(out / f"{name}.patch.safetensors")


def _done(path: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """The stored report of the very same work, if all of it is there."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(stored, dict) and all(stored.get(key) == json.loads(json.dumps(record[key])) for key in record)
    parts = (".npz", ".predictions.npz", ".patch.safetensors")
    return stored if same and all(path.with_name(path.stem + part).exists() for part in parts) else None
