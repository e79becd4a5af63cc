"""`wirescan report`: its numbers are those of `stat`, and no input becomes markup."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from wirescan.cli.main import main

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
