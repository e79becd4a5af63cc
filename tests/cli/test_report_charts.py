"""The charts of `wirescan report` as JSON for Plotly, and what bounds the page's scripts."""

import base64
import hashlib
import json

import pytest

from wirescan.cli.support.report_charts import (
    FIRST_DATE,
    LAST_DATE,
    SHOWN_BARS,
    MapRange,
    chart_codecs,
    chart_directories,
    chart_keys,
    chart_latencies,
    chart_rate,
    chart_sizes,
    choose_colours,
    list_ranges,
    quote_text,
)
from wirescan.cli.support.report_numbers import (
    DirectoryCounts,
    FileMap,
    FrequentKey,
    SizeBucket,
    TimeBucket,
)
from wirescan.cli.support.report_scripts import encode_json, load_plotly, make_policy

TIMES = {"min": 100, "median": 2_000, "p95": 30_000, "p99": 30_000, "max": 900_000}


def test_text_has_no_tag_and_no_entity() -> None:
    assert quote_text("<b>a&lt;\"'") == "&lt;b&gt;a&amp;lt;\"'"


def test_neighbouring_buckets_are_one_range_that_ends_with_the_file() -> None:
    file_map = FileMap("a", 16, [0, 0, 1, 0], {"good": 40, "zeros": 20})
    assert list_ranges(file_map) == [
        MapRange(0, 32, "good"),
        MapRange(32, 48, "zeros"),
        MapRange(48, 60, "good"),
    ]
    assert list_ranges(FileMap("a", 1, [], {})) == []


def test_categories_have_colours_that_differ() -> None:
    names = ["zeros", "good, gzip", "good, lz4", "good, not compressed", "control"]
    colours = choose_colours([FileMap("a", 1, [], dict.fromkeys(names, 1))])
    assert list(colours) == sorted(names)
    assert len(set(colours.values())) == len(names)


@pytest.mark.parametrize(
    ("start", "axis"),
    [
        (1_700_000_000_000, "date"),
        (FIRST_DATE, "date"),
        (FIRST_DATE - 1, "linear"),
        (LAST_DATE - 4, "date"),
        (LAST_DATE - 3, "linear"),
        (2**62, "linear"),
    ],
)
def test_times_that_plotly_has_no_dates_for_are_numbers(start: int, axis: str) -> None:
    chart = chart_rate([TimeBucket(start, 7)], 4, "records", "")
    assert chart.layout["xaxis"]["type"] == axis
    assert chart.traces[0]["x"] == [start]


def test_texts_below_the_sizes_are_few() -> None:
    buckets = [SizeBucket((1 << n) >> 1, (1 << n) - 1, n) for n in range(30)]
    axis = chart_sizes(buckets, "").layout["xaxis"]
    assert axis["tickvals"] == list(range(0, 30, 3))
    assert axis["ticktext"][:3] == ["0", "4", "32"]


def test_a_codec_whose_decompressed_bytes_are_not_known_has_no_bar_for_them() -> None:
    codecs = {"gzip": {"bytes": 1}, "lz4": {"bytes": 2, "inflated_bytes": 3}}
    bars, decompressed = chart_codecs(codecs, "").traces
    assert (bars["x"], decompressed["x"]) == ([1, 2], [None, 3])
    (bars,) = chart_codecs({"gzip": {"bytes": 1}}, "").traces
    assert bars["x"] == [1]


def test_codecs_are_at_most_20_bars() -> None:
    (trace,) = chart_codecs({str(n): {"bytes": n} for n in range(256)}, "").traces
    assert trace["x"] == list(range(SHOWN_BARS))


def test_a_key_has_a_line_to_its_highest_count() -> None:
    keys = [FrequentKey("61", 20, 3), FrequentKey("62", 10, 3)]
    (trace,) = chart_keys(keys, ["a" * 99, "a" * 98], "").traces
    assert trace["x"] == [20, 10]
    assert trace["y"] == [0, 1]  # keys whose short texts are equal have rows of their own
    assert trace["error_x"]["array"] == [3, 3]
    assert trace["error_x"]["arrayminus"] == [0, 0]


def test_the_largest_directories_have_bars() -> None:
    directories = [DirectoryCounts(f"/logs/{'x' * 100}-{n}", bytes=n) for n in range(99, 0, -1)]
    chart = chart_directories(directories, "")
    assert chart.traces[0]["x"] == list(range(99, 99 - SHOWN_BARS, -1))
    assert chart.layout["yaxis"]["ticktext"][0].endswith("x-99")


def test_times_have_round_ticks() -> None:
    chart = chart_latencies({"a": {"ns": TIMES}, "b": {"ns": None}}, "")
    assert chart is not None
    assert chart.layout["yaxis"]["ticktext"] == ["a"]
    axis = chart.layout["xaxis"]
    assert axis["type"] == "log"
    assert axis["ticktext"] == ["100 ns", "1 us", "10 us", "100 us", "1 ms"]
    near = chart_latencies({"a": {"ns": dict.fromkeys(TIMES, 1500)}}, "")
    assert near is not None
    assert near.layout["xaxis"]["ticktext"] == ["1 us", "2 us", "5 us", "10 us", "20 us", "50 us"]


def test_a_time_of_zero_is_on_an_axis_without_logarithm() -> None:
    chart = chart_latencies({"a": {"ns": TIMES | {"min": 0}}}, "")
    assert chart is not None
    assert chart.layout["xaxis"].get("type", "linear") == "linear"


def test_groups_without_times_have_no_chart() -> None:
    assert chart_latencies({"a": {"ns": None}}, "") is None


def test_json_has_no_character_of_markup() -> None:
    value = {"</script><!--&amp;": "\u2028\u2029\udcff"}
    text = encode_json(value)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


def test_the_policy_names_each_script() -> None:
    digest = base64.b64encode(hashlib.sha256("é".encode()).digest()).decode()
    policy = make_policy("é", "b")
    assert policy.startswith(f"default-src 'none';script-src 'sha256-{digest}' 'sha256-")
    assert "unsafe-eval" not in policy
    assert policy.count("unsafe-inline") == 1


def test_the_script_of_plotly_ends_no_element(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_plotly()
    assert script.startswith("/**\n* plotly.js v")
    assert "</script" not in script
    assert "<!--" not in script  # with <script after it, it would change where the element ends
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: 'a="</script>"')
    assert load_plotly() == 'a="<\\/script>"'
