"""`wirescan report`: its numbers are those of `stat`, and no input becomes markup."""

import html
import json
import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import wirescan
from tests.support.captured_conversations import INFO, converse
from wirescan import nats, pcap
from wirescan.cli.main import main
from wirescan.cli.support.latencies import SHOWN_GROUPS
from wirescan.cli.support.report_numbers import (
    MAP_BUCKETS,
    MAX_FAULTS,
    MAX_FILES,
    MAX_LATENCIES,
    TIME_BUCKETS,
    ByteMap,
    FileMap,
    FrequentKey,
    ListedFault,
    RecordRate,
    ReportData,
)
from wirescan.cli.support.report_page import SHOWN_RANGES, render_html
from wirescan.cli.support.report_scripts import CHART_SCRIPT, FILTER_SCRIPT, load_plotly

LOG = Path(__file__).parents[1] / "corpus/kafka/live-0/00000000000000000000.log"
NAME = "<script>alert(1)<!--&\"'.log"


def run(*args: str) -> str:
    result = CliRunner().invoke(main, list(args))
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def embedded_json(page: str) -> str:
    """Return the text of the JSON element of a page."""
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found is not None
    return found[1]


def read_data(page: Path) -> dict:
    """Return the JSON that is embedded in a page."""
    return json.loads(embedded_json(page.read_text()))


class ScriptReader(HTMLParser):
    """Collects the scripts of a page: those that run, and the JSON of those that do not."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.run: list[str] = []
        self.json: list = []
        self.kind: str | None = None
        self.is_in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.is_in_script = tag == "script"
        self.kind = dict(attrs).get("type")

    def handle_data(self, text: str) -> None:
        if self.is_in_script and self.kind == "application/json":
            self.json.append(json.loads(text))
        elif self.is_in_script:
            self.run.append(text)
        self.is_in_script = False


def list_charts(page: str) -> list[dict]:
    """Return the traces and the layout of each chart."""
    return [value for value in ScriptReader(page).json if "traces" in value]


def remove_scripts(page: str) -> str:
    return re.sub("<script.*?</script>", "", page, flags=re.DOTALL)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    raw = bytearray(LOG.read_bytes())
    raw[100] ^= 1
    path = tmp_path / NAME
    path.write_bytes(raw)
    return path


def test_numbers_are_those_of_stat(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    run("report", str(damaged), "-o", str(out))
    data = read_data(out)
    stat = json.loads(run("stat", str(damaged), "--json"))
    assert data["total"] == stat["total"]
    assert data["files"] == stat["files"]
    assert data["fault_count"] == sum(f["frames"] for f in stat["total"]["faults"].values()) > 0
    fault = data["faults"][0]
    raw = damaged.read_bytes()[fault["position"] :]
    assert raw.startswith(bytes.fromhex(fault["near"]))


def test_a_hostile_file_name_is_text(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    run("report", str(damaged), "-o", str(out))
    page = out.read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert ScriptReader(page).run == [FILTER_SCRIPT, load_plotly(), CHART_SCRIPT]


def test_markdown_lists_the_fault(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.md"
    run("report", str(damaged), "--markdown", "-o", str(out))
    assert "Faults: 1 of 1" in out.read_text()


def test_without_plotly_there_is_markdown_only(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "r"
    for name in ("plotly", "plotly.offline"):
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(main, ["report", str(damaged), "-o", str(out)])
    assert result.exit_code == 2
    assert result.output == (
        "wirescan: an HTML report without --markdown needs plotly: pip install 'wirescan[report]'\n"
    )
    assert not out.exists()
    run("report", str(damaged), "--markdown", "-o", str(out))
    assert "Faults: 1 of 1" in out.read_text()


def test_a_hostile_payload_is_text() -> None:
    near = b"</pre><script>".hex()
    fault = ListedFault("a.log", "BAD_CHECKSUM", 0, 14, near)
    data = ReportData("kafka.batches", deep=True, faults=[fault], keys=[FrequentKey(near, 1, 0)])
    data.key_total = 1
    data.findings = [
        {"kind": "damage", "file": "<b>", "offset": 0, "fault": "<b>", "meaning": "<b>"}
    ]
    data.maps = [FileMap("<b>", 1, [0], {"<b>": 1})]
    page = render_html(data, "plotly")
    assert remove_scripts(page).count("&lt;/pre&gt;&lt;script&gt;") == 2
    assert "<b>" not in page
    assert ScriptReader(page).run == [FILTER_SCRIPT, "plotly", CHART_SCRIPT]
    # Plotly reads texts as a kind of HTML too.
    charts = list_charts(page)
    assert charts[0]["traces"][0]["name"] == "&lt;b&gt;"
    assert charts[1]["layout"]["yaxis"]["ticktext"] == ["&lt;/pre&gt;&lt;script&gt;"]


def test_at_most_500_faults_are_listed(damaged: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "many.log", tmp_path / "r.html"
    path.write_bytes(damaged.read_bytes() * (MAX_FAULTS + 1))
    run("report", str(path), "-o", str(out))
    data = read_data(out)
    assert len(data["faults"]) == MAX_FAULTS
    assert data["fault_count"] == MAX_FAULTS + 1


@pytest.mark.parametrize(
    ("format", "pattern"),
    [
        ("lumberjack.frames", "lumberjack/**/*.bin"),
        ("nats.messages", "nats/**/*.bin"),
        ("thrift.frames", "thrift/*.theader"),
        ("liftbridge.entries", "liftbridge/**/*.log"),
    ],
)
def test_each_protocol_has_a_page(format: str, pattern: str, tmp_path: Path) -> None:
    path = max((LOG.parents[2]).glob(pattern), key=lambda path: path.stat().st_size)
    out = tmp_path / "r.html"
    run("report", str(path), "--format", format, "--deep", "-o", str(out))
    deep = [] if format == "liftbridge.entries" else ["--deep"]
    stat = json.loads(run("stat", str(path), "--format", format, "--json", *deep))
    assert read_data(out)["total"] == stat["total"]


def test_map_covers_each_byte_once(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    damaged.write_bytes(damaged.read_bytes() + bytes(5000))
    run("report", str(damaged), "-o", str(out))
    file_map = read_data(out)["maps"][0]
    table = wirescan.scan(damaged.read_bytes(), "kafka.batches", errors="mark")
    bad = table["fault"] != 0
    names = [wirescan.kafka.Codec(codec).name.lower() for codec in table["codec"].tolist()]
    names = ["not compressed" if name == "none" else name for name in names]
    expected: Counter[str] = Counter()
    for row in range(len(table)):
        name = "control" if table["is_control"][row] else f"good, {names[row]}"
        expected["bad checksum" if bad[row] else name] += int(table["size"][row])
    expected["zeros"] = len(table.tail)
    assert file_map["bytes"] == dict(expected)
    assert sum(file_map["bytes"].values()) == damaged.stat().st_size
    buckets = file_map["buckets"]
    assert len(buckets) == -(-damaged.stat().st_size // file_map["width"]) <= MAP_BUCKETS


def test_buckets_of_a_map_are_those_of_each_byte() -> None:
    random = np.random.default_rng(5)
    edges = np.unique(random.integers(1, 9000, 60))
    starts, sizes = edges[:-1], np.diff(edges)
    names = [f"c{number}" for number in random.integers(0, 3, len(starts))]
    byte_map = ByteMap()
    every_byte = np.full(int(edges[-1]), -1)
    for start, size, name in zip(starts, sizes, names):
        byte_map.add(name, np.array([start]), np.array([size]))
        every_byte[start : start + size] = int(name[1:])
    result = byte_map.make_map("a")
    shown = [list(result.bytes)[number] for number in result.buckets]
    for bucket, name in enumerate(shown):
        inside = every_byte[bucket * result.width : (bucket + 1) * result.width]
        counts = [int((inside == number).sum()) for number in range(3)]
        assert counts[int(name[1:])] == max(counts)
    assert result.width == 32


def test_maps_of_many_runs_keep_the_page_small() -> None:
    data = ReportData("kafka.batches", deep=False)
    buckets = [0, 1] * (MAP_BUCKETS // 2)
    data.maps = [FileMap(LOG.name, 1, buckets, {"no frame": 256, "good": 256})] * MAX_FILES
    page = render_html(data, "")
    assert len(page) < 2_500_000
    charts = list_charts(page)
    assert len(charts) == MAX_FILES
    assert {sum(len(trace["x"]) for trace in chart["traces"]) for chart in charts} == {MAP_BUCKETS}
    assert page.count(f"Table of {SHOWN_RANGES} of {MAP_BUCKETS} ranges") == MAX_FILES


def test_rate_is_bounded_and_loses_no_record() -> None:
    rate = RecordRate()
    times = np.array([5, -(2**62), 2**63 - 1, 6])
    for time in times:
        rate.add(np.array([time]), np.array([10]))
    buckets = rate.list_buckets()
    assert len(buckets) <= TIME_BUCKETS
    assert sum(bucket.records for bucket in buckets) == 40
    for time in times.tolist():
        assert any(b.start <= time < b.start + rate.width and b.records for b in buckets)


def test_rate_and_sizes_are_those_of_the_table(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    run("report", str(LOG), "-o", str(out))
    data = read_data(out)
    table = wirescan.scan(LOG.read_bytes(), "kafka.batches")
    for bucket in data["rate"]:
        times = table["max_timestamp"]
        inside = (times >= bucket["start"]) & (times < bucket["start"] + data["time_width"])
        assert bucket["records"] == table["record_count"][inside].sum()
    assert sum(b["records"] for b in data["rate"]) == table["record_count"].sum()
    for bucket in data["sizes"]:
        inside = (table["size"] >= bucket["low"]) & (table["size"] <= bucket["high"])
        assert bucket["frames"] == inside.sum()
        assert bucket["high"] == 2 * bucket["low"] - 1
    assert sum(b["frames"] for b in data["sizes"]) == len(table)


@pytest.mark.parametrize("depth", ["--deep", "--shallow"])
def test_findings_are_those_of_verify(damaged: Path, tmp_path: Path, depth: str) -> None:
    out = tmp_path / "r.html"
    deep = ["--deep"] if depth == "--deep" else []
    run("report", str(damaged), *deep, "-o", str(out))
    lines = [json.loads(x) for x in run("verify", str(damaged), depth, "--json").splitlines()]
    data = read_data(out)
    assert data["findings"] == [x for x in lines if x["kind"] not in ("file", "summary")]
    assert data["findings"]
    assert data["verified"] == lines[-1]


def test_keys_and_codecs_are_those_of_the_records(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    run("report", str(LOG), "--deep", "-o", str(out))
    data = read_data(out)
    records = wirescan.scan(LOG.read_bytes(), "kafka.records")
    keys = [records.bytes(row, "key") for row in range(len(records))]
    counts = Counter(bytes(key[:64]) for key in keys if key is not None)
    assert data["key_total"] == sum(counts.values()) > 0
    assert {bytes.fromhex(key["key"]): key["count"] for key in data["keys"]}.items() <= (
        counts.items()
    )
    largest = sorted(counts.values(), reverse=True)[: len(data["keys"])]
    assert [key["count"] for key in data["keys"]] == largest
    assert (
        data["codecs"] == json.loads(run("stat", str(LOG), "--deep", "--json"))["total"]["codecs"]
    )
    assert [result["codec"] for result in data["what_if"]] == ["gzip", "snappy", "lz4", "zstd"]
    inflated = sum(codec["inflated_bytes"] for codec in data["codecs"].values())
    for result in data["what_if"]:
        assert result["compressed_bytes"] > 0
        assert 0 < result["sample_bytes"] <= inflated


class TableReader(HTMLParser):
    """Collects the rows of each table of a page, as lists of text."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.is_in_cell = False

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.is_in_cell = False

    def handle_data(self, text: str) -> None:
        if self.is_in_cell:
            self.tables[-1][-1][-1] += text


def read_column(page: str, header: str, name: str) -> list[int]:
    """Return the numbers of a column of the table whose header has the name `header`."""
    reader = TableReader()
    reader.feed(page.split("<h2>Faults", maxsplit=1)[0].replace("</table>", "</table><table><tr>"))
    table = next(rows for rows in reader.tables if rows[0] and header in rows[0])
    return [int(row[table[0].index(name)].replace(",", "")) for row in table[1:]]


def test_tables_have_the_numbers_of_the_json(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    run("report", str(damaged), str(LOG), "--deep", "-o", str(out))
    page, data = out.read_text(), read_data(out)
    expected = {
        ("from", "records"): [bucket["records"] for bucket in data["rate"]],
        ("from bytes", "frames"): [bucket["frames"] for bucket in data["sizes"]],
        ("finding", "byte"): [finding["offset"] for finding in data["findings"]],
        ("codec", "bytes"): [codec["bytes"] for codec in data["codecs"].values()],
        ("key", "at least"): [key["count"] for key in data["keys"]],
        ("directory", "bytes"): [counts["bytes"] for counts in data["directories"]],
    }
    for (header, name), numbers in expected.items():
        assert numbers
        assert read_column(page, header, name) == numbers


def pair_charts(page: str) -> dict[str, tuple[dict, list[list[str]]]]:
    """Return each chart with the table that follows it, by the chart's name before its details."""
    pairs = {}
    for text in page.split('<div class="chart" data-label="')[1:]:
        label = re.split('[":;]| in each', text, maxsplit=1)[0]
        chart = json.loads(text.partition('<script type="application/json">')[2].split("<")[0])
        pairs.setdefault(label, (chart, read_tables(text)[0]))
    return pairs


def read_traces(chart: dict, axis: str) -> list[list[str]]:
    """Return the numbers of each trace, written as in a table."""
    return [
        ["not known" if number is None else f"{number:,}" for number in trace[axis]]
        for trace in chart["traces"]
    ]


def list_columns(table: list[list[str]], *names: str) -> list[list[str]]:
    return [[row[table[0].index(name)] for row in table[1:]] for name in names]


def test_charts_have_the_numbers_of_the_tables(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    other = LOG.parents[1] / "orders-0/00000000000000004160.log"
    run("report", str(other), str(damaged), "--deep", "-o", str(out))
    pairs = pair_charts(out.read_text())
    expected = {
        "records": ("y", ["records"]),
        "good frames by size": ("y", ["frames"]),
        "bytes of each codec": ("x", ["bytes", "decompressed bytes"]),
        "bytes of the sample with each codec": ("x", ["bytes"]),
        "counts of frequent keys": ("x", ["at least"]),
        "bytes of the largest directories": ("x", ["bytes"]),
    }
    others = {"map by byte position", "gaps by their first missing offset"}
    assert set(pairs) == {*expected, *others}
    for label, (axis, names) in expected.items():
        chart, table = pairs[label]
        assert read_traces(chart, axis) == list_columns(table, *names)
    for label, name in (("bytes of each codec", "codec"), ("counts of frequent keys", "key")):
        chart, table = pairs[label]
        assert [chart["layout"]["yaxis"]["ticktext"]] == list_columns(table, name)
    assert [pairs["records"][0]["traces"][0]["customdata"]] == list_columns(
        pairs["records"][1], "from"
    )


def test_a_map_has_the_ranges_of_its_table(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    damaged.write_bytes(damaged.read_bytes() + bytes(5000))
    run("report", str(damaged), "-o", str(out))
    chart, table = pair_charts(out.read_text())["map by byte position"]
    assert table[0] == ["from byte", "until byte", "what covers most"]
    ranges = sorted(
        (start, start + size, trace["name"])
        for trace in chart["traces"]
        for start, size in zip(trace["base"], trace["x"])
    )
    assert [[f"{start:,}", f"{stop:,}", name] for start, stop, name in ranges] == table[1:]
    assert {name for _, _, name in ranges} == {"bad checksum", "good, not compressed", "zeros"}
    assert [start for start, _, _ in ranges[1:]] == [stop for _, stop, _ in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, damaged.stat().st_size)


def test_gaps_are_points(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    table = wirescan.scan(LOG.read_bytes(), "kafka.batches")
    start, size = (int(table[name][3]) for name in ("start", "size"))
    (tmp_path / "orders-0").mkdir()
    path = tmp_path / "orders-0" / LOG.name
    path.write_bytes(LOG.read_bytes()[:start] + LOG.read_bytes()[start + size :])
    run("report", str(path.parent), "-o", str(out))
    (gap,) = read_data(out)["findings"]
    pairs = pair_charts(out.read_text())
    assert "bytes of the largest directories" not in pairs  # there is one
    chart, rows = pairs["gaps by their first missing offset"]
    (trace,) = chart["traces"]
    assert trace["x"] == [gap["first"]] == [table["base_offset"][3]]
    assert trace["y"] == [gap["missing"]] == [table["record_count"][3]]
    assert rows[1][0] == f"{gap['missing']} offsets missing, {gap['first']} to {gap['last']}"


def test_directories_have_their_bytes_and_records(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    for name, copies in (("orders-0", 3), ("orders-1", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOG.name).write_bytes(LOG.read_bytes() * copies)
    run("report", str(tmp_path), "-o", str(out))
    records = int(wirescan.scan(LOG.read_bytes(), "kafka.batches")["record_count"].sum())
    found = [
        (Path(d["directory"]).name, d["bytes"], d["records"]) for d in read_data(out)["directories"]
    ]
    size = LOG.stat().st_size
    assert found == [("orders-0", 3 * size, 3 * records), ("orders-1", size, records)]


def test_many_files_keep_the_page_small(damaged: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / ("d" * 200), tmp_path / "r.html"
    folder.mkdir()
    content = damaged.read_bytes() * 20
    count = MAX_FILES + 50
    for number in range(count):
        (folder / f"{number:020}.log").write_bytes(content)
    run("report", str(folder), "-o", str(out))
    assert out.stat().st_size - len(load_plotly()) < 2_500_000
    data = read_data(out)
    assert len(data["maps"]) == len(data["files"]) == MAX_FILES
    assert data["file_count"] == data["total"]["files"] == count
    assert f"{count - MAX_FILES} more files" in out.read_text()
    assert data["fault_count"] == 20 * count


def test_a_large_file_may_expand_as_far_as_for_stat(tmp_path: Path) -> None:
    path, out = tmp_path / LOG.name, tmp_path / "r.html"
    path.write_bytes(LOG.read_bytes() * 100)
    bound = ["--deep", "--max-expansion", "1"]
    stat = json.loads(run("stat", str(path), *bound, "--json"))
    run("report", str(path), *bound, "-o", str(out))
    assert read_data(out)["total"] == stat["total"]


def read_text(page: str) -> str:
    """Return the text of a page without scripts: a line for each row, cells with | between."""
    page = remove_scripts(page).split("<h1>")[1]
    for tag in ("</td>", "</th>"):
        page = page.replace(tag, "|")
    for tag in ("</tr>", "</p>", "</li>", "</h2>", "</h3>", "<br>"):
        page = page.replace(tag, "\n")
    return html.unescape(re.sub("<[^>]*>", "", page))


def write_page(tmp_path: Path, *arguments: object) -> str:
    out = tmp_path / "page.html"
    run("report", *map(str, arguments), "-o", str(out))
    return read_text(out.read_text())


def test_labels_of_a_good_log(tmp_path: Path) -> None:
    text = write_page(tmp_path, LOG.parent.parent / "orders-0", "--deep")
    lines = text.splitlines()
    assert "good, not compressed 221,291 bytes" in lines
    assert "good, none" not in text
    assert "magic|2: 284|" in lines
    assert "bytes per second 0.023, records per second 0.00029|" in text
    assert "in steps of 6.21 days." in text
    assert "codecs|none: records 5,208, decompressed bytes 886,743, frames 94" in text
    assert "Of 26,078 keys, without null:" in lines
    assert "clean|yes|" in lines
    assert "lost records|0|" in lines
    assert "Nothing was found." in lines
    assert "No frame is bad." in lines


def test_labels_of_a_damaged_log(damaged: Path, tmp_path: Path) -> None:
    text = write_page(tmp_path, damaged)
    lines = text.splitlines()
    assert any(line.startswith("faults|BAD_CHECKSUM: frames 1, bytes ") for line in lines)
    assert "findings of damage|1|" in lines
    assert "empty files|0|" in lines
    assert "codec|frames|bytes|" in lines  # the ratio is not known
    assert "--deep measures the ratio." in lines
    assert "1 of 1 are listed. " in lines


def test_labels_of_frames_that_state_no_records(tmp_path: Path) -> None:
    corpus = LOG.parents[2]
    lines = write_page(tmp_path, corpus / "liftbridge/single/logs/orders-0").splitlines()
    assert "Frames over time" in lines
    assert "directory|files|bytes|share|frames|" in lines
    assert not any("does not state its records" in line for line in lines)
    paths = sorted((corpus / "thrift").glob("unframed-not-strict.*"))
    lines = write_page(tmp_path, *paths, "--format", "thrift.frames", "--deep").splitlines()
    assert any(line.startswith("no frame 949 bytes") for line in lines)
    paths = sorted((corpus / "thrift").glob("framed-binary.*"))
    lines = write_page(tmp_path, *paths, "--format", "thrift.frames", "--deep").splitlines()
    assert "kinds|FRAMED_BINARY: 17|" in lines
    assert "Frequent methods" in lines
    assert "method|first bytes|at least|at most|share|" in lines


# ---- captures of packets

CAPTURES = LOG.parents[2] / "pcap"


def read_tables(page: str) -> list[list[list[str]]]:
    """Return the cells of each table of a page."""
    reader = TableReader()
    reader.feed(remove_scripts(page))
    return reader.tables


@pytest.mark.parametrize("capture", ["kafka.pcap", "thrift.pcapng", "lumberjack.pcap"])
def test_captures_have_the_latencies_of_stat(capture: str, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    path = str(CAPTURES / capture)
    run("report", path, "-o", str(out))
    data = read_data(out)
    total = json.loads(run("stat", path, "--json"))["total"]
    assert data["format"] == f"{capture.partition('.')[0]}.exchanges"
    assert data["total"] == total
    assert data["latency_count"] == len(total["latency"]) > 0
    # The cells are those that `stat` prints.
    printed = run("stat", path).partition("  latency  ")[2].splitlines()
    lines = [re.split(r" {2,}", line.strip()) for line in printed[: len(total["latency"]) + 1]]
    chart, table = pair_charts(out.read_text())["latencies of the largest groups"]
    assert table[0][1:] == lines[0]
    assert table[1:] == lines[1:]
    timed = [group["ns"] for group in total["latency"].values() if group["ns"]]
    for trace in chart["traces"]:
        (cells,) = list_columns(table, trace["name"])
        assert trace["customdata"] == [cell for cell in cells if cell != "-"]
        assert trace["x"] == [times[trace["name"]] / 1e9 for times in timed]
    run("report", path, "--markdown", "-o", str(out))
    for line in lines:
        assert "  ".join(line) in re.sub(" {2,}", "  ", out.read_text())


def test_frames_of_captures_have_no_latencies_and_no_map(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    for format in ("kafka.requests", "kafka.exchanges"):
        run("report", str(CAPTURES / "kafka.pcap"), "--format", format, "-o", str(out))
        assert ("<h2>Latencies</h2>" in out.read_text()) == (format == "kafka.exchanges")
        assert "<h2>Files</h2>" not in out.read_text()
        assert read_data(out)["maps"] == []
    run("report", str(CAPTURES / "kafka.pcap"), "--format", "pcap.blocks", "-o", str(out))
    assert "<h2>Files</h2>" in out.read_text()


def test_exchanges_without_a_response_count_over_time(tmp_path: Path) -> None:
    path, out = tmp_path / "capture.pcap", tmp_path / "r.html"
    asked = [(0, nats.encode_pub("a", b"", reply=f"in.{n}")) for n in range(3)]
    path.write_bytes(converse((1, INFO), *asked, (1, nats.encode_msg("in.1", "1", b""))).to_pcap())
    run("report", str(path), "-o", str(out))
    data = read_data(out)
    assert data["counted"] == "exchanges"
    assert sum(bucket["records"] for bucket in data["rate"]) == 3
    assert data["directories"][0]["records"] == 3


def test_faults_of_captures_have_the_position_in_the_stream(tmp_path: Path) -> None:
    path, out = tmp_path / "capture.pcap", tmp_path / "r.html"
    first = nats.encode_pub("a", b"1", reply="in")
    capture = converse((1, INFO), (0, first), (0, b"NONSENSE\r\n"))
    path.write_bytes(capture.to_pcap())
    run("report", str(path), "-o", str(out))
    data = read_data(out)
    assert [fault["position"] for fault in data["faults"]] == [len(first)]
    assert bytes.fromhex(data["faults"][0]["near"]) == b"NONSENSE\r\n"


def test_latencies_of_many_subjects_keep_the_page_small(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    asked = [
        (0, nats.encode_pub(f"<b>{n}" + "x" * 400, b"", reply=f"in.{n}"))
        for n in range(MAX_LATENCIES + 100)
    ]
    raw = converse((1, INFO), *asked).to_pcap()
    for number in range(MAX_FILES):
        (tmp_path / f"{number:03}.pcap").write_bytes(raw if number < 20 else pcap.encode_pcap([]))
    run("report", str(tmp_path), "--format", "nats.exchanges", "-o", str(out))
    data = read_data(out)
    assert data["latency_count"] == MAX_LATENCIES + 100
    assert len(data["total"]["latency"]) == MAX_LATENCIES
    assert {len(file["latency"]) for file in data["files"]} == {0, SHOWN_GROUPS}
    page = out.read_text()
    assert f"{MAX_LATENCIES} of {MAX_LATENCIES + 100} groups" in page
    assert "<b>" not in remove_scripts(page)
    assert len(page) - len(load_plotly()) < 500_000
