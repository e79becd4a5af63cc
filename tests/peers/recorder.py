"""A listener that acts as a broker for a Kafka producer and keeps the record sets it receives.

The Produce version that the listener offers decides the magic that a client writes. Version 1 gives
magic 0, version 2 magic 1, version 7 magic 2 (with zstd). The listener serves ApiVersions v0,
Metadata v0 and Produce v0 to v7 of the Kafka protocol guide, for one topic with one partition.

    frame   := size i32, body; both directions, big-endian
    request := api key i16, version i16, correlation i32, client i16+text, ...
    produce := [transactional id i16+text, 3+] acks i16, timeout i32,
               topics i32 { name i16+text, partitions i32 { partition i32, records i32+bytes } }
"""

import contextlib
import socket
import struct
import threading

from .wire import read_exactly

PRODUCE = 0
FETCH = 1
METADATA = 3
FIND_COORDINATOR = 10
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
TOPIC = "peer"
# The newest versions of Produce and Fetch for each magic.
OFFER = {0: (1, 1), 1: (2, 2), 2: (7, 10)}


class Recorder:
    """Records the record sets that a producer sends.

        with Recorder(magic) as recorder:
            ...                             # producers send to recorder.address

    Then `record_sets` has the record sets in the order of their arrival.
    """

    def __init__(self, magic: int):
        self.produce, self.fetch = OFFER[magic]
        self.record_sets: list[bytes] = []

    def __enter__(self) -> "Recorder":
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        # The shutdown wakes accept(). A listening socket may refuse it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # __exit__ closes the socket
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # The client hangs up when it is done.
        with connection, contextlib.suppress(ConnectionError):
            while True:
                (size,) = struct.unpack(">i", read_exactly(connection, 4))
                answer = self._answer(read_exactly(connection, size))
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, request: bytes) -> bytes:
        api, version, correlation, client_size = struct.unpack_from(">hhih", request)
        body = request[10 + max(client_size, 0) :]
        if api == API_VERSIONS:
            answer = self._api_versions(0 if version == 0 else UNSUPPORTED_VERSION)
        elif api == METADATA:
            answer = self._metadata()
        elif api == PRODUCE:
            answer = self._produce(body, version)
        else:
            raise ConnectionError(f"api {api} is not served")
        return struct.pack(">i", correlation) + answer

    def _api_versions(self, error: int) -> bytes:
        # librdkafka writes lz4 only to a broker that offers FindCoordinator.
        newest = {
            PRODUCE: self.produce,
            FETCH: self.fetch,
            METADATA: 0,
            FIND_COORDINATOR: 0,
            API_VERSIONS: 0,
        }
        ranges = b"".join(struct.pack(">hhh", api, 0, version) for api, version in newest.items())
        return struct.pack(">hi", error, len(newest)) + ranges

    def _metadata(self) -> bytes:
        """One broker (this one, node 1), which leads partition 0 of TOPIC."""
        broker = struct.pack(">iih9si", 1, 1, 9, b"127.0.0.1", self.port)
        name = TOPIC.encode()
        topic = struct.pack(f">ihh{len(name)}s", 1, 0, len(name), name)
        partition = struct.pack(">ihiiiiii", 1, 0, 0, 1, 1, 1, 1, 1)
        return broker + topic + partition

    def _produce(self, body: bytes, version: int) -> bytes:
        position = 0
        if version >= 3:
            position += 2 + max(struct.unpack_from(">h", body)[0], 0)
        position += 2 + 4 + 4
        position += 2 + struct.unpack_from(">h", body, position)[0] + 4 + 4
        (size,) = struct.unpack_from(">i", body, position)
        self.record_sets.append(body[position + 4 : position + 4 + size])
        name = TOPIC.encode()
        answer = struct.pack(f">ih{len(name)}siihq", 1, len(name), name, 1, 0, 0, 0)
        if version >= 2:
            answer += struct.pack(">q", -1)
        if version >= 5:
            answer += struct.pack(">q", 0)
        return answer + (struct.pack(">i", 0) if version >= 1 else b"")
