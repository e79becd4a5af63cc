"""Own functions over tables of frames, once in each partition: what they give crosses to the JVM, and nothing else."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from wirescan.limits import Limits
from wirescan.partition import Slice
from wirescan.spark import mapping
from wirescan.spark.ranges import Ranges
from wirescan.spark.reading import Located, Reading, arrow_of, over, plainly, settled, struct_of
from wirescan.table import FrameTable

ROWS = 1 << 16              # in a batch for the JVM, at the most
Schema = str | StructType | pa.Schema

_is = pa.types
_KINDS = (_is.is_integer, _is.is_floating, _is.is_decimal, _is.is_boolean, _is.is_timestamp, _is.is_date, _is.is_time,
          _is.is_duration, _is.is_list, _is.is_struct, _is.is_map,
          lambda kind: _is.is_string(kind) or _is.is_large_string(kind) or _is.is_string_view(kind),
          lambda kind: (_is.is_binary(kind) or _is.is_large_binary(kind) or _is.is_binary_view(kind)
                        or _is.is_fixed_size_binary(kind)))


def map_partitions(source: Ranges | DataFrame, function: Callable[[Iterator[FrameTable]], Any], schema: Schema, *,
                   column: str | None = None, format: str = "kafka.records", errors: str = "strict",
                   check: bool = True, cut: str = "fault", limits: Limits = Limits()) -> DataFrame:
    """What a function makes of the frames of each partition, as a DataFrame.

    source: what `wirescan.spark.ranges` gives; or a DataFrame with frames in the values of the binary `column`, read
    as `map_frames` reads them (format, errors, check, cut, limits; ranges have theirs).
    function: called once in each partition with an iterator of FrameTables, some megabytes each, which are read as it
    asks for them. It returns or yields Arrow batches or tables (or what has Arrow's C interface, as a FrameTable and a
    polars DataFrame), mappings of names to arrays, or structured numpy arrays. It travels to the tasks by cloudpickle:
    one of a module has to be importable there.
    schema: of what it gives, as DDL, Spark's or Arrow's. Columns go by name; numbers, times, texts and bytes are cast
    where no value changes, but for floats, which are rounded to narrower ones.

    Raises TypeError for another source or function, ValueError for a column that there is not or that is not binary,
    and as `map_frames`. In the tasks: FrameError as `errors` says, TypeError and ValueError for what does not fit the
    schema, and what the function raises.
    """
    if not callable(function):
        raise TypeError(f"a function of an iterator of tables is needed, not {type(function).__name__}")
    struct = struct_in(schema)
    wanted = arrow_of(struct)

    def called(located: Located) -> Iterator[pa.RecordBatch]:
        made = function(table for _, table in located)
        if not (_is_one(made) or isinstance(made, Iterable)):
            raise TypeError(f"the function gave {type(made).__name__}, not Arrow, a mapping, a structured array, or "
                            "an iterable of these")
        for one in [made] if _is_one(made) else made:
            with plainly():
                yield from conformed(one, wanted)

    return over_tables(source, called, struct, column=column, format=format, errors=errors, check=check, cut=cut,
                       limits=limits)


def over_tables(source: Ranges | DataFrame, call: Callable[[Located], Iterator[pa.RecordBatch]], struct: StructType, *,
                column: str | None, format: str, errors: str, check: bool, cut: str, limits: Limits) -> DataFrame:
    """What `call` makes of the located tables of each partition; its batches have the schema `struct`. The other
    arguments are as of `map_partitions`."""
    if isinstance(source, Ranges):
        if (column, format, errors, check, cut, limits) != (None, "kafka.records", "strict", True, "fault", Limits()):
            raise ValueError("ranges say themselves what they hold and how it is read")
        reading = source.reading

        def read(slices: list[Slice]) -> Located:
            with plainly():                 # of what is read, not of what the function makes of it
                yield from reading.located(slices)
        return over(source.spark, source.plan, lambda slices: call(read(slices)), struct)
    if not isinstance(source, DataFrame):
        raise TypeError(f"tables are of ranges or of a DataFrame, not of {type(source).__name__}")
    reading = Reading(format, None, errors, check, limits)
    mapping.check_values(source, [column], cut)

    def located(batches: Iterator[pa.RecordBatch]) -> Located:
        seen, partition = 0, TaskContext.get().partitionId()
        with plainly():
            for batch in batches:
                for table, _ in mapping.tables(batch.column(0), reading, cut, seen,
                                               lambda row: f"column {column}, row {row} of partition {partition}"):
                    yield None, table
                seen += len(batch)

    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return settled(call(located(batches)))
    return source.select(source[mapping.quoted(column)].alias("value of frames")).mapInArrow(called, struct)


def struct_in(schema: Schema) -> StructType:
    """A schema in any of its forms as Spark's. Raises TypeError for another object, and for DDL of no columns."""
    if isinstance(schema, pa.Schema):
        return struct_of(schema)
    struct = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise TypeError(f"a schema is DDL of columns, a StructType or a pyarrow.Schema, not {schema!r:.80}")
    return struct


def conformed(made: Any, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a function made, as batches of a schema.

    Raises TypeError for anything but columns with names, and for one of another type; ValueError for other names or
    lengths, and for values that do not fit."""
    if isinstance(made, np.ndarray) and made.dtype.names:
        columns = {name: made[name] for name in made.dtype.names}
    elif isinstance(made, Mapping):
        columns = dict(made)
    elif _is_one(made) and not isinstance(made, np.ndarray):
        table = made if isinstance(made, pa.RecordBatch) else pa.table(made)
        columns = dict(zip(table.schema.names, table.columns))
        if len(columns) < len(table.columns):
            raise ValueError(f"the function gave two columns of one name: {', '.join(table.schema.names)}")
    else:
        raise TypeError(f"the function gave {type(made).__name__}, not Arrow, a mapping or a structured array")
    if set(columns) != set(wanted.names):
        raise ValueError(f"the function gave the columns {', '.join(map(str, columns)) or '(none)'}, and the schema "
                         f"has {', '.join(wanted.names)}")
    arrays = [_fitting(_array(columns[field.name], field.name), field) for field in wanted]
    if len({len(array) for array in arrays}) > 1:
        raise ValueError("the function gave columns of unequal length: "
                         + ", ".join(f"{len(array)} in {name}" for name, array in zip(wanted.names, arrays)))
    yield from pa.Table.from_arrays(arrays, schema=wanted).to_batches(ROWS)


def _is_one(made: Any) -> bool:
    """Whether it is columns, and no iterable of such."""
    return (isinstance(made, (Mapping, np.ndarray)) or hasattr(made, "__arrow_c_stream__")
            or hasattr(made, "__arrow_c_array__"))


def _array(values: Any, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        if isinstance(values, np.ndarray) and values.ndim == 1 and not isinstance(values, np.ma.MaskedArray):
            values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
            if values.dtype.kind in "iuf":              # pa.array would import pandas
                return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values),
                                             [None, pa.py_buffer(values)])
        return pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeError(f"column {name} is no array of Arrow's types: {_first_line(error)}") from None


def _fitting(array: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """An array in the type of a field, if that is of its kind and holds its values."""
    if _is.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type != field.type:
        whole = _is.is_integer(array.type) and (_is.is_floating(field.type) or _is.is_decimal(field.type))
        if not (whole or _is.is_null(array.type) or any(one(array.type) and one(field.type) for one in _KINDS)):
            raise TypeError(f"the function gave column {field.name} as {array.type}, and the schema says {field.type}")
        try:
            array = array.cast(field.type)
        except pa.ArrowException as error:
            raise ValueError(f"column {field.name} does not fit {field.type}: {_first_line(error)}") from None
    if array.null_count and not field.nullable:
        raise ValueError(f"column {field.name} has nulls, and the schema says that it has none")
    return array


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
