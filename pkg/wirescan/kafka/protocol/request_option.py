"""The option `requests` of kafka.responses: the file with the requests of the same connection.

A response does not name its API on the wire; only its request does. So bodies of responses can be
opened only with the requests. In Python `kafka.responses` takes their table. Elsewhere it is the
option of a format: "kafka.fetch_response.partitions?requests=client.bin".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from wirescan.files.whole_source import scan_source
from wirescan.frames.errors import resolve_mode
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.options import FormatOption
from wirescan.frames.registry import make_spec
from wirescan.frames.table import FrameTable
from wirescan.kafka.protocol.message import name_responses, scan_requests
from wirescan.kafka.protocol.schema import OPAQUE, get_api_key

API_COLUMNS = ("api_key", "api_version", "kind")
Scan = Callable[..., tuple[Any, ...]]


class RequestIds:
    """The requests of a file, found by their correlation ids.

    rows: of dtype REQUEST. Bad rows and requests of unknown APIs are not found.

    Raises ValueError if requests of different APIs or versions have the same id, and if raw tokens
    of SASL are among them.
    """

    def __init__(self, rows: np.ndarray):
        self.rows = rows
        known = np.flatnonzero((rows["fault"] == 0) & (rows["kind"] != OPAQUE))
        ids = rows["correlation_id"][known]
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._numbers = known[order]
        self._check_repeated_ids()
        is_handshake = (rows["api_key"] == get_api_key("SaslHandshake")) & (
            rows["api_version"] == 0
        )
        if is_handshake[known].any():
            raise ValueError(
                "a SaslHandshake of version 0 is followed by raw tokens, whose answers have no "
                "correlation id: pair the streams in Python, with kafka.responses"
            )

    def _check_repeated_ids(self) -> None:
        is_repeated = self._ids[1:] == self._ids[:-1]
        sorted_rows = self.rows[self._numbers]
        for name in API_COLUMNS:
            values = sorted_rows[name]
            conflicts = np.flatnonzero(is_repeated & (values[1:] != values[:-1]))
            if len(conflicts):
                raise ValueError(
                    f"several requests have the correlation id {self._ids[conflicts[0]]}, and they "
                    "are of different APIs or versions: give the requests of one connection"
                )

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Return an int64 array: the row of the request with each correlation id, or -1."""
        places = np.minimum(np.searchsorted(self._ids, ids), max(len(self._ids) - 1, 0))
        if not len(self._ids):
            return np.full(len(ids), -1, np.int64)
        return np.where(self._ids[places] == ids, self._numbers[places], -1).astype(np.int64)

    def name(self, rows: np.ndarray, buffers: Any) -> tuple[np.ndarray, int]:
        """Return responses with the columns that depend on their requests, and the bad rows."""
        named: np.ndarray
        numbers = self.find(rows["correlation_id"])
        named, bad = name_responses(rows, buffers, self.rows, numbers)
        named.flags.writeable = False
        return named, bad


def add_requests(format: Format, path: str) -> Format:
    """Return kafka.responses, or a format inside it, with the requests of the file `path`.

    Each scan uses the file as it is then.

    Raises OSError, and ValueError for a file that is not one connection's requests.
    """
    if format.within is not None:
        return replace(format, within=make_spec(format.within, requests=path))
    load_requests(path)
    parser = format.parser
    assert parser.scan is not None and parser.spans is not None  # kafka.responses has both
    scan: Scan = parser.scan
    scan_spans: Scan = parser.spans

    def scan_and_name(buffer: Any, **options: Any) -> tuple[np.ndarray, int, int, int]:
        rows, _, fault, position = scan(buffer, **options)
        return (*load_requests(path).name(rows, (buffer,)), fault, position)

    def scan_spans_and_name(buffers: Any, spans: np.ndarray, **options: Any) -> tuple[Any, ...]:
        rows, _, *ends = scan_spans(buffers, spans, **options)
        return (*load_requests(path).name(rows, buffers), *ends)

    def read(
        source: Any,
        *,
        errors: str | None = None,
        check: bool = True,
        limits: Limits = Limits(),
    ) -> FrameTable:
        errors = resolve_mode(errors, source, limits)
        return scan_source(source, paired, errors=errors, check=True, limits=limits)

    named = replace(parser, scan=scan_and_name, spans=scan_spans_and_name)
    paired = replace(format, parser=named, read=read, requests=None)
    return paired


def load_requests(path: str) -> RequestIds:
    """Return the requests of a file, which is read again only after it has changed.

    Raises OSError, and ValueError for a file that is not one connection's requests.
    """
    status = os.stat(path)
    return _read_requests(path, status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _read_requests(path: str, *status: int) -> RequestIds:
    """Return the requests of a file. status: makes the cache notice that the file has changed."""
    data = Path(path).read_bytes()
    rows, _, _, _ = scan_requests(data, check=True, resync=True, limits=Limits())
    if len(data) and not (rows["fault"] == 0).any():
        raise ValueError(f"{path} has no requests of Kafka's protocol")
    return RequestIds(rows)


REQUESTS = FormatOption(
    "requests",
    Path,
    "The file with the requests of the same connection. Only requests name the API of a response.",
    add_requests,
)
