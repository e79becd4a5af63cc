"""Records are the same for every number of threads that decompress payloads and open records."""

import gzip
import random

import numpy as np
import pytest

from tests.strategies.kafka import correct_checksums
from tests.support.kafka_bytes import GOLDEN, make_batch, make_bomb
from wirescan import Fault, FrameError, Limits, kafka
from wirescan.core import parallel, shares
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.record_batches import decompress

WORKERS = (1, 2, 5)
CODECS = ("gzip", "snappy", "none", "lz4", "zstd", "gzip", "snappy-raw")


def make_batches(count=40, records=200):
    shuffle = random.Random(5)
    return [
        encode_batch(
            [
                Record(records * i + n, 10**12 + n, b"%d" % n, shuffle.randbytes(20).hex().encode())
                for n in range(shuffle.randrange(1, records))
            ],
            codec=CODECS[i % len(CODECS)],
        )
        for i in range(count)
    ]


BATCHES = make_batches()


def list_contents(table):
    """Return what a table of records has, without the distribution over its new buffers."""
    columns = [name for name in table.rows.dtype.names if name not in ("buffer", "start")]
    content = [table.rows[columns].tolist()]
    for row in table.rows:
        start = int(row["start"])
        content.append(bytes(table.buffers[row["buffer"]][start : start + int(row["size"])]))
    return content


def open_with_each_number(raw, errors="mark", limits=Limits(), check=False):
    """Return the contents, the same for each number of workers, and the table of one worker."""
    batches = kafka.scan(raw, errors=errors, check=check)
    tables = [
        kafka.records(batches, errors=errors, limits=limits, check=check, workers=workers)
        for workers in WORKERS
    ]
    contents = [list_contents(table) for table in tables]
    assert contents[1] == contents[0]
    assert contents[2] == contents[0]
    return contents[0], tables


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
def test_mixed_codecs(errors):
    contents, tables = open_with_each_number(b"".join(BATCHES), errors, check=True)
    assert len(contents) > 2000
    compressed = sum(codec != "none" for codec in CODECS)
    assert compressed == 6
    assert [len(table.buffers) > 2 for table in tables] == [False, True, True]


def test_all_magics_and_codecs():
    contents, _ = open_with_each_number(b"".join(GOLDEN.values()) * 3, check=True)
    assert len(contents) > 100


def damage(batch, at):
    changed = bytearray(batch)
    changed[at] ^= 0x5A
    return correct_checksums(bytes(changed))


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_damaged_payloads(errors):
    shuffle = random.Random(7)
    damaged = [
        damage(batch, shuffle.randrange(70, len(batch))) if i % 3 == 0 else batch
        for i, batch in enumerate(BATCHES)
    ]
    contents, tables = open_with_each_number(b"".join(damaged), errors)
    faults = set(tables[0]["fault"].tolist())
    assert (Fault.BAD_COMPRESSION in faults) == (errors == "mark")
    assert len(contents) > 1000


def test_the_first_error_is_the_same():
    damaged = list(BATCHES)
    damaged[7] = damage(BATCHES[7], len(BATCHES[7]) - 3)
    damaged[35] = damage(BATCHES[35], 80)
    batches = kafka.scan(b"".join(damaged), check=False)
    texts = set()
    for workers in WORKERS:
        with pytest.raises(FrameError) as caught:
            kafka.records(batches, check=False, workers=workers)
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "BAD_COMPRESSION" in texts.pop()


def test_checksums_are_verified_late():
    raw = bytearray(b"".join(BATCHES))
    raw[len(BATCHES[0]) - 2] ^= 1
    batches = kafka.scan(raw, errors="mark", check=False)
    tables = [kafka.records(batches, errors="mark", workers=workers) for workers in WORKERS]
    assert [list_contents(table) for table in tables[1:]] == [list_contents(tables[0])] * 2
    assert tables[0]["fault"][0] == Fault.BAD_CHECKSUM


@pytest.mark.parametrize("total", [1, 10_000, 60_000, 99_999, 150_000, 10**6])
def test_the_limit_for_all_payloads(total):
    _, tables = open_with_each_number(b"".join(BATCHES), limits=Limits(inflated_total=total))
    refused = int((tables[0]["fault"] == Fault.TOO_LARGE).sum())
    assert (refused > 0) == (total < 10**6)


def test_the_limit_for_each_payload():
    _, tables = open_with_each_number(b"".join(BATCHES), limits=Limits(inflated=5000))
    refused = int((tables[0]["fault"] == Fault.TOO_LARGE).sum())
    assert 0 < refused < len(BATCHES)


def test_the_total_is_used_up_before_a_damaged_payload():
    # One thread refuses the damaged payload because nothing remains; its share would have bytes.
    sizes = kafka.records(kafka.scan(BATCHES[0]))
    written = len(sizes.buffers[1])
    bad = damage(BATCHES[0], len(BATCHES[0]) - 3)
    for total in (written - 1, written, written + 1, 2 * written):
        open_with_each_number(
            BATCHES[0] + bad + BATCHES[2] * 2, limits=Limits(inflated_total=total)
        )


def test_a_bomb_between_good_payloads():
    raw = b"".join(BATCHES[:20]) + make_batch(make_bomb(1), codec=1) + b"".join(BATCHES[20:])
    _, tables = open_with_each_number(raw)
    assert (tables[0]["fault"] == Fault.TOO_LARGE).sum() == 1


def test_few_bytes_are_decompressed_by_one_thread_unless_the_caller_says_more(monkeypatch):
    used = []
    decompress_shares = decompress._decompress_shares

    def count(codecs, buffers, spans, limits, threads):
        used.append(threads)
        return decompress_shares(codecs, buffers, spans, limits, threads)

    monkeypatch.setattr(decompress, "_decompress_shares", count)
    monkeypatch.delenv(parallel.WORKERS_VARIABLE, raising=False)
    monkeypatch.setattr(parallel, "count_cores", lambda: 3)
    batches = kafka.scan(b"".join(BATCHES))
    kafka.records(batches)
    kafka.records(batches, workers=1)
    assert used == []
    kafka.records(batches, workers=2)
    assert used == [2]
    noise = random.Random(1).randbytes(600_000).hex().encode()
    large = kafka.scan(b"".join(encode_batch([noise], codec="gzip") for _ in range(4)))
    kafka.records(large)
    assert used == [2, 3]


def test_wrong_numbers_of_workers(monkeypatch):
    batches = kafka.scan(b"".join(BATCHES))
    with pytest.raises(ValueError, match="workers=0"):
        kafka.records(batches, workers=0)
    with pytest.raises(TypeError, match="integer"):
        kafka.records(batches, workers="2")
    monkeypatch.setenv("WIRESCAN_WORKERS", "none")
    assert len(kafka.records(batches)) > 2000  # few bytes: the variable is not read
    monkeypatch.setattr(decompress, "LEAST_COMPRESSED", 1)
    with pytest.raises(ValueError, match="WIRESCAN_WORKERS"):
        kafka.records(batches)


@pytest.fixture
def share_counts(monkeypatch):
    """Return a list: for each table that several threads open, the number of its shares."""
    counts = []
    run_each = shares.run_each

    def count(functions):
        counts.append(len(functions))
        return run_each(functions)

    monkeypatch.setattr(shares, "run_each", count)
    return counts


def test_several_threads_open_the_records_of_good_batches(share_counts):
    _, tables = open_with_each_number(b"".join(BATCHES), "strict", check=True)
    assert share_counts == [2, 5]
    assert not tables[1].rows.flags.writeable
    rows = np.zeros(len(tables[0]) + 5, kafka.RECORD)
    filled = kafka.records(kafka.scan(b"".join(BATCHES)), into=rows, workers=2)
    assert list_contents(filled) == list_contents(tables[0])
    assert np.shares_memory(filled.rows, rows)
    assert share_counts == [2, 5, 2]


def claim(batch, count):
    changed = bytearray(batch)
    changed[57:61] = count.to_bytes(4, "big")
    return correct_checksums(bytes(changed))


@pytest.mark.parametrize("added", [-1, 1, 50, 10**6, 2**31 - 1])
@pytest.mark.parametrize("place", [0, 20, 39])
def test_wrong_numbers_of_records(share_counts, place, added):
    batches = list(BATCHES)
    count = int.from_bytes(batches[place][57:61], "big")
    batches[place] = claim(batches[place], min(count + added, 2**31 - 1))
    _, tables = open_with_each_number(b"".join(batches))
    assert share_counts == [2, 5]
    assert (tables[0]["fault"] == Fault.BAD_COUNT).sum() == 1


def test_the_limit_for_rows(share_counts):
    batches = kafka.scan(b"".join(BATCHES))
    count = len(kafka.records(batches, workers=1))
    assert len(kafka.records(batches, workers=2, limits=Limits(rows=count))) == count
    for workers in WORKERS:
        with pytest.raises(FrameError) as caught:
            kafka.records(batches, workers=workers, limits=Limits(rows=count - 1))
        assert caught.value.fault == Fault.LIMIT
        assert len(caught.value.partial) == count - 1
    assert share_counts == [2]  # more rows are claimed than the limit allows: one thread opens them


def test_gzip_of_several_members_is_one_payload():
    plain = kafka.scan(encode_batch([b"one", b"two"]))
    body = bytes(plain.buffers[0][61:])
    members = gzip.compress(body[:5]) + gzip.compress(body[5:])
    raw = bytearray(encode_batch([b"one", b"two"], codec="gzip")[:61] + members)
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw = correct_checksums(bytes(raw))
    _, tables = open_with_each_number(raw * 10, "strict", check=True)
    assert len(tables[0]) == 20
