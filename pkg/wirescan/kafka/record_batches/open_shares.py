"""Opens the records of batches on several threads."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from wirescan.core.parallel import run_each
from wirescan.core.rows import Block
from wirescan.frames.limits import Limits
from wirescan.kafka.record_batches.decompress import Payloads, list_shares
from wirescan.kafka.record_batches.scan import RECORD, open_records

SMALLEST_RECORD = 7  # bytes: each field of an empty record is a varint of one byte


class OpenedRecords(NamedTuple):
    """Rows of dtype RECORD, how many of them are bad, and LIMIT where the limits ended the scan."""

    rows: np.ndarray
    bad: int
    fault: int


def open_payloads(
    batches: np.ndarray,
    payloads: Payloads,
    *,
    check: bool,
    limits: Limits,
    into: np.ndarray | None,
) -> OpenedRecords:
    """Open the records of batches, on `payloads.threads` threads. The rows do not depend on these.

    batches: rows of dtype BATCH. The other arguments are those of `kafka.records`.
    """
    if payloads.threads > 1 and into is None:
        rows = _open_on_threads(batches, payloads, check=check, limits=limits)
        if rows is not None:
            return OpenedRecords(rows, bad=0, fault=0)
    return OpenedRecords(
        *open_records(
            batches,
            payloads.buffers,
            payloads.spans,
            payloads.counts,
            check=check,
            limits=limits,
            into=into,
            verify=payloads.verify,
        )
    )


def _open_on_threads(
    batches: np.ndarray, payloads: Payloads, *, check: bool, limits: Limits
) -> np.ndarray | None:
    """Open shares of the batches, each on a thread and into its part of one array of rows.

    The claimed numbers of records say where the parts are. Return None where a number is missing or
    wrong, and where a record is bad: then one thread has to open all records.
    """
    sizes = payloads.spans["size"].astype(np.int64)
    counts = payloads.counts.astype(np.int64)
    total = int(counts.sum())
    buffer_bytes = sum(map(len, payloads.buffers))
    if (
        payloads.spans["fault"].any()
        or (counts < 0).any()
        or (counts > sizes // SMALLEST_RECORD).any()
        or not 0 < total <= limits.limit_rows(RECORD.itemsize, buffer_bytes)
    ):
        return None
    rows = np.frombuffer(memoryview(Block(total * RECORD.itemsize)), RECORD)
    stops = np.cumsum(counts).tolist()
    functions = []
    for start, stop in list_shares(sizes, payloads.threads):
        first = stops[start - 1] if start else 0
        functions.append(
            partial(
                _open_share,
                batches,
                payloads,
                slice(start, stop),
                check=check,
                limits=limits,
                into=rows[first : stops[stop - 1]],
            )
        )
    if not all(run_each(functions)):
        return None
    rows.flags.writeable = False
    return rows


def _open_share(
    batches: np.ndarray,
    payloads: Payloads,
    share: slice,
    *,
    check: bool,
    limits: Limits,
    into: np.ndarray,
) -> bool:
    """Open the records of some batches; return whether all are good and exactly fill `into`."""
    try:
        rows, bad, fault = open_records(
            batches,
            payloads.buffers,
            payloads.spans[share],
            payloads.counts[share],
            check=check,
            limits=limits,
            into=into,
            verify=payloads.verify,
        )
    except ValueError:
        return False  # there are more rows than records were claimed
    return not bad and not fault and len(rows) == len(into)
