"""Stream: however the bytes are cut into chunks, the same frames come out, and the same faults."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wirescan
from tests.support.examples import read_example_count
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, Limits, kafka
from wirescan.files.incremental import FrameScanner
from wirescan.frames.errors import MODES
from wirescan.frames.registry import format_of
from wirescan.frames.table import join
from wirescan.kafka import Record, encode_batch, encode_message_set
from wirescan.reading.stream import Stream
from wirescan.testing.mutations import flip_bit

BATCHES = [
    encode_batch(
        [Record(i, 1000 + i, b"k%d" % i, b"v" * i, [("h", b"%d" % i)]) for i in range(40)]
    ),
    encode_batch([Record(40 + i, value=b"packed" * 20) for i in range(10)], codec="lz4"),
    encode_message_set([b"old"], magic=1, base_offset=50),
    encode_message_set([b"older", b"still"], magic=1, base_offset=51, codec="gzip"),
    encode_batch([], base_offset=53),
    encode_batch([Record(54, value=b"last")]),
]
RAW = b"".join(BATCHES)
WHOLE = kafka.records(kafka.scan(RAW))
FORMATS = ["kafka.batches", "kafka.records", "kafka.headers"]


def pieces(raw, *sizes):
    """Chunks of these sizes, the last one repeated."""
    at, sizes = 0, list(sizes)
    while at < len(raw):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        yield raw[at : at + size]
        at += size


def run(chunks, format="kafka.records", **options):
    """All tables of a stream, and the stream."""
    stream = wirescan.stream(format, **options)
    tables = [stream.feed(chunk) for chunk in chunks]
    tables.append(stream.close())
    return tables, stream


def plain(tables):
    """What the rows hold: every column that does not say where, and the places' bytes."""
    out = []
    for table in tables:
        names = [
            n
            for n in table.dtype.names
            if n not in ("start", "buffer", "parent", "key_at", "value_at", "headers_at")
        ]
        for i, row in enumerate(table.rows):
            frame = bytes(table.frame(i))
            out.append(
                (*(row[n].item() for n in names), frame, *(table.bytes(i, n) for n in table.places))
            )
    return out


def spans_of(tables):
    """(start in the stream, size, fault) of every outermost row."""
    out = []
    for table in tables:
        while table.outer is not None:
            table = table.outer
        out += list(zip(table.positions.tolist(), table["size"].tolist(), table["fault"].tolist()))
    return out


# ---- whole = any chunking


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "size",
    [1, 2, 3, 7, 16, 17, 60, 61, 62, 100, 255, 256, 257, 1000, len(RAW) - 1, len(RAW), 1 << 20],
)
def test_chunks_of_every_size(format, size):
    tables, stream = run(pieces(RAW, size), format)
    assert plain(tables) == plain([wirescan.scan(RAW, format)])
    assert stream.offset == len(RAW) and stream.held == 0
    assert sum(len(table) for table in tables[:-1]) == len(
        wirescan.scan(RAW, format)
    )  # before the end is known


@settings(max_examples=read_example_count(40), deadline=None)
@given(
    st.lists(st.integers(0, len(RAW)), max_size=20),
    st.sampled_from(["kafka.batches", "kafka.records"]),
)
def test_any_cuts_give_the_same_rows(cuts, format):
    ends = [0, *sorted(cuts), len(RAW)]
    tables, _ = run([RAW[a:b] for a, b in zip(ends, ends[1:])], format)
    assert plain(tables) == plain([wirescan.scan(RAW, format)])


def test_every_kind_of_chunk_is_accepted():
    kinds = [
        bytes,
        bytearray,
        memoryview,
        lambda c: np.frombuffer(c, np.uint8),
        lambda c: memoryview(b"xx" + c + b"yy")[2:-2],
    ]
    chunks = [kinds[i % len(kinds)](chunk) for i, chunk in enumerate(pieces(RAW, 99))]
    assert plain(run(chunks)[0]) == plain([WHOLE])
    with pytest.raises(TypeError, match="neither a path nor a bytes-like object: str"):
        wirescan.stream("kafka.batches").feed("text")
    with pytest.raises(TypeError, match="not contiguous"):
        wirescan.stream("kafka.batches").feed(memoryview(RAW)[::2])


def test_empty_chunks_and_streams():
    tables, stream = run([b"", BATCHES[0], b"", b""])
    assert [len(table) for table in tables] == [0, 40, 0, 0, 0]
    for format in FORMATS:
        tables, stream = run([], format)
        assert (
            len(tables[0]) == 0
            and tables[0].dtype == format_of(format).dtype
            and tables[0].name == format
        )
        assert stream.offset == 0


def test_whole_frames_of_a_chunk_are_not_copied():
    stream = wirescan.stream("kafka.batches")
    chunk = RAW + BATCHES[0][:30]
    table = stream.feed(chunk)
    assert len(table) == len(BATCHES) and table.buffers[0].obj is chunk and stream.held == 30
    more = BATCHES[0][30:] + RAW
    table = stream.feed(more)
    assert len(table) == len(BATCHES) + 1
    assert (
        table.frame(0) == BATCHES[0] and table.frame(1).obj is more
    )  # only the cut frame is joined


def test_tables_of_one_stream_can_be_joined():
    tables, _ = run(pieces(RAW, 100))
    joined = join([table for table in tables if len(table)])
    assert plain([joined]) == plain([WHOLE])
    assert joined.positions.tolist() == WHOLE.positions.tolist()


def test_tables_outlive_the_stream():
    tables, stream = run(pieces(RAW, 50))
    del stream
    assert plain(tables) == plain([WHOLE])


# ---- close


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
@pytest.mark.parametrize("size", [1, 10, 1 << 20])
def test_close_with_nothing_held(errors, size):
    tables, stream = run(pieces(RAW, size), errors=errors)
    assert len(tables[-1]) == 0 and stream.held == 0
    with pytest.raises(ValueError, match="closed"):
        stream.feed(RAW)


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
@pytest.mark.parametrize("size", [1, 9, 1 << 20])
def test_close_with_a_cut_frame(errors, size):
    """A stop, not an error: the last table has the bytes as its tail, as in a scan of the whole."""
    cut = BATCHES[0][:100]
    stream = wirescan.stream("kafka.batches", errors=errors)
    tables = [stream.feed(chunk) for chunk in pieces(RAW + cut, size)]
    assert stream.held == len(cut) and stream.offset == len(RAW)
    tables.append(stream.close())
    assert plain(tables) == plain([wirescan.scan(RAW, "kafka.batches")])
    last = tables[-1]
    assert (last.stop.fault, last.tail, last.origins, len(last)) == (
        Fault.SHORT,
        cut,
        (len(RAW),),
        0,
    )
    assert stream.held == 0 and stream.offset == len(RAW)
    tables, _ = run(pieces(RAW + cut, size), "kafka.records", errors=errors)
    assert plain(tables) == plain([WHOLE])


def test_a_cut_filler_is_a_tail_too():
    filler = b"\xff" * 8 + (1 << 20).to_bytes(4, "big") + b"\x01" * 300
    for errors in ("strict", "mark", "skip"):
        tables, _ = run(pieces(RAW + filler, 500), "kafka.batches", errors=errors)
        assert plain(tables) == plain([wirescan.scan(RAW, "kafka.batches")])
        assert tables[-1].stop.fault == Fault.FILLER and tables[-1].tail == filler


@pytest.mark.parametrize("errors", ["strict", "mark", "skip"])
def test_zeros_at_the_end_are_no_fault(errors):
    for size in (1, 1000, 1 << 20):
        tables, _ = run(pieces(RAW + bytes(3000), size), errors=errors)
        assert plain(tables) == plain([WHOLE])
        tables, _ = run(pieces(RAW + bytes(3000), size), "kafka.batches", errors=errors)
        assert tables[-1].stop.fault == Fault.ZEROS and tables[-1].tail == bytes(3000)


def test_a_gap_of_zeros_above_4_gib():
    """A row spans less than 4 GiB, so the gap is several rows. The zeros are counted, not held."""
    zeros, first, last = memoryview(bytes(1 << 22)), BATCHES[0], BATCHES[-1]
    gap = 1025 * len(zeros)
    stream = Stream(format_of("kafka.batches"), errors="mark", limits=Limits(frame=1 << 16))
    tables = [stream.feed(first)]
    for _ in range(gap // len(zeros)):
        tables.append(stream.feed(zeros))
        assert stream.held == 0
    tables += [stream.feed(last), stream.close()]
    spans = spans_of(tables)
    assert spans[0] == (0, len(first), Fault.OK) and spans[-1] == (
        len(first) + gap,
        len(last),
        Fault.OK,
    )
    assert len(spans) > 3 and {fault for _, _, fault in spans[1:-1]} == {Fault.BAD_LENGTH}
    assert all(start + size == after for (start, size, _), (after, _, _) in zip(spans, spans[1:]))


@pytest.mark.parametrize(
    "left",
    [BATCHES[0][:100], bytes(3000), BATCHES[0][:9], b"\0"],
    ids=["cut", "zeros", "header", "zero"],
)
@pytest.mark.parametrize("size", [1, 9, 1 << 20])
def test_close_without_a_tail(left, size):
    """If the end is known to be that of a frame, bytes that are left are a fault, with a row."""

    def closed(errors, raw=RAW + left):
        stream = Stream(format_of("kafka.batches"), errors=errors, source="a.log", offset=1000)
        tables = [stream.feed(chunk) for chunk in pieces(raw, size)]
        return [*tables, stream.close(tail=False)]

    with pytest.raises(FrameError) as caught:
        closed("strict")
    assert (caught.value.fault, caught.value.offset, caught.value.near, caught.value.source) == (
        Fault.BAD_LENGTH,
        1000 + len(RAW),
        left[:16],
        "a.log",
    )
    tables = closed("mark")
    assert plain(tables[:-1]) == plain([wirescan.scan(RAW, "kafka.batches")])
    assert spans_of(tables[-1:]) == [(1000 + len(RAW), len(left), Fault.BAD_LENGTH)]
    assert (
        bytes(tables[-1].frame(0)) == left
        and tables[-1].stop.fault == Fault.OK
        and not tables[-1].tail
    )
    assert plain(closed("skip")) == plain([wirescan.scan(RAW, "kafka.batches")])
    for errors in ("strict", "mark", "skip"):
        assert len(closed(errors, RAW)[-1]) == 0


@pytest.mark.parametrize("limits", [None, 3, {"rows": 3}, Limits])
def test_arguments_of_another_type(limits):
    with pytest.raises(TypeError, match="limits must be a wirescan.Limits"):
        wirescan.stream("kafka.records", limits=limits)
    with pytest.raises(TypeError, match="needs a Format, not 'kafka.records'"):
        Stream("kafka.records")


def test_chunk_after_close_and_second_close():
    stream = wirescan.stream("kafka.batches")
    stream.feed(RAW)
    stream.close()
    assert len(stream.close()) == 0
    with pytest.raises(ValueError, match="the stream is closed"):
        stream.feed(b"")


# ---- faults


@pytest.mark.parametrize("size", [1, 13, 64, 500, 1 << 20])
def test_errors_count_from_the_first_byte_of_the_stream(size):
    raw = RAW + flip_bit(BATCHES[0]) + BATCHES[1]
    with pytest.raises(FrameError) as caught:
        run(pieces(raw, size), "kafka.batches")
    assert (caught.value.fault, caught.value.offset) == (Fault.BAD_CHECKSUM, len(RAW))
    tables, _ = run(pieces(raw, size), "kafka.batches", errors="mark")
    assert spans_of(tables) == spans_of([wirescan.scan(raw, "kafka.batches", errors="mark")])
    assert (
        sum(len(table) for table in run(pieces(raw, size), "kafka.batches", errors="skip")[0])
        == len(BATCHES) + 1
    )


def test_stream_with_a_source_and_an_offset():
    stream = Stream(format_of("kafka.records"), source="/data/a.log", offset=1 << 40)
    table = stream.feed(RAW)
    assert table.positions[0] == 1 << 40 and stream.offset == (1 << 40) + len(RAW)
    with pytest.raises(FrameError) as caught:
        stream.feed(flip_bit(BATCHES[0]))
    assert caught.value.source == "/data/a.log" and caught.value.offset == (1 << 40) + len(RAW)
    assert "/data/a.log" in str(caught.value)


def test_errors_inside_inflated_payloads_name_the_stream():
    bad = encode_batch([Record(value=b"x" * 50)] * 3, codec="gzip")
    bad = bad[:57] + (4).to_bytes(4, "big") + bad[61:]  # four records claimed
    stream = Stream(format_of("kafka.records"), source="a.log", check=False)
    stream.feed(BATCHES[0])
    with pytest.raises(FrameError) as caught:
        stream.feed(bad)
    assert caught.value.fault == Fault.BAD_COUNT and caught.value.inflated
    assert caught.value.offset == len(BATCHES[0]) and caught.value.source == "a.log"


GAPS = [
    b"\xfe" * 40,
    b"\x00" * 8 + b"\xff" * 4 + b"junk",
    bytes(30) + b"\x01" * 300,
    b"text " * 300,
]


@pytest.mark.parametrize("gap", GAPS, ids=range(len(GAPS)))
@pytest.mark.parametrize("size", [1, 11, 100, 999, 1 << 20])
def test_hard_faults_and_recovery(gap, size):
    raw = BATCHES[0] + gap + BATCHES[1] + BATCHES[5]
    good = plain([kafka.scan(BATCHES[0] + BATCHES[1] + BATCHES[5])])
    tables, stream = run(pieces(raw, size), "kafka.batches", errors="skip")
    assert plain(tables) == good
    tables, stream = run(pieces(raw, size), "kafka.batches", errors="mark")
    spans = spans_of(tables)
    assert [(at, length) for at, length, fault in spans if not fault] == [
        (0, len(BATCHES[0])),
        (len(BATCHES[0] + gap), len(BATCHES[1])),
        (len(BATCHES[0] + gap + BATCHES[1]), len(BATCHES[5])),
    ]
    ends = [at + length for at, length, _ in spans]
    assert [at for at, _, _ in spans] == [0, *ends[:-1]] and ends[-1] == len(raw)  # nothing is lost
    with pytest.raises(FrameError) as caught:
        run(pieces(raw, size), "kafka.batches")
    # A length that is too large may be that of a cut frame, if no intact frames follow.
    assert caught.value.fault in (
        Fault.BAD_LENGTH,
        Fault.NOT_A_FRAME,
    ) and caught.value.offset == len(BATCHES[0])


@pytest.mark.parametrize("size", [1, 50, 1 << 20])
def test_damage_to_the_end_of_the_stream(size):
    raw = BATCHES[0] + b"\xfe" * 500
    tables, stream = run(pieces(raw, size), "kafka.batches", errors="mark")
    spans = spans_of(tables)
    assert spans[0][:2] == (0, len(BATCHES[0]))
    assert sum(length for _, length, _ in spans) + len(tables[-1].tail) == len(raw)
    assert all(fault for _, _, fault in spans[1:])
    assert stream.held == 0
    tables, _ = run(pieces(raw, size), "kafka.batches", errors="skip")
    assert [span[2] for span in spans_of(tables)] == [0]


@pytest.mark.parametrize("errors", ["mark", "skip"])
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_length_that_swallows_the_next_frame(size, errors):
    """The damaged frame ends inside a later one: the frame between them is returned."""
    batch = encode_batch([bytes(200)])
    wrong = batch[:8] + (len(batch) * 3 // 2).to_bytes(4, "big") + batch[12:]
    raw = BATCHES[0] + wrong + batch + batch + BATCHES[5]
    whole = [
        (at, length)
        for at, length, fault in spans_of([kafka.scan(raw, errors="mark")])
        if not fault
    ]
    assert len(whole) == 4
    tables, _ = run(pieces(raw, size), "kafka.batches", errors=errors)
    assert [(at, length) for at, length, fault in spans_of(tables) if not fault] == whole


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_length_that_reaches_beyond_the_end(size):
    """The stream waits for such a frame until it is closed. Then it searches what it holds."""
    wrong = BATCHES[0][:8] + (1 << 20).to_bytes(4, "big") + BATCHES[0][12:]
    raw = BATCHES[5] + wrong + BATCHES[1]
    for errors in ("mark", "skip"):
        tables, _ = run(pieces(raw, size), "kafka.batches", errors=errors)
        whole = kafka.scan(raw, errors=errors)
        assert spans_of(tables) == spans_of([whole])
        assert len(whole) == (3 if errors == "mark" else 2)
        assert tables[-1].stop.fault == whole.stop.fault
    with pytest.raises(FrameError) as caught:
        run(pieces(raw, size), "kafka.batches")
    assert (caught.value.fault, caught.value.offset) == (Fault.BAD_LENGTH, len(BATCHES[5]))


@settings(max_examples=read_example_count(30), deadline=None)
@given(st.integers(0, len(RAW) - 1), st.integers(1, 255), st.integers(1, 400))
def test_a_flipped_byte_never_loses_or_invents_one(at, mask, size):
    raw = bytearray(RAW)
    raw[at] ^= mask
    raw = bytes(raw)
    tables, stream = run(pieces(raw, size), "kafka.batches", errors="mark")
    found = spans_of(tables)
    covered = sum(length for _, length, _ in found)
    assert covered + len(tables[-1].tail) == len(raw)
    whole = kafka.scan(raw, errors="mark")
    good = {(start, length) for start, length, fault in spans_of([whole]) if not fault}
    assert good <= {(start, length) for start, length, fault in found if not fault}


# ---- limits, memory, time


def test_a_frame_above_the_limit():
    big = encode_batch([bytes(5000)])
    limits = Limits(frame=4000)
    with pytest.raises(FrameError) as caught:
        run(pieces(BATCHES[0] + big, 700), "kafka.batches", limits=limits)
    assert (caught.value.fault, caught.value.offset) == (Fault.BAD_LENGTH, len(BATCHES[0]))
    for errors in ("mark", "skip"):
        tables, _ = run(
            pieces(BATCHES[0] + big + BATCHES[1], 700),
            "kafka.batches",
            limits=limits,
            errors=errors,
        )
        good = [table["size"][i] for table in tables for i in range(len(table)) if not table.bad[i]]
        assert good[0] == len(BATCHES[0]) and good[-1] == len(BATCHES[1])
        whole = wirescan.scan(
            BATCHES[0] + big + BATCHES[1], "kafka.batches", limits=limits, errors=errors
        )
        assert whole["size"][~whole.bad].tolist() == good
    with pytest.raises(FrameError) as of_whole:
        wirescan.scan(BATCHES[0] + big, "kafka.batches", limits=limits)
    assert (of_whole.value.fault, of_whole.value.offset) == (Fault.BAD_LENGTH, len(BATCHES[0]))
    tables, _ = run(pieces(big, 700), "kafka.batches", limits=Limits(frame=len(big)))
    assert [len(table) for table in tables if len(table)] == [1]


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_memory_held_is_bounded(errors):
    """Endless garbage, or the start of a huge frame: about limits.frame bytes are held."""
    limits = Limits(frame=64 << 10)
    promise = bytes(8) + (1 << 30).to_bytes(4, "big")
    for rubbish in (b"\xfe" * 4096, promise + b"\x11" * 4084):
        stream = wirescan.stream("kafka.batches", errors=errors, limits=limits)
        covered = 0
        for _ in range(200):
            table = stream.feed(rubbish)
            covered += sum(view.nbytes > 1 << 20 for view in table.buffers)
            assert stream.held <= 9 * limits.frame // 8 + 2 * len(rubbish)
        assert covered == 0
        stream.close()


def test_a_long_stream_takes_no_more_memory_than_a_short_one():
    chunk = BATCHES[0] * 50
    stream = wirescan.stream("kafka.batches")
    half = len(BATCHES[0]) // 2
    stream.feed(BATCHES[0][:half])
    shifted = chunk[half:] + chunk[:half]
    tracemalloc.start()
    for _ in range(20):
        stream.feed(shifted)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        assert len(stream.feed(shifted)) == 50
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stream.held == half and peak - before < 10 * len(chunk)


def test_bytes_fed_one_by_one_cost_the_same_however_many_are_held():
    def seconds(size):
        raw = encode_batch([bytes(size + 5000)])
        stream = wirescan.stream("kafka.batches")
        stream.feed(raw[:size])
        begun = time.perf_counter()
        for i in range(size, size + 4000):
            stream.feed(raw[i : i + 1])
        taken = time.perf_counter() - begun
        assert len(stream.feed(raw[size + 4000 :])) == 1
        return taken

    few, many = min(seconds(1000) for _ in range(3)), seconds(16 << 20)
    assert many < 20 * few + 1, (few, many)  # 64 GB would be copied, were each turn a copy


@pytest.mark.parametrize("errors", ["mark", "skip"])
def test_long_damage_in_small_chunks_is_not_quadratic(errors):
    raw = b"\xfe" * 400_000 + BATCHES[0]
    begun = time.process_time()
    tables, _ = run(pieces(raw, 64), "kafka.batches", errors=errors)
    assert time.process_time() - begun < 30 * SLOWNESS
    assert sum(int((~table.bad).sum()) for table in tables) == 1


def test_a_large_frame_is_joined_once():
    raw = encode_batch([bytes(4 << 20)]) + BATCHES[0]
    tables, _ = run(pieces(raw, 64 << 10), "kafka.records")
    assert [len(table) for table in tables if len(table)] == [41]
    assert bytes(next(table for table in tables if len(table))[0].value) == bytes(4 << 20)


def test_a_cut_frame_is_scanned_again_only_when_it_is_whole():
    """Its header says how many bytes to wait for, so the number of scans does not depend on it."""
    parser = format_of("kafka.batches").parser
    scans = []

    def scan(data, **options):
        scans.append(len(data))
        return parser.scan(data, **options)

    raw = memoryview(encode_batch([bytes(4 << 20)]) + BATCHES[0])
    scanner = FrameScanner(scan, check=True, resync=False, limits=Limits())
    found = [scanned for piece in (raw[:100], raw[100:]) for scanned in scanner.feed(piece)]
    assert [len(scanned.rows) for scanned in found] == [0, 1, 1]
    assert len(scans) <= 5


def test_inflated_limits_hold_for_each_chunk():
    raw = encode_batch([b"z" * 5000], codec="gzip")
    limits = Limits(inflated=4000)
    with pytest.raises(FrameError) as caught:
        run([raw], limits=limits)
    assert caught.value.fault == Fault.TOO_LARGE
    tables, _ = run([raw, BATCHES[0]], limits=limits, errors="mark")
    assert [table["fault"].tolist() for table in tables[:2]] == [[Fault.TOO_LARGE], [0] * 40]


def test_a_stream_ends_where_it_raised():
    bad = BATCHES[0][:-1] + bytes([BATCHES[0][-1] ^ 1])
    stream = Stream(format_of("kafka.records"), source="a capture")
    seen = []
    for turn in (
        lambda: stream.feed(BATCHES[1] + bad + BATCHES[2]),
        lambda: stream.feed(BATCHES[3]),
        stream.close,
    ):
        with pytest.raises(FrameError) as caught:
            turn()
        seen.append(str(caught.value))
    assert (
        len(set(seen)) == 1
        and caught.value.offset == len(BATCHES[1])
        and caught.value.source == "a capture"
    )


def test_frames_before_a_fault_at_the_end_are_intact():
    cut = BATCHES[1][:-1]
    stream = wirescan.stream("kafka.batches")
    assert len(stream.feed(BATCHES[0])) == 1
    assert len(stream.feed(cut)) == 0
    with pytest.raises(FrameError) as caught:
        stream.close(tail=False)
    assert caught.value.offset == len(BATCHES[0])
    assert len(stream.intact) == 0  # the first batch was returned before
    damaged = bytes(BATCHES[1][:-1]) + bytes([BATCHES[1][-1] ^ 1])
    stream = wirescan.stream("kafka.batches")
    with pytest.raises(FrameError):
        stream.feed(BATCHES[0] + damaged)
    assert stream.intact["size"].tolist() == [len(BATCHES[0])]


@pytest.mark.parametrize("errors", MODES)
def test_more_rows_than_allowed_end_it_in_every_mode(errors):
    batch = encode_batch([b"x"])
    stream = wirescan.stream("kafka.batches", errors=errors, limits=Limits(rows=10))
    assert len(stream.feed(batch * 10)) == 10
    with pytest.raises(FrameError) as caught:
        stream.feed(batch * 11)
    assert (caught.value.fault, caught.value.offset, caught.value.row) == (
        Fault.LIMIT,
        20 * len(batch),
        10,
    )


def test_strict_meets_a_bad_frame_before_the_limit_behind_it():
    batch = encode_batch([b"x"])
    bad = batch[:-1] + bytes([batch[-1] ^ 1])
    with pytest.raises(FrameError) as caught:
        wirescan.stream("kafka.batches", limits=Limits(rows=10)).feed(batch + bad + batch * 20)
    assert (caught.value.fault, caught.value.offset, caught.value.row) == (
        Fault.BAD_CHECKSUM,
        len(batch),
        1,
    )
