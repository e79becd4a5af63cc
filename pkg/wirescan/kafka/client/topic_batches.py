"""The records of Kafka topics as Arrow record batches. This module imports pyarrow.

`wirescan.kafka.client.topic_ranges` determines the offsets that are fetched. The command `fetch`
and the Spark data source use both modules.

The columns are those of kafka.records in Spark's types, and two more:

    topic      string
    partition  int32
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wirescan.export.batches import BATCH_BYTES
from wirescan.export.table_parts import split_by_bytes
from wirescan.frames import to_arrow
from wirescan.frames.columns import check_distinct
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.kafka.client import Part

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

FORMAT = "kafka.records"
ADDED = {"topic": pa.string(), "partition": pa.int32()}
COLUMNS = [*ADDED, *to_arrow.list_default_columns(FORMAT)]


def make_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of some columns.

    columns: names among COLUMNS, or other columns of kafka.records; None is COLUMNS. Raises
    ValueError for any other name, and for one that is there twice.
    """
    names = COLUMNS if columns is None else list(columns)
    check_distinct(names)
    own = to_arrow.make_schema(FORMAT, [name for name in names if name not in ADDED], types="spark")
    return pa.schema(
        [pa.field(name, ADDED[name]) if name in ADDED else own.field(name) for name in names]
    )


def to_batches(
    part: Part,
    columns: Sequence[str] | None = None,
    *,
    batch_bytes: int = BATCH_BYTES,
    errors: str = "strict",
    limits: Limits = Limits(),
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a Part of `kafka.fetch` as Arrow record batches.

    part: a Part with records.
    columns: as in `make_schema`.
    batch_bytes: bytes of the records in one record batch, approximately.
    errors, limits: as in `to_arrow.to_batch`.

    Raises as `to_arrow.to_batch`.
    """
    schema = make_schema(columns)
    own = [name for name in schema.names if name not in ADDED]
    values = {"topic": part.topic, "partition": part.partition}
    for table in split_by_bytes(part.records, batch_bytes):
        batch = to_arrow.to_batch(table, own, types="spark", errors=errors, limits=limits)
        if own == schema.names:
            # With no columns at all, only this batch has the right number of rows.
            yield batch
            continue
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(values[name], kind), len(table))
                if (kind := ADDED.get(name))
                else batch.column(name)
                for name in schema.names
            ],
            schema=schema,
        )
