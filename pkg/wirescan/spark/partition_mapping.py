"""Functions of the user over tables of frames, called once in each partition.

`wirescan.spark.map_partitions` is defined here, and `map_tables`, which `aggregate` uses too. Only
the results of the functions pass from the Python workers to the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from wirescan.frames.arrow_arrays import wrap_numbers
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.reading.splits import Slice
from wirescan.spark.frame_mapping import check_values, quote, read_each_batch
from wirescan.spark.ranges import Ranges
from wirescan.spark.run import (
    DEFAULT_FORMAT,
    Reading,
    TablesOfFiles,
    hide_traceback,
    make_arrow_schema,
    make_struct,
    run_tasks,
)
from wirescan.spark.worker_setup import set_up_for_batches

ROWS = 1 << 16  # rows in a batch for the JVM, at most
# How the values of a DataFrame are read if the user gives no arguments.
DEFAULTS = {"format": DEFAULT_FORMAT, "errors": "strict", "check": True, "limits": Limits()}
Schema: TypeAlias = str | StructType | pa.Schema

_is = pa.types
# A column is cast to the type of the schema if one of these is true for both types.
_KINDS = (
    _is.is_integer,
    _is.is_floating,
    _is.is_decimal,
    _is.is_boolean,
    _is.is_timestamp,
    _is.is_date,
    _is.is_time,
    _is.is_duration,
    _is.is_list,
    _is.is_struct,
    _is.is_map,
    lambda kind: _is.is_string(kind) or _is.is_large_string(kind) or _is.is_string_view(kind),
    lambda kind: (
        _is.is_binary(kind)
        or _is.is_large_binary(kind)
        or _is.is_binary_view(kind)
        or _is.is_fixed_size_binary(kind)
    ),
)


def map_partitions(
    source: Ranges | DataFrame,
    function: Callable[[Iterator[FrameTable]], Any],
    schema: Schema,
    *,
    column: str | None = None,
    format: str = DEFAULT_FORMAT,
    errors: str = "strict",
    check: bool = True,
    cut: str = "fault",
    limits: Limits = Limits(),
) -> DataFrame:
    """Return the results of a function of each partition's frames as a DataFrame.

    source: the result of `wirescan.spark.ranges`, or a DataFrame with frames in a binary column.
    function: called once in each partition with an iterator of FrameTables of some megabytes each.
        A table is read when the function asks for it. The function returns or yields Arrow batches,
        Arrow tables, mappings of names to arrays, or structured numpy arrays. Any object with
        Arrow's C interface is accepted too, such as a FrameTable or a polars DataFrame. Spark sends
        the function to the tasks with cloudpickle: a function of a module must be importable there.
    schema: the schema of the results, as DDL, as Spark's StructType or as an Arrow schema. Columns
        are matched by name. Numbers, times, texts and bytes are cast if no value changes. Floats
        are rounded to narrower floats.
    column, format, errors, check, cut, limits: how the values of a DataFrame are read, as in
        `map_frames`. `Ranges` have their own, so there these arguments must have their defaults.

    Raises TypeError if the source or the function has the wrong type, ValueError for a column that
    does not exist or is not binary, and the exceptions of `map_frames`. The tasks raise FrameError
    as `errors` says, TypeError and ValueError for results that do not fit the schema, and the
    exceptions of the function.
    """
    if not callable(function):
        raise TypeError(
            f"function must be callable with an iterator of tables, not {type(function).__name__}"
        )
    struct = parse_schema(schema)
    arrow_schema = make_arrow_schema(struct)

    def call_function(tables: TablesOfFiles) -> Iterator[pa.RecordBatch]:
        result = function(table for _, table in tables)
        if not (_has_columns(result) or isinstance(result, Iterable)):
            raise TypeError(
                f"the function returned {type(result).__name__}, not Arrow, a mapping, a "
                "structured array, or an iterable of these"
            )
        for columns in [result] if _has_columns(result) else result:
            with hide_traceback():
                yield from conform_batches(columns, arrow_schema)

    return map_tables(
        source,
        call_function,
        struct,
        column=column,
        format=format,
        errors=errors,
        check=check,
        cut=cut,
        limits=limits,
    )


def map_tables(
    source: Ranges | DataFrame,
    call: Callable[[TablesOfFiles], Iterator[pa.RecordBatch]],
    struct: StructType,
    *,
    column: str | None,
    cut: str,
    format: str = DEFAULT_FORMAT,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
) -> DataFrame:
    """Return the batches that `call` makes of each partition's tables as a DataFrame.

    call: a function of the tables, each with the path of its file; the path is None if the source
        is a DataFrame.
    struct: the schema of the batches.

    The other arguments and the exceptions are those of `map_partitions`.
    """
    options = {"format": format, "errors": errors, "check": check, "limits": limits}
    if isinstance(source, Ranges):
        if (column, cut, options) != (None, "fault", DEFAULTS):
            raise ValueError(
                "Ranges have their own format, errors, check and limits: give these to "
                "wirescan.spark.ranges; column and cut are for a DataFrame"
            )
        ranges = source

        def read_slices(slices: list[Slice]) -> TablesOfFiles:
            with hide_traceback():  # for errors of the frames, not for those of `call`
                yield from ranges.reading.read_tables(slices)

        return run_tasks(
            ranges.spark, ranges.plan, lambda slices: call(read_slices(slices)), struct
        )
    if not isinstance(source, DataFrame):
        raise TypeError(f"source must be Ranges or a DataFrame, not {type(source).__name__}")
    reading = Reading(format, errors=errors, check=check, limits=limits)
    check_values(source, [column], cut)
    assert column is not None  # check_values raises for None

    def read_batches(batches: Iterator[pa.RecordBatch]) -> TablesOfFiles:
        with hide_traceback():
            for _, tables in read_each_batch(batches, 0, reading, cut, column):
                yield from ((None, table) for table, _ in tables)

    def map_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return set_up_for_batches(call(read_batches(batches)))

    values = source.select(source[quote(column)].alias("value of frames"))
    return values.mapInArrow(map_batches, struct)


def parse_schema(schema: Schema) -> StructType:
    """Return a schema in any of its forms as a Spark schema.

    Raises TypeError for another object, and for DDL that is not a list of columns.
    """
    if isinstance(schema, pa.Schema):
        return make_struct(schema)
    struct = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise TypeError(
            f"schema must be DDL with columns, a StructType or a pyarrow.Schema, not {schema!r:.80}"
        )
    return struct


def conform_batches(result: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the result of a function as batches of a schema, with at most ROWS rows each.

    result: an object with named columns, see `map_partitions`.

    Raises TypeError for an object without named columns, and for a column of another type. Raises
    ValueError for other names, for unequal lengths, and for values that do not fit.
    """
    if isinstance(result, np.ndarray) and result.dtype.names:
        columns = {name: result[name] for name in result.dtype.names}
    elif isinstance(result, Mapping):
        columns = dict(result)
    elif _has_columns(result) and not isinstance(result, np.ndarray):
        table = result if isinstance(result, pa.RecordBatch) else pa.table(result)
        columns = dict(zip(table.schema.names, table.columns))
        if len(columns) < len(table.columns):
            raise ValueError(
                f"the function returned two columns of one name: {', '.join(table.schema.names)}"
            )
    else:
        raise TypeError(
            f"the function returned {type(result).__name__}, not Arrow, a mapping or a structured "
            "array"
        )
    if set(columns) != set(schema.names):
        raise ValueError(
            f"the function returned the columns {', '.join(map(str, columns)) or '(none)'}, and "
            f"the schema has {', '.join(schema.names)}"
        )
    arrays = [_cast_to_field(_to_array(columns[field.name], field.name), field) for field in schema]
    if len({len(array) for array in arrays}) > 1:
        raise ValueError(
            "the function returned columns of unequal length: "
            + ", ".join(f"{len(array)} in {name}" for name, array in zip(schema.names, arrays))
        )
    yield from pa.Table.from_arrays(arrays, schema=schema).to_batches(ROWS)


def _has_columns(result: Any) -> bool:
    """Return whether an object is a set of columns, not an iterable of such objects."""
    return (
        isinstance(result, (Mapping, np.ndarray))
        or hasattr(result, "__arrow_c_stream__")
        or hasattr(result, "__arrow_c_array__")
    )


def _to_array(values: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Return the values of column `name` as an Arrow array. Raises TypeError if that fails."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        if (
            isinstance(values, np.ndarray)
            and values.ndim == 1
            and not isinstance(values, np.ma.MaskedArray)
        ):
            values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
            if values.dtype.kind in "iuf":
                return wrap_numbers(values)
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeError(
            f"column {name} cannot be converted to an Arrow array: {_read_first_line(error)}"
        ) from None


def _cast_to_field(
    array: pa.Array | pa.ChunkedArray, field: pa.Field
) -> pa.Array | pa.ChunkedArray:
    """Return an Arrow array in the type of a field.

    Raises TypeError if the two types are of different kinds, and ValueError for values that do not
    fit and for nulls in a field that is not nullable.
    """
    if _is.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type != field.type:
        if not _is_castable(array.type, field.type):
            raise TypeError(
                f"the function returned column {field.name} as {array.type}, and the schema says "
                f"{field.type}"
            )
        try:
            array = array.cast(field.type)
        except pa.ArrowException as error:
            raise ValueError(
                f"column {field.name} does not fit {field.type}: {_read_first_line(error)}"
            ) from None
    if array.null_count and not field.nullable:
        raise ValueError(f"column {field.name} has nulls, and the schema does not allow them")
    return array


def _is_castable(kind: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values of one Arrow type may be cast to another."""
    if _is.is_null(kind):
        return True
    if _is.is_integer(kind) and (_is.is_floating(target) or _is.is_decimal(target)):
        return True
    return any(is_kind(kind) and is_kind(target) for is_kind in _KINDS)


def _read_first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
