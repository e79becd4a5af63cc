"""Chromium shows the page of `wirescan report`: charts, on a phone, in the dark, by keyboard."""

import json
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.peers.chromium import Chromium, name_version, read_version
from tests.support.captured_conversations import INFO, converse
from wirescan import nats
from wirescan.cli.main import main
from wirescan.cli.support.report_numbers import (
    DirectoryCounts,
    FileMap,
    FrequentKey,
    ReportData,
    TimeBucket,
)
from wirescan.cli.support.report_page import render_html
from wirescan.cli.support.report_scripts import load_plotly

pytestmark = pytest.mark.peers
CORPUS = Path(__file__).parents[1] / "corpus/kafka"
PHONE_WIDTH = 360  # pixels
HOSTILE = (
    "<b>b</b>",
    "<a href='//x'>",
    "$x^2$ \\(y\\)",
    "%{y} %{x|%b}",
    "&lt;i&gt; &#60;",
    "<br><sub>",
    "<script>no()",
)
IS_DRAWN = "[...document.querySelectorAll('.chart')].every(e=>e.dataset.state==='drawn')"

# Returns what each chart draws, and the table after it.
READ_CHARTS = """
[...document.querySelectorAll(".chart")].map(e=>{
let at=e;do at=at.nextElementSibling;while(!at.querySelector("table"));
const box=b=>{const r=b.getBoundingClientRect();return [r.width,r.height];};
return{label:e.dataset.label,width:e.getBoundingClientRect().width,
bars:[...e.querySelectorAll(".barlayer .trace")].map(t=>
[...t.querySelectorAll(".point path")].map(box)),
points:[...e.querySelectorAll(".scatterlayer .trace")].map(t=>t.querySelectorAll(".point").length),
traces:e.data.map(t=>({name:t.name,x:t.x,y:t.y,orientation:t.orientation,type:t.type})),
ticks:[...e.querySelectorAll(".ytick text")].map(t=>t.textContent),
table:[...at.querySelectorAll("tr")].map(r=>[...r.cells].map(c=>c.textContent))}})
"""


@pytest.fixture
def chromium(record_property):
    """Check the version of Chromium, and have the summary of the tests name it."""
    record_property("program", name_version())


def test_the_version_is_the_one_that_chromium_prints():
    assert read_version("Chromium 156.0.8078.108 built on Debian GNU/Linux 12 (bookworm)\n") == 156


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Chromium 131.0.1.2 built on Debian\n", "is version 131, and the tests need 132 or later"),
        ("", "prints no version of Chromium: ''"),
    ],
)
def test_another_version_is_refused(text, message):
    with pytest.raises(pytest.fail.Exception, match=message):
        read_version(text)


@pytest.fixture
def browser(chromium, tmp_path):
    with Chromium(tmp_path / "profile", width=PHONE_WIDTH, height=800) as started:
        yield started


def write_report(folder: Path, *sources: object) -> Path:
    """Write the page about damaged files."""
    out = folder / "report.html"
    result = CliRunner().invoke(main, ["report", *map(str, sources), "-o", str(out)])
    assert result.exit_code == 1, result.output
    return out


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The page about damaged files, one of them with a long name that has no spaces."""
    folder = tmp_path_factory.mktemp("logs")
    raw = bytearray((CORPUS / "orders-0/00000000000000004160.log").read_bytes())
    raw[100] ^= 1
    (folder / ("n" * 150 + ".log")).write_bytes(raw)
    (folder / "<img src=x onerror=alert(1)>.log").write_bytes(bytes(raw) + bytes(5000))
    other = folder / "other-0"
    other.mkdir()
    (other / "00000000000000000000.log").write_bytes(raw[:30_000])
    return write_report(folder, *sorted(folder.glob("*.log")), other, "--deep")


def draw_all(browser: Chromium, page: Path) -> None:
    """Open a page and have it draw all charts, as before it is printed."""
    browser.open(page.as_uri())
    browser.run("dispatchEvent(new Event('beforeprint'))&&0")
    browser.wait_for(IS_DRAWN)


def show_first(browser: Chromium) -> None:
    """Scroll to the first chart, and wait until it is drawn."""
    browser.run("document.querySelector('.chart').scrollIntoView()")
    browser.wait_for("document.querySelector('.chart').dataset.state==='drawn'")


def assert_is_quiet(browser: Chromium, page: Path) -> None:
    assert browser.list_messages() == []
    assert browser.list_requests() == [page.as_uri()]


def test_page_asks_for_nothing_and_fits_a_phone(browser, page):
    draw_all(browser, page)
    browser.run("document.querySelectorAll('details').forEach(e=>e.open=true)")
    width = "[document.documentElement.scrollWidth,innerWidth]"
    assert browser.run(width) == [PHONE_WIDTH, PHONE_WIDTH]
    charts = browser.run(READ_CHARTS)
    assert len(charts) == 10
    assert all(0 < chart["width"] < PHONE_WIDTH for chart in charts)
    wide = "[...document.querySelectorAll('.wide,pre')].filter(e=>e.scrollWidth>e.clientWidth)"
    assert browser.run(f"{wide}.length") > 0
    assert browser.run(f"{wide}.every(e=>e.tabIndex===0)")
    # A picture for the reader's files is made inside the policy.
    picture = browser.run("Plotly.toImage(document.querySelector('.chart'),{format:'png'})")
    assert picture.startswith("data:image/png;base64,")
    assert_is_quiet(browser, page)


def test_menus_select_faults(browser, page):
    browser.open(page.as_uri())
    assert browser.run("document.getElementById('shown').textContent") == "3 shown"
    for menu in ("fault", "file"):
        browser.run(
            f"{{const s=document.getElementById('{menu}');s.value=s.options[1].value;"
            "s.dispatchEvent(new Event('change'))}"
        )
    shown = browser.run("document.querySelectorAll('details[data-fault]:not([hidden])').length")
    assert browser.run("document.getElementById('shown').textContent") == f"{shown} shown"
    assert shown == 1


def test_what_the_tests_look_for_is_seen(browser, page, tmp_path):
    wrong = tmp_path / "wrong.html"
    text = page.read_text()
    added = "<main><div style=width:999px>.</div><script>no()</script><img src='x.png'>"
    wrong.write_text(text.replace("<main>", added))
    browser.open(wrong.as_uri())
    assert browser.run("document.documentElement.scrollWidth") > PHONE_WIDTH
    fetch = "fetch('data:,a').then(()=>'sent',()=>'refused')"
    assert browser.run(fetch) == "refused"
    messages = browser.list_messages()
    assert any("inline script" in message for message in messages)
    assert any("x.png" in message for message in messages)
    # Without the policy the script runs and the image is asked for.
    wrong.write_text(wrong.read_text().replace("Content-Security-Policy", "none"))
    browser.events.clear()
    browser.open(wrong.as_uri() + "?")
    browser.wait_for("document.readyState==='complete'")
    assert browser.run(fetch) == "sent"
    assert any("no is not defined" in message for message in browser.list_messages())
    assert any(url.endswith("x.png") for url in browser.list_requests())


def list_numbers(table: list[list[str]], name: str) -> list[int | None]:
    cells = [row[table[0].index(name)] for row in table[1:]]
    return [None if cell == "not known" else int(cell.replace(",", "")) for cell in cells]


def test_charts_draw_the_numbers_of_their_tables(browser, page):
    draw_all(browser, page)
    by_label = {}
    for chart in browser.run(READ_CHARTS):
        by_label.setdefault(chart["label"].partition(" in each")[0].partition(";")[0], chart)
    columns = {
        "records": ["records"],
        "good frames by size": ["frames"],
        "bytes of each codec": ["bytes", "decompressed bytes"],
        "bytes of the sample with each codec": ["bytes"],
        "counts of frequent keys": ["at least"],
        "bytes of the largest directories": ["bytes"],
    }
    for label, names in columns.items():
        chart = by_label[label]
        assert len(chart["bars"]) == len(chart["traces"]) == len(names)
        for trace, boxes, name in zip(chart["traces"], chart["bars"], names):
            numbers = list_numbers(chart["table"], name)
            is_row = trace.get("orientation") == "h"
            assert trace["x" if is_row else "y"] == numbers
            # The bars are as long as the numbers say.
            drawn = [number for number in numbers if number]
            lengths = [length for box in boxes if (length := box[0 if is_row else 1]) > 0]
            assert len(lengths) == len(drawn)
            scale = max(lengths) / max(drawn)
            assert lengths == pytest.approx([number * scale for number in drawn], abs=1.5)


def test_maps_draw_the_ranges_of_their_tables(browser, page):
    browser.resize(1000, 800)
    draw_all(browser, page)
    maps = [c for c in browser.run(READ_CHARTS) if c["label"].startswith("map by byte position")]
    assert len(maps) == 3
    for chart in maps:
        table = chart["table"]
        starts = list_numbers(table, "from byte")
        stops = list_numbers(table, "until byte")
        sizes = dict.fromkeys((trace["name"] for trace in chart["traces"]), 0)
        for start, stop, row in zip(starts, stops, table[1:]):
            sizes[row[2]] += stop - start
        total = stops[-1]
        widths = {
            trace["name"]: sum(box[0] for box in boxes)
            for trace, boxes in zip(chart["traces"], chart["bars"])
        }
        assert sum(map(len, chart["bars"])) == len(table) - 1
        scale = sum(widths.values()) / total
        for name, size in sizes.items():
            assert widths[name] == pytest.approx(size * scale, abs=2)
        assert "bad checksum" in sizes


def find_centre(browser: Chromium, selector: str) -> tuple[float, float]:
    """Scroll an element into the window, and return its centre."""
    return browser.run(
        f"{{const e=document.querySelector({json.dumps(selector)});"
        "e.scrollIntoView({block:'center'});const r=e.getBoundingClientRect();"
        "[r.x+r.width/2,r.y+r.height/2]}"
    )


def point_at(browser: Chromium, selector: str) -> list[str]:
    """Move the mouse to an element of a chart, and return the texts that it then shows."""
    x, y = find_centre(browser, selector)
    for step in (1, 0):
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + step, y=y)
    browser.wait_for("document.querySelector('.hoverlayer .hovertext')!==null")
    return browser.run(
        "[...document.querySelectorAll('.hoverlayer .hovertext text')].map(e=>e.textContent)"
    )


def test_pointing_at_a_range_shows_its_bytes(browser, page):
    draw_all(browser, page)
    chart = browser.run(READ_CHARTS)[0]
    name = chart["traces"][-1]["name"]
    row = next(row for row in chart["table"] if row[2] == name)
    texts = point_at(browser, ".chart .barlayer .trace:last-child .point path")
    assert sorted(texts) == sorted([f"bytes {row[0]} until {row[1]}", name])


def test_buttons_zoom_by_keyboard(browser, page):
    browser.open(page.as_uri())
    show_first(browser)
    whole = browser.run("document.querySelector('.chart').layout.xaxis.range")
    for _ in range(20):
        browser.press("Tab", 9)
        focused = browser.run("document.activeElement.getAttribute('aria-label')")
        if focused == "Zoom in":
            break
    assert focused == "Zoom in"
    browser.press("Enter", 13)
    browser.wait_for(
        f"document.querySelector('.chart').layout.xaxis.range[1]<{whole[1]}"
        f"&&document.querySelector('.chart').layout.xaxis.range[0]>{whole[0]}"
    )
    labels = browser.run(
        "[...document.querySelector('.chart').querySelectorAll('.modebar button')]"
        ".map(e=>e.getAttribute('aria-label'))"
    )
    assert len(labels) == 6
    assert browser.run("document.querySelectorAll('.chart a').length") == 0


def test_charts_have_names_for_readers_who_do_not_see_them(browser, page):
    draw_all(browser, page)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    images = [
        node["name"]["value"]
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in ("image", "img")
    ]
    labels = browser.run("[...document.querySelectorAll('.chart')].map(e=>e.dataset.label)")
    named = [name for name in images if name]
    assert named == labels
    # The other drawings, such as the one with the titles of axes, are hidden from them.
    assert "bytes, at least" not in {node["name"]["value"] for node in nodes if "name" in node}


def test_charts_are_drawn_when_they_are_near(browser, page):
    browser.open(page.as_uri())
    last = "[...document.querySelectorAll('.chart')].at(-1)"
    show_first(browser)
    assert browser.run(f"{last}.dataset.state===undefined")
    browser.run(f"{last}.scrollIntoView()")
    browser.wait_for(f"{last}.dataset.state==='drawn'")


def test_tables_need_no_script(browser, page):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page.as_uri())
    visible = "[...document.querySelectorAll('{}')].filter(e=>e.getBoundingClientRect().height>0)"
    assert browser.run(f"{visible.format('.chart')}.length") == 0
    assert browser.run(f"{visible.format('table')}.length") > 5


def render_hostile() -> str:
    """Return a page whose names of files, keys, directories and groups look like markup.

    Its times are far behind the year 9999.
    """
    data = ReportData("nats.exchanges", deep=True)
    data.time_width = 2**56
    data.rate = [TimeBucket(2**62, 3), TimeBucket(2**62 + 2**56, 4)]
    data.maps = [FileMap(name, 1, [0, 1], {name: 1, "good": 1}) for name in HOSTILE]
    data.keys = [FrequentKey(name.encode().hex(), 5, 1) for name in HOSTILE]
    data.key_total = 99
    data.directories = [DirectoryCounts(name, 1, 5) for name in HOSTILE]
    times = {"min": 1, "median": 2, "p95": 3, "p99": 4, "max": 5}
    group = {"exchanges": 1, "answered": 1, "errors": 0, "ns": times}
    data.total = {"latency": {name: group for name in HOSTILE}}
    data.codecs = {name: {"frames": 1, "bytes": 7} for name in HOSTILE}
    data.findings = [
        {"kind": "gap", "file": name, "offset": 0, "first": first, "last": first, "missing": 1}
        for name, first in zip(HOSTILE, range(2**62, 2**63, 2**57))
    ]
    return render_html(data, load_plotly())


def test_hostile_names_are_shown_as_they_are(browser, tmp_path):
    page = tmp_path / "hostile.html"
    page.write_text(render_hostile())
    browser.resize(1000, 800)
    draw_all(browser, page)
    charts = {
        chart["label"].partition(":")[0]: chart
        for chart in browser.run(READ_CHARTS)
        if not chart["label"].startswith("map")
    }
    for label in (
        "latencies of the largest groups; the table has them",
        "counts of frequent keys; the table has them",
        "bytes of the largest directories; the table has them",
        "bytes of each codec; the table has them",
    ):
        # Plotly keeps spaces together with characters that do not break.
        ticks = [text.replace("\u00a0", " ") for text in charts[label]["ticks"]]
        assert sorted(ticks) == sorted(HOSTILE), label
    assert charts["latencies of the largest groups; the table has them"]["points"] == [7] * 5
    (rate,) = (chart for label, chart in charts.items() if label.startswith("records in each"))
    heights = [height for _, height in rate["bars"][0]]
    assert heights == pytest.approx([heights[1] * 3 / 4, heights[1]], abs=1)
    assert heights[1] > 50
    texts = point_at(browser, ".chart .barlayer .point path")
    assert sorted(texts) == sorted([HOSTILE[0], "bytes 0 until 1"])
    for tag in ("svg a", "b", "i", "sub", "main img", "iframe", "mjx-container"):
        assert browser.run(f"document.querySelectorAll({json.dumps(tag)}).length") == 0, tag
    assert browser.run("document.scripts.length-document.querySelectorAll('.chart').length") == 4
    assert_is_quiet(browser, page)


def test_a_gap_shows_the_file_as_it_is(browser, tmp_path):
    page = tmp_path / "hostile.html"
    page.write_text(render_hostile())
    browser.resize(1000, 800)
    draw_all(browser, page)
    gaps = ".chart[data-label^='gaps'] .scatterlayer .point"
    texts = point_at(browser, gaps)
    assert texts == [f"1 offsets missing, {2**62} to {2**62}{HOSTILE[0]}"]


def test_latencies_of_a_capture_fit_a_phone(browser, tmp_path):
    subjects = ("short", "a.subject" * 30, "<img/src=x/onerror=alert(1)>")
    turns = [(1, INFO)]
    for number, subject in enumerate(subjects):
        turns.append((0, nats.encode_pub(subject, b"", reply=f"in.{number}")))
        turns.append((1, nats.encode_msg(f"in.{number}", "1", b"", status=503)))
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse(*turns, (0, b"NONSENSE\r\n")).to_pcap())
    page = write_report(tmp_path, path)
    draw_all(browser, page)
    assert browser.run("document.documentElement.scrollWidth") == PHONE_WIDTH
    charts = browser.run(READ_CHARTS)
    assert [chart["label"].split()[0] for chart in charts] == ["latencies", "exchanges", "good"]
    latencies = charts[0]
    assert latencies["points"] == [3] * 5
    assert latencies["table"][0][:4] == ["group", "exchanges", "answered", "errors"]
    assert sorted(row[:4] for row in latencies["table"][1:]) == sorted(
        [subject[:200] + "..." * (len(subject) > 200), "1", "1", "1"] for subject in subjects
    )
    shown = [subject if len(subject) <= 20 else subject[:20] + "..." for subject in subjects]
    assert sorted(latencies["ticks"]) == sorted(shown)
    assert_is_quiet(browser, page)


def read_first_pixel(png: bytes) -> bytes:
    """Return the red, green and blue of the first pixel: no filter of PNG changes that pixel."""
    at, data = 8, b""
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    return zlib.decompress(data)[1:4]


def test_page_and_charts_follow_dark_mode(browser, page):
    text = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    browser.set_dark(dark=True)
    browser.open(page.as_uri())
    show_first(browser)
    assert max(read_first_pixel(browser.take_screenshot())) < 64
    assert browser.run(text) == "rgb(255, 255, 255)"
    # The mode changes while the page is open.
    browser.set_dark(dark=False)
    browser.wait_for(f"{text}==='rgb(0, 0, 0)'")
    assert min(read_first_pixel(browser.take_screenshot())) > 192
