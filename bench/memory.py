"""How much memory a scan of a mapped file takes: `python -m bench.memory FILE`, in a process of its own.

Prints the bytes of all rows, and by how much the process's memory beside the file grew at its highest (Linux: the
address space that it reserved, which no garbage of another run and no page cache blurs).
"""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from wirescan import kafka
from wirescan.source import MappedFile


def measured(path: Path) -> dict[str, int]:
    """{"rows": bytes, "peak": bytes} of kafka.scan and kafka.records over a file."""
    done = subprocess.run([sys.executable, "-m", "bench.memory", str(path)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def address_space(name: str) -> int:
    return int(re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10


def main() -> None:
    file = MappedFile(sys.argv[1])
    np.empty(1 << 20).sum()                         # whatever numpy sets up at its first use
    before = address_space("VmSize")
    batches = kafka.scan(file)
    records = kafka.records(batches)
    peak = address_space("VmPeak") - before
    print(json.dumps({"rows": batches.rows.nbytes + records.rows.nbytes, "peak": peak}))


if __name__ == "__main__":
    main()
