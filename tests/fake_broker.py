"""A Kafka cluster in Python, for tests of clients: brokers that answer, lie, hang up and fall silent as they are told.

    cluster = FakeCluster(brokers=2)
    cluster.add_topic("orders", partitions=2)
    cluster.append("orders", 0, encode_batch(...))
    FakeDriver(cluster).run(operation)              # no socket, no clock: `now` is its own
    with Server(cluster) as server:                 # sockets on 127.0.0.1
        Client(server.bootstrap)

It reads requests and writes responses with wirescan's own protocol (tests/peers meets the real brokers).
"""
import contextlib
import socket
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field

from wirescan import kafka
from wirescan.kafka.client.connection import Connection, greet
from wirescan.kafka.client.effects import Answer, Begin, Exchange, Finish, Give, Now, Together, Wait
from wirescan.kafka.schema import API, MESSAGE
from wirescan.limits import Limits

HEAD = ("start", "size", "body", "parent", "buffer", "kind", "fault", "reserved")
# What a broker of Kafka 3.9 has; another has a part of it.
VERSIONS = {"Produce": (0, 11), "Fetch": (0, 17), "ListOffsets": (0, 9), "Metadata": (0, 12), "SaslHandshake": (0, 1),
            "ApiVersions": (0, 4), "SaslAuthenticate": (0, 2), "InitProducerId": (0, 5)}
NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, FENCED, UNKNOWN_ID = 0, 1, 3, 6, 74, 100


class HangUp(Exception):
    """The broker closes the connection, after some bytes."""

    def __init__(self, data=b""):
        self.data = data


class Silence(Exception):
    """The broker says nothing more, after some bytes."""

    def __init__(self, data=b""):
        self.data = data


class Trickle(Exception):
    """The broker sends bytes one by one, twenty in a second."""

    def __init__(self, data):
        self.data = data


@dataclass
class Log:
    """A partition: its leader and epoch, entries (first offset, last offset, bytes), offsets, aborted transactions."""
    leader: int = 1
    epoch: int = 0
    start: int = 0
    end: int = 0
    stable: int | None = None
    entries: list = field(default_factory=list)
    aborted: list = field(default_factory=list)

    def read(self, offset, most, whole, stop):
        """The bytes from the entry of `offset` on, cut at `most`, though not inside the first if `whole`."""
        out = b""
        for first, last, data in self.entries:
            if last < offset or first >= stop:
                continue
            out += data
            if len(out) >= most:
                return out if whole and out == data else out[:most]
        return out


class FakeCluster:
    """The state of a cluster, and its answers.

    versions: API -> (oldest, newest); None: brokers from before ApiVersions, which hang up on it.
    errors: (api, topic, partition) -> error codes for its next answers. users: name -> password; asked for with SASL.
    hook(node, api, version, body): called with each answer as a mapping, gives the one to send.
    mangle(node, api, data): called with its bytes; gives those to send, or raises HangUp or Silence.
    asked: (node, api, version, request as a mapping) of every request.
    """

    def __init__(self, brokers=1, versions=VERSIONS):
        self.nodes = {number: (f"broker-{number}", 9092) for number in range(1, brokers + 1)}
        self.versions, self.topics, self.ids = versions, {}, {}
        self.errors, self.asked, self.users = defaultdict(deque), [], None
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
        """Put entries at the end of a partition's log as they are; they say which offsets they have."""
        log = self.topics[topic][partition]
        batches = kafka.scan(data, check=False)
        for number, row in enumerate(batches):
            log.entries.append((row.base_offset, row.last_offset, bytes(batches.frame(number))))
            log.end = max(log.end, row.last_offset + 1)

    def answer(self, session, node, request):
        """The bytes that a broker sends for a request, or None."""
        with self.lock:
            rows = kafka.requests(request)
            row = rows[0]
            api, version = API[row.api_key].name, row.api_version
            if self.versions is None and api == "ApiVersions":
                raise HangUp
            low, high = (self.versions or {}).get(api, (0, 0))
            if not low <= version <= high:
                if api != "ApiVersions":
                    raise HangUp                # as real brokers do
                body, version = {"error_code": 35}, 0
                self.asked.append((node, api, version, {}))
            else:
                asked = as_mapping(kafka.body(rows, api), 0)
                self.asked.append((node, api, version, asked))
                if self.users is not None and not session.user and api not in (
                        "ApiVersions", "SaslHandshake", "SaslAuthenticate"):
                    raise HangUp
                body = getattr(self, f"_{snake(api)}")(session, node, version, asked)
            body = self.hook(node, api, version, body)
            if body is None:
                return None
            fields = MESSAGE[api, "response"].fields
            data = kafka.encode_response(api, version, fit(fields, version, body), correlation_id=row.correlation_id)
            return self.mangle(node, api, data)

    def _error(self, api, topic, partition, node, epoch=-1):
        log = self.topics.get(topic, {}).get(partition)
        queue = self.errors[api, topic, partition]
        if queue:
            return queue.popleft(), log
        if log is None:
            return UNKNOWN_TOPIC, log
        if log.leader != node:
            return NOT_LEADER, log
        return (FENCED if 0 <= epoch < log.epoch else NONE), log

    def _api_versions(self, session, node, version, asked):
        keys = {api.name: api.key for api in API.values()}
        return {"api_keys": [{"api_key": keys[name], "min_version": low, "max_version": high}
                             for name, (low, high) in (self.versions or {}).items()]}

    def _metadata(self, session, node, version, asked):
        wanted = asked["topics"]
        is_all = wanted is None or not wanted and version == 0
        names = self.topics if is_all else [one["name"].decode() for one in wanted]
        topics = []
        for name in names:
            queue = self.errors["Metadata", name, None]
            code = queue.popleft() if queue else NONE if name in self.topics else UNKNOWN_TOPIC
            logs = {} if code else self.topics[name]
            topics.append({"error_code": code, "name": name, "topic_id": self.ids.get(name, bytes(16)), "partitions": [
                {"partition_index": number, "leader_id": log.leader, "leader_epoch": log.epoch,
                 "replica_nodes": list(self.nodes), "isr_nodes": list(self.nodes)} for number, log in logs.items()]})
        return {"brokers": [{"node_id": number, "host": host, "port": port}
                            for number, (host, port) in self.nodes.items()],
                "cluster_id": "fake", "controller_id": 1, "topics": topics}

    def _list_offsets(self, session, node, version, asked):
        def offset(topic, one):
            number, when = one["partition_index"], one["timestamp"]
            code, log = self._error("ListOffsets", topic, number, node, one["current_leader_epoch"])
            found = {"partition_index": number, "error_code": code}
            if code:
                return found
            stable = log.end if log.stable is None or asked["isolation_level"] == 0 else log.stable
            times = [(record.timestamp, record.offset) for _, _, data in log.entries
                     for record in kafka.records(kafka.scan(data))] if when >= 0 or when == -3 else []
            if when in (-1, -2):
                time, where = -1, stable if when == -1 else log.start
            elif when == -3:
                time, where = max(times, default=(-1, -1))
            else:
                time, where = next((one for one in times if one[0] >= when), (-1, -1))
            if version == 0:
                return found | {"old_style_offsets": [where] if where >= 0 else []}
            return found | {"offset": where, "timestamp": time, "leader_epoch": log.epoch}

        return {"topics": [{"name": topic["name"], "partitions": [offset(topic["name"].decode(), one)
                                                                  for one in topic["partitions"]]}
                           for topic in asked["topics"]]}

    def _fetch(self, session, node, version, asked):
        names = {key: name for name, key in self.ids.items()}
        room = [asked["max_bytes"]]

        def records(topic, one):
            number, offset = one["partition"], one["fetch_offset"]
            code, log = (UNKNOWN_ID, None) if topic is None else self._error(
                "Fetch", topic, number, node, one["current_leader_epoch"])
            if not code and not log.start <= offset <= log.end:
                code = OUT_OF_RANGE
            found = {"partition_index": number, "error_code": code}
            if code:
                return found | {"high_watermark": -1, "records": b""}
            stable = log.end if log.stable is None else log.stable
            stop = stable if asked["isolation_level"] else log.end
            data = log.read(offset, min(one["partition_max_bytes"], room[0]), version >= 3, stop)
            room[0] -= len(data)
            return found | {"high_watermark": log.end, "last_stable_offset": stable, "log_start_offset": log.start,
                            "records": data, "aborted_transactions": [
                                {"producer_id": producer, "first_offset": first} for producer, first in log.aborted]}

        responses = []
        for topic in asked["topics"]:
            name = names.get(topic["topic_id"]) if version >= 13 else topic["topic"].decode()
            responses.append({"topic": name, "topic_id": topic["topic_id"] or bytes(16),
                              "partitions": [records(name, one) for one in topic["partitions"]]})
        return {"responses": responses}

    def _produce(self, session, node, version, asked):
        names = {key: name for name, key in self.ids.items()}

        def append(topic, one):
            code, log = self._error("Produce", topic, one["index"], node)
            found = {"index": one["index"], "error_code": code}
            if code:
                return found | {"base_offset": -1}
            base = log.end
            batches = kafka.scan(one["records"])
            shift = base - int(batches["base_offset"][0]) if len(batches) else 0
            for number, row in enumerate(batches):
                data = (row.base_offset + shift).to_bytes(8, "big") + bytes(batches.frame(number))[8:]
                log.entries.append((row.base_offset + shift, row.last_offset + shift, data))
                log.end = row.last_offset + shift + 1
            return found | {"base_offset": base, "log_start_offset": log.start}

        responses = [{"name": name, "topic_id": topic["topic_id"] or bytes(16),
                      "partition_responses": [append(name, one) for one in topic["partition_data"]]}
                     for topic in asked["topic_data"]
                     for name in [names.get(topic["topic_id"]) if version >= 13 else topic["name"].decode()]]
        return {"responses": responses} if asked["acks"] else None

    def _init_producer_id(self, session, node, version, asked):
        return {"producer_id": 4000, "producer_epoch": 0}

    def _sasl_handshake(self, session, node, version, asked):
        offered = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        session.mechanism = asked["mechanism"].decode()
        return {"error_code": NONE if session.mechanism in offered else 33,
                "mechanisms": [{"name": one} for one in offered]}

    def _sasl_authenticate(self, session, node, version, asked):
        refused = {"error_code": 58, "error_message": "no such user, or another password"}
        if session.mechanism == "PLAIN":
            _, user, password = asked["auth_bytes"].decode().split("\0")
            session.user = user if self.users.get(user) == password else None
            return {} if session.user else refused
        from scramp import ScramException, ScramMechanism
        try:
            if session.scram is None:
                mechanism = ScramMechanism(session.mechanism)
                session.scram = mechanism.make_server(
                    lambda user: (setattr(session, "name", user), mechanism.make_auth_info(self.users[user]))[1])
                session.scram.set_client_first(asked["auth_bytes"].decode())
                return {"auth_bytes": session.scram.get_server_first().encode()}
            session.scram.set_client_final(asked["auth_bytes"].decode())
            session.user = session.name
            return {"auth_bytes": session.scram.get_server_final().encode()}
        except (ScramException, KeyError):
            return refused


class Session:
    """What a broker knows of a connection."""

    def __init__(self):
        self.user = self.name = self.mechanism = self.scram = None


def as_mapping(table, i):
    """Row i of a body as a mapping, what it holds as lists of these."""
    row = table.rows[i]
    inside = {} if table.format is None else table.format.children
    skipped = {*HEAD, *(name + end for name in table.places for end in ("_at", "_size")),
               *(name + "_count" for name in inside)}
    found = {name: row[name].item() for name in row.dtype.names if name not in skipped}
    for name in table.places:
        if name not in inside:
            place = table.bytes(i, name)
            found[name] = None if place is None else bytes(place)
        elif row[name + "_count"] < 0:
            found[name] = None
        else:
            inner = table[i:i + 1].open(name)
            found[name] = [as_mapping(inner, number) for number in range(len(inner))]
    return found


def fit(fields, version, values):
    """The part of a body that a version has."""
    known = {one.name: one for one in fields}
    return {name: [fit(known[name].fields, version, one) for one in value] if known[name].is_array and value is not None
            else value for name, value in values.items() if name not in known or version in known[name].versions}


def snake(name):
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


class FakeDriver:
    """Runs operations against a FakeCluster, one after another. `now` is its clock, which only Wait and silence move.

    most: exchanges, after which it takes the operation for one that never ends. chunk: bytes that arrive at a time.
    """

    def __init__(self, cluster, *, sasl=None, limits=Limits(), timeout=30.0, most=2000, chunk=1 << 30):
        self.cluster, self.sasl, self.limits, self.timeout, self.chunk = cluster, sasl, limits, timeout, chunk
        self.now, self.exchanges, self.most, self.largest = 0.0, 0, most, 0

    def run(self, operation):
        running = self.iterate(operation)
        while True:
            try:
                next(running)
            except StopIteration as end:
                return end.value

    def iterate(self, operation):
        step, value = operation.send, None
        while True:
            try:
                effect = step(value)
            except StopIteration as end:
                return end.value
            if isinstance(effect, Give):
                yield effect.value
                step, value = operation.send, None
                continue
            try:
                step, value = operation.send, self.perform(effect)
            except Exception as error:
                step, value = operation.throw, error

    def perform(self, effect):
        if isinstance(effect, Wait):
            assert effect.seconds >= 0
            self.now += effect.seconds
        elif isinstance(effect, Now):
            return self.now
        elif isinstance(effect, Together):
            return [self._outcome(one) for one in effect.operations]
        elif isinstance(effect, Begin):
            return effect.exchange
        elif isinstance(effect, Finish):
            return self._exchange(effect.ticket)
        elif isinstance(effect, Exchange):
            return self._exchange(effect)
        else:
            raise TypeError(effect)

    def _outcome(self, operation):
        try:
            return self.run(operation)
        except Exception as error:
            return error

    def _exchange(self, exchange):
        self.exchanges += 1
        assert self.exchanges <= self.most, "the operation does not end"
        number = next((number for number, address in self.cluster.nodes.items() if address == exchange.node[1:]), None)
        if number is None or number in self.cluster.down:
            raise ConnectionRefusedError(f"nobody listens at {exchange.node}")
        connection, session = Connection(exchange.node, "test", self.limits), Session()
        try:
            steps = greet(connection, self.sasl)
            data = next(steps)
            with contextlib.suppress(StopIteration):
                while True:
                    data = steps.send(self._answer(connection, session, number, data))
        except ConnectionResetError:
            if connection.versions or self.sasl:
                raise
            connection, session = Connection(exchange.node, "test", self.limits), Session()
            self._doubt(connection, session, number)
            if not connection.versions:
                connection, session = Connection(exchange.node, "test", self.limits), Session()
        version = connection.version_of(exchange.api, exchange.versions)
        data = connection.send(exchange.api, version, exchange.body(version), answered=exchange.answered,
                               expected=exchange.expected)
        answer = self._answer(connection, session, number, data)
        assert connection.is_idle
        return Answer(version, None) if answer is None else answer

    def _doubt(self, connection, session, number):
        try:
            steps = greet(connection, is_doubted=True)
            data = next(steps)
            with contextlib.suppress(StopIteration):
                while True:
                    data = steps.send(self._answer(connection, session, number, data))
        except ConnectionResetError:
            if not connection.has_answered:
                raise

    def _answer(self, connection, session, number, request):
        end, answers = None, []
        try:
            data = self.cluster.answer(session, number, request)
        except (HangUp, Silence) as error:
            data, end = error.data, error
        if data is None:
            return None
        for at in range(0, len(data), self.chunk):
            answers += connection.receive(data[at:at + self.chunk])
            self.largest = max(self.largest, len(connection.room()))
        if isinstance(end, Silence):
            self.now += self.timeout
            raise TimeoutError("no answer")
        if end is not None or not answers:
            raise connection.closed()
        answer, = answers
        return answer


class Server:
    """A FakeCluster behind sockets: each broker listens at 127.0.0.1 and tells clients so. context: TLS."""

    def __init__(self, cluster, context=None):
        self.cluster, self._context, self._sockets, self._threads = cluster, context, set(), []
        self.connections = 0

    def __enter__(self):
        self._listening = {number: socket.create_server(("127.0.0.1", 0)) for number in self.cluster.nodes}
        for number, listening in self._listening.items():
            self.cluster.nodes[number] = "127.0.0.1", listening.getsockname()[1]
            self._start(self._accept, number, listening)
        self.bootstrap = self.cluster.bootstrap
        return self

    def __exit__(self, *_):
        for one in self._listening.values():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def hang_up(self):
        """End all connections."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

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
                        file.read()             # until the client gives up
                        return
                    except Trickle as slow:
                        for byte in slow.data:
                            client.sendall(bytes([byte]))
                            time.sleep(0.05)
                        return
                    if data is not None:
                        client.sendall(data)
