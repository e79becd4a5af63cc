"""Lumberjack encoders: examples by hand, comparison with `struct`, and reading back."""

import json
import struct
import zlib
from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import lumberjack as strategies
from tests.support.examples import read_example_count
from wirescan import lumberjack
from wirescan.core.strings import ByteStrings
from wirescan.frames.table import FrameTable
from wirescan.lumberjack import encode
from wirescan.lumberjack.encode import (
    encode_ack,
    encode_batch,
    encode_batches,
    encode_compressed,
    encode_data,
    encode_data_batches,
    encode_events,
    encode_json,
    encode_window,
)
from wirescan.lumberjack.writer import Documents, write_windows
from wirescan.testing.guarded_memory import GuardedMemory

quiet = settings(max_examples=read_example_count(30), deadline=None)
U32 = 2**32
SEQUENCES = st.sampled_from((0, 1, 2**31 - 1, U32 - 2, U32 - 1)) | st.integers(0, U32 - 1)
LEVELS = st.sampled_from((None, None, 0, 3, 9))
TEXTS = st.lists(strategies.DOCUMENTS, max_size=9)


def windows(frames, size, version, level=None, restart=True, first=1):
    """Write windows. Each item of `frames` is a function from a sequence number to a frame."""
    out = b""
    for at in range(0, len(frames), size):
        part = frames[at : at + size]
        start = first if restart else first + at
        body = b"".join(frame((start + i) % U32) for i, frame in enumerate(part))
        out += strategies.make_window(len(part), version)
        out += body if level is None else strategies.make_compressed(body, version, level)
    return out


def frames_of(documents, version=2):
    return [
        lambda sequence, text=text: strategies.make_json(sequence, text, version)
        for text in documents
    ]


def events_of(raw):
    return lumberjack.events(lumberjack.scan(raw))


def read(raw):
    """Return [(sequence, version, document or [(key, value)])]; a bad event raises."""
    events = []
    for event in events_of(raw):
        if event.json is None:
            content = [(bytes(key), bytes(value)) for key, value in event.pairs]
        else:
            content = bytes(event.json)
        events.append((event.sequence, event.version, content))
    return events


# ---- by hand


def test_frames_have_the_expected_bytes():
    assert encode_window(3) == b"2W\0\0\0\3"
    assert encode_window(U32 - 1, version=1) == b"1W\xff\xff\xff\xff"
    assert encode_ack(258) == b"2A\0\0\1\2"
    assert encode_ack(0, version=1) == b"1A\0\0\0\0"
    assert encode_json(5, b"{}") == b"2J\0\0\0\5\0\0\0\2{}"
    text = b'{"a":"\xc3\xa9","b":[1,null]}'
    assert encode_json(5, {"a": "é", "b": [1, None]}, version=1) == b"1J\0\0\0\5\0\0\0\x17" + text
    assert encode_data(1, {"k": "é", b"": b"\xff"}) == (
        b"1D\0\0\0\1\0\0\0\2\0\0\0\1k\0\0\0\2\xc3\xa9\0\0\0\0\0\0\0\1\xff"
    )
    assert encode_data(1, [], version=2) == b"2D\0\0\0\1\0\0\0\0"
    stored = b"\x78\x01\1\2\0\xfd\xffhi" + struct.pack(">I", zlib.adler32(b"hi"))
    assert encode_compressed(b"hi", level=0) == b"2C\0\0\0\x0d" + stored
    assert encode_compressed(memoryview(b"hi")) == encode_compressed(b"hi")
    zlib_header = b"\x78\x5e"  # as libbeat sends it
    assert encode_compressed(b"hi", version=1)[:8] == b"1C\0\0\0\x0a" + zlib_header


def test_windows_have_the_expected_bytes():
    two = b"2W\0\0\0\x022J\0\0\0\1\0\0\0\x0172J\0\0\0\2\0\0\0\2{}"
    assert encode_batch([b"7", {}]) == two
    assert encode_batches([b"7", b"{}"]) == two
    assert encode_events(events_of(two)) == two
    data = b"1W\0\0\0\x011D\0\0\0\1\0\0\0\1\0\0\0\4line\0\0\0\2hi"
    assert encode_batch([{"line": "hi"}], version=1) == data
    assert encode_data_batches({"line": [b"hi"]}) == data
    assert encode_batch([{"line": "hi"}], version=1, frames="json")[:8] == b"1W\0\0\0\0011J"
    assert encode_batch([{"line": "hi"}], frames="data") == data
    assert encode_events(events_of(data)) == data
    assert encode_batch([]) == b"2W\0\0\0\0"
    assert encode_batch([], level=3) == b"2W\0\0\0\0"
    assert encode_batch([], version=1) != b"2W\0\0\0\0"
    nothing = events_of(b"2W\0\0\0\0")
    for raw in (
        encode_batches([]),
        encode_batches([], level=3),
        encode_data_batches({"a": []}),
        encode_events(nothing),
    ):
        assert raw == b""
        assert raw.readonly
        assert raw.format == "B"


def test_documents_of_every_kind():
    text = '{"é":1}'
    for document in (
        text,
        text.encode(),
        bytearray(text.encode()),
        memoryview(text.encode()),
        {"é": 1},
        OrderedDict(é=1),
        MappingProxyType({"é": 1}),
    ):
        raw = encode_batch([document]) + encode_json(1, document)
        assert read(raw) == [(1, 2, text.encode())] * 2
    odd = {
        "text": '\u2028"\\\0',
        "number": 1.5,
        "more": {"make_deep_mapping": [True, {}]},
        "10": -(2**70),
        "": None,
    }
    assert json.loads(read(encode_json(0, odd))[0][2]) == odd


def test_pairs_of_every_kind():
    for pairs in (
        {"a": b"1", b"b": "é"},
        [("a", "1"), ["b", "é"]],
        iter([(b"a", bytearray(b"1")), ("b", "é")]),
        MappingProxyType({"a": memoryview(b"1"), "b": "é"}),
    ):
        assert read(encode_data(7, pairs)) == [(7, 1, [(b"a", b"1"), (b"b", "é".encode())])]
    twice = [("a", "1"), ("a", "2")]
    assert read(encode_batch(iter([twice, []]), frames="data")) == [
        (1, 1, [(b"a", b"1"), (b"a", b"2")]),
        (2, 1, []),
    ]


# ---- comparison with struct


@quiet
@given(strategies.calls())
def test_batch_reads_back(call):
    events, options, wanted = call
    raw = encode_batch(events, **options)
    assert read(raw) == [
        (sequence, version, list(pairs) if text is None else text)
        for sequence, version, text, pairs in wanted
    ]
    frames = lumberjack.scan(raw)
    assert frames["count"][0] == len(wanted)
    assert frames.consumed == len(raw)
    kinds = bytes(frames["kind"].astype(np.uint8)).decode()
    assert kinds[0] == "W"
    assert (kinds[1:] == "C" * bool(wanted)) is (options["level"] is not None or not wanted)


@quiet
@given(TEXTS, st.integers(1, 10), st.sampled_from((1, 2)), LEVELS, st.booleans(), SEQUENCES)
def test_batches_read_back(texts, size, version, level, restart, first):
    raw = encode_batches(
        texts,
        window=size,
        version=version,
        level=level,
        first=first,
        sequence="window" if restart else "stream",
    )
    assert raw == windows(frames_of(texts, version), size, version, level, restart, first)
    assert raw.readonly
    assert raw.format == "B"
    assert raw.c_contiguous
    assert [text for _, _, text in read(raw)] == texts


@quiet
@given(
    st.lists(st.tuples(*[st.none() | strategies.STRINGS] * 3), max_size=9),
    st.integers(1, 10),
    st.sampled_from((1, 2)),
    LEVELS,
    st.booleans(),
    SEQUENCES,
)
def test_data_batches_read_back(rows, size, version, level, restart, first):
    keys = ("host", b"\xff", "")
    raw_keys = (b"host", b"\xff", b"", b"for all")
    wanted = [
        [(key, value) for key, value in zip(raw_keys, (*row, b"same")) if value is not None]
        for row in rows
    ]
    columns = {key: [row[i] for row in rows] for i, key in enumerate(keys)}
    columns["for all"] = "same"
    options = dict(
        window=size,
        version=version,
        level=level,
        first=first,
        sequence="window" if restart else "stream",
    )
    raw = encode_data_batches(columns, **options)
    frames = [
        lambda sequence, pairs=pairs: strategies.make_data(sequence, pairs, version)
        for pairs in wanted
    ]
    assert raw == windows(frames, size, version, level, restart, first)
    assert raw == encode_data_batches(list(columns.items()), **options)
    assert [pairs for _, _, pairs in read(raw)] == wanted


EVENTS = st.builds(
    lambda text, version: lambda sequence: strategies.make_json(sequence, text, version),
    strategies.DOCUMENTS,
    strategies.VERSIONS,
) | st.builds(
    lambda pairs, version: lambda sequence: strategies.make_data(sequence, pairs, version),
    strategies.PAIRS,
    strategies.VERSIONS,
)


@quiet
@given(
    st.lists(st.tuples(EVENTS, SEQUENCES, st.booleans()), max_size=9),
    st.integers(1, 10),
    st.sampled_from((None, 1, 2)),
    LEVELS,
    st.booleans(),
    SEQUENCES,
)
def test_events_are_written_again(events, size, version, level, restart, first):
    raw = b"".join(
        strategies.make_compressed(frame(sequence)) if is_compressed else frame(sequence)
        for frame, sequence, is_compressed in events
    )
    options = dict(
        window=size, version=version, level=level, sequence="window" if restart else "stream"
    )
    again = encode_events(events_of(raw), first=first, **options)
    wanted = b""
    at = 0
    while at < len(events):  # a window ends when it is full, or when the version changes
        part = [frame for frame, _, _ in events[at : at + size]]
        versions = [int(frame(0)[:1]) for frame in part]
        number = version
        if version is None:
            number = versions[0]
            changes = (i for i, other in enumerate(versions) if other != number)
            part = part[: next(changes, len(part))]
        frames = [
            lambda sequence, frame=frame: b"%d" % number + frame(sequence)[1:] for frame in part
        ]
        start = first if restart else (first + at) % U32
        wanted += windows(frames, len(part), number, level, first=start)
        at += len(part)
    assert again == wanted


@pytest.mark.parametrize("restart", [True, False])
def test_long_streams_read_back(restart):
    """Many windows, strings around every size step of the copying, sequences that roll over."""
    texts = [b"%d" % (i % 10) * (1 + i % 517) for i in range(9000)]
    first = U32 - 5000
    sequence = "window" if restart else "stream"
    for level in (None, 1):
        raw = encode_batches(texts, first=first, sequence=sequence, level=level)
        assert raw == windows(frames_of(texts), 2048, 2, level, restart, first)
        events = events_of(raw)
        assert encode_events(events, first=first, sequence=sequence, level=level) == raw
        plain = windows(frames_of(texts), 2048, 2, None, restart, first)
        assert encode_events(events, first=first, sequence=sequence) == plain
    data = encode_data_batches({"message": texts}, first=first, sequence=sequence)
    frames = [
        lambda sequence, text=text: strategies.make_data(sequence, [(b"message", text)])
        for text in texts
    ]
    assert data == windows(frames, 2048, 1, None, restart, first)


# ---- every kind of input

STRINGS = [b"a", b"exactly 12 b", b"x" * 50, b"{}"]


def list_containers():
    """Yield (name, the same byte strings in each container that can hold them)."""
    yield "list", STRINGS
    yield "objects", np.array(STRINGS, object)
    yield "numpy", np.array(STRINGS)
    yield "byte strings", ByteStrings(STRINGS)
    yield "offsets", (np.cumsum([0, *map(len, STRINGS)]), b"".join(STRINGS))
    yield "place", (events_of(encode_batches(STRINGS)), "json")
    yield "inflated place", (events_of(encode_batches(STRINGS, window=2, level=3)), "json")
    yield "value", (lumberjack.pairs(events_of(encode_data_batches({"k": STRINGS}))), "value")
    yield "polars", polars.Series([text.decode() for text in STRINGS])
    for kind in (
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
    ):
        texts = [text.decode() if "string" in str(kind) else text for text in STRINGS]
        yield str(kind), pa.array(texts, kind)
        yield (
            f"{kind} in chunks",
            pa.chunked_array([pa.array(texts[:1], kind), pa.array(texts[1:], kind)]),
        )


def test_every_container_gives_equal_bytes():
    expected = encode_batches(STRINGS)
    data = encode_data_batches({"k": STRINGS})
    for name, strings in list_containers():
        assert encode_batches(strings) == expected, name
        assert encode_data_batches({"k": strings}) == data, name


def test_a_null_writes_no_pair():
    column = pa.array(["1", None, "3"])
    raw = encode_data_batches({"a": column, "b": pa.nulls(3), "c": pa.array([None, "5", "6"])})
    assert [pairs for _, _, pairs in read(raw)] == [
        [(b"a", b"1")],
        [(b"c", b"5")],
        [(b"a", b"3"), (b"c", b"6")],
    ]
    assert encode_data_batches({"b": pa.nulls(2)}) == encode_batch([{}, {}], frames="data")


def test_part_of_a_table_is_written():
    texts = [b"%d" % i for i in range(40)]
    events = events_of(encode_batch(texts[:30], level=3) + encode_batch(texts[30:]))
    for chosen in (
        slice(None, None, -1),
        slice(3, None, 7),
        slice(5, 5),
        np.array([39, 0, 0, 31]),
        np.arange(40) % 3 == 1,
    ):
        expected = [texts[i] for i in np.arange(40)[chosen]]
        assert encode_events(events[chosen], window=7) == encode_batches(expected, window=7)
    nested = lumberjack.scan(encode_compressed(encode_compressed(encode_batch(texts))))
    assert encode_events(lumberjack.events(nested, depth=2)) == encode_batch(texts)


def test_output_shares_no_memory_with_input():
    text = bytearray(b"before")
    events = events_of(memoryview(encode_batch([b"x" * 20])))
    raws = [
        encode_batches(([0, 6], text)),
        encode_data_batches({"k": ([0, 6], text)}),
        encode_events(events),
    ]
    before = [*map(bytes, raws)]
    text[:] = b"behind"
    del events
    assert raws == before


@pytest.mark.parametrize("size", [*range(1, 150), 4096])
def test_nothing_is_read_outside(size):
    guarded = GuardedMemory(size + 20)
    for put in (guarded.place_at_end, guarded.place_at_beginning):
        data = put(b"x" * size)
        assert len(encode_batches(([0, size], data))) == 16 + size
        assert len(encode_data_batches({"k": ([0, size], data)})) == 25 + size
        data = put(encode_json(1, b"x" * size))
        assert encode_events(events_of(data)) == encode_batch([b"x" * size])
        del data


# ---- hostile rows and bad arguments


def test_bad_rows_are_refused():
    raw = (
        encode_batch([b"1", b"2"])
        + strategies.make_json(3, b"")
        + strategies.wrap_payload(
            strategies.deflate_bytes(strategies.make_json(4, b"4"), ends=False)
        )
        + b"HTTP"
    )
    marked = lumberjack.events(lumberjack.scan(raw, errors="mark"), errors="mark")
    bad = np.flatnonzero(marked.bad).tolist()
    assert len(bad) == 3
    for row, name in zip(bad, ("EMPTY", "TRUNCATED", "NOT_A_FRAME")):
        with pytest.raises(ValueError, match=rf"row 1 is bad \({name}\)"):
            encode_events(marked[np.array([0, row])])
    assert encode_events(marked.where(~marked.bad)) == encode_batch([b"1", b"2", b"4"])


@pytest.mark.parametrize(
    "column, number",
    [
        ("start", -1),
        ("start", -(2**63)),
        ("start", 2**63 - 1),
        ("start", 13),
        ("size", 0),
        ("size", 9),
        ("size", U32 - 1),
        ("buffer", 1),
        ("buffer", 2**16 - 1),
        ("kind", ord("W")),
        ("kind", 0),
        ("version", 0),
        ("version", 3),
        ("version", 257),
        ("fault", 1),
        ("fault", 255),
    ],
)
def test_forged_rows_are_refused(column, number):
    events = events_of(encode_json(1, b"{}") * 2)
    rows = events.rows.copy()
    rows[column][1] = number
    for version in (None, 2):
        with pytest.raises(ValueError, match="^row 1 is "):
            encode_events(FrameTable(events.buffers, rows, (), events.format), version=version)


GOOD = encode_batch([b"1"])
SURROGATE = "\ud800"


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_window(U32), "count must be from 0 to 4294967295"),
        (lambda: encode_window(-1), "count must be from 0"),
        (lambda: encode_window(1, version=3), "version must be from 1 to 2, not 3"),
        (lambda: encode_ack(U32), "sequence must be from"),
        (lambda: encode_json(-1, b"{}"), "sequence must be from"),
        (lambda: encode_json(1, b""), "must not be empty"),
        (lambda: encode_json(1, ""), "must not be empty"),
        (lambda: encode_json(1, SURROGATE), "a document has a surrogate at 0"),
        (lambda: encode_json(1, {"a": SURROGATE}), "a document has a surrogate at 6"),
        (lambda: encode_json(1, {"a": float("nan")}), "not JSON compliant"),
        (lambda: encode_json(1, {"a": float("-inf")}), "not JSON compliant"),
        (lambda: encode_json(1, make_cycle()), "Circular"),
        (lambda: encode_json(1, make_deep_mapping()), "nested too deeply"),
        (lambda: encode_json(1, bytes(2**31)), "a document has 2147483648 bytes"),
        (lambda: encode_data(1, {"k": SURROGATE}), "a value has a surrogate"),
        (lambda: encode_data(1, {SURROGATE: ""}), "a key has a surrogate"),
        (lambda: encode_data(1, [(bytes(2**31), b"")]), "a key has 2147483648 bytes"),
        (lambda: encode_data(1, {b"": bytes(2**31)}), "a value has 2147483648 bytes"),
        (lambda: encode_data(1, [(b"", bytes(2**31 - 1))] * 3), "less than 4 GiB"),
        (lambda: encode_compressed(b"", level=10), "level must be from 0 to 9"),
        (lambda: encode_compressed(b"", level=-1), "level must be from 0 to 9"),
        (lambda: encode_batch([b"1", b""]), "event 1: a document must not be empty"),
        (lambda: encode_batch([{}, {"a": float("nan")}]), "event 1: .*not JSON"),
        (
            lambda: encode_batch([{}, {"a": SURROGATE}], frames="data"),
            "event 1: a value has a surrogate",
        ),
        (lambda: encode_batch([], level=10), "level must be"),
        (lambda: encode_batch([], sequence=U32), "sequence must be"),
        (lambda: encode_batch([], version=0), "version must be"),
        (lambda: encode_batch([], frames="text"), "frames must be 'json' or 'data', not 'text'"),
        (lambda: encode_batches([b"1", None]), "document 1 must not be null"),
        (lambda: encode_batches(pa.array(["1", ""])), "document 1 must not be empty"),
        (lambda: encode_batches([b"1"], window=0), "window must be from 1 to 4294967295, not 0"),
        (lambda: encode_batches([b"1"], window=U32), "window must be"),
        (lambda: encode_batches([b"1"], level=10), "level must be"),
        (lambda: encode_batches([b"1"], first=U32), "first must be"),
        (
            lambda: encode_batches([b"1"], sequence="rising"),
            "sequence must be 'window' or 'stream', not 'rising'",
        ),
        (lambda: encode_batches([b"1"], version=3), "version must be"),
        (lambda: encode_batches(([0, 9], b"")), "documents: string 0"),
        (lambda: encode_batches(b"{}"), "documents: one byte string for all"),
        (lambda: encode_data_batches({}), "no column is an array"),
        (lambda: encode_data_batches({"a": "1", "b": b"2"}), "no column is an array"),
        (lambda: encode_data_batches({"a": [b"1"], "b": []}), "unequal length"),
        (lambda: encode_data_batches({"a": [b"1"], "b": SURROGATE}), "column 'b' has a surrogate"),
        (lambda: encode_data_batches({SURROGATE: [b"1"]}), "a key has a surrogate"),
        (lambda: encode_data_batches([(bytes(2**31), [b"1"])]), "a key has 2147483648 bytes"),
        (
            lambda: encode_data_batches([("a", [b"1"]), *[(b"", bytes(2**31 - 1))] * 3]),
            "row 0 is too large",
        ),
        (lambda: encode_events(events_of(GOOD), version=3), "version must be"),
        (lambda: encode_events(events_of(GOOD), window=0), "window must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert caught.type is ValueError


def make_cycle():
    mapping = {}
    mapping["a"] = mapping
    return mapping


def make_deep_mapping():
    mapping = {}
    for _ in range(100_000):
        mapping = {"a": mapping}
    return mapping


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_window(1.0), "count must be an integer, not 1.0"),
        (lambda: encode_window(1, version="2"), "version must be an integer"),
        (lambda: encode_ack(None), "sequence must be an integer"),
        (lambda: encode_json(1, [1]), "a document must be a mapping, bytes or str, not list"),
        (lambda: encode_json(1, None), "a document must be"),
        (lambda: encode_json(1, {"at": np.datetime64("now")}), "not JSON serializable"),
        (lambda: encode_json(1, {(): 1}), "keys must be str"),
        (lambda: encode_data(1, {"k": None}), "a value must be bytes or str, not NoneType"),
        (lambda: encode_data(1, {"k": 1}), "a value must be bytes or str, not int"),
        (lambda: encode_data(1, {1: ""}), "a key must be bytes or str, not int"),
        (lambda: encode_data(1, ["ab"]), "a pair is"),
        (lambda: encode_data(1, [("a", "b", "c")]), "a pair is"),
        (lambda: encode_data(1, b"abcd"), "pairs must be an iterable, not bytes"),
        (lambda: encode_data(1, 7), "pairs must be an iterable, not int"),
        (lambda: encode_compressed("text"), "not a contiguous bytes-like object: str"),
        (lambda: encode_compressed(memoryview(b"text")[::2]), "not a contiguous"),
        (lambda: encode_compressed(b"", level=None), "level must be an integer"),
        (lambda: encode_batch([{}, 7]), "event 1: a document must be"),
        (lambda: encode_batch([{}, {"at": {1, 2}}]), "event 1: .*not JSON serializable"),
        (lambda: encode_batch([{}, b"text"], version=1), "event 1: pairs must be an iterable"),
        (lambda: encode_batch({"message": "hello"}), "not one mapping"),
        (lambda: encode_batch("{}"), "events must be an iterable, not str"),
        (lambda: encode_batch([], level="3"), "level must be an integer"),
        (lambda: encode_batches([b"1", "2"]), "documents: string 1 must be bytes or None, not str"),
        (lambda: encode_batches(pa.array([1])), "documents: byte strings in Arrow"),
        (lambda: encode_batches([b"1"], window=2.0), "window must be an integer"),
        (lambda: encode_data_batches({1: [b""]}), "a key must be bytes or str"),
        (lambda: encode_data_batches({"a": [1]}), "column 'a': string 0 must be bytes or None"),
        (lambda: encode_data_batches(["ab"]), "columns are a mapping, or pairs"),
        (lambda: encode_data_batches(7), "columns must be an iterable"),
        (lambda: encode_events(GOOD), "events must be a table of lumberjack.events, not bytes"),
        (lambda: encode_events(lumberjack.scan(GOOD)), "from a table of lumberjack.events"),
        (lambda: encode_events(events_of(GOOD), version=1.5), "version must be an integer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_integers_of_numpy_are_accepted():
    for kind in (np.uint8, np.int64, np.uint64):
        options = dict(version=kind(1), level=kind(3))
        plain = dict(version=1, level=3)
        assert encode_window(kind(3), version=kind(2)) == encode_window(3)
        raw = encode_compressed(b"x" * 90, **options)
        assert raw == encode_compressed(b"x" * 90, **plain)
        raw = encode_batch([{}], sequence=kind(9), **options)
        assert raw == encode_batch([{}], sequence=9, **plain)
        raw = encode_batches([b"1"] * 5, window=kind(2), first=kind(3), **options)
        assert raw == encode_batches([b"1"] * 5, window=2, first=3, **plain)


def test_zlib_streams_that_are_too_large(monkeypatch):
    large = np.zeros(2**31, np.uint8)  # never written, so it takes no memory
    results = iter([b"small", large])
    documents = Documents(ByteStrings([b"1"] * 4), 2)
    with pytest.raises(ValueError, match="the window of event 2 is too large"):
        write_windows(documents, 2, 1, restart=True, compress=lambda frames: next(results))
    monkeypatch.setattr(encode, "LONGEST", 10)
    with pytest.raises(ValueError, match="a zlib stream has .* bytes, and at most 10"):
        encode_compressed(bytes(range(20)), level=0)
