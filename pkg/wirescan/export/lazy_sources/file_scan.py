"""Files of one format as record batches, with the columns and filters of one query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from wirescan.export.batches import BATCH_BYTES, iter_batches
from wirescan.files.source import is_local, read_ahead
from wirescan.frames.errors import FrameError, check_mode
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.frames.to_arrow import list_default_columns, make_schema
from wirescan.reading.captures import choose_source_format
from wirescan.reading.filters import Filter
from wirescan.reading.splits import Sources, list_source_files

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

# pyarrow cannot filter views, and DuckDB pushes no filter to a dataset that has one.
BINARY = "binary"
LIMITED_BYTES = 256 << 10  # read at a time by a query that wants few rows
MOST_HELD = 4  # the bytes that views keep in memory, at most, for each byte that they show
INLINE_BYTES = 12  # a view of at most so many bytes has them itself
VIEW_FIELDS = 4  # int32 in a view: the first is the size


@dataclass(frozen=True)
class FileScan:
    """What a lazy source reads.

    Attributes:
        source: paths, globs, directories or URLs. They are listed when a query runs.
        format: the name of the format.
        columns: the columns of the source.
        errors: "strict", "mark" or "skip".
        check: verify checksums.
        limits: bounds on rows and bytes, for each file.
        mapped: map local files instead of copying their bytes.
    """

    source: Sources
    format: str
    columns: tuple[str, ...]
    errors: str
    check: bool
    limits: Limits
    mapped: bool

    @classmethod
    def from_arguments(
        cls,
        source: Sources,
        format: str,
        columns: Sequence[str] | None,
        errors: str,
        *,
        check: bool,
        limits: Limits,
        mapped: bool,
    ) -> FileScan:
        """Check the arguments of a lazy source.

        format: the name of a format. If the first file is a capture of packets now, it is read as
            the format of captures.
        columns: None for the default columns of the format. The others are those of the class.

        Raises ValueError and TypeError for unfit arguments.
        """
        check_mode(errors, limits)
        if isinstance(columns, str):
            raise TypeError(f"columns are a list of names, not {columns!r}")
        format = choose_source_format(format, source)
        names = list_default_columns(format) if columns is None else list(columns)
        if len(set(names)) < len(names):
            raise ValueError(f"each column can be named once, but they are {', '.join(names)}")
        make_schema(format, names)
        return cls(source, format, tuple(names), errors, check, limits, mapped)

    def make_schema(self) -> pa.Schema:
        """Return the Arrow schema of all columns."""
        return make_schema(self.format, self.columns, binary=BINARY)

    def read_batches(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter] = (),
        *,
        few_rows: bool = False,
        views: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass some filters, file by file.

        columns: the columns to read, in their order. There may be none.
        filters: as in `wirescan.reading.filters`.
        few_rows: the caller probably stops early, so the files are read in small parts.
        views: byte strings may be views, as long as they keep at most about `MOST_HELD` times
            their bytes in memory. Each batch has one type of byte strings. There must be no
            filters, because the first rows of the first file are read twice, without them.

        Raises FrameError, OSError, EOFError and ValueError, as `iter_batches` does.
        """
        copied = make_schema(self.format, columns, binary=BINARY)
        files = [file.path for file in list_source_files(self.source, self.format)]
        if copied != make_schema(self.format, columns, binary="view"):
            views = views and bool(files) and self._has_dense_views(files[0], columns)
        account = _ViewAccount()
        # A filter may exclude a file, or parts of it.
        for path in read_ahead(files, head=0 if filters else None):
            binary = "view" if views else BINARY
            for batch in self._read_file(path, columns, filters, few_rows=few_rows, binary=binary):
                if views:
                    account.add(batch)
                    views = account.was_dense
                # The other views of this file are copied. Later files are read without views, which
                # costs less.
                yield batch if views or binary == BINARY else batch.cast(copied)

    def _has_dense_views(self, path: str, columns: Sequence[str]) -> bool:
        """Return whether views of the first batch of a file keep few other bytes in memory.

        It is false for objects and translated files, which are too slow to be read twice, and under
        "skip", because the bytes between frames would not be counted.
        """
        if self.errors == "skip" or not is_local(path):
            return False
        account = _ViewAccount()
        try:
            for batch in islice(self._read_file(path, columns, few_rows=True, binary="view"), 1):
                account.add(batch)
        except FrameError:
            return False  # a small part may exceed a limit that the whole file does not
        return account.is_dense()

    def _read_file(
        self,
        path: str,
        columns: Sequence[str],
        filters: Sequence[Filter] = (),
        *,
        few_rows: bool,
        binary: str,
    ) -> Iterator[pa.RecordBatch]:
        return iter_batches(
            path,
            format=self.format,
            columns=columns,
            batch_bytes=LIMITED_BYTES if few_rows else BATCH_BYTES,
            errors=self.errors,
            check=self.check,
            limits=self.limits,
            binary=binary,
            filters=filters,
            workers=1 if few_rows else None,  # other threads read ahead
            mapped=self.mapped and not few_rows,  # a mapped file is scanned in large pieces
        )


def slice_batch(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch that have at most `rows` rows. An empty batch has none."""
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


class _ViewAccount:
    """Counts the bytes that views show, and those of the buffers that they point into.

    A buffer is decided on when the next one begins, because several batches show parts of it.

    Attributes:
        was_dense: `is_dense()` before the last new buffer was counted.
    """

    def __init__(self) -> None:
        self.was_dense = True
        self._shown = 0
        self._held = 0
        # Addresses of the last buffers. The caller holds their batch while the next one is read, so
        # no new buffer has one of these addresses.
        self._buffers: set[int] = set()

    def is_dense(self) -> bool:
        """Return whether the buffers have at most `MOST_HELD` times the bytes of the views."""
        return self._held <= MOST_HELD * self._shown

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch. It may share buffers with the batch before it, as slices do."""
        shown = 0
        sizes_by_address: dict[int, int] = {}
        for array in chain.from_iterable(map(_list_views, batch.columns)):
            _, views, *buffers = array.buffers()
            if buffers:
                # `ByteStrings` would take half as long again, a tenth of a query.
                sizes = np.frombuffer(views, np.int32)[::VIEW_FIELDS]
                sizes = sizes[array.offset : array.offset + len(array)]
                shown += int(sizes.sum(where=sizes > INLINE_BYTES, dtype=np.int64))
                sizes_by_address |= {buffer.address: buffer.size for buffer in buffers}
        new = sizes_by_address.keys() - self._buffers
        if new:
            self.was_dense = self.is_dense()
            self._buffers = set(sizes_by_address)
        self._held += sum(sizes_by_address[address] for address in new)
        self._shown += shown


def _list_views(array: pa.Array) -> list[pa.Array]:
    """Return the arrays of views in an array, in its lists and in its structs."""
    if array.type == pa.binary_view():
        return [array]
    children = []
    if pa.types.is_list(array.type):
        children = [array.flatten()]
    elif pa.types.is_struct(array.type):
        children = array.flatten()
    return list(chain.from_iterable(map(_list_views, children)))
