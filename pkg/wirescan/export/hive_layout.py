"""The directory of each row, if Parquet is partitioned as Hive does it.

An example is `kind=CALL/timestamp_day=2026-11-22`.

partition_by        directory                          for a column of
codec               codec=4                            integers
is_control          is_control=true                    bool
kind, fault, key    fault=BAD_CHECKSUM                 text or bytes; in bytes, what is not UTF-8
                                                       is escaped by "backslashreplace", and so is
                                                       a backslash before what looks like an escape
timestamp:day       timestamp_day=2026-11-22           times, in UTC; also :year, :month, and :hour
                                                       (2026-11-22T13)
_file               file=%2Fdata%2F0.log               a name without its "_", because readers skip
                                                       directories that begin with it
any of them         codec=__HIVE_DEFAULT_PARTITION__   a value that is null or empty text
                    key=aaa...~<32 digits>             text whose directory would have a name of
                                                       more than 255 bytes

Such long text comes from the wire, so it does not stop a conversion under "mark" and "skip". The
directory then has the start of the text, and the first half of the SHA-256 of all of it in
hexadecimal digits. Under "strict" it raises ValueError.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.export.batches import BATCH_BYTES
from wirescan.export.parquet_types import convert_batch, convert_schema
from wirescan.export.table_parts import split_by_bytes
from wirescan.frames import to_arrow
from wirescan.frames.columns import check_distinct
from wirescan.frames.escape import make_visible
from wirescan.frames.optional_packages import name_package
from wirescan.frames.table import FrameTable

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"
UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
# The characters that Spark and Hive escape in names.
ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
LONGEST_NAME = 255  # bytes
DIGITS = 32  # of the digest in a shortened name
LOOKS_ESCAPED = re.compile(rb"\\(?=x[0-9a-f]{2})")  # a backslash

Key = tuple[str | None, ...]  # the values of the columns that partition, as text


class By(NamedTuple):
    """A column that partitions, and for times the unit that they are truncated to."""

    column: str
    unit: str | None = None

    @property
    def name(self) -> str:
        """The name of the column in directories."""
        name = self.column.lstrip("_")
        return f"{name}_{self.unit}" if self.unit else name


class _Run(NamedTuple):
    """Adjacent rows with one key."""

    key: Key
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """The columns of the files, and the names of their directories.

    Attributes:
        format: a name of `wirescan.formats()`.
        columns: the columns in the files, in their order.
        by: the columns that partition, outermost directory first. Empty: a single directory.
        payloads: the columns that are decoded. None: none is. The types are known before batches
            are made.
        has_directories: keys name directories, so text that is too long for a name is shortened.
            False for tables, which keep the values elsewhere.
    """

    format: str
    columns: tuple[str, ...]
    by: tuple[By, ...] = ()
    payloads: PayloadColumns | None = None
    has_directories: bool = True

    @classmethod
    def from_columns(
        cls,
        format: str,
        columns: Sequence[str] | None = None,
        partition_by: str | Sequence[str] = (),
    ) -> Layout:
        """Return the layout for the arguments of a conversion.

        A column whose values name directories is not in the files. A column truncated to a unit
        is in both.

        format: the name of a format.
        columns: as in `wirescan.frames.to_arrow.make_schema`. Columns that partition need not be
            among them.
        partition_by: columns that partition, as in the module's table.

        Raises ValueError for an unknown column or unit, for a column that is named twice or cannot
        partition, and if no column is left for the files.
        """
        several = [partition_by] if isinstance(partition_by, str) else partition_by
        by = tuple(
            By(column, unit or None)
            for column, _, unit in (text.partition(":") for text in several)
        )
        all_columns = to_arrow.make_schema(format, columns, types="spark").names
        check_distinct(all_columns)
        partition_schema = to_arrow.make_schema(
            format, [partition.column for partition in by], types="spark"
        )
        for partition, field in zip(by, partition_schema):
            _check_partition(partition, field.type)
        names = [partition.name for partition in by]
        stored = tuple(name for name in all_columns if By(name) not in by)
        twice = {name for name in names if names.count(name) > 1 or name in stored}
        if twice:
            raise ValueError(f"partition_by names {twice.pop()!r} twice, or a column has that name")
        if not stored:
            reason = ": partition_by names all of them" if all_columns else ""
            raise ValueError(f"no column is left for the files{reason}")
        return cls(format, stored, by)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the files, in Spark's types where no payload is decoded."""
        schema = self.stored_schema
        return (
            schema if self.payloads is None else convert_schema(self.payloads.make_schema(schema))
        )

    @property
    def stored_schema(self) -> pa.Schema:
        """The Arrow schema of the files before payloads are decoded, in Spark's types."""
        return to_arrow.make_schema(self.format, self.columns, types="spark")

    def make_batches(
        self, table: FrameTable, file: str, errors: str
    ) -> Iterator[tuple[Key, pa.RecordBatch]]:
        """Yield the rows of a table in record batches of `schema`, each with the key of its rows.

        table: the frames.
        file: the path of the file.
        errors: the error mode. In modes other than "strict", text in a key that is too long for the
            name of a directory is shortened.
        """
        for part in split_by_bytes(table, BATCH_BYTES, self.columns):
            runs = [_Run((), 0, len(part))]
            if self.by:
                order, runs = self._find_runs(part, file)
                part = part if len(runs) < 2 else part[order]
            batch = to_arrow.to_batch(part, self.columns, types="spark", file=file, errors=errors)
            batch = self.decode(batch)
            for key, start, stop in runs:
                rows = batch.slice(start, stop - start)
                if self.has_directories and errors != "strict":
                    key = self._shorten_key(key)
                yield key, rows

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of `stored_schema` as rows of `schema`."""
        return batch if self.payloads is None else convert_batch(self.payloads.decode(batch))

    def format_directory(self, key: Key) -> str:
        """Return the directory of the rows with a key, relative to the output.

        Raises ValueError for a value that is too long for the name of a directory.
        """
        parts = [_make_directory_name(partition, text) for partition, text in zip(self.by, key)]
        for part in parts:
            if len(os.fsencode(part)) > LONGEST_NAME:
                start = make_visible(part[:60])
                raise ValueError(
                    f"a value is too long for the name of a directory: {start}...; "
                    "errors 'mark' and 'skip' shorten it"
                )
        return "/".join(parts)

    def _shorten_key(self, key: Key) -> Key:
        """Return the key with every text shortened that is too long for a directory."""
        return tuple(
            _shorten(partition, text)
            if text and len(os.fsencode(_make_directory_name(partition, text))) > LONGEST_NAME
            else text
            for partition, text in zip(self.by, key)
        )

    def _find_runs(self, table: FrameTable, file: str) -> tuple[np.ndarray, list[_Run]]:
        """Return an order of the rows that makes rows with one key adjacent, and their runs."""
        columns = [partition.column for partition in self.by]
        values = to_arrow.to_batch(table, columns, types="spark", file=file)
        coded = [
            _encode(column, partition.unit) for column, partition in zip(values.columns, self.by)
        ]
        codes = np.zeros(len(table), np.int64)
        for numbers, texts in coded:
            # The combined codes are numbered anew for each column, so that they do not overflow.
            _, codes = np.unique(codes * len(texts) + numbers, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        starts = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist()] if len(table) else []
        keys = [tuple(texts[numbers[order[start]]] for numbers, texts in coded) for start in starts]
        stops = [*starts[1:], len(table)]
        return order, [_Run(*run) for run in zip(keys, starts, stops)]


def _make_directory_name(by: By, text: str | None) -> str:
    return f"{by.name}={ESCAPED.sub(_escape, text) if text else NULL}"


def _shorten(by: By, text: str) -> str:
    """Return the start of a text and a digest of all of it, short enough for a directory."""
    digest = "~" + sha256(text.encode()).hexdigest()[:DIGITS]

    def is_too_long(count: int) -> bool:
        return len(os.fsencode(_make_directory_name(by, text[:count] + digest))) > LONGEST_NAME

    too_long = bisect_left(range(LONGEST_NAME), 1, key=is_too_long)
    return text[: max(too_long - 1, 0)] + digest


def _check_partition(by: By, kind: pa.DataType) -> None:
    """Raise ValueError unless a column of an Arrow type can partition."""
    is_time = pa.types.is_timestamp(kind)
    if by.unit is not None and (not is_time or by.unit not in UNITS):
        raise ValueError(
            f"{by.column}:{by.unit} cannot partition: only times have units, {', '.join(UNITS)}"
        )
    if is_time and by.unit is None:
        raise ValueError(f"column {by.column} cannot partition: give it a unit, {by.column}:day")
    if pa.types.is_nested(kind):
        raise ValueError(f"column {by.column} cannot partition")


def _encode(values: pa.Array, unit: str | None) -> tuple[np.ndarray, list[str | None]]:
    """Return the values of a column as indexes of texts, and these texts."""
    if unit:
        numbers = values.view(pa.int64()).fill_null(0).to_numpy()
        times = numbers.view("M8[us]").astype(f"M8[{UNITS[unit]}]")
        distinct, codes = np.unique(times, return_inverse=True)
        dates: list[str | None] = np.datetime_as_string(distinct).tolist()
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        return np.where(nulls, len(dates), codes), [*dates, None]
    coded = values.dictionary_encode()
    texts = list(map(_to_text, coded.dictionary.to_pylist()))
    return coded.indices.fill_null(len(texts)).to_numpy(), [*texts, None]


def _to_text(value: object) -> str:
    if isinstance(value, bytes):
        return LOOKS_ESCAPED.sub(rb"\\x5c", value).decode(errors="backslashreplace")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"
