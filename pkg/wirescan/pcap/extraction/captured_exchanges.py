"""Exchanges in captures: the formats of `ExchangeFormat` declarations, such as kafka.exchanges.

A row is a request with its response and their times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows, select_rows
from wirescan.frames.columns import Column, ComputedColumn
from wirescan.frames.exchange import NO_RESPONSE, ExchangeFormat, PairedFrames, SentFrames
from wirescan.frames.format import Display, Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import FrameTable, join, make_empty
from wirescan.pcap.constants import Direction
from wirescan.pcap.extraction.derived_formats import list_names, make_bad_rows, make_derived_format
from wirescan.pcap.extraction.frame_times import NO_LATENCY, NO_TIME
from wirescan.pcap.extraction.sent_frames import make_sent_frames, read_sent
from wirescan.pcap.extraction.stream_scanner import StreamScanner
from wirescan.pcap.extraction.waiting_frames import WaitingConnections, WaitingFrames, choose_newest

COMMON_COLUMNS = np.dtype(
    [
        ("position", "i8"),
        ("time", "i8"),
        ("request_end", "i8"),
        ("response_time", "i8"),
        ("time_end", "i8"),
        ("request_size", "i8"),
        ("response_size", "i8"),
    ]
)
MEANINGS = {
    "position": "position of the request in the bytes that its sender sent",
    "time": "when the packet with the first byte of the request was captured",
    "request_end": "when the last of the packets with bytes of the last frame of the request was "
    "captured",
    "response_time": "when the packet with the first byte of the response was captured",
    "time_end": "when the last of the packets with bytes of the response was captured",
    "latency": "nanoseconds from the last byte of the request to the first byte of the response",
    "request_size": "bytes of the request",
    "response_size": "bytes of the response, 0 without one",
    "direction": "who sent the request: TO_SERVER or TO_CLIENT",
}
TIME = Column(unit="ns")


def _compute_latency(table: Any) -> np.ndarray:
    """Return the time from the end of each request to its response: int64, in ns."""
    response_times = table["response_time"]
    request_ends = table["request_end"]
    latencies = response_times - request_ends
    is_known = (response_times != NO_TIME) & (request_ends != NO_TIME)
    is_known &= (latencies >= 0) == (response_times >= request_ends)  # it fits 64 bits
    return np.where(is_known, latencies, NO_LATENCY)


LATENCY = ComputedColumn(_compute_latency, ("response_time", "request_end"), (), "i8", NO_LATENCY)
DIRECTION = ComputedColumn(lambda table: table["kind"], ("kind",), (), "u1", 0)
COLUMNS = {
    **dict.fromkeys(("time", "request_end", "response_time", "time_end"), TIME),
    "position": Column(local=True),
    "latency": Column(duration="ns", computed=LATENCY, exported=True),
    "direction": Column(computed=DIRECTION, names=Direction, exported=True),
    **dict.fromkeys(("connection", "client", "server"), Column(inherited=True)),
}
SHOWN = ("time", "latency", "client", "server")


def make_formats(formats: Iterable[Format]) -> list[Format]:
    """Return the formats of the exchanges that formats declare."""
    declared = [(format, format.exchange) for format in formats]
    return [_make_format(format, item) for format, item in declared if item is not None]


def _make_format(format: Format, exchange: ExchangeFormat) -> Format:
    own = set(exchange.dtype.names or ())
    taken = own & {*HEAD.names, *COMMON_COLUMNS.names, *COLUMNS}  # type: ignore[misc]
    if taken:
        raise ValueError(f"{exchange.name}: all exchanges have a column {min(taken)!r} already")
    return make_derived_format(
        exchange.name,
        exchange.about,
        np.dtype([*HEAD.descr, *COMMON_COLUMNS.descr, *exchange.dtype.descr]),
        partial(ExchangeScanner, format, exchange),
        together=exchange.crosses_connections,
        columns={**COLUMNS, **exchange.columns},
        meanings={**MEANINGS, **exchange.meanings},
        display=Display(
            shown=(*SHOWN, *list_names(exchange.dtype)),
            grouped_by=exchange.grouped_by,
            summary=SummaryColumns(latency="latency", find_errors=exchange.find_errors),
        ),
    )


@dataclass(frozen=True, eq=False)
class _StreamFrames:
    """The frames in one table of streams.

    frames, answers: the requests and the responses, which may be the same table. sent,
    answers_sent: when they were sent: arrays of dtype SENT. flows: their connections.
    """

    frames: FrameTable
    sent: np.ndarray
    answers: FrameTable
    answers_sent: np.ndarray
    flows: FrameTable


class ExchangeScanner:
    """Finds exchanges in tables of pcap.streams, one after another.

    format: the format of the requests. exchange: its declaration. check, limits: as in
    `pcap.frames`. Raises ValueError for a format whose frames are not sent over connections.

    Requests wait for their responses within the limits of waiting_frames.py. The oldest ones beyond
    these, and those of connections that are forgotten, are exchanges without a response.
    """

    def __init__(self, format: Format, exchange: ExchangeFormat, *, check: bool, limits: Limits):
        outermost = format.outermost
        if outermost.conversation is None:
            raise ValueError(f"{format.name} has an exchange, but {outermost.name} no conversation")
        self._exchange = exchange
        self._limits = limits
        self._requests = StreamScanner(
            outermost,
            check=check,
            limits=limits,
            holds="all" if exchange.crosses_connections else "connection",
        )
        self._answers = None
        if exchange.answers is not None:
            self._answers = StreamScanner(
                format_of(exchange.answers), check=check, limits=limits, asked=self._requests
            )
        self._unpaired: list[_StreamFrames] = []
        self._waiting = WaitingFrames(make_empty(outermost), discards=False)
        self._flows = WaitingConnections()  # of the requests that wait
        self._ended = np.zeros(0, np.int64)  # numbers of connections that were forgotten

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the exchanges that ended, and the bytes of each stream that are done with.

        The arguments and errors are those of `StreamScanner.scan`.
        """
        frames, done = self._find_frames(streams, more=more, released=released)
        self._unpaired.append(frames)
        waits_for_others = released or (more and not len(streams))
        if waits_for_others and self._exchange.crosses_connections:
            # Frames of other connections, which are read next, may be answers, or be answered.
            empty = np.zeros(0, format_of(self._exchange.name).dtype)
            return FrameTable((), empty, (), format_of(self._exchange.name), frames.flows), done
        return self._pair(waits=more or released), done

    def _find_frames(
        self, streams: FrameTable, *, more: bool, released: bool
    ) -> tuple[_StreamFrames, np.ndarray]:
        """Return the frames of streams, and the bytes of each stream that are done with."""
        assert streams.outer is not None
        frames, done = self._requests.scan(streams, more=more, released=released)
        sent = read_sent(frames, 0)
        answers, answers_sent = frames, sent
        if self._answers is not None:
            answers, answers_done = self._answers.scan(streams, more=more, released=released)
            answers_sent = read_sent(answers, 0)
            done = np.where(streams["kind"] == Direction.TO_SERVER, done, answers_done)
        frames, answers = replace(frames, outer=None), replace(answers, outer=None)
        return _StreamFrames(frames, sent, answers, answers_sent, streams.outer), done

    def _pair(self, *, waits: bool) -> FrameTable:
        """Return the exchanges of the frames that are not paired yet, and of those that wait.

        waits: requests wait for their responses.
        """
        unpaired, self._unpaired = self._unpaired, []
        waiting, waiting_sent = self._take_waiting(unpaired, waits=waits)
        waiting_flows, waiting_sent["flow"] = self._flows.take(waiting_sent["connection"])
        flows = [waiting_flows, *(item.flows for item in unpaired)]
        first = len(waiting_flows)
        for item in unpaired:
            item.sent["flow"] += first
            if item.answers_sent is not item.sent:
                item.answers_sent["flow"] += first
            first += len(item.flows)
        all_flows = join(flows)
        sent = join_rows([waiting_sent, *(item.sent for item in unpaired)])
        table = join([waiting, *(item.frames for item in unpaired)])
        is_new = np.arange(len(sent)) >= len(waiting)
        crosses = self._exchange.crosses_connections
        asked = make_sent_frames(table, sent, is_new, crosses_connections=crosses)
        answers, answers_sent = asked, sent
        if self._answers is not None:
            answers_sent = np.concatenate([item.answers_sent for item in unpaired])
            answer_table = join([item.answers for item in unpaired])
            is_new = np.ones(len(answers_sent), bool)
            answers = make_sent_frames(
                answer_table, answers_sent, is_new, crosses_connections=crosses
            )
        pairs = self._exchange.pair(asked, answers, limits=self._limits)
        _check_pairs(self._exchange, pairs, len(asked.table), len(answers.table))
        rows = _fill_rows(pairs, sent, answers_sent, format_of(self._exchange.name).dtype)
        is_waiting = np.zeros(len(rows), bool)
        if waits:
            sizes = sent["size"].copy()
            if pairs.kept_sizes is not None:
                sizes[pairs.requests] = pairs.kept_sizes
            is_waiting = self._choose_waiting(sent, pairs, sizes)
            self._keep(all_flows, asked, sent, pairs, sizes, np.flatnonzero(is_waiting))
        bad = _make_bad_rows(asked, sent, rows.dtype)
        buffers = table.buffers if pairs.buffers is None else pairs.buffers
        if self._answers is not None:
            bad_answers = _make_bad_rows(answers, answers_sent, rows.dtype)
            bad_answers["buffer"] += len(buffers)
            buffers = (*buffers, *answers.table.buffers)
            bad = join_rows([bad, bad_answers])
        order = np.argsort(sent["packet"][pairs.requests], kind="stable")
        rows = join_rows([select_rows(rows, order[~is_waiting[order]]), bad])
        return FrameTable(buffers, rows, (), format_of(self._exchange.name), all_flows)

    def _take_waiting(
        self, unpaired: list[_StreamFrames], *, waits: bool
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the requests that wait and may be answered, or may not wait on.

        They are those of the connections with new frames and of those that were forgotten. All are
        returned at the end, if they may be answered over other connections, or if there may be too
        many of them.
        """
        parts = [item.sent for item in unpaired]
        count = sum(map(len, parts))
        size = sum(int(sent["size"].sum()) for sent in parts)
        takes_all = self._exchange.crosses_connections or not waits
        if takes_all or self._waiting.would_exceed(count, size):
            return self._waiting.take()
        parts += [item.answers_sent for item in unpaired]
        connections = [sent["connection"] for sent in parts]
        return self._waiting.take(np.unique(np.concatenate([self._ended, *connections])))

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections. The next `scan` returns their requests that wait."""
        self._requests.forget(connections)
        if self._answers is not None:
            self._answers.forget(connections)
        self._ended = connections

    def _choose_waiting(
        self, sent: np.ndarray, pairs: PairedFrames, sizes: np.ndarray
    ) -> np.ndarray:
        """Return which requests wait for their responses: a bool array.

        sizes: bytes of each frame that are kept.
        """
        connections = sent["connection"][pairs.requests]
        waits = pairs.responses == NO_RESPONSE
        if pairs.is_awaited is not None:
            waits &= pairs.is_awaited
        waits &= ~np.isin(connections, self._ended)
        self._ended = self._ended[:0]
        held = sizes[pairs.requests]
        for frames in pairs.further_frames:
            held = held + sizes[frames]
        waiting = np.flatnonzero(waits)
        packets = sent["packet"][pairs.requests[waiting]]
        is_kept = choose_newest(connections[waiting], packets, held[waiting])
        waits[waiting[~is_kept]] = False
        return waits

    def _keep(
        self,
        flows: FrameTable,
        asked: SentFrames,
        sent: np.ndarray,
        pairs: PairedFrames,
        sizes: np.ndarray,
        waiting: np.ndarray,
    ) -> None:
        """Keep copies of the requests that wait, and of their connections."""
        frames = [pairs.requests, *pairs.further_frames]
        kept = np.unique(np.concatenate([rows[waiting] for rows in frames]))
        frames_kept = replace(asked.table, rows=select_rows(asked.table.rows, kept))
        self._waiting.add(frames_kept, select_rows(sent, kept), sizes[kept])
        self._flows.keep(flows, np.unique(sent["flow"][kept]))


def _check_pairs(
    exchange: ExchangeFormat, pairs: PairedFrames, request_count: int, response_count: int
) -> None:
    """Raise ValueError if the result of `ExchangeFormat.pair` does not fit the frames."""
    count = len(pairs.requests)
    arrays: dict[str, Any] = {"responses": pairs.responses, "rows": pairs.rows}
    arrays |= {"is_awaited": pairs.is_awaited, "kept_sizes": pairs.kept_sizes}
    arrays |= {f"further_frames[{i}]": rows for i, rows in enumerate(pairs.further_frames)}
    for name, array in arrays.items():
        if array is not None and len(array) != count:
            raise ValueError(
                f"{exchange.name}: pair returned {count} requests, but {name} has {len(array)} rows"
            )
    expected = np.dtype([*HEAD.descr, *exchange.dtype.descr])
    if pairs.rows.dtype.names != expected.names:
        raise ValueError(
            f"{exchange.name}: the rows of pair must have the dtype of make_rows: {expected}"
        )
    for name, rows, lowest, frames in (
        ("requests", pairs.requests, 0, request_count),
        ("responses", pairs.responses, NO_RESPONSE, response_count),
    ):
        outside = np.flatnonzero((rows < lowest) | (rows >= frames))
        if len(outside):
            first = int(outside[0])
            raise ValueError(
                f"{exchange.name}: pair returned row {rows[first]} in {name}[{first}], outside the "
                f"{frames} frames"
            )


def _fill_rows(
    pairs: PairedFrames, sent: np.ndarray, answers_sent: np.ndarray, dtype: np.dtype
) -> np.ndarray:
    """Return the rows of exchanges."""
    rows = np.zeros(len(pairs.rows), dtype)
    for name in pairs.rows.dtype.names or ():
        rows[name] = pairs.rows[name]
    requests = select_rows(sent, pairs.requests)
    last = requests
    if pairs.further_frames:
        last = select_rows(sent, pairs.further_frames[-1])
    _fill_requests(rows, requests)
    rows["request_end"] = last["time_end"]
    rows["request_size"] = last["position"] + last["size"] - requests["position"]
    answered = np.flatnonzero(pairs.responses != NO_RESPONSE)
    responses = select_rows(answers_sent, pairs.responses[answered])
    rows["response_time"][answered] = responses["time"]
    rows["time_end"][answered] = responses["time_end"]
    rows["response_size"][answered] = responses["size"]
    return rows


def _fill_requests(rows: np.ndarray, requests: np.ndarray) -> None:
    rows["parent"] = requests["flow"]
    rows["kind"] = np.where(requests["is_to_server"], Direction.TO_SERVER, Direction.TO_CLIENT)
    for name in ("position", "time"):
        rows[name] = requests[name]


def _make_bad_rows(frames: SentFrames, sent: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return rows for bad frames, which belong to no exchange."""
    chosen = np.flatnonzero(frames.table.bad & frames.is_new)
    rows = make_bad_rows(frames.table, chosen, dtype)
    _fill_requests(rows, sent[chosen])
    return rows
