"""Lumberjack conversations with arbitrary writers, chunks and lost connections.

Every event is kept at least once, and exactly once if no connection is lost. Acks come in order,
and only for events that are kept.
"""

import json
import struct
import zlib
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.examples import read_example_count
from wirescan.lumberjack.live.receiver import Receiver
from wirescan.lumberjack.live.sender import Sender

U32 = 2**32

# How writers announce, number and pack their events. docs/lumberjack.md names real writers of
# each style.
WINDOWS = st.sampled_from(
    ["each", "each", "each", "once", "none", "more", "fewer", "empty ones between"]
)
NUMBERS = st.sampled_from(
    ["from 1 in each window", "on through the connection", "on and over to 0", "on and over to 1"]
)
PACKING = st.sampled_from(
    ["plain", "one C", "several C", "C and plain", "W inside", "several windows in a C"]
)


class Writer:
    """A writer of a certain style.

    unsent: bytes for the wire. flying: (number, event) of each event without an ack. ends: the last
    event of each window.
    """

    def __init__(self, version, kind, windows, numbers, packing):
        if windows in ("once", "none") and "each" in numbers:
            numbers = "on through the connection"  # or all events would have the number 1
        if windows == "empty ones between" and numbers == "on and over to 0":
            numbers = "on and over to 1"  # or an ack of 0 would mean two things
        self.version = version
        self.kind = kind
        self.windows = windows
        self.numbers = numbers
        self.packing = packing
        self.flying = deque()
        self.ends = set()
        self.connect()

    def connect(self):
        """Begin a connection: send the events without an ack again, in one window."""
        self.unsent = b""
        self.number = 1
        self.partial = b""
        if "over" in self.numbers:
            self.number = U32 - 3
        again = [event for _, event in self.flying]
        self.flying = deque()
        if self.windows == "once":
            self.unsent += self.frame(b"W", struct.pack(">I", 1000))
        if again:
            self.write([again])

    def frame(self, kind, body):
        return self.version + kind + body

    def event(self, event):
        if self.numbers == "from 1 in each window":
            number = self.number
        else:
            number = self.number % U32
            if number == 0 and self.numbers == "on and over to 1":
                number = self.number = 1
        self.number = number + 1
        self.flying.append((number, event))
        if self.kind == b"J":
            text = b'{"id":%d}' % event
            return self.frame(b"J", struct.pack(">II", number, len(text)) + text)
        text = b"%d" % event
        return self.frame(b"D", struct.pack(">III2sI", number, 1, 2, b"id", len(text)) + text)

    def compressed(self, frames):
        payload = zlib.compress(b"".join(frames))
        return self.frame(b"C", struct.pack(">I", len(payload)) + payload)

    def write(self, batches):
        """Write a window for each list of events."""
        written = [self.window(events) for events in batches]
        if self.packing == "several windows in a C":
            self.unsent += self.compressed([w + b"".join(frames) for w, frames in written])
            return
        for w, frames in written:
            half = len(frames) // 2
            self.unsent += {
                "plain": lambda: w + b"".join(frames),
                "one C": lambda: w + self.compressed(frames),
                "several C": lambda: (
                    w + self.compressed(frames[:half]) + self.compressed(frames[half:])
                ),
                "C and plain": lambda: w + self.compressed(frames[:half]) + b"".join(frames[half:]),
                "W inside": lambda: self.compressed([w, *frames]),
            }[self.packing]()

    def window(self, events):
        if self.numbers == "from 1 in each window":
            self.number = 1
        self.ends.add(events[-1])
        count = len(events)
        if self.windows == "more":
            count = max(len(events) - 1, 1)
        elif self.windows == "fewer":
            count = len(events) + 2
        w = b"" if self.windows in ("once", "none") else self.frame(b"W", struct.pack(">I", count))
        if self.windows == "empty ones between":
            w = self.frame(b"W", bytes(4)) + w
        return w, [self.event(event) for event in events]

    def read(self, data):
        """Read acks; yield the list of events that each ack covers."""
        self.partial += data
        while len(self.partial) >= 6:
            version, kind, number = struct.unpack(">1s1sI", self.partial[:6])
            self.partial = self.partial[6:]
            assert kind == b"A"
            assert version in (b"1", b"2")
            is_keep_alive = version == b"2" or self.windows == "empty ones between"
            if number == 0 and is_keep_alive and (not self.flying or self.flying[0][0] != 0):
                continue
            numbers = [flying for flying, _ in self.flying]
            assert number in numbers, "an ack of an event that was not sent"
            events = []
            flying = None
            while flying != number:
                flying, event = self.flying.popleft()
                events.append(event)
            if self.version == b"1" and self.windows in ("each", "fewer", "empty ones between"):
                assert event in self.ends, "a partial ack in version 1"
            yield events


class Receiving(RuleBasedStateMachine):
    """A Receiver, and a Writer of some style."""

    @initialize(
        version=st.sampled_from([b"1", b"2"]),
        kind=st.sampled_from([b"J", b"D"]),
        windows=WINDOWS,
        numbers=NUMBERS,
        packing=PACKING,
    )
    def begin(self, version, kind, windows, numbers, packing):
        self.writer = Writer(version, kind, windows, numbers, packing)
        self.receiver = Receiver()
        self.windows = deque()
        self.answers = b""
        self.events = 0
        self.kept = []
        self.acked = []
        self.losses = 0
        self.partly = 0

    @rule(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3))
    def write(self, sizes):
        ends = [self.events + sum(sizes[:n]) for n in range(len(sizes) + 1)]
        self.events = ends[-1]
        self.writer.write([list(range(*both)) for both in zip(ends, ends[1:])])

    @rule(size=st.sampled_from([1, 5, 6, 30, 200, 5000]))
    def deliver(self, size):
        data = self.writer.unsent[:size]
        self.writer.unsent = self.writer.unsent[size:]
        windows = self.receiver.receive(data)
        for window in windows:
            assert window.complete
            assert window.count < 0 or len(window.events) <= window.count
        self.windows += windows

    @rule()
    def do_not_wait(self):
        part = self.receiver.flush()
        if part is not None:
            assert not part.complete
            assert len(part.events)
            self.windows.append(part)

    @rule(share=st.floats(0, 1))
    def keep(self, share):
        """Keep and acknowledge the first window, or the first events of it."""
        if not self.windows:
            return
        window = self.windows[0]
        count = int(share * len(window.events))
        if window.version == 2 and self.partly < count < len(window.events):
            self.kept += self.ids(window)[self.partly : count]
            self.answers += self.receiver.acknowledge(window, count)
            self.partly = count
            return
        self.windows.popleft()
        self.kept += self.ids(window)[self.partly :]
        self.partly = 0
        self.answers += self.receiver.acknowledge(window)

    @rule()
    def stay_alive(self):
        answer = self.receiver.keep_alive()
        assert answer == b"" or self.writer.version == b"2" and answer == b"2A\0\0\0\0"
        if all(number for number, _ in self.writer.flying):
            self.answers += answer

    @rule(size=st.integers(1, 20))
    def read_acks(self, size):
        data = self.answers[:size]
        self.answers = self.answers[size:]
        for events in self.writer.read(data):
            self.acked += events
            assert set(events) <= set(self.kept), "an ack of an event that was not kept"

    @rule()
    def lose(self):
        self.losses += 1
        self.receiver.close()
        self.receiver = Receiver()
        self.windows = deque()
        self.answers = b""
        self.partly = 0
        self.writer.connect()

    @invariant()
    def nothing_is_forgotten(self):
        if hasattr(self, "writer"):
            assert self.receiver.unacknowledged == len(self.windows)
            flying = [event for _, event in self.writer.flying]
            assert sorted(self.acked + flying) == list(range(self.events))

    def teardown(self):
        if not hasattr(self, "writer"):
            return
        self.deliver(1 << 30)
        self.do_not_wait()
        while self.windows:
            self.keep(1.0)
        assert set(self.kept) == set(range(self.events)), "an event was lost"
        if not self.losses:
            assert self.kept == list(range(self.events)), "events were repeated or out of order"
        self.read_acks(1 << 30)
        assert self.acked == sorted(self.acked)
        if self.writer.windows in ("each", "more", "none", "empty ones between"):
            assert not self.writer.flying, "events without an ack"
            assert self.receiver.held == 0

    def ids(self, window):
        if self.writer.kind == b"J":
            return [json.loads(bytes(row.json))["id"] for row in window.events]
        return [int(bytes(value)) for row in window.events for _, value in row.pairs]


class Sending(RuleBasedStateMachine):
    """A Sender and a Receiver, and a network that loses connections."""

    @initialize(
        version=st.sampled_from([1, 2]),
        window=st.integers(1, 20),
        pipelining=st.integers(1, 4),
        level=st.sampled_from([None, 0, 3]),
    )
    def begin(self, version, window, pipelining, level):
        self.version = version
        self.window = window
        self.sender = Sender(version=version, window=window, pipelining=pipelining, level=level)
        self.events = 0
        self.kept = []
        self.acked = 0
        self.losses = 0
        self.connect()

    def connect(self):
        self.receiver = Receiver(strict=True)
        self.windows = deque()
        self.to_receiver = self.sender.resend()
        self.to_sender = b""

    @rule(count=st.integers(1, 20))
    def send(self, count):
        if self.sender.ready:
            count = min(count, self.window)
            events = [{"id": str(event)} for event in range(self.events, self.events + count)]
            self.to_receiver += self.sender.send(events)
            self.events += count

    @rule(size=st.sampled_from([1, 7, 50, 10_000]))
    def deliver(self, size):
        data = self.to_receiver[:size]
        self.to_receiver = self.to_receiver[size:]
        windows = self.receiver.receive(data)
        for window in windows:
            assert window.complete
            assert window.count == len(window.events) == window.last
        self.windows += windows

    @rule()
    def keep(self):
        if self.windows:
            window = self.windows.popleft()
            rows = window.events
            if self.version == 2:
                self.kept += [json.loads(bytes(row.json))["id"] for row in rows]
            else:
                self.kept += [bytes(value).decode() for row in rows for _, value in row.pairs]
            if self.version == 2 and len(rows) > 1:
                self.to_sender += self.receiver.acknowledge(window, len(rows) // 2)
                self.to_sender += self.receiver.keep_alive()
            self.to_sender += self.receiver.acknowledge(window)

    @rule(size=st.integers(1, 30))
    def answer(self, size):
        data = self.to_sender[:size]
        self.to_sender = self.to_sender[size:]
        self.acked += self.sender.receive(data)
        acked = {str(event) for event in range(self.acked)}
        assert acked <= set(self.kept), "an ack of an event that was not kept"

    @rule()
    def lose(self):
        self.losses += 1
        self.connect()

    @invariant()
    def every_event_is_acked_or_held(self):
        if hasattr(self, "sender"):
            assert self.acked + self.sender.unacknowledged == self.events

    def teardown(self):
        if not hasattr(self, "sender"):
            return
        self.deliver(1 << 30)
        while self.windows:
            self.keep()
        self.answer(1 << 30)
        assert self.sender.unacknowledged == 0
        assert self.sender.ready
        assert self.sender.resend() == b""
        assert set(self.kept) == {str(event) for event in range(self.events)}
        if not self.losses:
            assert self.kept == [str(event) for event in range(self.events)]


for machine in (Receiving, Sending):
    machine.TestCase.settings = settings(
        max_examples=read_example_count(24), stateful_step_count=30, deadline=None
    )
TestReceiving = Receiving.TestCase
TestSending = Sending.TestCase
