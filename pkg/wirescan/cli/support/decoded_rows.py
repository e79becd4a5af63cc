"""Rows with decoded payloads for text, JSON, CSV and templates: --decode of `wirescan scan`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from wirescan.cli.output import dump_json, dump_text
from wirescan.decoding.json_output import iter_json_values
from wirescan.decoding.payload_columns import (
    FAULT_SUFFIX,
    SAMPLE_PAYLOADS,
    PayloadColumns,
    PayloadSample,
)
from wirescan.frames.errors import FrameError
from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format
from wirescan.frames.optional_packages import name_package
from wirescan.frames.row_values import WIDEST_CELL, RowValues
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import make_schema, to_batch
from wirescan.frames.value_text import escape_text

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

Tables = Iterable[tuple[FrameTable, str]]
REFUSED = "!! "  # precedes the reason in the cell of a refused payload


class DecodedColumn(NamedTuple):
    """A decoded column of a table.

    Attributes:
        values: the values of JSON, made while they are iterated over. None for null.
        reasons: why a payload is refused; None for all others.
    """

    values: Iterator[Any]
    reasons: list[str | None]


def decode_column(
    payloads: PayloadColumns, table: FrameTable, name: str, encoding: str
) -> DecodedColumn:
    """Decode a column of a table.

    Args:
        payloads: the decoders. Their types are known.
        table: the frames.
        name: the column.
        encoding: the notation of byte strings in the values.
    """
    batch = to_batch(table, [name], binary="binary", errors="mark")
    decoded = payloads.decoders[name].decode(batch.column(name))
    return DecodedColumn(iter_json_values(decoded.values, encoding), decoded.reasons.to_pylist())


class DecodedRows:
    """Converts the rows of tables to tuples of values, as `RowValues` does, with decoded columns.

    For people, a cell is JSON, or the text itself if the payload is text. The cell of a refused
    payload is the reason. Otherwise the reason is in a column of its own, such as `value_fault`.

    Args:
        payloads: the decoders. Their types are known before rows are converted.
        format, columns, encodings, errors, for_people: those of `RowValues`.

    Attributes:
        names: the columns of a tuple, in order.

    Raises ValueError for a decoded column that is not in `columns`, or has no byte strings.
    """

    def __init__(
        self,
        payloads: PayloadColumns,
        format: Format,
        columns: Sequence[str],
        encodings: Mapping[str, str],
        errors: str,
        *,
        for_people: bool,
    ):
        payloads.check(make_schema(format, columns))
        self._payloads = payloads
        self._columns = columns
        self._encodings = encodings
        self._for_people = for_people
        self._plain = RowValues(format, columns, encodings, errors, for_people=for_people)
        self.names: list[str] = []
        for name in columns:
            self.names.append(name)
            if name in payloads.decoders and not for_people:
                self.names.append(name + FAULT_SUFFIX)

    def iter_rows(self, table: FrameTable, path: str) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the rows of a table of the file `path`."""
        columns: list[Iterable[Any]] = []
        for name in self._columns:
            if name not in self._payloads.decoders:
                columns.append(self._plain.read_column(table, name, path))
                continue
            decoded = decode_column(self._payloads, table, name, self._encodings[name])
            if self._for_people:
                columns.append(map(_show_cell, *decoded))
            else:
                columns += decoded
        return zip(*columns)


def _show_cell(value: Any, reason: str | None) -> str | None:
    """Return a decoded payload, or the reason why it is refused, as text for people."""
    if reason is not None:
        return REFUSED + reason
    if value is None:
        return None
    if isinstance(value, str):
        return escape_text(value[: WIDEST_CELL + 1])
    return make_visible(dump_text(value)[: WIDEST_CELL + 1])


def format_decoded(value: Any) -> str:
    """Return a decoded payload for a template: the text itself, or JSON."""
    return value if isinstance(value, str) else dump_json(value)


def infer_types(payloads: PayloadColumns, tables: Tables, *, is_live: bool) -> Tables:
    """Infer the types that are not known from the first payloads, and return all the tables.

    The tables with these payloads are held: at most `HELD_BYTES` of `payload_columns`. Without a
    table, no type is inferred.

    Args:
        payloads: the decoders.
        tables: the frames, with the paths of their files.
        is_live: one payload is enough, and the others in its table, because more may not come soon.

    Raises ValueError if no type can be inferred, and OSError as a schema registry.
    """
    if payloads.is_fitted:
        return tables
    remaining = iter(tables)
    held: list[tuple[FrameTable, str]] = []
    columns = list(payloads.decoders)
    sample = PayloadSample(payloads, 1 if is_live else SAMPLE_PAYLOADS)
    while sample.is_incomplete:
        try:
            item = next(remaining, None)
        except FrameError as error:
            remaining = _raise_later(error)
            break
        if item is None:
            break
        held.append(item)
        table = item[0]
        sample.add(to_batch(table, columns, errors="mark"), sum(map(len, table.buffers)))
    if held:
        sample.fit()
    return chain(held, remaining)


def _raise_later(error: FrameError) -> Iterator[tuple[FrameTable, str]]:
    """Raise an error where the next table would be."""
    raise error
    yield


def infer_from_nothing(payloads: PayloadColumns) -> None:
    """Give decoders whose types are not known the types of no payload. Raises ValueError."""
    names = list(payloads.decoders)
    empty = pa.schema([(name, pa.binary()) for name in names])
    payloads.fit(pa.RecordBatch.from_pylist([], schema=empty))
