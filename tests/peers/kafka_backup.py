"""OSO's kafka-backup: a small program around its engine, the crate kafka-backup-core."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .cache import make_once, run_with_retry

SOURCE = Path(__file__).with_name("kbak")
COMPRESSIONS = ("none", "zstd", "lz4")


def build_program() -> Path:
    """Build the program once, and return its path. It needs cargo (Rust)."""

    def build(target: Path) -> None:
        scratch = target / "scratch"
        manifest = SOURCE / "Cargo.toml"
        options = ["--quiet", "--locked", "--target-dir", scratch]
        run_with_retry("cargo", "build", *options, "--manifest-path", manifest)
        shutil.move(scratch / "debug" / "kbak", target / "kbak")
        shutil.rmtree(scratch)

    names = ("Cargo.toml", "Cargo.lock", "src/main.rs")
    recipe = b"".join((SOURCE / name).read_bytes() for name in names)
    return make_once("kafka-backup-core", recipe, build) / "kbak"


def back_up(address: str, topic: str, target: Path, compression: str, **options: object) -> Path:
    """Back up a topic to a directory of the backup, which is returned.

    options: further options of the section `backup` of the program's configuration.
    """
    config = {
        "mode": "backup",
        "backup_id": compression,
        "source": {"bootstrap_servers": [address], "topics": {"include": [topic]}},
        "storage": {"backend": "filesystem", "path": str(target)},
        "backup": {"compression": compression, "continuous": False, **options},
    }
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "backup.json")
        path.write_text(json.dumps(config))
        # The program keeps a database of offsets in the directory for temporary files.
        subprocess.run([build_program(), path], check=True, env=os.environ | {"TMPDIR": scratch})
    return target / compression
