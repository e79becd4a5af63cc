"""Make tests/corpus/kafka-metadata from real brokers: `python -m tests.peers.make_metadata`.

For each line of Kafka there is a directory: a segment of the metadata log, a snapshot of it, and
the snapshot that the broker began with. expected.json has what Kafka's own decoder finds in each
file: [offset, JSON of the record], with null for control records.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from tests.support.paths import CORPUS
from wirescan import FrameTable, kafka

from .broker import LINES, Broker, run

DECODER = Path(__file__).with_name("MetadataRecords.java")
METADATA_CORPUS = CORPUS / "kafka-metadata"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # The broker writes snapshots early.
    "metadata.log.max.record.bytes.between.snapshots": 3000,
}


def change_metadata(broker: Broker) -> None:
    """Make, change and remove topics, configurations, access rules and users."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        ResourcePatternType,
        ResourceType,
        ScramMechanism,
        UserScramCredentialDeletion,
    )

    admin = AdminClient({"bootstrap.servers": broker.address})
    broker.create_topic("orders", {"retention.ms": 86_400_000}, partitions=3)
    broker.create_topic("removed")
    admin.create_partitions([NewPartitions("orders", 4)])["orders"].result(30)
    entry = ConfigEntry("max.message.bytes", "65536", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    rule = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:größe",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([rule]).values():
        future.result(30)
    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        future.result(30)
    admin.delete_topics(["removed"])["removed"].result(30)
    broker.restart()


def await_snapshot(broker: Broker) -> None:
    """Wait until the broker has written a snapshot of the log."""
    directory = broker.directory("__cluster_metadata")
    until = time.monotonic() + 60
    while not any(int(path.name[:20]) for path in directory.glob("*.checkpoint")):
        if time.monotonic() > until:
            raise RuntimeError("the broker wrote no snapshot of its metadata")
        time.sleep(0.1)


def copy_metadata(broker: Broker, target: Path) -> None:
    """Copy the segments and the snapshots of a stopped broker."""
    target.mkdir(parents=True)
    for path in sorted(broker.directory("__cluster_metadata").glob("*")):
        if path.suffix in (".log", ".checkpoint"):
            shutil.copy(path, target / path.name)
            (target / path.name).chmod(0o644)
    for path in broker.data.glob("*.checkpoint"):
        shutil.copy(path, target)


def decode_values(values: list[bytes], line: str) -> list[dict | str]:
    """Return what Kafka's own decoder makes of values: the JSON of a record, or the error."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "values")
        file.write_text("".join(f"{value.hex()}\n" for value in values))
        lines = run(DECODER, file, line=line).split("\n")[:-1]
    return [text if text.startswith("rejected: ") else json.loads(text) for text in lines]


def decode_records(records: FrameTable, line: str) -> list[list]:
    """Return [offset, JSON or None for a control record] of each record, by Kafka's decoder."""
    is_control = records.outer["is_control"][records["parent"]].tolist()
    decoded = decode_values([bytes(row.value) for row in records], line)
    return [
        [row.offset, None if control else found]
        for row, control, found in zip(records, is_control, decoded)
    ]


def make(target: Path) -> None:
    expected = {}
    for line in LINES:
        folder = target / line
        shutil.rmtree(folder, ignore_errors=True)
        with Broker(PROPERTIES, line=line) as broker:
            change_metadata(broker)
            await_snapshot(broker)
            broker.stop()
            copy_metadata(broker, folder)
        for path in sorted(folder.iterdir()):
            records = kafka.records(kafka.scan(path))
            expected[f"{line}/{path.name}"] = decode_records(records, line)
    lines = [
        f"{json.dumps(name)}: [\n  "
        + ",\n  ".join(json.dumps(record) for record in records)
        + "\n]"
        for name, records in expected.items()
    ]
    (target / "expected.json").write_text("{" + ",\n".join(lines) + "}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "target", nargs="?", type=Path, default=METADATA_CORPUS, help="the directory to fill"
    )
    make(parser.parse_args().target)


if __name__ == "__main__":
    main()
