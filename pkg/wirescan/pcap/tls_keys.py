"""The secrets of TLS connections, and the keys of records that follow from them.

`KeyLog` reads the file that a client or server writes, usually because the environment variable
SSLKEYLOGFILE or an option names it:

    CLIENT_RANDOM <client random> <master secret>                             up to TLS 1.2
    CLIENT_HANDSHAKE_TRAFFIC_SECRET <client random> <secret>                  TLS 1.3
    SERVER_HANDSHAKE_TRAFFIC_SECRET, CLIENT_TRAFFIC_SECRET_0, SERVER_TRAFFIC_SECRET_0   the same

`RecordCipher` decrypts the records of one side. The package `cryptography` has the ciphers.

Format: draft-ietf-tls-keylogfile; RFC 5246, 5 and 6.3; RFC 5288; RFC 7905; RFC 8446, 5 and 7.
"""

from __future__ import annotations

import hmac
import os
import struct
from typing import Any, NamedTuple

from wirescan.frames.escape import make_visible
from wirescan.frames.optional_packages import name_package
from wirescan.pcap.tls_constants import TlsVersion
from wirescan.pcap.tls_hello import RANDOM_SIZE

CLIENT_RANDOM = b"CLIENT_RANDOM"
HANDSHAKE_SECRETS = (b"CLIENT_HANDSHAKE_TRAFFIC_SECRET", b"SERVER_HANDSHAKE_TRAFFIC_SECRET")
TRAFFIC_SECRETS = (b"CLIENT_TRAFFIC_SECRET_0", b"SERVER_TRAFFIC_SECRET_0")
# Label -> possible sizes of its secret in bytes.
SECRET_SIZES = {
    CLIENT_RANDOM: (48,),
    **dict.fromkeys(HANDSHAKE_SECRETS + TRAFFIC_SECRETS, (32, 48)),
}
LONGEST_LINE = 1024  # bytes of a line that is read
TAG_SIZE = 16
NONCE_SIZE = 12
SALT_SIZE = 4  # bytes of the nonce that AES-GCM of TLS 1.2 keeps secret
EXPLICIT_SIZE = 8  # bytes of the nonce that its records begin with


class Suite(NamedTuple):
    """How the records of a cipher suite are encrypted.

    key_size: bytes. hash: of the key derivation, as hashlib names it.
    """

    key_size: int
    hash: str
    is_chacha: bool


AES_128 = Suite(16, "sha256", is_chacha=False)
AES_256 = Suite(32, "sha384", is_chacha=False)
CHACHA = Suite(32, "sha256", is_chacha=True)
# Version -> number of the cipher suite -> how records are encrypted.
SUITES: dict[int, dict[int, Suite]] = {
    TlsVersion.TLS_1_2: {
        **dict.fromkeys((0x009C, 0x009E, 0x00A8, 0x00AA, 0xC02B, 0xC02F), AES_128),
        **dict.fromkeys((0x009D, 0x009F, 0x00A9, 0x00AB, 0xC02C, 0xC030), AES_256),
        **dict.fromkeys((0xCCA8, 0xCCA9, 0xCCAA, 0xCCAB, 0xCCAC, 0xCCAD), CHACHA),
    },
    TlsVersion.TLS_1_3: {0x1301: AES_128, 0x1302: AES_256, 0x1303: CHACHA},
}


class KeyLog:
    """The secrets in a file, which may grow: KeyLog(path).

    Lines with other labels, and lines that are no such line, are ignored.

    Raises OSError; ValueError for a file with text in which no line has a label and a random.
    """

    def __init__(self, path: str):
        self._path = path
        self._secrets: dict[tuple[bytes, bytes], bytes] = {}
        self._position = 0
        other_lines = self._read()
        if other_lines and not self._secrets:
            raise ValueError(
                f"{make_visible(path)} has no secret of TLS: expected lines such as "
                "CLIENT_RANDOM <64 hex digits> <96 hex digits>"
            )

    def find(self, label: bytes, random: bytes) -> bytes | None:
        """Return a secret; None if the file does not have it.

        random: the client's. If the secret is not known, what was added to the file is read.
        """
        if (label, random) not in self._secrets and os.stat(self._path).st_size > self._position:
            self._read()
        return self._secrets.get((label, random))

    def _read(self) -> int:
        """Read the whole lines after those that were read. Return how many are no secrets."""
        others = 0
        with open(self._path, "rb") as file:
            file.seek(self._position)
            while line := file.readline(LONGEST_LINE):
                if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                    others += self._add(line) is False  # the file may grow: it is read again
                    break
                self._position += len(line)
                others += self._add(line) is False
        return others

    def _add(self, line: bytes) -> bool | None:
        """Add the secret of a line. Return whether it is one, None for a comment."""
        words = line.split()
        if not words or words[0].startswith(b"#"):
            return None
        if len(words) != 3 or words[0] not in SECRET_SIZES:
            return False
        try:
            random, secret = (bytes.fromhex(word.decode("ascii")) for word in words[1:])
        except ValueError:
            return False
        if len(random) != RANDOM_SIZE or len(secret) not in SECRET_SIZES[words[0]]:
            return False
        self._secrets[words[0], random] = secret
        return True


class RecordCipher:
    """Decrypts the records of one side, in their order.

    suite: how. key: the key. iv: what nonces are made of. is_1_3: records are those of TLS 1.3.

    Raises ImportError if the package is missing, and its UnsupportedAlgorithm.
    """

    def __init__(self, suite: Suite, key: bytes, iv: bytes, *, is_1_3: bool):
        exceptions, ciphers = import_ciphers()
        self._wrong_tag = exceptions.InvalidTag
        make = ciphers.ChaCha20Poly1305 if suite.is_chacha else ciphers.AESGCM
        self._decrypt = make(key).decrypt
        self._iv = int.from_bytes(iv)
        self._salt = iv
        self._is_1_3 = is_1_3
        self.explicit_size = 0 if is_1_3 or suite.is_chacha else EXPLICIT_SIZE
        self.sequence = 0

    def open(self, header: bytes, content: memoryview) -> bytes | None:
        """Return the plain bytes of a record; None if it does not authenticate.

        header, content: of the record. A record that authenticates advances `sequence`.
        """
        size = len(content) - self.explicit_size - TAG_SIZE
        if size < 0:
            return None
        if self.explicit_size:
            nonce = self._salt + content[:EXPLICIT_SIZE]
            content = content[EXPLICIT_SIZE:]
        else:
            nonce = (self._iv ^ self.sequence).to_bytes(NONCE_SIZE)
        if not self._is_1_3:
            # The additional data has the size of the plain bytes.
            header = struct.pack(">Q3sH", self.sequence, header[:3], size)
        try:
            plain: bytes = self._decrypt(nonce, content, header)
        except self._wrong_tag:
            return None
        self.sequence += 1
        return plain


def import_ciphers() -> tuple[Any, Any]:
    """Return the modules of errors and of ciphers. Raises ImportError, which names the extra."""
    with name_package("cryptography", "the decryption of TLS", "'wirescan[tls]'"):
        from cryptography import exceptions
        from cryptography.hazmat.primitives.ciphers import aead
    return exceptions, aead


def make_ciphers_of_1_2(
    suite: Suite, master: bytes, client_random: bytes, server_random: bytes
) -> tuple[RecordCipher, RecordCipher]:
    """Return the ciphers of the client and of the server in TLS 1.2."""
    iv_size = NONCE_SIZE if suite.is_chacha else SALT_SIZE
    seed = b"key expansion" + server_random + client_random
    block = _expand_p_hash(suite.hash, master, seed, 2 * (suite.key_size + iv_size))
    keys = [block[: suite.key_size], block[suite.key_size : 2 * suite.key_size]]
    ivs = block[2 * suite.key_size :]
    client = RecordCipher(suite, keys[0], ivs[:iv_size], is_1_3=False)
    return client, RecordCipher(suite, keys[1], ivs[iv_size:], is_1_3=False)


def make_cipher_of_1_3(suite: Suite, secret: bytes) -> RecordCipher:
    """Return the cipher of a traffic secret in TLS 1.3."""
    key = expand_label(suite.hash, secret, b"key", suite.key_size)
    iv = expand_label(suite.hash, secret, b"iv", NONCE_SIZE)
    return RecordCipher(suite, key, iv, is_1_3=True)


def update_secret(suite: Suite, secret: bytes) -> bytes:
    """Return the traffic secret after a key update."""
    return expand_label(suite.hash, secret, b"traffic upd", len(secret))


def expand_label(hash: str, secret: bytes, label: bytes, size: int) -> bytes:
    """Return HKDF-Expand-Label with an empty context. Source: RFC 8446, 7.1; RFC 5869, 2.3."""
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + b"\0"
    out = block = b""
    number = 0
    while len(out) < size:
        number += 1
        block = hmac.digest(secret, block + info + bytes((number,)), hash)
        out += block
    return out[:size]


def _expand_p_hash(hash: str, secret: bytes, seed: bytes, size: int) -> bytes:
    """Return P_hash of RFC 5246, 5. The seed begins with the label."""
    out = b""
    state = seed
    while len(out) < size:
        state = hmac.digest(secret, state, hash)
        out += hmac.digest(secret, state + seed, hash)
    return out[:size]
