"""A real Apache Kafka broker for tests: one KRaft node on 127.0.0.1, from the jars that pom.xml names.

    with Broker() as broker:
        broker.create_topic("orders", {"segment.bytes": 65536})
        ...                                 # clients connect to broker.address
        broker.stop()                       # a clean stop trims the preallocated indexes
        broker.directory("orders")          # the partition directory, gone when the block ends

Needs a Java 17 JDK and mvn. The jars are kept outside the repository, in WIRESCAN_PEERS_CACHE
(default ~/.cache/wirescan/peers), under a name that follows from pom.xml.
"""
import base64
import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]

# Record times in the tests lie in the past and the tests must not wait: nothing is deleted by age, the
# cleaner and the coordinators run at once.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "num.partitions": 1,
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


def java() -> str:
    """The java command: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found:
        raise RuntimeError("no java: set JAVA_HOME or PATH")
    return found


def jars() -> Path:
    """The directory of the broker's jars, filled by Maven at the first call (about 50 MB)."""
    cache = Path(os.environ.get("WIRESCAN_PEERS_CACHE", "~/.cache/wirescan/peers")).expanduser()
    target = cache / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        libraries = Path(scratch, "jars")
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies",
                   "-DincludeScope=runtime", f"-DoutputDirectory={libraries}"]
        if subprocess.run(command).returncode:
            subprocess.run(command, check=True)  # a registry that failed once often answers the second time
        try:
            libraries.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was first; its copy is as good
                raise
    return target


def classpath() -> str:
    """Kafka's class path, for `java -cp`: broker, clients and their codecs."""
    return str(jars() / "*")


def run(main: str, *arguments: object, timeout: float = 120) -> str:
    """What a Java program prints. `main` is a class on the class path, or a single source file."""
    command = [java(), *JVM, "-cp", classpath(), str(main), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def dump(*segments: os.PathLike | str, options: tuple[str, ...] = ("--print-data-log",)) -> str:
    """What kafka.tools.DumpLogSegments prints about segment or index files."""
    return run("kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, segments)))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Broker:
    """A running broker. `address` is its host:port, `data` its log directory."""

    def __init__(self, properties: dict[str, object] | None = None, timeout: float = 60):
        self.properties = PROPERTIES | (properties or {})
        self.timeout = timeout
        self.process: subprocess.Popen | None = None

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
        self.data = home / "data"
        self.log = home / "broker.log"
        client, controller = free_ports(2)
        self.address = f"127.0.0.1:{client}"
        own = {
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": self.data,
        }
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in (self.properties | own).items()))
        logging = home / "log4j.properties"
        logging.write_text(LOGGING)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")
        run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties)
        self._command = [java(), *JVM, f"-Dlog4j.configuration=file:{logging}", "-cp", classpath(),
                         "kafka.Kafka", str(properties)]
        self._launch()

    def _launch(self) -> None:
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL)
        self._await_started()

    def _await_started(self) -> None:
        until = time.monotonic() + self.timeout
        while "Kafka Server started" not in self.log.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > until:
                end = self.log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"the broker did not start:\n{end}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the broker by its own process id; cleanly, unless it hangs. May be called again."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """A clean stop and a start on the same data; the leader epoch of every partition goes up."""
        self.stop()
        self._launch()

    def create_topic(self, name: str, config: dict[str, object] | None = None) -> None:
        """A topic of one partition."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.address})
        settings = {key: str(value) for key, value in (config or {}).items()}
        made = admin.create_topics([NewTopic(name, 1, 1, config=settings)])
        made[name].result(30)

    def directory(self, topic: str, partition: int = 0) -> Path:
        return self.data / f"{topic}-{partition}"
