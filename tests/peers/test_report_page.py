"""Chromium shows the page of `wirescan report`: without errors, and in the width of a phone.

A window of Chromium is at least 500 pixels wide, so a frame of 360 pixels holds the page. Debian
updates its Chromium every week and keeps no old one, so no version is pinned. The summary of the
tests names the version.
"""

import html
import json
import re
import subprocess
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.captured_conversations import INFO, converse
from wirescan import nats
from wirescan.cli.main import main

pytestmark = pytest.mark.peers
CHROMIUM = "/usr/bin/chromium"
CORPUS = Path(__file__).parents[1] / "corpus/kafka"
OLDEST = 132  # the first version whose option --headless has the layout of a window
PHONE_WIDTH = 360  # pixels
SECONDS = 60
LIGHT = "--no-first-run"  # any option that does not change the colours

# Opens all details, and writes what was measured into the document.
MEASURE = """
onload=()=>{const page=frames[0].document;
page.querySelectorAll("details").forEach(e=>e.open=true);
const select=page.getElementById("fault");
select.value=select.options[1].value;select.dispatchEvent(new Event("change"));
const root=page.documentElement;
const heading=[...page.querySelectorAll("h2")].find(e=>e.textContent==="Latencies");
const table=heading?heading.nextElementSibling.nextElementSibling:page.createElement("p");
const wide=[...page.querySelectorAll(".wide,pre")].filter(e=>e.scrollWidth>e.clientWidth);
document.body.dataset.measured=JSON.stringify({client:root.clientWidth,scroll:root.scrollWidth,
latencies:[...table.querySelectorAll("tr")].map(e=>[...e.cells].map(e=>e.textContent)),
charts:[...page.querySelectorAll("svg")].map(e=>e.getBoundingClientRect().width),
reachable:wide.every(e=>e.tabIndex===0),named:[...page.querySelectorAll("svg")].every(
e=>e.getAttribute("aria-label")),shown:page.getElementById("shown").textContent,
background:getComputedStyle(root).colorScheme})}
"""


def read_version(text: str) -> int:
    """Return the major version that `chromium --version` prints. Fails for one that is too old."""
    match = re.search(r"Chromium (\d+)\.", text)
    if match is None:
        pytest.fail(f"{CHROMIUM} --version prints no version of Chromium: {text!r}")
    version = int(match[1])
    if version < OLDEST:
        pytest.fail(
            f"{CHROMIUM} is version {version}, and the tests need {OLDEST} or later: "
            "apt-get install chromium"
        )
    return version


@pytest.fixture
def chromium(record_property):
    """Check the version of Chromium, and have the summary of the tests name it."""
    command = [CHROMIUM, "--version"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS).stdout
    read_version(text)
    record_property("program", text.strip())


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


def run_chromium(folder: Path, page: str, *options: str) -> subprocess.CompletedProcess:
    """Run Chromium with a document that holds `page` in a frame as wide as a phone."""
    wrapper = folder / "wrapper.html"
    wrapper.write_text(
        f'<!doctype html><meta charset="utf-8"><body style="margin:0">'
        f'<iframe style="border:0" width={PHONE_WIDTH} height=2000 srcdoc="{html.escape(page)}">'
        f"</iframe><script>{MEASURE}</script>"
    )
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu"]
    command += ["--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"]
    command += ["--window-size=500,2000", "--hide-scrollbars", *options, wrapper.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)


def list_console_lines(run: subprocess.CompletedProcess) -> list[str]:
    return [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def read_measured(run: subprocess.CompletedProcess) -> dict:
    found = re.search(r'data-measured="([^"]*)"', run.stdout)
    assert found is not None
    return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """The page about damaged files, one of them with a long name that has no spaces."""
    folder = tmp_path_factory.mktemp("logs")
    raw = bytearray((CORPUS / "live-0/00000000000000000000.log").read_bytes())
    raw[100] ^= 1
    (folder / ("n" * 150 + ".log")).write_bytes(raw)
    (folder / "<img src=x onerror=alert(1)>.log").write_bytes(bytes(raw) + bytes(5000))
    out = folder / "report.html"
    files = [str(path) for path in sorted(folder.glob("*.log"))]
    result = CliRunner().invoke(main, ["report", "--deep", *files, "-o", str(out)])
    assert result.exit_code == 1, result.output
    return out.read_text()


@pytest.mark.usefixtures("chromium")
def test_page_has_no_error_and_fits_a_phone(page, tmp_path):
    run = run_chromium(tmp_path, page, "--force-dark-mode", "--dump-dom")
    assert list_console_lines(run) == []
    measured = read_measured(run)
    assert measured["client"] == measured["scroll"] == PHONE_WIDTH
    assert len(measured["charts"]) == 4
    assert all(0 < width < PHONE_WIDTH for width in measured["charts"])
    assert measured["reachable"]
    assert measured["named"]
    assert measured["background"] == "light dark"
    assert measured["shown"] == "2 shown"


@pytest.mark.usefixtures("chromium")
def test_latencies_of_a_capture_fit_a_phone(tmp_path):
    subjects = ("short", "a.subject" * 30, "<img/src=x/onerror=alert(1)>")
    turns = [(1, INFO)]
    for number, subject in enumerate(subjects):
        turns.append((0, nats.encode_pub(subject, b"", reply=f"in.{number}")))
        turns.append((1, nats.encode_msg(f"in.{number}", "1", b"", status=503)))
    path, out = tmp_path / "capture.pcap", tmp_path / "report.html"
    path.write_bytes(converse(*turns, (0, b"NONSENSE\r\n")).to_pcap())
    result = CliRunner().invoke(main, ["report", str(path), "-o", str(out)])
    assert result.exit_code == 1, result.output
    run = run_chromium(tmp_path, out.read_text(), "--dump-dom")
    assert list_console_lines(run) == []
    measured = read_measured(run)
    assert measured["client"] == measured["scroll"] == PHONE_WIDTH
    assert len(measured["charts"]) == 2
    assert measured["reachable"]
    assert measured["shown"] == "1 shown"
    groups = [row[:4] for row in measured["latencies"]]
    assert groups[0] == ["group", "exchanges", "answered", "errors"]
    assert sorted(groups[1:]) == sorted(
        [subject[:200] + "..." * (len(subject) > 200), "1", "1", "1"] for subject in subjects
    )


@pytest.mark.usefixtures("chromium")
def test_what_the_first_test_looks_for_is_seen(page, tmp_path):
    wrong = page.replace("<main>", "<main><div style=width:999px>.</div><script>no()</script>")
    run = run_chromium(tmp_path, wrong, "--dump-dom")
    assert any("no is not defined" in line for line in list_console_lines(run))
    assert read_measured(run)["scroll"] > PHONE_WIDTH


def read_first_pixel(png: bytes) -> bytes:
    """Return the red, green and blue of the first pixel: no filter of PNG changes that pixel."""
    at, data = 8, b""
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    return zlib.decompress(data)[1:4]


@pytest.mark.usefixtures("chromium")
def test_page_is_dark_in_dark_mode(page, tmp_path):
    brightness = {}
    for mode in ("--force-dark-mode", LIGHT):
        shot = tmp_path / f"{mode}.png"
        run_chromium(tmp_path, page, mode, f"--screenshot={shot}")
        brightness[mode] = max(read_first_pixel(shot.read_bytes()))
    assert brightness["--force-dark-mode"] < 64
    assert brightness[LIGHT] > 192
