"""core/shares.pyx: several threads fill the rows of one table, and it equals that of one thread."""

import random
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.laws.cases import steady
from tests.strategies import kafka as kafka_strategies
from tests.strategies.kafka import correct_checksums
from wirescan import Fault, FrameError, Limits, kafka, nats
from wirescan.core import parallel, shares
from wirescan.core.parallel import LEAST_SHARE, FixedWorkers
from wirescan.files import whole_source
from wirescan.files.whole_source import LEAST_VERIFIED
from wirescan.frames.errors import MODES
from wirescan.frames.table import FrameTable
from wirescan.kafka import Record, encode_batch, encode_message_set
from wirescan.nats.encode import encode_pub

NUMBERS = (2, 3, 7)
HEADER = 61  # bytes of a batch before its records
COUNT_AT = 57
# Places in a batch: the position of a byte, and the bits that are changed.
PLACES = {
    "sign": (8, 0x80),
    "length": (11, 0x7F),
    "magic": (16, 5),
    "crc": (18, 5),
    "codec": (22, 5),
    "payload": (70, 5),
}


def make_batches(count=30, seed=1):
    """Return uncompressed batches with records of lognormal sizes, nulls and headers."""
    shuffle = random.Random(seed)
    batches = []
    for n in range(count):
        records = [
            Record(
                1000 * n + i,
                10**12 + shuffle.randrange(5000),
                shuffle.choice((None, b"", b"key %d" % i)),
                shuffle.choice((None, shuffle.randbytes(int(shuffle.lognormvariate(3, 1.5))))),
                [(b"trace", b"%d" % i)] * shuffle.choice((0, 0, 2)),
            )
            for i in range(shuffle.randrange(1, 120))
        ]
        batches.append(encode_batch(records))
    return batches


BATCHES = make_batches()
RAW = b"".join(BATCHES)


def claim(batch, added):
    """Return a batch that claims more or fewer records than it has, with a good checksum."""
    changed = bytearray(batch)
    count = int.from_bytes(batch[COUNT_AT : COUNT_AT + 4], "big")
    changed[COUNT_AT : COUNT_AT + 4] = (count + added).to_bytes(4, "big")
    return correct_checksums(bytes(changed))


def describe(call):
    """Return all that a call gives: the rows byte by byte, or the error and its partial table."""
    try:
        table = call()
    except FrameError as error:
        rows = None if error.partial is None else error.partial.rows.tobytes()
        return str(error), error.fault, error.row, error.offset, rows
    buffers = [bytes(buffer) for buffer in table.buffers]
    return table.rows.tobytes(), table.stops, table.checked, table.errors, buffers


def assert_same(call, numbers=NUMBERS):
    """Assert that a call gives the same on each number of threads. Return what it gives."""
    with FixedWorkers(1):
        expected = describe(call)
    for number in numbers:
        with FixedWorkers(number):
            assert describe(call) == expected, number
    return expected


@pytest.fixture
def share_counts(monkeypatch):
    """Return a list: the number of shares of each table that several threads fill."""
    counts = []
    run_each = shares.run_each

    def count(functions):
        counts.append(len(functions))
        return run_each(functions)

    monkeypatch.setattr(shares, "run_each", count)
    return counts


@pytest.fixture
def verified_shares(monkeypatch):
    """Return a list: the number of shares of each buffer whose checksums several threads verify."""
    counts = []
    run_each = whole_source.run_each

    def count(functions):
        counts.append(len(functions))
        return run_each(functions)

    monkeypatch.setattr(whole_source, "run_each", count)
    return counts


@pytest.mark.parametrize("errors", MODES)
@pytest.mark.parametrize("check", [True, False])
def test_records_of_uncompressed_batches(share_counts, errors, check):
    batches = kafka.scan(RAW, check=False)
    assert_same(lambda: kafka.records(batches, errors=errors, check=check))
    assert share_counts == list(NUMBERS)
    table = kafka.records(batches, workers=3)
    assert len(table) > 1000
    assert not table.rows.flags.writeable
    assert_same(lambda: kafka.headers(table))
    assert share_counts[-len(NUMBERS) :] == list(NUMBERS)


@pytest.mark.parametrize("added", [-1, 1, 1000, -(2**31)])
@pytest.mark.parametrize("wrong", [[0], [29], [7, 8, 9, 25], list(range(30))], ids=str)
def test_wrong_numbers_of_records(share_counts, wrong, added):
    batches = list(BATCHES)
    for n in wrong:
        count = int.from_bytes(batches[n][COUNT_AT : COUNT_AT + 4], "big")
        batches[n] = claim(batches[n], added if added > -(2**31) else 2**31 - 1 - count)
    outer = kafka.scan(b"".join(batches))
    assert_same(lambda: kafka.records(outer, errors="mark"))
    assert share_counts == list(NUMBERS)
    table = kafka.records(outer, errors="mark", workers=2)
    assert (table["fault"] == Fault.BAD_COUNT).sum() == len(wrong)
    assert_same(lambda: kafka.records(outer))


def test_many_more_rows_than_the_batches_claim_together():
    """Each share has more rows than its part of the array, so it continues elsewhere."""
    raw = b"".join(claim(encode_batch([b"a", b"b"]), -1) for _ in range(3000))
    outer = kafka.scan(raw)
    assert_same(lambda: kafka.records(outer, errors="mark"))
    table = kafka.records(outer, errors="mark", workers=3)
    assert len(table) == 6000
    assert table["parent"].tolist() == [n // 2 for n in range(6000)]


def test_an_array_of_the_caller_is_filled_by_several_threads(share_counts):
    outer = kafka.scan(RAW)
    expected = kafka.records(outer, workers=1)
    into = np.zeros(len(expected) + 3, kafka.RECORD)
    table = kafka.records(outer, into=into, workers=3)
    assert share_counts == [3]
    assert np.shares_memory(table.rows, into)
    assert table.rows.tobytes() == expected.rows.tobytes()
    short = into[: len(expected) - 1]
    with pytest.raises(ValueError, match="there are more frames"):
        kafka.records(outer, into=short, workers=3)
    more = kafka.scan(b"".join(claim(batch, -1) for batch in BATCHES))
    expected = kafka.records(more, errors="mark", workers=1)
    table = kafka.records(more, errors="mark", into=np.zeros(9999, kafka.RECORD), workers=3)
    assert table.rows.tobytes() == expected.rows.tobytes()


@pytest.mark.parametrize("check", [True, False])
def test_a_limit_in_any_share_is_reached_at_the_same_row(check):
    damaged = list(BATCHES)
    damaged[3] = BATCHES[3][:-1] + bytes([BATCHES[3][-1] ^ 1])
    damaged[11] = claim(BATCHES[11], -1)
    damaged[20] = claim(BATCHES[20], 5)
    outer = kafka.scan(b"".join(damaged), check=False)
    count = len(kafka.records(outer, errors="mark", check=check))
    reached = 0
    for rows in [1, 2, *range(5, count, 97), count - 1, count, count + 1]:
        found = assert_same(
            lambda limits=Limits(rows=rows): kafka.records(
                outer, errors="mark", check=check, limits=limits
            ),
            (2, 5),
        )
        reached += found[1] == Fault.LIMIT
    assert reached > 10


def test_shares_with_more_rows_than_expected_reach_the_limit_at_the_same_row(share_counts):
    raw = b"".join(claim(encode_batch([b"a", b"b", b"c"]), -1) for _ in range(300))
    outer = kafka.scan(raw)
    for rows in (600, 601, 700, 898, 899, 900, 901):
        limits = Limits(rows=rows)
        found = assert_same(lambda: kafka.records(outer, errors="mark", limits=limits))
        assert (found[1] == Fault.LIMIT) == (rows < 900)
    assert len(share_counts) == 7 * len(NUMBERS)
    headers = {f"h{n}": "x" for n in range(10)}
    messages = nats.scan(b"".join(encode_pub("a", b"", headers=headers) for _ in range(300)))
    rows = messages.rows.copy()
    rows["header_count"] = 1
    forged = FrameTable(messages.buffers, rows, messages.stops, messages.format)
    for most in (300, 301, 1500, 2999, 3000):
        limits = Limits(rows=most)
        found = assert_same(lambda: nats.headers(forged, limits=limits))
        assert (found[1] == Fault.LIMIT) == (most < 3000)


def test_claims_of_hostile_batches_allocate_no_more_rows_than_the_limit_allows(share_counts):
    batch = claim(encode_batch([b"x" * 1000] * 50), 2**31 - 1 - 50)
    outer = kafka.scan(batch * 20)
    claimed = 20 * (len(batch) - HEADER) // 2
    enough = Limits(rows=claimed + 20)
    assert_same(lambda: kafka.records(outer, errors="mark", limits=enough), (2,))
    assert share_counts == [2]
    table = kafka.records(outer, errors="mark", limits=enough, workers=2)
    assert memoryview(table.rows).nbytes == 51 * 20 * kafka.RECORD.itemsize
    few = Limits(rows=claimed // 2)
    assert_same(lambda: kafka.records(outer, errors="mark", limits=few), (2,))
    assert share_counts == [2, 2]


def test_the_first_error_in_the_order_of_the_wire_is_raised():
    damaged = list(BATCHES)
    for n in (28, 14, 13):
        at = HEADER + 1
        damaged[n] = damaged[n][:at] + b"\xff" * 12 + damaged[n][at + 12 :]
        damaged[n] = correct_checksums(damaged[n])
        raw = b"".join(damaged)
        text, _, row, *_ = assert_same(lambda: kafka.records(kafka.scan(raw)))
        before = sum(len(kafka.records(kafka.scan(batch))) for batch in BATCHES[:n])
        assert row == before
        assert_same(lambda: wirescan.scan(raw, "kafka.records"))


@pytest.mark.parametrize("errors", MODES)
def test_checksums_of_good_batches_are_verified_by_several_threads(verified_shares, errors):
    assert_same(lambda: kafka.scan(RAW + b"\0" * 100, errors=errors))
    assert_same(lambda: kafka.scan(RAW + RAW[:90], errors=errors))
    assert verified_shares == [*NUMBERS, *NUMBERS]
    assert kafka.scan(RAW, errors=errors).checked
    assert_same(lambda: kafka.scan(RAW, errors=errors, check=False))
    assert verified_shares == [*NUMBERS, *NUMBERS]


@pytest.mark.parametrize("errors", MODES)
@pytest.mark.parametrize("batch", [0, 17, 28])
@pytest.mark.parametrize("place", PLACES)
def test_bad_batches_are_found_by_a_scan_on_one_thread(errors, batch, place):
    at, bits = PLACES[place]
    raw = bytearray(RAW)
    raw[sum(map(len, BATCHES[:batch])) + at] ^= bits
    found = assert_same(lambda: kafka.scan(raw, errors=errors))
    assert isinstance(found[0], str) == (errors == "strict")


def test_several_threads_verify_and_open_large_buffers_without_being_told(
    monkeypatch, share_counts, verified_shares
):
    monkeypatch.delenv(parallel.WORKERS_VARIABLE, raising=False)
    monkeypatch.setattr(parallel, "count_cores", lambda: 8)
    batch = encode_batch([b"x" * 100_000] * 10)
    # The checksums of the batches are verified when the records are opened.
    for size, counts, verified in (
        (2 * LEAST_SHARE - len(batch), [], []),
        (3 * LEAST_SHARE, [3], []),
        (3 * LEAST_VERIFIED, [3, 6], [3]),
    ):
        raw = batch * (size // len(batch) + 1)
        assert len(wirescan.scan(raw, "kafka.records")) == len(raw) // len(batch) * 10
        assert share_counts == counts
        assert len(wirescan.scan(raw, "kafka.batches")) == len(raw) // len(batch)
        assert verified_shares == verified
    wirescan.scan(raw, "kafka.records", workers=1)
    wirescan.scan(raw, "kafka.batches", workers=1)
    assert (share_counts, verified_shares) == ([3, 6], [3])
    wirescan.scan(batch * 3, "kafka.records", workers=2)
    wirescan.scan(batch * 3, "kafka.batches", workers=2)
    assert (share_counts, verified_shares) == ([3, 6, 2], [3, 2])


def test_plain_messages(share_counts):
    raw = b"".join(
        encode_message_set([Record(n, 10**12, b"k", b"v" * (n % 50)) for n in range(400)])
        for _ in range(2)
    )
    outer = kafka.scan(raw, check=False)
    assert_same(lambda: kafka.records(outer))
    assert share_counts == list(NUMBERS)
    for at in (20, len(raw) // 2, len(raw) - 1):
        changed = bytearray(raw)
        changed[at] ^= 1
        outer = kafka.scan(changed, errors="mark", check=False)
        assert_same(lambda outer=outer: kafka.records(outer, errors="mark"))


def test_headers_of_nats_and_the_first_row_outside_its_buffer(share_counts):
    raw = b"".join(
        encode_pub(f"orders.{n}", b"x" * n, headers={f"h{i}": str(n) for i in range(n % 4)})
        for n in range(300)
    )
    messages = nats.scan(raw)
    assert_same(lambda: nats.headers(messages))
    assert share_counts == list(NUMBERS)
    rows = messages.rows.copy()
    rows["headers_size"][[101, 250]] = 2**31 - 1
    forged = FrameTable(messages.buffers, rows, messages.stops, messages.format)
    texts = set()
    for number in (1, *NUMBERS):
        with FixedWorkers(number), pytest.raises(ValueError, match="row 101 points") as caught:
            nats.headers(forged)
        texts.add(str(caught.value))
    assert len(texts) == 1


@steady
@given(
    st.lists(
        kafka_strategies.logs() | kafka_strategies.damaged_logs() | kafka_strategies.entries(1),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(MODES),
    st.booleans(),
    st.integers(1, 60),
    st.sampled_from((2, 3, 50)),
)
def test_any_log_whose_checksums_are_verified_with_its_records(logs, errors, check, rows, number):
    outer = kafka.scan(b"".join(logs), errors="mark", check=False)

    def describe_records(limits):
        try:
            table = kafka.records(outer, errors=errors, check=check, limits=limits)
        except FrameError as error:
            # The message ends with the bytes at the error. After the last row, these may depend on
            # the distribution of decompressed bytes over the buffers.
            return str(error).rpartition(": ")[0], error.fault, error.row, error.offset
        frames = [bytes(table.frame(i)) for i in range(len(table))]
        columns = [name for name in table.dtype.names if name not in ("start", "buffer")]
        return table.rows[columns].tolist(), frames

    for limits in (Limits(), Limits(rows=rows)):
        with FixedWorkers(1):
            expected = describe_records(limits)
        with FixedWorkers(number):
            assert describe_records(limits) == expected


def test_calls_of_many_threads_share_the_threads():
    """Each of these threads waits for others, and all calls end."""
    outer = kafka.scan(RAW)
    expected = kafka.records(outer, workers=1).rows.tobytes()
    results = []

    def read(number):
        for _ in range(5):
            table = kafka.records(outer, workers=1 + number % 5)
            results.append(table.rows.tobytes() == expected)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 100
