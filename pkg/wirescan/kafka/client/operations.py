"""The methods that Client and AsyncClient share. Each method makes an operation and runs it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from wirescan.core.arguments import to_tls_context
from wirescan.frames.errors import check_mode
from wirescan.frames.limits import Limits
from wirescan.kafka.client.cluster import Cluster, Metadata, Retries, TopicPartition, parse_nodes
from wirescan.kafka.client.decode import Decoding, FetchJob
from wirescan.kafka.client.effects import Operation, Result
from wirescan.kafka.client.fetch_bounds import Bound, resolve_ranges
from wirescan.kafka.client.fetch_ranges import (
    HEADROOM,
    Fetched,
    FetchRange,
    Question,
    fetch_once,
)
from wirescan.kafka.client.offsets import Offset, get_isolation_level, list_offsets
from wirescan.kafka.client.partitioners import Partitioner
from wirescan.kafka.client.produce import Produced, produce
from wirescan.kafka.client.sasl import check as check_login
from wirescan.kafka.client.send_records import BATCH_BYTES, Producer, send

MAX_TIMEOUT = 86_400  # seconds: a day


class Operations:
    """The methods that Client and AsyncClient share. Those of AsyncClient are awaited.

    bootstrap: "host:port", several of them with commas between, or a list of them. The client finds
        the other brokers of the cluster through these.
    client_id: the name that brokers write into their logs.
    tls: None, True (the system's authorities), the path of an authority's certificate (PEM), or an
        ssl.SSLContext.
    sasl: (mechanism, user, password). The mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; the
        last two need the extra `sasl`.
    timeout: seconds for connecting, and for each answer.
    retries: which errors are retried, and how often.
    limits: the limits of responses, and of the frames in them.
    seed: the seed of the random pauses between attempts.

    Every method raises:

        BrokerError             a broker answers with an error
        ConnectionError, TimeoutError, OSError of TLS
                                no broker can be reached
        PermissionError         the login fails on the client's side
        FrameError              a response is malformed
        ValueError, TypeError   an argument is unfit

    Errors that may pass are raised after the last retry.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = "wirescan",
        tls: Any = None,
        sasl: tuple[str, str, str] | None = None,
        timeout: float = 30.0,
        retries: Retries = Retries(),
        limits: Limits = Limits(),
        seed: int | None = None,
    ):
        check_mode("strict", limits)
        check_login(sasl)
        if not 0 < timeout <= MAX_TIMEOUT:
            raise ValueError(
                f"timeout must be above 0 and at most {MAX_TIMEOUT} seconds, not {timeout}"
            )
        self.cluster = Cluster(parse_nodes(bootstrap), retries, random.Random(seed))
        self.limits = limits
        self._producer = Producer()
        self._options = {
            "client_id": client_id,
            "tls": to_tls_context(tls),
            "sasl": sasl,
            "timeout": timeout,
            "limits": limits,
        }

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""
        raise NotImplementedError

    def metadata(self, topics: Iterable[str] | None = None) -> Metadata:
        """Return the brokers, the topics and the leaders of their partitions.

        topics: the names of the topics; None asks for all. A topic that does not exist has its
        `error`. Brokers below 0.11 may create it.
        """
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics must be a list of names, not {type(topics).__name__}")
        return self.run(self.cluster.fetch_metadata(topics))

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int | str], isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, Offset]:
        """Return the offset of each partition at a time.

        partitions: {(topic, partition): time}. A time is one of:

            milliseconds        since 1970: the first record of that time or a later one (-1: there
                                is none). A broker before 0.10.1 knows times only by segment
            "earliest"          the start of the log
            "latest"            the end of the log; under "read_committed", the end of the committed
                                records
            "max_timestamp"     the record with the highest timestamp
        """
        return self.run(list_offsets(self.cluster, partitions, isolation))

    def fetch_once(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        min_bytes: int = 1,
        max_wait: int = 500,
        max_bytes: int = 8 << 20,
        isolation: str = "read_uncommitted",
    ) -> dict[TopicPartition, Fetched]:
        """Fetch once from each partition, from an offset on.

        partitions: {(topic, partition): offset}.
        min_bytes, max_wait: a broker answers when it has min_bytes, or after max_wait milliseconds.
        max_bytes: the most bytes of each broker's answer, except for one batch that is larger.
        isolation: "read_uncommitted" or "read_committed".

        A batch may begin before the offset, and the last batch may be incomplete.
        """
        question = Question(min_bytes, max_wait, max_bytes, max_bytes, isolation)
        get_isolation_level(isolation)  # raises for an unknown name before anything is sent
        return self.run(fetch_once(self.cluster, dict(partitions), question))

    def produce(
        self, partitions: Mapping[TopicPartition, Any], *, acks: int = -1, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, Produced]:
        """Make one attempt to write record sets, unchanged. Each leader receives one request.

        partitions: {(topic, partition): bytes}. A record set is one batch of magic 2, or messages
            of magic 0 or 1. (Brokers from 4.0 on refuse magic 0 and 1 by hanging up.) An idempotent
            batch already has its producer id and sequence.
        acks: which replicas acknowledge. -1: all replicas in sync. 1: the leader. 0: none; then
            there is no answer and no offset.
        timeout_ms: how long the leader waits for the other replicas, in milliseconds.

        Nothing is retried. Errors are in the results: `Produced.in_doubt` says whether the record
        set may be in the log in spite of the error. Raises ValueError and TypeError for anything
        but a record set.
        """
        return self.run(produce(self.cluster, dict(partitions), acks, timeout_ms))

    def send(
        self,
        topic: str,
        values: Any,
        *,
        keys: Any = None,
        timestamps: Any = None,
        headers: Any = None,
        partition: Any = None,
        partitioner: Partitioner = "murmur2",
        codec: str = "none",
        level: int | None = None,
        acks: int = -1,
        idempotent: bool | None = None,
        timeout_ms: int = 30_000,
        batch_bytes: int = BATCH_BYTES,
    ) -> np.ndarray:
        """Write records from arrays to a topic, and return when all are written.

        Returns an array of partition i4, count, first_offset and last_offset i8. It has a row for
        each partition that received records. An offset is -1 where the broker does not report it.
        Records of other producers may be between the two offsets.

        values, keys, timestamps, headers, codec, level: as in `encode_batches`. Without timestamps,
            the current time is used. Headers need brokers from 0.11 on, zstd needs brokers from
            2.1 on. Brokers before 0.10 store no timestamps.
        partition: a number, or an array with one number for each record.
        partitioner: chooses the partitions where `partition` is None. "murmur2" is Java's choice:
            by the key, and "sticky" without a key. "consistent" and "consistent_random" are
            librdkafka's choice, by CRC-32. "round_robin" takes the partitions in turn. "sticky"
            takes one partition at random for each batch_bytes in a row. A function receives `keys`
            and the number of partitions, and returns an array.
        acks, timeout_ms: as in `produce`.
        idempotent: None is True where acks is -1 and the brokers support it (from 0.11 on).
        batch_bytes: the most bytes of a batch before compression. A record that is larger has a
            batch of its own. A batch that the broker finds too large is divided.

        The records of a partition are sent in order, one batch at a time. The partitions of a
        broker are sent concurrently. Failed requests are retried as `retries` says, after asking
        for the leaders again. If `send` does not raise ProduceError, and no replica in sync loses a
        record that it has acknowledged, the result is:

            idempotent          each record is in the log once, in the order given
            acks -1 or 1        each record is in the log once or more often. A batch is sent again
                                after a lost answer, and after an error that leaves its state
                                unknown. With acks=1, a leader that fails may lose acknowledged
                                records
            acks 0              each record is in the log once or not at all. A batch that may have
                                been sent is not sent again, and broker errors are not seen

        Raises ProduceError where some record is not known to be in the log. The error says which
        rows are not in the log, and for which rows this is unknown. It is raised:

            - after the last retry,
            - for an error that cannot pass, such as a record that is too large or a missing
              permission,
            - where a broker does not recognise the producer: OUT_OF_ORDER_SEQUENCE_NUMBER (the
              broker lost acknowledged records), UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH.

        Before anything is sent, raises as every method.
        """
        return self.run(
            send(
                self.cluster,
                self._producer,
                topic,
                values,
                keys=keys,
                timestamps=timestamps,
                headers=headers,
                partition=partition,
                partitioner=partitioner,
                codec=codec,
                level=level,
                acks=acks,
                idempotent=idempotent,
                timeout_ms=timeout_ms,
                batch_bytes=batch_bytes,
            )
        )

    def _prepare_fetch(
        self,
        topic: str,
        partitions: Iterable[int] | None,
        *,
        start: Bound,
        stop: Bound,
        start_time: int | None,
        stop_time: int | None,
        isolation: str,
        fetch_bytes: int,
        side_by_side: int,
        records: bool,
        errors: str,
        check: bool,
    ) -> tuple[FetchJob, Operation[list[FetchRange]]]:
        """Return how to fetch, and the operation that lists the ranges.

        Raises ValueError for an argument out of its range.
        """
        check_mode(errors, self.limits)
        get_isolation_level(isolation)  # raises for an unknown name
        if side_by_side < 1:
            raise ValueError(f"side_by_side must be 1 or more, not {side_by_side}")
        maximum = self.limits.frame - HEADROOM
        if not 0 < fetch_bytes <= maximum:
            raise ValueError(
                f"fetch_bytes must be 1 to {maximum}, below limits.frame, not {fetch_bytes}"
            )
        question = Question(
            max_bytes=fetch_bytes,
            partition_bytes=fetch_bytes,
            isolation=isolation,
            verify=check and errors != "strict",
        )
        decoding = Decoding(isolation, records, errors, check, self.limits)
        planning = resolve_ranges(
            self.cluster,
            topic,
            partitions=partitions,
            start=start,
            stop=stop,
            start_time=start_time,
            stop_time=stop_time,
            isolation=isolation,
        )
        return FetchJob(self.cluster, question, decoding, side_by_side), planning
