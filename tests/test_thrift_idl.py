"""Names of fields out of an IDL: thrift.fields(messages, idl=...), in both protocols."""
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import thriftpy2
from thriftpy2.protocol.binary import write_val
from thriftpy2.thrift import TType
from thriftpy2.transport import TMemoryBuffer

from reference.thrift_payload import BOOL, DOUBLE, I32, I64, LIST, MAP, SET, STRING, STRUCT
from strategies.thrift import framed, header, message, put_struct, transformed
from wirescan import FrameError, thrift
from wirescan.thrift.idl import named

CALL, REPLY, EXCEPTION, ONEWAY = thrift.MessageType
SHARED = """
struct Place { 1: string town, 2: optional Point point }
struct Point { 1: double x, 2: double y }
service Base { Place where(1: i32 id), void ping() }
"""
CALC = """
include "shared.thrift"
enum Color { RED = 1 }
struct Node { 1: i32 value, 2: optional Node after, -1: string below, 32767: binary data }
typedef map<string, list<Node>> Table
union Either { 1: i32 number, 2: string text }
exception Bad { 1: string why, 2: Node node }
service Calc extends shared.Base {
    i32 add(1: i32 a, 2: i32 b) throws (1: Bad bad),
    oneway void log(1: map<Node, list<set<Either>>> deep, 2: Color color, 3: bool flag),
    Table table(1: Table table, 2: list<list<Node>> nodes),
    i32 same(1: i32 one), i32 other(1: i32 one), i32 half(1: i32 one)
}
service Store { void put(1: shared.Place place), i32 same(1: i32 one), i32 other(1: i32 two), string half(1: i32 one) }
"""
ADD = put_struct([(1, I32, 1), (2, I32, 2)], 0)


@pytest.fixture
def calc(tmp_path):
    (tmp_path / "shared.thrift").write_text(SHARED)
    (tmp_path / "calc.thrift").write_text(CALC)
    return tmp_path / "calc.thrift"


def messages_of(*raws):
    return thrift.messages(thrift.scan(b"".join(map(framed, raws))))


def names(idl, method, type, struct, version=0, **options):
    """The names of all fields of one message, in the order of the wire; what has none is an empty string."""
    raw = message(method.encode(), int(type), 1, put_struct(struct, version), version)
    return [name.decode() for name in thrift.fields(messages_of(raw), idl=idl, **options)["name"].tolist()]


NODE = [(1, I32, 5), (2, STRUCT, [(-1, STRING, b"z"), (32767, STRING, b"\xff")])]
NODES = ["value", "after", "below", "data"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_names(calc, version):
    def found(*given):
        return names(calc, *given, version)
    assert found("add", CALL, [(1, I32, 1), (2, I32, 2), (3, I32, 3)]) == ["a", "b", ""]
    assert found("add", REPLY, [(0, I32, 3)]) == ["success"]
    assert found("add", REPLY, [(1, STRUCT, [(1, STRING, b"w"), (2, STRUCT, NODE)])]) == ["bad", "why", "node", *NODES]
    assert found("add", EXCEPTION, [(1, STRING, b"unknown"), (2, I32, 1)]) == ["message", "type"]
    assert found("unheard", EXCEPTION, [(1, STRING, b"unknown"), (2, I32, 1)]) == ["message", "type"]
    assert found("unheard", CALL, [(1, I32, 1)]) == [""]
    assert found("ping", CALL, []) == found("ping", REPLY, []) == []
    # Inherited, with a struct that is declared after it is used.
    point = [(1, DOUBLE, .5), (2, DOUBLE, 1.)]
    assert found("where", REPLY, [(0, STRUCT, [(1, STRING, b"t"), (2, STRUCT, point)])]) == [
        "success", "town", "point", "x", "y"]


@pytest.mark.parametrize("version", [0, 1])
def test_what_lies_in_containers(calc, version):
    either = (LIST, (SET, [(STRUCT, [[(1, I32, 1)], [(2, STRING, b"s")]])]))
    deep = (MAP, (STRUCT, LIST, [(NODE, either[1])]))
    assert names(calc, "log", ONEWAY, [(1, *deep), (2, I32, 1), (3, BOOL, True)], version) == [
        "deep", "", *NODES, "", "", "", "number", "", "text", "color", "flag"]
    table = (MAP, (STRING, LIST, [(b"k", (STRUCT, [NODE]))]))
    assert names(calc, "table", REPLY, [(0, *table)], version) == ["success", "", "", "", *NODES]
    lists = (LIST, (LIST, [(STRUCT, [NODE, []]), (STRUCT, [])]))
    assert names(calc, "table", CALL, [(1, *table), (2, *lists)], version) == [
        "table", "", "", "", *NODES, "nodes", "", "", *NODES, "", ""]


def test_a_depth_that_ends_before(calc):
    table = (MAP, (STRING, LIST, [(b"k", (STRUCT, [NODE]))]))
    for depth in range(1, 7):
        found = names(calc, "table", CALL, [(1, *table)], depth=depth)
        assert found == ["table", "", "", "", *NODES][:(1, 3, 4, 6, 8, 8)[depth - 1]]


@pytest.mark.parametrize("struct", [
    [(1, I64, 1)], [(1, STRING, b"1")], [(1, STRUCT, [(1, I32, 1)])], [(1, LIST, (I32, [1]))]], ids=repr)
def test_another_type_has_no_name(calc, struct):
    """Readers pass over it; what lies in it is not of the IDL."""
    assert set(names(calc, "add", CALL, struct)) == {""}


def test_elements_of_another_type_have_no_names_in_them(calc):
    assert names(calc, "table", CALL, [(2, LIST, (STRUCT, [[(1, I32, 1)]]))]) == ["nodes", "", ""]


# ---------------------------------------------------------------------------------- services

@pytest.mark.parametrize("method, type, expected", [
    ("same", CALL, "one"), ("same", REPLY, "success"),                  # alike in both
    ("other", CALL, ""), ("other", REPLY, "success"),                   # the arguments are not
    ("half", CALL, "one"), ("half", REPLY, ""),                         # the result is not
    ("Calc:other", CALL, "one"), ("Store:other", CALL, "two"), ("Store:same", ONEWAY, "one"),
    ("Store:add", CALL, ""),                                            # it has no such method
    ("calculator:add", CALL, "a"), ("calculator:other", CALL, ""), (":add", CALL, "a"),     # not of this IDL
    ("Cal:other", CALL, ""), ("Calc::other", CALL, ""), ("Base:ping", CALL, ""), ("Base:where", CALL, "id"),
    ("ad", CALL, ""), ("addd", CALL, ""), ("add\0", CALL, ""), ("Add", CALL, ""), ("", CALL, ""),
])
def test_which_service(calc, method, type, expected):
    id = 0 if type == REPLY else 1
    assert names(calc, method, type, [(id, I32, 1)]) == [expected]


def test_many_messages(calc):
    """Of both protocols, inflated or not, in several buffers."""
    def stream(count):
        for i in range(count):
            version, method, id = i % 3, (b"add", b"Store:put", b"unheard", b"table")[i % 4], i % 2 + 1
            struct = put_struct([(id, I32, i) if i % 4 != 1 else (1, STRUCT, [(1, STRING, b"t")])], version)
            payload, ids = message(method, 1, i, struct, version), [[], [1], [5, 1]][i % 5 % 3]
            yield header(transformed(payload, ids), transforms=ids, protocol=2 if version else 0)
    buffers = [b"".join(stream(count)) for count in (100, 0, 57)]
    fields = thrift.fields(thrift.messages(thrift.scan(buffers)), idl=calc)
    each = ([b"a"], [b"place", b"town"], [b""], [b""])
    assert fields["name"].tolist() == sum((each[i % 4] for count in (100, 57) for i in range(count)), [])


def test_what_thriftpy2_writes(calc):
    """The oracle: names and values of a call as thriftpy2 knows them."""
    module = thriftpy2.load(str(calc), module_name="oracle_thrift")
    arguments = module.Calc.add_args(a=7, b=-7)
    memory = TMemoryBuffer()
    write_val(memory, TType.STRUCT, arguments)
    fields = thrift.fields(messages_of(message(b"add", 1, 1, memory.getvalue())), idl=module)
    assert dict(zip(fields["name"].tolist(), fields["integer"].tolist())) == {
        name.encode(): value for name, value in vars(arguments).items()}


# ---------------------------------------------------------------------------------- tables

def test_the_table(calc):
    plain = thrift.fields(messages_of(message(b"add", 1, 1, ADD)))
    table = named(plain, calc)
    assert table.dtype.names == (*thrift.FIELD.names, "name") and table.dtype["name"] == "S8"
    assert table.dtype.itemsize == thrift.FIELD.itemsize + 8 and not table.rows.flags.writeable
    assert all((table[name] == plain[name]).all() for name in thrift.FIELD.names)
    assert (table.buffers, table.outer, table.format) == (plain.buffers, plain.outer, plain.format)
    assert [row.name for row in table] == [b"a", b"b"] and "name" not in plain.dtype.names
    assert table[1].value == b"\0\0\0\2"


def test_no_rows(calc):
    for table in (thrift.fields(messages_of(), idl=calc), thrift.fields(messages_of(message(b"add")), idl=calc)):
        assert len(table) == 0 and table.dtype["name"] == "S8"


def test_bad_messages(calc):
    cut = message(b"add", 1, 1, ADD[:10])
    frames = thrift.scan(framed(b"\x80\x01\0\1") + framed(cut) + framed(message(b"add", 1, 1, ADD)), errors="mark")
    messages = thrift.messages(frames, errors="mark")
    fields = thrift.fields(messages, idl=calc, errors="mark")
    assert fields["name"].tolist() == [b"", b"a", b"", b"a", b"b"]
    assert fields.bad.tolist() == [True, False, True, False, False]
    assert thrift.fields(messages, idl=calc, errors="skip")["name"].tolist() == [b"a", b"a", b"b"]
    with pytest.raises(FrameError):
        thrift.fields(messages, idl=calc)


def test_what_is_open_around_damage_has_its_name(calc):
    struct = put_struct([(1, STRUCT, [(1, STRING, b"why"), (2, STRUCT, NODE)])], 0)
    raw = message(b"add", 2, 1, struct[:-8])
    fields = thrift.fields(messages_of(raw), idl=calc, errors="mark")
    assert fields["name"].tolist() == [b"bad", b"why", b"node", b"value", b"after", b"below", b""]
    assert fields.bad.tolist() == [True, False, True, False, True, False, True]


def test_rows_that_were_left_out(calc):
    fields = thrift.fields(messages_of(message(b"add", 2, 1, put_struct([(1, STRUCT, [(1, STRING, b"why")])], 0))))
    with pytest.raises(ValueError, match="names need all of them"):
        named(fields[1:], calc)
    rows = fields.rows.copy()
    rows["depth"][1:] = 3                   # of what lies in a row at depth 1
    with pytest.raises(ValueError, match="names need all of them"):
        named(replace(fields, rows=rows), calc)
    with pytest.raises(TypeError, match="not thrift.messages"):
        named(fields.outer, calc)
    with pytest.raises(TypeError, match="not thrift.fields"):
        named(named(fields, calc), calc)
    with pytest.raises(TypeError):
        named(None, calc)


def test_rows_that_point_anywhere(calc):
    """Rows of anybody's make end in ValueError, or in names."""
    struct = put_struct([(1, STRUCT, [(1, STRING, b"why"), (2, STRUCT, NODE)])], 0)
    fields = thrift.fields(messages_of(message(b"add", 2, 1, struct)))
    chance = np.random.default_rng(1)
    for table in (fields, fields.outer):
        for _ in range(400):
            rows = table.rows.copy()
            flat = rows.view(np.uint8).reshape(-1)
            flat[chance.integers(0, len(flat), 3)] = chance.integers(0, 256, 3)
            forged = replace(table, rows=rows)
            try:
                named(forged if table is fields else replace(fields, outer=forged), calc)
            except ValueError:
                pass


# ---------------------------------------------------------------------------------- files

def test_every_form_of_a_path(calc, monkeypatch):
    monkeypatch.chdir(calc.parent)
    for path in (calc, str(calc), os.fsencode(calc), "calc.thrift"):
        assert names(path, "add", CALL, [(1, I32, 1)]) == ["a"]


def test_files_of_equal_names(tmp_path, monkeypatch):
    """Neither the file nor what it includes is taken from another folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shared.thrift").write_text("struct Point { 1: i32 %s }" % name)
        (tmp_path / name / "calc.thrift").write_text(
            'include "shared.thrift"\nservice S { void put(1: shared.Point point) }')
    for name in ("one", "two", "one"):
        monkeypatch.chdir(tmp_path / name)
        assert names("calc.thrift", "put", CALL, [(1, STRUCT, [(1, I32, 1)])]) == ["point", name]


def test_a_file_that_was_changed(tmp_path):
    path = tmp_path / "s.thrift"
    for name in ("before", "afterwards"):
        path.write_text("service S { void put(1: i32 %s) }" % name)
        assert names(path, "put", CALL, [(1, I32, 1)]) == [name]


def test_what_thriftpy2_leaves_open(tmp_path):
    path = tmp_path / "s.thrift"
    path.write_text("typedef list<P> Ps\nservice S { void put(1: Ps ps, 2: set<P> more) }\nstruct P { 1: i32 x }")
    listed = (STRUCT, [[(1, I32, 5)]])
    assert names(path, "put", CALL, [(1, LIST, listed), (2, SET, listed)]) == ["ps", "", "", "more", "", ""]


def test_an_idl_without_services(tmp_path):
    (tmp_path / "s.thrift").write_text("struct Point { 1: i32 x }")
    assert names(tmp_path / "s.thrift", "put", CALL, [(1, I32, 1)]) == [""]
    (tmp_path / "e.thrift").write_text("")
    assert names(tmp_path / "e.thrift", "put", EXCEPTION, [(2, I32, 1)]) == ["type"]


@pytest.mark.parametrize("text", [
    "struct", "struct Point { 1: i32 next }", "struct P { 1: Nowhere x }", "include \"nowhere.thrift\"", "\"", "\xff",
    "const i32 a = \"text\"", "struct P { 1: i32 x, 1: i32 y }", "include \"s.thrift\"", "service S extends Nowhere {}",
], ids=lambda text: repr(text[:40]))
def test_what_cannot_be_parsed(tmp_path, text):
    path = tmp_path / "s.thrift"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="s.thrift cannot be parsed") as raised:
        thrift.fields(messages_of(), idl=path)
    assert type(raised.value) is ValueError


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError):
        thrift.fields(messages_of(), idl=tmp_path / "nowhere.thrift")
    with pytest.raises(FileNotFoundError):
        thrift.fields(messages_of(), idl="https://localhost/nowhere.thrift")        # nothing is fetched
    (tmp_path / "folder.thrift").mkdir()
    with pytest.raises(IsADirectoryError):
        thrift.fields(messages_of(), idl=tmp_path / "folder.thrift")
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(ValueError, match="should end with .thrift"):
        thrift.fields(messages_of(), idl=tmp_path / "text.txt")


@pytest.mark.parametrize("idl", [5, object(), thrift], ids=lambda value: type(value).__name__)
def test_other_kinds_of_idl(idl):
    with pytest.raises(TypeError):
        thrift.fields(messages_of(), idl=idl)


def test_without_thriftpy2(calc):
    """A path needs it; the message says where it comes from."""
    program = ("import sys; sys.modules['thriftpy2'] = sys.modules['thriftpy2.parser'] = None\n"
               "from wirescan import thrift\n"
               f"try: thrift.fields(thrift.messages(thrift.scan(b'')), idl={str(calc)!r})\n"
               "except ImportError as error: print(error)")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "wirescan[thrift]" in ran.stdout
