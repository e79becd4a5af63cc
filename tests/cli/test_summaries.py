"""`wirescan stat` and `verify` read declarations: formats with other columns are counted alike."""

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner

import wirescan
from wirescan import Column, Display, Storage
from wirescan.cli.main import main
from wirescan.cli.support import opened_formats
from wirescan.cli.support.tally import Tally, count_piece
from wirescan.cli.verbs import stat
from wirescan.frames.logs import LogColumns, SegmentNames
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.batch_formats import BATCHES, RECORDS


def describe_table(format, table, opened=()):
    tally = Tally(format)
    tally.start_file("a")
    count_piece([tally], table, opened)
    return tally.make_summary()


@pytest.fixture
def batches():
    records = [Record(i, key=b"k" if i else None, value=b"v") for i in range(3)]
    return wirescan.scan(encode_batch(records), "kafka.batches")


def replace_format(table, **changes):
    format = dataclasses.replace(table.format, **changes)
    return dataclasses.replace(table, format=format)


def test_a_format_without_declarations_has_frames_only(batches):
    plain = replace_format(batches, display=Display(), storage=Storage())
    summary = describe_table(plain.format, plain)
    assert "frames" in summary
    assert not {"records", "codecs", "magic", "control_frames", "offsets"} & set(summary)


def test_columns_of_other_names_are_counted(batches):
    summary = SummaryColumns(values=("leader_epoch",), flags=("is_control",))
    other = replace_format(batches, display=Display(record_count="base_sequence", summary=summary))
    out = describe_table(other.format, other)
    assert out["leader_epoch"] == {str(batches["leader_epoch"][0]): 1}
    assert out["control_frames"] == 0
    assert "transactional_frames" not in out
    assert out["unopened_frames"] == int((batches["base_sequence"] < 0).sum())


def test_frames_inside_are_counted_under_any_name(batches):
    records = batches.format.children["records"](batches)
    commands = replace_format(
        records,
        display=Display(
            counted_as="commands", summary=SummaryColumns(sizes=True, places={"key": "keys"})
        ),
    )
    outer = dataclasses.replace(BATCHES, display=Display(summary=SummaryColumns(codec="codec")))
    tally = Tally(outer)
    tally.count_nested(commands)
    out = tally.make_summary()
    assert out["commands"] == 3
    assert out["command_size"]["total"] == int(records["size"].sum())
    assert out["headers"] == 0
    assert out["inside"] == {
        "key_size": {"min": 1, "median": 1, "p95": 1, "max": 1, "total": 2},
        "null_keys": 1,
    }
    assert out["codecs"]["none"]["commands"] == 3


def test_kinds_of_frames_whose_number_is_stated_have_a_name_of_their_own(
    batches, monkeypatch, capsys
):
    records = batches.format.children["records"](batches)
    by_kind = replace_format(
        records,
        columns=records.format.columns | {"kind": Column(names={2: "MAGIC_2"})},
        display=Display(counted_as="records", summary=SummaryColumns(by_kind=True)),
    )
    out = describe_table(BATCHES, batches, [by_kind])
    assert out["records"] == 3
    assert out["records_by_kind"] == {"MAGIC_2": 3}
    monkeypatch.setattr(stat, "find_counted_format", lambda outer: by_kind.format)
    stat._print_summary("a", out, BATCHES)
    lines = capsys.readouterr().out.splitlines()
    assert "  records       3" in lines
    assert "    by kind     MAGIC_2: 3" in lines


def test_verify_counts_the_frames_of_one_child(tmp_path, monkeypatch):
    """Another format may be opened from the same frames. Its rows are verified and not counted."""
    path = tmp_path / "a.log"
    path.write_bytes(encode_batch([b"x", b"y", b"z"]))
    sibling = dataclasses.replace(RECORDS, name="kafka.siblings", display=Display())
    known = {**wirescan.formats(), sibling.name: sibling}
    monkeypatch.setattr(opened_formats, "formats", lambda: known)
    result = CliRunner().invoke(main, ["verify", str(path)])
    assert result.exit_code == 0, result.output
    assert "3 records" in result.output


def test_the_names_of_segments_are_those_of_the_format(tmp_path):
    """Segments continue each other by the names that the format declares."""
    first = encode_batch([Record(0, value=b"")])
    second = encode_batch([Record(9, value=b"")])
    (tmp_path / "0000.seg").write_bytes(first)
    (tmp_path / "0009.seg").write_bytes(second)
    paths = [str(tmp_path / "0000.seg"), str(tmp_path / "0009.seg")]
    gaps = []
    for segments in (None, SegmentNames(digits=4, suffix=".seg")):
        log = LogColumns("base_offset", "last_offset", segments=segments)
        format = dataclasses.replace(BATCHES, storage=Storage(log=log))
        tally = Tally(format)
        for path in paths:
            table = dataclasses.replace(wirescan.scan(path, "kafka.batches"), format=format)
            tally.start_file(path)
            tally.follow_offsets(table, np.asarray(table["base_offset"]))
        gaps.append(tally.make_summary()["offsets"]["gaps"])
    assert gaps == [0, 1]


def test_an_index_beside_a_broker_is_announced(tmp_path):
    (tmp_path / "partition.metadata").write_bytes(b"")
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode_batch([Record(0, value=b"")]))
    result = CliRunner().invoke(main, ["index", str(path)])
    assert "belongs to a broker" in result.stderr
    assert json.loads((tmp_path / f"{0:020}.log.frames.json").read_text())
