"""Damage to the bytes of a file, and archives whose members are damaged although their checksums fit."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
import zlib

MEGABYTE = 1 << 20


def damaged(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    """The content after one or a few accidents, and what they were."""
    told = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        kind = rng.choice(("bits flipped", "cut off", "bytes inserted", "bytes removed", "zeros", "text", "repeated"))
        told.append(kind)
        buffer = bytearray(content)
        at = rng.randrange(len(buffer) + 1)
        length = rng.choice((1, 4, 16, 200))
        if kind == "bits flipped":
            for _ in range(rng.choice((1, 1, 3, 20)) if buffer else 0):
                buffer[rng.randrange(len(buffer))] ^= 1 << rng.randrange(8)
        elif kind == "cut off":
            del buffer[at:]
        elif kind == "bytes inserted":
            buffer[at:at] = rng.randbytes(length)
        elif kind == "bytes removed":
            del buffer[at : at + length]
        elif kind == "zeros":
            buffer[at : at + length] = bytes(length)
        elif kind == "text":
            words = (b"\xff" * 8, b"\x1b[31m", b"[bold]", b"None", b"-1", b"'" * 3, b"\x00", b"9" * 30)
            buffer[at:at] = rng.choice(words)
        else:
            buffer += buffer[at : at + 1000]
        content = bytes(buffer)
    return ", ".join(told), content


def members_of(archive: bytes) -> list[tuple[str, bytes]]:
    """The names and contents of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return [(info.filename, file.read(info)) for info in file.infolist()]


def archive_of(members: list[tuple[str, bytes]], compressed: bool = False) -> bytes:
    """A zip archive with correct checksums; names may be repeated."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as file:
        warnings.simplefilter("ignore")  # about names that are repeated
        for name, content in members:
            file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED)
    return buffer.getvalue()


def with_field(rng: random.Random, archive: bytes) -> tuple[str, bytes]:
    """An archive with another value in one field of the headers of its members: flags, method, sizes, checksum."""
    fields = {
        "flags": (6, "<H"),
        "method": (8, "<H"),
        "checksum": (14, "<I"),
        "stored size": (18, "<I"),
        "size": (22, "<I"),
    }
    name = rng.choice(list(fields))
    offset, form = fields[name]
    values = {"flags": (1, 9, 64, 2048, 8192, 65535), "method": (1, 9, 12, 14, 93, 99)}.get(
        name, (0, 1, 10**9, 2**32 - 1)
    )
    value, buffer = struct.pack(form, rng.choice(values)), bytearray(archive)
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        if rng.random() < 0.8:
            start = 0
            while (start := archive.find(signature, start)) >= 0:
                buffer[start + offset + shift : start + offset + shift + len(value)] = value
                start += 4
                if rng.random() < 0.3:
                    break
    return f"another {name}", bytes(buffer)


def bomb(name: str, head: bytes, size: int) -> bytes:
    """An archive with one member of ``head`` and so many zeros, compressed to a thousandth."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    one = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    blocks = size // MEGABYTE
    packed = start + one * blocks + packer.flush(zlib.Z_FINISH)
    total, checksum = len(head) + blocks * MEGABYTE, zlib.crc32(head)
    if size <= 64 * MEGABYTE:  # of more, the end is not reached by a careful reader
        for _ in range(blocks):
            checksum = zlib.crc32(bytes(MEGABYTE), checksum)
    wide = struct.pack("<HHQQ", 1, 16, total, len(packed))  # sizes above 4 GiB stand in an extra field
    raw = name.encode()
    local = struct.pack(
        "<4s5H3I2H", b"PK\x03\x04", 45, 0, 8, 0, 33, checksum, 2**32 - 1, 2**32 - 1, len(raw), len(wide)
    )
    central = struct.pack(
        "<4s6H3I5H2I",
        b"PK\x01\x02",
        45,
        45,
        0,
        8,
        0,
        33,
        checksum,
        2**32 - 1,
        2**32 - 1,
        len(raw),
        len(wide),
        0,
        0,
        0,
        0,
        0,
    )
    body, directory = local + raw + wide + packed, central + raw + wide
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(directory), len(body), 0)
    return body + directory + end
