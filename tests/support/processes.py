"""Python code in a process of its own, which can import the library and the test modules like this one."""

from __future__ import annotations

import os
import subprocess
import sys


def start_python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start ``code`` with its standard output piped; further variables are added to the environment."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """The standard output of ``code``, which must succeed."""
    with start_python(code, *arguments, **environment) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    return output
