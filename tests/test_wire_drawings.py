"""The drawings of bytes in docs/ are what wirescan writes, and name the columns that it reads."""

from __future__ import annotations

import re

import pytest

from tests.strategies.kafka_redpanda import make_batch as make_redpanda_batch
from tests.support.paths import ROOT
from wirescan import kafka, liftbridge, nats, scan, thrift
from wirescan.liftbridge.encode import encode_entry

RECORD = kafka.Record(7, 1_700_000_000_000, b"k", b"hi", ())
CALL = thrift.encode_message("add", thrift.MessageType.CALL, 7, b"\0")
# For each drawing the page, the bytes, the tables whose first row it shows, and the names of it
# that are columns or places of these tables.
DRAWINGS = {
    "kafka.batches": (
        "kafka",
        kafka.encode_batch([RECORD]),
        lambda raw: [kafka.scan(raw), kafka.records(kafka.scan(raw))],
        """base_offset leader_epoch magic crc attributes base_timestamp max_timestamp
        producer_id producer_epoch base_sequence record_count key value""",
    ),
    "kafka.redpanda_batches": (
        "kafka",
        make_redpanda_batch(bytes(kafka.encode_batch([RECORD]))),
        lambda raw: [kafka.scan_redpanda(raw)],
        """size base_offset kind crc attributes base_timestamp max_timestamp producer_id
        producer_epoch base_sequence record_count""",
    ),
    "nats.messages": (
        "nats",
        nats.encode_pub("orders", b"hi", reply="inbox"),
        lambda raw: [nats.scan(raw)],
        "subject reply payload",
    ),
    "liftbridge.envelopes": (
        "liftbridge",
        liftbridge.encode_message(b"hi", key=b"k", crc=True),
        lambda raw: [liftbridge.scan([raw]), liftbridge.messages(liftbridge.scan([raw]))],
        "version header_size flags crc key value",
    ),
    "liftbridge.entries": (
        "liftbridge",
        encode_entry(7, 1_700_000_000_000_000_000, 1, b"k", b"hi"),
        lambda raw: [scan(raw, "liftbridge.entries")],
        "offset timestamp leader_epoch crc magic attributes key value header_count",
    ),
    "thrift.frames": (
        "thrift",
        thrift.encode_frame(CALL, seq=5, infos={b"trace": b"7"}),
        lambda raw: [thrift.scan(raw), thrift.messages(thrift.scan(raw))],
        "flags seq header_words protocol_id transform_count info_count method seqid arguments",
    ),
}
LITTLE_ENDIAN = ("kafka.redpanda_batches",)
LINE = re.compile(r" *(\d+)  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) +(\S.*)")


def read_drawing(page: str, name: str) -> list[tuple[int, bytes, str]]:
    """Return the position, the bytes and the field of each line of a drawing."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    (block,) = re.findall(rf"<!-- wire: {name} -->\n```text\n(.*?)```", text, re.DOTALL)
    matches = [LINE.fullmatch(line) for line in block.splitlines()[1:]]
    return [(int(line[1]), bytes.fromhex(line[2]), line[3]) for line in matches]


def check_field(table, name: str, position: int, field: bytes) -> bool:
    """Check a field against the first row of a table; return False if it has no such column."""
    order = "little" if table.format.name in LITTLE_ENDIAN else "big"
    row = table.rows[0]
    if f"{name}_at" in row.dtype.names:
        assert row["start"] + row[f"{name}_at"] == position, name
        assert row[f"{name}_size"] == len(field), name
        return True
    if name in row.dtype.names:
        signed = row.dtype[name].kind == "i"
        assert int.from_bytes(field, order, signed=signed) == row[name], name
        return True
    return False


def test_each_drawing_is_tested():
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert sorted(re.findall(r"<!-- wire: (\S+) -->", pages)) == sorted(DRAWINGS)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_exact(name):
    page, raw, read, columns = DRAWINGS[name]
    lines = read_drawing(page, name)
    assert b"".join(field for _, field, _ in lines) == raw
    tables = read(raw)
    assert all(len(table) == 1 and not table.bad.any() for table in tables)
    checked = []
    position = 0
    for stated, field, text in lines:
        assert stated == position
        label = text.split(":")[0]
        if any(check_field(table, label, position, field) for table in tables):
            checked.append(label)
        position += len(field)
    assert checked == columns.split()
