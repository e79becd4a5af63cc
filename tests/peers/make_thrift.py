"""Make tests/corpus/thrift: `python -m tests.peers.make_thrift` in the repository's root.

What a client and a server of Apache Thrift's Python library, or of thriftpy2, say to each other on a connection, from
its first byte to its last (of HTTP: on all connections, one behind the other):

    <scene>.requests.theader    the client's side
    <scene>.replies.theader     the server's
    said.jsonl                  what they say, a message a line, of all scenes: see thrift.py. They are the values that
                                were given to be written; what the client's own library has read has to be the same
"""
import argparse
import json
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from . import thrift, thriftpy2
from .proxy import Proxy
from .thrift_types import EVERYTHING

RECORDED = Path(__file__).parents[1] / "corpus" / "thrift"
CALLS = (
    ("add", {"a": 1, "b": -2}), ("echo", {"what": EVERYTHING}), ("nothing", {}), ("echo", {"what": {}}),
    ("tell", {"text": "to nobody", "data": b"\x80\x01\x00\x01\x0f\xff"}), ("refuse", {"why": "because"}),
    ("missing", {"real": -0.0, "numbers": [1, 1 << 20]}), ("fail", {"number": 1 << 40}), ("add", {"b": 64, "a": -64}),
)
SHORT = CALLS[:1] + CALLS[2:6] + CALLS[8:]
HEADERS = ({}, {b"trace": b"17"}, {b"": b"", b"key": bytes(range(256)), b"zero": b""},
           {b"%d" % number: b"x" * number for number in range(20)}, {b"k" * 130: b"value" * 60})


class Scene(NamedTuple):
    server: Callable[[], thrift.Served]
    client: Callable[[str], thrift.Client | thriftpy2.Client]
    speak: Callable         # what is done with the client


def apache(kind: str, speak: Callable, *, compact: bool = False, strict: bool = True) -> Scene:
    wire = thrift.wire(kind, compact, strict)
    answering = wire if kind == "HTTP" or not strict else thrift.wire("HEADER")
    serve = thrift.HttpServer if kind == "HTTP" else thrift.Server
    return Scene(lambda: serve(answering), lambda address: thrift.Client(address, wire), speak)


def call_all(client) -> None:
    for method, values in CALLS:
        client.call(method, values)


def call_with_headers(client) -> None:
    for number, ((method, values), headers) in enumerate(zip(CALLS, cycle(HEADERS))):
        client.call(method, values, headers=headers, flags=(0, 1, 0xffff)[number % 3],
                    seqid=-(1 << 31) if number == 4 else None)


def call_compressed(client) -> None:
    """Not, once, and twice; and so the replies."""
    for method, values in SHORT:
        client.call(method, values)
    for times in b"once", b"twice":
        client.call("nothing", zlib=1, headers={b"zlib": b"1", b"now": times})
        for method, values in CALLS:
            client.call(method, values)


def call_in_turn(client) -> None:
    """Every kind of frame behind every other."""
    kinds = list(thrift.KINDS.values())
    for number in range(len(kinds) ** 2):
        client.call("add", {"a": number, "b": 1}, kind=kinds[(number + number // len(kinds)) % len(kinds)])


def call_services(client) -> None:
    for client.service in thrift.SERVICES:
        for method, values in SHORT:
            client.call(method, values)


def call_http(client) -> None:
    for method, values in CALLS:
        if method != "tell":
            client.call(method, values)
    client.call("tell", {"text": "last", "data": b""})     # the reply has no length: it ends with the connection


def call_numbered(client) -> None:
    for seqid, (method, values) in enumerate(CALLS):
        if method != "fail":        # its server hangs up
            client.call(method, values, seqid=seqid << 8)


def of_thriftpy2(kind: str, speak: Callable = call_numbered, **options) -> Scene:
    wire = thriftpy2.wire(kind, **options)
    return Scene(lambda: thriftpy2.Server(wire, speak is call_services),
                 lambda address: thriftpy2.Client(address, wire), speak)


MULTIPLEXED = thrift.wire("HEADER")
SCENES = {
    "header-binary": apache("HEADER", call_with_headers),
    "header-compact": apache("HEADER", call_with_headers, compact=True),
    "header-binary-zlib": apache("HEADER", call_compressed),
    "header-compact-zlib": apache("HEADER", call_compressed, compact=True),
    "header-multiplexed": Scene(lambda: thrift.Server(MULTIPLEXED, True),
                                lambda address: thrift.Client(address, MULTIPLEXED), call_services),
    "mixed": apache("HEADER", call_in_turn),
    "framed-binary": apache("FRAMED_BINARY", call_all),
    "framed-compact": apache("FRAMED_COMPACT", call_all),
    "framed-not-strict": apache("FRAMED_BINARY", call_all, strict=False),
    "unframed-binary": apache("UNFRAMED_BINARY", call_all),
    "unframed-compact": apache("UNFRAMED_COMPACT", call_all),
    "unframed-not-strict": apache("UNFRAMED_BINARY", call_all, strict=False),
    "http-binary": apache("HTTP", call_http),
    "http-compact": apache("HTTP", call_http, compact=True),
    "thriftpy2-framed-binary": of_thriftpy2("FRAMED_BINARY"),
    "thriftpy2-framed-compact": of_thriftpy2("FRAMED_COMPACT", cython=False),
    "thriftpy2-framed-not-strict": of_thriftpy2("FRAMED_BINARY", strict=False),
    "thriftpy2-unframed-binary": of_thriftpy2("UNFRAMED_BINARY", cython=False),
    "thriftpy2-unframed-compact": of_thriftpy2("UNFRAMED_COMPACT"),
    "thriftpy2-multiplexed": of_thriftpy2("FRAMED_BINARY", call_services),
}


def record(target: Path) -> None:
    lines = []
    for name, scene in SCENES.items():
        with Proxy() as proxy, scene.server() as server:
            proxy.target = server.address
            with scene.client(proxy.address) as client:
                scene.speak(client)
            connections = proxy.take()
        if client.heard != [{key: reply[key] for key in heard} for reply, heard in zip(
                server.said, client.heard, strict=True)]:
            raise RuntimeError(f"{name}: the client has not heard what the server said")
        for side, kept, said in ("requests", "requests", client.said), ("replies", "responses", server.said):
            (target / f"{name}.{side}.theader").write_bytes(b"".join(getattr(one, kept) for one in connections))
            lines += (json.dumps({"scene": name, "side": side} | message, separators=(",", ":")) + "\n"
                      for message in said)
    (target / "said.jsonl").write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", type=Path, default=RECORDED, help="the directory to fill")
    target = parser.parse_args().target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    record(target)
    for file in sorted(target.iterdir()):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
