"""What repr shows of tables and of rows: values as people read them, faults, and safe text."""

import dataclasses
import html
import re
import time

import numpy as np
import pytest
from click.testing import CliRunner

import wirescan
from tests.support.paths import ROOT
from tests.support.slowness import SLOWNESS
from wirescan import Fault, kafka
from wirescan.cli.main import main
from wirescan.frames import text_table
from wirescan.frames.table import make_empty
from wirescan.frames.text_table import COUNTED_ROWS, SHOWN_LINE, SHOWN_ROWS
from wirescan.kafka import Record, encode_batch
from wirescan.testing.mutations import flip_bit

ROWS = [
    Record(7, 1_000, b"key", b"value" * 10, [("a", b"1"), ("b", None)]),
    Record(8, -1, None, b""),
    Record(10, 1_002, b"\xff", None),
]
RAW = encode_batch(ROWS)
HOSTILE = b"<script>\x1b[2J\x00\n\r&'\"\xff\xe2\x80\xae"


def scan_records(raw, errors="strict"):
    return kafka.records(kafka.scan(raw, errors=errors), errors=errors)


# ---- tables


def test_the_first_rows_have_values_as_people_read_them():
    assert repr(scan_records(RAW)).splitlines() == [
        "offset                 timestamp  key   value                             headers",
        "     7  1970-01-01T00:00:01.000Z  key   valuevaluevaluevaluevaluevaluev…  a=1 b=null",
        "     8                         -  -",
        "    10  1970-01-01T00:00:01.002Z  \\xff  -",
        f"3 rows of kafka.records, 1 buffer, {len(RAW)} bytes, no faults",
    ]


def test_codes_have_names_and_columns_are_those_of_the_command(tmp_path):
    path = tmp_path / "orders.log"
    path.write_bytes(encode_batch(ROWS, codec="zstd") + RAW)
    batches = kafka.scan(path)
    assert "zstd" in repr(batches).splitlines()[1] and "none" in repr(batches).splitlines()[2]
    for name in ("kafka.batches", "kafka.records"):
        shown = repr(wirescan.scan(path, name)).splitlines()
        printed = CliRunner().invoke(main, ["scan", str(path), "--format", name]).output
        assert shown[0].split() == printed.splitlines()[0].split()
        if name == "kafka.batches":
            assert [line.split() for line in shown[:-1]] == [
                line.split() for line in printed.splitlines()
            ]


def test_a_bad_frame_is_a_line_with_its_fault():
    table = scan_records(RAW + flip_bit(RAW) + RAW + b"tail", "mark")
    lines = repr(table).splitlines()
    assert lines[4] == (
        f"!! BAD_CHECKSUM in the frame at byte {len(RAW)}, {len(RAW) - 61} bytes: "
        "the checksum does not match"
    )
    assert lines[-1] == (
        f"7 rows of kafka.records, 1 buffer, {3 * len(RAW) + 4} bytes, 1 fault, "
        f"stopped at {3 * len(RAW)}: SHORT"
    )
    assert repr(table[3]) == f"<kafka.records {lines[4]}>"
    assert f"<em>{lines[4]}</em>" in table._repr_html_()


def test_more_rows_are_counted():
    table = scan_records(encode_batch([b"x"] * 1234))
    lines = repr(table).splitlines()
    assert len(lines) == 1 + SHOWN_ROWS + 2
    assert lines[-2:] == [
        "… 1,224 more rows",
        f"1,234 rows of kafka.records, 1 buffer, {len(table.buffers[0]) / 1024:.1f} KiB, no faults",
    ]
    assert len(repr(table[:SHOWN_ROWS]).splitlines()) == 1 + SHOWN_ROWS + 1
    assert "… 1,224 more rows" in table._repr_html_()


def test_a_table_without_rows_has_its_columns():
    for format in wirescan.formats().values():
        table = make_empty(format)
        lines = repr(table).splitlines()
        assert lines[-1] == f"0 rows of {format.name}, 0 buffers, 0 bytes, no faults"
        assert "… 0 more" not in repr(table) and table._repr_html_().startswith("<table>")
    table = make_empty(wirescan.formats()["kafka.records"])
    assert repr(table).splitlines()[0].split() == ["offset", "timestamp", "key", "value", "headers"]


def test_columns_that_do_not_fit_are_named():
    request = kafka.encode_request("Fetch", 12, {}, correlation_id=1)
    table = kafka.requests(request).open("fetch_request")
    head, row, others, _ = repr(table).splitlines()
    assert max(map(len, (head, row))) <= SHOWN_LINE
    assert others.startswith("… and the columns ")
    shown = [*head.split(), *others.removeprefix("… and the columns ").split(", ")]
    assert shown == ["_start", *table.columns]
    page = table._repr_html_()
    assert re.findall("<th>(.*?)</th>", page) == shown and page.count("<td") == len(shown)


def test_control_records_have_the_names_of_their_keys():
    path = ROOT / "tests/corpus/kafka/orders-0"
    table = wirescan.scan(path, "kafka.records")
    control = table.where(table["is_control"] != 0)
    assert [line.split()[2] for line in repr(control).splitlines()[1:3]] == ["COMMIT", "ABORT"]
    assert "key=ABORT  " in repr(control[1])
    for names in (["key"], ["key", "value"], ["key", "headers"]):
        assert repr(control[names]).splitlines()[1].startswith("COMMIT")
    assert repr(control[["offset", "value"]]).splitlines()[1].startswith(" 25700  \\x00")
    alone = dataclasses.replace(control, outer=None)
    assert repr(alone).splitlines()[1].split()[2] == "\\x00\\x00\\x00\\x01"


def test_a_table_without_a_format_is_shown():
    table = dataclasses.replace(scan_records(RAW), format=None)
    assert repr(table).splitlines()[-1].startswith("3 rows of frames, 1 buffer")


def test_long_lists_are_counted_and_not_read(monkeypatch):
    long_list = [("name", b"%d" % i) for i in range(2000)]
    table = scan_records(
        encode_batch([Record(1, 0, None, b"v", long_list), Record(2, 0, None, b"v", [("a", b"1")])])
    )
    opened = []
    read = table.format.children["headers"]

    def count(rows, **options):
        opened.append(int(rows["header_count"].sum()))
        return read(rows, **options)

    format = dataclasses.replace(table.format, children={"headers": count})
    table = dataclasses.replace(table, format=format)
    lines = repr(table).splitlines()
    assert lines[1].endswith("  (2,000 headers)") and lines[2].endswith("  a=1")
    assert opened == [1]
    assert "headers=(2,000 headers)" in repr(table[0]) and opened == [1, 0]


def test_only_the_shown_rows_are_read(monkeypatch):
    table = scan_records(encode_batch([b"x"] * 1000))
    rows = table.rows.copy()
    rows["value_at"][SHOWN_ROWS:] = 1 << 30  # outside the frame: reading it would be an error
    rows["fault"][[20, -1]] = Fault.BAD_COUNT
    table = dataclasses.replace(table, rows=rows)
    assert "cannot be read" not in repr(table) and repr(table).endswith(", 2 faults")
    assert "cannot be read" in repr(table[1:])
    monkeypatch.setattr(text_table, "COUNTED_ROWS", 999)
    assert repr(table).endswith(", 1 fault in the first 999")


def test_ten_million_rows_are_shown_at_once():
    table = scan_records(RAW)
    huge = dataclasses.replace(table, rows=np.broadcast_to(table.rows[:1], 10_000_000))
    start = time.process_time()
    text = repr(huge)
    assert time.process_time() - start < 0.1 * SLOWNESS
    assert text.splitlines()[-2] == "… 9,999,990 more rows"
    assert text.endswith(f", no faults in the first {COUNTED_ROWS:,}")


def test_values_beyond_a_cell_are_not_read():
    value = b"\\" * (64 << 20)
    table = scan_records(encode_batch([value]))
    start = time.process_time()
    assert "\\" * 31 + "…" in repr(table)
    assert time.process_time() - start < 0.1 * SLOWNESS


@pytest.mark.parametrize(
    "column, value, why",
    [
        ("value_at", 1 << 30, "value points outside its frame"),
        ("value_size", 999, "value points outside its frame"),
        ("start", 1 << 40, "start and size point outside its buffer"),
        ("buffer", 7, "start and size point outside its buffer"),
    ],
)
def test_rows_that_point_anywhere_do_not_raise(column, value, why):
    table = scan_records(RAW)
    rows = table.rows.copy()
    rows[column][1] = value
    table = dataclasses.replace(table, rows=rows)
    note = f"the rows cannot be read: row 1 of kafka.records: {why}"
    assert note in repr(table) and note in table._repr_html_()
    assert repr(table[1]) == f"<kafka.records {note.replace('row 1', 'row 0')}>"
    assert "offset=7" in repr(table[0])


def test_rows_of_no_parent_do_not_raise():
    table = scan_records(RAW)
    rows = table.rows.copy()
    rows["parent"] = 9
    rows["fault"] = Fault.BAD_COUNT
    table = dataclasses.replace(table, rows=rows)
    why = "the rows cannot be read: a row of kafka.records points outside the table around it"
    assert why in repr(table) and why in table._repr_html_()
    assert repr(table[0]) == f"<kafka.records {why}>"


# ---- hostile bytes


def test_hostile_payloads_are_escaped():
    headers = [(HOSTILE.decode(errors="ignore"), HOSTILE)]
    table = scan_records(encode_batch([Record(0, 0, HOSTILE, HOSTILE[::-1], headers)]))
    for text in (repr(table), repr(table[0]), table._repr_html_()):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    page = table._repr_html_()
    assert "<script>" not in page and html.escape(r"<script>\x1b[2J") in page
    assert page.count("<tr>") == 2 and page.count("<td") == len(re.findall("<th>", page))


# ---- rows


def test_a_row_shows_its_columns():
    table = scan_records(RAW)
    assert repr(table[0]) == (
        "<kafka.records offset=7  timestamp=1970-01-01T00:00:01.000Z  key=key  "
        "value=valuevaluevaluevaluevaluevaluev…  headers=a=1 b=null  is_control=False>"
    )
    assert repr(table[2]) == (
        "<kafka.records offset=10  timestamp=1970-01-01T00:00:01.002Z  key=\\xff  value=-  "
        "headers=  is_control=False>"
    )
    assert repr(list(table)) == "[" + ", ".join(map(repr, table)) + "]"
