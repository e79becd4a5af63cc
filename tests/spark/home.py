"""A SPARK_HOME and a JAVA_HOME that make Spark start faster in tests.

Python: Spark's Python processes import pyspark from python/lib/pyspark.zip. Python compiles the
modules of an archive in every process. That takes more than half a second, and a query may start
several processes. Here a directory has the archive's name. Its modules are the installed, compiled
ones.

Java: every session, and every process of a cluster, loads thousands of classes. Java loads them
faster from an archive of its own (class data sharing): a session with two queries took 11 s instead
of 19 s. Tests are short, so Java also compiles little.
"""

import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyspark

from tests.peers.broker import read_java_version
from tests.peers.cache import make_once
from tests.support.paths import ORDERS
from wirescan.spark.java import find_java

LAUNCHER = """#!/bin/sh
case " $* " in
*" -XX:SharedArchiveFile="* | *" -XX:ArchiveClassesAtExit="*) ;;
# A process with another class path does not use the archive, and prints no warning about it.
*) set -- -XX:SharedArchiveFile={archive} -Xlog:disable "$@" ;;
esac
exec {java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "$@"
"""
ARCHIVE = "classes.jsa"
# Loads the classes that most tests need. Java writes them when it ends.
USE_CLASSES = """
import sys, tempfile
from wirescan.spark import read, session
archive, log = sys.argv[1:]
options = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"}
spark = session("classes", "local[1]", **options)
read(spark, log).groupBy("is_control").count().collect()
with tempfile.TemporaryDirectory() as folder:
    rows = spark.read.format("wirescan").load(log)
    rows.write.parquet(folder + "/rows")
    assert spark.read.parquet(folder + "/rows").count() == rows.count()
spark.stop()
"""


def use_quick_spark() -> None:
    """Set SPARK_HOME and JAVA_HOME for this process and its children, unless SPARK_HOME is set."""
    if "SPARK_HOME" in os.environ:
        return
    java_home = Path(find_java())
    version = read_java_version(str(java_home / "bin" / "java"))
    recipe = f"{pyspark.__version__} {pyspark.__file__} {java_home} {version}\n".encode()
    recipe += Path(__file__).read_bytes()
    os.environ["SPARK_HOME"] = str(make_once("spark-home", recipe, make_spark_home))
    archive = make_once("spark-classes", recipe, write_classes) / ARCHIVE
    make_home = partial(make_java_home, java_home, archive)
    os.environ["JAVA_HOME"] = str(make_once("spark-java", recipe, make_home))


def make_spark_home(home: Path) -> None:
    """Fill the directory `home` with links to the installed pyspark."""
    installed = Path(pyspark.__file__).parent
    link_entries(installed, home, but="python")
    link_entries(installed / "python", home / "python", but="lib")
    link_entries(installed / "python" / "lib", home / "python" / "lib", but="pyspark.zip")
    archive = home / "python" / "lib" / "pyspark.zip"
    archive.mkdir()
    (archive / "pyspark").symlink_to(installed)


def write_classes(folder: Path) -> None:
    """Write the archive of Java's classes."""
    # Java holds the pipes open, so this waits until the archive is written.
    done = subprocess.run(
        [sys.executable, "-c", USE_CLASSES, folder / ARCHIVE, ORDERS],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode or not (folder / ARCHIVE).exists():
        raise RuntimeError(f"no archive of Java's classes:\n{done.stdout[-4000:]}{done.stderr}")


def make_java_home(installed: Path, archive: Path, home: Path) -> None:
    """Fill the directory `home` with links to an installed Java. Its `java` uses the archive."""
    link_entries(installed, home, but="bin")
    link_entries(installed / "bin", home / "bin", but="java")
    launcher = home / "bin" / "java"
    places = {"archive": archive, "java": installed / "bin" / "java"}
    quoted = {name: shlex.quote(str(place)) for name, place in places.items()}
    launcher.write_text(LAUNCHER.format(**quoted))
    launcher.chmod(0o755)


def link_entries(source: Path, target: Path, but: str) -> None:
    """Fill the directory `target` with links to all entries of `source` except `but`."""
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.name != but:
            (target / entry.name).symlink_to(entry)
