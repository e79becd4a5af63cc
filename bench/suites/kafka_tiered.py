"""Old data in tiered storage: its files without a broker, compared with consumers of the broker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers.consumers import Confluent, fill
from bench.peers.programs import TIERED_TOPIC, await_tiered, make_tiered_broker
from bench.report import Report, format_timings
from bench.timing import Contender, Times, interleave, time_call
from wirescan import kafka
from wirescan.kafka.client.topic_batches import to_batches

FULL = {"records": 2_000_000, "rounds": 7}
QUICK = {"records": 200_000, "rounds": 2}
SIZE = 100  # bytes of key and value together
SEGMENTS = 20
TOPIC = "records"
COLUMNS = ["offset", "timestamp", "key", "value"]


def run(records: int, rounds: int) -> str:
    """Return the section as markdown."""
    with ExitStack() as stack:
        storage = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(make_tiered_broker(storage))
        broker.create_topic(TOPIC, TIERED_TOPIC | {"segment.bytes": records * SIZE // SEGMENTS})
        fill(broker.address, TOPIC, 1, records, SIZE)
        moved = await_tiered(broker, TOPIC, timeout=300)
        (directory,) = storage.glob(f"kafka-tiered-storage/{TOPIC}-0-*")
        start, stop = moved // 4, moved * 3 // 4
        count = stop - start
        confluent = stack.enter_context(
            closing(Confluent(broker.address, TOPIC, 1, count, start=start))
        )

        def contender(name: str, seconds: Callable[[], float]) -> Contender:
            return Contender(name, seconds, count, count * SIZE)

        def reader(name: str, read: Callable[[], int]) -> Contender:
            return contender(name, time_call(partial(require, read, count), rehearse=False))

        def fetcher(name: str, use: Callable[[Any], Any]) -> Contender:
            return reader(name, lambda: fetch(broker.address, start, stop, use))

        times = interleave(
            [
                reader("kafka.open_log", lambda: len(open_range(directory, start, stop))),
                fetcher("kafka.fetch", lambda part: None),
                contender("confluent-kafka", confluent.consume),
                reader(
                    "kafka.open_log, Arrow",
                    lambda: len(open_range(directory, start, stop).to_arrow(COLUMNS)),
                ),
                fetcher("kafka.fetch, Arrow", lambda part: list(to_batches(part, COLUMNS))),
                contender("confluent-kafka, Arrow", confluent.arrow),
            ],
            rounds,
        )
        used = measure_broker(broker.process.pid, lambda: open_range(directory, start, stop))
        served = measure_broker(broker.process.pid, confluent.consume)
    return make_report(times, count, records, used, served).markdown(["confluent-kafka", "pyarrow"])


def make_report(times: Times, count: int, records: int, used: float, served: float) -> Report:
    """Return the targets, the text and the table.

    used, served: processor seconds of the broker while the files are read, and while it serves.
    """
    report = Report("Kafka, tiered storage", threads="those of each client")
    report.at_least(
        "times as fast from the files as `kafka.fetch` through the broker",
        1,
        times.ratio("kafka.fetch", "kafka.open_log"),
    )
    report.at_least(
        "times as fast from the files as `confluent_kafka.Consumer.consume()`, both into Arrow",
        1,
        times.ratio("confluent-kafka, Arrow", "kafka.open_log, Arrow"),
    )
    report.say(
        f"{count:,} records in the middle of a partition with {records:,} uncompressed records of "
        f"{SIZE} bytes. A broker of Kafka 4.3 has moved their segments, of which there are about "
        f"{SEGMENTS}, to a LocalTieredStorage, and has deleted its own files. `kafka.open_log` "
        "reads them there. The others get the same range from the broker, which reads them there "
        "too. All run on one machine, and the pages are warm. All verify checksums, except "
        "confluent-kafka. Arrow batches have the columns offset, timestamp, key and value.",
    )
    report.say(
        f"The broker used {used:.2f} s of the processor while `kafka.open_log` read the range "
        f"once, and {served:.2f} s while confluent-kafka did.",
    )
    against = dict.fromkeys(("kafka.fetch", "confluent-kafka"), "kafka.open_log")
    against |= {f"{name}, Arrow": "kafka.open_log, Arrow" for name in against}
    report.say(format_timings(times, against))
    return report


def open_range(directory: Path, start: int, stop: int) -> Any:
    """Return the table of the records in a range of offsets."""
    return kafka.records(kafka.open_log(directory, start=start, stop=stop))


def fetch(address: str, start: int, stop: int, use: Callable[[Any], Any]) -> int:
    """Read a range of offsets through the broker. Return the number of its records."""
    count = 0
    for part in kafka.fetch(address, TOPIC, start=start, stop=stop):
        use(part)
        count += len(part.records)
    return count


def require(read: Callable[[], int], count: int) -> None:
    """Read a range. Raise ValueError if it has another number of records."""
    found = read()
    if found != count:
        raise ValueError(f"wirescan reads {found} of {count} records")


def measure_broker(process: int, call: Callable[[], Any]) -> float:
    """Return the processor seconds that a process uses while a call runs."""
    before = read_processor_time(process)
    call()
    return read_processor_time(process) - before


def read_processor_time(process: int) -> float:
    """Return the processor seconds that a process has used, from Linux's /proc."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")
