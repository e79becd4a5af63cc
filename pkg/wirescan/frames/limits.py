"""`Limits`: how many bytes and rows a call may allocate, whatever sizes the wire claims."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields

__all__ = ["Limits"]

# `size` of a row is u4; `parent`, and the `_size` of a place, are i4.
LARGEST = {"frame": 2**32 - 1, "inflated": 2**31 - 1, "rows": 2**31 - 1}
_OPTIONAL = ("row_bytes", "expansion")

EXPANSION = 512
FREE_ROW_BYTES = 256 << 20
# A small compressed input holds at most about 250 MB of frames. Bytes beyond that were really sent,
# so more bytes of rows are allowed for each of them.
MANY_BYTES = 256 << 20
ROW_BYTES_PER_BYTE = 3
ROW_BYTES_PER_BYTE_OF_MANY = 16


@dataclass(frozen=True)
class Limits:
    """Upper bounds, each inclusive. Every call that allocates takes one; the defaults are safe.

    Attributes:
        frame: bytes in one frame on the wire, and so the bytes that a stream holds of a frame
            (Kafka: `socket.request.max.bytes`). A longer frame is a fault, BAD_LENGTH.
            1 to 2**32-1.
        inflated: bytes that the payload of one frame may decompress to. 1 to 2**31-1.
        inflated_total: bytes that the payloads of one call may decompress to, all together. The
            results between several transforms of a payload count too. 1 or more.
        ratio: decompressed bytes per compressed byte. Payloads that decompress to at most 1 MiB
            are never refused for their ratio. 1 or more.
        ratio_total: the same for all payloads of one call together. Up to 128 MiB are never
            refused. 1 or more.
        rows: rows in one table. 1 to 2**31-1.
        row_bytes: bytes of the rows that one call makes, over all levels that it opens. 1 or
            more. None, the default, means the largest of three numbers: 256 MiB, 3 times the
            bytes that hold the frames, and 16 times those beyond 256 MiB.
        expansion: decompressed bytes per byte of a file that is read in chunks, over the whole
            file. Rows are bounded too: a row counts as 512 bytes, and a pair in a list of a row,
            such as a header, as 128 bytes. The first 512 KiB of the file are not counted, but
            every file may expand to `expansion` times 512 KiB. The command line, Parquet, Spark
            and growing files apply it; `scan` and `stream` do not. 1 or more; None means no
            bound.

    Raises:
        TypeError: a limit is not an integer.
        ValueError: a limit is out of its range.
    """

    frame: int = 100 << 20
    inflated: int = 64 << 20
    inflated_total: int = 4 << 30
    ratio: int = 2000
    ratio_total: int = 100
    rows: int = LARGEST["rows"]
    row_bytes: int | None = None
    expansion: int | None = EXPANSION

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _OPTIONAL:
                continue
            limit = operator.index(value)
            largest = LARGEST.get(field.name)
            if limit < 1 or (largest is not None and limit > largest):
                raise ValueError(f"limit {field.name}={limit} is not in 1 .. {largest or 'any'}")
            object.__setattr__(self, field.name, limit)

    def limit_rows(self, size: int, buffer_bytes: int) -> int:
        """Return how many rows of `size` bytes a table may have.

        Its buffers have `buffer_bytes` bytes together.
        """
        if self.row_bytes is None and ROW_BYTES_PER_BYTE * buffer_bytes <= FREE_ROW_BYTES:
            rows = FREE_ROW_BYTES // size or 1  # inline: a call takes time
        else:
            rows = self.limit_row_bytes(buffer_bytes) // size or 1
        return rows if rows < self.rows else self.rows

    def limit_row_bytes(self, buffer_bytes: int) -> int:
        """Return how many bytes all rows may have, for buffers of `buffer_bytes` bytes together."""
        if self.row_bytes is not None:
            return self.row_bytes
        return max(
            FREE_ROW_BYTES,
            ROW_BYTES_PER_BYTE * buffer_bytes,
            ROW_BYTES_PER_BYTE_OF_MANY * (buffer_bytes - MANY_BYTES),
        )
