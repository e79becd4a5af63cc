"""Commands without --format find the format in the files, and `wirescan detect` says why."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS, ORDERS
from wirescan import kafka, lumberjack, nats, thrift

LIFTBRIDGE = CORPUS / "liftbridge" / "single" / "logs" / "orders-0"
SEGMENT = "00000000000000000000.log"
EVENTS = lumberjack.encode_batch([{"message": "hello", "n": n} for n in range(5)])
STREAMS = {
    "events.lumberjack": (EVENTS, "lumberjack.frames", "lumberjack.events", 5),
    "events.bin": (EVENTS, "lumberjack.frames", "lumberjack.events", 5),
    "pubs.bin": (nats.encode_pub("a", b"x") * 7, "nats.messages", "nats.messages", 7),
    "calls.bin": (
        thrift.encode_framed(thrift.encode_message("add", 1, 7)) * 3,
        "thrift.frames",
        "thrift.messages",
        3,
    ),
    "requests.bin": (
        kafka.encode_request("ApiVersions", 0) * 4,
        "kafka.requests",
        "kafka.requests",
        4,
    ),
}


@pytest.fixture(params=STREAMS)
def stream(request, tmp_path):
    """A file, the format of its frames, the format inside them, and the number of those."""
    data, outermost, inner, count = STREAMS[request.param]
    path = tmp_path / request.param
    path.write_bytes(data)
    return path, outermost, inner, count


@pytest.fixture
def log(tmp_path):
    """A copy of a Kafka log."""
    copy = tmp_path / "orders-0"
    shutil.copytree(ORDERS, copy)
    return copy


# --- verbs without --format


def test_scan_reads_what_is_inside_the_frames(stream):
    path, _, inner, count = stream
    result = run("scan", path, "--json")
    assert (result.exit_code, len(parse_lines(result))) == (0, count)
    assert result.stdout == run("scan", path, "--json", "--format", inner).stdout
    assert result.stderr.startswith(f"wirescan: {path} is read as {inner} (--format chooses")


def test_convert_reads_what_is_inside_the_frames(stream, tmp_path):
    path, _, inner, count = stream
    result = run("convert", path, tmp_path / "out", "--no-query")
    assert (result.exit_code, f"is read as {inner} " in result.stderr) == (0, True)
    assert pq.read_table(tmp_path / "out").num_rows == count


@pytest.mark.parametrize("verb", ["stat", "verify"])
def test_stat_and_verify_read_outermost_frames(stream, verb):
    path, outermost, _, _ = stream
    result = run(verb, path, "--json")
    assert (result.exit_code, f"is read as {outermost} " in result.stderr) == (0, True)
    assert result.stdout == run(verb, path, "--json", "--format", outermost).stdout


def test_report_and_index_read_outermost_frames(stream, tmp_path):
    path, outermost, _, _ = stream
    for arguments in (("report", path, "--markdown", "-o", tmp_path / "a.md"), ("index", path)):
        result = run(*arguments)
        assert (result.exit_code, f"is read as {outermost} " in result.stderr) == (0, True)
    sidecar = json.loads(Path(f"{path}.frames.json").read_text())
    assert sidecar["format"] == outermost


def test_a_directory_of_received_events(tmp_path):
    events = tmp_path / "events"
    events.mkdir()
    for number in range(3):
        (events / f"{number:020}.lumberjack").write_bytes(EVENTS)
    (events / "_open.lumberjack").write_bytes(b"?")
    result = run("scan", events, "--json")
    assert (result.exit_code, len(parse_lines(result))) == (0, 15)
    assert "is read as lumberjack.events" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [("scan", "--limit", "3", "--json"), ("stat", "--json"), ("verify", "--json")],
    ids=lambda arguments: arguments[0],
)
def test_a_log_of_liftbridge(arguments):
    verb, *options = arguments
    result = run(verb, LIFTBRIDGE, *options)
    assert result.stdout == run(verb, LIFTBRIDGE, *options, "--format", "liftbridge.entries").stdout
    assert (result.exit_code, "is read as liftbridge.entries" in result.stderr) == (0, True)


def test_verbs_for_logs_find_the_format_too(tmp_path):
    assert run("diff", LIFTBRIDGE, LIFTBRIDGE).stdout == "equal\n"
    assert run("salvage", LIFTBRIDGE, "--to", tmp_path / "repaired").exit_code == 0
    result = run("cut", LIFTBRIDGE, "--offset", "3:5", "-o", tmp_path / "part.log")
    assert (result.exit_code, "2 frames" in result.stderr) == (0, True)


def test_a_log_of_kafka_needs_no_message(log):
    assert run("scan", log, "--limit", "1").stderr == ""
    assert run("stat", log, "--total").stderr == ""
    assert run("scan", *sorted(log.iterdir()), "--limit", "1").stderr == (
        "wirescan: skipped 31 files without frames, such as indexes\n"
    )


def test_an_option_of_a_format_selects_it(tmp_path):
    idl = tmp_path / "calc.thrift"
    idl.write_text("service Calc { i32 add(1: i32 a) }")
    path = tmp_path / "calls.bin"
    arguments = b"\x08\0\1\0\0\0\7\0"
    path.write_bytes(thrift.encode_framed(thrift.encode_message("add", 1, 7, arguments)) * 3)
    result = run("scan", path, "--idl", idl, "--json")
    assert [row["call"] for row in parse_lines(result)] == ["add(a: 7)"] * 3


# --- pipes and compressed files


@pytest.mark.parametrize("data", [EVENTS, gzip.compress(EVENTS)], ids=["plain", "gzip"])
def test_standard_input_loses_no_bytes(data):
    result = run("scan", "-", "--json", input=data)
    assert (result.exit_code, len(parse_lines(result))) == (0, 5)
    assert "(standard input) is read as lumberjack.events" in result.stderr
    assert json.loads(run("stat", "-", "--json", input=data).stdout)["total"]["bytes"] == len(
        EVENTS
    )


def test_large_standard_input_loses_no_bytes():
    data = nats.encode_pub("a", bytes(3 << 20)) + nats.encode_pub("b", b"x")
    rows = parse_lines(run("scan", "-", "--json", "--format", "nats.messages", input=data))
    assert [row["subject"] for row in rows] == ["a", "b"]
    # The first frame is larger than what is looked at, so the format is not found.
    result = run("stat", "-", "--json", input=data)
    assert json.loads(result.stdout)["total"]["bytes"] == len(data)


def test_another_standard_input_has_its_own_bytes():
    result = run("scan", "-", "--columns", "nothing", input=EVENTS)  # ends before it reads
    assert "is read as lumberjack.events" in result.stderr
    for options in ((), ("--format", "nats.messages")):
        result = run("scan", "-", "--json", *options, input=nats.encode_pub("a", b"x"))
        assert [row["payload"] for row in parse_lines(result)] == ["x"]
        run("scan", "-", "--columns", "nothing", input=EVENTS)


def test_a_named_pipe_loses_no_bytes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(EVENTS * 1000,))
    writer.start()
    result = run("scan", pipe, "--json")
    writer.join()
    assert (result.exit_code, len(parse_lines(result))) == (0, 5_000)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_files_are_looked_into(tmp_path, codec):
    path = tmp_path / "events.gz"
    path.write_bytes(
        gzip.compress(EVENTS * 500)
        if codec == "gzip"
        else pa.Codec("zstd").compress(EVENTS * 500, asbytes=True)
    )
    result = run("scan", path, "--json")
    assert (result.exit_code, len(parse_lines(result))) == (0, 2_500)
    assert "is read as lumberjack.events" in result.stderr


def test_a_decompression_bomb_is_not_decompressed(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(200 << 20)))
    result = run("detect", path)
    assert (result.exit_code, "no format fits" in result.stdout) == (1, True)


def test_index_does_not_wait_for_standard_input():
    result = run("index", "-", input=EVENTS)
    assert (result.exit_code, "cannot be indexed" in result.stderr) == (2, True)


# --- damaged and foreign files


@pytest.mark.parametrize(
    "data",
    [b"", bytes(5_000), np.random.default_rng(1).bytes(5_000), b"\xff" * 100],
    ids=["empty", "zeros", "random", "ones"],
)
@pytest.mark.parametrize("name", [SEGMENT, "unnamed.bin"])
def test_files_without_frames_are_read_as_kafka(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    for verb in ("scan", "stat", "verify"):
        result = run(verb, path)
        format = "kafka.records" if verb == "scan" else "kafka.batches"
        expected = run(verb, path, "--format", format)
        assert (result.exit_code, result.output) == (expected.exit_code, expected.output)


@pytest.mark.parametrize("name", [SEGMENT, "unnamed.bin"])
def test_a_damaged_beginning_is_read_as_kafka(tmp_path, name):
    data = bytearray((ORDERS / SEGMENT).read_bytes())
    data[:5_000] = np.random.default_rng(1).bytes(5_000)
    path = tmp_path / name
    path.write_bytes(data)
    result = run("stat", path, "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert json.loads(result.stdout)["total"]["frames"] > 10


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PAR1" + bytes(500), "this is a Parquet file"),
        (b"a line of text\n" * 50, "this is text, not kafka.batches"),
        (b"PK\3\4" + bytes(500), "this is a zip archive"),
    ],
)
def test_foreign_files_are_described_as_before(tmp_path, data, message):
    path = tmp_path / "foreign"
    path.write_bytes(data)
    for verb in ("scan", "stat", "verify"):
        result = run(verb, path)
        assert (result.exit_code, message in result.stderr) == (2, True)


def test_a_capture_that_holds_batches_is_a_capture():
    path = CORPUS / "pcap" / "kafka.pcap"
    assert "is read as pcap.blocks" in run("verify", path).stderr
    assert "is read as kafka.requests" in run("scan", path).stderr
    assert run("detect", path).stdout.splitlines()[1].split()[:2] == ["certain", "pcap.blocks,"]
    result = run("stat", path, "--format", "kafka.redpanda_batches")
    assert (result.exit_code, "captures do not have them" in result.stderr) == (2, True)


# --- doubt


def test_a_mixed_directory_is_in_doubt(tmp_path):
    (tmp_path / "a.lumberjack").write_bytes(EVENTS)
    (tmp_path / "b.nats").write_bytes(nats.encode_pub("a", b"x"))
    result = run("scan", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the format is in doubt" in result.stderr
    assert "files of several formats" in result.stderr
    assert "Give --format lumberjack.events or --format nats.messages" in result.stderr
    result = run("stat", tmp_path)
    assert "Give --format lumberjack.frames or --format nats.messages" in result.stderr
    assert run("scan", tmp_path, "--format", "nats.messages").exit_code == 0


def test_weak_bytes_are_in_doubt(tmp_path):
    path = tmp_path / "counted.bin"
    frames = [(20).to_bytes(4, "big") + n.to_bytes(4, "big") + bytes(16) for n in range(90)]
    path.write_bytes(b"".join(frames))
    result = run("stat", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "It may be kafka.responses (90 frames in all 2,160 bytes" in result.stderr
    assert run("stat", path, "--format", "kafka.responses").exit_code == 0


def test_paths_of_different_formats_are_in_doubt(tmp_path, log):
    (tmp_path / "b.bin").write_bytes(nats.encode_pub("a", b"x"))
    result = run("scan", log, tmp_path / "b.bin")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{log} holds kafka.batches, {tmp_path / 'b.bin'} holds nats.messages" in result.stderr


def test_paths_without_frames_do_not_disagree(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"")
    (tmp_path / "b.bin").write_bytes(nats.encode_pub("a", b"x"))
    result = run("scan", tmp_path / "a.bin", tmp_path / "b.bin", "--json")
    assert (result.exit_code, len(parse_lines(result))) == (0, 1)


def test_a_directory_without_usual_names_says_how_to_read_it(tmp_path):
    (tmp_path / "b.bin").write_bytes(nats.encode_pub("a", b"x"))
    result = run("scan", tmp_path)
    assert (result.exit_code, "name the files, or use a glob" in result.stderr) == (2, True)
    result = run("scan", f"{tmp_path}/*", "--json")
    assert (result.exit_code, len(parse_lines(result))) == (0, 1)


def test_a_given_format_is_used_and_another_one_is_hinted_at(tmp_path):
    path = tmp_path / "b.bin"
    path.write_bytes(nats.encode_pub("a", b"x"))
    result = run("stat", path, "--format", "kafka.batches")
    assert result.exit_code == 1
    assert (
        "the files are read as kafka.batches; they may hold nats.messages (--format)"
        in result.stderr
    )


def test_a_missing_path_is_reported_once(tmp_path):
    result = run("scan", tmp_path / "nothing")
    assert result.exit_code == 2
    assert result.stderr == f"wirescan: {tmp_path / 'nothing'}: no such file or directory\n"


# --- wirescan detect


def test_detect_lists_formats_and_reasons(stream):
    path, outermost, inner, _ = stream
    result = run("detect", path)
    lines = result.stdout.splitlines()
    inside = "" if inner == outermost else f", with {inner} inside"
    assert (result.exit_code, lines[0]) == (0, str(path))
    assert lines[1].startswith(f"  certain   {outermost}{inside}: ")


def test_detect_as_json(log, tmp_path):
    (tmp_path / "notes.txt").write_text("text")
    result = run("detect", log, tmp_path / "notes.txt", "--json")
    first, second = parse_lines(result)
    assert result.exit_code == 1
    assert (first["found"], first["formats"][0]["format"]) == (True, "kafka.batches")
    assert first["formats"][0]["reason"].endswith("their checksums are right")
    assert second == {"path": str(tmp_path / "notes.txt"), "found": False, "formats": []}


def test_detect_reads_standard_input():
    result = run("detect", "-", input=EVENTS)
    assert (result.exit_code, "lumberjack.frames" in result.stdout) == (0, True)


def test_detect_in_doubt(tmp_path):
    path = tmp_path / SEGMENT
    path.write_bytes(b"")
    result = run("detect", path)
    assert result.exit_code == 1
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [
        ["named", "kafka.batches,"],
        ["named", "liftbridge.entries:"],
    ]
    assert "it is empty" in result.stdout
    path.with_suffix(".timeindex").write_bytes(bytes(24))
    assert run("detect", path).exit_code == 0


def test_detect_of_a_path_that_cannot_be_read(tmp_path, log):
    result = run("detect", tmp_path / "nothing", log)
    assert (result.exit_code, "no such file" in result.stderr) == (2, True)
    assert "kafka.batches" in result.stdout
