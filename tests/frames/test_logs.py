"""The names of segments (`SegmentNames`)."""

import pytest

from wirescan.frames.logs import SegmentName, SegmentNames

NAMES = SegmentNames(digits=4, suffix=".seg")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("0012.seg", SegmentName("", 12)),
        ("logs/a-0/0012.seg", SegmentName("logs/a-0/", 12)),
        ("x\n0012.seg", SegmentName("x\n", 12)),
        ("90012.seg", SegmentName("9", 12)),
        ("0012.log", None),
        ("0012.seg\n", None),
        ("012.seg", None),
        ("٠٠١٢.seg", None),
        (".seg", None),
        ("eg", None),
        ("", None),
    ],
)
def test_parts_of_a_path(path, expected):
    assert NAMES.parse(path) == expected


def test_a_path_is_made_of_its_parts():
    assert NAMES.make_path("logs/a-0/", 12) == "logs/a-0/0012.seg"
    assert NAMES.parse(NAMES.make_path("a/", 7)) == SegmentName("a/", 7)
