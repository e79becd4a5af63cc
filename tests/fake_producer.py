"""A fake cluster whose leaders know producers, and fail as they are told: the network loses requests and answers, or
brings a request late; leaders answer errors before they write and after, move, and lose what was not replicated.

    cluster = ProducerCluster(brokers=2)
    cluster.faults += [Fault("lost answer"), None, Fault("late", 3)]      # for the next Produce requests
"""
from collections import deque
from copy import deepcopy
from typing import NamedTuple

from fake_broker import FakeCluster, HangUp, Silence

from wirescan import kafka

REMEMBERED = 5              # batches of a producer that a leader knows again
OUT_OF_ORDER, OLD_EPOCH, TOO_LARGE = 45, 47, 10
KINDS = ("lost request", "lost answer", "cut answer", "no answer", "late", "not replicated", "error before",
         "error after")


class Fault(NamedTuple):
    """What happens to a Produce request.

    number: of "late": after how many requests more it arrives; of "error before" and "error after": the code.
    partitions: of these two: for which ones; None: all."""
    kind: str
    number: int = 0
    partitions: tuple[int, ...] | None = None


class ProducerCluster(FakeCluster):
    """faults: for the Produce requests to come, one after another; None: it goes well. max_bytes: of a batch.
    forgetful: whether a producer that is not known may begin with any sequence, as it may from Kafka 2.5 on."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.faults, self.max_bytes, self.forgetful = deque(), 1 << 20, False
        self._late, self._ids = [], 4000
        self.producers = {}                     # (topic, partition, producer id) -> epoch, [(first, last, offset)]

    def values(self, topic, partition):
        """The values in a partition, in order."""
        data = b"".join(data for _, _, data in self.topics[topic][partition].entries)
        return [None if row.value is None else bytes(row.value) for row in kafka.records(kafka.scan(data))]

    def move(self, topic, partition, leader):
        log = self.topics[topic][partition]
        log.leader, log.epoch = leader, log.epoch + 1

    def deliver_late(self, all_of_them=True):
        """What is still on its way arrives; nobody hears the answer."""
        self._late, due = [], self._late
        for wait, arguments in due:
            if all_of_them or wait <= 0:
                self._write(*arguments)
            else:
                self._late.append((wait - 1, arguments))

    def _init_producer_id(self, session, node, version, asked):
        self._ids += 1
        return {"producer_id": self._ids, "producer_epoch": 0}

    def _produce(self, session, node, version, asked):
        self.deliver_late(all_of_them=False)
        fault = self.faults.popleft() if self.faults else None
        kind, number, partitions = fault or Fault("none")
        if kind == "lost request":
            raise HangUp
        if kind == "late":
            self._late.append((number, (node, version, asked)))
            raise Silence

        def fails(one):
            return partitions is None or one["index"] in partitions

        before = deepcopy((self.topics, self.producers))
        answer = self._write(node, version, asked, number if kind == "error before" else 0, fails)
        if kind == "not replicated":
            self.topics, self.producers = before
            for log in (log for topic in self.topics.values() for log in topic.values()):
                if log.leader == node:
                    log.leader, log.epoch = node % len(self.nodes) + 1, log.epoch + 1
        if kind in ("lost answer", "not replicated"):
            raise HangUp
        if kind == "cut answer":
            raise HangUp(b"\0\0\0\x40\0\0")
        if kind == "no answer":
            raise Silence
        if kind == "error after":
            for topic in answer["responses"]:
                for one in topic["partition_responses"]:
                    if fails(one):
                        one |= {"error_code": number, "base_offset": -1}
        return answer if asked["acks"] else None

    def _write(self, node, version, asked, code=0, fails=lambda one: True):
        names = {key: name for name, key in self.ids.items()}
        responses = []
        for topic in asked["topic_data"]:
            name = names.get(topic["topic_id"]) if version >= 13 else topic["name"].decode()
            responses.append({"name": name, "topic_id": topic["topic_id"] or bytes(16), "partition_responses": [
                self._append(name, node, one, code if code and fails(one) else 0) for one in topic["partition_data"]]})
        return {"responses": responses}

    def _append(self, topic, node, one, code):
        answer = {"index": one["index"], "base_offset": -1}
        queued, log = self._error("Produce", topic, one["index"], node)
        if code or queued:
            return answer | {"error_code": code or queued}
        if len(one["records"]) > self.max_bytes:
            return answer | {"error_code": TOO_LARGE}
        batches = kafka.scan(one["records"])
        if batches["magic"][0] == 2:
            assert len(batches) == 1, "from version 3 on, a record set is one batch"
            known = self._known((topic, one["index"]), batches[0], log.end)
            if known is not None:
                return answer | known
        answer["base_offset"] = log.end
        shift = log.end - max(int(batches["base_offset"][0]), 0)
        for number, row in enumerate(batches):
            data = bytes(batches.frame(number))
            moved = int.from_bytes(data[:8], "big") + shift
            log.end = row.last_offset + shift + 1
            log.entries.append((log.end - max(row.record_count, 1), log.end - 1, moved.to_bytes(8, "big") + data[8:]))
        return answer

    def _known(self, one, batch, end):
        """What to answer instead of writing a producer's batch, or None; then it is remembered."""
        if batch.producer_id < 0:
            return None
        first = batch.base_sequence
        last = first + batch.record_count - 1 & 0x7FFFFFFF
        epoch, written = self.producers.get((one, batch.producer_id), (batch.producer_epoch, []))
        for sequences, offset in written:
            if sequences == (first, last):
                return {"base_offset": offset}
        if batch.producer_epoch < epoch:
            return {"error_code": OLD_EPOCH}
        if written and first != (written[-1][0][1] + 1 & 0x7FFFFFFF) or not written and first and not self.forgetful:
            return {"error_code": OUT_OF_ORDER}
        self.producers[one, batch.producer_id] = batch.producer_epoch, [*written, ((first, last), end)][-REMEMBERED:]
        return None
