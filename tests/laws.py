"""What holds for every format, whatever the bytes. A room takes part with one `Room` in `tests/rooms.py`.

The laws are plain functions of a room and some bytes; test_laws.py runs them on bytes that hypothesis makes,
test_kafka_hostile.py on every mutation of small files, and tests/outside on a format that is not of this package.
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
from wirescan.errors import MODES
from wirescan.table import RESERVED, join


@dataclass(frozen=True, repr=False, eq=False)     # hashed by identity
class Room:
    """The formats of a room, from the outermost inwards, and where bytes and truth for them come from.

    children: format -> function of a row that encloses its frames: where in that they begin and end (None: the row does
        not tell), and the fault of the one row that covers what is not opened, or 0; None where there are none. good,
        tails, damaged: strategies of bytes: whole frames; what may follow them; anything near those. written: strategy
        of (bytes, what `values` has to give for a table of the innermost format). expected: (bytes, check, resync) ->
        ({format: [(row, bytes that it points into)]}, stop fault, stop offset), a row being a dict of every column,
        `buffer` 1 where those bytes were inflated.
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


def scan(raw, name, errors="mark", check=True):
    return wirescan.scan(raw, name, errors=errors, check=check)


def rows_of(table: FrameTable) -> list[dict]:
    return plain_rows(table.rows)


def plain_rows(rows: np.ndarray) -> list[dict]:
    names = [name for name in rows.dtype.names if name != RESERVED]         # that one only fills up a row
    return [dict(zip(names, row)) for row in told(rows, names)]


def told(rows: np.ndarray, names: list[str]) -> list[tuple]:
    """The columns of each row; what is no number is None, so that it equals itself."""
    values = rows[names].tolist()
    if any(rows.dtype[name].kind == "f" for name in names):
        values = [tuple(None if value != value else value for value in row) for row in values]
    return values


def levels_of(table: FrameTable) -> list[list[dict]]:
    """The rows of a table and of those that enclose it, from the outermost inwards."""
    return [rows_of(one) for one in tables_of(table)]


def settled(levels: list[list[dict]], buffers: int = 1) -> list[dict]:
    """The last of `levels`, in terms that do not depend on where payloads were inflated to.

    In such a payload `start` counts from the first row of the same outermost frame.
    """
    firsts, out = {}, []
    for row in levels[-1]:
        top = row["parent"]
        for level in reversed(levels[1:-1]):
            top = level[top]["parent"]
        if row["buffer"] >= buffers:
            row = row | dict(start=row["start"] - firsts.setdefault(top, row["start"]), buffer=1)
        out.append(row if row.get("real") == row.get("real") else row | dict(real=None))
    return out


def frames_of(table: FrameTable) -> list[bytes]:
    return [bytes(table.frame(i)) for i in range(len(table))]


def meaning(table: FrameTable, parents: bool = True) -> list[tuple]:
    """Every row as (place in its file, columns that do not depend on the buffer, bytes); without `parents` those too
    are left out that count within a table."""
    hidden = ("start", "buffer") if parents else ("start", "buffer", "parent", "window", "enclosing")
    names = [name for name in table.dtype.names if name not in hidden]
    return list(zip(table.positions.tolist(), told(table.rows, names), frames_of(table)))


# ----------------------------------------------------------------------------------------------- the laws

def agrees_with_the_reference(room: Room, raw: bytes, check: bool = True) -> None:
    """Rows, faults, stops and bytes are those of the slow reference, with and without a search after faults."""
    truth, fault, at = room.expected(raw, check, True)
    levels = []
    for name in room.formats:
        table = scan(raw, name, check=check)
        levels.append([row for row, _ in truth[name]])
        assert settled(levels_of(table)) == settled(levels), name
        want = [bytes(data[row["start"]:row["start"] + row["size"]]) for row, data in truth[name]]
        assert frames_of(table) == want, name
    outermost = wirescan.formats()[room.formats[0]]
    assert scan(raw, outermost.name, check=check).stop[:2] == (fault, at)
    truth, fault, at = room.expected(raw, check, False)
    rows, bad, *stop = outermost.scan(raw, check, False, wirescan.Limits())
    want = [row for row, _ in truth[outermost.name]]
    assert plain_rows(rows) == want
    assert (bad, *stop) == (sum(row["fault"] != 0 for row in want), fault, at)


def covers_every_byte(room: Room, raw: bytes, check: bool = True) -> None:
    """Rows and tail are the input, each byte once; inside, frames are the whole of what encloses them."""
    for name in room.formats:
        table = scan(raw, name, check=check)
        rows, ends = table.rows, table["start"] + table["size"]
        if table.outer is None:
            starts = np.concatenate([ends, [table.stop.offset]]) if len(rows) else np.array([0, table.stop.offset])
            assert (rows["start"] == starts[:-1] * 0 + np.concatenate([[0], ends])[:len(rows)]).all()
            assert (ends[-1] if len(rows) else 0) == table.stop.offset == len(raw) - len(table.tail)
            assert b"".join(frames_of(table)) + bytes(table.tail) == raw
        else:
            if "enclosing" in table.dtype.names:
                rows_enclose_one_another(table)
            inside(room, name, table)
        places_lie_in_their_frames(table)


def inside(room: Room, name: str, table: FrameTable) -> None:
    """Children follow one another from where they begin in their parent to where they end."""
    parents = iter(range(len(table.outer)))
    groups: dict[int, list[int]] = {}
    for i, parent in enumerate(table["parent"].tolist()):
        groups.setdefault(parent, []).append(i)
    assert list(groups) == sorted(groups) and all(g == list(range(g[0], g[-1] + 1)) for g in groups.values())
    for parent in parents:
        row, group = table.outer.rows[parent], groups.get(parent, [])
        span, sparse = room.children[name](row), name in room.sparse
        assert bool(group) == (span is not None) or sparse and not group
        if not group:
            continue
        begin, end, fault = span
        if "enclosing" in table.dtype.names:
            group = [i for i in group if table["enclosing"][i] < 0]
        starts = table["start"][group]
        ends = starts + table["size"][group]
        assert (starts[1:] >= ends[:-1] if sparse else starts[1:] == ends[:-1]).all()
        assert len(set(table["buffer"][group].tolist())) == 1
        if table["buffer"][group[0]] == row["buffer"]:
            edges = (starts[0] - row["start"], ends[-1] - row["start"])
            assert 0 <= edges[0] and edges[1] <= row["size"]
            assert all(told in (None, edge) for told, edge in zip((begin, end), edges))
        if fault:
            assert table["fault"][group].tolist() == [fault]


def rows_enclose_one_another(table: FrameTable) -> None:
    """Rows that lie in others follow them, one deeper, in the order of the wire, and fill them as they say."""
    rows = rows_of(table)
    ends = {}                                           # of the last row in each
    for i, row in enumerate(rows):
        around = row["enclosing"]
        assert row["kind"] or row["fault"]
        if around < 0:
            continue
        outer = rows[around]
        assert around < i and outer["parent"] == row["parent"] and outer["buffer"] == row["buffer"]
        assert row["depth"] == outer["depth"] + 1
        assert ends.get(around, outer["start"] + outer["value_at"]) <= row["start"]
        ends[around] = row["start"] + row["size"]
        assert ends[around] <= outer["start"] + outer["size"]
    held = Counter(row["enclosing"] for row in rows if row["kind"])
    for i, row in enumerate(rows):
        if row["count"] and not row["fault"] and i in held:
            assert held[i] == row["count"] * (2 if row["key_type"] else 1)


def places_lie_in_their_frames(table: FrameTable) -> None:
    if not len(table):
        return
    for name in table.places:
        at, size = table[name + "_at"].astype(np.int64), table[name + "_size"].astype(np.int64)
        assert (at + np.maximum(size, 0) <= table["size"]).all(), name
    assert (table["body"] <= table["size"]).all()
    lengths = np.array([len(buffer) for buffer in table.buffers] or [0], np.int64)
    assert (table["start"] + table["size"] <= lengths[table["buffer"]]).all() and (table["start"] >= 0).all()


def modes_agree(room: Room, raw: bytes, check: bool = True) -> None:
    """strict raises at the first bad row of mark, skip is mark without its bad rows."""
    for name in room.formats:
        marked = scan(raw, name, check=check)
        good, rows = np.ones(len(marked), bool), np.arange(len(marked))
        for table in reversed(tables_of(marked)):
            good &= ~table.bad[rows]
            rows = table["parent"][rows]
        skipped = scan(raw, name, "skip", check)
        assert meaning(skipped, False) == [
            one for one, keep in zip(meaning(marked, False), good.tolist()) if keep]
        strict_raises_at_the_first(raw, name, check, marked)


def strict_raises_at_the_first(raw: bytes, name: str, check: bool, marked: FrameTable) -> None:
    table, row = first_bad(marked)
    try:
        strict = scan(raw, name, "strict", check)
    except FrameError as error:
        assert table is not None
        inflated = table.outer is not None and int(table["buffer"][row]) > 0
        offset = int(table.positions[row] if inflated else table["start"][row])
        assert (error.fault, error.offset, error.row, error.inflated) == (table["fault"][row], offset, row, inflated)
        first = bytes(table.frame(row)[:16])
        shown = min(len(error.near), len(first))
        assert error.near[:shown] == first[:shown]
        return
    assert table is None and meaning(strict) == meaning(marked)


def first_bad(marked: FrameTable) -> tuple[FrameTable | None, int]:
    """(table, row) of the bad row that strict meets first, (None, 0) if there is none: it scans, and then opens."""
    return next(((table, int(table.bad.argmax())) for table in tables_of(marked) if table.bad.any()), (None, 0))


def tables_of(table: FrameTable) -> list[FrameTable]:
    """A table and those that enclose it, from the outermost inwards."""
    return [*tables_of(table.outer), table] if table.outer is not None else [table]


def streams_agree(room: Room, raw: bytes, cuts: list[int], errors: str = "mark", check: bool = True) -> None:
    """Bytes that come in chunks give what they give as a whole, where nothing but their tail is bad."""
    for name in room.formats:
        whole = scan(raw, name, errors, check)
        tables, tail = feed(raw, name, cuts, errors, check)
        assert [one for table in tables for one in meaning(table, False)] == meaning(whole, False)
        assert tail == bytes(tables_of(whole)[0].tail)


def spans_agree(room: Room, raws: list[bytes], check: bool = True) -> None:
    """Many streams scanned together, side by side in one buffer, give what each of them gives alone."""
    top = wirescan.formats()[room.formats[0]]
    if not top.spans:
        assert top.values           # each value is one frame there, not a stream
        return
    data, spans = memoryview(b"".join(raws)), np.zeros(len(raws), HEAD)
    spans["size"] = [len(raw) for raw in raws]
    spans["start"], spans["parent"] = np.cumsum(spans["size"]) - spans["size"], np.arange(len(raws))
    rows, bad, faults, ends = top.spans((data,), spans, check, True, Limits())
    assert bad == np.count_nonzero(rows["fault"])
    for i, raw in enumerate(raws):
        alone, _, fault, end = top.scan(memoryview(raw), check, True, Limits())
        alone, together = alone.copy(), rows[rows["parent"] == i].copy()
        together["start"] -= spans["start"][i]
        together["parent"] = alone["parent"] = 0
        assert plain_rows(together) == plain_rows(alone) and (faults[i], ends[i] - spans["start"][i]) == (fault, end)


def streams_lose_nothing(room: Room, raw: bytes, cuts: list[int], check: bool = True) -> None:
    """Damaged bytes in chunks: the rows and the tail are still the input, and no good frame is lost."""
    tables, tail = feed(raw, room.formats[0], cuts, "mark", check)
    found = [one for table in tables for one in meaning(table[~table.bad], False)]
    assert found == meaning(scan(raw, room.formats[0], "skip", check), False)
    assert b"".join(bytes(table.frame(i)) for table in tables for i in range(len(table))) + tail == raw
    at = 0
    for table in tables:
        for position, size in zip(table.positions.tolist(), table["size"].tolist()):
            assert position == at
            at += size
    for name in room.formats[1:]:
        for table in feed(raw, name, cuts, "skip", check)[0]:
            places_lie_in_their_frames(table)
    try:
        feed(raw, room.formats[-1], cuts, "strict", check)
    except FrameError as error:
        assert 0 <= error.offset <= len(raw)


def feed(raw: bytes, name: str, cuts: list[int], errors: str, check: bool) -> tuple[list[FrameTable], bytes]:
    """The tables of a stream that comes in chunks, and what is left at its end."""
    stream = wirescan.stream(name, errors=errors, check=check)
    bounds = [0, *sorted(cuts), len(raw)]
    tables = [stream.feed(raw[a:b]) for a, b in zip(bounds, bounds[1:])]
    offset = stream.offset
    assert stream.held in (0, len(raw) - offset)            # a tail of zeros is not held
    tables.append(stream.close())
    return tables, bytes(tables_of(tables[-1])[0].tail)


def parts_keep_their_meaning(room: Room, raw: bytes, mask: list[bool], cut: int) -> None:
    """A part of a table, the join of two, and a pickled one say of each row what the whole says, and open alike."""
    for name in room.formats:
        table = scan(raw, name)
        keep = np.resize(np.array(mask, bool), len(table))
        cut %= len(table) + 1
        said = meaning(table)
        assert meaning(table.where(keep)) == [one for one, k in zip(said, keep.tolist()) if k]
        assert meaning(table[:cut]) == said[:cut] and meaning(table[cut:]) == said[cut:]
        both = join([table[:cut], table[cut:]])
        assert meaning(both, False) == meaning(table, False)
        back = pickle.loads(pickle.dumps(table))
        assert meaning(back) == said and back.stops == table.stops and back.format is table.format
        for open_children in table.format.children.values():
            opened = open_children(table, errors="mark")
            assert meaning(open_children(back, errors="mark")) == meaning(opened)
            assert meaning(open_children(both, errors="mark"), False) == meaning(opened, False)
            kept = opened.where(keep[opened["parent"]])
            assert meaning(open_children(table.where(keep), errors="mark"), False) == meaning(kept, False)


def writes_read_back(room: Room, raw: bytes, values: list) -> None:
    """What an encoder wrote is read as it was given, in every mode."""
    for errors in MODES:
        assert room.values(scan(raw, room.formats[-1], errors)) == values


def ends_well(room: Room, raw: bytes, check: bool = True) -> None:
    """Any bytes: tables that keep to their bounds, or a FrameError; and nothing else, ever."""
    for errors in MODES:
        try:
            table = scan(raw, room.formats[-1], errors, check)
        except FrameError as error:
            assert errors == "strict" and 0 <= error.offset <= len(raw) and str(error)
            continue
        while table is not None:
            places_lie_in_their_frames(table)
            assert len(table) <= 2 * sum(map(len, table.buffers)) + 1
            table = table.outer


def all_of_them(room: Room, raw: bytes, cuts: list[int], check: bool = True) -> None:
    """Every law that damaged bytes have to keep."""
    agrees_with_the_reference(room, raw, check)
    covers_every_byte(room, raw, check)
    modes_agree(room, raw, check)
    streams_lose_nothing(room, raw, cuts, check)
    parts_keep_their_meaning(room, raw, [True, False, False], len(raw))
