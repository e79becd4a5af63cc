"""A SPARK_HOME for tests: the installed pyspark, except that workers import it from its directory.

Spark's Python processes import pyspark from python/lib/pyspark.zip. Python compiles the modules of an archive in every
process, which takes more than half a second for each of them, and a query may start several. Here a directory has the
archive's name, and the modules in it are the installed ones, which are compiled.
"""
from pathlib import Path

import pyspark


def make_spark_home(home: Path) -> Path:
    """Fill the directory `home` with links to the installed pyspark; returns it."""
    installed = Path(pyspark.__file__).parent
    link_entries(installed, home, but="python")
    link_entries(installed / "python", home / "python", but="lib")
    link_entries(installed / "python" / "lib", home / "python" / "lib", but="pyspark.zip")
    archive = home / "python" / "lib" / "pyspark.zip"
    archive.mkdir()
    (archive / "pyspark").symlink_to(installed)
    return home


def link_entries(source: Path, target: Path, but: str) -> None:
    """Make the directory `target` with links to all entries of another, but one."""
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.name != but:
            (target / entry.name).symlink_to(entry)
