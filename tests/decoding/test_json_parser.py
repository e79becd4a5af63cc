"""The parser checks few documents one by one. Tables and reasons are those of checking all."""

import json
import random
import re
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirescan.core.strings import ByteStrings
from wirescan.decoding import json_parser
from wirescan.decoding.json_lines import make_lines
from wirescan.decoding.json_misfits import Types

TYPES = pa.schema(
    [
        ("i", pa.int64()),
        ("small", pa.int8()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("ns", "UTC")),
        ("o", pa.struct([("s", pa.string()), ("l", pa.list_(pa.string()))])),
        ("l", pa.list_(pa.struct([("i", pa.int64())]))),
    ]
)
NO_STRINGS = pa.schema([TYPES.field(name) for name in ("i", "small", "d", "t", "l")])
GOOD = [
    b"{}",
    b'{"i":1,"small":2,"d":0.5,"s":"x","t":"2026-11-21T22:50:01Z","unknown":[{"i":"x"}]}',
    b'{"i":-22,"s":"a\\"b","o":{"s":"y","l":["z",null]},"l":[{"i":3},null,{}]}',
    b'{ "s" : null, "o": {"l": []}, "d": 7, "unknown": 1e400 }',
    b'{"i":null,"o":null,"unknown":1,"unknown":2}',
]
MISFITS = [
    b'{"i":1.5}',
    b'{"i":2.5}',
    b'{"i":"3"}',
    b'{"i":9223372036854775808}',
    b'{"small":300}',
    b'{"small":77}',  # good, with the shape of a misfit
    b'{"d":1e400}',
    b'{"t":"2026-02-30T00:00:00Z"}',
    b'{"t":"yesterday"}',
    b'{"s":1}',  # numbers in place of strings become text
    b'{"s":1.50,"i":4}',
    b'{"s":1.50,"i":4.5}',
    b'{"s":{"x":[1, true]}}',
    b'{"o":{"s":false,"l":[1,[],null,"x"]}}',
    b'{"o":{"l":["x",2]}}',
    b'{"o":[]}',
    b'{"l":[{"i":1},{"i":1.5}]}',
    b'{"l":{"i":1}}',
    b'{"s":5,"unknown":1,"unknown":2}',
    b'{"s":"\\ud800"}',
    b'{"unknown":"\\udc00"}',
    b'{"i":1,"i":2}',
    b'{"i":01}',
    b'{"i":1',
    b"[1]",
    b"null",
    None,
]
SEGMENT = 24  # members of the documents in a segment, here


def make_strings(line, kind):
    """Return a line with JSON text in place of the values at strings that are no strings.

    A number with a fraction is a marked string meanwhile, so that it keeps its digits.
    """

    def mark(digits):
        return f"\0{digits}\0"

    def dump(value, **options):
        return re.sub(r'"\\u0000(.*?)\\u0000"', r"\1", json.dumps(value, **options))

    def make_object(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    def convert(value, kind):
        if value is None:
            return None
        if pa.types.is_string(kind):
            as_text = dump(value, ensure_ascii=False, separators=(",", ":"))
            is_text = isinstance(value, str) and not value.startswith("\0")
            return value if is_text else as_text
        if isinstance(value, dict) and pa.types.is_struct(kind):
            types = {field.name: field.type for field in kind}
            return {
                name: convert(member, types[name]) if name in types else member
                for name, member in value.items()
            }
        if isinstance(value, list) and pa.types.is_list(kind):
            return [convert(item, kind.value_type) for item in value]
        return value

    try:
        value = json.loads(line, object_pairs_hook=make_object, parse_float=mark)
    except ValueError:
        return line
    converted = convert(value, kind)
    return line if converted == value else dump(converted).encode() + b"\n"


@cache
def parse_alone(line, types):
    """Return why the parser refuses a line, or None."""
    try:
        json_parser._read(line, types, "ignore")
    except pa.ArrowInvalid as error:
        return str(error).removeprefix("JSON parse error: ")
    return None


def parse_one_by_one(documents, types):
    """Return the table and the refused rows in order, with each document checked by itself."""
    text, bounds, weights, refusals = make_lines(ByteStrings(documents), 50, SEGMENT)
    refused = [(row, json_parser.REASONS[refusals[row]]) for row in np.flatnonzero(refusals)]
    lines = [bytes(text[start:stop]) for start, stop in pairwise(bounds.tolist())]
    lines = [make_strings(line, pa.struct(types)) for line in lines]
    for start, stop in pairwise(json_parser._list_segment_bounds(weights)):
        fields = Types(types, types, infers=False)
        reasons = {row: fields.find_misfit(lines[row]) for row in range(start, stop)}
        # First come those that the check finds, then those that only the parser finds.
        late = [row for row, reason in reasons.items() if reason is None]
        found = [item for item in reasons.items() if item[1] is not None]
        found += [(row, parse_alone(lines[row], types)) for row in late]
        for row, reason in found:
            if reason is not None:
                refused.append((row, reason))
                lines[row] = b"{}\n"
    return json_parser._read(b"".join(lines), types, "ignore"), refused


def check(documents, types):
    refused = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_parser, "HEAVIEST", SEGMENT)
        table = json_parser.parse_documents(
            ByteStrings(documents), types, lambda *both: refused.append(both), infers=False
        )
        expected, expected_refused = parse_one_by_one(documents, types)
    table.validate(full=True)
    assert table.equals(expected)
    assert [row for row, _ in refused] == [row for row, _ in expected_refused]
    for (_, reason), (_, expected_reason) in zip(refused, expected_refused):
        # The parser's own messages end with a row, which depends on what it parses.
        assert reason.split(" in row ")[0] == expected_reason.split(" in row ")[0]


@pytest.mark.parametrize("types", [TYPES, NO_STRINGS], ids=["strings", "no strings"])
@pytest.mark.parametrize("misfit", MISFITS, ids=repr)
def test_a_misfit_at_any_place(misfit, types):
    for rows in ([0], [39], [10, 20, 21], range(15, 40), range(40)):
        documents = [GOOD[row % len(GOOD)] for row in range(40)]
        for row in rows:
            documents[row] = misfit
        check(documents, types)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1])
def test_many_misfits(share):
    choice = random.Random(share)
    for types in (TYPES, NO_STRINGS):
        for _ in range(3):
            documents = [
                choice.choice(MISFITS if choice.random() < share else GOOD) for _ in range(100)
            ]
            check(documents, types)


@given(
    st.lists(st.sampled_from(GOOD + MISFITS), min_size=1, max_size=60),
    st.sampled_from([TYPES, NO_STRINGS]),
)
def test_any_documents(documents, types):
    check(documents, types)


# ---- cost


def count_checks(documents, monkeypatch):
    """Return how many documents are checked one by one, and how many calls the parser has."""
    checked = []
    calls = []
    find_misfit = Types.find_misfit
    read = json_parser._read
    monkeypatch.setattr(
        Types, "find_misfit", lambda *arguments: checked.append(1) or find_misfit(*arguments)
    )
    monkeypatch.setattr(
        json_parser, "_read", lambda *arguments: calls.append(1) or read(*arguments)
    )
    json_parser.parse_documents(
        ByteStrings(documents), TYPES, lambda row, reason: None, infers=False
    )
    return len(checked), len(calls)


def test_documents_far_from_a_misfit_are_not_checked(monkeypatch):
    documents = [b'{"i":%d,"s":"x"}' % i for i in range(30_000)]
    documents[20_000] = b'{"i":1.5}'
    checked, _ = count_checks(documents, monkeypatch)
    # A segment has 8,192 objects and members, so it has at most 2,731 of these documents.
    assert 0 < checked <= 2731


def test_a_shape_is_converted_once(monkeypatch):
    calls = []
    make_strings = json_parser._make_strings
    monkeypatch.setattr(
        json_parser, "_make_strings", lambda *both: calls.append(1) or make_strings(*both)
    )
    documents = [b'{"i":%d,"s":"x"}' % i for i in range(2000)]
    count_checks([*documents, b'{"s":1}', b'{"s":2}'], monkeypatch)
    # Numbers of other lengths have the same shape. Lines that change are converted each.
    assert len(calls) == 3


def test_segments_that_all_fail_are_tried_seldom(monkeypatch):
    documents = [b'{"i":1.5,"s":"x"}'] * 30_000
    checked, calls = count_checks(documents, monkeypatch)
    segments = 11
    assert checked == len(documents)
    # One call for all documents at once, one at the end, and one for each segment.
    assert calls - segments - 2 <= 4
