"""The provenance of a stored result: versions, device, seed."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch
import torch_geometric

from graphmend.version import __version__


def provenance(device: str | torch.device, **more: Any) -> dict[str, Any]:
    """The versions, commit and device that a stored result needs to be reproduced, and ``more``."""
    return {
        "graphmend": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
        "device": device_name(torch.device(device)),
        **more,
    }


def device_name(device: torch.device) -> str:
    """The name of a GPU, or the number of CPU threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


def commit() -> str | None:
    """The commit of the source tree this runs from, if it is a checkout (``+`` marks uncommitted changes)."""
    here = Path(__file__).parent
    try:
        revision, changes = (
            subprocess.run(["git", "-C", str(here), *command], capture_output=True, text=True, timeout=5, check=True)
            for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no", "."])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return revision.stdout.strip() + ("+" if changes.stdout.strip() else "")
