"""Make tests/corpus/lumberjack/recorded: run `python -m tests.peers.make_lumberjack` in the root.

It holds complete connections of real clients, from the first byte to the last:

    <case>.sent.bin         the client's side
    <case>.acks.bin         the server's side
    <case>.events.jsonl     the events that the client sends, one per line

    go-lumber-plain              windows of 8, 8 and 4 events, version 2
    go-lumber-level-3            the same windows, each compressed
    go-lumber-keepalive          the same, two windows in flight, level 9; the busy server sends
                                 acks of 0
    pylogbeat                    20 events in one compressed frame, version 2
    pylogbeat-windows            the same in windows of 8, 8 and 4; sequence numbers continue
    pylogbeat-empty              a window of 0 with an empty compressed frame, then a window of 2
    lumberjack-client            a window of 12, then 8 windows of 1, version 2
    lumberjack-protocol          20 data frames, version 1; recorded inside TLS, which the client
                                 always uses
    lumberjack-protocol-endless  the same 20 after a window of 1000; the server never acknowledges
    filebeat                     20 lines of a log file, windows of at most 8, compressed (level 3)
    filebeat-plain               the same, uncompressed

go-lumber's server answers go-lumber's client, pylogbeat's single send, lumberjack-client and
Filebeat. The server of lumberjack_reader.py answers the others, because go-lumber's server
acknowledges the number of events and not their sequence numbers.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.paths import CORPUS

from .lumberjack import (
    Authority,
    Filebeat,
    Receive,
    send,
    send_with_lumberjack_client,
    send_with_lumberjack_protocol,
    send_with_pylogbeat,
)
from .lumberjack_reader import Reader
from .proxy import Proxy
from .target import clear_target

RECORDED = CORPUS / "lumberjack" / "recorded"
TEXTS = (
    "a plain line",
    "",
    "Grüße, ✓ und 𝄞",
    '<a href="?x=1&y=2">',
    "two\nlines\tand \\ a tab",
    "\0 and \x7f",
    "long " * 60,
)


def make_events(count: int) -> list[dict]:
    """Events of version 2: every kind of JSON value. JavaScript can represent the numbers."""
    return [
        {
            "@timestamp": f"2026-03-01T10:00:00.{i % 1000:03}Z",
            "@metadata": {"beat": "peer", "version": "1"},
            "number": i,
            "message": TEXTS[i % len(TEXTS)],
            "large": 2**53 - 1 - i,
            "nested": {"list": [1, -2.5, None, True, []], "größe": i},
        }
        for i in range(count)
    ]


def make_pairs(count: int) -> list[dict[str, str]]:
    """Events of version 1: mappings of strings to strings."""
    return [
        {
            "host": "peer",
            "file": "/var/log/orders.log",
            "offset": str(i),
            "line": TEXTS[i % len(TEXTS)],
            "größe": "ü",
        }
        for i in range(count)
    ]


def make_messages(count: int) -> list[dict[str, str]]:
    """Events of Filebeat: the lines of a log file."""
    return [
        {"message": f"order {i}: " + TEXTS[i % len(TEXTS)].replace("\n", " ")} for i in range(count)
    ]


def ship(address: str, messages: Sequence[dict], done: Callable[[], bool], **options) -> None:
    """Let Filebeat ship a file with these messages until `done()` holds."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "orders.log")
        file.write_text("".join(event["message"] + "\n" for event in messages))
        with Filebeat(address, file, **options) as filebeat:
            filebeat.await_true(done)


def record(target: Path) -> None:
    def keep(case: str, events: Sequence[dict], sent: bytes, acks: bytes) -> None:
        (target / f"{case}.sent.bin").write_bytes(sent)
        (target / f"{case}.acks.bin").write_bytes(acks)
        lines = [json.dumps(event, ensure_ascii=False) + "\n" for event in events]
        (target / f"{case}.events.jsonl").write_text("".join(lines))

    def record_go_lumber(
        case: str, sent_events: Sequence[dict], run: Callable[[Proxy], object], **options
    ) -> None:
        """Record a connection of `run` to go-lumber's server."""
        with Receive(**options) as server, Proxy() as proxy:
            proxy.target = server.address
            run(proxy)
            (connection,) = proxy.take()
        keep(case, sent_events, connection.requests, connection.responses)

    given = make_events(20)
    windows = [given[:8], given[8:16], given[16:]]
    record_go_lumber("go-lumber-plain", given, lambda proxy: send(proxy.address, given, batch=8))
    record_go_lumber(
        "go-lumber-level-3", given, lambda proxy: send(proxy.address, given, batch=8, level=3)
    )
    record_go_lumber(
        "go-lumber-keepalive",
        given,
        lambda proxy: send(proxy.address, given, batch=8, level=9, pipeline=2),
        hold=0.3,
        keepalive=0.1,
    )
    record_go_lumber("pylogbeat", given, lambda proxy: send_with_pylogbeat(proxy.address, [given]))
    record_go_lumber(
        "lumberjack-client",
        given,
        lambda proxy: send_with_lumberjack_client(proxy.address, given, first=12),
    )
    lines = make_messages(20)
    for case, level in ("filebeat", 3), ("filebeat-plain", 0):
        record_go_lumber(
            case,
            lines,
            lambda proxy: ship(
                proxy.address,
                lines,
                lambda: proxy.response_bytes() == 6 * len(windows),
                batch=8,
                level=level,
            ),
        )

    strings = make_pairs(20)
    with (
        Authority() as authority,
        Reader() as plain,
        Reader(authority.identity("server")) as secured,
    ):
        send_with_pylogbeat(plain.address, windows)
        send_with_pylogbeat(plain.address, [[], given[:2]])
        send_with_lumberjack_protocol(
            secured.address, strings, authority.file, window=20, acknowledged=20
        )
        send_with_lumberjack_protocol(secured.address, strings, authority.file)
        for case, sent_events, connection in zip(
            (
                "pylogbeat-windows",
                "pylogbeat-empty",
                "lumberjack-protocol",
                "lumberjack-protocol-endless",
            ),
            (given, given[:2], strings, strings),
            (*plain.take(), *secured.take()),
            strict=True,
        ):
            keep(case, sent_events, connection.sent, connection.acks)


def main() -> None:
    target = clear_target(__doc__, RECORDED)
    target.mkdir(parents=True)
    record(target)
    for file in sorted(target.glob("*.sent.bin")):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
