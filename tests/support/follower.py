"""A running `wirescan scan --follow`, and the lines that it prints."""

import json
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from queue import Empty, Queue

from tests.support.command import make_environment

SECONDS = 20  # until a line that must come is missed
QUIET = 0.6  # seconds in which a line that must not come would come


class Follower:
    """A running command, and the lines that it has printed."""

    def __init__(self, process):
        self.process = process
        self._lines = Queue()
        self._messages = Queue()
        for stream, queue in ((process.stdout, self._lines), (process.stderr, self._messages)):
            threading.Thread(target=self._collect, args=(stream, queue), daemon=True).start()

    @staticmethod
    def _collect(stream, queue):
        for line in stream:
            queue.put(line)

    def read(self, count):
        return [self._lines.get(timeout=SECONDS) for _ in range(count)]

    def read_offsets(self, count):
        return [json.loads(line)["offset"] for line in self.read(count)]

    def read_soon(self):
        """Return the next line that comes soon, or None."""
        try:
            return self._lines.get(timeout=QUIET)
        except Empty:
            return None

    def read_message(self):
        """Return the next line of standard error that is not empty."""
        return self._messages.get(timeout=SECONDS).decode().strip() or self.read_message()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(SECONDS) == 130
        return self.read_message()


@contextmanager
def start(*arguments, **options):
    command = [sys.executable, "-m", "wirescan", "scan", *map(str, arguments)]
    environment = make_environment()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options
    )
    try:
        yield Follower(process)
    finally:
        process.kill()
        process.wait()


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)
