"""No kernel reads a byte outside its buffer: every cut of every golden file against pages that cannot be read."""
import signal
import subprocess
import sys
from pathlib import Path

import pytest

GUARD = str(Path(__file__).with_name("guard.py"))


def run(*arguments):
    return subprocess.run([sys.executable, GUARD, *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("what, least", [((), 4000), (("messages",), 2500)], ids=["batches", "messages"])
def test_nothing_is_read_outside(what, least):
    done = run("1", *what)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert int(done.stdout) > least, "fewer scans than this test is for"


def test_the_guard_bites():
    assert run("1", "overrun").returncode == -signal.SIGSEGV
