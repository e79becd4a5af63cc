"""Draw bench/ratios.svg from the table of README.md ("Speed"): `python -m bench.ratios`.

Each bar is the time of another program, relative to wirescan. The axis is logarithmic.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).parents[1] / "README.md"
PICTURE = Path(__file__).with_name("ratios.svg")
TICKS = (1, 10, 100, 1000)
WIDTH = 760  # all sizes are in pixels
LEFT = 330  # where a ratio of 1 is
DECADE = 130
ROW = 20
MARGIN = 14
BAR = 12
COLORS = {"bar": "#2a78b8", "line": "#cccccc", "text": "#222222", "title": "#666666"}


class Ratio(NamedTuple):
    """The time of a program, relative to wirescan. work: what both do."""

    work: str
    program: str
    ratio: float


def read_ratios(readme: str) -> list[Ratio]:
    """Return the ratios of the table under "## Speed".

    Raises ValueError if a cell has no ratio, or if there is no table.
    """
    section = readme.partition("\n## Speed\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+? \| (.+?) \|$", section, re.MULTILINE)[1:]
    ratios = []
    for work, cell in rows:
        for part in cell.split(", "):
            match = re.fullmatch(r"(.+?) ([\d.]+)(?: times)?", part)
            if match is None:
                raise ValueError(f"README.md has no ratio in {part!r}")
            ratios.append(Ratio(work, match[1], float(match[2])))
    if not ratios:
        raise ValueError("README.md has no table of ratios under 'Speed'")
    return ratios


def draw(ratios: list[Ratio]) -> str:
    """Return the picture as SVG."""
    marks = []
    y = MARGIN + ROW
    work = ""
    for ratio in ratios:
        if ratio.work != work:
            work = ratio.work
            marks.append(draw_text(MARGIN, y + BAR, work, color="title"))
            y += ROW
        end = _place(ratio.ratio)
        label = f"{ratio.program}, {ratio.ratio:g} times"
        marks.append(draw_text(LEFT - 8, y + BAR - 2, ratio.program, anchor="end"))
        marks.append(
            f'<rect x="{LEFT}" y="{y}" width="{end - LEFT:.1f}" height="{BAR}" '
            f'fill="{COLORS["bar"]}"><title>{escape(label)}</title></rect>'
        )
        marks.append(draw_text(end + 6, y + BAR - 2, f"{ratio.ratio:g}"))
        y += ROW
    axis = []
    for tick in TICKS:
        x = _place(tick)
        axis.append(f'<path d="M{x:.1f} {MARGIN + ROW - 6}V{y}" stroke="{COLORS["line"]}"/>')
        axis.append(draw_text(x, MARGIN + 8, f"{tick:,}", anchor="middle", color="title"))
    axis.append(draw_text(MARGIN, MARGIN + 8, "time relative to wirescan (= 1)", color="title"))
    height = y + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">'
    )
    background = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, background, *axis, *marks, "</svg>"]) + "\n"


def _place(ratio: float) -> float:
    return LEFT + DECADE * math.log10(ratio)


def draw_text(x: float, y: float, text: str, *, anchor: str = "start", color: str = "text") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="{COLORS[color]}">'
        f"{escape(text)}</text>"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(read_ratios(README.read_text())))
