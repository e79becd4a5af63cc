"""What nats-py, a client of one's own words and nats-server say, in tests/corpus/nats (see make_nats.py) and anew:
every byte is accounted for, and the messages are those that the client was told to send, and its own parser has read.
"""
import asyncio
import json
from pathlib import Path

import pytest

import wirescan
from wirescan import nats
from wirescan.nats import Kind

from .make_nats import HEADERS, RECORDED, REFUSED, SPOKEN, converse, record
from .nats import NatsServer, connected, part, until
from .proxy import Proxy

PUBLISHED, DELIVERED = (Kind.PUB, Kind.HPUB), (Kind.MSG, Kind.HMSG)
PLACES = ("subject", "sid", "reply", "queue", "headers")
NATS_PY = ("nats-py", "nats-py-verbose")


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def streams(request, tmp_path_factory) -> Path:
    """A directory with every case: the one that is kept, and one that the clients have just filled."""
    if request.param == "recorded":
        return RECORDED
    directory = tmp_path_factory.mktemp("nats")
    record(directory)
    return directory


def whole(data: bytes):
    """The messages of a stream that ends where one does."""
    messages = wirescan.scan(data, "nats.messages")
    assert messages["size"].sum() == len(data) and not len(messages.tail) and not messages.bad.any()
    return messages


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def text(view) -> str | None:
    return None if view is None else bytes(view).decode()


def seen(messages, names=("subject", "reply")) -> list[dict]:
    """Rows as make_nats.py keeps them."""
    def digits(view) -> str | None:
        return None if view is None else view.hex()

    return [{name: text(messages.bytes(i, name)) for name in names}
            | {name: digits(messages.bytes(i, name)) for name in ("headers", "payload")} for i in range(len(messages))]


def of(messages, kinds):
    return messages.where([kind in kinds for kind in messages["kind"].tolist()])


def operations(messages) -> list[str]:
    """The operations, without those that come when the server wants to know whether the client is there."""
    return [Kind(kind).name for kind in messages["kind"].tolist() if kind not in (Kind.PING, Kind.PONG)]


def header_lists(messages) -> list[list[tuple[str, str]]]:
    table = nats.headers(messages)
    found = [[] for _ in range(len(messages))]
    for row, parent in zip(table, table["parent"].tolist(), strict=True):
        found[parent].append((bytes(row.key).decode(), bytes(row.value).decode()))
    assert [len(one) for one in found] == messages["header_count"].tolist()
    return found


def test_cases_are_those_recorded(streams):
    expected = {*NATS_PY, "raw", *(f"refused-{name}" for name in REFUSED)}
    assert {path.name.split(".")[0] for path in streams.iterdir()} == expected


@pytest.mark.parametrize("case", NATS_PY)
def test_published_by_nats_py(streams, case):
    messages = whole((streams / f"{case}.client.bin").read_bytes())
    assert operations(messages)[0] == "CONNECT"
    assert set(operations(messages)) == {"CONNECT", "PUB", "HPUB", "SUB", "UNSUB"}
    rows, told = of(messages, PUBLISHED), lines(streams / f"{case}.published.jsonl")
    assert [dict(row, headers=None) for row in seen(rows)] == [dict(message, headers=None) for message in told]
    assert header_lists(rows) == [list((message["headers"] or {}).items()) for message in told]

    subscriptions = [(bytes(row.subject), row.queue and bytes(row.queue)) for row in of(messages, (Kind.SUB,))]
    assert subscriptions[:4] == [(b"orders.*", None), (b"work", b"pool"), (b"limited", None), (b"questions", None)]
    assert of(messages, (Kind.UNSUB,))["count"].tolist()[0] == 2


@pytest.mark.parametrize("case", NATS_PY)
def test_given_to_nats_py(streams, case):
    messages = whole((streams / f"{case}.server.bin").read_bytes())
    others = {"INFO", "OK"} if case == "nats-py-verbose" else {"INFO"}
    assert set(operations(messages)) == {"MSG", "HMSG", *others} and operations(messages).count("INFO") == 2
    rows = of(messages, DELIVERED)
    assert seen(rows, ("subject", "sid", "reply")) == lines(streams / f"{case}.given.jsonl")
    assert [status for status in rows["status"].tolist() if status] == [503]
    assert [dict(pairs) for pairs in header_lists(rows) if pairs] == [
        *(one for one in HEADERS for _ in range(2)), {"Nats-Subject": "nobody"}]
    if case == "nats-py-verbose":  # each operation but PING and PONG has its +OK
        assert operations(messages).count("OK") == len(operations(whole((streams / f"{case}.client.bin").read_bytes())))


@pytest.mark.parametrize("case", NATS_PY)
def test_options(streams, case):
    client, server = (whole((streams / f"{case}.{side}.bin").read_bytes()) for side in ("client", "server"))
    connect, = filter(None, nats.options(client))
    assert connect["lang"] == "python3" and connect["verbose"] is (case == "nats-py-verbose")
    first, second = filter(None, nats.options(server))
    assert first["headers"] and first["max_payload"] == 1 << 20
    assert first.items() <= second.items() and second["remote_account"] == "$G"


def test_raw_client(streams):
    """Lower case, tabs, line feeds alone, zeros before a size, a sid that is no number."""
    messages = whole((streams / "raw.client.bin").read_bytes())
    rows = of(messages, [kind for kind in Kind if kind != Kind.PING])
    expected = [("CONNECT", {}, None)] + [(one.kind, one.columns, one.payload) for one in SPOKEN]
    assert [Kind(kind).name for kind in rows["kind"].tolist()] == [kind for kind, _, _ in expected]
    for i, (kind, columns, payload) in enumerate(expected):
        assert rows.bytes(i, "payload") == payload, kind
        for name in PLACES:
            value = columns.get(name)
            assert rows.bytes(i, name) == (value.encode() if isinstance(value, str) else value), (kind, name)
        for name in ("count", "status", "header_count"):
            assert rows[name][i] == columns.get(name, 0), (kind, name)


def test_raw_server(streams):
    messages = whole((streams / "raw.server.bin").read_bytes())
    rows = of(messages, DELIVERED)
    listening = {"limited": ["9"], "nobody.hears": []}
    expected = [(one.columns["subject"], sid, one.columns.get("reply"), one.columns.get("headers"), one.payload)
                for one in SPOKEN if one.payload is not None
                for sid in listening.get(one.columns["subject"], ["abc3", "7"])]
    del expected[2]  # the third on "limited", of which two were wanted
    assert [(*(text(rows.bytes(i, name)) for name in ("subject", "sid", "reply")), rows.bytes(i, "headers"),
             rows.bytes(i, "payload")) for i in range(len(rows))] == expected
    assert [status for status in rows["status"].tolist() if status] == [409, 409]
    found = header_lists(rows)
    assert [("Name", "a"), ("name", "b"), ("Name", "c"), ("Empty", "")] in found
    assert operations(messages).count("INFO") == 2


@pytest.mark.parametrize("name", REFUSED)
def test_refused(streams, name):
    """What the server refuses it says in -ERR; of what it was sent, all that is one is a message."""
    case = REFUSED[name]
    server = whole((streams / f"refused-{name}.server.bin").read_bytes())
    refusal, = of(server, (Kind.ERR,))
    assert bytes(refusal.payload).decode() == f"'{case.refusal}'"
    assert operations(server) == ["INFO", *["OK"] * (2 if name == "permission" else 0), "ERR"]

    sent = (streams / f"refused-{name}.client.bin").read_bytes()
    client = wirescan.scan(sent, "nats.messages", errors="mark")
    if name == "unknown":
        assert client.bad.tolist() == [True] and client["fault"].tolist() == [wirescan.Fault.NOT_A_FRAME]
    elif name in ("payload", "line"):  # begun, and never ended
        assert not len(client) and bytes(client.tail) == sent
    else:
        assert not client.bad.any() and client["size"].sum() == len(sent)
    if name == "login":
        assert client[0].payload is None and "pass" not in nats.options(client)[0]
        assert nats.options(client, credentials=True)[0]["pass"] == "guessed"
        shown, = nats.scan(sent, credentials=True)
        assert json.loads(bytes(shown.payload)) == nats.options(client, credentials=True)[0]


@pytest.mark.peers
@pytest.mark.parametrize("size", [16, 5000])
def test_many_messages_of_nats_py(size):
    """10,000 messages, there and back, some with headers."""
    count = 10_000 if size < 1000 else 1000

    async def run(address: str):
        client = await connected(address)
        subscription = await client.subscribe("many.>")
        subscription._pending_bytes_limit = subscription._pending_queue._maxsize = 0
        for number in range(count):
            payload = (b"%d\r\n" % number) * (size // 4)
            await client.publish(f"many.{number % 7}", payload, headers={"Number": str(number)} if number % 3 else None)
        await until(lambda: len(client.given) == count)
        await part(client)
        return client

    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        client = asyncio.run(run(proxy.address))
        connection, = proxy.take()
    sent, given = of(whole(bytes(connection.requests)), PUBLISHED), of(whole(bytes(connection.responses)), DELIVERED)
    assert [dict(row, headers=None) for row in seen(sent)] == [dict(one, headers=None) for one in client.published]
    assert seen(given, ("subject", "sid", "reply")) == client.given
    assert header_lists(sent) == header_lists(given) == [
        list((one["headers"] or {}).items()) for one in client.published]


@pytest.mark.peers
def test_pieces_of_a_live_conversation():
    """The server's bytes in the pieces that a network might bring are the same messages."""
    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        client = asyncio.run(converse(proxy.address))
        connection, = proxy.take()
    data = bytes(connection.responses)
    expected = whole(data)
    stream = wirescan.stream("nats.messages")
    tables = [stream.feed(data[start:start + 777]) for start in range(0, len(data), 777)] + [stream.close()]
    assert [row for table in tables for row in seen(table, PLACES[:4])] == seen(expected, PLACES[:4])
    assert seen(of(expected, DELIVERED), ("subject", "sid", "reply")) == client.given
