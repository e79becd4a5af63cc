"""Bytes that end, or begin, where the process may not read: a kernel that reads one byte too many dies of it.

Run as a program it scans all that test_guard.py asks for; it needs no sanitizer and no special build. Its arguments
are a seed and, for requests and responses in place of batches, the word `messages`.
"""
import ctypes
import mmap
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guarded:
    """Room for bytes between two pages that cannot be read."""

    def __init__(self, room):
        page = mmap.PAGESIZE
        self.room = -(-max(room, 1) // page) * page
        self.map = mmap.mmap(-1, self.room + 2 * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for edge in (base, base + page + self.room):
            if LIBC.mprotect(edge, page, 0):            # PROT_NONE
                raise OSError(ctypes.get_errno(), "mprotect")

    def at_the_end(self, data):
        """`data` as a memoryview whose last byte is the last one that can be read."""
        stop = mmap.PAGESIZE + self.room
        self.map[stop - len(data):stop] = data
        return memoryview(self.map)[stop - len(data):stop]

    def at_the_beginning(self, data):
        self.map[mmap.PAGESIZE:mmap.PAGESIZE + len(data)] = data
        return memoryview(self.map)[mmap.PAGESIZE:mmap.PAGESIZE + len(data)]


def messages(guarded, chance):
    """Requests and responses of Kafka's protocol, cut at every byte with a size that says so, and damaged."""
    import struct

    from wirescan import kafka
    from wirescan.kafka.schema import KEYS, MESSAGE

    def opened(table):
        for name in table.format.children:
            opened(table.open(name))

    def sample(fields, version):
        values = {}
        for field in fields:
            if version in field.versions and field.type in ("[]", "struct"):
                inside = sample(field.fields, version)
                values[field.name] = [inside, inside] if field.is_array else inside
            elif version in field.versions:
                values[field.name] = {"string": "name", "bytes": b"bytes", "records": b"records",
                                      "uuid": bytes(range(16)), "[]int32": [1, 2], "[]int64": [3]}.get(field.type, 1)
        return values

    scans = 0
    for (name, side), message in MESSAGE.items():
        if side not in ("request", "response"):
            continue
        for version in {message.versions[0], message.flexible - 1, message.flexible, message.versions[-1]}:
            if version not in message.versions:
                continue
            encode = kafka.encode_request if side == "request" else kafka.encode_response
            raw = encode(name, version, sample(message.fields, version), correlation_id=7)[:guarded.room]
            asked = kafka.requests(kafka.encode_request(name, version, correlation_id=7))
            for cut in range(4, len(raw) + 1):
                for is_damaged in (False, True):
                    data = bytearray(struct.pack(">i", cut - 4) + raw[4:cut])
                    if cut > 12 and is_damaged:
                        data[chance.randrange(12, cut)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
                    view = guarded.at_the_end(bytes(data))
                    if side == "request":
                        table = kafka.requests(view, errors="mark")
                    else:
                        table = kafka.responses(view, asked, errors="mark")
                    if len(table) and table["api_key"][0] == KEYS[name]:
                        opened(kafka.body(table, name, errors="mark"))
                    scans += 1
    return scans


def main():
    import random

    import numpy as np

    from golden import GOLDEN, RECORDS
    from wirescan import Limits, kafka
    from wirescan.core import checksum
    from wirescan.kafka.encode import encode_batch
    from wirescan.kafka.scan import PATHS, open_headers, open_records, scan_batches
    from wirescan.core.loop import spans
    from wirescan.table import FrameTable, Stop

    limits, chance = Limits(), random.Random(int(sys.argv[1]))
    inner = [encode_batch(RECORDS * n)[61:] for n in (1, 3)]
    guarded = Guarded(max(map(len, [*GOLDEN.values(), *inner])) + 64)
    scans = 0
    if "messages" in sys.argv:
        print(messages(guarded, chance))
        return
    if "overrun" in sys.argv:                           # proof that the guard bites
        ctypes.string_at(ctypes.addressof(ctypes.c_char.from_buffer(guarded.at_the_end(b"x"))), 2)

    def scan(view):
        nonlocal scans
        for check in (True, False):
            rows, _, fault, offset = scan_batches(view, check, True, limits)
            batches = FrameTable((view,), rows, (Stop(fault, offset),), kafka.BATCHES)
            table = kafka.records(batches, errors="mark", check=check)
            kafka.headers(table, errors="mark")
            plain = batches[batches["codec"] == 0]
            counts = plain["record_count"].astype(np.int32)
            for path in PATHS:
                records, *_ = open_records(
                    plain.rows, plain.buffers, spans(plain.rows), counts, check, limits, path=path)
            have = records["header_count"] > 0
            opened = spans(records, records["headers_at"])
            open_headers(records, (view,), opened[have], records["header_count"][have], limits)
        scans += 1

    for raw in GOLDEN.values():
        for cut in range(len(raw) + 1):
            scan(guarded.at_the_end(raw[:cut]))
            scan(guarded.at_the_beginning(raw[cut:]))
        for _ in range(60):
            damaged = bytearray(raw)
            for _ in range(chance.randrange(1, 4)):
                damaged[chance.randrange(len(raw))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            scan(guarded.at_the_end(bytes(damaged)))

    # Records alone, as if inflated, flush against the page: every cut, every count, every byte of theirs damaged.
    claim = kafka.scan(encode_batch(RECORDS)).rows.copy()
    for raw in inner:
        for cut in range(len(raw) + 1):
            for payload in (raw[:cut], raw[:cut] + b"\xff", raw[:cut] + b"\x80" * 12, raw[:cut] + b"\0\2"):
                view = guarded.at_the_end(payload)
                span = spans(claim, claim["body"] * 0)
                span["start"], span["size"] = 0, len(payload)
                for count in (0, 1, 3, 10**6):
                    for path in PATHS:
                        open_records(claim, (view,), span, np.array([count], np.int32), True, limits, path=path)
                scans += 1
    for size in range(700):
        for put in (guarded.at_the_end, guarded.at_the_beginning):
            view = put(bytes(min(size, guarded.room)))
            for path in checksum.PATHS:
                checksum.crc32(view, path=path)
                checksum.crc32c(view, path=path)
    print(scans)


if __name__ == "__main__":
    main()
