"""The command line: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import gzip
import json
import os
import pty
import random
import re
import shutil
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
from click.testing import Result
from crc32c import crc32c

import wirescan
from tests.strategies.kafka import correct_checksums
from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS
from wirescan.cli import progress
from wirescan.cli.foreign_files import decompress_chunks
from wirescan.cli.output import format_path, name_path
from wirescan.cli.path_arguments import resolve_paths
from wirescan.frames.codecs import compress
from wirescan.frames.errors import FrameError
from wirescan.frames.value_text import encode, escape_bytes, escape_text
from wirescan.kafka import Record, encode_batch, encode_message_set
from wirescan.reading.chunked import iter_tables
from wirescan.testing.cost import assert_linear

FIRST_TIME = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT = "00000000000000000000.log"
ESCAPES = b"\x1b]0;title\x07\x9b31m\xc2\x9b"


def make_batch(
    first: int, count: int = 10, codec: str = "none", value: bytes = b"value " * 8, **options
) -> bytes:
    records = [
        Record(
            offset=first + i,
            timestamp=FIRST_TIME + first + i,
            key=b"key %d" % (i % 3),
            value=value,
            headers=[(b"trace", b"\x00\xff"), (b"nothing", None)] if i == 0 else (),
        )
        for i in range(count)
    ]
    return encode_batch(records, codec=codec, **options)


def make_batches(batches: int = 10) -> list[bytes]:
    return [make_batch(10 * i, codec=CODECS[i % len(CODECS)]) for i in range(batches)]


def make_environment(**extra: str) -> dict[str, str]:
    package = Path(wirescan.__file__).parents[1]
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    return inherited | {"PYTHONPATH": str(package), "TERM": "xterm", **extra}


def start_command(*arguments: object, **options) -> subprocess.Popen:
    options = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": make_environment(),
        **options,
    }
    return subprocess.Popen([sys.executable, "-m", "wirescan", *map(str, arguments)], **options)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of 100 records in 10 batches. Its directory also has files without frames."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / SEGMENT).write_bytes(b"".join(make_batches()))
    (folder / "00000000000000000000.index").write_bytes(bytes(16))
    (folder / "partition.metadata").write_bytes(b"version: 0\n")
    return folder / SEGMENT


@pytest.fixture
def damaged(segment: Path) -> Path:
    """The segment with a flipped bit in the payload of the third batch."""
    data = bytearray(segment.read_bytes())
    data[sum(map(len, make_batches()[:2])) + 100] ^= 1
    segment.write_bytes(data)
    return segment


@pytest.fixture
def broken(segment: Path) -> Path:
    """The segment with a header that exceeds its record, in the third batch.

    The checksum of the batch is right.
    """
    data = bytearray(segment.read_bytes())
    third = sum(map(len, make_batches()[:2]))
    data[third : third + len(make_batches()[2])] = make_batch_with_a_broken_header(20)
    segment.write_bytes(data)
    return segment


def make_batch_with_a_broken_header(first: int) -> bytes:
    data = bytearray(make_batch(first))
    data[data.index(b"trace") - 1] = 0x7E  # the size of its key: 63
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def make_tail_message(segment: Path) -> str:
    """The message about a file with the batches of `log()` whose last batch is cut."""
    start = sum(map(len, make_batches()[:9]))
    return f"tail: {segment.stat().st_size - start} bytes, cut frame at byte {start} of {segment}"


# --- help and catalogue


@pytest.mark.parametrize("verb", ["formats", "scan", "stat", "verify", "convert", "fetch"])
def test_help_shows_examples_first(verb):
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert result.stdout.index("Examples:") < result.stdout.index("Options:")
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_the_command_needs_neither_pyarrow_nor_spark_nor_rich_to_start():
    script = (
        "import sys\n"
        "from wirescan.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'pyarrow', 'pyspark', 'rich'} & set(sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=make_environment(), capture_output=True
    )
    assert result.returncode == 0, result.stderr
    assert b"wirescan stat" in result.stdout


def run_without_pyarrow(*arguments: object) -> subprocess.CompletedProcess:
    script = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from wirescan.cli.main import main\n"
        "main(sys.argv[1:])"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=make_environment(),
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("scan", "{}", "--arrow"), ("convert", "{}", "out"), ("stat", "s3://bucket/x.log")],
    ids=lambda arguments: arguments[0],
)
def test_a_missing_pyarrow_is_reported_with_its_install_command(segment, arguments):
    result = run_without_pyarrow(*(argument.format(segment) for argument in arguments))
    assert result.returncode == 2
    assert result.stderr == "wirescan: pyarrow is not installed: pip install 'wirescan[cli]'\n"


def test_version_is_printed_first():
    assert run("--version").stdout.splitlines()[0] == f"wirescan {wirescan.__version__}"


def test_formats_lists_every_format():
    text = run("formats").stdout
    assert all(name in text for name in wirescan.formats())
    described = {
        description["name"]: description for description in parse_lines(run("formats", "--json"))
    }
    assert described["kafka.records"]["bytes_per_row"] == 64
    assert described["kafka.records"]["within"] == "kafka.batches"
    assert described["kafka.batches"]["columns"]["base_offset"] == "i8"


# --- scan


def test_scan_prints_a_line_for_each_record(segment):
    result = run("scan", segment)
    first, *rows = result.stdout.splitlines()
    assert result.exit_code == 0
    assert result.stderr == ""
    assert first.split() == ["offset", "timestamp", "key", "value", "headers"]
    assert len(rows) == 100
    assert rows[0].split()[:2] == ["0", "2023-11-14T22:13:20.000Z"]
    assert rows[0].endswith(r"trace=\x00\xff nothing=null")


def test_json_lines_have_the_values_of_the_table(segment):
    rows = parse_lines(run("scan", segment, "--json"))
    table = wirescan.scan(segment, "kafka.records")
    assert [row["offset"] for row in rows] == table["offset"].tolist()
    assert [row["timestamp"] for row in rows] == table["timestamp"].tolist()
    assert [row["_start"] for row in rows] == table.positions.tolist()
    keys = [bytes(table.bytes(i, "key")) for i in range(len(table))]
    assert [row["key"].encode() for row in rows] == keys
    assert rows[0]["headers"] == [
        {"key": "trace", "value": "\0\ufffdff"},
        {"key": "nothing", "value": None},
    ]
    assert rows[0]["_file"] == str(segment)
    assert rows[0]["fault"] is None
    assert rows[0]["is_control"] is False


@pytest.mark.parametrize(
    "encoding, decode",
    [
        ("base64", base64.b64decode),
        ("hex", bytes.fromhex),
        ("escape", lambda text: text.encode().decode("unicode_escape").encode("latin-1")),
        (
            "utf8",
            lambda text: re.sub(
                rb"\xef\xbf\xbd(..)", lambda rows: bytes.fromhex(rows[1].decode()), text.encode()
            ),
        ),
    ],
)
def test_no_encoding_loses_a_byte(tmp_path, encoding, decode):
    values = [bytes([byte]) for byte in range(256)] + [
        b"",
        "gr\u00fc\u00df \u202e".encode(),
        b"\\x41",
        b"\xed\xa0\x80",
        "\ufffdff".encode(),
        b"\xef\xbf",
    ]
    path = tmp_path / "bytes.log"
    path.write_bytes(encode_batch(values))
    rows = parse_lines(run("scan", path, "--json", "--encoding", encoding, "--columns", "value"))
    assert [decode(row["value"]) for row in rows] == values
    assert {type(row["value"]) for row in rows} == {str}


def test_a_column_has_its_own_encoding(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(encode_batch([Record(key=b"k\xff", value=b'{"a":1}', headers=[("h", b"\0")])]))

    def row(encoding, *more):
        return parse_lines(
            run("scan", path, "--json", "--encoding", encoding, "--columns", "key,value,headers")
        )[0]

    assert row("key=hex,value=base64") == {
        "key": "6bff",
        "value": base64.b64encode(b'{"a":1}').decode(),
        "headers": [{"key": "h", "value": "\0"}],
    }
    assert row("headers=hex") == {
        "key": "k\ufffdff",
        "value": '{"a":1}',
        "headers": [{"key": "68", "value": "00"}],
    }
    assert row("base64, value=utf8")["value"] == '{"a":1}'
    assert row("base64, value=utf8")["key"] == "a/8="
    text = run("scan", path, "--columns", "key,value", "--encoding", "key=hex").stdout
    assert text.split() == ["key", "value", "6bff", '{"a":1}']
    for wrong, message in (
        ("utf7", "no encoding 'utf7'; did you mean utf8?"),
        ("offset=hex", "no column 'offset' with"),
        ("nothing=hex", "there are key, value, headers"),
        ("key=", "no encoding ''"),
    ):
        result = run("scan", path, "--json", "--encoding", wrong)
        assert result.exit_code == 2
        assert message in result.stderr


def test_codes_have_names_in_json_as_in_text(segment):
    names = ("--format", "kafka.batches", "--columns", "codec")
    codecs = [row["codec"] for row in parse_lines(run("scan", segment, "--json", *names))]
    assert codecs == run("scan", segment, *names).stdout.split()[1:]
    assert codecs[:5] == list(CODECS)


@pytest.mark.parametrize(
    "option, refused, fault",
    [
        ("--max-frame", 2000, "BAD_LENGTH"),
        ("--max-inflated", 10_000, "TOO_LARGE"),
        ("--max-row-bytes", 1000, "LIMIT"),
    ],
)
def test_limits_can_be_lowered_and_raised(tmp_path, option, refused, fault):
    path, values = tmp_path / SEGMENT, [b"%d" % number + bytes(100) for number in range(1000)]
    path.write_bytes(bytes(encode_batch(values, codec="zstd")))
    assert path.stat().st_size > 2000
    for verb, *more in (["scan"], ["stat"], ["verify"], ["convert", tmp_path / "out"]):
        result = run(verb, path, *more, option, refused)
        if verb != "stat" or fault == "BAD_LENGTH":  # stat does not read the records
            assert result.exit_code == 1, (verb, result.output)
            assert fault in result.output
        overwrite = ["--overwrite"] if more else []
        result = run(verb, path, *more, option, 1 << 20, *overwrite)
        assert result.exit_code == 0, verb


def test_many_members_of_a_gzip_file_take_linear_time():
    member = gzip.compress(b"", mtime=0)

    def decompress(count):
        data = [memoryview(member * count)]
        return lambda: list(decompress_chunks(data, "gzip", 8 << 20))

    assert_linear(decompress(12_500), decompress(100_000))


def test_null_differs_from_empty(tmp_path):
    path = tmp_path / "nulls.log"
    path.write_bytes(encode_batch([Record(key=None, value=b"", timestamp=FIRST_TIME)]))
    (row,) = parse_lines(run("scan", path, "--json"))
    assert row["key"] is None
    assert row["value"] == ""
    assert run("scan", path, "--columns", "key,value").stdout.splitlines()[1] == "-"


def test_a_record_without_a_time_has_none(tmp_path):
    path = tmp_path / "old.log"
    path.write_bytes(encode_message_set([b"x"], magic=0))
    assert parse_lines(run("scan", path, "--json"))[0]["timestamp"] is None
    assert run("scan", path, "--columns", "timestamp").stdout.split() == ["timestamp", "-"]


@pytest.mark.parametrize("options", [(), ("--json",), ("--encoding", "escape")])
def test_no_control_character_reaches_the_output(tmp_path, options):
    path = tmp_path / "evil\x1b[31m\u202e.log"
    data = encode_batch(
        [Record(key=ESCAPES, value=ESCAPES + "\u202e\u2028".encode(), headers=[(ESCAPES, ESCAPES)])]
    )
    path.write_bytes(data + make_batch(1)[:-1] + b"?" + data[:70])
    for verb in ("scan", "verify", "stat"):
        result = run(
            verb,
            path,
            *(options if verb == "scan" else options[:1] if options == ("--json",) else ()),
        )
        for text in (result.stdout, result.stderr):
            assert all(c.isprintable() or c == "\n" for c in text), text
    assert "\x1b" not in run("scan", tmp_path / "\x1bnone").stderr


def test_limit_columns_and_formats(segment):
    rows = parse_lines(
        run("scan", segment, "--json", "--limit", 3, "--columns", "offset,codec,size")
    )
    assert [list(row) for row in rows] == [["offset", "codec", "size"]] * 3
    assert len(parse_lines(run("scan", segment, "--json", "--format", "kafka.batches"))) == 10
    assert len(parse_lines(run("scan", segment, "--json", "--format", "kafka.headers"))) == 20
    assert run("scan", segment, "--json", "--limit", 0).stdout == ""
    batches = run("scan", segment, "--format", "kafka.batches").stdout.splitlines()
    assert [line.split()[5] for line in batches[1:6]] == list(CODECS)


def test_scan_writes_an_arrow_stream(segment, tmp_path):
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


@pytest.mark.parametrize(
    "verb, options", [("scan", ()), ("cut", ("--offset", "0:5")), ("report", ("--markdown",))]
)
def test_an_input_is_not_replaced_by_its_own_output(verb, options, segment):
    before = segment.read_bytes()
    for same in (segment, segment.parent / ".." / segment.parent.name / segment.name):
        result = run(verb, segment, *options, "-o", same)
        assert result.exit_code == 2
        assert "would be replaced while it is read" in result.stderr
    assert segment.read_bytes() == before


def test_output_to_a_pipe_or_link_keeps_the_pipe_or_link(segment, tmp_path):
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    assert run("scan", segment, "-o", pipe, "--limit", 2).exit_code == 0
    assert pipe.is_fifo()
    assert os.read(reader, 1 << 16).count(b"\n") == 3
    os.close(reader)
    link.symlink_to(target)
    assert run("scan", segment, "-o", link, "--limit", 2).exit_code == 0
    assert link.is_symlink()
    assert target.read_bytes().count(b"\n") == 3
    assert run("scan", segment, "-o", tmp_path).exit_code == 2


def test_damage_is_marked_skipped_or_ends_the_run(damaged):
    marked = run("scan", damaged, "--json")
    assert marked.exit_code == 1
    assert "1 bad frame: BAD_CHECKSUM" in marked.stderr
    assert [row["fault"] for row in parse_lines(marked) if row["fault"]] == ["BAD_CHECKSUM"]
    assert len(parse_lines(marked)) == 91
    assert "!! BAD_CHECKSUM in the frame at byte" in run("scan", damaged).stdout
    skipped = run("scan", damaged, "--json", "--errors", "skip")
    assert skipped.exit_code == 0
    assert "(dropped)" in skipped.stderr
    assert len(parse_lines(skipped)) == 90
    strict = run("scan", damaged, "--json", "--errors", "strict")
    start = sum(map(len, make_batches()[:2]))
    assert strict.exit_code == 1
    assert len(parse_lines(strict)) == 20
    assert f"at byte {start} of {damaged}, row 20" in strict.stderr
    assert run("scan", damaged, "--json", "--errors", "strict", "--limit", 20).exit_code == 0


def test_every_export_shows_a_bad_frame_alike(damaged, tmp_path):
    """A fault is a name, and null for a good frame. Values that were not read are null."""
    names = ("--columns", "offset,timestamp,is_control,headers,fault")
    rows = parse_lines(run("scan", damaged, "--json", *names))
    assert rows[20] == dict.fromkeys(rows[20]) | {"fault": "BAD_CHECKSUM"}
    assert all(row["fault"] is None and row["is_control"] is False for row in rows[:20] + rows[21:])
    stream = pa.ipc.open_stream(run("scan", damaged, "--arrow", *names).stdout_bytes).read_all()
    assert run("convert", damaged, tmp_path / "out", "--errors", "mark", *names).exit_code == 1
    for table in stream, pq.read_table(tmp_path / "out"):
        for name in ("offset", "is_control", "fault"):
            assert table[name].to_pylist() == [row[name] for row in rows]
        assert table["timestamp"][20].as_py() is table["headers"][20].as_py() is None


@pytest.mark.parametrize("options", [(), ("--json",), ("--arrow",), ("--columns", "offset")])
def test_a_broken_header_is_damage_whether_it_is_shown_or_not(broken, options):
    marked = run("scan", broken, *options)
    assert marked.exit_code == 1
    assert "1 bad frame: TRUNCATED" in marked.stderr
    skipped = run("scan", broken, *options, "--errors", "skip")
    assert skipped.exit_code == 0
    assert "1 bad frame (dropped): TRUNCATED" in skipped.stderr
    strict = run("scan", broken, *options, "--errors", "strict")
    start = broken.read_bytes().index(b"\x7etrace")
    assert strict.exit_code == 1
    assert f"(TRUNCATED) at byte {start} of {broken}, row 20: 7e 74" in strict.stderr
    for errors in ("mark", "skip", "strict"):
        before = run("scan", broken, *options, "--errors", errors, "--limit", 20)
        assert before.exit_code == 0
        assert errors == "skip" or before.stderr == ""
    code = 2 if "--columns" in options else 0
    assert run("scan", broken, *options, "--format", "kafka.batches").exit_code == code


@pytest.mark.parametrize("is_compressed", [False, True])
def test_the_error_of_a_broken_record_is_that_of_the_library(is_compressed, tmp_path):
    batch = bytearray(make_batch(10))
    batch[61] = 0  # the length of the first record
    if is_compressed:
        batch[61:] = gzip.compress(batch[61:])
        batch[22] = 1  # gzip
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    path = tmp_path / "x.log"
    path.write_bytes(make_batch(0) + correct_checksums(batch))
    result = run("scan", path, "--errors", "strict")
    with pytest.raises(FrameError) as caught:
        list(iter_tables(str(path), format="kafka.records"))
    assert caught.value.inflated == is_compressed
    assert result.stderr == f"wirescan: {caught.value}\n"


def test_a_broken_header_is_marked_or_dropped_where_headers_are_shown(broken):
    def read_json(errors):
        return parse_lines(run("scan", broken, "--json", "--errors", errors))[20]["headers"]

    assert read_json("mark") == [{"fault": "TRUNCATED"}]
    assert read_json("skip") == []
    assert len(parse_lines(run("scan", broken, "--json", "--errors", "strict"))) == 20

    def read_arrow(errors):
        stream = run("scan", broken, "--arrow", "--errors", errors).stdout_bytes
        return pa.ipc.open_stream(stream).read_all()["headers"][20].as_py()

    assert read_arrow("mark") == [{"key": None, "value": None}]
    assert read_arrow("skip") == []


def test_json_and_arrow_exclude_each_other(segment):
    result = run("scan", segment, "--json", "--arrow")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr
    assert result.stdout == ""


def test_without_checks_a_flipped_bit_passes(damaged):
    result = run("scan", damaged, "--json", "--no-check", "--format", "kafka.batches")
    assert len(parse_lines(result)) == 10


def test_a_cut_tail_is_reported(segment):
    segment.write_bytes(segment.read_bytes()[:-5])
    result = run("scan", segment, "--json")
    assert result.exit_code == 0
    assert len(parse_lines(result)) == 90
    assert result.stderr == f"wirescan: {make_tail_message(segment)}\n"


def test_verbs_read_standard_input(segment):
    data = segment.read_bytes()
    assert len(parse_lines(run("scan", "-", "--json", input=data))) == 100
    assert run("verify", "-", input=data).exit_code == 0
    assert run("verify", "-", input=data[:-1]).exit_code == 1
    assert run("stat", "-", "--json", input=data).exit_code == 0
    assert run("scan", "-", "-", input=data).exit_code == 2


# --- stat


def test_stat_counts_frames_and_records(segment):
    report = json.loads(run("stat", segment, "--json").stdout)
    total, file = report["total"], report["files"][0]
    assert file["file"] == str(segment)
    assert total["frames"] == 10
    assert total["records"] == 100
    assert total["files"] == 1
    assert total["bytes"] == total["frame_bytes"] == segment.stat().st_size
    sizes = sorted(map(len, make_batches()))
    assert total["frame_size"] == {
        "min": sizes[0],
        "median": sizes[4],
        "p95": sizes[9],
        "max": sizes[9],
        "total": sum(sizes),
    }
    frames = {name: counts["frames"] for name, counts in total["codecs"].items()}
    assert frames == dict.fromkeys(CODECS, 2)
    assert total["magic"] == {"2": 10}
    assert total["faults"] == {}
    assert total["tail"] == {}
    assert total["time"]["first"] == FIRST_TIME
    assert total["time"]["seconds"] == 0.099
    assert total["time"]["records_per_second"] == pytest.approx(100 / 0.099)
    assert total["offsets"] == {
        "first": 0,
        "last": 99,
        "gaps": 0,
        "missing": 0,
        "missing_inside_frames": 0,
        "out_of_order": 0,
    }


def test_stat_of_gaps_control_batches_and_tails(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(
        make_batch(0)
        + make_batch(20, transactional=True)
        + make_batch(30, 1, control=True, transactional=True)
        + make_batch(31, 3, last_offset=40)
        + make_batch(41, delete_horizon=2 * FIRST_TIME)
        + make_batch(51, timestamp_type="append", base_timestamp=1, max_timestamp=FIRST_TIME)
        + bytes(100)
    )
    total = json.loads(run("stat", path, "--json").stdout)["total"]
    assert total["offsets"] == {
        "first": 0,
        "last": 60,
        "gaps": 1,
        "missing": 10,
        "missing_inside_frames": 7,
        "out_of_order": 0,
    }
    assert total["control_frames"] == 1
    assert total["transactional_frames"] == 2
    assert total["tail"] == {"zeros": 100}
    assert total["time"]["first"] == FIRST_TIME
    assert total["time"]["last"] < FIRST_TIME + 100


def test_stat_deep_measures_records(segment):
    total = json.loads(run("stat", "--deep", segment, "--json").stdout)["total"]
    assert total["records"] == 100
    assert total["inside"] == {
        "key_size": {"min": 5, "median": 5, "p95": 5, "max": 5, "total": 500},
        "value_size": {"min": 48, "median": 48, "p95": 48, "max": 48, "total": 4800},
        "null_keys": 0,
        "null_values": 0,
        "headers": 20,
    }


def test_stat_deep_opens_wrappers(tmp_path):
    path = tmp_path / "x.log"
    records = [Record(offset=i, timestamp=FIRST_TIME, value=b"v") for i in range(10)]
    path.write_bytes(
        b"".join(encode_message_set(half, codec="gzip") for half in (records[:5], records[5:]))
    )
    total = json.loads(run("stat", path, "--json").stdout)["total"]
    assert total["records"] is None
    assert total["unopened_frames"] == 2
    assert "2 compressed wrappers not opened (--deep)" in run("stat", path).stdout
    total = json.loads(run("stat", path, "--json", "--deep").stdout)["total"]
    assert total["records"] == 10
    assert total["offsets"]["first"] == 0
    assert total["offsets"]["gaps"] == 0


def test_stat_reports_damage_by_its_exit_code(damaged):
    result = run("stat", damaged)
    assert result.exit_code == 1
    assert "BAD_CHECKSUM: 1" in result.stdout


def test_stat_deep_reports_damage_in_headers(broken):
    result = run("stat", broken, "--deep", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["total"]["faults"]["TRUNCATED"]["frames"] == 1
    assert run("stat", broken).exit_code == 0  # without --deep, stat reads no records


@pytest.mark.parametrize(
    "options",
    [
        ("out.tsv",),
        ("OUT.CSV", "--json"),
        ("out.jsonl", "--csv"),
        ("out.parquet", "--json"),
        ("out.jsonl.gz",),
        ("out.feather", "--arrow"),
        ("-5",),
        ("--limit",),
        ("out.arrow", "--json"),
        ("out.jsonl", "--arrow"),
        ("out.txt", "--arrow"),
    ],
)
def test_output_names_that_contradict_the_format_are_refused(
    segment, tmp_path, monkeypatch, options
):
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    result = run("scan", segment, "-o", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert options[0] in result.stderr
    assert sorted(os.listdir(tmp_path)) == before


def test_output_names_choose_the_format(segment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = {
        name: run("scan", segment, "--limit", 2, "-o", name, *options).exit_code == 0
        and Path(name).read_bytes()
        for name, *options in (
            ("a.txt",),
            ("b",),
            ("c.jsonl",),
            ("d", "--json"),
            ("e.txt", "--json"),
            ("./-5",),
            ("f.arrow",),
            ("g.parquet",),
        )
    }
    assert outputs["a.txt"] == outputs["b"] == outputs["./-5"]
    assert outputs["b"].startswith(b"offset")
    assert outputs["c.jsonl"] == outputs["d"] == outputs["e.txt"]
    assert outputs["d"].startswith(b'{"_file"')
    assert pa.ipc.open_stream(outputs["f.arrow"]).read_all().num_rows == 2
    result = run("convert", segment, "converted", "--limit", 2, "--no-query")
    assert result.exit_code == 0, result.output
    assert pq.read_table("g.parquet").equals(pq.read_table("converted"))


# --- verify


def list_findings(path: Path, *options: object) -> list[dict]:
    return [
        finding
        for finding in parse_lines(run("verify", path, "--json", *options))
        if finding["kind"] in ("damage", "info", "gap")
    ]


def test_verify_reports_a_clean_file(segment):
    result = run("verify", segment.parent)
    assert result.exit_code == 0
    size = segment.stat().st_size
    assert result.stdout == f"1 file, 10 frames, 100 records, {size:,} bytes: clean\n"
    assert parse_lines(run("verify", segment, "--json"))[-1]["clean"] is True


def test_verify_reports_a_flipped_bit(damaged):
    start, size = sum(map(len, make_batches()[:2])), len(make_batches()[2])
    damage, gap = list_findings(damaged)
    assert damage == {
        "kind": "damage",
        "file": str(damaged),
        "offset": start,
        "size": size,
        "fault": "BAD_CHECKSUM",
        "meaning": "the checksum does not match",
        "near": make_batches()[2][:16].hex(" "),
        "lost_first": 20,
        "lost_last": 29,
        "lost_records": 10,
        "bound": "exact",
    }
    assert gap["first"] == 20
    assert gap["last"] == 29
    assert gap["missing"] == 10
    result = run("verify", damaged)
    assert result.exit_code == 1
    assert f"byte {start:,}, {size:,} bytes: BAD_CHECKSUM" in result.stdout


def test_verify_reports_garbage_between_frames(segment):
    batches, garbage = make_batches(), random.Random(1).randbytes(500)
    segment.write_bytes(b"".join(batches[:4]) + garbage + b"".join(batches[4:]))
    (damage,) = list_findings(segment)
    assert (damage["offset"], damage["size"]) == (sum(map(len, batches[:4])), 500)
    assert parse_lines(run("verify", segment, "--json"))[-1]["frames"] == 10


def test_verify_reports_tails(segment):
    data = segment.read_bytes()
    segment.write_bytes(data + bytes(1000))
    (tail,) = list_findings(segment)
    assert (tail["kind"], tail["fault"]) == ("info", "ZEROS")
    assert (tail["offset"], tail["size"]) == (len(data), 1000)
    assert run("verify", segment).exit_code == 0
    segment.write_bytes(data[:-7])
    (tail,) = list_findings(segment)
    assert (tail["kind"], tail["fault"], tail["size"]) == (
        "damage",
        "SHORT",
        len(make_batches()[9]) - 7,
    )
    assert run("verify", segment).exit_code == 1
    segment.write_bytes(data + b"\xff" * 8 + (1 << 20).to_bytes(4, "big") + bytes(300))
    (tail,) = list_findings(segment)
    assert (tail["kind"], tail["fault"], tail["size"]) == ("info", "FILLER", 312)


def test_verify_checks_the_records_in_batches(tmp_path):
    path = tmp_path / "x.log"
    inner = bytearray(make_batch(10))
    inner[62 + 20] ^= 0x40  # in a record; the checksum is corrected below
    inner[17:21] = crc32c(bytes(inner[21:])).to_bytes(4, "big")
    inner[57:61] = (11).to_bytes(4, "big")  # the batch has one record fewer
    inner[17:21] = crc32c(bytes(inner[21:])).to_bytes(4, "big")
    path.write_bytes(make_batch(0) + inner)
    (damage,) = list_findings(path)
    assert damage["inside"] == "kafka.records"
    assert damage["offset"] == len(make_batch(0))
    assert run("verify", path).exit_code == 1
    assert run("verify", path, "--shallow").exit_code == 0


def test_verify_reports_damage_in_decompressed_bytes(tmp_path):
    path = tmp_path / "x.log"
    packed = bytearray(make_batch(0, codec="gzip"))
    packed[57:61] = (12).to_bytes(4, "big")
    packed[17:21] = crc32c(bytes(packed[21:])).to_bytes(4, "big")
    path.write_bytes(packed)
    (damage,) = list_findings(path)
    assert damage["fault"] == "BAD_COUNT"
    assert damage["offset"] == 0
    assert damage["inflated_offset"] > 500


def test_verify_reports_damage_in_headers(broken):
    (damage,) = list_findings(broken)
    assert (damage["fault"], damage["inside"]) == ("TRUNCATED", "kafka.headers")
    assert run("verify", broken).exit_code == 1


def test_verify_reports_offsets_out_of_order(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(make_batch(10) + make_batch(20) + make_batch(20) + make_batch(50))
    damage, gap = list_findings(path)
    assert damage["fault"] == "OFFSET_ORDER"
    assert damage["offset"] == 2 * len(make_batch(10))
    assert (gap["first"], gap["last"]) == (30, 49)
    assert run("verify", path, "--shallow").exit_code == 1


def test_segments_of_a_directory_continue_each_other(segment):
    (segment.parent / "00000000000000000110.log").write_bytes(make_batch(110))
    gap, missing = list_findings(segment.parent, "--log-only")
    assert gap["file"].endswith("110.log")
    assert (gap["first"], gap["last"]) == (100, 109)
    assert missing["fault"] == "MISSING_SEGMENT"
    assert (missing["lost_first"], missing["lost_last"]) == (100, 109)
    (segment.parent / "00000000000000000115.log").write_bytes(make_batch(115))
    assert list_findings(segment.parent, "--log-only")[1]["fault"] == "OFFSET_ORDER"


def test_verify_continues_after_a_file_that_it_cannot_read(segment, tmp_path):
    result = run("verify", tmp_path / "missing.log", segment)
    assert result.exit_code == 2
    assert "missing.log: no such file or directory" in result.stderr
    assert "1 file, 10 frames" in result.stdout


def test_every_mutation_is_reported(segment):
    batches = make_batches(4)
    data = b"".join(batches)
    draw = random.Random(7)
    for _ in range(60):
        bad = bytearray(data)
        at = draw.randrange(len(data))
        bad[at] ^= 1 << draw.randrange(8)
        segment.write_bytes(bad)
        start = max(
            sum(map(len, batches[:i])) for i in range(4) if sum(map(len, batches[:i])) <= at
        )
        covered = at - start >= 17 or at - start in range(
            8, 12
        )  # offset and epoch have no checksum
        result = run("verify", segment, "--json")
        assert result.exit_code in (0, 1)
        assert parse_lines(result)[-1]["frames"] >= 3
        if covered:
            assert result.exit_code == 1, at


# --- convert


def test_convert_writes_all_records(segment, tmp_path):
    out = tmp_path / "out"
    result = run("convert", segment.parent, out)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["records", "100"] in rows
    assert ["frames", "10"] in rows
    assert ["faults", "0"] in rows
    assert ["offset", "0", "to", "99"] in rows
    assert "top key    key 0 (40), key 1 (30), key 2 (30)" in result.stdout
    assert pq.read_table(out)["offset"].to_pylist() == list(range(100))


def test_convert_refuses_to_replace_other_files(segment, tmp_path):
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


def test_convert_of_damage_follows_the_mode(damaged, tmp_path):
    strict = run("convert", damaged, tmp_path / "strict")
    assert strict.exit_code == 1
    assert "BAD_CHECKSUM" in strict.stderr
    assert not list(tmp_path.glob("strict/*"))
    marked = run("convert", damaged, tmp_path / "marked", "--errors", "mark", "--json")
    report = json.loads(marked.stdout)
    assert marked.exit_code == 1
    assert report["faults"] == 1
    assert report["records"] == 91
    assert report["query"]["rows"] == 90
    assert run("convert", damaged, tmp_path / "skipped", "--errors", "skip").exit_code == 0


def test_convert_of_a_cut_tail(segment, tmp_path):
    segment.write_bytes(segment.read_bytes()[:-5])
    for errors in ("strict", "mark", "skip"):
        result = run("convert", segment, tmp_path / errors, "--errors", errors, "--json")
        report = json.loads(result.stdout)
        assert result.exit_code == 0
        assert result.stderr == f"wirescan: {make_tail_message(segment)}\n"
        assert report["records"] == 90
        assert report["frames"] == 9
        assert report["faults"] == 0
        assert report["tail"] == len(make_batches()[9]) - 5
    text = run("convert", segment, tmp_path / "text").stdout
    assert ["tail", str(len(make_batches()[9]) - 5)] in [line.split() for line in text.splitlines()]


def test_convert_of_an_empty_file_succeeds(tmp_path):
    path = tmp_path / "empty.log"
    path.touch()
    result = run("convert", path, tmp_path / "out", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["records"] == 0
    assert report["query"] is None
    assert pq.read_table(tmp_path / "out").num_rows == 0


def test_convert_of_standard_input(segment, tmp_path):
    result = run(
        "convert",
        "-",
        tmp_path / "out",
        "--json",
        "--format",
        "kafka.batches",
        input=segment.read_bytes(),
    )
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["records"] == 10
    assert report["query"]["commonest"] == {
        "column": "codec",
        "values": [[codec, 2] for codec in CODECS],
    }


def test_convert_to_directories_by_values(segment, tmp_path):
    out = tmp_path / "out"
    result = run("convert", segment, out, "--partition-by", "codec, timestamp:day", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["records"] == report["query"]["rows"] == 100
    assert report["query"]["offset"] == [0, 99]
    directories = {path.parent.parent.name for path in out.rglob("*.parquet")}
    assert directories == {f"codec={codec}" for codec in range(5)}
    assert report["bytes_written"] == sum(path.stat().st_size for path in out.rglob("*.parquet"))
    assert run("convert", segment, out, "--overwrite", "--partition-by", "key").exit_code == 0
    (out / "key=key 0" / "letters.txt").write_text("mine")
    refused = run("convert", segment, out, "--overwrite")
    assert refused.exit_code == 2
    assert "will not overwrite a directory that holds key=key 0/letters.txt" in refused.stderr
    for by in ("nothing", "offset:day", "codec,codec", "timestamp"):
        result = run("convert", segment, tmp_path / "none", "--partition-by", by)
        assert result.exit_code == 2
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "none").exists()


def test_convert_to_directories_by_faults_and_files(damaged, tmp_path):
    for by in ("_fault", "_file"):
        result = run(
            "convert",
            damaged,
            tmp_path / by,
            "--errors",
            "mark",
            "--columns",
            "offset,_fault",
            "--partition-by",
            by,
            "--json",
        )
        assert result.exit_code == 1
        assert json.loads(result.stdout)["query"]["rows"] == 91


def test_convert_lists_faults_in_a_table(damaged, tmp_path):
    for errors in ("mark", "skip"):
        result = run("convert", damaged, tmp_path / errors, "--errors", errors)
        assert f"{tmp_path / errors}.faults lists them" in result.stderr
        assert pq.read_table(tmp_path / f"{errors}.faults")["fault"].to_pylist() == ["BAD_CHECKSUM"]
        again = run("convert", damaged, tmp_path / errors, "--errors", errors, "--overwrite")
        assert again.exit_code == result.exit_code
        shutil.rmtree(tmp_path / errors)
        refused = run("convert", damaged, tmp_path / errors, "--errors", errors)
        assert refused.exit_code == 2
        assert f"{tmp_path / errors}.faults: the directory is not empty" in refused.stderr


@pytest.mark.spark
def test_engines_agree(segment, damaged, tmp_path):
    outputs = []
    for engine in ("local", "spark"):
        result = run(
            "convert", damaged.parent, tmp_path / engine, "--engine", engine, "--errors", "mark"
        )
        assert result.exit_code == 1
        assert "1 bad frame, marked" in result.stderr
        outputs.append(
            [
                line
                for line in result.stdout.splitlines()
                if engine not in line and "seconds" not in line
            ]
        )
    assert outputs[0] == outputs[1]
    assert pq.read_table(tmp_path / "local") == pq.read_table(tmp_path / "spark")
    assert pq.read_table(tmp_path / "local.faults") == pq.read_table(tmp_path / "spark.faults")
    strict = run("convert", damaged.parent, tmp_path / "strict", "--engine", "spark")
    assert strict.exit_code == 1
    assert "BAD_CHECKSUM" in strict.stderr
    assert "Traceback" not in strict.stderr


def test_an_error_of_spark_is_one_line(segment, tmp_path, monkeypatch):
    from unittest import mock

    from pyspark.errors import PySparkException

    from wirescan import spark

    monkeypatch.setattr(spark, "session", mock.MagicMock())
    monkeypatch.setattr(spark, "to_parquet", mock.Mock(side_effect=PySparkException("no\nroom")))
    result = run("convert", segment, tmp_path / "out", "--engine", "spark")
    assert result.exit_code == 2
    assert result.stderr == "wirescan: no room\n"


# --- tails


def run_all_verbs(path: Path, out: Path) -> dict[str, Result]:
    return {
        verb: run(verb, path, *([out / path.name, "--errors", "mark"] if verb == "convert" else []))
        for verb in ("scan", "stat", "verify", "convert")
    }


def test_every_verb_reports_a_cut_tail_and_only_verify_calls_it_damage(segment, tmp_path):
    segment.write_bytes(segment.read_bytes()[:-5])
    results = run_all_verbs(segment, tmp_path)
    codes = {verb: result.exit_code for verb, result in results.items()}
    assert codes == {"scan": 0, "stat": 0, "verify": 1, "convert": 0}
    for verb in ("scan", "stat", "convert"):
        assert results[verb].stderr == f"wirescan: {make_tail_message(segment)}\n"
    start = sum(map(len, make_batches()[:9]))
    size = segment.stat().st_size - start
    assert f"byte {start}, {size:,} bytes: SHORT" in results["verify"].stdout


@pytest.mark.parametrize(
    "data",
    [make_batch(0)[:40], b"hi", b"\xff" * 8 + (1 << 20).to_bytes(4, "big") + bytes(300)],
    ids=["header", "two bytes", "filler"],
)
def test_a_file_that_is_only_a_tail_is_damage(tmp_path, data):
    path = tmp_path / "x.log"
    path.write_bytes(data)
    for verb, result in run_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 1, verb
        if verb != "verify":
            assert f"tail: {len(data)} bytes, " in result.stderr
            assert "no frame before it" in result.stderr
    good = tmp_path / "good.log"  # frames of another file do not change that
    good.write_bytes(make_batch(0))
    assert run("scan", good, path).exit_code == run("stat", good, path).exit_code == 1
    assert run("convert", good, path, tmp_path / "both").exit_code == 1


def test_zeros_after_frames_are_no_damage(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(make_batch(0) + bytes(500))
    for verb, result in run_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 0, verb
        assert result.stderr == "", verb
        assert "empty" not in result.stdout, verb


@pytest.mark.parametrize("data", [b"", bytes(500)], ids=["empty", "zeros"])
def test_empty_files_are_reported_but_are_no_damage(tmp_path, data):
    path = tmp_path / "x.log"
    path.write_bytes(data)
    for verb, result in run_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 0, verb
        if verb != "verify":
            assert result.stderr == f"wirescan: empty: {path}\n", verb
    finding, _, summary = parse_lines(run("verify", path, "--json"))
    assert (finding["fault"], finding["size"], summary["empty"]) == ("EMPTY", len(data), 1)
    text = run("verify", path).stdout
    assert "the file is empty" in text
    assert text.endswith("bytes: empty\n")
    assert "clean" not in text
    (tmp_path / "y.log").write_bytes(make_batch(0))
    assert "clean, 1 file empty" in run("verify", path, tmp_path / "y.log").stdout


def test_a_file_without_frames_is_reported(tmp_path):
    path = tmp_path / "noise"
    path.write_bytes(b"\x01root:x:0:0:root:/root:/bin/bash\n" * 20)
    for verb, result in run_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 1, verb
        if verb != "convert":
            assert "NOT_A_FRAME" in result.stdout
    strict = run("convert", path, tmp_path / "strict")
    assert strict.exit_code == 1
    assert "not the beginning of any known frame" in strict.stderr


FOREIGN = {
    "text": (b"root:x:0:0:root:/root:/bin/bash\n" * 20, "text"),
    "utf8": ("größer ".encode() * 90, "text"),
    "parquet": (b"PAR1" + bytes(100), "Parquet"),
    "tar": (
        b"0.log".ljust(100, b"\0") + b"0000644\0" * 19 + b"00000" + b"ustar\x0000" + bytes(1000),
        "tar archive",
    ),
    "xz": (b"\xfd7zXZ\0" + bytes(100), "xz"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_files_of_other_kinds_are_recognised(tmp_path, segment, kind):
    data, description = FOREIGN[kind]
    path = tmp_path / "file"
    path.write_bytes(data)
    for verb, result in run_all_verbs(path, tmp_path / "out").items():
        assert result.exit_code == 2, verb
        assert result.stdout == "", verb
        assert result.stderr.startswith(f"wirescan: {path}: this is "), verb
        assert description in result.stderr, verb
        assert result.stderr.count("\n") == 1
    assert run("scan", path, "--format", "thrift.messages").exit_code == 2
    together = run("verify", path, segment)  # the other file is still verified
    assert together.exit_code == 2
    assert "100 records" in together.stdout
    if kind not in ("text", "utf8"):
        piped = run("verify", "-", input=data)
        assert piped.exit_code == 2
        assert description in piped.stderr
        packed = tmp_path / "packed.gz"
        packed.write_bytes(gzip.compress(data))
        assert description in run("scan", packed).stderr


def test_text_that_is_a_protocol_is_read(tmp_path):
    path = tmp_path / "x.nats"
    path.write_bytes(b"PUB a.subject 5\r\nhello\r\n" * 30)
    assert run("verify", path, "--format", "nats.messages").exit_code == 0


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_files_are_read(segment, tmp_path, codec):
    data = segment.read_bytes()
    packed = compress(codec, data)
    path = tmp_path / f"x.log.{codec}"
    path.write_bytes(packed + packed)  # two members, like the output of `cat a.gz b.gz`
    assert len(parse_lines(run("scan", path, "--json"))) == 200
    path.write_bytes(packed)
    assert "100 records" in run("verify", path).stdout
    assert run("verify", path).exit_code == 0
    assert json.loads(run("stat", path, "--json").stdout)["total"]["bytes"] == len(data)
    assert run("verify", "-", input=packed).exit_code == 0
    assert run("convert", path, tmp_path / "out").exit_code == 0
    assert pq.read_table(tmp_path / "out").num_rows == 100
    assert run("index", path).exit_code == 2
    path.write_bytes(packed[:-9])
    for verb, result in run_all_verbs(path, tmp_path / "cut").items():
        assert result.exit_code == 1, verb
        assert "cut" in result.stdout + result.stderr, verb


def test_the_ratio_of_a_compressed_file_is_bounded(tmp_path):
    path = tmp_path / "bomb.zst"
    path.write_bytes(compress("zstd", bytes(64 << 20)))
    result = run("scan", path)
    assert result.exit_code == 1
    assert "more than 2,000 times" in result.stderr


# --- files, streams and terminals


@pytest.mark.parametrize("verb", ["scan", "stat", "verify", "convert"])
def test_unreadable_input_is_one_line_and_exit_code_2(verb, tmp_path):
    (tmp_path / "empty").mkdir()
    more = [tmp_path / "out"] if verb == "convert" else []
    for path in (tmp_path / "missing.log", tmp_path / "empty", tmp_path / "none*.log"):
        result = run(verb, path, *more)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("wirescan: ")
        assert result.stderr.count("\n") == 1
    assert run(verb).exit_code == 2
    assert run(verb, tmp_path, *more, "--format", "kafka.nothing").exit_code == 2
    assert run(verb, tmp_path, *more, "--nothing").exit_code == 2


def test_an_unknown_column_lists_the_columns(segment):
    result = run("scan", segment, "--columns", "offset,nothing")
    assert result.exit_code == 2
    assert "timestamp" in result.stderr
    assert run("scan", segment, "--columns", "key,key").exit_code == 2
    assert run("scan", segment, "--columns", ",").exit_code == 2


def test_globs_and_their_expansion_by_a_shell(segment):
    assert run("verify", segment.parent / "*").exit_code == 0
    result = run("verify", *sorted(segment.parent.iterdir()))
    assert result.exit_code == 0
    assert "skipped 2 files" in result.stderr
    # A single file is always read. This index holds only zeros, which are no damage.
    assert run("verify", segment.with_suffix(".index")).exit_code == 0
    others = [*segment.parent.glob("*.index"), segment.parent / "partition.metadata"]
    assert run("scan", *others).exit_code == 2


def test_files_are_skipped_by_their_names_and_not_by_their_directory(segment, tmp_path):
    folder = tmp_path / "x-delete"
    folder.mkdir()
    for number in (0, 10):
        (folder / f"{number:020}.log").write_bytes(make_batch(number))
    result = run("verify", *sorted(folder.iterdir()))
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "2 files" in result.stdout
    assert "2 files" in run("verify", folder / "*.log").stdout
    moved = segment.parent.with_name("orders-0.ab-delete")  # a shell expands */*.log to it
    moved.mkdir()
    (moved / SEGMENT).write_bytes(make_batch(0))
    assert "skipped 1 file " in run("verify", segment, moved / SEGMENT).stderr


def test_verbs_accept_file_urls(segment):
    for url in (segment.parent.as_uri(), segment.as_uri(), segment.parent.as_uri() + "/*.log"):
        assert "1 file, 10 frames" in run("verify", url).stdout


def test_an_unwritable_path_is_named(segment, tmp_path):
    (tmp_path / "file").touch()
    out = tmp_path / "none" / "out.jsonl"
    assert run("scan", segment, "-o", out).stderr == f"wirescan: {out}: no such file or directory\n"
    for out in (tmp_path / "file" / "out", tmp_path / "file" / "deep" / "out"):
        result = run("convert", segment, out)
        assert result.exit_code == 2
        assert result.stderr == f"wirescan: {out}: not a directory\n"


@pytest.mark.slow
def test_a_closed_pipe_is_quiet(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(make_batch(1000 * i, 1000) for i in range(20)))
    process = start_command("scan", path)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(20) == 141


def wait_until_it_waits(process: subprocess.Popen) -> None:
    """Wait until a process has read all of its input and sleeps."""
    deadline = time.monotonic() + 60
    quiet, used_before = 0, None
    while quiet < 5:
        assert time.monotonic() < deadline, "the process does not wait for input"
        (waiting_bytes,) = struct.unpack(
            "i", fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4))
        )
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        state, used = fields[0], fields[11:13]  # CPU time in user and system mode
        is_quiet = not waiting_bytes and state == "S" and used == used_before
        quiet = quiet + 1 if is_quiet else 0
        used_before = used
        time.sleep(0.02)


def test_interrupt_ends_the_command(tmp_path):
    # A shell that runs pytest in the background ignores the signal, and child processes inherit
    # that.
    process = start_command(
        "scan",
        "-",
        stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    process.stdin.write(make_batch(0))
    process.stdin.flush()
    wait_until_it_waits(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read().strip() == b"wirescan: interrupted"


def run_in_shell(redirected: str, *arguments: object) -> tuple[int, bytes, bytes]:
    """Run the command in a shell with redirections. Return exit code, output and messages."""
    result = subprocess.run(
        [
            "sh",
            "-c",
            f'exec "$@" {redirected}',
            "sh",
            sys.executable,
            "-m",
            "wirescan",
            *map(str, arguments),
        ],
        capture_output=True,
        env=make_environment(),
        timeout=60,
    )
    return result.returncode, result.stdout, result.stderr


# Starting a process takes a third of a second. So the default run tests each command with one
# redirection. The slow run tests every pair.
NO_SPACE = (">/dev/full", b"wirescan: no space left on device\n")
CLOSED = ("<&- >&-", b"wirescan: bad file descriptor\n")
ALL_CLOSED = ("<&- >&- 2>&-", b"")
UNWRITABLE = {
    ("scan", "{}"): CLOSED,
    ("scan", "{}", "--json"): NO_SPACE,
    ("scan", "{}", "--arrow"): NO_SPACE,
    ("stat", "{}"): ALL_CLOSED,
    ("stat", "{}", "--json"): NO_SPACE,
    ("verify", "{}"): CLOSED,
    ("verify", "{}", "--json"): NO_SPACE,
    ("formats",): NO_SPACE,
    ("--help",): CLOSED,
    ("--version",): ALL_CLOSED,
    ("scan", "--help"): NO_SPACE,
}


QUICK = [("scan", "{}"), ("stat", "{}"), ("verify", "{}", "--json"), ("--help",)]
FAST_REDIRECTIONS = [("<&- 2>&-", "good"), ("2>/dev/full", "no file"), ("2>&-", "no option")]


def mark_slow_unless(is_fast: bool, *values: object):
    return pytest.param(*values, marks=[] if is_fast else [pytest.mark.slow])


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, redirection",
    [
        mark_slow_unless(redirection == fast and arguments in QUICK, arguments, redirection)
        for arguments, fast in UNWRITABLE.items()
        for redirection in (NO_SPACE, CLOSED, ALL_CLOSED)
    ],
)
def test_output_that_cannot_be_written_is_one_line(segment, arguments, redirection):
    redirected, message = redirection
    arguments = [argument.format(segment) for argument in arguments]
    assert run_in_shell(redirected, *arguments) == (2, b"", message)


@pytest.mark.slow
@pytest.mark.parametrize(
    "redirected, command",
    [
        mark_slow_unless((redirected, command) in FAST_REDIRECTIONS, redirected, command)
        for redirected in ("<&-", "2>&-", "<&- 2>&-", "2>/dev/full")
        for command in ("good", "no file", "no option")
    ],
)
def test_unneeded_streams_may_be_closed_or_full(segment, tmp_path, redirected, command):
    if command == "good":
        code, out, messages = run_in_shell(redirected, "scan", segment, "--json")
        assert (code, out.count(b"\n"), messages) == (0, 100, b"")
    elif command == "no file":
        assert run_in_shell(redirected, "scan", tmp_path / "none.log")[:2] == (2, b"")
    else:
        assert run_in_shell(redirected, "scan", "--nothing")[:2] == (2, b"")


@pytest.mark.slow
def test_an_output_file_is_not_given_the_number_of_a_closed_stream(segment, tmp_path):
    out = tmp_path / "out.jsonl"
    assert run_in_shell("<&- >&- 2>&-", "scan", segment, "-o", out)[0] == 0
    assert out.read_bytes().count(b"\n") == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", [mark_slow_unless(verb == "scan", verb) for verb in ("scan", "stat", "verify")]
)
def test_closed_standard_input_is_reported(verb):
    code, out, messages = run_in_shell("<&-", verb, "-")
    assert code == 2
    assert messages.count(b"\n") == 1
    assert b"bad file descriptor" in messages


@pytest.mark.slow
@pytest.mark.parametrize(
    "module, error, code, message",
    [
        ("wirescan.cli.main", KeyboardInterrupt, 130, "interrupted"),
        ("wirescan.cli.verbs.scan", KeyboardInterrupt, 130, "interrupted"),
        ("click", ModuleNotFoundError("no click"), 2, "no click: pip install 'wirescan[cli]'"),
    ],
)
@pytest.mark.parametrize("argument", ["--help", "scan"])
def test_an_error_during_import_is_reported(module, error, code, message, argument):
    raised = error if isinstance(error, type) else f"{type(error).__name__}('{error}')"
    script = (
        "import runpy, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: raise {getattr(raised, '__name__', raised)}\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"sys.argv = ['wirescan', {argument!r}]\n"
        "runpy.run_module('wirescan', run_name='__main__')"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], env=make_environment(), capture_output=True, text=True
    )
    assert (result.returncode, result.stderr.strip()) == (code, f"wirescan: {message}")
    assert result.stdout == ""


def run_on_terminal(*arguments: object, columns: int = 80, **extra: str) -> tuple[int, bytes]:
    """Run the command with a terminal for output and messages. Return exit code and output."""
    terminal, other = pty.openpty()
    process = start_command(
        *arguments, stdout=other, stderr=other, env=make_environment(COLUMNS=str(columns), **extra)
    )
    os.close(other)
    out = b""
    try:
        while data := os.read(terminal, 65536):
            out += data
    except OSError:  # the other end is closed
        os.close(terminal)
    return process.wait(20), out.replace(b"\r\n", b"\n")


@pytest.mark.slow
def test_a_terminal_gets_lines_of_its_width_and_no_binary(damaged):
    code, out = run_on_terminal("scan", damaged, "--limit", "3", NO_COLOR="1")
    rows = out.decode().splitlines()
    assert code == 0
    assert len(rows) == 4
    assert all(len(row) <= 80 for row in rows)
    assert rows[1].endswith("…")
    code, out = run_on_terminal("scan", damaged, "--arrow")
    assert code == 2
    assert b"terminal" in out
    assert b"ARROW" not in out


@pytest.mark.slow
def test_color_is_only_for_terminals(damaged):
    assert b"\x1b[" in run_on_terminal("verify", damaged)[1]
    assert b"\x1b" not in run_on_terminal("verify", damaged, NO_COLOR="1")[1]
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
    output = b""
    # A read returns a part of the output. The last read fails because the other end is closed.
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 1 << 16):
            output += data
    os.close(terminal)
    assert b"counting" in output


# --- text


def test_text_that_is_safe_to_print():
    assert escape_text("plain \u00fc \U0001f600") == "plain \u00fc \U0001f600"
    assert escape_text("a\x1b\\\n\u202e\udcff\U000e0001") == r"a\x1b\\\n\u202e\xff\U000e0001"
    assert escape_bytes(bytes(range(256))).isascii()
    assert escape_bytes(bytes(range(256))).isprintable()
    assert encode(b"a\xff", "utf8") == "a\ufffdff"


# --- streams of the protocol

STREAM = str(CORPUS / "kafka-streams" / "java-4" / "group-1.requests.bin")


def test_streams_of_the_protocol():
    result = run("scan", STREAM, "--format", "kafka.requests")
    assert result.exit_code == 0
    assert "list_offsets" in result.stdout
    assert "consumer-orders-java" in result.stdout
    result = run("scan", STREAM, "--format", "kafka.fetch_request.partitions", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows
    assert all(row["fault"] is None and "topic_id" in row and "fetch_offset" in row for row in rows)
    assert run("verify", STREAM, "--format", "kafka.requests").exit_code == 0
    assert run("stat", STREAM, "--format", "kafka.requests").exit_code == 0
    assert run("stat", STREAM, "--format", "kafka.requests", "--deep").exit_code == 2


def test_damage_in_a_body_is_reported(tmp_path):
    raw = bytearray(Path(STREAM).read_bytes())
    raw[-1] ^= 1  # the count of tagged fields at the end of the last request
    (tmp_path / "damaged.bin").write_bytes(raw)
    result = run("verify", str(tmp_path / "damaged.bin"), "--format", "kafka.requests")
    assert result.exit_code == 1
    assert "TRUNCATED" in result.stdout


def test_keys_that_look_like_those_of_an_internal_topic_are_no_damage(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(
        encode_batch([Record(key=bytes([0, version, 9]), value=b"\0\1x") for version in range(3)])
    )
    result = run("verify", str(path))
    assert result.exit_code == 0, result.stdout


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
    used = {name for name, names in extras.items() if names - {"all", "test", "testing", "peers"}}
    assert used == set(DEPENDENCIES)


@pytest.mark.slow
def test_version_imports_none_of_the_optional_dependencies() -> None:
    script = (
        "import sys\n"
        "from wirescan.cli.main import main\n"
        "try: main(['--version'])\n"
        "except SystemExit: pass\n"
        "optional = {'pyarrow', 'pyspark', 'pandas', 'rich', 'grpc', 'nats', 'thrift'}\n"
        "print(sorted(optional & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=make_environment()
    )
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_thousands_of_paths_are_resolved_in_linear_time(tmp_path):
    paths = [str(tmp_path / f"{number:020}.log") for number in range(4000)]
    for path in paths:
        Path(path).touch()
    format = wirescan.formats()["kafka.records"]

    assert_linear(lambda: resolve_paths(paths[:500], format), lambda: resolve_paths(paths, format))


def test_paths_are_printed_without_the_login_of_a_url():
    url = "s3://me:hidden@bucket/0.log?region=eu&secret_key=hidden"
    assert name_path(url) == format_path(url) == "s3://bucket/0.log"
    assert name_path("a?b=1") == "a?b=1"
    assert name_path("-") == "(standard input)"
