"""Tiered storage: wirescan reads, without a broker, what a broker has moved there."""

import json
import random
import subprocess
import sys
from types import SimpleNamespace

import pyarrow.dataset
import pytest

from tests.support.canonical_records import list_canonical_records
from wirescan import kafka
from wirescan.frames.registry import format_of
from wirescan.kafka import PartitionLog
from wirescan.reading.filters import check_filters, prune_file

from .canonical import Record
from .producers import CODECS, EPOCH, make_orders, send_librdkafka, send_transactions
from .tiered_storage import TOPIC_SETTINGS, await_tiered, consume_moved, make_tiered_broker

pytestmark = pytest.mark.peers

TOPIC = "orders"


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """A directory of tiered storage, with what consumers read through the broker.

    The broker has deleted its own files of these segments before the consumers read them.
    """
    storage = tmp_path_factory.mktemp("storage")
    with make_tiered_broker(storage) as broker:
        broker.create_topic(TOPIC, TOPIC_SETTINGS | {"segment.bytes": 200_000})
        chance = random.Random(9)
        rows = [
            row._replace(
                value=row.value and row.value + chance.randbytes(400),
                timestamp=EPOCH + 40 * number,  # rising, so that the indexes of times exclude much
            )
            for number, row in enumerate(make_orders(4000, seed=9))
        ]
        for number, codec in enumerate(CODECS):
            part = rows[number * 600 : number * 600 + 600]
            send_librdkafka(broker.address, TOPIC, part, codec, batch_num_messages=20)
        send_transactions(broker.address, TOPIC, rows[3000:3400], "lz4", "cacaac", "first")
        send_transactions(broker.address, TOPIC, rows[3400:3600], "none", "aca", "second")
        send_librdkafka(broker.address, TOPIC, rows[3600:], "none", batch_num_messages=20)
        stop = await_tiered(broker, TOPIC)
        consumed = {
            isolation: consume_moved(broker, TOPIC, stop, isolation)
            for isolation in ("read_committed", "read_uncommitted")
        }
        (directory,) = storage.glob(f"kafka-tiered-storage/{TOPIC}-0-*")
        yield SimpleNamespace(directory=directory, consumed=consumed, stop=stop)


def list_records(batches) -> list[Record]:
    """The records of a table of batches without control records."""
    records = kafka.records(batches)
    is_control = batches["is_control"][records["parent"]] != 0
    return list_canonical_records(records.where(~is_control))


def run_wirescan(*arguments: object) -> str:
    command = [sys.executable, "-m", "wirescan", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_are_those_that_a_consumer_gets_through_the_broker(moved, isolation):
    records = list_records(kafka.open_log(moved.directory, isolation=isolation))
    assert records == moved.consumed[isolation]
    assert len(records) > 3000


def test_the_log_is_whole(moved):
    log = PartitionLog(moved.directory)
    assert (log.topic, log.partition) == (TOPIC, 0)
    assert len(log.segments) > 5
    assert all(segment.is_tiered for segment in log.segments)
    assert all(len(segment.read_time_index()) for segment in log.segments)
    assert sum(len(segment.read_transaction_index()) for segment in log.segments) >= 3
    assert log.read_leader_epochs()["start_offset"].tolist() == [0]
    assert log.read()["last_offset"][-1] == moved.stop - 1


@pytest.mark.parametrize("start, stop", [(0, 10), (700, 1400), (2900, 3300), (3350, 3500)])
def test_a_range_is_that_of_the_consumer(moved, start, stop):
    batches = kafka.open_log(moved.directory, start=start, stop=stop, isolation="read_committed")
    expected = [r for r in moved.consumed["read_committed"] if start <= r.offset < stop]
    assert list_records(batches) == expected


def test_a_range_of_times_is_that_of_the_consumer(moved):
    start, stop = EPOCH + 40 * 700, EPOCH + 40 * 2500
    batches = kafka.open_log(moved.directory, start_time=start, stop_time=stop)
    expected = [r for r in moved.consumed["read_uncommitted"] if start <= r.timestamp < stop]
    assert list_records(batches) == expected
    assert len(expected) == 1800


def test_a_range_needs_only_some_segments(moved, tmp_path):
    """Offsets are read with two segments of the log alone. Indexes exclude most of the rest."""
    log = PartitionLog(moved.directory)
    first, second, third = log.segments[2:5]
    directory = tmp_path / moved.directory.name
    directory.mkdir()
    for path in moved.directory.iterdir():
        data = path.read_bytes()
        if path.suffix == ".log" and str(path) not in (first.path, second.path):
            data = b"\xff" * len(data)
        (directory / path.name).write_bytes(data)
    start, stop = first.base_offset + 20, third.base_offset - 20
    batches = kafka.open_log(directory, start=start, stop=stop)
    expected = [r for r in moved.consumed["read_uncommitted"] if start <= r.offset < stop]
    assert list_records(batches) == expected
    where = f"offset >= {start} and offset < {stop}"
    options = ["--format", "kafka.records", "--columns", "offset", "--json"]
    lines = run_wirescan("scan", directory, "--where", where, *options)
    offsets = [json.loads(line)["offset"] for line in lines.splitlines()]
    assert offsets == list(range(start, stop))


def test_times_exclude_parts_of_segments(moved):
    format = format_of("kafka.records")
    log = PartitionLog(moved.directory)
    read = 0
    late = max(record.timestamp for record in moved.consumed["read_uncommitted"])
    for segment in log.segments:
        filters = check_filters([("timestamp", ">=", late)], format)
        start, stop = prune_file(segment.path, format, filters)
        read += stop - start
    assert read < sum(segment.size for segment in log.segments) / 2


def test_the_command_verifies_the_directory(moved):
    lines = run_wirescan("verify", "--json", moved.directory.parent / f"{TOPIC}-0-*")
    summary = json.loads(lines.splitlines()[-1])
    assert summary["clean"]
    assert summary["records"] == moved.stop


def test_the_command_converts_the_directory(moved, tmp_path):
    columns = "topic,partition,offset,timestamp,key,value"
    target = tmp_path / "orders.parquet"
    run_wirescan("convert", moved.directory, target, "--columns", columns, "--no-query")
    table = pyarrow.dataset.dataset(target).to_table().sort_by("offset")
    records = kafka.records(kafka.open_log(moved.directory))
    assert table["offset"].to_pylist() == list(range(moved.stop))
    assert set(table["topic"].to_pylist()) == {TOPIC}
    assert set(table["partition"].to_pylist()) == {0}
    for name in ("key", "value"):
        assert table[name].to_pylist() == records[name].to_pylist()
