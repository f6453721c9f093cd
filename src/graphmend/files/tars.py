"""Tar archives and xz streams from anywhere: accepted if complete and within limits, or refused in one sentence."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterable
from pathlib import Path

from graphmend.errors import GraphMendError, require
from graphmend.files.archives import RATIO, SMALL
from graphmend.files.files import BROKEN, escaped, first_line

__all__ = ["members_of", "plain_of", "tar_of"]

_DECODER = 1 << 28
"""Bytes that the decoder itself may take; the strongest of the usual settings asks for a quarter of that."""


def plain_of(path: Path | str, content: bytes, remedy: str) -> bytes:
    """What one xz stream holds, if it is whole, undamaged, and no more than is in proportion to the stream.

    Args:
        path: Where it comes from, for the message.
        content: The stream.
        remedy: What to do about a damaged one, for the message.
    """
    limit, name = max(SMALL, RATIO * len(content)), escaped(str(path))
    try:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECODER)
        plain = decoder.decompress(content, limit + 1)
    except (lzma.LZMAError, *BROKEN) as error:
        raise GraphMendError(f"{name} is damaged, or no xz stream ({first_line(error)}); {remedy}") from error
    require(
        len(plain) <= limit,
        f"{name} has {len(content)} bytes, but more than {limit} come out of it, which is out of proportion; {remedy}",
    )
    is_whole = decoder.eof and not decoder.unused_data
    require(is_whole, f"{name} is damaged: it is cut off, or something stands behind its end; {remedy}")
    return plain


def members_of(path: Path | str, content: bytes, remedy: str) -> list[tuple[str, bytes]]:
    """The names and contents of the files in a tar archive, which must hold nothing but whole files.

    Args:
        path: Where it comes from, for the message.
        content: The archive.
        remedy: What to do about a damaged one, for the message.
    """
    name = escaped(str(path))
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            members: list[tuple[str, bytes]] = []
            for entry in tar:
                is_plain = entry.isreg() and not entry.issparse() and entry.size >= 0
                entry_name = escaped(entry.name, 80)
                require(is_plain, f"{name} holds {entry_name!r}, which is not a plain file; {remedy}")
                file = tar.extractfile(entry)
                members.append((entry.name, b"" if file is None else file.read()))
            end = content[
                tar.offset :
            ]  # a damaged header looks like the end of the archive, except that something follows
    except GraphMendError:
        raise
    except (tarfile.TarError, *BROKEN, TypeError) as error:
        raise GraphMendError(f"{name} is damaged, or no tar archive ({first_line(error)}); {remedy}") from error
    is_whole = len(end) >= tarfile.BLOCKSIZE and not end.strip(b"\0")
    require(is_whole, f"{name} is damaged after {len(members)} files; {remedy}")
    names = [member for member, _ in members]
    require(len(set(names)) == len(names), f"{name} holds two files of one name; {remedy}")
    return members


def tar_of(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar archive of files, which depends on nothing but their names and contents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
