"""Every Triton kernel against its counterpart on a CPU, in Triton's own interpreter: no GPU is needed.

The interpreter is chosen by an environment variable when the kernels are imported, so everything runs in one process
of its own (``triton_interpreter.py``).
"""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

import pytest
import torch

import graphmend.engine
from graphmend.engine.ops import has_triton
from support.processes import run_python
from support.sparse_patterns import devices

FOLDER = Path(graphmend.engine.__file__).parent / "triton"
TOLERANCE = 1e-5  # of the largest number; sums are taken in another order


def kernels() -> list[str]:
    """What launches kernels: the public functions of all modules but the one that helps to launch."""
    names = []
    for file in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            is_public = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            if is_public and file.stem != "launch":
                names += [f"{file.stem}.{name}" for name in ast.literal_eval(node.value)]
    return names


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    """The errors of all comparisons, by kernel and case."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed; pip install triton (Linux)")
    code = "import triton_interpreter; triton_interpreter.main()"
    measured: dict[str, dict[str, float]] = json.loads(run_python(code, TRITON_INTERPRET="1", OMP_NUM_THREADS="1"))
    return measured


@pytest.mark.parametrize("kernel", kernels())
def test_a_kernel_does_what_a_cpu_does(kernel: str, errors: dict[str, dict[str, float]]) -> None:
    assert errors[kernel]
    assert all(error <= TOLERANCE for error in errors[kernel].values()), errors[kernel]


def test_no_kernel_is_left_out(errors: dict[str, dict[str, float]]) -> None:
    assert set(errors) == set(kernels()) and len(kernels()) >= 14


@devices
def test_kernels_run_on_gpus_alone(device: str) -> None:
    is_expected = device == "cuda" and importlib.util.find_spec("triton") is not None
    assert has_triton(torch.device(device)) == is_expected
