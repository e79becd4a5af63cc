"""Spark Connect: a server of its own, started as docs/spark.md says, and clients without a JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.guides import TIMEOUT, find_block, find_free_port, run_servers
from tests.spark.records import ORDERS

pytestmark = pytest.mark.spark

RECORDS = 27_708
HERE = Path(__file__).parent
MODULES = (
    "test_read.py",
    "test_source.py",
    "test_mapping.py",
    "test_partitions.py",
    "test_aggregate.py",
)
# Only classic sessions have RDDs, which these tests use.
ONLY_CLASSIC = (
    "test_small_slices_give_the_same",
    "test_partitions_follow_bytesPerPartition",
)

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
    text = str(error)
    print(text.partition("ValueError: ")[2][:20], "at org.apache" in text)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server of Spark Connect on the loopback."""
    folder = tmp_path_factory.mktemp("connect")
    port = find_free_port()
    text = find_block(
        "server",
        **{
            "15002": port,
            "spark-submit": "spark-submit --master 'local[2]' --driver-memory 1g "
            "--conf spark.sql.shuffle.partitions=2 "
            "--conf spark.ui.enabled=false --conf spark.log.level=ERROR",
        },
    )
    with run_servers(text, folder, port, SPARK_HOME=os.environ["SPARK_HOME"]):
        yield f"sc://127.0.0.1:{port}"


def run_client(code, server, *arguments):
    """Return the output of a client, as lines. The client finds no Java."""
    env = os.environ | {
        "SPARK_REMOTE": server,
        "JAVA_HOME": "/nowhere",
        "PATH": os.path.dirname(sys.executable),
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_the_example_of_the_guide_runs(server, tmp_path):
    log = tmp_path / "orders-0"
    log.symlink_to(ORDERS)
    code = find_block(
        "client", **{"127.0.0.1:15002": server.removeprefix("sc://"), "/data": tmp_path}
    )
    assert run_client(code, server) == [str(RECORDS), "True"]


def test_a_client_has_no_jvm(server, tmp_path):
    counts, refused, unknown = run_client(CLIENT, server, ORDERS, tmp_path / "out")
    assert counts == f"{RECORDS} {RECORDS}"
    assert "writer='spark'" in refused
    assert "Connect" in refused
    assert unknown.startswith("no format 'none'")
    assert unknown.endswith("False")


@pytest.mark.parametrize(
    "modules, selection",
    [
        pytest.param(("test_read.py", "test_mapping.py"), "spark and not nightly", id="a sample"),
        pytest.param(MODULES, "spark", id="all", marks=pytest.mark.nightly),
    ],
)
def test_tests_of_classic_sessions_pass(server, modules, selection):
    """They run in their own process, which cannot have classic sessions and those of Connect."""
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-m", selection]
    options = ["-p", "no:cacheprovider", "-W", "ignore"]
    options += [
        f"--deselect=tests/spark/{module}::{test}" for module in modules for test in ONLY_CLASSIC
    ]
    done = subprocess.run(
        [*pytest_command, *options, *(f"tests/spark/{module}" for module in modules)],
        cwd=HERE.parents[1],
        env=os.environ | {"SPARK_REMOTE": server},
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
    assert "no tests ran" not in done.stdout
