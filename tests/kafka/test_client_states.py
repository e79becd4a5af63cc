"""The Kafka client under arbitrary answers and failures of brokers.

Every operation ends within bounds of attempts, time and memory. It returns the right rows, or it
raises an error that describes the failure.
"""

import random
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.examples import read_example_count
from tests.support.fake_broker import VERSIONS, FakeCluster, FakeDriver, HangUp, Silence
from tests.support.kafka_parts import collect_offsets
from wirescan import FrameError, Limits, kafka
from wirescan.kafka.client.cluster import Cluster, Retries, parse_nodes
from wirescan.kafka.client.decode import Decoding
from wirescan.kafka.client.fetch_ranges import FetchRange, Question, fetch_once, read_range
from wirescan.kafka.client.offsets import list_offsets
from wirescan.kafka.encode.records import encode_batch
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

FRAME = 1 << 20
TIMEOUT = 10.0
RETRIES = Retries(attempts=5, seconds=40.0)
EXPECTED_ERRORS = (BrokerError, FrameError, OSError)
KNOWN_CODES = st.sampled_from([code.value for code in ErrorCode if code])
CODES = KNOWN_CODES | st.integers(-(2**15), 2**15 - 1).filter(bool)
RETRIABLE_CODES = st.sampled_from([3, 5, 6, 7, 56, 74, 75, 78, 100, 103])
BROKERS = (1, 2, 3)


# ---- damage: functions of an answer and a number


def hang_up(data, at):
    raise HangUp(data[: at % (len(data) + 1)])


def fall_silent(data, at):
    raise Silence(data[: at % (len(data) + 1)])


def answer_another_request(data, at):
    return data[:4] + (at + 1).to_bytes(4, "big") + data[8:]


def send_wrong_size(data, at):
    """Send a wrong frame size and hang up, so that the client does not wait for a timeout."""
    raise HangUp(at.to_bytes(4, "big") + data[4:])


def cut_body(data, at):
    """Cut the body inside a field. The frame size agrees with the shorter body."""
    part = data[: 8 + at % max(len(data) - 8, 1)]
    return (len(part) - 4).to_bytes(4, "big") + part[4:]


DAMAGE = st.tuples(
    st.sampled_from([hang_up, fall_silent, answer_another_request, send_wrong_size, cut_body]),
    st.integers(0, 2**31 - 1),
)


class Clients(RuleBasedStateMachine):
    """One client, which keeps its metadata of the cluster between operations.

    `offsets` has the offsets of the records in each partition's log. `damage` has the damage to
    the next answers.
    """

    @initialize(seed=st.integers(0, 99))
    def begin(self, seed):
        self.fake = FakeCluster(len(BROKERS), dict(VERSIONS))
        self.fake.add_topic("orders", 2)
        self.offsets = {0: [], 1: []}
        self.damage = deque()
        self.fake.mangle = self.mangle
        self.cluster = Cluster(parse_nodes(self.fake.bootstrap), RETRIES, random.Random(seed))
        for number in range(8):
            count = 1 + seed % 7
            self.append(number % 2, count, gap=0, tail=0, codec="none", control=False)

    def mangle(self, node, api, data):
        if not self.damage:
            return data
        damage, at = self.damage.popleft()
        return data if damage is None else damage(data, at)

    # ---- events in the cluster

    @rule(
        partition=st.integers(0, 1),
        count=st.integers(0, 20),
        gap=st.sampled_from([0, 0, 1, 50]),
        tail=st.sampled_from([0, 0, 3]),
        codec=st.sampled_from(["none", "gzip", "lz4"]),
        control=st.booleans(),
    )
    def append(self, partition, count, gap, tail, codec, control):
        first = self.fake.topics["orders"][partition].end + gap
        control = control and count > 0
        offsets = range(first, first + (1 if control else count))
        records = [(offset, 1000 + offset, b"k", b"v" * 10) for offset in offsets]
        last = first + max(len(records) - 1, 0) + tail
        batch = encode_batch(
            records, base_offset=first, last_offset=last, codec=codec, control=control
        )
        self.fake.append("orders", partition, batch)
        if not control:
            self.offsets[partition] += offsets

    @rule(partition=st.integers(0, 1), by=st.integers(1, 30))
    def compact_the_tail(self, partition, by):
        self.fake.topics["orders"][partition].end += by

    @rule(partition=st.integers(0, 1), leader=st.sampled_from([*BROKERS, *BROKERS, -1]))
    def move(self, partition, leader):
        log = self.fake.topics["orders"][partition]
        log.leader, log.epoch = leader, log.epoch + 1

    @rule(down=st.sets(st.sampled_from(BROKERS)))
    def stop(self, down):
        self.fake.down = down

    @rule(
        api=st.sampled_from(["Fetch", "ListOffsets"]),
        partition=st.integers(0, 1),
        codes=st.lists(RETRIABLE_CODES | CODES, max_size=4)
        | RETRIABLE_CODES.map(lambda code: [code] * 40),
    )
    def fail(self, api, partition, codes):
        self.fake.errors[api, "orders", partition].extend(codes)

    @rule(codes=st.lists(RETRIABLE_CODES | CODES, max_size=3))
    def fail_metadata(self, codes):
        self.fake.errors["Metadata", "orders", None].extend(codes)

    @rule(damage=st.lists(st.tuples(st.none(), st.just(0)) | DAMAGE, max_size=8))
    def damage_answers(self, damage):
        self.damage.extend(damage)

    @rule(
        fetch=st.integers(0, 17),
        offsets=st.integers(0, 9),
        metadata=st.integers(0, 12),
        greeting=st.integers(0, 4),
    )
    def upgrade(self, fetch, offsets, metadata, greeting):
        self.fake.versions = VERSIONS | {
            "Fetch": (0, fetch),
            "ListOffsets": (0, offsets),
            "Metadata": (0, metadata),
            "ApiVersions": (0, greeting),
        }

    @rule()
    def downgrade(self):
        self.fake.versions = None

    @rule()
    def recover(self):
        self.fake.down = set()
        self.fake.errors.clear()
        self.damage.clear()

    # ---- operations of the client

    def run(self, operation):
        """Run an operation to its end. Return (results, error or None, driver)."""
        driver = FakeDriver(self.fake, limits=Limits(frame=FRAME), timeout=TIMEOUT)
        results = []
        running = driver.iterate(operation)
        try:
            while True:
                results.append(next(running))
        except StopIteration as end:
            return results or end.value, None, driver
        except EXPECTED_ERRORS as error:
            assert str(error)
            return results, error, driver

    @rule(
        partition=st.integers(0, 2),
        start=st.integers(0, 100),
        length=st.integers(1, 200),
        most=st.sampled_from([1, 100, 300, 100_000]),
    )
    def read(self, partition, start, length, most):
        stop = start + length
        fetch_range = FetchRange("orders", partition, start, stop)
        question = Question(max_bytes=most, partition_bytes=most)
        pieces, error, driver = self.run(
            read_range(self.cluster, fetch_range, question, Limits(frame=FRAME), "strict")
        )
        parts = [Decoding().make_part(piece) for piece in pieces or ()]
        read = collect_offsets(parts)
        right = [offset for offset in self.offsets.get(partition, []) if start <= offset < stop]
        assert read == (right if error is None else right[: len(read)])
        next_offsets = [part.next_offset for part in parts]
        assert next_offsets == sorted(set(next_offsets))
        progress = 1 + len(parts)
        assert driver.now <= progress * (RETRIES.seconds + 2 * len(BROKERS) * 3 * TIMEOUT)
        assert driver.exchanges <= progress * (RETRIES.attempts + 20) * (2 * len(BROKERS) + 1)
        assert driver.largest <= FRAME
        # The topic has no partition 2.
        if partition == 2:
            assert error is not None

    @rule(when=st.sampled_from(["earliest", "latest"]) | st.integers(1000, 1200))
    def list_offsets(self, when):
        questions = {("orders", 0): when, ("orders", 1): when}
        listed, error, _ = self.run(list_offsets(self.cluster, questions))
        if error is not None:
            return
        for partition, offsets in self.offsets.items():
            log = self.fake.topics["orders"][partition]
            offset = listed["orders", partition].offset
            if when == "earliest":
                assert offset == 0
            elif when == "latest":
                assert offset == log.end
            else:
                right = next((each for each in offsets if 1000 + each >= when), -1)
                # A control record has a time too, so its offset is also right.
                is_control_record = offset not in offsets and when <= 1000 + offset
                assert offset == right or is_control_record

    @rule(start=st.integers(0, 60))
    def fetch(self, start):
        starts = {("orders", 0): start, ("orders", 1): start}
        fetched, error, _ = self.run(fetch_once(self.cluster, starts, Question()))
        if error is not None:
            return
        for (_, partition), answer in (fetched or {}).items():
            records = kafka.records(kafka.scan(answer.table))
            is_data = records.outer["is_control"][records["parent"]] == 0
            offsets = records["offset"][is_data]
            right = [offset for offset in self.offsets[partition] if offset >= start]
            assert offsets[offsets >= start].tolist() == right

    @rule()
    def ask_for_metadata(self):
        metadata, error, _ = self.run(self.cluster.fetch_metadata())
        if error is None:
            assert metadata.brokers.keys() == set(BROKERS)

    @invariant()
    def a_good_cluster_is_read_whole(self):
        self.steps = getattr(self, "steps", 0) + 1
        self.read_whole([self.steps % 2], partition_bytes=2000)

    def teardown(self):
        """Read both logs in small pieces. This is too slow to be done in each step."""
        self.read_whole([0, 1], partition_bytes=200)

    def can_fail(self):
        """Return whether the cluster has failures in store, or is not made yet."""
        if not hasattr(self, "fake"):
            return True
        return bool(self.fake.down or self.damage or any(self.fake.errors.values()))

    def read_whole(self, partitions, partition_bytes):
        """Check that a cluster without failures returns all offsets of the partitions."""
        if self.can_fail():
            return
        for partition in partitions:
            log = self.fake.topics["orders"][partition]
            if log.leader not in BROKERS or not log.end:
                continue
            fetch_range = FetchRange("orders", partition, 0, log.end)
            question = Question(partition_bytes=partition_bytes)
            pieces, error, _ = self.run(
                read_range(self.cluster, fetch_range, question, Limits(), "strict")
            )
            assert error is None
            parts = [Decoding().make_part(piece) for piece in pieces or ()]
            assert collect_offsets(parts) == self.offsets[partition]


Clients.TestCase.settings = settings(
    max_examples=read_example_count(8), stateful_step_count=30, deadline=None
)
TestClients = Clients.TestCase
