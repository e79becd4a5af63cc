"""Names of fields from an IDL: thrift.fields(messages, idl=...), in both protocols."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import thriftpy2
from thriftpy2.protocol.binary import write_val
from thriftpy2.thrift import TType
from thriftpy2.transport import TMemoryBuffer

from tests.reference.thrift_payload import BOOL, DOUBLE, I32, I64, LIST, MAP, SET, STRING, STRUCT
from tests.strategies.thrift import (
    apply_transforms,
    make_framed,
    make_header_frame,
    make_message,
    make_struct,
)
from tests.support.slowness import SLOWNESS
from wirescan import FrameError, thrift
from wirescan.thrift.idl import add_names, load_module

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
service Store {
    void put(1: shared.Place place),
    i32 same(1: i32 one), i32 other(1: i32 two), string half(1: i32 one)
}
"""
ADD = make_struct([(1, I32, 1), (2, I32, 2)], 0)


@pytest.fixture
def calc(tmp_path):
    (tmp_path / "shared.thrift").write_text(SHARED)
    (tmp_path / "calc.thrift").write_text(CALC)
    return tmp_path / "calc.thrift"


def scan_messages(*raws):
    return thrift.messages(thrift.scan(b"".join(map(make_framed, raws))))


def read_names(idl, method, type, struct, version=0, **options):
    """Return the names of all fields of one message, in the order of the wire.

    A field without a name has an empty string.
    """
    raw = make_message(method.encode(), int(type), 1, make_struct(struct, version), version)
    table = thrift.fields(scan_messages(raw), idl=idl, **options)
    return [name.decode() for name in table["name"].tolist()]


NODE = [(1, I32, 5), (2, STRUCT, [(-1, STRING, b"z"), (32767, STRING, b"\xff")])]
NODE_NAMES = ["value", "after", "below", "data"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fields_have_names(calc, version):
    def read(method, type, struct):
        return read_names(calc, method, type, struct, version)

    assert read("add", CALL, [(1, I32, 1), (2, I32, 2), (3, I32, 3)]) == ["a", "b", ""]
    assert read("add", REPLY, [(0, I32, 3)]) == ["success"]
    bad = [(1, STRUCT, [(1, STRING, b"w"), (2, STRUCT, NODE)])]
    assert read("add", REPLY, bad) == ["bad", "why", "node", *NODE_NAMES]
    exception = [(1, STRING, b"unknown"), (2, I32, 1)]
    assert read("add", EXCEPTION, exception) == ["message", "type"]
    assert read("unheard", EXCEPTION, exception) == ["message", "type"]
    assert read("unheard", CALL, [(1, I32, 1)]) == [""]
    assert read("ping", CALL, []) == []
    assert read("ping", REPLY, []) == []
    # An inherited method. Its struct is declared after its use.
    point = [(1, DOUBLE, 0.5), (2, DOUBLE, 1.0)]
    place = [(0, STRUCT, [(1, STRING, b"t"), (2, STRUCT, point)])]
    assert read("where", REPLY, place) == ["success", "town", "point", "x", "y"]


@pytest.mark.parametrize("version", [0, 1])
def test_fields_in_containers_have_names(calc, version):
    either = (LIST, (SET, [(STRUCT, [[(1, I32, 1)], [(2, STRING, b"s")]])]))
    deep = (MAP, (STRUCT, LIST, [(NODE, either[1])]))
    names = read_names(calc, "log", ONEWAY, [(1, *deep), (2, I32, 1), (3, BOOL, True)], version)
    in_map = ["", *NODE_NAMES, "", "", "", "number", "", "text"]
    assert names == ["deep", *in_map, "color", "flag"]
    table = (MAP, (STRING, LIST, [(b"k", (STRUCT, [NODE]))]))
    names = read_names(calc, "table", REPLY, [(0, *table)], version)
    assert names == ["success", "", "", "", *NODE_NAMES]
    lists = (LIST, (LIST, [(STRUCT, [NODE, []]), (STRUCT, [])]))
    names = read_names(calc, "table", CALL, [(1, *table), (2, *lists)], version)
    in_lists = ["", "", *NODE_NAMES, "", ""]
    assert names == ["table", "", "", "", *NODE_NAMES, "nodes", *in_lists]


def test_names_up_to_a_depth(calc):
    table = (MAP, (STRING, LIST, [(b"k", (STRUCT, [NODE]))]))
    for depth, count in zip(range(1, 7), (1, 3, 4, 6, 8, 8)):
        names = read_names(calc, "table", CALL, [(1, *table)], depth=depth)
        assert names == ["table", "", "", "", *NODE_NAMES][:count]


@pytest.mark.parametrize(
    "struct",
    [[(1, I64, 1)], [(1, STRING, b"1")], [(1, STRUCT, [(1, I32, 1)])], [(1, LIST, (I32, [1]))]],
    ids=repr,
)
def test_a_field_of_another_type_has_no_name(calc, struct):
    """Readers skip such a field. The fields inside have no names either."""
    assert set(read_names(calc, "add", CALL, struct)) == {""}


def test_fields_in_elements_of_another_type_have_no_names(calc):
    names = read_names(calc, "table", CALL, [(2, LIST, (STRUCT, [[(1, I32, 1)]]))])
    assert names == ["nodes", "", ""]


# ---- services


@pytest.mark.parametrize(
    "method, type, expected",
    [
        ("same", CALL, "one"),
        ("same", REPLY, "success"),  # equal in both services
        ("other", CALL, ""),
        ("other", REPLY, "success"),  # only the results are equal
        ("half", CALL, "one"),
        ("half", REPLY, ""),  # only the arguments are equal
        ("Calc:other", CALL, "one"),
        ("Store:other", CALL, "two"),
        ("Store:same", ONEWAY, "one"),
        ("Store:add", CALL, ""),  # Store has no such method
        ("calculator:add", CALL, "a"),
        ("calculator:other", CALL, ""),
        (":add", CALL, "a"),  # the IDL has no such service
        ("Cal:other", CALL, ""),
        ("Calc::other", CALL, ""),
        ("Base:ping", CALL, ""),
        ("Base:where", CALL, "id"),
        ("ad", CALL, ""),
        ("addd", CALL, ""),
        ("add\0", CALL, ""),
        ("Add", CALL, ""),
        ("", CALL, ""),
    ],
)
def test_the_method_selects_the_service(calc, method, type, expected):
    id = 0 if type == REPLY else 1
    assert read_names(calc, method, type, [(id, I32, 1)]) == [expected]


def test_fields_of_many_messages_have_names(calc):
    """Both protocols, with and without compression, in several buffers."""
    methods = (b"add", b"Store:put", b"unheard", b"table")
    names = ([b"a"], [b"place", b"town"], [b""], [b""])

    def stream(count):
        for i in range(count):
            version = i % 3
            method = methods[i % 4]
            field = (i % 2 + 1, I32, i)
            if method == b"Store:put":
                field = (1, STRUCT, [(1, STRING, b"t")])
            payload = make_message(method, 1, i, make_struct([field], version), version)
            ids = [[], [1], [5, 1]][i % 5 % 3]
            yield make_header_frame(
                apply_transforms(payload, ids), transforms=ids, protocol=2 if version else 0
            )

    buffers = [b"".join(stream(count)) for count in (100, 0, 57)]
    fields = thrift.fields(thrift.messages(thrift.scan(buffers)), idl=calc)
    expected = [name for count in (100, 57) for i in range(count) for name in names[i % 4]]
    assert fields["name"].tolist() == expected


def test_names_and_values_equal_those_of_thriftpy2(calc):
    # thriftpy2 keeps modules by name, and derives the name of an included file from this one.
    module = thriftpy2.load(str(calc), module_name="oracle_calc_thrift")
    arguments = module.Calc.add_args(a=7, b=-7)
    memory = TMemoryBuffer()
    write_val(memory, TType.STRUCT, arguments)
    fields = thrift.fields(scan_messages(make_message(b"add", 1, 1, memory.getvalue())), idl=module)
    assert dict(zip(fields["name"].tolist(), fields["integer"].tolist())) == {
        name.encode(): value for name, value in vars(arguments).items()
    }


# ---- tables


def test_the_table_has_a_column_of_names(calc):
    plain = thrift.fields(scan_messages(make_message(b"add", 1, 1, ADD)))
    table = add_names(plain, calc)
    assert table.dtype.names == (*thrift.FIELD.names, "name")
    assert table.dtype["name"] == "S8"
    assert table.dtype.itemsize == thrift.FIELD.itemsize + 8
    assert not table.rows.flags.writeable
    assert all((table[name] == plain[name]).all() for name in thrift.FIELD.names)
    assert table.buffers == plain.buffers
    assert table.outer == plain.outer
    assert table.format == plain.format
    assert [row.name for row in table] == [b"a", b"b"]
    assert "name" not in plain.dtype.names
    assert table[1].value == b"\0\0\0\2"


def test_tables_without_rows_are_accepted(calc):
    for table in (
        thrift.fields(scan_messages(), idl=calc),
        thrift.fields(scan_messages(make_message(b"add")), idl=calc),
    ):
        assert len(table) == 0
        assert table.dtype["name"] == "S8"


def test_bad_messages_have_no_names(calc):
    begin = make_framed(b"\x80\x01\0\1")
    cut = make_framed(make_message(b"add", 1, 1, ADD[:10]))
    good = make_framed(make_message(b"add", 1, 1, ADD))
    frames = thrift.scan(begin + cut + good, errors="mark")
    messages = thrift.messages(frames, errors="mark")
    fields = thrift.fields(messages, idl=calc, errors="mark")
    assert fields["name"].tolist() == [b"", b"a", b"", b"a", b"b"]
    assert fields.bad.tolist() == [True, False, True, False, False]
    assert thrift.fields(messages, idl=calc, errors="skip")["name"].tolist() == [b"a", b"a", b"b"]
    with pytest.raises(FrameError, match="TRUNCATED"):
        thrift.fields(messages, idl=calc, errors="strict")


def test_fields_around_damage_keep_their_names(calc):
    struct = make_struct([(1, STRUCT, [(1, STRING, b"why"), (2, STRUCT, NODE)])], 0)
    raw = make_message(b"add", 2, 1, struct[:-8])
    fields = thrift.fields(scan_messages(raw), idl=calc, errors="mark")
    assert fields["name"].tolist() == [b"bad", b"why", b"node", b"value", b"after", b"below", b""]
    assert fields.bad.tolist() == [True, False, True, False, True, False, True]


def test_names_need_all_rows(calc):
    struct = make_struct([(1, STRUCT, [(1, STRING, b"why")])], 0)
    fields = thrift.fields(scan_messages(make_message(b"add", 2, 1, struct)))
    with pytest.raises(ValueError, match="names need all of them"):
        add_names(fields[1:], calc)
    rows = fields.rows.copy()
    rows["depth"][1:] = 3  # the row around has depth 1
    with pytest.raises(ValueError, match="names need all of them"):
        add_names(replace(fields, rows=rows), calc)


def test_other_tables_are_rejected(calc):
    struct = make_struct([(1, STRUCT, [(1, STRING, b"why")])], 0)
    fields = thrift.fields(scan_messages(make_message(b"add", 2, 1, struct)))
    with pytest.raises(TypeError, match="not thrift.messages"):
        add_names(fields.outer, calc)
    with pytest.raises(TypeError, match="not thrift.fields"):
        add_names(add_names(fields, calc), calc)
    with pytest.raises(TypeError, match="a table of thrift.fields, not NoneType"):
        add_names(None, calc)


def test_invalid_rows_give_an_error_or_names(calc):
    """Rows may come from a user. They give ValueError or names."""
    struct = make_struct([(1, STRUCT, [(1, STRING, b"why"), (2, STRUCT, NODE)])], 0)
    fields = thrift.fields(scan_messages(make_message(b"add", 2, 1, struct)))
    chance = np.random.default_rng(1)
    for table in (fields, fields.outer):
        for _ in range(400):
            rows = table.rows.copy()
            flat = rows.view(np.uint8).reshape(-1)
            flat[chance.integers(0, len(flat), 3)] = chance.integers(0, 256, 3)
            forged = replace(table, rows=rows)
            forged_fields = forged if table is fields else replace(fields, outer=forged)
            with suppress(ValueError):
                add_names(forged_fields, calc)


# ---- files


def test_every_form_of_a_path(calc, monkeypatch):
    monkeypatch.chdir(calc.parent)
    for path in (calc, str(calc), os.fsencode(calc), "calc.thrift"):
        assert read_names(path, "add", CALL, [(1, I32, 1)]) == ["a"]


def test_files_of_equal_names(tmp_path, monkeypatch):
    """The file and the files that it includes come from the current folder."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shared.thrift").write_text(f"struct Point {{ 1: i32 {name} }}")
        (tmp_path / name / "calc.thrift").write_text(
            'include "shared.thrift"\nservice S { void put(1: shared.Point point) }'
        )
    for name in ("one", "two", "one"):
        monkeypatch.chdir(tmp_path / name)
        names = read_names("calc.thrift", "put", CALL, [(1, STRUCT, [(1, I32, 1)])])
        assert names == ["point", name]


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "s.thrift"
    for name in ("before", "afterwards"):
        path.write_text(f"service S {{ void put(1: i32 {name}) }}")
        assert read_names(path, "put", CALL, [(1, I32, 1)]) == [name]


def test_elements_of_a_struct_that_is_declared_later(tmp_path):
    """thriftpy2 does not resolve the element types of such lists and sets."""
    path = tmp_path / "s.thrift"
    path.write_text(
        "typedef list<P> Ps\n"
        "service S { void put(1: Ps ps, 2: set<P> more) }\n"
        "struct P { 1: i32 x }"
    )
    elements = (STRUCT, [[(1, I32, 5)]])
    names = read_names(path, "put", CALL, [(1, LIST, elements), (2, SET, elements)])
    assert names == ["ps", "", "", "more", "", ""]


@pytest.mark.parametrize(
    "text, name",
    [
        ('const string x = "ab"\nservice S { void put(1: list<x> a) }', "a"),
        ("service x {}\nservice S { void put(1: list<x> a) }", "a"),
        ("struct P {}\nconst P x = {}\nservice S { void put(1: x a) }", ""),
        ("service S { void put(1: __name__ a, 2: list<__dict__> b) }", ""),
    ],
    ids=("a text", "a service", "a struct", "a name of Python"),
)
def test_names_that_are_for_no_type(tmp_path, text, name):
    """thriftpy2 does not check what the name of a type is for."""
    path = tmp_path / "s.thrift"
    path.write_text(text)
    elements = [(1, LIST, (I32, [5]))]
    assert read_names(path, "put", CALL, elements) == [name, ""]
    raw = make_message(b"put", int(CALL), 1, make_struct(elements, 0))
    assert thrift.call_text(scan_messages(raw), idl=path) == [f"put({name or 1}: [5])"]


def test_a_field_number_that_cannot_be_written_names_no_field(tmp_path):
    path = tmp_path / "s.thrift"
    path.write_text("service S { void put(65537: i32 a, -65535: i32 b, 32768: i32 c, 2: i32 d) }")
    fields = [(1, I32, 5), (-32768, I32, 5), (2, I32, 5)]
    assert read_names(path, "put", CALL, fields) == ["", "", "d"]


def test_many_services_take_linear_time(tmp_path):
    path = tmp_path / "s.thrift"
    count = 1000
    path.write_text("".join(f"service S{i} {{ void put{i}(1: i32 a{i}) }}" for i in range(count)))
    module = load_module(path)
    start = time.process_time()
    assert read_names(module, "S7:put7", CALL, [(1, I32, 5)]) == ["a7"]
    assert read_names(module, "S8:put7", CALL, [(1, I32, 5)]) == [""]
    assert read_names(module, "put999", CALL, [(1, I32, 5)]) == ["a999"]
    assert time.process_time() - start < 1 * SLOWNESS


def test_typedefs_that_use_others_several_times_take_linear_time(tmp_path):
    """Written out, the last type has 2**60 parts. Two such types are compared."""
    path = tmp_path / "s.thrift"
    text = ""
    for name in "AB":
        text += f"typedef list<i32> {name}0\n"
        text += "".join(f"typedef map<{name}{i}, {name}{i}> {name}{i + 1}\n" for i in range(60))
        text += f"service {name} {{ void put(1: {name}60 a) }}\n"
    path.write_text(text)
    start = time.process_time()
    assert read_names(path, "put", CALL, [(1, MAP, (I32, I32, []))]) == ["a"]
    raw = make_message(b"put", int(CALL), 1, make_struct([(1, MAP, (I32, I32, []))], 0))
    assert thrift.call_text(scan_messages(raw), idl=path) == ["put(a: map{})"]
    assert time.process_time() - start < 5 * SLOWNESS


def test_containers_that_are_nested_deeply(tmp_path):
    path = tmp_path / "s.thrift"
    deep = "list<" * 5000 + "i32" + ">" * 5000
    path.write_text(f"service S {{ void put(1: {deep} a) }} service T {{ void put(1: {deep} a) }}")
    elements = [(1, LIST, (I32, [5]))]
    assert read_names(path, "put", CALL, elements) == ["a", ""]
    raw = make_message(b"put", int(CALL), 1, make_struct(elements, 0))
    assert thrift.call_text(scan_messages(raw), idl=path) == ["put(a: [5])"]


def test_an_idl_without_services(tmp_path):
    (tmp_path / "s.thrift").write_text("struct Point { 1: i32 x }")
    assert read_names(tmp_path / "s.thrift", "put", CALL, [(1, I32, 1)]) == [""]
    (tmp_path / "e.thrift").write_text("")
    assert read_names(tmp_path / "e.thrift", "put", EXCEPTION, [(2, I32, 1)]) == ["type"]


@pytest.mark.parametrize(
    "text",
    [
        "struct",
        "struct Point { 1: i32 next }",
        "struct P { 1: Nowhere x }",
        'include "nowhere.thrift"',
        '"',
        "\xff",
        'const i32 a = "text"',
        "struct P { 1: i32 x, 1: i32 y }",
        'include "s.thrift"',
        "service S extends Nowhere {}",
        'const string x = "a"\nstruct P { 1: x a }',
    ],
    ids=lambda text: repr(text[:40]),
)
def test_an_invalid_idl_is_refused(tmp_path, text):
    path = tmp_path / "s.thrift"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="s.thrift cannot be parsed") as raised:
        thrift.fields(scan_messages(), idl=path)
    assert type(raised.value) is ValueError


def test_a_failure_of_thriftpy2_names_the_line(tmp_path):
    path = tmp_path / "s.thrift"
    path.write_text('const string x = "a"\nstruct P {\n1: x a }')
    with pytest.raises(ValueError, match="thriftpy2 fails at or before line 3, .*IndexError: "):
        thrift.fields(scan_messages(), idl=path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file.*nowhere.thrift"):
        thrift.fields(scan_messages(), idl=tmp_path / "nowhere.thrift")
    with pytest.raises(FileNotFoundError, match="No such file.*nowhere.thrift"):
        # A URL is not downloaded.
        thrift.fields(scan_messages(), idl="https://localhost/nowhere.thrift")
    (tmp_path / "folder.thrift").mkdir()
    with pytest.raises(IsADirectoryError, match="Is a directory.*folder.thrift"):
        thrift.fields(scan_messages(), idl=tmp_path / "folder.thrift")
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(ValueError, match="should end with .thrift"):
        thrift.fields(scan_messages(), idl=tmp_path / "text.txt")


@pytest.mark.parametrize("idl", [5, object(), thrift], ids=lambda value: type(value).__name__)
def test_other_types_of_idl_are_rejected(idl):
    message = "must be a path or a module of thriftpy2|not a module that thriftpy2"
    with pytest.raises(TypeError, match=message):
        thrift.fields(scan_messages(), idl=idl)


def test_a_path_needs_thriftpy2(calc):
    """A path needs thriftpy2. The message names the extra that installs it."""
    program = (
        "import sys; sys.modules['thriftpy2'] = sys.modules['thriftpy2.parser'] = None\n"
        "from wirescan import thrift\n"
        f"try: thrift.fields(thrift.messages(thrift.scan(b'')), idl={str(calc)!r})\n"
        "except ImportError as error: print(error)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "wirescan[thrift]" in done.stdout
