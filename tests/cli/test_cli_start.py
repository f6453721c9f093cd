"""How the program starts and ends: quickly, and without a traceback whatever becomes of its terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmend.cli import app, main
from graphmend.version import __version__
from support.processes import run_python

LIGHT = """
import sys
import graphmend
from graphmend.cli import app
from graphmend import GraphMendError
from typer.testing import CliRunner

for command in sys.argv[1:]:
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0, (command, result.output)
assert CliRunner().invoke(app, ["--version"]).exit_code == 0
heavy = {"torch", "torch_geometric", "sklearn", "scipy", "numpy", "safetensors"} & set(sys.modules)
print(sorted(heavy))
"""
COMMANDS = ("", "demo", "mend", "apply", "revert", "card", "train", "info", "list", "data", "data list", "data check")


def test_help_imports_nothing_heavy() -> None:
    bench = ("", " list", " run", " status", " render", " pack", " unpack")
    assert run_python(LIGHT, *COMMANDS, "data fetch", *(f"bench{command}" for command in bench)).strip() == "[]"


def test_every_public_name_is_there_when_it_is_used() -> None:
    code = "import sys, graphmend\nassert 'torch' not in sys.modules\n"
    code += (
        "for name in graphmend.__all__: assert getattr(graphmend, name).__name__ == name and name in dir(graphmend)\n"
    )
    code += "assert graphmend.surrogates.Contrastive and not hasattr(graphmend, 'nothing')\n"
    code += "assert not hasattr(graphmend, '__main__')\n"
    code += "from graphmend import *\nassert mend is graphmend.mend"
    run_python(code)


def test_the_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"graphmend {__version__}\n"


def test_completion_offers_commands_and_options_without_torch() -> None:
    code = "import sys\nfrom graphmend.cli import main\nsys.argv = ['graphmend']\ntry:\n    main()\nfinally:\n"
    code += "    print('torch' in sys.modules)"
    for typed, expected in (("graphmend me", "mend"), ("graphmend mend --verd", "--verdict-only")):
        words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
        said = run_python(code, _GRAPHMEND_COMPLETE="complete_bash", **words).splitlines()
        assert expected in said and said[-1] == "False"


class Interrupts(MetaPathFinder):
    """Ctrl-C while a module is imported."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == self.module:
            raise KeyboardInterrupt


@pytest.mark.parametrize("module", ["graphmend.cli.commands", "graphmend.cli.info_run"])
def test_ctrl_c_during_an_import_is_one_line_and_code_130(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(module), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["graphmend", "info"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 130 and said.startswith("error: interrupted") and said.count("\n") == 1


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", "-m", "graphmend", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, env=variables, **options)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = process("--help", stdout=writing)
    finally:
        os.close(writing)
    assert ended.returncode == 1 and ended.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_standard_output_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        ended = process("--version", stdout=full)
    assert ended.returncode == 2
    assert ended.stderr == "error: cannot write to standard output: No space left on device; free some space\n"


def test_a_closed_standard_output_is_no_problem() -> None:
    assert process("--version", stdout=None, preexec_fn=lambda: os.close(1)).returncode == 0


def test_an_ascii_terminal_gets_ascii(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from support.small_files import small_graph, small_model

    graph, model = small_graph(tmp_path / "schön.npz", tested=True), small_model(tmp_path / "m.safetensors")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    command = [
        "mend",
        "--adapter",
        "gtrans",
        "--model",
        str(model),
        "--graph",
        str(graph),
        "--out",
        str(tmp_path / "o"),
    ]
    monkeypatch.setattr(sys, "argv", ["graphmend", *command, "--steps", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = written.getvalue().decode("ascii")
    assert ended.value.code == 0 and "sch\\xf6n.npz" in said and " -> " in said
