"""`wirescan metadata`: the brokers, the topics and the partitions of a live cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from wirescan.cli.common_options import json_option
from wirescan.cli.exit_codes import DAMAGE
from wirescan.cli.output import colour, dump_json
from wirescan.cli.support.cluster_options import (
    check_topic,
    cluster_argument,
    cluster_options,
    report_broker_errors,
)
from wirescan.frames.value_text import escape_text, format_count
from wirescan.kafka.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from wirescan.kafka.client.cluster import Metadata, Partition, Topic
    from wirescan.kafka.client.topic_ranges import ClusterAddress

NO_NODE = -1  # the id where there is no leader, or where the controller is not reported
NO_ID = bytes(16)  # of a topic, from brokers that have no topic ids

HELP = """Print the brokers, the topics and the partitions of a live Kafka cluster. Kafka's internal
topics follow the others.

\b
Examples:
  wirescan metadata 127.0.0.1:9092
  wirescan metadata 127.0.0.1:9092 --topic orders --partitions
  wirescan metadata 127.0.0.1:9092 --json | jq -r '.topics[].name'
  wirescan metadata broker:9093 --tls-ca ca.pem --sasl PLAIN --user u --password-file p

The column "problems" counts the partitions that have no leader, that have replicas which are not in
sync, or that the cluster reports with an error. In JSON, an error is null for a healthy topic or
partition.

Exit codes: 0 good, 1 a topic or a partition has a problem, 2 cannot be done.
"""


@click.command(help=HELP, short_help="Print the brokers and topics of a live cluster.")
@cluster_argument
@click.option(
    "--topic",
    "names",
    multiple=True,
    metavar="NAME",
    help="Print this topic only. The option may be repeated.",
)
@click.option("--partitions", is_flag=True, help="Print a line for each partition too.")
@cluster_options
@json_option("Print one JSON object, with all partitions.")
@click.pass_context
def metadata(
    context: click.Context,
    *,
    cluster: ClusterAddress,
    names: tuple[str, ...],
    partitions: bool,
    as_json: bool,
) -> None:
    """Run `wirescan metadata`."""
    for name in names:
        check_topic(name)
    with report_broker_errors(), cluster.make_client() as client:
        found = client.metadata(names or None)
    topics = sorted(found.topics.values(), key=lambda topic: (topic.is_internal, topic.name))
    if as_json:
        click.echo(dump_json(_make_fields(found, topics)))
    else:
        _print_brokers(found)
        _print_topics(topics, partitions=partitions)
    context.exit(DAMAGE if any(_count_problems(topic) for topic in topics) else 0)


def list_problems(partition: Partition) -> list[str]:
    """Return what is wrong with a partition, as texts for people."""
    problems = []
    if partition.error:
        problems.append(_name_error(partition.error) or "")
    if partition.leader == NO_NODE:
        problems.append("no leader")
    lagging = [number for number in partition.replicas if number not in partition.in_sync]
    if lagging:
        problems.append(f"not in sync: {_join(lagging)}")
    if partition.offline:
        problems.append(f"offline: {_join(partition.offline)}")
    return problems


def _count_problems(topic: Topic) -> int:
    """Return how many partitions of a topic have a problem; an error of the topic counts too."""
    bad = sum(1 for partition in topic.partitions.values() if list_problems(partition))
    return bad + bool(topic.error)


def _name_error(code: int) -> str | None:
    """Return the name of an error code, or its number as text; None for no error."""
    if not code:
        return None
    return code.name if isinstance(code, ErrorCode) else str(code)


def _join(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _print_brokers(found: Metadata) -> None:
    """Print the cluster, and a line for each broker."""
    cluster = escape_text(found.cluster_id) if found.cluster_id else "not reported"
    click.echo(f"cluster {cluster}")
    rows = [("broker", "address", "rack", "")]
    for number, node in sorted(found.brokers.items()):
        role = "controller" if number == found.controller else ""
        rows.append((str(number), str(node), escape_text(found.racks.get(number, "")), role))
    _print_table(rows)


def _print_topics(topics: Sequence[Topic], *, partitions: bool) -> None:
    """Print a line for each topic, and for each partition too if `partitions` is set."""
    click.echo()
    rows: list[tuple[str, ...]] = [("topic", "partitions", "replicas", "problems")]
    for topic in topics:
        replicas = max((len(item.replicas) for item in topic.partitions.values()), default=0)
        name = escape_text(topic.name) + (" (internal)" if topic.is_internal else "")
        bad = _name_error(topic.error) or str(_count_problems(topic) or "")
        count = str(len(topic.partitions))
        rows.append((name, count, str(replicas), colour(bad, fg="red") if bad else ""))
    _print_table(rows)
    total = format_count(sum(len(topic.partitions) for topic in topics), "partition")
    click.echo(f"{format_count(len(topics), 'topic')}, {total}")
    if not partitions:
        return
    click.echo()
    rows = [("partition", "leader", "replicas", "in sync", "problems")]
    for topic in topics:
        for number, item in sorted(topic.partitions.items()):
            leader = "none" if item.leader == NO_NODE else str(item.leader)
            problems = "; ".join(list_problems(item))
            name = escape_text(f"{topic.name}-{number}")
            shown = colour(problems, fg="red") if problems else ""
            rows.append((name, leader, _join(item.replicas), _join(item.in_sync), shown))
    _print_table(rows)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells in columns. The last cell of a row may have colours."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        *cells, last = row
        padded = [cell.ljust(width) for cell, width in zip(cells, widths)]
        click.echo("  ".join([*padded, last]).rstrip())


def _make_fields(found: Metadata, topics: Iterable[Topic]) -> dict[str, Any]:
    """Return the metadata as an object for JSON."""
    return {
        "cluster": found.cluster_id,
        "controller": None if found.controller == NO_NODE else found.controller,
        "brokers": [
            {"id": number, "host": node.host, "port": node.port, "rack": found.racks.get(number)}
            for number, node in sorted(found.brokers.items())
        ],
        "topics": [
            {
                "name": topic.name,
                "id": None if topic.id == NO_ID else topic.id.hex(),
                "internal": topic.is_internal,
                "error": _name_error(topic.error),
                "partitions": [
                    _make_partition(number, item)
                    for number, item in sorted(topic.partitions.items())
                ],
            }
            for topic in topics
        ],
    }


def _make_partition(number: int, partition: Partition) -> dict[str, Any]:
    """Return a partition as an object for JSON."""
    return {
        "partition": number,
        "leader": None if partition.leader == NO_NODE else partition.leader,
        "leader_epoch": None if partition.leader_epoch < 0 else partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "offline": list(partition.offline),
        "error": _name_error(partition.error),
    }
