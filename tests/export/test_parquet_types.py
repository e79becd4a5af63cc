"""Structs without members become text, which Parquet has."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import run
from wirescan.export.parquet import convert
from wirescan.export.parquet_types import convert_batch, convert_schema
from wirescan.kafka import encode_batch

EMPTY = pa.struct([])
PAIR = pa.struct([("n", pa.int64()), ("e", EMPTY)])
COLUMNS = {
    "plain": (pa.int64(), [1, None, 3, 4]),
    "empty": (EMPTY, [{}, None, {}, None]),
    "inside": (PAIR, [{"n": 1, "e": {}}, None, {"n": None, "e": None}, {"n": 4, "e": {}}]),
    "list": (pa.list_(EMPTY), [[{}, None], None, [], [{}]]),
    "large": (pa.large_list(PAIR), [[], [None, {"n": 1, "e": {}}], None, [{"n": 2, "e": None}]]),
    "map": (pa.map_(pa.string(), EMPTY), [[("k", {})], None, [], [("k", None), ("l", {})]]),
}


def replace_empty(value):
    """Return a Python value with "{}" in place of each empty dict."""
    if isinstance(value, dict):
        return {name: replace_empty(member) for name, member in value.items()} or "{}"
    if isinstance(value, list):
        return [replace_empty(item) for item in value]
    if isinstance(value, tuple):
        return tuple(map(replace_empty, value))
    return value


@pytest.mark.parametrize("start, stop", [(0, 4), (1, 4), (2, 3), (4, 4)])
def test_every_struct_without_members_is_text(start, stop, tmp_path):
    arrays = [pa.array(values, kind) for kind, values in COLUMNS.values()]
    batch = pa.RecordBatch.from_arrays(arrays, list(COLUMNS)).slice(start, stop - start)
    found = convert_batch(batch)
    found.validate(full=True)
    assert found.schema == convert_schema(batch.schema)
    for name in COLUMNS:
        assert found[name].to_pylist() == replace_empty(batch[name].to_pylist())
    pq.write_table(pa.Table.from_batches([found]), tmp_path / "0.parquet")
    assert pq.read_table(tmp_path / "0.parquet").to_pylist() == found.to_pylist()
    assert convert_batch(found) is found


def test_empty_objects_in_payloads_are_converted(tmp_path):
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(encode_batch([b'{"id":1,"labels":{}}', b'{"id":2,"more":[{}]}', b"x"]))
    convert(segment, tmp_path / "out", "kafka.records", decode={"value": "json"})
    arguments = ["scan", segment, "--decode", "value=json", "-o", tmp_path / "out.parquet"]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    for path in (tmp_path / "out", tmp_path / "out.parquet"):
        assert pq.read_table(path)["value"].to_pylist() == [
            {"id": 1, "labels": "{}", "more": None},
            {"id": 2, "labels": None, "more": ["{}"]},
            None,
        ]
