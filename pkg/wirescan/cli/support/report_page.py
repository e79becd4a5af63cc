"""The page and the ticket of `wirescan report`: HTML and markdown, from `ReportData`.

The page loads nothing. Plotly draws its charts, and each has its numbers as text too, which needs
no script.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from wirescan.cli.support.latencies import list_cells
from wirescan.cli.support.losses import EXACT
from wirescan.cli.support.report_charts import (
    Chart,
    chart_codecs,
    chart_directories,
    chart_gaps,
    chart_keys,
    chart_latencies,
    chart_map,
    chart_rate,
    chart_sizes,
    chart_what_if,
    choose_colours,
    list_ranges,
)
from wirescan.cli.support.report_numbers import FileMap, ListedFault, ReportData
from wirescan.cli.support.report_scripts import (
    CHART_SCRIPT,
    FILTER_SCRIPT,
    STYLE,
    encode_json,
    make_policy,
)
from wirescan.frames.value_text import format_time

HEX_WIDTH = 16  # bytes in a line of hexadecimal text
LOSS_LABELS = {"damage": "findings of damage", "empty": "empty files"}
DURATIONS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "s": 1000}  # in ms
SHOWN_PATH = 200  # characters of a path that the page shows
SHOWN_RANGES = 50  # ranges of a file's map that its table lists


def format_near(near: str) -> str:
    """Return bytes in hexadecimal digits as lines of hexadecimal text and ASCII."""
    raw = bytes.fromhex(near)
    lines = []
    for at in range(0, len(raw), HEX_WIDTH):
        line = raw[at : at + HEX_WIDTH]
        lines.append(f"{line.hex(' '):<{3 * HEX_WIDTH}} {_show_ascii(line)}")
    return "\n".join(lines)


def render_html(data: ReportData, plotly: str) -> str:
    """Return the report as one HTML page that loads nothing; `plotly` is the script of Plotly."""
    scripts = (FILTER_SCRIPT, plotly, CHART_SCRIPT)
    elements = "".join(f"<script>{script}</script>" for script in scripts)
    policy = escape(make_policy(*scripts))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>wirescan report</title><style>{STYLE}</style></head><body><main>"
        f"<h1>wirescan report</h1><p>Format: {escape(data.format)}</p>"
        f"<h2>Summary</h2>{_render_pairs(_select_summary(data))}{_render_latencies(data)}"
        f"{_render_maps(data)}{_render_rate(data)}{_render_sizes(data)}{_render_findings(data)}"
        f"{_render_codecs(data)}{_render_keys(data)}{_render_directories(data)}"
        f"{_render_faults(data)}</main>"
        f'<script type="application/json" id="data">{encode_json(asdict(data))}</script>'
        f"{elements}</body></html>\n"
    )


def render_markdown(data: ReportData) -> str:
    """Return the report as markdown; text from the input is in indented blocks only."""
    lines = ["# wirescan report", "", f"    format: {data.format}"]
    lines += [f"    {name}: {json.dumps(value)}" for name, value in _select_summary(data).items()]
    lines += _list_latencies(data)
    lines += ["", f"## Verify: {len(data.findings):,} of {data.finding_count:,} findings", ""]
    lines += [f"    {json.dumps(finding)}" for finding in data.findings]
    lines += ["", f"## Faults: {len(data.faults):,} of {data.fault_count:,}", ""]
    for fault in data.faults:
        where = f"{json.dumps(fault.file)}: byte {fault.position}, {fault.size:,} bytes"
        lines.append(f"    {fault.fault} {where}")
    return "\n".join(lines) + "\n"


def _select_summary(data: ReportData) -> dict[str, Any]:
    """Return the parts of the total that no other part of the page has."""
    return {name: value for name, value in data.total.items() if name != "latency"}


def _list_latencies(data: ReportData) -> list[str]:
    """Return the lines of markdown about latencies."""
    groups = data.total.get("latency")
    if not groups:
        return []
    cells = list_cells(groups, len(groups))
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["", f"## Latencies: {len(groups):,} of {data.latency_count:,} groups", ""]
    for name, *texts in cells:
        numbers = (text.rjust(width) for text, width in zip(texts, widths[1:]))
        lines.append("    " + "  ".join([name.ljust(widths[0]), *numbers]))
    return lines


def _show_ascii(raw: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in raw)


def _shorten(path: str) -> str:
    """Return the end of a path, with dots for the rest of a long one."""
    return path if len(path) <= SHOWN_PATH else "..." + path[-SHOWN_PATH:]


def _format_value(value: Any) -> str:
    """Return a JSON value as text for people."""
    if isinstance(value, dict):
        # Offsets are pasted into commands, so they have no commas. Times are there as text too.
        texts = (
            f"{_label(name)} {v if name in ('first', 'last') else _format_value(v)}"
            for name, v in value.items()
            if f"{name}_utc" not in value
        )
        return ", ".join(texts) or "none"
    if value is None or isinstance(value, bool):
        return {None: "not known", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return _format_float(value) if isinstance(value, float) else str(value)


def _label(name: str) -> str:
    """Return the label before a value: words of a JSON name, or a value that was counted."""
    if not name.islower():
        return f"{name}:"
    return name.replace("_", " ").replace("inflated", "decompressed")


def _format_float(value: float) -> str:
    """Return a number with one digit after the point, or with two digits that are not zero."""
    return f"{value:,.1f}" if value >= 1 or not value else f"{value:.2g}"


def _format_duration(milliseconds: int) -> str:
    """Return a time in the largest unit of which it has at least one."""
    for unit, size in DURATIONS.items():
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds} ms"


def _render_pairs(values: dict[str, Any]) -> str:
    """Return a table of names and JSON values. What is inside a value has a line of its own."""
    rows = []
    for name, value in values.items():
        is_nested = isinstance(value, dict) and any(isinstance(v, dict) for v in value.values())
        lines = [_format_value(value)]
        if is_nested:
            lines = [f"{_label(key).rstrip(':')}: {_format_value(v)}" for key, v in value.items()]
        cell = "<br>".join(escape(line) for line in lines)
        rows.append(f"<tr><th scope=row>{escape(name.replace('_', ' '))}</th><td>{cell}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _render_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table that scrolls sideways where it is too wide; integers get commas."""
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in names)
    lines = []
    for row in rows:
        cells = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return (
        '<div class="wide" tabindex=0 role="region" aria-label="table">'
        f"<table><tr>{head}</tr>{''.join(lines)}</table></div>"
    )


def _render_chart(chart: Chart) -> str:
    """Return the place of a chart, and what the script draws there."""
    drawing = encode_json({"traces": chart.traces, "layout": chart.layout})
    return (
        f'<div class="chart" data-label="{escape(chart.label)}"></div>'
        f'<script type="application/json">{drawing}</script>'
    )


def _render_maps(data: ReportData) -> str:
    """Return the map of each listed file, under one legend."""
    if not data.has_maps:
        return ""
    colours = choose_colours(data.maps)
    keys = "".join(
        f'<li><span class="key" style="background:{colour}"></span>{escape(name)}</li>'
        for name, colour in colours.items()
    )
    rest = data.file_count - len(data.maps)
    note = f"<p>{rest:,} more files are in the summary only.</p>" if rest else ""
    maps = "".join(_render_map(file_map, colours) for file_map in data.maps)
    return (
        f"<h2>Files</h2><p>What covers most bytes, by byte position:</p><ul>{keys}</ul>{maps}{note}"
    )


def _render_map(file_map: FileMap, colours: dict[str, str]) -> str:
    """Return the map of a file, its ranges, and the bytes of each category as text."""
    texts = [f"{name} {size:,} bytes" for name, size in file_map.bytes.items()]
    text = "; ".join(texts) or "no bytes"
    title = f"<h3>{escape(_shorten(file_map.file))}</h3>"
    ranges = list_ranges(file_map)
    if not ranges:
        return f"{title}<p>{escape(text)}</p>"
    listed = ranges[:SHOWN_RANGES]
    summary = f"Table of {len(listed):,} of {len(ranges):,} ranges, "
    summary += f"in steps of {file_map.width:,} bytes"
    return (
        f"{title}{_render_chart(chart_map(ranges, colours, f'map by byte position: {text}'))}"
        f"<p>{escape(text)}</p><details><summary>{summary}</summary>"
        f"{_render_table(('from byte', 'until byte', 'what covers most'), listed)}</details>"
    )


def _render_latencies(data: ReportData) -> str:
    """Return the times from requests to their responses, for each API, method or subject."""
    groups = data.total.get("latency")
    if not groups:
        return ""
    (_, *names), *rows = list_cells(groups, len(groups))
    label = "latencies of the largest groups; the table has them"
    chart = chart_latencies(groups, label)
    return (
        "<h2>Latencies</h2><p>From the last byte of a request to the first byte of its response. "
        f"{len(groups):,} of {data.latency_count:,} groups are listed, the largest first.</p>"
        f"{_render_chart(chart) if chart else ''}{_render_table(('group', *names), rows)}"
    )


def _render_rate(data: ReportData) -> str:
    if not data.rate:
        return ""
    counted = data.counted
    width = _format_duration(data.time_width)
    most = max(bucket.records for bucket in data.rate)
    label = f"{counted} in each {width}, at most {most:,}; the table has them"
    chart = chart_rate(data.rate, data.time_width, counted, label)
    rows = [(format_time(bucket.start), bucket.records) for bucket in data.rate]
    first = format_time(data.rate[0].start)
    last = format_time(data.rate[-1].start)
    subject = "An exchange" if counted == "exchanges" else "A frame"
    note = "A frame that does not state its records counts as 1." if counted == "records" else ""
    return (
        f"<h2>{counted.capitalize()} over time</h2>{_render_chart(chart)}"
        f"<p>{first} to {last}, in steps of {width}. {subject} counts at its last time. {note}"
        f"</p><details><summary>Table of {counted} over time</summary>"
        f"{_render_table(('from', counted), rows)}</details>"
    )


def _render_sizes(data: ReportData) -> str:
    if not data.sizes:
        return ""
    chart = chart_sizes(data.sizes, "good frames by size; the table has them")
    rows = [(bucket.low, bucket.high, bucket.frames) for bucket in data.sizes]
    return (
        f"<h2>Sizes of frames</h2>{_render_chart(chart)}"
        f"<p>{data.sizes[0].low:,} to {data.sizes[-1].high:,} bytes. Each bar doubles the size.</p>"
        "<details><summary>Table of sizes</summary>"
        f"{_render_table(('from bytes', 'to bytes', 'frames'), rows)}</details>"
    )


def _render_findings(data: ReportData) -> str:
    """Return what `wirescan verify` finds: damage, gaps and losses."""
    rows = []
    for finding in data.findings:
        if finding["kind"] == "gap":
            what = f"{finding['missing']:,} offsets missing, {finding['first']} to "
            what += f"{finding['last']}"
        else:
            what = f"{finding['fault']}: {finding['meaning']}"
        lost = finding.get("lost_records", "")
        rows.append((what, finding["offset"], lost, finding["kind"], _shorten(finding["file"])))
    names = ("finding", "byte", "lost records", "kind", "file")
    listed = "<p>Nothing was found.</p>"
    if rows:
        listed = f"<p>{len(data.findings):,} of {data.finding_count:,} findings are listed.</p>"
        listed += _render_table(names, rows)
    gaps = [finding for finding in data.findings if finding["kind"] == "gap"]
    if gaps:
        label = "gaps by their first missing offset; the table has them"
        listed = _render_chart(chart_gaps(gaps, label)) + listed
    return f"<h2>Gaps and losses</h2>{_render_pairs(_select_losses(data.verified))}{listed}"


def _select_losses(verified: dict[str, Any]) -> dict[str, Any]:
    """Return what the summary of `wirescan verify` has that no other part of the page has."""
    names = ("clean", "damage", "gaps", "empty", "lost_records", "lost_ranges")
    shown = {LOSS_LABELS.get(name, name): verified[name] for name in names if name in verified}
    if "lost_records" in verified:
        bound = "" if verified["bound"] == EXACT else f"{verified['bound']} "
        shown["lost_records"] = f"{bound}{verified['lost_records']:,}"
    return shown


def _render_codecs(data: ReportData) -> str:
    if not data.codecs:
        return ""
    rows: list[tuple[object, ...]] = []
    for name, counts in data.codecs.items():
        row: tuple[object, ...] = (name, counts.get("frames", 0), counts.get("bytes", 0))
        if data.deep:
            row += _describe_ratio(counts)
        rows.append(row)
    names = ("codec", "frames", "bytes", "decompressed bytes", "ratio")[: len(rows[0])]
    tried = ""
    if data.what_if:
        size = data.what_if[0].sample_bytes
        results = [
            (result.codec, result.compressed_bytes, f"{size / result.compressed_bytes:.2f}")
            for result in data.what_if
        ]
        label = "bytes of the sample with each codec; the table has them"
        tried = (
            f"<h3>Other codecs</h3><p>Frames with {size:,} decompressed bytes, compressed again "
            "at the default level of each codec:</p>"
            f"{_render_chart(chart_what_if(data.what_if, label))}"
            f"{_render_table(('codec', 'bytes', 'ratio'), results)}"
        )
    hint = "" if data.deep else "<p>--deep measures the ratio.</p>"
    chart = chart_codecs(data.codecs, "bytes of each codec; the table has them")
    return f"<h2>Codecs</h2>{_render_chart(chart)}{_render_table(names, rows)}{hint}{tried}"


def _describe_ratio(counts: dict[str, int]) -> tuple[object, str]:
    """Return the decompressed bytes of a codec, and the ratio to its bytes."""
    inflated = counts.get("inflated_bytes")
    size = counts.get("bytes", 0)
    ratio = f"{inflated / size:.2f}" if inflated and size else "not known"
    return "not known" if inflated is None else inflated, ratio


def _render_keys(data: ReportData) -> str:
    if not data.keys:
        return ""
    texts = [_show_ascii(bytes.fromhex(key.key)) for key in data.keys]
    rows = []
    for key, text in zip(data.keys, texts):
        share = f"{100 * key.count / data.key_total:.1f}%"
        rows.append((text, key.key, key.count, key.count + key.error, share))
    column = data.key_column
    names = (column, "first bytes", "at least", "at most", "share")
    total = f"{data.key_total:,} {column}" + ("" if data.key_total == 1 else "s")
    chart = chart_keys(data.keys, texts, f"counts of frequent {column}s; the table has them")
    return (
        f"<h2>Frequent {escape(column)}s</h2><p>Of {escape(total)}, without null:</p>"
        f"{_render_chart(chart)}{_render_table(names, rows)}"
    )


def _render_directories(data: ReportData) -> str:
    """Return the share of each directory: a partition of a topic has one of its own."""
    total = sum(counts.bytes for counts in data.directories)
    rows = [
        (
            _shorten(counts.directory) or ".",
            counts.files,
            counts.bytes,
            f"{100 * counts.bytes / max(total, 1):.1f}%",
            counts.records,
        )
        for counts in data.directories
    ]
    names = ("directory", "files", "bytes", "share", data.counted)
    chart = ""
    if len(rows) > 1:
        label = "bytes of the largest directories; the table has them"
        chart = _render_chart(chart_directories(data.directories, label))
    return (
        f"<h2>Directories</h2><p>{len(rows):,} of {data.directory_count:,} are listed, the largest "
        f"first. Shares are of these.</p>{chart}{_render_table(names, rows)}"
    )


def _render_faults(data: ReportData) -> str:
    if not data.faults:
        return "<h2>Faults</h2><p>No frame is bad.</p>"
    files = sorted({fault.file for fault in data.faults})
    numbers = {file: str(number) for number, file in enumerate(files)}
    names = sorted({fault.fault for fault in data.faults})
    selects = _render_select("fault", {name: name for name in names})
    selects += _render_select("file", {numbers[file]: _shorten(file) for file in files})
    faults = "".join(_render_fault(fault, numbers[fault.file]) for fault in data.faults)
    return (
        f"<h2>Faults</h2><p>{len(data.faults):,} of {data.fault_count:,} are listed. "
        f'<span id="shown" role="status"></span></p>{selects}{faults}'
    )


def _render_select(name: str, texts: dict[str, str]) -> str:
    """Return a menu; `texts` has the text of each value."""
    options = "".join(
        f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in texts.items()
    )
    return (
        f'<label>{name} <select id="{name}"><option value="">all</option>{options}</select></label>'
    )


def _render_fault(fault: ListedFault, file_number: str) -> str:
    return (
        f'<details data-fault="{escape(fault.fault)}" data-file="{file_number}">'
        f"<summary>{escape(fault.fault)}, byte {fault.position}, {fault.size:,} bytes, "
        f"{escape(_shorten(fault.file))}</summary>"
        f"<pre tabindex=0>{escape(format_near(fault.near))}</pre></details>"
    )
