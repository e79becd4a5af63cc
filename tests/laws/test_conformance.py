"""`check_format` for wirescan's own formats, and the errors that it finds in broken formats.

The broken formats scan as `nats.messages` does, and then change the result.
"""

from dataclasses import replace

import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.strategies.kafka_redpanda import make_batch as make_redpanda_batch
from wirescan import FrameTable, kafka, liftbridge, lumberjack, nats, pcap, thrift
from wirescan.frames import registry
from wirescan.frames.errors import enforce_mode
from wirescan.frames.table import Stop, join
from wirescan.testing import check_format, conformance

NATS = registry.format_of("nats.messages")
CALL = thrift.encode_message(
    "add", thrift.MessageType.CALL, 1, b"\x08\0\1\0\0\0\7\x08\0\2\0\0\0\1\0"
)
RECORD = {"key": b"k", "value": b"v", "headers": [(b"a", b"b"), (b"c", b"")]}
EXAMPLES = {
    "kafka": ("kafka.headers", kafka.encode_batch([RECORD])),
    "redpanda": ("kafka.redpanda_headers", make_redpanda_batch(kafka.encode_batch([RECORD]))),
    "lumberjack": (
        "lumberjack.pairs",
        lumberjack.encode_data(1, [(b"a", b"1"), (b"b", b"2")]),
    ),
    "nats": ("nats.headers", nats.encode_pub("a", b"x", headers=[(b"A", b"1"), (b"B", b"2")])),
    "liftbridge.entries": (
        "liftbridge.entries",
        bytes(liftbridge.encode_entry(1, 1, 1, b"k", b"v")) * 2,
    ),
    "thrift": ("thrift.fields", thrift.encode_framed(CALL)),
    "pcap": ("pcap.packets", pcap.encode_pcapng([(1, b"a packet"), (2, b"another")])),
}


@pytest.fixture(autouse=True)
def registered():
    known = dict(registry.load_formats())
    yield
    registry.load_formats().clear()
    registry.load_formats().update(known)


@pytest.mark.parametrize(
    "name",
    [name if name == "nats" else pytest.param(name, marks=pytest.mark.slow) for name in EXAMPLES],
)
def test_own_formats_keep_the_laws(name):
    innermost, example = EXAMPLES[name]
    package = PACKAGES[name]
    assert innermost == package.formats[-1]
    check_format(
        innermost,
        [bytes(example)],
        expected=package.expected,
        children=package.children,
        sparse=package.sparse,
        mutations=12,
    )


def make_format(name, change):
    """Register and return a format whose scan is that of NATS, with another result.

    change: a function of (buffer, rows, bad, fault, position) that returns the other four.
    """

    def scan(buffer, check, resync, limits, more=False, resume=None):
        options = dict(check=check, resync=resync, limits=limits, more=more, resume=resume)
        rows, bad, fault, position = NATS.parser.scan(buffer, **options)
        return change(buffer, rows.copy(), bad, fault, position)

    def read(source, *, errors="strict", check=True, limits=wirescan.Limits()):
        tables = []
        for buffer in wirescan.open(source):
            rows, bad, fault, position = scan(buffer, check, errors != "strict", limits)
            table = FrameTable((buffer,), rows, (Stop(fault, position),), format)
            tables.append(enforce_mode(table, errors, bad))
        return join(tables)

    format = wirescan.Format(
        name,
        "a copy",
        NATS.dtype,
        read,
        columns={"kind": NATS.columns["kind"]},
        parser=wirescan.Parser(scan=scan),
    )
    wirescan.register(format)
    return format


def lose_a_frame(buffer, rows, bad, fault, position):
    kept = rows[:2]
    return kept, int((kept["fault"] != 0).sum()), fault, position


def move_a_place(buffer, rows, bad, fault, position):
    rows["payload_at"] += 1000
    return rows, bad, fault, position


def count_no_bad_row(buffer, rows, bad, fault, position):
    return rows, 0, fault, position


def raise_an_error(buffer, rows, bad, fault, position):
    if bad:
        raise OverflowError("too large")
    return rows, bad, fault, position


@pytest.mark.parametrize(
    "change, law",
    [
        (lose_a_frame, "'covers every byte'|'streams agree'"),
        (move_a_place, "'covers every byte'|'streams agree'"),
        (count_no_bad_row, "'modes agree'"),
        (raise_an_error, "OverflowError: too large"),
    ],
)
def test_a_broken_scan_is_found(change, law):
    make_format("broken.messages", change)
    with pytest.raises(AssertionError, match=law) as caught:
        check_format("broken.messages", [b"PING\r\nPUB a 1\r\nx\r\n+OK\r\n"])
    assert "broken.messages breaks the law" in str(caught.value)


def test_columns_that_are_not_those_of_the_rows_are_found():
    format = make_format("broken.columns", lambda buffer, *scanned: scanned)

    def scan(buffer, into=None, **options):
        if into is None:
            return format.parser.scan(buffer, **options)
        return NATS.parser.scan(buffer[:6], into=into, **options)  # of the first frame

    parser = wirescan.Parser(scan=scan, writes_columns=True)
    wirescan.register(replace(format, name="broken.writer", parser=parser))
    with pytest.raises(AssertionError, match="'columns are those of rows'"):
        check_format("broken.writer", [b"PING\r\nPUB a 1\r\nx\r\n+OK\r\n"])


def test_a_format_that_no_module_registers_cannot_be_checked():
    """It is read in a new process too."""
    make_format("whole.messages", lambda buffer, *result: result)
    with pytest.raises(RuntimeError, match="no format 'whole.messages'"):
        check_format("whole.messages", [b"PING\r\nPUB a 1\r\nx\r\n"], mutations=20)


def test_a_read_outside_the_buffer_is_found(tmp_path, monkeypatch):
    (tmp_path / "overrun.py").write_text(
        "import ctypes\n"
        "import numpy as np\n"
        "import wirescan\n"
        "from dataclasses import replace\n"
        "known = wirescan.formats()['nats.messages']\n"
        "def scan(buffer, **options):\n"
        "    address = np.frombuffer(buffer, np.uint8).ctypes.data\n"
        "    ctypes.string_at(address, len(buffer) + 1)\n"
        "    return known.parser.scan(buffer, **options)\n"
        "def read(source, *, errors='strict', check=True, limits=wirescan.Limits()):\n"
        "    return known.read(source, errors=errors, check=check, limits=limits)\n"
        "parser = wirescan.Parser(scan=scan)\n"
        "wirescan.register(replace(known, name='overrun', read=read, parser=parser))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import overrun  # noqa: F401

    with pytest.raises(AssertionError, match="a scan of overrun reads bytes outside its buffer"):
        conformance.assert_nothing_is_read_outside("overrun", [b"PING\r\n"])


@pytest.mark.parametrize(
    "examples, message",
    [
        ([], "at least one example"),
        ([b"PING\r\n"], "no example has two frames"),
        ([b"PING\r\nPIN"], "no stream of whole frames"),
        ([b"PING\r\nPUB a 1\r\nxyz\r\n"], "has a bad frame"),
    ],
)
def test_examples_that_test_nothing_are_refused(examples, message):
    with pytest.raises(ValueError, match=message):
        check_format("nats.messages", examples)


def test_a_declaration_of_a_missing_column_is_found():
    columns = {"time": wirescan.Column(unit="ms")}
    wirescan.register(replace(NATS, name="wrong.messages", columns=columns))
    with pytest.raises(AssertionError, match=r"columns that it does not have: \['time'\]"):
        check_format("wrong.messages", [b"PING\r\n" * 2])
