"""A partition directory: wirescan reads what its broker answered before it stopped."""

import random
import re
from types import SimpleNamespace

import pytest

from tests.support.places import copy_bytes
from wirescan import kafka
from wirescan.kafka import PartitionLog
from wirescan.kafka.log import index_files

from .broker import LINES, Broker, dump
from .canonical import Record
from .producers import (
    CODECS,
    EPOCH,
    make_orders,
    send_interleaved,
    send_librdkafka,
    send_transactions,
)
from .readers import consume

pytestmark = pytest.mark.peers

TOPIC = "orders"
DELETED = 700  # records before this offset are deleted


@pytest.fixture(scope="module", params=LINES)
def stopped(request):
    """A partition directory of a stopped broker, with the broker's answers.

    The answers are the offsets for times, and the records that consumers read.
    """
    from confluent_kafka import TopicPartition as Partition
    from confluent_kafka.admin import AdminClient
    from kafka import KafkaConsumer, TopicPartition

    with Broker(line=request.param) as broker:
        broker.create_topic(TOPIC, {"segment.bytes": 1 << 20})  # 4.x takes no less
        chance = random.Random(3)
        rows = [
            row._replace(
                value=row.value and row.value + chance.randbytes(2000),
                timestamp=EPOCH + 10 * number + chance.randrange(500),  # not sorted
            )
            for number, row in enumerate(make_orders(1500, seed=3, big=False))
        ]
        for number, codec in enumerate(CODECS):
            send_librdkafka(
                broker.address,
                TOPIC,
                rows[number * 200 : number * 200 + 200],
                codec,
                batch_num_messages=20,
            )
        send_transactions(broker.address, TOPIC, rows[1000:1200], "lz4", "cacaac", "first")
        send_interleaved(broker.address, TOPIC, rows[1200:1500], "none")
        consumer = KafkaConsumer(bootstrap_servers=broker.address)
        partition = TopicPartition(TOPIC, 0)
        stamps = sorted(
            {row.timestamp + step for row in rows[::10] for step in (-1, 0, 1)} | {0, 2**60}
        )
        answers = {
            stamp: consumer.offsets_for_times({partition: stamp})[partition] for stamp in stamps
        }
        end = consumer.end_offsets([partition])[partition]
        consumer.close()
        admin = AdminClient({"bootstrap.servers": broker.address})
        for deletion in admin.delete_records([Partition(TOPIC, 0, DELETED)]).values():
            deletion.result(30)
        consumed = {
            isolation: consume(broker.address, TOPIC, isolation, auto_offset_reset="earliest")
            for isolation in ("read_committed", "read_uncommitted")
        }
        broker.stop()
        yield SimpleNamespace(
            line=request.param,
            log=PartitionLog(broker.directory(TOPIC)),
            answers=answers,
            end=end,
            consumed=consumed,
        )


def list_records(table) -> list[Record]:
    records = kafka.within(kafka.records(table), DELETED)
    records = records.where(records.outer["is_control"][records["parent"]] == 0)
    headers = kafka.headers(records)
    header_lists: list[list] = [[] for _ in range(len(records))]
    for row, parent in enumerate(headers["parent"].tolist()):
        name = copy_bytes(headers.bytes(row, "key"))
        content = copy_bytes(headers.bytes(row, "value"))
        header_lists[parent].append((name, content))
    return [
        Record(
            record.offset,
            record.timestamp,
            copy_bytes(record.key),
            copy_bytes(record.value),
            tuple(header_lists[row]),
        )
        for row, record in enumerate(records)
    ]


def test_checkpoints_are_those_of_the_broker(stopped):
    assert (stopped.log.topic, stopped.log.partition) == (TOPIC, 0)
    assert len(stopped.log.segments) > 2
    assert (stopped.log.high_watermark, stopped.log.log_start) == (stopped.end, DELETED)
    assert stopped.log.recovery_point == stopped.end
    assert stopped.log.read_metadata().version == 0
    assert stopped.log.read_leader_epochs()["start_offset"][0] <= DELETED


def test_offsets_for_times_are_those_of_the_broker(stopped):
    """Offsets for times are the answers of ListOffsets before the deletion.

    The deletion removes whole segments. So only answers in the remaining segments are compared.
    """
    first = stopped.log.segments[0].base_offset
    compared = 0
    for stamp, answer in stopped.answers.items():
        if answer is None or answer.offset >= first:
            expected = None if answer is None else (answer.offset, answer.timestamp)
            assert stopped.log.find_offset(stamp) == expected, stamp
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_isolation_levels_read_like_the_consumer(stopped, isolation):
    table = kafka.open_log(stopped.log.directory, isolation=isolation, checkpoints=True)
    assert list_records(table) == stopped.consumed[isolation]
    assert len(stopped.consumed[isolation]) > 100


@pytest.mark.parametrize("start, stop", [(800, 1100), (1000, 1250), (1210, 1400), (1300, None)])
def test_a_range_of_offsets(stopped, start, stop):
    table = kafka.open_log(
        stopped.log.directory, start=start, stop=stop, isolation="read_committed"
    )
    offsets = kafka.within(kafka.records(table), start, stop)["offset"].tolist()
    bound = stopped.end if stop is None else stop
    assert offsets == [
        record.offset
        for record in stopped.consumed["read_committed"]
        if start <= record.offset < bound
    ]


def test_files_read_like_kafkas_tool(stopped):
    if stopped.line != "3.9":
        pytest.skip("the tool of one line is enough: the files are the same")
    for segment in stopped.log.segments:
        text = dump(segment.find_side_path("timeindex"), options=())
        pairs = [
            tuple(map(int, pair))
            for pair in re.findall(r"^timestamp: (-?\d+) offset: (\d+)", text, re.M)
        ]
        assert segment.read_time_index().tolist() == [
            pair for pair in pairs if pair != (0, segment.base_offset)
        ]
        if len(segment.read_transaction_index()):
            text = dump(segment.find_side_path("txnindex"), options=())
            entries = re.findall(
                r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)",
                text.replace(", ", " ").replace("=", ": "),
            )
            assert segment.read_transaction_index().tolist() == [
                tuple(map(int, entry)) for entry in entries
            ]
    assert sum(len(segment.read_transaction_index()) for segment in stopped.log.segments) >= 3
    for path in stopped.log.list_snapshots().values():
        text = dump(path, options=())
        theirs = re.findall(r"producerId: (\d+) producerEpoch: (-?\d+)", text)
        ours = index_files.read_producer_snapshot(path)
        our_pairs = zip(ours["producer_id"].tolist(), ours["producer_epoch"].tolist())
        their_pairs = [(int(producer), int(epoch)) for producer, epoch in theirs]
        assert sorted(our_pairs) == sorted(their_pairs)
