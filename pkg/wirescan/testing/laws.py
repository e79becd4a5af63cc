"""Laws that hold for every format and for any bytes.

A law is a function of a `ProtocolPackage` and some bytes. It raises AssertionError if the law does
not hold. `wirescan.testing.check_format` applies all laws to examples and their mutations. A test
may also apply single laws to bytes of its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import HEAD
from wirescan.frames.columns import RESERVED, list_columns, list_places
from wirescan.frames.errors import HARD, MODES, FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable, join
from wirescan.reading.by_name import scan, stream

# The rows that a reference decoder expects in each format, each with the bytes that it points
# into, and the fault and the position where the scan stops.
Expected = tuple[Mapping[str, list[tuple[dict[str, Any], bytes]]], int, int]
# Where the frames inside a row are: start and stop in the row, and the fault of the one row that
# covers frames that cannot be read.
Location = tuple[int | None, int | None, int]


@dataclass(frozen=True, repr=False, eq=False)  # hashed by identity
class ProtocolPackage:
    """The formats, byte generators and reference decoder of a protocol package.

    Attributes:
        formats: the names of the formats, from the outermost to the innermost.
        good: a hypothesis strategy of whole frames, as bytes. The laws do not use the strategies.
        tails: a strategy of bytes that may follow whole frames.
        damaged: a strategy of damaged frames, as bytes.
        written: a strategy of (encoded bytes, result of `values` for their innermost table).
        values: a function of a table of the innermost format. It returns what was encoded.
        expected: the reference decoder: (bytes, check, resync) -> ({format: [(row, bytes that it
            points into)]}, stop fault, stop position). A row is a dict of every column but
            `reserved`. `buffer` is 1 in rows of decompressed bytes.
        children: {format: function of an enclosing row}. The function returns (start, stop, fault)
            of the frames inside the row, or None if there are none. `start` and `stop` are None if
            the row does not contain them. `fault` is 0, or the fault of the one row that covers
            frames that cannot be read. Without a function, the frames may be anywhere in the row.
        sparse: formats whose frames do not fill the enclosing frames.
        check_table: a function of a table. It raises AssertionError if the table breaks a rule that
            only these formats have. Optional.
    """

    formats: tuple[str, ...]
    good: Any = None
    tails: Any = None
    damaged: Any = None
    written: Any = None
    values: Callable[[FrameTable], list] | None = None
    expected: Callable[..., Expected] | None = None
    children: Mapping[str, Callable[[Any], Location | None]] = field(default_factory=dict)
    sparse: tuple[str, ...] = ()
    check_table: Callable[[FrameTable], None] | None = None


def list_rows(table: FrameTable) -> list[dict[str, Any]]:
    """Return the columns of each row of a table by name."""
    return convert_rows(table.rows)


def convert_rows(rows: np.ndarray) -> list[dict[str, Any]]:
    """Return the columns of each row by name, without the column of unused bytes."""
    names = [name for name in list_columns(rows.dtype) if name != RESERVED]
    return [dict(zip(names, row)) for row in list_values(rows, names)]


def list_values(rows: np.ndarray, names: list[str]) -> list[tuple]:
    """Return the columns of each row. NaN becomes None, because NaN does not equal itself."""
    values = rows[names].tolist()
    if any(rows.dtype[name].kind == "f" for name in names):
        values = [tuple(map(_replace_nan, row)) for row in values]
    return values


def list_levels(table: FrameTable) -> list[list[dict]]:
    """Return the rows of the outermost table, and so on to the rows of `table` itself."""
    return [list_rows(level) for level in list_tables(table)]


def normalize_level(levels: list[list[dict]], buffers: int = 1) -> list[dict]:
    """Return the last of `levels` in a form that does not depend on the decompressed buffers.

    Rows in a decompressed buffer get buffer 1. Their `start` counts from the first row of the same
    outermost frame. buffers: the number of buffers that were scanned.
    """
    first_starts: dict[int, int] = {}
    normalized = []
    for row in levels[-1]:
        outermost = row["parent"]
        for level in reversed(levels[1:-1]):
            outermost = level[outermost]["parent"]
        if row["buffer"] >= buffers:
            start = row["start"] - first_starts.setdefault(outermost, row["start"])
            row = row | dict(start=start, buffer=1)
        normalized.append({name: _replace_nan(value) for name, value in row.items()})
    return normalized


def _replace_nan(value: Any) -> Any:
    """Return None for NaN, which does not equal itself, and any other value unchanged."""
    return value if value == value else None


def list_frames(table: FrameTable) -> list[bytes]:
    """Return the bytes of each row's frame."""
    return [bytes(table.frame(i)) for i in range(len(table))]


def describe_rows(table: FrameTable, *, parents: bool = True) -> list[tuple]:
    """Return every row as (position in its file, columns, bytes).

    Columns that depend on the buffer are excluded. parents: whether to include columns that have a
    meaning only within a table.
    """
    hidden = {"start", "buffer"}
    if not parents:
        columns = table.format.columns
        hidden |= {"parent", *(name for name in columns if columns[name].local)}
    names = [name for name in list_columns(table.dtype) if name not in hidden]
    return list(zip(table.positions.tolist(), list_values(table.rows, names), list_frames(table)))


# ---- the laws


def agrees_with_the_reference(package: ProtocolPackage, raw: bytes, *, check: bool = True) -> None:
    """Rows, faults, stops and bytes equal those of the reference.

    They are compared with and without a search for intact frames after damage.
    """
    assert package.expected is not None, "the package has no reference decoder"
    resync = True
    truth, fault, position = package.expected(raw, check, resync)
    levels = []
    for name in package.formats:
        table = _mark(raw, name, check=check)
        levels.append([row for row, _ in truth[name]])
        _assert_equal(normalize_level(list_levels(table)), normalize_level(levels), name)
        want = [bytes(data[row["start"] : row["start"] + row["size"]]) for row, data in truth[name]]
        _assert_equal(list_frames(table), want, f"{name}, bytes")
    outermost = format_of(package.formats[0])
    stop = _mark(raw, outermost.name, check=check).stop[:2]
    _assert_equal(stop, (fault, position), "stop")
    resync = False
    truth, fault, position = package.expected(raw, check, resync)
    assert outermost.parser.scan is not None
    rows, bad, *ended = outermost.parser.scan(raw, check=check, resync=resync, limits=Limits())
    expected_rows = [row for row, _ in truth[outermost.name]]
    _assert_equal(convert_rows(rows), expected_rows, f"{outermost.name} without a search")
    faults = sum(row["fault"] != 0 for row in expected_rows)
    _assert_equal((bad, *ended), (faults, fault, position), "stop without a search")


def _mark(raw: bytes, name: str, *, check: bool = True, limits: Limits = Limits()) -> FrameTable:
    """Return the table of some bytes in mode "mark"."""
    return scan(raw, name, errors="mark", check=check, limits=limits)


def _assert_equal(found: Any, expected: Any, what: str) -> None:
    """Assert that values are equal. The message shows the first items that differ."""
    if found == expected:
        return
    if isinstance(found, list) and isinstance(expected, list):
        for number, (item, wanted) in enumerate(zip(found, expected)):
            assert item == wanted, f"{what}, row {number}: {item} was read, {wanted} is expected"
        raise AssertionError(f"{what}: {len(found)} rows were read, {len(expected)} are expected")
    raise AssertionError(f"{what}: {found} was read, {expected} is expected")


def covers_every_byte(package: ProtocolPackage, raw: bytes, *, check: bool = True) -> None:
    """Rows and tail cover each byte of the input once. Nested frames fill their parents."""
    for name in package.formats:
        table = _mark(raw, name, check=check)
        if table.outer is None:
            bounds = np.concatenate([[0], table["start"] + table["size"]])
            assert (table["start"] == bounds[:-1]).all(), "a row does not begin where one ended"
            assert bounds[-1] == table.stop.offset, "the scan did not stop after its last row"
            assert table.stop.offset == len(raw) - len(table.tail)
            assert b"".join(list_frames(table)) + bytes(table.tail) == raw, "bytes are lost"
        else:
            children_fill_their_parents(package, name, table)
        if package.check_table is not None:
            package.check_table(table)
        places_are_in_their_frames(table)


def children_fill_their_parents(package: ProtocolPackage, name: str, table: FrameTable) -> None:
    """Children follow one another from the start to the stop that their parent declares."""
    groups: dict[int, list[int]] = {}
    for i, parent in enumerate(table["parent"].tolist()):
        groups.setdefault(parent, []).append(i)
    assert list(groups) == sorted(groups), "children are not in the order of their parents"
    assert all(group == list(range(group[0], group[-1] + 1)) for group in groups.values())
    sparse = name in package.sparse
    locate = package.children.get(name)
    assert table.outer is not None
    for parent, row in enumerate(table.outer.rows):
        group = groups.get(parent, [])
        location = (None, None, 0) if locate is None else locate(row)
        if locate is not None:
            has_children = location is not None
            assert bool(group) == has_children or sparse and not group, (
                f"row {parent} has {len(group)} children in the table, and its location of "
                f"children is {location}; None means that there are none"
            )
        if group and location is not None:
            _check_children(table, row, group, location, sparse=sparse or locate is None)


def _check_children(
    table: FrameTable, parent: Any, group: list[int], location: Location, *, sparse: bool
) -> None:
    """Check the rows `group` of a table, which are the children of the row `parent`."""
    start, stop, fault = location
    enclosing = table.format.enclosing
    if enclosing is not None:
        group = [i for i in group if table[enclosing][i] < 0]
    starts = table["start"][group]
    stops = starts + table["size"][group]
    if sparse:
        assert (starts[1:] >= stops[:-1]).all(), "children overlap"
    else:
        assert (starts[1:] == stops[:-1]).all(), "children do not follow one another"
    assert len(set(table["buffer"][group].tolist())) == 1
    if table["buffer"][group[0]] == parent["buffer"]:
        first_start = starts[0] - parent["start"]
        last_stop = stops[-1] - parent["start"]
        assert first_start >= 0, "a child begins before its parent"
        assert last_stop <= parent["size"], "a child ends after its parent"
        assert start in (None, first_start)
        assert stop in (None, last_stop)
    if fault:
        assert table["fault"][group].tolist() == [fault]


def places_are_in_their_frames(table: FrameTable) -> None:
    """Places are inside their frames, and frames inside their buffers."""
    if not len(table):
        return
    for name in table.places:
        at = table[name + "_at"].astype(np.int64)
        size = table[name + "_size"].astype(np.int64)
        assert (at + np.maximum(size, 0) <= table["size"]).all(), f"{name} ends after its frame"
    assert (table["body"] <= table["size"]).all(), "a body begins after its frame"
    lengths = np.array([len(buffer) for buffer in table.buffers] or [0], np.int64)
    assert (table["start"] >= 0).all()
    assert (table["start"] + table["size"] <= lengths[table["buffer"]]).all()


def modes_agree(package: ProtocolPackage, raw: bytes, *, check: bool = True) -> None:
    """Mode strict raises at the first bad row of mark. Mode skip has the good rows of mark."""
    for name in package.formats:
        marked = _mark(raw, name, check=check)
        good = np.ones(len(marked), bool)
        rows = np.arange(len(marked))
        for table in reversed(list_tables(marked)):
            good &= ~table.bad[rows]
            rows = table["parent"][rows]
        skipped = scan(raw, name, errors="skip", check=check)
        expected = describe_rows(marked, parents=False)
        expected = [row for row, is_good in zip(expected, good.tolist()) if is_good]
        _assert_equal(describe_rows(skipped, parents=False), expected, f"{name}, skip")
        strict_raises_at_the_first(raw, name, marked, check=check)


def strict_raises_at_the_first(raw: bytes, name: str, marked: FrameTable, *, check: bool) -> None:
    """Mode strict raises FrameError for the first bad row of `marked`, in wire order."""
    table, row = find_first_bad(marked)
    try:
        strict = scan(raw, name, errors="strict", check=check)
    except FrameError as error:
        assert table is not None, f"mode strict raises, but no row of mode mark is bad: {error}"
        inflated = table.outer is not None and int(table["buffer"][row]) > 0
        offset = int(table.positions[row] if inflated else find_reported_start(table, row))
        found = (error.fault, error.offset, error.row, error.inflated)
        _assert_equal(found, (table["fault"][row], offset, row, inflated), "FrameError")
        first = bytes(table.frame(row)[:16])
        common = min(len(error.near), len(first))
        assert error.near[:common] == first[:common]
        return
    assert table is None, f"row {row} of mode mark is bad, but mode strict raises no FrameError"
    _assert_equal(describe_rows(strict), describe_rows(marked), f"{name}, strict")


def find_reported_start(table: FrameTable, row: int) -> int:
    """Return the position that an error reports for a bad frame.

    A bad frame without bytes stands for missing bytes. Its position is that of its parent.
    """
    if table["size"][row] == 0 and table.outer is not None:
        return int(table.outer["start"][table["parent"][row]])
    return int(table["start"][row])


def find_first_bad(marked: FrameTable) -> tuple[FrameTable | None, int]:
    """Return (table, row) of the first bad row in wire order, or (None, 0).

    A bad frame precedes the row inside it, which repeats its fault.
    """
    candidates = [
        (find_path(table, int(table.bad.argmax())), table)
        for table in list_tables(marked)
        if table.bad.any()
    ]
    if not candidates:
        return None, 0
    path, table = min(candidates, key=lambda candidate: candidate[0])
    return table, path[-1]


def find_path(table: FrameTable, row: int) -> tuple[int, ...]:
    """Return the row numbers of the enclosing frames, the outermost first, and of the row."""
    if table.outer is None:
        return (row,)
    return (*find_path(table.outer, int(table["parent"][row])), row)


def list_tables(table: FrameTable) -> list[FrameTable]:
    """Return the tables that enclose a table, the outermost first, and the table."""
    if table.outer is None:
        return [table]
    return [*list_tables(table.outer), table]


def streams_agree(
    package: ProtocolPackage,
    raw: bytes,
    cuts: list[int],
    errors: str = "mark",
    *,
    check: bool = True,
) -> None:
    """Good bytes in chunks have the same rows and the same tail as in one scan."""
    for name in package.formats:
        whole = scan(raw, name, errors=errors, check=check)
        tables, tail = feed_chunks(raw, name, cuts, errors, check=check)
        rows = [row for table in tables for row in describe_rows(table, parents=False)]
        _assert_equal(rows, describe_rows(whole, parents=False), f"{name} in chunks, {errors}")
        assert tail == bytes(whole.tail), f"the tail of the stream is {tail!r}"


def spans_agree(package: ProtocolPackage, raws: list[bytes], *, check: bool = True) -> None:
    """Streams that are scanned together in one buffer have the same rows as each stream alone."""
    outermost = format_of(package.formats[0])
    if outermost.parser.spans is None or outermost.parser.scan is None:
        return  # a format without `spans` scans each stream alone
    data = memoryview(b"".join(raws))
    spans = np.zeros(len(raws), HEAD)
    spans["size"] = [len(raw) for raw in raws]
    spans["start"] = np.cumsum(spans["size"]) - spans["size"]
    spans["parent"] = np.arange(len(raws))
    options: dict[str, Any] = dict(check=check, resync=True, limits=Limits())
    rows, bad, faults, stops = outermost.parser.spans((data,), spans, **options)
    assert bad == np.count_nonzero(rows["fault"])
    for i, raw in enumerate(raws):
        alone, _, fault, stop = outermost.parser.scan(memoryview(raw), **options)
        alone = alone.copy()
        alone["parent"] = 0
        together = rows[rows["parent"] == i].copy()
        together["parent"] = 0
        together["start"] -= spans["start"][i]
        _assert_equal(convert_rows(together), convert_rows(alone), f"span {i}")
        _assert_equal((faults[i], stops[i] - spans["start"][i]), (fault, stop), f"span {i}")


def streams_lose_nothing(
    package: ProtocolPackage, raw: bytes, cuts: list[int], *, check: bool = True
) -> None:
    """In damaged bytes in chunks, rows and tail cover the input, and no good frame is lost."""
    tables, tail = feed_chunks(raw, package.formats[0], cuts, "mark", check=check)
    good = [row for table in tables for row in describe_rows(table[~table.bad], parents=False)]
    whole = scan(raw, package.formats[0], errors="skip", check=check)
    _assert_equal(good, describe_rows(whole, parents=False), "good frames of a damaged stream")
    joined = b"".join(frame for table in tables for frame in list_frames(table)) + tail
    assert joined == raw, "a stream lost bytes"
    stop = 0
    for table in tables:
        for position, size in zip(table.positions.tolist(), table["size"].tolist()):
            assert position == stop
            stop += size
    for name in package.formats[1:]:
        for table in feed_chunks(raw, name, cuts, "skip", check=check)[0]:
            places_are_in_their_frames(table)
    try:
        feed_chunks(raw, package.formats[-1], cuts, "strict", check=check)
    except FrameError as error:
        assert 0 <= error.offset <= len(raw)


def chunks_change_nothing(
    package: ProtocolPackage,
    raw: bytes,
    *many_cuts: list[int],
    check: bool = True,
    limits: Limits = Limits(),
) -> None:
    """Bytes in chunks, damaged or not, have the same rows, faults and tail as in one scan.

    Adjacent rows of a gap count as one row. A stream divides a gap that is too large to hold.

    Args:
        package: the formats.
        raw: the bytes.
        many_cuts: one list of positions for each stream. The stream is cut there.
        check: verify checksums.
        limits: a gap may be longer than `limits.frame`.
    """
    options: dict[str, Any] = dict(check=check, limits=limits)
    for name in package.formats:
        whole = _mark(raw, name, **options)
        expected = merge_gaps([whole], describe_rows(whole, parents=False))
        skipped = scan(raw, name, errors="skip", **options)
        expected_of_skip = describe_rows(skipped, parents=False)
        error = _catch_strict_error(scan, raw, name, errors="strict", **options)
        for cuts in many_cuts:
            what = f"{name} in chunks cut at {cuts}"
            tables, tail = feed_chunks(raw, name, cuts, "mark", **options)
            rows = [row for table in tables for row in describe_rows(table, parents=False)]
            _assert_equal(merge_gaps(tables, rows), expected, what)
            assert tail == bytes(whole.tail), f"{what}: the tail is {tail!r}"
            tables, tail = feed_chunks(raw, name, cuts, "skip", **options)
            rows = [row for table in tables for row in describe_rows(table, parents=False)]
            _assert_equal(rows, expected_of_skip, f"{what}, skip")
            assert tail == bytes(skipped.tail), f"{what}, skip: the tail is {tail!r}"
            of_chunks = _catch_strict_error(feed_chunks, raw, name, cuts, "strict", **options)
            _assert_equal(of_chunks, error, f"{what}, strict")


def threads_change_nothing(
    package: ProtocolPackage,
    raw: bytes,
    numbers: Sequence[int] = (2, 5),
    *,
    check: bool = True,
    limits: Limits = Limits(),
) -> None:
    """Every number of threads finds the same rows and stops, and raises the same error.

    numbers: the numbers of threads that are compared with one thread.
    """
    for name in package.formats:
        for errors in MODES:
            options = {"errors": errors, "check": check, "limits": limits}
            expected = _describe_scan(raw, name, workers=1, **options)
            for workers in numbers:
                found = _describe_scan(raw, name, workers=workers, **options)
                _assert_equal(found, expected, f"{name} on {workers} threads, {errors}")


def _describe_scan(raw: bytes, name: str, **options: Any) -> list[Any]:
    """Return what a scan finds, or the error that it raises.

    The distribution of decompressed bytes over the buffers may depend on the number of threads. So
    the bytes after the last row may too, which the message of an error ends with.
    """
    try:
        table = scan(raw, name, **options)
    except FrameError as error:
        partial = None if error.partial is None else describe_rows(error.partial)
        text = str(error).rpartition(": ")[0]
        return [text, error.fault, error.offset, error.row, partial]
    described: list[Any] = []
    for level in list_tables(table):
        described += [level.stops, level.checked, describe_rows(level)]
        if len(level.buffers) == 1:
            described.append(list_rows(level))
    return described


def merge_gaps(tables: list[FrameTable], rows: list[tuple]) -> list[tuple]:
    """Return `rows` with one ("gap", position, fault, bytes) for the adjacent rows of a gap.

    A table of nested frames has one row for each row of a gap.
    """
    merged: list[tuple] = []
    faults = [fault for table in tables for fault in table["fault"].tolist()]
    for row, fault in zip(rows, faults, strict=True):
        if fault < HARD:
            merged.append(row)
        elif merged and merged[-1][0] == "gap" and merged[-1][1] + len(merged[-1][3]) == row[0]:
            merged[-1] = (*merged[-1][:3], merged[-1][3] + row[-1])
        else:
            merged.append(("gap", row[0], fault, row[-1]))
    return merged


def _catch_strict_error(
    call: Callable[..., Any], *arguments: Any, **options: Any
) -> tuple[int, int] | None:
    """Return (fault, position) of the FrameError that a call raises, or None."""
    try:
        call(*arguments, **options)
    except FrameError as error:
        return error.fault, error.offset
    return None


def feed_chunks(
    raw: bytes,
    name: str,
    cuts: list[int],
    errors: str,
    *,
    check: bool = True,
    limits: Limits = Limits(),
) -> tuple[list[FrameTable], bytes]:
    """Feed a stream in chunks. Return its tables, and the tail at its end."""
    chunks = stream(name, errors=errors, check=check, limits=limits)
    bounds = [0, *sorted(cuts), len(raw)]
    tables = [chunks.feed(raw[start:stop]) for start, stop in zip(bounds, bounds[1:])]
    offset = chunks.offset
    assert chunks.held in (0, len(raw) - offset)  # a tail of zeros is not held
    tables.append(chunks.close())
    return tables, bytes(list_tables(tables[-1])[0].tail)


def parts_keep_their_meaning(
    package: ProtocolPackage, raw: bytes, mask: list[bool], cut: int
) -> None:
    """Parts of a table, their join, and a pickled table have the same rows, and open the same."""
    for name in package.formats:
        table = _mark(raw, name)
        keep = np.resize(np.array(mask, bool), len(table))
        cut %= len(table) + 1
        rows = describe_rows(table)
        kept_rows = [row for row, is_kept in zip(rows, keep.tolist()) if is_kept]
        assert describe_rows(table.where(keep)) == kept_rows
        assert describe_rows(table[:cut]) == rows[:cut]
        assert describe_rows(table[cut:]) == rows[cut:]
        joined = join([table[:cut], table[cut:]])
        assert describe_rows(joined, parents=False) == describe_rows(table, parents=False)
        copy = pickle.loads(pickle.dumps(table))
        assert describe_rows(copy) == rows
        assert copy.stops == table.stops
        assert copy.format is table.format
        # Frames that need those of the other direction cannot be opened without them.
        readers = () if table.format.requests else table.format.children.values()
        for open_children in readers:
            children = open_children(table, errors="mark")
            of_copy = open_children(copy, errors="mark")
            assert describe_rows(of_copy) == describe_rows(children)
            of_joined = open_children(joined, errors="mark")
            assert describe_rows(of_joined, parents=False) == describe_rows(children, parents=False)
            selected = children.where(keep[children["parent"]])
            of_kept = open_children(table.where(keep), errors="mark")
            assert describe_rows(of_kept, parents=False) == describe_rows(selected, parents=False)


def columns_are_those_of_rows(package: ProtocolPackage, raw: bytes, *, check: bool = True) -> None:
    """Columns that a scan writes equal those of its rows. The writer fails if a row is bad."""
    for name in package.formats:
        format = format_of(name)
        if format.parser.scan is not None and format.parser.writes_columns:
            _check_outermost_columns(format, memoryview(raw), check=check)
        if format.write is not None and format.within is not None:
            _check_nested_columns(format, raw, check=check)


def _check_outermost_columns(format: Format, view: memoryview, *, check: bool) -> None:
    assert format.parser.scan is not None
    for more in (True, False):
        options: dict[str, Any] = dict(check=check, resync=True, more=more, limits=Limits())
        writer = make_writer(format)
        rows, bad, *ended = format.parser.scan(view, **options)
        _, _, *written = format.parser.scan(view, into=writer, **options)
        if not bad and not writer.failed:
            _assert_equal(written, ended, f"the end of a scan of {format.name} into columns")
        _compare_columns(writer, FrameTable((view,), rows, (), format))


def _check_nested_columns(format: Format, raw: bytes, *, check: bool) -> None:
    assert format.write is not None and format.within is not None
    options: dict[str, Any] = dict(check=check, limits=Limits())
    writer = make_writer(format)
    outer = _mark(raw, format.within, **options)
    format.write(outer, writer, **options)
    _compare_columns(writer, format.inside(outer, errors="mark", **options))


def make_writer(format: Format) -> ColumnWriter:
    """Return a writer of all columns of the rows of a format, with gathered places."""
    writer = ColumnWriter(format.dtype)
    for name in list_columns(format.dtype):
        writer.add_numbers(name)
    for name in list_places(format.dtype):
        writer.add_gathered(name, large=True)
    return writer


def _compare_columns(writer: ColumnWriter, table: FrameTable) -> None:
    """Compare what a writer of `make_writer` has with a table. It has no bad rows."""
    bad = int(table.bad.sum())
    assert writer.failed == bool(bad), (
        f"{bad} rows of {table.name} are bad, and the writer has failed: {writer.failed}"
    )
    if bad:
        return
    assert len(writer) == len(table), f"{len(writer)} of {len(table)} rows of {table.name}"
    for name in list_columns(table.dtype):
        _assert_equal(
            writer.take_numbers(name).tolist(), table.rows[name].tolist(), f"column {name}"
        )
    for name in list_places(table.dtype):
        _, validity, offsets, data = writer.take_place(name)
        assert data is not None  # the bytes were gathered
        ends = np.frombuffer(memoryview(offsets), np.int64).tolist()
        is_valid = np.ones(len(table), bool)
        if validity is not None:
            bits = np.frombuffer(memoryview(validity), np.uint8)
            is_valid = np.unpackbits(bits, bitorder="little").astype(bool)
        found = [
            bytes(memoryview(data)[start:stop]) if valid else None
            for start, stop, valid in zip(ends, ends[1:], is_valid)
        ]
        places = [table.bytes(i, name) for i in range(len(table))]
        expected = [None if place is None else bytes(place) for place in places]
        _assert_equal(found, expected, f"place {name}")


def writes_read_back(package: ProtocolPackage, raw: bytes, values: list) -> None:
    """Values that were encoded are read back in every mode."""
    assert package.values is not None, "the package does not decode values"
    for errors in MODES:
        table = scan(raw, package.formats[-1], errors=errors)
        _assert_equal(package.values(table), values, f"values, {errors}")


def ends_well(package: ProtocolPackage, raw: bytes, *, check: bool = True) -> None:
    """Any bytes give a table within its bounds, or a FrameError. Nothing else is raised."""
    for errors in MODES:
        try:
            table = scan(raw, package.formats[-1], errors=errors, check=check)
        except FrameError as error:
            assert errors == "strict", f"mode {errors} raises {error}"
            assert 0 <= error.offset <= len(raw)
            assert str(error)
            continue
        for level in list_tables(table):
            places_are_in_their_frames(level)
            most = 2 * sum(map(len, level.buffers)) + 1
            assert len(level) <= most, f"{len(level)} rows of {len(raw)} bytes"


def keeps_every_law(
    package: ProtocolPackage, raw: bytes, cuts: list[int], *, check: bool = True
) -> None:
    """Damaged bytes keep every law that holds for them."""
    if package.expected is not None:
        agrees_with_the_reference(package, raw, check=check)
    covers_every_byte(package, raw, check=check)
    modes_agree(package, raw, check=check)
    threads_change_nothing(package, raw, check=check)
    columns_are_those_of_rows(package, raw, check=check)
    streams_lose_nothing(package, raw, cuts, check=check)
    parts_keep_their_meaning(package, raw, [True, False, False], len(raw))
