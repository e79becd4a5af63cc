"""A real Apache Kafka broker for tests: KRaft nodes on 127.0.0.1.

    with Broker() as broker:                # line="3.9", or "4"
        broker.create_topic("orders", {"segment.bytes": 65536})
        ...                                 # clients connect to broker.address
        broker.stop()                       # a clean stop trims the preallocated indexes
        broker.directory("orders")          # the partition directory; deleted with the block

    with Broker(listeners=SECURE) as broker:
        broker.addresses["SASL_SSL"]        # also PLAINTEXT, SSL, SASL_PLAINTEXT
        broker.authority                    # the CA's certificate file
        # USER and PASSWORD log in, with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512

cluster.py starts several brokers. A "line" is a release line of Kafka; kafka-LINE/pom.xml names its
jars. The line "4.3" has LocalTieredStorage too, for tiered_storage.py.

Needs a Java 17 JDK, mvn and openssl. The jars, the compiled programs and the archives of classes
are in the cache of cache.py, under names that depend on pom.xml, on the source and on Java.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .cache import make_once
from .certificates import STORE_PASSWORD, make_certificates
from .ports import find_free_ports

# 3.9 is the last line that serves every version of the protocol guide. 4 has the newest versions.
LINES = ("3.9", "4")
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
ARCHIVE = "classes.jsa"
QUIET = "-Xlog:disable"  # without it, Java prints the classes that it cannot archive
USER = "alice"
PASSWORD = "alice's secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# Record times in the tests are in the past, so nothing is deleted by age. The tests must not wait:
# the cleaner and the coordinators run at once, and a killed broker soon counts as dead.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "num.partitions": 1,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 250,
    "log.retention.ms": -1,
    "log.initial.task.delay.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
    "log.cleaner.io.buffer.size": 1 << 20,
}
LOGGING = """log4j.rootLogger=WARN, out
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
"""


class Listener(NamedTuple):
    """A listener's security protocol and advertised address.

    Clients are given `advertised`, for example a proxy's address. None advertises the listener's
    own address.
    """

    protocol: str
    advertised: str | None = None


SECURE = {protocol: Listener(protocol) for protocol in ("SASL_PLAINTEXT", "SSL", "SASL_SSL")}


def find_java() -> str:
    """The java command: the one in JAVA_HOME, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not command:
        raise RuntimeError("no java: set JAVA_HOME or PATH")
    return command


@cache
def read_java_version(java: str) -> str:
    """Return the version of a java command. Another version needs other archives.

    The text does not depend on the command's options, as that of `-version` does.
    """
    command = [java, "-Xinternalversion"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def fetch_jars(line: str = "3.9") -> Path:
    """The directory of a line's jars. Maven fills it at the first call (about 50 MB)."""
    pom = Path(__file__).with_name(f"kafka-{line}") / "pom.xml"
    folder = Path(os.environ.get("WIRESCAN_PEERS_CACHE", "~/.cache/wirescan/peers")).expanduser()
    target = folder / f"kafka-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        libraries = Path(scratch, "jars")
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={libraries}",
        ]
        # A registry that failed once often answers the second time.
        if subprocess.run(command).returncode:
            subprocess.run(command, check=True)
        try:
            libraries.rename(target)
        except OSError:
            # Another process may have been faster. Its copy is as good.
            if not target.is_dir():
                raise
    return target


def find_classpath(line: str = "3.9") -> str:
    """Kafka's class path for `java -cp`: the broker, the clients and their codecs."""
    return str(fetch_jars(line) / "*")


def list_class_options(line: str) -> list[str]:
    """Return the options of Java that load a line's classes from an archive.

    The first call runs a broker, which writes the archive when it stops. With the archive a broker
    starts in 0.6 of the time.
    """

    def write_classes(folder: Path) -> None:
        options = [f"-XX:ArchiveClassesAtExit={folder / ARCHIVE}", QUIET]
        with Broker(line=line, java_options=options):
            pass
        assert (folder / ARCHIVE).exists(), "Java has written no archive of classes"

    recipe = f"{read_java_version(find_java())} {fetch_jars(line).name}".encode()
    archive = make_once(f"kafka-classes-{line}", recipe, write_classes) / ARCHIVE
    return [f"-XX:SharedArchiveFile={archive}", QUIET]


def compile_java(name: str, source: str, line: str = "3.9") -> Path:
    """Compile NAME.java with a line's jars. Return the directory of the classes.

    The classes are cached.
    """

    def compile_into(target: Path) -> None:
        file = target / f"{name}.java"
        file.write_text(source)
        javac = Path(find_java()).with_name("javac")
        command = [
            str(javac),
            "--release",
            "17",
            "-nowarn",
            "-cp",
            find_classpath(line),
            "-d",
            str(target),
            str(file),
        ]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if completed.returncode:
            raise RuntimeError(
                f"javac ended with {completed.returncode}:\n{completed.stdout}{completed.stderr}"
            )

    return make_once(name, f"{fetch_jars(line).name}\n{source}".encode(), compile_into)


def run(main: str | Path, *arguments: object, line: str = "3.9", timeout: float = 120) -> str:
    """Run a Java program and return what it prints.

    `main` is a class on the class path, or the path of a single source file.
    """
    if isinstance(main, Path):
        return run_source(main.stem, main.read_text(), *arguments, line=line, timeout=timeout)
    options = list_class_options(line)
    return run_class(main, find_classpath(line), *arguments, options=options, timeout=timeout)


def run_source(
    name: str, source: str, *arguments: object, line: str = "3.9", timeout: float = 120
) -> str:
    """Run a Java program of one source file and return what it prints."""
    classes = compile_java(name, source, line)
    return run_class(
        name, f"{classes}{os.pathsep}{find_classpath(line)}", *arguments, timeout=timeout
    )


def run_class(
    main: str,
    class_path: str,
    *arguments: object,
    options: Sequence[str] = (),
    timeout: float = 120,
) -> str:
    """Run a Java class with a class path and return what it prints. options: those of Java."""
    command = [find_java(), *JVM, *options, "-cp", class_path, main, *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if completed.returncode:
        raise RuntimeError(
            f"{main} ended with {completed.returncode}:\n{completed.stdout}{completed.stderr}"
        )
    return completed.stdout


def dump(*segments: os.PathLike | str, options: tuple[str, ...] = ("--print-data-log",)) -> str:
    """Return the output of kafka.tools.DumpLogSegments for segment, index or snapshot files.

    The tool is that of 3.9, which reads the files of both lines.
    """
    return run("kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, segments)))


def make_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")


class Node:
    """A Kafka process.

    `format` makes its directory. Then `data` is its log directory and `log` the file of its output.

    java_options: None, the default, is `list_class_options` of the line.
    """

    def __init__(
        self,
        properties: dict[str, object],
        line: str,
        timeout: float = 60,
        java_options: Sequence[str] | None = None,
    ):
        self.properties = properties
        self.java_options = list_class_options(line) if java_options is None else java_options
        self.line = line
        self.timeout = timeout
        self.process: subprocess.Popen | None = None

    def format(self, home: Path, cluster: str, own: dict[str, object]) -> None:
        """Make the node's directory, with the users for SCRAM.

        own: properties of this node alone.
        """
        home.mkdir(exist_ok=True)
        self.data = home / "data"
        self.log = home / "broker.log"
        file = home / "server.properties"
        logging = home / "log4j.properties"
        properties = self.properties | own | {"log.dirs": self.data}
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        logging.write_text(LOGGING)
        users = [
            word
            for mechanism in MECHANISMS[1:]
            for word in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
        ]
        classes = find_classpath(self.line)
        arguments = ["format", "-t", cluster, "-c", file, *users]
        run_class("kafka.tools.StorageTool", classes, *arguments, options=self.java_options)
        self._command = [
            find_java(),
            *JVM,
            *self.java_options,
            f"-Dlog4j.configuration=file:{logging}",
            "-cp",
            classes,
            "kafka.Kafka",
            str(file),
        ]

    def launch(self) -> None:
        """Start the process. `await_started` waits for it."""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

    def await_started(self) -> None:
        until = time.monotonic() + self.timeout
        while "Kafka Server started" not in self.log.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > until:
                end = self.log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"the broker did not start:\n{end}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the process cleanly, and kill it if it hangs. More calls do nothing."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process with SIGKILL, like a crash."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Stop the process if it still runs, and start it on the same data.

        The leader epoch of its partitions goes up.
        """
        self.stop()
        self.launch()
        self.await_started()

    def directory(self, topic: str, partition: int = 0) -> Path:
        return self.data / f"{topic}-{partition}"


class Broker(Node):
    """A running broker. `data` is its log directory.

    `addresses` has a host:port for each listener; `address` is the one of PLAINTEXT, which every
    broker has. Listeners with SSL present a certificate of the authority whose certificate is the
    PEM file `authority`. Listeners with SASL require USER and PASSWORD.
    """

    def __init__(
        self,
        properties: dict[str, object] | None = None,
        timeout: float = 60,
        *,
        line: str = "3.9",
        listeners: dict[str, Listener] | None = None,
        java_options: Sequence[str] | None = None,
    ):
        super().__init__(PROPERTIES | (properties or {}), line, timeout, java_options)
        self.listeners = {"PLAINTEXT": Listener("PLAINTEXT")} | (listeners or {})

    def __enter__(self) -> "Broker":
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-broker-")
        try:
            self._start(Path(self._home.name))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.stop()
        self._home.cleanup()

    def _start(self, home: Path) -> None:
        (controller,) = find_free_ports(1)
        self.format(
            home,
            make_cluster_id(),
            {"controller.quorum.voters": f"1@127.0.0.1:{controller}"},
            [f"CONTROLLER://127.0.0.1:{controller}"],
        )
        self.launch()
        self.await_started()

    def format(
        self, home: Path, cluster: str, own: dict[str, object], more_listeners: Sequence[str] = ()
    ) -> None:
        home.mkdir(exist_ok=True)
        ports = find_free_ports(len(self.listeners))
        self.addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(self.listeners, ports, strict=True)
        }
        self.address = self.addresses["PLAINTEXT"]
        self.authority = home / "authority.pem"
        own = own | make_listener_properties(self.listeners, self.addresses, home)
        own["listeners"] = ",".join([own["listeners"], *more_listeners])
        super().format(home, cluster, own)

    def create_topic(
        self,
        name: str,
        config: dict[str, object] | None = None,
        *,
        partitions: int = 1,
        replicas: int = 1,
    ) -> None:
        create_topic(self.address, self.line, name, config or {}, partitions, replicas)


def create_topic(
    address: str, line: str, name: str, config: dict[str, object], partitions: int, replicas: int
) -> None:
    """Create a topic and wait for it.

    From 4.0 on, segment.bytes must be at least 1 MiB. An internal setting allows smaller segments.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    settings = {key: str(value) for key, value in config.items()}
    if line != "3.9" and "segment.bytes" in settings:
        settings["internal.segment.bytes"] = settings.pop("segment.bytes")
    admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(30)


def make_listener_properties(
    listeners: dict[str, Listener], addresses: dict[str, str], home: Path
) -> dict[str, str]:
    """The lines of server.properties for the listeners, as a dict.

    Makes the certificates that the lines name in the directory `home`.
    """
    protocols = {"CONTROLLER": "PLAINTEXT"} | {
        name: listener.protocol for name, listener in listeners.items()
    }
    settings = {
        "listeners": ",".join(f"{name}://{addresses[name]}" for name in listeners),
        "advertised.listeners": ",".join(
            f"{name}://{listener.advertised or addresses[name]}"
            for name, listener in listeners.items()
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    module = "org.apache.kafka.common.security"
    plain = f'{module}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = f"{module}.scram.ScramLoginModule required;"
    for name, listener in listeners.items():
        if "SASL" in listener.protocol:
            for mechanism in MECHANISMS:
                login = plain if mechanism == "PLAIN" else scram
                prefix = f"listener.name.{name.lower()}.{mechanism.lower()}"
                settings[f"{prefix}.sasl.jaas.config"] = login
    if any("SSL" in protocol for protocol in protocols.values()):
        settings |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": make_certificates(home),
            "ssl.keystore.password": STORE_PASSWORD,
        }
    return settings
