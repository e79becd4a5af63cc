"""`wirescan produce` to brokers in this process, over sockets."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.support.fake_broker import FakeCluster, Server
from wirescan import kafka
from wirescan.cli.main import main
from wirescan.core.strings import ByteStrings
from wirescan.frames.value_text import DECODABLE, decode, encode
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.client import Client, Retries
from wirescan.kafka.client.partitioner import partition_of

FIRST_TIME = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(autouse=True)
def retry_quickly(monkeypatch):
    monkeypatch.setattr(
        "wirescan.kafka.client.topic_ranges.Client",
        partial(Client, retries=Retries(attempts=2, first=0.01)),
    )


@pytest.fixture
def cluster():
    """Two brokers, and topic `orders` with three empty partitions."""
    cluster = FakeCluster(brokers=2)
    cluster.add_topic("orders", partitions=3)
    cluster.topics["orders"][1].leader = 2
    with Server(cluster):
        yield cluster


def run(cluster, *arguments, code=0, input=None):
    command = ["produce", cluster.bootstrap, "orders", *map(str, arguments)]
    result = CliRunner().invoke(main, command, input=input)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def read(cluster, number):
    """The records of a partition as (key, value, timestamp, headers)."""
    return [
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.timestamp,
            [(bytes(h.key), None if h.value is None else bytes(h.value)) for h in row.headers],
        )
        for _, _, data in cluster.topics["orders"][number].entries
        for row in kafka.records(kafka.scan(data))
    ]


def make_records(first, count=10):
    return [
        Record(
            first + i,
            FIRST_TIME + first + i,
            None if i % 4 == 0 else b"key %d" % i,
            None if i % 5 == 4 else b"\xff\xef\xbf\xbd\\x00 %d" % (first + i),
            [(b"trace", b"\x00\xff"), (b"none", None)] if i % 3 == 0 else (),
        )
        for i in range(count)
    ]


def as_tuples(records):
    return [(r.key, r.value, r.timestamp, list(r.headers)) for r in records]


@pytest.fixture
def log(tmp_path):
    """Directories orders-0 and orders-2, with segments of two batches each."""
    for number in (0, 2):
        folder = tmp_path / f"orders-{number}"
        folder.mkdir()
        for first in (0, 40):
            data = encode_batch(make_records(first), codec=CODECS[number])
            data += encode_batch(make_records(first + 20), codec="zstd")
            (folder / f"{first:020}.log").write_bytes(data)
    return tmp_path


EXPECTED = [record for first in (0, 20, 40, 60) for record in as_tuples(make_records(first))]


@pytest.mark.parametrize("codec", CODECS)
def test_segments_are_restored_in_order(cluster, log, codec):
    result = run(cluster, log / "orders-0", log / "orders-2", "--compression", codec)
    assert read(cluster, 0) == read(cluster, 2) == EXPECTED
    assert read(cluster, 1) == []
    assert result.stdout.splitlines()[:2] == [
        "orders-0: 40 records, offsets 0 to 39",
        "orders-2: 40 records, offsets 0 to 39",
    ]
    assert "wrote 80 records of 4 files" in result.stdout
    data = cluster.topics["orders"][2].entries[0][2]
    assert CODECS[kafka.scan(data)["codec"][0]] == codec


def test_report_as_json(cluster, log):
    cluster.topics["orders"][0].end = 7
    report = json.loads(run(cluster, log / "orders-0", "--json").stdout)
    assert report["partitions"] == [
        {"partition": 0, "records": 40, "first_offset": 7, "last_offset": 46}
    ]
    size = sum(path.stat().st_size for path in (log / "orders-0").iterdir())
    assert (report["records"], report["files"], report["bytes"]) == (40, 2, size)
    assert (report["faults"], report["excluded"], report["topic"]) == (0, 0, "orders")


@pytest.mark.parametrize("encoding", DECODABLE)
def test_json_lines_of_scan_are_restored(cluster, log, encoding):
    lines = CliRunner().invoke(
        main, ["scan", str(log / "orders-0"), "--json", "--encoding", encoding]
    )
    arguments = ("-", "--lines", "json", "--partition", 1, "--encoding", encoding)
    run(cluster, *arguments, input=lines.stdout)
    assert read(cluster, 1) == EXPECTED


@given(data=st.binary(max_size=40), encoding=st.sampled_from(DECODABLE))
def test_encodings_are_reversible(data, encoding):
    assert decode(encode(data, encoding), encoding) == data


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("0", "hex"),
        ("zz", "hex"),
        ("a", "base64"),
        ("YQ", "base64"),
        ("\ufffd", "utf8"),
        ("\ufffdf", "utf8"),
        ("\ufffd f", "utf8"),
        ("\ufffdzz", "utf8"),
        ("\ud800", "utf8"),
        ("\\", "escape"),
        ("\\x0", "escape"),
        ("\\q", "escape"),
        ("\u20ac", "escape"),
        ("1", "int"),
    ],
)
def test_what_no_encoding_writes_is_refused(text, encoding):
    with pytest.raises(ValueError):
        decode(text, encoding)


def test_partitions_of_json_lines(cluster):
    lines = [{"value": str(i)} | ({"partition": i % 3} if i % 4 else {}) for i in range(12)]
    text = "\n".join(map(json.dumps, lines))
    run(cluster, "-", "--lines", "json", "--partitioner", "round_robin", input=text)
    values = [[value for _, value, *_ in read(cluster, number)] for number in range(3)]
    assert values[0] == [b"0", b"3", b"6", b"9"], "the option is stronger than the lines"
    cluster.add_topic("orders", partitions=3)
    run(cluster, "-", "--lines", "json", input=text)
    for number in range(3):
        written = [value for _, value, *_ in read(cluster, number)]
        expected = [b"%d" % i for i in range(12) if i % 4 and i % 3 == number]
        assert [value for value in written if int(value) % 4] == expected


def test_lines_of_text(cluster):
    before = time.time_ns() // 1_000_000
    text = b"a=1=2\n\nplain\r\n=\xff\nlast="
    options = (
        "--lines",
        "text",
        "--key-separator",
        "=",
        "--header",
        "source=a=b",
        "--partition",
        1,
    )
    run(cluster, "-", *options, input=text)
    written = read(cluster, 1)
    headers = [(b"source", b"a=b")]
    assert [(key, value) for key, value, *_ in written] == [
        (b"a", b"1=2"),
        (None, b"plain"),
        (b"", b"\xff"),
        (b"last", b""),
    ]
    assert all(item[3] == headers for item in written)
    assert all(before <= item[2] <= time.time_ns() // 1_000_000 for item in written)


def test_equal_keys_go_where_javas_do(cluster):
    run(cluster, "-", "--lines", "text", "--key-separator", " ", input="a 1\nb 2\na 3\nc 4\n")
    number = {key: n for n in range(3) for key, *_ in read(cluster, n)}
    expected = partition_of(ByteStrings([b"a", b"b", b"c"]), 3, "murmur2")
    assert [number[b"a"], number[b"b"], number[b"c"]] == expected.tolist()
    assert [v for k, v, *_ in read(cluster, number[b"a"]) if k == b"a"] == [b"1", b"3"]


BAD_LINES = [
    ("[]", "a record is a JSON object"),
    ("{", "Expecting property name"),
    ("{}", 'there is no "value"'),
    ('{"value": 1}', '"value" is neither text nor null'),
    ('{"value": "\\ufffd"}', '"value" is no text in utf8'),
    ('{"value": "\\ud800"}', '"value" is no text in utf8'),
    ('{"value": null, "key": []}', '"key" is neither text nor null'),
    ('{"value": null, "headers": {"a": 1}}', '"headers" is no list of objects'),
    ('{"value": null, "headers": [1]}', '"headers" is no list of objects'),
    ('{"value": null, "headers": [{}]}', "a header has no key"),
    ('{"value": null, "timestamp": -1}', '"timestamp" is no number from 0'),
    ('{"value": null, "timestamp": 1.5}', '"timestamp" is no number from 0'),
    ('{"value": null, "timestamp": true}', '"timestamp" is no number from 0'),
    ('{"value": null, "partition": 2147483648}', '"partition" is no number from 0'),
    ('{"value": null, "fault": "BAD_CHECKSUM"}', "the frame was bad"),
    ("[" * 100_000, ""),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_bad_lines(cluster, line, reason):
    text = f'{{"value":"before"}}\n{line}\n{{"value":"after"}}\n'
    options = ("-", "--lines", "json", "--partition", 0)
    result = run(cluster, *options, input=text, code=1)
    assert "(standard input): line 2: " in result.stderr
    assert reason in result.stderr
    assert "records acknowledged: 1 (partition 0 to offset 0)" in result.stderr
    assert [value for _, value, *_ in read(cluster, 0)] == [b"before"]
    result = run(cluster, *options, "--errors", "skip", input=text)
    assert "1 line dropped" in result.stderr
    assert [value for _, value, *_ in read(cluster, 0)[1:]] == [b"before", b"after"]


def test_damage_ends_a_restore_after_what_precedes_it(cluster, log):
    path = log / "orders-0" / f"{40:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = run(cluster, log / "orders-0", code=1)
    assert "records acknowledged: 30 (partition 0 to offset 29)" in result.stderr
    assert read(cluster, 0) == EXPECTED[:30]
    cluster.add_topic("orders", partitions=3)
    result = run(cluster, log / "orders-0", "--errors", "skip")
    assert read(cluster, 0) == EXPECTED[:30]
    assert "1 bad frame dropped" in result.stderr


def make_marker(offset, producer, kind):
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    record = Record(offset, FIRST_TIME, key, bytes(6))
    return encode_batch(
        [record], transactional=True, control=True, producer_id=producer, producer_epoch=0
    )


def make_data(offset, producer):
    return encode_batch(
        [Record(offset, FIRST_TIME, None, b"%d" % offset)],
        transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=offset,
    )


def test_only_committed_records_are_restored(cluster, tmp_path):
    """The marker of a transaction may be in a later segment."""
    folder = tmp_path / "orders-1"
    folder.mkdir()
    first = make_data(0, 7) + make_data(1, 8) + make_data(2, -1) + make_data(3, 9)
    second = make_marker(4, 7, 0) + make_marker(5, 8, 1) + make_data(6, 7) + make_marker(7, 7, 1)
    (folder / f"{0:020}.log").write_bytes(first)
    (folder / f"{4:020}.log").write_bytes(second)
    result = run(cluster, folder)
    assert [value for _, value, *_ in read(cluster, 1)] == [b"1", b"2", b"6"]
    assert "5 batches of transactions not written" in result.stderr
    result = run(cluster, "-", "--partition", 0, input=first, code=2)
    assert "holds transactions: write it to a file first" in result.stderr
    assert read(cluster, 0) == []


def test_transactions_of_one_directory_do_not_end_those_of_another(cluster, tmp_path):
    for topic, data in (
        ("a", make_data(0, 7) + make_marker(1, 7, 1)),
        ("b", make_data(0, 7) + make_marker(1, 7, 0)),
    ):
        (tmp_path / f"{topic}-0").mkdir()
        (tmp_path / f"{topic}-0" / f"{0:020}.log").write_bytes(data)
    run(cluster, tmp_path / "a-0", tmp_path / "b-0")
    assert len(read(cluster, 0)) == 1


def test_files_outside_of_a_partition(cluster, log):
    path = log / "part.log"
    path.write_bytes((log / "orders-0" / f"{0:020}.log").read_bytes())
    assert "--partition or --partitioner" in run(cluster, path, code=2).stderr
    run(cluster, path, "--partition", 2)
    assert read(cluster, 2) == EXPECTED[:20]
    run(cluster, path, "--partitioner", "round_robin")
    assert [len(read(cluster, number)) for number in range(3)] == [7, 7, 26]


def test_partitions_that_the_topic_does_not_have(cluster, tmp_path):
    folder = tmp_path / "orders-5"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(make_data(0, -1))
    assert "partitions 0 to 2" in run(cluster, folder, code=2).stderr
    assert run(cluster, folder, "--partition", 3, code=2).exit_code == 2


@pytest.mark.parametrize(("acks", "offset"), [("all", 0), ("1", 0), ("0", None)])
def test_acks(cluster, acks, offset):
    options = ("-", "--lines", "text", "--partition", 0, "--acks", acks, "--json")
    report = json.loads(run(cluster, *options, input="a\n").stdout)
    assert report["partitions"][0]["first_offset"] == offset
    deadline = time.monotonic() + 20
    while not read(cluster, 0) and time.monotonic() < deadline:
        time.sleep(0.01)  # with --acks 0 the command does not wait for the broker
    requests = [request for _, api, _, request in cluster.asked if api == "Produce"]
    assert [request["acks"] for request in requests] == [{"all": -1, "1": 1, "0": 0}[acks]]
    ids = [api for _, api, *_ in cluster.asked if api == "InitProducerId"]
    assert bool(ids) == (acks == "all"), "it is idempotent where all replicas confirm"


def test_errors_of_the_cluster(cluster, log):
    cluster.errors["Produce", "orders", 2].extend([10] * 9)  # MESSAGE_TOO_LARGE
    result = run(cluster, log / "orders-0", log / "orders-2", code=2)
    assert "MESSAGE_TOO_LARGE" in result.stderr
    assert "records acknowledged: 40 (partition 0 to offset 39)" in result.stderr
    result = CliRunner().invoke(main, ["produce", cluster.bootstrap, "none", str(log / "orders-0")])
    assert result.exit_code == 2
    assert "UNKNOWN_TOPIC_OR_PARTITION" in result.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--partition", 1, "--partitioner", "sticky"), "exclude each other"),
        (("--key-separator", ":"), "--lines text"),
        (("--lines", "json", "--header", "a=b"), "--lines text"),
        (("--lines", "text", "--header", "a"), "a header is NAME=VALUE"),
        (("--lines", "text", "--key-separator", ""), "needs a text"),
        (("--lines", "text", "--encoding", "hex"), "--lines json"),
        (("--encoding", "hex"), "--lines json"),
        (("--lines", "json", "--encoding", "int"), "cannot be read from the encoding 'int'"),
        (("--lines", "json", "--encoding", "keys=hex"), "did you mean"),
        (("--lines", "json", "--where", "size > 1"), "are for segments"),
        (("--lines", "json", "--partitions", "0"), "are for segments"),
        (("--lines", "text", "--limit", 1), "are for segments"),
        (("--lines", "text", "--resume", "progress"), "are for segments"),
        (("--acks", "0", "--resume", "progress"), "--acks all or 1"),
        (("--where", "nothing > 1"), "nothing"),
        (("--partitions", "7"), "no file is of partition 7"),
    ],
)
def test_options_that_do_not_fit(cluster, log, options, reason):
    assert reason in run(cluster, log / "orders-0", *options, code=2).output
    assert not cluster.asked


def interrupt(process):
    """Send SIGINT to a process that reads a pipe, and return its exit code.

    The signal may come just before the call that waits for bytes, which it does not interrupt then.
    """
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(10)
    raise AssertionError("the process was not interrupted")


def test_lines_of_a_pipe_are_written_as_they_come(cluster):
    command = [sys.executable, "-m", "wirescan", "produce", cluster.bootstrap, "orders", "-"]
    command += ["--lines", "text", "--partition", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(wirescan.__file__).parents[1])}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        bufsize=0,
    )
    try:
        for number in range(3):
            process.stdin.write(b"line %d\n" % number)
            deadline = time.monotonic() + 20
            while len(read(cluster, 0)) <= number and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(read(cluster, 0)) == number + 1
        assert interrupt(process) == 130
        message = process.stderr.read()
        assert b"interrupted" in message
        # The interrupt may precede the answer to the last request.
        assert re.search(rb"records acknowledged: [23] \(partition 0 to offset [12]\)", message)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--offset", "15:23"), range(15, 23)),
        (("--offset", "35:", "--limit", 12), range(35, 47)),
        (("--limit", 0), []),
        (("--since", "2023-11-14T22:13:20.070Z"), range(70, 80)),
        (("--until", "2023-11-14T22:13:20.005Z"), range(5)),
        (("--key", "key 1", "--key", "key 7"), [at for at in range(80) if at % 10 in (1, 7)]),
        (("--where", "key is null and offset < 30"), [0, 4, 8, 10, 14, 18, 20, 24, 28]),
    ],
)
def test_selected_records_are_restored(cluster, tmp_path, options, wanted):
    folder = tmp_path / "orders-1"
    folder.mkdir()
    for first in (0, 40):
        data = b"".join(encode_batch(make_records(at)) for at in range(first, first + 40, 10))
        (folder / f"{first:020}.log").write_bytes(data)
    run(cluster, folder, *options)
    expected = [record for first in range(0, 80, 10) for record in as_tuples(make_records(first))]
    assert read(cluster, 1) == [expected[at] for at in wanted]


def test_selected_partitions_are_restored(cluster, log):
    run(cluster, log / "orders-0", log / "orders-2", "--partitions", "2", "--limit", 3)
    assert (read(cluster, 0), read(cluster, 2)) == ([], EXPECTED[:3])


def test_a_limit_is_reached_before_damage(cluster, log):
    path = log / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    run(cluster, log / "orders-0", "--limit", 10)
    assert read(cluster, 0) == EXPECTED[:10]
    run(cluster, log / "orders-0", "--limit", 11, code=1)
    assert read(cluster, 0) == EXPECTED[:10] * 2


def test_transactions_end_outside_of_the_selection(cluster, tmp_path):
    folder = tmp_path / "orders-0"
    folder.mkdir()
    parts = [make_data(0, 7), make_data(1, 8), make_marker(2, 7, 0), make_marker(3, 8, 1)]
    (folder / f"{0:020}.log").write_bytes(b"".join(parts[:2]))
    (folder / f"{2:020}.log").write_bytes(b"".join(parts[2:]))
    run(cluster, folder, "--offset", ":2")
    assert len(read(cluster, 0)) == 1
