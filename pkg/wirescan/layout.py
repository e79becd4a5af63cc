"""Which directory a row goes to, where Parquet is partitioned as Hive does: `kind=CALL/timestamp_day=2026-11-22`.

    partition_by        directory                       of a column of
    codec               codec=4                         integers
    is_control          is_control=true                 bool
    kind, subject       subject=orders.new              text, or bytes; bytes that are no UTF-8 stand as \\xff
    timestamp:day       timestamp_day=2026-11-22        times; also :year, :month and :hour (2026-11-22T13), in UTC
    _file               file=%2Fdata%2F0.log            one with a "_", which goes: readers pass over names with it
    any of them         codec=__HIVE_DEFAULT_PARTITION__    where the value is null, or empty text
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wirescan import arrow
from wirescan.table import FrameTable

NULL = "__HIVE_DEFAULT_PARTITION__"
UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")      # what Spark and Hive escape in names
LONGEST = 255           # bytes in a name

Key = tuple[str | None, ...]        # the values of the columns that partition, as text


class By(NamedTuple):
    """A column that partitions, and for times the unit that they are cut to."""
    column: str
    unit: str | None = None

    @property
    def name(self) -> str:
        """What the directories call it."""
        name = self.column.lstrip("_")
        return f"{name}_{self.unit}" if self.unit else name


@dataclass(frozen=True)
class Layout:
    """What the files hold, and how their directories are named.

    format: a name of `wirescan.formats()`. columns: those in the files, in their order. by: those that partition,
    outermost directory first; none: one directory.
    """
    format: str
    columns: tuple[str, ...]
    by: tuple[By, ...] = ()

    @classmethod
    def of(cls, format: str, columns: Sequence[str] | None = None, partition_by: str | Sequence[str] = ()) -> Layout:
        """The layout that is asked for; columns are as of `wirescan.arrow.schema`, and those that partition need not be
        among them. A column whose values name directories is not in the files too; one cut to a unit is.

        Raises ValueError for an unknown column or unit, a column that cannot partition, and where no column is left.
        """
        several = [partition_by] if isinstance(partition_by, str) else partition_by
        by = tuple(By(column, unit or None) for column, _, unit in (text.partition(":") for text in several))
        wanted = arrow.schema(format, columns, types="spark").names
        for one, field in zip(by, arrow.schema(format, [one.column for one in by], types="spark")):
            _check(one, field.type)
        names = [one.name for one in by]
        stored = tuple(name for name in wanted if By(name) not in by)
        twice = {name for name in names if names.count(name) > 1 or name in stored}
        if twice:
            raise ValueError(f"partition_by names {twice.pop()!r} twice, or a column has that name")
        if not stored:
            raise ValueError("no column is left for the files" + ": partition_by names all of them" * bool(wanted))
        return cls(format, stored, by)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the files, in Spark's types."""
        return arrow.schema(self.format, self.columns, types="spark")

    def batches(self, table: FrameTable, file: str, errors: str) -> Iterator[tuple[Key, pa.RecordBatch]]:
        """The rows of a table in record batches of `schema`, each with the key that its rows have in common."""
        for part in arrow.split(table, arrow.BATCH_BYTES, self.columns):
            runs = [((), 0, len(part))]
            if self.by:
                order, runs = self._runs(part, file)
                part = part if len(runs) < 2 else part[order]
            batch = arrow.to_batch(part, self.columns, types="spark", file=file, errors=errors)
            for key, start, stop in runs:
                yield key, batch.slice(start, stop - start)

    def directory(self, key: Key) -> str:
        """The directory of the rows with a key, from the output's own. Raises ValueError for a value that is too long
        to name one."""
        parts = [f"{one.name}={ESCAPED.sub(_escape, text) if text else NULL}" for one, text in zip(self.by, key)]
        for part in parts:
            if len(os.fsencode(part)) > LONGEST:
                raise ValueError(f"a value is too long for the name of a directory: {part[:60]}...")
        return "/".join(parts)

    def _runs(self, table: FrameTable, file: str) -> tuple[np.ndarray, list[tuple[Key, int, int]]]:
        """The order of rows in which those with one key lie side by side, and (key, first row, end) of each."""
        values = arrow.to_batch(table, [one.column for one in self.by], types="spark", file=file)
        coded = [_codes(column, one.unit) for column, one in zip(values.columns, self.by)]
        codes = np.zeros(len(table), np.int64)
        for numbers, texts in coded:
            codes = np.unique(codes * len(texts) + numbers, return_inverse=True)[1]     # small again: no overflow
        order = np.argsort(codes, kind="stable")
        starts = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist()] if len(table) else []
        keys = [tuple(texts[numbers[order[start]]] for numbers, texts in coded) for start in starts]
        return order, list(zip(keys, starts, [*starts[1:], len(table)]))


def _check(one: By, kind: pa.DataType) -> None:
    times = pa.types.is_timestamp(kind)
    if one.unit is not None and (not times or one.unit not in UNITS):
        raise ValueError(f"{one.column}:{one.unit} cannot partition: only times have units, {', '.join(UNITS)}")
    if pa.types.is_nested(kind) or times and one.unit is None:
        raise ValueError(f"column {one.column} cannot partition" + (f": give it a unit, {one.column}:day" * times))


def _codes(values: pa.Array, unit: str | None) -> tuple[np.ndarray, list[str | None]]:
    """The values of a column as numbers of texts, and these texts."""
    if unit:
        times = values.view(pa.int64()).fill_null(0).to_numpy().view("M8[us]").astype(f"M8[{UNITS[unit]}]")
        found, codes = np.unique(times, return_inverse=True)
        texts = np.datetime_as_string(found).tolist()
        return np.where(values.is_null().to_numpy(zero_copy_only=False), len(texts), codes), [*texts, None]
    coded = values.dictionary_encode()
    texts = list(map(_text, coded.dictionary.to_pylist()))
    return coded.indices.fill_null(len(texts)).to_numpy(), [*texts, None]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"
