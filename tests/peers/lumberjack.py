"""Real Lumberjack programs for tests.

They are go-lumber's client and server, pylogbeat, lumberjack-client and lumberjack-protocol of npm,
and Filebeat.

    with Receive() as server:                           # go-lumber's server, both versions
        send(server.address, events, level=3)           # go-lumber's client
        send_with_pylogbeat(server.address, [events])
        server.windows()                                # a list of events for each window

    with Authority() as authority, Receive(authority.identity("server")) as server:
        send(server.address, events, authority=authority.file)

An address is "127.0.0.1:port". Events are mappings. A client returns when its process has ended. It
raises RuntimeError if the process failed. Needs Go >= 1.19, npm, and openssl for TLS.
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

from .cache import make_once, run_with_retry
from .ports import find_free_ports

HERE = Path(__file__).with_name("lumberjack")
MODULES = ("go.mod", "go.sum", "send/main.go", "receive/main.go")
TOOLS = "github.com/elastic/go-lumber/cmd/"
FILEBEAT = "github.com/elastic/beats/v7@v7.17.15"
FILEBEAT_SUM = "h1:+JegRvpHBCGFJNntBbgr5HR+eKZkfpACGtHCMNZD0vk="
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout")
GO = {
    "GOFLAGS": "-trimpath -buildvcs=false",
    "CGO_ENABLED": "0",
    "GOWORK": "off",
    "GOGC": "400",  # the compiler collects garbage less often
}
# For large programs whose speed does not matter. Without optimization they take less to compile.
UNOPTIMIZED = ("-gcflags=all=-N -l", "-ldflags=-s -w")
Events = Iterable[Mapping]


def build_programs() -> Path:
    """The directory of send, receive, tst-send and tst-lj. The first call builds them (20 s)."""

    def build(target: Path) -> None:
        run_with_retry(
            "go",
            "build",
            "-o",
            f"{target}/",
            "./send",
            "./receive",
            TOOLS + "tst-send",
            TOOLS + "tst-lj",
            cwd=HERE,
            env=os.environ | GO,
        )

    recipe = b"".join((HERE / name).read_bytes() for name in MODULES)
    return make_once("go-lumber", recipe, build)


def install_scripts() -> Path:
    """The directory node_modules. npm fills it at the first call."""

    def install(target: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, target)
        run_with_retry("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=target)

    return make_once("npm", (HERE / "package-lock.json").read_bytes(), install) / "node_modules"


def build_filebeat() -> Path:
    """The path of Filebeat. The first call builds it from the Go module proxy (about 2 minutes).

    `go install` refuses modules that replace others. So Filebeat is built in the module cache.
    """

    def build(target: Path) -> None:
        environment = os.environ | GO
        download = ["go", "mod", "download", "-json", FILEBEAT]
        run_with_retry(*download, cwd=target, env=environment, stdout=subprocess.DEVNULL)
        module_info = json.loads(subprocess.check_output(download, cwd=target, env=environment))
        if module_info["Sum"] != FILEBEAT_SUM:
            raise RuntimeError(f"{FILEBEAT} is {module_info['Sum']}, not {FILEBEAT_SUM}")
        run_with_retry(
            "go",
            "build",
            *UNOPTIMIZED,
            "-o",
            target / "filebeat",
            "./filebeat",
            cwd=module_info["Dir"],
            env=environment,
        )

    return make_once("filebeat", (FILEBEAT + FILEBEAT_SUM).encode(), build) / "filebeat"


class Program:
    """A process with its own directory `home`. It ends with the block.

    `output` and `log` are the files of its standard output and standard error.
    """

    def __init__(self, command: Sequence[object]):
        self.command = [str(part) for part in command]

    def __enter__(self):
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-lumberjack-")
        self.home = Path(self._home.name)
        self.output, self.log = self.home / "output", self.home / "log"
        self.prepare()
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=self.home
            )
        try:
            self.await_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def prepare(self) -> None:
        """Prepare the directory `home` before the program starts."""

    def await_ready(self) -> None:
        """Wait until the started program is ready."""

    def __exit__(self, *_) -> None:
        self.end()
        self._home.cleanup()

    def end(self) -> None:
        """Stop the process, and kill it if it hangs."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process, like kill -9."""
        self.process.kill()
        self.process.wait(10)

    def await_true(
        self, condition: Callable[[], bool], timeout: float = 60, poll: float = 0.01
    ) -> None:
        """Wait until the condition holds.

        Raises RuntimeError if the process ends or the time is over before that.
        """
        end = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                log = self.log.read_text(errors="replace")
                raise RuntimeError(f"{self.command[0]} did not get there:\n{log}")
            time.sleep(poll)


class Receive(Program):
    """go-lumber's server, with versions 1 and 2, on `address`.

    identity: a PEM file of key and certificate; the server uses TLS. authority: a PEM file; clients
    must have a certificate from it. address: by default a free port of 127.0.0.1. hold: seconds
    before the server acknowledges a window. keepalive: seconds between the acks of 0 that it sends
    meanwhile.
    """

    def __init__(
        self,
        identity: Path | None = None,
        authority: Path | None = None,
        *,
        address: str | None = None,
        hold: float = 0,
        keepalive: float = 3,
    ):
        options = {
            "address": address,
            "identity": identity,
            "authority": authority,
            "hold": f"{hold}s",
            "keepalive": f"{keepalive}s",
        }
        super().__init__([build_programs() / "receive", *format_flags(options)])

    def await_ready(self) -> None:
        self.await_true(lambda: "\n" in self.output.read_text(), 30)
        self.address = self.output.read_text().split("\n", 1)[0]

    def windows(self) -> list[list]:
        """The events of each received window, in order of arrival.

        Windows of different connections may alternate.
        """
        lines = self.output.read_text().split("\n")
        # The first line is the address. The text after the last line break is incomplete.
        return [json.loads(line) for line in lines[1:-1]]

    def events(self) -> list:
        return [event for window in self.windows() for event in window]


class TstLj(Program):
    """go-lumber's test server `tst-lj`, with versions 1 and 2.

    It reports each window and its number of events.
    """

    def __init__(self):
        (port,) = find_free_ports(1)
        self.address = f"127.0.0.1:{port}"
        super().__init__([build_programs() / "tst-lj", "-bind", self.address, "-v1", "-v2"])

    def await_ready(self) -> None:
        self.await_true(lambda: "tcp server up" in self.log.read_text(), 30)

    def windows(self) -> list[int]:
        """The number of events of each received window."""
        words = (
            line.split()
            for line in self.log.read_text().splitlines()
            if "Received batch of" in line
        )
        return [int(line[line.index("of") + 1]) for line in words]


class TstSend(Program):
    """go-lumber's test client `tst-send`. It sends the same events of random text forever."""

    def __init__(self, address: str, *, batch: int = 2048, level: int = 3, pipeline: int = 0):
        (port,) = find_free_ports(1)
        self._figures = f"http://127.0.0.1:{port}/debug/vars"
        super().__init__(
            [
                build_programs() / "tst-send",
                "-c",
                address,
                "-batch",
                batch,
                "-compress",
                level,
                "-pipeline",
                pipeline,
                "-httpprof",
                f"127.0.0.1:{port}",
            ]
        )

    def acknowledged(self) -> int:
        """The number of events that the server has acknowledged."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError), opener.open(self._figures, timeout=10) as answer:
            return json.load(answer)["ACKed"]
        return 0  # the program does not listen yet


class Authority:
    """A certificate authority for the block. `file` is its certificate, a PEM file."""

    def __enter__(self) -> "Authority":
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-authority-")
        self.file = Path(self._home.name, "authority.pem")
        self._openssl(
            "req",
            "-x509",
            *KEY,
            "authority.key",
            "-out",
            self.file,
            "-subj",
            "/CN=a test authority",
            "-addext",
            "keyUsage=critical,keyCertSign",
        )
        return self

    def __exit__(self, *_) -> None:
        self._home.cleanup()

    def identity(self, name: str) -> Path:
        """Make a key and a certificate for a server on 127.0.0.1 or a client.

        Returns the PEM file that holds both.
        """
        file = Path(self._home.name, f"{name}.pem")
        file.with_suffix(".ext").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nauthorityKeyIdentifier=keyid\n"
        )
        self._openssl("req", *KEY, f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            self.file,
            "-CAkey",
            "authority.key",
            "-CAcreateserial",
            "-extfile",
            f"{name}.ext",
            "-out",
            f"{name}.crt",
        )
        file.write_bytes(
            b"".join(file.with_suffix(ending).read_bytes() for ending in (".key", ".crt"))
        )
        return file

    def _openssl(self, *arguments: object) -> None:
        run(["openssl", *arguments], cwd=self._home.name)


def format_flags(options: Mapping[str, object]) -> list[str]:
    """Options of a Go program. An option whose value is None is omitted."""

    def flag(name: str, value: object) -> str:
        return f"-{name}={str(value).lower() if isinstance(value, bool) else value}"

    return [flag(name, value) for name, value in options.items() if value is not None]


def format_lines(events: Events) -> bytes:
    return b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)


def run(command: Sequence[object], data: bytes = b"", timeout: float = 120, **options) -> str:
    completed = subprocess.run(
        [str(part) for part in command],
        input=data,
        capture_output=True,
        timeout=timeout,
        **options,
    )
    if completed.returncode:
        error = completed.stderr.decode(errors="replace")
        raise RuntimeError(f"{command[0]} ended with {completed.returncode}:\n{error}")
    return completed.stdout.decode()


def send(
    address: str,
    events: Events | bytes,
    *,
    batch: int = 2048,
    level: int = 0,
    pipeline: int = 0,
    retry: bool = False,
    authority: Path | None = None,
    identity: Path | None = None,
    timeout: float = 120,
) -> dict[str, int]:
    """Send events with go-lumber's client, in version 2. Return the client's counts.

    The counts are the numbers of `events`, `connections` and `windows`, including windows sent
    again.

    events: mappings, or bytes of JSON lines. level: of zlib. pipeline: windows in flight; 0 sends
    one window at a time. retry: send unacknowledged events again on a new connection. authority:
    use TLS.
    """
    options = {
        "to": address,
        "batch": batch,
        "level": level,
        "pipeline": pipeline,
        "retry": retry,
        "authority": authority,
        "identity": identity,
    }
    data = events if isinstance(events, bytes) else format_lines(events)
    return json.loads(run([build_programs() / "send", *format_flags(options)], data, timeout))


def send_with_pylogbeat(
    address: str,
    windows: Iterable[Sequence[Mapping | bytes]],
    *,
    authority: Path | None = None,
    identity: Path | None = None,
    timeout: float = 10,
) -> None:
    """Send windows on one connection with pylogbeat: version 2, always compressed.

    The sequence numbers continue from window to window.
    """
    from pylogbeat import PyLogBeatClient

    host, port = address.split(":")
    with PyLogBeatClient(
        host,
        int(port),
        timeout=timeout,
        ssl_enable=authority is not None,
        ca_certs=authority and str(authority),
        keyfile=identity,
        certfile=identity,
    ) as client:
        for window in windows:
            client.send(window)


def send_with_lumberjack_client(
    address: str, events: Sequence[Mapping], *, first: int = 1, authority: Path | None = None
) -> None:
    """Send events with npm's lumberjack-client: version 2, compressed.

    The first window has `first` events. Every other event has its own window.
    """
    _run_node(
        "lumberjack-client.js", address, events, authority, tls=authority is not None, first=first
    )


def send_with_lumberjack_protocol(
    address: str,
    events: Sequence[Mapping],
    authority: Path,
    *,
    window: int = 1000,
    acknowledged: int | None = None,
) -> None:
    """Send events with npm's lumberjack-protocol: version 1, TLS, uncompressed.

    The client announces one window for the whole connection. acknowledged: wait for the ack of this
    sequence number.
    """
    _run_node(
        "lumberjack-protocol.js",
        address,
        events,
        authority,
        windowSize=window,
        acknowledged=acknowledged,
    )


def _run_node(
    script: str, address: str, events: Sequence[Mapping], authority: Path | None, **options
) -> None:
    host, port = address.split(":")
    options |= {"host": host, "port": int(port), "ca": authority and authority.read_text()}
    arguments = {name: value for name, value in options.items() if value is not None}
    run(
        ["node", "--no-deprecation", HERE / script, json.dumps(arguments)],
        format_lines(events),
        30,
        env=os.environ | {"NODE_PATH": str(install_scripts())},
    )


class Filebeat(Program):
    """Filebeat, which ships the lines of a file until the block ends.

    Each line becomes a JSON event with the line as its `message`.
    """

    def __init__(
        self,
        address: str,
        file: Path,
        *,
        level: int = 3,
        batch: int = 2048,
        pipeline: int = 2,
        authority: Path | None = None,
        identity: Path | None = None,
    ):
        tls = {}
        if authority:
            tls |= {"ssl.certificate_authorities": [str(authority)]}
        if identity:
            tls |= {"ssl.certificate": str(identity), "ssl.key": str(identity)}
        self._settings = {
            "name": "shipper",
            "filebeat.inputs": [
                {"type": "log", "paths": [str(file)], "scan_frequency": "1s", "backoff": "1s"}
            ],
            "processors": [{"drop_fields": {"fields": ["agent.hostname"], "ignore_missing": True}}],
            "output.logstash": {
                "hosts": [address],
                "compression_level": level,
                "bulk_max_size": batch,
                "pipelining": pipeline,
                "backoff.init": "100ms",
                "backoff.max": "1s",
                "ttl": "0s",
                **tls,
            },
            "logging.to_stderr": True,
            "logging.level": "info",
        }
        super().__init__(
            [build_filebeat(), "--strict.perms=false", "--path.home", ".", "-c", "filebeat.yml"]
        )

    def prepare(self) -> None:
        (self.home / "filebeat.yml").write_text(json.dumps(self._settings))  # JSON is YAML
