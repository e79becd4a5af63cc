"""Make tests/corpus/lumberjack/recorded: `python -m tests.peers.make_lumberjack` in the repository's root.

What real clients send, and what comes back, from the first byte of a connection to its last; nothing is cut:

    <case>.sent.bin         the client's side
    <case>.acks.bin         the server's
    <case>.events.jsonl     what the client was given to send, an event a line

    go-lumber-plain              windows of 8, 8 and 4 events, version 2
    go-lumber-level-3            ... each in one C
    go-lumber-keepalive          ... two windows in flight, level 9; the server acknowledges 0 while it is busy
    pylogbeat                    20 events in one C, version 2
    pylogbeat-windows            ... in windows of 8, 8 and 4; the sequence numbers go on
    pylogbeat-empty              W(0) and a C of nothing, then a window of 2
    lumberjack-client            a window of 12, then 8 of 1 each, version 2
    lumberjack-protocol          20 data frames, version 1; recorded inside TLS, which is all that it speaks
    lumberjack-protocol-endless  ... after W(1000), of which it sends 20: never acknowledged
    filebeat                     20 lines of a log file, windows of at most 8, compressed (level 3)
    filebeat-plain               ... uncompressed

go-lumber's server answers go-lumber's client, the single send of pylogbeat, lumberjack-client and Filebeat;
lumberjack_reader.py's answers the others: go-lumber's acknowledges how many events came, not their numbers.
"""
import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .lumberjack import (Authority, Filebeat, Receive, lumberjack_client_send, lumberjack_protocol_send,
                         pylogbeat_send, send)
from .lumberjack_reader import Reader
from .proxy import Proxy

RECORDED = Path(__file__).parents[1] / "corpus" / "lumberjack" / "recorded"
TEXTS = ("a plain line", "", "Grüße, ✓ und 𝄞", "<a href=\"?x=1&y=2\">", "two\nlines\tand \\ a tab", "\0 and \x7f",
         "long " * 60)


def events(count: int) -> list[dict]:
    """Events of version 2: JSON of every kind, numbers that JavaScript keeps."""
    return [{"@timestamp": f"2026-03-01T10:00:00.{i % 1000:03}Z", "@metadata": {"beat": "peer", "version": "1"},
             "number": i, "message": TEXTS[i % len(TEXTS)], "large": 2 ** 53 - 1 - i,
             "nested": {"list": [1, -2.5, None, True, []], "größe": i}} for i in range(count)]


def pairs(count: int) -> list[dict[str, str]]:
    """Events of version 1: strings by strings."""
    return [{"host": "peer", "file": "/var/log/orders.log", "offset": str(i), "line": TEXTS[i % len(TEXTS)],
             "größe": "ü"} for i in range(count)]


def messages(count: int) -> list[dict[str, str]]:
    """Events of Filebeat: lines of a log file."""
    return [{"message": f"order {i}: " + TEXTS[i % len(TEXTS)].replace("\n", " ")} for i in range(count)]


def ship(address: str, given: Sequence[dict], done: Callable[[], bool], **options) -> None:
    """Let Filebeat ship a file with these messages, until all is `done`."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "orders.log")
        file.write_text("".join(event["message"] + "\n" for event in given))
        with Filebeat(address, file, **options) as filebeat:
            filebeat.await_true(done)


def record(target: Path) -> None:
    def keep(case: str, given: Sequence[dict], sent: bytes, acks: bytes) -> None:
        (target / f"{case}.sent.bin").write_bytes(sent)
        (target / f"{case}.acks.bin").write_bytes(acks)
        (target / f"{case}.events.jsonl").write_text(
            "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in given))

    def answered(case: str, given: Sequence[dict], run: Callable[[Proxy], object], **options) -> None:
        """Record `run` with go-lumber's server."""
        with Receive(**options) as server, Proxy() as proxy:
            proxy.target = server.address
            run(proxy)
            connection, = proxy.take()
        keep(case, given, connection.requests, connection.responses)

    given = events(20)
    windows = [given[:8], given[8:16], given[16:]]
    answered("go-lumber-plain", given, lambda proxy: send(proxy.address, given, batch=8))
    answered("go-lumber-level-3", given, lambda proxy: send(proxy.address, given, batch=8, level=3))
    answered("go-lumber-keepalive", given, lambda proxy: send(proxy.address, given, batch=8, level=9, pipeline=2),
             hold=0.3, keepalive=0.1)
    answered("pylogbeat", given, lambda proxy: pylogbeat_send(proxy.address, [given]))
    answered("lumberjack-client", given, lambda proxy: lumberjack_client_send(proxy.address, given, first=12))
    lines = messages(20)
    for case, level in ("filebeat", 3), ("filebeat-plain", 0):
        answered(case, lines, lambda proxy: ship(proxy.address, lines, lambda: proxy.answered() == 6 * len(windows),
                                                 batch=8, level=level))

    strings = pairs(20)
    with Authority() as authority, Reader() as plain, Reader(authority.identity("server")) as secured:
        pylogbeat_send(plain.address, windows)
        pylogbeat_send(plain.address, [[], given[:2]])
        lumberjack_protocol_send(secured.address, strings, authority.file, window=20, acknowledged=20)
        lumberjack_protocol_send(secured.address, strings, authority.file)
        for case, kept, connection in zip(
                ("pylogbeat-windows", "pylogbeat-empty", "lumberjack-protocol", "lumberjack-protocol-endless"),
                (given, given[:2], strings, strings), (*plain.take(), *secured.take()), strict=True):
            keep(case, kept, connection.sent, connection.acks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", type=Path, default=RECORDED, help="the directory to fill")
    target = parser.parse_args().target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    record(target)
    for file in sorted(target.glob("*.sent.bin")):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
