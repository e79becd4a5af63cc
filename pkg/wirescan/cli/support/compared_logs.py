"""The logs that `wirescan diff` compares: files, and partitions of live topics.

A live partition is written as kafka://HOST:PORT[,...]/TOPIC/PARTITION. Without the partition it is
a topic, which is compared with a directory of partitions or with another topic.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import click

from wirescan.cli.exit_codes import Failure
from wirescan.cli.format_command import DEFAULT_FORMAT
from wirescan.cli.output import format_path
from wirescan.cli.path_arguments import compute_total_size
from wirescan.cli.support.cluster_options import check_topic
from wirescan.cli.support.format_choice import LIVE_SCHEME
from wirescan.files.source import expand
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode
from wirescan.seglog.log_diff import LogSource, LogTables

if TYPE_CHECKING:
    from wirescan.kafka.client import Client
    from wirescan.kafka.client.topic_ranges import ClusterAddress

ADDRESS = re.compile(r"kafka://([^/]+)/([^/]+)(?:/([0-9]{1,10}))?/?", re.DOTALL)


class LiveLog(NamedTuple):
    """A topic of a live cluster, or one partition of it.

    text: as the user wrote it.
    """

    text: str
    client: Client
    topic: str
    partition: int | None


class LogPair(NamedTuple):
    """Two logs to compare. partition: their partition, if several pairs are compared."""

    partition: int | None
    left: LogSource
    right: LogSource


def open_log(
    text: str,
    make_address: Callable[[str], ClusterAddress],
    format: Format,
    stack: ExitStack,
) -> str | LiveLog:
    """Return a path as it is, and a kafka:// address as a `LiveLog`.

    Args:
        text: the argument of the command.
        make_address: returns the address of a cluster, with the login.
        format: the format that the logs are compared in.
        stack: closes the client.

    Raises click.UsageError for a malformed address, ValueError and OSError as `kafka.Client`.
    """
    if not text.startswith(LIVE_SCHEME):
        return text
    match = ADDRESS.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"{format_path(text)} is not kafka://HOST:PORT/TOPIC/PARTITION or "
            "kafka://HOST:PORT/TOPIC"
        )
    bootstrap, topic, number = match.groups()
    check_topic(topic)
    if format.outermost is not format_of(DEFAULT_FORMAT).outermost:
        raise Failure(f"{format_path(text)} has no {format.name}")
    client = stack.enter_context(make_address(bootstrap).make_client())
    return LiveLog(text, client, topic, None if number is None else int(number))


def pair_logs(left: str | LiveLog, right: str | LiveLog) -> Iterator[LogPair]:
    """Yield the logs to compare: one pair, or one for each partition of a topic.

    A partition that only one side has is compared with an empty log.

    Raises:
        click.UsageError: for a topic and a single partition.
        Failure: for a directory without partitions of the topic.
        BrokerError, OSError: if the cluster cannot be asked.
    """
    topics = [log for log in (left, right) if isinstance(log, LiveLog) and log.partition is None]
    if not topics:
        yield LogPair(None, _to_source(left), _to_source(right))
        return
    for log in (left, right):
        if isinstance(log, LiveLog) and log.partition is not None:
            raise click.UsageError(
                f"{format_path(log.text)} is a partition, and {format_path(topics[0].text)} a "
                "topic: give both the partition, or neither"
            )
    logs = [
        _list_live_partitions(log)
        if isinstance(log, LiveLog)
        else _list_directories(log, topics[0].topic)
        for log in (left, right)
    ]
    for number in sorted(logs[0].keys() | logs[1].keys()):
        missing = LogTables("no partition", ())
        yield LogPair(number, logs[0].get(number, missing), logs[1].get(number, missing))


def estimate_bytes(pairs: Sequence[LogPair], format: Format) -> int | None:
    """Return about how many bytes are compared; None if no log is in files.

    A live log is taken to be as large as the files beside it.
    """
    storage = format.outermost.storage
    total = 0
    for pair in pairs:
        paths = [log for log in (pair.left, pair.right) if not isinstance(log, LogTables)]
        files = [
            file
            for path in paths
            for file in expand(path, files=storage.files, ignore=storage.ignore)
        ]
        size = compute_total_size(files)
        if not paths or size is None:
            return None
        total += size * 2 // len(paths)
    return total


def _to_source(log: str | LiveLog) -> LogSource:
    """Return a path, or a live partition as tables."""
    if not isinstance(log, LiveLog):
        return log
    assert log.partition is not None
    return LogTables(log.text, _read_batches(log.client, log.topic, log.partition))


def _list_live_partitions(log: LiveLog) -> dict[int, LogSource]:
    """Return the partitions of a topic by their numbers. Raises BrokerError, OSError."""
    topic = log.client.metadata([log.topic]).topics.get(log.topic)
    if topic is None or topic.error:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        raise BrokerError(code, log.topic)
    return {number: _to_source(log._replace(partition=number)) for number in topic.partitions}


def _list_directories(path: str, topic: str) -> dict[int, LogSource]:
    """Return the directories TOPIC-N in a directory by their numbers. Raises Failure, OSError."""
    logs: dict[int, LogSource] = {}
    for entry in os.scandir(path):
        prefix, _, number = entry.name.rpartition("-")
        if prefix == topic and number.isdecimal() and number.isascii() and entry.is_dir():
            logs[int(number)] = entry.path
    if not logs:
        raise Failure(
            f"{format_path(path)} has no directories {topic}-0, {topic}-1, ...: to compare one "
            "partition, add /PARTITION to the kafka:// address"
        )
    return logs


def _read_batches(client: Client, topic: str, partition: int) -> Iterator[FrameTable]:
    """Yield the batches of a partition from its first to its last offset."""
    with client.fetch(topic, partitions=[partition], records=False) as parts:
        for part in parts:
            yield part.batches
