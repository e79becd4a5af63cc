"""The publishing side of a conversation with Liftbridge over NATS, without the connection.

    publisher                           NATS                              Liftbridge
        SUB inbox ------------------------>
        PUB subject  envelope(Message) --->------------------------------>  stores it: the log of a
                                           <--  PUB inbox  envelope(Ack) --  partition
        MSG inbox <------------------------

`client.py` runs `Publisher` on a connection.

Sources: Liftbridge documentation, "Envelope Protocol" and "Concepts"; in the server,
server/partition.go (what is acknowledged, and when).
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

from wirescan.core.arguments import Bounded, check_integer, convert_columns, convert_numbers
from wirescan.core.fault import Fault
from wirescan.core.strings import ByteStrings
from wirescan.frames.errors import FrameError, make_frame_error
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.liftbridge.constants import AckError, AckPolicy
from wirescan.liftbridge.encode import encode_message, encode_messages
from wirescan.liftbridge.formats import acks, scan
from wirescan.liftbridge.live.subjects import check_subject, compute_partition, list_subjects

ANY_OFFSET = -1  # the expected offset of a message that may get any offset
MEANING = {
    AckError.UNKNOWN: "the server failed",
    AckError.INCORRECT_OFFSET: "the next offset of the partition is not the expected one",
    AckError.TOO_LARGE: "the message is larger than the server replicates",
    AckError.ENCRYPTION: "the server cannot encrypt the message",
}


class PublishError(RuntimeError):
    """Liftbridge refused a message and did not store it.

    code: an `AckError`, or an int if the number is unknown. correlation_id: of the message. stream:
    the stream that refused the message. subject: the subject on which it was published. offset: of
    the ack; the known servers send 0.
    """

    def __init__(
        self,
        code: int,
        correlation_id: str = "",
        stream: str = "",
        subject: str = "",
        offset: int = 0,
    ):
        super().__init__(code, correlation_id, stream, subject, offset)
        self.code: int = AckError(code) if code in MEANING else int(code)
        self.correlation_id = correlation_id
        self.stream = stream
        self.subject = subject
        self.offset = offset

    def __str__(self) -> str:
        text = f"unknown error {self.code}"
        if isinstance(self.code, AckError):
            text = f"{self.code.name} ({self.code:d}): {MEANING[self.code]}"
        return (
            f"{text}; stream {self.stream!r}, subject {self.subject!r}, "
            f"correlation id {self.correlation_id!r}"
        )


class Outcome(Enum):
    """What happened to a message."""

    ACKED = "stored by as many replicas as the ack policy asks for"
    REFUSED = "not stored; a PublishError says why"
    EXPIRED = "no ack in time; the message may be stored or not"
    LATE = "an ack that came after the message had expired"
    DUPLICATE = (
        "another ack: a second stream has the same subject, or the message was delivered twice"
    )
    UNKNOWN = "an ack for a message that was not published here, or that was forgotten"
    DAMAGED = "bytes in the inbox that are not an ack"


# The first receipt of a message has one of these outcomes.
SETTLING = (Outcome.ACKED, Outcome.REFUSED, Outcome.EXPIRED)


class Receipt(NamedTuple):
    """The answer to a message, or the fact that none came.

    outcome: an `Outcome`. correlation_id: of the message; bytes that are not UTF-8 become escapes.
    offset: of the message in its partition, -1 if it is not stored. stream: the stream that stored
    it. subject: the subject on which it was published. received, committed: nanoseconds since 1970
    by the server's clock, 0 if absent. error: PublishError for a refusal, also in late and
    duplicate acks; TimeoutError for an expired message; FrameError for damaged bytes; otherwise
    None.
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
    """What to publish on NATS: `payload` on `subject`.

    correlation_id: of the message; its receipt has the same. acknowledged: whether a receipt will
    come.
    """

    subject: str
    payload: bytes
    correlation_id: str
    acknowledged: bool


class Publisher:
    """Turns messages into payloads for NATS, and acks into receipts.

    inbox: the subject to which acks are sent; a new one by default. Subscribe to it before you
    send. timeout: seconds until a message expires. remembered: how many settled messages are
    remembered, to recognize later acks for them. limits: bounds of one `receive`. clock: returns
    seconds that never decrease.

        sending = publisher.publish("orders", b"value", key=b"key")
        nats.publish(sending.subject, sending.payload)
        for receipt in publisher.receive(payloads):     # payloads from the inbox
            ...
        for receipt in publisher.expire():              # at the `deadline`
            ...

    Raises TypeError and ValueError for wrong arguments. Not safe for threads.
    """

    def __init__(
        self,
        *,
        inbox: str | None = None,
        timeout: float = 5.0,
        remembered: int = 1 << 16,
        limits: Limits = Limits(),
        clock: Callable[[], float] = time.monotonic,
    ):
        self._token = secrets.token_hex(8)
        self._inbox = check_subject(f"_INBOX.{self._token}" if inbox is None else inbox)
        if not timeout > 0 or remembered < 0:
            raise ValueError("timeout must be more than 0, remembered 0 or more")
        self._timeout = timeout
        self._remembered = remembered
        self._limits = limits
        self._clock = clock
        self._number = 0
        # Correlation ids with the time at which they expire, and with their outcome, oldest first.
        self._pending: OrderedDict[bytes, float] = OrderedDict()
        self._settled: OrderedDict[bytes, Outcome] = OrderedDict()

    @property
    def inbox(self) -> str:
        """The subject to which acks are sent."""
        return self._inbox

    @property
    def unacknowledged(self) -> int:
        """The number of messages that wait for their ack."""
        return len(self._pending)

    @property
    def deadline(self) -> float | None:
        """The time, by the clock, at which the next message expires; None if no message waits."""
        return next(iter(self._pending.values()), None)

    def publish(
        self,
        subject: str,
        value: Any,
        *,
        key: Any = None,
        headers: Any = None,
        partitions: int = 1,
        partition: int | None = None,
        ack_policy: int = AckPolicy.LEADER,
        expected_offset: int = ANY_OFFSET,
        correlation_id: str | None = None,
        crc: bool = False,
    ) -> Sending:
        """Return what to send for one message.

        subject: of the stream. partitions: the number of its partitions. partition: by default that
        of the key (`compute_partition`). value, key, headers, crc: as `encode_message` takes them.
        ack_policy: with AckPolicy.NONE no receipt comes, unless the message is refused.
        expected_offset: the offset that the message is expected to get, if the stream has
        optimistic concurrency control; -1: any. correlation_id: a new one by default.

        Raises ValueError for a correlation id that already waits for its ack.
        """
        subjects = list_subjects(subject, partitions)
        if partition is None:
            number = compute_partition(key, partitions)
        else:
            number = check_integer(partition, "partition", (0, partitions - 1))
        (id_,) = self._make_correlation_ids(1, None if correlation_id is None else [correlation_id])
        payload = encode_message(
            value,
            key=key,
            headers=headers,
            ack_inbox=self._inbox,
            correlation_id=id_,
            ack_policy=ack_policy,
            offset=expected_offset,
            crc=crc,
        )
        acknowledged = self._expect_acks([id_], ack_policy)
        return Sending(subjects[number], payload, id_, acknowledged)

    def publish_many(
        self,
        subject: str,
        values: Any,
        *,
        keys: Any = None,
        headers: Any = None,
        partitions: int = 1,
        partition: Any = None,
        ack_policy: int = AckPolicy.LEADER,
        expected_offset: Any = ANY_OFFSET,
        correlation_ids: Iterable[str] | None = None,
        crc: bool = False,
    ) -> list[Sending]:
        """Return what to send for many messages, in their order.

        values, keys, headers, crc: as `encode_messages` takes them. values or keys must be a
        column, which says how many messages there are. partition, expected_offset: one for all
        messages, or an array of integers. correlation_ids: one for each message. The other
        arguments are as in `publish`.
        """
        subjects = list_subjects(subject, partitions)
        values, keys = convert_columns({"value": values, "key": keys})[0].values()
        if partition is not None:
            numbers = _expand_partitions(partition, len(values), partitions)
        elif partitions == 1:
            numbers = [0] * len(values)
        else:
            numbers = [compute_partition(key, partitions) for key in keys]
        ids = self._make_correlation_ids(len(values), correlation_ids)
        data, offsets = encode_messages(
            values,
            keys=keys,
            headers=headers,
            ack_inbox=self._inbox,
            correlation_id=[*map(str.encode, ids)],
            ack_policy=operator.index(ack_policy),
            offset=expected_offset,
            crc=crc,
        )
        acknowledged = self._expect_acks(ids, ack_policy)
        return [
            Sending(subjects[number], data[start:end], id_, acknowledged)
            for number, (start, end), id_ in zip(numbers, pairwise(offsets.tolist()), ids)
        ]

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for the ack of a message, for example one that could not be sent."""
        self._pending.pop(correlation_id.encode(), None)

    def receive(self, payloads: Any) -> list[Receipt]:
        """Return a receipt for each NATS message in the inbox, in their order.

        payloads: a list of bytes, an Arrow array, or another source of `liftbridge.scan`. A payload
        that is not an ack gives a receipt too (DAMAGED).
        """
        envelopes = scan(payloads, errors="mark", limits=self._limits)
        table = acks(envelopes, errors="mark", limits=self._limits)
        receipts = dict(zip(table["parent"].tolist(), self._make_receipts(table)))
        return [
            receipts[row]
            if row in receipts
            else Receipt(Outcome.DAMAGED, error=_describe_envelope_error(envelopes, row))
            for row in range(len(envelopes))
        ]

    def expire(self) -> list[Receipt]:
        """Return receipts for the messages whose ack did not come in time.

        An ack that comes later is LATE.
        """
        now = self._clock()
        expired = [id_ for id_, _ in takewhile(lambda item: item[1] <= now, self._pending.items())]
        for id_ in expired:
            self._settle(id_, Outcome.EXPIRED)
        return [
            Receipt(
                Outcome.EXPIRED,
                text,
                error=TimeoutError(f"no ack in {self._timeout:g} s; correlation id {text!r}"),
            )
            for text in map(bytes.decode, expired)
        ]

    def _make_correlation_ids(self, count: int, correlation_ids: Iterable[str] | None) -> list[str]:
        """Return the correlation ids after validation, or, for None, `count` new ones."""
        if correlation_ids is None:
            first = self._number
            self._number += count
            return [f"{self._token}.{number}" for number in range(first, first + count)]
        ids = list(correlation_ids)
        for id_ in ids:
            if not isinstance(id_, str):
                raise TypeError(f"a correlation id must be a str, not {type(id_).__name__}")
        if len(ids) != count or len(set(ids)) != count or not all(ids):
            raise ValueError(
                f"correlation ids must be distinct and not empty, and {count} in number: one for "
                "each message"
            )
        for id_ in ids:
            try:
                is_pending = id_.encode() in self._pending
            except UnicodeEncodeError:
                raise ValueError(
                    f"a correlation id must be text that UTF-8 can encode, not {id_!r}"
                ) from None
            if is_pending:
                raise ValueError(
                    f"a message with the correlation id {id_!r} already waits for its ack"
                )
        return ids

    def _expect_acks(self, ids: list[str], ack_policy: int) -> bool:
        """Start to wait for the acks of encoded messages. Return whether acks will come."""
        if ack_policy == AckPolicy.NONE:
            return False
        expires = self._clock() + self._timeout
        self._pending.update(dict.fromkeys(map(str.encode, ids), expires))
        return True

    def _make_receipts(self, table: FrameTable) -> Iterator[Receipt]:
        """Yield a receipt for each row of a table of liftbridge.acks."""
        texts = [ByteStrings((table, name)) for name in ("correlation_id", "stream", "msg_subject")]
        names = ("offset", "reception_timestamp", "commit_timestamp", "ack_policy", "ack_error")
        numbers = [table[name].tolist() for name in names]
        faults = table["fault"].tolist()
        for row, (values, offset, received, committed, policy, code) in enumerate(
            zip(zip(*texts), *numbers)
        ):
            if faults[row]:
                yield Receipt(Outcome.DAMAGED, error=make_frame_error(table, row))
                continue
            is_refusal = code != AckError.OK
            id_bytes, stream_bytes, subject_bytes = values
            outcome = self._judge(id_bytes or b"", policy, is_refusal=is_refusal)
            id_ = _decode_text(id_bytes)
            stream = _decode_text(stream_bytes)
            subject = _decode_text(subject_bytes)
            error = PublishError(code, id_, stream, subject, offset) if is_refusal else None
            stored_at = -1 if error else offset
            yield Receipt(outcome, id_, stored_at, stream, subject, received, committed, error)

    def _judge(self, id_: bytes, policy: int, *, is_refusal: bool) -> Outcome:
        """Return the outcome of an ack, and remember it."""
        earlier = self._settled.get(id_)
        if id_ in self._pending:
            outcome = Outcome.REFUSED if is_refusal else Outcome.ACKED
        elif earlier is not None:
            outcome = Outcome.LATE if earlier is Outcome.EXPIRED else Outcome.DUPLICATE
        elif is_refusal and policy == AckPolicy.NONE:
            outcome = Outcome.REFUSED  # no call waits for it, but the user should know of it
        else:
            return Outcome.UNKNOWN
        self._settle(id_, outcome)
        return outcome

    def _settle(self, id_: bytes, outcome: Outcome) -> None:
        self._pending.pop(id_, None)
        self._settled[id_] = outcome
        if len(self._settled) > self._remembered:
            self._settled.popitem(last=False)


def _expand_partitions(partition: Any, count: int, partitions: int) -> list[int]:
    """Return `count` partition numbers, from one number for all or from an array."""
    array = convert_numbers(Bounded(partition, (0, partitions - 1)), "partition")
    if array.ndim and len(array) != count:
        raise ValueError(f"{len(array)} partitions are given for {count} messages")
    numbers: list[int] = np.broadcast_to(array, count).tolist()
    return numbers


def _decode_text(data: bytes | None) -> str:
    return (data or b"").decode(errors="backslashreplace")


def _describe_envelope_error(envelopes: FrameTable, row: int) -> FrameError:
    """Return what is wrong with an envelope that is bad, or that is good but not an ack."""
    if envelopes.bad[row]:
        return make_frame_error(envelopes, row)
    return FrameError(Fault.NOT_A_FRAME, int(envelopes["start"][row]), row, envelopes.frame(row))
