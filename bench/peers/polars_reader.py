"""polars' Parquet reader in a separate process, because its number of threads is set at the start.

`python -m bench.peers.polars_reader PATH` reads the file for each line of its input. It prints the
number of rows and the seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class PolarsReader:
    """Passes of polars over a Parquet file, timed in the process of polars.

    path: the file. records: the number of its rows. threads: the threads of polars.
    """

    def __init__(self, path: Path, records: int, threads: int):
        self.records = records
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.polars_reader", str(path)],
            cwd=ROOT,
            env=os.environ | {"POLARS_MAX_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self) -> float:
        """Return the seconds of a pass.

        Raises RuntimeError if the process ends or finds another number of records.
        """
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or int(answer[0]) != self.records:
            raise RuntimeError(
                f"polars read {answer[0] if answer else 'none'} of {self.records} records"
            )
        return float(answer[1])

    def __enter__(self) -> PolarsReader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.process.communicate()


def serve(path: str) -> None:
    """Read the file for each line of the input, once without counting it and once more."""
    import polars

    for _ in sys.stdin:
        polars.read_parquet(path)
        start = time.perf_counter()
        frame = polars.read_parquet(path)
        seconds = time.perf_counter() - start
        print(len(frame), seconds, flush=True)
        del frame


if __name__ == "__main__":
    serve(sys.argv[1])
