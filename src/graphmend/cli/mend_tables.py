"""What 'graphmend mend' prints."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graphmend.results.verdict import LEFT_ALONE, Verdict

Report = dict[str, Any]


def print_reports(console: Console, reports: list[Report], card: str, out: str, has_verdicts: bool) -> None:
    """What became of each graph; with verdicts, those first and the reasons below."""
    title = f"Results in {escape(out)}"
    console.print(
        _verdict_table(reports, title, card, "what was done") if has_verdicts else _step_table(reports, title)
    )
    for report in reports if has_verdicts else []:
        _say(console, report)


def print_verdicts(console: Console, reports: list[Report], card: str, quiet: bool) -> None:
    """What would be done to each graph and on what evidence; the sentences alone if ``quiet``."""
    if not quiet:
        console.print(_verdict_table(reports, "Verdict; nothing is written", card, "what would be done"))
    for report in reports:
        _say(console, report)
        if not quiet:
            console.print(_evidence_table(report))


def _verdict(report: Report) -> dict[str, Any]:
    """The verdict, or what takes its place if the gate could not come to one."""
    if report["verdict"] is not None:
        return dict(report["verdict"])
    return Verdict(LEFT_ALONE, (), "none", f"left alone: {report['reason']}").summary()


def _say(console: Console, report: Report) -> None:
    """The reason in one sentence, and the nodes to ask about."""
    sentence = _verdict(report)["sentence"]
    console.print(f"[bold]{escape(report['graph'])}[/bold]: {escape(sentence)}", soft_wrap=True, highlight=False)
    if report["questions"] is not None:
        nodes = ", ".join(map(str, report["questions"]))
        text = f"labels of these nodes settle it, in this order: {nodes}" if nodes else "there is nothing to ask about"
        console.print(f"  {text}", soft_wrap=True, highlight=False)


def _verdict_table(reports: list[Report], title: str, card: str, what: str) -> Table:
    table = Table(title=title, caption=escape(card))
    has_test = any("test" in report for report in reports)
    columns = ["graph", "decision", what, "expected change", "predictions changed"]
    for column in (*columns, *(["test accuracy"] if has_test else [])):
        table.add_column(column)
    for report in reports:
        verdict = _verdict(report)
        cells = [report["graph"], verdict["decision"], _what(report), _expected(verdict), _flips(verdict)]
        table.add_row(*map(escape, cells), *([_accuracy(report)] if has_test else []))
    return table


def _what(report: Report) -> str:
    """Who acted, and how much was changed."""
    counts = {
        "feature rows changed": report["feature_rows_changed"],
        "edge entries removed": report["edge_entries_removed"],
        "edge weights changed": report["edge_weights_changed"],
    }
    done = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    names = " and ".join(_verdict(report)["menders"])
    return f"{names}: {done or 'no change'}" if names else "nothing"


def _expected(verdict: dict[str, Any]) -> str:
    if verdict["decision"] == LEFT_ALONE:
        return "none"
    return f"{verdict['expected']:+.1f} points" if verdict["regime"] == "card" else "not estimated"


def _flips(verdict: dict[str, Any]) -> str:
    share = f"{100 * verdict['flips']:.1f} %"
    if verdict["decision"] != LEFT_ALONE:
        return share
    return f"none ({share} proposed)" if verdict["flips"] else "none"


def _accuracy(report: Report) -> str:
    test = report.get("test")
    return f"{test['before']['accuracy']:.3f} → {test['after']['accuracy']:.3f}" if test else "no test_mask"


def _evidence_table(report: Report) -> Table:
    table = Table(title=f"Evidence for {escape(report['graph'])}", title_justify="left")
    for column in ("measured", "value", "speaks for mending if", ""):
        table.add_column(column, justify="right" if column == "value" else "left")
    for item in _verdict(report)["evidence"]:
        wanted = f"at {'least' if item['above'] else 'most'} {item['threshold']:.3g}"
        table.add_row(item["name"], f"{item['value']:.3g}", wanted, "holds" if item["holds"] else "fails")
    return table


def _step_table(reports: list[Report], title: str) -> Table:
    """For adapters that take steps down a loss, or that are not the gate."""
    table = Table(title=title)
    for column in ("graph", "loss", "rows changed", "edge entries removed", "added", "test accuracy", "seconds"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for report in reports:
        first, last = report["loss_first"], report["loss_last"]
        loss = "-" if first is None else f"{first:.4f} → {last:.4f}"
        cells = [report[key] for key in ("feature_rows_changed", "edge_entries_removed", "edge_entries_added")]
        table.add_row(report["graph"], loss, *map(str, cells), _accuracy(report), f"{report['seconds']:.2f}")
        if report["reason"]:
            table.add_row("", f"left as it was: {escape(report['reason'])}", *[""] * 5)
    return table
