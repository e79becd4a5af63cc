"""One TLS connection: its handshake, its records, and what they hold if their keys are known.

Each side is a stream of records. Records that are not needed are only counted: of each one, its
header is read. Needed are the hellos and, with a file of secrets, the encrypted records.

    up to 1.2   hellos and handshake in plain | ChangeCipherSpec | encrypted Finished | data
    TLS 1.3     hellos in plain | records of type 23 with handshake keys up to Finished | data

In TLS 1.3 the last byte of a record of type 23 that is not zero is its real type. A side changes
its key after its Finished, and after each KeyUpdate.

A side may send plain bytes of another protocol first, up to its hello at the start of a packet, as
a server of NATS does. A hello behind plain bytes counts only if the other side has one too.
Otherwise all bytes are plain.

Format: RFC 5246, RFC 8446.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wirescan.core.fault import Fault
from wirescan.pcap.decryption.tls_ciphers import (
    SUITES,
    RecordCipher,
    Suite,
    import_ciphers,
    make_cipher_of_1_3,
    make_old_ciphers,
    update_secret,
)
from wirescan.pcap.decryption.tls_constants import (
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    CLIENT_HELLO,
    ENCRYPTED_EXTENSIONS,
    FINISHED,
    HANDSHAKE,
    KEY_UPDATE,
    SERVER_HELLO,
    Decryption,
    TlsVersion,
)
from wirescan.pcap.decryption.tls_hello import (
    ClientHello,
    HandshakeReader,
    HelloError,
    ServerHello,
    parse_client_hello,
    parse_encrypted_extensions,
    parse_server_hello,
)
from wirescan.pcap.decryption.tls_keys import (
    CLIENT_RANDOM,
    HANDSHAKE_SECRETS,
    TRAFFIC_SECRETS,
    KeyLog,
)
from wirescan.pcap.decryption.tls_plaintext import Plaintext, select_segment
from wirescan.pcap.decryption.tls_records import (
    HEADER_SIZE,
    PLAIN_SIZE,
    begins_handshake,
    read_length,
)

CLIENT, SERVER = 0, 1
WAITING_BYTES = 1 << 16  # of a side that wait for the other side's hello, or for a secret
NEVER = 1 << 63  # the beginning of TLS in a side that is all plain
STATE_BYTES = 4096  # memory of a connection without its decrypted bytes


@dataclass(slots=True)
class Span:
    """Bytes of a side in the buffer of a table of streams, or a gap.

    start, stop: the places of the bytes. at: the place up to which they are done with.
    position: of the first byte in the stream. lost: bytes of a gap, 0 for bytes. segments: those of
    the whole buffer.
    """

    start: int
    stop: int
    position: int
    lost: int
    segments: np.ndarray
    at: int


@dataclass(slots=True)
class TlsSide:
    """What is known of one side of a connection.

    number: CLIENT or SERVER. begin: position of the first record; None if it is not known, NEVER if
    there is none. skip: bytes of a record that follow and are not needed. reads_hello: plain
    handshake messages are read. is_started: an encrypted Finished was decrypted.
    """

    number: int
    handshake: HandshakeReader
    begin: int | None = None
    is_begun: bool = False  # it sent bytes
    reads_hello: bool = True
    skip: int = 0
    data: int = 0  # bytes of records with application data
    data_packet: int = 0  # number of the last packet with such a record's header
    hello_packet: int = 0  # ... with the header of the hello
    has_changed: bool = False  # ChangeCipherSpec was sent
    has_finished: bool = False  # ... and a record after it
    is_broken: bool = False  # where the next record begins is not known
    fault: int = 0
    fault_position: int = 0
    ended: Decryption | None = None  # why nothing more is decrypted
    cipher: RecordCipher | None = None
    next_cipher: RecordCipher | None = None  # used after the message that is being read
    secret: bytes = b""  # the traffic secret of TLS 1.3
    is_started: bool = False
    early_bytes: int = 0  # of records that no key decrypts before the Finished
    plain: Plaintext = field(default_factory=Plaintext)

    def start(self, position: int, *, is_tls: bool) -> None:
        """Note where the first bytes are, and whether they are a record."""
        self.is_begun = True
        self.plain.position = position
        if is_tls:
            self.begin = 0

    @property
    def is_plain(self) -> bool:
        """Whether it is plain as far as it is known."""
        return self.begin is None or self.begin == NEVER

    def is_plain_at(self, position: int) -> bool:
        """Return whether the byte at a position of the stream is plain."""
        return self.begin is None or position < self.begin


class TlsConnection:
    """Follows the records of both sides: TlsConnection(keylog, keeps_data=...).

    keylog: the secrets. keeps_data: True keeps plain and decrypted bytes in `plain` of the sides,
    and skips records that cannot be decrypted. False keeps none, and counts all records.
    """

    def __init__(self, keylog: KeyLog, *, keeps_data: bool):
        self.client_hello: ClientHello | None = None
        self.server_hello: ServerHello | None = None
        self.alpn: bytes | None = None
        self.sides = (
            TlsSide(CLIENT, HandshakeReader(frozenset({CLIENT_HELLO}))),
            TlsSide(SERVER, HandshakeReader(frozenset({SERVER_HELLO}))),
        )
        self._keylog = keylog
        self._keeps_data = keeps_data
        self._suite: Suite | None = None
        self._has_retry = False
        self._accepts_early_data = False

    @property
    def is_complete(self) -> bool:
        """Whether the capture has the end of the handshake."""
        client, server = self.sides
        if self.server_hello is None:
            return False
        if self.server_hello.version >= TlsVersion.TLS_1_3:
            return client.data_packet > server.hello_packet
        return client.has_finished and server.has_finished

    @property
    def decryption(self) -> Decryption:
        """How the data was decrypted."""
        if not self._keylog.is_used:
            return Decryption.NOT_TRIED
        reasons = [side.ended for side in self.sides if side.ended is not None]
        if not reasons and self._suite is None:
            return Decryption.NO_HANDSHAKE
        return max(reasons, default=Decryption.DECRYPTED)

    @property
    def is_tls(self) -> bool:
        """Whether a side has records."""
        return not (self._is_tentative or all(side.is_plain for side in self.sides))

    @property
    def is_over(self) -> bool:
        """Whether no side has further bytes to give: only with keeps_data."""
        if not self._keeps_data or self._keylog.is_used:
            return False
        return all(
            side.ended is not None and not side.is_plain and not side.plain.pieces
            for side in self.sides
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of memory."""
        return STATE_BYTES + sum(
            side.plain.held_bytes + side.handshake.held_bytes for side in self.sides
        )

    @property
    def _is_tentative(self) -> bool:
        """Whether a hello behind plain bytes waits for that of the other side."""
        begins = [side.begin for side in self.sides]
        return None in begins and any(begin not in (None, 0, NEVER) for begin in begins)

    def read(self, view: memoryview, spans: tuple[list[Span], list[Span]], *, more: bool) -> None:
        """Read the next bytes of both sides, and set `at` of their spans.

        view: the buffer. spans: of the client and of the server. The bytes that are not done with
        come again, with those that follow. more: whether bytes may follow.
        """
        if self._keeps_data and not self._keylog.is_open:
            for side in self.sides:
                side.ended = side.ended or Decryption.NOT_TRIED
        left = (list(spans[CLIENT]), list(spans[SERVER]))
        # Each side may wait for the other one's hello.
        before = None
        while (now := _count_done(spans, left)) != before:
            before = now
            for side in self.sides:
                self._advance(view, side, left[side.number])
        for side in self.sides:
            rest = left[side.number]
            waiting = sum(span.stop - span.at for span in rest)
            if rest and (not more or len(rest) > 1 or waiting > WAITING_BYTES):
                self._give_up(view, side, rest)
            if rest and not more:
                self._finish(view, side, rest[-1])

    def _give_up(self, view: memoryview, side: TlsSide, rest: list[Span]) -> None:
        """End the wait of a side for a hello or a secret, if it waits."""
        if not self._is_waiting(view, side, rest[0]):
            return
        if self._is_tentative:
            self._refute()
            self._advance(view, side, rest)
        else:
            reason = self._find_obstacle() or Decryption.NO_HANDSHAKE
            self._end(side, reason, Fault.NOT_A_FRAME, rest[0])
            self._advance(view, side, rest)

    def _is_waiting(self, view: memoryview, side: TlsSide, span: Span) -> bool:
        if side.is_plain_at(span.position + span.at - span.start):
            return False
        if self._is_tentative:
            return True
        if side.ended is not None or side.is_broken or span.lost or side.skip:
            return False
        if span.stop - span.at < HEADER_SIZE or read_length(view, span.at) < 0:
            return False
        return self._needs_key(side, view[span.at]) and self._find_obstacle() is not None

    def _finish(self, view: memoryview, side: TlsSide, span: Span) -> None:
        """Count the record that the end of the stream cuts."""
        size = span.stop - span.at
        if side.is_plain_at(span.position + span.at - span.start):
            return
        if not side.is_broken and not side.skip and size >= HEADER_SIZE:
            length = read_length(view, span.at)
            if length >= 0 and view[span.at] == APPLICATION_DATA:
                side.data += length
            if length >= 0:
                self._follow_change(side, view[span.at])

    # ---- records

    def _advance(self, view: memoryview, side: TlsSide, spans: list[Span]) -> None:
        """Read spans up to the last one, or up to one that waits. Remove those that are done."""
        while spans:
            span = spans[0]
            if span.lost:
                self._skip_gap(view, side, span, None)
            else:
                self._read_span(view, side, span)
                side.plain.flush(span.segments)
                if len(spans) == 1 or self._is_waiting(view, side, span):
                    return
                # A gap follows.
                self._skip_gap(view, side, spans.pop(1), span)
            spans.pop(0)

    def _read_span(self, view: memoryview, side: TlsSide, span: Span) -> None:
        """Read the records of a span, but not one that it cuts or that waits for a key."""
        data_at = -1
        while span.at < span.stop:
            if side.is_plain_at(span.position + span.at - span.start):
                self._read_plain(view, side, span)
                continue
            if self._is_tentative:
                break
            if side.is_broken or self._keeps_data and side.ended is not None:
                span.at = span.stop
                break
            if side.skip:
                skipped = min(side.skip, span.stop - span.at)
                side.skip -= skipped
                span.at += skipped
                continue
            if span.stop - span.at < HEADER_SIZE:
                break
            at = span.at
            length = read_length(view, at)
            if length < 0:
                self._break(side, Decryption.DAMAGED, Fault.BAD_LENGTH, span)
            elif not self._read_next(view, side, span, length):
                break
            elif view[at] == APPLICATION_DATA:
                data_at = at
        if data_at >= 0:
            side.data_packet = int(select_segment(span.segments, data_at)["packet"][0])

    def _read_plain(self, view: memoryview, side: TlsSide, span: Span) -> None:
        """Keep plain bytes of a span, up to the first record if it is known or found."""
        if side.begin is None:
            self._find_begin(view, side, span)
        position = span.position + span.at - span.start
        stop = span.stop
        if side.begin is not None:
            stop = min(stop, span.at + side.begin - position)
        if self._keeps_data:
            side.plain.add(bytes(view[span.at : stop]), span.at)
        span.at = stop

    def _find_begin(self, view: memoryview, side: TlsSide, span: Span) -> None:
        """Find the hello of a side at the start of a packet."""
        hello = CLIENT_HELLO if side.number == CLIENT else SERVER_HELLO
        starts = span.segments["start"]
        first, last = np.searchsorted(starts, [span.at, span.stop])
        for start in starts[first:last].tolist():
            position = span.position + start - span.start
            if position >= PLAIN_SIZE:
                self._refute()
                return
            if begins_handshake(view, start, span.stop, hello):
                side.begin = position
                return

    def _refute(self) -> None:
        """Read all as plain: a side has no hello, so a late one of the other side is none."""
        for side in self.sides:
            if side.begin != 0:
                side.begin = NEVER

    def _read_next(self, view: memoryview, side: TlsSide, span: Span, length: int) -> bool:
        """Read one record, or its header if nothing else is needed.

        length: of its content. Returns False for a record that is cut or that waits for a key.
        """
        at = span.at
        kind = view[at]
        stop = at + HEADER_SIZE + length
        if self._needs_key(side, kind):
            obstacle = self._find_obstacle()
            if obstacle in (Decryption.NO_HANDSHAKE, Decryption.NO_SECRET):
                return False
            if obstacle is not None:
                self._end(side, obstacle, Fault.NOT_A_FRAME, span)
        if not self._is_read(side, kind):
            side.skip = length
            span.at = at + HEADER_SIZE
        elif stop > span.stop:
            return False
        else:
            self._read_record(side, view[at:stop], span)
            span.at = stop
        if kind == APPLICATION_DATA:
            side.data += length
        self._follow_change(side, kind)
        return True

    def _needs_key(self, side: TlsSide, kind: int) -> bool:
        """Return whether a record can only be read when the keys are known."""
        if not self._keylog.is_open or side.ended is not None:
            return False
        if kind == CHANGE_CIPHER_SPEC:
            # After a request for another ClientHello it means nothing: the hello is still to come.
            return side.number == CLIENT or not self._has_retry or self.server_hello is not None
        return kind == APPLICATION_DATA

    def _is_read(self, side: TlsSide, kind: int) -> bool:
        """Return whether the content of a record is needed."""
        if kind == HANDSHAKE and side.reads_hello:
            return True
        if not self._keylog.is_open or side.ended is not None:
            return False
        if self._is_1_3:
            return kind == APPLICATION_DATA
        if side.cipher is None or kind == CHANGE_CIPHER_SPEC:
            return False
        return kind == APPLICATION_DATA or side.has_changed

    @property
    def _is_1_3(self) -> bool:
        return self.server_hello is not None and self.server_hello.version >= TlsVersion.TLS_1_3

    def _follow_change(self, side: TlsSide, kind: int) -> None:
        """Follow ChangeCipherSpec, after which a side encrypts. In TLS 1.3 it means nothing."""
        if kind == CHANGE_CIPHER_SPEC:
            side.has_changed = True
            # A server that asked for another ClientHello sends its own hello afterwards.
            if side.number == CLIENT or not self._has_retry:
                side.reads_hello = False
        elif side.has_changed and kind in (HANDSHAKE, APPLICATION_DATA):
            side.has_finished = True

    def _read_record(self, side: TlsSide, record: memoryview, span: Span) -> None:
        """Read a whole record, whose content is needed. `span.at` is its place."""
        if record[0] == HANDSHAKE and side.reads_hello:
            self._read_hello(side, record[HEADER_SIZE:], span)
            return
        assert side.cipher is not None  # nobody reads a record before its key is known
        plain = side.cipher.open(bytes(record[:HEADER_SIZE]), record[HEADER_SIZE:])
        kind = record[0]
        if plain is None:
            if self._may_be_early(side):
                side.early_bytes += max(len(record) - HEADER_SIZE - side.cipher.overhead, 0)
            else:
                self._end(side, Decryption.DAMAGED, Fault.BAD_CHECKSUM, span)
            return
        if side.early_bytes and self._accepts_early_data:
            self._add_fault(side, Fault.LOST, span, lost=side.early_bytes)
        side.early_bytes = 0
        if self._is_1_3:
            plain = plain.rstrip(b"\0")
            if not plain:
                self._end(side, Decryption.DAMAGED, Fault.BAD_KIND, span)
                return
            kind = plain[-1]
            plain = plain[:-1]
        if kind == APPLICATION_DATA and self._keeps_data:
            side.plain.add(plain, span.at + HEADER_SIZE + side.cipher.explicit_size)
        elif kind == HANDSHAKE:
            self._read_encrypted_handshake(side, plain, span)

    def _may_be_early(self, side: TlsSide) -> bool:
        """Return whether a record that does not authenticate may have early data."""
        return (
            side.number == CLIENT
            and self._is_1_3
            and self.client_hello is not None
            and self.client_hello.has_early_data
            and not side.is_started
            and side.cipher is not None
            and side.cipher.sequence == 0
        )

    # ---- handshakes

    def _read_hello(self, side: TlsSide, content: memoryview, span: Span) -> None:
        """Read plain handshake messages up to the hello."""
        try:
            for kind, body in side.handshake.read(bytes(content)):
                if kind == CLIENT_HELLO and side.number == CLIENT:
                    self.client_hello = parse_client_hello(body)
                    side.reads_hello = False
                elif kind == SERVER_HELLO and side.number == SERVER:
                    hello = parse_server_hello(body)
                    if hello.is_retry:
                        self._has_retry = True
                        continue
                    self.server_hello = hello
                    self.alpn = hello.alpn
                    side.reads_hello = False
                    packet = select_segment(span.segments, span.at)["packet"]
                    side.hello_packet = int(packet[0])
                if not side.reads_hello:
                    side.handshake = HandshakeReader(frozenset({ENCRYPTED_EXTENSIONS}))
                    break
        except HelloError:
            side.reads_hello = False
            self._end(side, Decryption.DAMAGED, Fault.TRUNCATED, span)

    def _read_encrypted_handshake(self, side: TlsSide, plain: bytes, span: Span) -> None:
        """Read handshake messages of an encrypted record, and change the key after some."""
        try:
            messages = side.handshake.read(plain)
            for kind, body in messages:
                if not self._is_1_3:
                    if kind in (CLIENT_HELLO, SERVER_HELLO):
                        self._end(side, Decryption.RENEGOTIATED, Fault.BAD_KIND, span)
                        return
                elif kind == ENCRYPTED_EXTENSIONS and side.number == SERVER:
                    self.alpn, self._accepts_early_data = parse_encrypted_extensions(body)
                elif kind == FINISHED and not side.is_started:
                    self._plan_key(side, self._find_secrets(TRAFFIC_SECRETS)[side.number])
                    side.is_started = True
                elif kind == KEY_UPDATE and side.is_started:
                    assert self._suite is not None
                    self._plan_key(side, update_secret(self._suite, side.secret))
        except HelloError:
            self._end(side, Decryption.DAMAGED, Fault.TRUNCATED, span)
        if side.next_cipher is not None and side.handshake.is_between_messages:
            side.cipher = side.next_cipher
            side.next_cipher = None

    def _plan_key(self, side: TlsSide, secret: bytes) -> None:
        """Change the key after the message that is being read."""
        assert self._suite is not None
        side.secret = secret
        side.next_cipher = make_cipher_of_1_3(self._suite, secret)

    # ---- keys

    def _find_obstacle(self) -> Decryption | None:
        """Return why the records cannot be decrypted; None if their ciphers are known."""
        if self._suite is not None:
            return None
        if self.client_hello is None or self.server_hello is None:
            return Decryption.NO_HANDSHAKE
        hello = self.server_hello
        suite = SUITES.get(hello.version, {}).get(hello.cipher_suite)
        if suite is None or hello.compression:
            return Decryption.UNSUPPORTED
        try:
            return self._make_ciphers(suite)
        except import_ciphers()[0].UnsupportedAlgorithm:
            return Decryption.UNSUPPORTED  # this OpenSSL does not have it

    def _make_ciphers(self, suite: Suite) -> Decryption | None:
        """Make the ciphers of both sides. Return why that cannot be done, or None."""
        assert self.client_hello is not None and self.server_hello is not None
        client, server = self.sides
        hello = self.server_hello
        if self._is_1_3:
            secrets = self._find_secrets(HANDSHAKE_SECRETS)
            if not all(secrets) or not all(self._find_secrets(TRAFFIC_SECRETS)):
                return Decryption.NO_SECRET
            for side, secret in zip(self.sides, secrets):
                side.secret = secret
                side.cipher = make_cipher_of_1_3(suite, secret)
        else:
            master = self._keylog.find(CLIENT_RANDOM, self.client_hello.random)
            if master is None:
                return Decryption.NO_SECRET
            client.cipher, server.cipher = make_old_ciphers(
                suite,
                hello.version,
                master,
                hello.random + self.client_hello.random,
                is_mac_last=hello.encrypts_then_macs,
            )
        self._suite = suite
        return None

    def _find_secrets(self, labels: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Return the secrets of the client and the server, empty where there is none."""
        assert self.client_hello is not None
        random = self.client_hello.random
        client, server = (self._keylog.find(label, random) or b"" for label in labels)
        return client, server

    # ---- faults

    def _skip_gap(self, view: memoryview, side: TlsSide, gap: Span, before: Span | None) -> None:
        """Follow lost bytes. A gap inside one record loses that record only.

        before: the bytes before the gap, of which the last ones may be the beginning of a record.
        """
        if side.is_plain_at(gap.position):
            self._add_fault(side, Fault.LOST, gap, lost=gap.lost)
            return
        if side.is_broken or self._keeps_data and side.ended is not None:
            return
        size = 0 if before is None else before.stop - before.at
        missing = side.skip
        length = -1
        if before is not None and not side.skip and size >= HEADER_SIZE:
            length = read_length(view, before.at)
            missing = max(HEADER_SIZE + length - size, 0) if length >= 0 else 0
        if not missing or gap.lost > missing:
            self._break(side, Decryption.LOST, Fault.LOST, gap)
            return
        side.skip = missing - gap.lost
        if length < 0 or before is None:
            return
        record = before.at
        before.at = before.stop
        kind = view[record]
        side.data += length if kind == APPLICATION_DATA else 0
        if kind == HANDSHAKE and side.reads_hello:
            side.reads_hello = False
        if not self._keylog.is_open or side.ended is not None:
            return
        has_data = kind == APPLICATION_DATA and (side.is_started or not self._is_1_3)
        if side.cipher is None or not has_data or side.cipher.is_chained:
            self._end(side, Decryption.LOST, Fault.LOST, gap)
            return
        side.cipher.sequence += 1
        self._add_fault(side, Fault.LOST, gap, lost=max(length - side.cipher.overhead, 0))

    def _break(self, side: TlsSide, reason: Decryption, fault: Fault, span: Span) -> None:
        """Read nothing more of a side: where the next record begins is not known."""
        side.is_broken = True
        side.reads_hello = False
        self._end(side, reason, fault, span)

    def _end(self, side: TlsSide, reason: Decryption, fault: Fault, span: Span) -> None:
        """Decrypt nothing more of a side. Its records are counted."""
        if reason in (Decryption.LOST, Decryption.DAMAGED):
            self._note_fault(side, fault, span)
        if self._keylog.is_open and side.ended is None:
            side.ended = reason
            # Without secrets the connection is not read at all.
            if self._keylog.has_file or self._find_obstacle() is None:
                self._add_fault(side, fault, span, lost=span.lost)

    def _note_fault(self, side: TlsSide, fault: Fault, span: Span) -> None:
        if not side.fault:
            side.fault = fault
            side.fault_position = span.position + (0 if span.lost else span.at - span.start)

    def _add_fault(self, side: TlsSide, fault: Fault, span: Span, *, lost: int = 0) -> None:
        if not self._keeps_data:
            return
        side.plain.flush(span.segments)
        side.plain.add_fault(fault, select_segment(span.segments, span.at), lost)


def _count_done(spans: tuple[list[Span], list[Span]], left: tuple[list[Span], list[Span]]) -> int:
    """Return a number that grows whenever bytes or gaps are done with."""
    return sum(span.at for side in spans for span in side) - sum(map(len, left))
