"""Archives of other people are taken as a whole or refused in a sentence, and never unpack to more than they should."""

from __future__ import annotations

import io
import lzma
import random
import tarfile
from pathlib import Path

import pytest

from fuzz.damage import damaged
from graphmend import GraphMendError
from graphmend.files.tars import members_of, plain_of, tar_of
from support.refusals import refused_cheaply

MB = 1 << 20
FILES = [("a.json", b"{}"), ("b/c.json", b"1" * 2000), ("d", b"")]


def sparse(size: int) -> bytes:
    """A tar archive of a few kilobytes with a file that is said to have a hole of ``size`` bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("a.json")
        numbers = {"major": "0", "minor": "1", "numblocks": "1", "map": f"{size},0", "size": str(size)}
        entry.pax_headers = {f"GNU.sparse.{name}": value for name, value in numbers.items()}
        tar.addfile(entry)
    return buffer.getvalue()


def linked() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("a.json")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    return buffer.getvalue()


def refused(message: str, content: bytes, *, compressed: bool = False) -> None:
    with refused_cheaply(message, 64 * MB):
        (plain_of if compressed else members_of)("given.tar", content, "pack it again")


def test_what_was_packed_comes_back_and_is_the_same_every_time() -> None:
    packed = tar_of(FILES)
    assert members_of("given.tar", packed, "") == FILES and tar_of(FILES) == packed
    assert plain_of("given.xz", lzma.compress(packed), "") == packed


def test_what_is_out_of_proportion_is_not_unpacked() -> None:
    refused("out of proportion; pack it again", lzma.compress(bytes(80 * MB)), compressed=True)


@pytest.mark.parametrize("content", [sparse(2**30), linked()], ids=["sparse", "a link"])
def test_only_plain_files_are_taken(content: bytes) -> None:
    assert len(content) < 20_000
    refused("holds 'a.json', which is not a plain file; pack it again", content)


def test_two_files_of_one_name_are_refused() -> None:
    refused("two files of one name", tar_of([*FILES, FILES[0]]))


def test_a_cut_archive_is_not_taken_in_part() -> None:
    packed = tar_of(FILES)
    for end in range(0, len(packed) - len(packed) % 512, 512):
        try:
            found = members_of("given.tar", packed[:end], "pack it again")
        except GraphMendError:
            continue
        assert found == FILES
    stream = lzma.compress(packed)
    for end in range(len(stream)):
        refused("pack it again", stream[:end], compressed=True)


@pytest.mark.parametrize("compressed", [False, True])
def test_damage_ends_in_a_sentence(compressed: bool) -> None:
    """Bits of a file without a checksum may change unseen, but no file goes missing."""
    plain = tar_of(FILES)
    whole, read = (lzma.compress(plain), plain_of) if compressed else (plain, members_of)
    for seed in range(300):
        _, content = damaged(random.Random(seed), whole)
        try:
            found = read("given.tar", content, "pack it again")
        except GraphMendError as error:
            assert str(error).endswith("pack it again")
            continue
        assert found == plain if compressed else len(found) == len(FILES)


def test_a_name_stays_below_its_folder(tmp_path: Path) -> None:
    from graphmend.files.files import within

    assert within(tmp_path, "a/b.json") == tmp_path / "a" / "b.json"
    for name in ("/etc/passwd", "../a", "a/../../b", "", ".", "a\0b"):
        with pytest.raises(GraphMendError, match="leads out of"):
            within(tmp_path, name)
