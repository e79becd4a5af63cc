"""Thrift: header frames to rows beside Apache's libraries, a Python loop, fastparquet and zlib alone; and back."""
from __future__ import annotations

import subprocess
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import calls
from bench.measure import Contender, Times, interleave, timed
from bench.messages import Messages, rows_of
from bench.peers import thrift as peers
from bench.report import Report, timings
from wirescan import thrift as ours
from wirescan.table import FrameTable
from wirescan.thrift.encode import encode_frames, encode_messages
from wirescan.thrift.kind import Protocol, Type

FULL = {"count": 1 << 20, "part": 1 << 15, "rounds": 15}
QUICK = {"count": 1 << 13, "part": 1 << 11, "rounds": 2}
PACKAGES = ["numpy", "thrift", "thriftpy2", "fastparquet"]
COPY, LOOP = "buf.copy()", "a Python loop, fixed headers alone"
TRANSPORT, PROTOCOL = "Apache's Python, readFrame", "Apache's Python, readMessageBegin"
CPP, INFLATE = "Apache's C++, begin and skip", "inflateReset and inflate, in C"
PARQUET = "fastparquet, a list of dicts"
BOTH = "scan and messages"
GOAL = 25                   # million frames a second


def run(count: int, part: int, rounds: int) -> str:
    """The whole part as markdown. count: of messages in a stream. part: of them, for what takes long."""
    report, cpp = Report("Thrift"), None
    report.say(
        f"Streams of {count:,} messages, of which those with many fields and the compressed ones are fewer, in memory, "
        f"warm, one thread; ratios are medians of the rounds' own ratios. What is Python takes {part:,} messages.")
    try:
        cpp = peers.TheaderCpp()
    except (OSError, subprocess.CalledProcessError):
        report.say("Apache's C++ library takes no part: nothing can be compiled against it here.")
    frames(report, count, part, rounds, cpp)
    binary(report, count, part, rounds)
    structs(report, "two fields", calls.headers, count, part, rounds)
    structs(report, "nine fields", calls.records, count >> 3, part, rounds)
    payloads(report, count >> 2, part, rounds)
    encoders(report, count, part, rounds)
    libraries = [f"zlib {zlib.ZLIB_RUNTIME_VERSION}", *([f"libthrift {cpp.version}"] if cpp else [])]
    return report.markdown(PACKAGES + libraries)


def both(data: np.ndarray) -> FrameTable:
    """From bytes to rows of messages."""
    return ours.messages(ours.scan(data))


def frames(report: Report, count: int, part: int, rounds: int, cpp: peers.TheaderCpp | None) -> None:
    """Header frames, what is in their headers, and the begin of their messages."""
    whole, some = (Messages(calls.headers(n), n) for n in (count, part))
    raw, table = some.bytes.tobytes(), ours.scan(whole.bytes)
    agree(some, raw, cpp)
    contenders = [
        whole.contender(BOTH, lambda: both(whole.bytes)),
        whole.contender("scan", lambda: ours.scan(whole.bytes)),
        whole.contender("messages", lambda: ours.messages(table)),
        whole.contender("infos", lambda: ours.infos(table)),
        whole.contender(COPY, whole.bytes.copy),
        some.contender(LOOP, lambda: peers.fixed_headers(raw), rehearse=False),
        some.contender("the same, kept in tuples", lambda: peers.fixed_headers_kept(raw), rehearse=False),
        some.contender(TRANSPORT, lambda: peers.apache_frames(raw, part), rehearse=False),
        some.contender(PROTOCOL, lambda: peers.apache_messages(raw, part), rehearse=False)]
    if cpp:
        contenders.append(whole.contender(CPP, lambda: cpp.begins(whole.bytes, count), rehearse=False))
    times = interleave(contenders, rounds)
    for name, bound in {LOOP: 5, TRANSPORT: 100, PROTOCOL: 100, CPP: 6}.items():
        if name in times.contenders:
            report.at_least(f"`thrift.scan` and `messages`, times as fast as {name}", bound, times.ratio(name, BOTH))
    middle, low, high = (1000 / one for one in times.quartiles(BOTH))
    report.at_least("the same, frames in a second (a goal, for another machine)", GOAL, (middle, high, low), " million")
    report.at_most("`thrift.infos`, a key/value", 15, tuple(one / calls.PAIRS for one in times.quartiles("infos")),
                   " ns")
    report.say(
        "### Header frames", "",
        f"Frames of {len(whole.bytes) / count:.0f} bytes: {calls.PAIRS} keys and values, and a call in the compact "
        "protocol. scan finds every fixed field, the transforms, and where infos and payload lie; messages the name, "
        "type and sequence id. The loop unpacks length, magic, flags, sequence number and header size with `struct`, "
        "and keeps nothing. readFrame makes a dict of the infos, and readMessageBegin begins with that. The C++ "
        "library makes a map of them, and steps over the arguments.", "",
        timings(times, beside_first(times), "frame"))


def agree(some: Messages, raw: bytes, cpp: peers.TheaderCpp | None) -> None:
    """Raises ValueError where the readers do not find the same."""
    table, n = ours.scan(some.bytes), some.count
    messages = rows_of(ours.messages(table), ["method", "kind", "seqid"])
    infos = rows_of(ours.infos(table), ["parent", "key", "value"])
    fixed = [(size - 4, 0x0fff, *rest) for size, *rest in rows_of(table, ["size", "flags", "seq", "header_words"])]
    pairs = [(i, *pair) for i, headers in enumerate(peers.apache_frames(raw, n)) for pair in headers.items()]
    begins = [(name.encode(), kind, sequence) for name, kind, sequence in peers.apache_messages(raw, n)]
    if not (peers.fixed_headers_kept(raw) == fixed and peers.fixed_headers(raw) == len(fixed) == n):
        raise ValueError("wirescan and the loop do not find the same frames")
    if messages != begins or infos != pairs:
        raise ValueError("wirescan and Apache's Python library do not find the same")
    if cpp and cpp.begins(some.bytes, n) != (sum(sequence + len(name) for name, _, sequence in messages)
                                             + sum(len(key) + len(value) for _, key, value in infos)):
        raise ValueError("wirescan and Apache's C++ library do not find the same")


def binary(report: Report, count: int, part: int, rounds: int) -> None:
    """Framed binary messages beside thriftpy2, which reads both arguments into an object."""
    whole, some = (Messages(calls.framed(n), n) for n in (count, part))
    raw, messages = some.bytes.tobytes(), both(some.bytes)
    numbers = ours.fields(messages)["integer"].reshape(-1, 2).tolist()
    if peers.thriftpy2_calls(raw, part) != [(name.decode(), sequence, *pair) for (name, sequence), pair in
                                            zip(rows_of(messages, ["method", "seqid"]), numbers)]:
        raise ValueError("wirescan and thriftpy2 do not find the same calls")
    times = interleave([
        whole.contender("scan, messages and fields", lambda: ours.fields(both(whole.bytes))),
        whole.contender(BOTH, lambda: both(whole.bytes)),
        whole.contender(COPY, whole.bytes.copy),
        some.contender("thriftpy2 (Cython)", lambda: peers.thriftpy2_calls(raw, part), rehearse=False),
    ], rounds)
    report.say("### Framed binary messages", "",
               f"Calls of {len(whole.bytes) / count:.0f} bytes without headers, which thriftpy2 does not read. It is "
               "given the IDL, and makes an object of the arguments.", "",
               timings(times, beside_first(times), "message"))


def structs(report: Report, title: str, made: Callable[[int], np.ndarray], count: int, part: int, rounds: int) -> None:
    """The arguments of messages, read without an IDL."""
    whole, some = (Messages(made(n), n) for n in (count, part))
    messages, mine = both(whole.bytes), both(some.bytes)
    each = [arguments for arguments, in rows_of(mine, ["arguments"])]
    joined, found = b"".join(each), ours.fields(mine)
    for theirs in (peers.fastparquet_dicts(each), peers.fastparquet_run(joined, part)):
        if dicts(found) != [*map(peers.cleaned, theirs)]:
            raise ValueError("wirescan and fastparquet do not read the same structs")
    size = int(messages["arguments_size"].sum())

    def theirs(name: str, call: Callable[[], Any]) -> Contender:
        return Contender(name, timed(call), part, len(joined))

    times = interleave([
        Contender("fields", timed(lambda: ours.fields(messages)), count, size),
        theirs(PARQUET, lambda: list(peers.fastparquet_dicts(each))),
        theirs("the same, each dropped at once", lambda: deque(peers.fastparquet_dicts(each), 0)),
        theirs("one reader of structs in a run, each dropped", lambda: deque(peers.fastparquet_run(joined, part), 0)),
    ], rounds)
    report.at_least(f"`thrift.fields`, {title}: times as fast as fastparquet's `from_buffer`", 5,
                    times.ratio(PARQUET, "fields"))
    report.say(f"### Compact structs of {title}", "",
               f"{size / count:.0f} bytes and {len(found) / part:.0f} rows in each. fastparquet makes a dict of a "
               "struct that is a bytes object of its own; or of the next one, where all lie behind each other.", "",
               timings(times, beside_first(times), "struct"))


def dicts(fields: FrameTable) -> list[dict]:
    """The rows of fields as `peers.cleaned` has them: structs as dicts of field ids, lists as lists, no doubles."""
    top: dict[int, dict] = {}
    objects: list[Any] = []
    for parent, enclosing, kind, id, integer, value in rows_of(
            fields, ["parent", "enclosing", "kind", "id", "integer", "value"]):
        empty = {Type.STRUCT: {}, Type.LIST: [], Type.STRING: value, Type.DOUBLE: None}
        objects.append(empty.get(kind, integer))
        around = top.setdefault(parent, {}) if enclosing < 0 else objects[enclosing]
        if isinstance(around, list):
            around.append(objects[-1])
        else:
            around[id] = objects[-1]
    return list(top.values())


def payloads(report: Report, count: int, part: int, rounds: int) -> None:
    """Small compressed payloads, beside zlib alone on the same ones."""
    whole = Messages(calls.compressed(count), count)
    frames = ours.scan(whole.bytes)
    starts = frames["start"] + frames["payload_at"].astype(np.int64)
    inflate = peers.Inflate(whole.bytes, starts, frames["payload_size"], calls.PAYLOAD * count)
    streams = [one for one, in rows_of(frames[:part], ["payload"])]
    opened = ours.plain(frames)
    if b"".join(opened.bytes(i, "payload") for i in range(count)) != inflate().tobytes():
        raise ValueError("wirescan and zlib do not find the same payloads")
    times = interleave([
        whole.contender(INFLATE, inflate),
        whole.contender("plain", lambda: ours.plain(frames)),
        whole.contender("scan, plain and messages", lambda: ours.messages(ours.plain(ours.scan(whole.bytes)))),
        Contender("zlib.decompress, in Python", timed(lambda: [*map(zlib.decompress, streams)], rehearse=False), part,
                  sum(map(len, streams))),
    ], rounds)
    report.at_most("`thrift.plain`, of inflateReset and inflate in a loop of C", 1.2, times.ratio("plain", INFLATE))
    report.say("### Compressed payloads", "",
               f"{count:,} payloads of {calls.PAYLOAD} bytes, {frames['payload_size'].mean():.0f} with zlib. The loop "
               "of C is told where they lie, and writes them one behind another into memory that it has already.", "",
               timings(times, beside_first(times), "payload"))


def encoders(report: Report, count: int, part: int, rounds: int) -> None:
    """From columns to bytes."""
    whole, some = (Messages(calls.headers(n), n) for n in (count, part))
    table = ours.scan(whole.bytes)
    messages, infos, mine = ours.messages(table), ours.infos(table), ours.scan(some.bytes)
    payloads, sequences = [one for one, in rows_of(mine, ["payload"])], mine["seq"].tolist()
    pairs = rows_of(ours.infos(mine), ["key", "value"])
    pairs = [pairs[at:at + calls.PAIRS] for at in range(0, len(pairs), calls.PAIRS)]

    def written() -> bytes:
        return encode_frames((table, "payload"), protocol_id=Protocol.COMPACT, seq=table["seq"],
                             infos=(table["info_count"], (infos, "key"), (infos, "value")))[0]

    def begun() -> bytes:
        return encode_messages((messages, "method"), messages["kind"], messages["seqid"], (messages, "arguments"),
                               protocol="compact")[0]

    if written() != whole.bytes.tobytes() or len(begun()) != table["payload_size"].sum():
        raise ValueError("an encoder writes other bytes than those that the columns are from")
    if peers.apache_written(payloads, sequences, pairs) != some.bytes.tobytes():
        raise ValueError("Apache's Python library writes other bytes")
    times = interleave([
        whole.contender("encode_frames", written),
        whole.contender("encode_messages", begun),
        whole.contender(COPY, whole.bytes.copy),
        some.contender("Apache's Python, write and flush", lambda: peers.apache_written(payloads, sequences, pairs),
                       rehearse=False),
    ], rounds)
    report.say("### Out of columns", "",
               "Header frames from the places of tables, and the messages in them. Apache's Python library is given "
               "one message at a time, which is made before, and its infos; both write the same bytes.", "",
               timings(times, beside_first(times), "frame"))


def beside_first(times: Times) -> dict[str, str]:
    """Every contender against the first."""
    first, *others = times.contenders
    return dict.fromkeys(others, first)
