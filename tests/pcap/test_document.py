"""The examples of docs/captures.md run with a recorded capture."""

import contextlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.command import START, make_environment, run
from tests.support.paths import CORPUS, ROOT

PAGE = (ROOT / "docs/captures.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()


@pytest.fixture
def folder(tmp_path):
    shutil.copy(CORPUS / "pcap" / "kafka.pcap", tmp_path)
    with contextlib.chdir(tmp_path):
        yield tmp_path


def test_python_runs(folder):
    names = {}
    for block in PYTHON:
        exec(compile(block, "captures.md", "exec"), names)
    assert len(names["partitions"]) > 0
    assert len(names["requests"]) > 0
    assert names["table"].column_names == ["time", "client", "api_key", "latency"]


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("wirescan")])
def test_commands_run(folder, command):
    result = run(*command.split()[1:])
    assert result.exit_code == 0, result.stderr
    assert result.stdout


def test_a_pipe_is_read(folder):
    command = next(line for line in COMMANDS if line.startswith("tcpdump"))
    arguments = command.rpartition("wirescan ")[2].split()
    result = subprocess.run(
        [sys.executable, "-c", START, *arguments],
        input=(folder / "kafka.pcap").read_bytes(),
        capture_output=True,
        env=make_environment(),
    )
    assert b"api_versions" in result.stdout, result.stderr
