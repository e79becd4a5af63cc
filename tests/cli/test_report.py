"""`wirescan report`: its numbers are those of `stat`, and no input becomes markup."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from wirescan.cli.main import main
from wirescan.cli.support.report_page import MAX_FAULTS, ListedFault, ReportData, render_html

LOG = Path(__file__).parents[1] / "corpus/kafka/live-0/00000000000000000000.log"
NAME = "<script>alert(1)<!--&\"'.log"


def run(*args: str) -> str:
    result = CliRunner().invoke(main, list(args))
    assert result.exit_code in (0, 1), result.output
    return result.output


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
    found = re.search(r'id="data">(.*?)</script>', out.read_text())
    data = json.loads(found[1])
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
    assert page.count("<script") == 2


def test_markdown_lists_the_fault(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.md"
    run("report", str(damaged), "--markdown", "-o", str(out))
    assert "Faults: 1 of 1" in out.read_text()


def test_a_hostile_payload_is_text() -> None:
    near = b"</pre><script>".hex()
    fault = ListedFault("a.log", "BAD_CHECKSUM", 0, 14, near)
    data = ReportData("kafka.batches", {}, [{"file": "a.log", "bytes": 14, "frames": 0}], [fault])
    page = render_html(data)
    assert "&lt;/pre&gt;&lt;script&gt;" in page
    assert page.count("<script") == 2


def test_at_most_500_faults_are_listed(damaged: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "many.log", tmp_path / "r.html"
    path.write_bytes(damaged.read_bytes() * (MAX_FAULTS + 1))
    run("report", str(path), "-o", str(out))
    found = re.search(r'id="data">(.*?)</script>', out.read_text())
    data = json.loads(found[1])
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
    run("report", str(path), "--format", format, "-o", str(out))
    found = re.search(r'id="data">(.*?)</script>', out.read_text())
    stat = json.loads(run("stat", str(path), "--format", format, "--json"))
    assert json.loads(found[1])["total"] == stat["total"]
