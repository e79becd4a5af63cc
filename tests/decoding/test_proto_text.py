"""The text of .proto files as descriptors. tests/peers/test_proto_text.py compares with protoc."""

import time

import pytest
from google.protobuf import descriptor_pb2

from tests.support.proto_texts import NEW, OLD
from tests.support.protobuf_listing import list_contents, resolve
from tests.support.slowness import SLOWNESS
from wirescan.decoding.proto_text import DEEPEST, MOST_BYTES, parse_proto

OLD_CONTENTS = r"""imports google/protobuf/timestamp.proto google/protobuf/any.proto
enum a.b.c.Color NONE=0 RED=1 BLUE=-2 AZURE=-2
message a.b.c.Outer
  10 double_ 1 required present default -1500.0
  9 float_ 2 present default inf
  1 n 3 present default -16
  2 s 9 present default "héA'é"
  3 raw 12 present default b'a\xff"\x00'
  4 b 8 present default True
  5 packed 17 repeated packed
  6 color 14 a.b.c.Color present default -2
  7 leaf 11 a.b.c.Outer.Inner.Leaf present
  8 pair 10 a.b.c.Outer.Pair repeated
  12 some_colors 11 a.b.c.Outer.SomeColorsEntry repeated
  13 text 9 present in choice
  14 chosen 10 a.b.c.Outer.Chosen present in choice
  message a.b.c.Outer.Pair
    1 message 5 required present
    2 deep 10 a.b.c.Outer.Pair.Deep present
    message a.b.c.Outer.Pair.Deep
  message a.b.c.Outer.Chosen
    1 x 12 present
  message a.b.c.Outer.Inner
    1 e 14 a.b.c.Outer.Inner.E present
    2 outer 11 a.b.c.Outer present
    enum a.b.c.Outer.Inner.E Z=0
    message a.b.c.Outer.Inner.Leaf
  message a.b.c.Outer.Added
    1 y 5 present
  message a.b.c.Outer.Last
  entry a.b.c.Outer.SomeColorsEntry
    1 key 9 present
    2 value 14 a.b.c.Color present
message a.b.c.Top
  1 z 5 present
message a.b.c.After
  1 counts 11 a.b.c.After.CountsEntry repeated
  entry a.b.c.After.CountsEntry
    1 key 9 present
    2 value 5 present
  message a.b.c.After.Last
"""
NEW_CONTENTS = """imports
enum E NONE=0
message M
  1 by_id 11 M.ByIdEntry repeated
  2 a 5 present in _a
  3 c 5 present in _b
  4 b 9 present in X_b
  5 plain 5 repeated
  6 nested 11 M.Nested repeated
  7 optional 13
  8 message 7
  9 syntax 6
  10 map 15
  11 rpc 16
  12 u 4
  13 v 18
  message M.Nested
    1 only 8 present in _only
  entry M.ByIdEntry
    1 key 5
    2 value 11 M present
"""


def parse(text):
    file = descriptor_pb2.FileDescriptorProto.FromString(parse_proto(text))
    file.name = "text"
    return file


@pytest.mark.parametrize("text, contents", [(OLD, OLD_CONTENTS), (NEW, NEW_CONTENTS)])
def test_contents(text, contents):
    """protoc has these contents too, but has the entries of maps elsewhere."""
    file = parse(text)
    assert list_contents(resolve(file)) == contents.splitlines()
    assert list_contents(resolve(parse(text.replace("\n", "\r\n")))) == contents.splitlines()


def test_imports_and_the_package():
    file = parse(OLD)
    assert file.package == "a.b.c"
    assert file.dependency == ["google/protobuf/timestamp.proto", "google/protobuf/any.proto"]
    assert file.public_dependency == [0]
    assert [item.end for item in file.message_type[0].extension_range] == [101, 300, 1 << 29]


def test_an_empty_text_is_a_file():
    assert parse("").syntax == parse(" // nothing").syntax == ""
    assert parse('syntax = "proto3";').syntax == "proto3"


def test_a_mark_of_the_byte_order_may_be_first():
    assert parse("\ufeff" + NEW) == parse(NEW)


def test_pairs_of_utf_16_are_one_character():
    """protoc joins them too, in both cases."""
    file = parse(
        r'import "\ud83d\ude00"; message M { optional bytes a = 1 [default = "\uD83D\uDE00"]; }'
    )
    assert file.dependency == ["\U0001f600"]
    assert file.message_type[0].field[0].default_value == r"\360\237\230\200"


BAD = {
    "a word": ("\nhello", "line 2 of the .proto file: 'hello' instead of a definition"),
    "a character": ("message M {}\n\n?", "line 3 of the .proto file: '?' is not expected"),
    "a cut message": ("message M {", "'the end' instead of a name"),
    "a cut option": ("option x = {", "'the end' instead of a word"),
    "a cut service": ("service S { rpc", "'the end' instead of a word"),
    "a cut comment": ("message M {} /* ", "the comment has no end"),
    "a cut string": ('import "x', "is not expected"),
    "a string of two lines": ('import "x\n";', "is not expected"),
    "no number": ("message M { int32 a; }", "';' instead of '='"),
    "a fraction": ("message M { int32 a = 1.5; }", "'1.5' instead of an integer"),
    "a bad octal number": ("message M { int32 a = 08; }", "'08' instead of an integer"),
    "a large number": ("message M { int32 a = 99999999999; }", ""),
    "endless digits": (f"message M {{ int32 a = {'9' * 9999}; }}", "instead of an integer"),
    "a bad escape": (r'import "\q";', r"the escape \q"),
    "half a pair": (
        '\nimport "a" "\\ud800";',
        "line 2 of the .proto file: a string has the escape",
    ),
    "two first halves": (r'import "\ud800\ud800";', r"the escape \ud800\ud800"),
    "half a pair in 32 bits": (r'import "\U0000d800";', r"the escape \U0000d800"),
    "a character too far": (r'import "\UFFFFFFFF";', r"the escape \UFFFFFFFF"),
    "no UTF-8": (
        r'import "\377";',
        r"""line 1 of the .proto file: '"\\377"' instead of text in UTF-8""",
    ),
    "a default that is no UTF-8": (
        '\nmessage M { optional string a = 1 [default = "\\xe9"]; }',
        r"""line 2 of the .proto file: '"\\xe9"' instead of text in UTF-8""",
    ),
    "a surrogate": ('\nimport "\ud800";', "line 2 of the .proto file: "),
    "another letter": ("message \xe9 {}", "is not expected"),
    "an edition": ('edition = "2023"; message M {}', "editions are not supported"),
    "another syntax": ('syntax = "proto9";', "the syntax of the .proto file is 'proto9'"),
    "text before the syntax": ('package p; syntax = "proto3";', "'syntax' instead of a definition"),
    "too deep": ("message M {" * 999, f"nested more than {DEEPEST} levels"),
    "deep groups": ("message M { optional group G = 1 {" * 999, ""),
    "JSON": ('{"type": "record"}', "instead of a definition"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_texts_are_refused(name):
    text, message = BAD[name]
    with pytest.raises(ValueError) as error:
        parse_proto(text)
    assert message in str(error.value)
    assert len(str(error.value)) < 200


REPEATED = [
    *("/*", "//", '"', "\\", "'\\", "{", "[", "(", ";", "1.", ".", "a ", " "),
    *("message M{", "message M{}", "message M{reserved ", "message M{int32 a=1[", "option a=["),
    *("enum E{A=1;}", "import 'a' "),
]


@pytest.mark.parametrize("first, part", [*(("", part) for part in REPEATED), ("import ", "'a'")])
def test_hostile_text_has_linear_cost(first, part):
    start = time.process_time()
    try:
        parse_proto(first + part * ((MOST_BYTES - len(first)) // len(part)))
    except ValueError as error:
        assert len(str(error)) < 200
    assert time.process_time() - start < 20 * SLOWNESS
    with pytest.raises(ValueError, match="at most"):
        parse_proto(" " * (MOST_BYTES + 1))
