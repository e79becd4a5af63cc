"""itadventurer's kafka-backup: a sink of Kafka Connect, compiled from its source.

Maven Central does not have it. Its source is in a checkout of github.com/itadventurer/kafka-backup
(Apache License 2.0). Kafka Connect of the line "3.9" runs it in a process of its own.
"""

import subprocess
import tempfile
from pathlib import Path

from .broker import JVM, LOGGING, find_java
from .cache import run_with_retry
from .ports import find_free_ports

POM = Path(__file__).with_name("connect-backup") / "pom.xml"
SOURCES = Path("src", "main", "java", "de", "azapps", "kafkabackup")
PARTS = ("common", "sink")  # the other ones are its command and the way back into a cluster
CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"


def compile_connector(checkout: Path, target: Path) -> str:
    """Compile the connector into a directory. Return the class path of Connect with it."""
    jars = target / "jars"
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}")
    run_with_retry("mvn", "-q", "-B", "-f", POM, *goal)
    classes = target / "classes"
    sources = [
        path for part in PARTS for path in sorted((checkout / SOURCES / part).rglob("*.java"))
    ]
    javac = Path(find_java()).with_name("javac")
    options = ["--release", "17", "-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", classes]
    subprocess.run([str(javac), *map(str, options), *map(str, sources)], check=True)
    return f"{classes}:{jars}/*"


def back_up(class_path: str, address: str, topic: str, target: Path, segment_bytes: int) -> None:
    """Back up all partitions of a topic to a directory, up to the present end of each.

    segment_bytes: a segment ends with the first record that makes it larger.
    """
    (port,) = find_free_ports(1)
    worker = {
        "bootstrap.servers": address,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": CONVERTER,
        "value.converter": CONVERTER,
        "header.converter": CONVERTER,
        "consumer.auto.offset.reset": "earliest",
    }
    connector = {
        "name": "backup",
        "connector.class": "de.azapps.kafkabackup.sink.BackupSinkConnector",
        "tasks.max": 1,
        "topics": topic,
        "key.converter": CONVERTER,
        "value.converter": CONVERTER,
        "header.converter": CONVERTER,
        "target.dir": target,
        "max.segment.size.bytes": segment_bytes,
        "cluster.bootstrap.servers": address,
        "snapshot": "true",  # Connect ends when everything is backed up
    }
    with tempfile.TemporaryDirectory() as scratch:
        worker["offset.storage.file.filename"] = Path(scratch, "offsets")
        files = [Path(scratch, "worker.properties"), Path(scratch, "connector.properties")]
        for file, properties in zip(files, (worker, connector), strict=True):
            file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        logging = Path(scratch, "log4j.properties")
        logging.write_text(LOGGING)
        command = [find_java(), *JVM, f"-Dlog4j.configuration=file:{logging}", "-cp", class_path]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if completed.returncode:
        raise RuntimeError(
            f"Connect ended with {completed.returncode}:\n{completed.stdout[-4000:]}"
        )
