"""A cache for what the tests of real programs and of Spark download or make.

The cache is outside the repository: in the directory WIRESCAN_PEERS_CACHE, by default
~/.cache/wirescan/peers. Each recipe has its own directory, whose name holds the recipe's checksum.
"""

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


def make_once(name: str, recipe: bytes, make: Callable[[Path], None]) -> Path:
    """Return the directory of a recipe. The first call fills it with `make(directory)`.

    Calls in other processes wait meanwhile: two builds at once take more than twice as long.
    """
    cache = Path(os.environ.get("WIRESCAN_PEERS_CACHE", "~/.cache/wirescan/peers")).expanduser()
    target = cache / f"{name}-{hashlib.sha256(recipe).hexdigest()[:12]}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with open(f"{target}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                directory = Path(scratch, "made")
                directory.mkdir()
                make(directory)
                directory.rename(target)
    return target


def run_with_retry(*command: object, **options) -> None:
    """Run a command that downloads. If it fails, run it once more: registries fail sometimes."""
    command = ["nice", *map(str, command)]
    if subprocess.run(command, **options).returncode:
        subprocess.run(command, check=True, **options)
