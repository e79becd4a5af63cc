"""What a client can do, whoever runs it: each method makes an operation and runs it."""
from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from wirescan.errors import check_mode
from wirescan.kafka.client import sasl as mechanisms
from wirescan.kafka.client.cluster import Cluster, Metadata, Retries, TopicPartition, nodes
from wirescan.kafka.client.effects import Operation
from wirescan.kafka.client.fetching import HEADROOM, Fetched, Question, fetch_once
from wirescan.kafka.client.offsets import Offset, isolation_level, list_offsets
from wirescan.kafka.client.partitioners import Partitioner
from wirescan.kafka.client.parts import Decoding
from wirescan.kafka.client.produce import Produced, produce
from wirescan.kafka.client.send import BATCH_BYTES, Producer, send
from wirescan.limits import Limits

LONGEST = 86_400            # seconds of a timeout: a day


class Operations:
    """The methods that Client and AsyncClient have in common; those of AsyncClient are awaited.

    bootstrap: "host:port", several of them with commas, or a list; the rest of the cluster is found by them. client_id:
    what brokers write into their logs. tls: None, True (the system's authorities), the path of an authority's
    certificate (PEM), or an ssl.SSLContext. sasl: (mechanism, user, password), of PLAIN, SCRAM-SHA-256 and
    SCRAM-SHA-512 (these need the extra `sasl`). timeout: seconds for connecting, and for each answer. retries: what is
    tried again, and how often. limits: of responses, and of what is read in them. seed: of the pauses between attempts.

    Every method raises BrokerError for an error that a broker answers, ConnectionError, TimeoutError, or OSError of TLS
    where none can be reached, PermissionError where the login fails here, FrameError for a response that lies: after
    the retries, where the error may pass. ValueError and TypeError for unfit arguments.
    """

    def __init__(self, bootstrap: str | Sequence[str], *, client_id: str | None = "wirescan", tls: Any = None,
                 sasl: tuple[str, str, str] | None = None, timeout: float = 30.0, retries: Retries = Retries(),
                 limits: Limits = Limits(), seed: int | None = None):
        check_mode("strict", limits)
        mechanisms.check(sasl)
        if not 0 < timeout <= LONGEST:
            raise ValueError(f"timeout must be above 0 and at most {LONGEST} seconds, not {timeout}")
        self.cluster = Cluster(nodes(bootstrap), retries, random.Random(seed))
        self.limits, self._producer = limits, Producer()
        self._options = {"client_id": client_id, "tls": tls_context(tls), "sasl": sasl, "timeout": timeout,
                         "limits": limits}

    def run(self, operation: Operation[Any]) -> Any:
        """Runs an operation: its result."""
        raise NotImplementedError

    def metadata(self, topics: Iterable[str] | None = None) -> Metadata:
        """Brokers, topics and the leaders of their partitions; of all topics where none are named. A topic that is not
        there has its `error`. (Brokers below 0.11 may create it.)"""
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics are a list of names, not {type(topics).__name__}")
        return self.run(self.cluster.metadata(topics))

    def list_offsets(self, partitions: Mapping[TopicPartition, int | str],
                     isolation: str = "read_uncommitted") -> dict[TopicPartition, Offset]:
        """The offset of each partition at a time: {(topic, partition): when}.

        when: milliseconds since 1970, for the first record of that time or a later one (-1: there is none);
        "earliest"; "latest", the end, which under "read_committed" is that of the committed records; "max_timestamp",
        of the record with the highest. A broker before 0.10.1 knows times only to a segment."""
        return self.run(list_offsets(self.cluster, partitions, isolation))

    def fetch_once(self, partitions: Mapping[TopicPartition, int], *, min_bytes: int = 1, max_wait: int = 500,
                   max_bytes: int = 8 << 20, isolation: str = "read_uncommitted") -> dict[TopicPartition, Fetched]:
        """One fetch from each partition, from an offset on: {(topic, partition): offset}.

        Brokers answer when they have min_bytes, or after max_wait milliseconds; with at most max_bytes each, but for a
        batch that is larger. A batch may begin before the offset, and the last one may be cut."""
        question = Question(min_bytes, max_wait, max_bytes, max_bytes, isolation)
        isolation_level(isolation)
        return self.run(fetch_once(self.cluster, dict(partitions), question))

    def produce(self, partitions: Mapping[TopicPartition, Any], *, acks: int = -1,
                timeout_ms: int = 30_000) -> dict[TopicPartition, Produced]:
        """One attempt at record sets as they are: {(topic, partition): bytes}. Each leader is sent one request.

        A record set is one batch of magic 2, or messages of magic 0 or 1 (which brokers from 4.0 on refuse, by hanging
        up); an idempotent batch has its producer id and sequence already. acks: -1, all replicas in sync; 1, the
        leader; 0, nobody: then there is no answer, and no offset. timeout_ms: how long the leader waits for the others.

        Nothing is tried again, and errors stand in the results: `Produced.in_doubt` says whether the record set may be
        there for all that. Raises ValueError and TypeError for what is no record set."""
        return self.run(produce(self.cluster, dict(partitions), acks, timeout_ms))

    def send(self, topic: str, values: Any, *, keys: Any = None, timestamps: Any = None, headers: Any = None,
             partition: Any = None, partitioner: Partitioner = "murmur2", codec: str = "none", level: int | None = None,
             acks: int = -1, idempotent: bool | None = None, timeout_ms: int = 30_000,
             batch_bytes: int = BATCH_BYTES) -> np.ndarray:
        """Records to a topic, out of arrays: returns when all are written. Gives an array of partition i4, count,
        first_offset and last_offset i8 (-1: not told), with a row for each partition that has some of them. Records of
        others may lie between.

        values, keys, timestamps, headers, codec, level: as in `encode_batches`; without timestamps, the time of now.
        (Headers need brokers from 0.11 on, zstd from 2.1 on; brokers of before 0.10 keep no timestamps.)
        partition: a number, or an array with one for each record. Else, partitioner: "murmur2" (as Java: by the key,
        and without one "sticky"), "consistent" or "consistent_random" (as librdkafka, by CRC-32), "round_robin",
        "sticky" (one at random for batch_bytes on end), or a function of `keys` and the number of partitions that gives
        an array. batch_bytes: of a batch before compression, at most, but for a larger record alone. Batches that the
        broker finds too large are divided. acks, timeout_ms: as in `produce`.
        idempotent: None is True where acks is -1 and the brokers have it (from 0.11 on).

        Records of a partition are sent in order, one batch at a time; those of all partitions of a broker side by side.
        Requests that fail are tried again, as `retries` says, with the leaders asked for anew. What that comes to,
        unless ProduceError is raised, and no replica in sync loses what it has acknowledged:

            idempotent          each record is there once, in the order given
            acks -1 or 1        each record is there, once or more often: after an answer that was lost, or an error
                                that leaves it open, a batch is sent again. With acks=1, a leader that fails may take
                                acknowledged records with it
            acks 0              each record is there once or not at all: nothing is sent again that may have been sent,
                                and a broker's errors are not seen

        Raises ProduceError where not every record is there for sure; it says which rows are not, and of which it is not
        known. It comes after the last retry, for an error that cannot pass (a record that is too large, no permission),
        and where a broker does not recognise the producer: OUT_OF_ORDER_SEQUENCE_NUMBER (it lost records that were
        acknowledged), UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH. Before anything is sent, raises as every method."""
        return self.run(send(self.cluster, self._producer, topic, values, keys=keys, timestamps=timestamps,
                             headers=headers, partition=partition, partitioner=partitioner, codec=codec, level=level,
                             acks=acks, idempotent=idempotent, timeout_ms=timeout_ms, batch_bytes=batch_bytes))

    def _reading(self, isolation: str, fetch_bytes: int, side_by_side: int, records: bool, errors: str, check: bool
                 ) -> tuple[Question, Decoding]:
        check_mode(errors, self.limits)
        isolation_level(isolation)
        if side_by_side < 1:
            raise ValueError(f"side_by_side must be 1 or more, not {side_by_side}")
        if not 0 < fetch_bytes <= self.limits.frame - HEADROOM:
            raise ValueError(f"fetch_bytes must be 1 to {self.limits.frame - HEADROOM}, below limits.frame, "
                             f"not {fetch_bytes}")
        return (Question(max_bytes=fetch_bytes, partition_bytes=fetch_bytes, isolation=isolation,
                         verify=check and errors != "strict"),
                Decoding(isolation, records, errors, check, self.limits))


def tls_context(tls: Any) -> Any:
    """The ssl.SSLContext that `tls` stands for, or None. Raises OSError where the file cannot be read or holds no
    certificate, TypeError for anything else."""
    if tls is None or tls is False:
        return None
    import os
    import ssl
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is not True and not isinstance(tls, (str, os.PathLike)):
        raise TypeError(f"tls must be None, True, a path or an ssl.SSLContext, not {type(tls).__name__}")
    return ssl.create_default_context(cafile=None if tls is True else os.fspath(tls))
