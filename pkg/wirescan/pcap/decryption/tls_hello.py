"""The hellos of TLS: what a client offers, and what a server chooses.

    ClientHello   version 2, random 32, session id 1+n, cipher suites 2+n, compressions 1+n,
                  extensions 2+n
    ServerHello   version 2, random 32, session id 1+n, cipher suite 2, compression 1,
                  extensions 2+n
    extension     type 2, length 2, content

Format: RFC 5246, 7.4.1; RFC 8446, 4.1; RFC 6066, 3; RFC 7301, 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from wirescan.pcap.decryption.tls_constants import ALPN, SERVER_NAME, SUPPORTED_VERSIONS

MESSAGE_HEADER = 4  # bytes: type, length
LARGEST_HELLO = 1 << 14  # bytes of a hello that is read
RANDOM_SIZE = 32
LONGEST_TEXT = 255  # bytes of the name of a host, and of a list of protocols
HOST_NAME = 0  # the type of a server's name
ENCRYPT_THEN_MAC = 22  # extensions
EARLY_DATA = 42
# The random of a ServerHello that asks for another ClientHello. Source: RFC 8446, 4.1.3.
RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


class HelloError(ValueError):
    """A hello whose fields do not fit it."""


@dataclass(frozen=True)
class ClientHello:
    """What a client offers.

    server_name: None if the client does not send it. alpn: the protocols, separated by commas, at
    most LONGEST_TEXT bytes of whole names; None if the client does not send any.
    """

    random: bytes
    server_name: bytes | None
    alpn: bytes | None
    has_early_data: bool


@dataclass(frozen=True)
class ServerHello:
    """What a server chooses.

    alpn: None where the hello does not have it, as in TLS 1.3. encrypts_then_macs: the MAC of a
    record with CBC is that of the encrypted bytes.
    """

    random: bytes
    version: int
    cipher_suite: int
    compression: int
    alpn: bytes | None
    encrypts_then_macs: bool

    @property
    def is_retry(self) -> bool:
        """Whether the server asks for another ClientHello."""
        return self.random == RETRY_RANDOM


class _Fields:
    """Reads fields from the front of bytes. Raises HelloError where they end."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        stop = self._at + size
        if stop > len(self._data):
            raise HelloError(f"a field of {size} bytes runs past the end")
        taken = self._data[self._at : stop]
        self._at = stop
        return taken

    def take_number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def take_vector(self, size: int) -> bytes:
        """Return bytes that follow their length, a number of `size` bytes."""
        return self.take(self.take_number(size))


def parse_client_hello(body: bytes) -> ClientHello:
    """Parse the body of a ClientHello. Raises HelloError."""
    fields = _Fields(body)
    fields.take(2)
    random = fields.take(RANDOM_SIZE)
    fields.take_vector(1)
    fields.take_vector(2)
    fields.take_vector(1)
    extensions = _parse_extensions(fields)
    name = _parse_server_name(extensions.get(SERVER_NAME))
    alpn = _join_names(parse_protocols(extensions.get(ALPN)))
    return ClientHello(random, name, alpn, EARLY_DATA in extensions)


def parse_server_hello(body: bytes) -> ServerHello:
    """Parse the body of a ServerHello. Raises HelloError."""
    fields = _Fields(body)
    version = fields.take_number(2)
    random = fields.take(RANDOM_SIZE)
    fields.take_vector(1)
    suite = fields.take_number(2)
    compression = fields.take_number(1)
    extensions = _parse_extensions(fields)
    if SUPPORTED_VERSIONS in extensions:
        version = _Fields(extensions[SUPPORTED_VERSIONS]).take_number(2)
    protocols = parse_protocols(extensions.get(ALPN))
    alpn = protocols[0] if protocols else None
    return ServerHello(random, version, suite, compression, alpn, ENCRYPT_THEN_MAC in extensions)


def parse_encrypted_extensions(body: bytes) -> tuple[bytes | None, bool]:
    """Parse the body of EncryptedExtensions: (the chosen ALPN, whether early data is accepted).

    Raises HelloError.
    """
    extensions = _parse_extensions(_Fields(body))
    protocols = parse_protocols(extensions.get(ALPN))
    return protocols[0] if protocols else None, EARLY_DATA in extensions


def parse_protocols(content: bytes | None) -> list[bytes]:
    """Return the protocols of an extension; empty without one. Raises HelloError."""
    if content is None:
        return []
    names = _Fields(_Fields(content).take_vector(2))
    protocols = []
    while not names.is_empty:
        protocols.append(names.take_vector(1))
    return protocols


def _join_names(names: list[bytes]) -> bytes | None:
    """Return names separated by commas, as many as LONGEST_TEXT allows; None for no name."""
    text: bytes | None = None
    for name in names:
        longer = name if text is None else text + b"," + name
        if len(longer) > LONGEST_TEXT:
            break
        text = longer
    return text


def _parse_extensions(fields: _Fields) -> dict[int, bytes]:
    """Return the extensions by their types; empty for a hello without any."""
    if fields.is_empty:
        return {}
    fields = _Fields(fields.take_vector(2))
    extensions: dict[int, bytes] = {}
    while not fields.is_empty:
        kind = fields.take_number(2)
        extensions.setdefault(kind, fields.take_vector(2))
    return extensions


def _parse_server_name(content: bytes | None) -> bytes | None:
    """Return the name of a host in the extension server_name, None without one."""
    if content is None:
        return None
    names = _Fields(_Fields(content).take_vector(2))
    while not names.is_empty:
        kind = names.take_number(1)
        name = names.take_vector(2)
        if len(name) > LONGEST_TEXT:
            raise HelloError(f"the name of a host of {len(name)} bytes")
        if kind == HOST_NAME:
            return name
    return None


class HandshakeReader:
    """Finds handshake messages in the contents of records, which may cut them anywhere.

    It keeps the bodies of the kinds that are wanted, and skips those of all others.

    wanted: the types of messages.
    """

    def __init__(self, wanted: frozenset[int]):
        self.wanted = wanted
        self._held = bytearray()  # a header, or a wanted message
        self._skip = 0  # bytes of a message that is not wanted

    @property
    def is_between_messages(self) -> bool:
        """Whether the bytes so far end with a message."""
        return not self._held and not self._skip

    @property
    def held_bytes(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._held)

    def read(self, content: bytes) -> list[tuple[int, bytes]]:
        """Return the types and bodies of the messages that bytes complete.

        The body of a message that is not wanted is empty. Such a message is returned when its
        header is complete.

        Raises HelloError for a wanted message of more than LARGEST_HELLO bytes.
        """
        messages = []
        at = 0
        while at < len(content):
            if self._skip:
                skipped = min(self._skip, len(content) - at)
                self._skip -= skipped
                at += skipped
                continue
            needed = MESSAGE_HEADER - len(self._held)
            if needed <= 0:
                needed = MESSAGE_HEADER + self._read_length() - len(self._held)
            self._held += content[at : at + needed]
            at += needed
            message = self._take_message()
            if message is not None:
                messages.append(message)
        return messages

    def _read_length(self) -> int:
        return int.from_bytes(self._held[1:MESSAGE_HEADER])

    def _take_message(self) -> tuple[int, bytes] | None:
        """Return the message that is complete, or begins to be skipped; None if there is none."""
        if len(self._held) < MESSAGE_HEADER:
            return None
        kind = self._held[0]
        length = self._read_length()
        if kind not in self.wanted:
            self._held.clear()
            self._skip = length
            return kind, b""
        if length > LARGEST_HELLO:
            raise HelloError(f"a handshake message of {length} bytes")
        if len(self._held) < MESSAGE_HEADER + length:
            return None
        body = bytes(self._held[MESSAGE_HEADER:])
        self._held.clear()
        return kind, body
