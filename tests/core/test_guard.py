"""No kernel reads a byte outside its buffer.

Every cut of every golden file is put before a page that cannot be read.
"""

import signal
import subprocess
import sys

import pytest


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tests.support.guard", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "arguments, least", [((), 4000), (("messages",), 2500)], ids=["batches", "messages"]
)
def test_nothing_is_read_outside(arguments, least, stride):
    result = run("1", str(stride), *arguments)
    assert result.returncode == 0, (result.returncode, result.stderr)
    assert int(result.stdout) > least // stride, "fewer scans than this test is for"


def test_the_guard_catches_an_overrun():
    assert run("1", "1", "overrun").returncode == -signal.SIGSEGV
