"""The work of 'graphmend data': list, check and fetch data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from graphmend.cli.console import PlainConsole, plain_table
from graphmend.cli.models import device_of
from graphmend.errors import GraphMendError, choose
from graphmend.files.files import check_target, write_text
from graphmend.lab.data.catalogue import Availability, Dataset
from graphmend.lab.data.readers.sources import find
from graphmend.lab.data.registry import DATASETS, availability, compare, load, measured, missing_files
from graphmend.lab.data.splits import Splits
from graphmend.progress import track

BEGIN, END = "<!-- begin: written by 'graphmend data check' -->", "<!-- end -->"
SIZES = ("nodes", "edges", "features", "classes")


def run_list(data_dir: Path | None, as_json: bool, device: str) -> None:
    """Print every data set; arguments as in the command."""
    device_of(device)
    entries = [_entry(dataset, data_dir) for dataset in DATASETS.values()]
    if as_json:
        typer.echo(json.dumps(entries))
        return
    console, table = PlainConsole(), plain_table("Data sets", gap=1)
    for column in ("name", *SIZES, "metric", "here"):
        table.add_column(column, no_wrap=True, justify="right" if column in SIZES else "left")
    for entry in entries:
        table.add_row(entry["name"], *(_span(entry[key]) for key in SIZES), entry["metric"], _here(entry))
    console.print(table)
    console.print()
    for entry in entries:
        console.say(entry["name"], f"shift: {entry['shift']}; {entry['status']}")


def run_check(
    names: list[str],
    markdown: Path | None,
    data_dir: Path | None,
    as_json: bool,
    seed: int,
    device: str,
    quiet: bool,
) -> bool:
    """Print measured beside published statistics; whether they agree. Arguments as in the command."""
    device_of(device)
    chosen = [choose("data set", name, DATASETS) for name in names or DATASETS]
    if not names:  # generated sets take long and have nothing to be compared with
        chosen = [d for d in chosen if not d.generated and not missing_files(d, data_dir)]
    if markdown is not None:
        check_target(markdown)
    reports = [_checked(d, data_dir, seed) for d in track(chosen, "checking", not quiet and not as_json)]
    if markdown is not None:
        _write_page(markdown, _markdown(reports))
    if as_json:
        typer.echo(json.dumps(reports))
    elif not quiet:
        _print_checks(PlainConsole(), reports)
    return not any(report["differences"] for report in reports)


def run_fetch(name: str, data_dir: Path | None, as_json: bool, seed: int, device: str, quiet: bool) -> None:
    """Load a data set, wherever its files are; arguments as in the command."""
    device_of(device)
    dataset = choose("data set", name, DATASETS)
    with nullcontext() if quiet or as_json else Console(stderr=True).status(f"fetching {name}"):
        splits = load(name, seed=seed, data_dir=data_dir)
    files = [str(path) for group in dataset.files for path in _complete_group(group, data_dir)]
    report = {"name": name, "loaded": _loaded_name(splits, dataset), "files": files}
    if as_json:
        typer.echo(json.dumps(report))
    elif not quiet:
        ready = f"{report['loaded']}: ready{', from ' + _summary(files) if files else ''}"
        PlainConsole().print(ready, soft_wrap=True)


def _loaded_name(splits: Splits, dataset: Dataset) -> str:
    """The name of the data set once it is loaded, which differs if one graph replaces another."""
    return str(splits.meta.get("name", dataset.name)).replace("_", "-")


def _complete_group(group: Iterable[str], data_dir: Path | None) -> list[Path]:
    """The paths of a group of files if all of them are available."""
    paths = [find(file, data_dir) for file in group]
    return [path for path in paths if path is not None] if all(paths) else []


def _entry(dataset: Dataset, data_dir: Path | None) -> dict[str, Any]:
    try:
        files = availability(dataset, data_dir)
        available, status = not files.missing, _status(dataset, files)
    except GraphMendError as error:  # a damaged file must not hide the other data sets
        files, available, status = Availability(dataset.name, []), False, str(error)
    return {
        "name": dataset.name,
        "shift": dataset.shift,
        **{key: _range(dataset, key) for key in SIZES},
        "metric": dataset.metric,
        "generated": dataset.generated,
        "available": available,
        "loaded": files.loaded if available else None,
        "stand_ins": files.stand_ins if available else {},
        "missing": files.missing,
        "status": status,
        "note": dataset.note,
    }


def _status(dataset: Dataset, files: Availability) -> str:
    if files.missing:
        return f"missing {' or '.join(map(_summary, files.missing))}"
    if not files.stand_ins:
        return "generated" if dataset.generated else "available"
    pairs = [f"{other} for {school}" for school, other in files.stand_ins.items()]
    return f"available as {files.loaded}, with {' and '.join(pairs)}"


def _here(entry: dict[str, Any]) -> str:
    """Whether a data set is available; with stand-ins its name and theirs, one below the other."""
    if not entry["stand_ins"]:
        return "yes" if entry["available"] else "no"
    graphs = ",\n".join(entry["stand_ins"].values())
    return f"{entry['loaded']}\n({graphs})"


def _range(dataset: Dataset, key: str) -> list[int] | None:
    """Smallest and largest published value over the graphs of a data set; parts of a graph are left out."""
    keys = (key, f"directed_{key}")
    graphs = [values for values in dataset.published.values() if "features" in values or "classes" in values]
    sizes = [values[k] for values in graphs for k in keys if k in values]
    return [min(sizes), max(sizes)] if sizes else None


def _span(values: list[int] | None) -> str:
    """A published size, or the smallest and the largest of several, short enough for a narrow terminal."""
    return "-" if values is None else "-".join(_short(value) for value in dict.fromkeys(values))


def _short(value: int) -> str:
    if value < 10_000:
        return f"{value:,}"
    return f"{value / 1e3:.1f}k" if value < 1_000_000 else f"{value / 1e6:.2f}M"


def _summary(files: list[str]) -> str:
    return files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def _checked(dataset: Dataset, data_dir: Path | None, seed: int) -> dict[str, Any]:
    splits = load(dataset.name, seed=seed, data_dir=data_dir)
    graphs = compare(measured(dataset, splits), dataset.published)
    comparisons = [
        (f"{graph}: {key}", row)
        for graph, rows in graphs.items()
        for key, row in rows.items()
        if row["published"] is not None
    ]
    return {
        "name": dataset.name,
        "loaded": _loaded_name(splits, dataset),
        "metric": splits.metric,
        "graphs": graphs,
        "compared": len(comparisons),
        "differences": [
            f"{statistic} is {_number(row['measured'])}, published {_number(row['published'])}"
            for statistic, row in comparisons
            if row["difference"] != 0
        ],
    }


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _rows(report: dict[str, Any]) -> list[list[str]]:
    """One line per graph; consecutive graphs with the same numbers share a line."""
    lines: list[tuple[list[str], list[str]]] = []
    for graph, rows in report["graphs"].items():
        cells = [_cell(rows, key) for key in SIZES]
        cells.append(", ".join(f"{key} {_cell(rows, key)}" for key in rows if key not in SIZES))
        known = [row for row in rows.values() if row["published"] is not None]
        wrong = [key for key, row in rows.items() if row["published"] is not None and row["difference"] != 0]
        cells.append(f"differs in {', '.join(wrong)}" if wrong else f"all {len(known)} equal" if known else "-")
        if lines and lines[-1][1] == cells:
            lines[-1][0].append(graph)
        else:
            lines.append(([graph], cells))
    return [[names[0] + (f" to {names[-1]}" if len(names) > 1 else ""), *cells] for names, cells in lines]


def _cell(rows: dict[str, Any], key: str) -> str:
    row = rows.get(key)
    if row is None:
        return "-"
    value = _number(row["measured"])
    return f"{value} ({row['difference']:+,})" if row["difference"] else value


def _print_checks(console: PlainConsole, reports: list[dict[str, Any]]) -> None:
    """A table of the sizes, and the further numbers below it."""
    table = plain_table("Measured statistics; (+n) is the difference to the published value")
    table.add_column("graph", overflow="fold")
    for column in SIZES:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("published", min_width=12)
    further: list[tuple[str, str]] = []
    for report in reports:
        for name, *cells, more, comparison in _rows(report):
            label = name if name.startswith(report["loaded"]) else f"{report['loaded']}: {name}"
            table.add_row(label, *cells, comparison)
            further += [(label, more)] if more else []
    console.print(table)
    console.print()
    for label, more in further:
        console.say(label, more)


def _markdown(reports: list[dict[str, Any]]) -> str:
    header = ("data set", "metric", "graph", *SIZES, "further", "against the published")
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    for report in reports:
        for index, row in enumerate(_rows(report)):
            first = ("", "") if index else (f"`{report['loaded']}`", report["metric"])
            lines.append(f"| {' | '.join([*first, *row])} |")
    return "\n".join(lines) + "\n"


def _write_page(path: Path, table: str) -> None:
    """Replace the text between the markers of an existing page, or write a new page."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    has_markers = bool(begin and end)
    write_text(path, f"{head}{BEGIN}\n{table}{END}{tail}" if has_markers else f"{BEGIN}\n{table}{END}\n")
