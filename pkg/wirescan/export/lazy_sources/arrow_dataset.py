"""`dataset`: files of frames as a dataset of pyarrow, which DuckDB reads too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from wirescan.export.lazy_sources.arrow_expressions import decode_expression, list_fields
from wirescan.export.lazy_sources.conditions import list_filters
from wirescan.export.lazy_sources.file_scan import FileScan, slice_batch
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.frames.registry import format_of
from wirescan.reading.filters import Filter
from wirescan.reading.splits import Sources

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset

BATCH_ROWS = 1 << 17  # pyarrow's default

Columns = Sequence[str] | Mapping[str, pc.Expression] | None


def dataset(
    source: Sources,
    *,
    format: str,
    columns: Sequence[str] | None = None,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    mapped: bool = False,
) -> FrameDataset:
    """Return the frames of files as a dataset of pyarrow, which is read when a query runs.

    DuckDB reads a variable that holds the dataset by its name: `FROM frames`. It passes on the
    columns that a query needs, and its conditions. Conditions that `wirescan.reading.filters` can
    express exclude rows before they become columns, and exclude parts of files by their indexes.
    Damage in excluded parts is not reported. pyarrow applies each whole condition.

    Args:
        source: paths, globs, directories or URLs. They are listed when a query runs.
        format: a name of `wirescan.formats()`. If the first file is a capture of packets now,
            "kafka.requests" means "kafka.requests?capture=true".
        columns: as in `wirescan.frames.to_arrow.make_schema`. None, the default: the format's own
            columns. Name `_file` and `_start` to have the path and the position of each row.
        errors: "strict", "mark" or "skip".
        check: verify checksums.
        limits: bounds on rows and bytes. `limits.expansion` bounds each file.
        mapped: map local files instead of copying their bytes, which is faster. The files must not
            shrink while a query runs: the system then ends the process (SIGBUS).

    Returns:
        The dataset. Byte strings are `binary`.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
        ValueError: an unknown format, column or mode.
        TypeError: unfit columns or limits.

    A query raises FrameError for damage under "strict", and OSError if a file cannot be read.
    DuckDB's exception has the text of it.
    """
    scan = FileScan.from_arguments(
        source, format, columns, errors, check=check, limits=limits, mapped=mapped
    )
    return FrameDataset(scan)


class FrameDataset(pyarrow.dataset.Dataset):
    """Files of frames, read by the methods of a `pyarrow.dataset.Dataset`.

    Arrow's own engine, Acero, cannot read it. So methods that would need Acero read the whole
    result into a table first, or raise NotImplementedError. The methods accept all arguments of
    pyarrow's, and ignore those for threads, read-ahead and memory.
    """

    # pyarrow's __init__ is not called: it refuses subclasses. Every public method is defined here,
    # because pyarrow's methods would read a C++ object that does not exist.
    def __init__(self, scan: FileScan, condition: pc.Expression | None = None):
        self._scan = scan
        self._condition = condition

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameDataset, (self._scan, self._condition)

    def __repr__(self) -> str:
        return f"<wirescan dataset of {self._scan.format}: {self._scan.source}>"

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""
        return self._scan.make_schema()

    @property
    def partition_expression(self) -> pc.Expression:
        """What is true of all rows: nothing is known."""
        return pc.scalar(value=True)

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int = BATCH_ROWS,
        **options: Any,
    ) -> DatasetScanner:
        """Return a scanner. The arguments are those of `pyarrow.dataset.Dataset.scanner`."""
        condition = self._condition
        if filter is not None:
            condition = filter if condition is None else condition & filter
        return DatasetScanner(self._scan, columns, condition, batch_size)

    def filter(self, expression: pc.Expression) -> FrameDataset:
        """Return a dataset of the rows for which an expression is true."""
        condition = self._condition
        return FrameDataset(self._scan, expression if condition is None else condition & expression)

    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield record batches. The arguments are those of `scanner`."""
        return self.scanner(*arguments, **options).to_batches()

    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Return all rows as a table. The arguments are those of `scanner`."""
        return self.scanner(*arguments, **options).to_table()

    def head(self, num_rows: int, *arguments: Any, **options: Any) -> pa.Table:
        """Return the first rows, and stop reading. The arguments after it are `scanner`'s."""
        return self.scanner(*arguments, **options).head(num_rows)

    def take(self, indices: Any, *arguments: Any, **options: Any) -> pa.Table:
        """Return rows by their numbers. All rows are read."""
        return self.to_table(*arguments, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Return the number of rows for which an expression is true, or of all rows."""
        return self.scanner(filter=filter, **options).count_rows()

    def sort_by(self, sorting: Any, **options: Any) -> pyarrow.dataset.Dataset:
        """Return the rows in order. All rows are read into memory."""
        return pyarrow.dataset.dataset(self.to_table().sort_by(sorting, **options))

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:
        """Raise NotImplementedError: files of frames are no fragments of Arrow."""
        self._refuse("get_fragments")

    def join(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise NotImplementedError: `to_table()` has a `join`."""
        self._refuse("join")

    def join_asof(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise NotImplementedError: `to_table()` has a `join_asof`."""
        self._refuse("join_asof")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raise NotImplementedError: `wirescan.dataset` takes the columns."""
        self._refuse("replace_schema")

    def _refuse(self, method: str) -> NoReturn:
        raise NotImplementedError(
            f"a dataset of frames has no {method}(): read it with to_table() or "
            "scanner().to_reader() first"
        )


class DatasetScanner:
    """A query on a `FrameDataset`, with the methods of a `pyarrow.dataset.Scanner`."""

    def __init__(
        self, scan: FileScan, columns: Columns, condition: pc.Expression | None, batch_rows: int
    ):
        if batch_rows < 1:
            raise ValueError(f"a batch has at least 1 row, not {batch_rows}")
        self._scan = scan
        self._columns: Sequence[str] | Mapping[str, pc.Expression]
        if columns is None:
            self._columns = scan.columns
        else:
            self._columns = dict(columns) if isinstance(columns, Mapping) else list(columns)
        self._condition = condition
        self._batch_rows = batch_rows
        self._needed = self._list_needed()
        empty = scan.make_schema().empty_table()
        self.dataset_schema = empty.schema
        self.projected_schema = _scan_in_memory(empty, self._columns, condition).schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches that have at least one row."""
        return self._read(few_rows=False)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the record batches."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows as a table."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows, and stop reading."""
        batches = []
        left = num_rows
        if left > 0:
            for batch in self._read(few_rows=True):
                batches.append(batch.slice(0, left))
                left -= batches[-1].num_rows
                if not left:
                    break
        return pa.Table.from_batches(batches, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Return rows by their numbers. All rows are read."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Return the number of rows. Only the columns of the condition are read."""
        counted = DatasetScanner(self._scan, [], self._condition, self._batch_rows)
        return sum(batch.num_rows for batch in counted.to_batches())

    def _list_needed(self) -> list[str]:
        """Return the columns that the projection and the condition read, in their order."""
        expressions = [] if self._condition is None else [self._condition]
        names: set[str] = set()
        if isinstance(self._columns, Mapping):
            expressions += self._columns.values()
        else:
            names.update(self._columns)
        for expression in expressions:
            fields = list_fields(expression)
            if fields is None:
                return list(self._scan.columns)
            names |= fields
        return [name for name in self._scan.columns if name in names]

    def _list_filters(self) -> list[Filter]:
        if self._condition is None:
            return []
        return list_filters(decode_expression(self._condition), format_of(self._scan.format))

    def _read(self, *, few_rows: bool) -> Iterator[pa.RecordBatch]:
        is_whole = self._condition is None and list(self._columns) == self._needed
        is_whole = is_whole and not isinstance(self._columns, Mapping)
        for batch in self._scan.read_batches(self._needed, self._list_filters(), few_rows=few_rows):
            if not batch.num_rows:
                continue
            results = [batch]
            if not is_whole:
                results = _scan_in_memory(batch, self._columns, self._condition).to_batches()
            for result in results:
                yield from slice_batch(result, self._batch_rows)


def _scan_in_memory(
    rows: pa.RecordBatch | pa.Table,
    columns: Sequence[str] | Mapping[str, pc.Expression],
    condition: pc.Expression | None,
) -> pa.Table:
    """Return the rows for which a condition is true, projected by pyarrow."""
    projection = columns if isinstance(columns, Mapping) else list(columns)
    return pyarrow.dataset.dataset(rows).to_table(
        columns=projection, filter=condition, use_threads=False
    )
