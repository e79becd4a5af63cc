# cython: boundscheck=False, wraparound=False
"""Which partition a key belongs to, as Kafka's own producer and librdkafka choose.

    murmur2   (MurmurHash2 of the key, seed 0x9747b28c) & 0x7fffffff, modulo partitions: Java, kafka-python, aiokafka;
              librdkafka's murmur2 and murmur2_random
    crc32     CRC-32 of the key, modulo partitions: librdkafka's consistent and consistent_random

Sources: Apache Kafka, org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner; librdkafka, CONFIGURATION.md,
"partitioner"; A. Appleby, MurmurHash2.
"""
import operator

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from wirescan.core.checksum cimport crc32_of
from wirescan.core.reader cimport le32
from wirescan.core.strings cimport ByteStrings, Strings

cdef enum:
    MULTIPLIER = 0x5bd1e995


cdef uint32_t murmur2_of(const uint8_t* at, size_t size) noexcept nogil:
    cdef uint32_t value = <uint32_t>0x9747b28c ^ <uint32_t>size, word
    while size >= 4:
        word = le32(at) * <uint32_t>MULTIPLIER
        value = value * <uint32_t>MULTIPLIER ^ (word ^ word >> 24) * <uint32_t>MULTIPLIER
        at, size = at + 4, size - 4
    if size:
        if size > 2:
            value ^= <uint32_t>at[2] << 16
        if size > 1:
            value ^= <uint32_t>at[1] << 8
        value = (value ^ at[0]) * <uint32_t>MULTIPLIER
    value = (value ^ value >> 13) * <uint32_t>MULTIPLIER
    return value ^ value >> 15


def murmur2(const uint8_t[::1] key not None):
    """MurmurHash2 of a bytes-like object, as the int32 that Kafka's Java code makes of it."""
    return <int32_t>murmur2_of(&key[0], <size_t>key.shape[0])


def partition_of(keys, partitions, how="murmur2"):
    """Int32 array: the partition of each key, from 0 to partitions - 1; -1 for null, which the caller places.

    keys: anything that `wirescan.core.strings.ByteStrings` takes: a place of a table, an Arrow array, a list ...
    how: "murmur2", as Kafka's Java producer, kafka-python and aiokafka by default; or "crc32", as librdkafka and what
    stands on it by default. An empty key has a hash like any other; librdkafka's `consistent` puts null to it, in
    partition 0, and its `consistent_random`, the default, puts both anywhere.
    Raises TypeError and ValueError for keys that are none, fewer than one partition, or another `how`.
    """
    cdef ByteStrings given = keys if isinstance(keys, ByteStrings) else ByteStrings(keys)
    cdef Strings strings = given.strings
    cdef int32_t number
    cdef Py_ssize_t i, n = len(given)
    if how not in ("murmur2", "crc32"):
        raise ValueError(f"how must be 'murmur2' or 'crc32', not {how!r}")
    partitions = operator.index(partitions)
    if not 1 <= partitions <= 0x7fffffff:
        raise ValueError(f"there are from 1 to {0x7fffffff} partitions, not {partitions}")
    cdef uint32_t count = partitions, value
    cdef bint java = how == "murmur2"
    found = np.empty(n, np.int32)
    cdef int32_t[::1] out = found
    with nogil:
        for i in range(n):
            number = strings.size[i * strings.step]
            if number < 0:
                out[i] = -1
            elif java:
                value = murmur2_of(<const uint8_t*>strings.address[i * strings.step], <size_t>number) & 0x7fffffff
                out[i] = <int32_t>(value % count)
            else:
                value = crc32_of(<const uint8_t*>strings.address[i * strings.step], <size_t>number)
                out[i] = <int32_t>(value % count)
    return found
