"""The command line on captures of NATS and on Liftbridge's commit logs."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.command import parse_lines, run
from tests.support.liftbridge_bytes import (
    MOMENT,
    make_capture,
    make_entry,
    make_envelope,
    make_message,
    write_partition,
)
from tests.support.tables import scan_and_mark
from wirescan import liftbridge, nats
from wirescan.export.table_parts import count_gathered_bytes
from wirescan.frames import to_arrow
from wirescan.liftbridge import Kind
from wirescan.reading.chunked import iter_tables

FORMATS = [
    name
    for name in wirescan.formats()
    if name.split(".")[0] in ("nats", "liftbridge") and not name.endswith(".exchanges")
]


@pytest.fixture
def capture_file(tmp_path):
    path = tmp_path / "taken.nats"
    path.write_bytes(make_capture(0, 100))
    return path


@pytest.fixture
def log(tmp_path):
    return write_partition(tmp_path / "0")


@pytest.fixture
def damaged(tmp_path):
    """A capture with two good messages and three bad ones, and the start of each message.

    The bad ones have an envelope with a wrong checksum, an envelope of an unknown kind and a header
    line without a colon.
    """
    bad = bytearray(make_envelope(Kind.PUBLISH, make_message(b"k", b"v"), crc=True))
    bad[-1] ^= 1
    messages = [
        b"PUB a %d\r\n%s\r\n" % (len(payload), payload)
        for payload in (
            make_envelope(Kind.PUBLISH, make_message(b"k", b"v")),
            bytes(bad),
            make_envelope(99, b""),
            b"plain",
        )
    ]
    messages.append(b"HPUB a 18 18\r\nNATS/1.0\r\nline\r\n\r\n\r\n")
    path = tmp_path / "damaged.nats"
    path.write_bytes(b"".join(messages))
    return path, [sum(map(len, messages[:i])) for i in range(len(messages))]


@pytest.mark.parametrize("format", FORMATS)
def test_scan_gives_every_row_in_text_and_json(capture_file, log, format):
    path = log if format == "liftbridge.entries" else capture_file
    table = scan_and_mark(path, format)
    assert len(table) > 9
    text = run("scan", path, "--format", format)
    rows = parse_lines(run("scan", path, "--format", format, "--json"))
    assert text.exit_code == 0
    lines = [line for line in text.stdout.splitlines() if not line.startswith("==> ")]
    assert len(lines) == len(table) + 1
    assert [list(row) for row in rows[:1]] == [
        ["_file", "_start", *to_arrow.list_default_columns(format)]
    ]
    assert [row["_start"] for row in rows][:20] == table.positions.tolist()[:20]
    assert len(rows) == len(table)
    names = [
        name for name in table.dtype.names if name in rows[0] and name not in ("fault", "kind")
    ]
    for row, expected in zip(rows, table):
        for name in names:
            column = table.format.get_column(name)
            number = getattr(expected, name)
            value = row[name] or 0 if column.unit == "ns" else row[name]
            assert value == (column.name_number(number) if column.number_names else number)


def test_scan_shows_times_and_names(capture_file, log):
    text = run("scan", log, "--format", "liftbridge.entries", "--limit", "1").stdout
    first = text.splitlines()[2]  # after the columns and the name of the file
    assert first.split() == ["0", "2023-11-14T22:13:20.123456789Z", "7", "-", "value", "0"]
    (entry_row,) = parse_lines(
        run("scan", log, "--format", "liftbridge.entries", "--limit", 1, "--json")
    )
    assert entry_row["timestamp"] == MOMENT
    acks = run("scan", capture_file, "--format", "liftbridge.acks", "--limit", "1")
    assert " leader " in acks.stdout
    published = parse_lines(run("scan", capture_file, "--format", "liftbridge.messages", "--json"))
    assert {row["kind"] for row in published} == {"PUBLISH", "PLAIN", "LIFT"}
    assert None in {row["timestamp"] for row in published}  # some messages have no timestamp


def test_stat_counts_kinds(capture_file, log):
    total = json.loads(run("stat", capture_file, "--format", "nats.messages", "--json").stdout)[
        "total"
    ]
    assert total["frames"] == 111
    assert total["kinds"] == {"HMSG": 25, "INFO": 1, "MSG": 75, "PING": 10}
    assert "envelopes" not in total
    deep = json.loads(
        run("stat", capture_file, "--format", "liftbridge.messages", "--deep", "--json").stdout
    )["total"]
    assert deep["envelopes"] == {
        "ACK": 14,
        "LIFT": 14,
        "PARTITION_STATUS_REQUEST": 14,
        "PLAIN": 29,
        "PUBLISH": 15,
        "REPLICATION_RESPONSE": 14,
    }
    text = run("stat", capture_file, "--format", "nats.messages", "--deep").stdout
    assert "envelopes     ACK: 14, LIFT: 14" in text
    total = json.loads(run("stat", log, "--format", "liftbridge.entries", "--json").stdout)["total"]
    assert total["frames"] == 300
    assert total["time"]["first"] == MOMENT // 1_000_000
    assert total["offsets"] == {
        "first": 0,
        "last": 598,
        "gaps": 299,
        "missing": 299,
        "missing_inside_frames": 0,
        "out_of_order": 0,
    }


def test_verify_finds_the_damage(capture_file, log, damaged):
    path, starts = damaged

    def verify_damaged(format):
        result = run("verify", path, "--format", format, "--json")
        findings = parse_lines(result)
        damage = [finding for finding in findings if finding["kind"] == "damage"]
        return result.exit_code, sorted(
            (starts.index(finding["offset"]), finding["fault"], finding["inside"])
            for finding in damage
        )

    for clean, format in (
        (capture_file, "liftbridge.messages"),
        (capture_file, "nats.messages"),
        (log, "liftbridge.entries"),
    ):
        assert run("verify", clean, "--format", format).exit_code == 0
    header = (4, "BAD_FIELD", "nats.headers")
    assert verify_damaged("nats.messages") == (1, [header])
    damage = [
        (1, "BAD_CHECKSUM", "liftbridge.envelopes"),
        (2, "BAD_KIND", "liftbridge.envelopes"),
        header,
    ]
    assert verify_damaged("liftbridge.messages") == (1, damage)
    assert verify_damaged("liftbridge.acks") == (1, damage)


def test_verify_checks_everything_in_an_envelope(tmp_path):
    """Verify checks records in replication responses and the headers of records.

    It does so for every format of the protocol.
    """
    raw = make_entry(0, 1, b"k", b"v", [(b"h", b"1")])
    flipped = bytes(16) + raw + raw[:-1] + b"2"
    for payload, fault, inside in (
        (make_envelope(Kind.REPLICATION_RESPONSE, flipped), "BAD_CHECKSUM", "liftbridge.entries"),
        (make_envelope(Kind.PUBLISH, b"\x1a\x7f"), "TRUNCATED", "liftbridge.messages"),
        (make_envelope(Kind.ACK, b"\x07"), "BAD_FIELD", "liftbridge.acks"),
    ):
        path = tmp_path / "one.nats"
        path.write_bytes(b"PUB a %d\r\n%s\r\n" % (len(payload), payload))
        findings = parse_lines(run("verify", path, "--format", "liftbridge.envelopes", "--json"))
        (damage,) = (finding for finding in findings if finding["kind"] == "damage")
        assert (damage["fault"], damage["inside"]) == (fault, inside)


def test_verify_finds_gaps_of_offsets(tmp_path):
    path = tmp_path / f"{5:020}.log"
    path.write_bytes(b"".join(make_entry(offset, 1, None, b"") for offset in (5, 6, 9, 9, 10)))
    result = run("verify", path, "--format", "liftbridge.entries", "--json")
    findings = {finding["kind"]: finding for finding in parse_lines(result)}
    assert result.exit_code == 1
    assert (findings["gap"]["first"], findings["gap"]["last"]) == (7, 8)
    assert findings["damage"]["fault"] == "OFFSET_ORDER"
    assert findings["summary"]["damage"] == 1


@pytest.mark.parametrize("format", FORMATS)
def test_convert_writes_all_rows(capture_file, log, tmp_path, format):
    path = log if format == "liftbridge.entries" else capture_file
    out = tmp_path / "out"
    result = run("convert", path, out, "--format", format)
    assert result.exit_code == 0, result.stderr
    written = pq.read_table(out)
    table = scan_and_mark(path, format)
    assert written.equals(pa.Table.from_batches([to_arrow.to_batch(table, types="spark")]))
    if "timestamp" in table.dtype.names:
        expected = [time // 1000 or None for time in table["timestamp"].tolist()]
        assert written["timestamp"].cast("int64").to_pylist() == expected


def test_convert_of_damage_follows_the_mode(damaged, tmp_path):
    path, _ = damaged
    options = ("--format", "liftbridge.messages", "--errors")
    result = run("convert", path, tmp_path / "strict", *options[:2])
    assert result.exit_code == 1
    result = run("convert", path, tmp_path / "skip", *options, "skip")
    assert result.exit_code == 0
    assert pq.read_table(tmp_path / "skip")["value"].to_pylist() == [b"v", b"plain", b""]
    result = run("convert", path, tmp_path / "mark", *options, "mark")
    marked = pq.read_table(tmp_path / "mark")
    assert result.exit_code == 1
    assert marked["fault"].to_pylist() == [None, "BAD_CHECKSUM", None, None]
    assert marked["value"].to_pylist() == [b"v", None, b"plain", b""]


@pytest.mark.parametrize("format", ["acks", "internal", "messages"])
def test_bytes_that_are_no_message_of_nats_are_damage_of_every_kind(tmp_path, format):
    """What was in them is not known. Acks may be lost, so the exit code is not 0."""
    path = tmp_path / "one.nats"
    ack = make_envelope(Kind.ACK, b"\x1a\x01s")
    path.write_bytes(b"PUB a %d\r\n%s\r\n" % (len(ack), ack) + b"noise\r\n" * 9)
    result = run("scan", path, "--format", f"liftbridge.{format}", "--json")
    assert result.exit_code == 1
    assert parse_lines(result)[-1]["fault"] == "NOT_A_FRAME"


def test_scan_reports_tails_and_garbage(tmp_path, capture_file):
    path = tmp_path / "cut.nats"
    path.write_bytes(capture_file.read_bytes() + b"MSG a 1 9\r\n1234")
    result = run("scan", path, "--format", "liftbridge.envelopes", "--json")
    assert result.exit_code == 0
    assert "tail: 15 bytes, cut frame" in result.stderr
    assert len(parse_lines(result)) == 100
    path.write_bytes(b"PING\r\nGET / HTTP/1.1\r\n\r\n")
    result = run("scan", path, "--format", "nats.messages", "--json")
    assert result.exit_code == 1
    assert [row["fault"] for row in parse_lines(result)] == [None, "NOT_A_FRAME"]
    assert len(nats.scan(path, errors="skip")) == 1
    assert len(liftbridge.scan(nats.scan(path, errors="skip"))) == 0


def test_the_subject_of_a_message_and_that_of_its_publication(tmp_path):
    path, out = tmp_path / "one.nats", tmp_path / "out"
    payloads = [make_envelope(Kind.PUBLISH, b"\x3a\5inner" + make_message(b"k", b"v")), b"plain"]
    path.write_bytes(
        b"".join(
            b"PUB outer.%d %d\r\n%s\r\n" % (i, len(payload), payload)
            for i, payload in enumerate(payloads)
        )
    )
    options = ("--format", "liftbridge.messages", "--columns", "subject,nats_subject")
    rows = parse_lines(run("scan", path, *options, "--json"))
    assert [tuple(row.values()) for row in rows] == [("inner", "outer.0"), (None, "outer.1")]
    header, *rows = run("scan", path, *options).stdout.splitlines()
    assert header.split() == ["subject", "nats_subject"]
    assert [row.split() for row in rows] == [["inner", "outer.0"], ["-", "outer.1"]]
    encoded = run("scan", path, *options, "--json", "--encoding", "nats_subject=hex").stdout
    row = json.loads(encoded.splitlines()[0])
    assert row == {"subject": "inner", "nats_subject": b"outer.0".hex()}
    assert run("convert", path, out, *options, "--partition-by", "nats_subject").exit_code == 0
    directories = sorted(file.parent.name for file in out.rglob("*.parquet"))
    assert directories == ["nats_subject=outer.0", "nats_subject=outer.1"]
    table = wirescan.scan(path, "liftbridge.messages")
    subjects = to_arrow.to_batch(table, ["nats_subject"])["nats_subject"]
    assert subjects.to_pylist() == [b"outer.0", b"outer.1"]
    assert count_gathered_bytes(table, ["nats_subject"]).tolist() == (table["size"] + 7).tolist()
    parents = [
        payload
        for chunk in iter_tables(
            str(path), format="liftbridge.messages", filters=[("nats_subject", "==", b"outer.1")]
        )
        for payload in chunk["parent"].tolist()
    ]
    assert len(parents) == 1
    with pytest.raises(ValueError, match="column 'nats_subject' is that of an enclosing frame"):
        to_arrow.to_batch(liftbridge.messages(liftbridge.scan(payloads)), ["nats_subject"])
