"""Recorded connections between nats-py or a raw client and nats-server. Every byte is in a message.

They are in tests/corpus/nats (see make_nats.py), and are also recorded anew. The messages are those
that the client published, and those that its own parser read.
"""

import asyncio
import json
from pathlib import Path

import pytest

import wirescan
from tests.support.places import decode_text
from tests.support.tables import scan_whole_frames
from wirescan import nats
from wirescan.nats import Kind

from .json_lines import read_json_lines
from .make_nats import HEADERS, RAW_OPERATIONS, RECORDED, REFUSALS, converse, record
from .nats import NatsServer, close_cleanly, connect, wait_until
from .proxy import Proxy

PUBLISHED = (Kind.PUB, Kind.HPUB)
DELIVERED = (Kind.MSG, Kind.HMSG)
BYTES_COLUMNS = ("subject", "sid", "reply", "queue", "headers")
NATS_PY = ("nats-py", "nats-py-verbose")


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def streams(request, tmp_path_factory) -> Path:
    """A directory with every case: the committed one, and one that the clients fill now."""
    if request.param == "recorded":
        return RECORDED
    directory = tmp_path_factory.mktemp("nats")
    record(directory)
    return directory


def make_dicts(messages, names=("subject", "reply")) -> list[dict]:
    """Rows in the form of make_nats.py's files."""

    def digits(view) -> str | None:
        return None if view is None else view.hex()

    return [
        {name: decode_text(messages.bytes(i, name)) for name in names}
        | {name: digits(messages.bytes(i, name)) for name in ("headers", "payload")}
        for i in range(len(messages))
    ]


def select(messages, kinds):
    return messages.where([kind in kinds for kind in messages["kind"].tolist()])


def list_operations(messages) -> list[str]:
    """The names of the operations without PING and PONG.

    The server sends those at any time to see whether the client still answers.
    """
    return [
        Kind(kind).name for kind in messages["kind"].tolist() if kind not in (Kind.PING, Kind.PONG)
    ]


def list_headers(messages) -> list[list[tuple[str, str]]]:
    table = nats.headers(messages)
    lists = [[] for _ in range(len(messages))]
    for row, parent in zip(table, table["parent"].tolist(), strict=True):
        lists[parent].append((bytes(row.key).decode(), bytes(row.value).decode()))
    assert [len(pairs) for pairs in lists] == messages["header_count"].tolist()
    return lists


def test_every_case_has_streams(streams):
    expected = {*NATS_PY, "raw", *(f"refused-{name}" for name in REFUSALS)}
    assert {path.name.split(".")[0] for path in streams.iterdir()} == expected


@pytest.mark.parametrize("case", NATS_PY)
def test_published_messages_of_nats_py(streams, case):
    messages = scan_whole_frames((streams / f"{case}.client.bin").read_bytes(), "nats.messages")
    assert list_operations(messages)[0] == "CONNECT"
    assert set(list_operations(messages)) == {"CONNECT", "PUB", "HPUB", "SUB", "UNSUB"}
    rows = select(messages, PUBLISHED)
    published = read_json_lines(streams / f"{case}.published.jsonl")
    assert [dict(row, headers=None) for row in make_dicts(rows)] == [
        dict(message, headers=None) for message in published
    ]
    expected_headers = [list((message["headers"] or {}).items()) for message in published]
    assert list_headers(rows) == expected_headers

    subscriptions = [
        (bytes(row.subject), row.queue and bytes(row.queue))
        for row in select(messages, (Kind.SUB,))
    ]
    assert subscriptions[:4] == [
        (b"orders.*", None),
        (b"work", b"pool"),
        (b"limited", None),
        (b"questions", None),
    ]
    assert select(messages, (Kind.UNSUB,))["count"].tolist()[0] == 2


@pytest.mark.parametrize("case", NATS_PY)
def test_received_messages_of_nats_py(streams, case):
    messages = scan_whole_frames((streams / f"{case}.server.bin").read_bytes(), "nats.messages")
    others = {"INFO", "OK"} if case == "nats-py-verbose" else {"INFO"}
    assert set(list_operations(messages)) == {"MSG", "HMSG", *others}
    assert list_operations(messages).count("INFO") == 2
    rows = select(messages, DELIVERED)
    assert make_dicts(rows, ("subject", "sid", "reply")) == read_json_lines(
        streams / f"{case}.given.jsonl"
    )
    assert [status for status in rows["status"].tolist() if status] == [503]
    assert [dict(pairs) for pairs in list_headers(rows) if pairs] == [
        *(headers for headers in HEADERS for _ in range(2)),
        {"Nats-Subject": "nobody"},
    ]
    if case == "nats-py-verbose":
        # Each operation but PING and PONG has a +OK.
        client_messages = scan_whole_frames(
            (streams / f"{case}.client.bin").read_bytes(), "nats.messages"
        )
        assert list_operations(messages).count("OK") == len(list_operations(client_messages))


@pytest.mark.parametrize("case", NATS_PY)
def test_options_of_client_and_server(streams, case):
    client = scan_whole_frames((streams / f"{case}.client.bin").read_bytes(), "nats.messages")
    server = scan_whole_frames((streams / f"{case}.server.bin").read_bytes(), "nats.messages")
    (connect,) = filter(None, nats.options(client))
    assert connect["lang"] == "python3"
    assert connect["verbose"] is (case == "nats-py-verbose")
    first, second = filter(None, nats.options(server))
    assert first["headers"]
    assert first["max_payload"] == 1 << 20
    assert first.items() <= second.items()
    assert second["remote_account"] == "$G"


def test_operations_of_the_raw_client(streams):
    """The client uses lower case, tabs, bare line feeds, zeros before a size, and a text as sid."""
    messages = scan_whole_frames((streams / "raw.client.bin").read_bytes(), "nats.messages")
    rows = select(messages, [kind for kind in Kind if kind != Kind.PING])
    expected = [("CONNECT", {}, None)]
    expected += [(sent.kind, sent.columns, sent.payload) for sent in RAW_OPERATIONS]
    assert [Kind(kind).name for kind in rows["kind"].tolist()] == [kind for kind, _, _ in expected]
    for i, (kind, columns, payload) in enumerate(expected):
        assert rows.bytes(i, "payload") == payload, kind
        for name in BYTES_COLUMNS:
            value = columns.get(name)
            if isinstance(value, str):
                value = value.encode()
            assert rows.bytes(i, name) == value, (kind, name)
        for name in ("count", "status", "header_count"):
            assert rows[name][i] == columns.get(name, 0), (kind, name)


def test_messages_to_the_raw_client(streams):
    messages = scan_whole_frames((streams / "raw.server.bin").read_bytes(), "nats.messages")
    rows = select(messages, DELIVERED)
    subscriptions = {"limited": ["9"], "nobody.hears": []}
    expected = [
        (
            sent.columns["subject"],
            sid,
            sent.columns.get("reply"),
            sent.columns.get("headers"),
            sent.payload,
        )
        for sent in RAW_OPERATIONS
        if sent.payload is not None
        for sid in subscriptions.get(sent.columns["subject"], ["abc3", "7"])
    ]
    del expected[2]  # the third message on "limited", whose subscription is for two
    assert [
        (
            *(decode_text(rows.bytes(i, name)) for name in ("subject", "sid", "reply")),
            rows.bytes(i, "headers"),
            rows.bytes(i, "payload"),
        )
        for i in range(len(rows))
    ] == expected
    assert [status for status in rows["status"].tolist() if status] == [409, 409]
    assert [("Name", "a"), ("name", "b"), ("Name", "c"), ("Empty", "")] in list_headers(rows)
    assert list_operations(messages).count("INFO") == 2


@pytest.mark.parametrize("name", REFUSALS)
def test_the_server_refuses_bad_bytes(streams, name):
    """The server refuses the client's bytes with -ERR.

    The client's complete messages are read.
    """
    case = REFUSALS[name]
    server = scan_whole_frames(
        (streams / f"refused-{name}.server.bin").read_bytes(), "nats.messages"
    )
    (refusal,) = select(server, (Kind.ERR,))
    assert bytes(refusal.payload).decode() == f"'{case.error}'"
    assert list_operations(server) == ["INFO", *["OK"] * (2 if name == "permission" else 0), "ERR"]

    sent = (streams / f"refused-{name}.client.bin").read_bytes()
    client = wirescan.scan(sent, "nats.messages", errors="mark")
    if name == "unknown":
        assert client.bad.tolist() == [True]
        assert client["fault"].tolist() == [wirescan.Fault.NOT_A_FRAME]
    elif name in ("payload", "line"):
        # The message is incomplete.
        assert not len(client)
        assert bytes(client.tail) == sent
    else:
        assert not client.bad.any()
        assert client["size"].sum() == len(sent)
    if name == "login":
        assert client[0].payload is None
        assert "pass" not in nats.options(client)[0]
        assert nats.options(client, credentials=True)[0]["pass"] == "guessed"
        (row,) = nats.scan(sent, credentials=True)
        assert json.loads(bytes(row.payload)) == nats.options(client, credentials=True)[0]


@pytest.mark.peers
@pytest.mark.parametrize("size", [16, 5000])
def test_many_messages_of_nats_py(size):
    """Up to 10,000 messages, sent and received, some of them with headers."""
    count = 10_000 if size < 1000 else 1000

    async def run(address: str):
        client = await connect(address)
        subscription = await client.subscribe("many.>")
        subscription._pending_bytes_limit = subscription._pending_queue._maxsize = 0
        for number in range(count):
            payload = (b"%d\r\n" % number) * (size // 4)
            await client.publish(
                f"many.{number % 7}",
                payload,
                headers={"Number": str(number)} if number % 3 else None,
            )
        await wait_until(lambda: len(client.received) == count)
        await close_cleanly(client)
        return client

    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        client = asyncio.run(run(proxy.address))
        (connection,) = proxy.take()
    sent = select(scan_whole_frames(bytes(connection.requests), "nats.messages"), PUBLISHED)
    received = select(scan_whole_frames(bytes(connection.responses), "nats.messages"), DELIVERED)
    assert [dict(row, headers=None) for row in make_dicts(sent)] == [
        dict(message, headers=None) for message in client.published
    ]
    assert make_dicts(received, ("subject", "sid", "reply")) == client.received
    headers = [list((message["headers"] or {}).items()) for message in client.published]
    assert list_headers(sent) == headers
    assert list_headers(received) == headers


@pytest.mark.peers
def test_a_live_stream_in_pieces():
    """The server's bytes give the same messages when they come in small pieces."""
    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        client = asyncio.run(converse(proxy.address))
        (connection,) = proxy.take()
    data = bytes(connection.responses)
    expected = scan_whole_frames(data, "nats.messages")
    stream = wirescan.stream("nats.messages")
    tables = [stream.feed(data[start : start + 777]) for start in range(0, len(data), 777)]
    tables.append(stream.close())
    names = BYTES_COLUMNS[:4]
    rows = [row for table in tables for row in make_dicts(table, names)]
    assert rows == make_dicts(expected, names)
    assert make_dicts(select(expected, DELIVERED), ("subject", "sid", "reply")) == client.received
