"""Apache's Go library for Thrift, and fbthrift's, in programs that read, write, serve and call.

    write("fbthrift", [call("add", ADD)], compact=True, transforms=[5])  # bytes of each message
    read("apache", [data])                                  # the messages read from each stream
    with Serve("apache") as server:
        speak("fbthrift", server.address, [call("add", ADD)])            # the answer to each call

    frames, table = scan_frames_and_messages(data)          # wirescan's frames and messages
    list_infos(frames), list_messages(table)

Messages are mappings, see Message and Answer in thrift-go/calculator/service.go. tree.go beside it
describes structs in JSON. trees() gives a table of thrift.fields the same form. Needs Go >= 1.26.

fbthrift is a version of 2021: the Go module proxy and Go's checksum database have no newer version.
It supports zlib. Its zstd.go is left to the program that uses it; here it is
thrift-go/_fbthrift/zstd.go. It does not support lz4.
"""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.support.tables import check_whole_frames
from wirescan import thrift
from wirescan.thrift import MessageType, Type

from .cache import make_once, run_with_retry
from .lumberjack import GO, Program, format_flags, run

HERE = Path(__file__).with_name("thrift-go")
FBTHRIFT = "vendor/github.com/facebook/fbthrift/thrift/lib/go/thrift"
ADD = [[1, Type.I32, 17], [2, Type.I32, -4]]


def build_programs() -> Path:
    """The directory of the programs apache and fbthrift. The first call builds them (20 s)."""

    def build(target: Path) -> None:
        source = target / "source"
        shutil.copytree(HERE, source)
        run_with_retry("go", "mod", "vendor", cwd=source, env=os.environ | GO)
        shutil.copy(HERE / "_fbthrift" / "zstd.go", source / FBTHRIFT)
        run_with_retry(
            "go",
            "build",
            "-mod=vendor",
            "-o",
            f"{target}/",
            "./apache",
            "./fbthrift",
            cwd=source,
            env=os.environ | GO,
        )
        shutil.rmtree(source)

    files = sorted(path for path in HERE.rglob("*") if path.is_file())
    return make_once("thrift-go", b"".join(path.read_bytes() for path in files), build)


def make_call(method: str, fields: list, **more) -> dict:
    """A message for `write` or `speak`.

    more: type, seqid, headers, flags; for fbthrift also persistent and identity.
    """
    return {"method": method, "type": MessageType.CALL, "seqid": 1, "fields": fields, **more}


def write(program: str, messages: Iterable[Mapping], **options) -> list[bytes]:
    """Return the bytes of each message.

    options: compact, transport ("header", "framed", "unframed"), transforms, service.
    """
    return [
        bytes.fromhex(line) for line in _run(program, "write", map(json.dumps, messages), options)
    ]


def read(program: str, streams: Iterable[bytes]) -> list[dict]:
    """Read streams with a program's header transport.

    Each result has the `messages` of a stream, and the `error` that ended it.
    """
    return [json.loads(line) for line in _run(program, "read", map(bytes.hex, streams), {})]


def speak(program: str, address: str, calls: Iterable[Mapping], **options) -> list[dict]:
    """Make calls on one connection. Return the answer to each.

    An answer has the `fields` of the result, `headers`, and an `error` if there is one. The client
    chooses seqid and type. options: as for write.
    """
    return [
        json.loads(line)
        for line in _run(program, "call", map(json.dumps, calls), options | {"to": address})
    ]


def _run(program: str, verb: str, lines: Iterable[str], options: Mapping) -> list[str]:
    data = "".join(f"{line}\n" for line in lines).encode()
    return run([build_programs() / program, *_format_flags(options), verb], data).splitlines()


def _format_flags(options: Mapping) -> list[str]:
    return format_flags(options | {"transforms": json.dumps(options.get("transforms", []))})


class Serve(Program):
    """A calculator server on `address`. It answers in the framing and the protocol of the call.

    Its methods are add and divide (division by zero is an exception of the IDL), echo, fail (an
    EXCEPTION, as for an unknown method) and notify, which has no answer.
    """

    def __init__(self, program: str):
        super().__init__([build_programs() / program, "serve"])

    def await_ready(self) -> None:
        self.await_true(lambda: "\n" in self.output.read_text(), 30)
        self.address = self.output.read_text().strip()


def list_trees(fields) -> dict[int, list]:
    """The arguments of each good message that has fields, in the form of the programs.

    The keys are rows of fields.outer.
    """
    rows_in = defaultdict(list)
    for row, (parent, enclosing) in enumerate(
        zip(fields["parent"].tolist(), fields["enclosing"].tolist(), strict=True)
    ):
        rows_in[parent, enclosing].append(row)

    def struct(rows: Sequence[int]) -> list:
        return [[int(fields["id"][row]), int(fields["kind"][row]), value(row)] for row in rows]

    def value(row: int):
        kind = fields["kind"][row]
        nested = rows_in[fields["parent"][row], row]
        if kind == Type.BOOL:
            return bool(fields["integer"][row])
        if kind in (Type.BYTE, Type.I16, Type.I32, Type.I64):
            return int(fields["integer"][row])
        if kind in (Type.DOUBLE, Type.FLOAT):
            return float(fields["real"][row])
        if kind in (Type.STRING, Type.UUID):
            return bytes(fields.bytes(row, "value")).hex()
        if kind == Type.STRUCT:
            return struct(nested)
        items = [value(item) for item in nested]
        container = {"of": int(fields["element_type"][row]), "items": items}
        if kind == Type.MAP:
            pairs = zip(items[::2], items[1::2], strict=True)
            container["items"] = [list(pair) for pair in pairs]
            if fields["key_type"][row]:
                container["key"] = int(fields["key_type"][row])
        return container

    return {
        parent: struct(rows) for (parent, enclosing), rows in list(rows_in.items()) if enclosing < 0
    }


def scan_frames_and_messages(data: bytes):
    """The frames and messages of data that ends at the end of a frame."""
    frames = thrift.scan(data)
    check_whole_frames(frames, data)
    assert frames["start"].tolist() == [0, *frames["size"].cumsum()[:-1].tolist()]
    return frames, thrift.messages(thrift.plain(frames))


def list_infos(frames) -> list[list[tuple[int, str, str]]]:
    """(kind, key, value) of each frame's infos, in the order of the bytes."""
    infos = [[] for _ in range(len(frames))]
    for row in thrift.infos(frames):  # a bad info raises
        infos[row.parent].append((row.kind, str(row.key, "utf-8"), str(row.value, "utf-8")))
    return infos


def list_messages(table) -> list[tuple]:
    """(method, service, type, seqid, fields) of each message."""
    assert not table.bad.any()
    fields = thrift.fields(table)
    assert not fields.bad.any()
    fields_of = list_trees(fields)
    return [
        (
            str(row.method, "utf-8"),
            row.service and str(row.service, "utf-8"),
            row.kind,
            row.seqid,
            fields_of.get(number, []),
        )
        for number, row in enumerate(table)
    ]
