"""Kafka bytes next to memory pages that the process may not read.

Run as a program, the module scans these bytes for test_guard.py and prints the number of scans. Its
arguments are a seed, the distance between cuts, and optionally a word. `messages` scans requests
and responses in place of batches. `overrun` reads one byte too many, which proves that the guard
works.
"""

import ctypes
import random
import struct
import sys

import numpy as np

from wirescan import Limits, kafka
from wirescan.core import checksum
from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import spans
from wirescan.frames.table import FrameTable, Stop
from wirescan.kafka.encode.records import encode_batch
from wirescan.kafka.protocol.schema import KEYS, MESSAGE
from wirescan.kafka.record_batches.scan import PATHS, open_headers, open_records, scan_batches
from wirescan.testing.guarded_memory import GuardedMemory

DAMAGE = (0, 1, 0x7F, 0x80, 0xFF)  # values of damaged bytes
BATCH_DAMAGE = (0, 1, 2, 0x7F, 0x80, 0xFF)


# ---- requests and responses


def scan_messages(guarded, chance, stride):
    """Scan Kafka requests and responses, cut at every position, with and without damage.

    Every frame has the size of its cut. Return the number of scans.
    """
    scans = 0
    for (name, side), message in MESSAGE.items():
        if side not in ("request", "response"):
            continue
        first, last = message.versions[0], message.versions[-1]
        for version in {first, message.flexible - 1, message.flexible, last}:
            if version in message.versions:
                fields = make_sample(message.fields, version)
                scans += scan_message(guarded, chance, stride, name, side, version, fields)
    return scans


def scan_message(guarded, chance, stride, name, side, version, fields):
    encode = kafka.encode_request if side == "request" else kafka.encode_response
    raw = encode(name, version, fields, correlation_id=7)[: guarded.size]
    requests = kafka.requests(kafka.encode_request(name, version, correlation_id=7))
    scans = 0
    for cut in range(4, len(raw) + 1, stride):
        for is_damaged in (False, True):
            data = bytearray(struct.pack(">i", cut - 4) + raw[4:cut])
            if cut > 12 and is_damaged:
                data[chance.randrange(12, cut)] = chance.choice(DAMAGE)
            scan_frame(guarded.place_at_end(bytes(data)), name, side, requests)
            scans += 1
    return scans


def scan_frame(view, name, side, requests):
    if side == "request":
        table = kafka.requests(view, errors="mark")
    else:
        table = kafka.responses(view, requests, errors="mark")
    if len(table) and table["api_key"][0] == KEYS[name]:
        open_children(kafka.body(table, name, errors="mark"))


def open_children(table):
    for name in table.format.children:
        open_children(table.open(name))


def make_sample(fields, version):
    """Return values for the fields of a version."""
    values = {}
    for field in fields:
        if version not in field.versions:
            continue
        if field.type in ("[]", "struct"):
            inner = make_sample(field.fields, version)
            values[field.name] = [inner, inner] if field.is_array else inner
        else:
            values[field.name] = SAMPLES.get(field.type, 1)
    return values


SAMPLES = {
    "string": "name",
    "bytes": b"bytes",
    "records": b"records",
    "uuid": bytes(range(16)),
    "[]int32": [1, 2],
    "[]int64": [3],
    "[]string": ["name", "other"],
}


# ---- batches


def scan_batches_of(view):
    """Scan a view as batches, with and without checksums, and open everything in them."""
    limits = Limits()
    for check in (True, False):
        rows, _, fault, offset = scan_batches(view, check=check, resync=True, limits=limits)
        batches = FrameTable((view,), rows, (Stop(fault, offset),), kafka.BATCHES)
        table = kafka.records(batches, errors="mark", check=check)
        kafka.headers(table, errors="mark")
        plain = batches[batches["codec"] == 0]
        counts = plain["record_count"].astype(np.int32)
        opened = (plain.rows, plain.buffers, spans(plain.rows), counts, check, limits)
        for path in PATHS:
            for writer in make_writers():
                open_records(*opened, path=path, writer=writer)
            records, *_ = open_records(*opened, path=path)
        has_headers = records["header_count"] > 0
        header_spans = spans(records, records["headers_at"])[has_headers]
        header_counts = records["header_count"][has_headers]
        open_headers(records, (view,), header_spans, header_counts, limits)


def scan_golden_batches(guarded, chance, stride):
    """Scan good batches, cut at both ends, and with damage. Return the number of scans."""
    from tests.support.kafka_bytes import GOLDEN

    scans = 0
    for raw in GOLDEN.values():
        for cut in range(0, len(raw) + 1, stride):
            scan_batches_of(guarded.place_at_end(raw[:cut]))
            scan_batches_of(guarded.place_at_beginning(raw[cut:]))
            scans += 2
        for _ in range(60):
            damaged = bytearray(raw)
            for _ in range(chance.randrange(1, 4)):
                value = chance.choice((*BATCH_DAMAGE, chance.randrange(256)))
                damaged[chance.randrange(len(raw))] = value
            scan_batches_of(guarded.place_at_end(bytes(damaged)))
            scans += 1
    return scans


def scan_records(guarded, payloads, stride):
    """Open records without their batch, as if decompressed. Return the number of payloads.

    They are cut at every position, with damaged ends, and opened with right and wrong counts, as
    rows and as columns.
    """
    from tests.support.kafka_bytes import RECORDS

    limits = Limits()
    check = True
    batch = kafka.scan(encode_batch(RECORDS)).rows.copy()
    scans = 0
    for raw in payloads:
        for cut in range(0, len(raw) + 1, stride):
            for end in (b"", b"\xff", b"\x80" * 12, b"\0\2"):
                view = guarded.place_at_end(raw[:cut] + end)
                span = spans(batch, batch["body"] * 0)
                span["start"] = 0
                span["size"] = len(view)
                for count in (0, 1, 3, 10**6):
                    counts = np.array([count], np.int32)
                    for path in PATHS:
                        open_records(batch, (view,), span, counts, check, limits, path=path)
                        for writer in make_writers():
                            open_records(
                                batch,
                                (view,),
                                span,
                                counts,
                                check,
                                limits,
                                path=path,
                                writer=writer,
                            )
                scans += 1
    return scans


def make_writers():
    """Return a writer of views, one of gathered bytes, and one that keeps rows with headers."""
    views, gathered, keeping = (ColumnWriter(kafka.RECORD) for _ in range(3))
    for name in ("key", "value"):
        views.add_views(name)
        gathered.add_gathered(name, large=False)
        keeping.add_views(name)
    keeping.add_rows("headers", "header_count")
    return views, gathered, keeping


def compute_checksums(guarded):
    for size in range(700):
        for put in (guarded.place_at_end, guarded.place_at_beginning):
            view = put(bytes(min(size, guarded.size)))
            for path in checksum.PATHS:
                checksum.crc32(view, path=path)
                checksum.crc32c(view, path=path)


def main():
    # Only this program needs these bytes. Their strategies take long to import.
    from tests.support.kafka_bytes import GOLDEN, RECORDS, make_record

    chance = random.Random(int(sys.argv[1]))
    stride = int(sys.argv[2])
    payloads = [encode_batch(RECORDS * n)[61:] for n in (1, 3)]
    # The farthest load after a record: its length is 0, and its varints seem to fill a word.
    # With the record before it, one of the cuts is its end.
    record = make_record(value_length=23, value=bytes(23))
    payloads.append(record + b"\0\0" + b"\x80" * 5 + bytes(18))
    guarded = GuardedMemory(max(map(len, [*GOLDEN.values(), *payloads])) + 64)
    if "messages" in sys.argv:
        print(scan_messages(guarded, chance, stride))
        return
    if "overrun" in sys.argv:
        ctypes.string_at(ctypes.addressof(ctypes.c_char.from_buffer(guarded.place_at_end(b"x"))), 2)
    scans = scan_golden_batches(guarded, chance, stride)
    scans += scan_records(guarded, payloads, stride)
    compute_checksums(guarded)
    print(scans)


if __name__ == "__main__":
    main()
