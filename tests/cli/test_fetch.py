"""`wirescan fetch` from brokers in this process, over sockets.

The tests check the files that it writes, how it resumes, its refusals and its messages.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.dataset
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_broker import FakeCluster, HangUp, Server
from tests.support.log_files import read_segments
from wirescan import kafka
from wirescan.cli.main import main
from wirescan.cli.support.fetch_store import (
    ParquetParts,
    Segments,
    find_parts_end,
    find_segments_end,
)
from wirescan.cli.verbs.fetch import FetchProgress
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.client import Client, Part, Retries
from wirescan.kafka.client.topic_batches import COLUMNS, make_schema
from wirescan.kafka.client.topic_ranges import (
    OffsetRange,
    plan_ranges,
    split_ranges,
    to_milliseconds,
)

FIRST_TIME = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def make_batch(first: int, count: int = 10, codec: str = "none", **options) -> bytes:
    records = [
        Record(
            offset=first + i,
            timestamp=FIRST_TIME + first + i,
            key=None if i % 4 == 0 else b"key %d" % i,
            value=b"value %d " % (first + i) * 5,
            headers=[(b"trace", b"\x00\xff")] if i == 0 else (),
        )
        for i in range(count)
    ]
    return encode_batch(records, codec=codec, **options)


@pytest.fixture(autouse=True)
def retry_quickly(monkeypatch):
    monkeypatch.setattr(
        "wirescan.kafka.client.topic_ranges.Client",
        partial(Client, retries=Retries(attempts=3, first=0.01)),
    )


@pytest.fixture
def cluster():
    """Topic `orders` with three partitions.

    Partition 0 has 200 records in 20 batches of all codecs. Partition 1 is empty. Partition 2 has
    gaps.
    """
    cluster = FakeCluster(brokers=2)
    cluster.add_topic("orders", partitions=3)
    cluster.topics["orders"][1].leader = 2
    for number in range(20):
        cluster.append("orders", 0, make_batch(10 * number, codec=CODECS[number % 5]))
    for first in (5, 30, 100):
        cluster.append("orders", 2, make_batch(first))
    cluster.topics["orders"][2].end = 150  # compaction removed the last batches
    with Server(cluster):
        yield cluster


def run(
    cluster: FakeCluster, *arguments: object, topic: str = "orders", code: int = 0, **environment
) -> Result:
    result = CliRunner().invoke(
        main, ["fetch", cluster.bootstrap, topic, *map(str, arguments)], env=environment
    )
    assert result.exit_code == code, (result.output, result.exception)
    return result


def join_entries(cluster: FakeCluster, partition: int) -> bytes:
    return b"".join(data for _, _, data in cluster.topics["orders"][partition].entries)


def offsets(out: Path, partition: int = 0) -> list[int]:
    """The offsets of a partition in Parquet files, in the order of their names."""
    return [
        offset
        for path in sorted(out.glob(f"orders-{partition}-*.parquet"))
        for offset in pyarrow.dataset.dataset(path).to_table()["offset"].to_pylist()
    ]


GAPS = [*range(5, 15), *range(30, 40), *range(100, 110)]


# --- the files


@pytest.mark.parametrize("size", [1, 700, 3000, 1 << 30])
def test_segments_have_the_bytes_of_the_log(cluster, tmp_path, size):
    result = run(cluster, "--to", tmp_path, "--segment-bytes", size)
    assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)
    assert read_segments(tmp_path / "orders-2") == join_entries(cluster, 2)
    assert not (tmp_path / "orders-1").exists()
    assert "orders-0: offsets 0 to 199\n" in result.stderr
    assert "orders-1: nothing from offset 0 on\n" in result.stderr
    assert re.fullmatch(
        rf"wrote {tmp_path}: 230 records, .* of 3 partitions in .* s\n", result.stdout
    )
    segments = sorted((tmp_path / "orders-0").glob("*.log"))
    first_offsets = [int(kafka.scan(path)["base_offset"][0]) for path in segments]
    assert [int(path.stem) for path in segments] == first_offsets
    largest = max(len(data) for _, _, data in cluster.topics["orders"][0].entries)
    assert all(path.stat().st_size <= max(size, largest) for path in segments)
    segment_counts = {1: [20], 700: range(8, 20), 3000: range(2, 8), 1 << 30: [1]}
    assert len(segments) in segment_counts[size]


@pytest.mark.slow
def test_segments_need_no_pyarrow(cluster, tmp_path):
    script = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from wirescan.cli.main import main\n"
        "main(sys.argv[1:])"
    )
    command = [
        sys.executable,
        "-c",
        script,
        "fetch",
        cluster.bootstrap,
        "orders",
        "--to",
        str(tmp_path),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)
    result = subprocess.run([*command, "--as", "parquet"], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == "wirescan: pyarrow is not installed: pip install 'wirescan[cli]'\n"


def test_the_other_verbs_read_the_segments(cluster, tmp_path):
    run(cluster, "--to", tmp_path, "--segment-bytes", 3000)
    assert CliRunner().invoke(main, ["verify", str(tmp_path / "orders-0")]).exit_code == 0
    result = CliRunner().invoke(main, ["stat", str(tmp_path), "--json"])
    assert json.loads(result.stdout)["total"]["records"] == 230


@pytest.mark.parametrize("size", [1, 3000, 1 << 30])
def test_parquet_has_all_records(cluster, tmp_path, size):
    run(cluster, "--to", tmp_path, "--as", "parquet", "--segment-bytes", size)
    table = (
        pyarrow.dataset.dataset(tmp_path)
        .to_table()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    expected = kafka.records(kafka.scan([join_entries(cluster, 0), join_entries(cluster, 2)]))
    assert table.schema.equals(make_schema())
    assert table.column_names == COLUMNS
    assert table["offset"].to_pylist() == expected["offset"].tolist()
    assert table["partition"].to_pylist() == [0] * 200 + [2] * 30
    assert set(table["topic"].to_pylist()) == {"orders"}
    assert table["value"].to_pylist() == [bytes(row.value) for row in expected]
    keys = [None if row.key is None else bytes(row.key) for row in expected]
    assert table["key"].to_pylist() == keys
    assert (len(list(tmp_path.glob("orders-0-*"))) > 1) == (size < 5000)


def test_columns_and_compression_are_options(cluster, tmp_path):
    run(
        cluster,
        "--to",
        tmp_path,
        "--as",
        "parquet",
        "--columns",
        "value,partition",
        "--compression",
        "none",
    )
    dataset = pyarrow.dataset.dataset(tmp_path)
    assert dataset.schema.names == ["value", "partition"]
    assert dataset.count_rows() == 230
    file = pyarrow.parquet.ParquetFile(next(tmp_path.glob("*.parquet")))
    assert file.metadata.row_group(0).column(0).compression == "UNCOMPRESSED"


def test_start_and_stop_select_offsets(cluster, tmp_path):
    run(cluster, "--to", tmp_path / "p", "--as", "parquet", "--start", 33, "--stop", 105)
    assert offsets(tmp_path / "p") == list(range(33, 105))
    assert offsets(tmp_path / "p", 2) == [offset for offset in GAPS if 33 <= offset < 105]
    run(cluster, "--to", tmp_path / "s", "--start", 33, "--stop", 105, "--partitions", "0, 2")
    records = kafka.records(kafka.scan(tmp_path / "s" / "orders-0"))
    assert records["offset"].tolist() == list(range(30, 110))
    records = kafka.records(kafka.scan(tmp_path / "s" / "orders-2"))
    assert records["offset"].tolist() == GAPS[10:]


def test_a_range_of_times(cluster, tmp_path):
    run(
        cluster,
        "--to",
        tmp_path,
        "--as",
        "parquet",
        "--partitions",
        "0",
        "--start",
        "2023-11-14T22:13:20.050",
        "--stop",
        "2023-11-15T00:13:20.120+02:00",
    )
    assert offsets(tmp_path) == list(range(50, 120))


def test_open_and_aborted_transactions(tmp_path):
    cluster = FakeCluster()
    cluster.add_topic("orders")
    for first, producer in ((0, 7), (10, 8)):
        cluster.append("orders", 0, make_batch(first, producer_id=producer, transactional=True))
    marker = encode_batch(
        [Record(offset=20, key=b"\0\0\0\0", value=bytes(6))],
        producer_id=7,
        transactional=True,
        control=True,
    )
    cluster.append("orders", 0, marker + make_batch(21))
    log = cluster.topics["orders"][0]
    log.aborted = [(7, 0)]
    log.stable = 10
    with Server(cluster):
        for kind in ("segments", "parquet"):
            run(cluster, "--to", tmp_path / kind, "--as", kind, "--isolation", "read_committed")
        assert read_segments(tmp_path / "segments" / "orders-0") == log.entries[0][2]
        assert offsets(tmp_path / "parquet") == []
        log.stable = None  # the second transaction is committed
        for kind in ("segments", "parquet"):
            run(cluster, "--to", tmp_path / kind, "--as", kind, "--isolation", "read_committed")
    assert read_segments(tmp_path / "segments" / "orders-0") == join_entries(cluster, 0)
    assert offsets(tmp_path / "parquet") == [*range(10, 20), *range(21, 31)]


def test_the_report_as_json(cluster, tmp_path):
    report = json.loads(run(cluster, "--to", tmp_path, "--json").stdout)
    expected = {
        "records": 230,
        "partitions": 2,
        "files": 2,
        "bytes": len(join_entries(cluster, 0) + join_entries(cluster, 2)),
        "faults": 0,
        "offsets_gone": 0,
    }
    assert {name: report[name] for name in expected} == expected


# --- resuming


@pytest.mark.parametrize("size", [700, 1 << 30])
@pytest.mark.parametrize(
    "cut", [0, 61, 701, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (1, 100, 650, 1000))]
)
def test_segments_continue_after_the_last_whole_batch(cluster, tmp_path, size, cut):
    run(cluster, "--to", tmp_path, "--segment-bytes", size)
    last = max((tmp_path / "orders-0").glob("*.log"))
    with open(last, "r+b") as file:
        file.truncate(max(0, last.stat().st_size - cut))
    for _ in range(2):
        run(cluster, "--to", tmp_path, "--segment-bytes", size)
        assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)
        assert read_segments(tmp_path / "orders-2") == join_entries(cluster, 2)


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 100, b"\xff" * 100, make_batch(200)[:-1], make_batch(200)[:-1] + b"\xff"],
    ids=["zeros", "ones", "cut", "damaged"],
)
def test_the_torn_tail_of_a_killed_process_is_cut_off(cluster, tmp_path, tail):
    run(cluster, "--to", tmp_path)
    with open(tmp_path / "orders-0" / f"{0:020}.log", "ab") as file:
        file.write(tail)
    cluster.append("orders", 0, make_batch(200, 7))
    assert "offsets 200 to 206, where an earlier run ended" in run(cluster, "--to", tmp_path).stderr
    assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)


def test_a_tail_is_kept_until_the_cluster_is_known_to_have_it(cluster, tmp_path):
    run(cluster, "--to", tmp_path)
    path = tmp_path / "orders-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-1])
    log = cluster.topics["orders"][0]
    log.entries = []
    log.start = 500
    log.end = 500
    before = read_segments(tmp_path / "orders-0")
    assert "orders-0: offsets 190 to 499 are gone" in run(cluster, "--to", tmp_path, code=1).stderr
    assert read_segments(tmp_path / "orders-0") == before


def test_a_bad_batch_between_good_ones_is_no_tail(cluster, tmp_path):
    run(cluster, "--to", tmp_path)
    path = tmp_path / "orders-0" / f"{0:020}.log"
    starts = [
        0,
        *np.cumsum([len(data) for _, _, data in cluster.topics["orders"][0].entries])[:-1].tolist(),
    ]
    for at in (starts[0] + 100, starts[7] + 9, starts[7] + 100, starts[18] + 30):  # 9: its length
        damaged = bytearray(join_entries(cluster, 0))
        damaged[at] ^= 1
        path.write_bytes(damaged)
        begin = max(start for start in starts if start <= at)
        message = run(cluster, "--to", tmp_path, code=1).stderr
        assert f"{path}: the batch at byte {begin} is bad" in message
        assert "truncate" in message
        assert path.read_bytes() == damaged
        os.truncate(path, begin)  # the message says so
        run(cluster, "--to", tmp_path)
        assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)


def test_parquet_continues_after_the_last_file(cluster, tmp_path):
    arguments = ("--to", tmp_path, "--as", "parquet", "--segment-bytes", 1500)
    run(cluster, *arguments)
    files = sorted(tmp_path.glob("orders-0-*"))
    assert len(files) > 3
    for path in files[-2:]:
        path.unlink()
    (tmp_path / "_orders-0.partial").write_bytes(b"PAR1 and no more")
    for _ in range(2):
        run(cluster, *arguments)
        assert offsets(tmp_path) == list(range(200))
        assert offsets(tmp_path, 2) == GAPS
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("kind", ["segments", "parquet"])
@pytest.mark.parametrize(
    "answers", [3, 9, *(pytest.param(value, marks=pytest.mark.slow) for value in (1, 5, 14))]
)
def test_a_second_run_continues_after_a_lost_connection(cluster, tmp_path, kind, answers):
    """Batches fetched before the loss are kept, and a second run fetches the rest."""
    answers_left = [answers]

    def mangle(node, api, data):
        answers_left[0] -= api == "Fetch"
        if answers_left[0] < 0:
            raise HangUp(data[:50])
        return data

    cluster.mangle = mangle
    arguments = ("--to", tmp_path, "--as", kind, "--segment-bytes", 700)
    result = run(cluster, *arguments, code=2)
    assert "wirescan: " in result.stderr
    assert "Traceback" not in result.output
    cluster.mangle = lambda node, api, data: data
    run(cluster, *arguments)
    if kind == "segments":
        assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)
        assert read_segments(tmp_path / "orders-2") == join_entries(cluster, 2)
    else:
        assert offsets(tmp_path) == list(range(200))
        assert offsets(tmp_path, 2) == GAPS


@pytest.mark.parametrize("kind", ["segments", "parquet"])
def test_the_start_of_the_first_run_remains(cluster, tmp_path, kind):
    """The first run notes the start offset, even if it finds no records.

    A log that is trimmed between the runs has lost the records from that offset on.
    """
    log = cluster.topics["orders"][0]
    entries = log.entries
    log.entries = []
    run(cluster, "--to", tmp_path, "--as", kind)
    log.entries = entries[10:]
    log.start = 100
    result = run(cluster, "--to", tmp_path, "--as", kind, code=1)
    assert "orders-0: offsets 0 to 99 are gone" in result.stderr
    run(cluster, "--to", tmp_path, "--as", kind, "--errors", "mark", code=1)
    assert "gone" not in run(cluster, "--to", tmp_path, "--as", kind).stderr


def test_partitions_that_come_later(cluster, tmp_path):
    run(cluster, "--to", tmp_path, "--partitions", "2")
    assert not (tmp_path / "orders-0").exists()
    run(cluster, "--to", tmp_path)
    assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)
    assert read_segments(tmp_path / "orders-2") == join_entries(cluster, 2)


# --- damage


@pytest.fixture
def damaged(cluster):
    """The cluster with a flipped bit in the batch of the offsets 50 to 59."""
    first, last, data = cluster.topics["orders"][0].entries[5]
    cluster.topics["orders"][0].entries[5] = first, last, data[:-1] + bytes([data[-1] ^ 1])
    return cluster


def test_damaged_batches_follow_the_mode(damaged, tmp_path):
    good = [data for first, _, data in damaged.topics["orders"][0].entries if first != 50]
    assert "BAD_CHECKSUM" in run(damaged, "--to", tmp_path / "strict", code=1).stderr
    for errors, code in (("mark", 1), ("skip", 0)):
        for kind in ("segments", "parquet"):
            run(
                damaged,
                "--to",
                tmp_path / errors / kind,
                "--as",
                kind,
                "--errors",
                errors,
                code=code,
            )
        assert read_segments(tmp_path / errors / "segments" / "orders-0") == b"".join(good)
        table = (
            pyarrow.dataset.dataset(tmp_path / errors / "parquet")
            .to_table()
            .filter(pyarrow.dataset.field("partition") == 0)
        )
        assert len(table) == 190 + (errors == "mark")
        assert len(table["fault"].drop_null()) == (errors == "mark")
    for _ in range(2):
        run(damaged, "--to", tmp_path / "unchecked", "--no-check")
        assert read_segments(tmp_path / "unchecked" / "orders-0") == join_entries(damaged, 0)


def test_unchecked_batches_are_no_damage_later(damaged, tmp_path):
    run(damaged, "--to", tmp_path, "--no-check")
    damaged.append("orders", 0, make_batch(200))
    for more in ((), ("--no-check",), ()):
        run(damaged, "--to", tmp_path, *more)
        assert read_segments(tmp_path / "orders-0") == join_entries(damaged, 0)


@pytest.mark.parametrize("size", [100, 1 << 30])
@pytest.mark.parametrize("first", [0, 3, -4])
def test_offsets_that_do_not_rise(tmp_path, size, first):
    cluster = FakeCluster()
    cluster.add_topic("orders")
    again = first.to_bytes(8, "big", signed=True) + make_batch(0)[8:]
    cluster.topics["orders"][0].entries = [(0, 9, make_batch(0) + again), (10, 19, make_batch(10))]
    cluster.topics["orders"][0].end = 20
    with Server(cluster):
        result = run(cluster, "--to", tmp_path, "--segment-bytes", size, code=1)
    assert f"orders-0: a batch of offsets {first} to " in result.stderr
    assert "comes after offset 9" in result.stderr


def test_offsets_that_are_gone(cluster, tmp_path):
    log = cluster.topics["orders"][0]
    log.entries = log.entries[5:]
    log.start = 50
    arguments = ("--to", tmp_path, "--start", 20, "--partitions", "0")
    assert "orders-0: offsets 20 to 49 are gone" in run(cluster, *arguments, code=1).stderr
    assert not (tmp_path / "orders-0").exists()
    result = run(cluster, *arguments, "--errors", "skip")
    assert "orders-0: offsets 20 to 49 are gone" in result.stderr
    assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)


def test_offsets_that_are_deleted_during_the_fetch(cluster, tmp_path):
    cluster.errors["Fetch", "orders", 0].append(1)
    assert "OFFSET_OUT_OF_RANGE" in run(cluster, "--to", tmp_path, code=1).stderr


def test_interrupt_keeps_fetched_batches(cluster, tmp_path):
    """Ctrl-C while a broker is silent ends the run at once. Batches fetched before are kept."""
    answered = []
    released = threading.Event()

    def mangle(node, api, data):
        answered.append(api)
        if answered.count("Fetch") > 5:
            os.kill(os.getpid(), signal.SIGINT)
            released.wait(20)
        return data

    cluster.mangle = mangle
    begun = time.monotonic()
    result = run(cluster, "--to", tmp_path, "--segment-bytes", 700, "--partitions", "0", code=130)
    assert time.monotonic() - begun < 10
    assert "wirescan: interrupted" in result.stderr
    released.set()
    cluster.mangle = lambda node, api, data: data
    fetched = read_segments(tmp_path / "orders-0")
    assert fetched
    assert join_entries(cluster, 0).startswith(fetched)
    run(cluster, "--to", tmp_path, "--segment-bytes", 700, "--partitions", "0")
    assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)


def test_a_log_that_was_cut(cluster, tmp_path):
    run(cluster, "--to", tmp_path)
    log = cluster.topics["orders"][0]
    log.entries = log.entries[:-1]
    log.end = 190
    assert "orders-0 ends before offset 200" in run(cluster, "--to", tmp_path, code=1).stderr


def test_a_start_that_the_log_does_not_reach(cluster, tmp_path):
    """The first run fetched no records, so the second run does not report a cut log."""
    for _ in range(2):
        result = run(cluster, "--to", tmp_path, "--start", 1000)
        assert "orders-0: nothing from offset 1000 on\n" in result.stderr


# --- refusals


def test_a_directory_of_another_fetch_is_refused(cluster, tmp_path):
    run(cluster, "--to", tmp_path)
    for more, message in (
        (("--as", "parquet"), "with kind segments, not parquet"),
        (("--isolation", "read_committed"), "with isolation read_uncommitted, not read_committed"),
        (("--start", "5"), "with start earliest, not 5"),
    ):
        assert message in run(cluster, "--to", tmp_path, *more, code=2).stderr
    cluster.ids["orders"] = bytes(range(16))
    assert "holds orders with topic id" in run(cluster, "--to", tmp_path, code=2).stderr
    cluster.hook = lambda node, api, version, body: (
        body | ({"cluster_id": "other"} if api == "Metadata" else {})
    )
    assert "with cluster fake, not other" in run(cluster, "--to", tmp_path, code=2).stderr
    assert read_segments(tmp_path / "orders-0") == join_entries(cluster, 0)


def test_a_second_run_needs_the_same_columns(cluster, tmp_path):
    run(cluster, "--to", tmp_path, "--as", "parquet", "--columns", "offset,key")
    result = run(cluster, "--to", tmp_path, "--as", "parquet", "--columns", "offset", code=2)
    assert "with columns offset,key, not offset:" in result.stderr


@pytest.mark.parametrize(
    "kind, name", [("segments", "orders-0"), ("parquet", f"orders-0-{0:020}-{5:020}.parquet")]
)
def test_files_of_another_program_are_refused(cluster, tmp_path, kind, name):
    (tmp_path / name).mkdir()
    assert "holds orders-0 already" in run(cluster, "--to", tmp_path, "--as", kind, code=2).stderr


def test_a_ledger_that_is_damaged(cluster, tmp_path):
    starts = (
        '"0": 1e999',
        '"0": 1.5',
        '"0": true',
        '"0": -1',
        '"-3": 7',
        '"0": "7"',
        f'"0": {1 << 63}',
        '"1_0": 7',
    )
    for text in (
        "",
        "[]",
        "{}",
        '{"starts": {"a": 1}}',
        '{"starts": {}}',
        "[" * 100_000,
        *(f'{{"version": 1, "starts": {{{entry}}}}}' for entry in starts),
    ):
        (tmp_path / "_orders.json").write_text(text)
        assert "_orders.json is damaged" in run(cluster, "--to", tmp_path, code=2).stderr


def test_two_fetches_into_one_directory(cluster, tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert "another fetch writes to it" in run(cluster, "--to", tmp_path, code=2).stderr
    os.close(handle)
    run(cluster, "--to", tmp_path)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--start", "soon"), "no offset, no time"),
        (("--stop", "1969-12-31"), "before 1970"),
        (("--partitions", "a"), "partitions are numbers"),
        (("--partitions", "1 2"), "partitions are numbers"),
        (("--partitions", "1" * 5000), "partitions are numbers"),
        (("--start", "1" * 5000), "offsets are at most 9223372036854775807"),
        (("--stop", str(1 << 63)), "offsets are at most 9223372036854775807"),
        (("--partitions", "9"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--columns", "offset"), "for --as parquet"),
        (("--as", "parquet", "--columns", "colour"), "no column 'colour'"),
        (("--sasl", "PLAIN"), "needs --user"),
        (("--sasl", "PLAIN", "--user", "me"), "WIRESCAN_PASSWORD"),
        (("--user", "me"), "for --sasl"),
        (
            ("--sasl", "PLAIN", "--user", "me", "--password-file", "/nowhere"),
            "/nowhere: no such file",
        ),
        (("--tls-ca", "/nowhere"), "no such file"),
        (("--segment-bytes", "0"), "0 is not in the range"),
    ],
)
def test_unfit_arguments_are_refused(cluster, tmp_path, arguments, message):
    assert message in run(cluster, "--to", tmp_path / "out", *arguments, code=2).stderr


@pytest.mark.parametrize("topic", ["../up", "..", "a/b", "", "a" * 250, "caf\xe9"])
def test_invalid_topic_names_are_refused(cluster, tmp_path, topic):
    result = run(cluster, "--to", tmp_path / "out", topic=topic, code=2)
    assert "no topic can be named" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_longest_topic_name_fits(cluster, tmp_path):
    topic = "a" * 249
    cluster.add_topic(topic)
    cluster.append(topic, 0, make_batch(0))
    for _ in range(2):
        run(cluster, "--to", tmp_path / "segments", topic=topic)
    assert read_segments(tmp_path / "segments" / f"{topic}-0") == make_batch(0)
    result = run(cluster, "--to", tmp_path / "parquet", "--as", "parquet", topic=topic, code=2)
    assert "file names there have at most 255 characters" in result.stderr
    assert not os.listdir(tmp_path / "parquet")
    assert cluster.asked[-1][1] != "Fetch"
    cluster.add_topic(topic[:203])
    cluster.append(topic[:203], 0, make_batch(0))
    run(cluster, "--to", tmp_path / "fits", "--as", "parquet", topic=topic[:203])
    run(cluster, "--to", tmp_path / "fits", "--as", "parquet", topic=topic[:203])
    assert pyarrow.dataset.dataset(tmp_path / "fits").count_rows() == 10


def test_a_missing_topic_is_reported(cluster, tmp_path):
    result = run(cluster, "--to", tmp_path / "out", topic="nowhere", code=2)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in result.stderr


def test_password_comes_from_a_file_or_the_environment(cluster, tmp_path):
    cluster.users = {"me": "secret"}
    (tmp_path / "password").write_text("secret\n")
    arguments = ("--sasl", "PLAIN", "--user", "me", "--to")
    run(cluster, *arguments, tmp_path / "a", "--password-file", tmp_path / "password")
    run(cluster, *arguments, tmp_path / "b", WIRESCAN_PASSWORD="secret")
    result = run(cluster, *arguments, tmp_path / "c", WIRESCAN_PASSWORD="wrong", code=2)
    assert "SASL_AUTHENTICATION_FAILED" in result.stderr
    assert "wrong" not in result.output
    for name in ("a", "b"):
        assert read_segments(tmp_path / name / "orders-0") == join_entries(cluster, 0)
    (tmp_path / "password").write_bytes(b"caf\xe9\n")
    result = run(
        cluster, *arguments, tmp_path / "d", "--password-file", tmp_path / "password", code=2
    )
    assert f"{tmp_path / 'password'} is not UTF-8" in result.stderr


# --- parts of the command


def make_part(data: bytes, partition: int = 0) -> Part:
    batches = kafka.scan(data)
    return Part(
        "orders", partition, kafka.records(batches), int(batches["last_offset"][-1]) + 1, batches
    )


def test_segments_roll_before_relative_offsets_exceed_32_bits(tmp_path):
    store = Segments(tmp_path / "orders-0", 1 << 30)
    far = (1 << 31) + 5
    store.add(make_part(make_batch(5) + make_batch(far - 10) + make_batch(far)))
    store.close()
    assert sorted(int(path.stem) for path in (tmp_path / "orders-0").glob("*.log")) == [5, far]
    assert find_segments_end(tmp_path, "orders-0").offset == far + 10


def test_a_full_disk_leaves_no_file_that_claims_more_than_it_holds(tmp_path, monkeypatch):
    store = ParquetParts(tmp_path, "orders-0", 0, make_schema(), 1, "zstd", "strict", 1)
    store.add(make_part(make_batch(0)))
    monkeypatch.setattr(
        "os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space"):
        store.add(make_part(make_batch(10)))
    assert find_parts_end(tmp_path, "orders-0").offset == 10
    assert os.listdir(tmp_path) == [f"orders-0-{0:020}-{10:020}.parquet"]


def test_a_terminal_shows_a_progress_bar(monkeypatch, capsys):
    terminal, other = pty.openpty()
    with open(other, "w") as messages:
        monkeypatch.setattr("wirescan.cli.progress.PATIENCE", -1)
        monkeypatch.setattr(sys, "stderr", messages)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        with FetchProgress(200, "orders") as bar:
            bar(50, "orders: 5 records, 1.0 KiB, 1.0 KiB/s")
            bar(50, "orders: 10 records, 2.0 KiB, 1.0 KiB/s")
    assert capsys.readouterr().out == ""
    output = ""
    while "50%" not in output:  # a terminal returns its output in pieces
        output += os.read(terminal, 1 << 16).decode()
    assert "orders: 10 records, 2.0 KiB, 1.0 KiB/s" in output
    os.close(terminal)


def test_a_range_has_only_offsets_of_a_log(cluster):
    assert len(OffsetRange("a", 0, 0, (1 << 63) - 1)) == (1 << 63) - 1
    for start, stop in ((-5, 5), (0, 1 << 63), (5, 4)):
        with pytest.raises(ValueError, match="no offsets of a log"):
            OffsetRange("a", 0, start, stop)
    cluster.topics["orders"][0].start = -5  # no valid start
    whole_log = OffsetRange("orders", 0, 0, (1 << 63) - 1)
    with Client(cluster.bootstrap) as client:
        assert plan_ranges(client, ["orders"], [0], stop=(1 << 63) - 1) == [whole_log]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=5), st.integers(1, 400)
)
def test_ranges_are_cut_evenly(pairs, size):
    whole = [
        OffsetRange("orders", number, start, start + count)
        for number, (start, count) in enumerate(pairs)
    ]
    pieces = split_ranges(whole, size)
    assert all(0 < len(piece) <= size for piece in pieces)
    for span in whole:
        pieces_of_span = [piece for piece in pieces if piece.partition == span.partition]
        offsets = [offset for piece in pieces_of_span for offset in range(piece.start, piece.stop)]
        assert offsets == list(range(span.start, span.stop))
        lengths = list(map(len, pieces_of_span)) or [0]
        assert max(lengths) - min(lengths) <= 1
    with pytest.raises(ValueError, match="at least 1 offset"):
        split_ranges(whole, 0)


def test_times_become_milliseconds():
    assert (
        to_milliseconds("2023-11-14T22:13:20Z")
        == FIRST_TIME
        == to_milliseconds("2023-11-14 22:13:20")
    )
    assert to_milliseconds("2023-11-15T00:13:20.0019+02:00") == FIRST_TIME + 1
    assert to_milliseconds(None) is None
    assert to_milliseconds(5) == 5
    with pytest.raises(ValueError, match="soon"):
        to_milliseconds("soon")
