"""The columns of Spark's own Kafka source, for files: the option `schema=kafka`.

A job can read a live topic with Spark's source `kafka`, and the files of the topic with this one,
without another change:

    key, value      binary
    topic           string: by the name of the directory
    partition       int: the same
    offset          bigint
    timestamp       timestamp; null if the record has none
    timestampType   int: -1 none (magic 0), 0 CreateTime, 1 LogAppendTime
    headers         array<struct<key: string, value: binary>>, only with `includeHeaders`; null if
                    there are none

Control records are not rows, as no consumer gets them. Records of aborted transactions are rows, as
with Spark's default `read_uncommitted`.

Source: Spark's "Structured Streaming + Kafka Integration Guide", and its KafkaRecordToRowConverter.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import compute

from wirescan.frames.columns import check_distinct
from wirescan.frames.similar_names import hint_at_names
from wirescan.kafka.batch_headers import APPEND_BIT
from wirescan.kafka.constants import NO_TIMESTAMP_TYPE

NAME = "kafka"  # the value of the option `schema`
HEADERS = "headers"
TYPE = "timestampType"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", TYPE)
# The columns of kafka.records that timestampType is computed from.
TYPE_SOURCES = ("attributes", "magic")
CONTROL = "is_control"
HIDDEN = (*TYPE_SOURCES, CONTROL)
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def list_columns(columns: Sequence[str] | None, *, include_headers: bool) -> tuple[str, ...]:
    """Return the columns of the schema that are read. None: all.

    Raises ValueError for an unknown name, and for one that is there twice.
    """
    names = (*COLUMNS, HEADERS) if include_headers else COLUMNS
    for name in columns or ():
        if name not in names:
            problem = "needs includeHeaders" if name == HEADERS else "is not there"
            raise ValueError(
                f"column {name!r} of the schema {NAME} {problem}" + hint_at_names(name, names)
            )
    if columns is None:
        return names
    check_distinct(columns)
    return tuple(columns)


def list_sources(columns: Sequence[str]) -> list[str]:
    """Return the columns of kafka.records that some columns of the schema are made of."""
    sources = [name for name in columns if name != TYPE]
    return [*sources, *(TYPE_SOURCES if TYPE in columns else ()), CONTROL]


def convert_schema(columns: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of some columns.

    columns: names of the schema. schema: of the columns that `list_sources` returns, perhaps with
        others among them, which are kept after the column that they follow.
    """
    fields = []
    for field in _arrange(columns, schema.names):
        if field == TYPE:
            fields.append(pa.field(TYPE, pa.int32()))
        elif field == HEADERS:
            fields.append(pa.field(HEADERS, HEADER_TYPE))
        else:
            fields.append(schema.field(field))
    return pa.schema(fields)


def convert_batch(columns: Sequence[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the data records of a batch with the columns of the schema. See `convert_schema`."""
    is_control = batch.column(CONTROL)
    if compute.any(is_control).as_py():
        batch = batch.filter(compute.invert(is_control))
    arrays = []
    for name in _arrange(columns, batch.schema.names):
        if name == TYPE:
            arrays.append(_make_types(*(batch.column(source) for source in TYPE_SOURCES)))
        elif name == HEADERS:
            arrays.append(_convert_headers(batch.column(HEADERS)))
        else:
            arrays.append(batch.column(name))
    if not arrays:
        # A batch without columns still has a number of rows.
        return pa.RecordBatch.from_struct_array(pa.nulls(len(batch), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=convert_schema(columns, batch.schema))


def _arrange(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns in order, with the names between them that are not among the sources."""
    arranged = [name for name in names if name not in HIDDEN]
    if TYPE in columns:
        following = columns[list(columns).index(TYPE) + 1 :]
        places = [arranged.index(name) for name in following if name in arranged]
        arranged.insert(min(places, default=len(arranged)), TYPE)
    return arranged


def _make_types(attributes: pa.Array, magic: pa.Array) -> pa.Array:
    """Return the column timestampType: the numbers of kafka's column `timestamp_type`."""
    bit = compute.bit_wise_and(compute.shift_right(attributes, APPEND_BIT), 1)
    types = compute.if_else(compute.equal(magic, 0), NO_TIMESTAMP_TYPE, bit)
    return types.cast(pa.int32())


def _convert_headers(headers: pa.ListArray) -> pa.Array:
    """Return headers with keys as text, and null where there are none.

    Bytes that are not UTF-8 become U+FFFD, as in Kafka's consumer.
    """
    pairs = headers.values
    keys = compute.struct_field(pairs, "key")
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array(
            [None if key is None else key.decode(errors="replace") for key in keys.to_pylist()],
            pa.string(),
        )
    struct = pa.StructArray.from_arrays(
        [texts, compute.struct_field(pairs, "value")], fields=list(HEADER_TYPE.value_type)
    )
    lengths = compute.fill_null(compute.list_value_length(headers), 0)
    is_empty = compute.equal(lengths, 0)
    # A mask needs offsets that are no slice.
    offsets = pa.array(headers.offsets.to_numpy())
    return pa.ListArray.from_arrays(offsets, struct, type=HEADER_TYPE, mask=is_empty)
