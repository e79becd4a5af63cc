"""Options after the name of a format of Thrift."""

from __future__ import annotations

import pickle

import pytest

import wirescan
from tests.support.thrift_bytes import make_binary_message, make_framed
from wirescan.frames.registry import format_of

IDL = "service Calc { i32 add(1: i32 number) }"
MESSAGES = make_framed(make_binary_message(b"add", 1, 1)) * 3


@pytest.mark.parametrize("name", ["frames", "infos", "plain", "messages", "fields"])
@pytest.mark.parametrize("data", [b"", MESSAGES], ids=["empty", "messages"])
def test_a_table_has_the_format_with_its_options(name, data):
    format = format_of(f"thrift.{name}?non_strict=true")
    for table in (wirescan.scan(data, format.spec), wirescan.scan(data, format.spec)[:1]):
        assert table.format is format
        assert table.outermost.format is format.outermost
        assert pickle.loads(pickle.dumps(table)).format is format


def test_a_table_with_names_has_the_format_with_the_idl(tmp_path):
    pytest.importorskip("thriftpy2")
    idl = tmp_path / "calc.thrift"
    idl.write_text(IDL)
    table = wirescan.scan(MESSAGES, f"thrift.fields?idl={idl}")
    assert table.format.spec == f"thrift.fields?idl={idl}"
    assert table.format.dtype == table.dtype
    assert "name" in table.format.export_columns


def test_an_option_that_is_false_is_none():
    assert format_of("thrift.frames?non_strict=false") is format_of("thrift.frames")
