"""Records of Kafka's metadata log for hypothesis: values, logs of them, and damage to them.

    messages(name)       (value of a record, values of its message)
    good_values(name)    values of a type, some of them of other types
    logs(values)         batches of values, and batches of control records
    damaged_logs(name)   the same, with damage in values or anywhere

The values of messages have the form of `kafka_protocol`.
"""

from tests.reference.kafka_metadata import LARGEST, TYPES
from tests.strategies import kafka
from tests.strategies import kafka_protocol as protocol
from tests.strategies import shared as st
from wirescan.kafka.encode.records import encode_batch

UNKNOWN_TYPES = (6, 13, 16, 30, 300, LARGEST)
CODECS = st.sampled_from(("none", "none", "none", "zstd"))
# The key and the value of the record of a leader change.
LEADER_CHANGE = (bytes.fromhex("0000 0002"), bytes.fromhex("0000 00000001 02 00000001 00 00"))


def encode_head(*numbers):
    return b"".join(map(bytes, map(protocol.encode_uvarint, numbers)))


@st.builds_once
@st.composite
def messages(draw, name):
    """The whole value of a record of a type, and the values of the fields of its message."""
    number, newest = TYPES[name]
    version = draw(st.integers(0, newest))
    body, values = draw(protocol.structs(name, "record", version, flexible=0))
    return encode_head(1, number, version) + body, values


@st.builds_once
@st.composite
def damaged_values(draw, name):
    """Values that are damaged, or have an unknown frame version, type or version; null; empty."""
    value, _ = draw(messages(name))
    number, newest = TYPES[name]
    head, version = encode_head(1, number), encode_head(1, number, 0)
    kind = draw(st.sampled_from(("bytes", "bytes", "frame", "type", "version", "large", "none")))
    if kind == "bytes":
        return draw(protocol.changed_bytes(value))
    if kind == "frame":
        return encode_head(draw(st.sampled_from((0, 2, LARGEST, LARGEST + 1)))) + value[1:]
    if kind == "type":
        return encode_head(1, draw(st.sampled_from(UNKNOWN_TYPES))) + value[2:]
    if kind == "version":
        unknown = draw(st.sampled_from((newest + 1, 300, LARGEST)))
        return head + encode_head(unknown) + value[len(version) :]
    if kind == "large":
        return draw(st.sampled_from((b"\1", head))) + encode_head(LARGEST + 1) + value
    return draw(st.sampled_from((None, b"", b"\1", head, version)))


@st.builds_once
def good_values(name):
    """Whole values. Most of them have the type, and the others have any type."""
    good = messages(name).map(lambda pair: pair[0])
    others = st.sampled_from(list(TYPES)).flatmap(messages).map(lambda pair: pair[0])
    return st.one_of(good, good, good, others)


@st.builds_once
@st.composite
def batches(draw, values):
    """One batch of values, or of a control record. values: a strategy."""
    base_offset = draw(st.integers(0, 1000))
    if draw(st.integers(0, 4)) == 0:
        key, value = LEADER_CHANGE
        value = draw(st.sampled_from((value, None, b"")))
        return encode_batch([{"key": key, "value": value}], base_offset=base_offset, control=True)
    records = [{"value": value} for value in draw(st.lists(values, max_size=3))]
    return encode_batch(records, base_offset=base_offset, codec=draw(CODECS))


def logs(values):
    return st.lists(batches(values), max_size=3).map(b"".join)


def cut_batches(values):
    """The beginnings of batches, without at least their last byte."""
    cuts = st.tuples(batches(values), st.integers(0, 1000))
    return cuts.map(lambda pair: pair[0][: pair[1] % len(pair[0])])


def damaged_logs(name):
    """Logs with damaged values in good batches, or with any damage."""
    damaged_inside = logs(st.one_of(good_values(name), damaged_values(name)))
    return damaged_inside | damaged_inside.flatmap(kafka.mutations)
