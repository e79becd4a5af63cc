"""A fake cluster with idempotent producers and with faults.

The network can lose requests and answers, or delay requests. A leader can answer with an error
before or after it writes, move to another broker, and lose records that were not replicated.

    cluster = ProducerCluster(brokers=2)
    cluster.faults += [Fault("lost answer"), None, Fault("late", 3)]  # of the next Produce requests
"""

from collections import deque
from copy import deepcopy
from typing import NamedTuple

from tests.support.fake_broker import FakeCluster, HangUp, Silence
from wirescan import kafka

REMEMBERED = 5  # number of a producer's batches that a leader recognizes
LARGEST_SEQUENCE = 0x7FFFFFFF  # the next sequence is 0
OUT_OF_ORDER, OLD_EPOCH, TOO_LARGE = 45, 47, 10
KINDS = (
    "lost request",
    "lost answer",
    "cut answer",
    "no answer",
    "late",
    "not replicated",
    "error before",
    "error after",
)


class Fault(NamedTuple):
    """A fault of a Produce request.

    number: for "late", the number of requests that arrive before it; for "error before" and "error
        after", the error code.
    partitions: for "error before" and "error after", the partitions with the error. None: all.
    """

    kind: str
    number: int = 0
    partitions: tuple[int, ...] | None = None


class ProducerCluster(FakeCluster):
    """A cluster with idempotent producers.

    Attributes:
        faults: one for each of the next Produce requests. None: the request has no fault.
        max_bytes: largest size of a batch.
        forgetful: whether an unknown producer may begin with any sequence, as in Kafka from 2.5 on.
        producers: (topic, partition, producer id) -> epoch, [(first, last, offset)].
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.faults = deque()
        self.max_bytes = 1 << 20
        self.forgetful = False
        self.producers = {}
        self._late = []  # (requests that arrive before, arguments of _write)
        self._last_id = 4000

    def values(self, topic, partition):
        """Return the values in a partition, in order."""
        data = b"".join(data for _, _, data in self.topics[topic][partition].entries)
        records = kafka.records(kafka.scan(data))
        return [None if row.value is None else bytes(row.value) for row in records]

    def move(self, topic, partition, leader):
        """Make another broker the leader of a partition."""
        log = self.topics[topic][partition]
        log.leader = leader
        log.epoch += 1

    def deliver_late(self, all_of_them=True):
        """Write delayed requests. Their answers are lost."""
        late = self._late
        self._late = []
        for wait, arguments in late:
            if all_of_them or wait <= 0:
                self._write(*arguments)
            else:
                self._late.append((wait - 1, arguments))

    def _init_producer_id(self, session, node, version, request):
        self._last_id += 1
        return {"producer_id": self._last_id, "producer_epoch": 0}

    def _produce(self, session, node, version, request):
        self.deliver_late(all_of_them=False)
        fault = self.faults.popleft() if self.faults else None
        kind, number, partitions = fault or Fault("none")
        if kind == "lost request":
            raise HangUp
        if kind == "late":
            self._late.append((number, (node, version, request)))
            raise Silence
        before = deepcopy((self.topics, self.producers))
        code = number if kind == "error before" else 0
        answer = self._write(node, version, request, code, partitions)
        if kind == "not replicated":
            self.topics, self.producers = before
            self._move_from(node)
        self._lose_answer(kind)
        if kind == "error after":
            for topic in answer["responses"]:
                for partition in topic["partition_responses"]:
                    if partitions is None or partition["index"] in partitions:
                        partition |= {"error_code": number, "base_offset": -1}
        return answer if request["acks"] else None

    def _move_from(self, node):
        """Move the leaders of a broker's partitions to the next broker."""
        for topic, logs in self.topics.items():
            for partition, log in logs.items():
                if log.leader == node:
                    self.move(topic, partition, node % len(self.nodes) + 1)

    def _lose_answer(self, kind):
        if kind in ("lost answer", "not replicated"):
            raise HangUp
        if kind == "cut answer":
            raise HangUp(b"\0\0\0\x40\0\0")
        if kind == "no answer":
            raise Silence

    def _write(self, node, version, request, code=0, partitions=None):
        """Write the batches of a request and return the answer.

        code: the error code for these partitions, which are not written. 0: no error.
        """
        names = {key: name for name, key in self.ids.items()}
        responses = []
        for topic in request["topic_data"]:
            name = names.get(topic["topic_id"]) if version >= 13 else topic["name"].decode()
            answers = []
            for partition in topic["partition_data"]:
                fails = partitions is None or partition["index"] in partitions
                answers.append(self._append(name, node, partition, code if fails else 0))
            responses.append(
                {
                    "name": name,
                    "topic_id": topic["topic_id"] or bytes(16),
                    "partition_responses": answers,
                }
            )
        return {"responses": responses}

    def _append(self, topic, node, partition, code):
        """Write the batches for one partition and return its answer. code: an error, or 0."""
        number = partition["index"]
        answer = {"index": number, "base_offset": -1}
        queued, log = self._error("Produce", topic, number, node)
        if code or queued:
            return answer | {"error_code": code or queued}
        if len(partition["records"]) > self.max_bytes:
            return answer | {"error_code": TOO_LARGE}
        batches = kafka.scan(partition["records"])
        if batches["magic"][0] == 2:
            assert len(batches) == 1, "from version 3 on, a record set is one batch"
            check = self._check_sequence((topic, number), batches[0], log.end)
            if check is not None:
                return answer | check
        answer["base_offset"] = log.end
        shift = log.end - max(int(batches["base_offset"][0]), 0)
        for i, row in enumerate(batches):
            data = bytes(batches.frame(i))
            base = int.from_bytes(data[:8], "big") + shift
            log.end = row.last_offset + shift + 1
            first = log.end - max(row.record_count, 1)
            log.entries.append((first, log.end - 1, base.to_bytes(8, "big") + data[8:]))
        return answer

    def _check_sequence(self, place, batch, end):
        """Return the answer for a producer's batch that is not written, or None.

        A batch that will be written is remembered. place: (topic, partition). end: its next offset.
        """
        if batch.producer_id < 0:
            return None
        first = batch.base_sequence
        last = first + batch.record_count - 1 & LARGEST_SEQUENCE
        epoch, written = self.producers.get((place, batch.producer_id), (batch.producer_epoch, []))
        for sequences, offset in written:
            if sequences == (first, last):
                return {"base_offset": offset}
        if batch.producer_epoch < epoch:
            return {"error_code": OLD_EPOCH}
        if written:
            (_, last_sequence), _ = written[-1]
            is_next = first == last_sequence + 1 & LARGEST_SEQUENCE
        else:
            is_next = not first or self.forgetful
        if not is_next:
            return {"error_code": OUT_OF_ORDER}
        latest = [*written, ((first, last), end)][-REMEMBERED:]
        self.producers[place, batch.producer_id] = (batch.producer_epoch, latest)
        return None
