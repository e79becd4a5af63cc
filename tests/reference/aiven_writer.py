"""An independent slow writer of the layout of Aiven's plugin for tiered storage.

It is written from the format, with other libraries than wirescan's, and one chunk at a time.
"""

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import zstandard

INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


@dataclass
class Encryptor:
    """Encrypts chunks with a new data key, which the public RSA key encrypts."""

    key_id: str
    public_key: object

    def __post_init__(self):
        self.data_key = os.urandom(32)
        self.aad = os.urandom(32)

    def encrypt(self, chunk: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        iv = os.urandom(12)
        return iv + AESGCM(self.data_key).encrypt(iv, chunk, self.aad)

    def describe(self) -> dict:
        text = base64.b64encode(encrypt_oaep(self.data_key, self.public_key)).decode()
        return {
            "dataKey": f"{self.key_id}:{text}",
            "aad": base64.b64encode(self.aad).decode(),
        }


def encrypt_oaep(message: bytes, public_key) -> bytes:
    """RSAES-OAEP with SHA3-512 and MGF1 with SHA3-512 (RFC 8017, 7.1.1)."""
    numbers = public_key.public_numbers()
    size = public_key.key_size // 8
    data = hashlib.sha3_512(b"").digest().ljust(size - 66 - len(message), b"\0") + b"\1" + message
    seed = os.urandom(64)
    data = xor(data, make_mask(seed, len(data)))
    seed = xor(seed, make_mask(data, 64))
    number = pow(int.from_bytes(seed + data, "big"), numbers.e, numbers.n)
    return number.to_bytes(size, "big")


def make_mask(seed: bytes, size: int) -> bytes:
    blocks = range(size // 64 + 1)
    return b"".join(hashlib.sha3_512(seed + n.to_bytes(4, "big")).digest() for n in blocks)[:size]


def xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def encode_sizes(sizes: list[int]) -> str:
    """The sizes of stored chunks, as `transformedChunks` has them."""
    raw = len(sizes).to_bytes(4, "big")
    if len(sizes) > 1:
        base = min(sizes[:-1])
        width = max(1, -(-max(size - base for size in sizes[:-1]).bit_length() // 8))
        raw += base.to_bytes(4, "big") + bytes([width])
        raw += b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    raw += b"".join(size.to_bytes(4, "big") for size in sizes[-1:])
    return base64.b64encode(zstandard.ZstdCompressor().compress(raw)).decode()


def store_segment(
    stem: Path,
    data: bytes,
    indexes: dict[str, bytes],
    *,
    chunk_size: int,
    compression: bool = False,
    encryptor: Encryptor | None = None,
    metadata: dict | None = None,
) -> None:
    """Write the three objects of a segment. stem: their path without the ending."""
    stem.parent.mkdir(parents=True, exist_ok=True)

    def seal(chunk: bytes) -> bytes:
        return encryptor.encrypt(chunk) if encryptor else chunk

    chunks = [data[at : at + chunk_size] for at in range(0, len(data), chunk_size)]
    if compression:
        chunks = [zstandard.ZstdCompressor().compress(chunk) for chunk in chunks]
    chunks = [seal(chunk) for chunk in chunks]
    Path(f"{stem}.log").write_bytes(b"".join(chunks))
    described = {}
    stored = b""
    for name in INDEXES:
        index = indexes.get(name)
        if index is None:
            described[name] = None
            continue
        part = seal(index) if index else b""
        described[name] = {"position": len(stored), "size": len(part)}
        stored += part
    Path(f"{stem}.indexes").write_bytes(stored)
    sizes = [len(chunk) for chunk in chunks]
    chunk_index = {"originalChunkSize": chunk_size, "originalFileSize": len(data)}
    if compression:
        chunk_index |= {"type": "variable", "transformedChunks": encode_sizes(sizes)}
    else:
        added = 28 if encryptor else 0
        chunk_index |= {
            "type": "fixed",
            "transformedChunkSize": chunk_size + added,
            "finalTransformedChunkSize": sizes[-1],
        }
    manifest = {
        "version": "1",
        "chunkIndex": chunk_index,
        "segmentIndexes": described,
        "compression": compression,
        "remoteLogSegmentMetadata": metadata or {},
    }
    if encryptor:
        manifest["encryption"] = encryptor.describe()
    Path(f"{stem}.rsm-manifest").write_text(json.dumps(manifest))
