"""Segments in the layout of Aiven's plugin for tiered storage: chunks, compressed and encrypted.

    <prefix><topic>-<topic id>/<partition>/<base offset>-<segment id>.log           chunks
                                                                     .indexes       its indexes
                                                                     .rsm-manifest  the manifest

The plugin writes a segment in chunks. If it is configured so, it compresses each chunk with zstd,
and then encrypts it. An encrypted chunk is an IV of 12 bytes, the AES-256-GCM ciphertext, and its
tag of 16 bytes. Indexes are encrypted in the same way, and never compressed. The RSA padding of the
data key is OAEP with SHA3-512.

This module is a `wirescan.files.translated.Translator`: a path of a .log, or of an index beside it,
has the bytes that the broker had in this file. Only the chunks of a range are fetched.

WIRESCAN_TIERED_KEYS names the RSA keys as <key id>=<PEM file>, separated by commas. The package
`cryptography` decrypts the chunks.

Source: github.com/Aiven-Open/tiered-storage-for-apache-kafka, ObjectKeyFactory,
EncryptionChunkEnumeration, RsaEncryptionProvider and FixedSizeChunkIndex.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha3_512

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.object_store import redact_url
from wirescan.files.source import (
    URL,
    get_stored_stamp,
    make_sibling_path,
    open_stored_ranges,
    view_of,
)
from wirescan.frames.codecs import CodecError, decompress_into
from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import FaultMeaning
from wirescan.frames.optional_packages import name_package
from wirescan.kafka.files import AIVEN_FILE
from wirescan.kafka.log.aiven_manifest import (
    ENCRYPTION_BYTES,
    IV_BYTES,
    MANIFEST_BYTES,
    Encryption,
    Manifest,
    parse_manifest,
)

KEYS = "WIRESCAN_TIERED_KEYS"
DATA_KEY_BYTES = 32  # AES-256
HASH_BYTES = 64  # of SHA3-512
MANIFESTS = 1024  # that are kept in memory: segments never change
GROUP_BYTES = 16 << 20  # stored chunks that are fetched in one request; one chunk may exceed it


def read_manifest(path: str) -> Manifest:
    """Return the manifest of a segment. path: of a .log or of an index beside it.

    Raises FileNotFoundError if the segment has none: then the plugin has not stored it whole.
    Raises FrameError for a manifest that does not match the format, OSError.
    """
    manifest = make_sibling_path(path, ".rsm-manifest")
    stamp = (0, 0) if URL.match(manifest) else get_stored_stamp(manifest)
    return _read_manifest(manifest, stamp)


@lru_cache(MANIFESTS)
def _read_manifest(path: str, stamp: tuple[int, int]) -> Manifest:
    """Return a manifest. `stamp` tells apart local files that were replaced."""
    with open_stored_ranges(path) as read:
        raw = bytes(read(0, MANIFEST_BYTES + 1))
    if len(raw) > MANIFEST_BYTES:
        raise _make_error(
            path, Fault.TOO_LARGE, 0, raw, f"a manifest has more than {MANIFEST_BYTES} bytes"
        )
    return parse_manifest(raw, redact_url(path))


def get_stamp(path: str) -> tuple[int, int]:
    """Return (bytes of the segment or index, time of the last change of the manifest or 0).

    Raises FileNotFoundError, FrameError, OSError.
    """
    manifest = read_manifest(path)
    kind = _get_kind(path)
    time = 0 if URL.match(path) else get_stored_stamp(make_sibling_path(path, ".rsm-manifest"))[1]
    if kind == "log":
        return manifest.size, time
    _, size = _find_index(manifest, kind, path)
    if size and manifest.encryption is not None:
        size = max(size - ENCRYPTION_BYTES, 0)
    return size, time


@contextmanager
def open_ranges(path: str) -> Iterator[Callable[[int, int], memoryview]]:
    """Open a segment or an index, and give a function that reads the bytes between two positions.

    Only the chunks of these bytes are fetched. Raises FileNotFoundError, PermissionError if the key
    is not given, and FrameError for chunks that do not match the manifest.
    """
    manifest = read_manifest(path)
    kind = _get_kind(path)
    if kind == "log":
        with open_stored_ranges(path) as read:
            yield _ChunkReader(path, manifest, read).read
        return
    position, size = _find_index(manifest, kind, path)
    objects = make_sibling_path(path, ".indexes")
    with open_stored_ranges(objects) as read:
        stored = read(position, position + size)
        if len(stored) < size:
            raise _make_error(
                objects, Fault.TRUNCATED, position, stored, f"the {kind} has {size} bytes"
            )
        if size and manifest.encryption is not None:
            stored = _decrypt(stored, manifest.encryption, objects, position)
        yield lambda start, stop: stored[start : max(start, stop)]


def excludes_segment(path: str, bounds: Mapping[str, tuple[int | None, int | None]]) -> bool:
    """Return whether the manifest of a segment excludes the wanted records.

    bounds: {"offset": (lowest, highest), "timestamp": (lowest, highest)}, None for no bound.
    Raises as `read_manifest`.
    """
    manifest = read_manifest(path)
    low, high = bounds.get("offset", (None, None))
    earliest, _ = bounds.get("timestamp", (None, None))
    pairs = (
        (manifest.last_offset, low),
        (high, manifest.first_offset),
        (manifest.max_timestamp, earliest),
    )
    return any(last is not None and first is not None and last < first for last, first in pairs)


class _ChunkReader:
    """Reads ranges of a segment. It keeps the last chunk, in which the next range often begins."""

    def __init__(self, path: str, manifest: Manifest, fetch: Callable[[int, int], memoryview]):
        self.path = path
        self.manifest = manifest
        self.fetch = fetch
        self.last: tuple[int, memoryview] = (-1, memoryview(b""))

    def read(self, start: int, stop: int) -> memoryview:
        manifest = self.manifest
        stop = min(stop, manifest.size)
        if start >= stop:
            return memoryview(b"")
        if not manifest.is_compressed and manifest.encryption is None:
            return self._fetch(start, stop)
        first = start // manifest.chunk_size
        after = -(-stop // manifest.chunk_size)
        origin = first * manifest.chunk_size
        chunks = list(self._read_chunks(first, after))
        data = chunks[0] if len(chunks) == 1 else memoryview(b"".join(chunks))
        return data[start - origin : stop - origin]

    def _read_chunks(self, first: int, after: int) -> Iterator[memoryview]:
        """Yield the chunks from `first` on and before `after`. Adjacent ones are one request."""
        number, last = self.last
        if number == first:
            yield last
            first += 1
        while first < after:
            begin = self.manifest.find_stored(first)
            stop = first + 1
            while stop < after and self.manifest.find_stored(stop + 1) - begin <= GROUP_BYTES:
                stop += 1
            group = self._fetch(begin, self.manifest.find_stored(stop))
            for number in range(first, stop):
                at = self.manifest.find_stored(number)
                stored = group[at - begin : self.manifest.find_stored(number + 1) - begin]
                chunk = self._open(number, at, stored)
                self.last = (number, chunk)
                yield chunk
            first = stop

    def _fetch(self, start: int, stop: int) -> memoryview:
        data = self.fetch(start, stop)
        if len(data) < stop - start:
            problem = f"chunks up to byte {stop} are stored, by the manifest"
            raise _make_error(self.path, Fault.TRUNCATED, start + len(data), data[:0], problem)
        return data

    def _open(self, number: int, at: int, stored: memoryview) -> memoryview:
        """Return the bytes of a stored chunk, which begins at byte `at` of the object."""
        manifest = self.manifest
        size = min(manifest.chunk_size, manifest.size - number * manifest.chunk_size)
        if manifest.encryption is not None:
            stored = _decrypt(stored, manifest.encryption, self.path, at)
        if not manifest.is_compressed:
            return stored
        out = view_of(np.empty(size, np.uint8))
        try:
            written = decompress_into("zstd", stored, out)
        except CodecError as error:
            problem = f"chunk {number} of {size} bytes cannot be decompressed"
            raise _make_error(self.path, error.fault, at, stored, problem) from None
        if written != size:
            problem = f"chunk {number} decompresses to {written} bytes instead of {size}"
            raise _make_error(self.path, Fault.BAD_COMPRESSION, at, stored, problem)
        return out.toreadonly()


def _get_kind(path: str) -> str:
    match = AIVEN_FILE.search(path)
    assert match is not None  # translated.py chooses this module by the same pattern
    return match["kind"]


def _find_index(manifest: Manifest, kind: str, path: str) -> tuple[int, int]:
    if kind not in manifest.indexes:
        raise FileNotFoundError(errno.ENOENT, "the segment has no such index", path)
    return manifest.indexes[kind]


# -------------------------------------------------------------------------------------- encryption


def _decrypt(stored: memoryview, encryption: Encryption, path: str, at: int) -> memoryview:
    """Return the plain bytes of an encrypted chunk or index, at byte `at` of an object."""
    if len(stored) < ENCRYPTION_BYTES:
        raise _make_error(path, Fault.TRUNCATED, at, stored, "an encrypted chunk has no tag")
    with name_package("cryptography", "an encrypted segment", "'wirescan[tiered]'"):
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = _decrypt_key(encryption, path)
    try:
        plain = AESGCM(key).decrypt(bytes(stored[:IV_BYTES]), stored[IV_BYTES:], encryption.aad)
    except InvalidTag:
        problem = "the tag of an encrypted chunk is wrong: the bytes or the data key are others"
        raise _make_error(path, Fault.BAD_CHECKSUM, at, stored, problem) from None
    return memoryview(plain)


def _decrypt_key(encryption: Encryption, path: str) -> bytes:
    """Return the AES key of a segment. The RSA key is that of the environment."""
    files = _parse_keys(os.environ.get(KEYS, ""))
    if encryption.key_id not in files:
        raise PermissionError(
            errno.EACCES,
            f"the segment is encrypted with the key {encryption.key_id[:100]!r}: set {KEYS} to "
            f"{encryption.key_id[:100]}=FILE",
            path,
        )
    file = files[encryption.key_id]
    key = _decrypt_data_key(encryption.encrypted_key, file, os.stat(file).st_mtime_ns)
    if key is None:
        raise PermissionError(
            errno.EACCES,
            f"the RSA key in {file} does not decrypt the data key of the segment",
            path,
        )
    return key


def _parse_keys(text: str) -> dict[str, str]:
    pairs = (entry.strip().partition("=") for entry in text.split(",") if entry.strip())
    return {key_id: file for key_id, _, file in pairs}


_lock = threading.Lock()


def _decrypt_data_key(encrypted: bytes, file: str, changed: int) -> bytes | None:
    with _lock:  # one decryption for each segment is enough: it costs a millisecond
        return _decrypt_data_key_once(encrypted, file, changed)


@lru_cache(MANIFESTS)
def _decrypt_data_key_once(encrypted: bytes, file: str, changed: int) -> bytes | None:
    """Return the data key, or None if the RSA key is another. `changed` is the file's time."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    with open(file, "rb") as opened:
        pem = opened.read()
    try:
        private = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, rsa.RSAPrivateKey):
        raise PermissionError(errno.EACCES, "not the PEM file of an RSA key without password", file)
    numbers = private.private_numbers()
    key = _decrypt_oaep(encrypted, numbers.d, numbers.public_numbers.n)
    return key if key is not None and len(key) == DATA_KEY_BYTES else None


def _decrypt_oaep(encrypted: bytes, exponent: int, modulus: int) -> bytes | None:
    """Return the bytes that RSAES-OAEP with SHA3-512 has encrypted; None if it has not.

    `cryptography` does not have this scheme with SHA3. Source: RFC 8017, 7.1.2 and B.2.1. Its time
    depends on the key, so it is not for services that decrypt what strangers send.
    """
    size = -(-modulus.bit_length() // 8)
    number = int.from_bytes(encrypted, "big")
    if len(encrypted) != size or size < 2 * HASH_BYTES + 2 or number >= modulus:
        return None
    padded = pow(number, exponent, modulus).to_bytes(size, "big")
    masked_seed, masked = padded[1 : 1 + HASH_BYTES], padded[1 + HASH_BYTES :]
    seed = _mask(masked_seed, masked)
    block = _mask(masked, seed)
    zeros, one, message = block[HASH_BYTES:].partition(b"\1")
    is_right = not padded[0] and block[:HASH_BYTES] == sha3_512().digest()
    return message if is_right and one and not any(zeros) else None


def _mask(data: bytes, seed: bytes) -> bytes:
    """Return the data XOR the output of MGF1 with SHA3-512 for a seed."""
    count = -(-len(data) // HASH_BYTES)
    mask = b"".join(sha3_512(seed + i.to_bytes(4, "big")).digest() for i in range(count))
    return bytes(a ^ b for a, b in zip(data, mask))


def _make_error(
    path: str, fault: Fault, position: int, near: bytes | memoryview, problem: str
) -> FrameError:
    meaning = FaultMeaning(fault.name, problem)
    return FrameError(fault, position, 0, near, redact_url(path), meaning=meaning)
