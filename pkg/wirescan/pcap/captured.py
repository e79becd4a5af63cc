"""The option `capture` of every format: its frames are read from captures.

"kafka.requests?capture=true" is the format of the requests in a capture. `wirescan.scan`, the
exports and the command use it for files that are captures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wirescan.frames.columns import Column, ComputedColumn
from wirescan.frames.format import Format, Parser, Storage
from wirescan.frames.options import FormatOption
from wirescan.frames.registry import format_of, load_formats, make_spec
from wirescan.frames.table import FrameTable
from wirescan.pcap.files import FILES
from wirescan.pcap.frame_times import NO_LATENCY, NO_TIME, compute_end, compute_latency, read_first
from wirescan.pcap.stream_frames import CapturedFrames, read_stream_frames
from wirescan.pcap.tls_keys import KeyLog, import_ciphers
from wirescan.pcap.tls_table import CapturedTls


def add_capture(format: Format, value: str) -> Format:
    """Return a format whose frames are read from captures, with the columns of captures.

    Raises ValueError for a format whose frames are not sent over connections.
    """
    if format.name.startswith("pcap."):
        raise ValueError(f"{format.name} is a part of a capture already")
    names = {"keylog": _find_keylog(format), "capture": value}
    children = {name: _capture_child(read, names) for name, read in format.children.items()}
    if format.within is not None:
        outer = make_spec(format.within, capture=value)
        format_of(outer)  # it raises for frames that are not sent over connections
        inherited = {
            name: Column(inherited=True)
            for name in CAPTURE_COLUMNS
            if format.describe_column(name) is None
        }
        return replace(
            format,
            within=outer,
            children=children,
            columns={**format.columns, **inherited},
            write=None,
        )
    if format.conversation is None:
        raise ValueError(f"{format.name} are not sent over connections: captures do not have them")
    if format.parser.spans is None or format.storage.weigh is None:
        raise ValueError(f"{format.name} has a conversation, but no Parser.spans or Storage.weigh")
    columns = {**CAPTURE_COLUMNS, **format.columns}
    if format.conversation.answers is not None:
        columns = {**LATENCY, **columns}
    captured = replace(
        format,
        within=STREAMS,
        children=children,
        columns=columns,
        meanings={**MEANINGS, **format.meanings},
        read=partial(read_stream_frames, format=format),
        parser=Parser(),
        storage=Storage(files=FILES),
        requests=None,
    )

    def make_reader(**options: Any) -> CapturedFrames:
        return CapturedFrames(format, format_of(make_spec(format.name, **names)), **options)

    return replace(captured, make_reader=make_reader)


def _find_keylog(format: Format) -> str | None:
    """Return the path of the file of secrets, None without the option."""
    while format.within is not None:
        format = format_of(format.within)
    return None if format.conversation is None else format.conversation.keylog


def _capture_child(
    read: Callable[..., FrameTable], names: dict[str, str | None]
) -> Callable[..., FrameTable]:
    """Return the function that opens frames inside others, with the columns of captures.

    read: the function of the format of these frames, or any other one.
    names: the options of the format of captures.
    """
    format = next((item for item in load_formats().values() if item.read is read), None)
    if format is None:
        return read
    spec = make_spec(format.name, **names)
    return lambda table, **options: format_of(spec).read(table, **options)


def add_keylog(format: Format, path: str) -> Format:
    """Return a format whose frames are also read from TLS, with the secrets of a file.

    Raises ValueError for a format whose frames are not sent over connections, and for a file
    without secrets; OSError for a file that cannot be read; ImportError without `cryptography`.
    """
    if format.name == TLS_FORMAT:
        import_ciphers()
        KeyLog(path)
        return replace(
            format,
            read=partial(format.read, keylog=path),
            make_reader=partial(CapturedTls, keylog=path),
        )
    if format.name.startswith("pcap."):
        raise ValueError(f"{format.name} has no option 'keylog'; {TLS_FORMAT} has it")
    if format.within is not None:
        outer = make_spec(format.within, keylog=path)
        format_of(outer)  # it raises for frames that are not sent over connections
        return replace(format, within=outer)
    if format.conversation is None:
        raise ValueError(f"{format.name} are not sent over connections: captures do not have them")
    import_ciphers()
    KeyLog(path)
    return replace(format, conversation=replace(format.conversation, keylog=path))


def add_tolerance(format: Format, value: str) -> Format:
    """Return a format of captures whose bad packets and lost bytes are rows in every mode.

    Raises ValueError for another format.
    """
    if format.name not in ("pcap.packets", "pcap.flows", "pcap.streams"):
        raise ValueError(f"{format.name} has no option 'tolerant'")

    def read(source: Any, **options: Any) -> FrameTable:
        return format.read(source, **{**options, "errors": "mark"})

    within = format.within
    assert within is not None  # these formats are inside blocks
    if within != "pcap.blocks":
        within = make_spec(within, tolerant=value)
    return replace(format, within=within, read=read)


def _declare(
    compute: Callable[[Any], np.ndarray],
    unit: Literal["ns"] | None = None,
    *,
    null: int = NO_TIME,
    exported: bool = True,
) -> Column:
    """Return a column that follows from the place of a frame."""
    computed = ComputedColumn(compute, ("start", "size", "buffer"), (), "i8", null)
    return Column(unit=unit, computed=computed, exported=exported)


STREAMS = "pcap.streams?tolerant=true"
TLS_FORMAT = "pcap.tls"
CAPTURE_COLUMNS = {
    "time": _declare(partial(read_first, name="time"), "ns"),
    "time_end": _declare(compute_end, "ns"),
    "packet": _declare(partial(read_first, name="packet"), exported=False),
    "connection": Column(inherited=True),
    "direction": Column(inherited=True, outer_name="kind"),
    "client": Column(inherited=True),
    "server": Column(inherited=True),
}
LATENCY = {"latency": _declare(compute_latency, null=NO_LATENCY)}
MEANINGS = {
    "latency": "nanoseconds from the last byte of the question to the first byte of this answer",
    "time": "when the packet with the first byte of the frame was captured",
    "time_end": "when the last of the packets with bytes of the frame was captured",
    "packet": "number of the packet with the first byte in the capture, from 1 on",
    "direction": "who sent the frame: TO_SERVER or TO_CLIENT",
}
KEYLOG = FormatOption(
    "keylog",
    Path,
    "Captures: decrypt TLS with the secrets in this file, in the format of NSSLKEYLOGFILE.",
    add_keylog,
)
COMMON_OPTIONS = (
    KEYLOG,  # the option `capture` reads it
    FormatOption(
        "capture", bool, "The files are captures of packets.", add_capture, is_internal=True
    ),
    FormatOption(
        "tolerant", bool, "Bad packets and lost bytes are rows.", add_tolerance, is_internal=True
    ),
)
