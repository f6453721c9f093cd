"""A report to look around in, which the site links, and the picture of it on the first page.

python docs/site/sample_report.py docs/images/report.png    # the picture; needs chromium
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.lab.data import shift
from graphmend.lab.training import ERM


def write_report(path: Path) -> None:
    """The report on digits with less contrast than those that the model was trained on."""
    digits = shift()
    torch.manual_seed(0)
    model = ERM(epochs=100)(GraphSAGE(64, 32, num_layers=2, out_channels=10), digits.splits)
    card = graphmend.card(model, digits.splits.train[0])
    result = graphmend.mend(model, digits.tests[0], card=card)
    path.parent.mkdir(exist_ok=True)
    result.report(path, digits.tests[0].y, title="digits with less contrast")


def take_picture(page: Path, picture: Path) -> None:
    """What a browser shows of the page at first."""
    size = ("--hide-scrollbars", "--window-size=1200,650", "--force-device-scale-factor=1.5")
    command = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", *size)
    subprocess.run([*command, f"--screenshot={picture.resolve()}", page.resolve().as_uri()], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_report(Path(folder) / "report.html")
        take_picture(Path(folder) / "report.html", Path(sys.argv[1]))
