"""Make tests/corpus/nats/recorded: run `python -m tests.peers.make_nats` in the root.

It holds complete connections of real clients and nats-server, from the first byte to the last:

    <case>.client.bin           the client's side
    <case>.server.bin           the server's side
    <case>.published.jsonl      nats-py: the messages that it publishes, one per line
    <case>.given.jsonl          nats-py: the messages that its own parser reads, in their order

    nats-py             subscriptions (of a queue, with a maximum), requests (one without an
                        answer), headers, payloads that are binary or look like operations
    nats-py-verbose     the same, and +OK answers every operation
    raw                 forms that the grammar allows and no library writes: see RAW_OPERATIONS
    refused-<name>      -ERR: see REFUSALS
"""

import asyncio
import json
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import CORPUS

from .nats import NatsServer, RawClient, close_cleanly, connect, wait_until
from .proxy import Proxy
from .target import clear_target

RECORDED = CORPUS / "nats" / "recorded"
PAYLOADS = (
    b"a plain order",
    b"",
    b"\r\n",
    b"MSG orders.new 1 5\r\nhello\r\nPING\r\n",
    b"-ERR 'no'\r\n+OK\r\n",
    b"PUB orders.new 3\r\nabc\r\n",
    bytes(range(256)),
    "Grüße, ✓ und 𝄞".encode(),
    b"long " * 500,
)
HEADERS = ({"Order": "17"}, {"a": "1", "B-c": "two words", "empty": ""}, {"Trace": "x" * 2000})


class RawOperation(NamedTuple):
    """An operation of the case `raw`: its bytes, and the columns that they must give."""

    data: bytes
    kind: str
    columns: dict
    payload: bytes | None = None


HELLO = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
    b'"protocol":1,"name":"raw"}\r\n'
)
LINES = b"NATS/1.0\r\nName: a\r\nname:  b \r\nName: c\r\nEmpty:\r\n\r\n"
STATUS = b"NATS/1.0 409 Consumer is not here\r\n\r\n"
RAW_OPERATIONS = (
    RawOperation(b"SUB orders.> abc3\r\n", "SUB", {"subject": "orders.>", "sid": "abc3"}),
    RawOperation(
        b"sub\torders.* \t pool  7\r\n", "SUB", {"subject": "orders.*", "sid": "7", "queue": "pool"}
    ),
    RawOperation(b"Sub limited 9\n", "SUB", {"subject": "limited", "sid": "9"}),
    RawOperation(b"UNSUB 9 2\r\n", "UNSUB", {"sid": "9", "count": 2}),
    RawOperation(b"PUB limited 1\n1\r\n", "PUB", {"subject": "limited"}, b"1"),
    RawOperation(b"pub  limited  \t 000000001\r\n2\r\n", "PUB", {"subject": "limited"}, b"2"),
    RawOperation(b"PUB limited 1\r\n3\r\n", "PUB", {"subject": "limited"}, b"3"),
    RawOperation(
        b"Pub orders.new answers.here 27 \r\nMSG orders.new 1 3\r\nabc\r\n\r\n\r\n",
        "PUB",
        {"subject": "orders.new", "reply": "answers.here"},
        b"MSG orders.new 1 3\r\nabc\r\n\r\n",
    ),
    RawOperation(b"PUB orders.empty 0\r\n\r\n", "PUB", {"subject": "orders.empty"}, b""),
    RawOperation(
        b"HPUB orders.new 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        "HPUB",
        {"subject": "orders.new", "headers": b"NATS/1.0\r\n\r\n"},
        b"",
    ),
    RawOperation(
        b"hpub orders.new back\t49 54\r\n" + LINES + b"hello\r\n",
        "HPUB",
        {"subject": "orders.new", "reply": "back", "headers": LINES, "header_count": 4},
        b"hello",
    ),
    RawOperation(
        b"HPUB orders.new 37 39\r\n" + STATUS + b"ok\r\n",
        "HPUB",
        {"subject": "orders.new", "headers": STATUS, "status": 409},
        b"ok",
    ),
    RawOperation(b"UNSUB 7\r\n", "UNSUB", {"sid": "7"}),
    RawOperation(b"PONG\r\n", "PONG", {}),
    RawOperation(
        b"PUB nobody.hears to.this 2\r\n\r\n\r\n",
        "PUB",
        {"subject": "nobody.hears", "reply": "to.this"},
        b"\r\n",
    ),
)

ACCOUNT = (
    "authorization {users: [{user: ann, password: secret, "
    'permissions: {publish: ["open.>"], subscribe: ">"}}]}'
)


class Refusal(NamedTuple):
    """Bytes that the server refuses, and its error.

    stays_open: the server does not hang up. configuration: lines of the server's configuration
    file.
    """

    data: bytes
    error: str
    stays_open: bool = False
    configuration: tuple[str, ...] = ()


REFUSALS = {
    "unknown": Refusal(b"WHAT is this\r\n", "Unknown Protocol Operation"),
    "payload": Refusal(b"PUB orders.new 1048577\r\n", "Maximum Payload Violation"),
    "line": Refusal(b"PUB orders." + b"x" * 4200, "maximum control line exceeded"),
    "login": Refusal(
        b'CONNECT {"user":"ann","pass":"guessed","verbose":false}\r\n',
        "Authorization Violation",
        configuration=(ACCOUNT,),
    ),
    "permission": Refusal(
        b'CONNECT {"user":"ann","pass":"secret","verbose":true}\r\nPUB open.door 1\r\na\r\n'
        b"PUB closed.door 1\r\nb\r\n",
        'Permissions Violation for Publish to "closed.door"',
        stays_open=True,
        configuration=(ACCOUNT,),
    ),
    "subject": Refusal(
        b'CONNECT {"pedantic":true,"verbose":false}\r\nPUB orders..new 1\r\na\r\n',
        "Invalid Publish Subject",
        stays_open=True,
    ),
}


async def converse(address: str, **options):
    """Send the messages of the nats-py cases. Return the client, which is closed."""
    from nats.errors import NoRespondersError

    client = await connect(address, name="wirescan", **options)

    async def answer(message) -> None:
        await message.respond(b"answer to " + message.data)

    async def ignore(message) -> None:
        pass

    await client.subscribe("orders.*", cb=ignore)
    await client.subscribe("work", queue="pool", cb=ignore)
    limited = await client.subscribe("limited", cb=ignore)
    await limited.unsubscribe(limit=2)
    await client.subscribe("questions", cb=answer)
    for number, payload in enumerate(PAYLOADS):
        await client.publish("orders.new", payload)
        await client.publish("work", payload, reply=f"done.{number}")
    for headers in HEADERS:
        await client.publish("orders.changed", b"PONG\r\n", headers=headers)
        await client.publish("work", b"", reply="done", headers=headers)
    for number in range(3):
        await client.publish("limited", b"%d" % number)
        await client.publish("unheard", b"%d" % number)
    for payload in PAYLOADS[:3]:
        answer_message = await client.request("questions", payload, timeout=20)
        assert answer_message.data == b"answer to " + payload
    try:
        await client.request("nobody", b"is there?", timeout=20)
    except NoRespondersError:
        pass
    else:
        raise RuntimeError("somebody answered")
    expected = 2 * len(PAYLOADS) + 2 * len(HEADERS) + 2 + 2 * 3 + 1
    await wait_until(lambda: len(client.received) >= expected)
    await close_cleanly(client)
    return client


def send_raw(address: str) -> None:
    with RawClient(address) as client:
        client.send(HELLO)
        # The server sends INFO again after its first PONG.
        client.read_until(lambda received: received.count(b"INFO {") == 2)
        for operation in RAW_OPERATIONS:
            client.send(operation.data)


def provoke_error(address: str, case: Refusal) -> None:
    with RawClient(address) as client:
        if case.stays_open:
            client.send(case.data)
        else:
            client.send_last(case.data)


def record(target: Path) -> None:
    for case, verbose in ("nats-py", False), ("nats-py-verbose", True):
        with NatsServer() as server, Proxy() as proxy:
            proxy.target = server.address
            client = asyncio.run(converse(proxy.address, verbose=verbose))
            keep(target, case, proxy)
        for name, messages in ("published", client.published), ("given", client.received):
            lines = [json.dumps(message, ensure_ascii=False) + "\n" for message in messages]
            (target / f"{case}.{name}.jsonl").write_text("".join(lines))
    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        send_raw(proxy.address)
        keep(target, "raw", proxy)
    for name, case in REFUSALS.items():
        with NatsServer(*case.configuration) as server, Proxy() as proxy:
            proxy.target = server.address
            provoke_error(proxy.address, case)
            keep(target, f"refused-{name}", proxy)


def keep(target: Path, case: str, proxy: Proxy) -> None:
    (connection,) = proxy.take()
    (target / f"{case}.client.bin").write_bytes(connection.requests)
    (target / f"{case}.server.bin").write_bytes(connection.responses)


def main() -> None:
    target = clear_target(__doc__, RECORDED)
    target.mkdir(parents=True)
    record(target)
    for file in sorted(target.iterdir()):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
