"""The charts of `wirescan report`, as JSON for Plotly (plotly.js).

A chart is plain traces and a layout: https://plotly.com/javascript/reference. No package of Python
is needed to make them. Plotly reads its texts as a kind of HTML, so `quote_text` escapes each text
that comes from the input, and no such text is part of a `hovertemplate`, which has places of its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from wirescan.cli.support.latencies import QUANTILES, SHOWN_GROUPS, format_duration
from wirescan.cli.support.report_numbers import (
    DirectoryCounts,
    FileMap,
    FrequentKey,
    SizeBucket,
    TimeBucket,
)
from wirescan.cli.support.report_sample import WhatIf
from wirescan.frames.value_text import format_time

MAP_HEIGHT = 110  # pixels
CHART_HEIGHT = 260
ROW_HEIGHT = 26  # pixels of a horizontal bar
TOP_HEIGHT = 30  # pixels of the tool bar
LEGEND_HEIGHT = 25  # pixels of a line of the legend
BOTTOM_HEIGHT = 40
MOST_UNIT_TICKS = 5  # above this number an axis has no tick for each whole number
SHOWN_BARS = 20  # horizontal bars in a chart
SHOWN_TICKS = 12  # texts below vertical bars
LABEL_SIZE = 20  # characters of a text beside a bar
# Plotly's axes of dates have the years 1 to 9999. Times are milliseconds since 1970.
FIRST_DATE = -62_135_596_800_000
LAST_DATE = 253_402_300_799_999
NANOSECONDS = 1_000_000_000
FEW_DECADES = 2  # an axis of at most this many powers of ten has more ticks than these

BLUE = "#3b82c4"
# The colours of categories, which differ from both backgrounds. Others take a colour in turn.
COLOURS = {
    "good": "#4a8f5c",
    "bad checksum": "#d1242f",
    "other damage": "#e0731d",
    "no frame": "#a040c0",
    "zeros": "#8a8f98",
    "cut tail": "#c9a400",
    "filler": "#707070",
}
OTHER_COLOURS = ("#4a8f5c", "#2f7fc1", "#1f9e9a", "#7a9a2e", "#6b74d6", "#9a7b4f", "#c56a9a")


@dataclass(frozen=True)
class Chart:
    """A chart: its name for people who do not see it, and Plotly's traces and layout."""

    label: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]


class MapRange(NamedTuple):
    """The bytes from `start` until `stop` of a file, most of which have one category."""

    start: int
    stop: int
    category: str


def quote_text(text: str) -> str:
    """Return text that Plotly shows as it is: with no tags and no entities."""
    return escape(text, quote=False)


def choose_colours(maps: Sequence[FileMap]) -> dict[str, str]:
    """Return the colour of each category in the maps, sorted by name."""
    names = sorted({name for file_map in maps for name in file_map.bytes})
    others = [name for name in names if name not in COLOURS]
    colours = {name: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, name in enumerate(others)}
    return {name: COLOURS.get(name) or colours[name] for name in names}


def list_ranges(file_map: FileMap) -> list[MapRange]:
    """Return the ranges of a map: neighbouring buckets of one category are one range."""
    names = list(file_map.bytes)
    size = sum(file_map.bytes.values())
    ranges = []
    start = 0
    for number, run in groupby(file_map.buckets):
        stop = start + len(list(run)) * file_map.width
        ranges.append(MapRange(start, min(stop, size), names[number]))
        start = stop
    return ranges


def chart_map(ranges: Sequence[MapRange], colours: dict[str, str], label: str) -> Chart:
    """Return the map of a file: a bar for each range, and a trace for each category."""
    traces = []
    for category in sorted({map_range.category for map_range in ranges}):
        bars = [map_range for map_range in ranges if map_range.category == category]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": quote_text(category),
                "base": [bar.start for bar in bars],
                "x": [bar.stop - bar.start for bar in bars],
                "y": [0] * len(bars),
                "width": 1,
                "marker": {"color": colours[category], "line": {"width": 0}},
                "hovertemplate": "bytes %{base:,d} until %{x:,d}<extra>%{fullData.name}</extra>",
            }
        )
    size = ranges[-1].stop
    layout = {
        "height": MAP_HEIGHT,
        "barmode": "overlay",
        "showlegend": False,
        "xaxis": _count_on_axis(size) | {"range": [0, size], "nticks": 6},
        "yaxis": {"visible": False, "fixedrange": True},
        "margin": {"l": 10, "r": 10, "t": 30, "b": 28},
    }
    return Chart(label, traces, layout)


def chart_rate(buckets: Sequence[TimeBucket], width: int, counted: str, label: str) -> Chart:
    """Return the bars of records over time; `width` is that of a bucket in milliseconds."""
    starts = [bucket.start for bucket in buckets]
    is_date = starts[0] >= FIRST_DATE and starts[-1] + width <= LAST_DATE
    axis: dict[str, Any] = {"type": "date"}
    if not is_date:
        axis = {"type": "linear", "title": {"text": "milliseconds since 1970"}}
    trace = {
        "x": starts,
        "y": [bucket.records for bucket in buckets],
        "customdata": [format_time(start) for start in starts],
        "offset": 0,
        "width": width,
        "hovertemplate": f"from %{{customdata}}: %{{y:,d}} {counted}<extra></extra>",
    }
    return _chart_columns(trace, axis, counted, label)


def chart_sizes(buckets: Sequence[SizeBucket], label: str) -> Chart:
    """Return the bars of frames by size. Each bar doubles the size."""
    step = -(-len(buckets) // SHOWN_TICKS)
    places = range(0, len(buckets), step)
    axis = {
        "tickvals": list(places),
        "ticktext": [f"{buckets[place].low:,}" for place in places],
        "title": {"text": "bytes, at least"},
    }
    trace = {
        "x": list(range(len(buckets))),
        "y": [bucket.frames for bucket in buckets],
        "customdata": [f"{bucket.low:,} to {bucket.high:,}" for bucket in buckets],
        "hovertemplate": "%{customdata} bytes: %{y:,d} frames<extra></extra>",
    }
    return _chart_columns(trace, axis, "frames", label)


def chart_gaps(findings: Sequence[dict[str, Any]], label: str) -> Chart:
    """Return a point for each gap: at which offset it is, and how many offsets are missing."""
    texts = [
        f"{finding['first']} to {finding['last']}<br>{quote_text(_keep_end(finding['file']))}"
        for finding in findings
    ]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [finding["first"] for finding in findings],
        "y": [finding["missing"] for finding in findings],
        "customdata": texts,
        "marker": {"color": COLOURS["bad checksum"], "size": 10},
        "hovertemplate": "%{y:,d} offsets missing, %{customdata}<extra></extra>",
    }
    layout = {
        "height": CHART_HEIGHT,
        "xaxis": {"tickformat": "d", "nticks": 6, "title": {"text": "first missing offset"}},
        "yaxis": {
            "type": "log",
            "tickformat": ",d",
            "title": {"text": "offsets"},
            "fixedrange": True,
        },
    }
    return Chart(label, [trace], layout)


def chart_codecs(codecs: dict[str, dict[str, int]], label: str) -> Chart:
    """Return the bytes of the first codecs, and the decompressed bytes where they are known."""
    shown = dict(list(codecs.items())[:SHOWN_BARS])
    names = [_keep_start(name) for name in shown]
    bars: dict[str, list[int | None]] = {}
    bars["bytes"] = [counts.get("bytes", 0) for counts in shown.values()]
    sizes = [counts.get("inflated_bytes") for counts in shown.values()]
    if any(size is not None for size in sizes):
        bars["decompressed bytes"] = sizes
    return _chart_rows(names, bars, label)


def chart_what_if(results: Sequence[WhatIf], label: str) -> Chart:
    """Return the bytes that each codec would make of the sample."""
    names = [result.codec for result in results]
    return _chart_rows(names, {"bytes": [result.compressed_bytes for result in results]}, label)


def chart_keys(keys: Sequence[FrequentKey], texts: Sequence[str], label: str) -> Chart:
    """Return the lowest count of each key; a line goes on to the highest count."""
    chart = _chart_rows(
        [_keep_start(text) for text in texts], {"at least": [key.count for key in keys]}, label
    )
    chart.traces[0]["error_x"] = {
        "type": "data",
        "symmetric": False,
        "array": [key.error for key in keys],
        "arrayminus": [0] * len(keys),
    }
    return chart


def chart_directories(directories: Sequence[DirectoryCounts], label: str) -> Chart:
    """Return the bytes of the largest directories."""
    shown = directories[:SHOWN_BARS]
    names = [_keep_end(counts.directory or ".") for counts in shown]
    return _chart_rows(names, {"bytes": [counts.bytes for counts in shown]}, label)


def chart_latencies(groups: dict[str, Any], label: str) -> Chart | None:
    """Return a point for each quantile of the largest groups; None if no group has times.

    groups: a result of `Latencies.make_summary`.
    """
    timed = [(name, group["ns"]) for name, group in groups.items() if group["ns"]][:SHOWN_GROUPS]
    if not timed:
        return None
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": key,
            "x": [times[key] / NANOSECONDS for _, times in timed],
            "y": list(range(len(timed))),
            "customdata": [format_duration(times[key]) for _, times in timed],
            "marker": {"size": 10, "color": OTHER_COLOURS[number], "symbol": number},
            "hovertemplate": "%{fullData.name}: %{customdata}<extra></extra>",
        }
        for number, key in enumerate(QUANTILES)
    ]
    has_logarithm = all(times[key] > 0 for _, times in timed for key in QUANTILES)
    # On a phone the legend has three lines.
    layout = _make_row_layout([_keep_start(name) for name, _ in timed], legend_lines=3)
    layout["xaxis"] = {"tickformat": "~s", "ticksuffix": "s", "nticks": 6}
    if has_logarithm:
        ticks = _list_time_ticks(
            min(times[key] for _, times in timed for key in QUANTILES),
            max(times[key] for _, times in timed for key in QUANTILES),
        )
        layout["xaxis"] = {
            "type": "log",
            "tickvals": [tick / NANOSECONDS for tick in ticks],
            "ticktext": [format_duration(tick) for tick in ticks],
        }
    return Chart(label, traces, layout)


def _list_time_ticks(low: int, high: int) -> list[int]:
    """Return round times around `low` and `high`, which are above 0: nanoseconds."""
    first, last = len(str(low)) - 1, len(str(high))
    digits = (1, 2, 5) if last - first <= FEW_DECADES else (1,)
    return [digit * 10**power for power in range(first, last + 1) for digit in digits]


def _chart_columns(trace: dict[str, Any], axis: dict[str, Any], unit: str, label: str) -> Chart:
    """Return a chart of one trace of vertical bars; `axis` is the axis below them."""
    height = {"rangemode": "tozero", "fixedrange": True, "title": {"text": unit}}
    layout = {
        "height": CHART_HEIGHT,
        "bargap": 0.1,
        "xaxis": axis,
        "yaxis": _count_on_axis(max(trace["y"])) | height,
    }
    return Chart(label, [{"type": "bar", "marker": {"color": BLUE}} | trace], layout)


def _chart_rows(names: Sequence[str], bars: dict[str, list[int | None]], label: str) -> Chart:
    """Return horizontal bars: `bars` has the numbers of each trace, one for each name.

    A number that is None has no bar.
    """
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": numbers,
            "y": list(range(len(numbers))),
            "marker": {"color": (BLUE, *OTHER_COLOURS)[number]},
            "hovertemplate": f"%{{x:,d}} {name}<extra></extra>",
        }
        for number, (name, numbers) in enumerate(bars.items())
    ]
    layout = _make_row_layout(names, legend_lines=1 if len(bars) > 1 else 0)
    most = max((number or 0 for numbers in bars.values() for number in numbers), default=0)
    layout["xaxis"] = _count_on_axis(most) | {"nticks": 5, "rangemode": "tozero"}
    return Chart(label, traces, layout)


def _count_on_axis(most: int) -> dict[str, Any]:
    """Return an axis of counts up to `most`: its ticks are whole numbers."""
    return {"tickformat": ",d"} | ({"dtick": 1} if most <= MOST_UNIT_TICKS else {})


def _make_row_layout(names: Sequence[str], legend_lines: int) -> dict[str, Any]:
    """Return the layout of a chart with a row for each name, the first one at the top."""
    # Names may be equal once they are short, so rows have numbers, and names are only their texts.
    top = TOP_HEIGHT + LEGEND_HEIGHT * legend_lines
    return {
        "height": top + BOTTOM_HEIGHT + ROW_HEIGHT * max(len(names), 2),
        "yaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": [quote_text(name) for name in names],
            "range": [len(names) - 0.5, -0.5],
            "fixedrange": True,
        },
        "margin": {"l": 10, "r": 20, "t": top, "b": BOTTOM_HEIGHT},
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
    }


def _keep_start(text: str) -> str:
    return text if len(text) <= LABEL_SIZE else text[:LABEL_SIZE] + "..."


def _keep_end(text: str) -> str:
    return text if len(text) <= LABEL_SIZE else "..." + text[-LABEL_SIZE:]
