"""A SPARK_HOME for tests: the installed pyspark, imported by workers from its directory.

Spark's Python processes import pyspark from python/lib/pyspark.zip. Python compiles the modules of
an archive in every process. That takes more than half a second, and a query may start several
processes. Here a directory has the archive's name. Its modules are the installed, compiled ones.
"""

from pathlib import Path

import pyspark


def make_spark_home(home: Path) -> Path:
    """Fill the directory `home` with links to the installed pyspark. Return `home`."""
    installed = Path(pyspark.__file__).parent
    link_entries(installed, home, but="python")
    link_entries(installed / "python", home / "python", but="lib")
    link_entries(installed / "python" / "lib", home / "python" / "lib", but="pyspark.zip")
    archive = home / "python" / "lib" / "pyspark.zip"
    archive.mkdir()
    (archive / "pyspark").symlink_to(installed)
    return home


def link_entries(source: Path, target: Path, but: str) -> None:
    """Fill the directory `target` with links to all entries of `source` except `but`."""
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.name != but:
            (target / entry.name).symlink_to(entry)
