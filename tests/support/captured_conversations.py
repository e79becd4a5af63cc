"""Captures of conversations: of recorded connections, and of a few given messages."""

from pathlib import Path

from tests.support.paths import CORPUS
from tests.support.simulated_capture import Connection, SimulatedCapture, shuffle_packets
from wirescan import kafka, liftbridge, lumberjack, nats
from wirescan.reading.chunked import iter_tables

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


def acknowledge(offset, correlation_id, inbox="acks", ack_error=liftbridge.AckError.OK):
    ack = liftbridge.encode_ack(
        stream="s", offset=offset, correlation_id=correlation_id, ack_error=ack_error
    )
    return nats.encode_msg(inbox, "1", bytes(ack))


def list_values(table):
    """Return what exports have of each row."""
    return [tuple(row.values()) for row in table.to_arrow().to_pylist()]


def make_window(count):
    events = b"".join(bytes(lumberjack.encode_json(n + 1, {"n": n})) for n in range(count))
    return bytes(lumberjack.encode_window(count)), events


def publish(value, correlation_id, inbox="acks"):
    message = liftbridge.encode_message(value, ack_inbox=inbox, correlation_id=correlation_id)
    return nats.encode_pub("events", bytes(message))


def read_in_pieces(path, name, piece):
    """Return the values of exchanges, read in pieces of a file."""
    tables = [
        table
        for table in iter_tables(str(path), format=name, piece=piece, errors="mark")
        if len(table)
    ]
    return [values for table in tables for values in list_values(table)]


def produce(version, records, *, topic="orders", partition=3, correlation_id=1):
    data = {"index": partition, "records": records}
    topics = [{"name": topic, "partition_data": [data]}]
    body = {"acks": 1, "timeout_ms": 1, "topic_data": topics}
    return kafka.encode_request("Produce", version, body, correlation_id=correlation_id)


def fetch(version, records, *, topic="orders", partition=3, correlation_id=2):
    request = kafka.encode_request("Fetch", version, correlation_id=correlation_id)
    part = {"partition_index": partition, "records": records}
    body = {"responses": [{"topic": topic, "partitions": [part]}]}
    return request, kafka.encode_response("Fetch", version, body, correlation_id=correlation_id)
