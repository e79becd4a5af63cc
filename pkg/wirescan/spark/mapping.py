"""Frames inside the values of a binary column: a DataFrame of record sets becomes a DataFrame of frames."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType

from wirescan import arrow
from wirescan.catalog import Format, format_of
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.errors import NEAR, FrameError, error_of
from wirescan.limits import Limits
from wirescan.pieces import opened
from wirescan.source import view_of
from wirescan.spark.reading import Reading, settle
from wirescan.table import FrameTable, Stop, empty

BATCH_BYTES = 8 << 20       # of values that are read together


def map_frames(df: DataFrame, column: str, format: str = "kafka.records", keep: Sequence[str] = (), *,
               columns: Sequence[str] | None = None, errors: str = "strict", check: bool = True,
               limits: Limits = Limits()) -> DataFrame:
    """The frames in the values of a binary column, one row a frame, after the columns `keep` of the row it came from.

    Each value holds whole frames of the outermost format, one after another, such as a record set of Kafka; null and
    empty values hold none. What follows the last whole frame of a value is left out; a value without any is a fault,
    NOT_A_FRAME. But for the formats of Liftbridge that lie in envelopes, each value is one envelope, as NATS carries
    it, an empty one too. columns, errors, check, limits: as of `wirescan.spark.read`; offsets in the message of an
    error count from the beginning of the value.

    Raises ValueError for a column that there is not or that is not binary, a kept one with the name of another, or one
    of frames that are not in the values.
    """
    reading = Reading(format, columns, errors, check, limits)
    inner = format_of(format)
    arrow.to_batch(inner.inside(empty(inner.in_values)), reading.columns)       # refuses columns that are not there
    for name in (column, *keep):
        if name not in df.columns:
            raise ValueError(f"the DataFrame has no column {name!r}, only {', '.join(df.columns)}")
    if not isinstance(df.schema[column].dataType, BinaryType):
        raise ValueError(f"column {column} is {df.schema[column].dataType.simpleString()}, not binary")
    names = [*keep, *reading.schema.names]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two columns would be named {twice.pop()!r}: rename the one to keep")
    struct = StructType([*(df.schema[name] for name in keep), *reading.struct.fields])
    chosen = df.select(*(df[_quoted(name)] for name in keep), df[_quoted(column)].alias("value of frames"))
    return chosen.mapInArrow(_frames(reading, len(keep), column), struct)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _frames(reading: Reading, kept: int, column: str) -> Callable[[Iterator[pa.RecordBatch]],
                                                                  Iterator[pa.RecordBatch]]:
    def frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in batches:
            keep = batch.select(range(kept))
            partition = TaskContext.get().partitionId()
            for table, values in tables(batch.column(kept), reading, seen,
                                        lambda row: f"column {column}, row {row} of partition {partition}"):
                out = arrow.to_batch(table, reading.columns, binary="binary", types="spark")
                taken = keep.take(pa.array(values))
                settle()
                yield pa.RecordBatch.from_arrays([*taken.columns, *out.columns],
                                                 schema=pa.schema([*keep.schema, *out.schema]))
            seen += len(batch)
    return frames


def tables(values: pa.Array, reading: Reading, first: int = 0,
           where: Callable[[int], str] = "value {}".format) -> Iterator[tuple[FrameTable, np.ndarray]]:
    """The frames in a binary array, some megabytes of values at a time, and the value (int64) that each is in.

    So many are opened together that what they inflate to is bounded (`pieces.opened`).
    first, where: the number of the first value, and how a FrameError names one.
    """
    format = format_of(reading.format)
    offset_type = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    validity, offsets, data = values.buffers()
    offsets = np.frombuffer(offsets, offset_type)[values.offset:values.offset + len(values) + 1].astype(np.int64)
    whole = format.in_values.values is not None         # a value is a frame, and no bytes are one too
    there = np.diff(offsets) >= (0 if whole else 1)
    if validity is not None:
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        there &= bits[values.offset:values.offset + len(values)] > 0
    filled = np.flatnonzero(there)
    turns = np.flatnonzero(np.diff(offsets[filled] // BATCH_BYTES)) + 1
    for piece in np.split(filled, turns):
        if not len(piece):
            continue
        value: int | None = None
        try:
            read = _values if whole else _outermost
            outer, origins = read(view_of(data or b""), offsets[piece], offsets[piece + 1], reading, format.in_values)
            for table in opened(outer, format, errors="mark", check=reading.check, limits=reading.limits):
                rows, frames = np.arange(len(table)), table
                while frames.outer is not None:
                    rows, frames = frames["parent"][rows], frames.outer
                found = piece[origins[rows]]
                origins = origins[len(frames):]         # the next table is of the frames that follow
                bad = table.bad
                if reading.errors == "strict" and bad.any():
                    value = int(found[bad.argmax()])
                    raise _error(table, int(bad.argmax()))
                good = ~bad if reading.errors == "skip" and bad.any() else slice(None)
                yield table[good], found[good]
        except FrameError as error:
            if value is None:
                value = int(piece[np.searchsorted(offsets[piece], error.offset, "right") - 1])
            raise _in_value(error, int(offsets[value]), where(first + value)) from None


def _outermost(data: memoryview, starts: np.ndarray, stops: np.ndarray, reading: Reading,
               format: Format) -> tuple[FrameTable, np.ndarray]:
    """The outermost frames of the pieces of a buffer, bad ones too, as one table; and the piece that each is in."""
    found, pieces = [], []
    for piece, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist())):
        rows, _, fault, at = format.scan(data[start:stop], reading.check, True, reading.limits)
        if fault == Fault.LIMIT:
            raise FrameError(fault, start + at, len(rows), data[start + at:start + at + NEAR])
        rows = rows.copy()
        if not len(rows) and fault == Fault.SHORT:      # no frame is whole: it is not cut, it is something else
            rows = np.zeros(1, rows.dtype)
            rows["size"], rows["parent"], rows["fault"] = stop - start, -1, Fault.NOT_A_FRAME
        rows["start"] += start
        found.append(rows)
        pieces.append(np.full(len(rows), piece))
    outer = FrameTable((data,), np.concatenate(found), (Stop(0, len(data)),), format, checked=reading.check)
    return outer, np.concatenate(pieces)


def _values(data: memoryview, starts: np.ndarray, stops: np.ndarray, reading: Reading,
            format: Format) -> tuple[FrameTable, np.ndarray]:
    """The pieces of a buffer as one frame each, as a table; and the piece that each is in."""
    spans = np.zeros(len(starts), HEAD)
    spans["start"], spans["size"], spans["parent"] = starts, stops - starts, -1
    rows, _ = format.values(data, spans, reading.check, reading.limits)
    if len(rows) < len(spans):
        at = int(starts[len(rows)])
        raise FrameError(Fault.LIMIT, at, len(rows), data[at:at + NEAR])
    return FrameTable((data,), rows, (), format, checked=reading.check), np.arange(len(rows))


def _error(table: FrameTable, i: int) -> FrameError:
    """The error of row i, or of the outermost of the bad frames that it lies in."""
    bad, at = table, i
    while table.outer is not None:
        i, table = int(table["parent"][i]), table.outer
        if table["fault"][i]:
            bad, at = table, i
    return error_of(bad, at)


def _in_value(error: FrameError, start: int, where: str) -> FrameError:
    """The error, with its offset from the beginning of the value that begins at `start`."""
    return FrameError(error.fault, error.offset - start, error.row, error.near, where, error.inflated)
