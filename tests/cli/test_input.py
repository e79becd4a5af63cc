"""Pieces of a pipe are large, and none waits long for more bytes."""

import os
import threading
import time

from wirescan.cli import input as command_input

SIZE = 1 << 20


def read_pieces(write):
    """Return the pieces of a pipe that a thread writes to with the function `write`."""
    end, start = os.pipe()

    def run():
        with open(start, "wb", buffering=0) as pipe:
            write(pipe)

    writer = threading.Thread(target=run)
    writer.start()
    pieces = list(command_input.read_input(f"/dev/fd/{end}", size=SIZE))
    os.close(end)
    writer.join()
    return list(map(bytes, pieces))


def test_small_writes_are_gathered(monkeypatch):
    monkeypatch.setattr(command_input, "GATHERING", 60)

    def write(pipe):
        for _ in range(3 * SIZE // 4096):
            pipe.write(b"x" * 4096)

    assert list(map(len, read_pieces(write))) == [SIZE] * 3


def test_gathering_ends_while_bytes_still_come(monkeypatch):
    monkeypatch.setattr(command_input, "GATHERING", 0.02)

    def write(pipe):
        pipe.write(b"first")
        for _ in range(100):
            time.sleep(0.002)
            pipe.write(b"x")

    pieces = read_pieces(write)
    assert b"".join(pieces) == b"first" + b"x" * 100
    assert len(pieces) > 2


def test_rows_are_late_by_a_few_milliseconds():
    assert command_input.GATHERING <= 0.01
