"""Record sets in messages of the protocol: the kernel finds those of the opened bodies."""

import random

import numpy as np
import pytest

from wirescan import Fault, FrameError, Limits, kafka
from wirescan.kafka.protocol.record_sets import find_record_sets

BATCHES = [kafka.encode_batch([{"key": b"k", "value": bytes(size)}]) for size in (1, 40, 300)]
# For the messages of each API, the arrays that lead to the record sets, and the columns there.
OPENED = {
    "Produce": ("topic_data", "partition_data", "name", "index"),
    "Fetch": ("responses", "partitions", "topic", "partition_index"),
}
WITH_IDS = 13  # the first version of both that has the ids of topics instead of their names


def make_id(name):
    """Return a topic id of 16 bytes."""
    return name.encode().ljust(16)[:16]


def make_message(api, version, numbers, number):
    """Return a request and a response; the one with record sets is a bytearray."""
    outer, inner, topic_name, partition_name = OPENED[api]
    topics = []
    column, make = (topic_name, str) if version < WITH_IDS else ("topic_id", make_id)
    for name in random.Random(number).sample(["a", "orders", "x" * 40], numbers.randrange(4)):
        partitions = [
            {partition_name: number * 4 + part, "records": numbers.choice([*BATCHES, b"", None])}
            for part in range(numbers.randrange(4))
        ]
        topics.append({column: make(name), inner: partitions})
    if api == "Produce":
        return bytearray(kafka.encode_request(api, version, {outer: topics})), b""
    request = kafka.encode_request(api, version, correlation_id=number)
    response = kafka.encode_response(api, version, {outer: topics}, correlation_id=number)
    return request, bytearray(response)


def damage(message, numbers):
    """Change some bytes after the header."""
    for _ in range(numbers.choice([0, 0, 1, 2])):
        value = numbers.choice([0, 1, 127, 128, 255, numbers.randrange(256)])
        message[numbers.randrange(12, len(message))] = value


def read_messages(api, version):
    """Return a table of messages, a fourth of which or so cannot be read to their ends."""
    numbers = random.Random(version)
    pairs = [make_message(api, version, numbers, number) for number in range(300)]
    for request, response in pairs:
        damage(request if api == "Produce" else response, numbers)
    requests = kafka.requests(b"".join(request for request, _ in pairs), errors="mark")
    if api == "Produce":
        return requests
    return kafka.responses(
        b"".join(bytes(response) for _, response in pairs), requests, errors="mark"
    )


def read_place(messages, row, name):
    """Return the bytes of a place. The struct of the row may have a fault after it."""
    start, size = int(row["start"]) + int(row[name + "_at"]), int(row[name + "_size"])
    return memoryview(messages.buffers[0])[start : start + size] if size >= 0 else None


def list_opened(messages, api):
    """Return the record sets of the opened bodies, and the messages with a fault.

    A record set is the start of its message, its topic, the id of its topic, its partition and its
    records.
    """
    outer, inner, topic_name, partition_name = OPENED[api]
    bodies = kafka.body(messages, api, errors="mark")
    topics = bodies.open(outer, errors="mark")
    partitions = topics.open(inner, errors="mark")
    starts = messages["start"][bodies["parent"]]
    found, bad = [], set(starts[bodies.bad].tolist())
    for number in np.flatnonzero(~partitions.bad).tolist():
        topic = topics.rows[partitions["parent"][number]]
        records = partitions.bytes(number, "records")
        if records:
            names = [read_place(messages, topic, name) for name in (topic_name, "topic_id")]
            partition = int(partitions[partition_name][number])
            found.append((int(starts[topic["parent"]]), *names, partition, records))
    return found, bad


def list_found(rows, messages):
    """Return the same of rows that the kernel found."""
    found = []
    for row in rows[rows["fault"] == 0]:
        names = [read_place(messages, row, name) for name in ("topic", "topic_id")]
        records = read_place(messages, row, "records")
        found.append((int(row["start"]), *names, int(row["partition"]), records))
    bad = rows["start"][rows["fault"] != 0].tolist()
    assert len(bad) == len(set(bad))
    return found, set(bad)


def find(messages, api, limits=Limits()):
    """Return the rows of the record sets in messages of one API."""
    sides = (messages, messages[:0]) if api == "Produce" else (messages[:0], messages)
    return find_record_sets(*sides, limits=limits)


@pytest.mark.parametrize(
    ("api", "version"),
    [("Produce", 3), ("Produce", 8), ("Produce", 9), ("Produce", 13)]
    + [("Fetch", 4), ("Fetch", 11), ("Fetch", 12), ("Fetch", 13), ("Fetch", 17)],
)
def test_record_sets_are_those_of_the_opened_bodies(api, version):
    messages = read_messages(api, version)
    found, bad = list_found(find(messages, api), messages)
    assert (found, bad) == list_opened(messages, api)
    assert len(found) > 200 and len(bad) > 10


def test_a_fault_comes_after_the_record_sets_before_it():
    batch = BATCHES[0]
    topics = [{"name": "a", "partition_data": [{"index": i, "records": batch} for i in (5, 6)]}]
    first = bytearray(kafka.encode_request("Produce", 9, {"topic_data": topics}))
    first += b"\x00"  # bytes after the last field
    first[:4] = (len(first) - 4).to_bytes(4, "big")
    messages = kafka.requests(bytes(first) + kafka.encode_request("Produce", 9), errors="mark")
    rows = find(messages, "Produce")
    assert rows["fault"].tolist() == [0, 0, Fault.LEFTOVER]
    assert rows["partition"].tolist() == [5, 6, 0]
    assert rows["records_size"].tolist() == [len(batch), len(batch), -1]


def test_a_message_of_an_unknown_version_is_a_bad_row():
    request = bytearray(kafka.encode_request("Produce", 9))
    request[6:8] = b"\x7f\xff"
    rows = find(kafka.requests(bytes(request), errors="mark"), "Produce")
    assert rows["fault"].tolist() == [Fault.BAD_VERSION]


def test_rows_are_limited():
    messages = read_messages("Produce", 9)
    with pytest.raises(FrameError) as caught:
        find(messages, "Produce", Limits(rows=10))
    assert caught.value.fault == Fault.LIMIT
