"""The command line: parse, call, print."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import click
import torch
import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table
from torch import nn
from torch_geometric.data import Data

import graphmend
from graphmend.adaptation import Adaptation
from graphmend.datasets.embedded import EMBEDDED, embedded
from graphmend.datasets.splits import Splits
from graphmend.demo import Demo, run_demo
from graphmend.errors import GraphMendError, listed, require
from graphmend.files import read_safetensors, write_text
from graphmend.graph_files import load_graph, save_arrays, save_graph
from graphmend.gtrans import GTrans
from graphmend.limits import Limits
from graphmend.metrics import predictions, scores
from graphmend.model_files import load_any_model
from graphmend.nn import BACKBONES, build, save_model
from graphmend.patch import fingerprint
from graphmend.provenance import device_name, provenance
from graphmend.surrogates import SURROGATES, Contrastive, Supervised, Surrogate
from graphmend.training import ERM
from graphmend.transforms import VIEWS, view_of

app = typer.Typer(
    help="Mend the graph, keep the model: repair a test graph so that a frozen GNN predicts better on it.",
    epilog="Start with:  graphmend demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]
Device = Annotated[str, typer.Option(help="'cpu', 'cuda' or 'cuda:1'.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no messages.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for demo.json and the plots.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 5,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """See it work: a frozen GCN on handwritten digits, with the test graph shifted, corrupted and attacked.

    Everything ships with GraphMend; nothing is downloaded. Takes under a minute on two cores.
    """
    start(quiet)
    found = run_demo(seeds, first_seed=seed, device=str(device_of(device)), progress=not quiet and not json_)
    result = {**found.to_json(), "provenance": provenance(device, seeds=seeds, data="scikit-learn digits")}
    write_text(out / "demo.json", json.dumps(result, indent=2) + "\n")
    plots = _demo_plots(found, out)
    if json_:
        typer.echo(json.dumps(result))
        return
    Console().print(_demo_table(found))
    if not quiet:
        typer.echo(f"{found.seconds:.0f} s. Written: {', '.join(str(p) for p in (out / 'demo.json', *plots))}")


def _demo_plots(found: Demo, out: Path) -> list[Path]:
    from graphmend.report.plots import accuracy_plot, embedding_plot

    paths = [out / "accuracy.png", out / "embedding.png"]
    try:
        accuracy_plot(found, paths[0])
        embedding_plot(found, paths[1])
    except GraphMendError as error:  # matplotlib is an extra
        logging.getLogger(__name__).warning("%s", error)
        return []
    return paths


def _demo_table(found: Demo) -> Table:
    rows = found.table()
    table = Table(title=f"Test accuracy (%) of one frozen GCN, handwritten digits, {rows[0]['seeds']} seeds")
    for column in ("scenario", "clean graph", "harmed (Identity)", "mended (GTrans)", "paired difference", "better in"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for row in rows:
        cells = [f"{row[key]:.1f} ± {row[f'{key}_std']:.1f}" for key in ("clean", "before", "after")]
        gain = f"{row['gain']:+.1f} ± {row['gain_std']:.1f}"
        table.add_row(row["scenario"], *cells, gain, f"{row['better']} of {row['seeds']}")
    return table


@app.command()
def mend(
    graph: Annotated[
        list[Path], typer.Option(help="Graph to mend, .npz (x, edge_index, ...) or a saved PyG Data; may be repeated.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for the results.")],
    model: Annotated[Path | None, typer.Option(help="Checkpoint written by 'graphmend train'.")] = None,
    factory: Annotated[
        str | None, typer.Option(help="package.module:function that builds your own model; needs --weights.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Your model's state_dict as safetensors.")] = None,
    surrogate: Annotated[str, typer.Option(help=f"Surrogate loss: {listed(SURROGATES)}.")] = "contrastive",
    view: Annotated[str, typer.Option(help=f"Augmentation of the contrastive loss: {listed(VIEWS)}.")] = "drop_edge",
    label_mask: Annotated[
        str | None, typer.Option(help="Mask in the graph file whose labels may be used, such as train_mask.")
    ] = None,
    surrogate_weight: Annotated[float, typer.Option(help="Weight of the surrogate beside known labels.")] = 0.01,
    steps: Annotated[int, typer.Option(help="Steps in all.")] = 10,
    feature_steps: Annotated[int, typer.Option(help="Feature steps per cycle; 0 keeps the features.")] = 4,
    edge_steps: Annotated[int, typer.Option(help="Edge steps per cycle; 0 keeps the edges.")] = 1,
    lr_feature: Annotated[float, typer.Option(help="Learning rate of the features.")] = 1e-3,
    lr_edge: Annotated[float, typer.Option(help="Learning rate of the edge flips.")] = 0.1,
    budget: Annotated[str, typer.Option(help="Edges that may flip: a fraction (0.05) or a count (100).")] = "0.05",
    num_samples: Annotated[int, typer.Option(help="Discrete graphs to draw.")] = 5,
    edge_update: Annotated[str, typer.Option(help="adam, sign or gradient.")] = "adam",
    space: Annotated[str, typer.Option(help="existing edges, or random_block to add edges too.")] = "existing",
    directed: Annotated[
        str, typer.Option(help="On directed graphs: delete, or reverse as the released code.")
    ] = "delete",
    embedding: Annotated[str | None, typer.Option(help="Module whose output is the embedding.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds per graph after which no step is begun.")] = None,
    minimum: Annotated[float | None, typer.Option(help="Lowest feature value.")] = None,
    maximum: Annotated[float | None, typer.Option(help="Highest feature value.")] = None,
    binary: Annotated[bool, typer.Option("--binary", help="All features stay 0 or 1.")] = False,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Mend graphs for a trained model; labels are not needed.

    For each graph NAME three files are written: NAME.npz (the mended graph, with the predictions), NAME.patch.safetensors
    (the change, which Patch.load(...).revert takes back) and NAME.json. Graphs that were already mended with the same
    settings are skipped. Arrays frozen_nodes, frozen_columns and frozen_edges in a graph file mark what must not change.
    """
    start(quiet)
    where = device_of(device)
    names = [path.stem for path in graph]
    require(len(set(names)) == len(names), f"two graphs have the same file name ({', '.join(names)}); rename one")
    net = load_any_model(model, factory=factory, weights=weights).to(where)
    settings: dict[str, Any] = {
        "steps": steps,
        "feature_steps": feature_steps,
        "edge_steps": edge_steps,
        "lr_feature": lr_feature,
        "lr_edge": lr_edge,
        "budget": parse_budget(budget),
        "num_samples": num_samples,
        "edge_update": edge_update,
        "space": space,
        "directed": directed,
        "embedding": embedding,
        "time_limit": time_limit,
    }
    spec = {"surrogate": surrogate, "view": view, "label_mask": label_mask, "surrogate_weight": surrogate_weight}
    GTrans(_surrogate(spec, None), **settings)  # complain before any graph is read
    datas = [_for_model(load_graph(path), net, where) for path in graph]
    reports = []
    for path, data in zip(graph, datas, strict=True):
        record = {
            "graph": path.name,
            "fingerprint": fingerprint(data),
            "model": _fingerprint_model(net),
            "settings": {**settings, **spec, "minimum": minimum, "maximum": maximum, "binary": binary, "seed": seed},
        }
        target = out / f"{path.stem}.json"
        report = _done(target, record)
        if report is None:
            limits = _limits(data, minimum, maximum, binary)
            adapter = GTrans(_surrogate(spec, data), **settings)
            result = adapter(net, data, limits=limits, seed=seed, progress=not quiet and not json_)
            report = {**record, **_report(result, data), "provenance": provenance(where)}
            _write(result, out, path.stem)
            write_text(target, json.dumps(report, indent=2) + "\n")
        reports.append(report)
    if json_:
        typer.echo(json.dumps(reports))
    elif not quiet:
        Console().print(_mend_table(reports, out))


def _for_model(data: Data, net: nn.Module, device: torch.device) -> Data:
    """Features in the model's floating-point type, all on one device."""
    kinds = {p.dtype for p in net.parameters() if p.is_floating_point()}
    if len(kinds) == 1:
        data.x = data.x.to(kinds.pop())
    return data.to(device)  # type: ignore[no-any-return]


def _surrogate(spec: dict[str, Any], data: Data | None) -> Surrogate:
    require(spec["surrogate"] in SURROGATES, f"unknown surrogate {spec['surrogate']!r}; choose {listed(SURROGATES)}")
    loss: Surrogate = Contrastive(view_of(spec["view"]))
    name = spec["label_mask"]
    if name is None or data is None:
        return loss
    mask = data.get(name)
    require(mask is not None, f"the graph has no mask {name!r}; it has {listed(data.keys())}")
    require(data.get("y") is not None, f"--label-mask {name} needs labels, but the graph has no y")
    return Supervised(mask) + spec["surrogate_weight"] * loss


def _limits(data: Data, minimum: float | None, maximum: float | None, binary: bool) -> Limits:
    return Limits(
        frozen_nodes=data.get("frozen_nodes"),
        frozen_columns=data.get("frozen_columns"),
        frozen_edges=data.get("frozen_edges"),
        minimum=minimum,
        maximum=maximum,
        binary=torch.ones(data.x.size(1), dtype=torch.bool) if binary else None,
    )


def _report(result: Adaptation, data: Data) -> dict[str, Any]:
    report = {
        **result.summary(),
        "history": [asdict(step) for step in result.history],
        "candidates": [asdict(candidate) for candidate in result.candidates],
    }
    if data.get("y") is not None and data.get("test_mask") is not None:
        before = graphmend.Identity()(result.model, data).logits
        report["test"] = {
            "before": scores(before, data.y, data.test_mask),
            "after": scores(result.logits, data.y, data.test_mask),
        }
    return report


def _write(result: Adaptation, out: Path, name: str) -> None:
    save_graph(out / f"{name}.npz", result.data)
    arrays = {"logits": result.logits.cpu().numpy(), "prediction": predictions(result.logits).cpu().numpy()}
    save_arrays(out / f"{name}.predictions.npz", arrays)
    result.patch.save(out / f"{name}.patch.safetensors")


def _fingerprint_model(net: nn.Module) -> str:
    tensors = {name: value for name, value in sorted(net.state_dict().items()) if value.numel()}
    return fingerprint(Data(x=torch.cat([t.detach().float().cpu().reshape(-1) for t in tensors.values()])[:, None]))


def _done(path: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """The stored report of the very same work, if all of it is there."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(stored, dict) and all(stored.get(key) == json.loads(json.dumps(record[key])) for key in record)
    parts = (".npz", ".predictions.npz", ".patch.safetensors")
    return stored if same and all(path.with_name(path.stem + part).exists() for part in parts) else None


def _mend_table(reports: list[dict[str, Any]], out: Path) -> Table:
    table = Table(title=f"Mended graphs in {out}")
    for column in ("graph", "surrogate loss", "feature rows", "edges removed", "edges added", "accuracy", "seconds"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for report in reports:
        first, last = report["loss_first"], report["loss_last"]
        loss = "-" if first is None else f"{first:.4f} → {last:.4f}"
        test = report.get("test")
        accuracy = f"{test['before']['accuracy']:.3f} → {test['after']['accuracy']:.3f}" if test else "no test_mask"
        cells = [report[key] for key in ("feature_rows_changed", "edge_entries_removed", "edge_entries_added")]
        table.add_row(report["graph"], loss, *map(str, cells), accuracy, f"{report['seconds']:.2f}")
        if report["reason"]:
            table.add_row("", f"left as it was: {report['reason']}", *[""] * 5)
    return table


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Checkpoint to write, .safetensors.")],
    dataset: Annotated[str | None, typer.Option(help=f"Embedded data set: {listed(EMBEDDED)}.")] = None,
    graph: Annotated[Path | None, typer.Option(help="Your graph with y, train_mask and val_mask.")] = None,
    backbone: Annotated[str, typer.Option(help=f"One of {listed(BACKBONES)}.")] = "gcn",
    hidden_channels: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 64,
    num_layers: Annotated[int, typer.Option(help="Number of layers.")] = 2,
    dropout: Annotated[float, typer.Option(help="Dropout.")] = 0.5,
    batch_norm: Annotated[bool, typer.Option("--batch-norm", help="Batch normalisation.")] = False,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.01,
    weight_decay: Annotated[float, typer.Option(help="Weight decay.")] = 5e-4,
    epochs: Annotated[int, typer.Option(help="Epochs.")] = 200,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Train a backbone by plain empirical risk minimisation and save the best validation epoch."""
    start(quiet)
    where = device_of(device)
    splits = _splits(dataset, graph)
    for part in (splits.train, splits.val, splits.test):
        part[:] = [data.to(where) for data in part]
    first = splits.train[0]
    classes = int(splits.meta["classes"])
    torch.manual_seed(seed)
    net = build(
        backbone,
        first.x.size(1),
        hidden_channels,
        classes,
        num_layers=num_layers,
        dropout=dropout,
        batch_norm=batch_norm,
    ).to(where, first.x.dtype)
    trainer = ERM(lr=lr, weight_decay=weight_decay, epochs=epochs, optimizer="adam", seed=seed)
    trainer(net, splits, progress=not quiet and not json_)
    save_model(net, out)
    report: dict[str, Any] = {"model": str(out), "backbone": backbone}
    for name, part in (("train", splits.train), ("validation", splits.val), ("test", splits.test)):
        for data in part:
            with torch.no_grad():
                logits = net(data.x, data.edge_index, data.get("edge_weight"))
            report[name] = scores(logits, data.y, data.mask)
    report["provenance"] = provenance(where, seed=seed)
    if json_:
        typer.echo(json.dumps(report))
    elif not quiet:
        table = Table(title=f"{backbone} trained, written to {out}")
        for column in ("nodes", "accuracy", "macro-F1"):
            table.add_column(column)
        for name in ("train", "validation", "test"):
            if name in report:
                table.add_row(name, f"{report[name]['accuracy']:.3f}", f"{report[name]['macro_f1']:.3f}")
        Console().print(table)


def _splits(dataset: str | None, graph: Path | None) -> Splits:
    require((dataset is None) != (graph is None), "give either --dataset or --graph")
    if dataset is not None:
        return embedded(dataset)
    assert graph is not None
    data = load_graph(graph)
    missing = [name for name in ("y", "train_mask", "val_mask") if data.get(name) is None]
    require(not missing, f"{graph} has no {', '.join(missing)}; training needs labels and both masks")
    parts: dict[str, list[Data]] = {}
    for name in ("train", "val", "test"):
        mask = data.get(f"{name}_mask")
        part = data.clone()
        part.mask = mask
        parts[name] = [] if mask is None else [part]
    classes = int(data.y[data.train_mask].max()) + 1
    return Splits(**parts, metric="accuracy", task="multiclass", meta={"name": graph.name, "classes": classes})


@app.command()
def info(
    path: Annotated[Path | None, typer.Argument(help="A graph, a checkpoint or a patch.")] = None,
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Say what a file holds, or, without one, what this installation has."""
    start(quiet)
    facts = _installation(device_of(device)) if path is None else _describe(path)
    if json_:
        typer.echo(json.dumps(facts))
        return
    table = Table(show_header=False)
    for key, value in facts.items():
        table.add_row(key, str(value))
    Console().print(table)


def _installation(device: torch.device) -> dict[str, Any]:
    return {
        **provenance(device),
        "cuda": device_name(torch.device("cuda")) if torch.cuda.is_available() else "not available",
        "backbones": listed(BACKBONES),
        "surrogates": listed([*SURROGATES, "supervised"]),
        "views": listed(VIEWS),
        "embedded data sets": listed(EMBEDDED),
    }


def _describe(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        tensors, header = read_safetensors(path)
        if "graphmend" in header:
            return {"kind": "patch", **json.loads(header["graphmend"])}
        kind = "GraphMend model" if header.get("format", "").startswith("graphmend-model") else "weights"
        return {"kind": kind, **header, "parameters": sum(t.numel() for t in tensors.values())}
    data = load_graph(path)
    facts: dict[str, Any] = {
        "kind": "graph",
        "nodes": data.x.size(0),
        "features": data.x.size(1),
        "edges": data.edge_index.size(1),
        "undirected": data.is_undirected(),
        "self-loops": int((data.edge_index[0] == data.edge_index[1]).sum()),
        "isolated nodes": data.has_isolated_nodes(),
        "x": f"{data.x.dtype}, {float(data.x.min()):.4g} to {float(data.x.max()):.4g}",
        "further arrays": listed(set(data.keys()) - {"x", "edge_index"}),
        "fingerprint": fingerprint(data),
    }
    if data.get("y") is not None and not data.y.is_floating_point():
        facts["classes"] = int(data.y.max()) + 1
    return facts


def device_of(name: str) -> torch.device:
    """A device that exists."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise GraphMendError(f"unknown device {name!r}; use 'cpu' or 'cuda'") from error
    require(device.type in ("cpu", "cuda"), f"unknown device {name!r}; use 'cpu' or 'cuda'")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        require((device.index or 0) < count, f"there is no device {name!r}, only {count} GPUs; use 'cpu'")
    return device


def parse_budget(text: str) -> float | int:
    """``0.05`` is a fraction, ``100`` a count."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError as error:
        raise GraphMendError(f"budget must be a fraction such as 0.05 or a count such as 100 (got {text!r})") from error


def start(quiet: bool) -> None:
    """Route the library's log to standard error."""
    level = logging.ERROR if quiet else logging.WARNING
    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False)
    logging.basicConfig(level=level, format="%(message)s", handlers=[handler], force=True)


def main() -> NoReturn:
    """Run; a problem is one sentence on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Abort:
        _fail("interrupted; what was finished is kept, run the same command to go on", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except GraphMendError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("interrupted; what was finished is kept, run the same command to go on", 130)
    except MemoryError:
        _fail("out of memory; use a smaller graph or a larger machine", 2)
    except torch.OutOfMemoryError as error:
        _fail(f"out of GPU memory ({str(error).splitlines()[0]}); use a smaller graph or --device cpu", 2)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename or ''}; check the path and the free space", 2)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
