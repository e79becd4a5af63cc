"""The binary form of a partition's manifest: manifest.bin.

Structs are envelopes: version(1) compatible version(1) size(4), then as many bytes. Integers are
little-endian, and texts and byte strings have a length(4) before them. The manifest is

    namespace, topic, partition(4), revision(8), segments as a byte string, replaced segments,
    last offset(8), start offset(8), and more fields that are not read

The segments are 13 columns. A column is an envelope of frames. A frame has 16 numbers(8) as they
are, then rows of 16 numbers that precede them, as differences, with as few bits as the largest of a
row needs. The bits of a row are divided into parts of 32, 16, 8 and fewer bits, the low ones first.
A part has its bits of all 16 numbers, one number after another.

Source: Redpanda, `partition_manifest_serde` in src/v/cloud_storage/partition_manifest.cc,
`segment_meta_cstore` and `deltafor_encoder` in src/v/cloud_storage and src/v/utils.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError

ROW = 16  # numbers
PARTS = (64, 32, 16, 8)  # bits
MASK = (1 << 64) - 1
MOST = 1 << 22  # segments of a manifest; a row of equal numbers has one byte
COLUMNS = (
    "is_compacted",
    "size_bytes",
    "base_offset",
    "committed_offset",
    "base_timestamp",
    "max_timestamp",
    "delta_offset",
    "ntp_revision",
    "archiver_term",
    "segment_term",
    "delta_offset_end",
    "sname_format",
)
SUMMED = "base_offset"  # its numbers rise, so they are stored as differences; others as XOR
LAST_COMPATIBLE = 0  # the version that a reader must know, of every envelope


class BinaryManifest(NamedTuple):
    """The fields of a binary manifest. columns: name -> numbers of the segments, int64."""

    namespace: str
    topic: str
    partition: int
    revision: int
    start_offset: int
    last_offset: int
    columns: dict[str, np.ndarray]


@dataclass
class _Cursor:
    """Reads bytes up to an end. Each method raises FrameError where they do not suffice."""

    raw: bytes
    path: str
    at: int
    end: int

    def take(self, size: int) -> int:
        """Step over bytes, and return the position of the first of them."""
        if size > self.end - self.at:
            raise self.make_error(Fault.TRUNCATED)
        self.at += size
        return self.at - size

    def read(self, layout: str) -> int:
        """Return a number. layout: of `struct`, such as "q"."""
        start = self.take(struct.calcsize("<" + layout))
        number: int = struct.unpack_from("<" + layout, self.raw, start)[0]
        return number

    def enter(self) -> _Cursor:
        """Step over an envelope, and return a cursor for its content."""
        at = self.at
        compatible = (self.read("B"), self.read("B"))[1]
        if compatible > LAST_COMPATIBLE:
            self.at = at
            raise self.make_error(Fault.BAD_VERSION)
        return self.enter_bytes()

    def enter_bytes(self) -> _Cursor:
        """Step over a byte string, and return a cursor for it."""
        start = self.take(self.read("I"))
        return _Cursor(self.raw, self.path, start, self.at)

    def read_text(self) -> str:
        inner = self.enter_bytes()
        try:
            return self.raw[inner.at : inner.end].decode()
        except UnicodeDecodeError:
            raise inner.make_error(Fault.BAD_FIELD) from None

    def make_error(self, fault: Fault) -> FrameError:
        return FrameError(fault, self.at, 0, self.raw[self.at :], self.path)


def parse_binary_manifest(raw: bytes, path: str) -> BinaryManifest:
    """Return the content of a manifest.bin.

    path: of the file, for errors.

    Raises FrameError with the position: TRUNCATED where the bytes end too early, BAD_VERSION for a
    later format, BAD_FIELD and BAD_COUNT for fields that contradict each other, TOO_LARGE for more
    than MOST segments.
    """
    cursor = _Cursor(raw, path, 0, len(raw)).enter()
    namespace = cursor.read_text()
    topic = cursor.read_text()
    partition = cursor.read("i")
    revision = cursor.read("q")
    # Both the struct of the columns and the columns in it are envelopes.
    store = cursor.enter_bytes().enter().enter()
    columns = {name: _read_column(store, name) for name in COLUMNS}
    if len({len(numbers) for numbers in columns.values()}) > 1:
        raise store.make_error(Fault.BAD_COUNT)
    for _ in range(cursor.read("I")):
        cursor.enter()  # a replaced segment
    last_offset = cursor.read("q")
    start_offset = cursor.read("q")
    return BinaryManifest(namespace, topic, partition, revision, start_offset, last_offset, columns)


def _read_column(store: _Cursor, name: str) -> np.ndarray:
    column = store.enter()
    numbers: list[int] = []
    for _ in range(column.read("I")):
        numbers += _read_frame(column.enter(), is_summed=name == SUMMED)
        if len(numbers) > MOST:
            raise column.make_error(Fault.TOO_LARGE)
    return np.array(numbers, np.uint64).view(np.int64)


def _read_frame(frame: _Cursor, *, is_summed: bool) -> list[int]:
    """Return the numbers of a frame, modulo 2**64."""
    if frame.read("I") != ROW:
        raise frame.make_error(Fault.BAD_COUNT)
    head = [frame.read("Q") for _ in range(ROW)]
    numbers: list[int] = []
    if frame.read("B"):
        tail = frame.enter()
        last = tail.read("Q")
        tail.read("Q")  # the last number, for appending
        packed = tail.enter_bytes()
        rows = tail.read("I")
        if rows > MOST // ROW:
            raise tail.make_error(Fault.TOO_LARGE)
        for _ in range(rows):
            for difference in _unpack_row(packed):
                last = (last + difference) & MASK if is_summed else last ^ difference
                numbers.append(last)
    size = frame.read("Q")
    numbers += head
    if not len(numbers) - ROW <= size <= len(numbers):
        raise frame.make_error(Fault.BAD_COUNT)
    return numbers[:size]


def _unpack_row(packed: _Cursor) -> list[int]:
    """Return the next 16 numbers."""
    bits = packed.read("B")
    if bits > 64:
        raise packed.make_error(Fault.BAD_FIELD)
    numbers = [0] * ROW
    shift = 0
    while shift < bits:
        rest = bits - shift
        width = next((part for part in PARTS if part <= rest), rest)
        start = packed.take(width * ROW // 8)
        packed_bits = int.from_bytes(packed.raw[start : packed.at], "little")
        for i in range(ROW):
            numbers[i] |= (packed_bits >> i * width & ((1 << width) - 1)) << shift
        shift += width
    return numbers
