"""The command line: what it prints, what it refuses, and its exit codes."""
from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pty
import random
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from crc32c import crc32c

import wirescan
from wirescan.cli import main, progress
from wirescan.cli.output import encode, escaped, printable
from wirescan.kafka import Record, encode_batch, encode_message_set

FIRST_TIME = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT = "00000000000000000000.log"
ESCAPES = b"\x1b]0;title\x07\x9b31m\xc2\x9b"


def batch(first: int, count: int = 10, codec: str = "none", value: bytes = b"value " * 8, **options) -> bytes:
    records = [Record(offset=first + i, timestamp=FIRST_TIME + first + i, key=b"key %d" % (i % 3),
                      value=value,
                      headers=[(b"trace", b"\x00\xff"), (b"nothing", None)] if i == 0 else ())
               for i in range(count)]
    return encode_batch(records, codec=codec, **options)


def log(batches: int = 10) -> list[bytes]:
    return [batch(10 * i, codec=CODECS[i % len(CODECS)]) for i in range(batches)]


def run(*arguments: object, input: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=input)


def environment(**more: str) -> dict[str, str]:
    package = Path(wirescan.__file__).parents[1]
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {"PYTHONPATH": str(package), "TERM": "xterm", **more}


def start(*arguments: object, **options) -> subprocess.Popen:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(), **options}
    return subprocess.Popen([sys.executable, "-m", "wirescan", *map(str, arguments)], **options)


def lines(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A partition directory: a segment of 100 records in 10 batches, and files that hold no frames."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / SEGMENT).write_bytes(b"".join(log()))
    (folder / "00000000000000000000.index").write_bytes(bytes(16))
    (folder / "partition.metadata").write_bytes(b"version: 0\n")
    return folder / SEGMENT


@pytest.fixture
def damaged(segment: Path) -> Path:
    """The same with a bit flipped in the payload of the third batch."""
    data = bytearray(segment.read_bytes())
    data[sum(map(len, log()[:2])) + 100] ^= 1
    segment.write_bytes(data)
    return segment


@pytest.fixture
def broken(segment: Path) -> Path:
    """The same with a header that claims too much, in the first record of the third batch; the checksum is right."""
    data, third = bytearray(segment.read_bytes()), sum(map(len, log()[:2]))
    data[third:third + len(log()[2])] = batch_with_a_broken_header(20)
    segment.write_bytes(data)
    return segment


def batch_with_a_broken_header(first: int) -> bytes:
    data = bytearray(batch(first))
    data[data.index(b"trace") - 1] = 0x7e                           # the size of its key: 63
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def tail_told(segment: Path) -> str:
    """What is told of `log()` in a file that cuts its last batch."""
    start = sum(map(len, log()[:9]))
    return f"tail: {segment.stat().st_size - start} bytes, cut frame at byte {start:,} of {segment}"


# --- help and catalogue -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["formats", "scan", "stat", "verify", "convert", "fetch"])
def test_help_shows_examples_first(verb):
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert result.stdout.index("Examples:") < result.stdout.index("Options:")
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_the_command_needs_neither_pyarrow_nor_spark_nor_rich_to_start():
    script = ("import sys\nfrom wirescan.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
              "assert not {'pyarrow', 'pyspark', 'rich'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"wirescan stat" in done.stdout


def test_version():
    assert run("--version").stdout.splitlines()[0] == f"wirescan {wirescan.__version__}"


def test_formats():
    text = run("formats").stdout
    assert all(name in text for name in wirescan.formats())
    described = {one["name"]: one for one in lines(run("formats", "--json"))}
    assert described["kafka.records"]["bytes_per_row"] == 64
    assert described["kafka.records"]["within"] == "kafka.batches"
    assert described["kafka.batches"]["columns"]["base_offset"] == "i8"


# --- scan ---------------------------------------------------------------------------------------------------


def test_scan_prints_a_line_for_each_record(segment):
    result = run("scan", segment)
    first, *rows = result.stdout.splitlines()
    assert result.exit_code == 0 and result.stderr == ""
    assert first.split() == ["offset", "timestamp", "key", "value", "headers"]
    assert len(rows) == 100
    assert rows[0].split()[:2] == ["0", "2023-11-14T22:13:20.000Z"]
    assert rows[0].endswith(r"trace=\x00\xff nothing=null")


def test_json_lines_tell_what_the_table_holds(segment):
    found = lines(run("scan", segment, "--json"))
    table = wirescan.scan(segment, "kafka.records")
    assert [row["offset"] for row in found] == table["offset"].tolist()
    assert [row["timestamp"] for row in found] == table["timestamp"].tolist()
    assert [row["_start"] for row in found] == table.positions.tolist()
    assert [row["key"].encode() for row in found] == [bytes(table.bytes(i, "key")) for i in range(len(table))]
    assert found[0]["headers"] == [{"key": "trace",
                                    "value": {"base64": base64.b64encode(b"\0\xff").decode()}},
                                   {"key": "nothing", "value": None}]
    assert found[0]["_file"] == str(segment) and found[0]["fault"] is None and found[0]["is_control"] is False


@pytest.mark.parametrize("encoding, back", [
    ("base64", base64.b64decode), ("hex", bytes.fromhex),
    ("escape", lambda text: text.encode().decode("unicode_escape").encode("latin-1")),
    ("utf8", lambda told: base64.b64decode(told["base64"]) if isinstance(told, dict) else told.encode())])
def test_no_encoding_loses_a_byte(tmp_path, encoding, back):
    values = [bytes([byte]) for byte in range(256)] + [b"", "gr\u00fc\u00df \u202e".encode(), b"\\x41",
                                                       b"\xed\xa0\x80"]
    path = tmp_path / "bytes.log"
    path.write_bytes(encode_batch(values))
    found = lines(run("scan", path, "--json", "--encoding", encoding, "--columns", "value"))
    assert [back(row["value"]) for row in found] == values


def test_null_is_told_from_empty(tmp_path):
    path = tmp_path / "nulls.log"
    path.write_bytes(encode_batch([Record(key=None, value=b"", timestamp=FIRST_TIME)]))
    row, = lines(run("scan", path, "--json"))
    assert row["key"] is None and row["value"] == ""
    assert run("scan", path, "--columns", "key,value").stdout.splitlines()[1] == "-"


def test_a_record_without_a_time_has_none(tmp_path):
    path = tmp_path / "old.log"
    path.write_bytes(encode_message_set([b"x"], magic=0))
    assert lines(run("scan", path, "--json"))[0]["timestamp"] is None
    assert run("scan", path, "--columns", "timestamp").stdout.split() == ["timestamp", "-"]


@pytest.mark.parametrize("options", [(), ("--json",), ("--encoding", "escape")])
def test_no_control_character_reaches_the_output(tmp_path, options):
    path = tmp_path / "evil\x1b[31m\u202e.log"
    data = encode_batch([Record(key=ESCAPES, value=ESCAPES + "\u202e\u2028".encode(),
                                headers=[(ESCAPES, ESCAPES)])])
    path.write_bytes(data + batch(1)[:-1] + b"?" + data[:70])
    for verb in ("scan", "verify", "stat"):
        result = run(verb, path,
                     *(options if verb == "scan" else options[:1] if options == ("--json",) else ()))
        for text in (result.stdout, result.stderr):
            assert all(c.isprintable() or c == "\n" for c in text), text
    assert "\x1b" not in run("scan", tmp_path / "\x1bnone").stderr


def test_limit_columns_and_formats(segment):
    found = lines(run("scan", segment, "--json", "--limit", 3, "--columns", "offset,codec,size"))
    assert [list(row) for row in found] == [["offset", "codec", "size"]] * 3
    assert len(lines(run("scan", segment, "--json", "--format", "kafka.batches"))) == 10
    assert len(lines(run("scan", segment, "--json", "--format", "kafka.headers"))) == 20
    assert run("scan", segment, "--json", "--limit", 0).stdout == ""
    batches = run("scan", segment, "--format", "kafka.batches").stdout.splitlines()
    assert [line.split()[5] for line in batches[1:6]] == list(CODECS)


def test_arrow_stream(segment, tmp_path):
    result = run("scan", segment, "--arrow")
    table = pa.ipc.open_stream(result.stdout_bytes).read_all()
    assert table["offset"].to_pylist() == list(range(100))
    assert run("scan", segment, "-o", tmp_path / "out.arrow").exit_code == 0
    assert pa.ipc.open_stream((tmp_path / "out.arrow").read_bytes()).read_all() == table


def test_output_file_appears_when_complete(segment, damaged, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run("scan", damaged, "-o", out, "--errors", "strict").exit_code == 1
    assert [name for name in os.listdir(tmp_path) if "out" in name] == []
    assert run("scan", damaged, "-o", out, "--errors", "skip").exit_code == 0
    assert len([json.loads(line) for line in out.read_text().splitlines()]) == 90


def test_an_input_is_not_replaced_by_its_own_listing(segment):
    before = segment.read_bytes()
    for same in (segment, segment.parent / ".." / segment.parent.name / segment.name):
        result = run("scan", segment, "-o", same)
        assert result.exit_code == 2 and "would be replaced while it is read" in result.stderr
    assert segment.read_bytes() == before


def test_output_to_what_is_no_regular_file_leaves_it_there(segment, tmp_path):
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    assert run("scan", segment, "-o", pipe, "--limit", 2).exit_code == 0
    assert pipe.is_fifo() and os.read(held, 1 << 16).count(b"\n") == 3
    os.close(held)
    link.symlink_to(target)
    assert run("scan", segment, "-o", link, "--limit", 2).exit_code == 0
    assert link.is_symlink() and target.read_bytes().count(b"\n") == 3
    assert run("scan", segment, "-o", tmp_path).exit_code == 2


def test_damage_is_marked_skipped_or_the_end(damaged):
    marked = run("scan", damaged, "--json")
    assert marked.exit_code == 1 and "1 bad frame: BAD_CHECKSUM" in marked.stderr
    assert [row["fault"] for row in lines(marked) if row["fault"]] == ["BAD_CHECKSUM"]
    assert len(lines(marked)) == 91
    assert "!! BAD_CHECKSUM in the frame at byte" in run("scan", damaged).stdout
    skipped = run("scan", damaged, "--json", "--errors", "skip")
    assert skipped.exit_code == 0 and "(left out)" in skipped.stderr and len(lines(skipped)) == 90
    strict = run("scan", damaged, "--json", "--errors", "strict")
    start = sum(map(len, log()[:2]))
    assert strict.exit_code == 1 and len(lines(strict)) == 20
    assert f"at byte {start} of {damaged}, row 20" in strict.stderr
    assert run("scan", damaged, "--json", "--errors", "strict", "--limit", 20).exit_code == 0


@pytest.mark.parametrize("options", [(), ("--json",), ("--arrow",), ("--columns", "offset")])
def test_a_broken_header_is_damage_whether_it_is_shown_or_not(broken, options):
    marked = run("scan", broken, *options)
    assert marked.exit_code == 1 and "1 bad frame: TRUNCATED" in marked.stderr
    skipped = run("scan", broken, *options, "--errors", "skip")
    assert skipped.exit_code == 0 and "1 bad frame (left out): TRUNCATED" in skipped.stderr
    strict = run("scan", broken, *options, "--errors", "strict")
    start = sum(map(len, log()[:2]))
    assert strict.exit_code == 1 and f"(TRUNCATED) at byte {start} of {broken}, row 20: 7e 74" in strict.stderr
    for errors in ("mark", "skip", "strict"):
        before = run("scan", broken, *options, "--errors", errors, "--limit", 20)
        assert before.exit_code == 0 and (errors == "skip" or before.stderr == "")
    assert run("scan", broken, *options, "--format", "kafka.batches").exit_code == (2 if "--columns" in options else 0)


def test_a_broken_header_is_marked_or_left_out_where_headers_are_shown(broken):
    def shown(errors):
        return lines(run("scan", broken, "--json", "--errors", errors))[20]["headers"]
    assert shown("mark") == [{"fault": "TRUNCATED"}] and shown("skip") == []
    assert len(lines(run("scan", broken, "--json", "--errors", "strict"))) == 20

    def in_arrow(errors):
        stream = run("scan", broken, "--arrow", "--errors", errors).stdout_bytes
        return pa.ipc.open_stream(stream).read_all()["headers"][20].as_py()
    assert in_arrow("mark") == [{"key": None, "value": None}] and in_arrow("skip") == []


def test_json_and_arrow_exclude_each_other(segment, tmp_path):
    result = run("scan", segment, "--json", "--arrow")
    assert result.exit_code == 2 and "exclude each other" in result.stderr and result.stdout == ""
    assert run("scan", segment, "--json", "-o", tmp_path / "out.arrow", "--limit", 1).exit_code == 0
    assert (tmp_path / "out.arrow").read_bytes().startswith(b"{")


def test_without_checks_a_flipped_bit_passes(damaged):
    assert len(lines(run("scan", damaged, "--json", "--no-check", "--format", "kafka.batches"))) == 10


def test_a_cut_tail_is_told(segment):
    segment.write_bytes(segment.read_bytes()[:-5])
    result = run("scan", segment, "--json")
    assert result.exit_code == 0 and len(lines(result)) == 90
    assert result.stderr == f"wirescan: {tail_told(segment)}\n"


def test_standard_input(segment):
    data = segment.read_bytes()
    assert len(lines(run("scan", "-", "--json", input=data))) == 100
    assert run("verify", "-", input=data).exit_code == 0
    assert run("verify", "-", input=data[:-1]).exit_code == 1
    assert run("stat", "-", "--json", input=data).exit_code == 0
    assert run("scan", "-", "-", input=data).exit_code == 2


# --- stat ---------------------------------------------------------------------------------------------------


def test_stat_counts(segment):
    told = json.loads(run("stat", segment, "--json").stdout)
    total, file = told["total"], told["files"][0]
    assert file["file"] == str(segment)
    assert total["frames"] == 10 and total["records"] == 100 and total["files"] == 1
    assert total["bytes"] == total["frame_bytes"] == segment.stat().st_size
    sizes = sorted(map(len, log()))
    assert total["frame_size"] == {"min": sizes[0], "median": sizes[4], "p95": sizes[9], "max": sizes[9],
                                   "total": sum(sizes)}
    assert {name: one["frames"] for name, one in total["codecs"].items()} == dict.fromkeys(CODECS, 2)
    assert total["magic"] == {"2": 10} and total["faults"] == {} and total["tail"] == {}
    assert total["time"]["first"] == FIRST_TIME and total["time"]["seconds"] == 0.099
    assert total["time"]["records_per_second"] == pytest.approx(100 / 0.099)
    assert total["offsets"] == {"first": 0, "last": 99, "gaps": 0, "missing": 0, "missing_inside_frames": 0,
                                "out_of_order": 0}


def test_stat_of_gaps_control_batches_and_tails(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(batch(0) + batch(20, transactional=True) + batch(30, 1, control=True, transactional=True)
                     + batch(31, 3, last_offset=40) + batch(41, delete_horizon=2 * FIRST_TIME)
                     + batch(51, timestamp_type="append", base_timestamp=1, max_timestamp=FIRST_TIME)
                     + bytes(100))
    total = json.loads(run("stat", path, "--json").stdout)["total"]
    assert total["offsets"] == {"first": 0, "last": 60, "gaps": 1, "missing": 10, "missing_inside_frames": 7,
                                "out_of_order": 0}
    assert total["control_frames"] == 1 and total["transactional_frames"] == 2
    assert total["tail"] == {"zeros": 100}
    assert total["time"]["first"] == FIRST_TIME and total["time"]["last"] < FIRST_TIME + 100


def test_stat_deep(segment):
    total = json.loads(run("stat", "--deep", segment, "--json").stdout)["total"]
    assert total["records"] == 100
    assert total["inside"] == {
        "key_size": {"min": 5, "median": 5, "p95": 5, "max": 5, "total": 500},
        "value_size": {"min": 48, "median": 48, "p95": 48, "max": 48, "total": 4800},
        "null_keys": 0, "null_values": 0, "headers": 20}


def test_wrappers_are_opened_when_asked(tmp_path):
    path = tmp_path / "x.log"
    records = [Record(offset=i, timestamp=FIRST_TIME, value=b"v") for i in range(10)]
    path.write_bytes(b"".join(encode_message_set(part, codec="gzip") for part in (records[:5], records[5:])))
    total = json.loads(run("stat", path, "--json").stdout)["total"]
    assert total["records"] is None and total["unopened_frames"] == 2
    assert "2 compressed wrappers not opened (--deep)" in run("stat", path).stdout
    total = json.loads(run("stat", path, "--json", "--deep").stdout)["total"]
    assert total["records"] == 10 and total["offsets"]["first"] == 0 and total["offsets"]["gaps"] == 0


def test_stat_tells_damage_by_its_exit_code(damaged):
    result = run("stat", damaged)
    assert result.exit_code == 1 and "BAD_CHECKSUM: 1" in result.stdout


def test_stat_deep_tells_damage_in_headers(broken):
    result = run("stat", broken, "--deep", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["total"]["faults"]["TRUNCATED"]["frames"] == 1
    assert run("stat", broken).exit_code == 0                       # which opens no records


# --- verify -------------------------------------------------------------------------------------------------


def findings(path: Path, *options: object) -> list[dict]:
    return [one for one in lines(run("verify", path, "--json", *options))
            if one["kind"] in ("damage", "info", "gap")]


def test_verify_clean(segment):
    result = run("verify", segment.parent)
    assert result.exit_code == 0
    assert result.stdout == f"1 file, 10 frames, 100 records, {segment.stat().st_size:,} bytes: clean\n"
    assert lines(run("verify", segment, "--json"))[-1]["clean"] is True


def test_verify_tells_a_flipped_bit(damaged):
    start, size = sum(map(len, log()[:2])), len(log()[2])
    damage, gap = findings(damaged)
    assert damage == {"kind": "damage", "file": str(damaged), "offset": start, "size": size,
                      "fault": "BAD_CHECKSUM",
                      "meaning": "the checksum does not match", "near": log()[2][:16].hex(" ")}
    assert gap["first"] == 20 and gap["last"] == 29 and gap["missing"] == 10
    result = run("verify", damaged)
    assert result.exit_code == 1 and f"byte {start:,}, {size:,} bytes: BAD_CHECKSUM" in result.stdout


def test_verify_tells_garbage_between_frames(segment):
    parts, garbage = log(), random.Random(1).randbytes(500)
    segment.write_bytes(b"".join(parts[:4]) + garbage + b"".join(parts[4:]))
    damage, = findings(segment)
    assert (damage["offset"], damage["size"]) == (sum(map(len, parts[:4])), 500)
    assert lines(run("verify", segment, "--json"))[-1]["frames"] == 10


def test_verify_tells_tails(segment):
    data = segment.read_bytes()
    segment.write_bytes(data + bytes(1000))
    tail, = findings(segment)
    assert (tail["kind"], tail["fault"], tail["offset"], tail["size"]) == ("info", "ZEROS", len(data), 1000)
    assert run("verify", segment).exit_code == 0
    segment.write_bytes(data[:-7])
    tail, = findings(segment)
    assert (tail["kind"], tail["fault"], tail["size"]) == ("damage", "SHORT", len(log()[9]) - 7)
    assert run("verify", segment).exit_code == 1
    segment.write_bytes(data + b"\xff" * 8 + (1 << 20).to_bytes(4, "big") + bytes(300))
    tail, = findings(segment)
    assert (tail["kind"], tail["fault"], tail["size"]) == ("info", "FILLER", 312)


def test_verify_opens_what_is_inside(tmp_path):
    path = tmp_path / "x.log"
    inner = bytearray(batch(10))
    inner[62 + 20] ^= 0x40                                          # in a record, with the checksum mended
    inner[17:21] = crc32c(bytes(inner[21:])).to_bytes(4, "big")
    inner[57:61] = (11).to_bytes(4, "big")                          # a record too few
    inner[17:21] = crc32c(bytes(inner[21:])).to_bytes(4, "big")
    path.write_bytes(batch(0) + inner)
    damage, = findings(path)
    assert damage["inside"] == "kafka.records" and damage["offset"] == len(batch(0))
    assert run("verify", path).exit_code == 1
    assert run("verify", path, "--shallow").exit_code == 0


def test_verify_tells_damage_in_inflated_bytes(tmp_path):
    path = tmp_path / "x.log"
    packed = bytearray(batch(0, codec="gzip"))
    packed[57:61] = (12).to_bytes(4, "big")
    packed[17:21] = crc32c(bytes(packed[21:])).to_bytes(4, "big")
    path.write_bytes(packed)
    damage, = findings(path)
    assert damage["fault"] == "BAD_COUNT" and damage["offset"] == 0 and damage["inflated_offset"] > 500


def test_verify_tells_damage_in_headers(broken):
    damage, = findings(broken)
    assert (damage["fault"], damage["inside"]) == ("TRUNCATED", "kafka.headers")
    assert run("verify", broken).exit_code == 1


def test_verify_tells_offsets_out_of_order(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(batch(10) + batch(20) + batch(20) + batch(50))
    damage, gap = findings(path)
    assert damage["fault"] == "OFFSET_ORDER" and damage["offset"] == 2 * len(batch(10))
    assert (gap["first"], gap["last"]) == (30, 49)
    assert run("verify", path, "--shallow").exit_code == 1


def test_segments_of_a_directory_continue_each_other(segment):
    (segment.parent / "00000000000000000110.log").write_bytes(batch(110))
    gap, = findings(segment.parent)
    assert gap["file"].endswith("110.log") and (gap["first"], gap["last"]) == (100, 109)
    (segment.parent / "00000000000000000115.log").write_bytes(batch(115))
    assert findings(segment.parent)[1]["fault"] == "OFFSET_ORDER"


def test_verify_goes_on_after_a_file_it_cannot_read(segment, tmp_path):
    result = run("verify", tmp_path / "missing.log", segment)
    assert result.exit_code == 2
    assert "missing.log: no such file or directory" in result.stderr and "1 file, 10 frames" in result.stdout


def test_every_mutation_is_told(segment):
    parts = log(4)
    data = b"".join(parts)
    draw = random.Random(7)
    for _ in range(60):
        bad = bytearray(data)
        at = draw.randrange(len(data))
        bad[at] ^= 1 << draw.randrange(8)
        segment.write_bytes(bad)
        start = max(sum(map(len, parts[:i])) for i in range(4) if sum(map(len, parts[:i])) <= at)
        covered = at - start >= 17 or at - start in range(8, 12)    # offset and epoch have no checksum
        result = run("verify", segment, "--json")
        assert result.exit_code in (0, 1)
        assert lines(result)[-1]["frames"] >= 3
        if covered:
            assert result.exit_code == 1, at


# --- convert ------------------------------------------------------------------------------------------------


def test_convert(segment, tmp_path):
    out = tmp_path / "out"
    result = run("convert", segment.parent, out)
    assert result.exit_code == 0
    told = [line.split() for line in result.stdout.splitlines()]
    assert ["records", "100"] in told and ["frames", "10"] in told and ["faults", "0"] in told
    assert ["offset", "0", "to", "99"] in told
    assert "top key    key 0 (40), key 1 (30), key 2 (30)" in result.stdout
    assert pq.read_table(out)["offset"].to_pylist() == list(range(100))


def test_convert_refuses_what_it_did_not_write(segment, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "letters.txt").write_text("mine")
    for options in ((), ("--overwrite",)):
        assert run("convert", segment, out, *options).exit_code == 2
    assert (out / "letters.txt").read_text() == "mine"
    (out / "letters.txt").unlink()
    assert run("convert", segment, out).exit_code == 0
    assert run("convert", segment, out).exit_code == 2
    assert run("convert", segment, out, "--overwrite", "--columns", "offset").exit_code == 0
    assert pq.read_table(out).column_names == ["offset"]
    assert run("convert", segment, segment.parent, "--overwrite").exit_code == 2
    assert run("convert", segment, segment).exit_code == 2
    assert run("convert", segment, "s3://bucket/out").exit_code == 2


def test_convert_of_damage(damaged, tmp_path):
    strict = run("convert", damaged, tmp_path / "strict")
    assert strict.exit_code == 1 and "BAD_CHECKSUM" in strict.stderr
    assert not list(tmp_path.glob("strict/*"))
    marked = run("convert", damaged, tmp_path / "marked", "--errors", "mark", "--json")
    told = json.loads(marked.stdout)
    assert marked.exit_code == 1 and told["faults"] == 1
    assert told["records"] == 91 and told["query"]["rows"] == 90
    assert run("convert", damaged, tmp_path / "skipped", "--errors", "skip").exit_code == 0


def test_convert_of_a_cut_tail(segment, tmp_path):
    segment.write_bytes(segment.read_bytes()[:-5])
    for errors in ("strict", "mark", "skip"):
        result = run("convert", segment, tmp_path / errors, "--errors", errors, "--json")
        told = json.loads(result.stdout)
        assert result.exit_code == 0 and result.stderr == f"wirescan: {tail_told(segment)}\n"
        assert (told["records"], told["frames"], told["faults"], told["tail"]) == (90, 9, 0, len(log()[9]) - 5)
    text = run("convert", segment, tmp_path / "text").stdout
    assert ["tail", str(len(log()[9]) - 5)] in [line.split() for line in text.splitlines()]


def test_convert_of_nothing(tmp_path):
    path = tmp_path / "empty.log"
    path.touch()
    result = run("convert", path, tmp_path / "out", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0 and told["records"] == 0 and told["query"] is None
    assert pq.read_table(tmp_path / "out").num_rows == 0


def test_convert_of_standard_input(segment, tmp_path):
    result = run("convert", "-", tmp_path / "out", "--json", "--format", "kafka.batches",
                 input=segment.read_bytes())
    told = json.loads(result.stdout)
    assert result.exit_code == 0 and told["records"] == 10
    assert told["query"]["commonest"] == {"column": "codec",
                                          "values": [[0, 2], [1, 2], [2, 2], [3, 2], [4, 2]]}


def test_convert_to_directories_by_values(segment, tmp_path):
    out = tmp_path / "out"
    result = run("convert", segment, out, "--partition-by", "codec, timestamp:day", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 0 and told["records"] == told["query"]["rows"] == 100 and told["query"]["offset"] == [0, 99]
    assert {path.parent.parent.name for path in out.rglob("*.parquet")} == {f"codec={codec}" for codec in range(5)}
    assert told["bytes_written"] == sum(path.stat().st_size for path in out.rglob("*.parquet"))
    assert run("convert", segment, out, "--overwrite", "--partition-by", "key").exit_code == 0
    (out / "key=key 0" / "letters.txt").write_text("mine")
    refused = run("convert", segment, out, "--overwrite")
    assert refused.exit_code == 2 and "will not overwrite a directory that holds key=key 0/letters.txt" in refused.stderr
    for by in ("nothing", "offset:day", "codec,codec", "timestamp"):
        result = run("convert", segment, tmp_path / "none", "--partition-by", by)
        assert result.exit_code == 2 and "Traceback" not in result.stderr and not (tmp_path / "none").exists()


def test_convert_to_directories_by_faults_and_files(damaged, tmp_path):
    for by in ("_fault", "_file"):
        result = run("convert", damaged, tmp_path / by, "--errors", "mark", "--columns", "offset,_fault",
                     "--partition-by", by, "--json")
        assert result.exit_code == 1 and json.loads(result.stdout)["query"]["rows"] == 91


def test_convert_tells_of_faults(damaged, tmp_path):
    for errors in ("mark", "skip"):
        result = run("convert", damaged, tmp_path / errors, "--errors", errors)
        assert f"{tmp_path / errors / '_faults'} tells where" in result.stderr
        assert pq.read_table(tmp_path / errors / "_faults")["fault"].to_pylist() == ["BAD_CHECKSUM"]


@pytest.mark.spark
def test_engines_agree(segment, damaged, tmp_path):
    told = []
    for engine in ("local", "spark"):
        result = run("convert", damaged.parent, tmp_path / engine, "--engine", engine, "--errors", "mark")
        assert result.exit_code == 1 and "1 bad frame, marked" in result.stderr
        told.append([line for line in result.stdout.splitlines()
                     if engine not in line and "seconds" not in line])
    assert told[0] == told[1]
    assert pq.read_table(tmp_path / "local") == pq.read_table(tmp_path / "spark")
    assert pq.read_table(tmp_path / "local" / "_faults") == pq.read_table(tmp_path / "spark" / "_faults")
    strict = run("convert", damaged.parent, tmp_path / "strict", "--engine", "spark")
    assert strict.exit_code == 1 and "BAD_CHECKSUM" in strict.stderr and "Traceback" not in strict.stderr


def test_what_fails_in_spark_is_one_line(segment, tmp_path, monkeypatch):
    from unittest import mock

    from pyspark.errors import PySparkException

    from wirescan import spark
    monkeypatch.setattr(spark, "session", mock.MagicMock())
    monkeypatch.setattr(spark, "to_parquet", mock.Mock(side_effect=PySparkException("no\nroom")))
    result = run("convert", segment, tmp_path / "out", "--engine", "spark")
    assert result.exit_code == 2 and result.stderr == "wirescan: no room\n"


# --- tails --------------------------------------------------------------------------------------------------


def on_all_verbs(path: Path, out: Path) -> dict[str, Result]:
    return {verb: run(verb, path, *([out / path.name, "--errors", "mark"] if verb == "convert" else []))
            for verb in ("scan", "stat", "verify", "convert")}


def test_a_cut_tail_is_told_by_every_verb_and_damage_to_verify_alone(segment, tmp_path):
    segment.write_bytes(segment.read_bytes()[:-5])
    done = on_all_verbs(segment, tmp_path)
    assert {verb: result.exit_code for verb, result in done.items()} == {
        "scan": 0, "stat": 0, "verify": 1, "convert": 0}
    for verb in ("scan", "stat", "convert"):
        assert done[verb].stderr == f"wirescan: {tail_told(segment)}\n"
    start = sum(map(len, log()[:9]))
    assert f"byte {start:,}, {segment.stat().st_size - start:,} bytes: SHORT" in done["verify"].stdout


@pytest.mark.parametrize("data", [batch(0)[:40], b"hi", b"\xff" * 8 + (1 << 20).to_bytes(4, "big") + bytes(300)],
                         ids=["header", "two bytes", "filler"])
def test_nothing_but_a_tail_is_damage(tmp_path, data):
    path = tmp_path / "x.log"
    path.write_bytes(data)
    for verb, result in on_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 1, verb
        if verb != "verify":
            assert f"tail: {len(data)} bytes, " in result.stderr and "no frame before it" in result.stderr
    good = tmp_path / "good.log"                                    # another file's frames are no excuse
    good.write_bytes(batch(0))
    assert run("scan", good, path).exit_code == run("stat", good, path).exit_code == 1
    assert run("convert", good, path, tmp_path / "both").exit_code == 1


@pytest.mark.parametrize("data", [b"", bytes(500), batch(0) + bytes(500)], ids=["empty", "zeros", "behind"])
def test_zeros_are_no_damage(tmp_path, data):
    path = tmp_path / "x.log"
    path.write_bytes(data)
    for verb, result in on_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 0 and result.stderr == "", verb


def test_what_is_no_frame_at_all_is_told_plainly(tmp_path):
    path = tmp_path / "passwd"
    path.write_bytes(b"root:x:0:0:root:/root:/bin/bash\n" * 20)
    for verb, result in on_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 1, verb
        if verb != "convert":
            assert "NOT_A_FRAME" in result.stdout
    strict = run("convert", path, tmp_path / "strict")
    assert strict.exit_code == 1 and "not the beginning of any known frame" in strict.stderr


# --- the outer world ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["scan", "stat", "verify", "convert"])
def test_what_cannot_be_read_is_one_line_and_exit_code_2(verb, tmp_path):
    (tmp_path / "empty").mkdir()
    more = [tmp_path / "out"] if verb == "convert" else []
    for path in (tmp_path / "missing.log", tmp_path / "empty", tmp_path / "none*.log"):
        result = run(verb, path, *more)
        assert result.exit_code == 2 and result.stdout == ""
        assert result.stderr.startswith("wirescan: ") and result.stderr.count("\n") == 1
    assert run(verb).exit_code == 2
    assert run(verb, tmp_path, *more, "--format", "kafka.nothing").exit_code == 2
    assert run(verb, tmp_path, *more, "--nothing").exit_code == 2


def test_an_unknown_column_lists_those_there_are(segment):
    result = run("scan", segment, "--columns", "offset,nothing")
    assert result.exit_code == 2 and "timestamp" in result.stderr
    assert run("scan", segment, "--columns", "key,key").exit_code == 2
    assert run("scan", segment, "--columns", ",").exit_code == 2


def test_globs_and_what_a_shell_makes_of_them(segment):
    assert run("verify", segment.parent / "*").exit_code == 0
    result = run("verify", *sorted(segment.parent.iterdir()))
    assert result.exit_code == 0 and "left out 2 files" in result.stderr
    assert run("verify", segment.with_suffix(".index")).exit_code == 0  # alone it is what was meant: zeros
    assert run("scan", *segment.parent.glob("*.index"), segment.parent / "partition.metadata").exit_code == 2


def test_what_is_left_out_among_several_files_is_not_decided_by_their_directory(segment, tmp_path):
    folder = tmp_path / "x-delete"
    folder.mkdir()
    for number in (0, 10):
        (folder / f"{number:020}.log").write_bytes(batch(number))
    result = run("verify", *sorted(folder.iterdir()))
    assert result.exit_code == 0 and result.stderr == "" and "2 files" in result.stdout
    assert "2 files" in run("verify", folder / "*.log").stdout
    moved = segment.parent.with_name("orders-0.ab-delete")          # as a shell makes of */*.log
    moved.mkdir()
    (moved / SEGMENT).write_bytes(batch(0))
    assert "left out 1 file " in run("verify", segment, moved / SEGMENT).stderr


def test_file_urls(segment):
    for url in (segment.parent.as_uri(), segment.as_uri(), segment.parent.as_uri() + "/*.log"):
        assert "1 file, 10 frames" in run("verify", url).stdout


def test_what_cannot_be_written_is_named(segment, tmp_path):
    (tmp_path / "file").touch()
    out = tmp_path / "none" / "out.jsonl"
    assert run("scan", segment, "-o", out).stderr == f"wirescan: {out}: no such file or directory\n"
    for out in (tmp_path / "file" / "out", tmp_path / "file" / "deep" / "out"):
        result = run("convert", segment, out)
        assert result.exit_code == 2 and result.stderr == f"wirescan: {out}: not a directory\n"


def test_a_closed_pipe_is_quiet(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(batch(1000 * i, 1000) for i in range(20)))
    process = start("scan", path)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(20) == 141


def wait_until_it_waits(process: subprocess.Popen) -> None:
    """Wait until a process has read all of its input, and sleeps until there is more."""
    deadline = time.monotonic() + 60
    quiet, used_before = 0, None
    while quiet < 5:
        assert time.monotonic() < deadline, "the process does not wait for input"
        waiting_bytes, = struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)))
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        state, used = fields[0], fields[11:13]                      # CPU time in user and system mode
        is_quiet = not waiting_bytes and state == "S" and used == used_before
        quiet = quiet + 1 if is_quiet else 0
        used_before = used
        time.sleep(0.02)


def test_interrupted(tmp_path):
    # A shell that runs this in the background has the signal ignored, and that would be inherited.
    process = start("scan", "-", stdin=subprocess.PIPE,
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    process.stdin.write(batch(0))
    process.stdin.flush()
    wait_until_it_waits(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read().strip() == b"wirescan: interrupted"


def in_shell(redirected: str, *arguments: object) -> tuple[int, bytes, bytes]:
    """Exit code, output and messages of the command, started by a shell with some redirections."""
    done = subprocess.run(["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "wirescan",
                           *map(str, arguments)], capture_output=True, env=environment(), timeout=60)
    return done.returncode, done.stdout, done.stderr


# A process takes a third of a second. Each command meets one redirection in the default run, and the
# redirections are spread over them; the slow run has every pair.
NO_SPACE = (">/dev/full", b"wirescan: no space left on device\n")
CLOSED = ("<&- >&-", b"wirescan: bad file descriptor\n")
ALL_CLOSED = ("<&- >&- 2>&-", b"")
UNWRITABLE = {
    ("scan", "{}"): CLOSED, ("scan", "{}", "--json"): NO_SPACE, ("scan", "{}", "--arrow"): NO_SPACE,
    ("stat", "{}"): ALL_CLOSED, ("stat", "{}", "--json"): NO_SPACE, ("verify", "{}"): CLOSED,
    ("verify", "{}", "--json"): NO_SPACE, ("formats",): NO_SPACE, ("--help",): CLOSED,
    ("--version",): ALL_CLOSED, ("scan", "--help"): NO_SPACE}


FAST_REDIRECTIONS = [("<&- 2>&-", "good"), ("2>/dev/full", "no file"), ("2>&-", "no option")]


def slow_unless(is_fast: bool, *values: object):
    return pytest.param(*values, marks=[] if is_fast else [pytest.mark.slow])


@pytest.mark.parametrize("arguments, redirection", [
    slow_unless(redirection == fast, arguments, redirection)
    for arguments, fast in UNWRITABLE.items() for redirection in (NO_SPACE, CLOSED, ALL_CLOSED)])
def test_output_that_cannot_be_written_is_one_line(segment, arguments, redirection):
    redirected, message = redirection
    arguments = [argument.format(segment) for argument in arguments]
    assert in_shell(redirected, *arguments) == (2, b"", message)


@pytest.mark.parametrize("redirected, command", [
    slow_unless((redirected, command) in FAST_REDIRECTIONS, redirected, command)
    for redirected in ("<&-", "2>&-", "<&- 2>&-", "2>/dev/full") for command in ("good", "no file", "no option")])
def test_closed_and_full_streams_that_are_not_needed_do_no_harm(segment, tmp_path, redirected, command):
    if command == "good":
        code, out, messages = in_shell(redirected, "scan", segment, "--json")
        assert (code, out.count(b"\n"), messages) == (0, 100, b"")
    elif command == "no file":
        assert in_shell(redirected, "scan", tmp_path / "none.log")[:2] == (2, b"")
    else:
        assert in_shell(redirected, "scan", "--nothing")[:2] == (2, b"")


def test_an_output_file_is_not_given_the_number_of_a_closed_stream(segment, tmp_path):
    out = tmp_path / "out.jsonl"
    assert in_shell("<&- >&- 2>&-", "scan", segment, "-o", out)[0] == 0
    assert out.read_bytes().count(b"\n") == 100


@pytest.mark.parametrize("verb", [slow_unless(verb == "scan", verb) for verb in ("scan", "stat", "verify")])
def test_standard_input_that_is_closed_is_told(verb):
    code, out, messages = in_shell("<&-", verb, "-")
    assert code == 2 and messages.count(b"\n") == 1 and b"bad file descriptor" in messages


@pytest.mark.parametrize("module, error, code, told", [
    ("wirescan.cli", KeyboardInterrupt, 130, "interrupted"),
    ("wirescan.cli.scan", KeyboardInterrupt, 130, "interrupted"),
    ("click", ModuleNotFoundError("no click"), 2, "no click; the command needs wirescan[cli]")])
@pytest.mark.parametrize("argument", ["--help", "scan"])
def test_what_ends_an_import_is_told(module, error, code, told, argument):
    wanted = error if isinstance(error, type) else f"{type(error).__name__}('{error}')"
    script = ("import runpy, sys\n"
              "class Finder:\n"
              "    def find_spec(self, name, path, target=None):\n"
              f"        if name == {module!r}: raise {getattr(wanted, '__name__', wanted)}\n"
              "sys.meta_path.insert(0, Finder())\n"
              f"sys.argv = ['wirescan', {argument!r}]\n"
              "runpy.run_module('wirescan', run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (code, f"wirescan: {told}") and done.stdout == ""


def on_terminal(*arguments: object, columns: int = 80, **more: str) -> tuple[int, bytes]:
    """Exit code and output of the command with a terminal for output and messages."""
    terminal, other = pty.openpty()
    process = start(*arguments, stdout=other, stderr=other, env=environment(COLUMNS=str(columns), **more))
    os.close(other)
    out = b""
    try:
        while part := os.read(terminal, 65536):
            out += part
    except OSError:                                                 # the other end is closed
        os.close(terminal)
    return process.wait(20), out.replace(b"\r\n", b"\n")


def test_a_terminal_gets_lines_of_its_width_and_no_binary(damaged):
    code, out = on_terminal("scan", damaged, "--limit", "3", NO_COLOR="1")
    rows = out.decode().splitlines()
    assert code == 0 and len(rows) == 4 and all(len(row) <= 80 for row in rows) and rows[1].endswith("…")
    code, out = on_terminal("scan", damaged, "--arrow")
    assert code == 2 and b"terminal" in out and b"ARROW" not in out


def test_no_color(damaged):
    assert b"\x1b[" in on_terminal("verify", damaged)[1]
    assert b"\x1b" not in on_terminal("verify", damaged, NO_COLOR="1")[1]
    assert "\x1b" not in run("verify", damaged).stdout


def test_a_progress_bar_leaves_the_data_alone(monkeypatch, capsys):
    terminal, other = pty.openpty()
    with open(other, "w") as messages:
        monkeypatch.setattr(progress, "PATIENCE", -1)
        monkeypatch.setattr(sys, "stderr", messages)
        monkeypatch.setenv("TERM", "xterm")
        with progress.Progress(100, "counting") as bar:
            bar(50)
            print("data")
    assert capsys.readouterr().out == "data\n"
    shown = b""
    # A read gives a part of it. The last read fails, since the other end is closed.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            shown += part
    os.close(terminal)
    assert b"counting" in shown


# --- text ---------------------------------------------------------------------------------------------------


def test_text_that_is_safe_to_print():
    assert printable("plain \u00fc \U0001f600") == "plain \u00fc \U0001f600"
    assert printable("a\x1b\\\n\u202e\udcff\U000e0001") == r"a\x1b\\\n\u202e\xff\U000e0001"
    assert escaped(bytes(range(256))).isascii() and escaped(bytes(range(256))).isprintable()
    assert encode(b"\xff", "utf8") == {"base64": "/w=="}


# ---------------------------------------------------------------------------- streams of the protocol

STREAM = str(Path(__file__).with_name("corpus") / "kafka-streams" / "java-4" / "group-1.requests.bin")


def test_streams_of_the_protocol():
    done = run("scan", STREAM, "--format", "kafka.requests")
    assert done.exit_code == 0 and "list_offsets" in done.stdout and "consumer-orders-java" in done.stdout
    done = run("scan", STREAM, "--format", "kafka.fetch_request.partitions", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows and all(row["fault"] is None and "topic_id" in row and "fetch_offset" in row for row in rows)
    assert run("verify", STREAM, "--format", "kafka.requests").exit_code == 0
    assert run("stat", STREAM, "--format", "kafka.requests").exit_code == 0
    assert run("stat", STREAM, "--format", "kafka.requests", "--deep").exit_code == 2


def test_damage_in_a_body_is_told(tmp_path):
    raw = bytearray(Path(STREAM).read_bytes())
    raw[-1] ^= 1                                # the count of tagged fields at the end of the last request
    (tmp_path / "damaged.bin").write_bytes(raw)
    done = run("verify", str(tmp_path / "damaged.bin"), "--format", "kafka.requests")
    assert done.exit_code == 1 and "TRUNCATED" in done.stdout


def test_keys_that_look_like_those_of_an_internal_topic_are_no_damage(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_batch([Record(key=bytes([0, version, 9]), value=b"\0\1x") for version in range(3)]))
    done = run("verify", str(path))
    assert done.exit_code == 0, done.stdout


def test_version_names_the_dependencies_and_the_cpu_paths() -> None:
    from importlib import metadata

    from wirescan.cli.versions import DEPENDENCIES
    from wirescan.core import checksum

    result = run("--version")
    assert result.exit_code == 0
    versions = dict(line.rsplit(" ", 1) for line in result.stdout.splitlines())
    assert versions["numpy"] == metadata.version("numpy")
    assert versions["CPython"] == sys.version.split()[0]
    assert versions["checksum path"] == checksum.PATHS[-1]
    assert versions["record path"] in ("portable", "bmi2")
    extras = {}
    for requirement in metadata.requires("wirescan"):
        name = re.match(r"[\w-]+", requirement)[0]
        extra = re.search(r"extra == .(\w+)", requirement)
        extras.setdefault(name, set()).add(extra[1] if extra else "")
    extras.pop("wirescan")
    used = {name for name, names in extras.items() if names - {"all", "test", "peers"}}
    assert used == set(DEPENDENCIES)


def test_version_imports_none_of_the_optional_dependencies() -> None:
    script = ("import sys\nfrom wirescan.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass\n"
              "print(sorted({'pyarrow', 'pyspark', 'pandas', 'rich', 'grpc', 'nats', 'thrift'} & set(sys.modules)))")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment())
    assert result.stdout.splitlines()[-1] == "[]", result.stderr
