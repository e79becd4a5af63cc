"""Thrift: reading and writing header frames.

They are compared with Apache's libraries, a Python loop, thriftpy2, fastparquet and zlib alone.
"""

from __future__ import annotations

import subprocess
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.peers import thrift as peers
from bench.report import Report, format_timings
from bench.timing import Contender, Times, interleave, time_call
from bench.workloads import thrift_calls
from bench.workloads.nats_messages import Messages, list_rows
from wirescan import thrift as ours
from wirescan.frames.table import FrameTable
from wirescan.thrift.constants import Protocol, Type
from wirescan.thrift.encode import encode_frames, encode_messages

FULL = {"count": 1 << 20, "part": 1 << 15, "rounds": 15}
QUICK = {"count": 1 << 13, "part": 1 << 11, "rounds": 2}
PACKAGES = ["numpy", "thrift", "thriftpy2", "fastparquet"]
COPY = "buf.copy()"
LOOP = "a Python loop, fixed headers alone"
TRANSPORT = "Apache's Python, readFrame"
PROTOCOL = "Apache's Python, readMessageBegin"
CPP = "Apache's C++, begin and skip"
INFLATE = "inflateReset and inflate, in C"
PARQUET = "fastparquet, a list of dicts"
BOTH = "scan and messages"
GOAL = 25  # million frames a second


def run(count: int, part: int, rounds: int) -> str:
    """Return the section as markdown.

    count: number of messages in a stream. part: number of messages for slow readers.
    """
    report = Report("Thrift")
    cpp = None
    report.say(
        f"Streams of {count:,} messages, in memory, warm, one thread. Streams with many fields or "
        "with compression have fewer messages. Ratios are medians of the rounds' ratios. The "
        f"Python readers read {part:,} messages."
    )
    try:
        cpp = peers.TheaderCpp()
    except (OSError, subprocess.CalledProcessError):
        report.say("Apache's C++ library takes no part: nothing can be compiled against it here.")
    measure_frames(report, count, part, rounds, cpp)
    measure_binary(report, count, part, rounds)
    measure_structs(report, "two fields", thrift_calls.make_header_frames, count, part, rounds)
    measure_structs(report, "nine fields", thrift_calls.make_records, count >> 3, part, rounds)
    measure_payloads(report, count >> 2, part, rounds)
    measure_encoders(report, count, part, rounds)
    libraries = [
        f"zlib {zlib.ZLIB_RUNTIME_VERSION}",
        *([f"libthrift {cpp.version}"] if cpp else []),
    ]
    return report.markdown(PACKAGES + libraries)


def read_messages(data: np.ndarray) -> FrameTable:
    """Read bytes into rows of messages."""
    return ours.messages(ours.scan(data))


def measure_frames(
    report: Report, count: int, part: int, rounds: int, cpp: peers.TheaderCpp | None
) -> None:
    """Read header frames, their headers, and the start of their messages."""
    whole, some = (Messages(thrift_calls.make_header_frames(n), n) for n in (count, part))
    raw = some.bytes.tobytes()
    table = ours.scan(whole.bytes)
    check_agreement(some, raw, cpp)
    contenders = [
        whole.contender(BOTH, lambda: read_messages(whole.bytes)),
        whole.contender("scan", lambda: ours.scan(whole.bytes)),
        whole.contender("messages", lambda: ours.messages(table)),
        whole.contender("infos", lambda: ours.infos(table)),
        whole.contender(COPY, whole.bytes.copy),
        some.contender(LOOP, lambda: peers.count_fixed_headers(raw), rehearse=False),
        some.contender(
            "the same, kept in tuples", lambda: peers.list_fixed_headers(raw), rehearse=False
        ),
        some.contender(TRANSPORT, lambda: peers.read_apache_frames(raw, part), rehearse=False),
        some.contender(PROTOCOL, lambda: peers.read_apache_messages(raw, part), rehearse=False),
    ]
    if cpp:
        contenders.append(
            whole.contender(CPP, lambda: cpp.begins(whole.bytes, count), rehearse=False)
        )
    times = interleave(contenders, rounds)
    for name, bound in {LOOP: 5, TRANSPORT: 100, PROTOCOL: 100, CPP: 6}.items():
        if name in times.contenders:
            report.at_least(
                f"`thrift.scan` and `messages`, times as fast as {name}",
                bound,
                times.ratio(name, BOTH),
            )
    middle, low, high = (1000 / nanoseconds for nanoseconds in times.quartiles(BOTH))
    report.at_least(
        "the same, frames in a second (a goal, for another machine)",
        GOAL,
        (middle, high, low),
        " million",
    )
    report.at_most(
        "`thrift.infos`, a key/value",
        15,
        tuple(nanoseconds / thrift_calls.PAIRS for nanoseconds in times.quartiles("infos")),
        " ns",
    )
    report.say(
        "### Header frames",
        "",
        f"Frames of {len(whole.bytes) / count:.0f} bytes have {thrift_calls.PAIRS} keys and "
        "values, and a call in the compact protocol. scan reads every fixed field, the "
        "transforms, and the places of infos and payload. messages reads name, type and sequence "
        "id. The loop unpacks length, magic, flags, sequence number and header size with "
        "`struct`, and keeps nothing. readFrame makes a dict of the infos, and readMessageBegin "
        "calls it first. The C++ library makes a map of them, and skips the arguments.",
        "",
        format_timings(times, compare_with_first(times), "frame"),
    )


def check_agreement(some: Messages, raw: bytes, cpp: peers.TheaderCpp | None) -> None:
    """Raise ValueError if the readers do not agree."""
    table = ours.scan(some.bytes)
    n = some.count
    messages = list_rows(ours.messages(table), ["method", "kind", "seqid"])
    infos = list_rows(ours.infos(table), ["parent", "key", "value"])
    fixed = [
        (size - 4, 0x0FFF, *rest)
        for size, *rest in list_rows(table, ["size", "flags", "seq", "header_words"])
    ]
    pairs = [
        (i, *pair)
        for i, headers in enumerate(peers.read_apache_frames(raw, n))
        for pair in headers.items()
    ]
    begins = [
        (name.encode(), kind, sequence)
        for name, kind, sequence in peers.read_apache_messages(raw, n)
    ]
    if not (
        peers.list_fixed_headers(raw) == fixed and peers.count_fixed_headers(raw) == len(fixed) == n
    ):
        raise ValueError("wirescan and the loop do not find the same frames")
    if messages != begins or infos != pairs:
        raise ValueError("wirescan and Apache's Python library do not find the same")
    if cpp and cpp.begins(some.bytes, n) != (
        sum(sequence + len(name) for name, _, sequence in messages)
        + sum(len(key) + len(value) for _, key, value in infos)
    ):
        raise ValueError("wirescan and Apache's C++ library do not find the same")


def measure_binary(report: Report, count: int, part: int, rounds: int) -> None:
    """Read framed binary messages, compared with thriftpy2, which makes an object per call."""
    whole, some = (Messages(thrift_calls.make_framed_calls(n), n) for n in (count, part))
    raw = some.bytes.tobytes()
    messages = read_messages(some.bytes)
    numbers = ours.fields(messages)["integer"].reshape(-1, 2).tolist()
    if peers.read_thriftpy2_calls(raw, part) != [
        (name.decode(), sequence, *pair)
        for (name, sequence), pair in zip(list_rows(messages, ["method", "seqid"]), numbers)
    ]:
        raise ValueError("wirescan and thriftpy2 do not find the same calls")
    times = interleave(
        [
            whole.contender(
                "scan, messages and fields", lambda: ours.fields(read_messages(whole.bytes))
            ),
            whole.contender(BOTH, lambda: read_messages(whole.bytes)),
            whole.contender(COPY, whole.bytes.copy),
            some.contender(
                "thriftpy2 (Cython)", lambda: peers.read_thriftpy2_calls(raw, part), rehearse=False
            ),
        ],
        rounds,
    )
    report.say(
        "### Framed binary messages",
        "",
        f"Calls have {len(whole.bytes) / count:.0f} bytes, without headers, which thriftpy2 does "
        "not read. thriftpy2 has the IDL, and makes an object of the arguments.",
        "",
        format_timings(times, compare_with_first(times), "message"),
    )


def measure_structs(
    report: Report,
    title: str,
    make: Callable[[int], np.ndarray],
    count: int,
    part: int,
    rounds: int,
) -> None:
    """Read the arguments of messages without an IDL."""
    whole, some = (Messages(make(n), n) for n in (count, part))
    messages = read_messages(whole.bytes)
    some_messages = read_messages(some.bytes)
    each = [arguments for (arguments,) in list_rows(some_messages, ["arguments"])]
    joined = b"".join(each)
    fields = ours.fields(some_messages)
    for structs_read in (
        peers.read_fastparquet_dicts(each),
        peers.read_fastparquet_run(joined, part),
    ):
        if list_dicts(fields) != [*map(peers.normalize, structs_read)]:
            raise ValueError("wirescan and fastparquet do not read the same structs")
    size = int(messages["arguments_size"].sum())

    def theirs(name: str, call: Callable[[], Any]) -> Contender:
        return Contender(name, time_call(call), part, len(joined))

    times = interleave(
        [
            Contender("fields", time_call(lambda: ours.fields(messages)), count, size),
            theirs(PARQUET, lambda: list(peers.read_fastparquet_dicts(each))),
            theirs(
                "the same, each dropped at once",
                lambda: deque(peers.read_fastparquet_dicts(each), 0),
            ),
            theirs(
                "one reader of structs in a run, each dropped",
                lambda: deque(peers.read_fastparquet_run(joined, part), 0),
            ),
        ],
        rounds,
    )
    report.at_least(
        f"`thrift.fields`, {title}: times as fast as fastparquet's `from_buffer`",
        5,
        times.ratio(PARQUET, "fields"),
    )
    report.say(
        f"### Compact structs of {title}",
        "",
        f"Each struct has {size / count:.0f} bytes and {len(fields) / part:.0f} rows. fastparquet "
        "makes a dict of a struct from a separate bytes object, or from one buffer with all "
        "structs.",
        "",
        format_timings(times, compare_with_first(times), "struct"),
    )


def list_dicts(fields: FrameTable) -> list[dict]:
    """Return the rows of fields in the form of `peers.normalize`.

    Structs are dicts by field id, lists are lists, and doubles are None.
    """
    top: dict[int, dict] = {}
    objects: list[Any] = []
    for parent, enclosing, kind, id, integer, value in list_rows(
        fields, ["parent", "enclosing", "kind", "id", "integer", "value"]
    ):
        empty = {Type.STRUCT: {}, Type.LIST: [], Type.STRING: value, Type.DOUBLE: None}
        objects.append(empty.get(kind, integer))
        around = top.setdefault(parent, {}) if enclosing < 0 else objects[enclosing]
        if isinstance(around, list):
            around.append(objects[-1])
        else:
            around[id] = objects[-1]
    return list(top.values())


def measure_payloads(report: Report, count: int, part: int, rounds: int) -> None:
    """Decompress small payloads, compared with zlib alone on the same ones."""
    whole = Messages(thrift_calls.make_compressed(count), count)
    frames = ours.scan(whole.bytes)
    starts = frames["start"] + frames["payload_at"].astype(np.int64)
    inflate = peers.Inflate(
        whole.bytes, starts, frames["payload_size"], thrift_calls.PAYLOAD * count
    )
    streams = [payload for (payload,) in list_rows(frames[:part], ["payload"])]
    plain = ours.plain(frames)
    if b"".join(plain.bytes(i, "payload") for i in range(count)) != inflate().tobytes():
        raise ValueError("wirescan and zlib do not find the same payloads")
    times = interleave(
        [
            whole.contender(INFLATE, inflate),
            whole.contender("plain", lambda: ours.plain(frames)),
            whole.contender(
                "scan, plain and messages",
                lambda: ours.messages(ours.plain(ours.scan(whole.bytes))),
            ),
            Contender(
                "zlib.decompress, in Python",
                time_call(lambda: [*map(zlib.decompress, streams)], rehearse=False),
                part,
                sum(map(len, streams)),
            ),
        ],
        rounds,
    )
    report.at_most(
        "`thrift.plain`, of inflateReset and inflate in a loop of C",
        1.2,
        times.ratio("plain", INFLATE),
    )
    report.say(
        "### Compressed payloads",
        "",
        f"{count:,} payloads have {thrift_calls.PAYLOAD} bytes, and "
        f"{frames['payload_size'].mean():.0f} bytes with zlib. The loop in C gets their "
        "positions, and writes the results into memory that is mapped before.",
        "",
        format_timings(times, compare_with_first(times), "payload"),
    )


def measure_encoders(report: Report, count: int, part: int, rounds: int) -> None:
    """Write columns to bytes."""
    whole, some = (Messages(thrift_calls.make_header_frames(n), n) for n in (count, part))
    table = ours.scan(whole.bytes)
    messages = ours.messages(table)
    infos = ours.infos(table)
    some_frames = ours.scan(some.bytes)
    payloads = [payload for (payload,) in list_rows(some_frames, ["payload"])]
    sequences = some_frames["seq"].tolist()
    pairs = list_rows(ours.infos(some_frames), ["key", "value"])
    pairs = [pairs[at : at + thrift_calls.PAIRS] for at in range(0, len(pairs), thrift_calls.PAIRS)]

    def write_frames() -> bytes:
        return encode_frames(
            (table, "payload"),
            protocol_id=Protocol.COMPACT,
            seq=table["seq"],
            infos=(table["info_count"], (infos, "key"), (infos, "value")),
        )[0]

    def write_messages() -> bytes:
        return encode_messages(
            (messages, "method"),
            messages["kind"],
            messages["seqid"],
            (messages, "arguments"),
            protocol="compact",
        )[0]

    same_size = len(write_messages()) == table["payload_size"].sum()
    if write_frames() != whole.bytes.tobytes() or not same_size:
        raise ValueError("an encoder writes other bytes than those that the columns are from")
    if peers.write_with_apache(payloads, sequences, pairs) != some.bytes.tobytes():
        raise ValueError("Apache's Python library writes other bytes")
    times = interleave(
        [
            whole.contender("encode_frames", write_frames),
            whole.contender("encode_messages", write_messages),
            whole.contender(COPY, whole.bytes.copy),
            some.contender(
                "Apache's Python, write and flush",
                lambda: peers.write_with_apache(payloads, sequences, pairs),
                rehearse=False,
            ),
        ],
        rounds,
    )
    report.say(
        "### Out of columns",
        "",
        "Header frames, and the messages in them, are written from the places of tables. "
        "Apache's Python library gets one message at a time, which exists before, and its infos. "
        "Both write the same bytes.",
        "",
        format_timings(times, compare_with_first(times), "frame"),
    )


def compare_with_first(times: Times) -> dict[str, str]:
    """Compare every contender with the first one."""
    first, *others = times.contenders
    return dict.fromkeys(others, first)
