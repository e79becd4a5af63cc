"""Files of record batches, and their expected rows."""

import wirescan
from tests.support.paths import KAFKA_CORPUS
from tests.support.places import copy_bytes
from wirescan import kafka

ORDERS = KAFKA_CORPUS / "orders-0"
# Options of the fixture `spark`. test_java.py tests that the session keeps them.
JAVA_OPTIONS = "-Dfirst=1 -Dsecond=2"


def make_batch(base, count=20, codec="none", **options):
    """A record batch. Some keys and values are null or empty. A record has up to two headers."""
    records = [
        kafka.Record(
            timestamp=1_700_000_000_000 + base + i,
            key=None if i % 5 == 0 else b"key %d" % (base + i),
            value=_make_value(base, i),
            headers=[(f"h{n}", None if n else b"x" * i) for n in range(i % 3)],
        )
        for i in range(count)
    ]
    return kafka.encode_batch(records, base_offset=base, codec=codec, **options)


def _make_value(base, i):
    if i % 7 == 3:
        return None
    return b"" if i % 7 == 4 else b"value %d " % (base + i) * (i % 13)


def write_segment(path, batches=30, base=0):
    """Write a file of batches of all codecs. Return its path as str."""
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    path.write_bytes(
        b"".join(make_batch(base + 20 * i, codec=codecs[i % 5]) for i in range(batches))
    )
    return str(path)


def read_expected_rows(source, errors="strict"):
    """Read the rows without Spark: (offset, timestamp, key, value, headers, fault) in order."""
    table = wirescan.scan(source, "kafka.records", errors=errors)
    assert not table.bad.any()
    headers = {}
    for header in kafka.headers(table, errors=errors):
        headers.setdefault(header.parent, []).append(
            tuple(None if x is None else bytes(x) for x in header)
        )
    return [
        (
            row.offset,
            row.timestamp,
            copy_bytes(row.key),
            copy_bytes(row.value),
            headers.get(i, []),
            None,
        )
        for i, row in enumerate(table)
    ]


def collect_rows(frame):
    """Collect a DataFrame with the default columns, in the shape of `read_expected_rows`."""
    from pyspark.sql import functions

    timestamp = functions.unix_millis("timestamp")
    rows = frame.withColumn("timestamp", timestamp).orderBy("offset").collect()
    # The headers of a bad row are null, because they are not read.
    headers = [None if r.headers is None else [tuple(h) for h in r.headers] for r in rows]
    return [(r.offset, r.timestamp, r.key, r.value, h, r.fault) for r, h in zip(rows, headers)]
