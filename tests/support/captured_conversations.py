"""Captures of conversations: of recorded connections, and of a few given messages."""

from pathlib import Path

from tests.support.paths import CORPUS
from tests.support.simulated_capture import Connection, SimulatedCapture, shuffle_packets

STREAMS = CORPUS / "kafka-streams" / "java-4"
PIECE = 700  # bytes that one side sends before the other one sends
CLIENT = (bytes([10, 0, 0, 1]), 40_000)
SERVER = bytes([10, 0, 0, 2])
INFO = b'INFO {"server_id":"a"}\r\n'  # the first message of a server of NATS


def read_pair(pattern, name, replies):
    """Return what the clients and the servers of recorded connections sent."""
    asked = sorted(Path(pattern).glob(f"*.{name}*"))
    return [
        (path.read_bytes(), Path(str(path).replace(name, replies)).read_bytes()) for path in asked
    ]


CASES = {
    "kafka.requests": (read_pair(STREAMS, "requests", "responses"), 9092, 0),
    "thrift.frames": (read_pair(CORPUS / "thrift", "requests", "replies"), 9090, 0),
}


def simulate(pairs, port, *, seed=None, piece=PIECE):
    """Return a capture of connections in which both sides send by turns.

    piece: bytes that one side sends before the other one sends.
    """
    capture = SimulatedCapture()
    for number, sent in enumerate(pairs):
        alone = SimulatedCapture(now=capture.now)
        connection = Connection(
            (bytes([10, 0, 0, 1]), 40_000 + number), (bytes([10, 0, 0, 2]), port)
        )
        alone.connect(connection)
        for at in range(0, max(map(len, sent)), piece):
            for side in (0, 1):
                alone.send(connection, side, sent[side][at : at + piece], size=200)
        alone.close(connection)
        capture.packets += (
            alone.packets if seed is None else shuffle_packets(alone.packets, seed + number)
        )
        capture.now = alone.now
    return capture


def converse(*turns, port=4222):
    """Return a capture of one connection. Each turn is (side, bytes)."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, port))
    capture.connect(connection)
    for side, data in turns:
        capture.send(connection, side, bytes(data))
    return capture
