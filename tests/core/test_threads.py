"""Simultaneous calls from several threads have the same results as successive calls.

The tests run with and without the global interpreter lock. `.ci/free-threaded` runs them without
it.
"""

import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import wirescan
from wirescan import Fault, Limits, kafka
from wirescan.frames import format as formats_module
from wirescan.frames import registry
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.protocol.compile import compile_programs, compile_steps
from wirescan.kafka.protocol.encode import encode_request
from wirescan.kafka.protocol.schema import MESSAGE
from wirescan.lumberjack.encode import encode_batch as encode_window
from wirescan.nats.encode import encode_pub
from wirescan.thrift import MessageType
from wirescan.thrift.encode import encode_frame
from wirescan.thrift.encode import encode_message as encode_call

THREADS = 8
ROUNDS = 3
LARGE_ROUNDS = 20
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture(autouse=True)
def switch_often():
    """Let an interpreter with a lock switch threads far more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all calls at the same moment, each in its own thread. Return their results in order."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(10)
            results[number] = calls[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread did not end in 60 seconds"
    if errors:
        raise errors[0]
    return results


def make_batches(seed: int, codec: str = "gzip", count: int = 6) -> bytes:
    """Record batches whose contents and sizes depend on `seed`."""
    batches = []
    for number in range(count):
        records = []
        for i in range(10 + 7 * seed):
            value = b"%d-%d-%d" % (seed, number, i) * (1 + (i + seed) % 5)
            records.append(
                Record(key=b"key %d" % i, value=value, headers=[(b"seed", b"%d" % seed)])
            )
        batches.append(encode_batch(records, codec=codec, base_offset=1000 * number))
    return b"".join(batches)


def list_contents(table: wirescan.FrameTable) -> tuple:
    """Return the rows of a table, where its scan stopped, and the bytes of its places."""
    places = [[read_bytes(table, i, name) for i in range(len(table))] for name in table.places]
    names = [name for name in table.dtype.names if not name.startswith("_")]
    return table.rows[names].tolist(), table.stops, places


def read_bytes(table: wirescan.FrameTable, row: int, place: str) -> bytes | None:
    view = table.bytes(row, place)
    return None if view is None else bytes(view)


def list_sources() -> list[tuple[str, bytes]]:
    """Return (format, bytes) pairs for every protocol."""
    subjects = [encode_pub(f"orders.{i}", b"x" * i, headers={"n": str(i)}) for i in range(30)]
    events = [{"message": f"line {i}", "n": i} for i in range(30)]
    call = encode_call("add", MessageType.CALL, 7)
    frames = [encode_frame(call, seq=i, transforms=[1], infos={"k": str(i)}) for i in range(30)]
    return [
        ("kafka.headers", make_batches(2)),
        ("kafka.records", make_batches(3, "zstd")),
        ("nats.headers", b"".join(subjects)),
        ("lumberjack.frames", encode_window(events, level=3)),
        ("thrift.frames", b"".join(frames)),
        ("kafka.records", make_batches(1, "lz4")),
        ("kafka.records", make_batches(4, "snappy")),
        ("kafka.batches", make_batches(5, "none")),
    ]


def test_one_table_in_all_threads():
    table = wirescan.scan(make_batches(3), "kafka.batches")

    def read_table() -> tuple:
        records = table.open("records")
        headers = records.open("headers")
        positions = headers.positions.tolist()
        frames = [bytes(table.frame(i)) for i in range(len(table))]
        offsets = [row.offset for row in records]
        even = records.where(records["offset"] % 2 == 0)
        tables = (
            list_contents(table),
            list_contents(records),
            list_contents(headers),
            list_contents(even),
        )
        return positions, frames, offsets, tables

    expected = read_table()
    for _ in range(ROUNDS):
        assert all(result == expected for result in run_together([read_table] * THREADS))


def test_the_same_bytes_in_all_threads():
    raw = make_batches(4, "zstd")
    expected = list_contents(wirescan.scan(raw, "kafka.records"))
    for _ in range(ROUNDS):
        scans = [lambda: list_contents(wirescan.scan(raw, "kafka.records"))] * THREADS
        assert all(result == expected for result in run_together(scans))


def test_each_thread_scans_a_protocol_of_its_own():
    def scan(format: str, raw: bytes) -> Callable[[], tuple]:
        return lambda: list_contents(wirescan.scan(raw, format))

    scans = [scan(*source) for source in list_sources()]
    expected = [call() for call in scans]
    assert all(rows for rows, _, _ in expected)
    for _ in range(ROUNDS):
        assert run_together(scans) == expected


def test_each_thread_feeds_a_stream_of_its_own():
    def feed(number: int, format: str, raw: bytes) -> Callable[[], list]:
        def call() -> list:
            stream = wirescan.stream(format)
            step = 37 + 11 * number
            tables = [stream.feed(raw[at : at + step]) for at in range(0, len(raw), step)]
            tables.append(stream.close())
            return list_contents(wirescan.join([table for table in tables if len(table)]))[2]

        return call

    streams = [feed(number, *source) for number, source in enumerate(list_sources())]
    expected = [list_contents(wirescan.scan(raw, format))[2] for format, raw in list_sources()]
    assert run_together(streams) == expected


def test_each_call_has_its_own_limits():
    raw = make_batches(6, count=4)
    sizes = [len(make_batches(6, "none", count)) for count in range(1, 5)]
    # The limits admit the payloads of 1, 2, 3 and 4 batches, and of none. 61 bytes of each batch
    # are not compressed.
    limits = [Limits(inflated_total=max(1, sizes[n] - 61 * (n + 1))) for n in range(4)]
    limits.append(Limits(inflated_total=1))

    def scan(limit: Limits) -> list[int]:
        batches = wirescan.scan(raw, "kafka.batches", limits=limit)
        records = kafka.records(batches, errors="mark", limits=limit)
        return records["fault"].tolist()

    expected = [scan(limit) for limit in limits]
    refused = [faults.count(Fault.TOO_LARGE) for faults in expected]
    assert refused == [3, 2, 1, 0, 4]
    for _ in range(ROUNDS):
        scans = [lambda limit=limit: scan(limit) for limit in limits]
        assert run_together(scans + scans[:3]) == expected + expected[:3]


def test_programs_of_messages_are_made_in_all_threads():
    version = MESSAGE["Metadata", "request"].versions[-1]
    raw = encode_request("Metadata", version, {"topics": [{"name": "a"}, {"name": "b"}]})

    def scan() -> tuple:
        return list_contents(wirescan.scan(raw, "kafka.metadata_request.topics"))

    expected = scan()
    assert expected[2]
    assert len(expected[0]) == 2
    for _ in range(ROUNDS):
        compile_programs.cache_clear()
        compile_steps.cache_clear()
        assert all(result == expected for result in run_together([scan] * THREADS))


def test_formats_that_threads_register_at_the_first_use_are_all_known(monkeypatch):
    """Without a common dict, a thread could register its format in a dict that is discarded."""
    real = registry.import_module
    waits = iter(np.linspace(0.03, 0.001, THREADS * len(registry.PROTOCOLS)).tolist())

    def import_slowly(name: str) -> Any:
        time.sleep(next(waits, 0.001))
        return real(name)

    formats = (
        registry.format_of("nats.messages"),
        *(replace(registry.format_of("nats.messages"), name=f"thread.{i}") for i in range(THREADS)),
    )
    monkeypatch.setattr(registry, "import_module", import_slowly)
    monkeypatch.setattr(registry, "_tables", {})
    run_together([lambda format=format: formats_module.register(format) for format in formats[1:]])
    assert {format.name for format in formats} <= set(registry.formats())


def test_blocks_of_large_tables_are_used_again_by_one_thread_each():
    """A freed block of rows is kept for the next scan, which may run in another thread."""
    # Blocks of more than 2 MiB are kept. The sizes are similar, so any block fits any scan.
    raws = [encode_pub(f"orders.{i}", b"x" * i) * (40_000 + 1000 * i) for i in range(THREADS)]
    expected = [wirescan.scan(raw, "nats.messages").rows.tobytes() for raw in raws]
    assert min(map(len, expected)) > 2 << 20

    def scan(number: int) -> Callable[[], list[bool]]:
        def call() -> list[bool]:
            # A table is freed while another thread requests a block.
            tables = (wirescan.scan(raws[number], "nats.messages") for _ in range(LARGE_ROUNDS))
            return [table.rows.tobytes() == expected[number] for table in tables]

        return call

    same = run_together([scan(number) for number in range(THREADS)])
    assert same == [[True] * LARGE_ROUNDS] * THREADS


@pytest.mark.skipif(not FREE_THREADED, reason="this interpreter always has its lock")
def test_the_modules_leave_the_lock_off():
    assert not sys._is_gil_enabled()
