"""Progress bars: each long verb shows bytes, a rate and a time, and only on a terminal."""

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import wirescan
from tests.support.paths import ORDERS as FOLDER
from wirescan.seglog.log_diff import LogDiff

SCRIPT = """
import wirescan.cli.progress
wirescan.cli.progress.PATIENCE = -1
from wirescan.__main__ import start
start()
"""
ORDERS = str(FOLDER)
SIZE = sum(path.stat().st_size for path in FOLDER.glob("*.log"))
COMMANDS = {
    "verify": (ORDERS,),
    "stat": (ORDERS,),
    "index": (ORDERS, "--to", "index"),
    "report": (ORDERS, "-o", "report.html"),
    "convert": (ORDERS, "out"),
    "salvage": (ORDERS, "--to", "repaired"),
    "diff": (ORDERS, ORDERS),
    "scan": (ORDERS, "--json"),
}


def start(verb, folder, messages):
    """Start a verb that shows its bar at once, and return its process.

    messages: where standard error goes.
    """
    environment = os.environ | {
        "PYTHONPATH": str(Path(wirescan.__file__).parents[1]),
        "TERM": "xterm",
        "COLUMNS": "120",
    }
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, verb, *COMMANDS[verb]],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=messages,
    )


def read_all(handle, into):
    try:
        while data := os.read(handle, 1 << 16):
            into.append(data)
    except OSError:  # the other end of the terminal is closed
        pass


@pytest.mark.parametrize("verb", COMMANDS)
def test_bytes_rate_and_time_on_a_terminal(verb, tmp_path):
    terminal, other = pty.openpty()
    process = start(verb, tmp_path, other)
    os.close(other)
    pieces = []
    reader = threading.Thread(target=read_all, args=(terminal, pieces))
    reader.start()
    assert process.wait(60) in (0, 1)
    reader.join(20)
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(pieces).decode())
    assert re.search(r"\d+(\.\d+)?/\d+(\.\d+)? [KM]iB", text), text
    assert re.search(r" [kMG]?B/s| \?", text), text
    assert re.search(r"\d:\d\d:\d\d|-:--:--", text), text


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_pipe_gets_no_bar(verb, tmp_path):
    process = start(verb, tmp_path, subprocess.PIPE)
    assert process.communicate(timeout=60)[1] == b""


def test_all_bytes_of_a_comparison_are_counted():
    sizes = []
    assert not list(LogDiff(ORDERS, ORDERS, format="kafka.records", advance=sizes.append))
    assert SIZE * 1.8 < sum(sizes) <= 2 * SIZE
