"""Draw bench/growth.svg from the section "Growth" of RESULTS.md: `python -m bench.growth_picture`.

Each chart has the nanoseconds per byte of some calls, by a size. Both axes are logarithmic.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from bench.ratios import COLORS, draw_text
from bench.report import RESULTS
from bench.suites.growth import BY_SIZE, BY_VALUE, TITLE, format_size, parse_size

PICTURE = Path(__file__).with_name("growth.svg")
CURVES = ("#2a78b8", "#c05a1c", "#3a8a3a", "#7a4aa0")
WIDTH = 760  # all sizes are in pixels
LEFT = 70  # where the smallest size is
RIGHT = 540  # where the largest size is; the names of the curves follow
HEIGHT = 200  # of a chart, between the smallest and the largest tick
MARGIN = 14
TITLE_SPACE = 40
AXIS_SPACE = 40
LABEL = 16  # the least distance of the names of two curves


class Point(NamedTuple):
    """size: bytes. time: nanoseconds per byte."""

    size: int
    time: float


class Chart(NamedTuple):
    """title: of the x axis. curves: the points of each call, by its name."""

    title: str
    curves: dict[str, list[Point]]


def read_charts(results: str) -> list[Chart]:
    """Return the charts of the tables in the section "Growth".

    Raises ValueError if there is no such section, or a table is missing.
    """
    section = f"\n{results}".partition(f"\n## {TITLE}\n")[2].partition("\n## ")[0]
    charts = []
    for title in (BY_SIZE, BY_VALUE):
        part = section.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
        lines = re.findall(r"^\| (.+) \|$", part, re.MULTILINE)
        if len(lines) < 3:
            raise ValueError(f"the section {TITLE!r} has no table of {title!r}")
        head, _rule, *rows = [line.split(" | ") for line in lines]
        curves: dict[str, list[Point]] = {name: [] for name in head[1:]}
        for label, *cells in rows:
            for name, cell in zip(head[1:], cells, strict=True):
                curves[name].append(Point(parse_size(label), float(cell.replace(",", ""))))
        charts.append(Chart(title, curves))
    return charts


def draw(charts: list[Chart]) -> str:
    """Return the picture as SVG."""
    marks = []
    top = MARGIN
    for chart in charts:
        marks += _draw_chart(chart, top + TITLE_SPACE)
        top += TITLE_SPACE + HEIGHT + AXIS_SPACE
    height = top + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">'
    )
    background = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, background, *marks, "</svg>"]) + "\n"


def _draw_chart(chart: Chart, top: int) -> list[str]:
    """Return the axes, the curves and their names. top: where the largest time is."""
    points = [point for curve in chart.curves.values() for point in curve]
    sizes = sorted({point.size for point in points})
    times = [point.time for point in points]
    low = math.floor(math.log10(min(times)))
    high = max(low + 1, math.ceil(math.log10(max(times))))
    bottom = top + HEIGHT

    def place(point: Point) -> tuple[float, float]:
        across = math.log(point.size / sizes[0]) / max(math.log(sizes[-1] / sizes[0]), 1e-9)
        down = (high - math.log10(point.time)) / (high - low)
        return LEFT + (RIGHT - LEFT) * across, top + HEIGHT * down

    marks = [draw_text(MARGIN, top - 20, f"{chart.title}: ns per byte", color="title")]
    for exponent in range(low, high + 1):
        _, y = place(Point(sizes[0], 10.0**exponent))
        marks.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="{COLORS["line"]}"/>')
        tick = f"{10.0**exponent:g}"
        marks.append(draw_text(LEFT - 8, round(y) + 4, tick, anchor="end", color="title"))
    for size in sizes:
        x, _ = place(Point(size, 10.0**low))
        label = format_size(size)
        marks.append(f'<path d="M{x:.1f} {bottom}V{bottom + 5}" stroke="{COLORS["line"]}"/>')
        marks.append(draw_text(x, bottom + 20, label, anchor="middle", color="title"))
    places = {name: [place(point) for point in curve] for name, curve in chart.curves.items()}
    return marks + _draw_curves(places)


def _draw_curves(places: dict[str, list[tuple[float, float]]]) -> list[str]:
    """Return a line for each curve, with its name beside its end. Names do not overlap."""
    marks = []
    for color, points in zip(CURVES, places.values()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        marks.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for x, y in points:
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
    label = -math.inf
    for name, points in sorted(places.items(), key=lambda curve: curve[1][-1][1]):
        label = max(label + LABEL, points[-1][1])
        marks.append(draw_text(RIGHT + 12, round(label) + 4, name))
    return marks


if __name__ == "__main__":
    PICTURE.write_text(draw(read_charts(RESULTS.read_text())))
