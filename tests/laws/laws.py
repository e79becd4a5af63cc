"""Laws that hold for every format and for any bytes.

`tests/laws/packages.py` has a `ProtocolPackage` for each protocol package. A law is a function of a
package and some bytes. It raises AssertionError if the law does not hold. test_laws.py applies the
laws to bytes from hypothesis. The tests of hostile bytes apply them to mutations of small files.
tests/outside applies them to a format of another package.
"""

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import wirescan
from wirescan import FrameError, FrameTable, Limits
from wirescan.core.loop import HEAD
from wirescan.frames.columns import RESERVED
from wirescan.frames.errors import HARD, MODES
from wirescan.frames.table import join


@dataclass(frozen=True, repr=False, eq=False)  # hashed by identity
class ProtocolPackage:
    """The formats, byte generators and reference decoder of a protocol package.

    Attributes:
        formats: the names of the formats, from the outermost to the innermost.
        good: a strategy of whole frames, as bytes.
        tails: a strategy of bytes that may follow whole frames.
        damaged: a strategy of damaged frames, as bytes.
        written: a strategy of (encoded bytes, result of `values` for their innermost table).
        values: a function of a table of the innermost format. It returns what was encoded.
        expected: (bytes, check, resync) -> ({format: [(row, bytes that it points into)]}, stop
            fault, stop position). A row is a dict of every column. `buffer` is 1 in rows of
            decompressed bytes.
        children: {format: function of an enclosing row}. The function returns (start, stop, fault)
            of the frames inside the row, or None if there are none. `start` and `stop` are None if
            the row does not contain them. `fault` is 0, or the fault of the one row that covers
            frames that cannot be read.
        sparse: formats whose frames do not fill the enclosing frames.
    """

    formats: tuple[str, ...]
    good: Any
    tails: Any
    damaged: Any
    written: Any
    values: Callable[[FrameTable], list]
    expected: Callable[..., tuple]
    children: dict[str, Callable[[Any], tuple[int | None, int | None, int] | None]]
    sparse: tuple[str, ...] = ()


def scan(raw, name, errors="mark", check=True, limits=Limits()):
    return wirescan.scan(raw, name, errors=errors, check=check, limits=limits)


def list_rows(table: FrameTable) -> list[dict]:
    return convert_rows(table.rows)


def convert_rows(rows: np.ndarray) -> list[dict]:
    """Return the columns of each row by name, without the column of unused bytes."""
    names = [name for name in rows.dtype.names if name != RESERVED]
    return [dict(zip(names, row)) for row in list_values(rows, names)]


def list_values(rows: np.ndarray, names: list[str]) -> list[tuple]:
    """Return the columns of each row. NaN becomes None, because NaN does not equal itself."""
    values = rows[names].tolist()
    if any(rows.dtype[name].kind == "f" for name in names):
        values = [tuple(None if value != value else value for value in row) for row in values]
    return values


def list_levels(table: FrameTable) -> list[list[dict]]:
    """Return the rows of the outermost table, and so on to the rows of `table` itself."""
    return [list_rows(level) for level in list_tables(table)]


def normalize_level(levels: list[list[dict]], buffers: int = 1) -> list[dict]:
    """Return the last of `levels` in a form that does not depend on the decompressed buffers.

    Rows in a decompressed buffer get buffer 1. Their `start` counts from the first row of the same
    outermost frame. buffers: the number of buffers that were scanned.
    """
    first_starts = {}
    normalized = []
    for row in levels[-1]:
        outermost = row["parent"]
        for level in reversed(levels[1:-1]):
            outermost = level[outermost]["parent"]
        if row["buffer"] >= buffers:
            start = row["start"] - first_starts.setdefault(outermost, row["start"])
            row = row | dict(start=start, buffer=1)
        is_nan = row.get("real") != row.get("real")
        normalized.append(row | dict(real=None) if is_nan else row)
    return normalized


def list_frames(table: FrameTable) -> list[bytes]:
    return [bytes(table.frame(i)) for i in range(len(table))]


def describe_rows(table: FrameTable, parents: bool = True) -> list[tuple]:
    """Return every row as (position in its file, columns, bytes).

    Columns that depend on the buffer are excluded. parents: whether to include columns that have a
    meaning only within a table.
    """
    hidden = {"start", "buffer"}
    if not parents:
        hidden |= {"parent", "window", "enclosing"}
    names = [name for name in table.dtype.names if name not in hidden]
    return list(zip(table.positions.tolist(), list_values(table.rows, names), list_frames(table)))


# ---- the laws


def agrees_with_the_reference(package: ProtocolPackage, raw: bytes, check: bool = True) -> None:
    """Rows, faults, stops and bytes equal those of the reference.

    They are compared with and without a search for intact frames after damage.
    """
    resync = True
    truth, fault, position = package.expected(raw, check, resync)
    levels = []
    for name in package.formats:
        table = scan(raw, name, check=check)
        levels.append([row for row, _ in truth[name]])
        assert normalize_level(list_levels(table)) == normalize_level(levels), name
        want = [bytes(data[row["start"] : row["start"] + row["size"]]) for row, data in truth[name]]
        assert list_frames(table) == want, name
    outermost = wirescan.formats()[package.formats[0]]
    assert scan(raw, outermost.name, check=check).stop[:2] == (fault, position)
    resync = False
    truth, fault, position = package.expected(raw, check, resync)
    rows, bad, *stop = outermost.scan(raw, check=check, resync=resync, limits=wirescan.Limits())
    want = [row for row, _ in truth[outermost.name]]
    assert convert_rows(rows) == want
    assert (bad, *stop) == (sum(row["fault"] != 0 for row in want), fault, position)


def covers_every_byte(package: ProtocolPackage, raw: bytes, check: bool = True) -> None:
    """Rows and tail cover each byte of the input once. Nested frames fill their parents."""
    for name in package.formats:
        table = scan(raw, name, check=check)
        if table.outer is None:
            bounds = np.concatenate([[0], table["start"] + table["size"]])
            assert (table["start"] == bounds[:-1]).all()
            assert bounds[-1] == table.stop.offset == len(raw) - len(table.tail)
            assert b"".join(list_frames(table)) + bytes(table.tail) == raw
        else:
            if "enclosing" in table.dtype.names:
                rows_enclose_one_another(table)
            children_fill_their_parents(package, name, table)
        places_are_in_their_frames(table)


def children_fill_their_parents(package: ProtocolPackage, name: str, table: FrameTable) -> None:
    """Children follow one another from the start to the stop that their parent declares."""
    groups: dict[int, list[int]] = {}
    for i, parent in enumerate(table["parent"].tolist()):
        groups.setdefault(parent, []).append(i)
    assert list(groups) == sorted(groups)
    assert all(group == list(range(group[0], group[-1] + 1)) for group in groups.values())
    sparse = name in package.sparse
    for parent, row in enumerate(table.outer.rows):
        group = groups.get(parent, [])
        span = package.children[name](row)
        assert bool(group) == (span is not None) or sparse and not group
        if not group:
            continue
        start, stop, fault = span
        if "enclosing" in table.dtype.names:
            group = [i for i in group if table["enclosing"][i] < 0]
        starts = table["start"][group]
        stops = starts + table["size"][group]
        if sparse:
            assert (starts[1:] >= stops[:-1]).all()
        else:
            assert (starts[1:] == stops[:-1]).all()
        assert len(set(table["buffer"][group].tolist())) == 1
        if table["buffer"][group[0]] == row["buffer"]:
            first_start = starts[0] - row["start"]
            last_stop = stops[-1] - row["start"]
            assert first_start >= 0
            assert last_stop <= row["size"]
            assert start in (None, first_start)
            assert stop in (None, last_stop)
        if fault:
            assert table["fault"][group].tolist() == [fault]


def rows_enclose_one_another(table: FrameTable) -> None:
    """Rows inside another row follow it in wire order, one level deeper."""
    rows = list_rows(table)
    stops = {}  # {enclosing row: stop of the last row inside it so far}
    for i, row in enumerate(rows):
        enclosing = row["enclosing"]
        assert row["kind"] or row["fault"]
        if enclosing < 0:
            continue
        outer = rows[enclosing]
        assert enclosing < i
        assert outer["parent"] == row["parent"]
        assert outer["buffer"] == row["buffer"]
        assert row["depth"] == outer["depth"] + 1
        assert stops.get(enclosing, outer["start"] + outer["value_at"]) <= row["start"]
        stops[enclosing] = row["start"] + row["size"]
        assert stops[enclosing] <= outer["start"] + outer["size"]
    counts = Counter(row["enclosing"] for row in rows if row["kind"])
    for i, row in enumerate(rows):
        if row["count"] and not row["fault"] and i in counts:
            values_per_element = 2 if row.get("key_type") else 1
            assert counts[i] == row["count"] * values_per_element


def places_are_in_their_frames(table: FrameTable) -> None:
    if not len(table):
        return
    for name in table.places:
        at = table[name + "_at"].astype(np.int64)
        size = table[name + "_size"].astype(np.int64)
        assert (at + np.maximum(size, 0) <= table["size"]).all(), name
    assert (table["body"] <= table["size"]).all()
    lengths = np.array([len(buffer) for buffer in table.buffers] or [0], np.int64)
    assert (table["start"] >= 0).all()
    assert (table["start"] + table["size"] <= lengths[table["buffer"]]).all()


def modes_agree(package: ProtocolPackage, raw: bytes, check: bool = True) -> None:
    """Mode strict raises at the first bad row of mark. Mode skip has the good rows of mark."""
    for name in package.formats:
        marked = scan(raw, name, check=check)
        good = np.ones(len(marked), bool)
        rows = np.arange(len(marked))
        for table in reversed(list_tables(marked)):
            good &= ~table.bad[rows]
            rows = table["parent"][rows]
        skipped = scan(raw, name, "skip", check)
        expected = describe_rows(marked, parents=False)
        expected = [row for row, is_good in zip(expected, good.tolist()) if is_good]
        assert describe_rows(skipped, parents=False) == expected
        strict_raises_at_the_first(raw, name, check, marked)


def strict_raises_at_the_first(raw: bytes, name: str, check: bool, marked: FrameTable) -> None:
    table, row = find_first_bad(marked)
    try:
        strict = scan(raw, name, "strict", check)
    except FrameError as error:
        assert table is not None
        inflated = table.outer is not None and int(table["buffer"][row]) > 0
        offset = int(table.positions[row] if inflated else find_reported_start(table, row))
        assert (error.fault, error.offset, error.row, error.inflated) == (
            table["fault"][row],
            offset,
            row,
            inflated,
        )
        first = bytes(table.frame(row)[:16])
        common = min(len(error.near), len(first))
        assert error.near[:common] == first[:common]
        return
    assert table is None
    assert describe_rows(strict) == describe_rows(marked)


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
    package: ProtocolPackage, raw: bytes, cuts: list[int], errors: str = "mark", check: bool = True
) -> None:
    """Good bytes in chunks have the same rows and the same tail as in one scan."""
    for name in package.formats:
        whole = scan(raw, name, errors, check)
        tables, tail = feed_chunks(raw, name, cuts, errors, check)
        rows = [row for table in tables for row in describe_rows(table, parents=False)]
        assert rows == describe_rows(whole, parents=False)
        assert tail == bytes(list_tables(whole)[0].tail)


def spans_agree(package: ProtocolPackage, raws: list[bytes], check: bool = True) -> None:
    """Streams that are scanned together in one buffer have the same rows as each stream alone."""
    outermost = wirescan.formats()[package.formats[0]]
    if not outermost.spans:
        assert outermost.values  # each value is one frame, not a stream
        return
    data = memoryview(b"".join(raws))
    spans = np.zeros(len(raws), HEAD)
    spans["size"] = [len(raw) for raw in raws]
    spans["start"] = np.cumsum(spans["size"]) - spans["size"]
    spans["parent"] = np.arange(len(raws))
    options = dict(check=check, resync=True, limits=Limits())
    rows, bad, faults, stops = outermost.spans((data,), spans, **options)
    assert bad == np.count_nonzero(rows["fault"])
    for i, raw in enumerate(raws):
        alone, _, fault, stop = outermost.scan(memoryview(raw), **options)
        alone = alone.copy()
        alone["parent"] = 0
        together = rows[rows["parent"] == i].copy()
        together["parent"] = 0
        together["start"] -= spans["start"][i]
        assert convert_rows(together) == convert_rows(alone)
        assert (faults[i], stops[i] - spans["start"][i]) == (fault, stop)


def streams_lose_nothing(
    package: ProtocolPackage, raw: bytes, cuts: list[int], check: bool = True
) -> None:
    """In damaged bytes in chunks, rows and tail cover the input, and no good frame is lost."""
    tables, tail = feed_chunks(raw, package.formats[0], cuts, "mark", check)
    good = [row for table in tables for row in describe_rows(table[~table.bad], parents=False)]
    assert good == describe_rows(scan(raw, package.formats[0], "skip", check), parents=False)
    assert b"".join(frame for table in tables for frame in list_frames(table)) + tail == raw
    stop = 0
    for table in tables:
        for position, size in zip(table.positions.tolist(), table["size"].tolist()):
            assert position == stop
            stop += size
    for name in package.formats[1:]:
        for table in feed_chunks(raw, name, cuts, "skip", check)[0]:
            places_are_in_their_frames(table)
    try:
        feed_chunks(raw, package.formats[-1], cuts, "strict", check)
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

    many_cuts: one list of positions for each stream. The stream is cut there.
    limits: a gap may be longer than `limits.frame`.
    Adjacent rows of a gap count as one row. A stream divides a gap that is too large to hold.
    """
    for name in package.formats:
        whole = scan(raw, name, "mark", check, limits)
        expected = merge_gaps([whole], describe_rows(whole, parents=False))
        skipped = scan(raw, name, "skip", check, limits)
        expected_of_skip = describe_rows(skipped, parents=False)
        error = catch_strict_error(lambda: scan(raw, name, "strict", check, limits))
        for cuts in many_cuts:
            tables, tail = feed_chunks(raw, name, cuts, "mark", check, limits)
            rows = [row for table in tables for row in describe_rows(table, parents=False)]
            assert merge_gaps(tables, rows) == expected
            assert tail == bytes(whole.tail)
            tables, tail = feed_chunks(raw, name, cuts, "skip", check, limits)
            rows = [row for table in tables for row in describe_rows(table, parents=False)]
            assert rows == expected_of_skip
            assert tail == bytes(skipped.tail)
            assert error == catch_strict_error(
                lambda: feed_chunks(raw, name, cuts, "strict", check, limits)
            )


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


def catch_strict_error(call: Callable[[], Any]) -> tuple | None:
    """Return (fault, position) of the FrameError that a call raises, or None."""
    try:
        call()
    except FrameError as error:
        return error.fault, error.offset
    return None


def feed_chunks(
    raw: bytes, name: str, cuts: list[int], errors: str, check: bool, limits: Limits = Limits()
) -> tuple[list[FrameTable], bytes]:
    """Feed a stream in chunks. Return its tables, and the tail at its end."""
    stream = wirescan.stream(name, errors=errors, check=check, limits=limits)
    bounds = [0, *sorted(cuts), len(raw)]
    tables = [stream.feed(raw[start:stop]) for start, stop in zip(bounds, bounds[1:])]
    offset = stream.offset
    assert stream.held in (0, len(raw) - offset)  # a tail of zeros is not held
    tables.append(stream.close())
    return tables, bytes(list_tables(tables[-1])[0].tail)


def parts_keep_their_meaning(
    package: ProtocolPackage, raw: bytes, mask: list[bool], cut: int
) -> None:
    """Parts of a table, their join, and a pickled table have the same rows, and open the same."""
    for name in package.formats:
        table = scan(raw, name)
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
        for open_children in table.format.children.values():
            children = open_children(table, errors="mark")
            of_copy = open_children(copy, errors="mark")
            assert describe_rows(of_copy) == describe_rows(children)
            of_joined = open_children(joined, errors="mark")
            assert describe_rows(of_joined, parents=False) == describe_rows(children, parents=False)
            selected = children.where(keep[children["parent"]])
            of_kept = open_children(table.where(keep), errors="mark")
            assert describe_rows(of_kept, parents=False) == describe_rows(selected, parents=False)


def writes_read_back(package: ProtocolPackage, raw: bytes, values: list) -> None:
    """Encoded values read back, in every mode."""
    for errors in MODES:
        assert package.values(scan(raw, package.formats[-1], errors)) == values


def ends_well(package: ProtocolPackage, raw: bytes, check: bool = True) -> None:
    """Any bytes give a table within its bounds, or a FrameError. Nothing else is raised."""
    for errors in MODES:
        try:
            table = scan(raw, package.formats[-1], errors, check)
        except FrameError as error:
            assert errors == "strict"
            assert 0 <= error.offset <= len(raw)
            assert str(error)
            continue
        while table is not None:
            places_are_in_their_frames(table)
            assert len(table) <= 2 * sum(map(len, table.buffers)) + 1
            table = table.outer


def keeps_every_law(
    package: ProtocolPackage, raw: bytes, cuts: list[int], check: bool = True
) -> None:
    """Damaged bytes keep every law that holds for them."""
    agrees_with_the_reference(package, raw, check)
    covers_every_byte(package, raw, check)
    modes_agree(package, raw, check)
    streams_lose_nothing(package, raw, cuts, check)
    parts_keep_their_meaning(package, raw, [True, False, False], len(raw))
