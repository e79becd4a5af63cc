"""Runs the commands of docs/spark.md.

They run on one machine and, in the nightly run, on a standalone cluster with a packed environment.
Those for YARN and Kubernetes run until they connect to the cluster.
"""

import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import wirescan
from tests.spark.guides import (
    BLOCKS,
    ROOT,
    find_block,
    find_free_port,
    make_environment,
    run_block,
    run_servers,
)
from tests.spark.records import ORDERS

pytestmark = pytest.mark.spark

RECORDS = 27_708


def test_every_named_block_is_run():
    run_here = {"local", "pack", "job", "cluster", "submit", "yarn", "kubernetes"}
    run_here |= {"schema", "segments", "aggregates", "topics"}
    run_by_test_connect = {"server", "client"}
    run_by_peers = {"confluent"}  # tests/peers/test_spark_kafka_source.py
    assert set(BLOCKS) == run_here | run_by_test_connect | run_by_peers


def test_the_guides_of_the_kafka_schema_run(spark, tmp_path, capsys):
    (tmp_path / "orders-0").symlink_to(ORDERS)
    exec(find_block("schema", **{"/data/": f"{tmp_path}/"}), {"spark": spark})
    assert "orders" in capsys.readouterr().out
    places = {"/data/": f"{tmp_path}/", "2026-01-01": "2023-11-14"}
    exec(find_block("segments", **places), {"spark": spark})
    records = wirescan.scan(ORDERS, "kafka.records")
    expected = RECORDS - int(np.count_nonzero(records["is_control"]))
    assert len(wirescan.scan(tmp_path / "restored", "kafka.records")) == expected


def test_the_guide_of_aggregates_runs(spark, capsys):
    names = {"spark": spark, "wirescan": wirescan}
    exec(find_block("aggregates", **{"/data/orders-0": ORDERS}), names)
    output = capsys.readouterr().out
    table = wirescan.scan(ORDERS, "kafka.records")
    keys = {bytes(row.key) for row in table if row.key is not None}
    assert abs(names["row"].key_distinct - len(keys)) < 0.08 * len(keys)
    assert output.count("only showing top") == 0
    tables = [part for part in output.split("+\n\n") if "count" in part]
    top, same_in_sql = [
        [
            [cell.strip() for cell in line.split("|")]
            for line in part.splitlines()
            if line.startswith("|[")
        ]
        for part in tables[:2]
    ]
    assert top == same_in_sql
    assert len(top) >= 19  # the null key may be among the 20


def test_the_guide_of_the_directories_of_brokers_runs(spark, tmp_path):
    names = {"spark": spark, "wirescan": wirescan}
    for topic in ("orders-new", "payments", "other", "__consumer_offsets"):
        shutil.copytree(ORDERS, tmp_path / f"{topic}-0")
    *lines, last = find_block("topics", **{"/var/lib/kafka": tmp_path}).strip().splitlines()
    exec("\n".join(lines[:-1]), names)
    for frame in (eval(lines[-1], names), eval(last, names)):
        assert frame.count() == 2 * RECORDS


def test_the_guide_for_one_machine_runs(tmp_path):
    code = find_block("local", **{"/data/orders-0": ORDERS, "4g": "1g"})
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=make_environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    table = wirescan.scan(ORDERS, "kafka.records")
    assert done.stdout.splitlines()[0] == str((table["value_size"] > 1000).sum())
    assert str(table["offset"].max()) in done.stdout


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The packed environment of the guide.

    The installed wirescan is copied instead of built again. The archive has the fastest
    compression.
    """
    folder = tmp_path_factory.mktemp("packed")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = [*project["dependencies"], *project["optional-dependencies"]["arrow"]]
    names = shlex.join(packages)
    commands = find_block("pack", **{"'.[arrow]'": names, " -o ": " --compress-level 1 -o "})
    make, install, pack = commands.splitlines()
    run_block(f"{make}\n{install}", folder)
    (site,) = folder.glob("packed/lib/python*/site-packages")
    shutil.copytree(
        Path(wirescan.__file__).parent,
        site / "wirescan",
        ignore=shutil.ignore_patterns("*.pyx", "*.c", "__pycache__"),
    )
    run_block(pack, folder)
    return folder / "environment.tar.gz"


@pytest.mark.nightly
def test_the_guide_for_a_standalone_cluster_runs(packed, tmp_path):
    port = find_free_port()
    web_port = find_free_port()
    start = find_block("cluster", **{"7077": port})
    (tmp_path / "job.py").write_text(find_block("job"))
    (tmp_path / "environment.tar.gz").symlink_to(packed)
    memory = "--driver-memory 1g --executor-memory"
    submit = find_block(
        "submit",
        **{
            "7077": port,
            "/data/orders-0": ORDERS,
            "/data/orders.parquet": tmp_path / "out",
            "--executor-memory": memory,
        },
    )
    variables = {
        "SPARK_MASTER_WEBUI_PORT": str(web_port),
        "SPARK_WORKER_WEBUI_PORT": "0",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with run_servers(start, tmp_path, port, **variables):
        output = run_block(start.splitlines()[0] + "\n" + submit, tmp_path)
    assert output.splitlines() == [f"{RECORDS} records, 0 faults", str(RECORDS)]
    assert list((tmp_path / "work").glob("app-*/*/environment/lib/python*/site-packages/wirescan"))
    assert list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.parametrize(
    "name, application, properties",
    [
        (
            "yarn",
            "yarn.YarnClusterApplication",
            [
                "(spark.yarn.dist.archives,file:",
                "environment.tar.gz#environment)",
                "(spark.pyspark.python,./environment/bin/python)",
            ],
        ),
        (
            "kubernetes",
            "k8s.submit.KubernetesClientApplication",
            ["(spark.kubernetes.container.image,registry.example/"],
        ),
    ],
)
def test_a_submission_connects_to_the_cluster(tmp_path, name, application, properties):
    """Spark accepts every option and makes an application. It fails without a cluster."""
    (tmp_path / "job.py").write_text(find_block("job"))
    (tmp_path / "environment.tar.gz").write_bytes(b"")
    port = find_free_port()
    for file, settings in (
        (
            "yarn-site.xml",
            {
                "yarn.resourcemanager.address": f"127.0.0.1:{port}",
                "yarn.resourcemanager.connect.max-wait.ms": 1,
                "yarn.resourcemanager.connect.retry-interval.ms": 1,
            },
        ),
        ("core-site.xml", {"ipc.client.connect.max.retries": 0}),
    ):
        values = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in settings.items()
        )
        (tmp_path / file).write_text(f"<configuration>{values}</configuration>")
    set_home = find_block("cluster").splitlines()[0]
    text = BLOCKS[name].replace("kubernetes.example:6443", f"127.0.0.1:{port}")
    text = set_home + "\n" + text.replace("spark-submit ", "spark-submit --verbose ", 1)
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=make_environment(tmp_path, HADOOP_CONF_DIR=str(tmp_path)),
    )
    output = done.stdout + done.stderr
    assert done.returncode, output[-4000:]
    assert application in output, output[-4000:]
    assert "Connection refused" in output, output[-4000:]
    assert all(text in output for text in properties), output
