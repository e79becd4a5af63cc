"""The Kafka client under arbitrary answers and failures: whatever brokers do, an operation ends, in bounded attempts,
time and memory, with the right rows or with an error that says what is wrong."""
import random
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fake_broker import VERSIONS, FakeCluster, FakeDriver, HangUp, Silence
from wirescan import FrameError, Limits, kafka
from wirescan.kafka.client.cluster import Cluster, Retries, nodes
from wirescan.kafka.client.fetching import Question, Range, fetch_once, read_range
from wirescan.kafka.client.offsets import list_offsets
from wirescan.kafka.client.parts import Decoding
from wirescan.kafka.encode import encode_batch
from wirescan.kafka.errors import BrokerError, ErrorCode

FRAME, TIMEOUT = 1 << 20, 10.0
RETRIES = Retries(attempts=5, seconds=40.0)
CLEAR = (BrokerError, FrameError, OSError)
CODES = st.sampled_from([code.value for code in ErrorCode if code]) | st.integers(-2**15, 2**15 - 1).filter(bool)
PASSING = st.sampled_from([3, 5, 6, 7, 56, 74, 75, 78, 100, 103])
BROKERS = (1, 2, 3)


def hang_up(data, at):
    raise HangUp(data[:at % (len(data) + 1)])


def fall_silent(data, at):
    raise Silence(data[:at % (len(data) + 1)])


def answer_another(data, at):
    return data[:4] + (at + 1).to_bytes(4, "big") + data[8:]


def claim(data, at):
    """A size that is not that of what follows; the broker then hangs up, so that it does not take a timeout."""
    raise HangUp(at.to_bytes(4, "big") + data[4:])


def cut_inside(data, at):
    """A body that ends inside a field, in a frame whose size agrees."""
    part = data[:8 + at % max(len(data) - 8, 1)]
    return (len(part) - 4).to_bytes(4, "big") + part[4:]


TROUBLE = st.tuples(st.sampled_from([hang_up, fall_silent, answer_another, claim, cut_inside]),
                    st.integers(0, 2**31 - 1))


class Clients(RuleBasedStateMachine):
    """One client, whose memory of the cluster lasts; `offsets` is what each partition's log holds."""

    @initialize(seed=st.integers(0, 99))
    def begin(self, seed):
        self.fake = FakeCluster(len(BROKERS), dict(VERSIONS))
        self.fake.add_topic("orders", 2)
        self.offsets = {0: [], 1: []}
        self.trouble = deque()
        self.fake.mangle = self.mangle
        self.cluster = Cluster(nodes(self.fake.bootstrap), RETRIES, random.Random(seed))
        for number in range(8):
            self.append(number % 2, 1 + seed % 7, 0, 0, "none", False)

    def mangle(self, node, api, data):
        if not self.trouble:
            return data
        damage, at = self.trouble.popleft()
        return data if damage is None else damage(data, at)

    # ------------------------------------------------------------------------------ what happens to the cluster

    @rule(partition=st.integers(0, 1), count=st.integers(0, 20), gap=st.sampled_from([0, 0, 1, 50]),
          tail=st.sampled_from([0, 0, 3]), codec=st.sampled_from(["none", "gzip", "lz4"]), control=st.booleans())
    def append(self, partition, count, gap, tail, codec, control):
        log = self.fake.topics["orders"][partition]
        first = log.end + gap
        control = control and count > 0
        records = [(first + i, 1000 + first + i, b"k", b"v" * 10) for i in range(1 if control else count)]
        last = first + max(len(records) - 1, 0) + tail
        self.fake.append("orders", partition, encode_batch(
            records, base_offset=first, last_offset=last, codec=codec, control=control))
        self.offsets[partition] += [] if control else [offset for offset, *_ in records]

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

    @rule(api=st.sampled_from(["Fetch", "ListOffsets"]), partition=st.integers(0, 1),
          codes=st.lists(PASSING | CODES, max_size=4) | PASSING.map(lambda code: [code] * 40))
    def fail(self, api, partition, codes):
        self.fake.errors[api, "orders", partition].extend(codes)

    @rule(codes=st.lists(PASSING | CODES, max_size=3))
    def fail_metadata(self, codes):
        self.fake.errors["Metadata", "orders", None].extend(codes)

    @rule(trouble=st.lists(st.tuples(st.none(), st.just(0)) | TROUBLE, max_size=8))
    def meet(self, trouble):
        self.trouble.extend(trouble)

    @rule(fetch=st.integers(0, 17), offsets=st.integers(0, 9), metadata=st.integers(0, 12), greeting=st.integers(0, 4))
    def upgrade(self, fetch, offsets, metadata, greeting):
        self.fake.versions = VERSIONS | {"Fetch": (0, fetch), "ListOffsets": (0, offsets), "Metadata": (0, metadata),
                                         "ApiVersions": (0, greeting)}

    @rule()
    def downgrade(self):
        self.fake.versions = None

    @rule()
    def recover(self):
        self.fake.down = set()
        self.fake.errors.clear()
        self.trouble.clear()

    # ------------------------------------------------------------------------------ what the client does

    def run(self, operation):
        """(results, error, driver): all that the operation gives, or the error that it ends with."""
        driver, given = FakeDriver(self.fake, limits=Limits(frame=FRAME), timeout=TIMEOUT), []
        running = driver.iterate(operation)
        try:
            while True:
                given.append(next(running))
        except StopIteration as end:
            return given or end.value, None, driver
        except CLEAR as error:
            assert str(error)
            return given, error, driver

    @rule(partition=st.integers(0, 2), start=st.integers(0, 100), length=st.integers(1, 200),
          most=st.sampled_from([1, 100, 300, 100_000]))
    def read(self, partition, start, length, most):
        wanted = Range("orders", partition, start, start + length)
        pieces, error, driver = self.run(read_range(
            self.cluster, wanted, Question(max_bytes=most, partition_bytes=most), Limits(frame=FRAME), "strict"))
        decoded = [Decoding().part(piece) for piece in pieces or ()]
        read = [offset for part in decoded for offset in part.records["offset"].tolist()]
        right = [offset for offset in self.offsets.get(partition, []) if start <= offset < start + length]
        assert read == (right if error is None else right[:len(read)])
        assert [part.next_offset for part in decoded] == sorted({part.next_offset for part in decoded})
        progress = 1 + len(decoded)
        assert driver.now <= progress * (RETRIES.seconds + 2 * len(BROKERS) * 3 * TIMEOUT)
        assert driver.exchanges <= progress * (RETRIES.attempts + 20) * (2 * len(BROKERS) + 1)
        assert driver.largest <= FRAME
        if partition == 2 or error is None:
            assert (error is None) == (partition < 2)

    @rule(when=st.sampled_from(["earliest", "latest"]) | st.integers(1000, 1200))
    def list(self, when):
        found, error, _ = self.run(list_offsets(self.cluster, {("orders", 0): when, ("orders", 1): when}))
        if error is not None:
            return
        for partition, held in self.offsets.items():
            log = self.fake.topics["orders"][partition]
            right = {"earliest": 0, "latest": log.end}.get(when)
            if right is None:
                right = next((offset for offset in held if 1000 + offset >= when), -1)
                if found["orders", partition].offset != right:      # the times of control records count too
                    right = found["orders", partition].offset
                    assert right not in held and when <= 1000 + right
            assert found["orders", partition].offset == right

    @rule(start=st.integers(0, 60))
    def fetch(self, start):
        found, error, _ = self.run(fetch_once(self.cluster, {("orders", 0): start, ("orders", 1): start}, Question()))
        for (_, partition), one in (found or {}).items() if error is None else ():
            records = kafka.records(kafka.scan(one.table))
            data = records["offset"][records.outer["is_control"][records["parent"]] == 0]
            assert data[data >= start].tolist() == [offset for offset in self.offsets[partition] if offset >= start]

    @rule()
    def ask(self):
        found, error, _ = self.run(self.cluster.metadata())
        if error is None:
            assert found.brokers.keys() == set(BROKERS)

    @invariant()
    def a_good_cluster_is_read_whole(self):
        self.steps = getattr(self, "steps", 0) + 1
        self.read_whole([self.steps % 2], partition_bytes=2000)

    def teardown(self):
        """Read both logs in small pieces at the end: in each step this would take most of the time."""
        self.read_whole([0, 1], partition_bytes=200)

    def read_whole(self, partitions, partition_bytes):
        """Partitions of a cluster without failures give all of their offsets."""
        if not hasattr(self, "fake") or self.fake.down or self.trouble or any(self.fake.errors.values()):
            return
        for partition in partitions:
            log = self.fake.topics["orders"][partition]
            if log.leader not in BROKERS or not log.end:
                continue
            wanted = Range("orders", partition, 0, log.end)
            question = Question(partition_bytes=partition_bytes)
            pieces, error, _ = self.run(read_range(self.cluster, wanted, question, Limits(), "strict"))
            assert error is None
            parts = [Decoding().part(piece) for piece in pieces or ()]
            offsets = [offset for part in parts for offset in part.records["offset"].tolist()]
            assert offsets == self.offsets[partition]


Clients.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestClients = Clients.TestCase
