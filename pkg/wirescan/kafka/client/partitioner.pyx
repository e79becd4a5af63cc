# cython: boundscheck=False, wraparound=False
"""The hashes by which Kafka's own producer and librdkafka choose the partition of a key.

    murmur2   (MurmurHash2 of the key, seed 0x9747b28c) & 0x7fffffff, modulo partitions: Java,
              kafka-python, aiokafka; librdkafka's murmur2 and murmur2_random
    crc32     CRC-32 of the key, modulo partitions: librdkafka's consistent and consistent_random

Sources: Apache Kafka, org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner;
librdkafka, CONFIGURATION.md, "partitioner"; A. Appleby, MurmurHash2.
"""
import operator

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint32_t
from wirescan.core.checksum cimport crc32_of
from wirescan.core.reader cimport le32
from wirescan.core.strings cimport ByteStrings, Strings

cdef enum:
    MULTIPLIER = 0x5bd1e995     # of MurmurHash2
    LARGEST = 0x7fffffff        # of an int32


cdef uint32_t hash_murmur2(const uint8_t* at, size_t size) noexcept nogil:
    """Return the MurmurHash2 of `size` bytes at `at`."""
    # The first number is the seed that Kafka uses.
    cdef uint32_t value = <uint32_t>0x9747b28c ^ <uint32_t>size, word
    while size >= 4:
        word = le32(at) * <uint32_t>MULTIPLIER
        value = value * <uint32_t>MULTIPLIER ^ (word ^ word >> 24) * <uint32_t>MULTIPLIER
        at += 4
        size -= 4
    if size:
        if size > 2:
            value ^= <uint32_t>at[2] << 16
        if size > 1:
            value ^= <uint32_t>at[1] << 8
        value = (value ^ at[0]) * <uint32_t>MULTIPLIER
    value = (value ^ value >> 13) * <uint32_t>MULTIPLIER
    return value ^ value >> 15


def murmur2(const uint8_t[::1] key not None):
    """Return the MurmurHash2 of a bytes-like object as an int32, as Kafka's Java code does."""
    return <int32_t>hash_murmur2(&key[0], <size_t>key.shape[0])


def partition_of(keys, partitions, how="murmur2"):
    """Return the partition of each key as an int32 array, from 0 to partitions - 1.

    A null key has -1; the caller chooses its partition.

    keys: anything that `wirescan.core.strings.ByteStrings` accepts: a place of a table, an Arrow
        array, a list ...
    partitions: the number of partitions of the topic.
    how: "murmur2", as Kafka's Java producer, and kafka-python and aiokafka by default; or "crc32",
        as librdkafka and its bindings by default.

    An empty key has a hash like any other key. librdkafka's `consistent` treats null as an empty
    key, so both go to partition 0. Its default, `consistent_random`, puts both into any partition.

    Raises TypeError and ValueError for unfit keys. Raises ValueError for fewer than one partition,
    and for another `how`.
    """
    cdef ByteStrings key_strings = keys if isinstance(keys, ByteStrings) else ByteStrings(keys)
    cdef Strings strings = key_strings.strings
    cdef int32_t size
    cdef Py_ssize_t i, n = len(key_strings)
    if how not in ("murmur2", "crc32"):
        raise ValueError(f"how must be 'murmur2' or 'crc32', not {how!r}")
    partitions = operator.index(partitions)
    if not 1 <= partitions <= LARGEST:
        raise ValueError(f"partitions must be from 1 to {LARGEST}, not {partitions}")
    cdef uint32_t count = partitions, value
    cdef bint is_murmur2 = how == "murmur2"
    result = np.empty(n, np.int32)
    cdef int32_t[::1] out = result
    with nogil:
        for i in range(n):
            size = strings.size[i * strings.step]
            if size < 0:
                out[i] = -1
            elif is_murmur2:
                value = hash_murmur2(
                    <const uint8_t*>strings.address[i * strings.step], <size_t>size
                )
                # Kafka clears the sign bit, and does not negate.
                out[i] = <int32_t>((value & LARGEST) % count)
            else:
                value = crc32_of(
                    <const uint8_t*>strings.address[i * strings.step], <size_t>size
                )
                out[i] = <int32_t>(value % count)
    return result
