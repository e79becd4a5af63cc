"""The program in C that bounds how fast batches can become Arrow columns (one_pass.c)."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from bench.peers.programs import make_once

SOURCE = Path(__file__).with_name("one_pass.c")
PADDING = 32  # readable bytes after the batches
OPTIONS = ["-O3", "-shared", "-fPIC"]


class OnePass:
    """One pass over uncompressed batches of magic 2.

    raw: the bytes of the batches, uint8. records: the number of their records.
    """

    def __init__(self, raw: np.ndarray, records: int):
        self.size = len(raw)
        self.records = records
        # `bytes`, as the other readers have: a numpy array would have huge pages.
        self.raw = np.frombuffer(raw.tobytes() + bytes(PADDING), np.uint8)
        numbers = [np.zeros(records, np.int64) for _ in range(2)]
        views = [np.zeros((records, 16), np.uint8) for _ in range(2)]
        self.columns = [*numbers, *views]
        self.call = build().one_pass
        self.call.restype = ctypes.c_int64

    def __call__(self) -> list[np.ndarray]:
        """Return offset and timestamp (int64), then key and value (views of 16 bytes).

        Each call writes into the same columns. The views point into `self.raw`.
        Raises ValueError if the batches have another number of records.
        """
        pointers = [ctypes.c_void_p(column.ctypes.data) for column in self.columns]
        count = self.call(
            ctypes.c_void_p(self.raw.ctypes.data), ctypes.c_int64(self.size), *pointers
        )
        if count != self.records:
            raise ValueError(f"the C program reads {count} of {self.records} records")
        return self.columns


def build() -> ctypes.CDLL:
    """Return the compiled program. It uses BMI2 if the processor has it."""
    options = list(OPTIONS)
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and " bmi2 " in cpuinfo.read_text():
        options += ["-mbmi", "-mbmi2"]
    command = ["gcc", *options, str(SOURCE)]

    def make(target: Path) -> None:
        subprocess.run([*command, "-o", target / "peer.so"], check=True, capture_output=True)

    recipe = SOURCE.read_bytes() + repr(command).encode()
    return ctypes.CDLL(str(make_once("one_pass", recipe, make) / "peer.so"))
