"""Frames in the values of a binary column: a DataFrame of record sets becomes one of frames.

`wirescan.spark.map_frames` is defined here. `map_partitions` and `aggregate` read the values of a
DataFrame with `read_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import copy_rows
from wirescan.export.table_parts import count_gathered_bytes, split_rows
from wirescan.files.source import view_of
from wirescan.frames import to_arrow
from wirescan.frames.columns import START
from wirescan.frames.errors import NEAR, FrameError, make_frame_error
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_outermost_rows
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable, Stop, make_empty
from wirescan.reading.allowance import Allowance
from wirescan.reading.nested_groups import open_nested
from wirescan.spark.run import DEFAULT_FORMAT, Reading, hide_traceback
from wirescan.spark.worker_setup import set_up_for_batches

BATCH_BYTES = 8 << 20  # bytes of values that are read together
CUT = ("fault", "leave")


def map_frames(
    df: DataFrame,
    column: str,
    format: str = DEFAULT_FORMAT,
    keep: Sequence[str] = (),
    *,
    columns: Sequence[str] | None = None,
    errors: str = "strict",
    check: bool = True,
    cut: str = "fault",
    limits: Limits = Limits(),
) -> DataFrame:
    """Return the frames in the values of a binary column, one row for each frame.

    df: the DataFrame.
    column: the binary column. Each value holds one outermost frame or a stream of them, such as a
        record set of Kafka. Null and empty values hold no frames. For the Liftbridge formats that
        are in envelopes, each value is one envelope, as a NATS message carries it; an empty value
        is an envelope too.
    format: a name of `wirescan.formats()`, with options as in `wirescan.spark.read`.
    keep: columns of `df` that are copied to each frame's row. They come before the frame's columns.
    columns, errors, check, limits: the arguments of `wirescan.spark.read`. The byte position in an
        error message counts from the start of the value.
    cut: what happens to a frame that the end of its value cuts. "fault": it has the fault SHORT.
        "leave": the bytes after the last whole frame are discarded. Brokers end the record sets
        that they send in the middle of a batch.

    Raises ValueError for an unknown `cut`, for a column that does not exist or is not binary, for a
    kept column with the name of another column, and for a column of frames that the values do not
    hold.
    """
    check_values(df, (column, *keep), cut)
    reading = Reading(format, columns, errors, check, limits)
    inner = format_of(format)
    # It raises ValueError for columns of enclosing frames that are not in the values.
    to_arrow.to_batch(inner.inside(make_empty(inner.in_values)), reading.columns)
    names = [*keep, *reading.schema.names]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"two columns would be named {repeated.pop()!r}: rename the kept column")
    struct = StructType([*(df.schema[name] for name in keep), *reading.struct.fields])
    copied = [df[quote(name)] for name in keep]
    values = df[quote(column)].alias("value of frames")
    map_batches = _make_batch_mapper(reading, cut, len(keep), column)
    return df.select(*copied, values).mapInArrow(map_batches, struct)


def check_values(df: DataFrame, columns: Sequence[str | None], cut: str) -> None:
    """Raise ValueError unless all columns exist, the first is binary, and `cut` is one of CUT."""
    if cut not in CUT:
        raise ValueError(f"cut must be one of {', '.join(CUT)}, not {cut!r}")
    for name in columns:
        if name not in df.columns:
            raise ValueError(f"the DataFrame has no column {name!r}, only {', '.join(df.columns)}")
    kind = df.schema[columns[0]].dataType
    if not isinstance(kind, BinaryType):
        raise ValueError(f"column {columns[0]} is {kind.simpleString()}, not binary")


def quote(name: str) -> str:
    """Return a column's name with Spark's quotes, so that it may have any characters."""
    return "`" + name.replace("`", "``") + "`"


def _make_batch_mapper(
    reading: Reading, cut: str, kept_columns: int, column: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of `map_frames` for `mapInArrow`.

    kept_columns: the number of kept columns. The binary column follows them. column: its name.
    """

    def read_frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch, tables in read_each_batch(batches, kept_columns, reading, cut, column):
            kept_batch = batch.select(range(kept_columns))
            sizes = _measure_rows(kept_batch)
            starts = _read_value_offsets(batch.column(kept_columns))
            for table, values in tables:
                row_sizes = count_gathered_bytes(table, reading.columns) + sizes[values]
                for part in split_rows(row_sizes, BATCH_BYTES):
                    frames = to_arrow.to_batch(table[part], reading.columns, types="spark")
                    if START in frames.schema.names:
                        frames = _count_from_value(frames, starts[values[part]])
                    if not kept_columns:
                        yield frames
                        continue
                    copied = kept_batch.take(pa.array(values[part]))
                    yield pa.RecordBatch.from_arrays(
                        [*copied.columns, *frames.columns],
                        schema=pa.schema([*kept_batch.schema, *frames.schema]),
                    )

    def map_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with hide_traceback():
            yield from set_up_for_batches(read_frames(batches))

    return map_batches


def read_each_batch(
    batches: Iterator[pa.RecordBatch], number: int, reading: Reading, cut: str, column: str
) -> Iterator[tuple[pa.RecordBatch, Iterator[tuple[FrameTable, np.ndarray]]]]:
    """Yield each batch of a task, with the result of `read_values` for one of its columns.

    number: of the column. column: its name, for errors.
    """
    first = 0
    partition = TaskContext.get().partitionId()
    for batch in batches:
        yield (
            batch,
            read_values(
                batch.column(number),
                reading,
                cut,
                first,
                lambda row: f"column {column}, row {row} of partition {partition}",
            ),
        )
        first += len(batch)


def _measure_rows(batch: pa.RecordBatch) -> np.ndarray:
    """Return the approximate bytes in each row of kept columns (int64).

    Bytes and texts, which may be large, are counted exactly.
    """
    mean = sum(-(-column.nbytes // max(len(batch), 1)) for column in batch.columns)
    sizes = np.full(len(batch), mean, np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            sizes += np.diff(_read_value_offsets(column))
    return sizes


def read_values(
    values: pa.Array,
    reading: Reading,
    cut: str = "fault",
    first: int = 0,
    name_value: Callable[[int], str] = "value {}".format,
) -> Iterator[tuple[FrameTable, np.ndarray]]:
    """Yield the frames in a binary array, in tables of some megabytes of values.

    With each table comes the number of the value that holds each frame (int64). The decompressed
    bytes of frames that are opened together are limited, see `nested_groups.open_nested`.

    values: a binary array.
    reading: the format, the mode and the limits.
    cut: the argument of `map_frames`.
    first: the number of the first value, for errors.
    name_value: returns the name of a value for errors, from its number.

    Raises FrameError as `reading.errors` says, with a byte position from the start of the value.
    """
    format = format_of(reading.format)
    # A value is a single frame, or a stream of outermost frames.
    single = format.in_values.parser.scan_values is not None
    scan = _scan_single_frames if single else _scan_streams
    offsets = _read_value_offsets(values)
    data = view_of(values.buffers()[2] or b"")
    filled = _find_filled_values(values, min_bytes=0 if single else 1)
    # A new group of values begins wherever the data passes a multiple of BATCH_BYTES.
    group_starts = np.flatnonzero(np.diff(offsets[filled] // BATCH_BYTES)) + 1
    allowance = Allowance(reading.limits)
    for group in np.split(filled, group_starts):
        if not len(group):
            continue
        value: int | None = None
        try:
            spans = np.zeros(len(group), HEAD)
            spans["start"] = offsets[group]
            spans["size"] = offsets[group + 1] - offsets[group]
            outer, origins = scan(data, spans, reading, cut, format.in_values)
            allowance.count_read(int(outer["size"].sum(dtype=np.int64)))
            for table in open_nested(
                outer,
                format,
                errors="mark",
                check=reading.check,
                limits=reading.limits,
                allowance=allowance,
            ):
                outermost, rows = find_outermost_rows(table)
                holders = group[origins[rows]]
                origins = origins[len(outermost) :]  # the next table has the frames that follow
                bad = table.bad
                if reading.errors == "strict" and bad.any():
                    row = int(bad.argmax())
                    value = int(holders[row])
                    raise _find_error(table, row)
                good = ~bad if reading.errors == "skip" and bad.any() else slice(None)
                yield table[good], holders[good]
        except FrameError as error:
            if value is None:
                value = int(group[np.searchsorted(offsets[group], error.offset, "right") - 1])
            raise _move_into_value(error, int(offsets[value]), name_value(first + value)) from None


def _find_filled_values(values: pa.Array, min_bytes: int) -> np.ndarray:
    """Return the numbers of the values that are not null and have at least `min_bytes` bytes."""
    is_filled = np.diff(_read_value_offsets(values)) >= min_bytes
    validity = values.buffers()[0]
    if validity is not None:
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        is_filled &= bits[values.offset : values.offset + len(values)] > 0
    return np.flatnonzero(is_filled)


def _read_value_offsets(values: pa.Array) -> np.ndarray:
    """Return where each value of a binary array starts in its data, and where the last one stops.

    The result is int64, with one more element than there are values.
    """
    kind = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    offsets = np.frombuffer(values.buffers()[1], kind)
    return offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)


def _count_from_value(batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
    """Return the batch with `_start` counted from the start of each row's value."""
    at = batch.schema.names.index(START)
    positions = batch.column(at).to_numpy() - starts
    return batch.set_column(at, batch.schema.field(at), pa.array(positions))


def _scan_streams(
    data: memoryview, spans: np.ndarray, reading: Reading, cut: str, format: Format
) -> tuple[FrameTable, np.ndarray]:
    """Return the outermost frames in parts of a buffer, and the number of each frame's part.

    Bad frames are rows too. spans: the parts (dtype HEAD).
    """
    spans["parent"] = np.arange(len(spans))
    stops = spans["start"] + spans["size"]
    scan = format.parser.spans or partial(_scan_spans, format)
    rows, _, faults, ends = scan(
        (data,), spans, check=reading.check, resync=True, limits=reading.limits
    )
    if len(faults) and faults[-1] == Fault.LIMIT:
        at = int(ends[-1])
        raise FrameError(Fault.LIMIT, at, len(rows), data[at : at + NEAR])
    parts = rows["parent"].astype(np.int64)
    rows = copy_rows(rows)
    rows["parent"] = -1
    is_cut = ends < stops
    if cut == "leave":
        is_cut &= np.bincount(parts, minlength=len(spans)) == 0
    if is_cut.any():
        # The bytes after the last whole frame of a part become a bad row.
        short = np.flatnonzero(is_cut)
        tails = np.zeros(len(short), rows.dtype)
        tails["start"] = ends[short]
        tails["size"] = stops[short] - ends[short]
        tails["parent"] = -1
        tails["fault"] = Fault.SHORT
        places = np.searchsorted(parts, short, "right")
        rows = np.insert(rows, places, tails)
        parts = np.insert(parts, places, short)
    return FrameTable((data,), rows, (Stop(0, len(data)),), format, checked=reading.check), parts


def _scan_spans(
    format: Format,
    buffers: tuple[memoryview],
    spans: np.ndarray,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
    """Scan spans of a buffer one after another: `Parser.spans` for a format without it."""
    assert format.parser.scan is not None  # every outermost format has it
    tables = [np.zeros(0, format.dtype)]
    faults = np.zeros(len(spans), np.uint8)
    ends = np.zeros(len(spans), np.int64)
    for number, span in enumerate(spans):
        start = int(span["start"])
        stop = start + int(span["size"])
        rows, _, faults[number], end = format.parser.scan(
            buffers[0][start:stop], check=check, resync=resync, limits=limits
        )
        rows = rows.copy()
        rows["start"] += start
        rows["parent"] = number
        ends[number] = start + end
        tables.append(rows)
        if faults[number] == Fault.LIMIT:
            return np.concatenate(tables), 0, faults[: number + 1], ends[: number + 1]
    return np.concatenate(tables), 0, faults, ends


def _scan_single_frames(
    data: memoryview, spans: np.ndarray, reading: Reading, cut: str, format: Format
) -> tuple[FrameTable, np.ndarray]:
    """Return parts of a buffer as one frame each, and the number of each frame's part.

    spans: the parts (dtype HEAD). cut: accepted for consistency and ignored.
    """
    assert format.parser.scan_values is not None  # read_values uses this function only if it exists
    spans["parent"] = -1
    rows, _ = format.parser.scan_values(data, spans, check=reading.check, limits=reading.limits)
    if len(rows) < len(spans):
        at = int(spans["start"][len(rows)])
        raise FrameError(Fault.LIMIT, at, len(rows), data[at : at + NEAR])
    return FrameTable((data,), rows, (), format, checked=reading.check), np.arange(len(rows))


def _find_error(table: FrameTable, row: int) -> FrameError:
    """Return the error of a bad row, or of the outermost bad frame that encloses it."""
    bad_table = table
    bad_row = row
    while table.outer is not None:
        row = int(table["parent"][row])
        table = table.outer
        if table["fault"][row]:
            bad_table = table
            bad_row = row
    return make_frame_error(bad_table, bad_row)


def _move_into_value(error: FrameError, start: int, place: str) -> FrameError:
    """Return the error with its byte position counted from `start`, the start of the value.

    place: the name of the value.
    """
    return type(error)(
        error.fault,
        error.offset - start,
        error.row,
        error.near,
        place,
        error.inflated,
        error.meaning,
    )
