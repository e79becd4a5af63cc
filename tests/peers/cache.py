"""What the peers download or build, kept outside the repository: in WIRESCAN_PEERS_CACHE, default
~/.cache/wirescan/peers, each in a directory whose name follows from what it is made of."""
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


def kept(name: str, recipe: bytes, make: Callable[[Path], None]) -> Path:
    """The directory that `make(directory)` fills at the first call; another recipe is another directory."""
    cache = Path(os.environ.get("WIRESCAN_PEERS_CACHE", "~/.cache/wirescan/peers")).expanduser()
    target = cache / f"{name}-{hashlib.sha256(recipe).hexdigest()[:12]}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        make(made)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was first; its copy is as good
                raise
    return target


def twice(*command: object, **options) -> None:
    """Run a command that downloads: a registry that failed once often answers the second time."""
    command = ["nice", *map(str, command)]
    if subprocess.run(command, **options).returncode:
        subprocess.run(command, check=True, **options)
