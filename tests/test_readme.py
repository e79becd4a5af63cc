"""The README's examples run, on the corpus."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests/corpus/kafka/orders-0"
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run(code: str, folder: Path) -> None:
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def here(code: str, folder: Path) -> str:
    return (code.replace("/var/lib/kafka/orders-0", str(CORPUS)).replace("/data/orders-0", str(CORPUS))
            .replace("/data/*-0", str(folder / "data" / "*-0")).replace('"out"', repr(str(folder / "out"))))


def test_python(tmp_path):
    reading, streaming = (code for code in blocks("python") if "spark" not in code)
    run(here(reading, tmp_path), tmp_path)
    chunks = f"data = open({str(CORPUS / '00000000000000000000.log')!r}, 'rb').read()\n" \
             "chunks = [data[i:i + 1000] for i in range(0, len(data), 1000)]\n"
    run(chunks + streaming, tmp_path)


@pytest.mark.spark
def test_spark(tmp_path):
    code, = (code for code in blocks("python") if "spark" in code)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders-0").symlink_to(CORPUS)
    sets = f"data = open({str(CORPUS / '00000000000000000000.log')!r}, 'rb').read()\n"
    code = code.replace("spark = wirescan.spark.session()", "spark = wirescan.spark.session()\n" + sets
                        + "frames = spark.createDataFrame([(data,)], 'payload binary')")
    run(here(code, tmp_path) + "\nassert df.count() == 27708\n", tmp_path)


def test_command_line(tmp_path):
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("wirescan ")]
    assert len(commands) == 6
    (tmp_path / "wirescan").write_text(f"#!/bin/sh\nexec {sys.executable} -m wirescan \"$@\"\n")
    (tmp_path / "wirescan").chmod(0o755)
    (tmp_path / "orders-0").symlink_to(CORPUS)
    for command in commands:
        command = command.replace("/var/lib/kafka/orders-0", str(CORPUS)).split("|")[0]
        result = subprocess.run(["sh", "-c", f"PATH=.:$PATH; {command}"], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, (command, result.stderr)
