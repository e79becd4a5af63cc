"""Frames inside the values of a binary column: a DataFrame of record sets becomes a DataFrame of frames."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType

from wirescan import arrow
from wirescan.catalog import START, Format, format_of
from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.errors import NEAR, FrameError, error_of
from wirescan.limits import Limits
from wirescan.pieces import opened
from wirescan.source import view_of
from wirescan.spark.reading import Reading, plainly, settled
from wirescan.table import FrameTable, Stop, empty

BATCH_BYTES = 8 << 20       # of values that are read together
CUT = ("fault", "leave")


def map_frames(df: DataFrame, column: str, format: str = "kafka.records", keep: Sequence[str] = (), *,
               columns: Sequence[str] | None = None, errors: str = "strict", check: bool = True,
               cut: str = "fault", limits: Limits = Limits()) -> DataFrame:
    """The frames in the values of a binary column, one row a frame, after the columns `keep` of the row it came from.

    Each value holds frames of the outermost format, one or a stream of them, such as a record set of Kafka; null and
    empty values hold none. A frame that the end of its value cuts is a fault, SHORT; with cut="leave" what follows
    the last whole frame is left out, since brokers end the record sets that they send in the midst of a batch. For
    the formats of Liftbridge that lie in envelopes, each value is one envelope, as NATS carries it, an empty one too.
    columns, errors, check, limits: as of `wirescan.spark.read`; offsets in the message of an error count from the
    beginning of the value.

    Raises ValueError for an unknown `cut`, a column that there is not or that is not binary, a kept one with the name
    of another, or one of frames that are not in the values.
    """
    check_values(df, (column, *keep), cut)
    reading = Reading(format, columns, errors, check, limits)
    inner = format_of(format)
    arrow.to_batch(inner.inside(empty(inner.in_values)), reading.columns)       # refuses columns that are not there
    names = [*keep, *reading.schema.names]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two columns would be named {twice.pop()!r}: rename the one to keep")
    struct = StructType([*(df.schema[name] for name in keep), *reading.struct.fields])
    chosen = df.select(*(df[quoted(name)] for name in keep), df[quoted(column)].alias("value of frames"))
    return chosen.mapInArrow(_frames(reading, cut, len(keep), column), struct)


def check_values(df: DataFrame, columns: Sequence[str | None], cut: str) -> None:
    """Raise ValueError unless there are the columns, of which the first is binary, and for an unknown `cut`."""
    if cut not in CUT:
        raise ValueError(f"cut must be one of {', '.join(CUT)}, not {cut!r}")
    for name in columns:
        if name not in df.columns:
            raise ValueError(f"the DataFrame has no column {name!r}, only {', '.join(df.columns)}")
    kind = df.schema[columns[0]].dataType
    if not isinstance(kind, BinaryType):
        raise ValueError(f"column {columns[0]} is {kind.simpleString()}, not binary")


def quoted(name: str) -> str:
    """A column's name for Spark, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _frames(reading: Reading, cut: str, kept: int, column: str) -> Callable[[Iterator[pa.RecordBatch]],
                                                                            Iterator[pa.RecordBatch]]:
    def frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in batches:
            keep = batch.select(range(kept))
            sizes, starts = _sizes(keep), _offsets(batch.column(kept))
            partition = TaskContext.get().partitionId()
            for table, values in tables(batch.column(kept), reading, cut, seen,
                                        lambda row: f"column {column}, row {row} of partition {partition}"):
                for part in arrow.parts_of(arrow.gathered(table, reading.columns) + sizes[values], BATCH_BYTES):
                    out = arrow.to_batch(table[part], reading.columns, types="spark")
                    if START in out.schema.names:
                        out = _from_value(out, starts[values[part]])
                    taken = keep.take(pa.array(values[part]))
                    yield pa.RecordBatch.from_arrays([*taken.columns, *out.columns],
                                                     schema=pa.schema([*keep.schema, *out.schema]))
            seen += len(batch)

    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plainly():
            yield from settled(frames(batches))
    return called


def _sizes(kept: pa.RecordBatch) -> np.ndarray:
    """The bytes in each row of kept columns, about: exact for bytes and texts, which may be large."""
    sizes = np.full(len(kept), sum(-(-column.nbytes // max(len(kept), 1)) for column in kept.columns), np.int64)
    for column in kept.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            sizes += np.diff(_offsets(column))
    return sizes


def tables(values: pa.Array, reading: Reading, cut: str = "fault", first: int = 0,
           where: Callable[[int], str] = "value {}".format) -> Iterator[tuple[FrameTable, np.ndarray]]:
    """The frames in a binary array, some megabytes of values at a time, and the value (int64) that each is in.

    So many are opened together that what they inflate to is bounded (`pieces.opened`).
    cut: as of `map_frames`. first, where: the number of the first value, and how a FrameError names one.
    """
    format = format_of(reading.format)
    validity, _, data = values.buffers()
    offsets = _offsets(values)
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
            outer, origins = read(view_of(data or b""), offsets[piece], offsets[piece + 1], reading, cut,
                                  format.in_values)
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


def _offsets(values: pa.Array) -> np.ndarray:
    """Where each value begins in the data of a binary array, and the last one ends: int64."""
    kind = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    return np.frombuffer(values.buffers()[1], kind)[values.offset:values.offset + len(values) + 1].astype(np.int64)


def _from_value(batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
    """The batch with `_start` counted from where each row's value begins."""
    at = batch.schema.names.index(START)
    return batch.set_column(at, batch.schema.field(at), pa.array(batch.column(at).to_numpy() - starts))


def _outermost(data: memoryview, starts: np.ndarray, stops: np.ndarray, reading: Reading, cut: str,
               format: Format) -> tuple[FrameTable, np.ndarray]:
    """The outermost frames of the pieces of a buffer, bad ones too, as one table; and the piece that each is in."""
    spans = np.zeros(len(starts), HEAD)
    spans["start"], spans["size"], spans["parent"] = starts, stops - starts, np.arange(len(starts))
    scan = format.spans or partial(_one_by_one, format)
    rows, _, faults, ends = scan((data,), spans, reading.check, True, reading.limits)
    if len(faults) and faults[-1] == Fault.LIMIT:
        at = int(ends[-1])
        raise FrameError(Fault.LIMIT, at, len(rows), data[at:at + NEAR])
    pieces, rows = rows["parent"].astype(np.int64), rows.copy()
    rows["parent"] = -1
    left = ends < stops                     # what the end of a piece cuts
    if cut == "leave":
        left &= np.bincount(pieces, minlength=len(starts)) == 0
    if left.any():
        short = np.flatnonzero(left)
        tails = np.zeros(len(short), rows.dtype)
        tails["start"], tails["size"] = ends[short], stops[short] - ends[short]
        tails["parent"], tails["fault"] = -1, Fault.SHORT
        behind = np.searchsorted(pieces, short, "right")
        rows, pieces = np.insert(rows, behind, tails), np.insert(pieces, behind, short)
    return FrameTable((data,), rows, (Stop(0, len(data)),), format, checked=reading.check), pieces


def _one_by_one(format: Format, buffers: tuple[memoryview], spans: np.ndarray, check: bool, resync: bool,
                limits: Limits) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
    """What `Format.spans` does, for a format that has it not."""
    found, faults, ends = [np.zeros(0, format.dtype)], np.zeros(len(spans), np.uint8), np.zeros(len(spans), np.int64)
    for number, span in enumerate(spans):
        start = int(span["start"])
        rows, _, faults[number], end = format.scan(buffers[0][start:start + int(span["size"])], check, resync, limits)
        rows = rows.copy()
        rows["start"] += start
        rows["parent"], ends[number] = number, start + end
        found.append(rows)
        if faults[number] == Fault.LIMIT:
            return np.concatenate(found), 0, faults[:number + 1], ends[:number + 1]
    return np.concatenate(found), 0, faults, ends


def _values(data: memoryview, starts: np.ndarray, stops: np.ndarray, reading: Reading, cut: str,
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
