"""How records of TLS are decrypted: the cipher suites, and the keys that follow from secrets.

A record has its encrypted content in one of these forms:

    TLS 1.3   all suites          encrypted bytes | tag of 16 or 8
    TLS 1.2   GCM, CCM            nonce 8 | encrypted bytes | tag of 16 or 8
              ChaCha20            encrypted bytes | tag 16
    1.1, 1.2  CBC                 first block 16 | encrypted (plain | MAC | padding)
              encrypt_then_mac    first block 16 | encrypted (plain | padding) | MAC
    TLS 1.0   CBC                 the same without the first block: it is the last one of the
                                  record before

The package `cryptography` has the ciphers.

Format: RFC 2246, RFC 4346 and RFC 5246, 5 and 6; RFC 5288, RFC 6655, RFC 7366, RFC 7905; RFC 8446,
5 and 7.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from functools import partial
from typing import Any, NamedTuple

from wirescan.frames.optional_packages import name_package
from wirescan.pcap.decryption.tls_constants import TlsVersion

TAG_SIZE = 16
SHORT_TAG_SIZE = 8  # of the suites with CCM_8
NONCE_SIZE = 12
SALT_SIZE = 4  # bytes of the nonce that AES-GCM and AES-CCM of TLS 1.2 keep secret
EXPLICIT_SIZE = 8  # bytes of the nonce that their records begin with
BLOCK_SIZE = 16  # bytes of a block of AES
# TLS 1.0 and 1.1 combine two hashes. They need not be secure here.
OLD_HASHES = (
    partial(hashlib.md5, usedforsecurity=False),
    partial(hashlib.sha1, usedforsecurity=False),
)
OLD_HASH = "md5-sha1"


class Suite(NamedTuple):
    """How the records of a cipher suite are encrypted.

    mode: "GCM", "CCM", "ChaCha20" or "CBC". key_size: bytes. hash: of the key derivation, as
    hashlib names it, or OLD_HASH. tag_size: bytes. mac: the hash of the MAC of CBC.
    """

    mode: str
    key_size: int
    hash: str
    tag_size: int = TAG_SIZE
    mac: str = ""

    @property
    def mac_size(self) -> int:
        """Bytes of the MAC of CBC, and of its key."""
        return hashlib.new(self.mac, usedforsecurity=False).digest_size if self.mac else 0


AES_128_GCM = Suite("GCM", 16, "sha256")
AES_256_GCM = Suite("GCM", 32, "sha384")
CHACHA = Suite("ChaCha20", 32, "sha256")
AES_128_CCM = Suite("CCM", 16, "sha256")
AES_256_CCM = Suite("CCM", 32, "sha256")
AES_128_CCM_8 = Suite("CCM", 16, "sha256", SHORT_TAG_SIZE)
AES_256_CCM_8 = Suite("CCM", 32, "sha256", SHORT_TAG_SIZE)
# Suites with CBC: how records are encrypted -> the numbers of the suites of every version, and
# those of TLS 1.2 only.
CBC_SUITES = {
    Suite("CBC", 16, "sha256", mac="sha1"): (
        (0x002F, 0x0032, 0x0033, 0x0034, 0x008C, 0x0090, 0x0094, 0xC009, 0xC013, 0xC018, 0xC01D)
        + (0xC01E, 0xC01F, 0xC035),
        (),
    ),
    Suite("CBC", 32, "sha256", mac="sha1"): (
        (0x0035, 0x0038, 0x0039, 0x003A, 0x008D, 0x0091, 0x0095, 0xC00A, 0xC014, 0xC019, 0xC020)
        + (0xC021, 0xC022, 0xC036),
        (),
    ),
    Suite("CBC", 16, "sha256", mac="sha256"): (
        (0x00AE, 0x00B2, 0x00B6, 0xC037),
        (0x003C, 0x0040, 0x0067, 0x006C, 0xC023, 0xC027),
    ),
    Suite("CBC", 32, "sha256", mac="sha256"): ((), (0x003D, 0x006A, 0x006B, 0x006D)),
    Suite("CBC", 32, "sha384", mac="sha384"): (
        (0x00AF, 0x00B3, 0x00B7, 0xC038),
        (0xC024, 0xC028),
    ),
}
OLD_SUITES = {
    number: suite._replace(hash=OLD_HASH)
    for suite, (numbers, _) in CBC_SUITES.items()
    for number in numbers
}
# Version -> number of the cipher suite -> how records are encrypted.
# Source: IANA's registry of TLS cipher suites.
SUITES: dict[int, dict[int, Suite]] = {
    TlsVersion.TLS_1_0: OLD_SUITES,
    TlsVersion.TLS_1_1: OLD_SUITES,
    TlsVersion.TLS_1_2: {
        **dict.fromkeys((0x009C, 0x009E, 0x00A2, 0x00A6, 0x00A8, 0x00AA, 0x00AC), AES_128_GCM),
        **dict.fromkeys((0xC02B, 0xC02F, 0xD001), AES_128_GCM),
        **dict.fromkeys((0x009D, 0x009F, 0x00A3, 0x00A7, 0x00A9, 0x00AB, 0x00AD), AES_256_GCM),
        **dict.fromkeys((0xC02C, 0xC030, 0xD002), AES_256_GCM),
        **dict.fromkeys((0xCCA8, 0xCCA9, 0xCCAA, 0xCCAB, 0xCCAC, 0xCCAD, 0xCCAE), CHACHA),
        **dict.fromkeys((0xC09C, 0xC09E, 0xC0A4, 0xC0A6, 0xC0AC, 0xD005), AES_128_CCM),
        **dict.fromkeys((0xC09D, 0xC09F, 0xC0A5, 0xC0A7, 0xC0AD), AES_256_CCM),
        **dict.fromkeys((0xC0A0, 0xC0A2, 0xC0A8, 0xC0AA, 0xC0AE, 0xD003), AES_128_CCM_8),
        **dict.fromkeys((0xC0A1, 0xC0A3, 0xC0A9, 0xC0AB, 0xC0AF), AES_256_CCM_8),
        **{number: suite for suite, (old, new) in CBC_SUITES.items() for number in old + new},
    },
    TlsVersion.TLS_1_3: {
        0x1301: AES_128_GCM,
        0x1302: AES_256_GCM,
        0x1303: CHACHA,
        0x1304: AES_128_CCM,
        0x1305: AES_128_CCM_8,
    },
}


class RecordCipher:
    """Decrypts the records of one side, in their order.

    Attributes:
        sequence: the number of the next record.
        explicit_size: bytes of the content before the encrypted ones.
        overhead: bytes that a record has at least besides the plain ones.
        is_chained: a record can only be read after the one before.
    """

    explicit_size = 0
    overhead = 0
    is_chained = False

    def __init__(self) -> None:
        self.sequence = 0

    def open(self, header: bytes, content: memoryview) -> bytes | None:
        """Return the plain bytes of a record; None if it does not authenticate.

        header, content: of the record. A record that authenticates advances `sequence`.
        """
        raise NotImplementedError


class AeadCipher(RecordCipher):
    """Decrypts records with a tag.

    suite: how. key: the key. iv: what nonces are made of. is_1_3: records are those of TLS 1.3.

    Raises ImportError if the package is missing, and its UnsupportedAlgorithm.
    """

    def __init__(self, suite: Suite, key: bytes, iv: bytes, *, is_1_3: bool):
        super().__init__()
        exceptions, ciphers = import_ciphers()
        self._wrong_tag = exceptions.InvalidTag
        if suite.mode == "CCM":
            self._decrypt = ciphers.aead.AESCCM(key, suite.tag_size).decrypt
        elif suite.mode == "GCM":
            self._decrypt = ciphers.aead.AESGCM(key).decrypt
        else:
            self._decrypt = ciphers.aead.ChaCha20Poly1305(key).decrypt
        self._iv = int.from_bytes(iv)
        self._salt = iv
        self._is_1_3 = is_1_3
        self.explicit_size = 0 if is_1_3 or suite.mode == "ChaCha20" else EXPLICIT_SIZE
        self._smallest = self.explicit_size + suite.tag_size
        # The last plain byte of TLS 1.3 is the type of the record.
        self.overhead = self._smallest + (1 if is_1_3 else 0)

    def open(self, header: bytes, content: memoryview) -> bytes | None:
        """Return the plain bytes of a record: see `RecordCipher.open`."""
        size = len(content) - self._smallest
        if size < 0:
            return None
        if self.explicit_size:
            nonce = self._salt + content[:EXPLICIT_SIZE]
            content = content[EXPLICIT_SIZE:]
        else:
            nonce = (self._iv ^ self.sequence).to_bytes(NONCE_SIZE)
        if not self._is_1_3:
            header = _pack_header(self.sequence, header, size)
        try:
            plain: bytes = self._decrypt(nonce, content, header)
        except self._wrong_tag:
            return None
        self.sequence += 1
        return plain


class CbcCipher(RecordCipher):
    """Decrypts records with a MAC and padding.

    suite: how. key: of AES. mac_key: of the MAC. iv: the block before the first record in TLS 1.0,
    empty in later versions. is_mac_last: the MAC is that of the encrypted bytes (RFC 7366).

    Raises ImportError if the package is missing.
    """

    def __init__(self, suite: Suite, key: bytes, mac_key: bytes, iv: bytes, *, is_mac_last: bool):
        super().__init__()
        _, self._ciphers = import_ciphers()
        self._key = self._ciphers.algorithms.AES(key)
        self._mac_key = mac_key
        self._mac = suite.mac
        self._mac_size = suite.mac_size
        self._is_mac_last = is_mac_last
        self._iv = iv
        self.is_chained = bool(iv)
        self.explicit_size = 0 if iv else BLOCK_SIZE
        self.overhead = self.explicit_size + self._mac_size + 1  # padding has at least a byte

    def open(self, header: bytes, content: memoryview) -> bytes | None:
        """Return the plain bytes of a record: see `RecordCipher.open`."""
        data = bytes(content)
        if len(data) < self.overhead:
            return None
        if self._is_mac_last:
            data, mac = data[: -self._mac_size], data[-self._mac_size :]
            if self._compute_mac(header, data) != mac:
                return None
        iv = data[: self.explicit_size] or self._iv
        data = data[self.explicit_size :]
        plain = self._decrypt(iv, data)
        if plain is None:
            return None
        if not self._is_mac_last:
            split = len(plain) - self._mac_size
            if split < 0:
                return None
            plain, mac = plain[:split], plain[split:]
            if self._compute_mac(header, plain) != mac:
                return None
        if self.is_chained:
            self._iv = data[-BLOCK_SIZE:]
        self.sequence += 1
        return plain

    def _decrypt(self, iv: bytes, data: bytes) -> bytes | None:
        """Return the bytes without their padding; None if it is not as it must be."""
        if not data or len(data) % BLOCK_SIZE:
            return None
        decryptor = self._ciphers.Cipher(self._key, self._ciphers.modes.CBC(iv)).decryptor()
        plain: bytes = decryptor.update(data) + decryptor.finalize()
        size = plain[-1] + 1
        return plain[:-size] if plain.endswith(plain[-1:] * size) else None

    def _compute_mac(self, header: bytes, data: bytes) -> bytes:
        data = _pack_header(self.sequence, header, len(data)) + data
        return hmac.digest(self._mac_key, data, self._mac)


def _pack_header(sequence: int, header: bytes, size: int) -> bytes:
    """Return what a record of `size` bytes also authenticates, up to TLS 1.2."""
    return struct.pack(">Q3sH", sequence, header[:3], size)


def import_ciphers() -> tuple[Any, Any]:
    """Return the modules of errors and of ciphers. Raises ImportError, which names the extra."""
    with name_package("cryptography", "the decryption of TLS", "'wirescan[tls]'"):
        from cryptography import exceptions
        from cryptography.hazmat.primitives import ciphers
        from cryptography.hazmat.primitives.ciphers import aead

        assert aead is ciphers.aead
    return exceptions, ciphers


def make_old_ciphers(
    suite: Suite, version: int, secret: bytes, seed: bytes, *, is_mac_last: bool = False
) -> tuple[RecordCipher, RecordCipher]:
    """Return the ciphers of the client and of the server, up to TLS 1.2.

    secret: the master secret. seed: the random of the server, and that of the client.
    is_mac_last: the extension encrypt_then_mac was agreed on.
    """
    iv_size = {"ChaCha20": NONCE_SIZE, "CBC": 0}.get(suite.mode, SALT_SIZE)
    if suite.mode == "CBC" and version <= TlsVersion.TLS_1_0:
        iv_size = BLOCK_SIZE
    sizes = (suite.mac_size, suite.key_size, iv_size)
    block = _expand_secret(suite.hash, secret, b"key expansion" + seed, 2 * sum(sizes))
    at = 0
    parts = []
    for size in sizes:
        parts.append((block[at : at + size], block[at + size : at + 2 * size]))
        at += 2 * size
    (client_mac, server_mac), (client_key, server_key), (client_iv, server_iv) = parts
    if suite.mode == "CBC":
        return (
            CbcCipher(suite, client_key, client_mac, client_iv, is_mac_last=is_mac_last),
            CbcCipher(suite, server_key, server_mac, server_iv, is_mac_last=is_mac_last),
        )
    client = AeadCipher(suite, client_key, client_iv, is_1_3=False)
    return client, AeadCipher(suite, server_key, server_iv, is_1_3=False)


def make_cipher_of_1_3(suite: Suite, secret: bytes) -> RecordCipher:
    """Return the cipher of a traffic secret in TLS 1.3."""
    key = expand_label(suite.hash, secret, b"key", suite.key_size)
    iv = expand_label(suite.hash, secret, b"iv", NONCE_SIZE)
    return AeadCipher(suite, key, iv, is_1_3=True)


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


def _expand_secret(hash: str, secret: bytes, seed: bytes, size: int) -> bytes:
    """Return the pseudorandom bytes of a secret. The seed begins with the label.

    Source: RFC 5246, 5; RFC 2246, 5.
    """
    if hash != OLD_HASH:
        return _expand_p_hash(hash, secret, seed, size)
    half = (len(secret) + 1) // 2
    halves = (secret[:half], secret[-half:])
    parts = [
        _expand_p_hash(old, part, seed, size) for old, part in zip(OLD_HASHES, halves, strict=True)
    ]
    return bytes(left ^ right for left, right in zip(*parts, strict=True))


def _expand_p_hash(hash: Any, secret: bytes, seed: bytes, size: int) -> bytes:
    """Return P_hash of RFC 5246, 5. hash: a name, or a function that makes a hash."""
    out = b""
    state = seed
    while len(out) < size:
        state = hmac.digest(secret, state, hash)
        out += hmac.digest(secret, state + seed, hash)
    return out[:size]
