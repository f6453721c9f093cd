"""A graph folder on a real Ray cluster of several nodes: the same results, whoever dies in whichever phase."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch_geometric.data import Data
from typer.testing import CliRunner

from graphmend import GraphMendError, card, load_graph, mend, open_graph
from graphmend.cards.edges import pair_counts, pairs_of
from graphmend.cli import app
from graphmend.graph.canonical import edge_keys, node_keys
from graphmend.graph.edge_passes import edges_up_to, lowest_of
from graphmend.graph.merging import Tree
from graphmend.shards import pack
from graphmend.workers.local import Lost
from graphmend.workers.ray_cluster import Ray
from graphmend.workers.shard_tasks import on_cluster

ray = pytest.importorskip("ray", reason="needs graphmend[ray]")
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]

NODES, COLUMNS, CLASSES, SHARDS = 3000, 8, 3, 6
STORE = {"object_store_memory": 100_000_000}


class Watched(nn.Module):
    """Two layers of means; where it runs on a shard, it leaves a line in a file, and at a certain one its node dies.

    Args:
        folder: Where the file lies.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(COLUMNS, 16), nn.Linear(16, CLASSES)
        self.folder, self.home = str(folder), os.getpid()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.note()
        source, target = edge_index
        for layer in (self.first, self.second):
            h = layer(x)
            around = torch.zeros_like(h).index_add_(0, target, h[source])
            x = torch.tanh(h + around / torch.bincount(target, minlength=x.size(0)).clamp(min=1).unsqueeze(1))
        return x

    def note(self) -> None:
        if os.getpid() == self.home:
            return
        with (Path(self.folder) / "runs").open("a") as file:
            file.write(f"{ray.get_runtime_context().get_node_id()}\n")
        trigger = Path(self.folder) / "kill"
        try:
            if runs(self.folder) < int(trigger.read_text()):
                return
            trigger.rename(Path(self.folder) / "killed")
        except FileNotFoundError:  # nobody shall die, or another one was quicker
            return
        os.kill(os.getppid(), signal.SIGKILL)  # the raylet, and with it all of its node


def runs(folder: Path | str) -> int:
    file = Path(folder) / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def graph(seed: int, broken: int = 0, nodes: int = NODES) -> Data:
    """A ring of neighbourhoods, some of whose rows are broken."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.arange(nodes).repeat_interleave(4)
    target = (source + torch.randint(1, 9, source.shape, generator=generator)) % nodes
    edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)
    y = (torch.arange(nodes) // 50) % CLASSES
    x = torch.rand(nodes, COLUMNS, generator=generator) + nn.functional.one_hot(y, COLUMNS)
    x[torch.randperm(nodes, generator=generator)[:broken]] *= 1000
    return Data(x=x, edge_index=edges, y=y)


@dataclass
class Case:
    """Two graph folders, and what this process alone makes of them."""

    train: Path
    test: Path
    card: Any
    result: Any


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("graphs")
    train, test = pack(folder / "train", graph(0)), pack(folder / "test", graph(1, broken=40))
    model = Watched(folder)
    made = card(model, open_graph(train, shards=SHARDS))
    return Case(train, test, made, mend(model, open_graph(test, shards=SHARDS), card=made))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that works on nothing, and nodes of one core each."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **STORE})
    for _ in range(4):
        made.add_node(num_cpus=1, **STORE)
    yield made
    ray.shutdown()
    made.shutdown()


def same(found: Any, expected: Any) -> None:
    assert (
        (found.decision, found.verdict.menders) == (expected.decision, expected.verdict.menders) != ("left alone", ())
    )
    assert torch.equal(found.data.x, expected.data.x) and torch.equal(found.data.edge_index, expected.data.edge_index)
    assert torch.allclose(found.logits, expected.logits, rtol=0, atol=1e-6)


def same_card(found: Any, expected: Any) -> None:
    for name, value in expected.parts()[0].items():
        assert torch.allclose(found.parts()[0][name], value, rtol=1e-5, atol=1e-6, equal_nan=True), name


def mended(case: Case, cluster: Any, folder: Path, **options: Any) -> Any:
    return mend(Watched(folder), open_graph(case.test, shards=SHARDS), card=case.card, ray=cluster.address, **options)


def test_a_node_killed_in_every_phase_costs_its_shards_and_changes_nothing(
    case: Case, cluster: Any, tmp_path: Path
) -> None:
    def counted(phase: str, at: int | None = None) -> tuple[Any, int]:
        """A card or a result, and how many runs it took; the node that does a certain one is killed."""
        before = runs(tmp_path)
        if at is not None:
            (tmp_path / "kill").write_text(str(before + at))
        if phase == "card":
            found = card(Watched(tmp_path), open_graph(case.train, shards=SHARDS), ray=cluster.address)
        else:
            found = mended(case, cluster, tmp_path)
        if at is not None:
            (tmp_path / "killed").unlink()  # it was
            cluster.add_node(num_cpus=1, **STORE)
        return found, runs(tmp_path) - before

    made, of_card = counted("card")
    result, of_mend = counted("mend")
    same_card(made, case.card)
    same(result, case.result)
    assert of_card >= SHARDS and of_mend >= 2 * SHARDS, "the shards were worked on elsewhere"
    nodes = set((tmp_path / "runs").read_text().split())
    assert len(nodes) > 1, "several nodes have worked"
    for phase, at in (("card", 2), ("look", 2), ("mend", of_mend // 2), ("predict", of_mend - 1)):
        found, took = counted(phase, at)
        (same_card if phase == "card" else same)(found, case.card if phase == "card" else case.result)
        assert took - (of_card if phase == "card" else of_mend) <= 3, "a node that dies costs no more than its shards"


DRIVER = """
import sys
from pathlib import Path

import torch

sys.path[:0] = [{tests!r}, {own!r}]
from graphmend import mend, open_graph
from graphmend.cards import SourceCard
from test_ray_shards import SHARDS, Watched

folder = Path({folder!r})
data, card = open_graph({test!r}, shards=SHARDS), SourceCard.load(folder / "card")
result = mend(Watched(folder), data, card=card, ray={address!r})
torch.save(result.logits, folder / "logits.pt")
"""


def test_two_drivers_at_once(case: Case, cluster: Any, tmp_path: Path) -> None:
    case.card.save(tmp_path / "card")
    here = Path(__file__).parent
    places = {"tests": str(here.parent), "own": str(here), "folder": str(tmp_path), "test": str(case.test)}
    code = DRIVER.format(**places, address=cluster.address)
    other = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code])
    same(mended(case, cluster, tmp_path), case.result)
    assert other.wait() == 0
    same(mended(case, cluster, tmp_path), case.result)
    assert torch.allclose(torch.load(tmp_path / "logits.pt"), case.result.logits, rtol=0, atol=1e-6)


def test_a_folder_that_the_others_do_not_see_goes_through_the_object_store(
    case: Case, cluster: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "graph"
    shutil.copytree(case.test, folder)
    data = open_graph(folder, shards=SHARDS)
    folder.rename(tmp_path / "hidden")  # what is mapped stays mapped
    found = mend(Watched(tmp_path), data, card=case.card, ray=cluster.address)
    same(found, case.result)
    assert runs(tmp_path) >= SHARDS


def test_what_was_written_into_an_open_graph_goes_along(case: Case, cluster: Any, tmp_path: Path) -> None:
    data, expected = (open_graph(case.train, shards=SHARDS) for _ in range(2))
    for each in (data, expected):
        each.x[:30] *= 1000
    found = mend(Watched(tmp_path), data, card=case.card, ray=cluster.address)
    same(found, mend(Watched(tmp_path), expected, card=case.card))


def test_a_worker_that_runs_out_of_memory_is_asked_again_and_then_it_is_said(
    case: Case, cluster: Any, tmp_path: Path
) -> None:
    def greedy(item: tuple[int, int]) -> int:
        """Want more memory than there is, the first time or always."""
        seen = tmp_path / str(item[0])
        if item[0] == 2 or (item[0] == 1 and not seen.exists()):
            seen.touch()
            torch.empty(2**50, dtype=torch.uint8)
        return item[0]

    found = sorted(Ray(cluster.address, retries=1)(greedy, [(0, 1), (1, 2), (2, 3)]), key=str)
    assert found[:2] == [0, 1]
    assert isinstance(found[2], Lost) and found[2].item == (2, 3) and found[2].out_of_memory
    with on_cluster(open_graph(case.test), cluster.address) as data:
        message = r"^the shard of nodes 2 to 2 ran out of memory on the cluster 4 times \(.*\); use workers with more"
        with pytest.raises(GraphMendError, match=message):
            list(data.over(greedy, [(2, 3)]))


@pytest.mark.parametrize("number", [1, 2, 7, 30])
def test_sums_are_merged_in_the_same_pairs_everywhere(cluster: Any, number: int) -> None:
    def add(first: list[float], second: list[float]) -> list[float]:
        return [a + b for a, b in zip(first, second, strict=True)]

    def halves(item: int) -> list[float]:
        return [1 / (item + 1), 10.0**item]

    tree = Tree(add)
    for item in range(number):
        tree.add(halves(item))
    assert Ray(cluster.address, window=4).merged(halves, range(number), add) == tree.total()
    with pytest.raises(ZeroDivisionError):
        Ray(cluster.address).merged(halves, [1, -1, 2], add)


def test_only_graph_folders_are_worked_on_together(cluster: Any, tmp_path: Path) -> None:
    model = Watched(tmp_path)
    with pytest.raises(
        GraphMendError, match=r"works on the shards of a graph folder, but data is a Data; pack it with"
    ):
        mend(model, graph(0), ray=cluster.address)
    with pytest.raises(GraphMendError, match=r"works on the shards of a graph folder, but data is a list"):
        mend(model, [graph(0)], ray=cluster.address)
    with pytest.raises(GraphMendError, match=r"ray must be 'local', 'auto' or an address \(got 3\)"):
        mend(model, graph(0), ray=3)  # type: ignore[call-overload]


def test_the_command_line_works_on_folders_in_shards(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    lines = [
        "from pathlib import Path",
        "from test_ray_shards import Watched",
        "def build():",
        "    return Watched(Path.cwd())",
    ]
    Path("watched_models.py").write_text("\n".join(lines))
    save_file(Watched(tmp_path).state_dict(), "w.safetensors")
    pack("today", graph(1, broken=40, nodes=20_000))
    pack("train", graph(0, nodes=20_000))
    model = ("--factory", "watched_models:build", "--weights", "w.safetensors")
    reports, digests = [], []
    for ray_ in ((), ("--ray", cluster.address)):
        out = f"out{len(ray_)}"
        digests.append(good("card", *model, "--graph", "train", "--out", "card", "--json", *ray_)["first layer units"])
        own = runs(tmp_path)
        reports.append(good("mend", *model, "--graph", "today", "--card", "card", "--out", out, "--json", *ray_)[0])
        assert (own >= 8 and runs(tmp_path) - own >= 16) if ray_ else runs(tmp_path) == 0
    assert digests[0] == digests[1]
    assert reports[0]["verdict"]["decision"] == reports[1]["verdict"]["decision"]
    first, second = (load_graph(f"{out}/today.npz") for out in ("out0", "out2"))
    assert torch.equal(first.x, second.x)


def good(*arguments: str) -> Any:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_statistics_of_edges_are_the_same(case: Case, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmend.graph.edge_passes.EDGES", 1000)
    data = open_graph(case.train)
    keys, shares = node_keys(data.x, data.edge_index), torch.rand(NODES, CLASSES)
    with on_cluster(data, cluster.address) as shared:
        values, places = lowest_of(shared, keys, 300)
        assert torch.equal(values, lowest_of(data, keys, 300)[0])
        assert torch.equal(edge_keys(keys, data.edge_index[:, places]), values)
        found = edges_up_to(shared, keys, values[-1])
        assert torch.equal(found, (edge_keys(keys, data.edge_index) <= values[-1]).nonzero().view(-1))
        assert torch.allclose(pairs_of(shared, shares), pair_counts(shares, data.edge_index))
