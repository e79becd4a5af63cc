"""Generators for hypothesis: good and damaged segments of itadventurer's kafka-backup.

logs()              segments, one after another
tails()             bytes that may follow the last whole record
damaged_logs()      damaged copies
written()           (bytes, records in them)
"""

from tests.strategies import shared as st
from tests.strategies.kafka_kbak import mutations
from tests.support.connect_records import VERSION, encode_record

OFFSETS = st.integers(0, 2**56 - 1) | st.integers(0, 300)
TIMES = st.integers(-(2**63), 2**63 - 1)
FIELDS = st.none() | st.binary(max_size=20) | st.just(VERSION + bytes(30))
PAIRS = st.lists(st.tuples(st.binary(max_size=8), FIELDS), max_size=3)


@st.builds_once
def records():
    """(offset, timestamp, key, value, headers)."""
    return st.tuples(OFFSETS, TIMES, FIELDS, FIELDS, PAIRS.map(tuple))


def encode(row, kind=0):
    offset, timestamp, key, value, headers = row
    return encode_record(offset, key, value, headers, timestamp, kind)


@st.builds_once
def segments(least=0):
    """One segment with records of all timestamp types, often without its version."""
    kinds = st.sampled_from((0, 0, 1, -1, -2))
    record = st.tuples(records(), kinds).map(lambda pair: encode(*pair))
    rows = st.lists(record, min_size=max(least, 1), max_size=4).map(b"".join)
    return st.tuples(st.sampled_from((VERSION, b"")), rows).map(b"".join)


@st.builds_once
def logs(least=0, most=3):
    """Good segments, one after another."""
    return st.lists(segments(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """No bytes, a segment without records, or a cut record."""
    cuts = st.tuples(records(), st.integers(0, 10_000))
    cut = cuts.map(lambda pair: encode(pair[0])[: pair[1] % 20])
    return st.sampled_from((b"", VERSION)) | cut


def damage(raw):
    return mutations(raw, ">I")


@st.builds_once
def damaged_logs():
    """Damaged logs with any tail."""
    return st.tuples(logs(least=1), tails()).map(b"".join).flatmap(damage)


@st.builds_once
@st.composite
def written(draw):
    """Encoded bytes, and the records in them."""
    rows = draw(st.lists(records(), max_size=6))
    return VERSION + b"".join(map(encode, rows)) if rows else b"", rows
