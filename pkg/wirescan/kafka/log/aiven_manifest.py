"""The manifest of a segment that Aiven's plugin has moved to tiered storage: an .rsm-manifest.

It is one JSON object:

    version                  "1"
    chunkIndex               where the chunks of the segment are in the .log object
        type                 "fixed" or "variable"
        originalChunkSize    bytes of each chunk of the segment but the last one
        originalFileSize     bytes of the segment
        transformedChunkSize, finalTransformedChunkSize
                             fixed: bytes of each stored chunk, and of the last one
        transformedChunks    variable: base64 of zstd of the sizes of the stored chunks
    segmentIndexes           offset, timestamp, producerSnapshot, leaderEpoch, transaction: position
                             and size of each index in the .indexes object; transaction may be null
    compression              whether each chunk is compressed with zstd
    encryption               only of an encrypted segment
        dataKey              key id, ":", base64 of the AES key, encrypted with that RSA key
        aad                  base64 of the additional data of each chunk
    remoteLogSegmentMetadata startOffset, endOffset, maxTimestampMs and more

The sizes of stored chunks are big-endian: count u4, base u4, bytes of a value u1, for each chunk
but the last one a value that is added to the base, and the size of the last one u4. For one chunk
there are only the count and its size.

Source: github.com/Aiven-Open/tiered-storage-for-apache-kafka, SegmentManifestV1 and
ChunkSizesBinaryCodec.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from wirescan.core.fault import Fault
from wirescan.files.source import view_of
from wirescan.frames.codecs import CodecError, decompress_into
from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import FaultMeaning

MANIFEST_BYTES = 16 << 20  # a manifest is smaller: the plugin bounds the sizes of chunks
SIZES_BYTES = 10 << 20  # bytes of the decompressed sizes of chunks, at most: the plugin's bound
LARGEST = (1 << 31) - 1  # Kafka's segments have fewer bytes
LARGEST_CHUNK = (1 << 30) - 1  # bytes: the largest chunk.size of the plugin
IV_BYTES = 12
TAG_BYTES = 16
ENCRYPTION_BYTES = IV_BYTES + TAG_BYTES  # by which an encrypted chunk is larger
SIZES_HEAD = 9  # bytes: count, base, bytes of a value
INDEXES = {
    "index": "offset",
    "timeindex": "timestamp",
    "snapshot": "producerSnapshot",
    "leader_epoch_checkpoint": "leaderEpoch",
    "txnindex": "transaction",
}


@dataclass(frozen=True)
class Encryption:
    """How the chunks are encrypted.

    key_id: of the RSA key that encrypts the data key. encrypted_key: the encrypted data key. aad:
    the additional authenticated data of each chunk.
    """

    key_id: str
    encrypted_key: bytes
    aad: bytes


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest.

    chunk_size: bytes of each chunk of the segment but the last one. size: bytes of the segment.
    starts: i8 array, the position of each stored chunk in the .log object, and the end of the last.
        None for chunks of a fixed size.
    stored_size, last_stored_size: bytes of each stored chunk, and of the last one.
    indexes: ending of an index -> (position, size) in the .indexes object, in bytes.
    is_compressed: whether each chunk is compressed with zstd. encryption: None without.
    first_offset, last_offset, max_timestamp: of the segment; None if the manifest lacks them.
    """

    chunk_size: int
    size: int
    starts: np.ndarray | None
    stored_size: int
    last_stored_size: int
    indexes: dict[str, tuple[int, int]]
    is_compressed: bool
    encryption: Encryption | None
    first_offset: int | None
    last_offset: int | None
    max_timestamp: int | None

    @property
    def chunk_count(self) -> int:
        """The number of chunks."""
        return -(-self.size // self.chunk_size)

    def find_stored(self, chunk: int) -> int:
        """Return the position of a stored chunk; for `chunk_count` the end of the last one."""
        if self.starts is not None:
            return int(self.starts[chunk])
        if chunk < self.chunk_count:
            return chunk * self.stored_size
        return max(chunk - 1, 0) * self.stored_size + self.last_stored_size * (chunk > 0)


def parse_manifest(raw: bytes, path: str) -> Manifest:
    """Return the content of a manifest.

    raw: the bytes of the manifest. path: of it, for errors. Raises FrameError, with the fault
    BAD_FIELD, for a manifest that does not match the format.
    """
    return _Parser(raw, path).parse()


class _Parser:
    def __init__(self, raw: bytes, path: str):
        self.raw = raw
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        meaning = FaultMeaning(Fault.BAD_FIELD.name, f"the manifest of a segment: {problem}")
        raise FrameError(Fault.BAD_FIELD, 0, 0, self.raw, self.path, meaning=meaning)

    def parse(self) -> Manifest:
        try:
            document = json.loads(self.raw)
        except (ValueError, RecursionError):
            self.fail("it is not JSON")
        version = self.get(document, "version", str)
        if version != "1":
            self.fail(f"the version is {version[:20]!r}, and only 1 is known")
        index = self.get(document, "chunkIndex", dict)
        chunk_size = self.get_size(index, "originalChunkSize", LARGEST_CHUNK)
        size = self.get_size(index, "originalFileSize")
        if not chunk_size:
            self.fail("originalChunkSize is 0")
        is_compressed = self.get(document, "compression", bool)
        encryption = self.parse_encryption(document)
        starts = None
        stored_size = last_stored_size = 0
        kind = self.get(index, "type", str)
        if kind == "fixed":
            stored_size = self.get_size(index, "transformedChunkSize")
            last_stored_size = self.get_size(index, "finalTransformedChunkSize")
            if is_compressed:
                self.fail("compressed chunks need a variable chunk index")
            self.check_fixed(chunk_size, size, stored_size, last_stored_size, encryption)
        elif kind == "variable":
            sizes = self.parse_sizes(self.get(index, "transformedChunks", str))
            if len(sizes) != -(-size // chunk_size):
                self.fail(f"{len(sizes)} chunks of {chunk_size} bytes are not {size} bytes")
            starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        else:
            self.fail("the type of the chunk index is neither fixed nor variable")
        metadata = document.get("remoteLogSegmentMetadata")
        return Manifest(
            chunk_size,
            size,
            starts,
            stored_size,
            last_stored_size,
            self.parse_indexes(self.get(document, "segmentIndexes", dict)),
            is_compressed,
            encryption,
            *(
                _get_number(metadata, name)
                for name in ("startOffset", "endOffset", "maxTimestampMs")
            ),
        )

    def get(self, values: Any, name: str, kind: type) -> Any:
        value = values.get(name) if isinstance(values, dict) else None
        if type(value) is not kind:
            self.fail(f"{name} is missing or is not a {kind.__name__}")
        return value

    def get_size(self, values: dict[str, Any], name: str, largest: int = LARGEST) -> int:
        size: int = self.get(values, name, int)
        if not 0 <= size <= largest:
            self.fail(f"{name} is not from 0 to {largest}")
        return size

    def decode(self, text: str, name: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            self.fail(f"{name} is not base64")

    def check_fixed(
        self, chunk_size: int, size: int, stored: int, last: int, encryption: Encryption | None
    ) -> None:
        added = 0 if encryption is None else ENCRYPTION_BYTES
        count = -(-size // chunk_size)
        expected_last = size - max(count - 1, 0) * chunk_size + added
        if last != expected_last or count > 1 and stored != chunk_size + added:
            self.fail(f"chunks of {stored} and {last} bytes do not hold {size} bytes")

    def parse_sizes(self, text: str) -> np.ndarray:
        compressed = self.decode(text, "transformedChunks")
        out = np.empty(SIZES_BYTES, np.uint8)
        try:
            written = decompress_into("zstd", memoryview(compressed), view_of(out))
        except CodecError:
            self.fail("transformedChunks cannot be decompressed")
        raw = out[:written].tobytes()
        count = int.from_bytes(raw[:4], "big")
        width = raw[8] if count > 1 and written >= SIZES_HEAD else 0
        expected = 4 + 4 * count if count < 2 else SIZES_HEAD + width * (count - 1) + 4
        if len(raw) != expected or count > 1 and not 1 <= width <= 4:
            self.fail(f"transformedChunks has {len(raw)} bytes for {count} chunks")
        if not count:
            return np.empty(0, np.int64)
        sizes = np.zeros(count, np.int64)
        if count > 1:
            values = np.frombuffer(raw, np.uint8, width * (count - 1), SIZES_HEAD)
            for column in values.reshape(count - 1, width).T.astype(np.int64):
                sizes[:-1] = sizes[:-1] << 8 | column
            sizes[:-1] += int.from_bytes(raw[4:8], "big")
        sizes[-1] = int.from_bytes(raw[-4:], "big")
        if sizes.min() <= 0 or sizes.max() > LARGEST:
            self.fail("the size of a stored chunk is not from 1 to 2147483647")
        return sizes

    def parse_encryption(self, document: dict[str, Any]) -> Encryption | None:
        if document.get("encryption") is None:
            return None
        values = self.get(document, "encryption", dict)
        key_id, colon, key = self.get(values, "dataKey", str).partition(":")
        if not key_id or not colon:
            self.fail("dataKey has no key id")
        aad = self.decode(self.get(values, "aad", str), "aad")
        return Encryption(key_id, self.decode(key, "dataKey"), aad)

    def parse_indexes(self, values: dict[str, Any]) -> dict[str, tuple[int, int]]:
        out = {}
        for ending, name in INDEXES.items():
            if name == "transaction" and values.get(name) is None:
                continue
            index = self.get(values, name, dict)
            out[ending] = self.get_size(index, "position"), self.get_size(index, "size")
        return out


def _get_number(values: Any, name: str) -> int | None:
    number = values.get(name) if isinstance(values, dict) else None
    return number if type(number) is int and -1 <= number < 1 << 63 else None
