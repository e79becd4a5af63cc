"""Liftbridge: envelopes and Messages beside protobuf, commit logs beside `struct` and a plain copy; and back."""
from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from bench import messages
from bench.measure import interleave
from bench.messages import Messages, rows_of
from bench.peers import liftbridge as peers
from bench.report import Report, timings
from wirescan import liftbridge as ours
from wirescan.liftbridge.encode import encode_entries, encode_messages
from wirescan.table import FrameTable

COPY = "buf.copy()"
FULL = {"count": 1 << 20, "part": 1 << 17, "rounds": 15}
QUICK = {"count": 1 << 13, "part": 1 << 12, "rounds": 2}
PACKAGES = ["numpy", "pyarrow", "protobuf", "crc32c"]
FIVE = ["offset", "key", "value", "correlation_id", "ack_policy"]
ENTRY = ["offset", "timestamp", "leader_epoch", "key", "value"]


class Envelopes(Messages):
    """A column of binary."""

    def __init__(self, crc: bool, count: int):
        self.column = messages.envelopes(crc, count)
        super().__init__(np.frombuffer(self.column.buffers()[2], np.uint8), count)

    def messages(self, **options: Any) -> FrameTable:
        return opened(self.column, **options)


class Log(Messages):
    """A segment of a commit log."""

    def __init__(self, count: int):
        super().__init__(np.fromfile(messages.log(count), np.uint8), count)

    def entries(self, check: bool) -> FrameTable:
        return ours.entries(self.bytes, check=check)


def run(count: int, part: int, rounds: int) -> str:
    """The whole part as markdown. count: of messages. part: of them, for what takes long."""
    report = Report("Liftbridge")
    report.say(
        f"Columns and logs of {count:,} messages, in memory, warm, one thread; ratios are medians of the rounds' own "
        f"ratios. The readers in Python take {part:,} messages, and keep what they find in tuples.")
    envelopes(report, count, part, rounds)
    log(report, Log(count), Log(part), rounds)
    encoders(report, count, part, rounds)
    return report.markdown(PACKAGES)


def opened(column: pa.Array, **options: Any) -> FrameTable:
    """From a column to rows of Messages."""
    return ours.messages(ours.scan(column, **options))


def envelopes(report: Report, count: int, part: int, rounds: int) -> None:
    """Envelopes of Messages."""
    plain, crc, some, some_crc = (Envelopes(*given) for given in
                                  ((False, count), (True, count), (False, part), (True, part)))
    raw, raw_crc = some.column.to_pylist(), some_crc.column.to_pylist()
    bare = list(peers.opened(raw))
    seen = [(*five[:3], five[3].encode(), five[4]) for five in peers.five_fields(bare)]
    for column in (some, some_crc):
        if rows_of(column.messages(), FIVE) != seen or len(seen) != part:
            raise ValueError("wirescan and protobuf do not read the same Messages")
    scanned = ours.scan(plain.column)
    ours_, theirs, checked = "scan and messages", "protobuf (upb)", "scan and messages, checksums"
    times = interleave([
        plain.contender(ours_, plain.messages),
        crc.contender(checked, crc.messages),
        crc.contender("the same, not verified", lambda: crc.messages(check=False)),
        plain.contender("scan", lambda: ours.scan(plain.column)),
        plain.contender("messages", lambda: ours.messages(scanned)),
        plain.contender(COPY, plain.bytes.copy),
        some.contender(theirs, lambda: peers.five_fields(bare), rehearse=False),
        some.contender("envelopes in Python, protobuf", lambda: peers.five_fields(peers.opened(raw)), rehearse=False),
        some_crc.contender("the same with checksums", lambda: peers.five_fields(peers.opened(raw_crc)),
                           rehearse=False),
    ], rounds)
    report.at_least("`liftbridge.scan` and `messages`, times as fast as protobuf's `FromString` and five fields", 15,
                    times.ratio(theirs, ours_))
    report.at_most("the same with a checksum in every envelope, of those without", 1.4, times.ratio(checked, ours_))
    report.say(
        "### Envelopes and Messages, from a column of Arrow", "",
        f"Envelopes of {len(plain.bytes) / count:.0f} bytes, {len(crc.bytes) / count:.0f} with checksums. protobuf is "
        "given a list of Messages that are out of their envelopes before: offset, key, value, correlation id and ack "
        "policy are read of each; of the envelopes in Python it is given them one by one.", "",
        timings(times, dict.fromkeys([*times.contenders][1:], ours_), "message"))


def log(report: Report, whole: Log, some: Log, rounds: int) -> None:
    """Entries of a commit log."""
    raw = some.bytes.tobytes()
    found, table = peers.entries(raw, True), some.entries(True)
    inside = ours.headers(table)
    headers = [(i, name, value) for i, entry in enumerate(found) for name, value in entry[5].items()]
    if rows_of(table, ENTRY) != [entry[:5] for entry in found] or len(found) != some.count or (
            rows_of(inside, ["parent", "key", "value"]) != headers):
        raise ValueError("wirescan and the reader in Python do not read the same entries")
    fields = ["crc", "magic", "attributes"]
    if rows_of(table, fields) != [entry[4:] for entry in peers.record_headers(raw)]:
        raise ValueError("wirescan and the reader in Python do not read the same record headers")
    listed = whole.entries(False)
    ours_, checked = "entries", "entries, checksums"
    loop, loop_checked = "Python and struct", "Python and struct, checksums"
    times = interleave([
        whole.contender(ours_, lambda: whole.entries(False)),
        whole.contender(checked, lambda: whole.entries(True)),
        whole.contender(COPY, whole.bytes.copy),
        whole.contender("headers of the entries", lambda: ours.headers(listed)),
        some.contender(loop, lambda: peers.entries(raw, False), rehearse=False),
        some.contender(loop_checked, lambda: peers.entries(raw, True), rehearse=False),
        some.contender("Python and struct, record headers alone", lambda: peers.record_headers(raw), rehearse=False),
    ], rounds)
    for name, other, what in ((ours_, loop, ""), (checked, loop_checked, " with checksums")):
        report.at_least(f"`liftbridge.entries`{what}, times as fast as a reader in Python with `struct`", 100,
                        times.ratio(other, name))
        report.at_most(f"`liftbridge.entries`{what}, of `{COPY}`", 2, times.ratio(name, COPY))
    report.say(
        "### Entries of a commit log", "",
        f"Entries of {len(whole.bytes) / whole.count:.0f} bytes with their record headers, a key and the two headers "
        "that the server adds. The reader in Python unpacks the record header, slices key and value, and makes a dict "
        "of the headers; that of record headers alone steps over the messages.", "",
        timings(times, {ours_: COPY, checked: COPY, loop: ours_, loop_checked: checked,
                        "Python and struct, record headers alone": ours_}, "entry"))


def encoders(report: Report, count: int, part: int, rounds: int) -> None:
    """From columns to bytes."""
    plain, crc, some, whole = Envelopes(False, count), Envelopes(True, count), Envelopes(False, part), Log(count)
    table, entries = plain.messages(), whole.entries(False)
    inside = ours.headers(entries)
    fives = peers.five_fields(peers.opened(some.column.to_pylist()))

    def envelopes(crc: bool) -> bytes:
        return encode_messages((table, "value"), keys=(table, "key"), offset=table["offset"], crc=crc,
                               correlation_id=(table, "correlation_id"), ack_policy=table["ack_policy"])[0]

    def log() -> bytes:
        return encode_entries(entries["offset"], entries["timestamp"], entries["leader_epoch"], (entries, "key"),
                              (entries, "value"), (entries["header_count"], (inside, "key"), (inside, "value")))

    for given, written in ((plain, envelopes(False)), (crc, envelopes(True)), (whole, log()),
                           (some, b"".join(peers.enveloped(fives)))):
        if written != given.bytes.tobytes():
            raise ValueError("an encoder writes other bytes than those that the columns are from")
    times = interleave([
        plain.contender(COPY, plain.bytes.copy),
        plain.contender("encode_messages", lambda: envelopes(False)),
        crc.contender("encode_messages, checksums", lambda: envelopes(True)),
        some.contender("protobuf (upb) and envelopes", lambda: peers.enveloped(fives), rehearse=False),
        whole.contender("encode_entries", log),
    ], rounds)
    ours_ = ["encode_messages", "encode_messages, checksums", "encode_entries"]
    report.say("### Out of columns", "",
               "From the places and numbers of a table; entries always have checksums. protobuf makes one Message at a "
               "time.", "",
               timings(times, dict.fromkeys(ours_, COPY) | {"protobuf (upb) and envelopes": ours_[0]}, "message"))
