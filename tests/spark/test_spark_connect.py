"""Spark Connect: a server apart, started as docs/spark.md says, and clients that have no JVM."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ORDERS
from guides import HEAP, PATIENCE, block, free_port, running

pytestmark = pytest.mark.spark

RECORDS = 27_708
HERE = Path(__file__).parent
MODULES = ("test_spark_read.py", "test_spark_source.py", "test_spark_mapping.py", "test_spark_partitions.py",
           "test_spark_aggregate.py")
ONLY_CLASSIC = ("test_small_slices_give_the_same", "test_partitions_follow_bytesPerPartition")    # they ask RDDs

CLIENT = """
import socket, sys
from wirescan.spark import session, to_parquet
spark = session("client")
for name in ("sparkContext", "_jvm"):
    assert not hasattr(spark, name), name
assert spark.conf.get("spark.sql.execution.arrow.pyspark.validateSchema.enabled") == "true"
source, out = sys.argv[1:]
print(to_parquet(spark, source, out).records, spark.read.parquet(out).count())
try:
    to_parquet(spark, source, out + "-2", writer="spark")
except ValueError as error:
    print(error)
try:
    spark.read.format("wirescan").option("format", "none").load(source).count()
except Exception as error:
    told = str(error)
    print(told.partition("ValueError: ")[2][:20], "at org.apache" in told)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server of Spark Connect on the loopback."""
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    text = block("server", **{"15002": port, "spark-submit": "spark-submit --master 'local[2]' --driver-memory 1g "
                              f"--driver-java-options '{HEAP}' --conf spark.sql.shuffle.partitions=2 "
                              "--conf spark.ui.enabled=false --conf spark.log.level=ERROR"})
    with running(text, folder, port, SPARK_HOME=os.environ["SPARK_HOME"]):
        yield f"sc://127.0.0.1:{port}"


def client(code, server, *arguments):
    """What a client says; it finds no Java."""
    env = os.environ | {"SPARK_REMOTE": server, "JAVA_HOME": "/nowhere", "PATH": os.path.dirname(sys.executable)}
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=env, capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_the_guide(server, tmp_path):
    log = tmp_path / "orders-0"
    log.symlink_to(ORDERS)
    code = block("client", **{"127.0.0.1:15002": server.removeprefix("sc://"), "/data": tmp_path})
    assert client(code, server) == [str(RECORDS), "True"]


def test_a_client_has_no_jvm(server, tmp_path):
    counts, refused, unknown = client(CLIENT, server, ORDERS, tmp_path / "out")
    assert counts == f"{RECORDS} {RECORDS}" and "writer='spark'" in refused and "Connect" in refused
    assert unknown.startswith("no format 'none'") and unknown.endswith("False")


def test_what_classic_sessions_are_tested_with(server):
    """The same tests through Connect, in a process of their own: one has classic sessions or those of Connect."""
    words = [f"--deselect=tests/spark/{module}::{test}" for module in MODULES for test in ONLY_CLASSIC]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "spark", "-p", "no:cacheprovider", "-W", "ignore", *words,
         *(f"tests/spark/{module}" for module in MODULES)], cwd=HERE.parents[1],
        env=os.environ | {"SPARK_REMOTE": server}, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout and "no tests ran" not in done.stdout
