"""Make tests/corpus/kafka-aiven-storage with a real broker and Aiven's plugin for tiered storage.

usage: python -m tests.peers.make_aiven_storage CHECKOUT [TARGET]

CHECKOUT is a checkout of github.com/Aiven-Open/tiered-storage-for-apache-kafka at v1.0.0 (Apache
License 2.0), because Maven Central does not have the plugin. Its classes are compiled in a
temporary directory.

Each directory in the target has the objects of one configuration of the plugin: plain,
compressed, encrypted, and both. expected.json has the number of the records that a consumer read
through the broker, and their digest (see canonical.py). private.pem is the RSA key of the corpus,
which nothing else uses.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.paths import CORPUS

from .broker import Broker, fetch_jars, find_java
from .canonical import digest
from .producers import make_orders, send_librdkafka, send_transactions
from .tiered_storage import TOPIC_SETTINGS, await_tiered, consume_moved

TOPIC = "orders"
PREFIX = "tiered/"
KEY_ID = "key1"
CONFIGURATIONS = {
    "plain": (False, False),
    "compressed": (True, False),
    "encrypted": (False, True),
    "compressed-encrypted": (True, True),
}
PARTS = ("commons", "storage/core", "storage/filesystem", "core")


def compile_plugin(checkout: Path, target: Path) -> str:
    """Compile the plugin. Return its class path, with the jars that the broker does not have."""
    pom = Path(__file__).with_name("aiven-plugin") / "pom.xml"
    jars = target / "jars"
    command = ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies"]
    subprocess.run(
        [*map(str, command), "-DincludeScope=runtime", f"-DoutputDirectory={jars}"], check=True
    )
    classes = target / "classes"
    sources = [
        path for part in PARTS for path in sorted((checkout / part / "src/main").rglob("*.java"))
    ]
    javac = Path(find_java()).with_name("javac")
    # The plugin is made for brokers of 3.x. A class that 4.x does not have is never loaded.
    path = f"{jars}/*:{fetch_jars('3.9')}/*"
    options = ["--release", "17", "-nowarn", "-cp", path, "-d", classes]
    subprocess.run([str(javac), *map(str, options), *map(str, sources)], check=True)
    return f"{classes}/:{jars}/*"


def make_keys(directory: Path) -> None:
    commands = [
        ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "private.pem"],
        ["pkey", "-in", "private.pem", "-pubout", "-out", "public.pem"],
    ]
    for command in commands:
        subprocess.run(["openssl", *command], cwd=directory, check=True, capture_output=True)


def make_aiven_broker(
    class_path: str, storage: Path, keys: Path, *, compression: bool, encryption: bool
) -> Broker:
    """A broker, not started yet, whose plugin stores segments below a directory."""
    package = "io.aiven.kafka.tieredstorage"
    settings: dict[str, object] = {
        "storage.backend.class": f"{package}.storage.filesystem.FileSystemStorage",
        "storage.root": storage,
        "chunk.size": 4096,
        "key.prefix": PREFIX,
        "compression.enabled": str(compression).lower(),
        "encryption.enabled": str(encryption).lower(),
        "fetch.chunk.cache.class": f"{package}.fetch.cache.MemoryChunkCache",
        "fetch.chunk.cache.size": -1,
        "custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
    }
    if encryption:
        settings["encryption.key.pair.id"] = KEY_ID
        settings["encryption.key.pairs"] = KEY_ID
        for kind in ("public", "private"):
            name = f"encryption.key.pairs.{KEY_ID}.{kind}.key.file"
            settings[name] = keys / f"{kind}.pem"
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{package}.RemoteStorageManager",
        "remote.log.storage.manager.class.path": class_path,
        "rsm.config.dir": storage,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "remote.log.manager.task.interval.ms": 200,
        "log.retention.check.interval.ms": 200,
        **{f"rsm.config.{name}": value for name, value in settings.items()},
    }
    return Broker(properties, line="4.3")


def make_configuration(class_path: str, keys: Path, target: Path, name: str) -> dict:
    compression, encryption = CONFIGURATIONS[name]
    storage = target / name
    storage.mkdir(parents=True)
    options = {"compression": compression, "encryption": encryption}
    with make_aiven_broker(class_path, storage, keys, **options) as broker:
        broker.create_topic(TOPIC, TOPIC_SETTINGS | {"segment.bytes": 20_000})
        rows = make_orders(600, seed=11, big=False)
        send_librdkafka(broker.address, TOPIC, rows[:200], "none", batch_num_messages=20)
        send_transactions(broker.address, TOPIC, rows[200:400], "lz4", "cacaa", "first")
        send_librdkafka(broker.address, TOPIC, rows[400:], "none", batch_num_messages=20)
        stop = await_tiered(broker, TOPIC)
        expected = {}
        for isolation in ("read_committed", "read_uncommitted"):
            records = consume_moved(broker, TOPIC, stop, isolation)
            expected[isolation] = {"records": len(records), "sha256": digest(records)}
    return expected


def make(checkout: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        class_path = compile_plugin(checkout, Path(scratch))
        make_keys(Path(scratch))
        expected = {
            name: make_configuration(class_path, Path(scratch), made, name)
            for name in CONFIGURATIONS
        }
        (made / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        shutil.copy(Path(scratch, "private.pem"), made)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)


if __name__ == "__main__":
    make(
        Path(sys.argv[1]),
        Path(sys.argv[2]) if len(sys.argv) > 2 else CORPUS / "kafka-aiven-storage",
    )
