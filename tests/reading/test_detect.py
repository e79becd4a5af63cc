"""`wirescan.detect`: which format bytes, files and directories have."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import wirescan
from tests.support.captures import CAPTURES, FORMATS
from tests.support.command import parse_lines, run
from tests.support.paths import CORPUS, ORDERS
from tests.support.slowness import SLOWNESS
from wirescan import kafka, liftbridge, lumberjack, nats, pcap, thrift
from wirescan.frames import registry
from wirescan.reading.detect import CERTAIN, HEADS, detect_path
from wirescan.testing.cost import measure_cpu_seconds

LIFTBRIDGE_LOGS = CORPUS / "liftbridge" / "single" / "logs"
VECTORS = CORPUS / "lumberjack" / "vectors"
SEGMENT = "00000000000000000000.log"
# Streams that nothing identifies without their name, and why.
UNKNOWN = {
    "not-strict": "messages without a version word: --non-strict",
    "as-0.8.2": "responses without ApiVersions",
    "as-0.9-": "responses without ApiVersions",
    "refused-line": "a line above the server's limit that does not end",
    "refused-payload": "a publication without its payload",
    "refused-unknown": "an operation that does not exist",
    "lumberjack-protocol-endless.acks": "empty",
}


def name_expected_format(path: Path) -> str | None:
    """Return the format of a file of the corpus by its place; None for a file without frames."""
    folder = path.relative_to(CORPUS).parts[0]
    if folder == "kafka-aiven-storage" and "plain" not in path.parts:
        return None  # the bytes of these files are no frames: other files say how to decrypt them
    if path.suffix == ".theader":
        return "thrift.frames"
    if folder == "kafka-streams" and path.suffix == ".bin":
        return "kafka." + path.name.split(".")[-2]
    if path.suffix == ".bytes":
        to_server, to_client = FORMATS[path.name.split("-")[0]]
        return to_client if ".server." in path.name else to_server
    if folder == "kafka-backup" and path.suffix != ".json":
        return "kafka.kbak_segments"
    if folder == "kafka-connect-backup" and path.name.endswith("_records"):
        return "kafka.connect_backup_records"
    if path.suffix == ".bin" and path.parent != CORPUS / "kafka-hostile":
        names = {"kafka": "kafka.batches", "lumberjack": "lumberjack.frames"}
        return names.get(folder, "nats.messages")
    if path.suffix in (".log", ".checkpoint"):
        return "liftbridge.entries" if folder == "liftbridge" else "kafka.batches"
    return None


FILES = [
    path
    for path in sorted(CORPUS.rglob("*"))
    if path.is_file() and not (path.parent == CAPTURES and "pcap" in path.suffix)
]
STREAMS = [path for path in FILES if name_expected_format(path)]
KNOWN = [path for path in STREAMS if not any(part in path.name for part in UNKNOWN)]


def name_certain_format(source) -> str | None:
    """Return the name of the certain format of a source, if there is one."""
    candidates = wirescan.detect(source)
    assert [candidate.verdict for candidate in candidates[1:]].count("certain") == 0
    return candidates[0].format if candidates and candidates[0].verdict == "certain" else None


# --- the corpus


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: str(path.relative_to(CORPUS)))
def test_recorded_bytes_have_their_format_without_a_name(path):
    assert name_certain_format(path.read_bytes()) == name_expected_format(path)


@pytest.mark.parametrize("path", KNOWN[::7], ids=lambda path: str(path.relative_to(CORPUS)))
def test_recorded_files_have_their_format(path):
    assert name_certain_format(path) == name_expected_format(path)


@pytest.mark.parametrize("path", sorted(set(STREAMS) - set(KNOWN)), ids=lambda path: path.name)
def test_unknown_bytes_are_taken_for_no_other_format(path):
    assert name_certain_format(path.read_bytes()) in (None, name_expected_format(path))


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path not in STREAMS and path.parent != CORPUS / "kafka-hostile"],
    ids=lambda path: str(path.relative_to(CORPUS)),
)
def test_indexes_checkpoints_and_text_have_no_format(path):
    assert wirescan.detect(path.read_bytes()) == []


@pytest.mark.parametrize(
    ("folder", "format", "inner"),
    [
        (ORDERS, "kafka.batches", "kafka.records"),
        (CORPUS / "kafka" / "live-0", "kafka.batches", "kafka.records"),
        (LIFTBRIDGE_LOGS, "liftbridge.entries", "liftbridge.entries"),
        (LIFTBRIDGE_LOGS / "orders-0", "liftbridge.entries", "liftbridge.entries"),
        (CORPUS / "thrift", "thrift.frames", "thrift.messages"),
        (CORPUS / "thrift-go", "thrift.frames", "thrift.messages"),
        (CORPUS / "lumberjack" / "recorded", "lumberjack.frames", "lumberjack.events"),
        (CORPUS / "nats" / "recorded", "nats.messages", "nats.messages"),
    ],
)
def test_directories_have_the_format_of_their_files(folder, format, inner):
    first = wirescan.detect(folder)[0]
    assert (first.format, first.inner, first.verdict) == (format, inner, "certain")


def test_the_reason_names_frames_bytes_and_evidence():
    path = LIFTBRIDGE_LOGS / "orders-0" / SEGMENT
    assert wirescan.detect(path)[0].reason == (
        "20 frames in all 3,590 bytes; their checksums are right"
    )
    reason = wirescan.detect(ORDERS / SEGMENT)[0].reason
    assert re.match("[0-9]+ frames in the first [0-9,]+ bytes; their checksums are right", reason)


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.json")), ids=lambda path: path.stem)
def test_lumberjack_vectors_are_lumberjack_or_nothing(path):
    stream = bytes.fromhex(json.loads(path.read_text())["stream"])
    assert name_certain_format(stream) in (None, "lumberjack.frames")


@pytest.mark.parametrize("name", ["tls-hello", "http-request", "syslog-line"])
def test_other_protocols_have_no_format(name):
    stream = bytes.fromhex(json.loads((VECTORS / f"{name}.json").read_text())["stream"])
    assert name_certain_format(stream) is None


# --- encoders

KEYS = [b"customer-%d" % number for number in range(20)]
ENCODED = {
    "one batch": ("kafka.batches", kafka.encode_batch([{"key": b"k", "value": b"v"}])),
    "batches": ("kafka.batches", kafka.encode_batches(KEYS, keys=KEYS, codec="gzip")),
    "message set": (
        "kafka.batches",
        kafka.encode_message_set([{"key": b"k", "value": b"v"}], magic=1),
    ),
    "one request": ("kafka.requests", kafka.encode_request("ApiVersions", 0)),
    "metadata": (
        "kafka.requests",
        kafka.encode_request("ApiVersions", 3) + kafka.encode_request("Metadata", 9),
    ),
    "window": ("lumberjack.frames", lumberjack.encode_window(20)),
    "ack": ("lumberjack.frames", lumberjack.encode_ack(7)),
    "one event": ("lumberjack.frames", lumberjack.encode_json(1, {"message": "hello"})),
    "data": ("lumberjack.frames", lumberjack.encode_data(1, {"line": "hello"})),
    "events": ("lumberjack.frames", lumberjack.encode_batch([{"n": 1}, {"n": 2}])),
    "pub": ("nats.messages", nats.encode_pub("orders", b"hello")),
    "msg": ("nats.messages", nats.encode_msg("orders", "1", b"hello")),
    "pubs": ("nats.messages", bytes(nats.encode_pubs("orders", KEYS))),
    "one entry": ("liftbridge.entries", liftbridge.encode_entry(0, 1, 1, b"k", b"v")),
    "entries": (
        "liftbridge.entries",
        bytes(liftbridge.encode_entries(0, np.arange(20), 1, KEYS, KEYS)),
    ),
    "pcap": ("pcap.blocks", pcap.encode_pcap([(0, KEYS[0])])),
    "pcapng": ("pcap.blocks", pcap.encode_pcapng([(0, KEYS[0])], big_endian=True)),
    "binary": ("thrift.frames", thrift.encode_message("ping", 1, 7)),
    "framed": ("thrift.frames", thrift.encode_framed(thrift.encode_message("ping", 1, 7))),
    "compact": (
        "thrift.frames",
        thrift.encode_framed(thrift.encode_message("ping", 1, 7, protocol="compact")),
    ),
    "header": (
        "thrift.frames",
        thrift.encode_frame(thrift.encode_message("ping", 1, 7), transforms=[1]),
    ),
}


@pytest.mark.parametrize("name", ENCODED)
def test_encoded_bytes_have_their_format(name):
    format, data = ENCODED[name]
    assert name_certain_format(data) == format


@pytest.mark.parametrize("name", ENCODED)
def test_bytes_that_are_cut_have_no_other_format(name):
    format, data = ENCODED[name]
    for size in range(min(len(data), 300)):
        candidates = wirescan.detect(data[:size])
        assert all(c.format == format or c.verdict != "certain" for c in candidates), size


@pytest.mark.parametrize("path", KNOWN[::23], ids=lambda path: str(path.relative_to(CORPUS)))
def test_recorded_bytes_that_are_cut_have_no_other_format(path):
    data = path.read_bytes()
    for size in range(min(len(data), 120)):
        assert name_certain_format(data[:size]) in (None, name_expected_format(path)), size


def test_any_buffer_is_a_source():
    data = kafka.encode_batch([{"key": b"k", "value": b"v"}])
    for source in (bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert name_certain_format(source) == "kafka.batches"
    with pytest.raises(TypeError, match="neither a path nor"):
        wirescan.detect(7)


# --- what has no format


@pytest.mark.parametrize("size", [8, 60, 400, 5_000])
def test_random_bytes_have_no_format(size):
    rng = np.random.default_rng(size)
    for _ in range(500):
        data = rng.bytes(size)
        assert wirescan.detect(data) == [], data.hex()


def test_random_letters_and_small_numbers_have_no_format():
    rng = random.Random(5)
    for alphabet in (b"abcdefgh \n", bytes(4) + b"\1\2\3", b"12WDJCA\0\0\0", b"\x80\x82\1\0\x21"):
        for _ in range(300):
            data = bytes(rng.choices(alphabet, k=200))
            assert name_certain_format(data) is None, data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(100),
        bytes(100_000),
        b"\xff" * 5_000,
        b"2024-01-01 INFO started\n" * 100,
        b"INFO started the server\n" * 100,
        b"INFO\nINFO\n" * 100,
        b'{"message": "hello"}\n' * 100,
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 20,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" * 20,
        b"PAR1" + bytes(500),
        "käse und brot\n".encode() * 50,
    ],
    ids=range(12),
)
def test_other_files_have_no_format(data):
    assert wirescan.detect(data) == []


def test_counters_behind_lengths_are_no_responses():
    """Other protocols also have a length and a number that counts the messages."""
    data = b"".join((20).to_bytes(4, "big") + n.to_bytes(4, "big") + bytes(16) for n in range(90))
    assert [c.verdict for c in wirescan.detect(data)] == ["possible"]


# --- damage


def make_log(folder: Path, data: bytes, name: str = SEGMENT) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_log_that_begins_with_damage_is_known_by_its_name(tmp_path):
    data = bytearray((ORDERS / SEGMENT).read_bytes())
    data[:3000] = np.random.default_rng(1).bytes(3000)
    path = make_log(tmp_path, bytes(data))
    assert name_certain_format(path) == "kafka.batches"
    first = wirescan.detect(bytes(data))[0]
    assert (first.format, first.verdict) == ("kafka.batches", "possible")
    starts = wirescan.scan((ORDERS / SEGMENT).read_bytes(), "kafka.batches")["start"]
    start = next(start for start in starts.tolist() if start >= 3000)
    assert f", from byte {start} on, with damage at" in first.reason


def test_a_log_with_wrong_checksums_is_known(tmp_path):
    data = bytearray((ORDERS / SEGMENT).read_bytes())
    for at in range(6_000, len(data), 12_000):
        data[at] ^= 255
    assert name_certain_format(make_log(tmp_path, bytes(data))) == "kafka.batches"


def test_damage_costs_bits():
    batches = [kafka.encode_batch([{"value": b"v"}]) for _ in range(3)]
    (candidate,) = wirescan.detect(b"".join(batches))
    assert candidate.bits == 3 * 38
    batches[1] = batches[1][:-1] + b"?"
    (candidate,) = wirescan.detect(b"".join(batches))
    assert (candidate.bits, candidate.verdict) == (2 * 38 - 20, "certain")


@pytest.mark.parametrize("size", [HEADS[0], 4 * HEADS[0]])
def test_a_damaged_beginning_of_more_than_the_first_look(tmp_path, size):
    data = np.random.default_rng(1).bytes(size) + (ORDERS / SEGMENT).read_bytes()
    assert name_certain_format(make_log(tmp_path, data)) == "kafka.batches"


def test_a_large_first_frame():
    data = kafka.encode_batch([{"value": bytes(200_000)}])
    assert len(data) > HEADS[0]
    assert name_certain_format(data) == "kafka.batches"


@pytest.mark.parametrize("data", [b"", bytes(5_000), np.random.default_rng(3).bytes(5_000)])
def test_a_log_without_frames_has_the_formats_of_its_name(tmp_path, data):
    candidates = wirescan.detect(make_log(tmp_path, data))
    assert {c.format: c.verdict for c in candidates} == {
        "kafka.batches": "named",
        "liftbridge.entries": "named",
    }


@pytest.mark.parametrize(
    ("folder", "format"),
    [(ORDERS, "kafka.batches"), (LIFTBRIDGE_LOGS / "orders-0", "liftbridge.entries")],
)
def test_files_beside_an_empty_log_identify_it(tmp_path, folder, format):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in copy.glob("*.log"):
        path.write_bytes(b"")
    for source in (copy, copy / SEGMENT):
        assert {c.format: c.verdict for c in wirescan.detect(source)} == {format: "named"}


def test_the_size_of_an_index_identifies_an_empty_log(tmp_path):
    path = make_log(tmp_path, b"")
    path.with_suffix(".index").write_bytes(bytes(20))  # one entry of Liftbridge, 2.5 of Kafka
    assert [c.format for c in wirescan.detect(path)] == ["liftbridge.entries"]


def test_frames_inside_frames_are_another_format(tmp_path):
    inside = (LIFTBRIDGE_LOGS / "orders-0" / SEGMENT).read_bytes()
    assert name_certain_format(nats.encode_pub("replicas", inside)) == "nats.messages"
    assert name_certain_format(kafka.encode_batch([{"value": inside}])) == "kafka.batches"
    batch = kafka.encode_batch([{"value": bytes(500)}])
    assert name_certain_format(nats.encode_pub("batches", batch)) == "nats.messages"
    path = make_log(tmp_path, nats.encode_pub("batches", batch * 20))
    assert name_certain_format(path) == "nats.messages"  # though batches have more bits


# --- directories and names


def test_bytes_are_stronger_than_names(tmp_path):
    path = make_log(tmp_path, ENCODED["pubs"][1], "events.lumberjack")
    assert name_certain_format(path) == "nats.messages"


def test_a_name_helps_where_bytes_are_weak(tmp_path):
    data = lumberjack.encode_window(3_000)
    assert name_certain_format(data) is None
    assert name_certain_format(make_log(tmp_path, data, "a.lumberjack")) == "lumberjack.frames"


def test_a_mixed_directory_is_in_doubt(tmp_path):
    make_log(tmp_path, ENCODED["events"][1], "a.lumberjack")
    make_log(tmp_path, ENCODED["pubs"][1], "b.nats")
    candidates = wirescan.detect(tmp_path)
    assert {c.format: c.verdict for c in candidates} == {
        "lumberjack.frames": "possible",
        "nats.messages": "possible",
    }
    assert all("files of several formats; 1 of 2" in c.reason for c in candidates)


def test_files_with_other_names_do_not_count_in_a_directory(tmp_path):
    make_log(tmp_path, ENCODED["events"][1], "a.lumberjack")
    make_log(tmp_path, ENCODED["pubs"][1], "b.bin")
    assert name_certain_format(tmp_path) == "lumberjack.frames"


def test_a_directory_without_usual_names_is_judged_by_bytes(tmp_path):
    make_log(tmp_path, ENCODED["pubs"][1], "a.bin")
    make_log(tmp_path, ENCODED["pubs"][1], "b.bin")
    assert name_certain_format(tmp_path) == "nats.messages"


def test_a_glob_gives_files_and_not_their_indexes(tmp_path):
    copy = tmp_path / "orders-0"
    shutil.copytree(ORDERS, copy)
    assert name_certain_format(f"{copy}/*") == "kafka.batches"
    assert name_certain_format(f"{CORPUS}/nats/recorded/nats-py*.bin") == "nats.messages"


def test_no_file_is_an_error(tmp_path):
    for source in (tmp_path / "nothing", tmp_path / "*.log"):
        with pytest.raises(FileNotFoundError):
            wirescan.detect(source)
    with pytest.raises(FileNotFoundError, match="no file to read"):
        wirescan.detect(tmp_path)


@pytest.mark.peers
def test_objects_of_a_store():
    from tests.support.object_store import ObjectStore

    with ObjectStore() as store:
        store.put_directory(ORDERS, "orders-0")
        store.put("captures/a.bin", ENCODED["pubs"][1])
        for path in ("orders-0", "orders-0/*.log"):
            format, requests = store.record_requests(lambda: name_certain_format(store.url(path)))
            assert format == "kafka.batches"
            assert len(requests) <= 5  # one listing, and the first bytes of one file
        for path in ("captures", "captures/*", "captures/a.bin"):
            assert name_certain_format(store.url(path)) == "nats.messages"
        with pytest.raises(FileNotFoundError):
            wirescan.detect(store.url("nothing"))


# --- cost


def test_few_files_and_few_bytes_are_read(tmp_path):
    for number in range(50):
        make_log(tmp_path, ENCODED["batches"][1], f"{number:020}.log")
    read = []

    def read_head(path, size):
        read.append((path, size))
        return memoryview(Path(path).read_bytes())[:size]

    assert detect_path(str(tmp_path), read_head)[0].verdict == "certain"
    assert read == [(str(tmp_path / f"{0:020}.log"), HEADS[0])]


def test_other_files_are_read_if_the_first_ones_are_not_certain(tmp_path):
    for number in range(50):
        make_log(tmp_path, b"" if number < 49 else ENCODED["batches"][1], f"{number:020}.log")
    candidates = wirescan.detect(tmp_path)
    assert candidates[0].verdict == "certain"
    assert candidates[0].reason.startswith("1 of 4 files that were looked at, such as 0000")


HOSTILE = {
    "kafka headers": (bytes(8) + b"\0\0\0\x31" + bytes(4) + b"\2") * (HEADS[-1] // 17),
    "many pings": b"PING\r\n" * (HEADS[-1] // 6),
    "words of thrift": b"\x80\1\0\1\0\0\0\1a\0\0\0\0" * (HEADS[-1] // 13),
    "small frames": b"\0\0\0\5\x82\x21\1\1a" * (HEADS[-1] // 9),
    "windows": b"2W\0\0\0\1" * (HEADS[-1] // 6),
    "requests": kafka.encode_request("ApiVersions", 0) * (HEADS[-1] // 14),
    "zlib of thrift": thrift.encode_frame(bytes(1 << 20), transforms=[1, 1]) * 2000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_have_bounded_cost(name):
    data = HOSTILE[name][: HEADS[-1]]
    assert measure_cpu_seconds(lambda: wirescan.detect(data), times=2) < SLOWNESS


def test_hostile_bytes_have_bounded_memory():
    program = (
        "import resource, wirescan\n"
        "from tests.reading.test_detect import HEADS, HOSTILE\n"
        "wirescan.detect(b'')\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "for data in HOSTILE.values(): wirescan.detect(data[:HEADS[-1]])\n"
        "print(peak() - before)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) < 64 << 10  # KiB


def test_the_bits_of_random_bytes_are_not_many():
    """`CERTAIN` bits are a probability of 2**-32, so a few thousand files may not reach half."""
    rng = np.random.default_rng(9)
    worst = max((c.bits for _ in range(2_000) for c in wirescan.detect(rng.bytes(100))), default=0)
    assert worst < CERTAIN // 2


# --- formats of other packages


@pytest.fixture
def outside(monkeypatch):
    """A registered format that weighs no frames, and whose files end in .side."""
    format = replace(
        wirescan.formats()["nats.messages"],
        name="out.side",
        storage=wirescan.Storage(files=r"\.side$"),
    )
    monkeypatch.setitem(registry.load_formats(), "out.side", format)
    nameless = replace(wirescan.formats()["nats.messages"], storage=wirescan.Storage())
    monkeypatch.setitem(registry.load_formats(), "nats.messages", nameless)


def test_two_formats_that_fit_equally_are_in_doubt(monkeypatch, tmp_path):
    twin = replace(wirescan.formats()["lumberjack.frames"], name="out.twin")
    monkeypatch.setitem(registry.load_formats(), "out.twin", twin)
    path = make_log(tmp_path, ENCODED["events"][1], "a.bin")
    assert {c.format: c.verdict for c in wirescan.detect(path)} == {
        "lumberjack.frames": "possible",
        "out.twin": "possible",
    }
    result = run("stat", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Give --format lumberjack.frames or --format out.twin" in result.stderr


def test_a_format_without_weights_is_found_by_names(outside, tmp_path):
    data = ENCODED["pubs"][1]
    assert wirescan.detect(data) == []
    path = make_log(tmp_path, data, "a.side")
    (candidate,) = wirescan.detect(path)
    assert (candidate.format, candidate.verdict) == ("out.side", "named")
    assert candidate.reason == (
        f"the file has a name of this format: 20 frames in all {len(data)} bytes; frames are whole"
    )
    result = run("scan", path, "--json")
    assert (result.exit_code, len(parse_lines(result))) == (0, 20)
    assert "is read as out.side" in result.stderr
    path.write_bytes(b"?" * 50)
    assert wirescan.detect(path)[0].reason == (
        "the file has a name of this format, but no format is certain in its first 50 bytes"
    )
