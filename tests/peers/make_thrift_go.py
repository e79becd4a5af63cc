"""Make tests/corpus/thrift-go: run `python -m tests.peers.make_thrift_go` in the repository's root.

It holds messages that Apache's Go library and fbthrift's write, one file for each of
written_cases(), and connections between a client and a server, two files for each of CONVERSATIONS:

    <case>.theader              the messages of a connection
    <case>.calls.theader        the client's side
    <case>.replies.theader      the server's side
    told.json                   for each file of messages: the program, its options and the name of
                                the `messages` that it wrote. For each conversation: client, server,
                                options, and the answers that the client read to the `calls`
"""

import argparse
import json
from pathlib import Path

from tests.support import paths
from wirescan.thrift import MessageType, Transform, Type

from .proxy import Proxy
from .thrift_go import ADD, Serve, make_call, speak, write

CORPUS = paths.CORPUS / "thrift-go"
SOURCE = {
    "apache": "apache/thrift v0.25.0",
    "fbthrift": "facebook/fbthrift v0.31.1-0.20211129061412-801ed7f9f295",
}

POINT = [[1, Type.DOUBLE, -0.5], [2, Type.DOUBLE, 1e300]]
EVERYTHING = [
    [1, Type.BOOL, True],
    [2, Type.BYTE, -128],
    [3, Type.I16, -30000],
    [4, Type.I32, -1 << 31],
    [5, Type.I64, -1 << 63],
    [6, Type.DOUBLE, -1234.5],
    [7, Type.STRING, "Grüße, ✓".encode().hex()],
    [8, Type.STRING, bytes(range(256)).hex()],
    [9, Type.STRUCT, POINT],
    [40, Type.STRUCT, [[16, Type.BOOL, True], [2, Type.BOOL, False], [300, Type.STRUCT, []]]],
    [41, Type.LIST, {"of": Type.I32, "items": list(range(-8, 8))}],
    [42, Type.SET, {"of": Type.STRING, "items": ["6f6e65", "", "74776f"]}],
    [
        43,
        Type.MAP,
        {
            "key": Type.STRING,
            "of": Type.LIST,
            "items": [
                ["61", {"of": Type.STRUCT, "items": [POINT, []]}],
                ["62", {"of": Type.STRUCT, "items": []}],
            ],
        },
    ],
    [44, Type.LIST, {"of": Type.BOOL, "items": [True, False, True]}],
    [45, Type.MAP, {"key": Type.I16, "of": Type.BOOL, "items": [[1, True], [-1, False]]}],
    [46, Type.LIST, {"of": Type.DOUBLE, "items": [0.0, 5e-324, -1.5]}],
    [-7, Type.I64, (1 << 63) - 1],
    [32767, Type.STRING, "78" * 300],
]
OWN = {
    "apache": [[50, Type.UUID, "00112233445566778899aabbccddeeff"]],
    "fbthrift": [[50, Type.FLOAT, -0.375]],
}
HEADERS = {"trace": "17", "tenant": "Grüße", "empty": "", "long": "x" * 300}


def make_messages(program: str) -> list[dict]:
    """One message of each type, and rare values."""
    failed = [[1, Type.STRING, b"no such method".hex()], [2, Type.I32, 1]]
    return [
        make_call("add", ADD, headers=HEADERS),
        make_call("add", [[0, Type.I32, 13]], type=MessageType.REPLY, flags=1),
        make_call(
            "echo", EVERYTHING + OWN[program], seqid=(1 << 31) - 1, headers={"a": "b"}, flags=0xFFFF
        ),
        make_call("nothing", failed, type=MessageType.EXCEPTION, seqid=2),
        make_call(
            "notify", [], type=MessageType.ONEWAY, seqid=-2, headers={"two": "2", "of": "them"}
        ),
        make_call("größer", [[1, Type.STRING, ""]], seqid=300),
    ]


def make_persistent() -> list[dict]:
    """Messages with persistent headers, which only fbthrift writes.

    fbthrift sends persistent headers in all later frames, and the identity while it is set.
    """
    return [
        make_call("add", ADD, headers={"trace": "17"}, persistent={"client": "one", "trace": "0"}),
        make_call("add", ADD, seqid=2, headers={"trace": "18"}),
        make_call("add", ADD, seqid=3, persistent={"client": "two"}, identity="me"),
    ]


def list_cases() -> dict[str, dict]:
    """The program, messages and options of each file of messages, by the name of the case."""
    zlib, zstd = Transform.ZLIB, Transform.ZSTD
    transforms = {
        "apache": {"zlib": [zlib], "zlib-twice": [zlib, zlib], "zlib-none": [zlib, 0]},
        "fbthrift": {
            "zlib": [zlib],
            "zstd": [zstd],
            "zlib-zstd": [zlib, zstd],
            "zstd-zlib": [zstd, zlib],
        },
    }
    cases = {}
    for program in SOURCE:
        for compact in False, True:
            for transport in "header", "framed", "unframed":
                protocol = "compact" if compact else "binary"
                cases[f"{program}-{protocol}-{transport}"] = {
                    "program": program,
                    "messages": program,
                    "options": {"compact": compact, "transport": transport},
                }
        for name, numbers in transforms[program].items():
            cases[f"{program}-{name}"] = {
                "program": program,
                "messages": program,
                "options": {"compact": True, "transforms": numbers},
            }
    cases["apache-multiplexed"] = {
        "program": "apache",
        "messages": "apache",
        "options": {"service": "Calculator"},
    }
    cases["fbthrift-persistent"] = {
        "program": "fbthrift",
        "messages": "persistent",
        "options": {"compact": True},
    }
    return cases


CALLS = [
    make_call("add", ADD, headers={"trace": "17"}),
    make_call("divide", ADD),
    make_call("notify", [[1, Type.BOOL, True]]),
    make_call("divide", [[1, Type.I32, 1], [2, Type.I32, 0]], headers={"trace": "18"}),
    make_call("fail", []),
    make_call("nothing", []),
    make_call("echo", EVERYTHING),
]
# The results of the calls that have one, with any server.
RESULTS = [
    [[0, Type.I32, 13]],
    [[0, Type.I32, -4]],
    [[1, Type.STRUCT, [[1, Type.STRING, b"division by zero".hex()]]]],
    [[0, Type.STRUCT, EVERYTHING]],
]
# A header of the first call of fbthrift's client.
METADATA = {"client_metadata": '{"agent":"header_transport.go"}'}
CONVERSATIONS = {  # client, server and options
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
MANY = 2000  # the number of messages for each case of BULK
BULK = (  # program, transforms, compact
    ("apache", [], False),
    ("apache", [1], True),
    ("fbthrift", [1], False),
    ("fbthrift", [5], True),
)


def record(directory: Path) -> None:
    """Fill a directory with every case."""
    manifest = {
        "source": SOURCE,
        "messages": {program: make_messages(program) for program in SOURCE},
        "calls": CALLS,
        "written": list_cases(),
        "spoken": {},
    }
    manifest["messages"]["persistent"] = make_persistent()
    for name, case in manifest["written"].items():
        data = write(case["program"], manifest["messages"][case["messages"]], **case["options"])
        (directory / f"{name}.theader").write_bytes(b"".join(data))
    for name, (client, server, options) in CONVERSATIONS.items():
        with Serve(server) as serving, Proxy() as proxy:
            proxy.target = serving.address
            answers = speak(client, proxy.address, CALLS, **options)
            (connection,) = proxy.take()
        (directory / f"{name}.calls.theader").write_bytes(connection.requests)
        (directory / f"{name}.replies.theader").write_bytes(connection.responses)
        manifest["spoken"][name] = {
            "client": client,
            "server": server,
            "options": options,
            "answers": answers,
        }
    (directory / "told.json").write_text(json.dumps(manifest, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", default=CORPUS)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    record(directory)
