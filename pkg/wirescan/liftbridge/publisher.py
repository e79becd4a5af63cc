"""The publishing side of a conversation with Liftbridge over NATS, without the connection.

    publisher                           NATS                              Liftbridge
        SUB inbox ------------------------>
        PUB subject  envelope(Message) --->------------------------------>  stores it: the log of a partition
                                           <--  PUB inbox  envelope(Ack) --
        MSG inbox <------------------------

Sources: Liftbridge documentation, "Envelope Protocol" and "Concepts"; of the server server/partition.go: what is
acknowledged, and when.
"""
from __future__ import annotations

import operator
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.columns import Bounded, columns_of, integer, numbers_of
from wirescan.core.fault import Fault
from wirescan.core.strings import ByteStrings
from wirescan.errors import FrameError, error_of
from wirescan.liftbridge import acks, scan
from wirescan.liftbridge.encode import encode_message, encode_messages
from wirescan.liftbridge.kind import AckError, AckPolicy
from wirescan.liftbridge.subjects import check_subject, partition_of, subjects_of
from wirescan.limits import Limits
from wirescan.table import FrameTable

__all__ = ["Outcome", "PublishError", "Publisher", "Receipt", "Sending"]

ANY_OFFSET = -1             # expected by who does not care: the next one, whatever it is
MEANING = {
    AckError.UNKNOWN: "it failed in the server",
    AckError.INCORRECT_OFFSET: "the next offset of the partition is not the expected one",
    AckError.TOO_LARGE: "it is larger than the server replicates",
    AckError.ENCRYPTION: "the server cannot encrypt it",
}


class PublishError(RuntimeError):
    """A message that Liftbridge refused: it is not stored.

    code: an `AckError`, or the plain number of one that is unknown. correlation_id: of the message. stream: that
    refused it. subject: on which it was published. offset: as the ack has it, which is 0 from the known servers.
    """
    def __init__(self, code: int, correlation_id: str = "", stream: str = "", subject: str = "", offset: int = 0):
        super().__init__(code, correlation_id, stream, subject, offset)
        self.code: int = AckError(code) if code in MEANING else int(code)
        self.correlation_id, self.stream, self.subject, self.offset = correlation_id, stream, subject, offset

    def __str__(self) -> str:
        text = (f"{self.code.name} ({self.code:d}): {MEANING[self.code]}" if isinstance(self.code, AckError) else
                f"unknown error {self.code}")
        return f"{text}; stream {self.stream!r}, subject {self.subject!r}, correlation id {self.correlation_id!r}"


class Outcome(Enum):
    """What became of a message."""
    ACKED = "it is stored, by as many as the policy asks for"
    REFUSED = "it is not stored: a PublishError says why"
    EXPIRED = "nothing was heard of it in time: it is stored or not"
    LATE = "its ack came after it had expired"
    DUPLICATE = "another ack for it: a second stream takes the same subject, or it was delivered twice"
    UNKNOWN = "an ack for nothing that was published here, or for what was forgotten"
    DAMAGED = "bytes in the inbox that are no ack"


SETTLING = (Outcome.ACKED, Outcome.REFUSED, Outcome.EXPIRED)        # one of them is what becomes of a message first


class Receipt(NamedTuple):
    """What was heard of a message, or that nothing was.

    outcome: an `Outcome`. correlation_id: of the message; bytes that are no UTF-8 stand as escapes. stream: that stored
    it. offset: where in its partition, -1 if it is not stored. subject: on which it was published. received, committed:
    by the server's clock, in nanoseconds since 1970; 0 where it does not say. error: PublishError for a refusal, late
    and duplicate ones too; TimeoutError for what expired, FrameError for what is damaged; else None.
    """
    outcome: Outcome
    correlation_id: str = ""
    offset: int = -1
    stream: str = ""
    subject: str = ""
    received: int = 0
    committed: int = 0
    error: Exception | None = None


class Sending(NamedTuple):
    """What is to be published on NATS: `payload` on `subject`. correlation_id: its receipt bears it. acknowledged:
    whether a receipt is waited for."""
    subject: str
    payload: bytes
    correlation_id: str
    acknowledged: bool


class Publisher:
    """Messages in, payloads for NATS out, and what the acks say.

    inbox: the subject that acks are sent to, by default a new one: subscribe to it before anything is sent. timeout:
    seconds until a message expires. remembered: how many settled messages are known when they are heard of again.
    clock: seconds that never go back. limits: of what is read from the inbox at once.

        sending = publisher.publish("orders", b"value", key=b"key")
        nats.publish(sending.subject, sending.payload)
        for receipt in publisher.receive(payloads):     # of the inbox, as many as there are
            ...
        for receipt in publisher.expire():              # at the `deadline`
            ...

    Raises TypeError and ValueError for unfit arguments. For one thread at a time.
    """

    def __init__(self, *, inbox: str | None = None, timeout: float = 5.0, remembered: int = 1 << 16,
                 limits: Limits = Limits(), clock: Callable[[], float] = time.monotonic):
        token = secrets.token_hex(8)
        self._inbox = check_subject(f"_INBOX.{token}" if inbox is None else inbox)
        if not timeout > 0 or remembered < 0:
            raise ValueError("timeout must be more than 0, remembered 0 or more")
        self._timeout, self._remembered, self._limits, self._clock = timeout, remembered, limits, clock
        self._token, self._number = token, 0
        self._pending: OrderedDict[bytes, float] = OrderedDict()        # id -> when it expires; the earliest first
        self._settled: OrderedDict[bytes, Outcome] = OrderedDict()      # the earliest first

    @property
    def inbox(self) -> str:
        """The subject that acks are sent to."""
        return self._inbox

    @property
    def unacknowledged(self) -> int:
        """Messages that wait for their ack."""
        return len(self._pending)

    @property
    def deadline(self) -> float | None:
        """When, by the clock, the next message expires; None while none waits."""
        return next(iter(self._pending.values()), None)

    def publish(
        self, subject: str, value: Any, *, key: Any = None, headers: Any = None, partitions: int = 1,
        partition: int | None = None, ack_policy: int = AckPolicy.LEADER, expected_offset: int = ANY_OFFSET,
        correlation_id: str | None = None, crc: bool = False,
    ) -> Sending:
        """What to send for one message.

        subject: of the stream. partitions: as many as it has. partition: by default that of the key (`partition_of`).
        value, key, headers, crc: as `encode_message` takes them. ack_policy: with AckPolicy.NONE there is no receipt,
        unless the message is refused. expected_offset: what the message is to have, where the stream has optimistic
        concurrency control; -1: any. correlation_id: by default a new one; ValueError for one that waits for its ack.
        """
        subjects = subjects_of(subject, partitions)
        chosen = partition_of(key, partitions) if partition is None else integer(
            partition, "partition", (0, partitions - 1))
        (wanted,) = self._identified(1, None if correlation_id is None else [correlation_id])
        payload = encode_message(value, key=key, headers=headers, ack_inbox=self._inbox, correlation_id=wanted,
                                 ack_policy=ack_policy, offset=expected_offset, crc=crc)
        return Sending(subjects[chosen], payload, wanted, self._await([wanted], ack_policy))

    def publish_many(
        self, subject: str, values: Any, *, keys: Any = None, headers: Any = None, partitions: int = 1,
        partition: Any = None, ack_policy: int = AckPolicy.LEADER, expected_offset: Any = ANY_OFFSET,
        correlation_ids: Iterable[str] | None = None, crc: bool = False,
    ) -> list[Sending]:
        """What to send for many messages, in their order.

        values, keys, headers, crc: as `encode_messages` takes them; values or keys are a column, which says how many
        messages there are. partition, expected_offset: one for all, or an array of integers. correlation_ids: one for
        each. The rest is as in `publish`.
        """
        subjects = subjects_of(subject, partitions)
        values, keys = columns_of({"value": values, "key": keys})[0].values()
        if partition is not None:
            chosen = _chosen(partition, len(values), partitions)
        elif partitions == 1:
            chosen = [0] * len(values)
        else:
            chosen = [partition_of(key, partitions) for key in keys]
        wanted = self._identified(len(values), correlation_ids)
        data, offsets = encode_messages(
            values, keys=keys, headers=headers, ack_inbox=self._inbox, correlation_id=[*map(str.encode, wanted)],
            ack_policy=operator.index(ack_policy), offset=expected_offset, crc=crc)
        acknowledged = self._await(wanted, ack_policy)
        return [Sending(subjects[number], data[start:end], one, acknowledged)
                for number, (start, end), one in zip(chosen, pairwise(offsets.tolist()), wanted)]

    def forget(self, correlation_id: str) -> None:
        """Waits no longer for the ack of a message, as of one that could not be sent."""
        self._pending.pop(correlation_id.encode(), None)

    def receive(self, payloads: Any) -> list[Receipt]:
        """What the NATS messages in the inbox say: a receipt for each, in their order, whatever is in them.

        payloads: a list of bytes, an Arrow array, or anything else that `liftbridge.scan` takes."""
        envelopes = scan(payloads, errors="mark", limits=self._limits)
        found = acks(envelopes, errors="mark", limits=self._limits)
        told = dict(zip(found["parent"].tolist(), self._receipts(found)))
        return [told[row] if row in told else Receipt(Outcome.DAMAGED, error=_no_ack(envelopes, row))
                for row in range(len(envelopes))]

    def expire(self) -> list[Receipt]:
        """The messages that nothing was heard of in time. An ack that comes yet is LATE."""
        now = self._clock()
        expired = [one for one, _ in takewhile(lambda item: item[1] <= now, self._pending.items())]
        for one in expired:
            self._settle(one, Outcome.EXPIRED)
        return [Receipt(Outcome.EXPIRED, one, error=TimeoutError(
            f"no ack in {self._timeout:g} s; correlation id {one!r}")) for one in map(bytes.decode, expired)]

    def _identified(self, count: int, given: Iterable[str] | None) -> list[str]:
        if given is None:
            first, self._number = self._number, self._number + count
            return [f"{self._token}.{number}" for number in range(first, first + count)]
        wanted = list(given)
        if any(not isinstance(one, str) for one in wanted):
            raise TypeError("a correlation id is a str")
        if len(wanted) != count or len(set(wanted)) != count or not all(wanted):
            raise ValueError("correlation ids are unlike, none is empty, and there is one for each message")
        for one in wanted:
            try:
                waits = one.encode() in self._pending
            except UnicodeEncodeError:
                raise ValueError(f"a correlation id that UTF-8 cannot hold: {one!r}") from None
            if waits:
                raise ValueError(f"the message of correlation id {one!r} waits for its ack")
        return wanted

    def _await(self, wanted: list[str], ack_policy: int) -> bool:
        """Waits for the acks of what is now encoded, if there will be any."""
        if ack_policy == AckPolicy.NONE:
            return False
        expires = self._clock() + self._timeout
        self._pending.update(dict.fromkeys(map(str.encode, wanted), expires))
        return True

    def _receipts(self, found: FrameTable) -> Iterator[Receipt]:
        texts = [ByteStrings((found, name)) for name in ("correlation_id", "stream", "msg_subject")]
        numbers = [found[name].tolist() for name in (
            "fault", "offset", "reception_timestamp", "commit_timestamp", "ack_policy", "ack_error")]
        for row, (one, stream, subject, fault, offset, received, committed, policy, code) in enumerate(
                zip(*texts, *numbers)):
            if fault:
                yield Receipt(Outcome.DAMAGED, error=error_of(found, row))
                continue
            outcome = self._judged(one or b"", code != AckError.OK, policy)
            told, stream, subject = _text(one), _text(stream), _text(subject)
            error = PublishError(code, told, stream, subject, offset) if code != AckError.OK else None
            yield Receipt(outcome, told, -1 if error else offset, stream, subject, received, committed, error)

    def _judged(self, one: bytes, refused: bool, policy: int) -> Outcome:
        before = self._settled.get(one)
        if one in self._pending:
            outcome = Outcome.REFUSED if refused else Outcome.ACKED
        elif before is not None:
            outcome = Outcome.LATE if before is Outcome.EXPIRED else Outcome.DUPLICATE
        elif refused and policy == AckPolicy.NONE:
            outcome = Outcome.REFUSED           # nothing waits for it, but somebody should know
        else:
            return Outcome.UNKNOWN
        self._settle(one, outcome)
        return outcome

    def _settle(self, one: bytes, outcome: Outcome) -> None:
        self._pending.pop(one, None)
        self._settled[one] = outcome
        if len(self._settled) > self._remembered:
            self._settled.popitem(last=False)


def _chosen(partition: Any, count: int, partitions: int) -> list[int]:
    """Partitions, out of one for all or an array."""
    chosen = numbers_of(Bounded(partition, (0, partitions - 1)), "partition")
    if chosen.ndim and len(chosen) != count:
        raise ValueError(f"{len(chosen)} partitions are given for {count} messages")
    return np.broadcast_to(chosen, count).tolist()


def _text(given: bytes | None) -> str:
    return (given or b"").decode(errors="backslashreplace")


def _no_ack(envelopes: FrameTable, row: int) -> FrameError:
    """What is wrong with an envelope that is bad, or good but no ack."""
    if envelopes.bad[row]:
        return error_of(envelopes, row)
    return FrameError(Fault.NOT_A_FRAME, int(envelopes["start"][row]), row, envelopes.frame(row))
