"""Make tests/corpus/thrift-go: `python -m tests.peers.make_thrift_go` in the repository's root.

What Apache's Go library and fbthrift's write, a file for each case of written(), and what a client and a server say to
each other, two files for each of SPOKEN:

    <case>.theader              the messages of a connection
    <case>.calls.theader        the client's side
    <case>.replies.theader      the server's
    told.json                   of each case the program, its options and the name of the `messages` that it was told to
                                write; or client, server and options, and what the client was answered to the `calls`
"""
import argparse
import json
from pathlib import Path

from wirescan.thrift import MessageType, Transform, Type

from .proxy import Proxy
from .thrift_go import ADD, Serve, call, speak, write

CORPUS = Path(__file__).parents[1] / "corpus" / "thrift-go"
SOURCE = {"apache": "apache/thrift v0.25.0", "fbthrift": "facebook/fbthrift v0.31.1-0.20211129061412-801ed7f9f295"}

POINT = [[1, Type.DOUBLE, -0.5], [2, Type.DOUBLE, 1e300]]
EVERYTHING = [
    [1, Type.BOOL, True], [2, Type.BYTE, -128], [3, Type.I16, -30000], [4, Type.I32, -1 << 31],
    [5, Type.I64, -1 << 63], [6, Type.DOUBLE, -1234.5], [7, Type.STRING, "Grüße, ✓".encode().hex()],
    [8, Type.STRING, bytes(range(256)).hex()], [9, Type.STRUCT, POINT],
    [40, Type.STRUCT, [[16, Type.BOOL, True], [2, Type.BOOL, False], [300, Type.STRUCT, []]]],
    [41, Type.LIST, {"of": Type.I32, "items": list(range(-8, 8))}],
    [42, Type.SET, {"of": Type.STRING, "items": ["6f6e65", "", "74776f"]}],
    [43, Type.MAP, {"key": Type.STRING, "of": Type.LIST, "items": [
        ["61", {"of": Type.STRUCT, "items": [POINT, []]}], ["62", {"of": Type.STRUCT, "items": []}]]}],
    [44, Type.LIST, {"of": Type.BOOL, "items": [True, False, True]}],
    [45, Type.MAP, {"key": Type.I16, "of": Type.BOOL, "items": [[1, True], [-1, False]]}],
    [46, Type.LIST, {"of": Type.DOUBLE, "items": [0.0, 5e-324, -1.5]}],
    [-7, Type.I64, (1 << 63) - 1], [32767, Type.STRING, "78" * 300],
]
OWN = {"apache": [[50, Type.UUID, "00112233445566778899aabbccddeeff"]], "fbthrift": [[50, Type.FLOAT, -0.375]]}
HEADERS = {"trace": "17", "tenant": "Grüße", "empty": "", "long": "x" * 300}


def messages(program: str) -> list[dict]:
    """One of each type, and what is seldom."""
    failed = [[1, Type.STRING, b"no such method".hex()], [2, Type.I32, 1]]
    return [
        call("add", ADD, headers=HEADERS),
        call("add", [[0, Type.I32, 13]], type=MessageType.REPLY, flags=1),
        call("echo", EVERYTHING + OWN[program], seqid=(1 << 31) - 1, headers={"a": "b"}, flags=0xFFFF),
        call("nothing", failed, type=MessageType.EXCEPTION, seqid=2),
        call("notify", [], type=MessageType.ONEWAY, seqid=-2, headers={"two": "2", "of": "them"}),
        call("größer", [[1, Type.STRING, ""]], seqid=300),
    ]


def persistent() -> list[dict]:
    """fbthrift's persistent headers are in all frames of the connection, and the identity as long as it is set."""
    return [
        call("add", ADD, headers={"trace": "17"}, persistent={"client": "one", "trace": "0"}),
        call("add", ADD, seqid=2, headers={"trace": "18"}),
        call("add", ADD, seqid=3, persistent={"client": "two"}, identity="me"),
    ]


def written() -> dict[str, dict]:
    """Who writes what, and how, by the name of the case."""
    zlib, zstd = Transform.ZLIB, Transform.ZSTD
    transforms = {"apache": {"zlib": [zlib], "zlib-twice": [zlib, zlib], "zlib-none": [zlib, 0]},
                  "fbthrift": {"zlib": [zlib], "zstd": [zstd], "zlib-zstd": [zlib, zstd], "zstd-zlib": [zstd, zlib]}}
    cases = {}
    for program in SOURCE:
        for compact in False, True:
            for transport in "header", "framed", "unframed":
                cases[f"{program}-{'compact' if compact else 'binary'}-{transport}"] = {
                    "program": program, "messages": program, "options": {"compact": compact, "transport": transport}}
        for name, numbers in transforms[program].items():
            cases[f"{program}-{name}"] = {
                "program": program, "messages": program, "options": {"compact": True, "transforms": numbers}}
    cases["apache-multiplexed"] = {
        "program": "apache", "messages": "apache", "options": {"service": "Calculator"}}
    cases["fbthrift-persistent"] = {
        "program": "fbthrift", "messages": "persistent", "options": {"compact": True}}
    return cases


CALLS = [call("add", ADD, headers={"trace": "17"}), call("divide", ADD), call("notify", [[1, Type.BOOL, True]]),
         call("divide", [[1, Type.I32, 1], [2, Type.I32, 0]], headers={"trace": "18"}), call("fail", []),
         call("nothing", []), call("echo", EVERYTHING)]
RESULTS = [  # of those of CALLS that have one, whoever serves
    [[0, Type.I32, 13]], [[0, Type.I32, -4]], [[1, Type.STRUCT, [[1, Type.STRING, b"division by zero".hex()]]]],
    [[0, Type.STRUCT, EVERYTHING]]]
METADATA = {"client_metadata": '{"agent":"header_transport.go"}'}  # of the first call that fbthrift's client sends
SPOKEN = {  # client, server and options
    "apache-apache": ("apache", "apache", {}),
    "apache-apache-zlib": ("apache", "apache", {"compact": True, "transforms": [1]}),
    "apache-apache-framed": ("apache", "apache", {"compact": True, "transport": "framed"}),
    "apache-apache-unframed": ("apache", "apache", {"transport": "unframed"}),
    "apache-apache-multiplexed": ("apache", "apache", {"compact": True, "service": "Calculator"}),
    "apache-fbthrift": ("apache", "fbthrift", {"compact": True}),
    "fbthrift-apache": ("fbthrift", "apache", {}),
    "fbthrift-fbthrift": ("fbthrift", "fbthrift", {"compact": True}),
    "fbthrift-fbthrift-zstd": ("fbthrift", "fbthrift", {"compact": True, "transforms": [5]}),
    "fbthrift-fbthrift-zlib": ("fbthrift", "fbthrift", {"transforms": [1]}),
    "fbthrift-fbthrift-framed": ("fbthrift", "fbthrift", {"compact": True, "transport": "framed"}),
}
MANY = 2000     # messages of each of BULK: program, transforms, compact
BULK = ("apache", [], False), ("apache", [1], True), ("fbthrift", [1], False), ("fbthrift", [5], True)


def record(directory: Path) -> None:
    """Fill a directory with every case."""
    told = {"source": SOURCE, "messages": {program: messages(program) for program in SOURCE}, "calls": CALLS,
            "written": written(), "spoken": {}}
    told["messages"]["persistent"] = persistent()
    for name, case in told["written"].items():
        data = write(case["program"], told["messages"][case["messages"]], **case["options"])
        (directory / f"{name}.theader").write_bytes(b"".join(data))
    for name, (client, server, options) in SPOKEN.items():
        with Serve(server) as serving, Proxy() as proxy:
            proxy.target = serving.address
            answers = speak(client, proxy.address, CALLS, **options)
            connection, = proxy.take()
        (directory / f"{name}.calls.theader").write_bytes(connection.requests)
        (directory / f"{name}.replies.theader").write_bytes(connection.responses)
        told["spoken"][name] = {"client": client, "server": server, "options": options, "answers": answers}
    (directory / "told.json").write_text(json.dumps(told, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", default=CORPUS)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    record(directory)
