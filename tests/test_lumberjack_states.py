"""Conversations in Lumberjack under arbitrary writers, chunks and losses: every event is kept at least once, exactly
once when nothing is lost; acks come in order, and never for what is not kept."""
import json
import struct
import zlib
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from wirescan.lumberjack.conversation import Receiver, Sender

U32 = 2**32

# How writers announce, number and pack what they send; names of writers that do so are in docs/lumberjack.md.
WINDOWS = st.sampled_from(["each", "each", "each", "once", "none", "more", "fewer", "empty ones between"])
NUMBERS = st.sampled_from(
    ["from 1 in each window", "on through the connection", "on and over to 0", "on and over to 1"])
PACKING = st.sampled_from(["plain", "one C", "several C", "C and plain", "W inside", "several windows in a C"])


class Writer:
    """A writer that does as its style says. unsent: bytes for the wire. flying: (number, event) of what is not acked.
    ends: the last event of each window."""

    def __init__(self, version, kind, windows, numbers, packing):
        if windows in ("once", "none") and "each" in numbers:
            numbers = "on through the connection"       # or its numbers would say nothing
        self.version, self.kind, self.windows, self.numbers, self.packing = version, kind, windows, numbers, packing
        self.flying, self.ends = deque(), set()
        self.connect()

    def connect(self):
        """A new connection: what is not acked is sent again, in one window."""
        self.unsent, self.number, self.partial = b"", 1, b""
        if "over" in self.numbers:
            self.number = U32 - 3
        again, self.flying = [event for _, event in self.flying], deque()
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
        return self.frame(b"D", struct.pack(">III2sI", number, 1, 2, b"id", len(str(event))) + b"%d" % event)

    def compressed(self, frames):
        payload = zlib.compress(b"".join(frames))
        return self.frame(b"C", struct.pack(">I", len(payload)) + payload)

    def write(self, batches):
        """Some windows of events, one after another."""
        written = [self.window(events) for events in batches]
        if self.packing == "several windows in a C":
            self.unsent += self.compressed([w + b"".join(frames) for w, frames in written])
            return
        for w, frames in written:
            half = len(frames) // 2
            self.unsent += {
                "plain": lambda: w + b"".join(frames),
                "one C": lambda: w + self.compressed(frames),
                "several C": lambda: w + self.compressed(frames[:half]) + self.compressed(frames[half:]),
                "C and plain": lambda: w + self.compressed(frames[:half]) + b"".join(frames[half:]),
                "W inside": lambda: self.compressed([w, *frames]),
            }[self.packing]()

    def window(self, events):
        if self.numbers == "from 1 in each window":
            self.number = 1
        self.ends.add(events[-1])
        count = {"more": max(len(events) - 1, 1), "fewer": len(events) + 2}.get(self.windows, len(events))
        w = b"" if self.windows in ("once", "none") else self.frame(b"W", struct.pack(">I", count))
        if self.windows == "empty ones between":
            w = self.frame(b"W", bytes(4)) + w
        return w, [self.event(event) for event in events]

    def read(self, data):
        """The acks in some bytes: the events of each, in order."""
        self.partial += data
        while len(self.partial) >= 6:
            version, kind, number = struct.unpack(">1s1sI", self.partial[:6])
            self.partial = self.partial[6:]
            assert kind == b"A" and version in (b"1", b"2")
            if number == 0 and (not self.flying or self.flying[0][0] != 0):
                assert version == b"2" or self.windows == "empty ones between"
                continue
            assert number in [flying for flying, _ in self.flying], "an ack of what was not sent"
            events, flying = [], None
            while flying != number:
                flying, event = self.flying.popleft()
                events.append(event)
            if self.version == b"1" and self.windows in ("each", "fewer", "empty ones between"):
                assert event in self.ends, "a partial ack, in version 1"
            yield events


class Receiving(RuleBasedStateMachine):
    """A Receiver, and a writer as there are some."""

    @initialize(version=st.sampled_from([b"1", b"2"]), kind=st.sampled_from([b"J", b"D"]), windows=WINDOWS,
                numbers=NUMBERS, packing=PACKING)
    def begin(self, version, kind, windows, numbers, packing):
        self.writer = Writer(version, kind, windows, numbers, packing)
        self.receiver, self.given, self.answers = Receiver(), deque(), b""
        self.events, self.kept, self.acked, self.losses, self.partly = 0, [], [], 0, 0

    @rule(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3))
    def write(self, sizes):
        ends = [self.events + sum(sizes[:n]) for n in range(len(sizes) + 1)]
        self.events = ends[-1]
        self.writer.write([list(range(*both)) for both in zip(ends, ends[1:])])

    @rule(size=st.sampled_from([1, 5, 6, 30, 200, 5000]))
    def deliver(self, size):
        data, self.writer.unsent = self.writer.unsent[:size], self.writer.unsent[size:]
        windows = self.receiver.receive(data)
        for window in windows:
            assert window.complete and (window.count < 0 or len(window.events) <= window.count)
        self.given += windows

    @rule()
    def do_not_wait(self):
        part = self.receiver.flush()
        if part is not None:
            assert not part.complete and len(part.events)
            self.given.append(part)

    @rule(share=st.floats(0, 1))
    def keep(self, share):
        """Keeps a window, or a part that is acked partly."""
        if not self.given:
            return
        window = self.given[0]
        count = int(share * len(window.events))
        if window.version == 2 and self.partly < count < len(window.events):
            self.kept += self.ids(window)[self.partly:count]
            self.answers += self.receiver.acknowledge(window, count)
            self.partly = count
            return
        self.given.popleft()
        self.kept += self.ids(window)[self.partly:]
        self.partly = 0
        self.answers += self.receiver.acknowledge(window)

    @rule()
    def stay_alive(self):
        said = self.receiver.keep_alive()
        assert said == b"" or self.writer.version == b"2" and said == b"2A\0\0\0\0"
        if all(number for number, _ in self.writer.flying):
            self.answers += said

    @rule(size=st.integers(1, 20))
    def read_acks(self, size):
        data, self.answers = self.answers[:size], self.answers[size:]
        for events in self.writer.read(data):
            self.acked += events
            assert set(events) <= set(self.kept), "acked, and not kept"

    @rule()
    def lose(self):
        self.losses += 1
        self.receiver.close()
        self.receiver, self.given, self.answers, self.partly = Receiver(), deque(), b"", 0
        self.writer.connect()

    @invariant()
    def nothing_is_forgotten(self):
        if hasattr(self, "writer"):
            assert self.receiver.unacknowledged == len(self.given)
            assert sorted(self.acked + [event for _, event in self.writer.flying]) == list(range(self.events))

    def teardown(self):
        if not hasattr(self, "writer"):
            return
        self.deliver(1 << 30)
        self.do_not_wait()
        while self.given:
            self.keep(1.0)
        assert set(self.kept) == set(range(self.events)), "lost"
        if not self.losses:
            assert self.kept == list(range(self.events)), "not once each, in order"
        self.read_acks(1 << 30)
        assert self.acked == sorted(self.acked)
        if self.writer.windows in ("each", "more", "none", "empty ones between"):
            assert not self.writer.flying and self.receiver.held == 0, "not acked"

    def ids(self, window):
        if self.writer.kind == b"J":
            return [json.loads(bytes(row.json))["id"] for row in window.events]
        return [int(bytes(value)) for row in window.events for _, value in row.pairs]


class Sending(RuleBasedStateMachine):
    """A Sender and a Receiver, and a network that loses connections."""

    @initialize(version=st.sampled_from([1, 2]), window=st.integers(1, 20), pipelining=st.integers(1, 4),
                level=st.sampled_from([None, 0, 3]))
    def begin(self, version, window, pipelining, level):
        self.version, self.window = version, window
        self.sender = Sender(version=version, window=window, pipelining=pipelining, level=level)
        self.events, self.kept, self.acked, self.losses, self.sizes = 0, [], 0, 0, []
        self.connect()

    def connect(self):
        self.receiver, self.given, self.there, self.back = Receiver(strict=True), deque(), self.sender.resend(), b""

    @rule(count=st.integers(1, 20))
    def send(self, count):
        if self.sender.ready:
            count = min(count, self.window)
            events = [{"id": str(event)} for event in range(self.events, self.events + count)]
            self.there += self.sender.send(events)
            self.events += count

    @rule(size=st.sampled_from([1, 7, 50, 10_000]))
    def deliver(self, size):
        data, self.there = self.there[:size], self.there[size:]
        windows = self.receiver.receive(data)
        assert all(window.complete and window.count == len(window.events) == window.last for window in windows)
        self.given += windows

    @rule()
    def keep(self):
        if self.given:
            window = self.given.popleft()
            rows = window.events
            self.kept += ([json.loads(bytes(row.json))["id"] for row in rows] if self.version == 2 else
                          [bytes(value).decode() for row in rows for _, value in row.pairs])
            if self.version == 2 and len(rows) > 1:
                self.back += self.receiver.acknowledge(window, len(rows) // 2) + self.receiver.keep_alive()
            self.back += self.receiver.acknowledge(window)

    @rule(size=st.integers(1, 30))
    def answer(self, size):
        data, self.back = self.back[:size], self.back[size:]
        self.acked += self.sender.receive(data)
        assert {str(event) for event in range(self.acked)} <= set(self.kept), "acked, and not kept"

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
        while self.given:
            self.keep()
        self.answer(1 << 30)
        assert self.sender.unacknowledged == 0 and self.sender.ready and self.sender.resend() == b""
        assert set(self.kept) == {str(event) for event in range(self.events)}
        if not self.losses:
            assert self.kept == [str(event) for event in range(self.events)]


for machine in (Receiving, Sending):
    machine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestReceiving, TestSending = Receiving.TestCase, Sending.TestCase
