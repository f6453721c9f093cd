"""A file is written whole or not at all, and nothing but a file is ever replaced."""

from __future__ import annotations

import os
import pty
import signal
import socket
import stat
import time
from pathlib import Path

import psutil
import pytest
import torch
from torch_geometric.data import Data

from graphmend import GraphMendError
from graphmend.files.files import _machine, check_folder, check_target, escaped, write_atomically, write_text
from graphmend.files.graph_files import save_graph
from support.processes import start_python

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def refused(path: Path, expected: str) -> None:
    """Before any work is done, and again when somebody tries to write."""
    for write in (check_target, lambda path: write_text(path, "new")):
        with pytest.raises(GraphMendError, match=expected) as caught:
            write(path)
        assert "\n" not in str(caught.value) and str(caught.value).startswith("cannot write")


def test_a_new_file_and_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    check_target(path)
    assert not path.parent.exists()
    write_text(path, "one")
    check_target(path)
    path.chmod(0o640)
    write_text(path, "two")
    assert path.read_text() == "two" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "which is a folder; choose a file name")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "which is a device or a pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        refused(tmp_path / "s", "which is a device or a pipe")
    ours, theirs = pty.openpty()
    try:
        (tmp_path / "link").symlink_to(os.ttyname(theirs))
        refused(tmp_path / "link", "which is a device or a pipe")
    finally:
        os.close(ours)
        os.close(theirs)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "link", "pipe", "s"]


def test_a_link_stays_and_leads_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "a.txt"
    target.write_text("old")
    (tmp_path / "one").symlink_to(target)
    (tmp_path / "two").symlink_to("one")
    check_target(tmp_path / "two")
    write_text(tmp_path / "two", "new")
    assert target.read_text() == "new" and (tmp_path / "two").is_symlink() and (tmp_path / "one").is_symlink()
    assert [p.name for p in target.parent.iterdir()] == ["a.txt"]


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "loop").symlink_to(tmp_path / "pool")
    (tmp_path / "pool").symlink_to(tmp_path / "loop")
    for name in ("dangling", "loop"):
        refused(tmp_path / name, "leads nowhere; remove it or choose another")
        refused(tmp_path / name / "a.txt", "leads nowhere")
        for folder in (tmp_path / name, tmp_path / name / "inside"):
            with pytest.raises(GraphMendError, match="leads nowhere"):
                check_folder(folder)
    assert not (tmp_path / "none").exists()


def test_names_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused(tmp_path / "file" / "a.txt", "cannot write")
    refused(tmp_path / ("n" * 300), "File name too long")
    refused(tmp_path / "a\0b", r"a\\x00b")
    refused(Path(), "which is a folder")
    for folder, expected in [("file", "is a file; choose a folder"), ("file/sub", "is a file; choose another folder")]:
        with pytest.raises(GraphMendError, match=expected):
            check_folder(tmp_path / folder)
    check_folder(tmp_path / "new" / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_longest_name_that_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125 + ".json")
    write_text(path, "{}")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@not_root
def test_a_place_that_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "file").chmod(0o444)
    refused(tmp_path / "file", "which is read-only")
    tmp_path.chmod(0o555)
    try:
        refused(tmp_path / "a.txt", "choose")
        with pytest.raises(GraphMendError, match="choose a folder you may write to"):
            check_folder(tmp_path / "new")
    finally:
        tmp_path.chmod(0o755)


def test_a_file_system_that_is_read_only() -> None:
    mounts = [Path(part.mountpoint) for part in psutil.disk_partitions(all=True) if "ro" in part.opts.split(",")]
    folders = [path for path in mounts if path.is_dir()]
    if not folders:
        pytest.skip("there is none here")
    refused(folders[0] / "graphmend-test.txt", "choose a folder you may write to|Read-only")


KILLED = """
import os, signal, sys
from pathlib import Path
from graphmend.files.files import _machine, write_atomically

def killed(temporary):
    temporary.write_text("half")
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

write_atomically(Path(sys.argv[1]), killed)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with start_python(KILLED, str(path)) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".result.json.graphmend-") and left.suffix == ".json" and left.read_text() == "half"
    write_text(tmp_path / "other.json", "{}")
    assert left.exists(), "it belongs to another file"
    write_text(path, "{}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.json", "result.json"]


def test_only_what_nobody_writes_any_more_is_removed(tmp_path: Path) -> None:
    path, names = tmp_path / "a.txt", []

    def look(temporary: Path) -> None:
        names.append(temporary.name)
        temporary.write_text("new")

    write_atomically(path, look)
    ours, machine = names[0], names[0].split("graphmend-")[1].split("-")[0]
    elsewhere = ours.replace(machine, "00000000" if machine != "00000000" else "11111111")
    ended = ours.replace(f"-{os.getpid()}-", "-999999999-")
    foreign = [".a.txt.swp", ".a.txt.graphmend-x.txt", "a.txt~", ".b.txt" + ended[len(".a.txt") :]]
    for name in (ours, elsewhere, ended, *foreign):
        (tmp_path / name).write_text("?")
    write_text(path, "newer")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["a.txt", ours, elsewhere, *foreign])
    for name in (ours, elsewhere):
        os.utime(tmp_path / name, (0, time.time() - 25 * 3600))
    write_text(path, "newest")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["a.txt", *foreign])


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="needs process numbers of containers' own")
def test_containers_of_one_name_do_not_remove_what_the_other_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that writes exists, but the other container does not see it."""
    path = tmp_path / "a.txt"

    def meanwhile(temporary: Path) -> None:
        temporary.write_text("ours")
        monkeypatch.setattr(Path, "readlink", lambda path: Path("pid:[1]"))
        monkeypatch.setattr("psutil.pid_exists", lambda pid: False)
        _machine.cache_clear()
        write_text(path, "theirs")

    try:
        write_atomically(path, meanwhile)
    finally:
        _machine.cache_clear()
    assert path.read_text() == "ours" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("ending", [".npz", ".pt"])
def test_a_full_disk_while_a_graph_is_saved(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every temporary file leads to the device that is always full."""

    def full(target: Path) -> Path:
        path = target.with_name(f"temporary{target.suffix}")
        path.unlink(missing_ok=True)
        return path

    monkeypatch.setattr("graphmend.files.files._temporary", full)
    real = os.open

    def linked(path: object, *rest: object, **more: object) -> int:
        Path(str(path)).symlink_to("/dev/full")
        return real("/dev/full", os.O_WRONLY)

    monkeypatch.setattr("graphmend.files.files.os.open", linked)
    graph = Data(x=torch.rand(500, 40), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(GraphMendError, match=r"cannot write .*; free some space or choose another place"):
        save_graph(tmp_path / f"g{ending}", graph)
    assert list(tmp_path.iterdir()) == []


def test_text_from_a_file_cannot_steer_a_terminal() -> None:
    assert escaped("\x1b[31mred\n\u202e\ud800é") == "\\x1b[31mred\\n\\u202e\\ud800é"
    assert escaped("a" * 500, 10) == "a" * 10 + "..."
