"""Liftbridge: reading and writing envelopes, Messages and commit logs.

They are compared with protobuf, with a Python reader that uses `struct`, and with a plain copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from bench.peers import liftbridge as peers
from bench.report import Report, format_timings
from bench.timing import interleave
from bench.workloads import nats_messages
from bench.workloads.nats_messages import Messages, list_rows
from wirescan import liftbridge as ours
from wirescan.frames.table import FrameTable
from wirescan.liftbridge.encode import encode_entries, encode_messages

COPY = "buf.copy()"
FULL = {"count": 1 << 20, "part": 1 << 17, "rounds": 15}
QUICK = {"count": 1 << 13, "part": 1 << 12, "rounds": 2}
PACKAGES = ["numpy", "pyarrow", "protobuf", "crc32c"]
FIVE = ["offset", "key", "value", "correlation_id", "ack_policy"]
ENTRY = ["offset", "timestamp", "leader_epoch", "key", "value"]


class Envelopes(Messages):
    """A binary column of envelopes. crc: with checksums."""

    def __init__(self, count: int, *, crc: bool = False):
        self.column = nats_messages.make_envelopes(count, crc=crc)
        super().__init__(np.frombuffer(self.column.buffers()[2], np.uint8), count)

    def messages(self, **options: Any) -> FrameTable:
        return read_messages(self.column, **options)


class Log(Messages):
    """A segment of a commit log."""

    def __init__(self, count: int):
        super().__init__(np.fromfile(nats_messages.write_log(count), np.uint8), count)

    def entries(self, *, check: bool) -> FrameTable:
        return ours.entries(self.bytes, check=check)


def run(count: int, part: int, rounds: int) -> str:
    """Return the section as markdown.

    count: number of messages. part: number of messages for slow readers.
    """
    report = Report("Liftbridge")
    report.say(
        f"Columns and logs of {count:,} messages, in memory, warm, one thread. Ratios are medians "
        f"of the rounds' ratios. The Python readers read {part:,} messages into tuples."
    )
    measure_envelopes(report, count, part, rounds)
    measure_log(report, Log(count), Log(part), rounds)
    measure_encoders(report, count, part, rounds)
    return report.markdown(PACKAGES)


def read_messages(column: pa.Array, **options: Any) -> FrameTable:
    """Read a column of envelopes into rows of Messages."""
    return ours.messages(ours.scan(column, **options))


def measure_envelopes(report: Report, count: int, part: int, rounds: int) -> None:
    """Read envelopes of Messages."""
    plain = Envelopes(count)
    crc = Envelopes(count, crc=True)
    some = Envelopes(part)
    some_crc = Envelopes(part, crc=True)
    raw = some.column.to_pylist()
    raw_crc = some_crc.column.to_pylist()
    bare = list(peers.unwrap(raw))
    expected = [(*five[:3], five[3].encode(), five[4]) for five in peers.read_five_fields(bare)]
    for column in (some, some_crc):
        if list_rows(column.messages(), FIVE) != expected or len(expected) != part:
            raise ValueError("wirescan and protobuf do not read the same Messages")
    scanned = ours.scan(plain.column)
    ours_ = "scan and messages"
    theirs = "protobuf (upb)"
    checked = "scan and messages, checksums"
    times = interleave(
        [
            plain.contender(ours_, plain.messages),
            crc.contender(checked, crc.messages),
            crc.contender("the same, not verified", lambda: crc.messages(check=False)),
            plain.contender("scan", lambda: ours.scan(plain.column)),
            plain.contender("messages", lambda: ours.messages(scanned)),
            plain.contender(COPY, plain.bytes.copy),
            some.contender(theirs, lambda: peers.read_five_fields(bare), rehearse=False),
            some.contender(
                "envelopes in Python, protobuf",
                lambda: peers.read_five_fields(peers.unwrap(raw)),
                rehearse=False,
            ),
            some_crc.contender(
                "the same with checksums",
                lambda: peers.read_five_fields(peers.unwrap(raw_crc)),
                rehearse=False,
            ),
        ],
        rounds,
    )
    report.at_least(
        "`liftbridge.scan` and `messages`, times as fast as protobuf's `FromString` and five "
        "fields",
        15,
        times.ratio(theirs, ours_),
    )
    report.at_most(
        "the same with a checksum in every envelope, of those without",
        1.4,
        times.ratio(checked, ours_),
    )
    report.say(
        "### Envelopes and Messages, from a column of Arrow",
        "",
        f"Envelopes have {len(plain.bytes) / count:.0f} bytes, and {len(crc.bytes) / count:.0f} "
        "with checksums. protobuf gets a list of Messages without their envelopes, and its user "
        "reads offset, key, value, correlation id and ack policy. In the lines with envelopes, "
        "Python code unwraps each Message first.",
        "",
        format_timings(times, dict.fromkeys([*times.contenders][1:], ours_), "message"),
    )


def measure_log(report: Report, whole: Log, some: Log, rounds: int) -> None:
    """Read entries of a commit log."""
    raw = some.bytes.tobytes()
    expected = peers.read_entries(raw, check=True)
    table = some.entries(check=True)
    inside = list_rows(ours.headers(table), ["parent", "key", "value"])
    headers = [
        (i, name, value) for i, entry in enumerate(expected) for name, value in entry[5].items()
    ]
    same_entries = list_rows(table, ENTRY) == [entry[:5] for entry in expected]
    if not same_entries or len(expected) != some.count or inside != headers:
        raise ValueError("wirescan and the reader in Python do not read the same entries")
    fields = ["crc", "magic", "attributes"]
    if list_rows(table, fields) != [entry[4:] for entry in peers.read_record_headers(raw)]:
        raise ValueError("wirescan and the reader in Python do not read the same record headers")
    listed = whole.entries(check=False)
    ours_, checked = "entries", "entries, checksums"
    loop, loop_checked = "Python and struct", "Python and struct, checksums"
    times = interleave(
        [
            whole.contender(ours_, lambda: whole.entries(check=False)),
            whole.contender(checked, lambda: whole.entries(check=True)),
            whole.contender(COPY, whole.bytes.copy),
            whole.contender("headers of the entries", lambda: ours.headers(listed)),
            some.contender(loop, lambda: peers.read_entries(raw, check=False), rehearse=False),
            some.contender(
                loop_checked, lambda: peers.read_entries(raw, check=True), rehearse=False
            ),
            some.contender(
                "Python and struct, record headers alone",
                lambda: peers.read_record_headers(raw),
                rehearse=False,
            ),
        ],
        rounds,
    )
    for name, other, how in ((ours_, loop, ""), (checked, loop_checked, " with checksums")):
        report.at_least(
            f"`liftbridge.entries`{how}, times as fast as a reader in Python with `struct`",
            100,
            times.ratio(other, name),
        )
        report.at_most(f"`liftbridge.entries`{how}, of `{COPY}`", 2, times.ratio(name, COPY))
    report.say(
        "### Entries of a commit log",
        "",
        f"Entries have {len(whole.bytes) / whole.count:.0f} bytes, with the record header, a key "
        "and the two headers that the server adds. The Python reader unpacks the record header, "
        "slices key and value, and makes a dict of the headers. The reader of record headers "
        "alone skips the messages.",
        "",
        format_timings(
            times,
            {
                ours_: COPY,
                checked: COPY,
                loop: ours_,
                loop_checked: checked,
                "Python and struct, record headers alone": ours_,
            },
            "entry",
        ),
    )


def measure_encoders(report: Report, count: int, part: int, rounds: int) -> None:
    """Write columns to bytes."""
    plain = Envelopes(count)
    crc = Envelopes(count, crc=True)
    some = Envelopes(part)
    whole = Log(count)
    table = plain.messages()
    entries = whole.entries(check=False)
    inside = ours.headers(entries)
    fives = peers.read_five_fields(peers.unwrap(some.column.to_pylist()))

    def envelopes(*, crc: bool = False) -> bytes:
        return encode_messages(
            (table, "value"),
            keys=(table, "key"),
            offset=table["offset"],
            crc=crc,
            correlation_id=(table, "correlation_id"),
            ack_policy=table["ack_policy"],
        )[0]

    def log() -> bytes:
        return encode_entries(
            entries["offset"],
            entries["timestamp"],
            entries["leader_epoch"],
            (entries, "key"),
            (entries, "value"),
            (entries["header_count"], (inside, "key"), (inside, "value")),
        )

    for workload, encoded in (
        (plain, envelopes()),
        (crc, envelopes(crc=True)),
        (whole, log()),
        (some, b"".join(peers.wrap(fives))),
    ):
        if encoded != workload.bytes.tobytes():
            raise ValueError("an encoder writes other bytes than those that the columns are from")
    times = interleave(
        [
            plain.contender(COPY, plain.bytes.copy),
            plain.contender("encode_messages", envelopes),
            crc.contender("encode_messages, checksums", lambda: envelopes(crc=True)),
            some.contender(
                "protobuf (upb) and envelopes", lambda: peers.wrap(fives), rehearse=False
            ),
            whole.contender("encode_entries", log),
        ],
        rounds,
    )
    ours_ = ["encode_messages", "encode_messages, checksums", "encode_entries"]
    report.say(
        "### Out of columns",
        "",
        "Columns are the places and numbers of a table. Entries always have checksums. protobuf "
        "encodes one Message at a time.",
        "",
        format_timings(
            times,
            dict.fromkeys(ours_, COPY) | {"protobuf (upb) and envelopes": ours_[0]},
            "message",
        ),
    )
