"""No kernel reads a byte outside its buffer: every cut of every golden file against pages that cannot be read."""
import signal
import subprocess
import sys
from pathlib import Path

GUARD = str(Path(__file__).with_name("guard.py"))


def run(*arguments):
    return subprocess.run([sys.executable, GUARD, *arguments], capture_output=True, text=True, timeout=300)


def test_nothing_is_read_outside():
    done = run("1")
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert int(done.stdout) > 5000


def test_the_guard_bites():
    assert run("1", "overrun").returncode == -signal.SIGSEGV
