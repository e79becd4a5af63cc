"""The command line on captures of NATS and on Liftbridge's commit logs."""
from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from liftbridge_bytes import MOMENT, capture, entry, envelope, message, segments
from test_cli import lines, run

import wirescan
from wirescan import Fault, arrow, liftbridge, nats
from wirescan.liftbridge import Kind

FORMATS = [name for name in wirescan.formats() if name.split(".")[0] in ("nats", "liftbridge")]


@pytest.fixture
def taken(tmp_path):
    path = tmp_path / "taken.nats"
    path.write_bytes(capture(0, 100))
    return path


@pytest.fixture
def log(tmp_path):
    return segments(tmp_path / "0")


@pytest.fixture
def damaged(tmp_path):
    """A message whose envelope has a wrong checksum, among good ones; one with a bad header line; a bad envelope."""
    bad = bytearray(envelope(Kind.PUBLISH, message(b"k", b"v"), crc=True))
    bad[-1] ^= 1
    parts = [b"PUB a %d\r\n%s\r\n" % (len(one), one)
             for one in (envelope(Kind.PUBLISH, message(b"k", b"v")), bytes(bad), envelope(99, b""), b"plain")]
    parts.append(b"HPUB a 18 18\r\nNATS/1.0\r\nline\r\n\r\n\r\n")
    path = tmp_path / "damaged.nats"
    path.write_bytes(b"".join(parts))
    return path, [sum(map(len, parts[:i])) for i in range(len(parts))]


def frames(path, format):
    return wirescan.scan(path, format, errors="mark")


@pytest.mark.parametrize("format", FORMATS)
def test_scan_gives_every_row_in_text_and_json(taken, log, format):
    path = log if format == "liftbridge.entries" else taken
    table = frames(path, format)
    assert len(table) > 9
    text, found = run("scan", path, "--format", format), lines(run("scan", path, "--format", format, "--json"))
    assert text.exit_code == 0 and len(text.stdout.splitlines()) == len(table) + 1
    assert [list(row) for row in found[:1]] == [["_file", "_start", *arrow.columns_of(format)]]
    assert [row["_start"] for row in found][:20] == table.positions.tolist()[:20] and len(found) == len(table)
    names = [name for name in table.dtype.names if name in found[0] and name not in ("fault", "kind")]
    for row, one in zip(found, table):
        told = {name: row[name] or 0 if name in table.format.nanoseconds else int(row[name]) for name in names}
        assert told == {name: getattr(one, name) for name in names}


def test_times_and_names(taken, log):
    first = run("scan", log, "--format", "liftbridge.entries", "--limit", "1").stdout.splitlines()[1]
    assert first.split() == ["0", "2023-11-14T22:13:20.123456789Z", "7", "-", "value", "0"]
    assert lines(run("scan", log, "--format", "liftbridge.entries", "--limit", 1, "--json"))[0]["timestamp"] == MOMENT
    assert " leader " in run("scan", taken, "--format", "liftbridge.acks", "--limit", "1").stdout
    published = lines(run("scan", taken, "--format", "liftbridge.messages", "--json"))
    assert {row["kind"] for row in published} == {"PUBLISH", "PLAIN", "LIFT"}
    assert None in {row["timestamp"] for row in published}      # of messages without one


def test_stat(taken, log):
    total = json.loads(run("stat", taken, "--format", "nats.messages", "--json").stdout)["total"]
    assert total["frames"] == 111 and total["kinds"] == {"HMSG": 25, "INFO": 1, "MSG": 75, "PING": 10}
    assert "envelopes" not in total
    deep = json.loads(run("stat", taken, "--format", "liftbridge.messages", "--deep", "--json").stdout)["total"]
    assert deep["envelopes"] == {"ACK": 14, "LIFT": 14, "PARTITION_STATUS_REQUEST": 14, "PLAIN": 29, "PUBLISH": 15,
                                 "REPLICATION_RESPONSE": 14}
    assert "envelopes     ACK: 14, LIFT: 14" in run("stat", taken, "--format", "nats.messages", "--deep").stdout
    total = json.loads(run("stat", log, "--format", "liftbridge.entries", "--json").stdout)["total"]
    assert total["frames"] == 300 and total["time"]["first"] == MOMENT // 1_000_000
    assert total["offsets"] == {"first": 0, "last": 598, "gaps": 299, "missing": 299, "missing_inside_frames": 0,
                                "out_of_order": 0}


def test_verify(taken, log, damaged):
    path, starts = damaged
    def told(format):
        result = run("verify", path, "--format", format, "--json")
        found = lines(result)
        damage = [one for one in found if one["kind"] == "damage"]
        return result.exit_code, sorted((starts.index(one["offset"]), one["fault"], one["inside"]) for one in damage)
    for clean, format in ((taken, "liftbridge.messages"), (taken, "nats.messages"), (log, "liftbridge.entries")):
        assert run("verify", clean, "--format", format).exit_code == 0
    header = (4, "BAD_FIELD", "nats.headers")
    assert told("nats.messages") == (1, [header])
    assert told("liftbridge.messages") == told("liftbridge.acks") == (
        1, [(1, "BAD_CHECKSUM", "liftbridge.envelopes"), (2, "BAD_KIND", "liftbridge.envelopes"), header])


def test_verify_opens_all_that_an_envelope_holds(tmp_path):
    """Records in replication responses, and the headers of records, whatever format was asked for."""
    raw = entry(0, 1, b"k", b"v", [(b"h", b"1")])
    flipped = bytes(16) + raw + raw[:-1] + b"2"
    for payload, fault, inside in (
            (envelope(Kind.REPLICATION_RESPONSE, flipped), "BAD_CHECKSUM", "liftbridge.entries"),
            (envelope(Kind.PUBLISH, b"\x1a\x7f"), "TRUNCATED", "liftbridge.messages"),
            (envelope(Kind.ACK, b"\x07"), "BAD_FIELD", "liftbridge.acks")):
        path = tmp_path / "one.nats"
        path.write_bytes(b"PUB a %d\r\n%s\r\n" % (len(payload), payload))
        found = [one for one in lines(run("verify", path, "--format", "liftbridge.envelopes", "--json"))
                 if one["kind"] == "damage"]
        assert [(one["fault"], one["inside"]) for one in found] == [(fault, inside)]


def test_offsets_of_entries(tmp_path):
    path = tmp_path / f"{5:020}.log"
    path.write_bytes(b"".join(entry(offset, 1, None, b"") for offset in (5, 6, 9, 9, 10)))
    result = run("verify", path, "--format", "liftbridge.entries", "--json")
    found = {one["kind"]: one for one in lines(result)}
    assert result.exit_code == 1 and (found["gap"]["first"], found["gap"]["last"]) == (7, 8)
    assert found["damage"]["fault"] == "OFFSET_ORDER" and found["summary"]["damage"] == 1


@pytest.mark.parametrize("format", FORMATS)
def test_convert(taken, log, tmp_path, format):
    path, out = log if format == "liftbridge.entries" else taken, tmp_path / "out"
    result = run("convert", path, out, "--format", format)
    assert result.exit_code == 0, result.stderr
    found, table = pq.read_table(out), frames(path, format)
    assert found.equals(pa.Table.from_batches([arrow.to_batch(table, types="spark")]))
    if "timestamp" in table.dtype.names:
        wanted = [time // 1000 or None for time in table["timestamp"].tolist()]
        assert found["timestamp"].cast("int64").to_pylist() == wanted


def test_convert_of_damage(damaged, tmp_path):
    path, _ = damaged
    assert run("convert", path, tmp_path / "strict", "--format", "liftbridge.messages").exit_code == 1
    assert run("convert", path, tmp_path / "skip", "--format", "liftbridge.messages", "--errors", "skip").exit_code == 0
    assert pq.read_table(tmp_path / "skip")["value"].to_pylist() == [b"v", b"plain", b""]
    result = run("convert", path, tmp_path / "mark", "--format", "liftbridge.messages", "--errors", "mark")
    kept = pq.read_table(tmp_path / "mark")
    assert result.exit_code == 1 and kept["fault"].to_pylist() == [0, Fault.BAD_CHECKSUM, 0, 0]
    assert kept["value"].to_pylist() == [b"v", None, b"plain", b""]


def test_tails_and_garbage(tmp_path, taken):
    path = tmp_path / "cut.nats"
    path.write_bytes(taken.read_bytes() + b"MSG a 1 9\r\n1234")
    result = run("scan", path, "--format", "liftbridge.envelopes", "--json")
    assert result.exit_code == 0 and "tail: 15 bytes, cut frame" in result.stderr and len(lines(result)) == 100
    path.write_bytes(b"PING\r\nGET / HTTP/1.1\r\n\r\n")
    result = run("scan", path, "--format", "nats.messages", "--json")
    assert result.exit_code == 1 and [row["fault"] for row in lines(result)] == [None, "NOT_A_FRAME"]
    assert len(nats.scan(path, errors="skip")) == 1 and len(liftbridge.scan(nats.scan(path, errors="skip"))) == 0
