"""TLS connections of Python's ssl in one process: the bytes of both sides in order, and the keys.

talk = record_tls(tmp_path, [(CLIENT, b"question"), (SERVER, b"answer")], version="1.3")
talk.flights                                    # [(side, bytes)], as they were sent
capture = simulate_tls([talk], 9093)            # a SimulatedCapture
wirescan.scan(capture.to_pcap(), f"kafka.requests?keylog={talk.keylog}")
"""

from __future__ import annotations

import datetime
import ssl
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.support.simulated_capture import Connection, SimulatedCapture

CLIENT, SERVER = 0, 1
HOST = "broker.example"
VERSIONS = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
NO_ENCRYPT_THEN_MAC = 1 << 19  # OpenSSL's SSL_OP_NO_ENCRYPT_THEN_MAC, which ssl does not name
Flights = list[tuple[int, bytes]]


@dataclass
class RecordedTls:
    """A recorded connection.

    flights: (side, bytes) in the order of sending. sent: the plain bytes of each side. keylog: the
    file of its secrets.
    """

    flights: Flights
    sent: tuple[bytes, bytes]
    keylog: Path

    def join(self, side: int) -> bytes:
        """The encrypted bytes of a side."""
        return b"".join(data for sender, data in self.flights if sender == side)


@cache
def make_identity(kind: str) -> bytes:
    """A key and its certificate as PEM. kind: "ec" or "rsa"."""
    key = (
        ec.generate_private_key(ec.SECP256R1())
        if kind == "ec"
        else rsa.generate_private_key(65537, 2048)
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(1))
        .not_valid_after(now + datetime.timedelta(1))
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(encoding)


class _Pair:
    """A client and a server that are connected in memory."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext, host: str | None):
        self.flights: Flights = []
        # What each side receives, and what it sends.
        self._bios = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
        self.ends = (
            client.wrap_bio(*self._bios[CLIENT], server_hostname=host),
            server.wrap_bio(*self._bios[SERVER], server_side=True),
        )

    def carry(self, side: int) -> None:
        """Carry what a side sent to the other one."""
        data = self._bios[side][1].read()
        if data:
            self.flights.append((side, data))
            self._bios[1 - side][0].write(data)

    def handshake(self) -> None:
        done = [False, False]
        while not all(done):
            for side in (CLIENT, SERVER):
                try:
                    self.ends[side].do_handshake()
                    done[side] = True
                except ssl.SSLWantReadError:
                    pass
                self.carry(side)

    def send(self, side: int, data: bytes) -> None:
        self.ends[side].write(data)
        self.carry(side)
        while data:
            try:
                data = data[len(self.ends[1 - side].read(1 << 20)) :]
            except ssl.SSLWantReadError:
                raise AssertionError(f"{len(data)} bytes are missing") from None


def record_tls(
    directory: Path,
    messages: Sequence[tuple[int, bytes]],
    *,
    version: str = "1.3",
    cipher: str | None = None,
    alpn: Sequence[str] = (),
    host: str | None = HOST,
    key: str = "ec",
    name: str = "keys.txt",
    groups: str | None = None,
    encrypts_then_macs: bool = True,
    greetings: Sequence[tuple[int, bytes]] = (),
) -> RecordedTls:
    """Record a connection in which both sides send messages.

    directory: gets the file of secrets, to which they are added. messages: (side, plain bytes).
    cipher: up to TLS 1.2, as OpenSSL names it. key: of the certificate, "ec" or "rsa".
    groups: the curve that the server requires, so that it asks for another ClientHello.
    encrypts_then_macs: the client offers this extension. greetings: (side, bytes) that are sent in
    plain text before the handshake.
    """
    identity = directory / f"{key}.pem"
    identity.write_bytes(make_identity(key))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(identity)
    keylog = directory / name
    client.keylog_filename = str(keylog)
    if not encrypts_then_macs:
        client.options |= NO_ENCRYPT_THEN_MAC
    for context in (client, server):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the versions before 1.2
            context.minimum_version = context.maximum_version = VERSIONS[version]
        if cipher is not None:
            # The level 0 of security also allows old versions and short tags.
            context.set_ciphers(f"{cipher}:@SECLEVEL=0")
        if alpn:
            context.set_alpn_protocols(list(alpn))
    if groups is not None:
        server.set_ecdh_curve(groups)
    pair = _Pair(client, server, host)
    sent = [b"", b""]
    for side, data in greetings:
        pair.flights.append((side, data))
        sent[side] += data
    pair.handshake()
    for side, data in messages:
        pair.send(side, data)
        sent[side] += data
    return RecordedTls(pair.flights, (sent[0], sent[1]), keylog)


def simulate_tls(
    talks: Sequence[RecordedTls], port: int, *, size: int = 1448, is_closed: bool = True
) -> SimulatedCapture:
    """Return a capture of connections, one after another. size: bytes of a packet."""
    capture = SimulatedCapture()
    for number, talk in enumerate(talks):
        connection = make_connection(number, port)
        capture.connect(connection)
        for side, data in talk.flights:
            capture.send(connection, side, data, size=size)
        if is_closed:
            capture.close(connection)
    return capture


def make_connection(number: int, port: int) -> Connection:
    """The endpoints of a connection of `simulate_tls`."""
    return Connection((bytes([10, 0, 0, 1]), 40_000 + number), (bytes([10, 0, 0, 2]), port))
