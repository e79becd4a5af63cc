"""Workloads of Thrift: seeded messages as they lie on the wire, laid out by numpy at every run.

    headers     LENGTH 0x0FFF | four key/values | call of `add`, compact               81 bytes: the frame of the facts
    framed      LENGTH | call of `add`, binary                                          42 bytes
    records     LENGTH | call of `save`, compact, of nine fields with lists and a struct
    compressed  LENGTH 0x0FFF | zlib: 64 bytes: a call of `put`, compact, with one string

Numbers and strings vary in size, and the header's padding with them. Sequence ids begin at 2**14, so that each takes
three bytes as a varint.
"""
from __future__ import annotations

import zlib

import numpy as np

from bench.data import ACTIONS, COUNTRIES, WORDS, Columns, beside, cut, digits, texts, varint, words
from bench.messages import integers, joined, where

FIRST_SEQUENCE, END_OF_SEQUENCES = 1 << 14, 1 << 21
IN_CHUNK = 1 << 16          # frames laid out at a time
PAIRS = 4                   # in every header
FIXED = 10                  # bytes of the header that LENGTH counts and HEADER_WORDS does not
PAYLOAD = 64                # bytes that are compressed
CALL = b"\x82\x21"          # a call in version 1 of the compact protocol


def headers(count: int) -> np.ndarray:
    """Header frames, as Apache's Python library writes them."""
    return _laid_out(_headers, count)


def framed(count: int) -> np.ndarray:
    """The same calls, framed and binary."""
    return _laid_out(_framed, count)


def records(count: int) -> np.ndarray:
    """Framed compact messages; fields 1 to 9: i64, string, bool, double, i16, list<i32>, a struct of a string and an
    i32, list<string>, i32."""
    return _laid_out(_records, count)


def compressed(count: int) -> np.ndarray:
    """Header frames with compressed payloads; from IN_CHUNK frames on the same ones again."""
    distinct = min(count, IN_CHUNK)
    payloads = joined(_puts(_sequences(0, distinct), _random(0)))
    frames = b"".join([_compressed(payloads[at:at + PAYLOAD]) for at in range(0, len(payloads), PAYLOAD)])
    return np.tile(np.frombuffer(frames, np.uint8), -(-count // distinct))


def _laid_out(columns, count: int) -> np.ndarray:
    if FIRST_SEQUENCE + count > END_OF_SEQUENCES:
        raise ValueError("there are not so many sequence ids of three bytes")
    return np.concatenate([
        np.frombuffer(joined(columns(_sequences(first, min(IN_CHUNK, count - first)), _random(first))), np.uint8)
        for first in range(0, count, IN_CHUNK)])


def _headers(sequence: np.ndarray, random: np.random.Generator) -> Columns:
    n, (left, right) = len(sequence), _arguments(sequence, random)
    user = texts((10.0 ** random.uniform(3, 7, n)).astype("i8").astype("S7"))
    header = beside(
        b"\x02\0\x01", bytes([PAIRS]), b"\5trace\x08", digits(random.integers(0, 10**8, n), 8), b"\4user",
        integers(user.sizes, "u1"), user, b"\4host\6web-", digits(random.integers(0, 40, n), 2), b"\4zone\2",
        words(random, COUNTRIES, n), rows=n)
    padding = where(beside(b"\0" * 3, rows=n), np.arange(3) < (-header.sizes % 4)[:, None])
    payload = beside(CALL, _wide_varint(sequence), b"\3add\x16", varint(left), b"\x16", varint(right), b"\0", rows=n)
    return _frame(beside(b"\x0f\xff\0\0", integers(sequence, ">u4"), integers(-(-header.sizes // 4), ">u2"),
                         header, padding, payload, rows=n))


def _framed(sequence: np.ndarray, random: np.random.Generator) -> Columns:
    left, right = _arguments(sequence, random)
    return _frame(beside(
        b"\x80\1\0\1\0\0\0\3add", integers(sequence, ">u4"), b"\x0a\0\1", integers(left, ">i8"), b"\x0a\0\2",
        integers(right, ">i8"), b"\0", rows=len(sequence)))


def _records(sequence: np.ndarray, random: np.random.Generator) -> Columns:
    n, note = len(sequence), words(random, WORDS, len(sequence))
    country, action = words(random, COUNTRIES, n), words(random, ACTIONS, n)
    return _frame(beside(
        CALL, _wide_varint(sequence), b"\4save\x16", _number(random, n), b"\x18", integers(note.sizes, "u1"), note,
        integers(random.integers(0x11, 0x13, n), "u1"), b"\x17", integers(random.uniform(0, 1000, n), "<f8"), b"\x14",
        _number(random, n), b"\x19\x35", _number(random, n), _number(random, n), _number(random, n),
        b"\x1c\x18\2", country, b"\x15", _number(random, n), b"\0\x19\x28", integers(action.sizes, "u1"), action,
        b"\3new\x15", _number(random, n), b"\0", rows=n))


def _puts(sequence: np.ndarray, random: np.random.Generator) -> Columns:
    n = len(sequence)
    text = cut(beside(b'{"user":"', digits(random.integers(0, 200_000, n), 8), b'","action":"',
                      words(random, ACTIONS, n), b'","note":"', words(random, WORDS, n), rows=n), PAYLOAD - 12)
    return beside(CALL, _wide_varint(sequence), b"\3put\x18", bytes([PAYLOAD - 12]), text, b"\0", rows=n)


def _compressed(payload: bytes) -> bytes:
    body = b"\x0f\xff\0\0\0\0\0\0\0\1\2\1\1\0" + zlib.compress(payload)
    return len(body).to_bytes(4, "big") + body


def _frame(body: Columns) -> Columns:
    return beside(integers(body.sizes, ">u4"), body, rows=len(body.sizes))


def _sequences(first: int, count: int) -> np.ndarray:
    return np.arange(FIRST_SEQUENCE + first, FIRST_SEQUENCE + first + count)


def _arguments(sequence: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One of them takes one byte and the other two, as zig-zag varints."""
    short, long = random.integers(0, 1 << 6, len(sequence)), random.integers(1 << 6, 1 << 13, len(sequence))
    swap = random.integers(0, 2, len(sequence), bool)
    return np.where(swap, long, short), np.where(swap, short, long)


def _number(random: np.random.Generator, n: int) -> Columns:
    """Zig-zag varints of one or two bytes, each as often."""
    return varint(random.integers(0, np.where(random.integers(0, 2, n, bool), 1 << 6, 1 << 13)))


def _wide_varint(numbers: np.ndarray) -> Columns:
    """Varints of three bytes."""
    out = np.column_stack([numbers & 0x7f | 0x80, numbers >> 7 & 0x7f | 0x80, numbers >> 14]).astype(np.uint8)
    return Columns(out, np.ones_like(out, bool))


def _random(first: int) -> np.random.Generator:
    return np.random.default_rng([1, first])
