"""Make tests/corpus/nats/recorded: `python -m tests.peers.make_nats` in the repository's root.

What a real client and nats-server say to each other, from the first byte of a connection to its last; nothing is cut:

    <case>.client.bin           the client's side
    <case>.server.bin           the server's
    <case>.published.jsonl      of nats-py: what it was told to publish, a message a line
    <case>.given.jsonl          ... and what its own parser has read, in the order of the wire

    nats-py             subscriptions (a queue's, one with a maximum), requests (one that nobody answers), headers,
                        payloads that are binary or look like operations
    nats-py-verbose     ... and every operation is answered with +OK
    raw                 what the grammar allows and no library writes: see SPOKEN
    refused-<why>       -ERR: see REFUSED
"""
import argparse
import asyncio
import json
import shutil
from pathlib import Path
from typing import NamedTuple

from .nats import NatsServer, Raw, connected, part, until
from .proxy import Proxy

RECORDED = Path(__file__).parents[1] / "corpus" / "nats" / "recorded"
PAYLOADS = (b"a plain order", b"", b"\r\n", b"MSG orders.new 1 5\r\nhello\r\nPING\r\n", b"-ERR 'no'\r\n+OK\r\n",
            b"PUB orders.new 3\r\nabc\r\n", bytes(range(256)), "Grüße, ✓ und 𝄞".encode(), b"long " * 500)
HEADERS = ({"Order": "17"}, {"a": "1", "B-c": "two words", "empty": ""}, {"Trace": "x" * 2000})


class Spoken(NamedTuple):
    """An operation of `raw`: its words, and the columns that they have to become."""
    words: bytes
    kind: str
    columns: dict
    payload: bytes | None = None


HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1,"name":"raw"}\r\n'
LINES = b"NATS/1.0\r\nName: a\r\nname:  b \r\nName: c\r\nEmpty:\r\n\r\n"
STATUS = b"NATS/1.0 409 Consumer is not here\r\n\r\n"
SPOKEN = (
    Spoken(b"SUB orders.> abc3\r\n", "SUB", {"subject": "orders.>", "sid": "abc3"}),
    Spoken(b"sub\torders.* \t pool  7\r\n", "SUB", {"subject": "orders.*", "sid": "7", "queue": "pool"}),
    Spoken(b"Sub limited 9\n", "SUB", {"subject": "limited", "sid": "9"}),
    Spoken(b"UNSUB 9 2\r\n", "UNSUB", {"sid": "9", "count": 2}),
    Spoken(b"PUB limited 1\n1\r\n", "PUB", {"subject": "limited"}, b"1"),
    Spoken(b"pub  limited  \t 000000001\r\n2\r\n", "PUB", {"subject": "limited"}, b"2"),
    Spoken(b"PUB limited 1\r\n3\r\n", "PUB", {"subject": "limited"}, b"3"),
    Spoken(b"Pub orders.new answers.here 27 \r\nMSG orders.new 1 3\r\nabc\r\n\r\n\r\n", "PUB",
           {"subject": "orders.new", "reply": "answers.here"}, b"MSG orders.new 1 3\r\nabc\r\n\r\n"),
    Spoken(b"PUB orders.empty 0\r\n\r\n", "PUB", {"subject": "orders.empty"}, b""),
    Spoken(b"HPUB orders.new 12 12\r\nNATS/1.0\r\n\r\n\r\n", "HPUB",
           {"subject": "orders.new", "headers": b"NATS/1.0\r\n\r\n"}, b""),
    Spoken(b"hpub orders.new back\t49 54\r\n" + LINES + b"hello\r\n", "HPUB",
           {"subject": "orders.new", "reply": "back", "headers": LINES, "header_count": 4}, b"hello"),
    Spoken(b"HPUB orders.new 37 39\r\n" + STATUS + b"ok\r\n", "HPUB",
           {"subject": "orders.new", "headers": STATUS, "status": 409}, b"ok"),
    Spoken(b"UNSUB 7\r\n", "UNSUB", {"sid": "7"}),
    Spoken(b"PONG\r\n", "PONG", {}),
    Spoken(b"PUB nobody.hears to.this 2\r\n\r\n\r\n", "PUB", {"subject": "nobody.hears", "reply": "to.this"}, b"\r\n"),
)

ACCOUNT = 'authorization {users: [{user: ann, password: secret, permissions: {publish: ["open.>"], subscribe: ">"}}]}'


class Refused(NamedTuple):
    """What `refused` says, and how the server refuses it; `goes_on`: it does not hang up."""
    words: bytes
    refusal: str
    goes_on: bool = False
    configuration: tuple[str, ...] = ()


REFUSED = {
    "unknown": Refused(b"WHAT is this\r\n", "Unknown Protocol Operation"),
    "payload": Refused(b"PUB orders.new 1048577\r\n", "Maximum Payload Violation"),
    "line": Refused(b"PUB orders." + b"x" * 4200, "maximum control line exceeded"),
    "login": Refused(b'CONNECT {"user":"ann","pass":"guessed","verbose":false}\r\n', "Authorization Violation",
                     configuration=(ACCOUNT,)),
    "permission": Refused(b'CONNECT {"user":"ann","pass":"secret","verbose":true}\r\nPUB open.door 1\r\na\r\n'
                          b"PUB closed.door 1\r\nb\r\n", 'Permissions Violation for Publish to "closed.door"',
                          goes_on=True, configuration=(ACCOUNT,)),
    "subject": Refused(b'CONNECT {"pedantic":true,"verbose":false}\r\nPUB orders..new 1\r\na\r\n',
                       "Invalid Publish Subject", goes_on=True),
}


async def converse(address: str, **options):
    """What nats-py does in its cases; returns the client, whose connection has ended."""
    from nats.errors import NoRespondersError

    client = await connected(address, name="wirescan", **options)

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
        assert (await client.request("questions", payload, timeout=20)).data == b"answer to " + payload
    try:
        await client.request("nobody", b"is there?", timeout=20)
    except NoRespondersError:
        pass
    else:
        raise RuntimeError("somebody has answered")
    heard = 2 * len(PAYLOADS) + 2 * len(HEADERS) + 2 + 2 * 3 + 1
    await until(lambda: len(client.given) >= heard)
    await part(client)
    return client


def raw(address: str) -> None:
    with Raw(address) as client:
        client.say(HELLO)
        client.hear(lambda heard: heard.count(b"INFO {") == 2)  # it tells again, after the first PONG
        for spoken in SPOKEN:
            client.say(spoken.words)


def refused(address: str, case: Refused) -> None:
    with Raw(address) as client:
        if case.goes_on:
            client.say(case.words)
        else:
            client.say_last(case.words)


def record(target: Path) -> None:
    for case, verbose in ("nats-py", False), ("nats-py-verbose", True):
        with NatsServer() as server, Proxy() as proxy:
            proxy.target = server.address
            client = asyncio.run(converse(proxy.address, verbose=verbose))
            keep(target, case, proxy)
        for name in "published", "given":
            (target / f"{case}.{name}.jsonl").write_text(
                "".join(json.dumps(message, ensure_ascii=False) + "\n" for message in getattr(client, name)))
    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        raw(proxy.address)
        keep(target, "raw", proxy)
    for name, case in REFUSED.items():
        with NatsServer(*case.configuration) as server, Proxy() as proxy:
            proxy.target = server.address
            refused(proxy.address, case)
            keep(target, f"refused-{name}", proxy)


def keep(target: Path, case: str, proxy: Proxy) -> None:
    connection, = proxy.take()
    (target / f"{case}.client.bin").write_bytes(connection.requests)
    (target / f"{case}.server.bin").write_bytes(connection.responses)


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
