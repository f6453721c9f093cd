"""What 'graphmend mend' prints."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from graphmend.cli.console import PlainConsole, plain_table
from graphmend.results.verdict import LEFT_ALONE, Evidence, Verdict

Report = dict[str, Any]


def print_reports(console: PlainConsole, reports: list[Report], card: str, out: str, has_verdicts: bool) -> None:
    """The outcome for each graph: a table, and below it what was done and why."""
    title = f"Results in {out}"
    console.print(_verdict_table(reports, title, card) if has_verdicts else _step_table(reports, title))
    console.print()
    for report in reports:
        _say(console, report)


def print_verdicts(console: PlainConsole, reports: list[Report], card: str, quiet: bool) -> None:
    """What would be done to each graph and on what evidence; only the sentences if ``quiet``."""
    if not quiet:
        console.print(_verdict_table(reports, "Verdict; nothing is written", card))
        console.print()
    for report in reports:
        _say(console, report, with_next_step=not quiet)
        if not quiet:
            console.print()
            console.print(_evidence_table(report))
            console.print()


def _verdict(report: Report) -> dict[str, Any]:
    """The verdict, or a substitute if the gate reached none."""
    if report["verdict"] is not None:
        return dict(report["verdict"])
    return Verdict(LEFT_ALONE, (), "none", f"left alone: {report['reason']}").summary()


def _say(console: PlainConsole, report: Report, with_next_step: bool = True) -> None:
    """What was done and why on one line; on further ones the nodes to label, and why there is no score."""
    if report["verdict"] is not None:
        verdict = report["verdict"]
        proposed = verdict["flips"] if verdict["decision"] == LEFT_ALONE else 0
        done = (
            f"the proposed change would have altered {100 * proposed:.1f} % of the predictions"
            if proposed
            else _done(report)
        )
        console.say(report["graph"], "; ".join(filter(None, (verdict["sentence"], done))))
        if verdict["next_step"] and with_next_step:
            console.print(f"  next: {verdict['next_step']}", soft_wrap=True)
    elif report["reason"]:
        console.say(report["graph"], f"left as it was: {report['reason']}")
    else:
        console.say(report["graph"], _done(report) or "nothing was changed")
    if report["questions"] is not None:
        nodes = ", ".join(map(str, report["questions"]))
        text = f"labels of these nodes settle it, in this order: {nodes}" if nodes else "there is nothing to ask about"
        console.print(f"  {text}", soft_wrap=True)
    if report.get("test", {}).get("reason"):
        console.print(f"  there is no score of the mended graph: {report['test']['reason']}", soft_wrap=True)


def _done(report: Report) -> str:
    """How much was changed; the number of filled values is part of the verdict."""
    counts = {
        "missing values filled": 0 if report["verdict"] else report["missing_values_filled"],
        "feature rows changed": report["feature_rows_changed"],
        "edge entries removed": report["edge_entries_removed"],
        "edge entries added": report["edge_entries_added"],
        "edge weights changed": report["edge_weights_changed"],
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _verdict_table(reports: list[Report], title: str, card: str) -> Table:
    table = plain_table(title, card)
    table.add_column("graph", overflow="fold", min_width=8)
    table.add_column("decision", min_width=7)
    table.add_column("mended by", min_width=8)
    table.add_column("predictions changed", justify="right", min_width=11)
    has_test = any("test" in report for report in reports)
    if has_test:
        table.add_column(_test_column(reports), no_wrap=True)
    for report in reports:
        verdict = _verdict(report)
        menders = " and ".join(verdict["menders"]) or "nothing"
        share = verdict["flips"]
        flips = (
            "none" if verdict["decision"] == LEFT_ALONE else "not known" if share is None else f"{100 * share:.1f} %"
        )
        cells = [report["graph"], verdict["decision"], menders, flips]
        table.add_row(*cells, *([_score(report)] if has_test else []))
    return table


def _measure(report: Report) -> str:
    """The first measure of what is scored, the usual one of the task."""
    test = report.get("test")
    return next(iter(test["before"]), "") if test else ""


def _test_column(reports: list[Report]) -> str:
    names = {_measure(report) for report in reports} - {""}
    return f"test {names.pop() if len(names) == 1 else 'accuracy' if not names else 'score'}"


def _score(report: Report) -> str:
    test, name = report.get("test"), _measure(report)
    if not test:
        return "no test_mask"
    if not name:
        return "absent"
    after = f"{test['after'][name]:.3f}" if test["after"] and name in test["after"] else "absent"
    return f"{test['before'][name]:.3f} → {after}"


def _evidence_table(report: Report) -> Table:
    table = plain_table(f"Evidence for {report['graph']}")
    for column in ("evidence", "measured", "looked for", ""):
        table.add_column(column, justify="right" if column == "measured" else "left", no_wrap=column != "evidence")
    for item in _verdict(report)["evidence"]:
        table.add_row(*Evidence(item["name"], item["value"], item["threshold"], item["above"]).cells)
    return table


def _step_table(reports: list[Report], title: str) -> Table:
    """For adapters that take steps down a loss, or that are not the gate."""
    table = plain_table(title)
    table.add_column("graph", overflow="fold", min_width=8)
    for column in ("loss", _test_column(reports), "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for report in reports:
        first, last = report["loss_first"], report["loss_last"]
        loss = "-" if first is None else f"{first:.4f} → {last:.4f}"
        table.add_row(report["graph"], loss, _score(report), f"{report['seconds']:.2f}")
    return table
