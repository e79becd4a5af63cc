"""The headers of the records in backups, which the programs frame in different ways."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wirescan.core.loop import spans
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable


def read_backup_headers(
    records: FrameTable,
    format: Format,
    open_headers: Callable[..., tuple[np.ndarray, int, int]],
    errors: str | None,
    limits: Limits,
) -> FrameTable:
    """Open the headers of records as a table of `format`.

    records: their rows have the columns `headers_at` and `header_count`.
    open_headers: as that of kbak_scan.pyx.

    Raises FrameError as `errors` says, and FrameError(LIMIT) for too many rows.
    """
    errors = resolve_mode(errors, records, limits)
    selected = (records["header_count"] > 0) | records.bad
    header_spans = spans(records.rows, records["headers_at"])[selected]
    counts = records["header_count"][selected]
    rows, bad, fault = open_headers(records.rows, records.buffers, header_spans, counts, limits)
    table = FrameTable(records.buffers, rows, (), format, records)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)
