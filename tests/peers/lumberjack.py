"""Real Lumberjack programs for tests: go-lumber's client and server, pylogbeat, lumberjack-client and
lumberjack-protocol of npm, Filebeat.

    with Receive() as server:                           # go-lumber's server, both versions
        send(server.address, events, level=3)           # ... and its client
        pylogbeat_send(server.address, [events])
        server.windows()                                # what it was given: a list of events for each window

    with Authority() as authority, Receive(authority.identity("server")) as server:
        send(server.address, events, authority=authority.file)

An address is "127.0.0.1:port"; events are mappings. A client returns when its process has ended, and raises
RuntimeError where it ended badly. Needs Go >= 1.19, npm, and openssl for TLS.
"""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from .cache import kept, twice
from .ports import free_ports

HERE = Path(__file__).with_name("lumberjack")
MODULES = ("go.mod", "go.sum", "send/main.go", "receive/main.go")
TOOLS = "github.com/elastic/go-lumber/cmd/"
FILEBEAT, FILEBEAT_SUM = "github.com/elastic/beats/v7@v7.17.15", "h1:+JegRvpHBCGFJNntBbgr5HR+eKZkfpACGtHCMNZD0vk="
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout")
GO = {"GOFLAGS": "-trimpath -buildvcs=false", "CGO_ENABLED": "0", "GOWORK": "off"}
Events = Iterable[Mapping]


def programs() -> Path:
    """The directory of send, receive, tst-send and tst-lj, built at the first call (about 20 s)."""
    def build(target: Path) -> None:
        twice("go", "build", "-o", f"{target}/", "./send", "./receive", TOOLS + "tst-send", TOOLS + "tst-lj",
              cwd=HERE, env=os.environ | GO)

    return kept("go-lumber", b"".join((HERE / name).read_bytes() for name in MODULES), build)


def scripts() -> Path:
    """The directory node_modules, filled by npm at the first call."""
    def install(target: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, target)
        twice("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=target)

    return kept("npm", (HERE / "package-lock.json").read_bytes(), install) / "node_modules"


def filebeat() -> Path:
    """Filebeat's program, built from the Go module proxy at the first call (about 2 minutes).

    `go install` refuses a module that replaces others, so it is built where the module cache has its source.
    """
    def build(target: Path) -> None:
        environment = os.environ | GO
        download = ["go", "mod", "download", "-json", FILEBEAT]
        twice(*download, cwd=target, env=environment, stdout=subprocess.DEVNULL)
        found = json.loads(subprocess.check_output(download, cwd=target, env=environment))
        if found["Sum"] != FILEBEAT_SUM:
            raise RuntimeError(f"{FILEBEAT} is {found['Sum']}, not {FILEBEAT_SUM}")
        twice("go", "build", "-ldflags=-s -w", "-o", target / "filebeat", "./filebeat", cwd=found["Dir"],
              env=environment)

    return kept("filebeat", (FILEBEAT + FILEBEAT_SUM).encode(), build) / "filebeat"


class Program:
    """A process of its own directory, `home`, that is ended with the block; `output` and `log` are the files of what it
    says."""

    def __init__(self, command: Sequence[object]):
        self.command = [str(part) for part in command]

    def __enter__(self):
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-lumberjack-")
        self.home = Path(self._home.name)
        self.output, self.log = self.home / "output", self.home / "log"
        self.prepare()
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=log,
                                            cwd=self.home)
        try:
            self.await_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def prepare(self) -> None:
        """What is done in the program's directory, `home`, before it starts."""

    def await_ready(self) -> None:
        """... and what is waited for when it has."""

    def __exit__(self, *_) -> None:
        self.end()
        self._home.cleanup()

    def end(self) -> None:
        """Ask it to end, and see to it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        self.process.wait(10)

    def await_true(self, condition: Callable[[], bool], timeout: float = 60, poll: float = 0.01) -> None:
        """Wait until the condition holds. Raises RuntimeError where the process ends before, or the time."""
        end = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.command[0]} has not done it:\n{self.log.read_text(errors='replace')}")
            time.sleep(poll)


class Receive(Program):
    """go-lumber's server, with versions 1 and 2, on `address`.

    identity: PEM file of key and certificate; it speaks TLS. authority: PEM file; clients must have a certificate from
    it. address: a free port of 127.0.0.1, unless given. hold: seconds that a window waits for its acknowledgement;
    keepalive: seconds between the zeros sent meanwhile.
    """

    def __init__(self, identity: Path | None = None, authority: Path | None = None, *, address: str | None = None,
                 hold: float = 0, keepalive: float = 3):
        options = {"address": address, "identity": identity, "authority": authority, "hold": f"{hold}s",
                   "keepalive": f"{keepalive}s"}
        super().__init__([programs() / "receive", *flags(options)])

    def await_ready(self) -> None:
        self.await_true(lambda: "\n" in self.output.read_text(), 30)
        self.address = self.output.read_text().split("\n", 1)[0]

    def windows(self) -> list[list]:
        """The events of each window that has come, in order. Those of different connections may alternate."""
        lines = self.output.read_text().split("\n")
        return [json.loads(line) for line in lines[1:-1]]  # what follows the last line break is not yet whole

    def events(self) -> list:
        return [event for window in self.windows() for event in window]


class TstLj(Program):
    """go-lumber's own test server `tst-lj`, with versions 1 and 2. It tells windows and how many events they hold."""

    def __init__(self):
        port, = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        super().__init__([programs() / "tst-lj", "-bind", self.address, "-v1", "-v2"])

    def await_ready(self) -> None:
        self.await_true(lambda: "tcp server up" in self.log.read_text(), 30)

    def windows(self) -> list[int]:
        """The number of events of each window that has come."""
        words = (line.split() for line in self.log.read_text().splitlines() if "Received batch of" in line)
        return [int(line[line.index("of") + 1]) for line in words]


class TstSend(Program):
    """go-lumber's own test client `tst-send`: the same events of random text, for ever."""

    def __init__(self, address: str, *, batch: int = 2048, level: int = 3, pipeline: int = 0):
        port, = free_ports(1)
        self._figures = f"http://127.0.0.1:{port}/debug/vars"
        super().__init__([programs() / "tst-send", "-c", address, "-batch", batch, "-compress", level,
                          "-pipeline", pipeline, "-httpprof", f"127.0.0.1:{port}"])

    def acknowledged(self) -> int:
        """The number of events that it has seen acknowledged."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError), opener.open(self._figures, timeout=10) as answer:
            return json.load(answer)["ACKed"]
        return 0  # it does not yet listen


class Authority:
    """A certificate authority of the block: `file` is its PEM file."""

    def __enter__(self) -> "Authority":
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-authority-")
        self.file = Path(self._home.name, "authority.pem")
        self._openssl("req", "-x509", *KEY, "authority.key", "-out", self.file, "-subj", "/CN=a test authority",
                      "-addext", "keyUsage=critical,keyCertSign")
        return self

    def __exit__(self, *_) -> None:
        self._home.cleanup()

    def identity(self, name: str) -> Path:
        """A PEM file of a key and its certificate from this authority, of a server on 127.0.0.1 or a client."""
        made = Path(self._home.name, f"{name}.pem")
        made.with_suffix(".ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n")
        self._openssl("req", *KEY, f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", self.file, "-CAkey", "authority.key",
                      "-CAcreateserial", "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        made.write_bytes(b"".join(made.with_suffix(ending).read_bytes() for ending in (".key", ".crt")))
        return made

    def _openssl(self, *arguments: object) -> None:
        run(["openssl", *arguments], cwd=self._home.name)


def flags(options: Mapping[str, object]) -> list[str]:
    """Options of a Go program; None leaves one out."""
    return [f"-{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in options.items() if value is not None]


def lines(events: Events) -> bytes:
    return b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)


def run(command: Sequence[object], given: bytes = b"", timeout: float = 120, **options) -> str:
    done = subprocess.run([str(part) for part in command], input=given, capture_output=True, timeout=timeout,
                          **options)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def send(address: str, events: Events | bytes, *, batch: int = 2048, level: int = 0, pipeline: int = 0,
         retry: bool = False, authority: Path | None = None, identity: Path | None = None,
         timeout: float = 120) -> dict[str, int]:
    """Send with go-lumber's client: version 2, `level` of zlib, `pipeline` windows in flight (0: one, synchronously).

    Events may be bytes, as JSON lines. With `retry` it sends on a new connection what was not acknowledged. Returns the
    numbers of `events`, of `connections` and of `windows` sent, those sent again too. authority: speak TLS.
    """
    options = {"to": address, "batch": batch, "level": level, "pipeline": pipeline, "retry": retry,
               "authority": authority, "identity": identity}
    given = events if isinstance(events, bytes) else lines(events)
    return json.loads(run([programs() / "send", *flags(options)], given, timeout))


def pylogbeat_send(address: str, windows: Iterable[Sequence[Mapping | bytes]], *, authority: Path | None = None,
                   identity: Path | None = None, timeout: float = 10) -> None:
    """Send windows on one connection with pylogbeat: version 2, always compressed; its sequence numbers go on."""
    from pylogbeat import PyLogBeatClient

    host, port = address.split(":")
    with PyLogBeatClient(host, int(port), timeout=timeout, ssl_enable=authority is not None,
                         ca_certs=authority and str(authority), keyfile=identity, certfile=identity) as client:
        for window in windows:
            client.send(window)


def lumberjack_client_send(address: str, events: Sequence[Mapping], *, first: int = 1,
                           authority: Path | None = None) -> None:
    """Send with npm's lumberjack-client: version 2, compressed; `first` events in a window, each other in its own."""
    _node("lumberjack-client.js", address, events, authority, tls=authority is not None, first=first)


def lumberjack_protocol_send(address: str, events: Sequence[Mapping], authority: Path, *, window: int = 1000,
                             acknowledged: int | None = None) -> None:
    """Send with npm's lumberjack-protocol: version 1, TLS, uncompressed; one window announced for the connection.

    acknowledged: wait until this sequence number has come back.
    """
    _node("lumberjack-protocol.js", address, events, authority, windowSize=window, acknowledged=acknowledged)


def _node(script: str, address: str, events: Sequence[Mapping], authority: Path | None, **options) -> None:
    host, port = address.split(":")
    options |= {"host": host, "port": int(port), "ca": authority and authority.read_text()}
    given = {name: value for name, value in options.items() if value is not None}
    run(["node", "--no-deprecation", HERE / script, json.dumps(given)], lines(events), 30,
        env=os.environ | {"NODE_PATH": str(scripts())})


class Filebeat(Program):
    """Filebeat, which ships the lines of a file until the block ends. Each becomes a JSON event with its `message`."""

    def __init__(self, address: str, file: Path, *, level: int = 3, batch: int = 2048, pipeline: int = 2,
                 authority: Path | None = None, identity: Path | None = None):
        self._settings = {
            "name": "shipper",
            "filebeat.inputs": [{"type": "log", "paths": [str(file)], "scan_frequency": "1s", "backoff": "1s"}],
            "processors": [{"drop_fields": {"fields": ["agent.hostname"], "ignore_missing": True}}],
            "output.logstash": {
                "hosts": [address], "compression_level": level, "bulk_max_size": batch, "pipelining": pipeline,
                "backoff.init": "100ms", "backoff.max": "1s", "ttl": "0s",
                **({"ssl.certificate_authorities": [str(authority)]} if authority else {}),
                **({"ssl.certificate": str(identity), "ssl.key": str(identity)} if identity else {}),
            },
            "logging.to_stderr": True, "logging.level": "info",
        }
        super().__init__([filebeat(), "--strict.perms=false", "--path.home", ".", "-c", "filebeat.yml"])

    def prepare(self) -> None:
        (self.home / "filebeat.yml").write_text(json.dumps(self._settings))  # JSON is YAML
