"""Apache's Go library for Thrift, and fbthrift's, as programs that read and write, serve and call.

    write("fbthrift", [call("add", ADD)], compact=True, transforms=[5])  # the bytes of each message of a connection
    read("apache", [data])                                               # what was read of each stream
    with Serve("apache") as server:
        speak("fbthrift", server.address, [call("add", ADD)])            # the answer to each call

    frames, table = whole(data)                                          # ... and what we have read
    infos(frames), told_messages(table)

Messages are mappings, see Message and Answer in thrift-go/calculator/service.go; how structs are told in JSON is in
tree.go beside it, and trees() tells a table of thrift.fields in the same way. Needs Go >= 1.26.

fbthrift is of 2021: no newer version was found that the Go module proxy serves and Go's checksum database vouches for.
It knows zlib, and leaves its zstd.go to who builds it, here thrift-go/_fbthrift/zstd.go; it does not know lz4.
"""
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wirescan import thrift
from wirescan.thrift import MessageType, Type

from .cache import kept, twice
from .lumberjack import GO, Program, flags, run

HERE = Path(__file__).with_name("thrift-go")
FBTHRIFT = "vendor/github.com/facebook/fbthrift/thrift/lib/go/thrift"
ADD = [[1, Type.I32, 17], [2, Type.I32, -4]]


def programs() -> Path:
    """The directory of apache and fbthrift, built at the first call (about 20 s)."""
    def build(target: Path) -> None:
        source = target / "source"
        shutil.copytree(HERE, source)
        twice("go", "mod", "vendor", cwd=source, env=os.environ | GO)
        shutil.copy(HERE / "_fbthrift" / "zstd.go", source / FBTHRIFT)
        twice("go", "build", "-mod=vendor", "-o", f"{target}/", "./apache", "./fbthrift", cwd=source,
              env=os.environ | GO)
        shutil.rmtree(source)

    files = sorted(path for path in HERE.rglob("*") if path.is_file())
    return kept("thrift-go", b"".join(path.read_bytes() for path in files), build)


def call(method: str, fields: list, **more) -> dict:
    """A message to write or to speak. more: type, seqid, headers, flags; of fbthrift also persistent and identity."""
    return {"method": method, "type": MessageType.CALL, "seqid": 1, "fields": fields, **more}


def write(program: str, messages: Iterable[Mapping], **options) -> list[bytes]:
    """The bytes of each message. options: compact, transport ("header", "framed", "unframed"), transforms, service."""
    return [bytes.fromhex(line) for line in _run(program, "write", map(json.dumps, messages), options)]


def read(program: str, streams: Iterable[bytes]) -> list[dict]:
    """What a program's header transport has read of each: its `messages`, and the `error` that ended it."""
    return [json.loads(line) for line in _run(program, "read", map(bytes.hex, streams), {})]


def speak(program: str, address: str, calls: Iterable[Mapping], **options) -> list[dict]:
    """The answer to each call on one connection: `fields` of the result, `headers`, and an `error` where there is one.
    seqid and type are the client's own. options: as of write."""
    return [json.loads(line) for line in _run(program, "call", map(json.dumps, calls), options | {"to": address})]


def _run(program: str, verb: str, lines: Iterable[str], options: Mapping) -> list[str]:
    given = "".join(f"{line}\n" for line in lines).encode()
    return run([programs() / program, *_flags(options), verb], given).splitlines()


def _flags(options: Mapping) -> list[str]:
    return flags(options | {"transforms": json.dumps(options.get("transforms", []))})


class Serve(Program):
    """A server of the calculator on `address`, which answers in the framing and the protocol that it is called in.

    Its methods: add and divide of two numbers (by zero: an exception that an IDL would declare), echo, fail (an
    EXCEPTION, as of a method that is not there) and notify, which has no answer.
    """

    def __init__(self, program: str):
        super().__init__([programs() / program, "serve"])

    def await_ready(self) -> None:
        self.await_true(lambda: "\n" in self.output.read_text(), 30)
        self.address = self.output.read_text().strip()


def trees(fields) -> dict[int, list]:
    """Of each good message with fields, by its row in fields.outer, its arguments as the programs tell them."""
    inside = defaultdict(list)
    for row, (parent, enclosing) in enumerate(zip(fields["parent"].tolist(), fields["enclosing"].tolist(),
                                                  strict=True)):
        inside[parent, enclosing].append(row)

    def struct(rows: Sequence[int]) -> list:
        return [[int(fields["id"][row]), int(fields["kind"][row]), value(row)] for row in rows]

    def value(row: int):
        kind, held = fields["kind"][row], inside[fields["parent"][row], row]
        if kind == Type.BOOL:
            return bool(fields["integer"][row])
        if kind in (Type.BYTE, Type.I16, Type.I32, Type.I64):
            return int(fields["integer"][row])
        if kind in (Type.DOUBLE, Type.FLOAT):
            return float(fields["real"][row])
        if kind in (Type.STRING, Type.UUID):
            return bytes(fields.bytes(row, "value")).hex()
        if kind == Type.STRUCT:
            return struct(held)
        told = {"of": int(fields["element_type"][row]), "items": [value(one) for one in held]}
        if kind == Type.MAP:
            told["items"] = [list(pair) for pair in zip(told["items"][::2], told["items"][1::2], strict=True)]
            if fields["key_type"][row]:
                told["key"] = int(fields["key_type"][row])
        return told

    return {parent: struct(rows) for (parent, enclosing), rows in list(inside.items()) if enclosing < 0}


def whole(data: bytes):
    """The frames of bytes that end where a frame does, and their messages."""
    frames = thrift.scan(data)
    assert not len(frames.tail) and not frames.bad.any() and frames["size"].sum() == len(data)
    assert frames["start"].tolist() == [0, *frames["size"].cumsum()[:-1].tolist()]
    return frames, thrift.messages(thrift.plain(frames))


def infos(frames) -> list[list[tuple[int, str, str]]]:
    """For each frame (kind, key, value) of its infos, in the order of the wire."""
    found = [[] for _ in range(len(frames))]
    for row in thrift.infos(frames):    # which raises where one is bad
        found[row.parent].append((row.kind, str(row.key, "utf-8"), str(row.value, "utf-8")))
    return found


def told_messages(table) -> list[tuple]:
    """(method, service, type, seqid, fields) of each message."""
    assert not table.bad.any()
    fields = thrift.fields(table)
    assert not fields.bad.any()
    held = trees(fields)
    return [(str(row.method, "utf-8"), row.service and str(row.service, "utf-8"), row.kind, row.seqid,
             held.get(number, [])) for number, row in enumerate(table)]
