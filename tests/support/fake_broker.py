"""A fake Kafka cluster for tests of clients. Its brokers can give wrong answers, hang up or stall.

    cluster = FakeCluster(brokers=2)
    cluster.add_topic("orders", partitions=2)
    cluster.append("orders", 0, encode_batch(...))
    FakeDriver(cluster).run(operation)              # without sockets, with a simulated clock
    with Server(cluster) as server:                 # sockets on 127.0.0.1
        Client(server.bootstrap)

It reads requests and writes responses with wirescan's own functions. The tests in tests/peers use
real brokers.
"""

import contextlib
import socket
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field

from wirescan import kafka
from wirescan.frames.limits import Limits
from wirescan.kafka.client.connection import Connection, greet
from wirescan.kafka.client.effects import Answer, Begin, Exchange, Finish, Give, Now, Together, Wait
from wirescan.kafka.protocol.schema import API, MESSAGE

HEAD = ("start", "size", "body", "parent", "buffer", "kind", "fault", "reserved")
# The oldest and newest version of each API in a broker of Kafka 3.9.
VERSIONS = {
    "Produce": (0, 11),
    "Fetch": (0, 17),
    "ListOffsets": (0, 9),
    "Metadata": (0, 12),
    "SaslHandshake": (0, 1),
    "ApiVersions": (0, 4),
    "SaslAuthenticate": (0, 2),
    "InitProducerId": (0, 5),
}
LATEST, EARLIEST, LARGEST_TIME = -1, -2, -3  # timestamps in ListOffsets
APIS_WITHOUT_LOGIN = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
# Error codes of Kafka.
UNSUPPORTED_SASL_MECHANISM, UNSUPPORTED_VERSION, SASL_AUTHENTICATION_FAILED = 33, 35, 58
NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, FENCED, UNKNOWN_ID = 0, 1, 3, 6, 74, 100


class HangUp(Exception):  # noqa: N818 (a command to the broker, not an error)
    """The broker sends some bytes and closes the connection."""

    def __init__(self, data=b""):
        self.data = data


class Silence(Exception):  # noqa: N818 (a command to the broker, not an error)
    """The broker sends some bytes and then nothing more."""

    def __init__(self, data=b""):
        self.data = data


class Trickle(Exception):  # noqa: N818 (a command to the broker, not an error)
    """The broker sends its bytes one by one, twenty per second."""

    def __init__(self, data):
        self.data = data


@dataclass
class Log:
    """A partition.

    Attributes:
        leader, epoch: the number of the leading broker, and its epoch.
        start, end, stable: the first offset, the next offset, the last stable offset (None: `end`).
        entries: (first offset, last offset, bytes).
        aborted: (producer id, first offset) of the aborted transactions.
    """

    leader: int = 1
    epoch: int = 0
    start: int = 0
    end: int = 0
    stable: int | None = None
    entries: list = field(default_factory=list)
    aborted: list = field(default_factory=list)

    def read(self, offset, most, whole, stop):
        """Return at most `most` bytes from the entry of `offset` on.

        whole: the first entry is not cut, even if it is larger.
        stop: entries from this offset on are left out.
        """
        out = b""
        for first, last, data in self.entries:
            if last < offset or first >= stop:
                continue
            out += data
            if len(out) >= most:
                return out if whole and out == data else out[:most]
        return out

    def find(self, timestamp, is_committed_only):
        """Return (timestamp, offset) of a record, or -1 for what is unknown.

        timestamp: the record has this time or a later one. LATEST is the end of the log, EARLIEST
            its start, and LARGEST_TIME the record with the largest timestamp.
        """
        if timestamp == LATEST:
            return -1, self.stable if is_committed_only and self.stable is not None else self.end
        if timestamp == EARLIEST:
            return -1, self.start
        if timestamp < 0 and timestamp != LARGEST_TIME:
            return -1, -1
        times = [
            (record.timestamp, record.offset)
            for _, _, data in self.entries
            for record in kafka.records(kafka.scan(data))
        ]
        if timestamp == LARGEST_TIME:
            return max(times, default=(-1, -1))
        return next((pair for pair in times if pair[0] >= timestamp), (-1, -1))


class FakeCluster:
    """The state of a cluster, and its answers.

    Attributes:
        versions: API -> (oldest, newest). None: old brokers, which hang up on ApiVersions.
        errors: (api, topic, partition) -> error codes of the next answers.
        users: name -> password. None: brokers without SASL.
        hook: (node, api, version, body) -> the body to send. Called with each answer as a mapping.
        mangle: (node, api, data) -> the bytes to send. Called with the bytes of each answer. It may
            raise HangUp, Silence or Trickle.
        asked: (node, api, version, request as a mapping) of every request.
        down: the numbers of brokers that do not answer.
    """

    def __init__(self, brokers=1, versions=VERSIONS):
        self.nodes = {number: (f"broker-{number}", 9092) for number in range(1, brokers + 1)}
        self.versions = versions
        self.topics = {}
        self.ids = {}
        self.errors = defaultdict(deque)
        self.asked = []
        self.users = None
        self.hook = lambda node, api, version, body: body
        self.mangle = lambda node, api, data: data
        self.down = set()
        self.lock = threading.RLock()

    @property
    def bootstrap(self):
        return ",".join(f"{host}:{port}" for host, port in self.nodes.values())

    def add_topic(self, name, partitions=1, leader=1):
        self.topics[name] = {number: Log(leader) for number in range(partitions)}
        self.ids[name] = len(self.ids).to_bytes(15, "big") + b"\x07"

    def append(self, topic, partition, data):
        """Append entries to a partition's log. They keep their offsets."""
        log = self.topics[topic][partition]
        batches = kafka.scan(data, check=False)
        for number, row in enumerate(batches):
            log.entries.append((row.base_offset, row.last_offset, bytes(batches.frame(number))))
            log.end = max(log.end, row.last_offset + 1)

    def answer(self, session, node, request):
        """Return the bytes that a broker sends for a request, or None."""
        with self.lock:
            rows = kafka.requests(request)
            row = rows[0]
            api = API[row.api_key].name
            version = row.api_version
            if self.versions is None and api == "ApiVersions":
                raise HangUp
            low, high = (self.versions or {}).get(api, (0, 0))
            if not low <= version <= high:
                if api != "ApiVersions":
                    raise HangUp  # as real brokers do
                body = {"error_code": UNSUPPORTED_VERSION}
                version = 0
                self.asked.append((node, api, version, {}))
            else:
                values = convert_row(kafka.body(rows, api, credentials=True), 0)
                self.asked.append((node, api, version, values))
                needs_user = self.users is not None and api not in APIS_WITHOUT_LOGIN
                if needs_user and not session.user:
                    raise HangUp
                body = getattr(self, f"_{to_snake_case(api)}")(session, node, version, values)
            body = self.hook(node, api, version, body)
            if body is None:
                return None
            fields = MESSAGE[api, "response"].fields
            data = kafka.encode_response(
                api, version, fit(fields, version, body), correlation_id=row.correlation_id
            )
            return self.mangle(node, api, data)

    def _error(self, api, topic, partition, node, epoch=-1):
        """Return (error code, log) of a partition for a request to a broker."""
        log = self.topics.get(topic, {}).get(partition)
        queue = self.errors[api, topic, partition]
        if queue:
            return queue.popleft(), log
        if log is None:
            return UNKNOWN_TOPIC, log
        if log.leader != node:
            return NOT_LEADER, log
        return (FENCED if 0 <= epoch < log.epoch else NONE), log

    def _api_versions(self, session, node, version, request):
        keys = {api.name: api.key for api in API.values()}
        return {
            "api_keys": [
                {"api_key": keys[name], "min_version": low, "max_version": high}
                for name, (low, high) in (self.versions or {}).items()
            ]
        }

    def _metadata(self, session, node, version, request):
        wanted = request["topics"]
        is_all = wanted is None or not wanted and version == 0
        names = self.topics if is_all else [topic["name"].decode() for topic in wanted]
        topics = []
        for name in names:
            queue = self.errors["Metadata", name, None]
            code = NONE if name in self.topics else UNKNOWN_TOPIC
            if queue:
                code = queue.popleft()
            logs = {} if code else self.topics[name]
            topics.append(
                {
                    "error_code": code,
                    "name": name,
                    "topic_id": self.ids.get(name, bytes(16)),
                    "partitions": [
                        {
                            "partition_index": number,
                            "leader_id": log.leader,
                            "leader_epoch": log.epoch,
                            "replica_nodes": list(self.nodes),
                            "isr_nodes": list(self.nodes),
                        }
                        for number, log in logs.items()
                    ],
                }
            )
        return {
            "brokers": [
                {"node_id": number, "host": host, "port": port}
                for number, (host, port) in self.nodes.items()
            ],
            "cluster_id": "fake",
            "controller_id": 1,
            "topics": topics,
        }

    def _list_offsets(self, session, node, version, request):
        def find_offset(topic, partition):
            number = partition["partition_index"]
            epoch = partition["current_leader_epoch"]
            code, log = self._error("ListOffsets", topic, number, node, epoch)
            answer = {"partition_index": number, "error_code": code}
            if code:
                return answer
            is_committed_only = request["isolation_level"] != 0
            timestamp, offset = log.find(partition["timestamp"], is_committed_only)
            if version == 0:
                return answer | {"old_style_offsets": [offset] if offset >= 0 else []}
            return answer | {"offset": offset, "timestamp": timestamp, "leader_epoch": log.epoch}

        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        find_offset(topic["name"].decode(), partition)
                        for partition in topic["partitions"]
                    ],
                }
                for topic in request["topics"]
            ]
        }

    def _fetch(self, session, node, version, request):
        names = {key: name for name, key in self.ids.items()}
        bytes_left = request["max_bytes"]

        def fetch(topic, partition):
            nonlocal bytes_left
            number = partition["partition"]
            offset = partition["fetch_offset"]
            epoch = partition["current_leader_epoch"]
            if topic is None:
                code, log = UNKNOWN_ID, None
            else:
                code, log = self._error("Fetch", topic, number, node, epoch)
            if not code and not log.start <= offset <= log.end:
                code = OUT_OF_RANGE
            answer = {"partition_index": number, "error_code": code}
            if code:
                return answer | {"high_watermark": -1, "records": b""}
            stable = log.end if log.stable is None else log.stable
            stop = stable if request["isolation_level"] else log.end
            most = min(partition["partition_max_bytes"], bytes_left)
            data = log.read(offset, most, version >= 3, stop)
            bytes_left -= len(data)
            return answer | {
                "high_watermark": log.end,
                "last_stable_offset": stable,
                "log_start_offset": log.start,
                "records": data,
                "aborted_transactions": [
                    {"producer_id": producer, "first_offset": first}
                    for producer, first in log.aborted
                ],
            }

        responses = []
        for topic in request["topics"]:
            name = names.get(topic["topic_id"]) if version >= 13 else topic["topic"].decode()
            responses.append(
                {
                    "topic": name,
                    "topic_id": topic["topic_id"] or bytes(16),
                    "partitions": [fetch(name, partition) for partition in topic["partitions"]],
                }
            )
        return {"responses": responses}

    def _produce(self, session, node, version, request):
        names = {key: name for name, key in self.ids.items()}

        def append(topic, partition):
            number = partition["index"]
            code, log = self._error("Produce", topic, number, node)
            answer = {"index": number, "error_code": code}
            if code:
                return answer | {"base_offset": -1}
            base = log.end
            batches = kafka.scan(partition["records"])
            shift = base - int(batches["base_offset"][0]) if len(batches) else 0
            for i, row in enumerate(batches):
                first = row.base_offset + shift
                last = row.last_offset + shift
                data = first.to_bytes(8, "big") + bytes(batches.frame(i))[8:]
                log.entries.append((first, last, data))
                log.end = last + 1
            return answer | {"base_offset": base, "log_start_offset": log.start}

        responses = []
        for topic in request["topic_data"]:
            name = names.get(topic["topic_id"]) if version >= 13 else topic["name"].decode()
            answers = [append(name, partition) for partition in topic["partition_data"]]
            responses.append(
                {
                    "name": name,
                    "topic_id": topic["topic_id"] or bytes(16),
                    "partition_responses": answers,
                }
            )
        return {"responses": responses} if request["acks"] else None

    def _init_producer_id(self, session, node, version, request):
        return {"producer_id": 4000, "producer_epoch": 0}

    def _sasl_handshake(self, session, node, version, request):
        offered = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        session.mechanism = request["mechanism"].decode()
        is_offered = session.mechanism in offered
        return {
            "error_code": NONE if is_offered else UNSUPPORTED_SASL_MECHANISM,
            "mechanisms": [{"name": name} for name in offered],
        }

    def _sasl_authenticate(self, session, node, version, request):
        refusal = {
            "error_code": SASL_AUTHENTICATION_FAILED,
            "error_message": "no such user, or another password",
        }
        if session.mechanism == "PLAIN":
            _, user, password = request["auth_bytes"].decode().split("\0")
            session.user = user if self.users.get(user) == password else None
            return {} if session.user else refusal
        from scramp import ScramException, ScramMechanism

        try:
            if session.scram is None:
                mechanism = ScramMechanism(session.mechanism)

                def find_password(user):
                    session.name = user
                    return mechanism.make_auth_info(self.users[user])

                session.scram = mechanism.make_server(find_password)
                session.scram.set_client_first(request["auth_bytes"].decode())
                return {"auth_bytes": session.scram.get_server_first().encode()}
            session.scram.set_client_final(request["auth_bytes"].decode())
            session.user = session.name
            return {"auth_bytes": session.scram.get_server_final().encode()}
        except (ScramException, KeyError):
            return refusal


class Session:
    """The login state of a connection to a broker."""

    def __init__(self):
        self.user = None
        self.name = None
        self.mechanism = None
        self.scram = None


def convert_row(table, i):
    """Return row i of a body as a mapping. Arrays of structs become lists of mappings."""
    row = table.rows[i]
    arrays = {} if table.format is None else table.format.children
    skipped = {
        *HEAD,
        *(name + end for name in table.places for end in ("_at", "_size")),
        *(name + "_count" for name in arrays),
    }
    values = {name: row[name].item() for name in row.dtype.names if name not in skipped}
    for name in table.places:
        if name not in arrays:
            place = table.bytes(i, name)
            values[name] = None if place is None else bytes(place)
        elif row[name + "_count"] < 0:
            values[name] = None
        else:
            inner = table[i : i + 1].open(name)
            values[name] = [convert_row(inner, number) for number in range(len(inner))]
    return values


def fit(fields, version, values):
    """Return the fields of a body that a version has."""
    field_of = {field.name: field for field in fields}
    fitted = {}
    for name, value in values.items():
        if name in field_of and version not in field_of[name].versions:
            continue
        is_array = field_of[name].is_array and value is not None
        fitted[name] = (
            [fit(field_of[name].fields, version, item) for item in value] if is_array else value
        )
    return fitted


def to_snake_case(name):
    words = ("_" + letter.lower() if letter.isupper() else letter for letter in name)
    return "".join(words).lstrip("_")


class FakeDriver:
    """Runs operations against a FakeCluster, one after another.

    Attributes:
        now: the clock in seconds. Only Wait and Silence advance it.
        exchanges: number of requests.
        most: largest number of requests. With more, the operation counts as endless.
        chunk: largest number of bytes that arrive at once.
        largest: largest size of a connection's buffer in bytes.
    """

    def __init__(
        self, cluster, *, sasl=None, limits=Limits(), timeout=30.0, most=2000, chunk=1 << 30
    ):
        self.cluster = cluster
        self.sasl = sasl
        self.limits = limits
        self.timeout = timeout
        self.chunk = chunk
        self.now = 0.0
        self.exchanges = 0
        self.most = most
        self.largest = 0

    def run(self, operation):
        running = self.iterate(operation)
        while True:
            try:
                next(running)
            except StopIteration as end:
                return end.value

    def iterate(self, operation):
        """Run an operation and yield the values that it gives."""
        step = operation.send
        value = None
        while True:
            try:
                effect = step(value)
            except StopIteration as end:
                return end.value
            step = operation.send
            if isinstance(effect, Give):
                yield effect.value
                value = None
                continue
            try:
                value = self.perform(effect)
            except Exception as error:
                step = operation.throw
                value = error

    def perform(self, effect):
        """Return the result of an effect."""
        if isinstance(effect, Wait):
            assert effect.seconds >= 0
            self.now += effect.seconds
            return None
        if isinstance(effect, Now):
            return self.now
        if isinstance(effect, Together):
            return [self._outcome(operation) for operation in effect.operations]
        if isinstance(effect, Begin):
            return effect.exchange
        if isinstance(effect, Finish):
            return self._exchange(effect.ticket)
        if isinstance(effect, Exchange):
            return self._exchange(effect)
        raise TypeError(effect)

    def _outcome(self, operation):
        try:
            return self.run(operation)
        except Exception as error:
            return error

    def _exchange(self, exchange):
        self.exchanges += 1
        assert self.exchanges <= self.most, "the operation does not end"
        numbers = {address: number for number, address in self.cluster.nodes.items()}
        number = numbers.get(exchange.node[1:])
        if number is None or number in self.cluster.down:
            raise ConnectionRefusedError(f"nobody listens at {exchange.node}")
        connection, session = self._connect(exchange)
        try:
            self._greet(connection, session, number, greet(connection, self.sasl))
        except ConnectionResetError:
            if connection.versions or self.sasl:
                raise
            connection, session = self._connect(exchange)
            self._greet_again(connection, session, number)
            if not connection.versions:
                connection, session = self._connect(exchange)
        version = connection.choose_version(exchange.api, exchange.versions)
        data = connection.send(
            exchange.api,
            version,
            exchange.body(version),
            answered=exchange.answered,
            expected=exchange.expected,
        )
        answer = self._answer(connection, session, number, data)
        assert connection.is_idle
        return Answer(version, None) if answer is None else answer

    def _connect(self, exchange):
        return Connection(exchange.node, "test", self.limits), Session()

    def _greet(self, connection, session, number, steps):
        """Exchange the messages at the beginning of a connection."""
        data = next(steps)
        with contextlib.suppress(StopIteration):
            while True:
                data = steps.send(self._answer(connection, session, number, data))

    def _greet_again(self, connection, session, number):
        """Greet a broker that hung up on ApiVersions. It may hang up again."""
        try:
            self._greet(connection, session, number, greet(connection, is_doubted=True))
        except ConnectionResetError:
            if not connection.has_answered:
                raise

    def _answer(self, connection, session, number, request):
        """Send a request and return the answer to it, or None."""
        end = None
        answers = []
        try:
            data = self.cluster.answer(session, number, request)
        except (HangUp, Silence) as command:
            data = command.data
            end = command
        if data is None:
            return None
        for at in range(0, len(data), self.chunk):
            answers += connection.receive(data[at : at + self.chunk])
            self.largest = max(self.largest, len(connection.get_buffer()))
        if isinstance(end, Silence):
            self.now += self.timeout
            raise TimeoutError("no answer")
        if end is not None or not answers:
            raise connection.make_close_error()
        (answer,) = answers
        return answer


class Server:
    """A FakeCluster with sockets. Each broker listens at 127.0.0.1.

    context: the SSLContext for TLS. None: no TLS.
    """

    def __init__(self, cluster, context=None):
        self.cluster = cluster
        self.connections = 0  # number of connections so far
        self._context = context
        self._sockets = set()
        self._threads = []

    def __enter__(self):
        self._listening = {
            number: socket.create_server(("127.0.0.1", 0)) for number in self.cluster.nodes
        }
        for number, listening in self._listening.items():
            self.cluster.nodes[number] = "127.0.0.1", listening.getsockname()[1]
            self._start(self._accept, number, listening)
        self.bootstrap = self.cluster.bootstrap
        return self

    def __exit__(self, *_):
        for listening in self._listening.values():
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def hang_up(self):
        """End all connections."""
        for client in self._sockets:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _start(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, number, listening):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                self._sockets.add(client)
                self.connections += 1
                self._start(self._serve, number, client)

    def _serve(self, number, client):
        session = Session()
        with contextlib.suppress(OSError), client:
            if self._context is not None:
                client = self._context.wrap_socket(client, server_side=True)
                self._sockets.add(client)
            with client, client.makefile("rb") as file:
                while number not in self.cluster.down and (size := file.read(4)):
                    request = size + file.read(int.from_bytes(size, "big"))
                    try:
                        data = self.cluster.answer(session, number, request)
                    except HangUp as end:
                        client.sendall(end.data)
                        return
                    except Silence as end:
                        client.sendall(end.data)
                        file.read()  # until the client gives up
                        return
                    except Trickle as slow:
                        for byte in slow.data:
                            client.sendall(bytes([byte]))
                            time.sleep(0.05)
                        return
                    if data is not None:
                        client.sendall(data)
