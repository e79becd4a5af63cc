"""Make tests/corpus/thrift: run `python -m tests.peers.make_thrift` in the repository's root.

It holds complete connections between clients and servers of Apache Thrift's Python library or of
thriftpy2. An HTTP file holds all connections of its scene, one after the other:

    <scene>.requests.theader    the client's side
    <scene>.replies.theader     the server's side
    said.jsonl                  the messages of all scenes, one per line: see thrift.py. They hold
                                the values that the programs wrote. The client's own library must
                                read the same values
"""

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import CORPUS

from . import thrift, thriftpy2
from .proxy import Proxy
from .target import clear_target
from .thrift_types import EVERYTHING

RECORDED = CORPUS / "thrift"
CALLS = (
    ("add", {"a": 1, "b": -2}),
    ("echo", {"what": EVERYTHING}),
    ("nothing", {}),
    ("echo", {"what": {}}),
    ("tell", {"text": "to nobody", "data": b"\x80\x01\x00\x01\x0f\xff"}),
    ("refuse", {"why": "because"}),
    ("missing", {"real": -0.0, "numbers": [1, 1 << 20]}),
    ("fail", {"number": 1 << 40}),
    ("add", {"b": 64, "a": -64}),
)
SHORT = CALLS[:1] + CALLS[2:6] + CALLS[8:]
HEADERS = (
    {},
    {b"trace": b"17"},
    {b"": b"", b"key": bytes(range(256)), b"zero": b""},
    {b"%d" % number: b"x" * number for number in range(20)},
    {b"k" * 130: b"value" * 60},
)


class Scene(NamedTuple):
    server: Callable[[], thrift.BackgroundServer]
    client: Callable[[str], thrift.Client | thriftpy2.Client]
    speak: Callable[[thrift.Client | thriftpy2.Client], None]  # makes the calls


def make_apache_scene(
    kind: str, speak: Callable, *, compact: bool = False, strict: bool = True
) -> Scene:
    wire = thrift.make_wire(kind, compact=compact, strict=strict)
    server_wire = wire if kind == "HTTP" or not strict else thrift.make_wire("HEADER")
    server = thrift.HttpServer if kind == "HTTP" else thrift.Server
    return Scene(lambda: server(server_wire), lambda address: thrift.Client(address, wire), speak)


def call_all(client) -> None:
    for method, values in CALLS:
        client.call(method, values)


def call_with_headers(client) -> None:
    for number, ((method, values), headers) in enumerate(zip(CALLS, cycle(HEADERS))):
        client.call(
            method,
            values,
            headers=headers,
            flags=(0, 1, 0xFFFF)[number % 3],
            seqid=-(1 << 31) if number == 4 else None,
        )


def call_compressed(client) -> None:
    """Make uncompressed calls, then calls compressed once, then calls compressed twice.

    The server compresses its replies the same way.
    """
    for method, values in SHORT:
        client.call(method, values)
    for times in b"once", b"twice":
        client.call("nothing", zlib=1, headers={b"zlib": b"1", b"now": times})
        for method, values in CALLS:
            client.call(method, values)


def call_in_turn(client) -> None:
    """Send every kind of frame after every other kind."""
    kinds = list(thrift.KINDS.values())
    for number in range(len(kinds) ** 2):
        kind = kinds[(number + number // len(kinds)) % len(kinds)]
        client.call("add", {"a": number, "b": 1}, kind=kind)


def call_services(client) -> None:
    for client.service in thrift.SERVICES:
        for method, values in SHORT:
            client.call(method, values)


def call_http(client) -> None:
    for method, values in CALLS:
        if method != "tell":
            client.call(method, values)
    # The reply has no length: it ends with the connection.
    client.call("tell", {"text": "last", "data": b""})


def call_numbered(client) -> None:
    for seqid, (method, values) in enumerate(CALLS):
        if method != "fail":  # thriftpy2's server would hang up
            client.call(method, values, seqid=seqid << 8)


def make_thriftpy2_scene(kind: str, speak: Callable = call_numbered, **options) -> Scene:
    wire = thriftpy2.make_wire(kind, **options)
    return Scene(
        lambda: thriftpy2.Server(wire, multiplexed=speak is call_services),
        lambda address: thriftpy2.Client(address, wire),
        speak,
    )


MULTIPLEXED = thrift.make_wire("HEADER")
SCENES = {
    "header-binary": make_apache_scene("HEADER", call_with_headers),
    "header-compact": make_apache_scene("HEADER", call_with_headers, compact=True),
    "header-binary-zlib": make_apache_scene("HEADER", call_compressed),
    "header-compact-zlib": make_apache_scene("HEADER", call_compressed, compact=True),
    "header-multiplexed": Scene(
        lambda: thrift.Server(MULTIPLEXED, multiplexed=True),
        lambda address: thrift.Client(address, MULTIPLEXED),
        call_services,
    ),
    "mixed": make_apache_scene("HEADER", call_in_turn),
    "framed-binary": make_apache_scene("FRAMED_BINARY", call_all),
    "framed-compact": make_apache_scene("FRAMED_COMPACT", call_all),
    "framed-not-strict": make_apache_scene("FRAMED_BINARY", call_all, strict=False),
    "unframed-binary": make_apache_scene("UNFRAMED_BINARY", call_all),
    "unframed-compact": make_apache_scene("UNFRAMED_COMPACT", call_all),
    "unframed-not-strict": make_apache_scene("UNFRAMED_BINARY", call_all, strict=False),
    "http-binary": make_apache_scene("HTTP", call_http),
    "http-compact": make_apache_scene("HTTP", call_http, compact=True),
    "thriftpy2-framed-binary": make_thriftpy2_scene("FRAMED_BINARY"),
    "thriftpy2-framed-compact": make_thriftpy2_scene("FRAMED_COMPACT", cython=False),
    "thriftpy2-framed-not-strict": make_thriftpy2_scene("FRAMED_BINARY", strict=False),
    "thriftpy2-unframed-binary": make_thriftpy2_scene("UNFRAMED_BINARY", cython=False),
    "thriftpy2-unframed-compact": make_thriftpy2_scene("UNFRAMED_COMPACT"),
    "thriftpy2-multiplexed": make_thriftpy2_scene("FRAMED_BINARY", call_services),
}


def sort_sets(fields: list) -> list:
    """Return fields as `list_fields` gives them, with the elements of sets in one order.

    A client builds a new set, whose order depends on the process.
    """
    out = []
    for number, kind, value in fields:
        if kind == "STRUCT":
            value = sort_sets(value)
        elif kind == "SET":
            value = [value[0], sorted(value[1], key=repr)]
        out.append([number, kind, value])
    return out


def are_equal(received: dict, sent: dict) -> bool:
    """Return whether a client read what its server sent, as far as the client reports it."""
    sent = {key: sent[key] for key in received}
    ordered = [message | {"fields": sort_sets(message["fields"])} for message in (received, sent)]
    return ordered[0] == ordered[1]


def record(target: Path) -> None:
    lines = []
    for name, scene in SCENES.items():
        with Proxy() as proxy, scene.server() as server:
            proxy.target = server.address
            with scene.client(proxy.address) as client:
                scene.speak(client)
            connections = proxy.take()
        for reply, received in zip(server.sent, client.received, strict=True):
            if not are_equal(received, reply):
                raise RuntimeError(f"{name}: the client read {received}, the server sent {reply}")
        requests = b"".join(connection.requests for connection in connections)
        replies = b"".join(connection.responses for connection in connections)
        for side, data, messages in (
            ("requests", requests, client.sent),
            ("replies", replies, server.sent),
        ):
            (target / f"{name}.{side}.theader").write_bytes(data)
            for message in messages:
                row = {"scene": name, "side": side} | message
                lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    (target / "said.jsonl").write_text("".join(lines))


def main() -> None:
    target = clear_target(__doc__, RECORDED)
    target.mkdir(parents=True)
    record(target)
    for file in sorted(target.iterdir()):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
