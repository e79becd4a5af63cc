"""Recognises files without frames by their first bytes, so that they are not reported as damaged.

gzip and zstd files are decompressed while they are read. For every other kind, a message says what
the file is and what to do. `wirescan.cli.input` and the arguments of the commands use this module.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from wirescan.cli.output import format_path
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.value_text import LONGEST_CHARACTER

HEAD = 512  # bytes that identify a file; the mark of tar is at byte 257
UNLIMITED_BYTES = 1 << 20  # a file may decompress to this size at any ratio
SHORTEST_TEXT = 16  # bytes; fewer are not judged
GZIP_STEP = 16 << 10  # bytes per call of zlib: it copies what follows the end of each member
WINDOW = 31  # zlib's wbits: the largest window, with the header and trailer of gzip
COMPRESSED = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
CONTROL = frozenset(range(32)) - set(b"\t\n\r\f\x1b") | {127}


class ForeignKind(NamedTuple):
    """A kind of file without frames: `mark` at byte `position`, what it is, and what to do."""

    position: int
    mark: bytes
    description: str
    advice: str


DECOMPRESS = "decompress it first"
KINDS = (
    ForeignKind(
        0,
        b"PAR1",
        "a Parquet file",
        "read it with pyarrow, polars or DuckDB; `wirescan convert` writes such files",
    ),
    ForeignKind(
        0,
        b"ARROW1",
        "an Arrow file",
        "read it with pyarrow or polars; `wirescan scan --arrow` writes such data",
    ),
    ForeignKind(
        257, b"ustar", "a tar archive", "unpack it first (tar -xf), and name the files in it"
    ),
    ForeignKind(0, b"PK\x03\x04", "a zip archive", "unpack it first, and name the files in it"),
    ForeignKind(0, b"\xfd7zXZ\x00", "compressed with xz", DECOMPRESS),
    ForeignKind(0, b"BZh", "compressed with bzip2", DECOMPRESS),
    ForeignKind(0, b"\x04\x22\x4d\x18", "compressed with lz4", DECOMPRESS),
)


class CompressionError(ValueError):
    """Compressed data that is cut or damaged, or decompresses to more than the limits allow."""


def detect_compression(head: bytes) -> str | None:
    """Return "gzip" or "zstd" for a file's first bytes; None for any other file."""
    return next((name for mark, name in COMPRESSED.items() if head.startswith(mark)), None)


def describe_foreign_file(head: bytes, path: str, format: Format | None = None) -> str | None:
    """Return what a file without frames is and what to do; None if it may hold frames.

    Args:
        head: its first HEAD bytes.
        path: its path, for the message.
        format: the outermost format that it is read as. Without it, text is not recognised.
    """
    for kind in KINDS:
        if head[kind.position :].startswith(kind.mark):
            return (
                f"{format_path(path)}: this is {kind.description} and holds no frames: "
                f"{kind.advice}"
            )
    if format is not None and _is_text(head, format):
        return (
            f"{format_path(path)}: this is text, not {format.name}: choose another file or "
            "another --format; `wirescan send --lines` reads lines of text"
        )
    return None


def _is_text(head: bytes, format: Format) -> bool:
    """Return whether a file's first bytes are text that is not in `format`."""
    if format.storage.text_marks is None or head.startswith(format.storage.text_marks):
        return False
    if len(head) < SHORTEST_TEXT or CONTROL & set(head):
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # The head may end inside a character.
        return len(head) == HEAD and error.start > HEAD - LONGEST_CHARACTER
    return True


def decompress_chunks(
    pieces: Iterable[Any], codec: str, size: int, limits: Limits = Limits()
) -> Iterator[memoryview]:
    """Yield the contents of a compressed file in pieces of at most `size` bytes.

    Args:
        pieces: the compressed bytes.
        codec: "gzip" or "zstd".
        size: bytes in a decompressed piece.
        limits: its `ratio` bounds the decompressed bytes by the compressed bytes read so far.

    Raises:
        CompressionError: if the data is cut, damaged or too large.
        ImportError: if the codec is zstd and pyarrow is not installed.
    """
    read = 0
    written = 0

    def count_bytes() -> Iterator[Any]:
        nonlocal read
        for piece in pieces:
            read += len(piece)
            yield piece

    parts = _gunzip(count_bytes(), size) if codec == "gzip" else _unzstd(count_bytes(), size)
    for data in parts:
        written += len(data)
        if written > max(limits.ratio * read, UNLIMITED_BYTES):
            raise CompressionError(
                f"the {codec} data decompresses to more than {limits.ratio:,} times its size"
            )
        yield memoryview(data)


def _gunzip(pieces: Iterable[Any], size: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of gzip members in pieces of `size` bytes.

    Zeros may follow a member.
    """
    steps = (
        bytes(piece[start : start + GZIP_STEP])
        for piece in pieces
        for start in range(0, len(piece), GZIP_STEP)
    )
    member: Any = None  # None between two members
    is_first = True
    parts: list[bytes] = []
    size_read = 0
    for data in steps:
        while data:
            if member is None:
                data = data if is_first else data.lstrip(b"\0")
                if not data:
                    break
                member = zlib.decompressobj(WINDOW)
                is_first = False
            try:
                out = member.decompress(data, size - size_read)
            except zlib.error as error:
                raise CompressionError(f"the gzip data is damaged: {error}") from None
            data = member.unused_data if member.eof else member.unconsumed_tail
            member = None if member.eof else member
            parts.append(out)
            size_read += len(out)
            if size_read >= size:
                yield b"".join(parts)
                parts = []
                size_read = 0
    if size_read:
        yield b"".join(parts)
    if member is not None:
        raise CompressionError("the gzip data is cut")


def _unzstd(pieces: Iterable[Any], size: int) -> Iterator[bytes]:
    """Yield the decompressed bytes of zstd data in pieces of at most `size` bytes."""
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError(
            "zstd files are decompressed by pyarrow, which is not installed: "
            "pip install 'wirescan[cli]', or decompress the file first"
        ) from None
    with pa.CompressedInputStream(pa.PythonFile(_PiecesFile(pieces), "r"), "zstd") as stream:
        while True:
            try:
                out = stream.read(size)
            except OSError as error:
                raise CompressionError(f"the zstd data is cut or damaged: {error}") from None
            if not out:
                return
            yield out


class _PiecesFile:
    """A file object that reads pieces of bytes in order, for pyarrow."""

    closed = False

    def __init__(self, pieces: Iterable[Any]):
        self._pieces = iter(pieces)
        self._unread = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        if not self._unread:
            self._unread = memoryview(next(self._pieces, b""))
        out = self._unread[:size]
        self._unread = self._unread[size:]
        return bytes(out)

    def close(self) -> None:
        self.closed = True
