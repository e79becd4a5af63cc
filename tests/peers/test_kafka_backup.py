"""OSO's kafka-backup: wirescan reads, without a broker, what the program has written."""

import pytest

import wirescan
from tests.support.kbak_records import list_backup_records

from .broker import Broker
from .kafka_backup import COMPRESSIONS, back_up
from .producers import CODECS, make_orders, send_librdkafka
from .readers import consume

# The program takes minutes to build.
pytestmark = [pytest.mark.peers, pytest.mark.nightly]

TOPIC = "orders"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_are_those_that_a_consumer_reads(compression, tmp_path):
    rows = make_orders(3000, seed=5)
    with Broker() as broker:
        broker.create_topic(TOPIC)
        for number, codec in enumerate(CODECS):
            send_librdkafka(broker.address, TOPIC, rows[number * 600 :][:600], codec)
        consumed = consume(broker.address, TOPIC, auto_offset_reset="earliest")
        backup = back_up(
            broker.address,
            TOPIC,
            tmp_path,
            compression,
            include_offset_headers=False,
            segment_max_records=700,
        )
    segments = wirescan.scan(backup, "kafka.kbak_segments")
    assert len(segments) > 1
    records = list_backup_records(wirescan.scan(backup, "kafka.kbak_records"))
    assert records == consumed
    assert len(records) == len(rows)
