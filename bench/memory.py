"""The memory of a scan of a mapped file, in a separate process: `python -m bench.memory FILE`.

It prints the bytes of all rows, and the peak growth of the process's memory without the file. On
Linux that is the reserved address space, which does not depend on the page cache or earlier runs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from wirescan import kafka
from wirescan.core.parallel import FixedWorkers
from wirescan.files.source import MappedFile


def measure(path: Path) -> dict[str, int]:
    """Return {"rows": bytes, "peak": bytes} of kafka.scan and kafka.records over a file."""
    result = subprocess.run(
        [sys.executable, "-m", "bench.memory", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(result.stdout)


def read_address_space(name: str) -> int:
    return int(re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


def main() -> None:
    file = MappedFile(sys.argv[1])
    np.empty(1 << 20).sum()  # numpy allocates memory at its first use
    before = read_address_space("VmSize")
    # Each thread reserves address space, which it hardly uses.
    with FixedWorkers(1):
        batches = kafka.scan(file)
        records = kafka.records(batches)
    peak = read_address_space("VmPeak") - before
    print(json.dumps({"rows": batches.rows.nbytes + records.rows.nbytes, "peak": peak}))


if __name__ == "__main__":
    main()
