"""What bad frames of a log claim, by their headers and the good frames around them."""

import random

import numpy as np
import pytest

from wirescan import kafka, liftbridge
from wirescan.frames.logs import Claim
from wirescan.frames.table import FrameTable
from wirescan.seglog.frame_offsets import log_columns, read_claims


def make_damaged_log(seed):
    """Return batches of which some are bad, and some have offsets of another place."""
    rng = random.Random(seed)
    log = []
    offset = 100
    for _ in range(rng.choice([1, 2, 40])):
        count = rng.randrange(1, 4)
        base = max(0, offset + rng.choice([0, 0, 0, -9, 9, -3, 3]))
        batch = bytearray(kafka.encode_batch([{"value": b"value"}] * count, base_offset=base))
        if rng.random() < 0.6:
            batch[-1] ^= 1
        if rng.random() < 0.2:
            batch[57:61] = bytes(4)  # no records: the header claims nothing
        log.append(bytes(batch))
        offset += count
    return kafka.scan(b"".join(log), errors="mark")


def find_claim(table, row):
    """Return what `read_claims` should, from the rows beside the bad one."""
    columns = log_columns(table)
    claim = columns.claim(table.frame(row))
    before = [i for i in range(row) if not table.bad[i]]
    after = [i for i in range(row + 1, len(table)) if not table.bad[i]]
    if claim is None:
        return None
    if before and claim.first <= table[columns.last][before[-1]]:
        return None
    if after and claim.last >= table[columns.first][after[0]]:
        return None
    return claim


@pytest.mark.parametrize("seed", range(40))
def test_claims_are_excluded_by_the_good_frames_around_them(seed):
    table = make_damaged_log(seed)
    bad = np.flatnonzero(table.bad)
    claims = read_claims(table, bad)
    assert claims == {row: find_claim(table, row) for row in bad.tolist()}


@pytest.mark.parametrize("bad, claim", [(0, Claim(0, 0, 1)), (1, None)])
def test_the_column_is_the_claim_if_the_format_reads_no_headers(bad, claim):
    """The column of a damaged entry of Liftbridge is 0, which a good entry before it excludes."""
    entries = [bytearray(liftbridge.encode_entry(at, 1, 1, b"key", b"value")) for at in (5, 7, 9)]
    entries[bad][-1] ^= 1
    table = liftbridge.entries(b"".join(map(bytes, entries)), errors="mark")
    assert np.flatnonzero(table.bad).tolist() == [bad]
    assert read_claims(table, np.array([bad])) == {bad: claim}


@pytest.mark.parametrize("count", [10, 1000])
def test_the_whole_table_is_searched_once(count, monkeypatch):
    batch = bytearray(kafka.encode_batch([{"value": b"value"}]))
    batch[-1] ^= 1
    table = kafka.scan(bytes(batch) * count, errors="mark")
    bad = np.flatnonzero(table.bad)
    assert len(bad) == count
    searches = []
    is_bad = FrameTable.bad.fget
    monkeypatch.setattr(
        FrameTable, "bad", property(lambda table: searches.append(1) or is_bad(table))
    )
    assert len(read_claims(table, bad)) == count
    assert len(searches) == 1
