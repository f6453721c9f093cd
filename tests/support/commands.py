"""Commands of the command line, run in this process."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from graphmend.cli import app


def run(*arguments: object, columns: int = 250) -> Any:
    """Run a command; ``exit_code``, ``stdout`` and ``stderr`` say how it went."""
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": str(columns)})


def good(*arguments: object) -> Any:
    """Run a command that has to succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def complains(expected: str, *arguments: object) -> None:
    """Run a command that has to end with exactly one sentence about the problem, and write nothing else."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ") and expected in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1 and result.stdout == ""
