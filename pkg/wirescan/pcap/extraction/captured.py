"""The option `capture` of every format: its frames are read from captures.

"kafka.requests?capture=true" is the format of the requests in a capture. `wirescan.scan`, the
exports and the command use it for files that are captures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wirescan.frames.columns import PATH_KINDS, Column, ComputedColumn
from wirescan.frames.conversation import CarriedFormat, Conversation
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.options import FormatOption
from wirescan.frames.registry import format_of, load_formats, make_spec
from wirescan.frames.table import FrameTable
from wirescan.pcap.decryption.tls_ciphers import import_ciphers
from wirescan.pcap.decryption.tls_keys import KeyLog
from wirescan.pcap.decryption.tls_table import CapturedTls
from wirescan.pcap.extraction.captured_frames import CapturedFrames
from wirescan.pcap.extraction.frame_times import (
    NO_LATENCY,
    NO_TIME,
    compute_end,
    compute_latency,
    read_first,
)
from wirescan.pcap.extraction.stream_frames import (
    STREAMS,
    make_scanner,
    read_stream_frames,
)
from wirescan.pcap.files import FILES

Children = Mapping[str, Callable[..., FrameTable]]  # those of a `Format`


def add_capture(format: Format, value: str) -> Format:
    """Return a format whose frames are read from captures, with the columns of captures.

    Raises ValueError for a format whose frames are not sent over connections.
    """
    if format.name.startswith("pcap.") or format.within == STREAMS:
        raise ValueError(f"{format.name} are read from captures already")
    options = {"keylog": _find_keylog(format), "capture": value}
    children = {name: _capture_child(read, options) for name, read in format.children.items()}
    if format.within is not None:
        return _capture_nested(format, children, value)
    carried = _find_carrying(format)
    if carried is not None:
        return _capture_carried(format, children, carried, options["keylog"])
    return _capture_outermost(format, children, options)


def _capture_nested(format: Format, children: Children, value: str) -> Format:
    """Return a format inside another one, with the columns of captures of the outermost one.

    children: those of the result. value: that of the option `capture`.
    """
    assert format.within is not None
    outer = make_spec(format.within, capture=value)
    top = format_of(outer).outermost  # it raises for frames that are not sent over connections
    names = INHERITED
    for other in _list_carried():
        if other.name == top.name:
            names = (*INHERITED, *other.inherited)
    inherited = {name: Column(inherited=True) for name in names if _is_free(format, name)}
    return replace(
        format,
        within=outer,
        children=children,
        columns={**format.columns, **inherited},
        storage=Storage(),
        display=_add_shown_columns(format),
        write=None,
    )


def _capture_carried(
    format: Format, children: Children, carried: CarriedFormat, keylog: str | None
) -> Format:
    """Return a format that messages of another one carry: within the format of what they carry.

    children: those of the result. carried: the declaration of these messages. keylog: the path of
    the file of secrets.
    """
    names = (*INHERITED, *carried.inherited)
    return replace(
        format,
        within=make_spec(carried.name, keylog=keylog),
        children=children,
        columns={**format.columns, **dict.fromkeys(names, Column(inherited=True))},
        parser=Parser(),
        storage=Storage(),
        display=_add_shown_columns(format),
        write=None,
    )


def _capture_outermost(
    format: Format, children: Children, options: dict[str, str | None]
) -> Format:
    """Return an outermost format within pcap.streams, with the columns of captures.

    children: those of the result. options: those of the result, by name.

    Raises ValueError for a format whose frames are not sent over connections.
    """
    if format.conversation is None:
        raise ValueError(f"{format.name} are not sent over connections: captures do not have them")
    if format.parser.spans is None or format.storage.weigh is None:
        raise ValueError(f"{format.name} has a conversation, but no Parser.spans or Storage.weigh")
    columns = {**CAPTURE_COLUMNS, **format.columns}
    if format.conversation.answers is not None:
        columns = {**LATENCY, **columns}

    def make_reader(*, errors: str, check: bool, limits: Limits) -> CapturedFrames:
        scanner = make_scanner(format, check=check, limits=limits)
        captured = format_of(make_spec(format.spec, **options))
        return CapturedFrames(scanner, captured, errors=errors, limits=limits)

    return replace(
        format,
        within=STREAMS,
        children=children,
        columns=columns,
        meanings={**MEANINGS, **format.meanings},
        read=partial(read_stream_frames, format=format),
        parser=Parser(),
        storage=Storage(files=FILES),
        display=_add_shown_columns(format),
        requests=None,
        make_reader=make_reader,
    )


def _is_free(format: Format, name: str) -> bool:
    """Return whether no frame has a column, except one that follows from the path of a file."""
    found = format.describe_column(name)
    return found is None or found.kind in PATH_KINDS


def _find_carrying(format: Format) -> CarriedFormat | None:
    """Return the declaration of the messages that carry the frames of a format, if there is one."""
    return next((item for item in _list_carried() if item.carries == format.name), None)


def _list_carried() -> list[CarriedFormat]:
    return [other.carried for other in load_formats().values() if other.carried is not None]


def _add_shown_columns(format: Format) -> Display:
    """Return how the command shows frames of a capture: with their times and endpoints first."""
    display = format.display
    conversation = format.outermost.conversation
    if not display.shown:
        return display  # all columns are shown
    first = ["time", "client", "server"]
    if conversation is None or conversation.sender is None:
        first.append("direction")
    others = [name for name in display.shown if name not in ("_start", *first)]
    return replace(display, shown=(*first, *others))


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
    if format.within == STREAMS:
        import_ciphers()
        KeyLog(path)
        assert format.make_reader is not None  # exchanges, and what messages carry
        return replace(
            format,
            read=partial(format.read, keylog=path),
            make_reader=partial(format.make_reader, keylog=path),
        )
    if format.within is not None:
        outer = make_spec(format.within, keylog=path)
        format_of(outer)  # it raises for frames that are not sent over connections
        return replace(format, within=outer)
    conversation = format.conversation
    if conversation is None and _find_carrying(format) is not None:
        conversation = Conversation()  # only for the option: the messages around them are sent
    if conversation is None:
        raise ValueError(f"{format.name} are not sent over connections: captures do not have them")
    import_ciphers()
    KeyLog(path)
    return replace(format, conversation=replace(conversation, keylog=path))


def _declare(
    compute: Callable[[Any], np.ndarray],
    unit: Literal["ns"] | None = None,
    *,
    duration: Literal["ns"] | None = None,
    null: int = NO_TIME,
    exported: bool = True,
) -> Column:
    """Return a column that follows from the place of a frame."""
    computed = ComputedColumn(compute, ("start", "size", "buffer"), (), "i8", null)
    return Column(unit=unit, duration=duration, computed=computed, exported=exported)


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
# Those that every export of the frames inside has too.
INHERITED = tuple(name for name, column in CAPTURE_COLUMNS.items() if name != "packet")
LATENCY = {"latency": _declare(compute_latency, duration="ns", null=NO_LATENCY)}
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
    "Captures: decrypt TLS with the secrets in this file, in the format of NSSLKEYLOGFILE. Those "
    "in the capture are used without it.",
    add_keylog,
)
COMMON_OPTIONS = (
    KEYLOG,  # the option `capture` reads it
    FormatOption(
        "capture", bool, "The files are captures of packets.", add_capture, is_internal=True
    ),
)
