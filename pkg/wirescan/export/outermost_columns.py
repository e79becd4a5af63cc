"""Outermost frames that become columns without tables of their rows.

Filters, damage and captures need rows. `batches.py` and `counted_batches.py` use this module for
local files and bytes, and for the formats whose parsers have `writes_columns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wirescan.export.table_parts import BATCH_ROWS
from wirescan.frames.limits import Limits
from wirescan.frames.scanned_columns import ScannedColumns
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import ColumnScan
from wirescan.reading.chunks import LocalChunks
from wirescan.reading.nested_groups import open_nested
from wirescan.reading.stream import Stream

MOST_FILLED = BATCH_ROWS // 16 * 15  # rows of a chunk, if those of the chunk before were too many


@dataclass(frozen=True)
class OutermostReader:
    """Reads the frames of an outermost format as columns. One reader reads one file.

    Attributes:
        column_scan: makes the writers. `can_write_columns` is true for it.
        source: the path of the file, for errors; None for bytes in memory.
        errors, check, limits: as in `chunked.iter_tables`.
    """

    column_scan: ColumnScan
    source: str | None
    errors: str
    check: bool
    limits: Limits

    def read(
        self, chunks: LocalChunks, offset: int, *, allow_cut: bool
    ) -> Iterator[ScannedColumns | FrameTable]:
        """Yield the frames in chunks of a file: columns, or tables where rows are needed.

        chunks, offset, allow_cut: as in `chunked.scan_outermost`.

        No `Allowance` is needed: outermost frames have at least a byte each.

        Raises FrameError as `errors` says.
        """
        stream = Stream(
            self.column_scan.format,
            errors=self.errors,
            check=self.check,
            limits=self.limits,
            source=self.source,
            offset=offset,
        )
        for chunk in chunks:
            columns = self._read_columns(stream, chunk)
            if columns is None:
                yield from self._read_rows(stream, chunk)
            chunks.repeat_cut(stream)
            if columns is not None:
                if len(columns) > BATCH_ROWS:
                    # The views of a batch share the bytes of their chunk.
                    chunks.size = max(chunks.size * MOST_FILLED // len(columns), 1)
                yield columns
        yield from self._read_rows(stream, None, allow_cut=allow_cut)

    def _read_columns(self, stream: Stream, chunk: memoryview) -> ScannedColumns | None:
        """Return the frames that a chunk completes; None if it has to be read into rows."""
        writer = self.column_scan.make_writer()
        table = stream.feed_columns(chunk, writer)
        return None if table is None else ScannedColumns(writer, table)

    def _read_rows(
        self, stream: Stream, chunk: memoryview | None, *, allow_cut: bool = False
    ) -> Iterator[FrameTable]:
        """Yield the frames that a chunk completes as tables, which can have bad rows.

        An error is raised after the frames before it. None ends the stream.
        """
        table, error = stream.feed_to_fault(chunk, tail=allow_cut)
        yield from open_nested(
            table,
            self.column_scan.format,
            errors=self.errors,
            check=self.check,
            limits=self.limits,
            source=self.source,
        )
        if error is not None:
            raise error


def can_write_columns(column_scan: ColumnScan) -> bool:
    """Return whether a scan writes all these columns. Of captures, it does not."""
    return column_scan.format.parser.writes_columns and not column_scan.needs_rows
