"""Spark's own readers of Delta Lake and Iceberg tables, in a Spark of a version that has both.

That Spark is not the installed one, so it reads in a process of its own. The package and the jars
are in the cache of cache.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .cache import make_once, run_with_retry

SPARK = "pyspark==4.1.4"
POM = Path(__file__).with_name("table-readers") / "pom.xml"
PROGRAM = Path(__file__).with_name("read_tables.py")


class Query(NamedTuple):
    """A table that Spark reads, and the directory for its rows as Parquet.

    table: a name as SQL has it, such as "delta.`/data/orders`" or "local.logs.orders".
    where: a condition in SQL; "" for all rows.
    """

    table: str
    where: str
    out: str


def fetch_spark() -> Path:
    """Return the directory with the package pyspark (0.5 GB). The first call downloads it."""

    def install(target: Path) -> None:
        run_with_retry(sys.executable, "-m", "pip", "install", "-q", "--target", target, SPARK)

    return make_once("table-readers-spark", SPARK.encode(), install)


def fetch_reader_jars() -> Path:
    """Return the directory of the readers' jars (60 MB). The first call downloads them."""

    def copy(target: Path) -> None:
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
        run_with_retry("mvn", "-q", "-B", "-f", POM, *goal, f"-DoutputDirectory={target}")

    return make_once("table-readers", POM.read_bytes(), copy)


def read_tables(queries: list[Query], catalog: Path, warehouse: Path) -> str:
    """Run queries, and return the version of Spark.

    catalog: the SQLite file of an Iceberg catalog of the name "local". warehouse: its directory.
    """
    jars = ",".join(map(str, sorted(fetch_reader_jars().glob("*.jar"))))
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "jdbc",
        "spark.sql.catalog.local.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.local.warehouse": f"file://{warehouse}",
    }
    request = json.dumps({"settings": settings, "queries": queries})
    path = os.pathsep.join([str(fetch_spark()), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    completed = subprocess.run(
        [sys.executable, PROGRAM],
        input=request,
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if completed.returncode:
        raise RuntimeError(f"Spark ended with {completed.returncode}:\n{completed.stderr[-4000:]}")
    return completed.stdout.strip()
