"""The page and the ticket of `wirescan report`: HTML and markdown, from counts and faults."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

MAX_FAULTS = 500  # faults that a report lists
NEAR = 64  # bytes that are shown from the start of a fault
HEX_WIDTH = 16  # bytes in a line of hexadecimal text
MAP_WIDTH = 1000  # units of the map's width

STYLE = """
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:1rem auto;
max-width:60rem;padding:0 1rem;overflow-wrap:anywhere}pre{overflow-x:auto}svg{width:100%;
height:1.5rem;background:#4a8f5c}rect{fill:#d1242f}label{display:block}select{max-width:100%}
td,th{text-align:left;vertical-align:top;padding-right:1rem}
"""

# Shows the faults that match both selections.
SCRIPT = """
const selects=[...document.querySelectorAll("select")];
const shown=document.getElementById("shown");
function filter(){let n=0;for(const e of document.querySelectorAll("details")){
const match=selects.every(s=>!s.value||e.dataset[s.id]===s.value);
e.hidden=!match;n+=match;}shown.textContent=n+" shown";}
selects.forEach(s=>s.addEventListener("change",filter));filter();
"""


@dataclass(frozen=True)
class ListedFault:
    """A fault of an outermost frame: `position` and `size` are bytes in the file."""

    file: str
    fault: str
    position: int
    size: int
    near: str  # the first bytes, as hexadecimal digits


@dataclass
class ReportData:
    """What a report shows: the summaries of `Tally`, and at most `MAX_FAULTS` faults."""

    format: str
    total: dict[str, Any]
    files: list[dict[str, Any]]
    faults: list[ListedFault] = field(default_factory=list)
    fault_count: int = 0


def format_near(near: str) -> str:
    """Return bytes in hexadecimal digits as lines of hexadecimal text and ASCII."""
    raw = bytes.fromhex(near)
    lines = []
    for at in range(0, len(raw), HEX_WIDTH):
        line = raw[at : at + HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{line.hex(' '):<{3 * HEX_WIDTH}} {text}")
    return "\n".join(lines)


def render_html(data: ReportData) -> str:
    """Return the report as one HTML page that loads nothing."""
    # "<" is escaped, so that no text in the JSON can end the script element.
    embedded = json.dumps(asdict(data), default=str).replace("<", "\\u003c")
    maps = "".join(_render_map(file, data.faults) for file in data.files)
    faults = "".join(_render_fault(fault) for fault in data.faults)
    selects = _render_select("fault", sorted({fault.fault for fault in data.faults}))
    selects += _render_select("file", sorted({fault.file for fault in data.faults}))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>wirescan report</title><style>{STYLE}</style></head><body>"
        f"<h1>wirescan report</h1><p>Format: {escape(data.format)}</p>"
        f"<h2>Summary</h2>{_render_table(data.total)}<h2>Files</h2>{maps}"
        f"<h2>Faults</h2><p>{len(data.faults):,} of {data.fault_count:,} are listed. "
        f'<span id="shown" role="status"></span></p>{selects}{faults}'
        f'<script type="application/json" id="data">{embedded}</script>'
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def render_markdown(data: ReportData) -> str:
    """Return the report as markdown; text from the input is in indented blocks only."""
    lines = ["# wirescan report", "", f"    format: {data.format}"]
    lines += [f"    {name}: {json.dumps(value)}" for name, value in data.total.items()]
    lines += ["", f"## Faults: {len(data.faults):,} of {data.fault_count:,}", ""]
    for fault in data.faults:
        where = f"{json.dumps(fault.file)}: byte {fault.position:,}, {fault.size:,} bytes"
        lines.append(f"    {fault.fault} {where}")
    return "\n".join(lines) + "\n"


def _render_table(summary: dict[str, Any]) -> str:
    rows = (
        f"<tr><th scope=row>{escape(name.replace('_', ' '))}</th>"
        f"<td>{escape(json.dumps(value))}</td></tr>"
        for name, value in summary.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _render_map(file: dict[str, Any], faults: list[ListedFault]) -> str:
    """Return the map of a file: the listed faults by their positions."""
    scale = MAP_WIDTH / max(file["bytes"], 1)
    marks = "".join(
        f'<rect x="{fault.position * scale:.1f}" width="{max(fault.size * scale, 1):.1f}" '
        'height="10"/>'
        for fault in faults
        if fault.file == file["file"]
    )
    return (
        f"<h3>{escape(file['file'])}</h3><svg role=img aria-label='faults by position' "
        f'viewBox="0 0 {MAP_WIDTH} 10" preserveAspectRatio="none">{marks}</svg>'
        f"<p>{file['bytes']:,} bytes, {file['frames']:,} good frames</p>"
    )


def _render_select(name: str, values: list[str]) -> str:
    options = "".join(
        f'<option value="{escape(value)}">{escape(value)}</option>' for value in values
    )
    return (
        f'<label>{name} <select id="{name}"><option value="">all</option>{options}</select></label>'
    )


def _render_fault(fault: ListedFault) -> str:
    return (
        f'<details data-fault="{escape(fault.fault)}" data-file="{escape(fault.file)}">'
        f"<summary>{escape(fault.fault)}, byte {fault.position:,}, {fault.size:,} bytes, "
        f"{escape(fault.file)}</summary><pre tabindex=0>{escape(format_near(fault.near))}</pre>"
        "</details>"
    )
